/* router.h -- the published rules by which a mixture's router chooses experts and weighs them; the registry of all.
 *
 * A rule is a value (struct router_rule), made of what ref/ops/route.c computes: scores, a bias, groups, normalisation,
 * a scale.  A new one is a file here and a line in registry.c.
 *
 * ref/model, options and plans look routers up here; router_move_bias is called by training after each step.
 */
#ifndef ORRERY_ROUTER_H
#define ORRERY_ROUTER_H

#include "ref/error.h"
#include "ref/ops/ops.h"

struct router {
    const char *name, *description;     /* as in --router; one line for `orrery list` */
    const char *formula;                /* keys order the experts, weights multiply their results; s: scores */
    const char *source;                 /* the paper that defines the rule */
    struct router_rule rule;            /* with the numbers of its paper's largest model */
    bool zero_is_null;                  /* its experts without computation return 0, else what they get */
};

extern const struct router *const routers[];            /* ends with NULL; [0] is the default */

/** Find a rule by name.  @return OK, or ERR_USAGE with the nearest name. */
enum error_code router_find(const struct router **, const char *name, struct error *);

/**
 * A router's rule for E experts of which k are chosen: with at most as many groups, each with at least two experts, and
 * the published share of them kept, but so many that k experts can be chosen.
 */
struct router_rule router_fit(const struct router *, int64_t E, int64_t k);

/** Whether two rules are the same. */
bool router_same(const struct router_rule *, const struct router_rule *);

/** Check a rule for E experts and `zero` without computation, of which k are chosen.
 *  @return OK, or ERR_PLAN with the first problem. */
enum error_code router_check(const struct router_rule *, int64_t E, int64_t zero, int64_t k, struct error *);

/**
 * After a step, move the correction bias of a layer's experts that compute.
 * @param[in,out] bias  [E + zero]
 * @param choices       [E + zero] how often each was chosen in the whole batch.
 * @param k             choices of a token.
 */
void router_move_bias(const struct router_rule *, double *bias, const double *choices, int64_t E, int64_t zero,
                      int64_t k);

#endif
