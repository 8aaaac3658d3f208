/* loss.c -- the mean cross entropy, its gradient, and the norm of all gradients.
 *
 * Of a row of V logits x, with the label's logit t: log p = t - max - log(sum of exp(x - max)).  Differences from the
 * largest logit are exact to a unit of themselves, exponentials to a unit more, the sum to rounding_of_sum(V).  By
 * steps, log p is stored, and so are p and the share of a label, 1/count: subnormal in fp16 from 2^14 labels on.
 *
 * A loss, or a norm, with more bits than 16 have has been added up in more.  Then what is added, losses of tokens or
 * norms of parameters, may have been stored, and be off independently; and once a mean of them, as of a microbatch.
 */
#include "emulated_devices/check/recompute/routing.h"

struct row { double top, lse; };        /* the largest logit, and log(sum of exp(x - top)) */

static struct row row_of(const double *x, int64_t V)
{
    struct row r = { x[0], 0 };
    for (int64_t v = 1; v < V; v++) r.top = fmax(r.top, x[v]);
    for (int64_t v = 0; v < V; v++) r.lse += exp(x[v] - r.top);
    r.lse = log(r.lse);
    return r;
}

/* Labels of the whole batch. */
static int64_t counted(const struct single *s)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->context->all.B * s->context->all.S; i++) n += s->context->all.labels[i] >= 0;
    return n > 0 ? n : 1;
}

/* What a mixture's routers add to the loss. */
static struct element of_routers(struct single *s)
{
    const struct mixture_config *m = &s->context->config->mixture;
    if (s->context->config->mlp != MLP_MIXTURE || !single_going(s)) return (struct element){ 0, 0 };
    const struct router_losses l = router_losses_of(s);
    return (struct element){ m->balance_coefficient * l.balance + m->z_coefficient * l.z +
                                 m->sequence_coefficient * l.sequence,
                             m->balance_coefficient * l.off_balance + m->z_coefficient * l.off_z +
                                 m->sequence_coefficient * l.off_sequence };
}

/* What the rows of a tile add up to. */
struct losses { double sum, absolute, squares, off; };

static void add_losses(const struct single *s, struct tensor X, struct losses *l)
{
    const int64_t V = tensor_cols(X);
    const double g = rounding_of_sum(s->rounding.sum, V);
    for (int64_t i = 0; i < s->cursor.N; i++) {
        if (s->cursor.batch.labels[i] < 0) continue;
        const double *x = numbers(X) + i * V, label = x[s->cursor.batch.labels[i]];
        const struct row row = row_of(x, V);
        const double loss = row.top + row.lse - label;
        l->sum += loss, l->absolute += fabs(loss), l->squares += loss * loss;
        l->off += g + s->rounding.sum * (4 * fabs(row.top) + 4 * fabs(row.lse) + 4 * fabs(label) + 4);
    }
}

/* By steps. */
static double stored_losses(const struct single *s, const struct losses *l, double count, double total, bool routers)
{
    const double store = s->rounding.store;
    if (single_is_wide(s))
        return rounding_of_terms(store, l->absolute, sqrt(l->squares)) / count + store * total + s->rounding.tiny;
    return 2 * store * l->absolute / count + 4 * routers * store * total + 2 * s->rounding.tiny;
}

static struct single_value forward(struct single *s, const struct single_node *n)
{
    struct single_value v = single_value_new(s, 1, 1);
    const int64_t count = counted(s);
    const struct rounding *r = &s->rounding;
    const int used = s->memory.used;
    struct losses l = { 0 };
    for (struct single_tiles t = single_tiles_weight(s, n); single_going(s) && single_next_tile(s, &t);) {
        const struct tensor X = single_act(s, n->in[0]);
        if (single_going(s)) add_losses(s, X, &l);
        single_release(s, used);
    }
    single_take_all(s);
    const struct element routers = of_routers(s);
    const double mean = (l.off + rounding_of_sum(r->sum, count + 1) * l.absolute) / (double)count + routers.off,
                 total = l.sum / (double)count + routers.y;
    if (!single_going(s)) return single_stop(s);
    single_put(v, 0, (struct element){ total, mean + 4 * (routers.y > 0) * r->sum * total },
               stored_losses(s, &l, (double)count, total, routers.y > 0));
    v.number = true;
    return v;
}

static void row_input(struct single *s, const double *x, int32_t label, double count, struct single_value v, int64_t at)
{
    const int64_t V = tensor_cols(v.y);
    const struct rounding *r = &s->rounding;
    const struct row row = row_of(x, V);
    for (int64_t i = 0; i < V; i++) {
        const double log_p = x[i] - row.top - row.lse, p = exp(log_p), one = i == label ? 1 : 0,
                     off = p * (rounding_of_sum(r->sum, V) +
                                r->sum * (4 + 2 * fabs(x[i]) + 2 * fabs(row.top) + 2 * row.lse)) + r->sum * one,
                     more = p * (expm1(r->store * fabs(log_p)) + 3 * r->store) + 2 * r->store * one,
                     times = 1 / count + fabs(p - one) + p;
        single_put(v, at + i, (struct element){ (p - one) / count, off / count + r->sum_tiny * times },
                   more / count + r->tiny * times);
    }
}

static struct single_value input(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_stop(s);
    const int64_t V = tensor_cols(X);
    const struct single_value v = single_value_new(s, s->cursor.N, V);
    for (int64_t i = 0; !s->failed && i < s->cursor.N; i++)
        if (s->cursor.batch.labels[i] >= 0)
            row_input(s, numbers(X) + i * V, s->cursor.batch.labels[i], (double)counted(s), v, i * V);
    return v;
}

const struct single_operation single_loss = {
    .words = "the loss",
    .forward = forward,
    .input_words = "the backward pass of the loss",
    .input = { input },
    .by_rows = true,
    .weight_by_rows = true,
};

/* ---- the norm ---------------------------------------------------------------------------------------------------- */

static double squares(struct tensor t)
{
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(t); i++) sum += numbers(t)[i] * numbers(t)[i];
    return sum;
}

/* The squared norm of a parameter's gradient, some rows at a time. */
static double squares_of(struct single *s, int param)
{
    const struct param_spec p = model_param(s->context->config, param);
    const int64_t rows = p.ndim > 1 ? p.dim[0] : 1, cols = p.dim[p.ndim - 1], most = single_block(s, cols);
    const int used = s->memory.used;
    double sum = 0;
    for (int64_t first = 0; first < rows && single_going(s); first += most) {
        const struct single_block block = { first, rows - first < most ? rows - first : most };
        const struct tensor g = single_input_block(s, single_param_name(s, "grad/", param), block, rows, cols);
        if (!s->failed) sum += squares(g);
        single_release(s, used);
    }
    return sum;
}

double single_stored_norms(const struct single *s, double norm, double fourth)
{
    const double u = s->rounding.store;
    if (!single_is_wide(s) || norm == 0) return 2 * u * norm;
    return rounding_of_terms(u, norm, sqrt(fourth) / norm);
}

/* Squares are subnormal where numbers are still far from it. */
double single_tiny_squares(const struct single *s, double norm, int64_t count)
{
    const double off = tiny_terms(s->rounding.sum_tiny, count);
    return sqrt(norm * norm + off) - norm;
}

void single_gradient_norm(struct single *s)
{
    int64_t n = 0;
    double sum = 0, fourth = 0;
    if (!single_begin(s, single_name("", "norm"), "the norm of all gradients", 1, 1)) return;
    for (int i = 0; i < model_param_count(s->context->config) && single_going(s); i++) {
        const struct param_spec p = model_param(s->context->config, i);
        const double one = squares_of(s, i);
        sum += one, fourth += one * one, n += (p.ndim > 1 ? p.dim[0] : 1) * p.dim[p.ndim - 1];
    }
    struct single_value v = single_value_new(s, 1, 1);
    const double norm = sqrt(sum), off = norm * (rounding_of_sum(s->rounding.sum, n) / 2 + 2 * s->rounding.sum) +
                                         single_tiny_squares(s, norm, n);
    if (!s->failed) single_put(v, 0, (struct element){ norm, off }, single_stored_norms(s, norm, fourth));
    v.number = true;
    single_end(s, v);
}
