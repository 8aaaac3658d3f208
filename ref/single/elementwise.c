/* elementwise.c -- operations of a few terms for each element: sums, activations, rotations.
 *
 * The sum of absolute terms times a few units of roundoff bounds the error of each; a step's result that is stored adds
 * the unit of the format.
 */
#include "ref/model/rotary.h"
#include "ref/single/parts.h"

/* ---- sums and what changes nothing ------------------------------------------------------------------------------- */

static struct single_value add(struct single *s, const struct single_node *n)
{
    const struct single_value x[] = { single_value_of(s, n->in[0]), single_value_of(s, n->in[1]) };
    return single_going(s) ? single_sum(s, x, 2) : single_none;
}

static struct single_value same(struct single *s, const struct single_node *n)
{
    return single_value_of(s, n->in[0]);
}

static struct single_value handed_on(struct single *s, const struct single_node *n)
{
    return single_gradient_of(s, n->out);
}

const struct single_operation single_add = {
    .words = "the sum of the stream and its branch",
    .forward = add,
    .input_words = "the sum, backward",
    .input = { handed_on, handed_on },
    .passes_on = true,
};

const struct single_operation single_same = {
    .words = "what passes by",
    .forward = same,
    .input_words = "the sum, backward",
    .input = { handed_on },
    .passes_on = true,
};

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

static struct single_value gelu_forward(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_none;
    const struct single_value v = single_value_new(s, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i];
        single_put(v, i, gelu(x, s->rounding.sum), gelu(x, s->rounding.store).off);
    }
    return v;
}

static struct single_value gelu_input(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_none;
    const struct single_value v = single_value_new(s, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i], d = numbers(dY)[i], u = s->rounding.sum;
        const struct element slope = gelu_slope(x, u);
        single_put(v, i, (struct element){ d * slope.y, fabs(d) * slope.off + u * fabs(d * slope.y) },
                   fabs(d) * gelu_slope(x, s->rounding.store).off);
    }
    return v;
}

static struct single_value swiglu_forward(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_none;
    const int64_t F = tensor_cols(X) / 2;
    const struct single_value v = single_value_new(s, tensor_rows(X), F);
    for (int64_t i = 0; !s->failed && i < tensor_count(v.y); i++) {
        const double *row = numbers(X) + i / F * 2 * F, gate = row[i % F], up = row[F + i % F];
        single_put(v, i, swiglu(gate, up, s->rounding.sum), 2 * s->rounding.store * fabs(gate * sigmoid(gate) * up));
    }
    return v;
}

static struct single_value swiglu_input(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_none;
    const int64_t F = tensor_cols(dY);
    const struct single_value v = single_value_new(s, tensor_rows(X), 2 * F);
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const int64_t row = i / (2 * F), f = i % F;
        const bool first = i % (2 * F) < F;
        const double *x = numbers(X) + row * 2 * F, d = numbers(dY)[row * F + f];
        single_put(v, i, swiglu_slope(d, x[f], x[F + f], first, s->rounding.sum),
                   swiglu_slope(d, x[f], x[F + f], first, s->rounding.store).off);
    }
    return v;
}

const struct single_operation single_gelu = {
    .words = "gelu",
    .forward = gelu_forward,
    .input_words = "the backward pass of gelu",
    .input = { gelu_input },
};

const struct single_operation single_swiglu = {
    .words = "swiglu",
    .forward = swiglu_forward,
    .input_words = "the backward pass of swiglu",
    .input = { swiglu_input },
};

/* ---- rotations --------------------------------------------------------------------------------------------------- */

/* One pair, turned.  The angle is off by a few units of itself; by steps, cosine, sine and products are stored. */
static void turn(struct single *s, struct single_value v, struct tensor X, int64_t i, int64_t j, double angle)
{
    const struct rotary *rotary = &s->config->rotary;
    const double size = rotary->scaling == SCALING_YARN ? rotary->enlarged : 1, x = numbers(X)[i] * size,
                 y = numbers(X)[j] * size, c = cos(angle), d = sin(angle), u = s->rounding.sum,
                 store = s->rounding.store, far = 4 * u * fabs(angle) + 4 * u;
    const double first = fabs(x * c) + fabs(y * d), second = fabs(y * c) + fabs(x * d);
    single_put(v, i, (struct element){ x * c - y * d, far * second + 3 * u * first }, 3 * store * first);
    single_put(v, j, (struct element){ y * c + x * d, far * first + 3 * u * second }, 3 * store * second);
}

static struct single_value rotate(struct single *s, struct tensor X, double sign)
{
    const struct model_config *c = s->config;
    const int64_t width = tensor_cols(X), R = rotary_table_width(c), half = R / 2;
    const struct single_value v = single_value_new(s, tensor_rows(X), width);
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) numbers(v.y)[i] = numbers(X)[i];
    for (int64_t n = 0; !s->failed && n < tensor_rows(X); n++)
        for (int64_t h = 0; h < c->H + c->K; h++)
            for (int64_t p = 0; p < half; p++) {
                const double angle = (double)(n % s->batch.S) * rotary_frequency(&c->rotary, R, p);
                const int64_t at = n * width + h * c->A, i = c->rotary.neighbours ? 2 * p : p,
                              j = c->rotary.neighbours ? 2 * p + 1 : p + half;
                turn(s, v, X, at + i, at + j, sign * angle);
            }
    return v;
}

static struct single_value rotary_forward(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]);
    return single_going(s) ? rotate(s, X, 1) : single_none;
}

static struct single_value rotary_input(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out);
    return single_going(s) ? rotate(s, dY, -1) : single_none;
}

const struct single_operation single_rotary = {
    .words = "the rotation by positions",
    .forward = rotary_forward,
    .input_words = "the backward pass of the rotation",
    .input = { rotary_input },
};
