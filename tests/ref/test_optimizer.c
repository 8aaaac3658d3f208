/* Optimizers: each step compared with its published formula in long double, or with torch.optim
 * (golden/make_optimizers.py); pieces with the whole bit for bit; the learning rate and clipping.
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/optim/optimizer.h"
#include "ref/ops/reduce.h"
#include "tests/ref/test_ops.h"

/* ---- learning rate and clipping ---------------------------------------------------------------------------------- */

static void expect_rate(const struct hyperparameters *h, int64_t t, double want)
{
    const double got = learning_rate(h, t);
    if (!(fabs(got - want) <= 4 * dtype_unit(F64) * h->lr))
        fail_msg("warmup %lld of %lld steps: rate of step %lld is %.17g, want %.17g", (long long)h->warmup,
                 (long long)h->steps, (long long)t, got, want);
}

static void rate_rises_then_falls(void **state)
{
    (void)state;
    const struct hyperparameters h = { .lr = 0.3, .min_lr = 0.1, .warmup = 4, .steps = 16 };
    expect_rate(&h, 1, 0.3 / 4);
    expect_rate(&h, 2, 0.3 / 2);
    expect_rate(&h, 4, 0.3);
    expect_rate(&h, 7, 0.2 + 0.1 * sqrt(0.5));          /* cos(pi/4), cos(pi/3), cos(pi/2), cos(2 pi/3) */
    expect_rate(&h, 8, 0.2 + 0.1 * 0.5);
    expect_rate(&h, 10, 0.2);
    expect_rate(&h, 12, 0.2 - 0.1 * 0.5);
    expect_rate(&h, 16, 0.1);
    expect_rate(&h, 17, 0.1);
    expect_rate(&h, 1000000, 0.1);
}

static void rate_without_warmup_or_cosine(void **state)
{
    (void)state;
    const struct hyperparameters cosine = { .lr = 0.3, .steps = 2 };
    expect_rate(&cosine, 1, 0.15);
    expect_rate(&cosine, 2, 0);
    const struct hyperparameters rise = { .lr = 0.3, .min_lr = 0.1, .warmup = 3, .steps = 3 };
    expect_rate(&rise, 1, 0.1);
    expect_rate(&rise, 3, 0.3);
    expect_rate(&rise, 4, 0.3);
    const struct hyperparameters constant = { .lr = 0.3, .min_lr = 0.1 };       /* no schedule at all */
    expect_rate(&constant, 1, 0.3);
    expect_rate(&constant, 99, 0.3);
}

static void clipping_limits_the_norm(void **state)
{
    (void)state;
    const struct hyperparameters none = { .clip = 0 }, at_2 = { .clip = 2 };
    assert_true(clip_scale(&none, 1e9) == 1);
    assert_true(clip_scale(&at_2, 1.5) == 1);
    assert_true(clip_scale(&at_2, 2) == 1);             /* nothing to do, and so exactly nothing is done */
    assert_true(clip_scale(&at_2, 8) == 0.25);
    assert_true(clip_scale(&at_2, 0) == 1);
}

/* ---- one step against its formula -------------------------------------------------------------------------------- */

enum { ELEMENTS = 203, STEPS = 6 };

/* An element's weight and state as they should be, with how far rounding may have taken them. */
struct element { num w, state[OPTIMIZER_MAX_STATES]; };

/* What a step multiplies with.  Factors are computed in double, whatever the format, and then rounded to it. */
struct factors { num scale, keep, lr, momentum, beta1, beta2, new1, new2, rate, root, eps; };

static num power(double x, int64_t t) { return rounded(powl(x, (long double)t), 0); }

static struct factors factors_of(struct step s, enum dtype t)
{
    const num one = exact(1);
    const struct hyperparameters *h = s.hyper;
    set_format(F64);
    struct factors f = {
        .scale = exact(s.gradient_scale), .keep = minus(one, times(exact(s.lr), exact(s.weight_decay))),
        .lr = exact(s.lr),
        .momentum = exact(h->momentum), .beta1 = exact(h->beta1), .beta2 = exact(h->beta2),
        .new1 = minus(one, exact(h->beta1)), .new2 = minus(one, exact(h->beta2)), .eps = exact(h->eps),
        .rate = over(exact(s.lr), minus(one, power(h->beta1, s.t))),
        .root = over(one, root(minus(one, power(h->beta2, s.t)))),
    };
    set_format(t);
    num *const all[] = { &f.scale, &f.keep, &f.lr,   &f.momentum, &f.beta1, &f.beta2,
                         &f.new1,  &f.new2, &f.rate, &f.root,     &f.eps };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] = rounded(all[i]->v, all[i]->e);
    return f;
}

static void adamw_formula(struct element *x, num gradient, const struct factors *f)
{
    const num g = times(gradient, f->scale);
    num *m = &x->state[0], *v = &x->state[1];
    *m = plus(times(f->beta1, *m), times(f->new1, g));
    *v = plus(times(f->beta2, *v), times(times(f->new2, g), g));
    x->w = minus(times(f->keep, x->w), over(times(f->rate, *m), plus(times(root(*v), f->root), f->eps)));
}

static void sgd_formula(struct element *x, num gradient, const struct factors *f)
{
    x->w = minus(times(f->keep, x->w), times(f->lr, times(gradient, f->scale)));
}

static void momentum_formula(struct element *x, num gradient, const struct factors *f)
{
    x->state[0] = plus(times(f->momentum, x->state[0]), times(gradient, f->scale));
    x->w = minus(times(f->keep, x->w), times(f->lr, x->state[0]));
}

static const struct {
    const char *name;
    void (*formula)(struct element *, num gradient, const struct factors *);
} formulas[] = { { "adamw", adamw_formula }, { "sgd", sgd_formula }, { "momentum", momentum_formula } };

static const struct hyperparameters odd = {
    .lr = 0.03, .beta1 = 0.85, .beta2 = 0.97, .eps = 1e-3, .weight_decay = 0.2, .momentum = 0.8
};

static struct step step_at(int64_t t, double scale)
{
    return (struct step){
        .lr = odd.lr / (double)t, .weight_decay = odd.weight_decay, .gradient_scale = scale, .t = t, .hyper = &odd
    };
}

static void make_states(const struct optimizer *o, struct tensor w, struct tensor states[])
{
    for (int s = 0; s < o->states; s++) states[s] = fill_with(copy_of(w), 0);
}

/* Several steps, so that state is carried and t counts; every step has its own rate, gradient and clipping. */
static void follow(const struct optimizer *o, void (*formula)(struct element *, num, const struct factors *),
                   enum dtype t)
{
    struct element want[ELEMENTS] = { 0 };
    struct tensor w = fill(vector(t, ELEMENTS), 1, "w"), states[OPTIMIZER_MAX_STATES] = { 0 };
    make_states(o, w, states);
    for (int i = 0; i < ELEMENTS; i++) want[i].w = at(w, i);
    for (int64_t k = 1; k <= STEPS; k++) {
        const struct step s = step_at(k, k % 2 ? 1 : 0.3);
        const struct factors f = factors_of(s, t);
        char stream[32];
        snprintf(stream, sizeof stream, "gradient %lld", (long long)k);
        const struct tensor g = fill(vector(t, ELEMENTS), 0.1, stream);
        optimizer_step(o, w, g, states, s);
        CASE("%s, %s, step %lld", o->name, dtype_name(t), (long long)k);
        for (int i = 0; i < ELEMENTS; i++) {
            formula(&want[i], at(g, i), &f);
            for (int j = 0; j < o->states; j++) expect_near(o->state_name[j], states[j], i, want[i].state[j]);
            expect_near("weight", w, i, want[i].w);
        }
    }
    check_guards_and_free();
}

static void steps_follow_their_formula(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++) {
        const struct optimizer *o;
        assert_int_equal(optimizer_find(&o, formulas[i].name, NULL), OK);
        for (int f = 0; f < 2; f++) follow(o, formulas[i].formula, formats[f]);
    }
}

/* ---- steps of torch.optim ---------------------------------------------------------------------------------------- */

static struct safetensors golden;

static double golden_number(const char *key)
{
    const char *text = safetensors_metadata(&golden, key);
    if (text == NULL) fail_msg("%s: no %s", golden.path, key);
    return strtod(text, NULL);
}

static struct tensor golden_tensor(enum dtype t, const char *fmt, ...)
{
    char name[96];
    struct error err;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    const struct safetensors_entry *e = safetensors_find(&golden, name);
    if (e == NULL) fail_msg("%s: no %s", golden.path, name);
    const struct tensor x = vector(t, e->count);
    if (safetensors_read(&golden, e, t, x.data, &err) != OK) fail_msg("%s", err.text);
    return x;
}

/* Each step rounds at most 32 times, by at most the largest element. */
static void expect_golden(const char *what, struct tensor got, struct tensor want, int64_t step)
{
    double largest = 0;
    for (int64_t i = 0; i < tensor_count(want); i++) largest = fmax(largest, fabs(tensor_get(want, i)));
    for (int64_t i = 0; i < tensor_count(want); i++) {
        const double off = fabs(tensor_get(got, i) - tensor_get(want, i)),
                     bound = 32 * (double)step * dtype_unit(got.dtype) * largest;
        if (!(off <= bound))
            fail_msg("%s, %s after step %lld, element %lld is %.17g; torch has %.17g, %.2g off; the bound is %.2g",
                     case_name, what, (long long)step, (long long)i, tensor_get(got, i), tensor_get(want, i), off,
                     bound);
    }
}

static void follow_golden(const struct optimizer *o, enum dtype t)
{
    const struct hyperparameters h = { .lr = golden_number("lr"), .beta1 = golden_number("beta1"),
                                       .beta2 = golden_number("beta2"), .eps = golden_number("eps"),
                                       .weight_decay = golden_number("weight_decay") };
    const int64_t steps = (int64_t)golden_number("steps");
    struct tensor w = golden_tensor(t, "start"), states[OPTIMIZER_MAX_STATES] = { 0 };
    make_states(o, w, states);
    CASE("%s, %s", o->name, dtype_name(t));
    for (int64_t k = 1; k <= steps; k++) {
        const struct step s = { .lr = h.lr, .weight_decay = h.weight_decay, .gradient_scale = 1, .t = k, .hyper = &h };
        optimizer_step(o, w, golden_tensor(t, "gradient.%lld", (long long)k), states, s);
        expect_golden("weight", w, golden_tensor(F64, "%s.weight.%lld", o->name, (long long)k), k);
    }
    for (int k = 0; k < o->states; k++)
        expect_golden(o->state_name[k], states[k], golden_tensor(F64, "%s.%s", o->name, o->state_name[k]), steps);
    check_guards_and_free();
}

static bool has_formula(const struct optimizer *o)
{
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++)
        if (strcmp(formulas[i].name, o->name) == 0) return true;
    return false;
}

/* Optimizers that step whole matrices, or without gradients, have tests of their own. */
static void others_step_as_torch_does(void **state)
{
    struct error err;
    (void)state;
    if (safetensors_open(&golden, "golden/optimizers.safetensors", &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; optimizers[i]; i++) {
        char name[96];
        const struct optimizer *o = optimizers[i];
        snprintf(name, sizeof name, "%s.weight.1", o->name);
        if (has_formula(o) || o->low_rank || o->forward_only) continue;
        if (safetensors_find(&golden, name) == NULL)
            fail_msg("%s: nothing holds its steps to a truth that is not ours: give it a row in CASES of "
                     "golden/make_optimizers.py, or in `formulas` of this test", o->name);
        for (int f = 0; f < 2; f++) follow_golden(o, formats[f]);
    }
    safetensors_close(&golden);
}

/* ---- what holds for every optimizer in the registry -------------------------------------------------------------- */

enum { MANY = 2 * PARALLEL_FROM + 37 };     /* the whole is stepped by several threads */

static const int64_t cuts[] = { 0, 1, 2, 5, 22, 64, 1000, PARALLEL_FROM + 3, MANY - 1, MANY };

static struct tensor piece_of(struct tensor x, int64_t first, int64_t end)
{
    return tensor_1d((char *)x.data + (size_t)first * dtype_size(x.dtype), x.dtype, end - first);
}

static void two_steps(const struct optimizer *o, struct tensor w, struct tensor g, const struct tensor states[])
{
    for (int64_t t = 1; t <= 2; t++) optimizer_step(o, w, g, states, step_at(t, 0.7));
}

/* A device steps the elements it holds, wherever its piece begins and ends. */
static void pieces_equal_the_whole(void **state)
{
    (void)state;
    for (int i = 0; optimizers[i]; i++)
        FOR_FORMATS(t, op) {
            const struct optimizer *o = optimizers[i];
            struct tensor w = fill(vector(t, MANY), 1, "w"), pieces = copy_of(w), g = fill(vector(t, MANY), 0.1, "g");
            struct tensor whole_states[OPTIMIZER_MAX_STATES] = { 0 }, states[OPTIMIZER_MAX_STATES] = { 0 };
            make_states(o, w, whole_states);
            make_states(o, w, states);
            two_steps(o, w, g, whole_states);
            for (size_t c = 0; c + 1 < sizeof cuts / sizeof *cuts; c++) {
                struct tensor part[OPTIMIZER_MAX_STATES] = { 0 };
                for (int s = 0; s < o->states; s++) part[s] = piece_of(states[s], cuts[c], cuts[c + 1]);
                two_steps(o, piece_of(pieces, cuts[c], cuts[c + 1]), piece_of(g, cuts[c], cuts[c + 1]), part);
            }
            CASE("%s, %s, in pieces", o->name, dtype_name(op->dtype));
            expect_same_bits("weight", pieces, w);
            for (int s = 0; s < o->states; s++) expect_same_bits(o->state_name[s], states[s], whole_states[s]);
            check_guards_and_free();
        }
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    const int threads = omp_get_max_threads();
    for (int i = 0; optimizers[i]; i++)
        FOR_FORMATS(t, op) {
            const struct optimizer *o = optimizers[i];
            struct tensor one = fill(vector(t, MANY), 1, "w"), three = copy_of(one),
                          g = fill(vector(t, MANY), 0.1, "g");
            struct tensor states[OPTIMIZER_MAX_STATES] = { 0 }, others[OPTIMIZER_MAX_STATES] = { 0 };
            make_states(o, one, states);
            make_states(o, one, others);
            omp_set_num_threads(1);
            two_steps(o, one, g, states);
            omp_set_num_threads(3);
            two_steps(o, three, g, others);
            omp_set_num_threads(threads);
            CASE("%s, %s, 3 threads", o->name, dtype_name(op->dtype));
            expect_same_bits("weight", three, one);
            check_guards_and_free();
        }
}

/* Gradients of 16 bits step fp32 weights as the same numbers in fp32 do. */
static void narrow_gradients_step_as_wide_ones(void **state)
{
    (void)state;
    const enum dtype narrow[] = { BF16, F16 };
    for (int i = 0; optimizers[i]; i++)
        for (int k = 0; k < 2; k++) {
            const struct optimizer *o = optimizers[i];
            struct tensor w = fill(vector(F32, MANY), 1, "w"), other = copy_of(w),
                          g = fill(vector(narrow[k], MANY), 0.1, "g"), wide = vector(F32, MANY);
            struct tensor states[OPTIMIZER_MAX_STATES] = { 0 }, others[OPTIMIZER_MAX_STATES] = { 0 };
            for (int e = 0; e < MANY; e++) tensor_set(wide, e, tensor_get(g, e));
            make_states(o, w, states);
            make_states(o, w, others);
            two_steps(o, w, g, states);
            two_steps(o, other, wide, others);
            CASE("%s, gradients in %s", o->name, dtype_name(narrow[k]));
            expect_same_bits("weight", w, other);
            for (int s = 0; s < o->states; s++) expect_same_bits(o->state_name[s], states[s], others[s]);
            check_guards_and_free();
        }
}

/* A NaN in one gradient is seen in that weight, and nowhere else: nothing hides a broken gradient. */
static void nan_stays_nan(void **state)
{
    (void)state;
    enum { BROKEN = 13 };
    for (int i = 0; optimizers[i]; i++)
        FOR_FORMATS(t, op) {
            const struct optimizer *o = optimizers[i];
            struct tensor w = fill(vector(t, ELEMENTS), 1, "w"), g = fill(vector(t, ELEMENTS), 0.1, "g");
            struct tensor states[OPTIMIZER_MAX_STATES] = { 0 };
            make_states(o, w, states);
            tensor_set(g, BROKEN, NAN);
            optimizer_step(o, w, g, states, step_at(1, 1));
            for (int e = 0; e < ELEMENTS; e++)
                if (isnan(tensor_get(w, e)) != (e == BROKEN))
                    fail_msg("%s, %s: gradient %d is NaN, and weight %d becomes %g: a step must neither hide a NaN "
                             "nor spread it", o->name, dtype_name(op->dtype), BROKEN, e, tensor_get(w, e));
            check_guards_and_free();
        }
}

static void without_rate_nothing_moves(void **state)
{
    (void)state;
    for (int i = 0; optimizers[i]; i++)
        FOR_FORMATS(t, op) {
            const struct optimizer *o = optimizers[i];
            struct tensor w = fill(vector(t, ELEMENTS), 1, "w"), g = fill(vector(t, ELEMENTS), 0.1, "g"),
                          before = copy_of(w);
            struct tensor states[OPTIMIZER_MAX_STATES] = { 0 };
            struct step s = step_at(1, 1);
            s.lr = 0;
            make_states(o, w, states);
            optimizer_step(o, w, g, states, s);
            CASE("%s, %s, rate 0", o->name, dtype_name(op->dtype));
            expect_same_bits("weight", w, before);
            check_guards_and_free();
        }
}

static void registry_is_sound(void **state)
{
    (void)state;
    for (int i = 0; optimizers[i]; i++) {
        const struct optimizer *o = optimizers[i], *found = NULL;
        assert_int_equal(optimizer_find(&found, o->name, NULL), OK);
        assert_ptr_equal(found, o);                     /* no two of one name */
        assert_non_null(o->description);
        assert_non_null(o->source);
        assert_non_null(o->step_f32);
        assert_non_null(o->step_f64);
        assert_in_range(o->states, 0, OPTIMIZER_MAX_STATES);
        for (int s = 0; s < o->states; s++) assert_non_null(o->state_name[s]);
        assert_true(o->usual.lr > 0);
    }
}

static void unknown_names_are_refused(void **state)
{
    (void)state;
    const struct optimizer *found = NULL;
    struct error err;
    assert_int_equal(optimizer_find(&found, "adamv", &err), ERR_USAGE);
    assert_null(found);
    assert_non_null(strstr(err.text, "--optimizer adamv"));
    assert_non_null(strstr(err.text, "adamw"));
    assert_null(strchr(err.text, '\n'));
    assert_int_equal(optimizer_find(&found, "", &err), ERR_USAGE);
    assert_int_equal(optimizer_find(&found, "ADAMW", NULL), ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate_rises_then_falls),
        cmocka_unit_test(rate_without_warmup_or_cosine),
        cmocka_unit_test(clipping_limits_the_norm),
        cmocka_unit_test(steps_follow_their_formula),
        cmocka_unit_test(others_step_as_torch_does),
        cmocka_unit_test(pieces_equal_the_whole),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(narrow_gradients_step_as_wide_ones),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(without_rate_nothing_moves),
        cmocka_unit_test(registry_is_sound),
        cmocka_unit_test(unknown_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
