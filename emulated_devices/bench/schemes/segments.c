/* segments.c -- the segment that is chosen for a pipelined collective, beside the best of many lengths and a fixed one.
 * cli/bench/segments.c prints.  No function returns an error code. */
#include "emulated_devices/bench/schemes/segments.h"

static picoseconds time_with(const struct algorithm *algorithm, int P, struct collective collective,
                             const struct cluster *cluster, uint64_t segment)
{
    collective.segment = segment;
    return attempt_is_cheap(algorithm, P, &collective) ? attempt_time(algorithm, P, &collective, cluster) : -1;
}

/* Try 1 segment, 2, 3, .. 10, and then each tenth more, the best length: more than 128 for each device gain less than
 * a hundredth.  @return its time. */
static picoseconds best_of_all(const struct algorithm *algorithm, int P, const struct collective *collective,
                               const struct cluster *cluster, uint64_t *best)
{
    const int64_t n = algorithm->pipelined(P, collective);
    picoseconds least = -1;
    for (int64_t S = 1; S <= n && S <= 128 * P; S += 1 + S / 10) {
        const uint64_t segment = dtype_size(collective->dtype) * (uint64_t)((n + S - 1) / S);
        const picoseconds time = time_with(algorithm, P, *collective, cluster, segment);
        if (time < 0) break;
        if (least < 0 || time < least) least = time, *best = segment;
    }
    return least;
}

bool segments_compare(struct segments_found *found, const struct algorithm *algorithm, int P, uint64_t bytes,
                      const struct cluster *cluster)
{
    const struct collective c = { .count = (int64_t)(bytes / dtype_size(F32)), .dtype = F32,
                                  .nodes = nodes_on(cluster, NULL, P) };
    found->chosen = segment_choose(algorithm, P, &c, cluster), found->best = 0;
    found->took = time_with(algorithm, P, c, cluster, found->chosen);
    found->usual = time_with(algorithm, P, c, cluster, USUAL_SEGMENT);
    found->least = best_of_all(algorithm, P, &c, cluster, &found->best);
    return found->took >= 0 && found->least > 0;
}
