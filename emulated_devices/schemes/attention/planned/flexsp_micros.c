/* flexsp_micros.c -- cuts the samples of a step into microbatches by dynamic programming, and chooses their number by
 * the planned times.  flexsp.c calls flexsp_micros_find for each step.  Errors: ERR_PLAN if the room is too small,
 * and ERR_MEMORY; after an error there is nothing to free. */
#include "emulated_devices/schemes/attention/planned/flexsp_micros.h"
#include "emulated_devices/schemes/attention/planned/flexsp_plan.h"
#include <math.h>
#include <string.h>

/* ---- a cut ------------------------------------------------------------------------------------------------------- */

static int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* Where the last of k + 1 ranges of the first `end` samples begins.  Among starts j the tokens of the ranges before
 * grow with j, and those of the last range fall, so the best start is where they cross, or the one before. */
static int last_start(const int64_t before[], const int64_t fewer[], int k, int end)
{
    int low = k, high = end - 1;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (fewer[middle] >= before[end] - before[middle]) high = middle;
        else low = middle + 1;
    }
    if (low > k && before[end] - before[low - 1] <= larger_of(fewer[low], before[end] - before[low])) low--;
    return low;
}

/* Fill from [micros][n + 1], the start of the last range for each number of ranges and samples.
 * @return tokens of the largest range of all n samples. */
static int64_t fill_cuts(int *from, int64_t *room, const struct interval sample[], int n, int micros)
{
    int64_t *const before = room, *fewer = room + n + 1, *now = room + 2 * (n + 1);
    before[0] = 0;
    for (int i = 0; i < n; i++) before[i + 1] = before[i] + sample[i].count;
    /* One range has all; k samples are the fewest for k ranges. */
    for (int i = 0; i <= n; i++) fewer[i] = before[i], from[i] = 0;
    for (int k = 1; k < micros; k++) {
        for (int i = k + 1; i <= n; i++) {
            const int j = last_start(before, fewer, k, i);
            from[(size_t)k * ((size_t)n + 1) + (size_t)i] = j;
            now[i] = larger_of(fewer[j], before[i] - before[j]);
        }
        int64_t *const done = now;
        now = fewer, fewer = done;
    }
    return fewer[n];
}

int64_t flexsp_cut(int first[], const struct interval sample[], int n, int micros)
{
    const size_t entries = (size_t)n + 1;
    int64_t *const room = malloc(3 * entries * sizeof *room), most = -1;
    int *const from = calloc((size_t)micros * entries, sizeof *from);
    if (room && from) {
        most = fill_cuts(from, room, sample, n, micros);
        first[micros] = n;
        for (int k = micros - 1; k >= 0; k--) first[k] = from[(size_t)k * entries + (size_t)first[k + 1]];
    }
    free(room), free(from);
    return most;
}

int flexsp_least_micros(const struct interval sample[], int n, int64_t most_tokens)
{
    int64_t tokens = 0, most = 0;
    int *const first = malloc(((size_t)n + 1) * sizeof *first);
    for (int i = 0; i < n; i++) tokens += sample[i].count;
    int64_t micros = (tokens + most_tokens - 1) / most_tokens;
    for (; first && micros <= n; micros++) {
        most = flexsp_cut(first, sample, n, (int)micros);
        if (most <= most_tokens) break;
    }
    free(first);
    return first == NULL || most < 0 ? -1 : micros > n ? n + 1 : (int)micros;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

/* The two orders in which samples are cut. */
enum order { SORTED, AS_THEY_COME, ORDERS };

struct choosing {
    const struct context_load *load;
    int buckets;
    struct interval *sample[ORDERS];    /* [samples] */
    struct interval *range;             /* [samples] of one microbatch, the longest first */
    int *first;                         /* [samples + 1] of the cut at hand */
    enum order best;                    /* the order of the best cut */
    struct flexsp_micros *out;          /* the best cut so far; count 0: none */
};

static int longest_first(const void *x, const void *y)
{
    const struct interval *a = x, *b = y;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

/* A microbatch's kernels take this long to start, however short they are. */
static double micro_time(const struct context_load *load, double slowest) { return fmax(slowest, load->per_micro); }

/* The time of the cut at hand: of all its microbatches, or infinite as soon as that is no less than the best. */
static enum error_code cut_time(const struct choosing *choosing, enum order order, int micros, double *time,
                                struct error *err)
{
    enum error_code e = OK;
    *time = 0;
    for (int m = 0; m < micros && !e && *time < INFINITY; m++) {
        const int from = choosing->first[m], n = choosing->first[m + 1] - from;
        double slowest;
        memcpy(choosing->range, choosing->sample[order] + from, (size_t)n * sizeof *choosing->range);
        if (order != SORTED) qsort(choosing->range, (size_t)n, sizeof *choosing->range, longest_first);
        e = flexsp_plan_time(choosing->load, choosing->range, n, choosing->buckets, &slowest, err);
        if (!e) *time += micro_time(choosing->load, slowest);
        if (choosing->out->count > 0 && *time >= choosing->out->time) *time = INFINITY;
    }
    return e;
}

/* Try a number of microbatches in both orders, and keep what is faster than all before. */
static enum error_code try_micros(struct choosing *choosing, int micros, struct error *err)
{
    const int n = choosing->load->samples;
    enum error_code e = OK;
    for (enum order order = SORTED; order < ORDERS && !e; order++) {
        double time;
        if (flexsp_cut(choosing->first, choosing->sample[order], n, micros) < 0)
            return fail(err, ERR_MEMORY, "no memory to cut %d samples into %d microbatches", n, micros);
        e = cut_time(choosing, order, micros, &time, err);
        if (e || time == INFINITY) continue;
        choosing->best = order, choosing->out->time = time, choosing->out->count = micros;
        memcpy(choosing->out->first, choosing->first, ((size_t)micros + 1) * sizeof *choosing->first);
    }
    return e;
}

/* Samples of a microbatch stand with the longest first, whatever order they were cut in. */
static void take_best(const struct choosing *choosing)
{
    const struct flexsp_micros *const out = choosing->out;
    memcpy(out->sample, choosing->sample[choosing->best], (size_t)choosing->load->samples * sizeof *out->sample);
    for (int m = 0; m < out->count; m++)
        qsort(out->sample + out->first[m], (size_t)(out->first[m + 1] - out->first[m]), sizeof *out->sample,
              longest_first);
}

/* Say what has no room: a sample alone in the largest group, or all samples of the step. */
static enum error_code fail_no_room(const struct choosing *choosing, struct error *err)
{
    const struct context_load *const load = choosing->load;
    const long long longest = choosing->sample[SORTED][0].count, room = load->room;
    int largest = 1;
    while (2 * largest <= load->devices && 2 * largest <= load->heads) largest *= 2;
    if (longest > room * largest)
        return fail(err, ERR_PLAN, "--micro-tokens %lld: a sample of %lld tokens is on at most %d devices, by the "
                    "heads and --cp; it needs %lld", room, longest, largest, (longest + largest - 1) / largest);
    return fail(err, ERR_PLAN, "--micro-tokens %lld: %d samples of %lld tokens do not fit into %d microbatches on %d "
                "devices; --micro allows more", room, load->samples, (long long)load->tokens,
                load->micros > 1 ? load->micros : 1, load->devices);
}

/* With a room: M_min and those after it.  A step may need more than are tried at first. */
static enum error_code try_options(struct choosing *choosing, int most, struct error *err)
{
    const struct context_load *const load = choosing->load;
    const int least = flexsp_least_micros(choosing->sample[SORTED], load->samples, load->room * load->devices);
    enum error_code e = least < 0 ? fail(err, ERR_MEMORY, "no memory to cut %d samples", load->samples) : OK;
    for (int i = 0; least + i <= most && !e && (i < FLEXSP_OPTIONS || choosing->out->count == 0); i++)
        e = try_micros(choosing, least + i, err);
    return e || choosing->out->count > 0 ? e : fail_no_room(choosing, err);
}

enum error_code flexsp_micros_choose(struct flexsp_micros *out, const struct context_load *load, int buckets,
                                     struct error *err)
{
    const size_t n = (size_t)load->samples;
    const int given = load->micros > 1 ? load->micros : 1, most = given < load->samples ? given : load->samples;
    *out = (struct flexsp_micros){ .first = calloc(n + 1, sizeof *out->first),
                                   .sample = malloc((n + 1) * sizeof *out->sample) };
    struct choosing x = {
        .load = load, .buckets = buckets, .out = out, .first = malloc((n + 1) * sizeof *x.first),
        .sample = { context_samples(load), malloc((n + 1) * sizeof(struct interval)) },
        .range = malloc((n + 1) * sizeof *x.range),
    };
    const bool ok = out->first && out->sample && x.first && x.sample[SORTED] && x.sample[AS_THEY_COME] && x.range;
    enum error_code e = ok ? OK : fail(err, ERR_MEMORY, "no memory to cut %d samples", load->samples);
    int64_t first = 0;
    for (int i = 0; i < load->samples && ok; first += load->length[i++])
        x.sample[AS_THEY_COME][i] = (struct interval){ first, load->length[i] };
    if (!e && load->room > 0) e = try_options(&x, most, err);
    else if (!e) e = try_micros(&x, most, err);
    if (!e) take_best(&x);
    free(x.first), free(x.sample[SORTED]), free(x.sample[AS_THEY_COME]), free(x.range);
    if (e) flexsp_micros_free(out);
    return e;
}

void flexsp_micros_free(struct flexsp_micros *micros)
{
    free(micros->first), free(micros->sample);
    *micros = (struct flexsp_micros){ 0 };
}

/* ---- choices that were made -------------------------------------------------------------------------------------- */

enum { CHOICES_KEPT = 16 };
static struct kept_choice { struct context_load load; int buckets; struct flexsp_micros micros; } kept[CHOICES_KEPT];
static int next_kept;

/* The facts that a choice depends on: masks do not matter, since samples are balanced as if they were causal. */
static struct context_load facts_of(const struct context_load *load)
{
    struct context_load facts = *load;
    facts.micro = facts.ranges = 0, facts.sees = facts.made = NULL;
    return facts;
}

/* Keep a choice in place of the oldest.  @return false without memory; then nothing has changed. */
static bool keep_choice(const struct context_load *facts, int buckets, const struct flexsp_micros *micros)
{
    struct kept_choice *const k = &kept[next_kept];
    int64_t *const length = malloc((size_t)facts->samples * sizeof *length);
    if (length == NULL) return false;
    memcpy(length, facts->length, (size_t)facts->samples * sizeof *length);
    context_load_free(&k->load), flexsp_micros_free(&k->micros);
    *k = (struct kept_choice){ *facts, buckets, *micros };
    k->load.length = length;
    next_kept = (next_kept + 1) % CHOICES_KEPT;
    return true;
}

enum error_code flexsp_micros_find(const struct flexsp_micros **chosen, const struct context_load *load, int buckets,
                                   struct error *err)
{
    const struct context_load facts = facts_of(load);
    struct flexsp_micros made;
    for (int i = 0; i < CHOICES_KEPT; i++) {
        *chosen = &kept[i].micros;
        if (kept[i].buckets == buckets && context_load_same(&kept[i].load, &facts)) return OK;
    }
    const enum error_code e = flexsp_micros_choose(&made, load, buckets, err);
    if (e) return e;
    *chosen = &kept[next_kept].micros;
    if (keep_choice(&facts, buckets, &made)) return OK;
    flexsp_micros_free(&made);
    return fail(err, ERR_MEMORY, "no memory to keep the microbatches of %d samples", load->samples);
}
