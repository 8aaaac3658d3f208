/* loss.c -- what the loss and its gradient are with one mistake of labels or of the divisor. */
#include "emulated_devices/check/mistakes/mistakes.h"
#include "emulated_devices/check/recompute/routing.h"
#include <stdio.h>
#include <string.h>

enum divisor { LABELS, ROWS, ONE };

struct loss_switches { int shift, turn; bool ignored, smoothed; enum divisor by; int means; double balance, z; };

/* means: the batch in so many parts, each with its own mean; negative: only the first of the parts.  turn: each copy of
 * the model has the labels of the one so much further.  balance, z: how much more often than once these losses count.
 * LAYERS and CHOICES: as often as there are layers, or choices of a token; negative: divided by these. */
enum { LAYERS = 1000, CHOICES = 2000 };
static const struct loss_switches loss_right;
#define WITH(...) .with = &(const struct loss_switches){ __VA_ARGS__ }

static const double SMOOTH = 0.1;

static int label_of(const struct single *s, const struct loss_switches *v, int64_t row)
{
    const int64_t S = s->cursor.batch.S, B = s->cursor.batch.B,
                  at = v->turn ? part_turned(B, s->context->source.copies, v->turn, row / S) * S + row % S
                      : row + v->shift;
    const int32_t label = s->cursor.batch.labels[at < 0 ? 0 : at < s->cursor.N ? at : row];
    return label < 0 && v->ignored ? 0 : label;
}

/* The part of the batch that a row is in: sequences [from, to). */
static void part_of(const struct single *s, int parts, int64_t row, int64_t *from, int64_t *to)
{
    const int k = part_with(s->cursor.batch.B, parts, row / s->cursor.batch.S);
    *from = part_begin(s->cursor.batch.B, parts, k), *to = part_begin(s->cursor.batch.B, parts, k + 1);
}

static double counted(const struct single *s, const struct loss_switches *v, int64_t from, int64_t to)
{
    double n = 0;
    for (int64_t i = from * s->cursor.batch.S; i < to * s->cursor.batch.S; i++) n += label_of(s, v, i) >= 0;
    return n > 0 ? n : 1;
}

/* What a row's cross entropy is multiplied by. */
static double share(const struct single *s, const struct loss_switches *v, int64_t row)
{
    int64_t from = 0, to = s->cursor.batch.B;
    if (v->by == ROWS) return 1 / (double)s->cursor.N;
    if (v->by == ONE) return 1;
    if (v->means == 0) return 1 / counted(s, v, from, to);
    part_of(s, v->means > 0 ? v->means : -v->means, row, &from, &to);
    if (v->means > 0) return 1 / (v->means * counted(s, v, from, to));
    return from == 0 ? 1 / counted(s, v, 0, s->cursor.batch.B) : 0;
}

static double log_sum(const double *x, int64_t V)
{
    double top = x[0], sum = 0;
    for (int64_t v = 1; v < V; v++) top = fmax(top, x[v]);
    for (int64_t v = 0; v < V; v++) sum += exp(x[v] - top);
    return top + log(sum);
}

static bool cannot(const struct single *s, const struct loss_switches *v)
{
    const struct mixture_config *m = &s->context->config->mixture;
    const bool routers = s->context->config->mlp == MLP_MIXTURE;
    if (v->turn && s->context->source.copies < (v->turn > 0 ? 2 : 3)) return true;
    if (v->balance != 0 && !(routers && m->balance_coefficient > 0)) return true;
    if (v->z != 0 && !(routers && m->z_coefficient > 0)) return true;
    return (v->means > 0 ? v->means : -v->means) > s->cursor.batch.B;
}

/* How often the balance loss counts. */
static double times_balance(const struct model_config *c, const struct loss_switches *v)
{
    const double n = fabs(v->balance) == LAYERS ? (double)c->L : (double)c->mixture.k;
    return fabs(v->balance) < LAYERS ? 1 + v->balance : v->balance > 0 ? n : 1 / n;
}

/* What a mixture's routers add. */
static double of_routers(struct single *s, const struct loss_switches *v)
{
    const struct mixture_config *m = &s->context->config->mixture;
    if (s->context->config->mlp != MLP_MIXTURE || !router_has_losses(s)) return 0;
    const struct router_losses l = router_losses_of(s);
    return times_balance(s->context->config,
                         v) * m->balance_coefficient * l.balance + (1 + v->z) * m->z_coefficient * l.z +
           m->sequence_coefficient * l.sequence;
}

static struct tensor loss_forward(struct single *s, const struct single_node *n, const struct single_mistake *mistake)
{
    const struct loss_switches *v = mistake->with;
    const struct tensor X = single_act(s, n->in[0]);
    if (!single_going(s) || cannot(s, v)) return tensor_none;
    const int64_t V = tensor_cols(X);
    const struct tensor Y = single_new(s, 1, 1);
    for (int64_t i = 0; !s->failed && i < s->cursor.N; i++) {
        const int label = label_of(s, v, i);
        const double *x = numbers(X) + i * V;
        if (label < 0) continue;
        double right = x[label], mean = 0;
        for (int64_t k = 0; k < V && v->smoothed; k++) mean += x[k] / (double)V;
        if (v->smoothed) right = (1 - SMOOTH) * right + SMOOTH * mean;
        numbers(Y)[0] += share(s, v, i) * (log_sum(x, V) - right);
    }
    const double more = s->failed ? 0 : of_routers(s, v);
    if (!s->failed) numbers(Y)[0] += more;
    return Y;
}

static struct tensor loss_input(struct single *s, const struct single_node *n, const struct single_mistake *mistake)
{
    const struct loss_switches *v = mistake->with;
    const struct tensor X = single_act(s, n->in[0]);
    if (!single_going(s) || cannot(s, v)) return tensor_none;
    const int64_t V = tensor_cols(X);
    const struct tensor dX = single_new(s, s->cursor.N, V);
    for (int64_t i = 0; !s->failed && i < s->cursor.N; i++) {
        const int label = label_of(s, v, i);
        const double *x = numbers(X) + i * V, top = log_sum(x, V);
        for (int64_t k = 0; k < V && label >= 0; k++)
            numbers(dX)[i * V + k] = share(s, v, i) * (exp(x[k] - top) - (k == label) * (v->smoothed ? 1 - SMOOTH : 1) -
                                                       (v->smoothed ? SMOOTH / (double)V : 0));
    }
    return dX;
}

static const struct single_mistake loss_rows[] = {
    { "labels are shifted by one: each row has that of the next", FORWARD | INPUT, WITH(.shift = 1) },
    { "labels are shifted by one: each row has that of the row before", FORWARD | INPUT, WITH(.shift = -1) },
    { "ignored labels count, as label 0", FORWARD | INPUT, WITH(.ignored = true) },
    { "labels are smoothed by 0.1", FORWARD | INPUT, WITH(.smoothed = true) },
    { "divided by all rows, those whose label is ignored too", FORWARD | INPUT, WITH(.by = ROWS) },
    { "not divided by the number of labels", FORWARD | INPUT, WITH(.by = ONE) },
    { "a mean of means: 2 parts of the batch, each divided by its own labels", FORWARD | INPUT, WITH(.means = 2) },
    { "a mean of means: 3 parts of the batch, each divided by its own labels", FORWARD | INPUT, WITH(.means = 3) },
    { "a mean of means: 4 parts of the batch, each divided by its own labels", FORWARD | INPUT, WITH(.means = 4) },
    { "a mean of means: 5 parts of the batch, each divided by its own labels", FORWARD | INPUT, WITH(.means = 5) },
    { "a mean of means: 8 parts of the batch, each divided by its own labels", FORWARD | INPUT, WITH(.means = 8) },
    { "the first of 2 parts of the batch only", FORWARD | INPUT, WITH(.means = -2) },
    { "the first of 3 parts of the batch only", FORWARD | INPUT, WITH(.means = -3) },
    { "the first of 4 parts of the batch only", FORWARD | INPUT, WITH(.means = -4) },
    { "copies take turns: each has the labels of the next", FORWARD | INPUT, WITH(.turn = 1) },
    { "copies take turns: each has the labels of the one before", FORWARD | INPUT, WITH(.turn = -1) },
    { "without what the routers' losses add", FORWARD, WITH(.balance = -1, .z = -1) },
    { "without the balance loss", FORWARD, WITH(.balance = -1) },
    { "without the z loss", FORWARD, WITH(.z = -1) },
    { "the balance loss counts once for each layer", FORWARD, WITH(.balance = LAYERS) },
    { "the balance loss is divided by the number of layers", FORWARD, WITH(.balance = -LAYERS) },
    { "the balance loss counts once for each of a token's choices", FORWARD, WITH(.balance = CHOICES) },
    { "the balance loss is divided by the number of choices", FORWARD, WITH(.balance = -CHOICES) },
    { "the balance loss counts twice", FORWARD, WITH(.balance = 1) },
    { 0 }
};

static bool is_zero(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0) return false;
    return true;
}

/* Labels that are ignored, though they count: their rows are zero.  The divisor has them, or not. */
static void try_ignored(struct suspect *p, double *y)
{
    const struct single *s = p->s;
    int64_t ignored = 0, counted = 0, first = -1;
    for (int64_t row = 0; row < p->rows; row++) {
        if (label_of(s, &loss_right, row) < 0) continue;
        const bool zero = is_zero(p->have + row * p->cols, p->cols);
        ignored += zero, counted += !zero;
        if (zero && first < 0) first = row;
    }
    for (int divisor = 0; divisor < 2 && ignored > 0 && counted > 0; divisor++) {
        const double times = divisor ? (double)(counted + ignored) / (double)counted : 1;
        for (int64_t i = 0; i < p->count; i++)
            y[i] = is_zero(p->have + i / p->cols * p->cols, p->cols) ? 0 : times * p->want[i];
        suspect_explained(p, y, "%lld of %lld labels are ignored, the first in row %lld", (long long)ignored,
                          (long long)(counted + ignored), (long long)first);
    }
}

/* A label that no rank finds among its words: nothing is subtracted in its rows. */
static void try_lost_labels(struct suspect *p, const struct single_node *n, enum single_pass_kind pass, double *y)
{
    const struct single *s = p->s;
    char labels[64] = "";
    size_t used = 0;
    int64_t lost = 0;
    if (pass != SINGLE_INPUT) return;
    (void)n;
    try_ignored(p, y);
    memcpy(y, p->want, (size_t)p->count * sizeof *y);
    for (int64_t row = 0; row < p->rows; row++) {
        const int label = label_of(s, &loss_right, row);
        const int64_t at = row * p->cols + label;
        if (label < 0 || fabs(p->have[at] - p->want[at]) <= p->bound[at]) continue;
        y[at] += share(s, &loss_right, row), lost++;
        if (used < sizeof labels)
            used += (size_t)snprintf(labels + used, sizeof labels - used, "%s%d", used ? ", " : "", label);
    }
    if (lost > 0) suspect_explained(p, y, "in %d rows nothing is subtracted for the label: %s", (int)lost, labels);
}

const struct single_mistakes single_loss_mistakes = {
    .of = &single_loss, .rows = loss_rows, .make[SINGLE_FORWARD] = loss_forward,
    .make[SINGLE_INPUT] = loss_input, .parts = try_lost_labels
};
