/* whose.h -- words for sequences that are where others belong, or that count more or less often than once.
 * Inside check/ only.
 *
 * sequences.c has how often each counts in a gradient, tokens.c what stands in each place.  Nothing can fail.
 */
#ifndef ORRERY_WHOSE_H
#define ORRERY_WHOSE_H

#include "emulated_devices/check/mistakes/cuts.h"
#include <stddef.h>

/* Batches: that of the step before, the step's own, that of the next step, that which a resumed program reads if its
 * data begin again, and that of a step further away, which is only tried as a whole. */
enum { BATCH_BEFORE, BATCH_OWN, BATCH_NEXT, BATCH_AGAIN, BATCH_FAR, BATCHES };

/* A step, from 0, of so many; the program begins after `begins` steps.  far: the step of BATCH_FAR, from 1; 0: none. */
struct whose_step { int step, steps, begins, far; };

/** Find the step, from 0, that a batch is of; -1: there is none, or it is in this list already. */
int whose_step_of(const struct whose_step *, int batch);

/** Make BATCH_FAR that of the next step that none of the other batches is of.  @return false: there is none. */
bool whose_next_far(struct whose_step *);

/* A sequence of one of them. */
struct sequence { int batch, number; };

/**
 * Say what stands in each place of a batch: "copies take turns: ...", "dp rank 1 has the batch of step 1 again",
 * "sequence 3 is in the place of 4".
 * @param there  [cuts->B] in each place.  @param what  "sequences", "labels".  @param step  the batch's own.
 * @return out; empty if all is where it belongs.
 */
const char *whose_say_places(char *out, size_t size, const struct batch_cuts *, const struct sequence there[],
                             const char *what, const struct whose_step *step);

/**
 * Say how often each sequence counts: "sequence 3 counts twice and sequence 4 not at all: dp rank 1 has sequence 3
 * again".
 * @param times  of each batch, [cuts->B] how often.
 * @return out; empty if each of the own ones counts once, and no other.
 */
const char *whose_say_counts(char *out, size_t size, const struct batch_cuts *,
                             int times[BATCHES][CUT_SEQUENCES], const struct whose_step *step);

/** Say that each part divides by its own labels: the means are averaged, or added up.  @param labels  [parts]. */
const char *whose_say_means(char *out, size_t size, const struct batch_cut *, const double labels[], bool added);

#endif
