/* v-min: a third of the memory of 1F1B, on a V.
 *
 * Source    P. Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362, section 3, figure 4.
 * Needs     P >= 1, M >= 1; stages d and 2P-1-d on device d
 * Bubble    4P-5 units of a chunk's F = I = W, 4P-6 if 3 divides P, for P >= 3 and M >= 2P, where 1F1B has 6(P-1).  If
 *           F, I and W differ, the tight block leaves gaps in every round: use it for equal times
 * Memory    2 ceil((P+2)/3) chunks on every device, for M >= 2P, where 1F1B has 2P
 * Messages  4 M (P-1)
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls v_min_make.  Errors: ERR_PLAN for
 *           sizes out of range, ERR_MEMORY.
 *
 * The tightest block on a V: forwards go down and up, gradients down and up, one unit per stage, without a pause.  When
 * 3 divides P a pause of two units prevents collisions.  P=4, M=6:
 *
 *   0  FFF....fiwfiw..IWF.fiIwWFfiIwWFfiIwW.fiIwW...IW
 *      012....000111..003.22121433232544343.55454...55
 *   1  .FF...f.fiwF..IiWwfFIiWwfFIiWwfFIiWwf.IiWw..IW.
 *      .01...0.1002..01012312123423234534345.4545..55.
 *   2  ..FF.f.f..iwFIW.ifwIFWifwIFWifwIFWifwIW.iw.IW..
 *      ..01.0.1..00200.12113123224234335345444.55.55..
 *   3  ...FfFf....iIwWFfiIwWFfiIwWFfiIwWFfiIwW..iIwW..
 *      ...0011....0000221111332222443333554444..5555..
 */
#include "emulated_devices/schemes/pipeline/schedules/v_pattern.h"

static struct v_pattern pattern(int P, int d)
{
    const int gap = P % 3 == 0 ? 2 : 0;
    return (struct v_pattern){ d, 2 * P - 1 - d, 2 * P + gap + d, 4 * P + gap - 1 - d };
}

static enum error_code v_min_make(struct schedule *schedule, const struct schedule_request *request, struct error *err)
{
    return make_v_schedule(schedule, "v-min", request, pattern, err);
}

const struct schedule_generator schedule_v_min = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "v-min", .description = "a third of the memory of 1f1b on a V",
              .source = "Qi et al., arXiv:2405.15362", .memory = "2 ceil((P+2)/3) chunks", .needs = "P >= 1, M >= 1" },
    .bubble = "4P-5 units, 4P-6 if 3 divides P", .chunks = 2, .make = v_min_make,
};
