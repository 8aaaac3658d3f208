/* GaLore and Natural GaLore: steps compared with the authors' code (golden/make_galore.py), the natural gradient with a
 * dense solve; properties of every projection: orthonormal columns, signs, reproducible bits, linearity.
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
    return fill_with(shape.ndim == 2 ? matrix(shape.dtype, tensor_rows(shape), tensor_cols(shape))
                                     : vector(shape.dtype, tensor_count(shape)),
                     0);
}

static void make_states(const struct optimizer *o, const struct hyperparameters *h, struct low_rank p, struct tensor w,
                        struct tensor state[])
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

/* ---- the file ---------------------------------------------------------------------------------------------------- */

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
    struct tensor t = e->ndim == 2 ? matrix(F64, e->dim[0], e->dim[1]) : vector(F64, e->dim[0]);
    struct error err;
    if (safetensors_read(f, e, F64, t.data, &err) != OK) fail_msg("%s", err.text);
    return t;
}

/* ---- how far two right programs may be apart --------------------------------------------------------------------- */

/* Bounds in norms, of one parameter.  Each program's P is exact for a gradient that is off by a b u of its norm: more
 * than all roundings of G G^T, and more than any backward stable method for singular vectors is off by.  Vector i then
 * turns towards vector j by at most that, times 2 s1^2 / |si^2 - sj^2|; each of two programs.  N = m / (sqrt(v) + eps):
 * what moves R by d moves m and sqrt(v) by at most d, and N by (1 + |N|) d / eps. */
struct far { double turn, R, weight; };

static double turned(const double *square, struct low_rank p)
{
    const double e = (double)(p.a * p.b) * dtype_unit(F64);
    double sum = 0;
    for (int64_t i = 0; i < p.r; i++)
        for (int64_t j = 0; j < p.a; j++)
            if (j != i) sum += pow(4 * e * square[0] / fabs(square[i] - square[j]), 2);
    return sqrt(sum);
}

static double norm_of(struct tensor t)
{
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(t); i++) sum += pow(tensor_get(t, i), 2);
    return sqrt(sum);
}

static double largest_of(struct tensor t)
{
    double most = 0;
    for (int64_t i = 0; i < tensor_count(t); i++) most = fmax(most, fabs(tensor_get(t, i)));
    return most;
}

/* g has become N; G: norm of the gradient as it was.  The natural gradient divides by as little as the damping. */
static void farther(struct far *f, const struct step *s, struct tensor g, struct tensor w, double G, bool natural,
                    bool projected)
{
    const double u = dtype_unit(F64), n = (double)tensor_count(w), amplified = natural ? 1 / s->hyper->damping : 1;
    const struct tensor N = tensor_1d(g.data, g.dtype, tensor_count(g));
    const double scale = projected ? s->hyper->galore_scale : 1;
    f->R = fmax(f->R, (f->turn + n * u) * G * amplified);
    f->weight += galore_rate(*s) * scale * (f->turn * norm_of(N) + (1 + largest_of(N)) * f->R / s->hyper->eps) +
                 n * u * norm_of(w);
}

static void expect_as_stored(const struct safetensors *f, const char *name, struct tensor got, double bound)
{
    const struct tensor want = stored(f, name);
    double apart = 0;
    for (int64_t i = 0; i < tensor_count(want); i++) apart += pow(tensor_get(got, i) - tensor_get(want, i), 2);
    if (!(sqrt(apart) <= bound))
        fail_msg("%s: off by %.3g, may be by %.3g; element 0 is %.17g, the authors' code has %.17g", name, sqrt(apart),
                 bound, tensor_get(got, 0), tensor_get(want, 0));
}

/* ---- the authors' steps ------------------------------------------------------------------------------------------ */

/* Two runs of the authors' code: shapes of all kinds, and the matrices of a Llama, which are separate there. */
struct run { int count; const char *parameter[8]; };
static const struct run runs[] = {
    { 5, { "wide", "tall", "square", "narrow", "vector" } },
    { 6, { "q", "k", "v", "gate", "up", "norm" } },
};
enum { PARAMETERS_MOST = 8 };

struct followed { struct tensor w, state[OPTIMIZER_MAX_STATES]; struct low_rank p; struct far far; };

static struct hyperparameters numbers(const struct safetensors *f)
{
    return (struct hyperparameters){
        .lr = number(f, "lr"), .beta1 = number(f, "beta1"), .beta2 = number(f, "beta2"), .eps = number(f, "eps"),
        .rank = (int64_t)number(f, "rank"),
        .refresh = (int64_t)number(f, "refresh"), .galore_scale = number(f, "galore_scale"),
        .history = (int64_t)number(f, "history"),
        .damping = number(f, "damping"), .clip = number(f, "clip"),
    };
}

/* Of whole gradients, all parameters' together, as torch.nn.utils.clip_grad_norm_ has it: 1e-6 is added to the norm. */
static double gradient_scale(const struct safetensors *f, const struct run *r, const struct hyperparameters *h,
                             int64_t t)
{
    char name[64];
    double sum = 0;
    for (int i = 0; i < r->count; i++) {
        snprintf(name, sizeof name, "%s.gradient.%d", r->parameter[i], (int)t);
        sum += pow(norm_of(stored(f, name)), 2);
    }
    assert_true(sqrt(sum) > h->clip);
    return h->clip / (sqrt(sum) + 1e-6);
}

/* The vector's step is taken by hand here, for N: galore_step leaves it in g only where it projects. */
static void follow_one(const struct safetensors *f, const struct optimizer *o, const char *which, struct followed *x,
                       struct step s)
{
    char name[64];
    double square[32];
    snprintf(name, sizeof name, "%s.gradient.%d", which, (int)s.t);
    struct tensor g = stored(f, name);
    const double G = norm_of(g) * s.gradient_scale;
    if (x->p.r > 0) {
        void *scratch = malloc(galore_scratch(x->p, F64));
        assert_non_null(scratch);
        if (low_rank_refreshes(s.hyper, s.t)) {
            assert_int_equal(galore_refresh(x->p, x->state[LOW_RANK_PROJECTION], g, scratch, square, NULL), OK);
            x->far.turn = turned(square, x->p);
        }
        galore_project(x->p, g, x->state[LOW_RANK_PROJECTION], scratch);
        free(scratch);
    }
    galore_step(o, x->p, x->w, g, x->state, s);
    /* no |N| is larger: v is at least (1 - beta2) R^2, m at most R's size */
    if (x->p.r == 0) fill_with(g, 1 / sqrt(1 - s.hyper->beta2));
    farther(&x->far, &s, g, x->w, G, o->natural && x->p.r > 0, x->p.r > 0);
    snprintf(name, sizeof name, "%s.%s.weight.%d", o->name, which, (int)s.t);
    expect_as_stored(f, name, x->w, x->far.weight);
}

static void expect_states(const struct safetensors *f, const struct optimizer *o, const char *which,
                          const struct followed *x)
{
    const double bound[] = { x->far.R,
                             2 * x->far.R *
                                 (largest_of(x->state[LOW_RANK_EXP_AVG]) +
                                  sqrt(largest_of(x->state[LOW_RANK_EXP_AVG_SQ]) / (1 - number(f, "beta2")))),
                             x->far.turn };
    for (int k = 0; k <= (x->p.r > 0 ? LOW_RANK_PROJECTION : LOW_RANK_EXP_AVG_SQ); k++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s.%s", o->name, which, o->state_name[k]);
        expect_as_stored(f, name, x->state[k], bound[k]);
    }
}

static struct step step_at(const struct safetensors *f, const struct run *r, const struct hyperparameters *h, int64_t t)
{
    return (struct step){ .lr = h->lr,
                          .weight_decay = number(f, "weight_decay"),
                          .gradient_scale = gradient_scale(f, r, h, t),
                          .t = t,
                          .hyper = h };
}

static void follow_the_authors(const struct safetensors *f, const struct run *r, const char *optimizer)
{
    const struct optimizer *o = named(optimizer);
    const struct hyperparameters h = numbers(f);
    struct followed all[PARAMETERS_MOST] = { 0 };
    for (int i = 0; i < r->count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.start", r->parameter[i]);
        all[i].w = stored(f, name);
        all[i].p = low_rank_of(o, &h, all[i].w.ndim == 2, all[i].w.dim[0], all[i].w.ndim == 2 ? all[i].w.dim[1] : 1);
        make_states(o, &h, all[i].p, all[i].w, all[i].state);
    }
    for (int64_t t = 1; t <= (int64_t)number(f, "steps"); t++) {
        const struct step s = step_at(f, r, &h, t);
        for (int i = 0; i < r->count; i++) follow_one(f, o, r->parameter[i], &all[i], s);
    }
    for (int i = 0; i < r->count; i++) expect_states(f, o, r->parameter[i], &all[i]);
    check_guards_and_free();
}

static void steps_are_those_of_the_authors_code(void **unused)
{
    struct safetensors f;
    struct error err;
    (void)unused;
    if (safetensors_open(&f, "golden/galore.safetensors", &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++) {
        follow_the_authors(&f, &runs[i], "galore");
        follow_the_authors(&f, &runs[i], "natural-galore");
    }
    safetensors_close(&f);
}

/* ---- several matrices in one parameter --------------------------------------------------------------------------- */

/* What is stored of each under `what`, rows one below the other. */
static struct tensor stacked(const struct safetensors *f, const char *const matrix_name[], int count, const char *what)
{
    struct tensor part[LOW_RANK_MOST_PARTS];
    int64_t rows = 0;
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", matrix_name[i], what);
        part[i] = stored(f, name);
        rows += tensor_rows(part[i]);
    }
    struct tensor all = matrix(F64, rows, tensor_cols(part[0]));
    char *next = all.data;
    for (int i = 0; i < count; next += tensor_bytes(part[i++])) memcpy(next, part[i].data, tensor_bytes(part[i]));
    return all;
}

static void expect_bits(const char *what, struct tensor got, struct tensor want)
{
    if (memcmp(got.data, want.data, tensor_bytes(want)) != 0)
        fail_msg("%s: in one parameter a matrix is not stepped as by itself", what);
}

/* The matrices of one parameter, and each by itself: the same bits of weights and states after every step. */
static void step_together_and_apart(const struct safetensors *f, const char *optimizer, const char *const name[],
                                    int count)
{
    const struct optimizer *o = named(optimizer);
    const struct hyperparameters h = numbers(f);
    struct tensor w = stacked(f, name, count, "start"), apart = copy_of(w), state[OPTIMIZER_MAX_STATES],
                  own[LOW_RANK_MOST_PARTS][OPTIMIZER_MAX_STATES];
    int64_t rows[LOW_RANK_MOST_PARTS];
    for (int i = 0; i < count; i++) {
        char start[64];
        snprintf(start, sizeof start, "%s.start", name[i]);
        rows[i] = tensor_rows(stored(f, start));
    }
    const struct low_rank_parts all = low_rank_parts_of(o, &h, true, rows, count, tensor_cols(w));
    for (int k = 0; k < o->states; k++) state[k] = zeros(low_rank_parts_state(o, &h, &all, w, k));
    for (int i = 0; i < count; i++) make_states(o, &h, all.part[i].p, low_rank_rows(all.part[i], w), own[i]);
    for (int64_t t = 1; t <= (int64_t)number(f, "steps"); t++) {
        char what[32];
        snprintf(what, sizeof what, "gradient.%d", (int)t);
        const struct step s = step_at(f, &runs[1], &h, t);
        struct tensor g = stacked(f, name, count, what), alone = copy_of(g);
        for (int i = 0; i < count; i++) {
            const struct tensor P =
                low_rank_part_state(o, &h, &all, i, w, state[LOW_RANK_PROJECTION], LOW_RANK_PROJECTION);
            project(all.part[i].p, P, low_rank_rows(all.part[i], g), low_rank_refreshes(&h, t));
            project(all.part[i].p, own[i][LOW_RANK_PROJECTION], low_rank_rows(all.part[i], alone),
                    low_rank_refreshes(&h, t));
            galore_step(o, all.part[i].p, low_rank_rows(all.part[i], apart), low_rank_rows(all.part[i], alone), own[i],
                        s);
        }
        galore_parts_step(o, &all, w, g, state, s);
        expect_bits("weights", w, apart);
        for (int i = 0; i < count; i++)
            for (int k = 0; k < o->states; k++)
                expect_bits(o->state_name[k], low_rank_part_state(o, &h, &all, i, w, state[k], k), own[i][k]);
    }
    check_guards_and_free();
}

static void matrices_of_one_parameter_step_apart(void **unused)
{
    static const char *const heads[] = { "q", "k", "v" }, *const feed[] = { "gate", "up" };
    static const char *const optimizer[] = { "galore", "natural-galore" };
    struct safetensors f;
    struct error err;
    (void)unused;
    if (safetensors_open(&f, "golden/galore.safetensors", &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++) {
        step_together_and_apart(&f, optimizer[i], heads, 3);
        step_together_and_apart(&f, optimizer[i], feed, 2);
    }
    safetensors_close(&f);
}

/* ---- the natural gradient ---------------------------------------------------------------------------------------- */

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
        if (!(sqrtl(apart / size) <= 1e-12L))
            fail_msg("damping %g, step %d: off by %.3Lg", damping, t, sqrtl(apart / size));
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

/* ---- the projection ---------------------------------------------------------------------------------------------- */

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
                    if (!(fabs(dot - (k == l)) <= 8 * (double)p.a * dtype_unit(g.dtype)))
                        fail_msg("%s: columns %d, %d: %g", case_name, (int)k, (int)l, dot);
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
        struct tensor one = matrix(F32, shapes[i][0], shapes[i][1]), two = copy_of(one), sum = copy_of(one),
                      P = matrix(F32, p.a, p.r);
        for (int64_t n = 0; n < tensor_count(sum); n++) {
            tensor_set(one, n, (double)(n % 7 - 3)), tensor_set(two, n, (double)(n % 5));
            tensor_set(sum, n, tensor_get(one, n) + tensor_get(two, n));
        }
        for (int64_t n = 0; n < p.a * p.r; n++) tensor_set(P, n, (double)(n % 4 - 1));
        project(p, P, one, false), project(p, P, two, false), project(p, P, sum, false);
        for (int64_t n = 0; n < tensor_count(sum); n++)
            if (!(tensor_get(one, n) + tensor_get(two, n) == tensor_get(sum, n)) ||
                (n >= p.b * p.r && tensor_get(sum, n) != 0))
                fail_msg("[%d,%d] element %d: %g + %g, together %g", (int)shapes[i][0], (int)shapes[i][1], (int)n,
                         tensor_get(one, n), tensor_get(two, n), tensor_get(sum, n));
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
                fail_msg("with scale 0.25 a step is %g times that with scale 1",
                         tensor_get(w[1], i) / tensor_get(w[0], i));
        check_guards_and_free();
    }
}

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

static void states_have_their_published_size(void **unused)
{
    const struct hyperparameters h = { .rank = 4, .history = 3 };
    (void)unused;
    for (int i = 0; i < SHAPES; i++)
        for (int natural = 0; natural < 2; natural++) {
            const struct optimizer *o = named(natural ? "natural-galore" : "galore");
            const int64_t m = shapes[i][0], n = shapes[i][1], a = m < n ? m : n, b = m < n ? n : m, r = a < 4 ? a : 4;
            const struct low_rank p = low_rank_of(o, &h, true, m, n);
            int64_t kept = 0;
            for (int k = 0; k < o->states; k++)
                kept += tensor_count(low_rank_state(o, &h, p, tensor_2d(NULL, F32, m, n), k));
            assert_int_equal(kept, 2 * b * r + a * r + natural * 3 * b * r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_the_authors_code),
        cmocka_unit_test(matrices_of_one_parameter_step_apart),
        cmocka_unit_test(natural_gradient_solves_the_whole_system),
        cmocka_unit_test(columns_are_orthonormal_and_begin_positive),
        cmocka_unit_test(projecting_is_linear),
        cmocka_unit_test(broken_gradients_leave_the_projection),
        cmocka_unit_test(steps_are_multiplied_with_the_scale),
        cmocka_unit_test(states_have_their_published_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
