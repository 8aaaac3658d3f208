/* GaLore with moments as 8-bit codes: table, codes and steps compared with the released code
 * (golden/make_galore_codes.py).  Where a projected matrix starts from the stored R and P, codes and factors of moments
 * must be equal bit for bit; weights, to the rounding of a product.
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/numeric/dynamic_code.h"
#include "ref/optim/table.h"
#include "tests/ref/test_ops.h"

static struct safetensors file;

static double number(const char *key)
{
    const char *text = safetensors_metadata(&file, key);
    if (text == NULL) fail_msg("%s: no %s", file.path, key);
    return strtod(text, NULL);
}

static struct tensor stored(const char *which, const char *what, int64_t t)
{
    char name[64];
    struct error err;
    snprintf(name, sizeof name, t ? "%s%s.%lld" : "%s%s", which, what, (long long)t);
    const struct safetensors_entry *e = safetensors_find(&file, name);
    if (e == NULL) fail_msg("%s: no %s", file.path, name);
    struct tensor x = e->ndim == 2 ? matrix(F32, e->dim[0], e->dim[1]) : vector(F32, e->dim[0]);
    const bool codes = strcmp(e->dtype, "U8") == 0;
    uint8_t *bytes = malloc((size_t)tensor_count(x));
    assert_non_null(bytes);
    if (safetensors_read(&file, e, codes ? U8 : F32, codes ? bytes : x.data, &err) != OK) fail_msg("%s", err.text);
    for (int64_t i = 0; codes && i < tensor_count(x); i++) tensor_set(x, i, bytes[i]);
    free(bytes);
    return x;
}

static bool has(const char *which, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s.1", which, what);
    return safetensors_find(&file, name) != NULL;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void tables_are_the_released_ones(void **unused)
{
    (void)unused;
    for (int has_signs = 0; has_signs < 2; has_signs++) {
        const struct dynamic_table t = dynamic_table_of(has_signs);
        const struct tensor want = stored(has_signs ? "signed" : "unsigned", "", 0);
        assert_int_equal(tensor_count(want), DYNAMIC_CODES);
        for (int c = 0; c < DYNAMIC_CODES; c++)
            if (t.value[c] != (float)tensor_get(want, c))
                fail_msg("%s table, code %d: %.9g, the released one has %.9g", has_signs ? "signed" : "unsigned", c,
                         (double)t.value[c], tensor_get(want, c));
    }
    check_guards_and_free();
}

static void expect_code(const struct dynamic_table *t, const char *what, double x, int want)
{
    const int got = dynamic_code(t, x, x);
    if (got != want) fail_msg("%s, %.9g: code %d, expected %d", what, x, got, want);
}

/* A value has its own code, its neighbours in fp32 too; half way the even code; no number loses its sign. */
static void a_number_has_the_nearest_code(void **unused)
{
    const struct dynamic_table signs = dynamic_table_of(true), none = dynamic_table_of(false);
    (void)unused;
    for (int c = 0; c < DYNAMIC_CODES; c++) {
        expect_code(&none, "a value", none.value[c], c);
        expect_code(&signs, "a value", signs.value[c], c);
        if (c + 1 == DYNAMIC_CODES) break;
        const float middle = none.middle[c];
        expect_code(&none, "half way", middle, c % 2 ? c + 1 : c);
        expect_code(&none, "below half way", nextafterf(middle, 0), c);
        expect_code(&none, "above half way", nextafterf(middle, 1), c + 1);
    }
    expect_code(&signs, "the least number", -1, 0);
    expect_code(&signs, "a small negative number", -1e-9, 126);
    expect_code(&signs, "a small number", 1e-9, 127);
    assert_int_equal(dynamic_code(&signs, 0, NAN), 255);
    assert_int_equal(dynamic_code(&none, 0, NAN), 0);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static struct hyperparameters numbers(void)
{
    struct hyperparameters h = { .lr = number("lr"), .beta1 = number("beta1"), .beta2 = number("beta2"),
                                 .eps = number("eps"), .rank = (int64_t)number("rank"),
                                 .refresh = (int64_t)number("refresh"), .galore_scale = number("galore_scale") };
    struct error err;
    if (conventions_parse(&h.as, "galore-torch,states=8-bit", &err) != OK) fail_msg("%s", err.text);
    return h;
}

/* A code, a factor or, where a tensor has no codes, a number: what is held, and what is stored. */
static void expect_held(const char *which, const char *what, int k, int64_t t, int64_t i, double got, double want)
{
    if (got != want)
        fail_msg("%s: moment %d after step %lld, %s %lld is %.9g; the released code has %.9g", which, k + 1,
                 (long long)t, what, (long long)i, got, want);
}

/* Byte by byte: codes and factors, and no more than these. */
static void expect_moment(const char *which, int k, int64_t t, struct tensor got)
{
    const bool codes = has(which, ".absmax1");
    const struct tensor state = stored(which, k ? ".state2" : ".state1", t);
    const struct tensor most = codes ? stored(which, k ? ".absmax2" : ".absmax1", t) : tensor_none;
    const int64_t n = tensor_count(state), blocks = tensor_count(most), from = (n + 7) / 8 * 8;
    const uint8_t *const byte = got.data;
    assert_int_equal(got.dtype, U8);
    assert_int_equal(tensor_bytes(got), codes ? from + (4 * blocks + 7) / 8 * 8 : (4 * n + 7) / 8 * 8);
    for (int64_t i = 0; i < n; i++) {
        float number;
        memcpy(&number, byte + 4 * i * !codes, sizeof number);
        expect_held(which, codes ? "code" : "number", k, t, i, codes ? byte[i] : number, tensor_get(state, i));
    }
    for (int64_t i = 0; i < blocks; i++) {
        float factor;
        memcpy(&factor, byte + from + 4 * i, sizeof factor);
        expect_held(which, "factor", k, t, i, factor, tensor_get(most, i));
    }
}

/* What reads a state gives each code's value times its block's factor. */
static void expect_values(const char *which, int k, int64_t t, struct tensor values)
{
    const struct dynamic_table table = dynamic_table_of(k == 0);
    const bool codes = has(which, ".absmax1");
    const struct tensor state = stored(which, k ? ".state2" : ".state1", t);
    const struct tensor most = codes ? stored(which, k ? ".absmax2" : ".absmax1", t) : tensor_none;
    assert_int_equal(tensor_count(state), tensor_count(values));
    for (int64_t i = 0; i < tensor_count(state); i++) {
        const double x = tensor_get(state, i);
        const float want = codes ? table.value[(int)x] * (float)tensor_get(most, i / DYNAMIC_BLOCK) : (float)x;
        expect_held(which, "read, number", k, t, i, tensor_get(values, i), want);
    }
}

struct followed { struct tensor w, size, state[OPTIMIZER_MAX_STATES]; struct low_rank p; };

/* size: of a step, without signs.  A step has at most r + 16 roundings of numbers not larger than it and the weight. */
static void expect_weight(const char *which, int64_t t, const struct followed *x)
{
    const struct tensor want = stored(which, ".weight", t);
    for (int64_t i = 0; i < tensor_count(want); i++) {
        const double size = fabs(tensor_get(want, i)) + tensor_get(x->size, i);
        const double bound = (double)(t * (x->p.r + 16)) * dtype_unit(F32) * size;
        const double off = fabs(tensor_get(x->w, i) - tensor_get(want, i));
        if (!(off <= bound))
            fail_msg("%s: weight after step %lld, element %lld is %.9g; the released code has %.9g, %.2g off; the "
                     "bound is %.2g", which, (long long)t, (long long)i, tensor_get(x->w, i), tensor_get(want, i), off,
                     bound);
    }
}

/* N of a matrix is in g after its step; that of the others is at most 1/sqrt(1 - beta2) + 1, as m and v say. */
static void grow_size(struct followed *x, struct tensor g, struct step s)
{
    const double rate = galore_rate(s), most = 1 + 1 / sqrt(1 - s.hyper->beta2);
    const struct tensor P = x->state[LOW_RANK_PROJECTION], N = tensor_1d(g.data, F32, x->p.b * x->p.r);
    for (int64_t i = 0; i < tensor_count(x->w); i++) {
        double sum = 0;
        const int64_t cols = x->w.ndim == 2 ? x->w.dim[1] : 1, row = i / cols, col = i % cols;
        for (int64_t k = 0; k < x->p.r; k++) {
            const int64_t n = x->p.right ? row * x->p.r + k : k * cols + col;
            sum += fabs(tensor_get(N, n) * tensor_get(P, (x->p.right ? col : row) * x->p.r + k));
        }
        sum = x->p.r ? s.hyper->galore_scale * rate * sum : rate * most;
        tensor_set(x->size, i, tensor_get(x->size, i) + sum);
    }
}

static void read_moment(const struct optimizer *o, const struct hyperparameters *h, const char *which, int k, int64_t t,
                        const struct followed *x)
{
    const struct low_rank_parts all = { .count = 1, .part = { { .rows = x->w.dim[0], .p = x->p } } };
    const struct tensor room = vector(F32, low_rank_numbers(o, h, &all, x->w, k));
    expect_values(which, k, t, low_rank_read(o, h, &all, x->w, k, x->state[k], room.data));
}

static void follow(const char *which)
{
    const struct optimizer *o = NULL;
    const struct hyperparameters h = numbers();
    struct followed x = { .w = stored(which, ".start", 0) };
    assert_int_equal(optimizer_find(&o, "galore", NULL), OK);
    x.p = low_rank_of(o, &h, x.w.ndim == 2, x.w.dim[0], x.w.ndim == 2 ? x.w.dim[1] : 1);
    x.size = fill_with(copy_of(x.w), 0);
    for (int k = 0; k < o->states; k++) {
        const struct tensor shape = low_rank_state(o, &h, x.p, x.w, k);
        x.state[k] = shape;
        x.state[k].data = calloc(1, tensor_bytes(shape) + 1);
        assert_non_null(x.state[k].data);
    }
    for (int64_t t = 1; t <= (int64_t)number("steps"); t++) {
        const struct step s = { .lr = h.lr, .weight_decay = number("weight_decay"), .gradient_scale = 1, .t = t,
                                .hyper = &h };
        const struct tensor R = stored(which, ".g", t), g = fill_with(copy_of(x.w), 0);
        memcpy(g.data, R.data, tensor_bytes(R));
        if (x.p.r) memcpy(x.state[LOW_RANK_PROJECTION].data, stored(which, ".projection", t).data,
                          tensor_bytes(x.state[LOW_RANK_PROJECTION]));
        galore_step(o, x.p, x.w, g, x.state, s);
        grow_size(&x, g, s);
        for (int k = 0; k < 2; k++) expect_moment(which, k, t, x.state[k]), read_moment(o, &h, which, k, t, &x);
        expect_weight(which, t, &x);
    }
    for (int k = 0; k < o->states; k++) free(x.state[k].data);
    check_guards_and_free();
}

static void steps_are_those_of_the_released_code(void **unused)
{
    (void)unused;
    static const char *const names[] = { "wide", "tall", "few", "vector", "short" };
    for (int i = 0; i < 5; i++) follow(names[i]);
}

static int open_file(void **unused)
{
    struct error err;
    (void)unused;
    if (safetensors_open(&file, "golden/galore_codes.safetensors", &err) == OK) return 0;
    print_error("%s\n", err.text);
    return 1;
}

static int close_file(void **unused)
{
    (void)unused;
    safetensors_close(&file);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_the_released_ones),
        cmocka_unit_test(a_number_has_the_nearest_code),
        cmocka_unit_test(steps_are_those_of_the_released_code),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
