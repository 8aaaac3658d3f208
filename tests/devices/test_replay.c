/* Every operation held to its own rounding: clean runs in every format raise no alarm, errors are found at their place.
 * Golden files themselves are right, too.  Other models: test_replay_models.c.
 */
#include "ref/model/params.h"
#include "tests/devices/replaying.h"
#include "tests/tier.h"
#include <glob.h>

static const char *const files[] = { "golden/gpt2-tied.safetensors", "golden/llama-grouped.safetensors",
                                     "golden/gptj-partial.safetensors", "golden/qwen2-grouped.safetensors" };
static const enum dtype formats[] = { F64, F32, BF16, F16 };
enum { FILES = sizeof files / sizeof *files, FORMATS = sizeof formats / sizeof *formats };

static void open_dump(struct dump *d, const char *path, enum dtype t) { open_changed(d, path, NULL, t); }

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void clean_runs_are_right(void **state)
{
    (void)state;
    for (int f = 0; f < FILES; f++)
        for (int t = 0; t < FORMATS; t++) {
            struct dump d;
            open_dump(&d, files[f], formats[t]);
            expect_clean(&d, "as it is");
            close_dump(&d);
        }
}

/* Products in a random order of terms, in parts that are added; each part is stored if `store`. */
static struct { int parts; bool store; uint32_t drawn; } products;

static uint32_t draw(void)
{
    const uint32_t counter[4] = { products.drawn++, 0, 0, 0 }, key[2] = { 3, 5 };
    uint32_t word[4];
    philox4x32(counter, key, word);
    return word[0];
}

static double narrow(double x, enum dtype t)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, t, 1);
    tensor_set(one, 0, x);
    return tensor_get(one, 0);
}

/* The sum over k < n of a[k stride_a] b[k stride_b]. */
static double product(struct tensor A, int64_t a, int64_t stride_a, struct tensor B, int64_t b, int64_t stride_b,
                      int64_t n)
{
    const enum dtype wide = dtype_wide(A.dtype);
    double all = 0;
    for (int p = 0; p < products.parts; p++) {
        const int64_t from = n * p / products.parts, size = n * (p + 1) / products.parts - from;
        const int64_t first = size ? draw() % size : 0, step = draw() % 2 ? 1 : size - 1;
        double part = 0;
        for (int64_t i = 0; i < size; i++) {
            const int64_t k = from + (first + i * step) % size;
            part = narrow(part + tensor_get(A, a + k * stride_a) * tensor_get(B, b + k * stride_b), wide);
        }
        all = narrow(all + (products.store ? narrow(part, A.dtype) : part), products.store ? A.dtype : wide);
    }
    return all;
}

static void other_forward(struct tensor Y, struct tensor X, struct tensor W, struct tensor b)
{
    const int64_t O = tensor_cols(Y), I = tensor_cols(X);
    for (int64_t i = 0; i < tensor_count(Y); i++)
        tensor_set(Y, i, product(X, i / O * I, 1, W, i % O * I, 1, I) +
                             (tensor_present(b) ? tensor_get(b, i % O) : 0));
}

static void other_input(struct tensor dX, struct tensor dY, struct tensor W)
{
    const int64_t O = tensor_cols(dY), I = tensor_cols(dX);
    for (int64_t i = 0; i < tensor_count(dX); i++)
        tensor_set(dX, i, product(dY, i / I * O, 1, W, i % I, I, O));
}

static void other_weight(struct tensor dW, struct tensor db, struct tensor dY, struct tensor X)
{
    const int64_t O = tensor_cols(dY), I = tensor_cols(X), N = tensor_rows(X);
    for (int64_t i = 0; i < tensor_count(dW); i++)
        tensor_set(dW, i, tensor_get(dW, i) + product(dY, i / I, O, X, i % I, I, N));
    for (int64_t o = 0; tensor_present(db) && o < O; o++) {
        double sum = tensor_get(db, o);
        for (int64_t n = N - 1; n >= 0; n--) sum = narrow(sum + tensor_get(dY, n * O + o), db.dtype);
        tensor_set(db, o, sum);
    }
}

/* Other orders of addition and split sums change what BLAS computes, but are no errors. */
static void other_orders_are_right(void **state)
{
    (void)state;
    for (int f = 0; f < FILES; f++)
        for (int t = 0; t < FORMATS; t++)
            for (int parts = 1; parts <= 3; parts++) {
                struct dump d;
                char what[64];
                if (f > 0 && (parts < 3 || formats[t] == F16) && tier_now() != TIER_VERIFY) continue;
                open_dump(&d, files[f], formats[t]);
                d.ops = *d.model.ops;
                d.ops.linear_forward = other_forward, d.ops.linear_backward_input = other_input;
                d.ops.linear_backward_weight = other_weight;
                d.model.ops = &d.ops;
                products.parts = parts, products.store = parts == 3;
                d.parts = products.store ? parts : 1;
                snprintf(what, sizeof what, "parts: %d%s", parts, products.store ? ", stored" : "");
                expect_clean(&d, what);
                close_dump(&d);
            }
}

/* A sequence, or a row, at a time is as good as all at once: of right runs, and of one with a wrong row. */
static void tiles_change_nothing(void **state)
{
    (void)state;
    for (int f = 0; f < FILES; f++)
        for (int t = 0; t < FORMATS; t++)
            for (int wrong = 0; wrong < 2; wrong++) {
                struct dump d;
                if (formats[t] == F16 && tier_now() != TIER_VERIFY) continue;
                open_dump(&d, files[f], formats[t]);
                assert_true(d.golden.B > 1);
                if (wrong) d.target[0] = "act/h.0.mlp.up", d.error = ONE_ROW;
                run(&d);
                const struct said whole = say(&d, 0), tiles = say(&d, 1);
                expect_same(&d, &whole, &tiles);
                if (d.whole > 0)
                    fail_msg("%s: %d activations are read whole, %d operations are wrong", d.golden.file.path,
                             d.whole, tiles.wrong);
                assert_int_equal(whole.wrong > 0, wrong);
                close_dump(&d);
            }
}

static void widen(struct model_config *c) { c->V *= 12, c->F *= 8; }

/* The most bytes of matrices at once, of a batch that is so many times as large. */
static int64_t most_of(const char *file, void (*change)(struct model_config *), int times, int64_t tile, int64_t *whole)
{
    struct dump d;
    open_changed(&d, file, change, F32);
    struct golden *g = &d.golden;
    const int64_t n = g->B * g->S;
    g->ids = realloc(g->ids, (size_t)(times * n) * sizeof *g->ids);
    g->labels = realloc(g->labels, (size_t)(times * n) * sizeof *g->labels);
    assert_true(g->ids && g->labels);
    for (int64_t i = n; i < times * n; i++) g->ids[i] = g->ids[i % n], g->labels[i] = g->labels[i % n];
    g->B *= times;
    run(&d);
    const struct said said = say(&d, tile);
    assert_int_equal(said.wrong + said.lacking, 0);
    const int64_t most = d.most;
    say(&d, 0);
    *whole = d.most;
    close_dump(&d);
    return most;
}

/* Sixteen tiles, whatever the batch, the vocabulary and the width of the feed-forward network; as a whole it is ten
 * times that. */
static void memory_grows_with_neither_batch_nor_matrices(void **state)
{
    static const char *const models[] = { "golden/gpt2-tied.safetensors", "golden/llama-grouped.safetensors",
                                          "golden/mixtral-top2.safetensors" };
    enum { TILE = 4096, BOUND = 16 * TILE * 8 };
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        int64_t whole;
        const int64_t small = most_of(models[i], NULL, 1, TILE, &whole),
                      large = most_of(models[i], widen, 8, TILE, &whole);
        print_message("%s: %lld bytes, of 8 batches and wider matrices %lld, as a whole %lld\n", models[i],
                      (long long)small, (long long)large, (long long)whole);
        if (small > BOUND || large > BOUND)
            fail_msg("%s: %lld bytes at once, of 8 batches and wider matrices %lld; the bound is %d", models[i],
                     (long long)small, (long long)large, BOUND);
        assert_true(whole > 10 * BOUND);
    }
}

/* A norm that stores what it computes, and the statistics of each row: mean, variance, the sum with eps, root. */
static void stored_layernorm(struct tensor Y, struct tensor mean, struct tensor rstd, struct tensor X, struct tensor w,
                             double base, struct tensor b, double eps)
{
    const int64_t D = tensor_cols(X);
    const enum dtype t = X.dtype;
    for (int64_t n = 0; n < tensor_rows(X); n++) {
        double sum = 0, squares = 0;
        for (int64_t d = 0; d < D; d++) sum += tensor_get(X, n * D + d);
        const double m = narrow(sum / (double)D, t);
        for (int64_t d = 0; d < D; d++) squares += pow(tensor_get(X, n * D + d) - m, 2);
        const double r = narrow(1 / sqrt(narrow(narrow(squares / (double)D, t) + eps, t)), t);
        for (int64_t d = 0; d < D; d++) {
            const double xhat = narrow(narrow(tensor_get(X, n * D + d) - m, t) * r, t);
            tensor_set(Y, n * D + d, narrow(xhat * (base + tensor_get(w, d)), t) + tensor_get(b, d));
        }
        tensor_set(mean, n, m), tensor_set(rstd, n, r);
    }
}

/* Embeddings are moved away from 0, so that means are as large as what is left of a row. */
static void use_stored_norms(struct dump *d)
{
    d->ops = *d->model.ops, d->ops.layernorm_forward = stored_layernorm, d->model.ops = &d->ops;
    for (int64_t k = 0; k < tensor_count(d->model.w[PARAM_WTE]); k++)
        tensor_set(d->model.w[PARAM_WTE], k, tensor_get(d->model.w[PARAM_WTE], k) + 1);
}

static void stored_statistics_are_as_declared(void **state)
{
    (void)state;
    for (int t = 2; t < FORMATS; t++)
        for (int declared = 0; declared < 2; declared++) {
            struct dump d;
            open_dump(&d, files[0], formats[t]);
            use_stored_norms(&d);
            d.stored_norms = declared;
            run(&d), check(&d);
            if (declared && d.wrong) fail_msg("%s: %s is wrong", dtype_name(d.format), d.first.name);
            if (declared) assert_true(d.stepwise > 0);
            if (!declared && d.wrong == 0) fail_msg("%s: stored statistics are right", dtype_name(d.format));
            if (!declared && strstr(d.first.mistake, "the statistics of its rows are rounded") == NULL)
                fail_msg("%s: %s is wrong, \"%s\"", dtype_name(d.format), d.first.name, d.first.mistake);
            close_dump(&d);
        }
}

static void a_factor_is_found(void **state)
{
    static char name[MOST][SINGLE_NAME];
    (void)state;
    for (int f = 0; f < FILES; f++)
        for (int t = 1; t < FORMATS; t++) {
            struct dump d;
            char text[200];
            if (f > 0 && formats[t] != BF16 && tier_now() != TIER_VERIFY) continue;
            open_dump(&d, files[f], formats[t]);
            const int n = names_of(&d, name);
            for (int i = 0; i < n; i++) {
                if (!is_found(&d, name[i], TIMES)) fail_msg("%s: %s times 1.1 is not found", files[f], name[i]);
                if (strstr(single_describe(&d.first, text, sizeof text), "expected times 1.") == NULL ||
                    fabs(d.first.factor - 1.1) > 0.005)
                    fail_msg("%s: %s times 1.1 is '%s'", files[f], name[i], text);
            }
            close_dump(&d);
        }
}

/* One element of median size, off by 2^-6 of itself in bf16: how many tensors of each file show it. */
static int elements_found(const char *path, bool fused, int *of)
{
    static char name[MOST][SINGLE_NAME];
    struct dump d;
    int found = 0;
    open_dump(&d, path, BF16);
    d.fused = fused;
    *of = names_of(&d, name);
    for (int i = 0; i < *of; i++) {
        const bool is = is_found(&d, name[i], ONE_ELEMENT);
        found += is;
        if (!is && fused) print_message("%s: one element of %s is not found\n", path, name[i]);
    }
    print_message("%s%s: one element is found in %d of %d tensors\n", path, fused ? ", fused" : "", found, *of);
    close_dump(&d);
    return found;
}

static void one_element_is_found(void **state)
{
    int of;
    (void)state;
    for (int f = 0; f < (tier_now() == TIER_VERIFY ? FILES : 2); f++) {
        const int found = elements_found(files[f], true, &of);
        assert_true(100 * found >= 95 * of);
        assert_true(100 * elements_found(files[f], false, &of) >= 65 * of);
    }
}

/* Where an error is, in words. */
static void the_place_is_named(void **state)
{
    static const struct { enum error_kind kind; const char *name, *words; } errors[] = {
        { ONE_ROW, "grad/h.1.ln_2", "only row 3 of 21" },
        { ONE_ROW, "act/h.0.mlp.up", "only row 3 of 21" },
        { ONE_HEAD, "act/h.1.attn.heads", "only head 0 of 9" },
        { ONE_HEAD, "grad/h.2.attn.rotated", "only head 0 of 15" },
        { HEAD_ROWS, "grad/model.layers.0.self_attn.qkv_proj.weight", "only head 0 of 15" },
        { ONE_HEAD, "grad/model.layers.1.self_attn.o_proj.weight", "only head 0 of 9" },
        { ONE_ELEMENT, "act/h.2.attn.out", "only the element in row " },
        { ZEROS, "grad/h.1.attn.heads", "all of it is zero" },
        { SHIFTED, "grad/lm_head.weight", " of 1098 elements outside the bound" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct dump d;
        char text[200];
        open_dump(&d, "golden/llama-grouped.safetensors", BF16);
        if (!is_found(&d, errors[i].name, errors[i].kind)) fail_msg("%s: no error is found", errors[i].name);
        if (strstr(single_describe(&d.first, text, sizeof text), errors[i].words) == NULL)
            fail_msg("%s is '%s', not '%s'", errors[i].name, text, errors[i].words);
        close_dump(&d);
    }
}

/* Dropout of rate 0 makes nothing. */
static void makers_are_named(void **state)
{
    static const struct { const char *name, *made_by; } of[] = {
        { "act/embedding", "the embedding" }, { "act/h.0.attn.out", "the product with its matrix" },
        { "grad/h.0.attn.out", "the sum, backward" },
        { "grad/embedding", "the backward pass of the norm for its input" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct dump d;
        open_dump(&d, files[0], F32);
        assert_true(is_found(&d, of[i].name, TIMES));
        assert_string_equal(d.first.made_by, of[i].made_by);
        close_dump(&d);
    }
}

/* Of several independent errors each is found, and nothing else. */
static void all_errors_are_found(void **state)
{
    struct dump d;
    (void)state;
    open_dump(&d, files[0], BF16);
    d.target[0] = "act/h.0.mlp.up", d.target[1] = "grad/h.0.attn.out", d.error = TIMES;
    run(&d);
    check(&d);
    assert_int_equal(d.wrong, 2);
    assert_string_equal(d.first.name, d.target[0]);
    assert_string_equal(d.second.name, d.target[1]);
    close_dump(&d);
}

static void what_lacks_is_named(void **state)
{
    struct dump d;
    (void)state;
    open_dump(&d, files[0], F32);
    d.without = "act/h.0.ln_2";
    run(&d);
    check(&d);
    assert_int_equal(d.checked, d.count - 1);   /* what is not there is not checked */
    assert_int_equal(d.lacking, 2);             /* the product that reads it, forward and backward */
    assert_int_equal(d.wrong, 0);
    assert_string_equal(d.lacks.name, "act/h.0.mlp.up");
    assert_string_equal(d.lacks.lacks, "act/h.0.ln_2");
    close_dump(&d);
}

/* Sums in bf16 are wrong unless they are declared; a part that is stored is, too. */
static void sums_are_as_declared(void **state)
{
    struct dump d;
    (void)state;
    open_dump(&d, files[0], BF16);
    d.ops = *d.model.ops;
    d.ops.linear_forward = other_forward;
    d.model.ops = &d.ops;
    products.parts = 7, products.store = true;
    run(&d);
    check(&d);
    assert_true(d.wrong > 0);
    d.sums = BF16;
    check(&d);
    assert_int_equal(d.wrong, 0);
    d.sums = DTYPE_COUNT, d.parts = 7;
    check(&d);
    assert_int_equal(d.wrong, 0);
    close_dump(&d);
}

static enum error_code fetch_golden(void *context, const char *name, struct tensor out, enum single_found *found,
                                    struct error *err)
{
    const struct golden *g = &((struct dump *)context)->golden;
    *found = safetensors_find(&g->file, name) ? SINGLE_HAS : SINGLE_HAS_NOT;
    return *found == SINGLE_HAS ? golden_read(g, name, F64, tensor_count(out), out.data, err) : OK;
}

/* Of every model, what is recomputed agrees with an independent program. */
static void golden_files_are_right(void **state)
{
    glob_t all;
    int models = 0;
    (void)state;
    assert_int_equal(glob("golden/*.safetensors", 0, NULL, &all), 0);
    for (size_t i = 0; i < all.gl_pathc; i++) {
        static struct dump d;
        struct error err;
        d = (struct dump){ 0 };
        if (golden_open(&d.golden, all.gl_pathv[i], &err) != OK) continue;
        const struct golden *g = &d.golden;
        const struct single_batch batch = { g->ids, g->labels, g->B, g->S, golden_balance_micros(g), g->positions };
        if (replay_check(&g->config, batch, rounding_of(F64, F64, 1),
                         (struct single_source){ .explainer = &mistakes_explainer,
                                                 .fetch = fetch_golden, .found = found, .context = &d }, &err) != OK)
            fail_msg("%s: %s", all.gl_pathv[i], err.text);
        if (d.wrong || d.stepwise || d.lacking)
            fail_msg("%s: %d wrong, the first is %s, %g times its bound; %d by steps, %d lack an input",
                     all.gl_pathv[i], d.wrong, d.first.name, d.first.ratio, d.stepwise, d.lacking);
        print_message("%s: %d operations, of which %d are not recomputed; largest error/bound %.3g\n",
                      all.gl_pathv[i], d.checked, d.unknown, d.largest);
        models += d.checked > 0;
        golden_close(&d.golden);
    }
    assert_true(models >= 27);
    globfree(&all);
}

/* The result of an operation that is not in recompute/, and those that need it: all others are recomputed. */
static void what_is_not_recomputed_is_named(void **state)
{
    struct dump d;
    struct error err;
    (void)state;
    open_dump(&d, files[1], F64);
    run(&d);
    const struct golden *g = &d.golden;
    const int64_t N = g->B * g->S, D = g->config.D;
    struct single_slot slot[] = { { .name = "embedding", .rows = N, .cols = D, .maker = 0, .route = -1 },
                                  { .name = "ln_f", .rows = N, .cols = D, .maker = 1, .route = -1 } };
    struct single_node node[] = { { &single_embed, "", { -1, -1, -1 }, 0, .weight = PARAM_WTE, .bias = -1 },
                                  { NULL, "a new operation", { 0, -1, -1 }, 1, .weight = -1, .bias = -1 } };
    const struct single_graph graph = { slot, node, 2, 2 };
    if (single_check(&g->config, &graph,
                     (struct single_batch){ g->ids, g->labels, g->B, g->S, golden_balance_micros(g), g->positions },
                     rounding_of(F64, F64, 1),
                     (struct single_source){ .explainer = &mistakes_explainer,
                                             .fetch = fetch, .found = found, .context = &d }, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(d.checked, 5);             /* two tensors, the gradients of embedding and matrix, the norm */
    assert_int_equal(d.wrong + d.lacking, 0);
    assert_int_equal(d.unknown, 2);
    assert_string_equal(d.first_unknown.name, "act/ln_f");
    assert_string_equal(d.first_unknown.made_by, "a new operation");
    close_dump(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_runs_are_right),     cmocka_unit_test(other_orders_are_right),
        cmocka_unit_test(tiles_change_nothing),
        cmocka_unit_test(memory_grows_with_neither_batch_nor_matrices),
        cmocka_unit_test(a_factor_is_found),        cmocka_unit_test(one_element_is_found),
        cmocka_unit_test(the_place_is_named),       cmocka_unit_test(makers_are_named),
        cmocka_unit_test(all_errors_are_found),
        cmocka_unit_test(what_lacks_is_named),      cmocka_unit_test(sums_are_as_declared),
        cmocka_unit_test(stored_statistics_are_as_declared),
        cmocka_unit_test(golden_files_are_right),   cmocka_unit_test(what_is_not_recomputed_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
