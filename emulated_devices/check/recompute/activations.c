/* activations.c -- gelu, silu, swiglu, geglu, the clamped swiglu, and a gate of rows.
 *
 * A few units of roundoff of the terms bound the error of each; a step's result that is stored adds the unit of the
 * format.  A step's result that is subnormal is off by `tiny`, times what the steps after it multiply by.
 */
#include "emulated_devices/check/recompute/parts.h"

#define ROOT_2_OVER_PI 0.79788456080286535587989211986876
#define CUBIC 0.044715

/* tanh t, t = sqrt(2/pi) (x + c x^3), and how far it is off.  t's steps: x^2, x^3, its product with c, and t. */
static struct element gelu_tanh(double x, struct unit o)
{
    const double t = ROOT_2_OVER_PI * x * (1 + CUBIC * x * x), T = tanh(t),
                 times = 1 + ROOT_2_OVER_PI * (1 + CUBIC * (1 + fabs(x)));
    return (struct element){ T, (1 - T * T) * (6 * o.u * fabs(t) + o.tiny * times) + 2 * o.u * fabs(T) + o.tiny };
}

/* y = x (1 + tanh t) / 2.  Programs that compute 1 + tanh lose digits where tanh is near -1: an absolute error. */
static struct element gelu(double x, struct unit o)
{
    const struct element tanh = gelu_tanh(x, o);
    const double T = tanh.y, y = x / 2 * (1 + T);
    return (struct element){ y, fabs(x) / 2 * (tanh.off + o.u * (1 + T)) + 2 * o.u * fabs(y) + o.tiny * (1 + T) };
}

static struct element gelu_slope(double x, struct unit o)
{
    const struct element tanh = gelu_tanh(x, o);
    const double T = tanh.y, slope = ROOT_2_OVER_PI * (1 + 3 * CUBIC * x * x), second = x / 2 * (1 - T * T) * slope;
    return (struct element){ (1 + T) / 2 + second,
                             tanh.off + o.u * (1 + T) + fabs(x) * slope * (fabs(T) * tanh.off + o.u * T * T) +
                                 10 * o.u * fabs(second) + o.tiny * (2 + slope * (1 + fabs(x))) };
}

/* Backward, where the gradient is multiplied by one factor after another: (1 + tanh) / 2 on one way; x / 2,
 * 1 - tanh^2, sqrt(2/pi), c and 3 x^2 on the other. */
static double gelu_chain(double x, struct unit o)
{
    const double T = gelu_tanh(x, o).y, cubic = 1 + 3 * CUBIC * x * x;
    return o.tiny * (1.5 + ROOT_2_OVER_PI * cubic * (2 - T * T) + cubic + 3 * x * x + 1);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* The product gate sigmoid(gate) up, in any order: the sigmoid, and its product with the gate or with up. */
static double tiny_silu(double gate, double up, double g) { return fabs(gate * up) + fmax(fabs(up), g); }

/* The element of the result that column f of gate and up makes. */
static struct element swiglu(double gate, double up, struct unit o)
{
    const double g = sigmoid(gate), y = gate * g * up;
    return (struct element){ y, (6 + fabs(gate)) * o.u * fabs(y) + o.tiny * tiny_silu(gate, up, g) };
}

/* What is stored before the product with up: the exponential, 1 plus it, the quotient, its product with the gate. */
static double silu_steps(double gate, double up, struct unit o)
{
    const double g = sigmoid(gate);
    return (4 - g) * o.u * fabs(gate * g * up) + o.tiny * tiny_silu(gate, up, g);
}

/* The gradient of x sigmoid(a x), s: sigmoid: the gradient that comes, times slope; its product with the sigmoid;
 * its products with x, 1 - s, s and a, one after another. */
static double tiny_slope(double slope, double s, double a) { return fabs(slope) + 1 + a * (s * (1 - s) + s + 1) + 1; }

/* dgate (first) or dup. */
static struct element swiglu_slope(double dy, double gate, double up, bool first, struct unit o)
{
    const double g = sigmoid(gate), silu = gate * g, slope = g + silu * (1 - g), u = o.u, from = 1 + fabs(gate);
    if (!first)
        return (struct element){ dy * silu, (6 + fabs(gate)) * u * fabs(dy * silu) + o.tiny * fabs(dy) * from };
    return (struct element){ dy * up * slope, fabs(dy * up) * (8 + fabs(gate)) * u * (g + fabs(silu) * (1 - g)) +
                                                  o.tiny * (fabs(dy * up) * from + tiny_slope(slope, g, 1)) };
}

/* Of a geglu: the same two, from gelu's own errors. */
static struct element geglu(double gate, double up, struct unit o)
{
    const struct element g = gelu(gate, o);
    return (struct element){ g.y * up, (g.off + o.tiny) * fabs(up) + 2 * o.u * fabs(g.y * up) };
}

static struct element geglu_slope(double dy, double gate, double up, bool first, struct unit o)
{
    const struct element g = first ? gelu_slope(gate, o) : gelu(gate, o);
    const double by = first ? dy * up : dy,
                 tiny = first ? o.tiny * fabs(g.y) + gelu_chain(gate, o) : o.tiny * fabs(dy);
    return (struct element){ by * g.y, fabs(by) * (g.off + 3 * o.u * fabs(g.y)) + tiny };
}

/* Of a clamped swiglu: the same two.  Beyond the limit there is no gradient. */
static struct element clamped(double gate, double up, struct clamped c, struct unit o)
{
    const double g = fmin(gate, c.limit), s = sigmoid(c.alpha * g), v = fmax(-c.limit, fmin(up, c.limit)) + 1,
                 y = g * s * v;
    return (struct element){ y, (9 + fabs(c.alpha * g)) * o.u * fabs(y) + o.tiny * (tiny_silu(g, v, s) + fabs(y)) };
}

/* What is stored besides: the sigmoid's argument, and up plus 1. */
static double clamped_steps(double gate, double up, struct clamped c, struct unit o)
{
    const double g = fmin(gate, c.limit), s = sigmoid(c.alpha * g), v = fmax(-c.limit, fmin(up, c.limit)) + 1,
                 y = fabs(g * s * v);
    return (5 + 2 * fabs(c.alpha * g)) * o.u * y + o.tiny * (tiny_silu(g, v, s) + y);
}

static struct element clamped_slope(double dy, double gate, double up, bool first, struct clamped c, struct unit o)
{
    const double g = fmin(gate, c.limit), s = sigmoid(c.alpha * g), v = fmax(-c.limit, fmin(up, c.limit)) + 1,
                 a = c.alpha * g, slope = s * (1 + a * (1 - s));
    if (first ? gate > c.limit : fabs(up) > c.limit) return (struct element){ 0, 0 };
    if (!first)
        return (struct element){ dy * g * s, (8 + fabs(a)) * o.u * fabs(dy * g * s) +
                                                 o.tiny * fabs(dy) * (1 + fabs(g)) };
    return (struct element){ dy * v * slope,
                             fabs(dy * v) * (12 + 2 * fabs(a)) * o.u * (s + fabs(a) * s * (1 - s)) +
                                 o.tiny * (fabs(dy * v) * (1 + fabs(a)) + tiny_slope(slope, s, c.alpha)) };
}

static struct single_value clamped_forward(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]);
    const struct clamped c = s->context->config->mixture.clamped;
    if (!single_going(s)) return single_stop(s);
    const int64_t F = tensor_cols(X) / 2;
    const struct single_value v = single_value_new(s, tensor_rows(X), F);
    for (int64_t i = 0; !s->failed && i < tensor_count(v.y); i++) {
        const double *row = numbers(X) + i / F * 2 * F, gate = row[i % F], up = row[F + i % F];
        single_put(v, i, clamped(gate, up, c, unit_computed(s)), clamped_steps(gate, up, c, unit_stored(s)));
    }
    return v;
}

static struct single_value clamped_input(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
    const struct clamped c = s->context->config->mixture.clamped;
    if (!single_going(s)) return single_stop(s);
    const int64_t F = tensor_cols(dY);
    const struct single_value v = single_value_new(s, tensor_rows(X), 2 * F);
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const int64_t row = i / (2 * F), f = i % F;
        const bool first = i % (2 * F) < F;
        const double *x = numbers(X) + row * 2 * F, d = numbers(dY)[row * F + f];
        single_put(v, i, clamped_slope(d, x[f], x[F + f], first, c, unit_computed(s)),
                   clamped_slope(d, x[f], x[F + f], first, c, unit_stored(s)).off);
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
    if (!single_going(s)) return single_stop(s);
    const struct single_value v = single_value_new(s, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i];
        single_put(v, i, gelu(x, unit_computed(s)), gelu(x, unit_stored(s)).off);
    }
    return v;
}

static struct single_value gelu_input(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_stop(s);
    const struct single_value v = single_value_new(s, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i], d = numbers(dY)[i];
        const struct unit computed = unit_computed(s), stored = unit_stored(s);
        const struct element slope = gelu_slope(x, computed);
        single_put(v, i, (struct element){ d * slope.y, fabs(d) * slope.off + computed.u * fabs(d * slope.y) +
                                                            gelu_chain(x, computed) },
                   fabs(d) * gelu_slope(x, stored).off + gelu_chain(x, stored));
    }
    return v;
}

/* What is between the matrices of a gated feed-forward. */
struct gated {
    struct element (*y)(double gate, double up, struct unit);
    double (*steps)(double gate, double up, struct unit);
    struct element (*slope)(double dy, double gate, double up, bool first, struct unit);
};

static double geglu_steps(double gate, double up, struct unit o) { return geglu(gate, up, o).off; }

static const struct gated of_swiglu = { swiglu, silu_steps, swiglu_slope },
                          of_geglu = { geglu, geglu_steps, geglu_slope };

static struct single_value gated_forward(struct single *s, const struct single_node *n, const struct gated *of)
{
    const struct tensor X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_stop(s);
    const int64_t F = tensor_cols(X) / 2;
    const struct single_value v = single_value_new(s, tensor_rows(X), F);
    for (int64_t i = 0; !s->failed && i < tensor_count(v.y); i++) {
        const double *row = numbers(X) + i / F * 2 * F, gate = row[i % F], up = row[F + i % F];
        single_put(v, i, of->y(gate, up, unit_computed(s)), of->steps(gate, up, unit_stored(s)));
    }
    return v;
}

static struct single_value gated_input(struct single *s, const struct single_node *n, const struct gated *of)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_stop(s);
    const int64_t F = tensor_cols(dY);
    const struct single_value v = single_value_new(s, tensor_rows(X), 2 * F);
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const int64_t row = i / (2 * F), f = i % F;
        const bool first = i % (2 * F) < F;
        const double *x = numbers(X) + row * 2 * F, d = numbers(dY)[row * F + f];
        single_put(v, i, of->slope(d, x[f], x[F + f], first, unit_computed(s)),
                   of->slope(d, x[f], x[F + f], first, unit_stored(s)).off);
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
    if (!single_going(s)) return single_stop(s);
    const struct single_value v = single_value_new(s, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i];
        single_put(v, i, swiglu(x, 1, unit_computed(s)), silu_steps(x, 1, unit_stored(s)));
    }
    return v;
}

static struct single_value silu_input(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_stop(s);
    const struct single_value v = single_value_new(s, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i], d = numbers(dY)[i];
        single_put(v, i, swiglu_slope(d, x, 1, true, unit_computed(s)),
                   swiglu_slope(d, x, 1, true, unit_stored(s)).off);
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
    if (!single_going(s)) return single_stop(s);
    const struct single_value v = single_value_new(s, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const double x = numbers(logits)[i / tensor_cols(X)], times = fabs(numbers(X)[i]),
                     y = sigmoid(x) * numbers(X)[i];
        single_put(v, i,
                   (struct element){ y, (5 + fabs(x)) * s->rounding.sum * fabs(y) + s->rounding.sum_tiny * times },
                   s->rounding.store * fabs(y) + s->rounding.tiny * times);
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
    if (!single_going(s)) return single_stop(s);
    const int64_t D = tensor_cols(X);
    const struct rounding *r = &s->rounding;
    const struct single_value v = single_value_new(s, tensor_rows(X), 1);
    for (int64_t i = 0; !s->failed && i < tensor_rows(X); i++) {
        double sum = 0, absolute = 0;
        for (int64_t d = i * D; d < (i + 1) * D; d++) {
            const double term = numbers(dY)[d] * numbers(X)[d];
            sum += term, absolute += fabs(term);
        }
        const double x = numbers(logits)[i], slope = sigmoid(x) * sigmoid(-x), after = 1 + fabs(sum);
        single_put(v, i,
                   (struct element){ sum * slope, slope * (rounding_of_sum(r->sum, D) * absolute +
                                                           (10 + 2 * fabs(x)) * r->sum * fabs(sum)) +
                                                      tiny_terms(r->sum_tiny, D) * slope + r->sum_tiny * after },
                   slope * r->store * (absolute + 5 * fabs(sum)) + 2 * r->store * sigmoid(x) * fabs(sum) +
                       tiny_terms(r->tiny, D) * slope + r->tiny * (after + slope));
    }
    return v;
}

const struct single_operation single_gate = {
    .words = "the gate",
    .forward = gate_forward,
    .input_words = "the backward pass of the gate",
    .input = { gate_input, gate_logits },
};
