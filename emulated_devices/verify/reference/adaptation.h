/* adaptation.h -- holds schemes that plan or adapt to their invariants (schemes/scheme.h): the plans and choices of a
 * run.  Those for drawn inputs, which differ more than those of a small run: verify/cases/drawn.h.
 *
 * adaptation.c counts, verify/cases/case.c calls once a step, and drawn.h uses the counters.  The trainer is only
 * read.
 */
#ifndef ORRERY_VERIFY_ADAPTATION_H
#define ORRERY_VERIFY_ADAPTATION_H

#include "emulated_devices/model/trainer.h"

/* How often each invariant of a scheme was compared. */
struct invariant_counts { const struct scheme *scheme; int64_t checked[INVARIANTS_MOST]; };

/** The number of comparisons over all invariants of one scheme. */
int64_t invariants_checked(const struct invariant_counts *);

/* These adapt in a run: its schemes, and what has no scheme (model_invariants.h). */
enum adapting { ADAPTS_ATTENTION, ADAPTS_EXPERTS, ADAPTS_PLACEMENT, ADAPTS_ROUTERS, ADAPTING };

/* A run's invariants; the choices of experts by layer and step, which are counted here once more; the last step's
 * biases and choices of routers. */
struct adaptation {
    struct invariant_counts of[ADAPTING];       /* counts of each invariant, for every kind of scheme that adapts */
    int64_t *chosen;                    /* [LOAD_WINDOW + 1, L, E] of the last steps; last of this one */
    double *bias, *choices;             /* [L, columns of a router] */
    int64_t steps;                      /* of which choices are in `chosen` */
};

/** Local.  @return OK or ERR_MEMORY; call adaptation_close after both. */
enum error_code adaptation_open(struct adaptation *, const struct trainer *, struct error *);
void adaptation_close(struct adaptation *);

/** Hold what this device has planned and chosen in a step to the invariants, after its passes and before its update;
 *  then end the step.  Local.
 *  @return OK; ERR_CHECK naming scheme, invariant and what was found; ERR_MEMORY. */
enum error_code adaptation_check(struct adaptation *, const struct trainer *, struct error *);

#endif
