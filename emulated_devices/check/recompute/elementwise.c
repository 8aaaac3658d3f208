/* elementwise.c -- operations of a few terms for each element: sums, dropout and rotations.
 *
 * The sum of absolute terms times a few units of roundoff bounds the error of each; a step's result that is stored adds
 * the unit of the format, or, if it is subnormal, `tiny` times what follows multiplies by.
 * walk.c runs the passes.
 */
#include "ref/model/rotary.h"
#include "ref/model/transformer.h"
#include "emulated_devices/check/recompute/parts.h"

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Y = X0 + X1: the residual stream and its branch. */
static struct single_value elementwise_add(struct single *single, const struct single_node *node)
{
    const struct single_value x[] = { single_value_of(single, node->in[0]), single_value_of(single, node->in[1]) };
    return single_going(single) ? single_sum(single, x, 2) : single_stop(single);
}

/* The gradient of a sum goes to both summands unchanged. */
static struct single_value handed_on(struct single *single, const struct single_node *node)
{
    return single_gradient_of(single, node->out);
}

const struct single_operation single_add = {
    .words = "the sum of the stream and its branch",
    .forward = elementwise_add,
    .input_words = "the sum, backward",
    .input = { handed_on, handed_on },
    .passes_on = true,
    .by_rows = true,
};

/* ---- dropout ----------------------------------------------------------------------------------------------------- */

/* y = x m / (1-rate); a rate of 0 gives the value itself.  The value's own bounds are multiplied, too. */
static struct single_value elementwise_drop(struct single *single, const struct single_node *node,
                                            struct single_value value)
{
    const struct tensor m = single_mask(single, node);
    if (node->rate == 0 || !single_going(single)) return value;
    const struct single_value v = single_value_new(single, tensor_rows(value.y), tensor_cols(value.y));
    for (int64_t i = 0; !single->failed && i < tensor_count(v.y); i++) {
        const double times = numbers(m)[i] / (1 - node->rate), y = numbers(value.y)[i] * times;
        single_put(v, i, (struct element){ y, times * numbers(value.fused)[i] + 2 * single->rounding.sum * fabs(y) +
                                                  single->rounding.sum_tiny * (1 + times) },
                   times * (numbers(value.steps)[i] - numbers(value.fused)[i]) + single->rounding.store * fabs(y) +
                       single->rounding.tiny * times);
    }
    return v;
}

static struct single_value drop_forward(struct single *single, const struct single_node *node)
{
    return elementwise_drop(single, node, single_value_of(single, node->in[0]));
}

static struct single_value drop_input(struct single *single, const struct single_node *node)
{
    return elementwise_drop(single, node, single_gradient_of(single, node->out));
}

const struct single_operation single_dropout = {
    .words = "dropout",
    .forward = drop_forward,
    .input_words = "the backward pass of dropout",
    .input = { drop_input },
};

/* ---- factors ------------------------------------------------------------------------------------------------- */

static struct single_value scaled(struct single *single, const struct single_node *node, struct single_value value)
{
    const double a = model_factor(single->context->config, node->factor, single->rounding.results);
    if (!single_going(single)) return single_stop(single);
    const struct single_value v = single_value_new(single, tensor_rows(value.y), tensor_cols(value.y));
    for (int64_t i = 0; !single->failed && i < tensor_count(v.y); i++) {
        const double y = a * numbers(value.y)[i], off = single->rounding.sum * fabs(y) + single->rounding.sum_tiny;
        numbers(v.y)[i] = y;
        /* Both bounds of the value grow by the factor, like the number itself. */
        numbers(v.fused)[i] = a * numbers(value.fused)[i] + off,
            numbers(v.steps)[i] = a * numbers(value.steps)[i] + off;
    }
    return v;
}

static struct single_value scale(struct single *single, const struct single_node *node)
{
    return scaled(single, node, single_value_of(single, node->in[0]));
}

static struct single_value scale_input(struct single *single, const struct single_node *node)
{
    return scaled(single, node, single_gradient_of(single, node->out));
}

const struct single_operation single_scale = {
    .words = "the factor",
    .forward = scale,
    .input_words = "the backward pass of the factor",
    .input = { scale_input },
    .by_rows = true,
};

/* ---- the soft cap of logits -------------------------------------------------------------------------------------- */

/* Y = cap T, T = tanh(X / cap).  By steps the quotient and T are stored. */
static struct single_value soft_cap(struct single *single, const struct single_node *node)
{
    const struct tensor X = single_act(single, node->in[0]);
    if (!single_going(single)) return single_stop(single);
    const struct rounding *r = &single->rounding;
    const double cap = single->context->config->logit_cap;
    const struct single_value v = single_value_new(single, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i], T = tanh(x / cap), y = cap * T, slope = 1 - T * T, times = cap * (1 + slope);
        single_put(v, i, (struct element){ y, r->sum * (2 * slope * fabs(x) + 4 * fabs(y)) + r->sum_tiny * times },
                   r->store * (slope * fabs(x) + fabs(y)) + r->tiny * times);
    }
    return v;
}

/* dX = dY (1 - T^2), T = Y / cap, even if Y is wrong.  Always allowed: T has been stored by itself, or not at all.
 * By steps dY cap and its product with the slope are stored, too. */
static struct single_value soft_cap_input(struct single *single, const struct single_node *node)
{
    const struct tensor dY = single_grad(single, node->out), Y = single_act(single, node->out);
    if (!single_going(single)) return single_stop(single);
    const struct rounding *r = &single->rounding;
    const double cap = single->context->config->logit_cap, u = r->sum;
    const struct single_value v = single_value_new(single, tensor_rows(Y), tensor_cols(Y));
    for (int64_t i = 0; !single->failed && i < tensor_count(Y); i++) {
        const double dy = numbers(dY)[i], T = numbers(Y)[i] / cap, slope = 1 - T * T,
                     off_T = (6 * u + 2 * r->store) * fabs(T) + r->tiny, times = (1 + fabs(slope)) / cap;
        single_put(v, i, (struct element){ dy * slope, fabs(dy) * (2 * fabs(T) * off_T + 4 * u) + r->sum_tiny * times },
                   fabs(dy) * r->store * 2 * fabs(slope) + r->tiny * times);
    }
    return v;
}

const struct single_operation single_soft_cap = {
    .words = "the soft cap of logits",
    .forward = soft_cap,
    .input_words = "the backward pass of the soft cap",
    .input = { soft_cap_input },
    .by_rows = true,
};

/* ---- rotations --------------------------------------------------------------------------------------------------- */

/* Turn one pair by an angle.  The angle is off by a few units of itself; by steps cosine, sine and products are
 * stored. */
static void elementwise_turn(struct single *single, struct single_value value, struct tensor X, int64_t i, int64_t j,
                             double angle, double size)
{
    const double x = numbers(X)[i] * size, y = numbers(X)[j] * size,
                 c = cos(angle), d = sin(angle), u = single->rounding.sum, store = single->rounding.store,
                 far = 4 * u * fabs(angle) + 4 * u, times = 2 + fabs(x) + fabs(y),
                 tiny = single->rounding.tiny * times, sum_tiny = single->rounding.sum_tiny * times;
    const double first = fabs(x * c) + fabs(y * d), second = fabs(y * c) + fabs(x * d);
    single_put(value, i, (struct element){ x * c - y * d, far * second + 3 * u * first + sum_tiny },
               3 * store * first + tiny);
    single_put(value, j, (struct element){ y * c + x * d, far * first + 3 * u * second + sum_tiny },
               3 * store * second + tiny);
}

/* Turn all pairs of queries and keys [N, (H+2K)A]; values pass unchanged.  sign: 1 forward, -1 backward. */
static struct single_value rotate(struct single *single, struct tensor X, int layer, double sign)
{
    const struct model_config *c = single->context->config;
    const struct rotary rotary = model_rotary(c, layer);
    const double size = rotary_size(&rotary);
    const int64_t width = tensor_cols(X), R = rotary_table_width(c), half = R / 2;
    const struct single_value v = single_value_new(single, tensor_rows(X), width);
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) numbers(v.y)[i] = numbers(X)[i];
    for (int64_t n = 0; !single->failed && n < tensor_rows(X); n++)
        for (int64_t h = 0; h < c->H + c->K; h++)
            for (int64_t p = 0; p < half; p++) {
                /* A token's position is its place in its document; half of R pairs turn, further columns of a head
                 * do not. */
                const double turned = rotary_frequency(&rotary, R, p, single->cursor.batch.S),
                             angle = (double)single_position(single, n) * turned;
                const int64_t at = n * width + h * c->A, i = rotary.neighbours ? 2 * p : p,
                              j = rotary.neighbours ? 2 * p + 1 : p + half;
                elementwise_turn(single, v, X, at + i, at + j, sign * angle, size);
            }
    return v;
}

static struct single_value rotary_forward(struct single *single, const struct single_node *node)
{
    const struct tensor X = single_act(single, node->in[0]);
    return single_going(single) ? rotate(single, X, node->layer, 1) : single_stop(single);
}

static struct single_value rotary_input(struct single *single, const struct single_node *node)
{
    const struct tensor dY = single_grad(single, node->out);
    return single_going(single) ? rotate(single, dY, node->layer, -1) : single_stop(single);
}

const struct single_operation single_rotary = {
    .words = "the rotation by positions",
    .forward = rotary_forward,
    .input_words = "the backward pass of the rotation",
    .input = { rotary_input },
};
