/* zb-1p: a zero-bubble schedule found by search, with the memory of 1F1B.
 *
 * Source    P. Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 3; tables 5 and 6.
 * Needs     P >= 1, M >= 1; the times of F, I, W and of a message (by default 1, 1, 1, 0)
 * Bubble    as ZB-H1 on the paper's twelve settings, to four digits; never more than ZB-H1
 * Memory    that of P microbatches' activations on every device, or the requested limit
 * Messages  2 M (P-1)
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls zb_1p_make.  Errors: ERR_PLAN for
 *           sizes out of range, ERR_MEMORY.
 *
 * The search is in zb_search.c.  It finds the same bubble as ZB-H1: with this memory, moving W does not reduce it
 * further.
 */
#include "emulated_devices/schemes/pipeline/schedules/zb_search.h"
#include "emulated_devices/schemes/pipeline/search_invariants.h"

static enum error_code zb_1p_make(struct schedule *schedule, const struct schedule_request *request, struct error *err)
{
    if (schedule_begin(schedule, "zb-1p", request->devices, request->micros, 1, err) != OK) return err->code;
    place_looped(schedule);
    const int limit = request->memory_limit > 0 ? request->memory_limit : 1 * request->devices;
    if (zero_bubble_search(schedule, request, limit, err) != OK) {
        schedule_free(schedule);
        return err->code;
    }
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_zb_1p = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "zb-1p", .description = "zero bubble by search, memory of 1f1b",
              .source = "Qi et al., arXiv:2401.10241", .memory = "what P microbatches take, or the limit",
              .needs = "P >= 1, M >= 1; times of F, I, W and messages",
              .invariants = searched_invariants },
    .bubble = "as zb-h1 or less", .chunks = 1, .searches = true, .make = zb_1p_make,
};
