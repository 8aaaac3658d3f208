/* zb-h1: 1F1B with backward split into I and W, so that W fills the end of the step.  The memory of 1F1B.
 *
 * Source    P. Qi, X. Wan, G. Huang, M. Lin, Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 2.1, figure 2.
 * Needs     P >= 1, M >= 1
 * Bubble    (P-1)(F+I-W), when M >= P and W <= I, W <= F      (the paper's B is our I, backward for the input)
 * Memory    min(P, M) microbatches on every device
 * Messages  2 M (P-1)
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls zb_h1_make.  Errors: ERR_PLAN for
 *           sizes out of range, ERR_MEMORY.
 *
 * Only I is on the critical path of the gradient up the pipeline; W can be delayed.  Device r delays r of them, so that
 * it also holds P microbatches, as device 0 does in 1F1B.  P=3, M=5, F=I=W:
 *
 *   0  F0-F1-F2-......I0-W0-F3-I1-W1-F4-I2-W2-I3-W3-I4-W4-
 *   1  ...F0-F1-...I0-F2-I1-W0-F3-I2-W1-F4-I3-W2-I4-W3-W4-
 *   2  ......F0-I0-F1-I1-F2-I2-W0-F3-I3-W1-F4-I4-W2-W3-W4-
 */
#include "emulated_devices/schemes/pipeline/schedules/zero_bubble.h"

static enum error_code zb_h1_make(struct schedule *schedule, const struct schedule_request *request, struct error *err)
{
    if (schedule_begin(schedule, "zb-h1", request->devices, request->micros, 1, err) != OK) return err->code;
    place_looped(schedule);
    for (int r = 0; r < request->devices; r++) put_zero_bubble(schedule, r, request->devices - 1 - r, r);
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_zb_h1 = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "zb-h1", .description = "1f1b with weight gradients put off: smaller bubble, same memory",
              .source = "Qi et al., arXiv:2401.10241", .memory = "min(P, M)", .needs = "P >= 1, M >= 1" },
    .bubble = "(P-1)(F+I-W)", .chunks = 1, .make = zb_h1_make,
};
