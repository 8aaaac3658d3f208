/* dualpipev: one half of DualPipe, whose second half of the devices mirrors the first.
 *
 * Source    P. Qi, X. Wan et al. (Sea AI Lab), "DualPipe could be better without the Dual"; program: DualPipe,
 *           dualpipev.py.
 * Needs     P >= 1, M >= 1; stages d and 2P-1-d on device d: a V, weights once
 * Bubble    published: (P-1)(F&B + B - 3W) of a chunk's times, that of DualPipe on 2P devices (for F <= I, M >= 2P).
 *           Here forward and backward run one after the other: (P-1) F when F = I = W
 * Memory    2P+1 chunks on every device, for M >= 2P
 * Messages  4 M (P-1)
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls dualpipev_make.  Errors: ERR_PLAN for
 *           sizes out of range, ERR_MEMORY.
 *
 * P=2, M=4, F=I=W (capitals: down the V; small letters: up):
 *
 *   0  F0-F1-F2-f0-i0-w0-f1-F3-b1----f2-B0----b2----f3-...B1----b3----I2-W2-I3-W3-
 *   1  ...F0-f0-F1-f1-F2-b0----f2-B0----F3-b1----f3-B1----b2----B2----i3-I3-w3-W3-
 */
#include "emulated_devices/schemes/pipeline/schedules/dualpipe.h"

/* dualpipev_make uses DualPipe's steps with the two halves of a V as the two streams. */
static enum error_code dualpipev_make(struct schedule *schedule, const struct schedule_request *request,
                                      struct error *err)
{
    /* The steps need at least 2 P microbatches; missing microbatches leave gaps. */
    const int P = request->devices, n = request->micros < 2 * P ? 2 * P : request->micros;
    if (schedule_begin(schedule, "dualpipev", P, request->micros, 2, err) != OK) return err->code;
    place_v(schedule);
    enum error_code code = OK;
    for (int d = 0; code == OK && d < P; d++) {
        struct dual u = { .s = schedule, .device = d, .chunk = { 0, 1 }, .first = { 0, 0 }, .stride = 1,
                          .pairs = request->pairs };
        code = dualpipe_steps(&u, d, P, n, err);
    }
    if (code != OK) {
        schedule_free(schedule);
        return code;
    }
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_dualpipev = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "dualpipev",
              .description = "dualpipe folded in half: both ends on one device, one copy of the model",
              .source = "Sea AI Lab; DeepSeek-AI, DualPipe", .memory = "2P+1 chunks",
              .needs = "P >= 1, M >= 1 (best at least 2P)" },
    .bubble = "(P-1)(F+2B-3W) of a chunk", .chunks = 2, .pairs = true, .make = dualpipev_make,
};
