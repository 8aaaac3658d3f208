/* sections_run.h -- trains a plan with sections: a trainer for each section, and what happens between them.
 *
 * Each section has a trainer like any other, on its devices, with a list of passes and no pipeline.  Here they are
 * chained: at a stage's pass its sections run one after the other; between sections, and between stages, the residual
 * stream and its gradient are boxed (boxing.h).  Loss and norm are sums over all devices.
 *
 * model/trainer.c, trainer_open.c and trainer_cost.c call these functions for a trainer whose plan has sections.
 */
#ifndef ORRERY_SECTIONS_RUN_H
#define ORRERY_SECTIONS_RUN_H

#include "emulated_devices/model/sections/boxing.h"
#include "emulated_devices/model/trainer.h"

/* The numbers that cross the boundary between two sections in a microbatch: the residual stream, its gradient, and for
 * balance losses of all layers together the sums so far of routers, and the slopes that follow from all. */
enum crossing { CROSSES_STREAM, CROSSES_GRADIENT, CROSSES_SUMS, CROSSES_SLOPES, CROSSINGS };

/* Between a section and the one before it: the boxings of each microbatch.  Without lists where this device has no part
 * in either section, and where nothing of the kind crosses. */
struct boundary {
    struct boxing *of[CROSSINGS];       /* [M] of the first microbatch that is cut so */
    int *like;                          /* [M] that microbatch: the same rows further on are boxed likewise */
};

/** The boxing of a microbatch, of numbers that cross. */
static inline const struct boxing *boundary_boxing(const struct boundary *boundary, enum crossing crossing, int micro)
{
    return &boundary->of[crossing][boundary->like[micro]];
}

/** The format of the numbers that cross: routers' are fp64. */
static inline enum dtype crossing_dtype(const struct plan *plan, enum crossing crossing)
{
    return crossing == CROSSES_STREAM || crossing == CROSSES_GRADIENT ? plan->dtype : F64;
}

/** Make a trainer's sections, without memory for numbers.  Local.  @return OK or ERR_MEMORY; sections_close works after
 *  both. */
enum error_code sections_outline(struct trainer *, struct error *);

/** Allocate weights, gradients and optimizer state of all sections.  Local.  @return as data_fill. */
enum error_code sections_fill(struct trainer *, struct error *);
void sections_close(struct trainer *);

/** Turn a schedule of one place into the passes of one place of a whole schedule, in its order.
 *  @return OK or ERR_MEMORY. */
enum error_code sections_list(struct schedule *, const struct schedule *whole, int place, struct error *);

/** The passes, reductions and results of a step, as trainer_gradients.  Collective over all devices. */
enum error_code sections_gradients(struct trainer *, struct step_result *, struct error *);

/** Step the weights of this device's sections; or skip the step. */
enum error_code sections_step(struct trainer *, double gradient_scale, struct error *);
void sections_skip_step(struct trainer *);

/** Let the schemes that adapt to what routers chose decide for the next step. */
void sections_adapt(struct trainer *);

/** Make the boxings between sections again, for the rows that devices have in this step.  Local.
 *  @return as boxing_make. */
enum error_code sections_box(struct trainer *, struct error *);

/** Whether what devices hold in a step is known only in it: rows, routings or clips differ. */
static inline bool sections_differ_by_step(const struct plan *plan)
{
    return plan_changes(plan) || plan_routes_rows(plan) || plan->encoders.kinds > 0;
}

/** Add what a section has sent besides the formulas of its steps: before them, and of routed rows. */
void sections_begun(const struct trainer *, int section, struct ledger *);

/** Keep the largest so far of what activations hold. */
void sections_note_held(struct trainer *);

/** As trainer_cost, trainer_peak and trainer_least. */
struct account sections_cost(const struct trainer *, enum traffic_kind);
uint64_t sections_peak(const struct trainer *, enum arena_tag);
uint64_t sections_least(const struct trainer *);

#endif
