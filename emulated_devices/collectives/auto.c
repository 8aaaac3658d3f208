/* auto.c -- chooses the algorithm that takes the least time on a described cluster.
 *
 * Up to 64 devices, each algorithm is tried: it runs once without numbers, on devices of this process (attempt.c), and
 * its time by the clock decides.  So the choice is the best for members that start together with idle ports.  Choices
 * are remembered.  For more devices, and calls of very many messages, a prediction decides: the alpha-beta model,
 * applied to the results of the cost functions,
 *
 *     depth * latency  +  steps * gap  +  the largest of  (path * byte time  +  3 * additions * memory byte time)
 *
 * The largest is taken over all members, because the slowest one decides.  depth, steps and path are those of struct
 * collective_cost; an addition reads two numbers and writes one.  Copies within a device are not included.  The link is
 * the one between the members that are farthest apart; steps inside nodes use the link of the level below.
 *
 * If an algorithm's messages are longer than the link's eager limit, collective_cost.met replaces depth, if stated.
 *
 * The choice depends only on values that all members know: operation, P, count, counts, dtype, root and cluster.  So
 * all members choose the same algorithm without messages.  The exception is an all-to-all with counts, which differ
 * between members: there the choice is the first algorithm that supports the call.
 *
 * collective_run calls algorithm_for for each call, and option parsers call algorithm_check, which reports ERR_USAGE
 * for an unknown name.
 */
#include "emulated_devices/collectives/algorithm.h"
#include "ref/io/options.h"
#include <math.h>
#include <string.h>

static uint64_t auto_larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The links: between the members that are farthest apart, and inside nodes. */
struct road { const struct link *outer, *inner; };

/* The two links, and as a side effect the nodes of the call, which cost functions read. */
static struct road road_of(const struct cluster *cluster, int P, struct collective *collective)
{
    const struct span s = span_on(cluster, collective->nodes.member, P);
    collective->nodes = s.nodes;
    return (struct road){ .outer = &cluster->link[s.outer], .inner = &cluster->link[s.outer > 0 ? s.outer - 1 : 0] };
}

/* Bytes through this member's ports.  A member with fewer messages than steps waits for others that send as much. */
static double path_bytes(const struct collective_cost *one, uint64_t steps)
{
    if (one->path > 0) return (double)one->path;
    const double bytes = (double)one->bytes;
    return one->messages > 0 && one->messages < steps ? bytes / (double)one->messages * (double)steps : bytes;
}

/* If steps are not stated: this member's path, counted in its average messages. */
static uint64_t own_rounds(const struct collective_cost *one)
{
    if (one->path <= one->bytes || one->bytes == 0) return one->messages;
    return (uint64_t)ceil((double)one->path / (double)one->bytes * (double)one->messages);
}

/* Number of latencies one after another. */
static uint64_t chain_of(const struct collective_cost *one, const struct link *link)
{
    const bool waits = one->messages > 0 && one->bytes / one->messages > link->eager;
    return waits && one->met > 0 ? one->met : one->depth;
}

/* Seconds for so many bytes at a rate in MB/s; a rate of 0 means no time. */
static double seconds(double units, int64_t rate) { return rate > 0 ? units / (1e6 * (double)rate) : 0; }

/* The members' costs are asked for twice: first for the group's steps and depth, then for the slowest member's
 * bytes. */
picoseconds collective_time(const struct algorithm *algorithm, int P, const struct collective *asked,
                            const struct cluster *cluster)
{
    uint64_t steps = 0, depth = 0, rounds = 0, inside = 0;
    double slowest = 0;
    struct collective c = *asked;
    const struct road road = road_of(cluster, P, &c);
    c.segment = segment_choose(algorithm, P, &c, cluster);
    for (int r = 0; r < P; r++) {
        const struct collective_cost one = collective_cost(algorithm, r, P, &c);
        steps = auto_larger(steps, one.steps);
        depth = auto_larger(depth, chain_of(&one, road.outer));
        rounds = auto_larger(rounds, own_rounds(&one));
        inside = auto_larger(inside, one.steps_inside);
    }
    if (steps == 0) steps = rounds;
    if (depth == 0) depth = steps;
    for (int r = 0; r < P; r++) {
        const struct collective_cost one = collective_cost(algorithm, r, P, &c);
        const double busy = seconds(path_bytes(&one, steps) - (double)one.path_inside, road.outer->rate)
                          + seconds((double)one.path_inside, road.inner->rate)
                          + seconds(3.0 * (double)bytes_of(&c, (int64_t)one.additions), cluster->memory_rate);
        if (busy > slowest) slowest = busy;
    }
    const picoseconds outer =
        (picoseconds)(depth - inside) * road.outer->latency + (picoseconds)(steps - inside) * road.outer->gap;
    return outer + (picoseconds)inside * (road.inner->latency + road.inner->gap) + (picoseconds)ceil(slowest * 1e12);
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

struct cluster cluster_for_all(const struct cluster *cluster)
{
    struct cluster c = *cluster;
    if (cluster->stated_memory_rate > 0) c.memory_rate = cluster->stated_memory_rate;
    for (int t = 0; t < DTYPE_COUNT && cluster->speeds > 0; t++) c.flop_rate[t] = 0;
    return c;
}

/* The time that decides: of an attempt, or where that would take long, the predicted one. */
static picoseconds deciding_time(const struct algorithm *algorithm, int P, const struct collective *asked,
                                 const struct cluster *cluster)
{
    struct collective c = *asked;
    c.segment = segment_choose(algorithm, P, asked, cluster);
    const picoseconds tried = attempt_is_cheap(algorithm, P, &c) ? attempt_time(algorithm, P, &c, cluster) : -1;
    return tried >= 0 ? tried : collective_time(algorithm, P, &c, cluster);
}

/* An algorithm whose cost is not known is taken only by its name. */
static bool cost_is_known(const struct algorithm *algorithm) { return algorithm->cost_formula[0] != '\0'; }

/* Try all algorithms of the operation that support this call. */
static const struct algorithm *least_time(enum operation op, int P, const struct collective *collective,
                                          const struct cluster *cluster)
{
    const struct algorithm *best = NULL;
    picoseconds least = 0;
    for (int i = 0; algorithms[i] != NULL; i++) {
        const struct algorithm *a = algorithms[i];
        if (a->operation != op || !cost_is_known(a) || algorithm_refuses(a, P, collective) != NULL) continue;
        const picoseconds time = deciding_time(a, P, collective, cluster);
        if (best == NULL || time < least) {
            best = a;
            least = time;
        }
    }
    return best;
}

/* This search ends, because every operation has an algorithm that supports every call. */
static const struct algorithm *first_that_fits(enum operation op, int P, const struct collective *collective)
{
    int i = 0;
    while (algorithms[i]->operation != op || algorithm_refuses(algorithms[i], P, collective) != NULL) i++;
    return algorithms[i];
}

/* ---- what has been chosen: a training step makes the same calls again -------------------------------------------- */

enum { REMEMBERED = 256 };
static struct { uint64_t key; const struct algorithm *chosen; } remembered[REMEMBERED];

/* FNV-1a, with a shift that brings high bits into the low ones, which index the tables. */
static void auto_mix(uint64_t *h, const void *data, size_t bytes)
{
    const unsigned char *b = data;
    for (size_t i = 0; i < bytes; i++) *h = (*h ^ b[i]) * UINT64_C(0x100000001b3);
    *h ^= *h >> 29;
}

static void mix_number(uint64_t *h, int64_t x) { auto_mix(h, &x, sizeof x); }

/* The hash covers every number of the cluster that a time depends on. */
static void mix_cluster(uint64_t *h, const struct cluster *cluster, enum dtype dtype)
{
    mix_number(h, cluster->memory_rate), mix_number(h, cluster->flop_rate[dtype]);
    mix_number(h, cluster->kernels.launch), mix_number(h, cluster->kernels.units),
        mix_number(h, cluster->kernels.memory_permille);
    /* Tables and sets stay where they are while the program runs. */
    auto_mix(h, &cluster->kernels.table, sizeof cluster->kernels.table);
    auto_mix(h, &cluster->kernels.set, sizeof cluster->kernels.set);
    for (int l = 0; l < cluster->levels; l++) {
        const struct link *k = &cluster->link[l];
        mix_number(h, k->devices), mix_number(h, k->latency), mix_number(h, k->gap), mix_number(h, k->rate);
        mix_number(h, (int64_t)k->eager);
    }
}

/* The key has every argument that a time depends on; the number of algorithms tells plug-ins apart. */
uint64_t call_key(enum operation op, int P, const struct collective *collective, const struct cluster *cluster)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    const struct block_placement *p = collective->placement;
    int count = 0;
    while (algorithms[count]) count++;                          /* a plug-in may have come */
    mix_number(&h, op), mix_number(&h, P), mix_number(&h, collective->count), mix_number(&h, collective->dtype),
        mix_number(&h, collective->root);
    mix_number(&h, (int64_t)collective->segment), mix_number(&h, collective->exclusive),
        mix_number(&h, collective->nodes.devices);
    mix_number(&h, count);
    mix_cluster(&h, cluster, collective->dtype);
    /* A program has one list of places, which stays where it is. */
    auto_mix(&h, &collective->nodes.slot, sizeof collective->nodes.slot);
    if (collective->nodes.member) auto_mix(&h, collective->nodes.member, (size_t)P * sizeof *collective->nodes.member);
    if (collective->counts) auto_mix(&h, collective->counts, (size_t)(p ? p->blocks : P) * sizeof *collective->counts);
    if (p) auto_mix(&h, p->owner, (size_t)p->blocks * sizeof *p->owner), auto_mix(&h, p->held, (size_t)(p->blocks * P));
    return h;
}

/* The choice for a call, remembered by its key.  A group of one, or counts that only a member knows, take the first
 * that fits. */
const struct algorithm *algorithm_choose(enum operation op, int P, const struct collective *asked,
                                         const struct cluster *cluster)
{
    struct collective c = *asked;
    const struct cluster m = cluster_for_all(cluster);
    if (P > 1) road_of(&m, P, &c);
    const bool blind = op == ALLTOALL && c.counts != NULL;      /* each member knows other counts */
    if (P == 1 || blind) return first_that_fits(op, P, &c);
    const uint64_t key = call_key(op, P, &c, &m);
    /* Two calls with the same place in the table displace each other; the choice is then made again. */
    if (remembered[key % REMEMBERED].key != key || remembered[key % REMEMBERED].chosen == NULL) {
        remembered[key % REMEMBERED].chosen = least_time(op, P, &c, &m);
        remembered[key % REMEMBERED].key = key;
    }
    return remembered[key % REMEMBERED].chosen;
}

static bool is_auto(const char *name) { return name != NULL && strcmp(name, ALGORITHM_AUTO) == 0; }

const struct algorithm *algorithm_for(const struct group *group, enum operation op, const char *name,
                                      const struct collective *collective)
{
    if (!is_auto(name)) return algorithm_find(op, name);
    struct collective call = *collective;
    call.nodes.member = group->process;
    return algorithm_choose(op, group->size, &call, &group->comm->device->clock.cluster);
}

enum error_code algorithm_check(enum operation op, const char *flag, const char *name, struct error *err)
{
    const char *names[ALGORITHMS_MOST] = { ALGORITHM_AUTO };
    size_t n = 1;
    for (int i = 0; algorithms[i] != NULL; i++)
        if (algorithms[i]->operation == op) names[n++] = algorithms[i]->name;
    if (name == NULL || is_auto(name) || algorithm_find(op, name) != NULL) return OK;
    if (strcmp(name, "nccl") == 0 && algorithm_find(ALLREDUCE, name) == NULL)
        return fail(err, ERR_USAGE, "%s nccl: this program was built without it: make CUDA=1, where nccl.h is", flag);
    return fail_unknown_name(err, flag, name, names, n);
}
