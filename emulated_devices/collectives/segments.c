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
static uint64_t length_of(const struct search *s, int segments)
{
    const uint64_t each = dtype_size(s->call.dtype), n = s->bytes / each, k = (uint64_t)segments;
    return (n + k - 1) / k * each;
}

static picoseconds predicted(struct search *s, int segments)
{
    s->call.segment = length_of(s, segments);
    return collective_time(s->algorithm, s->P, &s->call, s->cluster);
}

static picoseconds measured(struct search *s, int segments)
{
    s->call.segment = length_of(s, segments);
    if (!attempt_is_cheap(s->algorithm, s->P, &s->call)) return -1;
    return attempt_time(s->algorithm, s->P, &s->call, s->cluster);
}

/* Negative: not known. */
static picoseconds time_of(struct search *s, int segments)
{
    for (int i = 0; i < s->tried; i++)
        if (s->of[i].segments == segments) return s->of[i].time;
    const picoseconds time = s->attempts ? measured(s, segments) : predicted(s, segments);
    if (s->tried < TRIED) s->of[s->tried].segments = segments, s->of[s->tried++].time = time;
    return time;
}

static bool is_better(struct search *s, int segments, int than)
{
    const picoseconds one = time_of(s, segments), other = time_of(s, than);
    return one >= 0 && (other < 0 || one < other);
}

static int clipped(const struct search *s, double segments)
{
    return segments < 1 ? 1 : segments > s->most ? s->most : (int)lround(segments);
}

/* Of 1, 2^(1/4), 2^(2/4), .. the one that is predicted to take the least time. */
static int guess(struct search *s)
{
    int best = 1;
    picoseconds least = predicted(s, 1);
    for (double x = 1; x < s->most; x *= pow(2, 1.0 / QUARTERS)) {
        const picoseconds time = predicted(s, clipped(s, x));
        if (time < least) least = time, best = clipped(s, x);
    }
    return best;
}

/* Larger steps first; each goes on while it gains. */
static int climb(struct search *s, int from)
{
    int best = from;
    for (double step = 2; step > pow(2, 0.9 / QUARTERS); step = sqrt(step))
        for (int up = 0; up < 2; up++)
            for (int next; next = clipped(s, up ? best * step : best / step), next != best;) {
                if (!is_better(s, next, best)) break;
                best = next;
            }
    return best;
}

/* Between nodes, times go up and down from one number to the next: below. */
static int few_of(const struct search *s) { return s->call.nodes.devices > 0 ? FEW_BETWEEN_NODES : FEW; }

/* Near the best, where rounds meet links of several kinds (circulant graphs between nodes), times go up and down from
 * one number to the next, by less the more there are. */
static int search_near(struct search *s, int from)
{
    const int step = from <= 60 ? 1 : 5, low = clipped(s, from / 1.4), high = clipped(s, from * 1.4);
    int best = from;
    for (int next = low; from > few_of(s) && from <= MANY && next <= high; next += step)
        if (is_better(s, next, best)) best = next;
    return best;
}

/* The smallest number whose time is within a hundredth of the best. */
static int fewest(struct search *s, int best)
{
    const picoseconds enough = time_of(s, best) + time_of(s, best) / 100;
    int found = best;
    for (double step = 2; step > pow(2, 0.9 / QUARTERS); step = sqrt(step))
        for (int next; next = clipped(s, found / step), next < found;) {
            if (time_of(s, next) < 0 || time_of(s, next) > enough) break;
            found = next;
        }
    return found;
}

static int best_of(struct search *s)
{
    const struct cluster *m = s->cluster;
    int best = guess(s);
    s->attempts = s->P <= ATTEMPT_MOST_DEVICES && measured(s, best) >= 0;
    for (int few = 1; few <= few_of(s) && few <= s->most; few++)
        if (is_better(s, few, best)) best = few;
    for (int l = 0; l < m->levels; l++) {
        const uint64_t eager = m->link[l].eager / dtype_size(s->call.dtype) * dtype_size(s->call.dtype);
        if (eager == 0 || eager >= s->bytes || (s->bytes - 1) / eager >= (uint64_t)s->most) continue;
        const int segments = (int)((s->bytes + eager - 1) / eager);
        if (is_better(s, segments, best)) best = segments;
    }
    return fewest(s, search_near(s, climb(s, best)));
}

/* ---- what has been chosen ---------------------------------------------------------------------------------------- */

enum { REMEMBERED = 256 };
static struct { uint64_t key, segment; } remembered[REMEMBERED];

static uint64_t choose(const struct algorithm *a, int P, const struct collective *c, const struct cluster *m)
{
    const int64_t n = a->pipelined(P, c);
    struct search s = { .algorithm = a, .cluster = m, .call = *c, .P = P, .bytes = bytes_of(c, n) };
    s.most = n < (int64_t)PER_DEVICE * P ? (int)n : PER_DEVICE * P;
    return length_of(&s, best_of(&s));
}

uint64_t segment_choose(const struct algorithm *a, int P, const struct collective *asked, const struct cluster *cluster)
{
    if (asked->segment > 0 || a->pipelined == NULL || P == 1) return asked->segment;
    if (a->pipelined(P, asked) <= 1) return bytes_of(asked, 1);
    struct collective c = *asked;
    const struct cluster m = cluster_for_all(cluster);
    c.nodes = nodes_on(&m, c.nodes.member, P);
    const uint64_t key = call_key(a->operation, P, &c, &m) ^ (uint64_t)(uintptr_t)a;
    if (remembered[key % REMEMBERED].key != key || remembered[key % REMEMBERED].segment == 0) {
        const uint64_t segment = choose(a, P, &c, &m);
        remembered[key % REMEMBERED].key = key;
        remembered[key % REMEMBERED].segment = segment;
    }
    return remembered[key % REMEMBERED].segment;
}

uint64_t group_segment(const struct group *g, const struct algorithm *a, const struct collective *c)
{
    struct collective call = *c;
    call.nodes.member = g->member;
    return segment_choose(a, g->size, &call, &g->comm->device->clock.cluster);
}
