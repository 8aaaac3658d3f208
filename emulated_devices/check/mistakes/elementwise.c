/* elementwise.c -- what sums, activations and embeddings give with one mistake.
 * mistakes.c reads the tables.  Each function makes what one pass of the operation gives with the mistake `which`, in
 * fp64.  tensor_none means that the model cannot have it, or an input is missing. */
#include "emulated_devices/check/mistakes/mistakes.h"
#include "ref/model/params.h"

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Y = a X0 + b X1: mistake `which` leaves input which / 2 out, or adds it twice. */
static struct tensor add_forward(struct single *single, const struct single_node *node,
                                 const struct single_mistake *mistake)
{
    const int which = mistake->which;
    const struct single_value X[] = { single_value_of(single, node->in[0]), single_value_of(single, node->in[1]) };
    if (!single_going(single)) return tensor_none;
    const struct tensor Y = single_new(single, tensor_rows(X[0].y), tensor_cols(X[0].y));
    for (int64_t i = 0; !single->failed && i < tensor_count(Y); i++)
        for (int k = 0; k < 2; k++) numbers(Y)[i] += (which / 2 != k ? 1 : which % 2 ? 2 : 0) * numbers(X[k].y)[i];
    return Y;
}

static const struct single_mistake add_rows[] = {
    { "the stream is not added to its branch", FORWARD, .which = 0 },
    { "the stream is added twice", FORWARD, .which = 1 },
    { "the branch is missing", FORWARD, .which = 2 },
    { "the branch is added twice", FORWARD, .which = 3 },
    { 0 }
};

/* The branch is added times another factor: the factor that fits best. */
static void try_branch(struct suspect *suspect, const struct single_node *node, enum single_pass_kind pass, double *y)
{
    const struct single_value X = single_value_of(suspect->s, node->in[1]);
    double along = 0, size = 0;
    if (pass != SINGLE_FORWARD || suspect->words[0] || !single_going(suspect->s) || tensor_count(X.y) != suspect->count)
        return;
    /* along / size is the factor's distance from 1: (have - want, X) / (X, X). */
    for (int64_t i = 0; i < suspect->count; i++)
        along += (suspect->have[i] - suspect->want[i]) * numbers(X.y)[i], size += numbers(X.y)[i] * numbers(X.y)[i];
    for (int64_t i = 0; i < suspect->count; i++) y[i] = suspect->want[i] + along / size * numbers(X.y)[i];
    if (size > 0) suspect_measured(suspect, y, "the branch is %.4f of what it must be", 1 + along / size);
}

const struct single_mistakes single_add_mistakes = {
    .of = &single_add, .rows = add_rows, .make[SINGLE_FORWARD] = add_forward, .parts = try_branch
};

/* ---- activations ------------------------------------------------------------------------------------------------- */

enum {
    TANH, ERF, SIGMOID, SILU, RELU, NO_SECOND, SWAPPED, PLAIN_SIGMOID, PLAIN_TANH, SQUARED_RELU, OF_PRODUCT, BOTH,
    NO_UP, UP_AND_ONE, IN_TURN, IN_TURN_OF_RANKS, UP_PLAIN, MINUS, ALL_SQUARED, ONCE
};

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* The value of an activation: TANH is gelu's tanh form, SIGMOID the approximation x sigmoid(1.702 x). */
static double value(int which, double x)
{
    switch (which) {
    case ERF: return x / 2 * (1 + erf(x / sqrt(2)));
    case SIGMOID: return x * sigmoid(1.702 * x);
    case RELU: return x > 0 ? x : 0;
    case SQUARED_RELU: return x > 0 ? x * x : 0;
    case ALL_SQUARED: return x * x;
    case PLAIN_SIGMOID: return sigmoid(x);
    case PLAIN_TANH: return tanh(x);
    case TANH: return x / 2 * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    default: return x * sigmoid(x);
    }
}

/* This is the slope of an activation, or a mistaken slope.  Others come from a central difference with h = 1e-5,
 * which is exact enough beside 16 and 32 bits. */
static double slope(int which, double x)
{
    const double h = 1e-5;
    if (which == NO_SECOND) return sigmoid(x);
    if (which == ONCE) return x > 0 ? x : 0;
    if (which == MINUS) return sigmoid(x) * (1 - x * (1 - sigmoid(x)));
    return which == RELU ? x > 0 : (value(which, x + h) - value(which, x - h)) / (2 * h);
}

static struct tensor plain_forward(struct single *single, const struct single_node *node,
                                   const struct single_mistake *mistake)
{
    const int which = mistake->which;
    const struct tensor X = single_act(single, node->in[0]);
    if (!single_going(single)) return tensor_none;
    const struct tensor Y = single_new(single, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) numbers(Y)[i] = value(which, numbers(X)[i]);
    return Y;
}

static struct tensor plain_input(struct single *single, const struct single_node *node,
                                 const struct single_mistake *mistake)
{
    const int which = mistake->which;
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]);
    if (!single_going(single)) return tensor_none;
    const struct tensor dX = single_new(single, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++)
        numbers(dX)[i] = numbers(dY)[i] * slope(which, numbers(X)[i]);
    return dX;
}

/* The mistake takes gates and ups in turn, not from halves.  @return the column with number j of the rank that has
 * column i: its gates first, then its ups. */
static int64_t column_of(int64_t F, int parts, int64_t i, int64_t j)
{
    const int part = part_with(F, parts, i);
    const int64_t from = part_begin(F, parts, part), own = part_begin(F, parts, part + 1) - from;
    return j < own ? from + j : F + from + j - own;
}

/* Read the gate and the up value of element i of a row [2 F], with the mistake. */
static void gated(const struct single *single, int which, const double *x, int64_t F, int64_t i,
                  double *gate, double *up)
{
    const int parts = which == IN_TURN_OF_RANKS ? single->rounding.parts : 1;
    const int64_t at = i - part_begin(F, parts, part_with(F, parts, i));
    const bool in_turn = which == IN_TURN || which == IN_TURN_OF_RANKS;
    *gate = x[which == SWAPPED ? F + i : in_turn ? column_of(F, parts, i, 2 * at) : i];
    *up = x[which == SWAPPED ? i : in_turn ? column_of(F, parts, i, 2 * at + 1) : F + i];
}

/* Y [N, F] = act(gate) up, from X [N, 2 F]. */
static struct tensor swiglu_forward(struct single *single, const struct single_node *node,
                                    const struct single_mistake *mistake)
{
    const int which = mistake->which;
    const struct tensor X = single_act(single, node->in[0]);
    if (!single_going(single) || (which == IN_TURN_OF_RANKS && single->rounding.parts < 2)) return tensor_none;
    const int64_t F = tensor_cols(X) / 2;
    const struct tensor Y = single_new(single, tensor_rows(X), F);
    /* Row i / F of X begins at i / F times 2 F. */
    for (int64_t i = 0; !single->failed && i < tensor_count(Y); i++) {
        double gate, up;
        gated(single, which, numbers(X) + i / F * 2 * F, F, i % F, &gate, &up);
        numbers(Y)[i] = which == OF_PRODUCT ? value(SILU, gate * up)
                      : value(which, gate) * (which == BOTH ? value(SILU, up) : which == NO_UP ? 1
                                              : up + (which == UP_AND_ONE));
    }
    return Y;
}

/* dX [N, 2 F]: d gate = dY up act'(gate), d up = dY act(gate). */
static struct tensor swiglu_input(struct single *single, const struct single_node *node,
                                  const struct single_mistake *mistake)
{
    const int which = mistake->which;
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]);
    if (!single_going(single)) return tensor_none;
    const int64_t F = tensor_cols(X) / 2;
    const struct tensor dX = single_new(single, tensor_rows(X), 2 * F);
    /* `back` is the slope's activation, `front` the activation that multiplies dY for up. */
    const int back = which == SWAPPED ? SILU : which, front = which == NO_SECOND || which == SWAPPED ? SILU : which;
    const bool no_up = which == NO_UP;
    for (int64_t i = 0; !single->failed && i < tensor_count(dY); i++) {
        const int64_t at = i / F * 2 * F + i % F, gate = which == SWAPPED ? at + F : at,
                      up = which == SWAPPED ? at : at + F;
        numbers(dX)[gate] = numbers(dY)[i] * (no_up ? 1 : numbers(X)[up]) * slope(back, numbers(X)[gate]);
        numbers(dX)[up] = numbers(dY)[i] * (which == UP_PLAIN ? numbers(X)[gate] : value(front, numbers(X)[gate]));
    }
    return dX;
}

static const struct single_mistake gelu_rows[] = {
    { "the exact gelu, by erf, in place of the tanh form", FORWARD, .which = ERF },
    { "x sigmoid(1.702 x) in place of gelu", FORWARD, .which = SIGMOID },
    { "silu in place of gelu", FORWARD, .which = SILU },
    { "relu in place of gelu", FORWARD, .which = RELU },
    { "the slope of the exact gelu, by erf, in place of the tanh form's", INPUT, .which = ERF },
    { "the slope of x sigmoid(1.702 x) in place of gelu's", INPUT, .which = SIGMOID },
    { "the slope of silu in place of gelu's", INPUT, .which = SILU },
    { 0 }
};

static const struct single_mistake exact_gelu_rows[] = {
    { "the tanh form in place of the exact gelu", FORWARD, .which = TANH },
    { "x sigmoid(1.702 x) in place of the exact gelu", FORWARD, .which = SIGMOID },
    { "silu in place of the exact gelu", FORWARD, .which = SILU },
    { "relu in place of the exact gelu", FORWARD, .which = RELU },
    { "the slope of the tanh form in place of the exact gelu's", INPUT, .which = TANH },
    { "the slope of x sigmoid(1.702 x) in place of the exact gelu's", INPUT, .which = SIGMOID },
    { "the slope of silu in place of the exact gelu's", INPUT, .which = SILU },
    { 0 }
};

static const struct single_mistake squared_relu_rows[] = {
    { "relu in place of its square", FORWARD, .which = RELU },
    { "the square of all numbers, not only of those above 0", FORWARD, .which = ALL_SQUARED },
    { "the tanh form of gelu in place of the squared relu", FORWARD, .which = TANH },
    { "the slope of relu in place of its square's", INPUT, .which = RELU },
    { "the slope of the square of all numbers", INPUT, .which = ALL_SQUARED },
    { "the slope of the squared relu lacks its factor of 2", INPUT, .which = ONCE },
    { 0 }
};

static const struct single_mistake swiglu_rows[] = {
    { "gate and up have changed places", FORWARD | INPUT, .which = SWAPPED },
    { "the exact gelu of the gate in place of silu", FORWARD, .which = ERF },
    { "the tanh form of gelu of the gate in place of silu", FORWARD, .which = TANH },
    { "relu of the gate in place of silu", FORWARD, .which = RELU },
    { "the square of relu of the gate in place of silu", FORWARD, .which = SQUARED_RELU },
    { "the sigmoid of the gate in place of silu", FORWARD, .which = PLAIN_SIGMOID },
    { "the tanh of the gate in place of silu", FORWARD, .which = PLAIN_TANH },
    { "x sigmoid(1.702 x) of the gate in place of silu", FORWARD, .which = SIGMOID },
    { "silu of the product of gate and up", FORWARD, .which = OF_PRODUCT },
    { "silu of both, gate and up", FORWARD, .which = BOTH },
    { "silu of the gate alone, without up", FORWARD, .which = NO_UP },
    { "1 is added to up", FORWARD, .which = UP_AND_ONE },
    { "gate and up are taken from columns in turn, not from halves", FORWARD, .which = IN_TURN },
    { "gate and up are taken from each rank's columns in turn, not from halves", FORWARD, .which = IN_TURN_OF_RANKS },
    { "the slope of silu lacks its second term", INPUT, .which = NO_SECOND },
    { "the second term of silu's slope has the wrong sign", INPUT, .which = MINUS },
    { "the gradient of the gate is not multiplied by up", INPUT, .which = NO_UP },
    { "the gradient of up is multiplied by the gate, not by its silu", INPUT, .which = UP_PLAIN },
    { "the slope of the exact gelu in place of silu's", INPUT, .which = ERF },
    { 0 }
};

static const struct single_mistake geglu_rows[] = {
    { "the exact gelu of the gate, by erf, in place of the tanh form", FORWARD, .which = ERF },
    { "silu of the gate in place of gelu", FORWARD, .which = SILU },
    { "relu of the gate in place of gelu", FORWARD, .which = RELU },
    { "the slope of the exact gelu, by erf, in place of the tanh form's", INPUT, .which = ERF },
    { "the slope of silu in place of gelu's", INPUT, .which = SILU },
    { 0 }
};

const struct single_mistakes single_gelu_mistakes = {
    .of = &single_gelu, .rows = gelu_rows, .make[SINGLE_FORWARD] = plain_forward, .make[SINGLE_INPUT] = plain_input
};
const struct single_mistakes single_exact_gelu_mistakes = {
    .of = &single_exact_gelu, .rows = exact_gelu_rows, .make[SINGLE_FORWARD] = plain_forward,
    .make[SINGLE_INPUT] = plain_input
};
const struct single_mistakes single_squared_relu_mistakes = {
    .of = &single_squared_relu, .rows = squared_relu_rows, .make[SINGLE_FORWARD] = plain_forward,
    .make[SINGLE_INPUT] = plain_input
};
const struct single_mistakes single_geglu_mistakes = {
    .of = &single_geglu, .rows = geglu_rows, .make[SINGLE_FORWARD] = swiglu_forward, .make[SINGLE_INPUT] = swiglu_input
};
const struct single_mistakes single_swiglu_mistakes = {
    .of = &single_swiglu, .rows = swiglu_rows, .make[SINGLE_FORWARD] = swiglu_forward,
    .make[SINGLE_INPUT] = swiglu_input
};

/* ---- the soft cap of logits -------------------------------------------------------------------------------------- */

enum { UNCAPPED, UNDIVIDED, NOT_GROWN };

/* Y = cap tanh(X / cap) with one of both factors, or the tanh, left out. */
static struct tensor soft_cap_forward(struct single *single, const struct single_node *node,
                                      const struct single_mistake *mistake)
{
    const int which = mistake->which;
    const struct tensor X = single_act(single, node->in[0]);
    const double cap = single->context->config->logit_cap;
    if (!single_going(single)) return tensor_none;
    const struct tensor Y = single_new(single, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) {
        const double x = numbers(X)[i];
        numbers(Y)[i] = which == UNCAPPED ? x : which == UNDIVIDED ? cap * tanh(x) : tanh(x / cap);
    }
    return Y;
}

/* dX is made as if logits were not capped, or with the derivative of tanh at the capped logit. */
static struct tensor soft_cap_input(struct single *single, const struct single_node *node,
                                    const struct single_mistake *mistake)
{
    const int which = mistake->which;
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]);
    const double cap = single->context->config->logit_cap;
    if (!single_going(single)) return tensor_none;
    const struct tensor dX = single_new(single, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) {
        const double T = tanh(numbers(X)[i] / cap), again = tanh(T);
        numbers(dX)[i] = numbers(dY)[i] * (which == UNCAPPED ? 1 : 1 - again * again);
    }
    return dX;
}

static const struct single_mistake soft_cap_rows[] = {
    { "logits are not capped", FORWARD, .which = UNCAPPED },
    { "logits are not divided by their cap before the tanh", FORWARD, .which = UNDIVIDED },
    { "the tanh of logits is not multiplied by their cap", FORWARD, .which = NOT_GROWN },
    { "the gradient lacks the slope of the cap", INPUT, .which = UNCAPPED },
    { "the slope is that at the capped logit", INPUT, .which = UNDIVIDED },
    { 0 }
};

const struct single_mistakes single_soft_cap_mistakes = {
    .of = &single_soft_cap, .rows = soft_cap_rows, .make[SINGLE_FORWARD] = soft_cap_forward,
    .make[SINGLE_INPUT] = soft_cap_input
};

/* ---- embeddings -------------------------------------------------------------------------------------------------- */

/* Y = X + W[position]: positions are shifted by `which`; with 9 they are not added, with 8 they go on from document to
 * document. */
static struct tensor positions_forward(struct single *single, const struct single_node *node,
                                       const struct single_mistake *mistake)
{
    const int which = mistake->which;
    const struct single_value X = single_value_of(single, node->in[0]);
    const struct tensor W = single_param(single, node->weight);
    if (!single_going(single) || (which == 8 && single->cursor.batch.positions == NULL)) return tensor_none;
    const int64_t D = tensor_cols(X.y);
    const struct tensor Y = single_new(single, tensor_rows(X.y), D);
    for (int64_t i = 0; !single->failed && i < tensor_count(Y); i++) {
        /* Positions outside the table read its first or last row. */
        const int64_t at = which == 8 ? i / D % single->cursor.batch.S : single_position(single, i / D) + which,
                      row = at < 0 ? 0 : at < tensor_rows(W) ? at : tensor_rows(W) - 1;
        numbers(Y)[i] = numbers(X.y)[i] + (which == 9 ? 0 : numbers(W)[row * D + i % D]);
    }
    return Y;
}

static const struct single_mistake positions_rows[] = {
    { "positions are shifted by one: they begin at 1", FORWARD, .which = 1 },
    { "positions are shifted by two: they begin at 2", FORWARD, .which = 2 },
    { "positions are shifted by one: they begin at -1", FORWARD, .which = -1 },
    { "positions are not added", FORWARD, .which = 9 },
    { "positions go on from document to document of a sequence", FORWARD, .which = 8 },
    { 0 }
};

const struct single_mistakes single_positions_mistakes = {
    .of = &single_positions, .rows = positions_rows, .make[SINGLE_FORWARD] = positions_forward
};

/* dW [V, D]: if a token occurs several times, only the last row's gradient stays.  An assignment in place of a sum
 * leaves this. */
static struct tensor embed_weight(struct single *single, const struct single_node *node,
                                  const struct single_mistake *mistake)
{
    (void)mistake;
    const int64_t D = single_slot(single, node->out)->cols;
    const struct single_block block = single_block_of(single, single_spec(single, node->weight).dim[0]);
    const struct tensor dW = single_new(single, block.rows, D);
    const int used = single->memory.used;
    for (struct single_tiles t = single_tiles_weight(single, node);
         single_going(single) && single_next_tile(single, &t);) {
        const struct tensor dY = single_grad(single, node->out);
        for (int64_t i = 0; single_going(single) && i < tensor_count(dY); i++) {
            const int64_t row = single->cursor.batch.ids[i / D % single->cursor.N] - block.first;
            if (row >= 0 && row < block.rows) numbers(dW)[row * D + i % D] = numbers(dY)[i];
        }
        single_release(single, used);
    }
    single_take_all(single);
    return single_going(single) ? dW : tensor_none;
}

static const struct single_mistake embed_rows[] = {
    { "a repeated token's gradient overwrites those before it", WEIGHT, .which = 0 },
    { 0 }
};

const struct single_mistakes single_embed_mistakes = {
    .of = &single_embed, .rows = embed_rows, .make[SINGLE_WEIGHT] = embed_weight
};
