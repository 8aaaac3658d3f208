/* Planners by layers: beside brute force on drawn tables, the numbers of their papers and codes, placements, cuts of
 * layers, and how much thinned lists lose.
 * tier: check
 */
#include "emulated_devices/schemes/pipeline/timing.h"
#include "emulated_devices/search/layers/chain.h"
#include "emulated_devices/search/layers/holmes.h"
#include "emulated_devices/search/layers/pipette.h"
#include "emulated_devices/search/layers/rec_core.h"
#include "emulated_devices/search/layers/released.h"
#include "emulated_devices/verify/cases/planned.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/tier.h"

static struct error err;

/* ---- a table by hand --------------------------------------------------------------------------------------------- */

enum { MOST = 16 };

static struct layer_table hand_table(int devices, int micros, int layers, int strategies)
{
    struct layer_table t = { .devices = devices, .micros = micros, .layers = layers, .kinds = layers,
                             .strategies = strategies, .layouts = strategies };
    t.kind = calloc((size_t)layers, sizeof *t.kind), t.strategy = calloc((size_t)strategies, sizeof *t.strategy);
    t.cost = calloc((size_t)(layers * strategies), sizeof *t.cost);
    t.edge = calloc((size_t)(strategies * strategies), sizeof *t.edge);
    for (int l = 0; l < layers; l++) t.kind[l] = l;
    for (int s = 0; s < strategies; s++) t.strategy[s].devices = devices, t.strategy[s].layout = s;
    return t;
}

static void put(struct layer_table *t, int layer, int strategy, picoseconds time, uint64_t memory)
{
    t->cost[layer * t->strategies + strategy] = (struct layer_cost){ .there = true, .time = time, .computing = time,
                                                                     .state = memory };
}

static void put_edges(struct layer_table *t, picoseconds time)
{
    for (int i = 0; i < t->layouts * t->layouts; i++) t->edge[i] = i / t->layouts == i % t->layouts ? 0 : time;
    assert_int_equal(layer_table_check(t, "by hand", &err), OK);
}

static struct layer_search solve(const struct layer_table *t, const char *name, uint64_t memory)
{
    const struct planner *p;
    struct layer_search s = { .table = t, .memory = memory, .seed = 1 };
    assert_int_equal(planner_find(&p, name, &err), OK);
    if (p->solve(&s, &err)) fail_msg("%s: %s", name, err.text);
    return s;
}

/* Four layers on four devices, eight microbatches.  One copy of a layer takes 10: four stages, 8 x 10 without a drain,
 * and 4 x 10 + 7 x 10 = 110 with one.  Two copies take 6: two stages of 12, 8 x 12 = 96 without, 24 + 7 x 12 = 108
 * with.  So 2BW takes the deep pipeline, which 1F1B would not, unless its 10 bytes of a stage do not fit, but 8 do. */
static void test_two_versions_of_weights(void **state)
{
    static const struct { uint64_t memory; picoseconds predicted, time; int stages; } wants[] = {
        { 0, 80, 110, 4 }, { 10, 80, 110, 4 }, { 9, 96, 108, 2 }, { 7, 0, 0, 0 },
    };
    (void)state;
    for (int layers = 4; layers <= 5; layers++) {
        struct layer_table t = hand_table(4, 8, layers, 2);
        t.strategy[0].devices = 1, t.strategy[1].devices = 2;
        for (int l = 0; l < layers; l++) put(&t, l, 0, 10, 10), put(&t, l, 1, 6, 4);
        put_edges(&t, 0);
        for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
            struct layer_search s = solve(&t, "pipedream-2bw", wants[i].memory);
            /* No stages of five layers are even. */
            assert_int_equal(s.found, layers == 4 && wants[i].stages > 0);
            if (!s.found) continue;
            if (s.predicted != wants[i].predicted || s.verdict.time != wants[i].time
                || s.best.stages != wants[i].stages)
                fail_msg("memory %d: %d stages, %lld ps of the planner's own, %lld by the table", (int)wants[i].memory,
                         s.best.stages, (long long)s.predicted, (long long)s.verdict.time);
        }
        layer_table_free(&t);
    }
}

/* ---- beside brute force ------------------------------------------------------------------------------------------ */

/* Every planner keeps its promise on every table; the gaps of heuristics are in `orrery verify planners`. */
static void test_brute_force(void **state)
{
    static struct planned_count count;
    static const int tables_of[] = { 100, PLANNED_TABLES, 10 * PLANNED_TABLES };
    const int tables = tables_of[tier_now()];
    (void)state;
    for (int draw = 0; draw < tables; draw++)
        if (planned_hold(&count, draw, &err)) fail_msg("%s", err.text);
    assert_int_equal(count.tables, tables);
    assert_true(count.infeasible > tables / 20 && count.infeasible < tables / 4);
    int exact = 0;
    for (int i = 0; i < count.rows; i++) exact += count.row[i].held == tables;
    assert_true(exact >= 4 && count.rows > exact);      /* and some promise nothing */
}

struct graph_drawing { uint64_t seed, next; };

static int draw_of(struct graph_drawing *drawing, int n)
{
    return (int)(random_uniform(drawing->seed, 97, drawing->next++) * n);
}

/* Graphs of operators: the frontier is that of all plans. */
static void test_graphs(void **state)
{
    const int graphs = tier_now() == TIER_VERIFY ? 400 : 60;
    (void)state;
    for (int g = 0; g < graphs; g++) {
        struct graph_drawing d = { (uint64_t)g, 0 };
        const int layers = 4 + draw_of(&d, 3), K = 2 + draw_of(&d, 2);
        struct layer_table t = hand_table(4, 1, layers, K);
        struct layer_link link[MOST];
        for (int l = 0; l < layers; l++)
            for (int s = 0; s < K; s++) {
                const int time = 1 + draw_of(&d, 30);
                put(&t, l, s, time, 1 + (uint64_t)draw_of(&d, 30));
            }
        /* Each reads one before it; some read a second one. */
        for (int l = 1; l < layers; l++) {
            link[t.links++] = (struct layer_link){ draw_of(&d, l), l };
            if (draw_of(&d, 2)) link[t.links++] = (struct layer_link){ draw_of(&d, l), l };
        }
        t.link = link;
        put_edges(&t, 1 + draw_of(&d, 8));
        struct layer_search s = solve(&t, "tensoropt", 0), all = solve(&t, "every-layer", 0);
        assert_true(s.found && all.found && s.points > 0);
        if (s.verdict.time != all.verdict.time)
            fail_msg("graph %d: %lld ps, all plans %lld", g, (long long)s.verdict.time, (long long)all.verdict.time);
        for (int p = 0; p < s.points; p++) {            /* every point is the best plan with as much memory */
            all = solve(&t, "every-layer", s.point[p].memory);
            if (!all.found || all.verdict.time != s.point[p].time)
                fail_msg("graph %d: a point of %lld ps with %llu bytes; all plans have %lld", g,
                         (long long)s.point[p].time, (unsigned long long)s.point[p].memory,
                         (long long)all.verdict.time);
        }
        layer_search_free(&s);
        t.link = NULL, layer_table_free(&t);
    }
}

/* ---- published numbers ------------------------------------------------------------------------------------------- */

/* Galvatron's code: four layers, memory 4 or 2, time 10 or 14, an edge of 1. */
static void test_galvatron(void **state)
{
    static const struct { uint64_t memory; picoseconds time; } expected[] = { { 16, 40 }, { 14, 45 }, { 12, 49 },
                                                                              { 10, 53 }, { 8, 56 }, { 7, 0 } };
    struct layer_table t = hand_table(1, 1, 4, 2);
    (void)state;
    for (int l = 0; l < 4; l++) put(&t, l, 0, 10, 4), put(&t, l, 1, 14, 2);
    put_edges(&t, 1);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct layer_search s = solve(&t, "galvatron", expected[i].memory);
        if (s.found != (expected[i].time > 0) || (s.found && s.verdict.time != expected[i].time))
            fail_msg("with %llu bytes Galvatron takes %lld ps; its code %lld", (unsigned long long)expected[i].memory,
                     (long long)s.verdict.time, (long long)expected[i].time);
    }
    layer_table_free(&t);
}

/* The code's update in place reads what it has just written where a layer has no memory: 3 for 2. */
static void test_galvatron_without_memory(void **state)
{
    struct layer_table t = hand_table(1, 1, 2, 2);
    (void)state;
    put(&t, 0, 0, 1, 0), put(&t, 0, 1, 2, 0), put(&t, 1, 0, 2, 0), put(&t, 1, 1, 1, 0);
    put_edges(&t, 0);
    assert_int_equal(solve(&t, "galvatron", 0).verdict.time, 2);
    assert_int_equal(solve(&t, "galvatron", 2).verdict.time, 2);
    assert_false(solve(&t, "galvatron", 1).found);      /* a unit for each layer */
    layer_table_free(&t);
}

/* Alpa's recurrence: layers of 4, 2, 2 and 4 on 1, 2 or 4 devices, of which n are n / (1 + 0.2 (n - 1)) times as fast.
 * Times are in tenths, and in units so small that the code's steps of 1e-6 would skip all of them. */
static void test_alpa(void **state)
{
    static const struct { int micros, stages; picoseconds time; } expected[] = { { 1, 1, 48 }, { 4, 2, 180 },
                                                                                 { 16, 2, 612 } };
    static const int layer[] = { 40, 20, 20, 40 }, permille[] = { 1000, 600, 400 };
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct layer_table t = hand_table(4, expected[i].micros, 4, 3);
        for (int s = 0; s < 3; s++) t.strategy[s].devices = 1 << s;
        for (int l = 0; l < 4; l++)
            for (int s = 0; s < 3; s++) put(&t, l, s, layer[l] * permille[s] / 1000, 1);
        put_edges(&t, 0);
        const struct layer_search s = solve(&t, "alpa", 0);
        if (s.verdict.time != expected[i].time || s.best.stages != expected[i].stages)
            fail_msg("with %d microbatches Alpa takes %lld tenths in %d stages; its code %lld in %d",
                     expected[i].micros, (long long)s.verdict.time, s.best.stages, (long long)expected[i].time,
                     expected[i].stages);
        if (s.best.stages == 2) assert_int_equal(s.best.first[1], 2);
        layer_table_free(&t);
    }
}

static void hold(const char *what, double ours, double theirs, double relative)
{
    if (!(fabs(ours - theirs) <= relative * fabs(theirs)))
        fail_msg("%s: %.9g; the release's is %.9g", what, ours, theirs);
}

/* Galvatron's own times: pipelines, of which the last has a slow stage that is missed, and messages beside a pass. */
static void test_galvatron_estimates(void **state)
{
    static const struct { double micro[4], last[4], time; } pipeline[] = {
        { { 3, 3, 3, 3 }, { 3, 3, 3, 3 }, 33 }, { { 4, 3, 3, 3 }, { 5, 3, 3, 3 }, 35 },
        { { 3, 3, 3, 5 }, { 3, 3, 3, 5 }, 49 }, { { 3, 5, 3, 3 }, { 3, 5, 3, 3 }, 35 },
    };
    static const struct { double message, time; } beside[] = { { 100, 2.3 }, { 200, 2.6 }, { 300, 3.6 } };
    (void)state;
    for (size_t i = 0; i < sizeof pipeline / sizeof *pipeline; i++)
        hold("a pipeline of Galvatron", galvatron_pipeline(4, 8, pipeline[i].micro, pipeline[i].last),
             pipeline[i].time, 1e-12);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        hold("a message of Galvatron", galvatron_overlap(beside[i].message, 0.01, 2, 1.3), beside[i].time, 1e-12);
}

/* Alpa's collectives of 1 KiB on 4 devices, and its program for products on meshes of one and two axes. */
static void test_alpa_products(void **state)
{
    static const double collective[] = { 769.1, 1537.01, 769.001, 289.001 };
    static const struct { struct alpa_products of; int weights, streams; } expected[] = {
        { { 2, 1024, 128, { 4, 1 }, 1, { 1, 1 } }, 2, 0 }, { { 2, 1024, 128, { 1, 4 }, 1, { 1, 1 } }, 2, 0 },
        { { 2, 128, 1024, { 4, 1 }, 1, { 1, 1 } }, 0, 1 }, { { 12, 1024, 128, { 4, 1 }, 1, { 1, 1 } }, 12, 0 },
        { { 12, 128, 1024, { 1, 4 }, 1, { 1, 1 } }, 0, 11 },
        { { 2, 1024, 128, { 4, 8 }, 1, { 1, 0.01 } }, 2, 1 }, { { 2, 1024, 128, { 8, 4 }, 1, { 1, 0.01 } }, 2, 1 },
        { { 2, 1024, 128, { 3, 4 }, 1, { 1, 0.01 } }, 2, 1 }, { { 12, 1024, 128, { 4, 8 }, 1, { 1, 0.01 } }, 12, 11 },
    };
    (void)state;
    for (int i = 0; i < 4; i++)
        hold("a collective of Alpa", alpa_collective_cost((enum alpa_collective)i, 4, 1, 1, 1024), collective[i],
             1e-12);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct alpa_products *const p = &expected[i].of;
        /* The axis that splits the batch sums weights, the one beside it streams; on one axis either. */
        const int x = p->axis[0] > 1 ? 0 : 1, y = p->axis[1] > 1 ? 1 : 0;
        const double weight = 4. * (double)(p->hidden * p->hidden) / (x != y ? p->axis[y] : 1),
                     stream = 4. * (double)(p->batch * p->hidden) / (x != y ? p->axis[x] : 1);
        const double theirs =
            expected[i].weights * alpa_collective_cost(ALPA_ALL_REDUCE, p->axis[x], 1, p->beta[x], weight) +
            expected[i].streams * alpa_collective_cost(ALPA_ALL_REDUCE, p->axis[y], 1, p->beta[y], stream);
        struct layer_table t;
        if (alpa_products_table(&t, p, &err)) fail_msg("%s", err.text);
        const struct layer_search alpa = solve(&t, "alpa", 0), integer = solve(&t, "integer", 0);
        hold("products by Alpa's program", 1e-3 * (double)integer.verdict.time, theirs, 1e-3);
        assert_true(alpa.verdict.time == integer.verdict.time);
        layer_table_free(&t);
    }
}

/* MindSpore's cost of a product on 8 devices, by the parts of rows, inner dimension and columns. */
static void test_mindspore_costs(void **state)
{
    static const struct { int parts[3]; double cost; } expected[] = {
        { { 8, 1, 1 }, 2411724.8 }, { { 4, 1, 2 }, 1599078.4 }, { { 2, 1, 4 }, 1585971.2 }, { { 1, 1, 8 }, 2228224 },
        { { 1, 2, 4 }, 7864320 }, { { 2, 2, 2 }, 7746355.2 }, { { 1, 8, 1 }, 27131904 },
    };
    const struct layer_product product = { 512, 1024, 256 };
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        hold("a product of MindSpore", mindspore_product_cost(&product, expected[i].parts, 8, 50, 4),
             expected[i].cost, 1e-12);
    hold("rows to columns, all-to-all", mindspore_all_to_all_cost(4 << 20, 4), 4 << 20, 0);
    hold("rows to columns, all-gather", mindspore_gather_cost(4 << 20, 4), 2.5 * (1 << 20), 0);
}

/* FlexFlow's walk between two plans is in the slower one exp(-alpha difference) as often. */
static void test_flexflow_balance(void **state)
{
    enum { STEPS = 400000 };
    const double difference = 0.01;                     /* of the first plan's time */
    int64_t visits[2] = { 0, 0 };
    int at = 0;
    (void)state;
    for (int i = 0; i < STEPS; i++) {
        const double step = at == 0 ? difference : -difference;
        if (flexflow_accepts(step, random_uniform(5, 62, (uint64_t)i))) at = 1 - at;
        visits[at]++;
    }
    hold("visits of the slower plan", (double)visits[1] / (double)visits[0], exp(-FLEXFLOW_ALPHA * difference), 0.02);
}

/* TensorOpt's tracking: three operators, an edge of 1 where indices differ. */
static void test_tensoropt(void **state)
{
    static const struct layer_point expected[] = { { 12, 23 }, { 15, 19 }, { 17, 18 }, { 18, 14 }, { 19, 11 },
                                                   { 23, 9 } };
    struct layer_table t = hand_table(1, 1, 3, 3);
    (void)state;
    put(&t, 0, 0, 4, 8), put(&t, 0, 1, 6, 5), put(&t, 0, 2, 9, 3);
    put(&t, 1, 0, 5, 9), put(&t, 1, 1, 8, 4), put(&t, 2, 0, 3, 6), put(&t, 2, 1, 5, 2);
    put_edges(&t, 1);
    struct layer_search s = solve(&t, "tensoropt", 0);
    assert_int_equal(s.points, sizeof expected / sizeof *expected);
    for (int i = 0; i < s.points; i++)
        if (s.point[i].time != expected[i].time || s.point[i].memory != expected[i].memory)
            fail_msg("point %d of the frontier is %lld ps with %llu bytes; expected %lld with %llu", i,
                     (long long)s.point[i].time, (unsigned long long)s.point[i].memory, (long long)expected[i].time,
                     (unsigned long long)expected[i].memory);
    layer_search_free(&s);
    layer_table_free(&t);
}

/* Lists without memory as an axis: of two strategies that compute alike the lean one is dropped. */
static void test_mindspore_drops_what_fits(void **state)
{
    struct layer_table t = hand_table(1, 1, 1, 2);
    (void)state;
    put(&t, 0, 0, 10, 8), put(&t, 0, 1, 11, 2);
    t.strategy[1].layout = 0, t.layouts = 1;            /* one list */
    put_edges(&t, 0);
    assert_true(solve(&t, "mindspore", 8).found);
    assert_false(solve(&t, "mindspore", 4).found);
    assert_true(solve(&t, "alpa", 4).found);
    layer_table_free(&t);
}

/* MindSpore's double recursive cuts of a product alone, on 8 devices. */
static void test_rec_core(void **state)
{
    static const struct { struct layer_product of; const char *cuts; } expected[] = {
        { { 512, 1024, 256 }, "IIK" }, { { 64, 1024, 4096 }, "JJJ" },
        { { 4096, 1024, 1024 }, "III" }, { { 64, 65536, 64 }, "KKK" },
        { { 6, 5, 7 }, "I--" },                         /* nothing that is odd is halved */
    };
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        enum cut_of_product cut[LAYER_PRODUCTS_MOST][REC_ROUNDS];
        char cuts[4] = "";
        rec_core_cut(&expected[i].of, 1, 3, cut);
        for (int r = 0; r < 3; r++) cuts[r] = "IJK-"[cut[0][r]];
        if (strcmp(cuts, expected[i].cuts) != 0)
            fail_msg("[%lld, %lld] x [%lld, %lld] is cut %s, by the release %s", (long long)expected[i].of.rows,
                     (long long)expected[i].of.inner, (long long)expected[i].of.inner,
                     (long long)expected[i].of.columns, cuts, expected[i].cuts);
    }
}

/* Neighbours whose cuts do not go together pay: alone the first product halves its rows, but the second one, which is
 * heavier, halves columns and so reads all of the first one's result. */
static void test_rec_core_neighbours(void **state)
{
    static const struct layer_product of[] = { { 512, 1024, 1024 }, { 512, 1024, 4096 } };
    enum cut_of_product cut[LAYER_PRODUCTS_MOST][REC_ROUNDS], alone[LAYER_PRODUCTS_MOST][REC_ROUNDS];
    (void)state;
    rec_core_cut(of, 1, 1, alone);
    rec_core_cut(of, 2, 1, cut);
    assert_int_equal(alone[0][0], CUTS_ROWS);
    assert_int_equal(cut[1][0], CUTS_COLUMNS);
    assert_int_equal(cut[0][0], CUTS_INNER);
}

/* The copies and parts of the cuts are the strategy; without that mesh the nearest. */
static void test_rec_core_plan(void **state)
{
    struct layer_table t = hand_table(8, 1, 2, 3);
    (void)state;
    for (int s = 0; s < 3; s++) {
        t.strategy[s].axis[DP] = 8 >> s, t.strategy[s].axis[TP] = 1 << s;
        for (int l = 0; l < 2; l++) put(&t, l, s, 10 - s, 4);
    }
    put_edges(&t, 1);
    t.products = 1, t.product[0] = (struct layer_product){ 512, 1024, 256 };    /* I, I, K: 4 copies of 2 parts */
    struct layer_search s = solve(&t, "rec-core", 0);
    assert_true(s.found && s.best.strategy[0] == 1);
    assert_string_equal(s.note, "its cuts are dp 4 tp 2");
    t.product[0] = (struct layer_product){ 64, 65536, 64 };                     /* no copies at all */
    s = solve(&t, "rec-core", 0);
    assert_int_equal(s.best.strategy[0], 2);
    assert_string_equal(s.note, "its cuts are dp 1 tp 8, which the table lacks: the nearest mesh");
    layer_table_free(&t);
}

/* An integer program by GLPK, if it is here, by all plans, and by neither: what is known is said. */
static void test_integer(void **state)
{
    const int tables = tier_now() == TIER_VERIFY ? PLANNED_TABLES : 60;
    const struct planner *p;
    int proven = 0, looked = 0;
    (void)state;
    assert_int_equal(planner_find(&p, "integer", &err), OK);
    for (int draw = 0; draw < tables; draw++) {
        struct layer_table t;
        uint64_t memory;
        assert_int_equal(planned_draw(&t, &memory, draw, &err), OK);
        struct layer_search with = { .table = &t, .memory = memory },
            without = { .table = &t, .memory = memory, .own_code = true };
        assert_int_equal(p->solve(&with, &err), OK);
        assert_int_equal(p->solve(&without, &err), OK);
        if (with.found != without.found || (with.found && with.verdict.time != without.verdict.time))
            fail_msg("table %d: with a library %lld ps, all plans %lld", draw, (long long)with.verdict.time,
                     (long long)without.verdict.time);
        assert_false(with.unproven || without.unproven);
        proven += strncmp(with.note, "GLPK has proven it", 18) == 0;
        looked += strncmp(without.note, "all ", 4) == 0;
        layer_table_free(&t);
    }
    assert_true(looked > tables / 4 && (proven == 0 || proven > tables / 8));
    printf("%d of %d tables: %s\n", proven, tables, proven ? "by GLPK" : "GLPK is not here");
}

/* Too many plans to look at, without the library: a heuristic's plan is said to be so; the best of a chain is found. */
static void test_integer_heuristic(void **state)
{
    enum { LAYERS = 12, K = 6 };
    struct layer_table t = hand_table(4, 1, LAYERS, K);
    const struct planner *p;
    (void)state;
    assert_int_equal(planner_find(&p, "integer", &err), OK);
    for (int l = 0; l < LAYERS; l++)                    /* faster ones need more, so that none is beaten */
        for (int s = 0; s < K; s++) put(&t, l, s, 1000 + 500 * s + 7 * l % 11, 4000 - 400 * (uint64_t)s);
    for (int s = 0; s < K; s++) t.strategy[s].layout = s % 2;
    t.layouts = 2;
    put_edges(&t, 100);
    struct layer_search s = { .table = &t, .memory = 36000, .own_code = true }, best = solve(&t, "alpa", 36000);
    assert_int_equal(p->solve(&s, &err), OK);
    assert_true(s.found && s.unproven && strstr(s.note, "a heuristic: 2.2e+09 plans are too many to look at"));
    assert_true(s.verdict.memory <= 36000 && s.verdict.time >= best.verdict.time);
    struct layer_search chain = { .table = &t, .own_code = true };      /* without a limit the chain's best is found */
    assert_int_equal(p->solve(&chain, &err), OK);
    assert_true(chain.found && !chain.unproven && strstr(chain.note, "of a chain, which fits"));
    assert_true(chain.verdict.time == solve(&t, "alpa", 0).verdict.time);
    const struct layer_search library = solve(&t, "integer", 36000);
    assert_true(library.found && (library.unproven || library.verdict.time == best.verdict.time));
    layer_table_free(&t);
}

/* One stage of three layers: the greedy knapsack takes what loses least time for a byte, and so misses the best. */
static void test_piper(void **state)
{
    struct layer_table t = hand_table(1, 1, 2, 2);
    (void)state;
    put(&t, 0, 0, 10, 10), put(&t, 0, 1, 13, 4);        /* 3 for 6 bytes */
    put(&t, 1, 0, 10, 10), put(&t, 1, 1, 14, 1);        /* 4 for 9 bytes */
    t.strategy[1].layout = 0, t.layouts = 1;            /* one mesh */
    put_edges(&t, 0);
    assert_int_equal(solve(&t, "piper", 20).verdict.time, 20);
    assert_int_equal(solve(&t, "piper", 14).verdict.time, 24);      /* the best is 23, with the first layer lean */
    assert_int_equal(solve(&t, "alpa", 14).verdict.time, 23);
    assert_int_equal(solve(&t, "piper", 5).verdict.time, 27);
    assert_false(solve(&t, "piper", 4).found);
    layer_table_free(&t);
}

/* Holmes's shipped cuts are floor(share x layers); with alpha = 1.05 the faster stage has a layer more, which is the
 * least longest stage. */
static void test_holmes(void **state)
{
    static const struct { int layers; double alpha; int fast; } expected[] = { { 30, 1, 16 }, { 48, 1, 26 },
                                                                               { 30, 1.05, 17 }, { 48, 1.05, 27 } };
    static const int speed[] = { 197, 160 };
    int first[5];
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const int L = expected[i].layers;
        assert_int_equal(holmes_split(L, 2, speed, expected[i].alpha, first), 1);
        assert_int_equal(first[1], expected[i].fast);
        if (expected[i].alpha == 1) continue;
        for (int n = 1; n < L; n++) {                   /* no cut has a shorter longest stage */
            const double ours = fmax(first[1] / 197., (L - first[1]) / 160.);
            assert_true(fmax(n / 197., (L - n) / 160.) >= ours - 1e-12);
        }
    }
    assert_int_equal(holmes_split(7, 4, (const int[]){ 50, 100, 50, 100 }, 1.05, first), 1);
    assert_int_equal(first[4], 7);
    assert_int_equal(holmes_split(3, 4, (const int[]){ 50, 100, 50, 100 }, 1.05, first), 0);
}

/* Pipette's latency and AMP's beside 1F1B on this program's clock of schedules: the errors of a simulation of the
 * paper's point, in per cent. */
static void test_pipette_latency(void **state)
{
    static const struct { int p, m, hop; double pipette, amp; } expected[] = {
        { 4, 32, 100, -0.4, -4.2 }, { 8, 64, 100, -0.5, -4.9 },
        { 4, 32, 500, -1.5, -17.6 }, { 8, 64, 500, -2.2, -20.0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const int p = expected[i].p, m = expected[i].m;
        const double pass = 3000, hops = 2. * (p - 1) * expected[i].hop;
        struct schedule schedule;
        struct timing timing;
        const struct even_times times = { 1000, 1000, 1000, expected[i].hop, 0 };
        const struct schedule_request request = { .devices = p, .micros = m, .chunks = 1 };
        assert_int_equal(schedule_make(&schedule, "1f1b", &request, &err), OK);
        assert_int_equal(schedule_time_evenly(&timing, &schedule, times, &err), OK);
        const double pipette = 100 * (pipette_latency(p, m, pass, hops, 0) / (double)timing.makespan - 1),
                     amp = 100 * (amp_latency(p, m, pass, hops, 0) / (double)timing.makespan - 1);
        if (fabs(pipette - expected[i].pipette) > 0.06 || fabs(amp - expected[i].amp) > 0.06)
            fail_msg("p %d m %d hop %d: Pipette is %.2f %% from 1F1B, AMP %.2f %%; expected %.1f and %.1f", p, m,
                     expected[i].hop, pipette, amp, expected[i].pipette, expected[i].amp);
        timing_free(&timing), schedule_free(&schedule);
    }
}

/* ---- placements -------------------------------------------------------------------------------------------------- */

/* The least time of all orders of the units from `at` on. */
static double least_of_all(const struct placing *placing, int place[], int at)
{
    const int units = placing_units(placing);
    double least = INFINITY;
    if (at == units) return placing_time(placing, place);
    for (int i = at; i < units; i++) {
        int swap = place[at];
        place[at] = place[i], place[i] = swap;
        least = fmin(least, least_of_all(placing, place, at + 1));
        swap = place[at], place[at] = place[i], place[i] = swap;
    }
    return least;
}

/* Annealing on drawn matrices of rates finds the best of all placements, and is no slower than the order. */
static void test_placements(void **state)
{
    enum { UNITS = 8 };
    const int units = tier_now() == TIER_VERIFY ? UNITS : 7, matrices = 20;
    double rate[UNITS * UNITS];
    (void)state;
    for (int n = 0; n < matrices; n++) {
        int place[UNITS], all[UNITS];
        struct layer_table t = { .devices = units, .bandwidth = rate };
        /* Seven stages of a copy; of eight units also four stages of two, and two of four. */
        const int stages = units == 7 ? 7 : 8 >> n % 3;
        const struct placing p = { &t, stages, units / stages, 1, 1000, 5000, 4 };
        for (int i = 0; i < units * units; i++) rate[i] = 1 + 9 * random_uniform((uint64_t)n, 101, (uint64_t)i);
        for (int i = 0; i < units; i++) place[i] = all[i] = i;
        const double order = placing_time(&p, place), found = placing_anneal(&p, (uint64_t)n, place),
                     least = least_of_all(&p, all, 0);
        assert_true(found <= order && fabs(placing_time(&p, place) - found) < 1e-12 * found);
        if (found > least * (1 + 1e-12))
            fail_msg("matrix %d: annealing ends at %.6f s, the best of all placements takes %.6f s", n, found, least);
    }
}

/* ---- thinning ---------------------------------------------------------------------------------------------------- */

/* Lists of 48 points lose less than 1 % of the time of all points. */
static void test_thinning(void **state)
{
    enum { LAYERS = 12, K = 6, FEW = 48 };
    struct layer_table t = hand_table(4, 1, LAYERS, K);
    struct chain all = { .table = &t, .length = LAYERS, .devices = 4, .flight = 1, .rule = BY_TIME_AND_MEMORY,
                         .most = 1 << 20 };
    (void)state;
    for (int l = 0; l < LAYERS; l++)
        for (int s = 0; s < K; s++)
            put(&t, l, s, 1000 + (int)(random_uniform(1, 103, (uint64_t)(l * K + s)) * 9000),
                1000 + (uint64_t)(random_uniform(2, 103, (uint64_t)(l * K + s)) * 9000));
    for (int s = 0; s < K; s++) t.strategy[s].layout = s % 2;
    t.layouts = 2;
    put_edges(&t, 300);
    for (uint64_t cap = 40000; cap <= 90000; cap += 10000) {
        all.cap = cap;
        struct chain few = all;
        few.most = FEW;
        assert_int_equal(chain_open(&all, &err), OK);
        assert_int_equal(chain_open(&few, &err), OK);
        const int a = chain_fastest(&all, LAYERS), b = chain_fastest(&few, LAYERS);
        assert_true((a < 0) == (b < 0));
        if (a >= 0 && (double)few.of[b].time > 1.01 * (double)all.of[a].time)
            fail_msg("with %llu bytes 48 points take %lld ps, all points %lld", (unsigned long long)cap,
                     (long long)few.of[b].time, (long long)all.of[a].time);
        chain_close(&all), chain_close(&few);
    }
    layer_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_versions_of_weights), cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_galvatron),
        cmocka_unit_test(test_galvatron_without_memory),
        cmocka_unit_test(test_alpa), cmocka_unit_test(test_alpa_products),
        cmocka_unit_test(test_galvatron_estimates), cmocka_unit_test(test_mindspore_costs),
        cmocka_unit_test(test_flexflow_balance),
        cmocka_unit_test(test_tensoropt),
        cmocka_unit_test(test_rec_core), cmocka_unit_test(test_rec_core_neighbours),
        cmocka_unit_test(test_rec_core_plan), cmocka_unit_test(test_integer), cmocka_unit_test(test_integer_heuristic),
        cmocka_unit_test(test_piper), cmocka_unit_test(test_mindspore_drops_what_fits),
        cmocka_unit_test(test_holmes),
        cmocka_unit_test(test_pipette_latency),
        cmocka_unit_test(test_placements),
        cmocka_unit_test(test_thinning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
