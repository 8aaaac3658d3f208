/* golden_truth.h -- a golden file's numbers in the place of the one-device run's, wherever it has them.
 *
 * Serial; lives beside the reference, on rank 0.  The file has all tensors of the first step, loss and norm of each,
 * weights and states after the last.  In fp32 and fp64 the one-device run stands in for the rest, and its twin says
 * what is allowed.  In bf16 and fp16 the one-device run is itself off by what the format rounds; there bounds are those
 * of golden_bounds.h, and what the file does not have, or has no bound for that decides anything, is not compared.
 */
#ifndef ORRERY_GOLDEN_TRUTH_H
#define ORRERY_GOLDEN_TRUTH_H

#include "emulated_devices/verify/golden_bounds.h"
#include "emulated_devices/verify/reference.h"

struct golden_truth {
    const struct golden *golden;
    struct golden_list list;            /* bounds; empty if the twin's are used */
    struct known_bounds known;
    int open;                           /* tensors of the file that no bound decides */
};

/** Put the file's numbers into an open reference, now and before every comparison of a step's gradients.
 *  @return OK; ERR_PLAN if the plan's schedule trains by another rule than the file's; as golden_measure.  On failure
 *      there is nothing to close. */
enum error_code golden_truth_open(struct golden_truth *, const struct golden *, struct reference *, struct error *);
void golden_truth_close(struct golden_truth *);

/** After the reference's last step: its weights, masters and optimizer states become the file's.  @return OK;
 * ERR_FORMAT; ERR_FILE. */
enum error_code golden_truth_at_end(struct golden_truth *, struct reference *, struct error *);

#endif
