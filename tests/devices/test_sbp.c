/* One MLP and one transformer block, made parallel by signatures alone: values, bytes, and the search.
 *
 * ranks: 1 2 3 4 6
 */
#include "tests/devices/on_devices.h"
#include "emulated_devices/schemes/sbp/assign.h"
#include "emulated_devices/model/link_cost.h"
#include "ref/numeric/distance.h"
#include "ref/numeric/philox.h"
#include <math.h>

/* B = 7 sequences, so that nothing divides; H for up to 7 parts. */
static const struct sbp_sizes sizes = { .B = 7, .S = 5, .D = 21, .H = 7, .A = 3, .F = 26 };

static uint64_t bytes_sent(void)
{
    uint64_t sum = 0;
    for (int op = 0; op < CONTROL; op++) sum += comm.counted.of[TRAFFIC_OTHER].of[op].bytes_sent;
    return sum;
}

/* ---- on one device ----------------------------------------------------------------------------------------------- */

static int64_t elements(const struct shape *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->dim[d];
    return n;
}

static struct tensor whole(const struct shape *t)
{
    struct tensor w = { .data = calloc((size_t)elements(t), sizeof(double)), .dtype = F64, .ndim = t->ndim };
    memcpy(w.dim, t->dim, sizeof w.dim);
    return w;
}

static bool is_made(const struct sbp_graph *g, int tensor)
{
    for (int o = 0; o < g->ops; o++) if (g->op[o].out == tensor) return true;
    return false;
}

static void do_operations(const struct sbp_graph *g, const struct tensor all[])
{
    for (int o = 0; o < g->ops; o++) {
        struct tensor in[SBP_OPERANDS];
        for (int i = 0; i < g->op[o].inputs; i++) in[i] = all[g->op[o].in[i]];
        g->op[o].operator->run(&device, &g->op[o], all[g->op[o].out], in);
    }
}

/* Every tensor of the graph, computed operation by operation without any mesh. */
static void compute_whole(const struct sbp_graph *g, struct tensor all[])
{
    for (int t = 0; t < g->tensors; t++) {
        all[t] = whole(&g->tensor[t].shape);
        for (int64_t i = 0; !is_made(g, t) && i < tensor_count(all[t]); i++)
            tensor_set(all[t], i, 0.3 * random_normal(5, (uint64_t)t, (uint64_t)i));
    }
    do_operations(g, all);
}

static void free_whole(const struct sbp_graph *g, struct tensor all[])
{
    for (int t = 0; t < g->tensors; t++) free(all[t].data);
}

static double tensor_distance(struct tensor a, const double *b)
{
    double far = 0, size = 0;
    for (int64_t i = 0; i < tensor_count(a); i++) far += pow(tensor_get(a, i) - b[i], 2), size += pow(b[i], 2);
    return sqrt(far / size);
}

/* The graph of the MLP is what it says it is. */
static void test_mlp_is_an_mlp(void **state)
{
    (void)state;
    struct sbp_graph g;
    struct tensor all[SBP_MOST_TENSORS];
    graph_mlp(&g, sizes);
    compute_whole(&g, all);
    const struct ops *ops = ops_for(F64);
#define T(name) all[graph_find(&g, name)]
    const int64_t N = sizes.B * sizes.S;
    struct tensor up = whole(&g.tensor[graph_find(&g, "up")].shape), y = whole(&g.tensor[0].shape),
                  dw2 = whole(&g.tensor[graph_find(&g, "w2")].shape), dx = whole(&g.tensor[0].shape);
    ops->linear_forward(up, T("x"), T("w1"), tensor_none);
    struct tensor act = whole(&g.tensor[graph_find(&g, "up")].shape),
                  dup = whole(&g.tensor[graph_find(&g, "up")].shape);
    ops->gelu_forward(act, up);
    ops->linear_forward(y, act, T("w2"), tensor_none);
    ops->linear_backward_weight(dw2, tensor_none, T("dy"), act);
    ops->linear_backward_input(dup, T("dy"), T("w2"));
    ops->gelu_backward_input(dup, dup, up);
    ops->linear_backward_input(dx, dup, T("w1"));
    assert_true(tensor_distance(T("y"), y.data) == 0 && tensor_distance(T("dw2"), dw2.data) == 0 &&
                tensor_distance(T("dx"), dx.data) == 0);
    assert_int_equal(tensor_rows(T("y")), N);
    free(up.data), free(y.data), free(dw2.data), free(dx.data), free(act.data), free(dup.data);
    free_whole(&g, all);
#undef T
}

/* The gradients of the block's graph are those of its forward pass:
 * differences of sum(y dy) along a random direction. */
static void test_block_differentiates(void **state)
{
    (void)state;
    static const char *const names[] = { "x",      "ln1.wb", "qkv.w", "qkv.b",  "out.w", "out.b",
                                         "ln2.wb", "up.w",   "up.b",  "down.w", "down.b" };
    struct sbp_graph g;
    struct tensor all[SBP_MOST_TENSORS];
    graph_block(&g, sizes, false);
    compute_whole(&g, all);
    const int y = graph_find(&g, "y"), dy = graph_find(&g, "dy");
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        char gradient[24];
        snprintf(gradient, sizeof gradient, "d%s", names[n]);
        const struct tensor w = all[graph_find(&g, names[n])], dw = all[graph_find(&g, gradient)];
        double by_formula = 0, value[2];
        do_operations(&g, all);         /* the last differences were taken a little beside */
        struct tensor kept = { .data = malloc(tensor_bytes(dw)) };
        memcpy(kept.data, dw.data, tensor_bytes(dw));
        for (int64_t i = 0; i < tensor_count(w); i++)
            by_formula += ((double *)kept.data)[i] * random_normal(9, n, (uint64_t)i);
        for (int side = 0; side < 2; side++) {
            const double h = side ? 1e-5 : -1e-5;
            value[side] = 0;
            for (int64_t i = 0; i < tensor_count(w); i++)
                tensor_set(w, i, tensor_get(w, i) + h * random_normal(9, n, (uint64_t)i));
            do_operations(&g, all);
            for (int64_t i = 0; i < tensor_count(all[y]); i++)
                value[side] += tensor_get(all[y], i) * tensor_get(all[dy], i);
            for (int64_t i = 0; i < tensor_count(w); i++)
                tensor_set(w, i, tensor_get(w, i) - h * random_normal(9, n, (uint64_t)i));
        }
        const double by_difference = (value[1] - value[0]) / 2e-5;
        if (!(fabs(by_difference - by_formula) <= 1e-6 * (1 + fabs(by_formula))))
            print_message("%s: %.12g by differences, %.12g by formula\n", names[n], by_difference, by_formula);
        assert_true(fabs(by_difference - by_formula) <= 1e-6 * (1 + fabs(by_formula)));
        free(kept.data);
    }
    free_whole(&g, all);
}

/* ---- on a mesh --------------------------------------------------------------------------------------------------- */

static struct tensor cut(const struct placement *p, const struct shape *t, struct signature s, struct tensor of)
{
    struct tensor piece = piece_make(&device, t, &p->mesh, s, comm.rank);
    struct box all = { 0 };
    memcpy(all.extent, t->dim, sizeof all.extent);
    struct views v = views_of(&device);
    box_pack(t->ndim, all, signature_box(t, &p->mesh, s, comm.rank), of.data, view_write(&v, piece).data,
             sizeof(double));
    views_end(&v);
    return piece;
}

/* What every tensor that was made is off by, the worst. */
static double worst(const struct placement *p, const struct sbp_graph *g, const struct assignment *a,
                    const struct tensor piece[], const struct tensor all[], int *which)
{
    double most = 0;
    for (int t = 0; t < g->tensors; t++) {
        if (!is_made(g, t) || signature_has(a->tensor[t], SBP_P)) continue;
        struct tensor want = cut(p, &g->tensor[t].shape, a->tensor[t], all[t]);
        struct views v = views_of(&device);
        const double off = tensor_distance(view_read(&v, piece[t]), view_read(&v, want).data);
        views_end(&v);
        if (exceeds(off, most)) most = off, *which = t;
        device_free(&device, want);
    }
    return most;
}

static void run_assignment(const char *what, const struct sbp_graph *g, const struct assignment *a)
{
    struct placement p;
    struct tensor all[SBP_MOST_TENSORS], piece[SBP_MOST_TENSORS] = { { 0 } };
    bool keep[SBP_MOST_TENSORS];
    struct error err = { 0 };
    int which = 0;
    compute_whole(g, all);
    ASSERT_ALL(placement_open(&p, &comm, &a->mesh, &err) == OK, "%s", err.text);
    for (int t = 0; t < g->tensors; t++) {
        keep[t] = true;
        if (!is_made(g, t)) piece[t] = cut(&p, &g->tensor[t].shape, a->tensor[t], all[t]);
    }
    const uint64_t before = bytes_sent();
    const enum error_code e = assignment_run(&p, g, a, piece, keep, &err);
    const uint64_t sent = bytes_sent() - before, want = (uint64_t)assignment_sent(g, a, comm.rank) * sizeof(double);
    ASSERT_ALL(e == OK, "%s: %s", what, err.text);
    const double off = worst(&p, g, a, piece, all, &which);
    for (int t = 0; t < g->tensors; t++) device_free(&device, piece[t]);
    free_whole(g, all);
    placement_close(&p);
    ASSERT_ALL(off <= 1e-12, "%s: %s is off by %g", what, g->tensor[which].name, off);
    ASSERT_ALL(sent == want, "%s: sent %llu bytes; its journeys take %llu", what, (unsigned long long)sent,
               (unsigned long long)want);
}

/* What the scheme written by hand, schemes/tensor/tensor_1d.c, sends for one layer's forward and backward, all devices
 * together, in elements: its cost function. */
static int64_t by_hand_1d(int P, int64_t ND)
{
    const struct model_config model = { .S = sizes.S,
                                        .D = sizes.D,
                                        .H = sizes.H,
                                        .K = sizes.H,
                                        .A = sizes.A,
                                        .F = sizes.F,
                                        .L = 1,
                                        .V = 90,
                                        .biases = BIASES_GPT2 };
    int64_t sum = 0;
    for (int r = 0; r < P; r++) {
        struct group g = *comm.everyone;
        g.rank = r;
        struct tensor_parallel tp = {
            .config = &model, .device = &device, .group = &g, .allreduce = "ring", .S = model.S
        };
        assert_int_equal(tensor_scheme_find(&tp.scheme, "1d", NULL), OK);
        tensor_share(&tp, P, r);
        for (unsigned axes = 0; axes < TENSOR_AXIS_SETS; axes++) {
            tp.along[axes] = g;
            tp.along[axes].size = axes_size(&tp, axes), tp.along[axes].rank = axes_index(&tp, axes);
        }
        sum += (int64_t)block_cost(&tp, ND / sizes.D).bytes_sent;
    }
    return sum / (int64_t)sizeof(double);
}

static int64_t weights(const struct sbp_graph *g)
{
    int64_t n = 0;
    for (int t = 1; t < g->tensors; t++)
        if (!is_made(g, t) && g->tensor[t].like < 0) n += elements(&g->tensor[t].shape);
    return n;
}

static void compile(const char *what, struct sbp_graph *g, const struct sbp_mesh *m, const char *strategy, int64_t want)
{
    struct assignment a;
    struct error err = { 0 };
    ASSERT_ALL(graph_strategy(g, m, strategy, &err) == OK, "%s %s: %s", what, strategy, err.text);
    ASSERT_ALL(sbp_assign(g, m, 20000, &a, &err) == OK, "%s %s: %s", what, strategy, err.text);
    ASSERT_ALL(a.exact, "%s %s: the search was cut short", what, strategy);
    ASSERT_ALL(a.elements == want, "%s %s: %lld elements; written by hand it is %lld", what, strategy,
               (long long)a.elements, (long long)want);
    run_assignment(strategy, g, &a);
}

/* So many tokens that no weight gradient is cheaper to sum by bringing activations together, and so few that no product
 * is cheaper to divide by bringing weights together: where the classics are the best there is. */
static void test_strategies_on_a_line(void **state)
{
    (void)state;
    const int P = comm.size;
    const struct sbp_mesh line = { 1, { P } };
    const struct sbp_sizes many = { .B = 41, .S = 5, .D = 21, .H = 7, .A = 3, .F = 26 },
                           few = { .B = 3, .S = 5, .D = 21, .H = 7, .A = 3, .F = 26 };
    const int64_t ND = few.B * few.S * few.D, sum = 2 * (P - 1) * ND;
    struct sbp_graph g;
    if (P == 1) return;
    graph_mlp(&g, many);
    compile("mlp", &g, &line, "dp", 2 * (P - 1) * weights(&g));
    graph_mlp(&g, few);
    compile("mlp", &g, &line, "1d", 2 * sum);
    graph_block(&g, many, false);
    compile("block", &g, &line, "dp", 2 * (P - 1) * weights(&g));
    graph_block(&g, few, false);
    assert_int_equal(by_hand_1d(P, ND), 4 * sum);
    compile("block", &g, &line, "1d", by_hand_1d(P, ND));
    graph_block(&g, few, true);         /* the norms' gradients are sums over tokens: w and b of two norms */
    compile("block", &g, &line, "sp", 4 * sum + 2 * (P - 1) * 4 * few.D);
}

static void test_strategies_on_a_rectangle(void **state)
{
    (void)state;
    if (comm.size % 2 != 0) return;
    const int p = comm.size / 2;
    const struct sbp_mesh m = { 2, { 2, p } };
    struct sbp_graph g;
    graph_mlp(&g, sizes);
    /* dp: all-reduce of every weight gradient's part between two; 1d: two sums of the device's tokens */
    compile("mlp", &g, &m, "2d", 2 * weights(&g) + 2 * 2 * (p - 1) * sizes.B * sizes.S * sizes.D);
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

static int64_t cost(const struct sbp_graph *g, const struct sbp_mesh *m, int t, struct signature from,
                    struct signature to)
{
    return boxing_plan(&g->tensor[t].shape, m, from, to).elements;
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
        int64_t here = cost(g, m, o->in[0], now, rule[r].in[0]);
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
    if (comm.size > 1) return;          /* local: once is enough */
    const struct sbp_mesh meshes[] = { { 1, { 2 } }, { 1, { 3 } }, { 2, { 2, 2 } } };
    for (int i = 0; i < 3; i++)
        for (uint64_t seed = 0; seed < 12; seed++) {
            struct sbp_graph g;
            struct assignment a;
            struct error err = { 0 };
            make_chain(&g, &meshes[i], meshes[i].axes == 1 ? 6 : 3, seed);
            assert_int_equal(sbp_assign(&g, &meshes[i], 100000, &a, &err), OK);
            assert_int_equal(a.elements, brute_force(&g, &meshes[i], 0, g.tensor[0].pin));
            assert_true(a.exact);
        }
}

/* Weights travel when they are smaller than activations, activations when these are. */
static void test_search_picks_what_is_smaller(void **state)
{
    (void)state;
    const int P = comm.size;
    if (P == 1) return;
    const struct sbp_mesh line = { 1, { P } };
    const struct { struct sbp_sizes sizes; const char *like; } row[] = {
        { { .B = 60, .S = 4, .D = 12, .F = 12 }, "dp" }, { { .B = 6, .S = 1, .D = 60, .F = 60 }, "1d" },
    };
    for (int i = 0; i < 2; i++) {
        struct sbp_graph free_graph, pinned;
        struct assignment found, want;
        struct error err = { 0 };
        graph_mlp(&free_graph, row[i].sizes), graph_mlp(&pinned, row[i].sizes);
        assert_int_equal(graph_strategy(&pinned, &line, row[i].like, &err), OK);
        assert_int_equal(sbp_assign(&free_graph, &line, 20000, &found, &err), OK);
        assert_int_equal(sbp_assign(&pinned, &line, 20000, &want, &err), OK);
        assert_int_equal(found.elements, want.elements);
        const bool tokens_are_split = found.tensor[graph_find(&free_graph, "up")].on[0].kind == SBP_S &&
                                      found.tensor[graph_find(&free_graph, "up")].on[0].dim == 0;
        assert_int_equal(tokens_are_split, i == 0);
        run_assignment(row[i].like, &free_graph, &found);
    }
}

/* More devices than there is anything to give. */
static void test_no_legal_signature(void **state)
{
    (void)state;
    const struct sbp_mesh m = { 1, { 50 } };
    struct sbp_graph g;
    struct assignment a;
    struct error err = { 0 };
    graph_mlp(&g, sizes);
    assert_int_equal(sbp_assign(&g, &m, 1000, &a, &err), ERR_PLAN);
    assert_string_equal(
        err.text, "linear, which makes up, has no legal signature on 50 devices: nothing in it can be cut so often");
    assert_int_equal(graph_strategy(&g, &m, "dp", &err), ERR_PLAN);
    assert_int_equal(graph_strategy(&g, &m, "3d", &err), ERR_USAGE);
    assert_int_equal(graph_strategy(&g, &m, "2d", &err), ERR_PLAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICES(test_mlp_is_an_mlp), ON_DEVICES(test_block_differentiates), ON_DEVICES(test_strategies_on_a_line),
        ON_DEVICES(test_strategies_on_a_rectangle), ON_DEVICES(test_search_is_brute_force),
            ON_DEVICES(test_search_picks_what_is_smaller),
        ON_DEVICES(test_no_legal_signature),
    };
    return MPI_RUN("signatures", tests);
}
