/* uneven.h -- the mesh after a loss whose stages have different numbers of copies.
 *
 * A lost device takes a copy of its stage along; the copies of the other stages stay.  So the next plan has a section
 * for each stage (plan/sections.h).  The copies of a stage share the rows of each microbatch.  A stage with fewer
 * copies takes longer for a layer, so layers move: the minimax program cuts them again
 * (schemes/pipeline/placement.h).
 *
 *     time of a stage = layers x most rows of a copy in a microbatch / percent of its slowest device
 *
 * A stage that has lost all of its copies goes, and its layers move to the others.
 *
 * Source   Z. Wu et al., "ElasWave: an elastic-native system for scalable hybrid-parallel training", 2025,
 *          arXiv:2510.00606: elastic layout with uneven data parallelism, and migration of layers
 *
 * cli/train/elastic_words.c calls these functions.  They are local and send nothing.
 */
#ifndef ORRERY_UNEVEN_H
#define ORRERY_UNEVEN_H

#include "emulated_devices/plan/sections.h"

struct losses;

/* The plan after a loss, and who computes it. */
struct uneven {
    struct sections sections;           /* one for each stage that is left */
    int devices;                        /* of all sections */
    int *process;                       /* [devices] of the job, in the order of ranks */
};

/**
 * Make the stages that are left after a loss.
 * @param before   the plan before it, with copies and stages, or with sections of an earlier loss.
 * @param process  the devices of the job by ranks of `before`; NULL: the same numbers.
 * @param gone     devices that are lost now, or were before.
 * @return OK, for uneven_close; ERR_PLAN: the plan has no stages or no copies, or nothing is left; ERR_MEMORY.
 */
enum error_code uneven_open(struct uneven *, const struct plan *before, const int *process, const struct losses *gone,
                            struct error *);
void uneven_close(struct uneven *);

/** How fast a stage with so many copies computes a layer: the unit is the same for all stages of a plan. */
int64_t uneven_speed(const struct plan *, int copies, int percent);

#endif
