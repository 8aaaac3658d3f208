/* bfs: breadth first, in a pipeline of v loops.  All microbatches pass a chunk before any continues to the next chunk.
 *
 * Source    J. Lamy-Poirier, Breadth-First Pipeline Parallelism, arXiv:2211.05953, figure 4d.
 * Needs     P >= 1, M >= 1, v >= 1; device r, chunk c holds stage c*P + r
 * Bubble    (P-1)(f+b) for M >= P, with f and b of one chunk: 1/v of GPipe's.  In general the time is
 *           ((v-1) max(M,P) + M + P-1)(f+b)
 * Memory    M v chunks on every device
 * Messages  2 M (Pv-1)
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls bfs_make.  Errors: ERR_PLAN for sizes
 *           out of range, ERR_MEMORY.
 *
 * Advantage: a chunk's weights are needed only twice, each time for all microbatches in a row.  So sharded weights are
 * gathered once per chunk and pass instead of once per microbatch, and a chunk's gradients are complete early.
 * P=2, M=3, v=2, B=2F:
 *
 *   0  F0-F1-F2-f0-f1-f2-.........b0----b1----b2----B0----B1----B2----
 *   1  ...F0-F1-F2-f0-f1-f2-b0----b1----b2----B0----B1----B2----......
 *
 * The backwards of a chunk run from the first microbatch to the last, so that gradients are added in the usual order.
 */
#include "emulated_devices/schemes/pipeline/schedules/generate.h"

static enum error_code bfs_make(struct schedule *schedule, const struct schedule_request *request, struct error *err)
{
    if (schedule_begin(schedule, "bfs", request->devices, request->micros, request->chunks, err) != OK)
        return err->code;
    place_looped(schedule);
    for (int r = 0; r < request->devices; r++) {
        /* All microbatches pass chunk 0, then chunk 1, and so on; backwards take the chunks in reverse. */
        for (int c = 0; c < request->chunks; c++)
            for (int m = 0; m < request->micros; m++) schedule_put(schedule, r, FORWARD, m, c);
        for (int c = request->chunks - 1; c >= 0; c--)
            for (int m = 0; m < request->micros; m++) schedule_put(schedule, r, BACKWARD, m, c);
    }
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_bfs = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "bfs", .description = "breadth first: every microbatch through a chunk before the next chunk",
              .source = "Lamy-Poirier, arXiv:2211.05953", .memory = "Mv chunks", .needs = "P >= 1, M >= 1, v >= 1" },
    .bubble = "(P-1)(F+B)/v if M >= P", .make = bfs_make,
};
