/* rec_core.c -- MindSpore's double recursive search: the devices are halved again and again, and each time every
 * product of a layer halves one of its dimensions.
 *
 * The larger products choose first.  Of a product [i, k] x [k, j] with the sizes so far, halving rows costs a
 * quarter of j k / 2, halving columns i k / 2, and halving the inner dimension, after which results are added, i j / 2:
 * elements that travel.  To that comes a redistribution for each neighbour that has chosen in this round and whose cut
 * leaves the tensor between both otherwise: 16 times its elements.  Only even dimensions can be halved; the first
 * least cost wins.
 *
 * The cuts become a strategy: copies for the halvings of rows that all products have, and parts of the layer for the
 * rest.  Of the strategies with this mesh the table's fastest that fits is taken; if none is there, the mesh with as
 * many copies more or fewer that is nearest.  Neither memory nor rates of links enter the cuts.  The release takes
 * log2 of the devices and forgets the remainder; here a number that is no power of two is refused.
 *
 * Apart from mindspore.c: no lists of costs, but log2 of the devices rounds of greedy cuts.
 *
 * Source   MindSpore, auto_parallel/rec_core/{rec_partition,rec_cost}.cc; documentation "double recursive"
 */
#include "emulated_devices/search/layers/rec_core.h"
#include "emulated_devices/search/layers/layers.h"
#include "emulated_devices/search/planner.h"
#include <stdio.h>
#include <stdlib.h>

/* Elements that travel for nothing else than another cut: the release's coefficient. */
static const double REDISTRIBUTION = 16;

/* The dimension of the tensor between two products that a cut of the first halves, or of the second: its rows, its
 * columns, or neither. */
enum halved { HALVES_ROWS, HALVES_COLUMNS, HALVES_NEITHER };

static enum halved halves_result(enum cut_of_product cut)
{
    return cut == CUTS_ROWS ? HALVES_ROWS : cut == CUTS_COLUMNS ? HALVES_COLUMNS : HALVES_NEITHER;
}

static enum halved halves_input(enum cut_of_product cut)
{
    return cut == CUTS_ROWS ? HALVES_ROWS : cut == CUTS_INNER ? HALVES_COLUMNS : HALVES_NEITHER;
}

/* Elements that a cut sends, beside neighbours. */
static double cost_of_cut(const struct layer_product *now, enum cut_of_product cut)
{
    const double i = (double)now->rows, k = (double)now->inner, j = (double)now->columns;
    return cut == CUTS_ROWS ? 0.25 * j * k / 2 : cut == CUTS_COLUMNS ? i * k / 2 : i * j / 2;
}

static int64_t *size_of_cut(struct layer_product *now, enum cut_of_product cut)
{
    return cut == CUTS_ROWS ? &now->rows : cut == CUTS_COLUMNS ? &now->columns : &now->inner;
}

/* One round: which products have chosen, and what. */
struct round {
    struct layer_product *now;          /* [count] sizes so far */
    int count;
    bool done[LAYER_PRODUCTS_MOST];
    enum cut_of_product cut[LAYER_PRODUCTS_MOST];
};

static double cost_beside(const struct round *round, int product, enum cut_of_product cut)
{
    const struct layer_product *const now = &round->now[product];
    double cost = 0;
    if (product > 0 && round->done[product - 1] && halves_result(round->cut[product - 1]) != halves_input(cut))
        cost += REDISTRIBUTION * (double)now->rows * (double)now->inner;
    if (product + 1 < round->count && round->done[product + 1]
        && halves_input(round->cut[product + 1]) != halves_result(cut))
        cost += REDISTRIBUTION * (double)now->rows * (double)now->columns;
    return cost;
}

static void choose_cut(struct round *round, int product)
{
    double least = 0;
    round->cut[product] = CUTS_NOTHING, round->done[product] = true;
    for (enum cut_of_product c = CUTS_ROWS; c < CUTS_NOTHING; c++) {
        const double cost = cost_of_cut(&round->now[product], c) + cost_beside(round, product, c);
        if (*size_of_cut(&round->now[product], c) % 2 != 0) continue;
        if (round->cut[product] == CUTS_NOTHING || cost < least) round->cut[product] = c, least = cost;
    }
}

/* The heaviest product that has not chosen; of equal ones the first. */
static int heaviest(const struct round *round)
{
    int most = -1;
    double weight = 0;
    for (int i = 0; i < round->count; i++) {
        const struct layer_product *const p = &round->now[i];
        const double own = (double)p->rows * (double)p->inner * (double)p->columns;
        if (!round->done[i] && (most < 0 || own > weight)) most = i, weight = own;
    }
    return most;
}

void rec_core_cut(const struct layer_product *of, int count, int rounds,
                  enum cut_of_product cut[LAYER_PRODUCTS_MOST][REC_ROUNDS])
{
    struct layer_product now[LAYER_PRODUCTS_MOST];
    for (int i = 0; i < count; i++) now[i] = of[i];
    for (int r = 0; r < rounds; r++) {
        struct round round = { .now = now, .count = count };
        for (int n = 0; n < count; n++) choose_cut(&round, heaviest(&round));
        for (int i = 0; i < count; i++) {
            cut[i][r] = round.cut[i];
            if (round.cut[i] != CUTS_NOTHING) *size_of_cut(&now[i], round.cut[i]) /= 2;
        }
    }
}

/* ---- the planner ------------------------------------------------------------------------------------------------- */

/* Copies that the cuts of all products allow: the fewest halvings of rows. */
static int copies_of(const struct layer_table *table, int rounds)
{
    enum cut_of_product cut[LAYER_PRODUCTS_MOST][REC_ROUNDS];
    int fewest = rounds;
    rec_core_cut(table->product, table->products, rounds, cut);
    for (int i = 0; i < table->products; i++) {
        int rows = 0;
        for (int r = 0; r < rounds; r++) rows += cut[i][r] == CUTS_ROWS;
        fewest = rows < fewest ? rows : fewest;
    }
    return 1 << fewest;
}

static int distance_of(int a, int b)
{
    int n = 0;
    for (; a > b; a /= 2) n++;
    for (; b > a; b /= 2) n++;
    return n;
}

static enum error_code rec_refuse(const struct layer_table *table, int rounds, struct error *err)
{
    if (table->products == 0)
        return fail(err, ERR_PLAN, "--planner rec-core: the table does not say the products of a layer (key products)");
    if (table->link)
        return fail(err, ERR_PLAN, "--planner rec-core: the table is a graph; tensoropt and mindspore take graphs");
    if (1 << rounds != table->devices)
        return fail(err, ERR_PLAN, "--planner rec-core: devices are halved again and again; %d is no power of two up "
                    "to %d", table->devices, 1 << REC_ROUNDS);
    return OK;
}

static enum error_code rec_solve(struct layer_search *search, struct error *err)
{
    const struct layer_table *const table = search->table;
    int rounds = 0, nearest = REC_ROUNDS + 1;
    while (rounds < REC_ROUNDS && 1 << rounds < table->devices) rounds++;
    const enum error_code e = rec_refuse(table, rounds, err);
    if (e) return e;
    const int copies = copies_of(table, rounds);
    for (int s = 0; s < table->strategies; s++) {
        const struct strategy *const own = &table->strategy[s];
        if (own->devices == table->devices && own->axis[CP] <= 1 && distance_of(own->axis[DP], copies) < nearest)
            nearest = distance_of(own->axis[DP], copies);
    }
    for (int s = 0; s < table->strategies; s++) {
        const struct strategy *const own = &table->strategy[s];
        struct layer_plan plan = { .stages = 1 };
        if (own->devices != table->devices || own->axis[CP] > 1 || distance_of(own->axis[DP], copies) != nearest)
            continue;
        plan.first[1] = table->layers, plan.devices[0] = table->devices;
        for (int l = 0; l < table->layers; l++) plan.strategy[l] = s;
        layer_search_offer(search, &plan);
        search->looked++;
    }
    snprintf(search->note, sizeof search->note, "its cuts are dp %d tp %d%s", copies, table->devices / copies,
             nearest > 0 && nearest <= REC_ROUNDS ? ", which the table lacks: the nearest mesh" : "");
    return OK;
}

const struct planner planner_rec_core = {
    .name = "rec-core", .description = "halves the devices, and a dimension of each product, round by round",
    .source = "MindSpore's double recursive search, auto_parallel/rec_core",
    .promise = "nothing: it is a heuristic that knows neither memory nor links",
    .solve = rec_solve, .exact_of = LAYERS_NONE,
};
