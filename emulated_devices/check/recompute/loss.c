/* loss.c -- the mean cross entropy, or the loss by another rule (loss_rule.h), its gradient, and the norm of all
 * gradients.
 *
 * Of a row of V logits x, with the label's logit t: log p = t - max - log(sum of exp(x - max)).  Differences from the
 * largest logit are exact to a unit of themselves, exponentials to a unit more, the sum to rounding_of_sum(V).  By
 * steps, log p is stored, and so are p and the share of a label, 1/count: subnormal in fp16 from 2^14 labels on.  With
 * targets q the sum of q log p is stored, too, and with a z loss the square of max + log(sum), and its slope.
 *
 * A loss, or a norm, with more bits than 16 have has been added up in more.  Then what is added, losses of tokens or
 * norms of parameters, may have been stored, and be off independently; and once a mean of them, as of a microbatch.
 * walk.c runs the loss and calls single_gradient_norm at the end of a pass.  route.c gives the routers' losses.
 */
#include "emulated_devices/check/recompute/routing.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"
#include "ref/model/loss_rule.h"
#include "ref/model/params.h"

struct row { double top, lse; };        /* the largest logit, and log(sum of exp(x - top)) */

/* These are the largest logit of a row, and the log of the sum. */
static struct row loss_row_of(const double *x, int64_t V)
{
    struct row r = { x[0], 0 };
    for (int64_t v = 1; v < V; v++) r.top = fmax(r.top, x[v]);
    for (int64_t v = 0; v < V; v++) r.lse += exp(x[v] - r.top);
    r.lse = log(r.lse);
    return r;
}

/* Count the labels of the whole batch that are not ignored, at least 1.  A tile divides by all of them, too. */
static int64_t counted(const struct single *single)
{
    int64_t n = 0;
    for (int64_t i = 0; i < single->context->all.B * single->context->all.S; i++)
        n += single->context->all.labels[i] >= 0;
    return n > 0 ? n : 1;
}

/* A rule gives rows these targets and divisors; without a divisor of each row, all have the same. */
struct aim { const struct loss_rule *rule; struct loss_target q; const double *divisors; double divisor; };

/* The usual loss has the same divisor everywhere; only another one needs a number for each row. */
static struct aim loss_aim(struct single *single, int64_t V)
{
    const struct loss_rule *rule = &single->context->config->loss;
    const struct single_batch *all = &single->context->all;
    struct aim aim = { .rule = rule, .q = loss_target_of(rule, V), .divisor = (double)counted(single) };
    if (loss_rule_is_usual(rule)) return aim;
    const struct tensor divisors = single_new(single, 1, all->B * all->S);
    if (single->failed) return aim;
    loss_divisors(rule, all->labels, all->B, all->S, numbers(divisors));
    aim.divisors = numbers(divisors);
    return aim;
}

/* Row i of the tile. */
static double divisor_of(const struct single *single, const struct aim *aim, int64_t i)
{
    return aim->divisors ? aim->divisors[single->cursor.first + i] : aim->divisor;
}

/* A mixture's routers add this to the loss, each loss times its coefficient, with the error of the sum. */
static struct element of_routers(struct single *single)
{
    const struct mixture_config *m = &single->context->config->mixture;
    if (single->context->config->mlp != MLP_MIXTURE || !single_going(single)) return (struct element){ 0, 0 };
    const struct router_losses l = router_losses_of(single);
    return (struct element){ m->balance_coefficient * l.balance + m->z_coefficient * l.z +
                                 m->sequence_coefficient * l.sequence,
                             m->balance_coefficient * l.off_balance + m->z_coefficient * l.off_z +
                                 m->sequence_coefficient * l.off_sequence };
}

/* The rows of all tiles add up to these. */
struct losses { double sum, absolute, squares, off; };

/* This is what targets other than 1 and the z loss add to a row's loss, and its error; `size`: what steps store. */
static struct element loss_more(const struct single *single, const struct aim *aim, const double *x, int64_t V,
                                int32_t label, struct row row, double *size)
{
    const double L = row.top + row.lse, z = aim->rule->z * L * L, u = single->rounding.sum, g = rounding_of_sum(u, V);
    double mean = 0, sizes = 0;
    for (int64_t v = 0; v < V && aim->q.other > 0; v++) mean += L - x[v], sizes += fabs(L) + fabs(x[v]);
    /* The loss of a row is (1 - (q_label - q_other)) (L - x_label) less than -sum q log p. */
    const double lost = (1 - (aim->q.label - aim->q.other)) * (L - x[label]);
    *size = fabs(lost) + aim->q.other * fabs(mean) + 3 * z;
    return (struct element){ aim->q.other * mean - lost + z,
                             (g + 8 * u) * (aim->q.other * sizes + fabs(lost) + 3 * z +
                                            2 * aim->rule->z * fabs(L) * (fabs(row.top) + fabs(row.lse) + 1)) };
}

/* loss_i = top + lse - x[label], or by the targets.  Rows whose label is below 0 are ignored. */
static void add_losses(const struct single *single, struct tensor X, const struct aim *aim, struct losses *losses)
{
    const int64_t V = tensor_cols(X);
    const double g = rounding_of_sum(single->rounding.sum, V);
    for (int64_t i = 0; i < single->cursor.N; i++) {
        if (single->cursor.batch.labels[i] < 0) continue;
        const double *x = numbers(X) + i * V, label = x[single->cursor.batch.labels[i]];
        const struct row row = loss_row_of(x, V);
        double size = 0, share = aim->divisors ? 1 / divisor_of(single, aim, i) : 1;
        const struct element more = aim->divisors
            ? loss_more(single, aim, x, V, single->cursor.batch.labels[i], row, &size) : (struct element){ 0, 0 };
        const double loss = share * (row.top + row.lse - label + more.y), stored = fabs(loss) + share * size;
        losses->sum += loss, losses->absolute += stored, losses->squares += stored * stored;
        losses->off += share * (g + single->rounding.sum *
                                (4 * fabs(row.top) + 4 * fabs(row.lse) + 4 * fabs(label) + 4) + more.off);
    }
}

/* This is how far the loss may be off by steps.  A wide number was added up in more bits.  Then only the losses of
 * tokens are stored, and their errors are independent. */
static double stored_losses(const struct single *single, const struct losses *losses, double count, double total,
                            bool routers)
{
    const double store = single->rounding.store;
    if (single_is_wide(single))
        return rounding_of_terms(store, losses->absolute, sqrt(losses->squares)) / count + store * total
               + single->rounding.tiny;
    return 2 * store * losses->absolute / count + 4 * routers * store * total + 2 * single->rounding.tiny;
}

/* The loss is a sum over tiles of tokens, divided by all labels once, or row by row. */
static struct single_value recompute_loss_forward(struct single *single, const struct single_node *node)
{
    struct single_value v = single_value_new(single, 1, 1);
    const struct rounding *r = &single->rounding;
    const struct aim aim = loss_aim(single, single_slot(single, node->in[0])->cols);
    const int64_t terms = counted(single);
    const double count = aim.divisors ? 1 : (double)terms;
    const int used = single->memory.used;
    struct losses l = { 0 };
    for (struct single_tiles t = single_tiles_weight(single, node);
         single_going(single) && single_next_tile(single, &t);) {
        /* Each tile's rows add to the sums of l; the tile's logits are freed before the next. */
        const struct tensor X = single_act(single, node->in[0]);
        if (single_going(single)) add_losses(single, X, &aim, &l);
        single_release(single, used);
    }
    single_take_all(single);
    const struct element routers = of_routers(single);
    /* The loss is the mean over labels plus the routers' losses, which are 0 without a mixture. */
    const double mean = (l.off + rounding_of_sum(r->sum, terms + 1) * l.absolute) / count + routers.off,
                 total = l.sum / count + routers.y;
    if (!single_going(single)) return single_stop(single);
    single_put(v, 0, (struct element){ total, mean + 4 * (routers.y > 0) * r->sum * total },
               stored_losses(single, &l, count, total, routers.y > 0));
    v.number = true;
    return v;
}

/* Write the gradient of a row of logits: (p (1 + 2 z L) - q) / divisor, L = log(sum exp x).  The exponential multiplies
 * errors of its argument. */
static void row_input(struct single *single, const double *x, int32_t label, const struct aim *aim, double divisor,
                      struct single_value value, int64_t at)
{
    const int64_t V = tensor_cols(value.y);
    const struct rounding *r = &single->rounding;
    const struct row row = loss_row_of(x, V);
    const double slope = 2 * aim->rule->z * (row.top + row.lse), steep = 1 + 2 * fabs(slope),
                 blurred = 2 * aim->rule->z *
                           (rounding_of_sum(r->sum, V) + r->sum * (4 + 2 * fabs(row.top) + 2 * row.lse));
    for (int64_t i = 0; i < V; i++) {
        /* p = exp(x - top - lse) with lse = log(sum exp(x - top)); `one` is 1 in the label's column. */
        const double log_p = x[i] - row.top - row.lse, p = exp(log_p), one = i == label ? aim->q.label : aim->q.other,
                     off = steep * p * (rounding_of_sum(r->sum, V) +
                                r->sum * (4 + 2 * fabs(x[i]) + 2 * fabs(row.top) + 2 * row.lse)) + r->sum * one +
                           p * blurred,
                     more = steep * p * (expm1(r->store * fabs(log_p)) + 3 * r->store) + 2 * r->store * one,
                     times = 1 / divisor + fabs(p - one) + p;
        single_put(value, at + i, (struct element){ (p * (1 + slope) - one) / divisor,
                                                    off / divisor + r->sum_tiny * times },
                   more / divisor + r->tiny * times);
    }
}

/* dX [N, V]; rows of ignored labels stay zero. */
static struct single_value recompute_loss_input(struct single *single, const struct single_node *node)
{
    const struct tensor X = single_act(single, node->in[0]);
    if (!single_going(single)) return single_stop(single);
    const int64_t V = tensor_cols(X);
    const struct aim aim = loss_aim(single, V);
    const struct single_value v = single_value_new(single, single->cursor.N, V);
    for (int64_t i = 0; !single->failed && i < single->cursor.N; i++)
        if (single->cursor.batch.labels[i] >= 0)
            row_input(single, numbers(X) + i * V, single->cursor.batch.labels[i], &aim, divisor_of(single, &aim, i), v,
                      i * V);
    return v;
}

const struct single_operation single_loss = {
    .words = "the loss",
    .forward = recompute_loss_forward,
    .input_words = "the backward pass of the loss",
    .input = { recompute_loss_input },
    .by_rows = true,
    .weight_by_rows = true,
};

/* ---- the norm ---------------------------------------------------------------------------------------------------- */

/* Compute the sum of squares of a matrix. */
static double squares(struct tensor t)
{
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(t); i++) sum += numbers(t)[i] * numbers(t)[i];
    return sum;
}

/* Compute the squared norm of a parameter's gradient, some rows at a time. */
static double squares_of(struct single *single, struct param_spec p)
{
    const int64_t rows = p.ndim > 1 ? p.dim[0] : 1, cols = p.dim[p.ndim - 1], most = single_block(single, cols);
    const int used = single->memory.used;
    double sum = 0;
    for (int64_t first = 0; first < rows && single_going(single); first += most) {
        const struct single_block block = { first, rows - first < most ? rows - first : most };
        const struct tensor g = single_input_block(single, single_name("grad/", p.name), block, rows, cols);
        /* sum += g^2 over all numbers of the block. */
        if (!single->failed) sum += squares(g);
        single_release(single, used);
    }
    return sum;
}

/* A wide norm was added up in more bits: norms of parameters may have been stored before.  fourth is then the sum
 * of their fourth powers. */
double single_stored_norms(const struct single *single, double norm, double fourth)
{
    const double u = single->rounding.store;
    if (!single_is_wide(single) || norm == 0) return 2 * u * norm;
    return rounding_of_terms(u, norm, sqrt(fourth) / norm);
}

/* Squares are subnormal where numbers are still far from it, so the sum is off by tiny terms. */
double single_tiny_squares(const struct single *single, double norm, int64_t count)
{
    const double off = tiny_terms(single->rounding.sum_tiny, count);
    return sqrt(norm * norm + off) - norm;
}

/* The norm is no node of the graph: its inputs are the program's gradients of all parameters. */
void single_gradient_norm(struct single *single)
{
    int64_t n = 0;
    double sum = 0, fourth = 0;
    if (!single_begin(single, single_name("", "norm"), "the norm of all gradients", 1, 1)) return;
    const struct single_params *const stepped = single->context->source.stepped;
    const int count = stepped ? stepped->count : single_spec_count(single);
    for (int i = 0; i < count && single_going(single); i++) {
        const struct param_spec p = stepped ? stepped->spec[i] : single_spec(single, i);
        const double one = squares_of(single, p);
        /* n counts all numbers of the model, because each square may be rounded when it is added. */
        sum += one, fourth += one * one, n += (p.ndim > 1 ? p.dim[0] : 1) * p.dim[p.ndim - 1];
    }
    struct single_value v = single_value_new(single, 1, 1);
    const double norm = sqrt(sum),
        off = norm * (rounding_of_sum(single->rounding.sum, n) / 2 + 2 * single->rounding.sum) +
                                         single_tiny_squares(single, norm, n);
    if (!single->failed) single_put(v, 0, (struct element){ norm, off }, single_stored_norms(single, norm, fourth));
    v.number = true;
    single_end(single, v);
}
