/* zb-2p: a zero-bubble schedule found by search, with twice the memory of 1F1B.
 *
 * Source    P. Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 3; tables 5 and 6.
 * Needs     P >= 1, M >= 1; the times of F, I, W and of a message (by default 1, 1, 1, 0)
 * Bubble    the paper's twelve rates to four digits, if the request states what I frees: a forward keeps 34 + 5as/h
 *           bytes for each token and unit of width (a heads, s tokens, h width), of which W needs 32.  Without this
 *           everything is kept until W, and the bubble is larger with the same limit
 * Memory    that of 2P microbatches' activations on every device, or the requested limit
 * Messages  2 M (P-1)
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls zb_2p_make.  Errors: ERR_PLAN for
 *           sizes out of range, ERR_MEMORY.
 *
 * ZB-H2 is made for F = I = W and instant messages; the search uses the given times.  P=3, M=6, F=I=W:
 *
 *   0  F0-F1-F2-F3-F4-I0-F5-W0-I1-W1-I2-W2-I3-W3-I4-W4-I5-W5-......
 *   1  ...F0-F1-F2-I0-F3-I1-F4-I2-F5-I3-W0-I4-W1-I5-W2-W3-W4-W5-...
 *   2  ......F0-I0-F1-I1-F2-I2-F3-I3-F4-I4-F5-I5-W0-W1-W2-W3-W4-W5-
 */
#include "emulated_devices/schemes/pipeline/schedules/zb_search.h"
#include "emulated_devices/schemes/pipeline/search_invariants.h"

static enum error_code zb_2p_make(struct schedule *schedule, const struct schedule_request *request, struct error *err)
{
    if (schedule_begin(schedule, "zb-2p", request->devices, request->micros, 1, err) != OK) return err->code;
    place_looped(schedule);
    const int limit = request->memory_limit > 0 ? request->memory_limit : 2 * request->devices;
    if (zero_bubble_search(schedule, request, limit, err) != OK) {
        schedule_free(schedule);
        return err->code;
    }
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_zb_2p = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "zb-2p", .description = "zero bubble by search, twice the memory of 1f1b",
              .source = "Qi et al., arXiv:2401.10241", .memory = "what 2P microbatches take, or the limit",
              .needs = "P >= 1, M >= 1; times of F, I, W and messages",
              .invariants = searched_invariants },
    .bubble = "about 0, by search", .chunks = 1, .searches = true, .make = zb_2p_make,
};
