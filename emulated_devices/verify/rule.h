/* rule.h -- where a plan's schedule does not compute plain training, what it does compute, in words that one device
 * understands.
 *
 * A partial pipeline (skippipe) lets each sequence leave some layers out.  A pipeline that is never drained
 * (pipedream-2bw) steps the optimizer several times in one step of the trainer, each time for some of the sequences,
 * and with the gradient at the weights before the newest: W(t+1) = W(t) - step(gradient at W(t-1)), W(-1) = W(0).
 * Replicas that train apart (local-sgd, diloco) have each a rule of its own: its part of the batch.
 */
#ifndef ORRERY_RULE_H
#define ORRERY_RULE_H

#include "emulated_devices/plan/plan.h"

struct rule {
    int updates;                        /* optimizer steps in one training step */
    bool delayed;                       /* each with the gradient at the weights before the newest */
    struct interval own;               /* those it is about: the whole batch, or a replica's */
    int *update_of;                     /* [own] the one that a sequence counts for */
    bool *passes_by;                    /* [L*own] layers that a sequence leaves out; NULL: none */
};

/** The rule of a plan that has passed plan_check, for one of its replicas (0 where none train apart).  Local.
 *  @return OK or ERR_MEMORY with nothing to free. */
enum error_code rule_of_plan(struct rule *, const struct plan *, int replica, struct error *);
void rule_free(struct rule *);

#endif
