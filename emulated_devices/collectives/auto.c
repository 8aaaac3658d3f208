/* auto.c -- which algorithm: the one with the least predicted time on a described cluster.
 *
 * The prediction is the alpha-beta model on what the cost functions say.  A collective takes
 *
 *     depth * latency  +  steps * gap  +  the largest of  (path * byte time  +  3 * additions * memory byte time)
 *
 * with the largest over all members, because the slowest one decides.  depth, steps and path are those of struct
 * collective_cost; an addition reads two numbers and writes one.  Copies within a device are not in it.
 *
 * It depends on the operation, P, the call's count, counts, dtype and root, and the cluster: all that members share, so
 * they choose alike without asking each other.  For the one call in which they do not share counts, an all-to-all with
 * counts, the choice is the first algorithm that takes it.
 */
#include "emulated_devices/collectives/algorithm.h"
#include "ref/io/options.h"
#include <math.h>
#include <string.h>

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Bytes through this member's ports.  With fewer messages than steps it waits for others that send as much as it does. */
static double path_bytes(const struct collective_cost *one, uint64_t steps)
{
    if (one->path > 0) return (double)one->path;
    const double bytes = (double)one->bytes;
    return one->messages > 0 && one->messages < steps ? bytes / (double)one->messages * (double)steps : bytes;
}

/* Where steps are not stated: how many of its average messages make up this member's path. */
static uint64_t own_rounds(const struct collective_cost *one)
{
    if (one->path <= one->bytes || one->bytes == 0) return one->messages;
    return (uint64_t)ceil((double)one->path / (double)one->bytes * (double)one->messages);
}

static double seconds(double units, int64_t rate) { return rate > 0 ? units / (1e6 * (double)rate) : 0; }

picoseconds collective_time(const struct algorithm *a, int P, const struct collective *c, const struct cluster *m)
{
    uint64_t steps = 0, depth = 0, rounds = 0;
    double slowest = 0;
    const struct link *link = &m->link[link_between(m->link, m->levels, 0, P - 1)];
    for (int r = 0; r < P; r++) {
        const struct collective_cost one = collective_cost(a, r, P, c);
        steps = larger(steps, one.steps);
        depth = larger(depth, one.depth);
        rounds = larger(rounds, own_rounds(&one));
    }
    if (steps == 0) steps = rounds;
    if (depth == 0) depth = steps;
    for (int r = 0; r < P; r++) {
        const struct collective_cost one = collective_cost(a, r, P, c);
        const double busy = seconds(path_bytes(&one, steps), link->rate)
                          + seconds(3.0 * (double)bytes_of(c, (int64_t)one.additions), m->memory_rate);
        if (busy > slowest) slowest = busy;
    }
    return (picoseconds)depth * link->latency + (picoseconds)steps * link->gap + (picoseconds)ceil(slowest * 1e12);
}

static bool takes(const struct algorithm *a, int P, const struct collective *c)
{
    return P == 1 || a->refuses == NULL || a->refuses(P, c) == NULL;
}

const struct algorithm *algorithm_choose(enum operation op, int P, const struct collective *c, const struct cluster *m)
{
    const struct algorithm *best = NULL;
    const bool blind = op == ALLTOALL && c->counts != NULL;     /* each member knows other counts */
    picoseconds least = 0;
    for (int i = 0; algorithms[i] != NULL; i++) {
        const struct algorithm *a = algorithms[i];
        if (a->operation != op || !takes(a, P, c)) continue;
        if (P == 1 || blind) return a;
        const picoseconds time = collective_time(a, P, c, m);
        if (best == NULL || time < least) {
            best = a;
            least = time;
        }
    }
    return best;
}

static bool is_auto(const char *name) { return name != NULL && strcmp(name, ALGORITHM_AUTO) == 0; }

/* The cluster as if all links were those of the group's members farthest apart. */
static struct cluster seen_by(const struct group *g)
{
    struct cluster m = g->comm->device->clock.cluster;
    int level = 0;
    for (int i = 1; i < g->size; i++) {
        const int far = link_between(m.link, m.levels, g->member[0], g->member[i]);
        if (far > level) level = far;
    }
    if (level > 0) m.link[0] = m.link[level];
    m.levels = 1;
    return m;
}

const struct algorithm *algorithm_for(const struct group *g, enum operation op, const char *name, const struct collective *c)
{
    if (!is_auto(name)) return algorithm_find(op, name);
    const struct cluster seen = seen_by(g);
    return algorithm_choose(op, g->size, c, &seen);
}

enum error_code algorithm_check(enum operation op, const char *flag, const char *name, struct error *err)
{
    enum { MOST = 64 };
    const char *names[MOST] = { ALGORITHM_AUTO };
    size_t n = 1;
    for (int i = 0; algorithms[i] != NULL && n < MOST; i++)
        if (algorithms[i]->operation == op) names[n++] = algorithms[i]->name;
    if (name == NULL || is_auto(name) || algorithm_find(op, name) != NULL) return OK;
    return fail_unknown_name(err, flag, name, names, n);
}
