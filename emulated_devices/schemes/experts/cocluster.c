/* cocluster.c -- tokens and experts are assigned in turn, from several starts; the best score is the result.
 * model/group_experts.c calls it with the counts [L, V, E] of a model's own choices; without memory it is
 * ERR_MEMORY. */
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

/* Return how often tokens of id v chose expert e in layer l. */
static uint32_t cocluster_count_of(const struct activations *activations, int64_t l, int64_t v, int64_t e)
{
    return activations->count[(l * activations->V + v) * activations->E + e];
}

/* ---- order by choices -------------------------------------------------------------------------------------------- */

/* The most choices come first; equal totals are in the order of numbers, so the result is the same everywhere. */
static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->total != y->total) return x->total > y->total ? -1 : 1;
    return x->which < y->which ? -1 : 1;
}

static void sort_by_total(struct search *search, int64_t n)
{
    for (int64_t i = 0; i < n; i++) search->order[i] = (struct ranked){ search->total[i], (int32_t)i };
    qsort(search->order, (size_t)n, sizeof *search->order, compare_ranked);
}

/* Return the choices that a part may have: (1 + SLACK) of the mean of all parts. */
static double limit(const struct search *search, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += search->total[i];
    return (1 + COCLUSTER_SLACK) * sum / search->now.parts;
}

/* The part with most of i's choices among those with room; else the emptiest with room for one more. */
static int best_part(const struct search *search, int64_t i, double most)
{
    const int parts = search->now.parts;
    int best = -1, emptiest = -1;
    for (int p = 0; p < parts; p++) {
        if (search->room[p] < 1) continue;
        if (emptiest < 0 || search->load[p] < search->load[emptiest]) emptiest = p;
        if (search->load[p] + search->total[i] > most) continue;
        if (best < 0 || search->weight[i * parts + p] > search->weight[i * parts + best]) best = p;
    }
    return best >= 0 ? best : emptiest;
}

/* Assign n tokens or experts to parts, those with the most choices first.  `all`: also what was never chosen, which
 * otherwise gets -1. */
static void fill_parts(struct search *search, int64_t n, bool all, int32_t *part)
{
    const double most = limit(search, n);
    sort_by_total(search, n);
    memset(search->load, 0, (size_t)search->now.parts * sizeof *search->load);
    for (int64_t at = 0; at < n; at++) {
        const int64_t i = search->order[at].which;
        part[i] = all || search->total[i] > 0 ? best_part(search, i, most) : -1;
        if (part[i] >= 0) search->load[part[i]] += search->total[i], search->room[part[i]]--;
    }
}

/* ---- tokens, the experts being given ----------------------------------------------------------------------------- */

/* Assign each token to the part that has most of its experts, within the limit of loads. */
static void place_tokens(struct search *search)
{
    const struct activations *a = search->a;
    const int parts = search->now.parts;
    memset(search->weight, 0, (size_t)(a->V * parts) * sizeof *search->weight);
    memset(search->total, 0, (size_t)a->V * sizeof *search->total);
    /* weight[v, p] = choices that token v makes, in all layers, of experts in part p; total [V] is its sum. */
    for (int64_t l = 0; l < a->L; l++)
        for (int64_t v = 0; v < a->V; v++)
            for (int64_t e = 0; e < a->E; e++) {
                search->weight[v * parts + search->now.of_expert[l * a->E + e]] += cocluster_count_of(a, l, v, e);
                search->total[v] += cocluster_count_of(a, l, v, e);
            }
    /* Only loads limit the tokens of a part, not their number. */
    for (int p = 0; p < parts; p++) search->room[p] = (double)a->V;
    fill_parts(search, a->V, false, search->now.of_token);
}

/* ---- experts of a layer, the tokens being given ------------------------------------------------------------------ */

/* Count the choices that become local if experts e and f exchange their parts, less those that were. */
static double gain_of_swap(const struct search *search, const int32_t *part, int64_t e, int64_t f)
{
    const int parts = search->now.parts;
    return search->weight[e * parts + part[f]] + search->weight[f * parts + part[e]]
           - search->weight[e * parts + part[e]] - search->weight[f * parts + part[f]];
}

static bool swap_fits(const struct search *search, const int32_t *part, int64_t e, int64_t f, double most)
{
    const double more = search->total[f] - search->total[e], at_e = search->load[part[e]] + more,
        at_f = search->load[part[f]] - more;
    /* Only the part that gets more can pass the limit. */
    return (more > 0 ? at_e : at_f) <= most;
}

/* Exchange the parts of two experts, and their loads. */
static void swap(struct search *search, int32_t *part, int64_t e, int64_t f)
{
    /* Each part keeps its number of experts: they exchange places. */
    const int32_t was = part[e];
    search->load[part[e]] += search->total[f] - search->total[e],
        search->load[part[f]] += search->total[e] - search->total[f];
    part[e] = part[f], part[f] = was;
}

/* Walk over all pairs of experts and make each swap that helps.  @return whether there was one. */
static bool swap_once(struct search *search, int64_t E, int32_t *part, double most)
{
    bool swapped = false;
    for (int64_t e = 0; e < E; e++)
        for (int64_t f = e + 1; f < E; f++) {
            /* A swap must gain local choices; the number of experts of each part stays. */
            if (part[e] == part[f] || gain_of_swap(search, part, e, f) <= 0 || !swap_fits(search, part, e, f, most))
                continue;
            swap(search, part, e, f), swapped = true;
        }
    return swapped;
}

/* If a part has too much, the swap of one of its experts for a less busy one that costs fewest local choices.
 * @return whether there was one that the other part could take. */
static bool relieve_once(struct search *search, int64_t E, int32_t *part, double most)
{
    /* Only the fullest part gives; its expert changes places with an expert that has fewer choices. */
    int fullest = 0;
    int64_t from = -1, to = -1;
    for (int p = 1; p < search->now.parts; p++)
        if (search->load[p] > search->load[fullest]) fullest = p;
    if (search->load[fullest] <= most) return false;
    for (int64_t e = 0; e < E; e++)
        for (int64_t f = 0; f < E && part[e] == fullest; f++) {
            const double less = search->total[e] - search->total[f];
            if (part[f] == fullest || less <= 0 || search->load[part[f]] + less >= search->load[fullest]) continue;
            if (from < 0 || gain_of_swap(search, part, e, f) > gain_of_swap(search, part, from, to)) from = e, to = f;
        }
    if (from >= 0) swap(search, part, from, to);
    return from >= 0;
}

/* Assign the experts of one layer, then relieve parts with too much load, then swap for local choices. */
static void place_experts(struct search *search, int64_t l)
{
    const struct activations *a = search->a;
    const int parts = search->now.parts;
    int32_t *const part = search->now.of_expert + l * a->E;
    memset(search->weight, 0, (size_t)(a->E * parts) * sizeof *search->weight);
    memset(search->total, 0, (size_t)a->E * sizeof *search->total);
    /* weight[e, p] = choices of expert e by tokens of part p in this layer. */
    for (int64_t v = 0; v < a->V; v++)
        for (int64_t e = 0; e < a->E; e++) {
            if (search->now.of_token[v] >= 0)
                search->weight[e * parts + search->now.of_token[v]] += cocluster_count_of(a, l, v, e);
            search->total[e] += cocluster_count_of(a, l, v, e);
        }
    /* Every part gets as many experts of a layer as its device keeps. */
    for (int p = 0; p < parts; p++) search->room[p] = (double)block_at(a->E, parts, p).count;
    fill_parts(search, a->E, true, part);
    for (int i = 0; i < MOST_ROUNDS && relieve_once(search, a->E, part, limit(search, a->E)); i++) {}
    for (int i = 0; i < MOST_ROUNDS && swap_once(search, a->E, part, limit(search, a->E)); i++) {}
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* Begin with experts in ranges; from the second start on their order in each layer is drawn. */
static void cocluster_begin(struct search *search, int start)
{
    const int64_t E = search->a->E;
    for (int64_t l = 0; l < search->a->L; l++) {
        int32_t *const part = search->now.of_expert + l * E;
        for (int p = 0; p < search->now.parts; p++)
            for (int64_t e = block_start(E, search->now.parts, p); e < block_start(E, search->now.parts, p + 1);
                 e++) part[e] = p;
        /* Fisher and Yates: expert e changes places with one of 0 .. e. */
        for (int64_t e = E - 1; e > 0 && start > 0; e--) {
            const double u = random_uniform((uint64_t)start, random_stream("cocluster"), (uint64_t)(l * E + e));
            const int64_t other = (int64_t)(u * (double)(e + 1));
            const int32_t was = part[e];
            part[e] = part[other], part[other] = was;
        }
    }
}

static void cocluster_copy(const struct activations *activations, struct clusters *to, const struct clusters *from)
{
    memcpy(to->of_token, from->of_token, (size_t)activations->V * sizeof *to->of_token);
    memcpy(to->of_expert, from->of_expert, (size_t)(activations->L * activations->E) * sizeof *to->of_expert);
}

/* Local choices count within the limit of loads; beyond it, less than what is beyond. */
static double cocluster_score(const struct activations *activations, const struct clusters *clusters)
{
    const double beyond = clusters_imbalance(activations, clusters) - (1 + COCLUSTER_SLACK);
    return clusters_local(activations, clusters) - (beyond > 0 ? clusters->parts * beyond : 0);
}

/* Assign in turn while it helps; keep the best. */
static void improve(struct search *search, struct clusters *best, double *most)
{
    double here = -INFINITY;
    /* Tokens follow experts, then experts follow tokens, until the score of a round is no better. */
    for (int i = 0; i < MOST_ROUNDS; i++) {
        /* Rounds 0 to 2 always run: experts are moved from round 1 on, and may need two rounds to help. */
        const double before = here;
        place_tokens(search);
        /* The first round has tokens follow the experts of the start, so it moves no expert. */
        for (int64_t l = 0; l < search->a->L && i > 0; l++) place_experts(search, l);
        const double now = cocluster_score(search->a, &search->now);
        if (now > *most) *most = now, cocluster_copy(search->a, best, &search->now);
        if (now > here) here = now;
        if (i > 1 && here <= before) return;
    }
}

/* Allocate clusters of all tokens and experts, in part 0. */
static bool cocluster_make(struct clusters *clusters, const struct activations *activations, int parts)
{
    *clusters = (struct clusters){ .parts = parts,
                                  .of_token = calloc((size_t)activations->V + 1, sizeof *clusters->of_token),
                            .of_expert = calloc((size_t)(activations->L * activations->E) + 1,
                                                sizeof *clusters->of_expert) };
    return clusters->of_token && clusters->of_expert;
}

enum error_code cocluster(const struct activations *activations, int parts, struct clusters *best, struct error *err)
{
    /* Memory of a step serves tokens and experts in turn, so the larger number decides. */
    const size_t n = (size_t)(activations->V > activations->E ? activations->V : activations->E) + 1, P = (size_t)parts;
    struct search s = { .a = activations, .weight = malloc(n * P * sizeof *s.weight),
                       .load = malloc(P * sizeof *s.load),
                        .room = malloc(P * sizeof *s.room), .total = malloc(n * sizeof *s.total),
                        .order = malloc(n * sizeof *s.order) };
    const bool made = cocluster_make(&s.now, activations, parts), made_best = cocluster_make(best, activations, parts);
    const bool ok = s.weight && s.load && s.room && s.total && s.order && made && made_best;
    double most = -INFINITY;
    /* `best` and `most` are kept over all starts; `now` begins anew. */
    for (int start = 0; start < STARTS && ok; start++) cocluster_begin(&s, start), improve(&s, best, &most);
    free(s.weight), free(s.load), free(s.room), free(s.total), free(s.order), clusters_free(&s.now);
    if (!ok) clusters_free(best);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to group %lld experts", (long long)activations->E);
}

void clusters_free(struct clusters *clusters)
{
    free(clusters->of_token), free(clusters->of_expert);
    *clusters = (struct clusters){ 0 };
}

/* ---- numbers of clusters ----------------------------------------------------------------------------------------- */

double clusters_local(const struct activations *activations, const struct clusters *clusters)
{
    double local = 0, all = 0;
    for (int64_t l = 0; l < activations->L; l++)
        for (int64_t v = 0; v < activations->V; v++)
            for (int64_t e = 0; e < activations->E; e++) {
                const double n = cocluster_count_of(activations, l, v, e);
                all += n;
                /* A token without a part may be on any device, so one choice in `parts` is local. */
                if (clusters->of_token[v] < 0) local += n / clusters->parts;
                else if (clusters->of_token[v] == clusters->of_expert[l * activations->E + e]) local += n;
            }
    return all > 0 ? local / all : 0;
}

double clusters_imbalance(const struct activations *activations, const struct clusters *clusters)
{
    double worst = 0;
    for (int64_t l = 0; l < activations->L; l++)
        for (int p = 0; p < clusters->parts; p++) {
            double part = 0, all = 0;
            for (int64_t v = 0; v < activations->V; v++)
                for (int64_t e = 0; e < activations->E; e++) {
                    all += cocluster_count_of(activations, l, v, e);
                    if (clusters->of_expert[l * activations->E + e] == p)
                        part += cocluster_count_of(activations, l, v, e);
                }
            /* The imbalance is the largest load of a part over the mean of the parts. */
            if (all > 0 && part * clusters->parts / all > worst) worst = part * clusters->parts / all;
        }
    return worst;
}

void clusters_order(const struct clusters *clusters, int64_t E, int64_t layer, int32_t *old)
{
    for (int p = 0; p < clusters->parts; p++)
        for (int64_t e = 0; e < E; e++)
            if (clusters->of_expert[layer * E + e] == p) *old++ = (int32_t)e;
}
