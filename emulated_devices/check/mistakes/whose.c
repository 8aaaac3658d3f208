/* whose.c -- finds the mistake of a loader, or of a rank, behind sequences that are not where they belong.
 * mistakes/sequences.c and mistakes/tokens.c call it with what they have measured.  A pattern is a mistake that says
 * what stands in each place: it is named if it gives exactly what was measured.  Else single sequences are named. */
#include "emulated_devices/check/mistakes/whose.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A text to append to; what does not fit is dropped. */
struct whose_text { char *out; size_t size, used; };

static void whose_say(struct whose_text *text, const char *format, ...)
{
    va_list args;
    if (text->used + 1 >= text->size) return;
    va_start(args, format);
    const int n = vsnprintf(text->out + text->used, text->size - text->used, format, args);
    va_end(args);
    text->used += n > 0 ? (size_t)n : 0;
    if (text->used >= text->size) text->used = text->size - 1;
}

int whose_step_of(const struct whose_step *step, int batch)
{
    int is = batch == BATCH_FAR ? step->far - 1 : step->step + batch - BATCH_OWN;
    /* Behind one step the data of step 1 are those of the step before. */
    if (batch == BATCH_AGAIN) is = step->begins > 1 ? step->step - step->begins : -1;
    return batch == BATCH_OWN || (is >= 0 && is < step->steps) ? is : -1;
}

bool whose_next_far(struct whose_step *step)
{
    while (step->far++ < step->steps) {
        bool is_other = false;
        for (int batch = 0; batch < BATCH_FAR; batch++)
            is_other = is_other || whose_step_of(step, batch) == step->far - 1;
        if (!is_other && step->far <= step->steps) return true;
    }
    step->far = 0;
    return false;
}

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

enum whose_kind { OF_ONE_PART, TURNS, PART_OF_BATCH, FIRST_WITHIN };

/* A program with one mistake has this in each place. */
struct whose_pattern { struct sequence there[CUT_SEQUENCES]; char words[200]; };

/* Measured: what stands in each place, or how often each sequence counts. */
struct whose_measured { const struct batch_cuts *cuts; const struct sequence *there; int (*times)[CUT_SEQUENCES]; };

static bool whose_is(const struct whose_measured *measured, const struct whose_pattern *pattern)
{
    int times[BATCHES][CUT_SEQUENCES] = { { 0 } };
    for (int s = 0; s < measured->cuts->B; s++) {
        const struct sequence at = pattern->there[s];
        if (measured->there && (measured->there[s].batch != at.batch || measured->there[s].number != at.number))
            return false;
        times[at.batch][at.number]++;
    }
    for (int b = 0; b < BATCHES && measured->times; b++)
        if (memcmp(times[b], measured->times[b], (size_t)measured->cuts->B * sizeof times[b][0]) != 0) return false;
    return true;
}

/* The place of sequence s in a part that has another part's sequences. */
static int whose_from_part(const struct batch_cuts *cuts, const struct batch_cut *cut, int part, int s)
{
    int before = 0;
    for (int i = 0; i < s; i++) before += cut->part[i] == cut->part[s];
    return cut_member(cuts, cut, part, before);
}

/* The first part inside the coarser part that a sequence is in. */
static int whose_first_within(const struct batch_cuts *cuts, const struct batch_cut *cut, int s)
{
    int first = cut->part[s];
    for (int i = 0; i < cuts->B; i++) {
        const bool together = cuts->all[cut->within].part[i] == cuts->all[cut->within].part[s];
        if (together && cut->part[i] < first) first = cut->part[i];
    }
    return first;
}

/* Fill a pattern of a cut.  n: the part, or how far parts turn; batch: which batch a part has. */
static void whose_fill(const struct batch_cuts *cuts, const struct batch_cut *cut, enum whose_kind kind, int n,
                       int batch, struct sequence there[])
{
    for (int s = 0; s < cuts->B; s++) {
        there[s] = (struct sequence){ BATCH_OWN, s };
        if (kind == OF_ONE_PART) there[s].number = whose_from_part(cuts, cut, n, s);
        if (kind == TURNS) there[s].number = cut_turned(cuts, cut, n, s);
        if (kind == PART_OF_BATCH && cut->part[s] == n) there[s].batch = batch;
        if (kind == FIRST_WITHIN)
            there[s].number = whose_from_part(cuts, cut, whose_first_within(cuts, cut, s), s);
    }
}

/* The batch that begins `late` sequences late; negative: early. */
static void whose_shift(const struct batch_cuts *cuts, int late, struct sequence there[])
{
    for (int s = 0; s < cuts->B; s++) {
        const int at = s + late, B = cuts->B;
        there[s] = at < 0 ? (struct sequence){ BATCH_BEFORE, at + B }
                 : at < B ? (struct sequence){ BATCH_OWN, at } : (struct sequence){ BATCH_NEXT, at - B };
    }
}

static const char AGAIN[] = ": the data have started again";

/* Patterns of a cut.  @return whether one was found. */
static bool whose_find_cut(const struct whose_measured *measured, const struct batch_cut *cut, const char *what,
                           const struct whose_step *step, struct whose_pattern *pattern)
{
    const struct batch_cuts *cuts = measured->cuts;
    char *const words = pattern->words;
    const size_t size = sizeof pattern->words;
    /* Parts that take turns have all sequences, only elsewhere. */
    for (int by = 1; measured->there && by >= (cut->parts > 2 ? -1 : 1); by -= 2) {
        whose_fill(cuts, cut, TURNS, by, 0, pattern->there);
        snprintf(words, size, "copies take turns: each %s has the %s of the %s", cut->of, what,
                 by > 0 ? "next" : "one before");
        if (whose_is(measured, pattern)) return true;
    }
    for (int k = 0; k < cut->parts; k++) {
        whose_fill(cuts, cut, OF_ONE_PART, k, 0, pattern->there);
        snprintf(words, size, "every %s has the %s of %s %d", cut->of, what, cut->of, k);
        if (whose_is(measured, pattern)) return true;
        /* Sequences say more than a part that is guessed. */
        for (int batch = 0; cut->known && batch < BATCH_FAR; batch++) {
            if (batch == BATCH_OWN || whose_step_of(step, batch) < 0) continue;
            whose_fill(cuts, cut, PART_OF_BATCH, k, batch, pattern->there);
            snprintf(words, size, "%s %d has its %s of step %d%s", cut->of, k, what, whose_step_of(step, batch) + 1,
                     batch == BATCH_AGAIN ? AGAIN : "");
            if (whose_is(measured, pattern)) return true;
        }
    }
    if (cut->within < 0) return false;
    whose_fill(cuts, cut, FIRST_WITHIN, 0, 0, pattern->there);
    snprintf(words, size, "every microbatch has the %s of its %s's first", what, cuts->all[cut->within].of);
    return whose_is(measured, pattern);
}

/* The batch begins so many sequences late; negative: early; B: it is the next batch. */
static bool whose_find_shift(const struct whose_measured *measured, int late, const struct whose_step *step,
                             struct whose_pattern *pattern)
{
    const int by = late < 0 ? -late : late, other = step->step + 1 + (late < 0 ? -1 : 1);
    const size_t size = sizeof pattern->words;
    whose_shift(measured->cuts, late, pattern->there);
    if (by == measured->cuts->B)
        snprintf(pattern->words, size, "%sit is what the batch of step %d gives", late < 0 ? "stale: " : "", other);
    else snprintf(pattern->words, size, "the batch begins %d sequence%s %s: with %d of step %d", by, by > 1 ? "s" : "",
                  late > 0 ? "late" : "early", by, other);
    return whose_is(measured, pattern);
}

/* The whole batch is that of another step that is no neighbour; after a resume the data begin again. */
static bool whose_find_whole(const struct whose_measured *measured, int batch, const struct whose_step *step,
                             struct whose_pattern *pattern)
{
    const int other = whose_step_of(step, batch);
    for (int s = 0; s < measured->cuts->B; s++) pattern->there[s] = (struct sequence){ batch, s };
    snprintf(pattern->words, sizeof pattern->words, "it is what the batch of step %d gives%s", other + 1,
             batch == BATCH_AGAIN ? AGAIN : "");
    return other >= 0 && whose_is(measured, pattern);
}

/* Find a pattern that gives what was measured: a whole batch, parts that the program is known to have, a shift, parts
 * that are guessed.  Counts do not tell parts of another batch from a shift: then both are named. */
static bool whose_find(const struct whose_measured *measured, const char *what, const struct whose_step *step,
                       struct whose_pattern *pattern)
{
    const struct batch_cuts *cuts = measured->cuts;
    const int B = cuts->B;
    bool found = whose_find_shift(measured, -B, step, pattern) || whose_find_shift(measured, B, step, pattern)
                 || whose_find_whole(measured, BATCH_AGAIN, step, pattern)
                 || whose_find_whole(measured, BATCH_FAR, step, pattern);
    for (int i = 0; i < cuts->count && !found; i++)
        found = cuts->all[i].known && whose_find_cut(measured, &cuts->all[i], what, step, pattern);
    for (int late = 1; late < B; late++)
        for (int sign = -1; sign <= 1; sign += 2) {
            struct whose_pattern shift;
            if (!whose_find_shift(measured, sign * late, step, &shift)) continue;
            if (!found) return *pattern = shift, true;
            const size_t used = strlen(pattern->words);
            snprintf(pattern->words + used, sizeof pattern->words - used, ", or %s", shift.words);
            return true;
        }
    for (int i = 0; i < cuts->count && !found; i++)
        found = !cuts->all[i].known && whose_find_cut(measured, &cuts->all[i], what, step, pattern);
    return found;
}

/* ---- single sequences -------------------------------------------------------------------------------------------- */

enum { MOST_SAID = 6, MOST_OFTEN = 4 };        /* sequences that are named; times that have words */

/* List the sequences that count so often, with the verb: ", and sequences 3, 4 of step 1 count twice".  Nothing is
 * written if there are none. */
static void whose_list(struct whose_text *text, const int times[], int B, int of, const char *batch)
{
    static const char *const often[] = { " not at all", "", " twice", " three times", " four times" };
    const bool first = text->used == 0, none = of == 0;
    int n = 0, said = 0;
    for (int s = 0; s < B; s++) n += times[s] == of;
    if (n == 0) return;
    whose_say(text, "%ssequence%s ", !first ? " and " : none ? "without " : "", n > 1 ? "s" : "");
    for (int s = 0; s < B && said < MOST_SAID; s++)
        if (times[s] == of) whose_say(text, "%s%d", said++ ? ", " : "", s);
    whose_say(text, "%s%s%s%s", n > said ? " and others" : "", batch, none ? "" : n > 1 ? " count" : " counts",
              none && first ? "" : often[of]);
}

/* The part that has all sequences whose count is not 1; -1: they are in several. */
static int whose_part(const struct batch_cuts *cuts, const struct batch_cut *cut, const int times[], bool *all)
{
    int part = -1;
    for (int s = 0; s < cuts->B; s++) {
        if (times[s] == 1) continue;
        if (part >= 0 && cut->part[s] != part) return -1;
        part = cut->part[s];
    }
    *all = part >= 0;
    for (int s = 0; s < cuts->B; s++) *all = *all && !(cut->part[s] == part && times[s] == 1);
    return part;
}

/* Name the rank or microbatch behind what was said of single sequences; a guessed part is not named. */
static void whose_say_part(struct whose_text *text, const struct batch_cuts *cuts, const int times[], int twice)
{
    for (int i = 0; i < cuts->count; i++) {
        const struct batch_cut *cut = &cuts->all[i];
        bool all;
        const int part = cut->known ? whose_part(cuts, cut, times, &all) : -1;
        if (part < 0 || (!all && twice < 0)) continue;
        if (twice >= 0) whose_say(text, ": %s %d has sequence %d again", cut->of, part, twice);
        else whose_say(text, ": those of %s %d", cut->of, part);
        return;
    }
}

const char *whose_say_counts(char *out, size_t size, const struct batch_cuts *cuts,
                             int times[BATCHES][CUT_SEQUENCES], const struct whose_step *step)
{
    struct whose_text text = { out, size, 0 };
    struct whose_pattern pattern;
    int others = 0, changed = 0, twice = -1, doubles = 0, all = 0;
    out[0] = 0;
    for (int s = 0; s < cuts->B; s++) {
        for (int b = 0; b < BATCHES; b++) others += b == BATCH_OWN ? 0 : times[b][s];
        changed += times[BATCH_OWN][s] != 1;
        all += times[BATCH_OWN][s];
        if (times[BATCH_OWN][s] == 2) twice = s, doubles++;
    }
    if (others + changed == 0) return out;
    if (whose_find(&(struct whose_measured){ cuts, NULL, times }, "sequences", step, &pattern))
        return whose_say(&text, "%s", pattern.words), out;
    for (int b = 0; b < BATCHES; b++) {
        char batch[32];
        if (b == BATCH_OWN) continue;
        snprintf(batch, sizeof batch, " of step %d", whose_step_of(step, b) + 1);
        whose_list(&text, times[b], cuts->B, 1, batch);
    }
    for (int of = MOST_OFTEN; of >= 0; of--)
        if (of != 1) whose_list(&text, times[BATCH_OWN], cuts->B, of, "");
    if (others == 0 && doubles <= 1 && (twice < 0 || all == cuts->B))
        whose_say_part(&text, cuts, times[BATCH_OWN], twice);
    return out;
}

const char *whose_say_places(char *out, size_t size, const struct batch_cuts *cuts, const struct sequence there[],
                             const char *what, const struct whose_step *step)
{
    struct whose_text text = { out, size, 0 };
    struct whose_pattern pattern;
    int wrong = 0, said = 0;
    out[0] = 0;
    for (int s = 0; s < cuts->B; s++) wrong += there[s].batch != BATCH_OWN || there[s].number != s;
    if (wrong == 0) return out;
    if (whose_find(&(struct whose_measured){ cuts, there, NULL }, what, step, &pattern))
        return whose_say(&text, "%s", pattern.words), out;
    whose_say(&text, "%s of another sequence: ", what);
    for (int s = 0; s < cuts->B && said < MOST_SAID; s++) {
        if (there[s].batch == BATCH_OWN && there[s].number == s) continue;
        whose_say(&text, "%s%d has those of %d", said++ ? ", " : "", s, there[s].number);
        if (there[s].batch != BATCH_OWN) whose_say(&text, " of step %d", whose_step_of(step, there[s].batch) + 1);
        for (int i = 0; i < cuts->count; i++) {
            if (!cuts->all[i].known) continue;
            if (wrong == 1) whose_say(&text, ": %s %d", cuts->all[i].of, cuts->all[i].part[s]);
            break;
        }
    }
    if (wrong > said) whose_say(&text, ", and others");
    return out;
}

const char *whose_say_means(char *out, size_t size, const struct batch_cut *cut, const double labels[], bool added)
{
    struct whose_text text = { out, size, 0 };
    out[0] = 0;
    whose_say(&text, "%s: each %s is divided by its own labels", added ? "means are added up" : "a mean of means",
              cut->of);
    for (int k = 0; k < cut->parts && k < MOST_SAID; k++) whose_say(&text, ", %.0f", labels[k]);
    return out;
}
