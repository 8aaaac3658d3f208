/* loss_rule.c -- computes divisors, targets, losses and gradients of loss_rule.h, in double, row by row.
 * ref/model/forward.c and backward.c call the passes, ref/golden/replay.c the divisors, check/recompute/loss.c and
 * check/mistakes/conventions.c divisors and targets.  No function reports an error. */
#include "ref/model/loss_rule.h"
#include <math.h>

struct loss_rule loss_rule_of(const struct conventions *as)
{
    return (struct loss_rule){ .smoothing = convention(as, LABEL_SMOOTHING), .z = convention(as, LOGITS_Z),
                               .over = (int)convention(as, SMOOTHING_OVER), .mean = (int)convention(as, LOSS_MEAN),
                               .parts = (int64_t)convention(as, LOSS_PARTS),
                               .divisor = convention(as, LOSS_DIVISOR) };
}

static double rule_divisor(const struct loss_rule *rule) { return rule->divisor > 0 ? rule->divisor : 1; }

/* One part is the batch. */
bool loss_rule_is_usual(const struct loss_rule *rule)
{
    const bool mean = rule->mean == MEAN_OF_LABELS || (rule->mean == MEAN_OF_PARTS && rule->parts == 1);
    return rule->smoothing == 0 && rule->z == 0 && mean && rule_divisor(rule) == 1;
}

/* Labels of rows [from, to) that are not ignored; at least 1, because the divisor must not be 0. */
static double rule_labels(const int32_t *labels, int64_t from, int64_t to)
{
    int64_t n = 0;
    for (int64_t i = from; i < to; i++) n += labels[i] >= 0;
    return n > 0 ? (double)n : 1;
}

/* The first B % parts parts have one sequence more. */
static int64_t rule_part_begins(int64_t B, int64_t parts, int64_t part)
{
    return part * (B / parts) + (part < B % parts ? part : B % parts);
}

void loss_divisors(const struct loss_rule *rule, const int32_t *labels, int64_t B, int64_t S, double *divisor)
{
    const int64_t parts = rule->mean == MEAN_OF_SEQUENCES ? B
                        : rule->mean == MEAN_OF_PARTS && rule->parts > 0 ? rule->parts : 1;
    for (int64_t k = 0; k < parts; k++) {
        const int64_t from = rule_part_begins(B, parts, k) * S, to = rule_part_begins(B, parts, k + 1) * S;
        /* Rows, or a sum, do not depend on labels; the others are means of their part's labels. */
        const double one = rule->mean == MEAN_OF_ROWS ? (double)(B * S) : rule->mean == MEAN_NONE ? 1
                         : (double)parts * rule_labels(labels, from, to);
        for (int64_t i = from; i < to; i++) divisor[i] = one * rule_divisor(rule);
    }
}

struct loss_target loss_target_of(const struct loss_rule *rule, int64_t V)
{
    const double eps = V > 1 ? rule->smoothing : 0;
    if (rule->over == SMOOTHING_OTHERS) return (struct loss_target){ 1 - eps, eps / (double)(V > 1 ? V - 1 : 1) };
    return (struct loss_target){ 1 - eps + eps / (double)V, eps / (double)V };
}

/* lse = log(sum of exp(x)), with the largest logit taken out so that exp does not overflow. */
static double rule_lse(struct tensor logits, int64_t row)
{
    const int64_t V = tensor_cols(logits);
    double top = -INFINITY, total = 0;
    for (int64_t v = 0; v < V; v++) top = fmax(top, tensor_get(logits, row * V + v));
    for (int64_t v = 0; v < V; v++) total += exp(tensor_get(logits, row * V + v) - top);
    return top + log(total);
}

double loss_rule_forward(const struct loss_rule *rule, struct tensor logits, const int32_t *labels,
                         const double *divisor)
{
    const int64_t N = tensor_rows(logits), V = tensor_cols(logits);
    const struct loss_target q = loss_target_of(rule, V);
    double loss = 0;
    for (int64_t n = 0; n < N; n++) {
        if (labels[n] < 0) continue;
        const double lse = rule_lse(logits, n);
        double aimed = (q.label - q.other) * (tensor_get(logits, n * V + labels[n]) - lse);
        /* sum_v q_v (x_v - lse), since the targets add up to 1. */
        for (int64_t v = 0; v < V && q.other > 0; v++) aimed += q.other * (tensor_get(logits, n * V + v) - lse);
        loss += (rule->z * lse * lse - aimed) / divisor[n];
    }
    return loss;
}

void loss_rule_backward(const struct loss_rule *rule, struct tensor dlogits, struct tensor logits,
                        const int32_t *labels, const double *divisor, double scale)
{
    const int64_t N = tensor_rows(logits), V = tensor_cols(logits);
    const struct loss_target q = loss_target_of(rule, V);
    for (int64_t n = 0; n < N; n++) {
        const double lse = labels[n] < 0 ? 0 : rule_lse(logits, n), times = scale / divisor[n];
        for (int64_t v = 0; v < V; v++) {
            const double p = labels[n] < 0 ? 0 : exp(tensor_get(logits, n * V + v) - lse);
            const double slope = p * (1 + 2 * rule->z * lse) - (v == labels[n] ? q.label : q.other);
            tensor_set(dlogits, n * V + v, labels[n] < 0 ? 0 : slope * times);
        }
    }
}
