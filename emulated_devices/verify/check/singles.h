/* singles.h -- holds every operation of another program's pass to its own rounding (ref/single/single.h).
 *
 * Serial.  Inputs are ACTUAL's tensors.  Weights that it does not have as "start/NAME" are the golden file's, rounded
 * to fp32 and then to the format of the computation.
 */
#ifndef ORRERY_SINGLES_H
#define ORRERY_SINGLES_H

#include "emulated_devices/verify/check/assembly.h"
#include "ref/golden/golden.h"
#include "ref/single/single.h"

struct singles {
    struct single_result *all;          /* [count] in order of execution */
    char (*where)[120];                 /* [count] of a wrong one: the ranks and microbatches that have what is wrong,
                                         * if not all do; else empty */
    bool *each;                         /* [count] its copies differ, and each is what its own inputs give */
    int count;
    int found[SINGLE_VERDICTS];        /* of each verdict */
    int parts;                          /* of a product, as declared */
    bool golden_weights;                /* some weights are the golden file's */
    char why_none[200];                 /* if the model's operations are not recomputed: why; else empty */
};

/** Parts of a product that are added: what a dump says; else devices along tp, or along all other axes but pp if these
 *  are more. */
int singles_parts(const struct actual *);

/**
 * Recompute all operations whose results ACTUAL has.
 * @param format  number format of the computation.
 * @return OK, whatever the verdicts; ERR_FILE, ERR_FORMAT, ERR_MEMORY.  On failure there is nothing to free.
 */
enum error_code singles_check(const struct golden *, const struct actual *, enum dtype format, struct rounding,
                              struct singles *, struct error *);
void singles_free(struct singles *);

/**
 * Recompute one result from what some ranks have, where others have copies that differ.
 * @param[out] r  the result; an empty name: it is not recomputed.
 * @return as singles_check().
 */
enum error_code singles_check_copy(const struct golden *, const struct actual *, enum dtype format, struct rounding,
                                   const char *name, const struct devices *, struct single_result *r, struct error *);

/** The result for a tensor of this name; NULL: it was not recomputed. */
const struct single_result *singles_find(const struct singles *, const char *name);

#endif
