/* Memory-centric tiling: agrees with one device whatever the tiles, the scheme and the pipeline; what is whole at once
 * falls with 1/T.
 * ranks: 1 2 3 4
 * verify ranks: 6 8
 *
 * That each agrees with one device, and that messages, bytes, additions, the slow tier's traffic and memory equal their
 * formulas, is part of every case (verify/cases/case.h).
 */
#include "tests/devices/session.h"
#include "tests/devices/trained.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "emulated_devices/schemes/tensor/tensor_sbp.h"
#include "ref/io/output.h"
#include "ref/model/params.h"

enum { W = 1 << PARAMETERS, G = 1 << GRADIENTS, O = 1 << OPTIMIZER };

static struct plan tiled_plan(int dp, int pp, int tiles)
{
    struct plan p = case_plan(dp, 1, pp);
    p.model.L = pp < 3 ? 2 : pp;
    p.data.scheme = "zero3";
    p.data.tiles = tiles;
    p.data.offload_slice = 100;
    if (dp == 1) p.data.offload = W;                                    /* alone, weights come from the slow tier */
    return p;
}

/* ---- agreement --------------------------------------------------------------------------------------------------- */

/* Tied GPT-2, recomputing in part of its layers; an untied Llama; everything offloaded. */
static void test_agrees_with_one_device(void **state)
{
    static const int mesh[][3] = { { 1, 1, 1 }, { 2, 2, 1 }, { 2, 1, 2 }, { 3, 3, 1 },
                                   { 4, 2, 2 }, { 6, 3, 2 }, { 8, 4, 2 } };
    (void)state;
    for (size_t m = 0; m < sizeof mesh / sizeof *mesh; m++) {
        if (mesh[m][0] != test_size) continue;
        struct plan p = tiled_plan(mesh[m][1], mesh[m][2], 2);
        p.recompute = "0";
        check(&p);
        p.data.tiles = 4, p.data.offload = W | G | O;
        check(&p);
        p = tiled_plan(mesh[m][1], mesh[m][2], 5);
        p.model.tied = false;
        case_take_llama(&p);
        check(&p);
    }
}

/* A device's own pieces, of which tp makes uneven ones, in tiles;
 * those of other matrices are smaller than their number. */
static struct plan split_plan(int dp, int tp, const char *tensor, int tiles)
{
    struct plan p = case_plan(dp, tp, 1);
    p.model.L = 2;
    p.tensor = tensor;
    p.data.scheme = "zero3", p.data.tiles = tiles;
    p.data.offload_slice = 100;
    return p;
}

static void test_with_tensor_schemes(void **state)
{
    static const struct { int dp, tp; const char *tensor; int tiles; enum dtype dtype; bool llama; } cases[] = {
        { 1, 2, "1d", 5, F64, false }, { 2, 2, "1d", 4, BF16, true }, { 2, 2, "1d-sp", 3, F32, false },
        { 2, 3, "1d-sp-keep", 4, F64, true },
        { 2, 4, "1d-sp", 5, F64, false }, { 3, 2, "1d", 3, F16, false }, { 2, 2, "sbp:replicated", 3, F64, false },
    };
    (void)state;
    assert_int_equal(sbp_schemes_add(&err), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].dp * cases[i].tp != test_size) continue;
        struct plan p = split_plan(cases[i].dp, cases[i].tp, cases[i].tensor, cases[i].tiles);
        if (cases[i].llama) case_take_llama(&p);
        if (cases[i].dp == 1) p.data.offload = W | G | O;
        p.dtype = cases[i].dtype;
        if (p.dtype == F16) p.loss_scale = 1024;
        check(&p);
    }
}

/* As many tiles as a matrix has outputs: each is a row. */
static void test_tiles_of_one_row(void **state)
{
    (void)state;
    if (test_size != 2) return;
    struct plan p = tiled_plan(2, 1, 18);
    case_take_llama(&p);                                                /* D=18, and uneven tiles of everything else */
    check(&p);
}

static void test_other_schemes(void **state)
{
    static const struct { int devices; const char *scheme; int group; } forms[] = {
        { 3, "fsdp", 0 }, { 4, "hpz", 2 }, { 4, "hsdp", 2 }, { 4, "mics", 2 }, { 4, "diloco", 2 }, { 8, "hpz", 4 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (forms[i].devices != test_size) continue;
        struct plan p = tiled_plan(test_size, 1, 3);
        const struct data_scheme *scheme;
        ASSERT_ALL(data_scheme_find(&scheme, forms[i].scheme, &err) == OK, "%s", err.text);
        case_take_data(&p, scheme);
        p.data.group = forms[i].group;
        check(&p);
    }
}

/* Passes in other orders; forward passes alone. */
static void test_schedules(void **state)
{
    static const char *const schedules[] = { "zb-h1", "chimera", "gpipe" };
    (void)state;
    if (test_size == 2) {
        struct plan p = tiled_plan(2, 1, 3);
        case_take_mezo(&p, 2);
        check(&p);
    }
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules && test_size == 4; i++) {
        struct plan p = tiled_plan(2, 2, 2);
        p.data.no_prefetch = i == 2;
        ASSERT_ALL(case_take_schedule(&p, schedules[i], &err) == OK, "%s", err.text);
        check(&p);
    }
}

/* In 16 bits the sums over tiles are rounded once. */
static void test_formats(void **state)
{
    (void)state;
    if (test_size != 2) return;
    for (enum dtype t = F32; t < DTYPE_COUNT; t++) {
        if (t != F32 && t != BF16 && t != F16) continue;
        struct plan p = tiled_plan(2, 1, 9);
        p.dtype = t;
        p.data.narrow_gradients = t == F16;
        if (t == F16) p.loss_scale = 1024;
        check(&p);
    }
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* A GPT-2 whose extents are powers of two: BLAS kernels add all elements of its fp64 products
 * alike, whatever the width. */
static struct plan even_plan(const char *scheme, int tiles)
{
    struct plan p = case_plan(test_size, 1, 1);
    p.model.D = 128, p.model.H = p.model.K = 4, p.model.A = 32, p.model.F = 512, p.model.L = 3, p.model.V = 256;
    p.model.tied = false;
    p.data.scheme = scheme;
    p.data.tiles = tiles;
    p.B = 4 * test_size, p.S = 8, p.micros = 1;
    return p;
}

static void test_forward_has_the_bits_of_whole_layers(void **state)
{
    struct step_result whole, tiled;
    uint64_t hash;
    (void)state;
    if (test_size != 2) return;
    struct plan p = even_plan("zero3", 1), q = even_plan("zero3", 2);
    ASSERT_ALL(plan_check(&p, &err) == OK && plan_check(&q, &err) == OK, "%s", err.text);
    ASSERT_ALL(case_train(&p, 1, &hash, &whole, &err) == OK && case_train(&q, 1, &hash, &tiled, &err) == OK, "%s",
               err.text);
    ASSERT_ALL(tiled.loss == whole.loss, "loss %.17g in tiles, %.17g without", tiled.loss, whole.loss);
}

/* Where numbers lie, and when they are gathered, changes none of them. */
static void test_moving_tiles_permutes(void **state)
{
    struct plan p;
    (void)state;
    if (test_size != 3) return;
    p = tiled_plan(3, 1, 4);
    const uint64_t plain = check(&p).whole_hash;
    p.data.no_prefetch = true;
    const uint64_t late = check(&p).whole_hash;
    p.data.no_prefetch = false, p.data.offload = W | G | O, p.data.offload_to = temporary_folder();
    const uint64_t offloaded = check(&p).whole_hash;
    ASSERT_ALL(test_rank != 0 || (late == plain && offloaded == plain), "tiles end with other bits %s",
               late == plain ? "when offloaded" : "without prefetching");
}

/* ---- memory and traffic ------------------------------------------------------------------------------------------ */

static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within)
{
    (void)within;
    const struct plan *p = context;
    for (int64_t i = 0; i < count * p->S; i++) {
        ids[i] = (int32_t)((first * p->S + i) * 7 % p->model.V);
        labels[i] = (int32_t)((ids[i] + step + 1) % p->model.V);
    }
}

static void train_a_step(struct session *s, struct plan *p)
{
    session_open(s, p, (struct batch_source){ fill, p });
    session_step(s);
}

/* Elements of a layer of even_plan: its matrices; its norms and biases. */
static uint64_t matrices(const struct model_config *c) { return (uint64_t)(4 * c->D * c->D + 2 * c->D * c->F); }
static uint64_t vectors(const struct model_config *c) { return (uint64_t)(9 * c->D + c->F); }

/* Of weights a shard of everything, and two layers, or two tiles of the widest matrix [F,D] and the vectors of its
 * layer; of gradients a shard of everything, and a layer, or a tile and the vectors.  Nothing is padded:
 * everything divides. */
static void test_what_is_whole_falls_with_the_tiles(void **state)
{
    (void)state;
    for (int T = 1; T <= 8 && (test_size == 2 || test_size == 4); T *= 2) {
        struct session s;
        struct plan p = even_plan("zero3", T);
        const struct model_config *c = &p.model;
        const uint64_t tile = (uint64_t)(c->D * c->F / T), layer = matrices(c) + vectors(c),
                       shard = (uint64_t)(model_elements(c) / test_size);
        const uint64_t weights = shard + (T == 1 ? 2 * layer : 2 * tile + vectors(c)),
                       gradients = shard + (T == 1 ? layer : tile + vectors(c));
        train_a_step(&s, &p);
        const uint64_t *peak = s.device.arena.peak.tag, each = dtype_size(F64);
        ASSERT_ALL(peak[PARAMETERS] == weights * each && peak[GRADIENTS] == gradients * each,
                   "%d tiles: %llu bytes of weights, %llu of gradients, want %llu and %llu", T,
                   (unsigned long long)peak[PARAMETERS], (unsigned long long)peak[GRADIENTS],
                   (unsigned long long)(weights * each), (unsigned long long)(gradients * each));
        session_close(&s);
    }
}

/* Forward and backward gather everything but the embedding twice; whole layers spare the loss's second time.  To
 * recompute a layer in tiles takes its matrices but the last once more. */
static void test_what_is_gathered_again(void **state)
{
    (void)state;
    for (int i = 0; i < 4 && (test_size == 2 || test_size == 3); i++) {
        struct session s;
        const bool tiled = i & 1, again = i & 2;
        struct plan p = even_plan("zero3", tiled ? 4 : 1);
        /* for three devices as well */
        p.model.D = 192, p.model.F = 768, p.model.H = p.model.K = 6, p.model.V = 384, p.model.S = 9;
        p.recompute = again ? "full" : "none";
        const struct model_config *c = &p.model;
        const uint64_t n = (uint64_t)model_elements(c), L = (uint64_t)c->L, P = (uint64_t)test_size,
                       head = (uint64_t)(c->V * c->D);
        uint64_t elements = 2 * n + L * (matrices(c) + vectors(c));                   /* forward, gradients; backward */
        if (tiled) elements += head + (again ? L * (matrices(c) - (uint64_t)(c->D * c->F)) : 0);
        train_a_step(&s, &p);
        uint64_t sent = 0;
        for (int op = 0; op < CONTROL; op++) sent += s.comm.counted.of[TRAFFIC_DATA].of[op].bytes_sent;
        ASSERT_ALL(sent == elements / P * (P - 1) * dtype_size(F64),
                   "tiled %d, recomputing %d: %llu bytes sent, want %llu", tiled, again, (unsigned long long)sent,
                   (unsigned long long)(elements / P * (P - 1) * dtype_size(F64)));
        session_close(&s);
    }
}

/* Of a matrix whose outputs do not divide, tiles differ by a row, follow each other and make up the whole. */
static void test_layout_of_tiles(void **state)
{
    (void)state;
    if (test_size != 1) return;
    for (int T = 1; T <= 11; T++) {
        struct layout l = layout_none(2, (int64_t[]){ 20, 3 });
        layout_add(&l, 0, 1, 7), layout_add(&l, 0, 12, 4);              /* two boxes, stacked */
        int64_t at = 0;
        for (int t = 0; t < T; t++) {
            const struct layout tile = tile_layout(&l, T, t);
            ASSERT_ALL(layout_rows(&tile) == 11 / T || layout_rows(&tile) == 11 / T + 1, "tile %d of %d has %lld rows",
                       t, T, (long long)layout_rows(&tile));
            for (int b = 0; b < tile.boxes; b++)
                for (int64_t r = 0; r < tile.box[b].extent[0]; r++, at++)
                    ASSERT_ALL(tile.box[b].start[0] + r == (at < 7 ? 1 + at : 5 + at), "row %lld of the tiles is %lld",
                               (long long)at, (long long)(tile.box[b].start[0] + r));
        }
        ASSERT_ALL(at == 11, "%d tiles have %lld rows", T, (long long)at);
    }
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void refused(struct plan p, const char *why)
{
    ASSERT_ALL(plan_check(&p, &err) == ERR_PLAN && strncmp(err.text, why, strlen(why)) == 0, "want \"%s\", got \"%s\"",
               why, err.text);
}

static void test_refusals(void **state)
{
    (void)state;
    if (test_size != 4) return;
    struct plan p = tiled_plan(4, 1, 4);
    p.data.scheme = "zero2", refused(p, "--tiles 4: --data-parallel zero2 with --dp 4 gathers no weights before use");
    p = tiled_plan(4, 1, 28), refused(p, "--tiles 28: h.0.attn.c_proj.weight has 27 outputs");
    p = tiled_plan(4, 1, 4), p.data.keep = true, refused(p, "--tiles 4: --reshard-after-forward no");
    p = tiled_plan(4, 1, 4), p.data.quantise_weights = (struct block_format){ 8, 64 },
    refused(p, "--tiles 4: quantisation blocks of --quantize-weights int8");
    p = split_plan(1, 4, "2d", 4), refused(p, "--tiles 4: --tensor 2d uses a matrix several times in one product");
    p = split_plan(1, 4, "1d", 4), p.data.offload = W, case_take_llama(&p);
    refused(p, "--tiles 4: with --tp 4 with 3 key/value heads devices add up gradients of copied heads");
    p = split_plan(2, 2, "1d", 31), refused(p, "--tiles 31: wte.weight has 30 outputs to be cut on a device");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_agrees_with_one_device),
        MPI_TEST(test_with_tensor_schemes),
        MPI_TEST(test_tiles_of_one_row),
        MPI_TEST(test_other_schemes),
        MPI_TEST(test_schedules),
        MPI_TEST(test_formats),
        MPI_TEST(test_forward_has_the_bits_of_whole_layers),
        MPI_TEST(test_moving_tiles_permutes),
        MPI_TEST(test_what_is_whole_falls_with_the_tiles),
        MPI_TEST(test_what_is_gathered_again),
        MPI_TEST(test_layout_of_tiles),
        MPI_TEST(test_refusals),
    };
    return MPI_RUN("tiles", tests);
}
