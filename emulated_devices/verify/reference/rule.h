/* rule.h -- how a plan's training differs from plain training, in a form that a one-device run can follow.
 *
 * In a partial pipeline (skippipe) each sequence skips some layers.  A pipeline that is never drained (pipedream-2bw)
 * steps the optimizer several times in one step of the trainer, each time for some of the sequences, and with the
 * gradient at the weights before the newest: W(t+1) = W(t) - step(gradient at W(t-1)), W(-1) = W(0).  Replicas that
 * train apart each have their own rule: their part of the batch.
 *
 * Caller: reference.c.
 */
#ifndef ORRERY_RULE_H
#define ORRERY_RULE_H

#include "emulated_devices/plan/plan.h"

struct rule {
    int updates;                        /* optimizer steps in one training step */
    bool delayed;                       /* each with the gradient at the weights before the newest */
    struct interval own;                /* the rule's sequences: the whole batch, or a replica's part */
    int *update_of;                     /* [own] the optimizer step for which a sequence counts */
    bool *passes_by;                    /* [L*own] layers that a sequence skips; NULL: none */
};

/** The rule of a plan that has passed plan_check, for one of its replicas (0 if none train apart).  Local.
 *  @return OK or ERR_MEMORY with nothing to free. */
enum error_code rule_of_plan(struct rule *, const struct plan *, int replica, struct error *);
void rule_free(struct rule *);

#endif
