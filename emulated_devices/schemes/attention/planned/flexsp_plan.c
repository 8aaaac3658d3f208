/* flexsp_plan.c -- branch and bound over ways to cut the devices and to place the samples.  flexsp.c calls flexsp_plan;
 * the plan is a pure function of the load.  Errors: ERR_MEMORY, and ERR_PLAN of the finished plan's check. */
#include "emulated_devices/schemes/attention/planned/flexsp_plan.h"
#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/schemes/attention/planned/buckets.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_STEPS = 20000 };            /* of branch and bound, for one way to cut the devices */

/* A group, and what it has so far. */
struct loaded { int first, devices; double busy; int64_t tokens; };

struct search {
    const struct context_load *load;
    const struct interval *sample;      /* the longest first */
    int64_t *length;                    /* [samples] bucketed */
    double *rest;                       /* [samples + 1] devices times time, at least, of a sample and those after it */
    struct loaded part[MESH_MOST_LISTED];
    int parts, steps;
    int64_t room;                       /* tokens of a device */
    int *in, *best_in;                  /* [samples] the part of each */
    int *by_token;                      /* [samples] their numbers, by their first tokens */
    struct loaded best[MESH_MOST_LISTED];
    int best_parts;
    double least;                       /* time of the slowest part of the best; negative: none yet */
    double bound;                       /* the same with bucketed lengths; infinite: none yet */
};

/* Return the operations of each device of a group of d for a sample of s tokens.  Exchanged numbers count
 * as operations, too. */
static double time_in(const struct context_load *load, int64_t s, int d)
{
    const double width = (double)(2 * load->query_width + load->key_width);
    /* A device sends 1/d of its rows to each other one: queries, results, keys and values. */
    const int near = d < load->node ? d : load->node;
    const double sent = width / d * ((near - 1) * load->per_element + (d - near) * load->per_far_element);
    return (load->per_pair * (double)s * (double)(s + 1) / 2 + (load->per_token + sent) * (double)s) / d;
}

/* Add a sample of this length to a part; the caller takes it away by restoring the part. */
static void flexsp_plan_put(struct search *search, int sample, int part, int64_t length)
{
    search->part[part].busy += time_in(search->load, length, search->part[part].devices);
    search->part[part].tokens += length;
    search->in[sample] = part;
}

static void empty(struct search *search)
{
    for (int i = 0; i < search->parts; i++) search->part[i].busy = 0, search->part[i].tokens = 0;
}

/* Whether the part's devices, which share its tokens evenly, have room for the sample. */
static bool flexsp_plan_fits(const struct search *search, int64_t length, const struct loaded *loaded)
{
    return (loaded->tokens + length + loaded->devices - 1) / loaded->devices <= search->room;
}

/* The time of the slowest part if the samples are where search->in says: of true lengths or of bucketed ones. */
static double time_of(const struct search *search, bool bucketed, struct loaded part[])
{
    double most = 0;
    /* A copy of the parts is filled anew, since the search's own sums may be of bucketed lengths. */
    for (int i = 0; i < search->parts; i++)
        part[i] = (struct loaded){ .first = search->part[i].first, .devices = search->part[i].devices };
    for (int i = 0; i < search->load->samples; i++) {
        struct loaded *const p = &part[search->in[i]];
        p->busy += time_in(search->load, bucketed ? search->length[i] : search->sample[i].count, p->devices);
        p->tokens += search->sample[i].count;
        if (p->busy > most) most = p->busy;
    }
    return most;
}

/* Keep a complete placement if its slowest part is faster, by true lengths. */
static void keep_if_better(struct search *search)
{
    struct loaded part[MESH_MOST_LISTED];
    const double bound = time_of(search, true, part), time = time_of(search, false, part);
    /* Branches are compared by bucketed lengths, plans by true ones. */
    if (bound < search->bound) search->bound = bound;
    if (search->least >= 0 && time >= search->least) return;
    search->least = time, search->best_parts = search->parts;
    for (int i = 0; i < search->parts; i++) search->best[i] = part[i];
    for (int i = 0; i < search->load->samples; i++) search->best_in[i] = search->in[i];
}

/* Each sample into the part that then ends earliest. */
static void greedy(struct search *search)
{
    for (int k = 0; k < search->load->samples; k++) {
        const int64_t s = search->sample[k].count;
        int at = -1;
        double earliest = 0;
        for (int i = 0; i < search->parts; i++) {
            const double then = search->part[i].busy + time_in(search->load, s, search->part[i].devices);
            if (flexsp_plan_fits(search, s, &search->part[i]) && (at < 0 || then < earliest)) at = i, earliest = then;
        }
        /* The sample fits into no part, so this cut of the devices gives no greedy plan. */
        if (at < 0) return;
        flexsp_plan_put(search, k, at, s);
    }
    keep_if_better(search);
}

/* Whether an earlier part, from `first` on, has the same size and load: it would give the same plans. */
static bool like_an_earlier_one(const struct search *search, int first, int part)
{
    const struct loaded *const p = &search->part[part];
    for (int i = first; i < part; i++)
        if (search->part[i].devices == p->devices && search->part[i].busy == p->busy
            && search->part[i].tokens == p->tokens) return true;
    return false;
}

/* Samples of a bucket go to parts in the order of parts.  spent: the sum over parts of devices times time so far. */
static void branch(struct search *search, int sample, double spent)
{
    /* A branch is complete when all samples are placed. */
    if (sample == search->load->samples) {
        keep_if_better(search);
        return;
    }
    const int64_t s = search->length[sample];
    /* Equal lengths may be exchanged, so only ascending parts are tried for them. */
    const int first = sample > 0 && search->length[sample - 1] == s ? search->in[sample - 1] : 0;
    /* Even if all devices ended together, this branch would not be better. */
    if ((spent + search->rest[sample]) / search->load->devices >= search->bound) return;
    for (int i = first; i < search->parts && search->steps < MOST_STEPS; i++) {
        /* The part is restored after the branch, bit by bit, so sums do not drift. */
        const struct loaded before = search->part[i];
        if (!flexsp_plan_fits(search, s, &before) || like_an_earlier_one(search, first, i)) continue;
        search->steps++;
        flexsp_plan_put(search, sample, i, s);
        const double busy = search->part[i].busy;
        if (busy < search->bound) branch(search, sample + 1, spent + (busy - before.busy) * before.devices);
        search->part[i] = before;
    }
}

/* All ways to cut the devices from `first` on into parts of at most `largest`, sizes falling. */
static void cut_devices(struct search *search, int first, int largest)
{
    if (first == search->load->devices) {
        /* The greedy plan comes first: its time is a bound that cuts many branches. */
        empty(search);
        greedy(search);
        empty(search);
        search->steps = 0;
        branch(search, 0, 0);
        return;
    }
    /* Sizes are powers of two and fall, so a part begins at a multiple of its size. */
    for (int d = largest; d >= 1; d /= 2) {
        if (first + d > search->load->devices) continue;
        search->part[search->parts++] = (struct loaded){ .first = first, .devices = d };
        cut_devices(search, first + d, d);
        search->parts--;
    }
}

/* ---- many devices ------------------------------------------------------------------------------------------------ */

enum { MOST_CUT = 16, SIZES = 16 };     /* devices of which all cuts are tried; powers of two */

/* A cut of the devices: how many parts of 2^i devices there are. */
struct cut { int parts[SIZES]; };

/* Place the samples by one cut.  @return whether that is better than all before. */
static bool try_cut(struct search *search, const struct cut *cut)
{
    const double before = search->least;
    int first = 0;
    search->parts = 0;
    for (int i = SIZES - 1; i >= 0; i--)
        for (int n = 0; n < cut->parts[i]; n++, first += 1 << i)
            search->part[search->parts++] = (struct loaded){ .first = first, .devices = 1 << i };
    empty(search);
    greedy(search);
    return search->least >= 0 && (before < 0 || search->least < before);
}

/* Try the cut with so many parts of 2^i devices halved, or, if there are fewer than none, joined from halves. */
static bool try_change(struct search *search, const struct cut *cut, int i, int halved, struct cut *best)
{
    struct cut changed = *cut;
    changed.parts[i] -= halved, changed.parts[i - 1] += 2 * halved;
    if (changed.parts[i] < 0 || changed.parts[i - 1] < 0 || !try_cut(search, &changed)) return false;
    *best = changed;
    return true;
}

/* Begin with the best cut into equal parts; then halve or join 1, 2, 4, .. parts as long as the slowest gets faster. */
static void climb(struct search *search, int sizes)
{
    const int devices = search->load->devices;
    struct cut best = { { 0 } };
    for (int i = 0; i < sizes; i++) {
        struct cut equal = { .parts = { 0 } };
        equal.parts[i] = devices >> i;
        for (int k = 0; k < i; k++) equal.parts[k] = devices >> k & 1;
        if (try_cut(search, &equal)) best = equal;
    }
    for (bool better = search->least >= 0; better;) {
        const struct cut now = best;
        better = false;
        for (int i = 1; i < sizes; i++)
            for (int n = 1; n <= now.parts[i] || 2 * n <= now.parts[i - 1]; n *= 2) {
                better = try_change(search, &now, i, n, &best) || better;
                better = try_change(search, &now, i, -n, &best) || better;
            }
    }
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static void search_cuts(struct search *search)
{
    int sizes = 1;
    /* A part exchanges tokens for heads, so it has at most as many devices as heads. */
    while (1 << sizes <= search->load->devices && 1 << sizes <= search->load->heads && sizes < SIZES) sizes++;
    if (search->load->devices <= MOST_CUT) cut_devices(search, 0, 1 << (sizes - 1));
    else climb(search, sizes);
}

/* Search cuts of the devices.  The best parts and places of samples are then in search->best. */
static void find_parts(struct search *search)
{
    search->least = -1, search->bound = INFINITY;
    /* A device may hold what it has room for, or else twice the mean, unless no cut of the devices fits then. */
    const int64_t mean = (search->load->tokens + search->load->devices - 1) / search->load->devices;
    search->room = search->load->room > 0 ? search->load->room : 2 * mean;
    search_cuts(search);
    if (search->least >= 0 || search->load->room > 0) return;
    search->room = search->load->tokens;                          /* one part takes what it must */
    search_cuts(search);
}

/* A part's samples, one after another in the order of tokens, are cut into nearly equal ranges. */
static void flexsp_plan_add_part(struct context_plan *plan, const struct search *search, int part)
{
    const struct loaded *p = &search->best[part];
    int64_t before = 0;
    context_add_group(plan, p->first, p->devices);
    for (int i = 0; i < search->load->samples; i++) {
        /* Samples are sorted by length, but rows of a part stay in the order of tokens. */
        const int k = search->by_token[i];
        const int64_t token = search->sample[k].first;
        if (search->best_in[k] != part) continue;
        const struct interval listed = { before, search->sample[k].count };
        for (int m = 0; m < p->devices; m++) {
            const struct interval own = interval_meet(listed, block_at(p->tokens, p->devices, m));
            if (own.count > 0)
                context_add_block(plan, interval_moved(own, token - before), (struct interval){ 0 }, p->first + m);
        }
        before = interval_end(listed);
    }
}

/* A sample stands beside its number. */
struct numbered { int64_t first; int number; };

static int compare_firsts(const void *x, const void *y)
{
    const struct numbered *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

/* @return false without memory. */
static bool sort_by_token(struct search *search)
{
    const int n = search->load->samples;
    struct numbered *const all = malloc(((size_t)n + 1) * sizeof *all);
    for (int i = 0; i < n && all; i++) all[i] = (struct numbered){ search->sample[i].first, i };
    if (all && n > 0) qsort(all, (size_t)n, sizeof *all, compare_firsts);
    for (int i = 0; i < n && all; i++) search->by_token[i] = all[i].number;
    free(all);
    return all != NULL;
}

/* Bucket the lengths.  @return false without memory. */
static bool bucket(struct search *search, int buckets)
{
    const int n = search->load->samples;
    int64_t *const length = calloc((size_t)n + 1, sizeof *length);
    for (int i = 0; i < n && length; i++) length[i] = search->sample[i].count;
    const bool ok = length && bucket_lengths(search->length, length, n, buckets) >= 0;
    /* rest[i] is the least work of samples i and later: on one device nothing is sent. */
    for (int i = n - 1; i >= 0 && ok; i--)
        search->rest[i] = search->rest[i + 1] + time_in(search->load, search->length[i], 1);
    free(length);
    return ok;
}

/* A search's memory: the load of some samples alone, and its lists. */
struct searching { struct search *x; struct context_load load; struct interval *sample; int *in; int64_t *length;
                   double *rest; };

static void searching_close(struct searching *searching)
{
    free(searching->x), free(searching->sample), free(searching->in), free(searching->length), free(searching->rest);
}

/* Search the best groups of some samples.  @return false without memory; then, too, searching_close follows. */
static bool searching_run(struct searching *searching, const struct context_load *load, const struct interval sample[],
                          int samples, int buckets)
{
    const size_t n = (size_t)samples;
    *searching = (struct searching){
        .x = calloc(1, sizeof *searching->x), .load = *load, .sample = malloc((n + 1) * sizeof *searching->sample),
        .in = calloc(3 * n + 1, sizeof *searching->in), .length = calloc(n + 1, sizeof *searching->length),
        .rest = calloc(n + 1, sizeof *searching->rest),
    };
    struct search *const x = searching->x;
    if (!x || !searching->sample || !searching->in || !searching->length || !searching->rest) return false;
    searching->load.samples = samples, searching->load.tokens = 0;
    for (int i = 0; i < samples; i++) searching->sample[i] = sample[i], searching->load.tokens += sample[i].count;
    x->load = &searching->load, x->sample = searching->sample, x->length = searching->length, x->rest = searching->rest;
    x->in = searching->in, x->best_in = searching->in + n, x->by_token = searching->in + 2 * n;
    if (!bucket(x, buckets) || !sort_by_token(x)) return false;
    find_parts(x);
    return true;
}

enum error_code flexsp_plan_time(const struct context_load *load, const struct interval sample[], int samples,
                                 int buckets, double *time, struct error *err)
{
    struct searching s;
    const bool known = searching_run(&s, load, sample, samples, buckets);
    *time = known && s.x->least >= 0 ? s.x->least : INFINITY;
    searching_close(&s);
    return known ? OK : fail(err, ERR_MEMORY, "no memory to plan %d samples", samples);
}

enum error_code flexsp_plan(struct context_plan *plan, const struct context_load *load, const struct interval sample[],
                            int samples, int buckets, struct error *err)
{
    struct searching s;
    /* All memory is allocated and freed here, and lost memory is reported by context_plan_finish. */
    *plan = (struct context_plan){ .devices = load->devices, .divisions = 1, .tokens = load->tokens };
    plan->lost = !searching_run(&s, load, sample, samples, buckets);
    for (int i = 0; !plan->lost && i < s.x->best_parts; i++) flexsp_plan_add_part(plan, s.x, i);
    searching_close(&s);
    return context_plan_finish(plan, load, err);
}
