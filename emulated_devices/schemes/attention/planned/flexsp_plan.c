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
    struct loaded part[MESH_MOST_DEVICES];
    int parts, steps;
    int64_t room;                       /* tokens of a device */
    int *in, *best_in;                  /* [samples] the part of each */
    struct loaded best[MESH_MOST_DEVICES];
    int best_parts;
    double least;                       /* time of the slowest part of the best; negative: none yet */
    double bound;                       /* the same with bucketed lengths; infinite: none yet */
};

static double time_in(const struct context_load *l, int64_t s, int d)
{
    /* A device sends (d-1)/d of its rows: queries, results, keys and values. */
    const double sent = (double)(2 * l->query_width + l->key_width) * (d - 1) / d * l->per_element;
    return (l->per_pair * (double)s * (double)(s + 1) / 2 + (l->per_token + sent) * (double)s) / d;
}

static void put(struct search *x, int sample, int part, int64_t length)
{
    x->part[part].busy += time_in(x->load, length, x->part[part].devices);
    x->part[part].tokens += length;
    x->in[sample] = part;
}

static void empty(struct search *x)
{
    for (int i = 0; i < x->parts; i++) x->part[i].busy = 0, x->part[i].tokens = 0;
}

static bool fits(const struct search *x, int64_t length, const struct loaded *p)
{
    return (p->tokens + length + p->devices - 1) / p->devices <= x->room;
}

/* The time of the slowest part if the samples are where x->in says: of true lengths or of bucketed ones. */
static double time_of(const struct search *x, bool bucketed, struct loaded part[])
{
    double most = 0;
    for (int i = 0; i < x->parts; i++)
        part[i] = (struct loaded){ .first = x->part[i].first, .devices = x->part[i].devices };
    for (int i = 0; i < x->load->samples; i++) {
        struct loaded *const p = &part[x->in[i]];
        p->busy += time_in(x->load, bucketed ? x->length[i] : x->sample[i].count, p->devices);
        p->tokens += x->sample[i].count;
        if (p->busy > most) most = p->busy;
    }
    return most;
}

static void keep_if_better(struct search *x)
{
    struct loaded part[MESH_MOST_DEVICES];
    const double bound = time_of(x, true, part), time = time_of(x, false, part);
    if (bound < x->bound) x->bound = bound;
    if (x->least >= 0 && time >= x->least) return;
    x->least = time, x->best_parts = x->parts;
    for (int i = 0; i < x->parts; i++) x->best[i] = part[i];
    for (int i = 0; i < x->load->samples; i++) x->best_in[i] = x->in[i];
}

/* Each sample into the part that then ends earliest. */
static void greedy(struct search *x)
{
    for (int k = 0; k < x->load->samples; k++) {
        const int64_t s = x->sample[k].count;
        int at = -1;
        double earliest = 0;
        for (int i = 0; i < x->parts; i++) {
            const double then = x->part[i].busy + time_in(x->load, s, x->part[i].devices);
            if (fits(x, s, &x->part[i]) && (at < 0 || then < earliest)) at = i, earliest = then;
        }
        if (at < 0) return;
        put(x, k, at, s);
    }
    keep_if_better(x);
}

/* One of the parts from `first` on with the same size and load would give the same plans. */
static bool like_an_earlier_one(const struct search *x, int first, int part)
{
    const struct loaded *const p = &x->part[part];
    for (int i = first; i < part; i++)
        if (x->part[i].devices == p->devices && x->part[i].busy == p->busy && x->part[i].tokens == p->tokens)
            return true;
    return false;
}

/* Samples of a bucket go to parts in the order of parts.  spent: the sum over parts of devices times time so far. */
static void branch(struct search *x, int sample, double spent)
{
    if (sample == x->load->samples) {
        keep_if_better(x);
        return;
    }
    const int64_t s = x->length[sample];
    /* Equal lengths may be exchanged, so only ascending parts are tried for them. */
    const int first = sample > 0 && x->length[sample - 1] == s ? x->in[sample - 1] : 0;
    /* Even if all devices ended together, this branch would not be better. */
    if ((spent + x->rest[sample]) / x->load->devices >= x->bound) return;
    for (int i = first; i < x->parts && x->steps < MOST_STEPS; i++) {
        const struct loaded before = x->part[i];
        if (!fits(x, s, &before) || like_an_earlier_one(x, first, i)) continue;
        x->steps++;
        put(x, sample, i, s);
        const double busy = x->part[i].busy;
        if (busy < x->bound) branch(x, sample + 1, spent + (busy - before.busy) * before.devices);
        x->part[i] = before;
    }
}

/* All ways to cut the devices from `first` on into parts of at most `largest`, sizes falling. */
static void cut_devices(struct search *x, int first, int largest)
{
    if (first == x->load->devices) {
        empty(x);
        greedy(x);
        empty(x);
        x->steps = 0;
        branch(x, 0, 0);
        return;
    }
    /* Sizes are powers of two and fall, so a part begins at a multiple of its size. */
    for (int d = largest; d >= 1; d /= 2) {
        if (first + d > x->load->devices) continue;
        x->part[x->parts++] = (struct loaded){ .first = first, .devices = d };
        cut_devices(x, first + d, d);
        x->parts--;
    }
}

static void find_parts(struct search *x)
{
    int largest = 1;
    /* A part exchanges tokens for heads, so it has at most as many devices as heads. */
    while (2 * largest <= x->load->devices && 2 * largest <= x->load->heads) largest *= 2;
    x->least = -1, x->bound = INFINITY;
    /* A device may hold twice the mean, unless no cut of the devices fits then. */
    x->room = 2 * ((x->load->tokens + x->load->devices - 1) / x->load->devices);
    cut_devices(x, 0, largest);
    if (x->least >= 0) return;
    x->room = x->load->tokens;                          /* one part takes what it must */
    cut_devices(x, 0, largest);
}

/* A part's samples, one after another in the order of tokens, are cut into nearly equal ranges. */
static void add_part(struct context_plan *plan, const struct search *x, int part)
{
    const struct loaded *p = &x->best[part];
    int64_t before = 0;
    context_add_group(plan, p->first, p->devices);
    for (int64_t token = 0, next; token < x->load->tokens; token = next) {
        int k = 0;
        /* Samples are sorted by length, but rows of a part stay in the order of tokens. */
        while (x->sample[k].first != token) k++;
        next = interval_end(x->sample[k]);
        if (x->best_in[k] != part) continue;
        const struct interval listed = { before, x->sample[k].count };
        for (int m = 0; m < p->devices; m++) {
            const struct interval own = interval_meet(listed, block_at(p->tokens, p->devices, m));
            if (own.count > 0)
                context_add_block(plan, interval_moved(own, token - before), (struct interval){ 0 }, p->first + m);
        }
        before = interval_end(listed);
    }
}

/* Bucket the lengths.  @return false without memory. */
static bool bucket(struct search *x, int buckets)
{
    const int n = x->load->samples;
    int64_t *const length = malloc(((size_t)n + 1) * sizeof *length);
    for (int i = 0; i < n && length; i++) length[i] = x->sample[i].count;
    const bool ok = length && bucket_lengths(x->length, length, n, buckets) >= 0;
    /* rest[i] is the least work of samples i and later: on one device nothing is sent. */
    for (int i = n - 1; i >= 0 && ok; i--) x->rest[i] = x->rest[i + 1] + time_in(x->load, x->length[i], 1);
    free(length);
    return ok;
}

enum error_code flexsp_plan(struct context_plan *plan, const struct context_load *l, int buckets, struct error *err)
{
    const size_t n = (size_t)l->samples;
    struct search *const x = calloc(1, sizeof *x);
    struct interval *const sample = context_samples(l);
    int *const in = calloc(2 * n + 1, sizeof *in);
    int64_t *const length = calloc(n + 1, sizeof *length);
    double *const rest = calloc(n + 1, sizeof *rest);
    *plan = (struct context_plan){ .devices = l->devices, .divisions = 1, .tokens = l->tokens,
                                   .lost = !x || !sample || !in || !length || !rest };
    if (!plan->lost) {
        x->load = l, x->sample = sample, x->length = length, x->rest = rest, x->in = in, x->best_in = in + n;
        plan->lost = !bucket(x, buckets);
    }
    if (!plan->lost) {
        find_parts(x);
        for (int i = 0; i < x->best_parts; i++) add_part(plan, x, i);
    }
    free(x), free(sample), free(in), free(length), free(rest);
    return context_plan_finish(plan, l, err);
}
