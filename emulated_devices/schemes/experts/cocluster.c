#include "emulated_devices/schemes/experts/cocluster.h"
#include "emulated_devices/device/interval.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { STARTS = 8, MOST_ROUNDS = 100 };

/* A search has the clusters that it tries, and memory for one step. */
struct search {
    const struct activations *a;
    struct clusters now;
    double *weight;                     /* [max(V,E), parts] choices that a token, or an expert, has in each part */
    double *load, *room;                /* [parts] choices; how many more experts */
    double *total;                      /* [max(V,E)] choices of a token, or of an expert */
    struct ranked { double total; int32_t which; } *order;     /* [max(V,E)] by total, largest first */
};

static uint32_t count_of(const struct activations *a, int64_t l, int64_t v, int64_t e)
{
    return a->count[(l * a->V + v) * a->E + e];
}

/* ---- order by choices -------------------------------------------------------------------------------------------- */

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->total != y->total) return x->total > y->total ? -1 : 1;
    return x->which < y->which ? -1 : 1;
}

static void sort_by_total(struct search *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) s->order[i] = (struct ranked){ s->total[i], (int32_t)i };
    qsort(s->order, (size_t)n, sizeof *s->order, compare_ranked);
}

static double limit(const struct search *s, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += s->total[i];
    return (1 + COCLUSTER_SLACK) * sum / s->now.parts;
}

/* The part with most of i's choices among those with room; else the emptiest with room for one more. */
static int best_part(const struct search *s, int64_t i, double most)
{
    const int parts = s->now.parts;
    int best = -1, emptiest = -1;
    for (int p = 0; p < parts; p++) {
        if (s->room[p] < 1) continue;
        if (emptiest < 0 || s->load[p] < s->load[emptiest]) emptiest = p;
        if (s->load[p] + s->total[i] > most) continue;
        if (best < 0 || s->weight[i * parts + p] > s->weight[i * parts + best]) best = p;
    }
    return best >= 0 ? best : emptiest;
}

/* all: also what was never chosen, which otherwise gets no part. */
static void fill_parts(struct search *s, int64_t n, bool all, int32_t *part)
{
    const double most = limit(s, n);
    sort_by_total(s, n);
    memset(s->load, 0, (size_t)s->now.parts * sizeof *s->load);
    for (int64_t at = 0; at < n; at++) {
        const int64_t i = s->order[at].which;
        part[i] = all || s->total[i] > 0 ? best_part(s, i, most) : -1;
        if (part[i] >= 0) s->load[part[i]] += s->total[i], s->room[part[i]]--;
    }
}

/* ---- tokens, the experts being given ----------------------------------------------------------------------------- */

static void place_tokens(struct search *s)
{
    const struct activations *a = s->a;
    const int parts = s->now.parts;
    memset(s->weight, 0, (size_t)(a->V * parts) * sizeof *s->weight);
    memset(s->total, 0, (size_t)a->V * sizeof *s->total);
    /* weight[v, p] = choices that token v makes, in all layers, of experts in part p; total [V] is its sum. */
    for (int64_t l = 0; l < a->L; l++)
        for (int64_t v = 0; v < a->V; v++)
            for (int64_t e = 0; e < a->E; e++) {
                s->weight[v * parts + s->now.of_expert[l * a->E + e]] += count_of(a, l, v, e);
                s->total[v] += count_of(a, l, v, e);
            }
    for (int p = 0; p < parts; p++) s->room[p] = (double)a->V;
    fill_parts(s, a->V, false, s->now.of_token);
}

/* ---- experts of a layer, the tokens being given ------------------------------------------------------------------ */

static double gain_of_swap(const struct search *s, const int32_t *part, int64_t e, int64_t f)
{
    const int parts = s->now.parts;
    return s->weight[e * parts + part[f]] + s->weight[f * parts + part[e]] - s->weight[e * parts + part[e]] -
           s->weight[f * parts + part[f]];
}

static bool swap_fits(const struct search *s, const int32_t *part, int64_t e, int64_t f, double most)
{
    const double more = s->total[f] - s->total[e], at_e = s->load[part[e]] + more, at_f = s->load[part[f]] - more;
    /* Only the part that gets more can pass the limit. */
    return (more > 0 ? at_e : at_f) <= most;
}

static void swap(struct search *s, int32_t *part, int64_t e, int64_t f)
{
    const int32_t was = part[e];
    s->load[part[e]] += s->total[f] - s->total[e], s->load[part[f]] += s->total[e] - s->total[f];
    part[e] = part[f], part[f] = was;
}

static bool swap_once(struct search *s, int64_t E, int32_t *part, double most)
{
    bool swapped = false;
    for (int64_t e = 0; e < E; e++)
        for (int64_t f = e + 1; f < E; f++) {
            /* A swap must gain local choices; the number of experts of each part stays. */
            if (part[e] == part[f] || gain_of_swap(s, part, e, f) <= 0 || !swap_fits(s, part, e, f, most)) continue;
            swap(s, part, e, f), swapped = true;
        }
    return swapped;
}

/* If a part has too much, the swap of one of its experts for a less busy one that costs fewest local choices.
 * @return whether there was one that the other part could take. */
static bool relieve_once(struct search *s, int64_t E, int32_t *part, double most)
{
    int fullest = 0;
    int64_t from = -1, to = -1;
    for (int p = 1; p < s->now.parts; p++)
        if (s->load[p] > s->load[fullest]) fullest = p;
    if (s->load[fullest] <= most) return false;
    for (int64_t e = 0; e < E; e++)
        for (int64_t f = 0; f < E && part[e] == fullest; f++) {
            const double less = s->total[e] - s->total[f];
            if (part[f] == fullest || less <= 0 || s->load[part[f]] + less >= s->load[fullest]) continue;
            if (from < 0 || gain_of_swap(s, part, e, f) > gain_of_swap(s, part, from, to)) from = e, to = f;
        }
    if (from >= 0) swap(s, part, from, to);
    return from >= 0;
}

static void place_experts(struct search *s, int64_t l)
{
    const struct activations *a = s->a;
    const int parts = s->now.parts;
    int32_t *const part = s->now.of_expert + l * a->E;
    memset(s->weight, 0, (size_t)(a->E * parts) * sizeof *s->weight);
    memset(s->total, 0, (size_t)a->E * sizeof *s->total);
    /* weight[e, p] = choices of expert e by tokens of part p in this layer. */
    for (int64_t v = 0; v < a->V; v++)
        for (int64_t e = 0; e < a->E; e++) {
            if (s->now.of_token[v] >= 0) s->weight[e * parts + s->now.of_token[v]] += count_of(a, l, v, e);
            s->total[e] += count_of(a, l, v, e);
        }
    /* Every part gets as many experts of a layer as its device keeps. */
    for (int p = 0; p < parts; p++) s->room[p] = (double)block_at(a->E, parts, p).count;
    fill_parts(s, a->E, true, part);
    for (int i = 0; i < MOST_ROUNDS && relieve_once(s, a->E, part, limit(s, a->E)); i++) {}
    for (int i = 0; i < MOST_ROUNDS && swap_once(s, a->E, part, limit(s, a->E)); i++) {}
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* Experts in ranges; from the second start on in an order that is drawn. */
static void begin(struct search *s, int start)
{
    const int64_t E = s->a->E;
    for (int64_t l = 0; l < s->a->L; l++) {
        int32_t *const part = s->now.of_expert + l * E;
        for (int p = 0; p < s->now.parts; p++)
            for (int64_t e = block_start(E, s->now.parts, p); e < block_start(E, s->now.parts, p + 1); e++) part[e] = p;
        /* Fisher and Yates: expert e changes places with one of 0 .. e. */
        for (int64_t e = E - 1; e > 0 && start > 0; e--) {
            const double u = random_uniform((uint64_t)start, random_stream("cocluster"), (uint64_t)(l * E + e));
            const int64_t other = (int64_t)(u * (double)(e + 1));
            const int32_t was = part[e];
            part[e] = part[other], part[other] = was;
        }
    }
}

static void copy(const struct activations *a, struct clusters *to, const struct clusters *from)
{
    memcpy(to->of_token, from->of_token, (size_t)a->V * sizeof *to->of_token);
    memcpy(to->of_expert, from->of_expert, (size_t)(a->L * a->E) * sizeof *to->of_expert);
}

/* Local choices count within the limit of loads; beyond it, less than what is beyond. */
static double score(const struct activations *a, const struct clusters *c)
{
    const double beyond = clusters_imbalance(a, c) - (1 + COCLUSTER_SLACK);
    return clusters_local(a, c) - (beyond > 0 ? c->parts * beyond : 0);
}

/* Assign in turn while it helps; keep the best. */
static void improve(struct search *s, struct clusters *best, double *most)
{
    double here = -INFINITY;
    for (int i = 0; i < MOST_ROUNDS; i++) {
        const double before = here;
        place_tokens(s);
        /* The first round has tokens follow the experts of the start, so it moves no expert. */
        for (int64_t l = 0; l < s->a->L && i > 0; l++) place_experts(s, l);
        const double now = score(s->a, &s->now);
        if (now > *most) *most = now, copy(s->a, best, &s->now);
        if (now > here) here = now;
        if (i > 1 && here <= before) return;
    }
}

static bool make(struct clusters *c, const struct activations *a, int parts)
{
    *c = (struct clusters){ .parts = parts, .of_token = calloc((size_t)a->V + 1, sizeof *c->of_token),
                            .of_expert = calloc((size_t)(a->L * a->E) + 1, sizeof *c->of_expert) };
    return c->of_token && c->of_expert;
}

enum error_code cocluster(const struct activations *a, int parts, struct clusters *best, struct error *err)
{
    const size_t n = (size_t)(a->V > a->E ? a->V : a->E) + 1, P = (size_t)parts;
    struct search s = { .a = a, .weight = malloc(n * P * sizeof *s.weight), .load = malloc(P * sizeof *s.load),
                        .room = malloc(P * sizeof *s.room), .total = malloc(n * sizeof *s.total),
                        .order = malloc(n * sizeof *s.order) };
    const bool made = make(&s.now, a, parts), made_best = make(best, a, parts);
    const bool ok = s.weight && s.load && s.room && s.total && s.order && made && made_best;
    double most = -INFINITY;
    for (int start = 0; start < STARTS && ok; start++) begin(&s, start), improve(&s, best, &most);
    free(s.weight), free(s.load), free(s.room), free(s.total), free(s.order), clusters_free(&s.now);
    if (!ok) clusters_free(best);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to group %lld experts", (long long)a->E);
}

void clusters_free(struct clusters *c)
{
    free(c->of_token), free(c->of_expert);
    *c = (struct clusters){ 0 };
}

/* ---- numbers of clusters ----------------------------------------------------------------------------------------- */

double clusters_local(const struct activations *a, const struct clusters *c)
{
    double local = 0, all = 0;
    for (int64_t l = 0; l < a->L; l++)
        for (int64_t v = 0; v < a->V; v++)
            for (int64_t e = 0; e < a->E; e++) {
                const double n = count_of(a, l, v, e);
                all += n;
                /* A token without a part may be on any device, so one choice in `parts` is local. */
                if (c->of_token[v] < 0) local += n / c->parts;
                else if (c->of_token[v] == c->of_expert[l * a->E + e]) local += n;
            }
    return all > 0 ? local / all : 0;
}

double clusters_imbalance(const struct activations *a, const struct clusters *c)
{
    double worst = 0;
    for (int64_t l = 0; l < a->L; l++)
        for (int p = 0; p < c->parts; p++) {
            double part = 0, all = 0;
            for (int64_t v = 0; v < a->V; v++)
                for (int64_t e = 0; e < a->E; e++) {
                    all += count_of(a, l, v, e);
                    if (c->of_expert[l * a->E + e] == p) part += count_of(a, l, v, e);
                }
            /* The imbalance is the largest load of a part over the mean of the parts. */
            if (all > 0 && part * c->parts / all > worst) worst = part * c->parts / all;
        }
    return worst;
}

void clusters_order(const struct clusters *c, int64_t E, int64_t layer, int32_t *old)
{
    for (int p = 0; p < c->parts; p++)
        for (int64_t e = 0; e < E; e++)
            if (c->of_expert[layer * E + e] == p) *old++ = (int32_t)e;
}
