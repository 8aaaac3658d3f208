/* GaLore and Natural GaLore: steps against PyTorch's (golden/make_galore.py), the natural gradient against a dense solve, and what
 * holds for every projection: orthonormal columns, signs, the same bits again, linearity.
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/optim/loss_scale.h"
#include "ref/optim/table.h"
#include "tests/ref/test_ops.h"

static const struct optimizer *named(const char *name)
{
    const struct optimizer *o = NULL;
    assert_int_equal(optimizer_find(&o, name, NULL), OK);
    return o;
}

static struct tensor zeros(struct tensor shape)
{
    return fill_with(matrix(shape.dtype, tensor_rows(shape), tensor_cols(shape)), 0);
}

static void make_states(const struct optimizer *o, const struct hyperparameters *h, struct low_rank p, struct tensor w, struct tensor state[])
{
    for (int k = 0; k < o->states; k++) state[k] = zeros(low_rank_state(o, h, p, w, k));
}

/* What devices and the one-device run do with a reduced gradient. */
static void project(struct low_rank p, struct tensor P, struct tensor g, bool refresh)
{
    void *scratch = malloc(galore_scratch(p, g.dtype));
    assert_non_null(scratch);
    if (refresh) assert_int_equal(galore_refresh(p, P, g, scratch, NULL, NULL), OK);
    galore_project(p, g, P, scratch);
    free(scratch);
}

/* ---- PyTorch ------------------------------------------------------------------------------------------------------------- */

static double number(const struct safetensors *f, const char *key)
{
    const char *text = safetensors_metadata(f, key);
    if (text == NULL) fail_msg("%s: no %s", f->path, key);
    return strtod(text, NULL);
}

static struct tensor stored(const struct safetensors *f, const char *name)
{
    const struct safetensors_entry *e = safetensors_find(f, name);
    if (e == NULL) fail_msg("%s: no %s", f->path, name);
    struct tensor t = matrix(F64, e->dim[0], e->dim[1]);
    struct error err;
    if (safetensors_read(f, e, F64, t.data, &err) != OK) fail_msg("%s", err.text);
    return t;
}

/* Singular values that decide are at least 0.02 of the largest apart, so that rounding is amplified some hundred times at most. */
static void expect_as_torch(const struct safetensors *f, const char *name, struct tensor got)
{
    const struct tensor want = stored(f, name);
    double apart = 0, size = 0;
    for (int64_t i = 0; i < tensor_count(want); i++) {
        apart += pow(tensor_get(got, i) - tensor_get(want, i), 2);
        size += pow(tensor_get(want, i), 2);
    }
    if (!(sqrt(apart / size) <= 1e-12))
        fail_msg("%s: off by %.3g; element 0 is %.17g, PyTorch has %.17g", name, sqrt(apart / size), tensor_get(got, 0), tensor_get(want, 0));
}

static void follow_torch(const struct safetensors *f, const char *shape, const char *name)
{
    const struct optimizer *o = named(name);
    const struct hyperparameters h = {
        .lr = number(f, "lr"), .beta1 = number(f, "beta1"), .beta2 = number(f, "beta2"), .eps = number(f, "eps"), .rank = (int64_t)number(f, "rank"),
        .refresh = (int64_t)number(f, "refresh"), .galore_scale = number(f, "galore_scale"), .history = (int64_t)number(f, "history"),
        .damping = number(f, "damping"),
    };
    char what[64];
    snprintf(what, sizeof what, "%s.start", shape);
    struct tensor w = stored(f, what), state[OPTIMIZER_MAX_STATES] = { 0 };
    const struct low_rank p = low_rank_of(o, &h, true, w.dim[0], w.dim[1]);
    assert_int_equal(p.r, h.rank);
    make_states(o, &h, p, w, state);
    for (int64_t t = 1; t <= (int64_t)number(f, "steps"); t++) {
        snprintf(what, sizeof what, "%s.gradient.%d", shape, (int)t);
        const struct tensor g = stored(f, what);
        project(p, state[LOW_RANK_PROJECTION], g, low_rank_refreshes(&h, t));
        galore_step(o, p, w, g, state, (struct step){ .lr = h.lr, .weight_decay = number(f, "weight_decay"), .gradient_scale = 1, .t = t, .hyper = &h });
        snprintf(what, sizeof what, "%s.%s.weight.%d", shape, name, (int)t);
        expect_as_torch(f, what, w);
    }
    for (int k = 0; k <= LOW_RANK_PROJECTION; k++) {
        snprintf(what, sizeof what, "%s.%s.%s", shape, name, o->state_name[k]);
        expect_as_torch(f, what, state[k]);
    }
    check_guards_and_free();
}

static void steps_are_those_of_torch(void **unused)
{
    static const char *const shape[] = { "wide", "tall", "square" };
    struct safetensors f;
    struct error err;
    (void)unused;
    if (safetensors_open(&f, "golden/galore.safetensors", &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < 3; i++) {
        follow_torch(&f, shape[i], "galore");
        follow_torch(&f, shape[i], "natural-galore");
    }
    safetensors_close(&f);
}

/* ---- the natural gradient -------------------------------------------------------------------------------------------------- */

enum { ELEMENTS = 37, REMEMBERED = 4 };

/* (damping I + H^T H) x = g by elimination, in long double; H: `rows` rows. */
static void solve_densely(double damping, const double H[][ELEMENTS], int rows, const double *g, long double *x)
{
    static long double A[ELEMENTS][ELEMENTS + 1];
    for (int i = 0; i < ELEMENTS; i++) {
        for (int j = 0; j < ELEMENTS; j++) {
            A[i][j] = i == j ? damping : 0;
            for (int k = 0; k < rows; k++) A[i][j] += (long double)H[k][i] * H[k][j];
        }
        A[i][ELEMENTS] = g[i];
    }
    for (int k = 0; k < ELEMENTS; k++)              /* positive definite: no pivoting */
        for (int i = 0; i < ELEMENTS; i++) {
            const long double factor = A[i][k] / A[k][k];
            for (int j = k; j <= ELEMENTS && i != k; j++) A[i][j] -= factor * A[k][j];
        }
    for (int i = 0; i < ELEMENTS; i++) x[i] = A[i][ELEMENTS] / A[i][i];
}

/* More steps than are remembered, and fewer at first. */
static void solve_the_whole_system(double damping)
{
    static double all[2 * REMEMBERED + 1][ELEMENTS];
    struct tensor history = fill_with(matrix(F64, REMEMBERED, ELEMENTS), 0);
    for (int t = 1; t <= 2 * REMEMBERED + 1; t++) {
        char stream[32];
        snprintf(stream, sizeof stream, "R %d", t);
        struct tensor R = fill(vector(F64, ELEMENTS), 0.5, stream);
        memcpy(all[t - 1], R.data, tensor_bytes(R));
        natural_gradient_f64(R, history, t, damping);
        long double want[ELEMENTS], apart = 0, size = 0;
        const int first = t > REMEMBERED ? t - REMEMBERED : 0;
        solve_densely(damping, &all[first], t - first, all[t - 1], want);
        for (int i = 0; i < ELEMENTS; i++) apart += powl(tensor_get(R, i) - want[i], 2), size += want[i] * want[i];
        if (!(sqrtl(apart / size) <= 1e-12L)) fail_msg("damping %g, step %d: off by %.3Lg", damping, t, sqrtl(apart / size));
    }
    check_guards_and_free();
}

/* By Woodbury's identity the second would lose as many digits as the damping has zeros. */
static void natural_gradient_solves_the_whole_system(void **unused)
{
    (void)unused;
    solve_the_whole_system(0.02);
    solve_the_whole_system(1e-6);
}

/* ---- the projection --------------------------------------------------------------------------------------------------------- */

static const int64_t shapes[][2] = { { 5, 9 }, { 9, 5 }, { 7, 7 }, { 2, 40 }, { 33, 65 } };
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void columns_are_orthonormal_and_begin_positive(void **unused)
{
    (void)unused;
    for (int i = 0; i < SHAPES; i++)
        for (int f = 0; f < 2; f++) {
            const struct hyperparameters h = { .rank = shapes[i][0] < 4 ? 1 : 4 };
            const struct low_rank p = low_rank_of(named("galore"), &h, true, shapes[i][0], shapes[i][1]);
            struct tensor g = fill(matrix(f ? F64 : F32, shapes[i][0], shapes[i][1]), 1, "G"), again = copy_of(g);
            struct tensor P = matrix(g.dtype, p.a, p.r), Q = matrix(g.dtype, p.a, p.r);
            project(p, P, g, true);
            project(p, Q, again, true);
            CASE("[%d,%d] in %s", (int)shapes[i][0], (int)shapes[i][1], dtype_name(g.dtype));
            expect_same_bits("P", P, Q);
            for (int64_t k = 0; k < p.r; k++) {
                double most = 0;
                for (int64_t l = 0; l <= k; l++) {
                    double dot = 0;
                    for (int64_t n = 0; n < p.a; n++) dot += tensor_get(P, n * p.r + k) * tensor_get(P, n * p.r + l);
                    if (!(fabs(dot - (k == l)) <= 8 * (double)p.a * dtype_unit(g.dtype))) fail_msg("%s: columns %d, %d: %g", case_name, (int)k, (int)l, dot);
                }
                for (int64_t n = 0; n < p.a; n++)
                    if (fabs(tensor_get(P, n * p.r + k)) > fabs(most)) most = tensor_get(P, n * p.r + k);
                if (!(most > 0)) fail_msg("%s: the largest element of column %d is %g", case_name, (int)k, most);
            }
            check_guards_and_free();
        }
}

/* With whole numbers nothing is rounded: what devices project and then add up is what one projects of the sum. */
static void projecting_is_linear(void **unused)
{
    (void)unused;
    for (int i = 0; i < SHAPES; i++) {
        const struct hyperparameters h = { .rank = 1 };
        const struct low_rank p = low_rank_of(named("galore"), &h, true, shapes[i][0], shapes[i][1]);
        struct tensor one = matrix(F32, shapes[i][0], shapes[i][1]), two = copy_of(one), sum = copy_of(one), P = matrix(F32, p.a, p.r);
        for (int64_t n = 0; n < tensor_count(sum); n++) {
            tensor_set(one, n, (double)(n % 7 - 3)), tensor_set(two, n, (double)(n % 5));
            tensor_set(sum, n, tensor_get(one, n) + tensor_get(two, n));
        }
        for (int64_t n = 0; n < p.a * p.r; n++) tensor_set(P, n, (double)(n % 4 - 1));
        project(p, P, one, false), project(p, P, two, false), project(p, P, sum, false);
        for (int64_t n = 0; n < tensor_count(sum); n++)
            if (!(tensor_get(one, n) + tensor_get(two, n) == tensor_get(sum, n)) || (n >= p.b * p.r && tensor_get(sum, n) != 0))
                fail_msg("[%d,%d] element %d: %g + %g, together %g", (int)shapes[i][0], (int)shapes[i][1], (int)n, tensor_get(one, n), tensor_get(two, n), tensor_get(sum, n));
        check_guards_and_free();
    }
}

/* The step will be left out, and what is kept must be as it was; until then R says that something is wrong. */
static void broken_gradients_leave_the_projection(void **unused)
{
    const struct hyperparameters h = { .rank = 2 };
    const struct low_rank p = low_rank_of(named("galore"), &h, true, 5, 9);
    struct tensor g = fill(matrix(F32, 5, 9), 1, "G"), P = matrix(F32, 5, 2);
    (void)unused;
    project(p, P, g, true);
    const struct tensor before = copy_of(P), broken = fill(matrix(F32, 5, 9), 1, "another");
    tensor_set(broken, 17, INFINITY);
    project(p, P, broken, true);
    CASE("%s", "after an infinite gradient");
    expect_same_bits("P", P, before);
    assert_false(tensors_finite(&broken, 1));
    check_guards_and_free();
}

/* From the same start, without decay: the scale alone is between the two. */
static void steps_are_multiplied_with_the_scale(void **unused)
{
    (void)unused;
    for (int f = 0; f < 2; f++) {
        struct hyperparameters h = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .rank = 3, .refresh = 1 };
        const struct optimizer *o = named("galore");
        const struct low_rank p = low_rank_of(o, &h, true, 6, 9);
        struct tensor w[2];
        for (int i = 0; i < 2; i++) {
            struct tensor state[OPTIMIZER_MAX_STATES] = { 0 }, g = fill(matrix(f ? F64 : F32, 6, 9), 1, "g");
            w[i] = fill_with(matrix(g.dtype, 6, 9), 0);
            h.galore_scale = i ? 0.25 : 1;
            make_states(o, &h, p, w[i], state);
            project(p, state[LOW_RANK_PROJECTION], g, true);
            galore_step(o, p, w[i], g, state, (struct step){ .lr = 0.1, .gradient_scale = 1, .t = 1, .hyper = &h });
        }
        for (int64_t i = 0; i < tensor_count(w[0]); i++)
            if (!(tensor_get(w[1], i) == 0.25 * tensor_get(w[0], i)))       /* a power of two rounds nothing */
                fail_msg("with scale 0.25 a step is %g times that with scale 1", tensor_get(w[1], i) / tensor_get(w[0], i));
        check_guards_and_free();
    }
}

/* ---- what is kept ----------------------------------------------------------------------------------------------------------- */

static void states_have_their_published_size(void **unused)
{
    const struct hyperparameters h = { .rank = 4, .history = 3 };
    (void)unused;
    for (int i = 0; i < SHAPES; i++)
        for (int natural = 0; natural < 2; natural++) {
            const struct optimizer *o = named(natural ? "natural-galore" : "galore");
            const int64_t m = shapes[i][0], n = shapes[i][1], a = m < n ? m : n, b = m < n ? n : m, r = 4;
            const struct low_rank p = low_rank_of(o, &h, true, m, n);
            int64_t kept = 0;
            for (int k = 0; k < o->states; k++) kept += tensor_count(low_rank_state(o, &h, p, tensor_2d(NULL, F32, m, n), k));
            assert_int_equal(kept, r < a ? 2 * b * r + a * r + natural * 3 * b * r : 2 * m * n);
        }
}

/* What is not projected is stepped by AdamW, bit for bit. */
static void the_rest_takes_adamw(void **unused)
{
    const struct hyperparameters h = { .lr = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .rank = 4, .refresh = 2, .galore_scale = 0.25 };
    (void)unused;
    for (int f = 0; f < 2; f++) {
        struct tensor w = fill(matrix(f ? F64 : F32, 4, 9), 1, "w"), same = copy_of(w), g = fill(matrix(w.dtype, 4, 9), 1, "g"), state[2], other[2];
        for (int k = 0; k < 2; k++) state[k] = zeros(w), other[k] = zeros(w);
        const struct step s = { .lr = 0.1, .weight_decay = 0.1, .gradient_scale = 0.5, .t = 1, .hyper = &h };
        const struct low_rank all = low_rank_of(named("galore"), &h, true, 4, 9), not_linear = low_rank_of(named("galore"), &h, false, 40, 90);
        assert_int_equal(all.r, 0);
        assert_int_equal(not_linear.r, 0);
        galore_step(named("galore"), all, w, g, state, s);
        optimizer_step(named("adamw"), same, g, other, s);
        CASE("%s", dtype_name(w.dtype));
        expect_same_bits("weight", w, same);
        check_guards_and_free();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_torch),
        cmocka_unit_test(natural_gradient_solves_the_whole_system),
        cmocka_unit_test(columns_are_orthonormal_and_begin_positive),
        cmocka_unit_test(projecting_is_linear),
        cmocka_unit_test(broken_gradients_leave_the_projection),
        cmocka_unit_test(steps_are_multiplied_with_the_scale),
        cmocka_unit_test(states_have_their_published_size),
        cmocka_unit_test(the_rest_takes_adamw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
