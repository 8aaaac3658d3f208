/* Graphs of tables that are refused, and the search for the signatures that send least.  Both are local. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/model/link/link.h"
#include "emulated_devices/model/sbp/sbp_graph.h"
#include "emulated_devices/schemes/sbp/trial.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/numeric/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void graph_mlp(struct sbp_graph *g, int64_t B, int64_t S, int64_t D, int64_t F)
{
    const struct model_config c = { .S = S, .D = D, .H = 1, .K = 1, .A = D, .F = F, .L = 1, .V = 1 };
    assert_int_equal(sbp_graph_of(g, sbp_mlp, &c, B, S, false, NULL), OK);
}

/* ---- what is no graph -------------------------------------------------------------------------------------------- */

static void test_refused_tables(void **state)
{
    (void)state;
    struct model_config c = { .S = 5, .D = 8, .H = 4, .K = 2, .A = 2, .F = 6, .L = 1, .V = 11, .norm = NORM_RMS,
                              .positions = POSITIONS_ROTARY, .family = &family_mixtral, .mlp = MLP_MIXTURE,
                              .mixture = { .E = 4, .k = 2, .router.scale = 1 } };
    struct sbp_graph g;
    struct error err = { 0 };
    struct node table[LINK_NODES + 2] = { { .op = OP_END } };
    char name[LINK_NODES + 1][16];
    assert_int_equal(sbp_graph_of(&g, model_program(&c)->block, &c, 3, 5, false, &err), ERR_PLAN);
    assert_non_null(strstr(err.text, "router.logits: a mixture of experts has no signatures"));
    assert_int_equal(sbp_graph_of(&g, model_program(&c)->loss, &c, 3, 5, false, &err), ERR_PLAN);
    assert_string_equal(err.text, "logits: there is no operator with signatures for this node");

    /* a chain of products */
    c.family = &family_gpt2, c.mlp = MLP_GELU;
    for (int i = 0; i <= LINK_NODES; i++) {
        snprintf(name[i], sizeof name[i], "y%d", i);
        table[i] = (struct node){ .op = OP_MATRIX, .out = name[i], .in = { i ? name[i - 1] : "in" },
                                  .param = i % 2 ? DOWN_W : UP_W };
    }
    table[LINK_NODES + 1].op = OP_END;
    assert_int_equal(sbp_graph_of(&g, table, &c, 3, 5, false, &err), ERR_PLAN);
    char told[64];
    snprintf(told, sizeof told, "y%d: the table has more than %d nodes", LINK_NODES, LINK_NODES);
    assert_string_equal(err.text, told);
    table[20].op = OP_END;
    assert_int_equal(sbp_graph_of(&g, table, &c, 3, 5, false, &err), ERR_PLAN);
    assert_string_equal(err.text, "after dy10 the graph is full: it has room for 64 tensors and 48 operations");
    assert_true(g.tensors <= SBP_MOST_TENSORS && g.ops <= SBP_MOST_OPS);
    table[2].in[0] = "y0", table[3].op = OP_END;
    assert_int_equal(sbp_graph_of(&g, table, &c, 3, 5, false, &err), ERR_PLAN);
    assert_string_equal(err.text, "y1: no node reads it");
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

static int64_t cost(const struct sbp_graph *g, const struct sbp_mesh *m, int t, struct signature from,
                    struct signature to)
{
    const struct boxing b = boxing_plan(&g->tensor[t].shape, m, from, to);
    return m->cluster ? b.time : b.elements;
}

/* The least over all rules of all operations of a chain with everything pinned but what lies between. */
static int64_t brute_force(const struct sbp_graph *g, const struct sbp_mesh *m, int op, struct signature now)
{
    if (op == g->ops) return 0;
    struct rule rule[SBP_MOST_RULES];
    const struct sbp_op *o = &g->op[op];
    const int n = graph_rules(g, o, m, rule);
    int64_t best = INT64_MAX;
    for (int r = 0; r < n; r++) {
        int64_t here = (m->cluster ? sbp_op_time(g, o, m, &rule[r]) : 0) + cost(g, m, o->in[0], now, rule[r].in[0]);
        for (int i = 1; i < o->inputs; i++) here += cost(g, m, o->in[i], g->tensor[o->in[i]].pin, rule[r].in[i]);
        struct signature out = rule[r].out;
        if (g->tensor[o->out].pinned)
            here += cost(g, m, o->out, out, g->tensor[o->out].pin), out = g->tensor[o->out].pin;
        if (here >= best) continue;
        const int64_t rest = brute_force(g, m, op + 1, out);
        if (here + rest < best) best = here + rest;
    }
    return best;
}

static const struct cluster *links(const char *name)
{
    static struct cluster c[2];
    struct cluster *at = &c[strcmp(name, "textbook") == 0];
    assert_int_equal(cluster_find(at, name, NULL), OK);
    return at;
}

static struct signature some_signature(const struct shape *t, const struct sbp_mesh *m, uint64_t seed, uint64_t at)
{
    struct signature all[SBP_MOST_SIGNATURES];
    const int n = signature_all(t, m, all);
    for (uint64_t i = 0;; i++) {
        const struct signature s = all[(int)(random_uniform(seed, at, i) * n)];
        if (!signature_has(s, SBP_P)) return s;
    }
}

static void make_chain(struct sbp_graph *g, const struct sbp_mesh *m, int length, uint64_t seed)
{
    static const char *const names[] = { "t0", "t1", "t2", "t3", "t4", "t5", "t6", "w1", "w2", "w3", "w4", "w5", "w6" };
    struct error err;
    int64_t width = 8 + (int64_t)(random_uniform(seed, 0, 0) * 20);
    *g = (struct sbp_graph){ 0 };
    int at = graph_tensor(g, names[0], (struct shape){ 2, { 16, width }, 1 }, -1);
    for (int o = 0; o < length; o++) {
        const bool linear = random_uniform(seed, 1, (uint64_t)o) < 0.6;
        const int64_t next = linear ? 8 + (int64_t)(random_uniform(seed, 2, (uint64_t)o) * 20) : width;
        const int out = graph_tensor(g, names[o + 1], (struct shape){ 2, { 16, next }, 1 }, -1);
        if (linear) {
            const int w = graph_tensor(g, names[o + 7], (struct shape){ 2, { next, width }, 1 }, -1);
            graph_op(g, &sbp_linear, "nd,fd->nf", out, (const int[]){ at, w });
            assert_int_equal(graph_pin(g, m, names[o + 7],
                                       some_signature(&g->tensor[w].shape, m, seed, 10 + (uint64_t)o), &err),
                             OK);
        } else graph_op(g, &sbp_gelu, "nf->nf", out, (const int[]){ at });
        at = out, width = next;
    }
    assert_int_equal(graph_pin(g, m, "t0", some_signature(&g->tensor[0].shape, m, seed, 3), &err), OK);
    assert_int_equal(graph_pin(g, m, names[length], some_signature(&g->tensor[at].shape, m, seed, 4), &err), OK);
}

static void test_search_is_brute_force(void **state)
{
    (void)state;
    const struct sbp_mesh meshes[] = { { .axes = 1, .size = { 2 } }, { .axes = 1, .size = { 3 } },
                                       { .axes = 2, .size = { 2, 2 } }, { 1, { 3 }, links("a100-node") },
                                       { 2, { 2, 2 }, links("textbook") } };
    for (int i = 0; i < 5; i++)
        for (uint64_t seed = 0; seed < (meshes[i].cluster ? 4 : 12); seed++) {
            struct sbp_graph g;
            struct assignment a;
            struct error err = { 0 };
            make_chain(&g, &meshes[i], meshes[i].axes == 1 ? 6 : 3, seed);
            assert_int_equal(sbp_assign(&g, &meshes[i], 0, 1 << 24, &a, &err), OK);
            assert_int_equal(meshes[i].cluster ? a.time : a.elements,
                             brute_force(&g, &meshes[i], 0, g.tensor[0].pin));
            assert_true(a.exact);
        }
}

/* Operations and journeys one after another are what devices do whose parts are equal; and nothing that strategies pin
 * is done sooner than what is found. */
static void test_time_is_that_of_a_run(void **state)
{
    static const char *const names[] = { "dp", "1d", "free" };
    (void)state;
    for (int P = 2; P <= 4; P += 2) {
        const struct sbp_mesh line = { 1, { P }, links("textbook") };
        int64_t least = INT64_MAX;
        for (int i = 0; i < 3; i++) {
            static struct sbp_graph g;
            static struct assignment a;
            struct sbp_trial t;
            struct error err = { 0 };
            graph_mlp(&g, 8, 4, 16, 32);
            assert_int_equal(graph_strategy(&g, &line, names[i], &err), OK);
            assert_int_equal(sbp_assign(&g, &line, 0, 1 << 24, &a, &err), OK);
            assert_int_equal(sbp_trial(&g, &a, line.cluster, &t, &err), OK);
            if (!(llabs(t.time - a.time) <= a.time / 50))
                print_error("%s: %lld ps, a run %lld\n", names[i], (long long)a.time, (long long)t.time);
            assert_true(llabs(t.time - a.time) <= a.time / 50 && t.bytes == (uint64_t)a.elements * 8);
            if (a.time < least) least = a.time;
            assert_true(i < 2 || a.time == least);
        }
    }
}

/* What training has of a block's signatures. */
static void test_layout(void **state)
{
    const struct model_config c = { .S = 4, .D = 12, .H = 4, .K = 2, .A = 3, .F = 20, .L = 1, .V = 9, .norm = NORM_RMS,
                                    .positions = POSITIONS_ROTARY, .family = &family_llama, .mlp = MLP_SWIGLU };
    const struct sbp_mesh line = { .axes = 1, .size = { 2 } }, square = { .axes = 2, .size = { 2, 2 } };
    static struct sbp_graph g;
    static struct assignment a;
    struct sbp_layout l;
    struct error err = { 0 };
    (void)state;
    assert_int_equal(sbp_graph_of(&g, model_program(&c)->block, &c, 6, 4, false, &err), OK);
    assert_int_equal(graph_strategy(&g, &line, "1d", &err), OK);
    assert_int_equal(sbp_assign(&g, &line, 0, 1 << 24, &a, &err), OK);
    assert_int_equal(sbp_layout_of(&l, &g, &line, a.tensor, &err), OK);
    const struct sbp want[SBP_ROLE_COUNT] = {
        [SBP_STREAM] = ON_B, [SBP_EMBEDDING] = ON_S(0), [SBP_QKV] = ON_S(0), [SBP_HEADS] = ON_S(1),
        [SBP_PROJ] = ON_S(1), [SBP_FC] = ON_S(0), [SBP_HIDDEN] = ON_S(1), [SBP_FC2] = ON_S(1), [SBP_HEAD] = ON_S(0),
        [SBP_LOGITS] = ON_S(1)
    };
    for (int r = 0; r < SBP_ROLE_COUNT; r++) assert_true(sbp_equal(l.of[r], want[r]));
    assert_int_equal(sbp_layout_of(&l, &g, &square, a.tensor, &err), ERR_PLAN);
    graph_mlp(&g, 8, 4, 16, 32);
    assert_int_equal(sbp_layout_of(&l, &g, &line, a.tensor, &err), ERR_PLAN);
    assert_non_null(strstr(err.text, "the graph has no attn.qkv"));
}

/* Weights travel when they are smaller than activations, activations when these are. */
static void test_search_picks_what_is_smaller(void **state)
{
    (void)state;
    const struct { int64_t B, S, D; const char *like; } row[] = { { 60, 4, 12, "dp" }, { 6, 1, 60, "1d" } };
    for (int P = 2; P <= 6; P++)
        for (int i = 0; i < 2; i++) {
            const struct sbp_mesh line = { .axes = 1, .size = { P } };
            struct sbp_graph free_graph, pinned;
            struct assignment found, want;
            struct error err = { 0 };
            graph_mlp(&free_graph, row[i].B, row[i].S, row[i].D, row[i].D);
            pinned = free_graph;
            assert_int_equal(graph_strategy(&pinned, &line, row[i].like, &err), OK);
            assert_int_equal(sbp_assign(&free_graph, &line, 0, 1 << 24, &found, &err), OK);
            assert_int_equal(sbp_assign(&pinned, &line, 0, 1 << 24, &want, &err), OK);
            assert_int_equal(found.elements, want.elements);
            const struct sbp up = found.tensor[graph_find(&free_graph, "mlp.up")].on[0];
            assert_int_equal(up.kind == SBP_S && up.dim == 0, i == 0);
        }
}

/* A whole block, forward and backward, on two axes: nothing that strategies pin sends less, and the journeys add up. */
static void test_blocks_exactly(void **state)
{
    (void)state;
    const struct model_config models[] = {
        { .S = 16, .D = 64, .H = 8, .K = 8, .A = 8, .F = 256, .L = 1, .V = 11, .family = &family_gpt2,
        .biases = BIASES_BLOCK, .eps = 1e-5 },
        { .S = 16, .D = 64, .H = 8, .K = 8, .A = 8, .F = 96, .L = 1, .V = 11, .norm = NORM_RMS, .mlp = MLP_SWIGLU,
          .family = &family_llama,          .positions = POSITIONS_ROTARY, .rotary = { .theta = 10 }, .eps = 1e-5 },
    };
    const struct sbp_mesh meshes[] = { { .axes = 1, .size = { 4 } }, { .axes = 2, .size = { 2, 3 } } };
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) {
            struct sbp_graph g, pinned;
            struct assignment a, b;
            struct error err = { 0 };
            int64_t sent = 0;
            assert_int_equal(sbp_graph_of(&g, model_program(&models[i])->block, &models[i], 8, 16, false, &err), OK);
            pinned = g;
            assert_int_equal(graph_strategy(&pinned, &meshes[k], k ? "2d" : "1d", &err), OK);
            assert_int_equal(sbp_assign(&g, &meshes[k], 0, 1 << 24, &a, &err), OK);
            assert_int_equal(sbp_assign(&pinned, &meshes[k], 0, 1 << 24, &b, &err), OK);
            for (int d = 0; d < sbp_devices(&meshes[k]); d++) sent += assignment_sent(&g, &a, d);
            assert_true(a.exact && a.elements <= b.elements);
            assert_int_equal(sent, a.elements);
        }
}

/* The dearer it is to keep elements, the fewer are kept, and the more are sent. */
static void test_price_of_memory(void **state)
{
    (void)state;
    const struct sbp_mesh m = { .axes = 2, .size = { 2, 2 } };
    struct sbp_graph g;
    struct assignment a[4];
    struct error err = { 0 };
    graph_mlp(&g, 8, 16, 64, 256);
    for (int i = 0; i < 4; i++) {
        const int64_t price[] = { 0, 64, 1024, 1 << 20 };
        assert_int_equal(sbp_assign(&g, &m, price[i], 1 << 24, &a[i], &err), OK);
        if (i == 0) continue;
        assert_true(a[i].kept <= a[i - 1].kept && a[i].elements >= a[i - 1].elements);
        assert_true(a[i].elements * SBP_PRICE_OF_SENT + a[i].kept * price[i] <=
                    a[0].elements * SBP_PRICE_OF_SENT + a[0].kept * price[i]);
    }
    assert_true(a[3].kept < a[0].kept && a[3].elements > a[0].elements);
}

/* More devices than there is anything to give. */
static void test_no_legal_signature(void **state)
{
    (void)state;
    const struct sbp_mesh m = { .axes = 1, .size = { 50 } };
    struct sbp_graph g;
    struct assignment a;
    struct error err = { 0 };
    graph_mlp(&g, 7, 5, 21, 26);
    assert_int_equal(sbp_assign(&g, &m, 0, 1 << 24, &a, &err), ERR_PLAN);
    assert_string_equal(err.text, "linear, which makes mlp.up, has no legal signature on 50 devices: "
                                  "nothing can be cut into so many parts");
    assert_int_equal(graph_strategy(&g, &m, "dp", &err), ERR_PLAN);
    assert_int_equal(graph_strategy(&g, &m, "3d", &err), ERR_USAGE);
    assert_int_equal(graph_strategy(&g, &m, "2d", &err), ERR_PLAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_tables), cmocka_unit_test(test_search_is_brute_force),
        cmocka_unit_test(test_time_is_that_of_a_run), cmocka_unit_test(test_layout),
        cmocka_unit_test(test_search_picks_what_is_smaller), cmocka_unit_test(test_no_legal_signature),
        cmocka_unit_test(test_blocks_exactly), cmocka_unit_test(test_price_of_memory),
    };
    return cmocka_run_group_tests_name("signatures that send least", tests, NULL, NULL);
}
