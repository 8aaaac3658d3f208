/* sections.h -- a plan whose layers have different strategies: a section is a run of layers with a mesh and schemes of
 * its own.
 *
 * A section has a plan like any other, of its layers, on a range of consecutive devices.  Sections on the same devices
 * are one stage of the pipeline, one after the other; the next stage is on the devices that follow.  So stages may have
 * different numbers of devices, and different numbers of copies, parts and shards.  All sections cut the same
 * microbatches, each over its own copies.
 *
 * Callers: run/words/take_sections.c makes sections from a file, verify/cases/ draws them, model/sections/ runs them.
 * The functions are local and send nothing.
 */
#ifndef ORRERY_PLAN_SECTIONS_H
#define ORRERY_PLAN_SECTIONS_H

#include "emulated_devices/plan/plan.h"

enum { SECTIONS_MOST = PLAN_MOST_STAGES,
       SECTIONS_MOST_BOXINGS = 1 << 15 };       /* sections times microbatches: names of messages have 17 bits, and four
                                         * kinds of numbers cross */

/* All of them, in the order of layers. */
struct sections {
    int count;                          /* sections */
    int stages;                         /* of the pipeline; set by sections_check */
    struct plan *at;                    /* [count] the plan of each, with its layers and its mesh.first */
    int **rows;                         /* [count] of a section whose copies share rows in proportions: [dp] */
    int *stage;                         /* [count] the stage that each belongs to; set by sections_check */
    int *first;                         /* [count + 1] the first device of each stage, then their number; likewise */
};

/** Make room for so many sections, each with a copy of a plan that has none.
 *  @return OK, for sections_free; or ERR_MEMORY with nothing to free. */
enum error_code sections_open(struct sections *, const struct plan *, int count, struct error *);
void sections_free(struct sections *);

/**
 * Let the copies of a section, whose mesh is made, share the sequences of each microbatch in proportions.
 * @param rows  [dp] of at least 0, not all 0; NULL: the speeds of the slowest device of each copy.
 * @return OK or ERR_MEMORY.
 */
enum error_code sections_share_rows(struct sections *, int section, const int *rows, struct error *);

/**
 * Check a plan with sections: each section's own plan, that every layer and every device has work, and that stages
 * follow each other.  Sets what the schedule and the sections decide.  Part of plan_check.
 * @return OK; or ERR_PLAN, naming the section by its layers.
 */
enum error_code sections_check(struct plan *, struct error *);

/** A section as text: "layers 0-1 on devices 0-2: tp 3, zero2, 1d-sp"; all, with " | " between.  @return out. */
const char *section_describe(const struct plan *section, char *out, size_t size);
const char *sections_describe(const struct plan *, char *out, size_t size);

/** The plan of a layer: its section's, or the plan itself.  @param layer  -1: of the embedding; L: of the loss. */
const struct plan *plan_of_layer(const struct plan *, int layer);

/** The plan of a device's first section, or the plan itself. */
const struct plan *plan_of_device(const struct plan *, int rank);

/** The place in the pipeline at which a device works: its stage, or its coordinate along pp. */
int plan_place(const struct plan *, int rank);

/** The number of places in the pipeline. */
int plan_places(const struct plan *);

/** The first of the devices of a place, and how many there are. */
struct interval plan_place_devices(const struct plan *, int place);

#endif
