/* An MLP and a block of each family, made parallel by signatures alone: the numbers of the one-device model, and bytes.
 *
 * ranks: 1 2 3 4 6
 */
#include "tests/devices/on_devices.h"
#include "emulated_devices/model/link/link_cost.h"
#include "emulated_devices/model/sbp/sbp_graph.h"
#include "emulated_devices/schemes/sbp/assign.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/transformer.h"
#include "ref/numeric/distance.h"
#include "ref/numeric/philox.h"
#include <math.h>

/* One layer each; nothing divides, and K is enough for 7 parts. */
enum { GPT2, LLAMA, GPTJ, MODELS };
static const struct model_config models[MODELS] = {
    [GPT2] = { .name = "gpt2", .S = 5, .D = 21, .H = 7, .K = 7, .A = 3, .F = 26, .L = 1, .V = 11,
               .family = &family_gpt2, .biases = BIASES_BLOCK, .eps = 1e-3, .init_std = 0.3 },
    [LLAMA] = { .name = "llama", .S = 5, .D = 28, .H = 14, .K = 7, .A = 2, .F = 26, .L = 1, .V = 11, .norm = NORM_RMS,
                .family = &family_llama,
                .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU, .rotary = { .theta = 10 }, .eps = 1e-3,
                .init_std = 0.3 },
    [GPTJ] = { .name = "gptj", .S = 5, .D = 42, .H = 7, .K = 7, .A = 6, .F = 26, .L = 1, .V = 11,
               .positions = POSITIONS_ROTARY, .rotary = { .theta = 10, .turned = 4, .neighbours = true },
               .parallel = true, .family = &family_gptj, .biases = BIASES_FEED | HAS_BIAS(ROLE_HEAD), .eps = 1e-3,
               .init_std = 0.3 },
};

static void graph_block(struct sbp_graph *g, const struct model_config *c, int64_t B, bool tokens_split)
{
    struct error err = { 0 };
    ASSERT_ALL(sbp_graph_of(g, model_program(c)->block, c, B, c->S, tokens_split, &err) == OK, "%s", err.text);
}

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

static void do_operations(const struct sbp_graph *g, const struct tensor all[])
{
    for (int o = 0; o < g->ops; o++) {
        struct tensor in[SBP_OPERANDS];
        for (int i = 0; i < g->op[o].inputs; i++) in[i] = all[g->op[o].in[i]];
        g->op[o].operator->run(&device, &g->model, all[g->op[o].out], in);
    }
}

/* Random inputs. */
static void draw(const struct sbp_graph *g, struct tensor all[])
{
    for (int t = 0; t < g->tensors; t++) {
        all[t] = whole(&g->tensor[t].shape);
        for (int64_t i = 0; !graph_makes(g, t) && i < tensor_count(all[t]); i++)
            tensor_set(all[t], i, 0.3 * random_normal(5, (uint64_t)t, (uint64_t)i));
    }
}

static void free_whole(const struct sbp_graph *g, struct tensor all[])
{
    for (int t = 0; t < g->tensors; t++) free(all[t].data);
}

static double tensor_distance(struct tensor a, struct tensor b)
{
    double far = 0, size = 0;
    assert_int_equal(tensor_count(a), tensor_count(b));
    for (int64_t i = 0; i < tensor_count(a); i++)
        far += pow(tensor_get(a, i) - tensor_get(b, i), 2), size += pow(tensor_get(b, i), 2);
    return sqrt(far / size);
}

/* ---- the one-device model ---------------------------------------------------------------------------------------- */

/* What it computes, under the names of the graph; without data where the graph has a name more. */
struct truth { const struct sbp_graph *graph; struct tensor of[SBP_MOST_TENSORS]; };

/* Columns that are heads, or rows: all queries, all keys, all values, become group after group (sbp_graph.h). */
static int64_t place_in_groups(const struct model_config *c, int64_t i)
{
    const int64_t a = i % c->A, head = i / c->A, queries = c->H / c->K;
    const int64_t k = head < c->H ? head / queries : (head - c->H) % c->K,
                  g = head < c->H ? head % queries : queries + (head - c->H) / c->K;
    return (k * (queries + 2) + g) * c->A + a;
}

/* rows: how many stand before the heads; what follows them is moved with them. */
static struct tensor in_groups(const struct model_config *c, const struct shape *s, struct tensor t, int64_t rows)
{
    const struct tensor to = whole(s);
    const int64_t heads = (c->H + 2 * c->K) * c->A, after = tensor_count(t) / (rows * heads);
    for (int64_t n = 0; n < rows; n++)
        for (int64_t i = 0; i < heads; i++)
            memcpy((double *)to.data + (n * heads + place_in_groups(c, i)) * after,
                   (double *)t.data + (n * heads + i) * after, (size_t)after * sizeof(double));
    return to;
}

/* first: where the elements begin in the graph's tensor, of which they may be a part. */
static void know(struct truth *truth, const char *prefix, const char *name, int64_t first, struct tensor t)
{
    char in_graph[SBP_NAME];
    snprintf(in_graph, sizeof in_graph, "%s%s", prefix, name);
    const int i = graph_find(truth->graph, in_graph);
    if (i < 0 || !tensor_present(t)) return;
    const struct model_config *c = &truth->graph->model;
    const struct shape *s = &truth->graph->tensor[i].shape;
    const bool fused = strncmp(name, "attn.qkv", 8) == 0 || strcmp(name, "attn.rotated") == 0;
    const bool weight = strstr(name, ".w") || strstr(name, ".b");
    if (fused) {
        free(truth->of[i].data);
        truth->of[i] = in_groups(c, s, t, weight ? 1 : tensor_rows(t));
        return;
    }
    if (truth->of[i].data == NULL) truth->of[i] = whole(s);
    assert_true(first + tensor_count(t) <= tensor_count(truth->of[i]));
    memcpy((double *)truth->of[i].data + first, t.data, tensor_bytes(t));
}

static void see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    (void)terms;
    if (layer == -1 && strcmp(name, "embedding") == 0) know(context, gradient ? "d" : "", "in", 0, t);
    if (layer == 0 && strchr(name, '.') != strrchr(name, '.')) return;  /* a parameter */
    if (layer == 0) know(context, gradient ? "d" : "", name, 0, t);
}

/* Forward and backward on one device, with weights that show everything. */
static void find_truth(struct truth *truth, const struct sbp_graph *g, const struct model_config *c, int64_t B)
{
    static const struct { const char *name; enum block_param first, second; } params[] = {
        { "ln_1.wb", LN1_W, LN1_B },           { "ln_2.wb", LN2_W, LN2_B },           { "attn.qkv.w", QKV_W, QKV_W },
        { "attn.qkv.b", QKV_B, QKV_B },        { "attn.out.w", PROJ_W, PROJ_W },      { "attn.out.b", PROJ_B, PROJ_B },
        { "mlp.up.w", UP_W, UP_W },            { "mlp.up.b", UP_B, UP_B },            { "mlp.out.w", DOWN_W, DOWN_W },
        { "mlp.out.b", DOWN_B, DOWN_B },
    };
    enum { MOST = 64 * 5 };
    struct transformer m;
    struct error err = { 0 };
    int32_t ids[MOST], labels[MOST];
    double loss;
    *truth = (struct truth){ .graph = g };
    assert_true(B * c->S <= MOST);
    for (int n = 0; n < B * c->S; n++) ids[n] = n * 7 % 11, labels[n] = n * 5 % 11;
    ASSERT_ALL(transformer_open(&m, c, F64, 1, &err) == OK, "%s", err.text);
    for (int i = 0; i < m.params; i++)
        for (int64_t k = 0; k < tensor_count(m.w[i]); k++)
            tensor_set(m.w[i], k, 0.3 * random_normal(3, (uint64_t)i, (uint64_t)k));
    m.observer.see = see, m.observer.context = truth;
    assert_int_equal(transformer_forward(&m, ids, labels, B, c->S, &loss, &err), OK);
    transformer_backward(&m);
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        for (int second = 0; second < 1 + (params[i].first != params[i].second); second++) {
            const int p = param_of_block(c, 0, second ? params[i].second : params[i].first);
            if (p < 0) continue;
            know(truth, "", params[i].name, second ? c->D : 0, m.w[p]);
            know(truth, "d", params[i].name, second ? c->D : 0, m.g[p]);
        }
    transformer_close(&m);
}

/* Every tensor of a block's graph, computed operation by operation without a mesh, from inputs of the one-device model.
 * It is what that model has. */
static void compute_block(const struct sbp_graph *g, const struct model_config *c, int64_t B, struct tensor all[])
{
    struct truth truth;
    int compared = 0;
    find_truth(&truth, g, c, B);
    draw(g, all);
    for (int t = 0; t < g->tensors; t++) {
        if (graph_makes(g, t)) continue;
        ASSERT_ALL(truth.of[t].data, "%s: the one-device model has no %s", c->name, g->tensor[t].name);
        memcpy(all[t].data, truth.of[t].data, tensor_bytes(all[t]));
    }
    do_operations(g, all);
    for (int t = 0; t < g->tensors; t++) {
        if (!graph_makes(g, t) || truth.of[t].data == NULL) continue;
        const double off = tensor_distance(all[t], truth.of[t]);
        ASSERT_ALL(off <= 1e-12, "%s: %s is off by %g of what one device has", c->name, g->tensor[t].name, off);
        compared++;
    }
    assert_true(compared >= 20);
    for (int t = 0; t < g->tensors; t++) free(truth.of[t].data);
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
        if (!graph_makes(g, t) || signature_has(a->tensor[t], SBP_P)) continue;
        struct tensor want = cut(p, &g->tensor[t].shape, a->tensor[t], all[t]);
        struct views v = views_of(&device);
        const double off = tensor_distance(view_read(&v, piece[t]), view_read(&v, want));
        views_end(&v);
        if (exceeds(off, most)) most = off, *which = t;
        device_free(&device, want);
    }
    return most;
}

/* all: every tensor, computed without a mesh. */
static void run_assignment(const char *what, const char *strategy, const struct sbp_graph *g,
                           const struct assignment *a, const struct tensor all[])
{
    struct placement p;
    struct tensor piece[SBP_MOST_TENSORS] = { { 0 } };
    bool keep[SBP_MOST_TENSORS];
    struct error err = { 0 };
    int which = 0;
    ASSERT_ALL(placement_open(&p, &comm, &a->mesh, &err) == OK, "%s", err.text);
    for (int t = 0; t < g->tensors; t++) {
        keep[t] = true;
        if (!graph_makes(g, t)) piece[t] = cut(&p, &g->tensor[t].shape, a->tensor[t], all[t]);
    }
    const uint64_t before = bytes_sent();
    const enum error_code e = assignment_run(&p, g, a, piece, keep, &err);
    const uint64_t sent = bytes_sent() - before, want = (uint64_t)assignment_sent(g, a, comm.rank) * sizeof(double);
    ASSERT_ALL(e == OK, "%s %s: %s", what, strategy, err.text);
    const double off = worst(&p, g, a, piece, all, &which);
    for (int t = 0; t < g->tensors; t++) device_free(&device, piece[t]);
    placement_close(&p);
    ASSERT_ALL(off <= 1e-12, "%s %s: %s is off by %g", what, strategy, g->tensor[which].name, off);
    ASSERT_ALL(sent == want, "%s %s: sent %llu bytes; its journeys take %llu", what, strategy,
               (unsigned long long)sent, (unsigned long long)want);
}

/* What the scheme written by hand, schemes/tensor/tensor_1d.c, sends for one layer's forward and backward, all devices
 * together, in elements: its cost function. */
static int64_t by_hand_1d(const struct model_config *c, int P, int64_t N)
{
    int64_t sum = 0;
    for (int r = 0; r < P; r++) {
        struct group g = *comm.everyone;
        g.rank = r;
        struct tensor_parallel tp = { .config = c, .device = &device, .group = &g, .allreduce = "ring", .S = c->S };
        assert_int_equal(tensor_scheme_find(&tp.scheme, "1d", NULL), OK);
        tensor_share(&tp, P, r);
        for (unsigned axes = 0; axes < TENSOR_AXIS_SETS; axes++) {
            tp.along[axes] = g;
            tp.along[axes].size = axes_size(&tp, axes), tp.along[axes].rank = axes_index(&tp, axes);
        }
        sum += (int64_t)block_cost(&tp, N).bytes_sent;
    }
    return sum / (int64_t)sizeof(double);
}

/* Elements of the weights that tensor parallelism cuts, or of the others. */
static int64_t weights(const struct sbp_graph *g, bool cut)
{
    int64_t n = 0;
    for (int t = 1; t < g->tensors; t++)
        if (!graph_makes(g, t) && g->tensor[t].like < 0 && (g->tensor[t].inner >= 0) == cut)
            n += elements(&g->tensor[t].shape);
    return n;
}

static int64_t norms(const struct sbp_graph *g)
{
    int64_t n = 0;
    for (int t = 0; t < g->tensors; t++)
        if (strncmp(g->tensor[t].name, "ln_", 3) == 0 && strstr(g->tensor[t].name, ".wb"))
            n += elements(&g->tensor[t].shape);
    return n;
}

enum { ANY = -1 };                      /* number of elements */

static void compile(const char *what, struct sbp_graph *g, const struct tensor all[], const struct sbp_mesh *m,
                    const char *strategy, int64_t want)
{
    struct assignment a;
    struct error err = { 0 };
    ASSERT_ALL(graph_strategy(g, m, strategy, &err) == OK, "%s %s: %s", what, strategy, err.text);
    ASSERT_ALL(sbp_assign(g, m, 0, want == ANY ? 2000 : 1 << 24, &a, &err) == OK, "%s %s: %s", what, strategy,
               err.text);
    ASSERT_ALL(a.exact || want == ANY, "%s %s: the search was cut short", what, strategy);
    ASSERT_ALL(a.elements == want || want == ANY, "%s %s: %lld elements; written by hand it is %lld", what, strategy,
               (long long)a.elements, (long long)want);
    run_assignment(what, strategy, g, &a, all);
}

/* So many tokens that no weight gradient is cheaper to sum by bringing activations together, and so few that no product
 * is cheaper to divide by bringing weights together: where the classics are the best there is. */
enum { MANY = 41, SOME = 12, FEW = 3 };

static void compile_mlp(int64_t B, const struct sbp_mesh *m, const char *strategy,
                        int64_t want(const struct sbp_graph *))
{
    struct sbp_graph g;
    struct tensor all[SBP_MOST_TENSORS];
    assert_int_equal(sbp_graph_of(&g, sbp_mlp, &models[GPT2], B, 5, false, NULL), OK);
    draw(&g, all);
    do_operations(&g, all);
    compile("mlp", &g, all, m, strategy, want(&g));
    free_whole(&g, all);
}

static int64_t mlp_dp(const struct sbp_graph *g) { return 2 * (comm.size - 1) * weights(g, true); }
static int64_t mlp_1d(const struct sbp_graph *g) { return 4 * (comm.size - 1) * elements(&g->tensor[0].shape); }
/* dp: all-reduce of every weight gradient's part between two; 1d: two sums of the device's tokens */
static int64_t mlp_2d(const struct sbp_graph *g)
{
    return 2 * weights(g, true) + 2 * 2 * (comm.size / 2 - 1) * elements(&g->tensor[0].shape);
}

static void test_mlp(void **state)
{
    (void)state;
    const struct sbp_mesh line = { .axes = 1, .size = { comm.size } },
                          rectangle = { .axes = 2, .size = { 2, comm.size / 2 } };
    if (comm.size == 1) return;
    compile_mlp(MANY, &line, "dp", mlp_dp);
    compile_mlp(FEW, &line, "1d", mlp_1d);
    if (comm.size % 2 == 0) compile_mlp(SOME, &rectangle, "2d", mlp_2d);
}

static void compile_block(const struct model_config *c, int64_t B, const struct sbp_mesh *m, const char *strategy)
{
    const bool sp = strcmp(strategy, "sp") == 0;
    /* the gradients of a parallel block's branches, and the branches themselves, are added before they are summed up */
    const int64_t P = comm.size, p = P / 2, sums = c->parallel ? 2 : 4;
    struct sbp_graph g;
    struct tensor all[SBP_MOST_TENSORS];
    graph_block(&g, c, B, sp);
    compute_block(&g, c, B, all);
    const int64_t sum = elements(&g.tensor[0].shape), cut = weights(&g, true), rest = weights(&g, false);
    if (m->axes == 1) assert_int_equal(by_hand_1d(c, (int)P, B * c->S), 4 * 2 * (P - 1) * sum);
    const int64_t want = strcmp(strategy, "dp") == 0   ? 2 * (P - 1) * (cut + rest)
                         : strcmp(strategy, "1d") == 0 ? sums * 2 * (P - 1) * sum
                         : sp                          ? sums * 2 * (P - 1) * sum + 2 * (P - 1) * norms(&g)
                         : strcmp(strategy, "2d") == 0 ? sums * 2 * (p - 1) * sum + 2 * cut + 2 * p * rest
                                                       : ANY;
    compile(c->name, &g, all, m, strategy, want);
    free_whole(&g, all);
}

static void test_blocks(void **state)
{
    (void)state;
    const struct sbp_mesh line = { .axes = 1, .size = { comm.size } },
                          rectangle = { .axes = 2, .size = { 2, comm.size / 2 } };
    for (int i = 0; i < MODELS; i++) {
        compile_block(&models[i], MANY, &line, "dp");
        compile_block(&models[i], FEW, &line, "1d");
        compile_block(&models[i], FEW, &line, "sp");
        compile_block(&models[i], SOME, &line, "free");
        if (comm.size % 2 != 0) continue;
        compile_block(&models[i], SOME, &rectangle, "2d");
        compile_block(&models[i], SOME, &rectangle, "free");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { ON_DEVICES(test_mlp), ON_DEVICES(test_blocks) };
    return MPI_RUN("signatures", tests);
}
