/* golden_truth.h -- a golden file's numbers as the truth of a run, where the file has them.
 *
 * Serial; on rank 0, beside the one-device run.  The file has all tensors of the first step, loss and norm of every
 * step, and weights and states after the last; a file that keeps every step also has gradients, weights and states of
 * each.  Each has the bound that is stored beside the file for the number format (golden_list.h).  Everything else is
 * held to the one-device run, which goes on from the devices' weights after each step.
 *
 * A bound of the file says nothing, and the one-device run's is taken
 *
 *   - where the file's tensor is zero: bounds are relative;
 *   - where the file's bound is above WIDE_BOUND, in 16 bits, and the one-device run's, in the same format, is smaller;
 *   - after a device has sent a token to another expert than the file does: what follows is another function.
 *
 * With exact sums the one-device run is the truth of all that devices have, to the last bit.  Beside the file's numbers
 * it is held to their bounds, and to what grids may add to them (golden_list.h).
 *
 * Callers: run/golden.c opens and closes a truth, compare.c reads from it.
 */
#ifndef ORRERY_GOLDEN_TRUTH_H
#define ORRERY_GOLDEN_TRUTH_H

#include "ref/golden/golden_list.h"
#include "emulated_devices/verify/reference/reference.h"

struct golden_truth {
    const struct golden *golden;        /* the file */
    struct golden_list list;            /* bounds */
    int32_t *experts;                   /* [L,N,k] of a mixture: the file's choices in the first step; else NULL */
    int apart;                          /* the first layer in which a device has chosen otherwise; -1: none has */
    double *room;                       /* numbers of one tensor of the file */
    int64_t held, others;               /* parameters' tensors and activations held to the file; of the file, held to
                                         * the one-device run */
};

/** Make the file the truth of an open reference: reference->golden.
 *  @return OK; ERR_PLAN if the plan's schedule trains by another rule than the file's; or as golden_measure.  On
 *      failure there is nothing to close. */
enum error_code golden_truth_open(struct golden_truth *, const struct golden *, struct reference *, struct error *);
void golden_truth_close(struct golden_truth *);

/** After the one-device run of a step: put the file's activations and their gradients into its recording, in place of
 *  the run's own or, with exact sums, beside them.
 *  @return OK; ERR_FORMAT; ERR_FILE. */
enum error_code golden_truth_record(struct golden_truth *, struct reference *, struct error *);

/** After the devices' step: whether one of their choices of experts, routing.theirs, is not the file's. */
bool golden_truth_leaves(struct golden_truth *, const struct reference *);

/** The step's loss or norm: `what`.  @param[in,out] truth, bound  the one-device run's, absolute; on return the file's
 *  if it is the better truth.  @param[out] of_file  whether it is.  @return as golden_truth_record. */
enum error_code golden_truth_number(struct golden_truth *, const struct reference *, const char *what, double *truth,
                                    double *bound, bool *of_file, struct error *);

/** A parameter's tensor of a kind, now: before the optimizer's step a gradient, after it weights and states.
 *  @param[in,out] truth, bound  the one-device run's; on return the file's if it is the better truth, in fp64, valid
 *      until the next call.
 *  @param[out] of_file  whether it is.  @return as golden_truth_record; ERR_MEMORY. */
enum error_code golden_truth_tensor(struct golden_truth *, const struct reference *, int param, enum tensor_kind,
                                    struct tensor *truth, double *bound, bool *of_file, struct error *);

#endif
