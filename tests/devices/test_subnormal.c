/* Operations whose steps store subnormal numbers: each may be off by half the smallest step of the format, and by what
 * the steps after it make of that.
 *
 * The program under test stores the result of every step, as PyTorch does without fused kernels.
 * tier: check
 */
#include "ref/model/kinds.h"
#include "ref/model/rotary.h"
#include "ref/numeric/philox.h"
#include "emulated_devices/check/mistakes/explainer.h"
#include "emulated_devices/check/recompute/graph.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 24, WIDTH = 32, SAMPLES = 40 };
#define ROOT_2_OVER_PI 0.79788456080286535587989211986876
#define CUBIC 0.044715

static enum dtype format;

static double stored(double x)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, format, 1);
    tensor_set(one, 0, x);
    return tensor_get(one, 0);
}

static double drawn(uint32_t n)
{
    const uint32_t counter[4] = { n, 0, 0, 0 }, key[2] = { 11, 17 };
    uint32_t word[4];
    philox4x32(counter, key, word);
    return (double)word[0] / 0x1p31 - 1;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static double sigmoid(double x) { return stored(1 / (1 + exp(-x))); }
static double times(double a, double b) { return stored(a * b); }

/* The gradient of x sigmoid(a x) for x, factor after factor. */
static double silu_input(double d, double x, double a)
{
    const double g = sigmoid(times(a, x)), of_sigmoid = times(times(d, x), times(g, stored(1 - g)));
    return stored(times(d, g) + times(of_sigmoid, a));
}

/* Autograd's order: 1 - sigmoid and sigmoid one after another. */
static double silu_input_in_turn(double d, double x, double a)
{
    const double g = sigmoid(times(a, x));
    return stored(times(d, g) + times(times(times(times(d, x), stored(1 - g)), g), a));
}

static double gelu_tanh(double x)
{
    return stored(tanh(times(ROOT_2_OVER_PI, stored(x + times(CUBIC, times(times(x, x), x))))));
}

static double gelu(double x) { return times(times(0.5, x), stored(1 + gelu_tanh(x))); }

static double gelu_input(double d, double x)
{
    const double T = gelu_tanh(x), of_x = times(times(d, stored(1 + T)), 0.5),
                 of_t = times(times(times(d, times(0.5, x)), stored(1 - times(T, T))), ROOT_2_OVER_PI);
    return stored(stored(of_x + of_t) + times(times(of_t, CUBIC), times(3, times(x, x))));
}

static double normal_within(double x) { return stored(erf(times(0.70710678118654752440084436210485, x))); }
static double exact_gelu(double x) { return times(times(0.5, x), stored(1 + normal_within(x))); }

static double exact_gelu_input(double d, double x)
{
    const double p = times(stored(exp(times(-0.5, times(x, x)))), 0.39894228040143267793994605993438);
    return stored(times(times(d, stored(1 + normal_within(x))), 0.5) + times(times(d, x), p));
}

/* One row of `cols` inputs: what the operation makes of it, and of the gradient of what it makes. */
struct program {
    const char *what;
    const struct single_operation *is;
    int64_t in, out;                    /* columns */
    void (*forward)(const double *x, double *y, int64_t row);
    void (*input)(const double *dy, const double *x, double *dx, int64_t row);
};

enum { F = WIDTH / 2 };

static void swiglu_forward(const double *x, double *y, int64_t row)
{
    (void)row;
    for (int f = 0; f < F; f++) y[f] = times(times(x[f], sigmoid(x[f])), x[F + f]);
}

static void swiglu_input(const double *dy, const double *x, double *dx, int64_t row)
{
    for (int f = 0; f < F; f++) {
        const double d = times(dy[f], x[F + f]);
        dx[f] = row % 2 ? silu_input(d, x[f], 1) : silu_input_in_turn(d, x[f], 1);
        dx[F + f] = times(dy[f], times(x[f], sigmoid(x[f])));
    }
}

static void silu_forward(const double *x, double *y, int64_t row)
{
    (void)row;
    for (int f = 0; f < WIDTH; f++) y[f] = times(x[f], sigmoid(x[f]));
}

static void silu_backward(const double *dy, const double *x, double *dx, int64_t row)
{
    for (int f = 0; f < WIDTH; f++) dx[f] = row % 2 ? silu_input(dy[f], x[f], 1) : silu_input_in_turn(dy[f], x[f], 1);
}

static void gelu_forward(const double *x, double *y, int64_t row)
{
    (void)row;
    for (int f = 0; f < WIDTH; f++) y[f] = gelu(x[f]);
}

static void gelu_backward(const double *dy, const double *x, double *dx, int64_t row)
{
    (void)row;
    for (int f = 0; f < WIDTH; f++) dx[f] = gelu_input(dy[f], x[f]);
}

static void exact_forward(const double *x, double *y, int64_t row)
{
    (void)row;
    for (int f = 0; f < WIDTH; f++) y[f] = exact_gelu(x[f]);
}

static void exact_backward(const double *dy, const double *x, double *dx, int64_t row)
{
    (void)row;
    for (int f = 0; f < WIDTH; f++) dx[f] = exact_gelu_input(dy[f], x[f]);
}

static void squared_forward(const double *x, double *y, int64_t row)
{
    (void)row;
    for (int f = 0; f < WIDTH; f++) y[f] = times(fmax(x[f], 0), fmax(x[f], 0));
}

/* Autograd of a square: the gradient times twice the relu, in either order. */
static void squared_backward(const double *dy, const double *x, double *dx, int64_t row)
{
    for (int f = 0; f < WIDTH; f++) {
        const double r = fmax(x[f], 0);
        dx[f] = row % 2 ? times(times(dy[f], r), 2) : times(dy[f], times(2, r));
    }
}

static void geglu_forward(const double *x, double *y, int64_t row)
{
    (void)row;
    for (int f = 0; f < F; f++) y[f] = times(gelu(x[f]), x[F + f]);
}

static void geglu_input(const double *dy, const double *x, double *dx, int64_t row)
{
    (void)row;
    for (int f = 0; f < F; f++) dx[f] = gelu_input(times(dy[f], x[F + f]), x[f]), dx[F + f] = times(dy[f], gelu(x[f]));
}

static struct model_config config;      /* of the clamp, the cap and the rotation */

static double clamp(double x, double low) { return fmax(low, fmin(x, config.mixture.clamped.limit)); }

static void clamped_forward(const double *x, double *y, int64_t row)
{
    const struct clamped c = config.mixture.clamped;
    (void)row;
    for (int f = 0; f < F; f++) {
        const double g = clamp(x[f], -INFINITY);
        y[f] = times(stored(clamp(x[F + f], -c.limit) + 1), times(g, sigmoid(times(c.alpha, g))));
    }
}

static void clamped_input(const double *dy, const double *x, double *dx, int64_t row)
{
    const struct clamped c = config.mixture.clamped;
    for (int f = 0; f < F; f++) {
        const double g = clamp(x[f], -INFINITY), d = times(dy[f], stored(clamp(x[F + f], -c.limit) + 1)),
                     silu = times(g, sigmoid(times(c.alpha, g)));
        dx[f] = x[f] > c.limit ? 0 : row % 2 ? silu_input(d, g, c.alpha) : silu_input_in_turn(d, g, c.alpha);
        dx[F + f] = fabs(x[F + f]) > c.limit ? 0 : times(dy[f], silu);
    }
}

static void cap_forward(const double *x, double *y, int64_t row)
{
    (void)row;
    for (int f = 0; f < WIDTH; f++) y[f] = times(stored(tanh(stored(x[f] / config.logit_cap))), config.logit_cap);
}

static void cap_input(const double *dy, const double *x, double *dx, int64_t row)
{
    (void)row;
    for (int f = 0; f < WIDTH; f++) {
        const double T = stored(tanh(stored(x[f] / config.logit_cap)));
        dx[f] = stored(times(times(dy[f], config.logit_cap), stored(1 - times(T, T))) / config.logit_cap);
    }
}

/* The first half of a head's columns is turned with the second. */
static void turn(const double *x, double *y, int64_t row, double sign)
{
    const struct rotary rotary = model_rotary(&config, 0);
    const int64_t A = config.A, heads = config.H + config.K;
    memcpy(y, x, (size_t)WIDTH * sizeof *y);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t p = 0; p < A / 2; p++) {
            const double angle = (double)row * rotary_frequency(&rotary, A, p, ROWS), c = stored(cos(angle)),
                         s = stored(sign * sin(angle)), a = x[h * A + p], b = x[h * A + p + A / 2];
            y[h * A + p] = stored(times(a, c) - times(b, s)), y[h * A + p + A / 2] = stored(times(b, c) + times(a, s));
        }
}

static void rotary_forward(const double *x, double *y, int64_t row) { turn(x, y, row, 1); }

static void rotary_input(const double *dy, const double *x, double *dx, int64_t row)
{
    (void)x;
    turn(dy, dx, row, -1);
}

static const struct program programs[] = {
    { "swiglu", &single_swiglu, WIDTH, F, swiglu_forward, swiglu_input },
    { "silu", &single_silu, WIDTH, WIDTH, silu_forward, silu_backward },
    { "gelu", &single_gelu, WIDTH, WIDTH, gelu_forward, gelu_backward },
    { "exact gelu", &single_exact_gelu, WIDTH, WIDTH, exact_forward, exact_backward },
    { "squared relu", &single_squared_relu, WIDTH, WIDTH, squared_forward, squared_backward },
    { "geglu", &single_geglu, WIDTH, F, geglu_forward, geglu_input },
    { "clamped swiglu", &single_clamped_swiglu, WIDTH, F, clamped_forward, clamped_input },
    { "soft cap", &single_soft_cap, WIDTH, WIDTH, cap_forward, cap_input },
    { "rotation", &single_rotary, WIDTH, WIDTH, rotary_forward, rotary_input },
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

/* ---- the check --------------------------------------------------------------------------------------------------- */

struct run {
    const struct program *program;
    double x[ROWS][WIDTH], y[ROWS][WIDTH], dy[ROWS][WIDTH], dx[ROWS][WIDTH];
    int results, wrong;
    struct single_result first;         /* that is wrong */
};

static enum error_code fetch(void *context, const char *name, struct tensor out, enum single_found *found,
                             struct error *err)
{
    const struct run *r = context;
    const struct { const char *name; const double *row; int64_t cols; } has[] = {
        { "act/in", *r->x, r->program->in }, { "act/out", *r->y, r->program->out },
        { "grad/out", *r->dy, r->program->out }, { "grad/in", *r->dx, r->program->in },
    };
    (void)err;
    *found = SINGLE_HAS_NOT;
    for (int k = 0; k < 4; k++) {
        if (strcmp(has[k].name, name) != 0) continue;
        for (int64_t i = 0; i < ROWS * has[k].cols; i++)
            ((double *)out.data)[i] = has[k].row[i / has[k].cols * WIDTH + i % has[k].cols];
        *found = SINGLE_HAS;
    }
    return OK;
}

static void found(void *context, const struct single_result *result)
{
    struct run *r = context;
    if (result->verdict > SINGLE_WRONG) return;         /* the norm: there are no gradients of parameters */
    r->results++;
    if (result->verdict == SINGLE_WRONG && r->wrong++ == 0) r->first = *result;
}

static void check(struct run *r)
{
    struct single_slot slot[] = {
        { .name = "in", .rows = ROWS, .cols = r->program->in, .maker = -1, .route = -1 },
        { .name = "out", .rows = ROWS, .cols = r->program->out, .maker = 0, .route = -1 },
    };
    struct single_node node[] = { { r->program->is, "", { 0, -1, -1 }, 1, .weight = -1, .bias = -1 } };
    const struct single_graph graph = { slot, node, 2, 1 };
    static const int32_t ids[ROWS], labels[ROWS];
    const struct rounding rounding = rounding_of(format, DTYPE_COUNT, 1);
    struct error err;
    r->results = r->wrong = 0;
    if (single_check(&config, &graph, (struct single_batch){ ids, labels, 1, ROWS, 0 }, rounding,
                     (struct single_source){ .explainer = &mistakes_explainer,
                                             .fetch = fetch, .found = found, .context = r }, &err) != OK)
        fail_msg("%s", err.text);
}

/* Inputs of usual size, or, of every second sample, some that are subnormal; gradients that all are: up to 60 steps. */
static void compute(struct run *r, uint32_t sample)
{
    const double step = dtype_step(format);
    const int64_t in = r->program->in, out = r->program->out;
    for (int64_t row = 0; row < ROWS; row++) {
        for (int64_t i = 0; i < in; i++) {
            const double d = drawn((uint32_t)((sample * ROWS + (uint32_t)row) * WIDTH + (uint32_t)i));
            r->x[row][i] = stored(sample % 2 && i >= in / 2 ? 60 * step * d : 3 * d);
        }
        for (int64_t i = 0; i < out; i++)
            r->dy[row][i] = stored(60 * step * drawn((uint32_t)((sample * ROWS + (uint32_t)row) * WIDTH + (uint32_t)i) +
                                                     1000003));
        r->program->forward(r->x[row], r->y[row], row);
        r->program->input(r->dy[row], r->x[row], r->dx[row], row);
    }
}

static void configure(void)
{
    config = (struct model_config){ .L = 1, .D = WIDTH, .H = 2, .K = 1, .A = 8, .F = F, .V = 8, .S = ROWS,
                                    .positions = POSITIONS_ROTARY, .logit_cap = 30,
                                    .mixture.clamped = { .limit = 2.5, .alpha = 1.702 } };
    config.rotary.theta = 10000;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const enum dtype formats[] = { F16, BF16, F32 };

static void steps_that_underflow_are_right(void **state)
{
    (void)state;
    configure();
    for (int t = 0; t < 3; t++)
        for (int p = 0; p < PROGRAMS; p++)
            for (uint32_t sample = 0; sample < SAMPLES; sample++) {
                static struct run r;
                r.program = &programs[p], format = formats[t];
                compute(&r, sample);
                check(&r);
                assert_int_equal(r.results, 2);
                if (r.wrong)
                    fail_msg("%s in %s: %s is %g times its bound: %g, not %g", programs[p].what, dtype_name(format),
                             r.first.name, r.first.ratio, r.first.have, r.first.want);
            }
}

/* Forty of the smallest steps are an error, at its place. */
static void more_than_steps_is_wrong(void **state)
{
    (void)state;
    configure();
    for (int t = 0; t < 3; t++)
        for (int p = 0; p < PROGRAMS; p++) {
            static struct run r;
            r.program = &programs[p], format = formats[t];
            compute(&r, 0);
            r.dx[3][5] += 40 * dtype_step(format);
            check(&r);
            if (r.wrong != 1) fail_msg("%s in %s: an error is not found", programs[p].what, dtype_name(format));
            assert_string_equal(r.first.name, "grad/in");
            assert_int_equal(r.first.worst, 3 * r.program->in + 5);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(steps_that_underflow_are_right),
                                        cmocka_unit_test(more_than_steps_is_wrong) };
    return cmocka_run_group_tests_name("subnormal numbers", tests, NULL, NULL);
}
