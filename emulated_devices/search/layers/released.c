/* released.c -- how the released code of planners prices a step, a message, a product.
 *
 * Each formula is the release's, with what it misses.  Galvatron's pipeline waits for its first or its last stage:
 *
 *     stages of 3, 5, 3, 3 and 8 microbatches:  3 + 5 + 3 + 3 + 7 x 3 = 35;  the second alone works 8 x 5 = 40
 *
 * MindSpore's redistribution counts an all-to-all above an all-gather, which sends four times as much on 4 devices.
 * Alpa's collectives differ behind the point, so that of equal bytes the one with more freedom is taken.
 *
 * bench planners and tests/devices/test_planners.c call these functions.
 *
 * Source   X. Miao et al., Galvatron, arXiv:2211.13878; L. Zheng et al., Alpa, arXiv:2201.12023; W. Zeng et al.,
 *          PanGu-alpha, arXiv:2104.12369, section 4; the releases' files stand at each formula
 */
#include "emulated_devices/search/layers/released.h"
#include <math.h>
#include <stdlib.h>

double galvatron_pipeline(int stages, int micros, const double micro[], const double last[])
{
    const double first = micro[0], filling = stages - 1 < micros - 1 ? stages - 1 : micros - 1;
    double behind = 0, late = 0, sum = 0;
    for (int s = 0; s < stages; s++) {
        sum += micro[s], behind += s > 0 ? micro[s] : 0;
        late = fmax(late, last[s] - sum);
    }
    /* A third of a pass is forward.  time = max(all stages + the last one's rest, the first stage's own row) + late */
    const double by_last = sum + micro[stages - 1] * (micros - 1),
                 by_first = fmax(filling * first / 3, behind / 3) + fmax(filling * 2 * first / 3, behind * 2 / 3) +
                            first * fmax(0, micros + 1 - stages);
    return fmax(by_last, by_first) + late;
}

double galvatron_overlap(double message, double rate, double backward, double slowdown)
{
    const double sending = message * rate * slowdown, computing = backward * slowdown;
    return sending > computing ? computing + (message * rate - computing / slowdown)
                               : sending + (backward - sending / slowdown);
}

double alpa_collective_cost(enum alpa_collective collective, int devices, double alpha, double beta, double bytes)
{
    const double n = devices, part = beta * (n - 1) / n * bytes;
    switch (collective) {
    case ALPA_ALL_GATHER:     return alpha + part + 0.1;
    case ALPA_ALL_REDUCE:     return alpha + 2 * part + 0.01;
    case ALPA_REDUCE_SCATTER: return alpha + part + 0.001;
    case ALPA_ALL_TO_ALL:     return alpha + 1.5 * part / n + 0.001;
    }
    return INFINITY;
}

double mindspore_product_cost(const struct layer_product *product, const int parts[3], int devices, double beta,
                              int element)
{
    static const double GAMMA = 0.001;          /* the release's weight of gradients' messages */
    const double rows = (double)product->rows / parts[0], inner = (double)product->inner / parts[1],
                 columns = (double)product->columns / parts[2],
                 stream = rows * inner * element, weight = inner * columns * element, out = rows * columns * element;
    const bool sums = parts[1] > 1, has_copies = parts[1] * parts[2] < devices;
    const double back = has_copies ? weight : 0;
    return stream + weight + (sums ? out : 0) + back + beta * ((sums ? out : 0) + GAMMA * back);
}

double mindspore_all_to_all_cost(double whole, int devices) { return 4 * whole / devices; }

double mindspore_gather_cost(double whole, int devices) { return whole / devices * (devices + 1) / 2; }

/* ---- Alpa's program ---------------------------------------------------------------------------------------------- */

/* An axis of the mesh splits the batch, the columns of a weight (its result), or the rows (its input). */
enum role { SPLITS_BATCH, SPLITS_COLUMNS, SPLITS_ROWS, ROLES };

/* A tensor on an axis: the batch is split, the features are, or each device has all. */
enum held { HELD_BATCH, HELD_FEATURES, HELD_WHOLE };

static enum role role_of(int strategy, int axis)
{
    return (enum role)(axis == 0 ? strategy / ROLES : strategy % ROLES);
}

static enum held split_of_result(enum role role)
{
    return role == SPLITS_BATCH ? HELD_BATCH : role == SPLITS_COLUMNS ? HELD_FEATURES : HELD_WHOLE;
}

static enum held split_of_input(enum role role)
{
    return role == SPLITS_BATCH ? HELD_BATCH : role == SPLITS_ROWS ? HELD_FEATURES : HELD_WHOLE;
}

static double summed(const struct alpa_products *products, int axis, double bytes)
{
    const int n = products->axis[axis];
    return n == 1 ? 0 : alpa_collective_cost(ALPA_ALL_REDUCE, n, products->alpha, products->beta[axis], bytes);
}

/* Bytes of the result, of the gradient of the input or of the weight, and on which axes they are partial sums. */
static double cost_of_product(const struct alpa_products *products, int strategy, bool is_first)
{
    const double stream = 4. * (double)(products->batch * products->hidden),
                 weight = 4. * (double)(products->hidden * products->hidden);
    double cost = 0;
    for (int a = 0; a < 2; a++) {
        const enum role role = role_of(strategy, a), beside = role_of(strategy, 1 - a);
        const int n = products->axis[1 - a];
        if (role == SPLITS_BATCH) cost += summed(products, a, beside == SPLITS_BATCH ? weight : weight / n);
        if (role == SPLITS_ROWS) cost += summed(products, a, beside == SPLITS_ROWS ? stream : stream / n);
        if (role == SPLITS_COLUMNS && !is_first)
            cost += summed(products, a, beside == SPLITS_COLUMNS ? stream : stream / n);
    }
    return cost;
}

/* A tensor that is split otherwise than its reader wants is gathered whole; cutting is free. */
static double cost_of_change(const struct alpa_products *products, int axis, enum held have, enum held want)
{
    const int n = products->axis[axis];
    if (have == want || have == HELD_WHOLE || n == 1) return 0;
    return alpa_collective_cost(ALPA_ALL_GATHER, n, products->alpha, products->beta[axis],
                                4. * (double)(products->batch * products->hidden));
}

static picoseconds thousandths(double cost) { return (picoseconds)llround(1000 * cost); }

enum error_code alpa_products_table(struct layer_table *table, const struct alpa_products *products, struct error *err)
{
    enum { STRATEGIES = ROLES * ROLES };
    const int layers = products->layers, devices = products->axis[0] * products->axis[1];
    *table = (struct layer_table){ .devices = devices, .micros = 1, .layers = layers, .kinds = layers,
                                   .strategies = STRATEGIES, .layouts = STRATEGIES };
    table->kind = calloc((size_t)layers, sizeof *table->kind);
    table->strategy = calloc(STRATEGIES, sizeof *table->strategy);
    table->cost = calloc((size_t)layers * STRATEGIES, sizeof *table->cost);
    table->edge = calloc((size_t)STRATEGIES * STRATEGIES, sizeof *table->edge);
    if (!table->kind || !table->strategy || !table->cost || !table->edge)
        return layer_table_free(table), fail(err, ERR_MEMORY, "no memory for a table of %d products", layers);
    for (int l = 0; l < layers; l++) table->kind[l] = l;
    for (int s = 0; s < STRATEGIES; s++) {
        table->strategy[s].devices = devices, table->strategy[s].layout = s;
        for (int l = 0; l < layers; l++) {
            const picoseconds time = thousandths(cost_of_product(products, s, l == 0));
            table->cost[l * STRATEGIES + s] = (struct layer_cost){ .there = true, .time = time, .computing = time,
                                                                   .state = 1 };
        }
        for (int to = 0; to < STRATEGIES; to++)
            for (int a = 0; a < 2; a++) {
                const enum held has = split_of_result(role_of(s, a)), wants = split_of_input(role_of(to, a));
                table->edge[s * STRATEGIES + to] += thousandths(cost_of_change(products, a, has, wants) +
                                                                cost_of_change(products, a, wants, has));
            }
    }
    return layer_table_check(table, "Alpa's products", err);
}
