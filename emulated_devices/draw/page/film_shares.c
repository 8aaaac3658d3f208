/* film_shares.c -- divides the devices' time, and says how two films differ.  film_settle.c and page_html.c call.
 * Without memory a function returns false or NULL. */
#include "emulated_devices/draw/page/film.h"
#include "ref/io/figures.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPUTES, TRAVELS, IDLE };

/* A time at which a device begins, or ceases, to compute or to have a message on its way. */
struct film_turn { int64_t at; int computes, travels; };

static int turn_before(const void *a, const void *b)
{
    const struct film_turn *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int turn_add(struct film_turn *turn, int turns, int64_t start, int64_t end, bool computes)
{
    if (end <= start) return turns;
    turn[turns] = (struct film_turn){ start, computes, !computes };
    turn[turns + 1] = (struct film_turn){ end, -computes, -!computes };
    return turns + 2;
}

/* Times of a film may lie outside [0, end] in a foreign file's film only; what is outside counts for nobody. */
static int64_t inside(const struct film *film, int64_t at) { return at < 0 ? 0 : at > film->end ? film->end : at; }

bool film_shares(const struct film *film, int device, int64_t share[FILM_SHARES])
{
    if (film->share) {
        memcpy(share, film->share[device], sizeof film->share[device]);
        return true;
    }
    struct film_turn *const turn = calloc(2 * ((size_t)film->passes + (size_t)film->messages) + 1, sizeof *turn);
    int turns = 0, computes = 0, travels = 0;
    if (turn == NULL) return false;
    for (int i = 0; i < film->passes; i++) {
        const struct film_pass *const p = &film->pass[i];
        const enum film_of of = film->of[p->kind].of;
        if (p->device == device && (of == FILM_COMPUTE || of == FILM_MESSAGE))
            turns = turn_add(turn, turns, inside(film, p->start), inside(film, p->end), of == FILM_COMPUTE);
    }
    for (int i = 0; i < film->messages; i++) {
        const struct film_message *const m = &film->message[i];
        if (m->from == device || m->to == device)
            turns = turn_add(turn, turns, inside(film, m->start), inside(film, m->end), false);
    }
    qsort(turn, (size_t)turns, sizeof *turn, turn_before);
    memset(share, 0, FILM_SHARES * sizeof *share);
    for (int i = 0; i < turns; i++) {
        computes += turn[i].computes, travels += turn[i].travels;
        const int64_t until = i + 1 < turns ? turn[i + 1].at : turn[i].at;
        if (computes > 0) share[COMPUTES] += until - turn[i].at;
        else if (travels > 0) share[TRAVELS] += until - turn[i].at;
    }
    share[IDLE] = film->end - share[COMPUTES] - share[TRAVELS];
    free(turn);
    return true;
}

/* ---- two films --------------------------------------------------------------------------------------------------- */

/* Mean over devices of each part. */
static bool shares_mean(const struct film *film, double mean[FILM_SHARES])
{
    int64_t one[FILM_SHARES];
    for (int k = 0; k < FILM_SHARES; k++) mean[k] = 0;
    for (int d = 0; d < film->devices; d++) {
        if (!film_shares(film, d, one)) return false;
        for (int k = 0; k < FILM_SHARES; k++) mean[k] += (double)one[k] / film->devices;
    }
    return true;
}

/* The unit in which a difference is said, and the smallest part of it that is printed. */
struct scale { const char *word; double unit; int digits; };

static struct scale scale_of(const struct film *film, double most)
{
    static const struct scale picoseconds[] = { { " s", 1e12, 2 }, { " ms", 1e9, 2 }, { " us", 1e6, 2 },
                                                { " ns", 1e3, 2 }, { " ps", 1, 0 } };
    if (strcmp(film->unit, "ps") != 0) return (struct scale){ " ticks", 1, 1 };
    int i = 0;
    while (i < 4 && fabs(most) < picoseconds[i].unit) i++;
    return picoseconds[i];
}

/* The parts are rounded to printed digits so that they add up to the rounded whole: the part that is farthest from its
 * rounded number takes what is left. */
static void round_parts(const double part[FILM_SHARES], double step, int64_t whole, int64_t rounded[FILM_SHARES])
{
    int64_t sum = 0;
    for (int k = 0; k < FILM_SHARES; k++) rounded[k] = llround(part[k] / step), sum += rounded[k];
    while (sum != whole) {
        const int way = whole > sum ? 1 : -1;
        int most = 0;
        for (int k = 1; k < FILM_SHARES; k++)
            if (way * (part[k] / step - (double)rounded[k]) > way * (part[most] / step - (double)rounded[most]))
                most = k;
        rounded[most] += way, sum += way;
    }
}

enum { NAMED = 64 };                    /* bytes of a name */

/* A film is called in a sentence by the schedule or the scheme that its title has and the other film's has not. */
static void name_of(const struct film *film, const struct film *other, const char *letter, char name[NAMED])
{
    char word[NAMED];
    snprintf(name, NAMED, "%s", letter);
    for (const char *at = film->title; at && *at;) {
        const size_t length = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        at += length + (at[length] == ' ');
        if (length == 0 || word[0] == '-') continue;
        bool there = false;
        for (const char *in = other->title; in && (in = strstr(in, word)) && !there; in += length)
            there = (in == other->title || in[-1] == ' ') && (in[length] == ' ' || in[length] == '\0');
        if (there || length >= NAMED || strpbrk(word, "./") || !strpbrk(word, "abcdefghijklmnopqrstuvwxyz")) continue;
        snprintf(name, NAMED, "%s", word);
        return;
    }
}

/* Idle time of a pipeline is called its bubble. */
static bool has_stages(const struct film *film)
{
    for (int i = 0; i < film->axes; i++)
        if (strcmp(film->axis[i].name, "pp") == 0 && film->axis[i].size > 1) return true;
    return false;
}

char *film_differ(const struct film *first, const struct film *second)
{
    double a[FILM_SHARES], b[FILM_SHARES], part[FILM_SHARES];
    int64_t rounded[FILM_SHARES];
    char name[NAMED], other[NAMED], *text = NULL;
    size_t bytes = 0;
    const char *const words[] = { "computing", "messages",
                                  has_stages(first) && has_stages(second) ? "bubble" : "idle" };
    if (!shares_mean(first, a) || !shares_mean(second, b)) return NULL;
    FILE *const f = open_memstream(&text, &bytes);
    if (f == NULL) return NULL;
    name_of(first, second, "A", other), name_of(second, first, "B", name);
    const double more = (double)(second->end - first->end);
    double most = fabs(more);
    for (int k = 0; k < FILM_SHARES; k++) part[k] = b[k] - a[k], most = fmax(most, fabs(part[k]));
    const struct scale s = scale_of(first, most);
    const double step = s.unit / pow(10, s.digits);
    const int64_t whole = llround(more / step);
    if (strcmp(first->unit, second->unit) != 0)
        fprintf(f, "%s and %s have different units of time: their times cannot be compared", other, name);
    else if (first->devices == 0 || second->devices == 0)
        fprintf(f, "a film without devices has no time to compare");
    else {
        round_parts(part, step, whole, rounded);
        if (whole == 0) fprintf(f, "%s takes as long as %s", name, other);
        else
            fprintf(f, "%s %s %.*f%s %s %s", name, whole < 0 ? "saves" : "takes", s.digits,
                    fabs((double)whole) * step / s.unit, s.word, whole < 0 ? "against" : "more than", other);
        for (int k = FILM_SHARES - 1; k >= 0; k--)
            fprintf(f, "%s%s %+.*f", k == FILM_SHARES - 1 ? ": " : ", ", words[k], s.digits,
                    (double)rounded[k] * step / s.unit);
        fprintf(f, "%s%s", s.word, first->devices > 1 || second->devices > 1 ? " (means over devices)" : "");
    }
    const bool good = !ferror(f);
    if (fclose(f) == 0 && good) return text;
    free(text);
    return NULL;
}
