/* golden_truth.h -- replaces the one-device run's numbers by a golden file's, where the file has them.
 *
 * Serial; on rank 0, with the reference.  The file has all tensors of the first step, loss and norm of every step, and
 * weights and states after the last.  In fp32 and fp64 the one-device run supplies the rest, and its twin the bounds.
 * In bf16 and fp16 the one-device run has the format's rounding errors itself: bounds are those of golden_bounds.h, and
 * tensors that are not in the file, or whose bound is too large to detect errors, are not compared.
 */
#ifndef ORRERY_GOLDEN_TRUTH_H
#define ORRERY_GOLDEN_TRUTH_H

#include "emulated_devices/verify/reference/golden_bounds.h"
#include "emulated_devices/verify/reference/reference.h"

struct golden_truth {
    const struct golden *golden;
    struct golden_list list;            /* bounds; empty if the twin's are used */
    struct known_bounds known;
    int open;                           /* tensors of the file whose bound is too large to detect errors */
};

/** Put the file's numbers into an open reference, now and before every comparison of a step's gradients.
 *  @return OK; ERR_PLAN if the plan's schedule trains by another rule than the file's; or as golden_measure.  On
 *      failure there is nothing to close. */
enum error_code golden_truth_open(struct golden_truth *, const struct golden *, struct reference *, struct error *);
void golden_truth_close(struct golden_truth *);

/** After the reference's last step: replace its weights, masters and optimizer states by the file's.
 *  @return OK; ERR_FORMAT; ERR_FILE. */
enum error_code golden_truth_at_end(struct golden_truth *, struct reference *, struct error *);

#endif
