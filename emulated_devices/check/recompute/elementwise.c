/* elementwise.c -- operations of a few terms for each element: sums, dropout and rotations.
 *
 * The sum of absolute terms times a few units of roundoff bounds the error of each; a step's result that is stored adds
 * the unit of the format, or, if it is subnormal, `tiny` times what follows multiplies by.
 */
#include "ref/model/rotary.h"
#include "ref/model/transformer.h"
#include "emulated_devices/check/recompute/parts.h"

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static struct single_value add(struct single *s, const struct single_node *n)
{
    const struct single_value x[] = { single_value_of(s, n->in[0]), single_value_of(s, n->in[1]) };
    return single_going(s) ? single_sum(s, x, 2) : single_stop(s);
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
    .by_rows = true,
};

/* ---- dropout ----------------------------------------------------------------------------------------------------- */

/* x m / (1-rate); of rate 0 the value itself. */
static struct single_value drop(struct single *s, const struct single_node *n, struct single_value X)
{
    const struct tensor m = single_mask(s, n);
    if (n->rate == 0 || !single_going(s)) return X;
    const struct single_value v = single_value_new(s, tensor_rows(X.y), tensor_cols(X.y));
    for (int64_t i = 0; !s->failed && i < tensor_count(v.y); i++) {
        const double times = numbers(m)[i] / (1 - n->rate), y = numbers(X.y)[i] * times;
        single_put(v, i, (struct element){ y, times * numbers(X.fused)[i] + 2 * s->rounding.sum * fabs(y) +
                                                  s->rounding.sum_tiny * (1 + times) },
                   times * (numbers(X.steps)[i] - numbers(X.fused)[i]) + s->rounding.store * fabs(y) +
                       s->rounding.tiny * times);
    }
    return v;
}

static struct single_value drop_forward(struct single *s, const struct single_node *n)
{
    return drop(s, n, single_value_of(s, n->in[0]));
}

static struct single_value drop_input(struct single *s, const struct single_node *n)
{
    return drop(s, n, single_gradient_of(s, n->out));
}

const struct single_operation single_dropout = {
    .words = "dropout",
    .forward = drop_forward,
    .input_words = "the backward pass of dropout",
    .input = { drop_input },
};

/* ---- the factor of embeddings ------------------------------------------------------------------------------------ */

static struct single_value scaled(struct single *s, struct single_value x)
{
    const double a = embedding_factor(s->context->config, s->rounding.results);
    if (!single_going(s)) return single_stop(s);
    const struct single_value v = single_value_new(s, tensor_rows(x.y), tensor_cols(x.y));
    for (int64_t i = 0; !s->failed && i < tensor_count(v.y); i++) {
        const double y = a * numbers(x.y)[i], off = s->rounding.sum * fabs(y) + s->rounding.sum_tiny;
        numbers(v.y)[i] = y;
        numbers(v.fused)[i] = a * numbers(x.fused)[i] + off, numbers(v.steps)[i] = a * numbers(x.steps)[i] + off;
    }
    return v;
}

static struct single_value scale(struct single *s, const struct single_node *n)
{
    return scaled(s, single_value_of(s, n->in[0]));
}

static struct single_value scale_input(struct single *s, const struct single_node *n)
{
    return scaled(s, single_gradient_of(s, n->out));
}

const struct single_operation single_scale = {
    .words = "the scaled embedding",
    .forward = scale,
    .input_words = "the backward pass of the scaled embedding",
    .input = { scale_input },
    .by_rows = true,
};

/* ---- the soft cap of logits -------------------------------------------------------------------------------------- */

/* y = cap T, T = tanh(x / cap); by steps, the quotient and T are stored. */
static struct single_value soft_cap(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_stop(s);
    const struct rounding *r = &s->rounding;
    const double cap = s->context->config->logit_cap;
    const struct single_value v = single_value_new(s, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i], T = tanh(x / cap), y = cap * T, slope = 1 - T * T, times = cap * (1 + slope);
        single_put(v, i, (struct element){ y, r->sum * (2 * slope * fabs(x) + 4 * fabs(y)) + r->sum_tiny * times },
                   r->store * (slope * fabs(x) + fabs(y)) + r->tiny * times);
    }
    return v;
}

/* dx = dy (1 - T^2), T = y / cap, even if y is wrong.  Always allowed: T has been stored by itself, or not at all.  By
 * steps, dy cap and its product with the slope are stored, too. */
static struct single_value soft_cap_input(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), Y = single_act(s, n->out);
    if (!single_going(s)) return single_stop(s);
    const struct rounding *r = &s->rounding;
    const double cap = s->context->config->logit_cap, u = r->sum;
    const struct single_value v = single_value_new(s, tensor_rows(Y), tensor_cols(Y));
    for (int64_t i = 0; !s->failed && i < tensor_count(Y); i++) {
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

/* One pair, turned.  The angle is off by a few units of itself; by steps, cosine, sine and products are stored. */
static void turn(struct single *s, struct single_value v, struct tensor X, int64_t i, int64_t j, double angle,
                 double size)
{
    const double x = numbers(X)[i] * size, y = numbers(X)[j] * size,
                 c = cos(angle), d = sin(angle), u = s->rounding.sum, store = s->rounding.store,
                 far = 4 * u * fabs(angle) + 4 * u, times = 2 + fabs(x) + fabs(y),
                 tiny = s->rounding.tiny * times, sum_tiny = s->rounding.sum_tiny * times;
    const double first = fabs(x * c) + fabs(y * d), second = fabs(y * c) + fabs(x * d);
    single_put(v, i, (struct element){ x * c - y * d, far * second + 3 * u * first + sum_tiny },
               3 * store * first + tiny);
    single_put(v, j, (struct element){ y * c + x * d, far * first + 3 * u * second + sum_tiny },
               3 * store * second + tiny);
}

static struct single_value rotate(struct single *s, struct tensor X, int layer, double sign)
{
    const struct model_config *c = s->context->config;
    const struct rotary rotary = model_rotary(c, layer);
    const double size = rotary_size(&rotary);
    const int64_t width = tensor_cols(X), R = rotary_table_width(c), half = R / 2;
    const struct single_value v = single_value_new(s, tensor_rows(X), width);
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) numbers(v.y)[i] = numbers(X)[i];
    for (int64_t n = 0; !s->failed && n < tensor_rows(X); n++)
        for (int64_t h = 0; h < c->H + c->K; h++)
            for (int64_t p = 0; p < half; p++) {
                const double turned = rotary_frequency(&rotary, R, p, s->cursor.batch.S),
                             angle = (double)(n % s->cursor.batch.S) * turned;
                const int64_t at = n * width + h * c->A, i = rotary.neighbours ? 2 * p : p,
                              j = rotary.neighbours ? 2 * p + 1 : p + half;
                turn(s, v, X, at + i, at + j, sign * angle, size);
            }
    return v;
}

static struct single_value rotary_forward(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]);
    return single_going(s) ? rotate(s, X, n->layer, 1) : single_stop(s);
}

static struct single_value rotary_input(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out);
    return single_going(s) ? rotate(s, dY, n->layer, -1) : single_stop(s);
}

const struct single_operation single_rotary = {
    .words = "the rotation by positions",
    .forward = rotary_forward,
    .input_words = "the backward pass of the rotation",
    .input = { rotary_input },
};
