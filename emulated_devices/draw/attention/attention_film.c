/* attention_film.c -- the page of attention over cut sequences: when each device has which keys and values, with which
 * it computes, and what is on its way.
 *
 * attention.c calls attention_page.  Times are rounds: a message or a computation with one block of keys takes one.
 * Errors: ERR_FILE and ERR_MEMORY, from the page.
 */
#include "emulated_devices/draw/attention/attention_drawing.h"
#include "emulated_devices/draw/page/page_html.h"
#include <math.h>
#include <string.h>

/* Every second token of 64 has 120 letters. */
enum { SET_TEXT = 140, TEXT = 2 * SET_TEXT + 40 };

/* Tokens and heads, a bit each; and of whom the tokens are. */
struct attention_part { uint64_t tokens, heads; };

/* A filming knows its drawing and the numbers of its kinds and lanes. */
struct attention_filming {
    const struct attention_drawing *d;
    struct film film;
    int computes, lane_compute, lane_receive, column_results;
};

static int64_t round_of(picoseconds time) { return (time + ATTENTION_ROUND / 2) / ATTENTION_ROUND; }

/* "0-3, 8" of a set. */
static const char *set_text(uint64_t set, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0, end; i < 64 && used < size; i = end + 1) {
        for (end = i; end < 64 && (set >> end & 1);) end++;
        if (end == i) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%d", used ? ", " : "", i);
        if (end > i + 1 && used < size) used += (size_t)snprintf(text + used, size - used, "-%d", end - 1);
    }
    return text;
}

/* "tokens 0-3", and the heads unless all are there. */
static const char *part_text(const struct attention_drawing *drawing, struct attention_part part, char *text,
                             size_t size)
{
    char tokens[SET_TEXT], heads[SET_TEXT];
    const uint64_t all = drawing->H < 64 ? (UINT64_C(1) << drawing->H) - 1 : UINT64_MAX;
    set_text(part.tokens, tokens, sizeof tokens), set_text(part.heads, heads, sizeof heads);
    if (part.heads == 0 || part.heads == all) snprintf(text, size, "tokens %s", tokens);
    else snprintf(text, size, "tokens %s, head%s %s", tokens, part.heads & (part.heads - 1) ? "s" : "", heads);
    return text;
}

/* The tokens of a set that a device had at the beginning. */
static uint64_t tokens_of(const struct attention_drawing *drawing, int device)
{
    uint64_t set = 0;
    for (int t = 0; t < drawing->S; t++) set |= (uint64_t)(drawing->holder[t] == device) << t;
    return set;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Sort the numbers of a message by kinds. */
static void read_message(const int64_t *event, struct attention_part part[ATTENTION_SENT_KINDS])
{
    memset(part, 0, ATTENTION_SENT_KINDS * sizeof *part);
    for (const int64_t *n = event + 4; n < attention_after(event); n++) {
        const struct sent_number s = sent_number_read(*n);
        part[s.kind].tokens |= UINT64_C(1) << s.token, part[s.kind].heads |= UINT64_C(1) << s.head;
    }
}

/* The kind that names a message by what it has. */
static int message_kind(struct film *film, const struct attention_part part[ATTENTION_SENT_KINDS])
{
    const bool q = part[ATTENTION_QUERY].tokens, k = part[ATTENTION_KEY].tokens, v = part[ATTENTION_VALUE].tokens;
    return q && k ? film_kind(film, "queries, keys, values", "QKV", FILM_MESSAGE)
         : k && v ? film_kind(film, "keys and values", "KV", FILM_MESSAGE)
         : k ? film_kind(film, "keys", "K", FILM_MESSAGE)
         : v ? film_kind(film, "values", "V", FILM_MESSAGE)
         : q ? film_kind(film, "queries", "Q", FILM_MESSAGE)
         : part[ATTENTION_RESULT].tokens ? film_kind(film, "results", "O", FILM_MESSAGE)
                                         : film_kind(film, "sums of the softmax", "l", FILM_MESSAGE);
}

static void film_received(struct attention_filming *filming, int device, const int64_t *event)
{
    static const char *const name[] = { "queries", "keys", "values", "results" };
    struct attention_part part[ATTENTION_SENT_KINDS];
    struct film *f = &filming->film;
    const int64_t end = round_of(event[1]), start = end > 0 ? end - 1 : 0;
    char text[TEXT];
    read_message(event, part);
    const int kind = message_kind(f, part);
    film_message(f, (struct film_message){ (int)event[0], device, kind, start, end, event[3] });
    snprintf(text, sizeof text, "%s from device %d", kind >= 0 ? f->of[kind].name : "", (int)event[0]);
    const int detail = film_detail(f, text);
    for (int k = 0; k < ATTENTION_SENT_KINDS; k++)
        if (part[k].tokens) film_detail_row(f, detail, name[k], part_text(filming->d, part[k], text, sizeof text));
    film_pass(f, (struct film_pass){ device, filming->lane_receive, kind, start, end, -1, -2, detail });
    /* Keys that have come are in the column of the device that had them first. */
    for (int owner = 0; owner < filming->d->P; owner++) {
        const struct attention_part keys = { part[ATTENTION_KEY].tokens & tokens_of(filming->d, owner),
                                             part[ATTENTION_KEY].heads };
        if (keys.tokens == 0) continue;
        film_cell(f, device, owner, end, part_text(filming->d, keys, text, sizeof text), FILM_PARTIAL);
    }
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

/* The queries and keys of a computation, and how many pairs. */
struct attention_met { uint64_t queries, keys, heads; int64_t pairs; };

static struct attention_met read_met(const int64_t *event)
{
    struct attention_met met = { 0, 0, 0, event[2] };
    for (const int64_t *n = event + 3; n < attention_after(event); n++) {
        const struct seen_pair s = seen_pair_read(*n);
        met.queries |= UINT64_C(1) << s.query, met.keys |= UINT64_C(1) << s.key, met.heads |= UINT64_C(1) << s.head;
    }
    return met;
}

/* Say in the keys' columns which pairs were computed with them, and in the last column how many of all. */
static void film_computed_cells(struct attention_filming *filming, int device, const struct attention_met *met,
                                int64_t start, int64_t end, int64_t done, int64_t all)
{
    char keys[SET_TEXT], queries[SET_TEXT], text[TEXT];
    for (int owner = 0; owner < filming->d->P; owner++) {
        const uint64_t here = met->keys & tokens_of(filming->d, owner);
        if (here == 0) continue;
        set_text(here, keys, sizeof keys), set_text(met->queries, queries, sizeof queries);
        snprintf(text, sizeof text, "%s \xc3\x97 queries %s", keys, queries);
        film_cell(&filming->film, device, owner, start, text, FILM_PLAIN);
        snprintf(text, sizeof text, "%s: done", keys);
        film_cell(&filming->film, device, owner, end, text, FILM_WHOLE);
    }
    snprintf(text, sizeof text, "%lld of %lld pairs", (long long)done, (long long)all);
    film_cell(&filming->film, device, filming->column_results, end, text, done < all ? FILM_PARTIAL
              : filming->d->t->outcome[device].wrong[0] ? FILM_WRONG : FILM_WHOLE);
}

static void film_computed(struct attention_filming *filming, int device, const int64_t *event, int64_t done,
                          int64_t all)
{
    struct film *f = &filming->film;
    const struct attention_met met = read_met(event);
    const int64_t end = round_of(event[1]), start = end > 0 ? end - 1 : 0;
    char text[TEXT];
    int detail;
    if (met.pairs == 0) detail = film_detail(f, "keys that no query of the device sees: nothing to compute");
    else {
        detail = film_detail(f, "queries times keys");
        film_detail_row(f, detail, "queries", part_text(filming->d, (struct attention_part){ met.queries, met.heads },
                                                        text, sizeof text));
        film_detail_row(f, detail, "keys and values", part_text(filming->d, (struct attention_part){ met.keys, 0 },
                                                                text, sizeof text));
        snprintf(text, sizeof text, "%lld that the causal mask leaves", (long long)met.pairs);
        film_detail_row(f, detail, "pairs", text);
        film_detail_row(f, detail, "formula", "a part of O = softmax(Q K^T / sqrt(A)) V; A is the width of a head");
        film_computed_cells(filming, device, &met, start, end, done, all);
    }
    film_pass(f, (struct film_pass){ device, filming->lane_compute, filming->computes, start, end, -1, -2, detail });
}

static void film_attention_device(struct attention_filming *filming, int device)
{
    const struct record *r = &filming->d->t->record[device];
    int64_t done = 0, all = 0;
    for (const int64_t *e = r->number; e < attention_end_of(r); e = attention_after(e))
        if (e[0] == ATTENTION_COMPUTED) all += e[2];
    for (const int64_t *e = r->number; e < attention_end_of(r); e = attention_after(e)) {
        if (e[0] != ATTENTION_COMPUTED) film_received(filming, device, e);
        else done += e[2], film_computed(filming, device, e, done, all);
    }
}

/* Begin with the devices, their tokens, and the columns of keys. */
static void film_attention_begin(struct attention_filming *filming)
{
    const struct attention_drawing *d = filming->d;
    struct film *f = &filming->film;
    const char *scheme = d->t->layer->cp.scheme->head.name;
    char text[TEXT + 80], place[24], has[TEXT];
    snprintf(text, sizeof text, "orrery show attention %s --devices %d --seq %d --heads %d", scheme, d->P, d->S, d->H);
    film_open(f, "attention", "tick", text);
    film_axis(f, "cp", d->P);
    for (int r = 0; r < d->P; r++) {
        snprintf(place, sizeof place, "cp=%d", r);
        const struct attention_part own = { tokens_of(d, r), 0 };
        film_device(f, (struct film_device){ place, part_text(d, own, has, sizeof has), r / 8, r % 8 });
    }
    filming->computes = film_kind(f, "queries times keys", "QK", FILM_COMPUTE);
    filming->lane_compute = film_lane(f, "compute"), filming->lane_receive = film_lane(f, "receive");
    for (int r = 0; r < d->P; r++) {
        snprintf(text, sizeof text, "keys of device %d", r);
        film_column(f, text);
    }
    filming->column_results = film_column(f, "computed");
    for (int r = 0; r < d->P; r++) {
        const struct attention_part own = { tokens_of(d, r), 0 };
        film_cell(f, r, r, 0, part_text(d, own, has, sizeof has), FILM_PARTIAL);
    }
    film_note(f, "%s: %s", scheme, d->t->layer->cp.scheme->head.description);
    film_note(f, "each query must meet the keys of all tokens before it, and a device begins with those of its own "
                 "tokens: so keys and values travel, or queries and their results");
    film_note(f, "a cell has the keys that a device has; queries behind them are those that meet them now; then they "
                 "are done");
    film_note(f, "a tick is a message, or a computation with one block of keys; times are of the run on symbols");
}

/* Say of each device whether its results and messages are right: a note if all are. */
static void film_attention_checks(struct attention_filming *filming)
{
    struct film *f = &filming->film;
    int wrong = 0;
    for (int r = 0; r < filming->d->P; r++) {
        const struct attention_outcome *o = &filming->d->t->outcome[r];
        if (o->wrong[0])
            film_check(f, (struct film_check){ .tensor = "results", .device = r, .error = NAN, .bound = NAN,
                                               .evidence = o->wrong });
        if (!o->as_cost)
            film_check(f, (struct film_check){ .tensor = "messages", .device = r, .error = NAN, .bound = NAN,
                                               .evidence = "they are not what the cost function says" });
        wrong += o->wrong[0] != '\0' || !o->as_cost;
    }
    if (wrong == 0)
        film_note(f, "checked: each result has seen every key before it, once; messages are what the cost function "
                     "says");
}

enum error_code attention_page(const struct attention_drawing *drawing, const char *path, struct error *err)
{
    struct attention_filming filming = { .d = drawing };
    film_attention_begin(&filming);
    for (int r = 0; r < drawing->P; r++) film_attention_device(&filming, r);
    film_attention_checks(&filming);
    const enum error_code e = page_html_write(path, &(struct film *){ &filming.film }, 1, err);
    film_close(&filming.film);
    return e;
}
