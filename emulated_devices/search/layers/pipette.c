/* pipette.c -- Pipette: one strategy for all layers in even stages, by a latency that counts hops in every round, and
 * devices placed by the rates between them.
 *
 *     step = max(1, floor(m / p)) x (hops + p x pass) + (p - 1) x pass + ring
 *
 * since in 1F1B a microbatch's way through all p stages is waited for once in each round of p microbatches.  AMP, and
 * the table, have the hops once.  Every strategy that fits is rated so, with devices in their order; the best few are
 * placed by annealing, and the best of these is the plan.  Memory is the table's: the paper trains a network for it.
 *
 * Apart from the others: the time has another formula, and places are chosen.
 *
 * The release stops annealing after 500 seconds, and accepts by difference / 10^(digits of the difference), so that 5
 * and 5000 are alike; here the iterations are counted, and a difference is a part of the first placement's time.
 *
 * Source   J. Yim et al., Pipette, DATE 2024; yimjinkyu1/date2024_pipette, mh_simulated_annealing_opt.py
 */
#include "emulated_devices/search/layers/layers.h"
#include "emulated_devices/search/layers/pipette.h"
#include "emulated_devices/search/planner.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* T falls from 1 to 5e-5 of the first time, eight times, from the best so far.  So 20 of 20 matrices of 8 units end at
 * the best of all placements (tests/devices/test_planners.c); with T falling once, 19. */
enum { WALKS = 8, ITERATIONS = 10000, PLACED = 6, UNITS_MOST = 4096 };
static const double COOLS = 0.999;

/* ---- placing ----------------------------------------------------------------------------------------------------- */

double placing_time(const struct placing *placing, const int place[])
{
    const int p = placing->stages, d = placing->copies, n = placing->unit;
    double hops = 0, ring = 0;
    for (int r = 0; r < d; r++) {
        double sum = 0;
        for (int s = 0; s + 1 < p; s++)
            sum += 2e-6 * (double)placing->hop / layer_bandwidth(placing->table, place[s * d + r] * n,
                                                                 place[(s + 1) * d + r] * n);
        hops = fmax(hops, sum);
    }
    for (int s = 0; s < p && d > 1; s++) {
        double slowest = INFINITY;
        for (int r = 0; r < d; r++)
            slowest = fmin(slowest, layer_bandwidth(placing->table, place[s * d + r] * n,
                                                    place[s * d + (r + 1) % d] * n));
        ring = fmax(ring, 1e-6 * (double)placing->ring / slowest);
    }
    return placing->rounds * hops + ring;
}

struct annealing { uint64_t seed, next; };

static int anneal_below(struct annealing *annealing, int n)
{
    return (int)(random_uniform(annealing->seed, 67, annealing->next++) * n);
}

/* Two units change places; a segment is turned round; or a unit goes elsewhere, and those between move up. */
static void anneal_move(struct annealing *annealing, int place[], int units)
{
    int a = anneal_below(annealing, units), b = anneal_below(annealing, units);
    const int kind = anneal_below(annealing, 3);
    if (kind == 2) {
        const int moved = place[a], step = a < b ? 1 : -1;
        for (; a != b; a += step) place[a] = place[a + step];
        place[b] = moved;
        return;
    }
    if (a > b) { const int swap = a; a = b, b = swap; }
    do { const int swap = place[a]; place[a] = place[b], place[b] = swap; } while (kind == 1 && ++a < --b);
}

/* One walk from the best placement so far.  @return the best one's seconds. */
static double anneal_walk(const struct placing *placing, struct annealing *annealing, double first, int place[])
{
    const int units = placing_units(placing);
    int now[UNITS_MOST], next[UNITS_MOST];
    const size_t bytes = (size_t)units * sizeof *now;
    double time = placing_time(placing, place), best = time, T = 1;
    memcpy(now, place, bytes);
    for (int i = 0; i < ITERATIONS; i++, T *= COOLS) {
        memcpy(next, now, bytes);
        anneal_move(annealing, next, units);
        const double then = placing_time(placing, next);
        const double chance = random_uniform(annealing->seed, 71, annealing->next);
        if (then > time && chance >= exp((time - then) / (T * first))) continue;
        memcpy(now, next, bytes), time = then;
        if (time < best) best = time, memcpy(place, now, bytes);
    }
    return best;
}

double placing_anneal(const struct placing *placing, uint64_t seed, int place[])
{
    struct annealing annealing = { seed, 0 };
    const double first = placing_time(placing, place);
    double best = first;
    for (int w = 0; w < WALKS && placing_units(placing) > 1 && first > 0; w++)
        best = anneal_walk(placing, &annealing, first, place);
    return best;
}

/* ---- latency ----------------------------------------------------------------------------------------------------- */

double pipette_latency(int stages, int micros, double pass, double hops, double ring)
{
    const int rounds = micros / stages > 1 ? micros / stages : 1;
    return rounds * (hops + stages * pass) + (stages - 1) * pass + ring;
}

double amp_latency(int stages, int micros, double pass, double hops, double ring)
{
    return hops + stages * pass + (micros - 1) * pass + ring;
}

/* ---- the planner ------------------------------------------------------------------------------------------------- */

/* A plan with its time by Pipette's formula. */
struct rated { struct layer_plan plan; double seconds; int *place; };

struct rating { struct layer_search *search; struct rated best[PLACED]; int count; };

static struct placing placing_of(const struct layer_table *table, const struct layer_plan *plan)
{
    const struct strategy *const s = &table->strategy[plan->strategy[0]];
    const int copies = s->axis[DP] > 0 ? s->axis[DP] : 1, p = plan->stages;
    struct placing placing = { table, p, copies, s->devices / copies, table->stream / (uint64_t)s->devices, 0,
                               table->micros / p > 1 ? table->micros / p : 1 };
    for (int i = 0; i < p; i++) {
        uint64_t sum = 0;
        for (int l = plan->first[i]; l < plan->first[i + 1]; l++)
            sum += layer_cost_of(table, l, plan->strategy[l])->shared;
        placing.ring = sum > placing.ring ? sum : placing.ring;
    }
    return placing;
}

/* The longest stage's pass, and the longest once. */
static void passes_of(const struct layer_table *table, const struct layer_plan *plan, double *pass, double *once)
{
    *pass = *once = 0;
    for (int s = 0, before = 0; s < plan->stages; before += plan->devices[s++]) {
        picoseconds sum = 0, rest = 0;
        for (int l = plan->first[s]; l < plan->first[s + 1]; l++)
            sum += layer_cost_of(table, l, plan->strategy[l])->time,
                rest += layer_cost_of(table, l, plan->strategy[l])->once;
        *pass = fmax(*pass, 1e-12 * (double)layer_slowed(table, sum, before, plan->devices[s]));
        *once = fmax(*once, 1e-12 * (double)rest);
    }
}

/* Time with devices in their order; once more with those of a placement: hops and rings change by as much. */
static double rate_plan(const struct layer_table *table, const struct layer_plan *plan)
{
    double pass, once;
    picoseconds hops = 0;
    passes_of(table, plan, &pass, &once);
    for (int s = 1; s < plan->stages; s++)
        hops += table->hop[layer_size_find(table, plan->devices[s - 1])][layer_size_find(table, plan->devices[s])];
    return pipette_latency(plan->stages, table->micros, pass, 1e-12 * (double)hops, once);
}

static void rate(struct rating *rating, const struct layer_plan *plan)
{
    const uint64_t memory = rating->search->memory;
    struct layer_verdict v;
    rating->search->looked++;
    if (!layer_plan_judge(rating->search->table, plan, &v) || (memory > 0 && v.memory > memory)) return;
    const double seconds = rate_plan(rating->search->table, plan);
    int at = rating->count;
    while (at > 0 && seconds < rating->best[at - 1].seconds) at--;
    if (at == PLACED) return;
    const int last = rating->count < PLACED ? rating->count++ : PLACED - 1;
    for (int i = last; i > at; i--) rating->best[i] = rating->best[i - 1];
    rating->best[at] = (struct rated){ *plan, seconds, NULL };
}

/* Place a plan's units, if the table has rates and a unit for each place. */
static enum error_code place(struct rating *rating, struct rated *rated, struct error *err)
{
    const struct layer_table *const table = rating->search->table;
    const struct placing placing = placing_of(table, &rated->plan);
    const int units = placing_units(&placing);
    if (layer_bandwidth(table, 0, table->devices - 1) <= 0 || units < 2 || units > UNITS_MOST) return OK;
    rated->place = calloc((size_t)units, sizeof *rated->place);
    if (rated->place == NULL) return fail(err, ERR_MEMORY, "no memory to place %d units", units);
    for (int i = 0; i < units; i++) rated->place[i] = i;
    const double before = placing_time(&placing, rated->place);
    rated->seconds += placing_anneal(&placing, rating->search->seed, rated->place) - before;
    return OK;
}

/* The places of all devices, if they differ from their order. */
static enum error_code take_slots(struct layer_search *search, const struct rated *rated, struct error *err)
{
    const struct placing placing = placing_of(search->table, &rated->plan);
    bool moved = false;
    for (int i = 0; rated->place && i < placing_units(&placing); i++) moved = moved || rated->place[i] != i;
    if (!moved) return OK;
    search->slot = calloc((size_t)search->table->devices, sizeof *search->slot);
    if (search->slot == NULL) return fail(err, ERR_MEMORY, "no memory for the places of devices");
    for (int d = 0; d < search->table->devices; d++)
        search->slot[d] = rated->place[d / placing.unit] * placing.unit + d % placing.unit;
    return OK;
}

static enum error_code pipette_solve(struct layer_search *search, struct error *err)
{
    const struct layer_table *const table = search->table;
    struct rating rating = { .search = search };
    enum error_code e = OK;
    int best = 0;
    for (int s = 0; s < table->strategies; s++) {
        struct layer_plan plan;
        if (!layer_plan_evenly(table, table->strategy[s].devices, &plan)) continue;
        for (int l = 0; l < table->layers; l++) plan.strategy[l] = s;
        rate(&rating, &plan);
    }
    for (int i = 0; i < rating.count && !e; i++) e = place(&rating, &rating.best[i], err);
    for (int i = 1; i < rating.count; i++)
        if (rating.best[i].seconds < rating.best[best].seconds) best = i;
    if (!e && rating.count > 0) {
        layer_search_offer(search, &rating.best[best].plan);
        search->predicted = (picoseconds)(1e12 * rating.best[best].seconds);
        e = take_slots(search, &rating.best[best], err);
    }
    for (int i = 0; i < rating.count; i++) free(rating.best[i].place);
    return e;
}

const struct planner planner_pipette = {
    .name = "pipette", .description = "one strategy in even stages by a latency with hops in every round; places",
    .source = "J. Yim et al., Pipette, DATE 2024",
    .promise = "nothing: it is a heuristic",
    .solve = pipette_solve, .exact_of = LAYERS_NONE,
};
