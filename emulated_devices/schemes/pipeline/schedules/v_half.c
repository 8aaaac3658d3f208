/* v-half: half the memory of 1F1B, and half its bubble, on a V.
 *
 * Source    P. Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362, section 3, figure 4.
 * Needs     P >= 1, M >= 1; stages d and 2P-1-d on device d
 * Bubble    3P-7 units of a chunk's F = I = W for even P, 3P-4 for odd P, P >= 3 and M >= P, where 1F1B has 6(P-1)
 * Memory    2(floor(P/2)+1) chunks on every device, for M >= P, where 1F1B has 2P
 * Messages  4 M (P-1)
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls v_half_make.  Errors: ERR_PLAN for
 *           sizes out of range, ERR_MEMORY.
 *
 * A chunk is held from its F to its W.  A device that holds one chunk for a long time holds the other for a short time:
 * forwards take 2 units from device to device on the way down and 1 on the way up, gradients the same, so the sum of
 * both times is equal on all devices.  For even P, three units between forward and backward prevent collisions of a
 * device's actions.  P=4, M=6:
 *
 *   0  FFFF...fifiwfwFIiW.fwFIiWfiwIwWfiIwIWW.IW
 *      0123...00110214020.3251314432425535434.55
 *   1  .FFFF.f.fiwfiwIWF.fiwIFWfiwIiWfwIiIWwWIW.
 *      .0123.0.100211004.3221514332425435435455.
 *   2  ..FFFf.f.fiwFIiWwfF.IiWfwFIiWfiIwIiwWIWwW
 *      ..0120.1.2003010134.121425232543345435455
 *   3  ...FfFfFf..iIwFWfiwIWFfiIwFWfiIiIwWiIwWwW
 *      ...001122..000303111144222525334433554455
 */
#include "emulated_devices/schemes/pipeline/schedules/v_pattern.h"

static struct v_pattern pattern(int P, int d)
{
    const int gap = P % 2 == 0 ? 3 : 0;
    return (struct v_pattern){ 2 * d, 3 * P - 2 - d, 3 * P + gap - 1 + 2 * d, 6 * P + gap - 2 - d };
}

static enum error_code v_half_make(struct schedule *schedule, const struct schedule_request *request, struct error *err)
{
    return make_v_schedule(schedule, "v-half", request, pattern, err);
}

const struct schedule_generator schedule_v_half = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "v-half", .description = "half the memory of 1f1b on a V",
              .source = "Qi et al., arXiv:2405.15362", .memory = "2(floor(P/2)+1) chunks", .needs = "P >= 1, M >= 1" },
    .bubble = "3P-7 units (even P), 3P-4 (odd)", .chunks = 2, .make = v_half_make,
};
