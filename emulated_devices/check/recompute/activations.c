/* activations.c -- both gelus, the squared relu, silu, swiglu, geglu, the clamped swiglu, and a gate of rows.
 *
 * A few units of roundoff of the terms bound the error of each; a step's result that is stored adds the unit of the
 * format.  A step's result that is subnormal is off by `tiny`, times what the steps after it multiply by.
 * walk.c runs these passes through the operations at the end of each section.  fused bounds use the unit of sums,
 * steps bounds that of stored results.  An input that lacks gives single_stop(), which single_end reports.
 */
#include "emulated_devices/check/recompute/parts.h"
#include "ref/model/config.h"

#define ROOT_2_OVER_PI 0.79788456080286535587989211986876
#define CUBIC 0.044715

/* tanh t, t = sqrt(2/pi) (x + c x^3), and how far it is off.  t's steps: x^2, x^3, its product with c, and t. */
static struct element gelu_tanh(double x, struct unit unit)
{
    const double t = ROOT_2_OVER_PI * x * (1 + CUBIC * x * x), T = tanh(t),
                 times = 1 + ROOT_2_OVER_PI * (1 + CUBIC * (1 + fabs(x)));
    return (struct element){ T, (1 - T * T) * (6 * unit.u * fabs(t) + unit.tiny * times) + 2 * unit.u * fabs(T)
                            + unit.tiny };
}

/* y = x (1 + tanh t) / 2.  Programs that compute 1 + tanh lose digits where tanh is near -1: an absolute error. */
static struct element gelu(double x, struct unit unit)
{
    const struct element tanh = gelu_tanh(x, unit);
    const double T = tanh.y, y = x / 2 * (1 + T);
    return (struct element){ y, fabs(x) / 2 * (tanh.off + unit.u * (1 + T)) + 2 * unit.u * fabs(y)
                            + unit.tiny * (1 + T) };
}

/* gelu'(x) = (1 + T) / 2 + x / 2 (1 - T^2) t'.  An error of T moves both summands. */
static struct element gelu_slope(double x, struct unit unit)
{
    const struct element tanh = gelu_tanh(x, unit);
    const double T = tanh.y, slope = ROOT_2_OVER_PI * (1 + 3 * CUBIC * x * x), second = x / 2 * (1 - T * T) * slope;
    return (struct element){ (1 + T) / 2 + second,
                             tanh.off + unit.u * (1 + T) + fabs(x) * slope * (fabs(T) * tanh.off + unit.u * T * T) +
                                 10 * unit.u * fabs(second) + unit.tiny * (2 + slope * (1 + fabs(x))) };
}

/* Backward, where the gradient is multiplied by one factor after another: (1 + tanh) / 2 on one way; x / 2,
 * 1 - tanh^2, sqrt(2/pi), c and 3 x^2 on the other. */
static double gelu_chain(double x, struct unit unit)
{
    const double T = gelu_tanh(x, unit).y, cubic = 1 + 3 * CUBIC * x * x;
    return unit.tiny * (1.5 + ROOT_2_OVER_PI * cubic * (2 - T * T) + cubic + 3 * x * x + 1);
}

#define ROOT_HALF 0.70710678118654752440084436210485
#define TWO_OVER_ROOT_PI 1.1283791670955125738961589031215
#define NORMAL_TOP 0.39894228040143267793994605993438           /* 1 / sqrt(2 pi) */

/* Programs may make erf of a polynomial and an exponential, absolutely near: formula 7.1.26 of Abramowitz and Stegun,
 * "Handbook of Mathematical Functions", 1964, is off by 1.5e-7.  PyTorch 2.15's gelu of 200,000 normal numbers was off
 * by 5.4 roundings of |x|, and its slope by 4.6 roundings. */
enum { ROUNDINGS_OF_ERF = 10 };

/* erf(x / sqrt 2), and how far it is off. */
static struct element normal_within(double x, struct unit unit)
{
    const double z = ROOT_HALF * x, E = erf(z), slope = TWO_OVER_ROOT_PI * exp(-z * z);
    return (struct element){ E, slope * (2 * unit.u * fabs(z) + unit.tiny) + 4 * unit.u * fabs(E) +
                                   ROUNDINGS_OF_ERF * unit.u + unit.tiny };
}

/* y = x (1 + erf) / 2.  Programs that compute 1 + erf lose digits where erf is near -1: an absolute error. */
static struct element exact_gelu(double x, struct unit unit)
{
    const struct element erf = normal_within(x, unit);
    const double y = x / 2 * erfc(-ROOT_HALF * x);
    return (struct element){ y, fabs(x) / 2 * (erf.off + unit.u * (1 + erf.y)) + 2 * unit.u * fabs(y) +
                                    unit.tiny * (1 + fabs(x)) };
}

/* (1 + erf) / 2 + x p, p = e^(-x^2 / 2) / sqrt(2 pi): an error of x^2 is one of its exponential. */
static struct element exact_gelu_slope(double x, struct unit unit)
{
    const struct element erf = normal_within(x, unit);
    const double second = x * NORMAL_TOP * exp(-x * x / 2);
    return (struct element){ erfc(-ROOT_HALF * x) / 2 + second,
                             erf.off + unit.u * (1 + erf.y) + (8 + 2 * x * x) * unit.u * fabs(second) +
                                 unit.tiny * (3 + fabs(x)) };
}

/* Backward, where the gradient is multiplied by one factor after another. */
static double exact_gelu_chain(double x, struct unit unit) { return unit.tiny * (3 + 2 * fabs(x)); }

static struct element squared_relu(double x, struct unit unit)
{
    const double y = x > 0 ? x * x : 0;
    return (struct element){ y, 2 * unit.u * y + unit.tiny };
}

static struct element squared_relu_slope(double x, struct unit unit)
{
    const double slope = x > 0 ? 2 * x : 0;
    return (struct element){ slope, unit.u * slope };
}

/* The product with the gradient may be stored before it is doubled. */
static double squared_relu_chain(double x, struct unit unit)
{
    (void)x;
    return 3 * unit.tiny;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* A program makes the sigmoid of e^-x.  Where this becomes infinite the sigmoid is 0, and so is what it multiplies. */
static double sigmoid_lost(double g, double lost) { return g < lost ? g : 0; }

/* The product gate sigmoid(gate) up, in any order: the sigmoid, and its product with the gate or with up. */
static double tiny_silu(double gate, double up, double g) { return fabs(gate * up) + fmax(fabs(up), g); }

/* The element of the result that column f of gate and up makes. */
static struct element swiglu(double gate, double up, struct unit unit)
{
    const double g = sigmoid(gate), y = gate * g * up;
    return (struct element){ y, (6 + fabs(gate)) * unit.u * fabs(y) + unit.tiny * tiny_silu(gate, up, g) +
                                    fabs(gate * up) * sigmoid_lost(g, unit.lost) };
}

/* A program stores these before the product with up: the exponential, 1 plus it, the quotient, its product with the
 * gate. */
static double silu_steps(double gate, double up, struct unit unit)
{
    const double g = sigmoid(gate);
    return (4 - g) * unit.u * fabs(gate * g * up) + unit.tiny * tiny_silu(gate, up, g) +
           fabs(gate * up) * sigmoid_lost(g, unit.lost);
}

/* The gradient of x sigmoid(a x), s: sigmoid: the gradient that comes, times slope; its product with the sigmoid;
 * its products with x, 1 - s, s and a, one after another. */
static double tiny_slope(double slope, double s, double a) { return fabs(slope) + 1 + a * (s * (1 - s) + s + 1) + 1; }

/* d gate = dy up (s + x s (1 - s)) if `first`; else d up = dy x s.  (6 + |gate|) units bound a silu, because exp
 * multiplies the error of its argument. */
static struct element swiglu_slope(double dy, double gate, double up, bool first, struct unit unit)
{
    const double g = sigmoid(gate), silu = gate * g, slope = g + silu * (1 - g), u = unit.u, from = 1 + fabs(gate),
                 lost = sigmoid_lost(g, unit.lost);
    if (!first)
        return (struct element){ dy * silu, (6 + fabs(gate)) * u * fabs(dy * silu) + unit.tiny * fabs(dy) * from +
                                                fabs(dy * gate) * lost };
    return (struct element){ dy * up * slope, fabs(dy * up) * (8 + fabs(gate)) * u * (g + fabs(silu) * (1 - g)) +
                                                  unit.tiny * (fabs(dy * up) * from + tiny_slope(slope, g, 1)) +
                                                  fabs(dy * up) * from * lost };
}

/* A geglu is gelu(gate) up; its errors are those of gelu times up. */
static struct element geglu(double gate, double up, struct unit unit)
{
    const struct element g = gelu(gate, unit);
    return (struct element){ g.y * up, (g.off + unit.tiny) * fabs(up) + 2 * unit.u * fabs(g.y * up) };
}

/* If `first` this is d gate = dy up gelu'(gate), else d up = dy gelu(gate). */
static struct element geglu_slope(double dy, double gate, double up, bool first, struct unit unit)
{
    const struct element g = first ? gelu_slope(gate, unit) : gelu(gate, unit);
    const double by = first ? dy * up : dy,
                 tiny = first ? unit.tiny * fabs(g.y) + gelu_chain(gate, unit) : unit.tiny * fabs(dy);
    return (struct element){ by * g.y, fabs(by) * (g.off + 3 * unit.u * fabs(g.y)) + tiny };
}

/* A clamped swiglu is g sigmoid(alpha g) (u + 1); g and u are gate and up within the limit.  Beyond the limit there
 * is no gradient. */
static struct element clamped(double gate, double up, struct clamped c, struct unit unit)
{
    /* v is up within its limits, plus 1. */
    const double g = fmin(gate, c.limit), s = sigmoid(c.alpha * g), v = fmax(-c.limit, fmin(up, c.limit)) + 1,
                 y = g * s * v;
    return (struct element){ y, (9 + fabs(c.alpha * g)) * unit.u * fabs(y) + unit.tiny
                            * (tiny_silu(g, v, s) + fabs(y)) + fabs(g * v) * sigmoid_lost(s, unit.lost) };
}

/* A clamped activation also stores the sigmoid's argument, and up plus 1. */
static double clamped_steps(double gate, double up, struct clamped clamped, struct unit unit)
{
    const double g = fmin(gate, clamped.limit), s = sigmoid(clamped.alpha * g),
        v = fmax(-clamped.limit, fmin(up, clamped.limit)) + 1,
                 y = fabs(g * s * v);
    return (5 + 2 * fabs(clamped.alpha * g)) * unit.u * y + unit.tiny * (tiny_silu(g, v, s) + y) +
           fabs(g * v) * sigmoid_lost(s, unit.lost);
}

/* This is d gate if `first`, else d up; each factor of the product adds its units. */
static struct element clamped_slope(double dy, double gate, double up, bool first, struct clamped clamped,
                                    struct unit unit)
{
    const double g = fmin(gate, clamped.limit), s = sigmoid(clamped.alpha * g),
        v = fmax(-clamped.limit, fmin(up, clamped.limit)) + 1,
                 a = clamped.alpha * g, slope = s * (1 + a * (1 - s)), lost = sigmoid_lost(s, unit.lost);
    /* The clamp cut this number, so its gradient is exactly 0. */
    if (first ? gate > clamped.limit : fabs(up) > clamped.limit) return (struct element){ 0, 0 };
    if (!first)
        return (struct element){ dy * g * s, (8 + fabs(a)) * unit.u * fabs(dy * g * s) +
                                                 unit.tiny * fabs(dy) * (1 + fabs(g)) + fabs(dy * g) * lost };
    return (struct element){ dy * v * slope,
                             fabs(dy * v) * (12 + 2 * fabs(a)) * unit.u * (s + fabs(a) * s * (1 - s)) +
                                 unit.tiny * (fabs(dy * v) * (1 + fabs(a)) + tiny_slope(slope, s, clamped.alpha)) +
                                 fabs(dy * v) * (1 + fabs(a)) * lost };
}

/* Y [N, F] is made from X [N, 2 F]: gates are in the first half of a row, ups in the second. */
static struct single_value clamped_forward(struct single *single, const struct single_node *node)
{
    const struct tensor X = single_act(single, node->in[0]);
    const struct clamped c = single->context->config->mixture.clamped;
    if (!single_going(single)) return single_stop(single);
    const int64_t F = tensor_cols(X) / 2;
    const struct single_value v = single_value_new(single, tensor_rows(X), F);
    for (int64_t i = 0; !single->failed && i < tensor_count(v.y); i++) {
        const double *row = numbers(X) + i / F * 2 * F, gate = row[i % F], up = row[F + i % F];
        single_put(v, i, clamped(gate, up, c, unit_computed(single)), clamped_steps(gate, up, c, unit_stored(single)));
    }
    return v;
}

/* dX [N, 2 F]: both halves have the gradient of the same element of dY. */
static struct single_value clamped_input(struct single *single, const struct single_node *node)
{
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]);
    const struct clamped c = single->context->config->mixture.clamped;
    if (!single_going(single)) return single_stop(single);
    const int64_t F = tensor_cols(dY);
    const struct single_value v = single_value_new(single, tensor_rows(X), 2 * F);
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) {
        /* X [N, 2 F] has F gates and then F ups in each row; dY [N, F] has one number for both. */
        const int64_t row = i / (2 * F), f = i % F;
        const bool first = i % (2 * F) < F;
        const double *x = numbers(X) + row * 2 * F, d = numbers(dY)[row * F + f];
        single_put(v, i, clamped_slope(d, x[f], x[F + f], first, c, unit_computed(single)),
                   clamped_slope(d, x[f], x[F + f], first, c, unit_stored(single)).off);
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

/* This holds what is between the matrices of a feed-forward without a gate.  chain: what is lost of a gradient on
 * its way. */
struct plain {
    struct element (*y)(double x, struct unit);
    struct element (*slope)(double x, struct unit);
    double (*chain)(double x, struct unit);
};

static struct single_value plain_forward(struct single *single, const struct single_node *node, const struct plain *of)
{
    const struct tensor X = single_act(single, node->in[0]);
    if (!single_going(single)) return single_stop(single);
    const struct single_value v = single_value_new(single, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i];
        single_put(v, i, of->y(x, unit_computed(single)), of->y(x, unit_stored(single)).off);
    }
    return v;
}

static struct single_value plain_input(struct single *single, const struct single_node *node, const struct plain *of)
{
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]);
    if (!single_going(single)) return single_stop(single);
    const struct single_value v = single_value_new(single, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i], d = numbers(dY)[i];
        /* `computed` bounds a fused program, `stored` a program that keeps each step. */
        const struct unit computed = unit_computed(single), stored = unit_stored(single);
        const struct element slope = of->slope(x, computed);
        single_put(v, i, (struct element){ d * slope.y, fabs(d) * slope.off + computed.u * fabs(d * slope.y) +
                                                            of->chain(x, computed) },
                   fabs(d) * of->slope(x, stored).off + of->chain(x, stored));
    }
    return v;
}

#define PLAIN(name, text)                                                                                              \
    static const struct plain of_##name = { name, name##_slope, name##_chain };                                        \
    static struct single_value name##_forward(struct single *s, const struct single_node *n)                           \
    {                                                                                                                  \
        return plain_forward(s, n, &of_##name);                                                                        \
    }                                                                                                                  \
    static struct single_value name##_input(struct single *s, const struct single_node *n)                             \
    {                                                                                                                  \
        return plain_input(s, n, &of_##name);                                                                          \
    }                                                                                                                  \
    const struct single_operation single_##name = {                                                                    \
        .words = text, .forward = name##_forward, .input_words = "the backward pass of " text,                         \
        .input = { name##_input }, .by_rows = true,                                                                    \
    };

PLAIN(gelu, "gelu")
PLAIN(exact_gelu, "the exact gelu")
PLAIN(squared_relu, "the squared relu")

/* This holds what is between the matrices of a gated feed-forward. */
struct gated {
    struct element (*y)(double gate, double up, struct unit);
    double (*steps)(double gate, double up, struct unit);
    struct element (*slope)(double dy, double gate, double up, bool first, struct unit);
};

static double geglu_steps(double gate, double up, struct unit unit) { return geglu(gate, up, unit).off; }

static const struct gated of_swiglu = { swiglu, silu_steps, swiglu_slope },
                          of_geglu = { geglu, geglu_steps, geglu_slope };

/* Y [N, F] is made from X [N, 2 F] by a gated activation. */
static struct single_value gated_forward(struct single *single, const struct single_node *node, const struct gated *of)
{
    const struct tensor X = single_act(single, node->in[0]);
    if (!single_going(single)) return single_stop(single);
    const int64_t F = tensor_cols(X) / 2;
    const struct single_value v = single_value_new(single, tensor_rows(X), F);
    for (int64_t i = 0; !single->failed && i < tensor_count(v.y); i++) {
        const double *row = numbers(X) + i / F * 2 * F, gate = row[i % F], up = row[F + i % F];
        single_put(v, i, of->y(gate, up, unit_computed(single)), of->steps(gate, up, unit_stored(single)));
    }
    return v;
}

/* dX [N, 2 F] is made by a gated activation.  The error of stored steps is the slope's own error with the unit of
 * stored results. */
static struct single_value gated_input(struct single *single, const struct single_node *node, const struct gated *of)
{
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]);
    if (!single_going(single)) return single_stop(single);
    const int64_t F = tensor_cols(dY);
    const struct single_value v = single_value_new(single, tensor_rows(X), 2 * F);
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) {
        /* X [N, 2 F] has F gates and then F ups in each row; dY [N, F] has one number for both. */
        const int64_t row = i / (2 * F), f = i % F;
        const bool first = i % (2 * F) < F;
        const double *x = numbers(X) + row * 2 * F, d = numbers(dY)[row * F + f];
        single_put(v, i, of->slope(d, x[f], x[F + f], first, unit_computed(single)),
                   of->slope(d, x[f], x[F + f], first, unit_stored(single)).off);
    }
    return v;
}

static struct single_value swiglu_forward(struct single *single, const struct single_node *node)
{
    return gated_forward(single, node, &of_swiglu);
}

static struct single_value swiglu_input(struct single *single, const struct single_node *node)
{
    return gated_input(single, node, &of_swiglu);
}

static struct single_value geglu_forward(struct single *single, const struct single_node *node)
{
    return gated_forward(single, node, &of_geglu);
}

static struct single_value geglu_input(struct single *single, const struct single_node *node)
{
    return gated_input(single, node, &of_geglu);
}

const struct single_operation single_geglu = {
    .words = "geglu",
    .forward = geglu_forward,
    .input_words = "the backward pass of geglu",
    .input = { geglu_input },
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

/* silu(x) is swiglu with up = 1. */
static struct single_value silu_forward(struct single *single, const struct single_node *node)
{
    const struct tensor X = single_act(single, node->in[0]);
    if (!single_going(single)) return single_stop(single);
    const struct single_value v = single_value_new(single, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i];
        single_put(v, i, swiglu(x, 1, unit_computed(single)), silu_steps(x, 1, unit_stored(single)));
    }
    return v;
}

static struct single_value silu_input(struct single *single, const struct single_node *node)
{
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]);
    if (!single_going(single)) return single_stop(single);
    const struct single_value v = single_value_new(single, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i], d = numbers(dY)[i];
        single_put(v, i, swiglu_slope(d, x, 1, true, unit_computed(single)),
                   swiglu_slope(d, x, 1, true, unit_stored(single)).off);
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

/* Each row of X is multiplied by the sigmoid of its logit: forward on X, backward on dY. */
static struct single_value gate_times(struct single *single, struct tensor X, struct tensor logits)
{
    if (!single_going(single)) return single_stop(single);
    const struct single_value v = single_value_new(single, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) {
        const double x = numbers(logits)[i / tensor_cols(X)], times = fabs(numbers(X)[i]),
                     g = sigmoid(x), y = g * numbers(X)[i];
        const struct unit computed = unit_computed(single), stored = unit_stored(single);
        single_put(v, i,
                   (struct element){ y, (5 + fabs(x)) * computed.u * fabs(y) +
                                            (computed.tiny + sigmoid_lost(g, computed.lost)) * times },
                   stored.u * fabs(y) + (stored.tiny + sigmoid_lost(g, stored.lost)) * times);
    }
    return v;
}

static struct single_value gate_forward(struct single *single, const struct single_node *node)
{
    const struct tensor X = single_act(single, node->in[0]), logits = single_act(single, node->in[1]);
    return gate_times(single, X, logits);
}

static struct single_value gate_input(struct single *single, const struct single_node *node)
{
    const struct tensor dY = single_grad(single, node->out), logits = single_act(single, node->in[1]);
    return gate_times(single, dY, logits);
}

/* dlogit = (dy . x) s (1-s); by steps the products and the sum are stored. */
static struct single_value gate_logits(struct single *single, const struct single_node *node)
{
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]),
        logits = single_act(single, node->in[1]);
    if (!single_going(single)) return single_stop(single);
    const int64_t D = tensor_cols(X);
    const struct rounding *r = &single->rounding;
    const struct single_value v = single_value_new(single, tensor_rows(X), 1);
    for (int64_t i = 0; !single->failed && i < tensor_rows(X); i++) {
        double sum = 0, absolute = 0;
        /* sum = sum over d of dY[i, d] X[i, d], with its absolute terms for the bound. */
        for (int64_t d = i * D; d < (i + 1) * D; d++) {
            const double term = numbers(dY)[d] * numbers(X)[d];
            sum += term, absolute += fabs(term);
        }
        /* slope = s (1 - s), where 1 - s is computed as sigmoid(-x) without cancelling. */
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
