/* elementwise.c -- operations of a few terms for each element: sums, embeddings, activations, rotations.
 *
 * The sum of absolute terms times a few units of roundoff bounds the error of each; a step's result that is stored adds
 * the unit of the format.
 */
#include "ref/model/rotary.h"
#include "ref/single/parts.h"

/* What an element is, and how far its steps are off if the results of each have unit roundoff u. */
struct element { double y, off; };

static void put(struct single *s, int64_t i, struct tensor Y, struct tensor fused, struct tensor steps,
                struct element once, struct element each)
{
    const struct rounding *r = &s->rounding;
    const double off = once.off + each.off;
    numbers(Y)[i] = once.y;
    numbers(fused)[i] = once.off + rounding_when_stored(r, once.y, once.off);
    numbers(steps)[i] = off + rounding_when_stored(r, once.y, off);
}

void single_add(struct single *s, struct single_name y, const struct single_name x[], int count)
{
    const int64_t D = s->config->D;
    struct tensor X[3];
    if (!single_begin(s, y, count > 1 ? "the sum of the stream and its branch" : "the sum, backward", s->N, D))
        return;
    for (int i = 0; i < count; i++) X[i] = single_input(s, x[i], s->N, D);
    if (!single_ready(s)) return;
    const struct tensor Y = single_new(s, s->N, D), fused = single_new(s, s->N, D), steps = single_new(s, s->N, D);
    for (int64_t i = 0; !s->failed && i < s->N * D; i++) {
        double sum = 0, absolute = 0;
        for (int k = 0; k < count; k++) sum += numbers(X[k])[i], absolute += fabs(numbers(X[k])[i]);
        const double stored = count > 2 ? s->rounding.store * absolute : 0;       /* the sum of the first two */
        put(s, i, Y, fused, steps, (struct element){ sum, (count > 1) * count * s->rounding.sum * absolute + stored },
            (struct element){ 0, 0 });
    }
    single_end(s, Y, fused, steps);
}

/* ---- embeddings -------------------------------------------------------------------------------------------------- */

void single_embedding_forward(struct single *s)
{
    const struct model_config *c = s->config;
    const int positions = param_positions(c);
    if (!single_begin(s, single_act("act", -1, ""), "the embedding", s->N, c->D)) return;
    const struct tensor T = single_input(s, single_param(s, "start", PARAM_WTE), c->V, c->D),
                        P = positions < 0 ? tensor_none
                                          : single_input(s, single_param(s, "start", positions), c->S, c->D);
    if (!single_ready(s)) return;
    const struct tensor Y = single_new(s, s->N, c->D), fused = single_new(s, s->N, c->D),
                        steps = single_new(s, s->N, c->D);
    for (int64_t i = 0; !s->failed && i < s->N * c->D; i++) {
        const int64_t n = i / c->D, d = i % c->D;
        const double token = numbers(T)[s->batch.ids[n] * c->D + d],
                     position = positions < 0 ? 0 : numbers(P)[n % s->batch.S * c->D + d];
        put(s, i, Y, fused, steps,
            (struct element){ token + position, s->rounding.sum * (fabs(token) + fabs(position)) },
            (struct element){ 0, 0 });
    }
    single_end(s, Y, fused, steps);
}

/* dW[row of n] += dY[n], in any order. */
static void scatter(struct single *s, int param, int64_t rows, bool tokens)
{
    const int64_t D = s->config->D, N = s->N;
    if (!single_begin(s, single_param(s, "grad", param), "the backward pass of the embedding", rows, D)) return;
    const struct tensor dY = single_input(s, single_act("grad", -1, ""), N, D);
    if (!single_ready(s)) return;
    const struct tensor Y = single_new(s, rows, D), fused = single_new(s, rows, D), steps = single_new(s, rows, D),
                        absolute = single_new(s, rows, D), count = single_new(s, rows, 1);
    for (int64_t i = 0; !s->failed && i < N * D; i++) {
        const int64_t n = i / D, row = tokens ? s->batch.ids[n] : n % s->batch.S, at = row * D + i % D;
        numbers(count)[row] += i % D == 0;
        numbers(Y)[at] += numbers(dY)[i], numbers(absolute)[at] += fabs(numbers(dY)[i]);
        numbers(steps)[at] += fabs(numbers(Y)[at]);
    }
    for (int64_t i = 0; !s->failed && i < rows * D; i++) {
        const int64_t terms = (int64_t)numbers(count)[i / D];
        const double off = rounding_of_sum(s->rounding.sum, terms) * numbers(absolute)[i],
                     parts = s->rounding.parts > 1 ? 2 * s->rounding.store * numbers(absolute)[i] : 0;
        put(s, i, Y, fused, steps, (struct element){ numbers(Y)[i], terms > 0 ? off + parts : 0 },
            (struct element){ 0, terms > 1 ? s->rounding.store * numbers(steps)[i] : 0 });
    }
    single_end(s, Y, fused, steps);
}

void single_embedding_weight(struct single *s)
{
    const struct model_config *c = s->config;
    if (!c->tied) scatter(s, PARAM_WTE, c->V, true);
    if (param_positions(c) >= 0) scatter(s, param_positions(c), c->S, false);
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

#define ROOT_2_OVER_PI 0.79788456080286535587989211986876
#define CUBIC 0.044715

/* y = x (1 + tanh t) / 2.  Programs that compute 1 + tanh lose digits where tanh is near -1: an absolute error. */
static struct element gelu(double x, double u)
{
    const double t = ROOT_2_OVER_PI * x * (1 + CUBIC * x * x), T = tanh(t),
                 off_T = (1 - T * T) * 6 * u * fabs(t) + 2 * u * fabs(T);
    return (struct element){ x / 2 * (1 + T), fabs(x) / 2 * (off_T + u * (1 + T)) + 2 * u * fabs(x / 2 * (1 + T)) };
}

static struct element gelu_slope(double x, double u)
{
    const double t = ROOT_2_OVER_PI * x * (1 + CUBIC * x * x), T = tanh(t),
                 slope = ROOT_2_OVER_PI * (1 + 3 * CUBIC * x * x), second = x / 2 * (1 - T * T) * slope,
                 off_T = (1 - T * T) * 6 * u * fabs(t) + 2 * u * fabs(T);
    return (struct element){ (1 + T) / 2 + second,
                             off_T + u * (1 + T) + fabs(x) * slope * (fabs(T) * off_T + u * T * T) +
                                 10 * u * fabs(second) };
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* The element of the result that column f of gate and up makes. */
static struct element swiglu(double gate, double up, double u)
{
    const double y = gate * sigmoid(gate) * up;
    return (struct element){ y, (6 + fabs(gate)) * u * fabs(y) };
}

/* dgate (first) or dup. */
static struct element swiglu_slope(double dy, double gate, double up, bool first, double u)
{
    const double g = sigmoid(gate), silu = gate * g, slope = g + silu * (1 - g);
    if (!first) return (struct element){ dy * silu, (6 + fabs(gate)) * u * fabs(dy * silu) };
    return (struct element){ dy * up * slope, fabs(dy * up) * (8 + fabs(gate)) * u * (g + fabs(silu) * (1 - g)) };
}

static bool is_swiglu(const struct single *s) { return s->config->mlp == MLP_SWIGLU; }

void single_activation_forward(struct single *s, struct single_name y, struct single_name x)
{
    const int64_t F = s->config->F, U = up_width(s->config);
    if (!single_begin(s, y, is_swiglu(s) ? "swiglu" : "gelu", s->N, F)) return;
    const struct tensor X = single_input(s, x, s->N, U);
    if (!single_ready(s)) return;
    const struct tensor Y = single_new(s, s->N, F), fused = single_new(s, s->N, F), steps = single_new(s, s->N, F);
    for (int64_t i = 0; !s->failed && i < s->N * F; i++) {
        const double *row = numbers(X) + i / F * U, a = row[i % F], u = s->rounding.sum, v = s->rounding.store;
        if (is_swiglu(s))
            put(s, i, Y, fused, steps, swiglu(a, row[F + i % F], u),
                (struct element){ 0, 2 * v * fabs(a * sigmoid(a) * row[F + i % F]) });
        else put(s, i, Y, fused, steps, gelu(a, u), gelu(a, v));
    }
    single_end(s, Y, fused, steps);
}

void single_activation_input(struct single *s, struct single_name dx, struct single_name dy, struct single_name x)
{
    const int64_t F = s->config->F, U = up_width(s->config);
    if (!single_begin(s, dx, is_swiglu(s) ? "the backward pass of swiglu" : "the backward pass of gelu", s->N, U))
        return;
    const struct tensor dY = single_input(s, dy, s->N, F), X = single_input(s, x, s->N, U);
    if (!single_ready(s)) return;
    const struct tensor Y = single_new(s, s->N, U), fused = single_new(s, s->N, U), steps = single_new(s, s->N, U);
    for (int64_t i = 0; !s->failed && i < s->N * U; i++) {
        const int64_t n = i / U, f = i % U % F;
        const double *row = numbers(X) + n * U, d = numbers(dY)[n * F + f], u = s->rounding.sum, v = s->rounding.store;
        struct element once, each;
        if (is_swiglu(s)) {
            once = swiglu_slope(d, row[f], row[F + f], i % U < F, u);
            each = swiglu_slope(d, row[f], row[F + f], i % U < F, v);
        } else {
            once = gelu_slope(row[f], u), each = gelu_slope(row[f], v);
            once.y *= d, once.off = fabs(d) * once.off + u * fabs(once.y), each.off = fabs(d) * each.off;
        }
        put(s, i, Y, fused, steps, once, each);
    }
    single_end(s, Y, fused, steps);
}

/* ---- rotations --------------------------------------------------------------------------------------------------- */

/* One pair, turned.  The angle is off by a few units of itself; by steps, cosine, sine and products are stored. */
static void turn(struct single *s, struct tensor Y, struct tensor fused, struct tensor steps, struct tensor X,
                 int64_t i, int64_t j, double angle)
{
    const double x = numbers(X)[i], y = numbers(X)[j], c = cos(angle), d = sin(angle), u = s->rounding.sum,
                 v = s->rounding.store, far = 4 * u * fabs(angle) + 3 * u;
    const double first = fabs(x * c) + fabs(y * d), second = fabs(y * c) + fabs(x * d);
    put(s, i, Y, fused, steps, (struct element){ x * c - y * d, far * second + 3 * u * first },
        (struct element){ 0, 3 * v * first });
    put(s, j, Y, fused, steps, (struct element){ y * c + x * d, far * first + 3 * u * second },
        (struct element){ 0, 3 * v * second });
}

void single_rotary(struct single *s, struct single_name y, struct single_name x, bool backward)
{
    const struct model_config *c = s->config;
    const int64_t width = qkv_width(c), R = rotary_table_width(c), half = R / 2;
    if (!single_begin(s, y, backward ? "the backward pass of the rotation" : "the rotation by positions", s->N, width))
        return;
    s->now.head = c->A;
    const struct tensor X = single_input(s, x, s->N, width);
    if (!single_ready(s)) return;
    const struct tensor Y = single_new(s, s->N, width), fused = single_new(s, s->N, width),
                        steps = single_new(s, s->N, width);
    for (int64_t i = 0; !s->failed && i < s->N * width; i++)
        put(s, i, Y, fused, steps, (struct element){ numbers(X)[i], 0 }, (struct element){ 0, 0 });
    for (int64_t n = 0; !s->failed && n < s->N; n++)
        for (int64_t h = 0; h < c->H + c->K; h++)
            for (int64_t p = 0; p < half; p++) {
                const double angle = (double)(n % s->batch.S) * rotary_frequency(&c->rotary, R, p);
                const int64_t at = n * width + h * c->A, i = c->rotary.neighbours ? 2 * p : p,
                              j = c->rotary.neighbours ? 2 * p + 1 : p + half;
                turn(s, Y, fused, steps, X, at + i, at + j, backward ? -angle : angle);
            }
    single_end(s, Y, fused, steps);
}
