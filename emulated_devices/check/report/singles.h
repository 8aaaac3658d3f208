/* singles.h -- holds every operation of another program's pass to its own rounding (recompute/single.h).
 *
 * Serial.  Inputs are ACTUAL's tensors.  Weights that it does not have as "start/NAME" are the golden file's, rounded
 * to fp32 and then to the format of the computation.
 * emulated_devices/cli/check_judged.c calls singles_check once for a dump; check_found.c asks for single results behind
 * it.
 */
#ifndef ORRERY_SINGLES_H
#define ORRERY_SINGLES_H

#include "emulated_devices/check/dump/assembly.h"
#include "emulated_devices/check/mistakes/cuts.h"
#include "emulated_devices/check/recompute/single.h"

struct golden;

struct singles {
    struct single_result *all;          /* [count] in order of execution */
    char (*where)[120];                 /* [count] of a wrong one: the ranks and microbatches that have what is wrong,
                                         * if not all do; else empty */
    bool *each;                         /* [count] its copies differ, and each is what its own inputs give */
    int *by_name;                       /* [count] their numbers, sorted by name */
    int count;                          /**< Entries of `all`. */
    int found[SINGLE_VERDICTS];        /* of each verdict */
    int parts;                          /* that wrong sums must have to be right, each of them stored; 0: unknown */
    int64_t read;                       /* how often a tensor of ACTUAL was put together, for each of its readers */
    enum dtype format;                  /* of the computation */
    bool golden_weights;                /* some weights are the golden file's */
    char why_none[200];                 /* if the model's operations are not recomputed: why; else empty */
};

/* The parts of a batch: the tokens of each microbatch on each copy of the model.  A program makes a gradient of weights
 * from each, and in 16 bits it may store that before all are added up. */
struct batch_parts {
    int count;                          /* 0: they are not known */
    int32_t *part;                      /* [B S] each token's, from 0; NULL: they are not known */
    struct single_owner *owner;         /* [count]; NULL: they are not known */
    bool scaled;                        /* some have a mean of their own, so their gradients are multiplied */
};

/** Find each token's part in the layout of a dump.  The caller frees `part` and `owner`.
 *  @return none if the dump does not say it, or if there is no memory. */
struct batch_parts batch_parts_of(const struct golden *, const struct actual *);

/** List how ranks and microbatches may have cut the batch, as the layout or the mesh of ACTUAL says it. */
struct batch_cuts batch_cuts_of(const struct golden *, const struct actual *);

/** Parts of a product that are stored and then added: what a dump says; else devices along tp, or along all other axes
 *  but pp if these are more. */
int singles_parts(const struct actual *);

/** Parts of a gradient of weights: as singles_parts, or the microbatches of all copies in ACTUAL, if these are more. */
int singles_gradient_parts(const struct golden *, const struct actual *);

/**
 * Recompute all operations whose results ACTUAL has.
 * @param format  number format of the computation.
 * @return OK, whatever the verdicts; ERR_FILE, ERR_FORMAT, ERR_MEMORY.  On failure there is nothing to free.
 */
enum error_code singles_check(const struct golden *, const struct actual *, enum dtype format, struct rounding,
                              struct singles *, struct error *);
void singles_free(struct singles *);

/** Recompute operations in order until one is wrong, on some rank.  What comes behind it is not computed.  Behind a
 *  wrong number, such as the loss, one more result is.  @return as singles_check(). */
enum error_code singles_check_first(const struct golden *, const struct actual *, enum dtype format, struct rounding,
                                    struct singles *, struct error *);

/**
 * Recompute one result from what some ranks have, where others have copies that differ.
 * @param[out] result  the result; an empty name: it is not recomputed.
 * @return as singles_check().
 */
enum error_code singles_check_copy(const struct golden *, const struct actual *, enum dtype format, struct rounding,
                                   const char *name, const struct devices *, struct single_result *result,
                                   struct error *);

/**
 * Find how many parts a sum must have, each of them stored, so that the first wrong result of 16 bits is right.
 * @param[out] out  its `parts`; 0 if no such number, up to 8, makes it right.
 * @return as singles_check().
 */
enum error_code singles_find_parts(const struct golden *, const struct actual *, enum dtype format, struct rounding,
                                   struct singles *out, struct error *);

/** Forget what is not of a step (checker_step_of).  @return OK or ERR_MEMORY. */
enum error_code singles_keep_step(const struct golden *, struct singles *, int64_t step, struct error *);

/** Sort the results by name, once all are there.  @return OK or ERR_MEMORY. */
enum error_code singles_sort(struct singles *, struct error *);

/** The result for a tensor of this name, if there are several a wrong one; NULL: it was not recomputed. */
const struct single_result *singles_find(const struct singles *, const char *name);
/** How many results of this name are wrong: a gradient may also be a sum over microbatches. */
int singles_wrong(const struct singles *, const char *name);

#endif
