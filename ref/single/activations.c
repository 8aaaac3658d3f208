/* activations.c -- gelu, silu, swiglu, geglu, the clamped swiglu, and a gate of rows.
 *
 * A few units of roundoff of the terms bound the error of each; a step's result that is stored adds the unit of the
 * format.
 */
#include "ref/single/parts.h"

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

/* What is stored before the product with up: the exponential, 1 plus it, the quotient, its product with the gate. */
static double silu_steps(double gate, double up, double store)
{
    const double g = sigmoid(gate);
    return (4 - g) * store * fabs(gate * g * up);
}

/* dgate (first) or dup. */
static struct element swiglu_slope(double dy, double gate, double up, bool first, double u)
{
    const double g = sigmoid(gate), silu = gate * g, slope = g + silu * (1 - g);
    if (!first) return (struct element){ dy * silu, (6 + fabs(gate)) * u * fabs(dy * silu) };
    return (struct element){ dy * up * slope, fabs(dy * up) * (8 + fabs(gate)) * u * (g + fabs(silu) * (1 - g)) };
}

/* Of a geglu: the same two, from gelu's own errors. */
static struct element geglu(double gate, double up, double u)
{
    const struct element g = gelu(gate, u);
    return (struct element){ g.y * up, g.off * fabs(up) + 2 * u * fabs(g.y * up) };
}

static struct element geglu_slope(double dy, double gate, double up, bool first, double u)
{
    const struct element g = first ? gelu_slope(gate, u) : gelu(gate, u);
    const double by = first ? dy * up : dy;
    return (struct element){ by * g.y, fabs(by) * (g.off + 3 * u * fabs(g.y)) };
}

/* Of a clamped swiglu: the same two.  Beyond the limit there is no gradient. */
static struct element clamped(double gate, double up, struct clamped c, double u)
{
    const double g = fmin(gate, c.limit), y = g * sigmoid(c.alpha * g) * (fmax(-c.limit, fmin(up, c.limit)) + 1);
    return (struct element){ y, (9 + fabs(c.alpha * g)) * u * fabs(y) };
}

/* What is stored besides: the sigmoid's argument, and up plus 1. */
static double clamped_steps(double gate, double up, struct clamped c, double store)
{
    const double y = fabs(clamped(gate, up, c, store).y), a = fabs(c.alpha * fmin(gate, c.limit));
    return (5 + 2 * a) * store * y;
}

static struct element clamped_slope(double dy, double gate, double up, bool first, struct clamped c, double u)
{
    const double g = fmin(gate, c.limit), s = sigmoid(c.alpha * g), v = fmax(-c.limit, fmin(up, c.limit)) + 1,
                 a = c.alpha * g;
    if (first ? gate > c.limit : fabs(up) > c.limit) return (struct element){ 0, 0 };
    if (!first) return (struct element){ dy * g * s, (8 + fabs(a)) * u * fabs(dy * g * s) };
    return (struct element){ dy * v * s * (1 + a * (1 - s)),
                             fabs(dy * v) * (12 + 2 * fabs(a)) * u * (s + fabs(a) * s * (1 - s)) };
}

static struct single_value clamped_forward(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]);
    const struct clamped c = s->config->mixture.clamped;
    if (!single_going(s)) return single_none;
    const int64_t F = tensor_cols(X) / 2;
    const struct single_value v = single_value_new(s, tensor_rows(X), F);
    for (int64_t i = 0; !s->failed && i < tensor_count(v.y); i++) {
        const double *row = numbers(X) + i / F * 2 * F, gate = row[i % F], up = row[F + i % F];
        single_put(v, i, clamped(gate, up, c, s->rounding.sum), clamped_steps(gate, up, c, s->rounding.store));
    }
    return v;
}

static struct single_value clamped_input(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
    const struct clamped c = s->config->mixture.clamped;
    if (!single_going(s)) return single_none;
    const int64_t F = tensor_cols(dY);
    const struct single_value v = single_value_new(s, tensor_rows(X), 2 * F);
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const int64_t row = i / (2 * F), f = i % F;
        const bool first = i % (2 * F) < F;
        const double *x = numbers(X) + row * 2 * F, d = numbers(dY)[row * F + f];
        single_put(v, i, clamped_slope(d, x[f], x[F + f], first, c, s->rounding.sum),
                   clamped_slope(d, x[f], x[F + f], first, c, s->rounding.store).off);
    }
    return v;
}

const struct single_operation single_clamped_swiglu = {
    .words = "the clamped swiglu",
    .forward = clamped_forward,
    .input_words = "the backward pass of the clamped swiglu",
    .input = { clamped_input },
    .by_rows = true,
};

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

/* What is between the matrices of a gated feed-forward. */
struct gated {
    struct element (*y)(double gate, double up, double u);
    double (*steps)(double gate, double up, double store);
    struct element (*slope)(double dy, double gate, double up, bool first, double u);
};

static double geglu_steps(double gate, double up, double store) { return geglu(gate, up, store).off; }

static const struct gated of_swiglu = { swiglu, silu_steps, swiglu_slope },
                          of_geglu = { geglu, geglu_steps, geglu_slope };

static struct single_value gated_forward(struct single *s, const struct single_node *n, const struct gated *of)
{
    const struct tensor X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_none;
    const int64_t F = tensor_cols(X) / 2;
    const struct single_value v = single_value_new(s, tensor_rows(X), F);
    for (int64_t i = 0; !s->failed && i < tensor_count(v.y); i++) {
        const double *row = numbers(X) + i / F * 2 * F, gate = row[i % F], up = row[F + i % F];
        single_put(v, i, of->y(gate, up, s->rounding.sum), of->steps(gate, up, s->rounding.store));
    }
    return v;
}

static struct single_value gated_input(struct single *s, const struct single_node *n, const struct gated *of)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_none;
    const int64_t F = tensor_cols(dY);
    const struct single_value v = single_value_new(s, tensor_rows(X), 2 * F);
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const int64_t row = i / (2 * F), f = i % F;
        const bool first = i % (2 * F) < F;
        const double *x = numbers(X) + row * 2 * F, d = numbers(dY)[row * F + f];
        single_put(v, i, of->slope(d, x[f], x[F + f], first, s->rounding.sum),
                   of->slope(d, x[f], x[F + f], first, s->rounding.store).off);
    }
    return v;
}

static struct single_value swiglu_forward(struct single *s, const struct single_node *n)
{
    return gated_forward(s, n, &of_swiglu);
}

static struct single_value swiglu_input(struct single *s, const struct single_node *n)
{
    return gated_input(s, n, &of_swiglu);
}

static struct single_value geglu_forward(struct single *s, const struct single_node *n)
{
    return gated_forward(s, n, &of_geglu);
}

static struct single_value geglu_input(struct single *s, const struct single_node *n)
{
    return gated_input(s, n, &of_geglu);
}

const struct single_operation single_geglu = {
    .words = "geglu",
    .forward = geglu_forward,
    .input_words = "the backward pass of geglu",
    .input = { geglu_input },
    .by_rows = true,
};

const struct single_operation single_gelu = {
    .words = "gelu",
    .forward = gelu_forward,
    .input_words = "the backward pass of gelu",
    .input = { gelu_input },
    .by_rows = true,
};

const struct single_operation single_swiglu = {
    .words = "swiglu",
    .forward = swiglu_forward,
    .input_words = "the backward pass of swiglu",
    .input = { swiglu_input },
    .by_rows = true,
};

/* ---- silu -------------------------------------------------------------------------------------------------------- */

static struct single_value silu_forward(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_none;
    const struct single_value v = single_value_new(s, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i];
        single_put(v, i, swiglu(x, 1, s->rounding.sum), silu_steps(x, 1, s->rounding.store));
    }
    return v;
}

static struct single_value silu_input(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_none;
    const struct single_value v = single_value_new(s, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i], d = numbers(dY)[i];
        single_put(v, i, swiglu_slope(d, x, 1, true, s->rounding.sum),
                   swiglu_slope(d, x, 1, true, s->rounding.store).off);
    }
    return v;
}

const struct single_operation single_silu = {
    .words = "silu",
    .forward = silu_forward,
    .input_words = "the backward pass of silu",
    .input = { silu_input },
    .by_rows = true,
};

/* ---- a gate ------------------------------------------------------------------------------------------------------ */

static struct single_value gate_times(struct single *s, struct tensor X, struct tensor logits)
{
    if (!single_going(s)) return single_none;
    const struct single_value v = single_value_new(s, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const double x = numbers(logits)[i / tensor_cols(X)], y = sigmoid(x) * numbers(X)[i];
        single_put(v, i, (struct element){ y, (5 + fabs(x)) * s->rounding.sum * fabs(y) },
                   s->rounding.store * fabs(y));
    }
    return v;
}

static struct single_value gate_forward(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]), logits = single_act(s, n->in[1]);
    return gate_times(s, X, logits);
}

static struct single_value gate_input(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), logits = single_act(s, n->in[1]);
    return gate_times(s, dY, logits);
}

/* dlogit = (dy . x) s (1-s); by steps the products and the sum are stored. */
static struct single_value gate_logits(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]), logits = single_act(s, n->in[1]);
    if (!single_going(s)) return single_none;
    const int64_t D = tensor_cols(X);
    const struct rounding *r = &s->rounding;
    const struct single_value v = single_value_new(s, tensor_rows(X), 1);
    for (int64_t i = 0; !s->failed && i < tensor_rows(X); i++) {
        double sum = 0, absolute = 0;
        for (int64_t d = i * D; d < (i + 1) * D; d++) {
            const double term = numbers(dY)[d] * numbers(X)[d];
            sum += term, absolute += fabs(term);
        }
        const double x = numbers(logits)[i], slope = sigmoid(x) * sigmoid(-x);
        single_put(v, i,
                   (struct element){ sum * slope, slope * (rounding_of_sum(r->sum, D) * absolute +
                                                           (10 + 2 * fabs(x)) * r->sum * fabs(sum)) },
                   slope * r->store * (absolute + 5 * fabs(sum)) + 2 * r->store * sigmoid(x) * fabs(sum));
    }
    return v;
}

const struct single_operation single_gate = {
    .words = "the gate",
    .forward = gate_forward,
    .input_words = "the backward pass of the gate",
    .input = { gate_input, gate_logits },
};
