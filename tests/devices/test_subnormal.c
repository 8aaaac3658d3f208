/* Operations whose steps store subnormal numbers: each may be off by half the smallest step of the format, and by what
 * the steps after it make of that.  Sigmoids whose exponential is beyond the format's largest number.
 *
 * The program under test stores the result of every step, as PyTorch does without fused kernels.
 * tier: check
 */
#include "ref/model/kinds.h"
#include "ref/model/rotary.h"
#include "ref/numeric/philox.h"
#include "emulated_devices/check/mistakes/explainer.h"
#include "emulated_devices/check/recompute/graph.h"
#include "ref/model/params.h"
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

/* The exponential may be infinite, and the sigmoid 0. */
static double sigmoid(double x) { return stored(1 / stored(1 + stored(exp(-x)))); }
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

/* ---- with weights, and over rows --------------------------------------------------------------------------------- */

static double norm_weight(int64_t i) { return 1 + 0.25 * drawn(7000 + (uint32_t)i); }
static double norm_bias(int64_t i) { return 0.1 * drawn(7100 + (uint32_t)i); }

/* These are the statistics of a row. */
struct moments { double mean, root; };

static struct moments moments(const double *x)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < WIDTH; i++) sum += x[i] / WIDTH;
    for (int i = 0; i < WIDTH; i++) squares += (x[i] - sum) * (x[i] - sum) / WIDTH;
    return (struct moments){ sum, 1 / sqrt(squares + config.eps) };
}

static void layernorm_forward(const double *x, double *y, int64_t row)
{
    const struct moments m = moments(x);
    (void)row;
    for (int i = 0; i < WIDTH; i++)
        y[i] = stored(times(stored((x[i] - m.mean) * m.root), norm_weight(i)) + norm_bias(i));
}

/* Mean, variance, its sum with eps, and root are stored (--stored-norms); a small row's variance is subnormal. */
static void stored_norm_forward(const double *x, double *y, int64_t row)
{
    const struct moments m = moments(x);
    const double variance = stored(1 / (m.root * m.root) - config.eps),
                 root = stored(1 / sqrt(stored(variance + config.eps)));
    (void)row;
    for (int i = 0; i < WIDTH; i++)
        y[i] = stored(times(times(stored(x[i] - stored(m.mean)), root), norm_weight(i)) + norm_bias(i));
}

/* Backward, mean and root are stored, too. */
static void layernorm_input(const double *dy, const double *x, double *dx, int64_t row)
{
    const struct moments m = moments(x);
    const double mean = stored(m.mean), root = stored(m.root);
    double h[WIDTH], unit[WIDTH], of_h = 0, of_both = 0;
    (void)row;
    for (int i = 0; i < WIDTH; i++) {
        h[i] = times(dy[i], norm_weight(i)), unit[i] = stored((x[i] - mean) * root);
        of_h += h[i] / WIDTH, of_both += times(h[i], unit[i]) / WIDTH;
    }
    of_h = stored(of_h), of_both = stored(of_both);
    for (int i = 0; i < WIDTH; i++) dx[i] = times(stored(stored(h[i] - of_h) - times(unit[i], of_both)), root);
}

/* Rows of a result or of a gradient of attention need all rows, so these two write rows of the whole. */
static void attend(const double (*x)[WIDTH], double (*y)[WIDTH], const double (*dy)[WIDTH], double (*dx)[WIDTH])
{
    const int A = (int)config.A, H = (int)config.H, K = (int)config.K;
    static double sum[ROWS][WIDTH];
    memset(sum, 0, sizeof sum);
    for (int h = 0; h < H; h++)
        for (int n = 0; n < ROWS; n++) {
            const int q = h * A, k = (H + h / (H / K)) * A, v = k + K * A;
            double p[ROWS], a[ROWS], top = -INFINITY, all = 0, d = 0;
            for (int j = 0; j <= n; j++) {
                p[j] = 0;
                for (int i = 0; i < A; i++) p[j] += x[n][q + i] * x[j][k + i];
                p[j] = times(stored(p[j]), 1 / sqrt(A)), top = fmax(top, p[j]);
            }
            for (int j = 0; j <= n; j++) all += exp(p[j] - top);
            for (int j = 0; j <= n; j++) p[j] = stored(exp(p[j] - top) / all);
            for (int i = 0; i < A && y; i++) {
                double out = 0;
                for (int j = 0; j <= n; j++) out += p[j] * x[j][v + i];
                y[n][q + i] = stored(out);
            }
            /* d is the sum of stored products of probabilities and their gradients. */
            for (int j = 0; j <= n && dx; j++) {
                a[j] = 0;
                for (int i = 0; i < A; i++) a[j] += dy[n][q + i] * x[j][v + i];
                a[j] = stored(a[j]), d += times(p[j], a[j]);
            }
            d = stored(d);
            for (int j = 0; j <= n && dx; j++) {
                const double of_score = times(times(p[j], stored(a[j] - d)), 1 / sqrt(A));
                for (int i = 0; i < A; i++) {
                    sum[n][q + i] += of_score * x[j][k + i];
                    sum[j][k + i] += of_score * x[n][q + i], sum[j][v + i] += p[j] * dy[n][q + i];
                }
            }
            /* Heads that share keys add one after another, and each sum is stored. */
            for (int j = 0; j < ROWS && n == ROWS - 1; j++)
                for (int i = 0; i < A; i++)
                    sum[j][k + i] = stored(sum[j][k + i]), sum[j][v + i] = stored(sum[j][v + i]);
        }
    for (int n = 0; n < ROWS && dx; n++)
        for (int i = 0; i < WIDTH; i++) dx[n][i] = stored(sum[n][i]);
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
    { "layernorm", &single_norm, WIDTH, WIDTH, layernorm_forward, layernorm_input },
    { "stored statistics", &single_norm, WIDTH, WIDTH, stored_norm_forward, layernorm_input },
    { "attention", &single_attention, WIDTH, F, NULL, NULL },
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
    const char *const kind = strrchr(name, '.');
    if (strncmp(name, "start/", 6) == 0 && kind) {
        for (int64_t i = 0; i < WIDTH; i++)
            ((double *)out.data)[i] = strcmp(kind, ".bias") == 0 ? norm_bias(i) : norm_weight(i);
        *found = SINGLE_HAS;
    }
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

/* The number of a vector of the model. */
static int vector_of(const char *name)
{
    for (int i = 0; i < model_param_count(&config); i++)
        if (strcmp(model_param(&config, i).name, name) == 0) return i;
    fail_msg("no %s", name);
    return -1;
}

static void check(struct run *r)
{
    struct single_slot slot[] = {
        { .name = "in", .rows = ROWS, .cols = r->program->in, .maker = -1, .route = -1 },
        { .name = "out", .rows = ROWS, .cols = r->program->out, .maker = 0, .route = -1 },
    };
    struct single_node node[] = { { r->program->is, "", { 0, -1, -1 }, 1, .weight = -1, .bias = -1 } };
    if (r->program->is == &single_norm) node->weight = vector_of("ln_f.weight"), node->bias = vector_of("ln_f.bias");
    const struct single_graph graph = { slot, node, 2, 1 };
    static const int32_t ids[ROWS], labels[ROWS];
    struct rounding rounding = rounding_of(format, DTYPE_COUNT, 1);
    rounding.stored_norms = r->program->forward == stored_norm_forward;
    struct error err;
    r->results = r->wrong = 0;
    if (single_check(&config, &graph, (struct single_batch){ ids, labels, 1, ROWS, 0, NULL }, rounding,
                     (struct single_source){ .explainer = &mistakes_explainer,
                                             .fetch = fetch, .found = found, .context = r }, &err) != OK)
        fail_msg("%s", err.text);
}

/* Inputs of usual size, for norms also of a size whose squares are subnormal in fp16; or, of every second sample, some
 * that are subnormal, of every fourth all.  All gradients are subnormal: up to 60 steps. */
static void compute(struct run *r, uint32_t sample, double size)
{
    const double step = dtype_step(format), usual = r->program->is == &single_norm && sample % 4 == 0 ? 0.002 : size;
    const int64_t in = r->program->in, out = r->program->out;
    for (int64_t row = 0; row < ROWS; row++) {
        for (int64_t i = 0; i < in; i++) {
            const double d = drawn((uint32_t)((sample * ROWS + (uint32_t)row) * WIDTH + (uint32_t)i));
            r->x[row][i] = stored(sample % 4 == 3 || (sample % 2 && i >= in / 2) ? 60 * step * d : usual * d);
        }
        for (int64_t i = 0; i < out; i++)
            r->dy[row][i] = stored(60 * step * drawn((uint32_t)((sample * ROWS + (uint32_t)row) * WIDTH + (uint32_t)i) +
                                                     1000003));
        if (r->program->forward == NULL) continue;
        r->program->forward(r->x[row], r->y[row], row);
        r->program->input(r->dy[row], r->x[row], r->dx[row], row);
    }
    if (r->program->forward == NULL) attend(r->x, r->y, r->dy, r->dx);
}

static void configure(void)
{
    struct error err;
    int64_t batch;
    assert_int_equal(model_config_preset(&config, &batch, "tiny", &err), OK);
    config.L = 1, config.D = WIDTH, config.H = 2, config.K = 1, config.A = 8, config.F = F, config.V = 8;
    config.S = ROWS;
    config.positions = POSITIONS_ROTARY, config.logit_cap = 30, config.rotary.theta = 10000;
    config.mixture.clamped.limit = 2.5, config.mixture.clamped.alpha = 1.702;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static bool has_sigmoid(const struct program *program)
{
    return program->is == &single_swiglu || program->is == &single_silu || program->is == &single_clamped_swiglu;
}

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
                compute(&r, sample, 3);
                check(&r);
                assert_int_equal(r.results, 2);
                if (r.wrong)
                    fail_msg("%s in %s: %s is %g times its bound: %g, not %g", programs[p].what, dtype_name(format),
                             r.first.name, r.first.ratio, r.first.have, r.first.want);
            }
}

/* The steps of a sigmoid are the same with usual gradients: e^-x of x below -11.1 is infinite in fp16, below -88.8 in
 * bf16 and fp32. */
static void sigmoids_that_overflow_are_right(void **state)
{
    static const double size[] = { 40, 300, 300 };
    (void)state;
    configure();
    for (int t = 0; t < 3; t++)
        for (int p = 0; p < PROGRAMS; p++)
            for (uint32_t sample = 0; sample < SAMPLES && has_sigmoid(&programs[p]); sample++) {
                static struct run r;
                r.program = &programs[p], format = formats[t];
                compute(&r, 4 * sample, size[t]);
                for (int64_t row = 0; row < ROWS; row++) {
                    for (int64_t i = 0; i < r.program->out; i++)
                        r.dy[row][i] = stored(0.1 * drawn((uint32_t)(row + i)));
                    r.program->input(r.dy[row], r.x[row], r.dx[row], row);
                }
                check(&r);
                assert_int_equal(r.results, 2);
                if (r.wrong)
                    fail_msg("%s in %s: %s is %g times its bound: %g, not %g", programs[p].what, dtype_name(format),
                             r.first.name, r.first.ratio, r.first.have, r.first.want);
            }
}

/* A sigmoid that a program sets to 0 where e^-x is not infinite is wrong. */
static void zeros_before_that_are_wrong(void **state)
{
    static struct run r;
    (void)state;
    configure();
    r.program = &programs[1], format = F16;             /* silu */
    compute(&r, 0, 3);
    r.x[3][5] = stored(-10.5);
    r.program->forward(r.x[3], r.y[3], 3), r.program->input(r.dy[3], r.x[3], r.dx[3], 3);
    assert_true(r.y[3][5] < 0);
    check(&r);
    assert_int_equal(r.wrong, 0);
    r.y[3][5] = 0;
    check(&r);
    assert_int_equal(r.wrong, 1);
    assert_string_equal(r.first.name, "act/out");
    r.x[3][5] = stored(-11.5);
    r.program->forward(r.x[3], r.y[3], 3), r.program->input(r.dy[3], r.x[3], r.dx[3], 3);
    assert_true(r.y[3][5] == 0);
    check(&r);
    assert_int_equal(r.wrong, 0);
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
            compute(&r, 2, 3);
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
                                        cmocka_unit_test(sigmoids_that_overflow_are_right),
                                        cmocka_unit_test(zeros_before_that_are_wrong),
                                        cmocka_unit_test(more_than_steps_is_wrong) };
    return cmocka_run_group_tests_name("subnormal numbers", tests, NULL, NULL);
}
