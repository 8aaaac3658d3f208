/* dualpipe: microbatches in two directions, so that a forward of one direction is paired with a backward of the other.
 *
 * Source    DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.2.1, figure 5; program: DualPipe.
 * Needs     P even, M >= 1; stage d for even and stage P-1-d for odd microbatches on device d: weights twice
 * Bubble    published: (P/2-1)(F&B + B - 3W), where B is the whole backward and F&B a forward and a backward done side
 *           by side, which begin when both inputs have arrived (for F <= I, even M >= 2P).  Here they run one after the
 *           other, and the forward's output is sent before the backward: (P/2-1) F when F = I = W.  With `pairs` one
 *           computes while the other waits for messages inside its layers
 * Memory    P+1 microbatches on every device, for M >= 2P
 * Messages  2 M (P-1), and the two copies of every stage sum their gradients at the end
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls dualpipe_make.  Errors: ERR_PLAN for
 *           sizes out of range, ERR_MEMORY.
 *
 * P=4, M=8, F=I=W (capitals: even microbatches, from device 0 to 3; small letters: odd ones, from 3 to 0):
 *
 *   0  F0-F2-F4-f1-i1-w1-f3-F6-b3----f5-B0----b5----f7-...B2----b7----I4-W4-I6-W6-
 *   1  ...F0-f1-F2-f3-F4-b1----f5-B0----F6-b3----f7-B2----b5----B4----i7-I6-w7-W6-
 *   2  ...f1-F0-f3-F2-f5-B0----F4-b1----f7-B2----F6-b3----B4----b5----I6-i7-W6-w7-
 *   3  f1-f3-f5-F0-I0-W0-F2-f7-B2----F4-b1----B4----F6-...b3----B6----i5-w5-i7-w7-
 *
 * The steps are in dualpipe_steps.c.  For other numbers of microbatches it is the schedule of the next even number, at
 * least 2P, without the missing ones.
 */
#include "emulated_devices/schemes/pipeline/schedules/dualpipe.h"

static const char *dualpipe_refuses(const struct schedule_request *request)
{
    return request->devices % 2 != 0 ? "P must be even: two pipelines meet in the middle" : NULL;
}

/* dualpipe_make puts the eight steps into the list of every device. */
static enum error_code dualpipe_make(struct schedule *schedule, const struct schedule_request *request,
                                     struct error *err)
{
    /* n is the number of microbatches in each direction; the steps need at least P in each. */
    const int P = request->devices, n = request->micros < 2 * P ? P : (request->micros + 1) / 2;
    if (schedule_begin(schedule, "dualpipe", P, request->micros, 2, err) != OK) return err->code;
    enum error_code code = place_bidirectional(schedule, err);
    for (int d = 0; code == OK && d < P; d++) {
        /* Stream 0 is the direction that enters at the nearer end. */
        const bool second = d >= P / 2;
        struct dual u = {
            .s = schedule, .device = d, .chunk = { second, !second }, .first = { second, !second }, .stride = 2,
            .pairs = request->pairs
        };
        code = dualpipe_steps(&u, second ? P - 1 - d : d, P / 2, n, err);
    }
    if (code != OK) {
        schedule_free(schedule);
        return code;
    }
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_dualpipe = {
    .head = { .kind = PIPELINE_SCHEME, .equality = REASSOCIATES,
              .name = "dualpipe",
              .description = "two directions, forward of one beside backward of the other; two copies of the model",
              .source = "DeepSeek-AI, arXiv:2412.19437", .memory = "P+1",
              .needs = "P even, M >= 1 (best even and at least 2P)" },
    .bubble = "(P/2-1)(F+2B-3W)", .chunks = 2, .pairs = true, .refuses = dualpipe_refuses, .make = dualpipe_make,
};
