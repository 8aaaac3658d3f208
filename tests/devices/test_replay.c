/* Every operation held to its own rounding: clean runs in every format raise no alarm, errors are found at their place.
 *
 * The program under test is the one-device model of a golden file's shape.  An observer keeps its tensors, and may make
 * an error in one of them, with which the program then goes on.  Golden files themselves are right, too.
 */
#include "emulated_devices/verify/replay.h"
#include "ref/golden/golden.h"
#include "ref/model/transformer.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/philox.h"
#include "ref/single/single.h"
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const files[] = { "golden/gpt2-tied.safetensors", "golden/llama-grouped.safetensors",
                                     "golden/gptj-partial.safetensors", "golden/qwen2-grouped.safetensors" };
static const enum dtype formats[] = { F64, F32, BF16, F16 };
enum { FILES = sizeof files / sizeof *files, FORMATS = sizeof formats / sizeof *formats, MOST = 256 };

/* ---- the program ------------------------------------------------------------------------------------------------- */

/* What to do to one tensor. */
enum error_kind { NO_ERROR, TIMES, ONE_ELEMENT, ONE_ROW, ONE_HEAD, ZEROS, SHIFTED };

struct kept { char name[SINGLE_NAME]; struct tensor values; };

/* A run, its tensors, and what was found in them. */
struct dump {
    struct golden golden;
    enum dtype format, sums;            /* sums: as declared to the check */
    int parts;
    bool fused;                         /* declared to the check */
    struct transformer model;
    struct ops ops;
    struct kept kept[MOST];
    int count;
    const char *target[2];              /* tensors with an error; NULL: none */
    enum error_kind error;
    const char *without;                /* a tensor that is not in the dump */
    int checked, stepwise, wrong, lacking, unknown;
    struct single_result first, second; /* wrong */
    struct single_result lacks, first_unknown;
    double largest;                     /* ratio */
};

static int by_size(const void *a, const void *b)
{
    const double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return (x > y) - (x < y);
}

/* The element whose size is the median of those that are not zero. */
static int64_t median_element(struct tensor t)
{
    const int64_t n = tensor_count(t);
    double *sorted = malloc((size_t)n * sizeof *sorted);
    int64_t left = 0, at = 0;
    assert_non_null(sorted);
    for (int64_t i = 0; i < n; i++)
        if (tensor_get(t, i) != 0) sorted[left++] = tensor_get(t, i);
    assert_true(left > 0);
    qsort(sorted, (size_t)left, sizeof *sorted, by_size);
    while (tensor_get(t, at) != sorted[left / 2]) at++;
    free(sorted);
    return at;
}

static void make_error(enum error_kind kind, struct tensor t)
{
    const int64_t n = tensor_count(t), cols = tensor_cols(t), median = median_element(t);
    for (int64_t i = 0; i < n; i++) {
        double x = tensor_get(t, i);
        if (kind == TIMES) x *= 1.1;
        if (kind == ONE_ELEMENT && i == median) x *= 1 + 0x1p-6;
        if (kind == ONE_ROW && i / cols == 3) x *= 1.25;
        if (kind == ONE_HEAD && i % cols < 2) x *= 1.5;
        if (kind == ZEROS) x = 0;
        if (kind == SHIFTED && i + cols < n) x = tensor_get(t, i + cols);
        tensor_set(t, i, x);
    }
}

/* Names as in golden files: a tensor inside a block has its layer as an argument, a parameter in its name. */
static void see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct dump *d = context;
    const bool parameter = strstr(name, ".weight") || strstr(name, ".bias"),
               in_block = layer >= 0 && layer < d->model.config.L && !parameter;
    struct kept *k = &d->kept[d->count++];
    (void)terms;
    assert_true(d->count < MOST);
    if (in_block) snprintf(k->name, sizeof k->name, "%s/h.%d.%s", gradient ? "grad" : "act", layer, name);
    else snprintf(k->name, sizeof k->name, "%s/%s", gradient ? "grad" : "act", name);
    for (int i = 0; i < 2; i++)
        if (d->target[i] && strcmp(d->target[i], k->name) == 0) make_error(d->error, t);
    k->values = t;
    k->values.dtype = F64;
    k->values.data = malloc((size_t)tensor_count(t) * sizeof(double));
    assert_non_null(k->values.data);
    for (int64_t i = 0; i < tensor_count(t); i++)
        tensor_set(k->values, i, tensor_get(t, i) / (gradient ? d->model.loss_scale : 1));
}

static void open_dump(struct dump *d, const char *path, enum dtype t)
{
    struct error err;
    *d = (struct dump){ .format = t, .sums = DTYPE_COUNT, .parts = 1 };
    if (golden_open(&d->golden, path, &err) != OK) fail_msg("%s", err.text);
    if (transformer_open(&d->model, &d->golden.config, t, 1, &err) != OK) fail_msg("%s", err.text);
    if (dtype_wide(t) != t && transformer_keep_gradients_in(&d->model, dtype_wide(t), &err) != OK)
        fail_msg("%s", err.text);
    if (t == F16) d->model.loss_scale = 1024;
    d->model.observer = (struct observer){ see, d };
}

static void forget(struct dump *d)
{
    while (d->count > 0) free(d->kept[--d->count].values.data);
}

static void close_dump(struct dump *d)
{
    forget(d);
    transformer_close(&d->model);
    golden_close(&d->golden);
}

static void run(struct dump *d)
{
    struct error err;
    double loss;
    forget(d);
    transformer_zero_gradients(&d->model);
    if (transformer_forward(&d->model, d->golden.ids, d->golden.labels, d->golden.B, d->golden.S, &loss, &err) != OK)
        fail_msg("%s", err.text);
    transformer_backward(&d->model);
    const double number[2] = { loss, transformer_gradient_norm(&d->model) / d->model.loss_scale };
    for (int i = 0; i < 2; i++) {
        struct kept *k = &d->kept[d->count++];
        snprintf(k->name, sizeof k->name, "%s", i ? "norm" : "loss");
        k->values = tensor_1d(malloc(sizeof(double)), F64, 1);
        assert_non_null(k->values.data);
        tensor_set(k->values, 0, number[i]);
    }
}

/* ---- the check --------------------------------------------------------------------------------------------------- */

static enum error_code fetch(void *context, const char *name, struct tensor out, enum single_found *found,
                             struct error *err)
{
    struct dump *d = context;
    const struct tensor *have = NULL;
    (void)err;
    *found = SINGLE_HAS_NOT;
    if (d->without && strcmp(d->without, name) == 0) return OK;
    for (int i = 0; i < d->count; i++)
        if (strcmp(name, d->kept[i].name) == 0) have = &d->kept[i].values;
    for (int i = 0; have == NULL && i < d->model.params; i++)
        if (strncmp(name, "start/", 6) == 0 && strcmp(name + 6, d->model.spec[i].name) == 0) have = &d->model.w[i];
    if (have == NULL) return OK;
    assert_int_equal(tensor_count(*have), tensor_count(out));
    tensor_convert(out, *have);
    *found = SINGLE_HAS;
    return OK;
}

static void found(void *context, const struct single_result *r)
{
    struct dump *d = context;
    d->checked++;
    d->stepwise += r->verdict == SINGLE_STEPWISE, d->wrong += r->verdict == SINGLE_WRONG;
    if (r->verdict == SINGLE_LACKS && d->lacking++ == 0) d->lacks = *r;
    if (r->verdict == SINGLE_UNKNOWN && d->unknown++ == 0) d->first_unknown = *r;
    if (r->verdict == SINGLE_WRONG && d->wrong == 1) d->first = *r;
    if (r->verdict == SINGLE_WRONG && d->wrong == 2) d->second = *r;
    d->largest = fmax(d->largest, r->ratio);
}

static void check(struct dump *d)
{
    const struct golden *g = &d->golden;
    const struct single_batch batch = { g->ids, g->labels, g->B, g->S };
    struct error err;
    d->checked = d->stepwise = d->wrong = d->lacking = d->unknown = 0, d->largest = 0;
    const struct single_source source = { fetch, found, d };
    struct rounding rounding = rounding_of(d->format, d->sums, d->parts);
    rounding.fused = d->fused;
    if (replay_check(&g->config, batch, rounding, source, &err) != OK)
        fail_msg("%s", err.text);
}

static void expect_clean(struct dump *d, const char *what)
{
    run(d);
    check(d);
    print_message("%s in %s, %s: %d operations, largest error/bound %.3g, %d only by steps\n", d->golden.file.path,
                  dtype_name(d->format), what, d->checked, d->largest, d->stepwise);
    if (d->wrong)
        fail_msg("%s in %s, %s: %s, %g times its bound", d->golden.file.path, dtype_name(d->format), what,
                 d->first.name, d->first.ratio);
    assert_int_equal(d->checked, d->count);     /* every result of the pass */
    assert_int_equal(d->lacking + d->unknown, 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void clean_runs_are_right(void **state)
{
    (void)state;
    for (int f = 0; f < FILES; f++)
        for (int t = 0; t < FORMATS; t++) {
            struct dump d;
            open_dump(&d, files[f], formats[t]);
            expect_clean(&d, "as it is");
            assert_int_equal(d.stepwise, 0);
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

/* The names of a clean run's results. */
static int names_of(struct dump *d, char name[][SINGLE_NAME])
{
    run(d);
    for (int i = 0; i < d->count; i++) memcpy(name[i], d->kept[i].name, sizeof *name);
    return d->count - 2;                /* without loss and norm, which no observer sees */
}

/* An error in one result: no other operation is wrong, although all that follow have other numbers.
 *  @return whether it was found. */
static bool is_found(struct dump *d, const char *name, enum error_kind kind)
{
    d->target[0] = name, d->error = kind;
    run(d);
    check(d);
    if (d->wrong > 1 || (d->wrong == 1 && strcmp(d->first.name, name) != 0))
        fail_msg("error %d in %s: %d are wrong, the first is %s", kind, name, d->wrong, d->first.name);
    return d->wrong == 1;
}

static void a_factor_is_found(void **state)
{
    static char name[MOST][SINGLE_NAME];
    (void)state;
    for (int f = 0; f < FILES; f++)
        for (int t = 1; t < FORMATS; t++) {
            struct dump d;
            char text[200];
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
    for (int f = 0; f < FILES; f++) {
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
        const struct single_batch batch = { g->ids, g->labels, g->B, g->S };
        if (replay_check(&g->config, batch, rounding_of(F64, F64, 1),
                         (struct single_source){ fetch_golden, found, &d }, &err) != OK)
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

/* The results of an operation without an entry, and those that need it: all others are recomputed. */
static void what_is_not_recomputed_is_named(void **state)
{
    struct dump d;
    (void)state;
    open_dump(&d, files[0], F64);
    run(&d);
    d.golden.config.dropout_residual = 0.1;
    check(&d);
    assert_int_equal(d.checked, d.count);
    assert_int_equal(d.wrong + d.lacking, 0);
    assert_int_equal(d.unknown, 4 * 2);         /* the sums, and the gradients of what is dropped */
    assert_string_equal(d.first_unknown.name, "act/h.0.mid");
    assert_string_equal(d.first_unknown.made_by, "dropout in attn.dropped");
    close_dump(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_runs_are_right),     cmocka_unit_test(other_orders_are_right),
        cmocka_unit_test(a_factor_is_found),        cmocka_unit_test(one_element_is_found),
        cmocka_unit_test(the_place_is_named),       cmocka_unit_test(all_errors_are_found),
        cmocka_unit_test(what_lacks_is_named),      cmocka_unit_test(sums_are_as_declared),
        cmocka_unit_test(golden_files_are_right),   cmocka_unit_test(what_is_not_recomputed_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
