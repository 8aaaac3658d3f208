/* pipedream-2bw: 1F1B without draining the pipeline; the optimizer steps inside the schedule, with two versions of the
 * weights.
 *
 * Source    D. Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, arXiv:2006.09503, section 3.1, figure
 *           2.
 * Needs     P >= 1, M >= 1; a batch (microbatches between two optimizer steps) of at least P microbatches
 * Bubble    (P-1)(F+B) once, for any number of batches: its share tends to 0
 * Memory    min(P-r, M) microbatches on device r, and two versions of the weights
 * Messages  2 M (P-1)
 * Equals    not plain training: batch t is computed with the weights of step t-1, W(t+1) = W(t) - step(gradient at
 *           W(t-1)), W(-1) = W(0); the one-device run does the same (verify/reference/rule.h).  No clipping inside the
 *           schedule: it would need gradients that other devices have not yet computed
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls pipedream_2bw_make.  Errors: ERR_PLAN
 *           for sizes out of range, ERR_MEMORY.
 *
 * U after a batch's last backward makes a new version.  Microbatches in flight keep the old one, forward and backward.
 * A microbatch of batch t needs U of batch t-2; with batches of at least P microbatches it never waits for it.  P=2,
 * M=6, batches of 2 (U takes no time in this picture: U1, U3 and U5 follow B1, B3 and B5):
 *
 *   0  F0-F1-......B0----F2-B1----F3-B2----F4-B3----F5-B4----...B5----
 *   1  ...F0-B0----F1-B1----F2-B2----F3-B3----F4-B4----F5-B5----......
 */
#include "emulated_devices/schemes/pipeline/schedules/generate.h"

/* The default batch has P microbatches, the fewest that two versions allow. */
static int batch_of(const struct schedule_request *request)
{
    return request->update_every > 0 ? request->update_every : request->devices;
}

static const char *pipedream_2bw_refuses(const struct schedule_request *request)
{
    if (batch_of(request) >= request->devices) return NULL;
    return "a batch must have at least P microbatches, or two versions of the weights are too few";
}

/* pipedream_2bw_make writes 1F1B's lists with an U after each batch. */
static enum error_code pipedream_2bw_make(struct schedule *schedule, const struct schedule_request *request,
                                          struct error *err)
{
    const int P = request->devices, M = request->micros, n = batch_of(request);
    if (schedule_begin(schedule, "pipedream-2bw", P, M, 1, err) != OK) return err->code;
    place_looped(schedule);
    schedule->weight_versions = 2;
    /* A batch cannot be longer than the list. */
    schedule->update_every = n < M ? n : M;
    for (int r = 0; r < P; r++) {
        const int ahead = P - 1 - r < M ? P - 1 - r : M;
        for (int m = 0; m < ahead; m++) schedule_put(schedule, r, FORWARD, m, 0);
        for (int m = 0; m < M; m++) {
            schedule_put(schedule, r, FORWARD, m + ahead, 0);
            schedule_put(schedule, r, BACKWARD, m, 0);
            /* After n backwards the optimizer steps; microbatches already under way keep the older weights. */
            if ((m + 1) % n == 0 || m + 1 == M) schedule_put(schedule, r, UPDATE, m, 0);
        }
    }
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_pipedream_2bw = {
    .head = { .kind = PIPELINE_SCHEME, .equality = DIFFERS,
              .name = "pipedream-2bw", .description = "1f1b never drained, two versions of the weights",
              .source = "Narayanan et al., arXiv:2006.09503", .memory = "min(P-r, M), weights twice",
              .needs = "P >= 1, M >= 1, at least P microbatches in a batch" },
    .bubble = "(P-1)(F+B) once", .chunks = 1, .streams = true, .refuses = pipedream_2bw_refuses,
        .make = pipedream_2bw_make,
};
