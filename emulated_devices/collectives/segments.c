/* segments.c -- how long the segments are in which pipelined algorithms send a vector.
 *
 * In a pipeline of depth d, S segments of n bytes take about (S + d - 1) (gap + n / S * byte time): many segments fill
 * the pipeline soon, few have few gaps; where a message waits for its receiver each segment costs a latency, too.  The
 * classical optimum, S = root((d - 1) n byte time / gap), is for equal links that nothing else delays.  So here the
 * predicted time of each number of segments, 2^(k/4), says where to begin, and calls without numbers (attempt.c) find
 * the best near it.  Small numbers are all tried, because it matters on which links the last segments are; and a
 * segment that is just short enough to be eager, on each kind of link.  Of numbers whose times are within a hundredth,
 * the smallest is taken: messages cost real time here.
 *
 * The choice depends on what all members know, like that of an algorithm (auto.c), and is remembered likewise.
 *
 * collective_run and auto.c call segment_choose; nothing here can fail, and the choice needs no message.
 */
#include "emulated_devices/collectives/algorithm.h"
#include <math.h>

/* More segments than PER_DEVICE * P gain less than a hundredth: the pipeline is no deeper than P. */
enum { TRIED = 160, FEW = 12, FEW_BETWEEN_NODES = 40, MANY = 160, PER_DEVICE = 100, QUARTERS = 4 };

struct search {
    const struct algorithm *algorithm;
    const struct cluster *cluster;
    struct collective call;
    int P, most;                        /* segments */
    uint64_t bytes;                     /* of the longest part */
    bool attempts;                      /* calls are tried; else predicted */
    int tried;
    struct { int segments; picoseconds time; } of[TRIED];
};

/* The length that cuts the longest part into so many, in whole elements. */
static uint64_t length_of(const struct search *search, int segments)
{
    const uint64_t each = dtype_size(search->call.dtype), n = search->bytes / each, k = (uint64_t)segments;
    return (n + k - 1) / k * each;
}

/* The time of a call with so many segments, from the cost functions. */
static picoseconds predicted(struct search *search, int segments)
{
    search->call.segment = length_of(search, segments);
    return collective_time(search->algorithm, search->P, &search->call, search->cluster);
}

/* The time of a call with so many segments, by an attempt.  Negative: the call has too many messages, or it failed. */
static picoseconds measured(struct search *search, int segments)
{
    search->call.segment = length_of(search, segments);
    if (!attempt_is_cheap(search->algorithm, search->P, &search->call)) return -1;
    return attempt_time(search->algorithm, search->P, &search->call, search->cluster);
}

/* The time by which numbers of segments are compared, remembered from an earlier question.  Negative: not known. */
static picoseconds time_of(struct search *search, int segments)
{
    for (int i = 0; i < search->tried; i++)
        if (search->of[i].segments == segments) return search->of[i].time;
    const picoseconds time = search->attempts ? measured(search, segments) : predicted(search, segments);
    if (search->tried < TRIED) search->of[search->tried].segments = segments, search->of[search->tried++].time = time;
    return time;
}

/* A number whose time is not known is better than none, and any known time is better than an unknown one. */
static bool is_better(struct search *search, int segments, int than)
{
    const picoseconds one = time_of(search, segments), other = time_of(search, than);
    return one >= 0 && (other < 0 || one < other);
}

static int clipped(const struct search *search, double segments)
{
    return segments < 1 ? 1 : segments > search->most ? search->most : (int)lround(segments);
}

/* The guess is one of 1, 2^(1/4), 2^(2/4), ..: that with the least predicted time. */
static int guess(struct search *search)
{
    int best = 1;
    picoseconds least = predicted(search, 1);
    for (double x = 1; x < search->most; x *= pow(2, 1.0 / QUARTERS)) {
        const picoseconds time = predicted(search, clipped(search, x));
        if (time < least) least = time, best = clipped(search, x);
    }
    return best;
}

/* Larger steps first; each goes on while it gains. */
static int climb(struct search *search, int from)
{
    int best = from;
    for (double step = 2; step > pow(2, 0.9 / QUARTERS); step = sqrt(step))
        for (int up = 0; up < 2; up++)
            for (int next; next = clipped(search, up ? best * step : best / step), next != best;) {
                if (!is_better(search, next, best)) break;
                best = next;
            }
    return best;
}

/* Between nodes, times go up and down from one number to the next: below. */
static int few_of(const struct search *search) { return search->call.nodes.devices > 0 ? FEW_BETWEEN_NODES : FEW; }

/* Near the best, where rounds meet links of several kinds (circulant graphs between nodes), times go up and down from
 * one number to the next, by less the more there are. */
static int search_near(struct search *search, int from)
{
    const int step = from <= 60 ? 1 : 5, low = clipped(search, from / 1.4), high = clipped(search, from * 1.4);
    int best = from;
    for (int next = low; from > few_of(search) && from <= MANY && next <= high; next += step)
        if (is_better(search, next, best)) best = next;
    return best;
}

/* The smallest number whose time is within a hundredth of the best. */
static int fewest(struct search *search, int best)
{
    const picoseconds enough = time_of(search, best) + time_of(search, best) / 100;
    int found = best;
    for (double step = 2; step > pow(2, 0.9 / QUARTERS); step = sqrt(step))
        for (int next; next = clipped(search, found / step), next < found;) {
            if (time_of(search, next) < 0 || time_of(search, next) > enough) break;
            found = next;
        }
    return found;
}

/* The number of segments to take.  The steps are: a predicted start, few segments, segments just short enough to be
 * eager, a climb, a search near the top. */
static int best_of(struct search *search)
{
    const struct cluster *m = search->cluster;
    int best = guess(search);
    /* Attempts decide only if the first one succeeds; else predictions decide everywhere. */
    search->attempts = search->P <= ATTEMPT_MOST_DEVICES && measured(search, best) >= 0;
    for (int few = 1; few <= few_of(search) && few <= search->most; few++)
        if (is_better(search, few, best)) best = few;
    for (int l = 0; l < m->levels; l++) {
        const uint64_t eager = m->link[l].eager / dtype_size(search->call.dtype) * dtype_size(search->call.dtype);
        if (eager == 0 || eager >= search->bytes || (search->bytes - 1) / eager >= (uint64_t)search->most) continue;
        const int segments = (int)((search->bytes + eager - 1) / eager);
        if (is_better(search, segments, best)) best = segments;
    }
    return fewest(search, search_near(search, climb(search, best)));
}

/* ---- what has been chosen ---------------------------------------------------------------------------------------- */

enum { REMEMBERED = 256 };
static struct { uint64_t key, segment; } remembered[REMEMBERED];

/* Search among 1 .. `most` segments, and give the bytes of one. */
static uint64_t segments_choose(const struct algorithm *algorithm, int P, const struct collective *collective,
                                const struct cluster *cluster)
{
    const int64_t n = algorithm->pipelined(P, collective);
    struct search s = { .algorithm = algorithm, .cluster = cluster, .call = *collective, .P = P,
                       .bytes = bytes_of(collective, n) };
    s.most = n < (int64_t)PER_DEVICE * P ? (int)n : PER_DEVICE * P;
    return length_of(&s, best_of(&s));
}

/* A segment that the call has already, or a call of one element, needs no search. */
uint64_t segment_choose(const struct algorithm *algorithm, int P, const struct collective *asked,
                        const struct cluster *cluster)
{
    if (asked->segment > 0 || algorithm->pipelined == NULL || P == 1) return asked->segment;
    if (algorithm->pipelined(P, asked) <= 1) return bytes_of(asked, 1);
    struct collective c = *asked;
    const struct cluster m = cluster_for_all(cluster);
    c.nodes = nodes_on(&m, c.nodes.member, P);
    const uint64_t key = call_key(algorithm->operation, P, &c, &m) ^ (uint64_t)(uintptr_t)algorithm;
    /* A slot may hold another call's key, whose choice is then forgotten. */
    if (remembered[key % REMEMBERED].key != key || remembered[key % REMEMBERED].segment == 0) {
        const uint64_t segment = segments_choose(algorithm, P, &c, &m);
        remembered[key % REMEMBERED].key = key;
        remembered[key % REMEMBERED].segment = segment;
    }
    return remembered[key % REMEMBERED].segment;
}

uint64_t group_segment(const struct group *group, const struct algorithm *algorithm,
                       const struct collective *collective)
{
    struct collective call = *collective;
    call.nodes.member = group->process;
    return segment_choose(algorithm, group->size, &call, &group->comm->device->clock.cluster);
}
