/* skippipe: every microbatch skips some stages, and microbatches skip different ones.
 *
 * Source    N. Blagoev et al., SkipPipe, arXiv:2502.19913: partial pipelines with equal load.  In the paper a search
 *           places devices and routes on a network of unequal links; here links are equal, and a rotation gives every
 *           stage the same load.
 * Needs     P >= 1, M >= 1; 0 <= skip <= P-2 (by default a third of the middle stages, rounded up, if that leaves one);
 *           the first stage (embedding) and the last (loss) are never skipped
 * Bubble    the first device is busy M(F+B) and waits for the shortest way back: see the test for what is asserted
 * Memory    min(P-r, M) microbatches on device r at most
 * Messages  2 M (P-1-skip)
 * Equals    not the whole model: the one-device model skips the same layers for the same sequences
 *           (ref/model/partial.h)
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls skippipe_make.  Errors: ERR_PLAN for
 *           sizes out of range, ERR_MEMORY.
 *
 * Microbatch m skips `skip` of the P-2 middle stages, starting at number m*skip, modulo P-2.  P=5, skip=1:
 *
 *   microbatch 0: stages 0 . 2 3 4      microbatch 1: 0 1 . 3 4      microbatch 2: 0 1 2 . 4      microbatch 3: as 0
 */
#include "emulated_devices/schemes/pipeline/schedules/list_schedule.h"
#include <stdlib.h>

/* By default a third of the middle stages is skipped, rounded up, if at least one stays. */
static int skip_of(const struct schedule_request *request)
{
    const int middle = request->devices > 2 ? request->devices - 2 : 0, third = (middle + 2) / 3;
    if (request->skip > 0) return request->skip;
    return third < middle ? third : 0;
}

static const char *skippipe_refuses(const struct schedule_request *request)
{
    return skip_of(request) > 0 && skip_of(request) > request->devices - 2
           ? "only the P-2 middle stages can be left out" : NULL;
}

static int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }

/* The choices repeat after (P-2)/gcd(skip, P-2) microbatches. */
static enum error_code make_routes(struct schedule *schedule, int skip, struct error *err)
{
    const int P = schedule->devices, middle = P > 2 ? P - 2 : 1, period = middle / gcd(skip, middle);
    if (routes_begin(schedule, period < schedule->micros ? period : schedule->micros, err) != OK) return ERR_MEMORY;
    /* Route r leaves out `skip` middle stages, from number r skip on, in a circle. */
    for (int r = 0; r < schedule->routes; r++) {
        for (int t = 0; t < P; t++) schedule->route[r][t] = (struct place){ t, 0 };
        for (int j = 0; j < skip; j++) schedule->route[r][1 + (r * skip + j) % middle] = (struct place){ -1, -1 };
    }
    for (int m = 0; m < schedule->micros; m++) schedule->route_of[m] = m % period;
    return OK;
}

/* skippipe_make places the routes first, because list_schedule plans along routes. */
static enum error_code skippipe_make(struct schedule *schedule, const struct schedule_request *request,
                                     struct error *err)
{
    const int P = request->devices;
    if (schedule_begin(schedule, "skippipe", P, request->micros, 1, err) != OK) return err->code;
    place_looped(schedule);
    int *limit = calloc((size_t)P, sizeof *limit);
    enum error_code code = limit == NULL ? fail(err, ERR_MEMORY, "schedule skippipe: no memory for %d devices", P) : OK;
    /* Stage d holds as many microbatches as in 1F1B at most. */
    for (int d = 0; code == OK && d < P; d++) limit[d] = P - d;
    if (code == OK) code = make_routes(schedule, skip_of(request), err);
    if (code == OK) code = list_schedule(schedule, request, limit, err);
    free(limit);
    if (code != OK) {
        schedule_free(schedule);
        return code;
    }
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_skippipe = {
    .head = { .kind = PIPELINE_SCHEME, .equality = DIFFERS,
              .name = "skippipe", .description = "partial pipelines: each microbatch leaves some stages out",
              .source = "Blagoev et al., arXiv:2502.19913", .memory = "at most min(P-r, M)",
              .needs = "P >= 1, M >= 1, skip <= P-2" },
    .bubble = "by search", .chunks = 1, .skips = true, .refuses = skippipe_refuses, .make = skippipe_make,
};
