/* 1f1b: forward and backward alternate, so that a device holds few microbatches at once.
 *
 * Source    D. Narayanan et al., PipeDream, arXiv:1806.03377 (the order); with a flush at the end of the step: S. Fan
 *           et al., DAPPLE, arXiv:2007.01045; D. Narayanan et al., arXiv:2104.04473, figure 4.
 * Needs     P >= 1, M >= 1
 * Bubble    (P-1)(F+B), of a total of (M+P-1)(F+B)
 * Memory    min(P-r, M) microbatches on device r
 * Messages  2 M (P-1)
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls one_f_one_b_make.  Errors: ERR_PLAN
 *           for sizes out of range, ERR_MEMORY.
 *
 * Device r first does P-1-r forwards, then a forward and a backward in turn, then the remaining backwards.  P=4, M=6,
 * B=2F:
 *
 *   0  F0-F1-F2-F3-..................B0----F4-B1----F5-B2----...B3----...B4----...B5----
 *   1  ...F0-F1-F2-............B0----F3-B1----F4-B2----F5-B3----...B4----...B5----......
 *   2  ......F0-F1-......B0----F2-B1----F3-B2----F4-B3----F5-B4----...B5----............
 *   3  .........F0-B0----F1-B1----F2-B2----F3-B3----F4-B4----F5-B5----..................
 *
 * In the steady state neighbours send to each other: device 0 an activation, device 1 a gradient.  With blocking sends
 * both would send and neither would receive.  Here sends do not block, so no special order is needed.
 */
#include "emulated_devices/schemes/pipeline/schedules/generate.h"

/* one_f_one_b_make writes the list of every device; after the last forward only backwards are left. */
static enum error_code one_f_one_b_make(struct schedule *schedule, const struct schedule_request *request,
                                        struct error *err)
{
    const int P = request->devices, M = request->micros;
    if (schedule_begin(schedule, "1f1b", P, M, 1, err) != OK) return err->code;
    place_looped(schedule);
    for (int r = 0; r < P; r++) {
        /* Device r runs P - 1 - r forwards ahead, until the first gradient can be back. */
        const int ahead = P - 1 - r < M ? P - 1 - r : M;
        for (int m = 0; m < ahead; m++) schedule_put(schedule, r, FORWARD, m, 0);
        /* schedule_put leaves out forwards beyond M. */
        for (int m = 0; m < M; m++) {
            schedule_put(schedule, r, FORWARD, m + ahead, 0);
            schedule_put(schedule, r, BACKWARD, m, 0);
        }
    }
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_1f1b = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "1f1b", .description = "one forward, one backward",
              .source = "Narayanan et al., arXiv:1806.03377; Fan et al., arXiv:2007.01045", .memory = "min(P-r, M)",
              .needs = "P >= 1, M >= 1" },
    .bubble = "(P-1)(F+B)", .chunks = 1, .make = one_f_one_b_make,
};
