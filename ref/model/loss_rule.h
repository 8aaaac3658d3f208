/* loss_rule.h -- the loss of logits by the conventions of released programs, and its gradient.
 *
 * Label n of V words has a target q: 1 at the label; with smoothing eps q is 1 - eps + eps/V there and eps/V at every
 * other word (smoothing-over=all), or 1 - eps there and eps/(V-1) at the others (others).  With lse = log(sum exp x):
 *     loss_n    = lse - sum_v q_v x_v + z lse^2                    d loss_n / d x_v = p_v (1 + 2 z lse) - q_v
 *     loss      = sum_n loss_n / divisor_n, over labels that are not ignored
 * divisor_n is, by loss-mean: the batch's labels; its rows; sequences times the labels of n's sequence; parts times the
 * labels of n's part; or 1; and loss-divisor times that.  A sequence or part without labels counts as one of the mean.
 *
 * Source  label-smoothing, ..., loss-divisor of conventions.h; held to released code by tests/ref/test_loss_rule.c
 *
 * transformer_forward and transformer_backward call these for any rule but the usual one, whose loss is that of
 * ref/ops/cross_entropy.c.  check/recompute/loss.c takes the divisors and targets.  All functions are pure.
 */
#ifndef ORRERY_LOSS_RULE_H
#define ORRERY_LOSS_RULE_H

#include "ref/model/config.h"
#include "ref/numeric/tensor.h"
#include "ref/optim/conventions.h"

struct loss_rule loss_rule_of(const struct conventions *);

/** Whether the loss is the mean over labels of their cross entropy. */
bool loss_rule_is_usual(const struct loss_rule *);

/** Write what each of B sequences of S rows is divided by.  @param divisor  [B*S]; of an ignored row any number. */
void loss_divisors(const struct loss_rule *, const int32_t *labels, int64_t B, int64_t S, double *divisor);

/* The target of the label's word, and of every other. */
struct loss_target { double label, other; };
struct loss_target loss_target_of(const struct loss_rule *, int64_t V);

/** The loss of logits [N, V] with labels [N], each divided by its divisor. */
double loss_rule_forward(const struct loss_rule *, struct tensor logits, const int32_t *labels, const double *divisor);

/** dlogits [N, V] = scale times the loss's gradient, rounded once; 0 in ignored rows.  It may be logits. */
void loss_rule_backward(const struct loss_rule *, struct tensor dlogits, struct tensor logits, const int32_t *labels,
                   const double *divisor, double scale);

#endif
