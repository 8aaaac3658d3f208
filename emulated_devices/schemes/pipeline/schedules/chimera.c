/* chimera: two 1F1B pipelines in opposite directions, each with half the microbatches; a device holds a stage of both.
 *
 * Source    S. Li, T. Hoefler, Chimera, arXiv:2107.06925, sections 3.1 and 3.3, figures 3 and 5 (with direct
 *           concatenation).
 * Needs     P even, M >= 1; stage d for even and stage P-1-d for odd microbatches on device d: weights twice
 * Bubble    (P-2)B for M = P and F <= B (B the whole backward), of a total of P F + (2P-2) B;
 *           (P-2)F for any multiple of P if F = B.  With B = 2F longer runs have gaps between rounds of P
 * Memory    min(P-r, P/2) + min(r+1, P/2) microbatches on device r, for M >= P: from P/2+1 at the ends to P in the
 *           middle
 * Messages  2 M (P-1), and the two copies of every stage sum their gradients at the end
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls chimera_make.  Errors: ERR_PLAN for
 *           sizes out of range, ERR_MEMORY.
 *
 * While a device would wait for microbatches of one pipeline, it has work from the other, which starts at the other
 * end.  P=4, M=4, B=2F (capitals run from device 0 to 3, small letters from 3 to 0):
 *
 *   0  F0-F2-...f1-b1----f3-b3----...B0----......B2----
 *   1  ...F0-f1-F2-f3-...b1----B0----b3----B2----......
 *   2  ...f1-F0-f3-F2-...B0----b1----B2----b3----......
 *   3  f1-f3-...F0-B0----F2-B2----...b1----......b3----
 *
 * Each pipeline alone is 1F1B with at most P/2 microbatches in flight.  If both have work for a device, list scheduling
 * decides: first what can start first, then forwards before backwards.
 */
#include "emulated_devices/schemes/pipeline/schedules/list_schedule.h"
#include <stdlib.h>

static const char *chimera_refuses(const struct schedule_request *request)
{
    return request->devices % 2 != 0 ? "P must be even: two pipelines meet in the middle" : NULL;
}

/* chimera_make limits what each chunk holds and leaves the order of actions to list_schedule. */
static enum error_code chimera_make(struct schedule *schedule, const struct schedule_request *request,
                                    struct error *err)
{
    const int P = request->devices;
    if (schedule_begin(schedule, "chimera", P, request->micros, 2, err) != OK) return err->code;
    int *limit = calloc(2 * (size_t)P, sizeof *limit);
    enum error_code code = limit == NULL ? fail(err, ERR_MEMORY, "schedule chimera: no memory for %d devices", P) : OK;
    if (code == OK) code = place_bidirectional(schedule, err);
    /* As in 1F1B a stage near the end holds fewer microbatches; P/2 is the most for one direction. */
    for (int d = 0; code == OK && d < P; d++) {
        limit[2 * d] = P - d < P / 2 ? P - d : P / 2;
        limit[2 * d + 1] = d + 1 < P / 2 ? d + 1 : P / 2;
    }
    if (code == OK) code = list_schedule(schedule, request, limit, err);
    free(limit);
    if (code != OK) {
        schedule_free(schedule);
        return code;
    }
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_chimera = {
    .head = { .kind = PIPELINE_SCHEME, .equality = REASSOCIATES,
              .name = "chimera", .description = "two 1f1b pipelines in opposite directions, two copies of the model",
              .source = "Li, Hoefler, arXiv:2107.06925", .memory = "min(P-r, P/2) + min(r+1, P/2)",
              .needs = "P even, M >= 1 (best a multiple of P)" },
    .bubble = "(P-2)B for M = P", .chunks = 2, .refuses = chimera_refuses, .make = chimera_make,
};
