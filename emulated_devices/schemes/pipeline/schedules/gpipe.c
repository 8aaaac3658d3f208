/* gpipe: all forwards, then all backwards.
 *
 * Source    Y. Huang et al., GPipe, arXiv:1811.06965, figure 2c.
 * Needs     P >= 1, M >= 1
 * Bubble    (P-1)(F+B), of a total of (M+P-1)(F+B)
 * Memory    M microbatches on every device (GPipe therefore recomputes activations)
 * Messages  2 M (P-1)
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls gpipe_make.  Errors: ERR_PLAN for
 *           sizes out of range, ERR_MEMORY.
 *
 * P=3, M=4, B=2F:
 *
 *   0  F0-F1-F2-F3-..................B0----B1----B2----B3----
 *   1  ...F0-F1-F2-F3-.........B0----B1----B2----B3----......
 *   2  ......F0-F1-F2-F3-B0----B1----B2----B3----............
 *
 * In the paper the backwards run from the last microbatch to the first; here from the first to the last.  Time and
 * memory are the same, and weight gradients are added in the same order as in the other schedules, so their bits agree.
 */
#include "emulated_devices/schemes/pipeline/schedules/generate.h"

static enum error_code gpipe_make(struct schedule *schedule, const struct schedule_request *request, struct error *err)
{
    if (schedule_begin(schedule, "gpipe", request->devices, request->micros, 1, err) != OK) return err->code;
    place_looped(schedule);
    /* All devices have the same list; the waits follow from the messages. */
    for (int r = 0; r < request->devices; r++) {
        for (int m = 0; m < request->micros; m++) schedule_put(schedule, r, FORWARD, m, 0);
        for (int m = 0; m < request->micros; m++) schedule_put(schedule, r, BACKWARD, m, 0);
    }
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_gpipe = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "gpipe", .description = "all forwards, then all backwards",
              .source = "Huang et al., arXiv:1811.06965", .memory = "M", .needs = "P >= 1, M >= 1" },
    .bubble = "(P-1)(F+B)", .chunks = 1, .make = gpipe_make,
};
