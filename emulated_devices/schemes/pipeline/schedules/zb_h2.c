/* zb-h2: twice the memory of 1F1B, and with F = I = W no bubble at all.
 *
 * Source    P. Qi et al., arXiv:2401.10241, section 2.2, figure 3.
 * Needs     P >= 1, M >= 1
 * Bubble    (P-1)(F+I-2W), of a device's own time from its first to its last action, when M >= 2P-1.  The last device
 *           starts (P-1)F after the first and ends later: the step's shape is a parallelogram.  To lose no time, the
 *           optimizer's step must not wait for all devices (the paper checks for overflow afterwards)
 * Memory    min(2P-1, M) microbatches on every device
 * Messages  2 M (P-1)
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls zb_h2_make.  Errors: ERR_PLAN for
 *           sizes out of range, ERR_MEMORY.
 *
 * Device r does 2(P-1-r) extra forwards, which fill the time until the first gradient arrives, and delays 2r weight
 * gradients, which fill the time at the end.  P=3, M=6, F=I=W:
 *
 *   0  F0-F1-F2-F3-F4-I0-W0-F5-I1-W1-I2-W2-I3-W3-I4-W4-I5-W5-......
 *   1  ...F0-F1-F2-I0-F3-I1-F4-I2-W0-F5-I3-W1-I4-W2-I5-W3-W4-W5-...
 *   2  ......F0-I0-F1-I1-F2-I2-F3-I3-F4-I4-W0-F5-I5-W1-W2-W3-W4-W5-
 */
#include "emulated_devices/schemes/pipeline/schedules/zero_bubble.h"

static enum error_code zb_h2_make(struct schedule *schedule, const struct schedule_request *request, struct error *err)
{
    if (schedule_begin(schedule, "zb-h2", request->devices, request->micros, 1, err) != OK) return err->code;
    place_looped(schedule);
    for (int r = 0; r < request->devices; r++) put_zero_bubble(schedule, r, 2 * (request->devices - 1 - r), 2 * r);
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_zb_h2 = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "zb-h2", .description = "zero bubble with twice the memory of 1f1b",
              .source = "Qi et al., arXiv:2401.10241", .memory = "min(2P-1, M)", .needs = "P >= 1, M >= 1" },
    .bubble = "(P-1)(F+I-2W)", .chunks = 1, .make = zb_h2_make,
};
