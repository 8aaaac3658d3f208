/* attention, zeppelin: long samples are on several nodes, shorter ones in one, short ones on one device; outside
 * attention rows are balanced, and messages between nodes are carried by all devices.
 *
 * Source   C. Chen et al., "Zeppelin: balancing variable-length workloads in data parallel large model training",
 *          EuroSys 2026, arXiv:2509.21841; its code is not published
 * Group    P devices, which data and context parallelism share, on nodes of G
 * Layout   a device has room for C tokens in attention: three times the mean, if nobody says.  Samples are placed from
 *          the longest to the shortest, first on nodes, then those of a node on its devices.  At first those of at
 *          least a node's room, G C tokens, are on several nodes, and of the others those of C on several devices:
 *          as many as their share of the work asks for.  Each other one is whole on the node or device with the least
 *          work that has room.  If then one has more tokens than room, or more than 1.04 of the mean work, the bound is
 *          lowered to the next shorter sample, and those at most an eighth shorter.  (The paper lowers it if tokens do
 *          not fit.)  If no bound will do, again with 2, 4, .. times as many nodes or devices for a sample above it; or
 *          else what was best is taken.  A sample on D devices, at least 2D tokens, is cut into 2D parts; the m-th has
 *          parts m and 2D-1-m
 *
 *          nodes of 2, C = 8; samples of 16, 5, 3 and 3 tokens
 *          device 0, 1, 2, 3     16: between nodes
 *          device 0, 1           5: inside one
 *          device 2, device 3    3, 3: local
 *
 * Order    rings between nodes, then those inside nodes, then whole samples
 * Sends    forward   (D-1) messages of 2 n K A elements from each device of a ring of D, as hdp.c; to another node as
 *                    in proxies.h.  Rows as in remap.h: here queries, keys, values and results are moved, where the
 *                    paper moves what enters and leaves the attention module
 *          backward  see planned.h
 * Memory   kept: the log-sum-exp.  In a pass: see planned.h
 * Equals   permutes rows and messages; reassociates samples on several devices
 *
 * Called by: plan/context.c (plan), model/run/run_attention.c (passes, which are planned.c's).  Errors: ERR_PLAN if
 * devices are not whole nodes or samples do not fit; ERR_MEMORY.
 */
#include "emulated_devices/schemes/attention/planned/context_invariants.h"
#include "emulated_devices/schemes/attention/planned/planned.h"
#include "emulated_devices/schemes/attention/planned/remap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct planned_part zeppelin_parts[] = {
    [REMAP] = { "remap", "outside attention rows lie as in attention" },
    [ROUTING] = { "routing", "a message to another node goes straight" },
    [NODES] = { "nodes", "samples are placed on devices at once, wherever their nodes are" },
    { NULL, NULL },
};

static bool has(const struct context_load *load, enum zeppelin_part part) { return !(load->without & 1u << part); }

/* The devices of a bin of the first pass: a node, or all devices at once. */
static int placed_together(const struct context_load *load) { return has(load, NODES) ? load->node : load->devices; }

enum { LEAST = 2 };                     /* tokens of a device: fewer cannot be balanced */

static const double BALANCED = 1.04;

/* Nodes, or the devices of a node, with what they have; what is behind the last one is never read. */
struct bins {
    int count, devices;                 /* devices of a bin */
    int64_t room;                       /* tokens of a bin */
    double mean;                        /* work of a bin, in pairs */
    double busy[MESH_MOST_LISTED];
    int64_t tokens[MESH_MOST_LISTED];
};

/* Arrays of [samples][bins] say which bins have a sample. */
struct zeppelin {
    const struct context_load *load;
    struct interval *sample;            /* [samples] the longest first */
    char *nodes, *devices, *trial;      /* [samples][nodes], [samples][devices of its nodes], [samples][either] */
    int *node;                          /* [samples] the only one, or -1 */
    struct bins at, tried;
};

/* Count the pairs of a query and a key in a causal sample of s tokens. */
static double pairs_of(int64_t s) { return (double)s * (double)(s + 1) / 2; }

/* ---- bins -------------------------------------------------------------------------------------------------------- */

/* Only the bins in use are copied; the arrays have room for the largest mesh. */
static void copy_bins(struct bins *to, const struct bins *bins)
{
    to->count = bins->count, to->devices = bins->devices, to->room = bins->room, to->mean = bins->mean;
    memcpy(to->busy, bins->busy, (size_t)bins->count * sizeof *bins->busy);
    memcpy(to->tokens, bins->tokens, (size_t)bins->count * sizeof *bins->tokens);
}

static void empty_bins(struct bins *bins, int count, int devices)
{
    bins->count = count, bins->devices = devices;
    memset(bins->busy, 0, (size_t)count * sizeof *bins->busy);
    memset(bins->tokens, 0, (size_t)count * sizeof *bins->tokens);
}

/* The least busy bin without the sample; if it has to fit, of those with room, or else that with the fewest tokens. */
static int least_busy(const struct bins *bins, const char *in, int64_t fits)
{
    int best = -1, emptiest = 0;
    for (int i = 0; i < bins->count; i++) {
        if (bins->tokens[i] < bins->tokens[emptiest]) emptiest = i;
        if (in[i] || (fits > 0 && bins->tokens[i] + fits > bins->room)) continue;
        if (best < 0 || bins->busy[i] < bins->busy[best]) best = i;
    }
    return best < 0 ? emptiest : best;
}

/* Mark the bins that get a sample, and add its work and tokens to them in equal parts. */
static void zeppelin_put(struct bins *bins, char *in, int64_t s, int parts)
{
    /* A sample on several bins takes the least busy ones, whether or not they have room. */
    for (int i = 0; i < parts; i++) in[least_busy(bins, in, parts > 1 ? 0 : s)] = 1;
    for (int i = 0; i < bins->count; i++)
        if (in[i]) bins->busy[i] += pairs_of(s) / parts, bins->tokens[i] += (s + parts - 1) / parts;
}

/* How many bins a sample gets: `finer` times as many as its share of the work asks for; all, if so many are all. */
static int parts_of(const struct bins *bins, int64_t s, int finer)
{
    /* A sample is cut no finer than LEAST tokens a device. */
    const int64_t room = s / (LEAST * bins->devices), most = room < bins->count ? room : bins->count;
    int64_t parts = finer >= bins->count ? most : (int64_t)ceil(finer * pairs_of(s) / bins->mean);
    /* A sample needs at least as many bins as its tokens fill. */
    if (parts < (s + bins->room - 1) / bins->room) parts = (s + bins->room - 1) / bins->room;
    return (int)(most < 2 ? 1 : parts < 2 ? 2 : parts > most ? most : parts);
}

/* The busiest bin's work over the mean; much more if its tokens do not fit. */
static double worst_of(const struct bins *bins)
{
    double worst = 1;
    for (int i = 0; i < bins->count; i++) {
        const double busy = bins->mean > 0 ? bins->busy[i] / bins->mean : 1,
            full = (double)bins->tokens[i] / (double)bins->room;
        if (busy > worst) worst = busy;
        if (full > 1 && 1e6 * full > worst) worst = 1e6 * full;
    }
    return worst;
}

/* The next bound: the next shorter of some samples, and those that are at most an eighth shorter; 0: none. */
static int64_t next_bound(const struct zeppelin *zeppelin, int node, int64_t bound)
{
    int64_t longest = 0, next = 0;
    for (int i = 0; i < zeppelin->load->samples; i++) {
        const int64_t s = zeppelin->sample[i].count;
        if (s >= bound || (node >= 0 && zeppelin->node[i] != node)) continue;
        if (longest == 0) longest = s;
        if (8 * s >= 7 * longest) next = s;
    }
    return next;
}

/* Try one bound and one fineness from the bins as they are.  @return worst_of. */
static double zeppelin_place(struct zeppelin *zeppelin, int node, int64_t bound, int finer)
{
    struct bins *const b = &zeppelin->tried;
    copy_bins(b, &zeppelin->at);
    for (int i = 0; i < zeppelin->load->samples; i++) {
        char *const in = zeppelin->trial + (size_t)i * (size_t)b->count;
        /* A node places its own samples alone; samples on several nodes are in the bins already. */
        if (node >= 0 && zeppelin->node[i] != node) continue;
        memset(in, 0, (size_t)b->count);
        const int64_t s = zeppelin->sample[i].count;
        zeppelin_put(b, in, s, s >= bound ? parts_of(b, s, finer) : 1);
    }
    return worst_of(b);
}

/* Copy the places of the last trial into the answer: of all samples, or of one node's. */
static void zeppelin_keep(struct zeppelin *zeppelin, int node, char *to)
{
    const size_t bins = (size_t)zeppelin->at.count;
    for (size_t i = 0; i < (size_t)zeppelin->load->samples; i++)
        if (node < 0 || zeppelin->node[i] == node) memcpy(to + i * bins, zeppelin->trial + i * bins, bins);
}

/* Place samples of the bins in zeppelin->at: all, or those of a node.  @return worst_of the best trial. */
static double zeppelin_spread(struct zeppelin *zeppelin, int node, char *to)
{
    double best = -1;
    /* For each fineness ever shorter samples are cut, until a trial is within 4 percent of balance. */
    for (int finer = 1; finer < 2 * zeppelin->at.count; finer *= 2)
        for (int64_t b = zeppelin->at.room; b > 0 && (best < 0 || best > BALANCED); b = next_bound(zeppelin, node, b)) {
            const double worst = zeppelin_place(zeppelin, node, b, finer);
            if (best < 0 || worst < best) best = worst, zeppelin_keep(zeppelin, node, to);
        }
    return best;
}

/* ---- zones ------------------------------------------------------------------------------------------------------- */

/* A node's devices with their parts of samples on several nodes. */
static void open_node(struct zeppelin *zeppelin, int node)
{
    const int nodes = zeppelin->load->devices / placed_together(zeppelin->load);
    struct bins *const b = &zeppelin->at;
    empty_bins(b, placed_together(zeppelin->load), 1);
    for (int i = 0; i < zeppelin->load->samples; i++) {
        const char *const in = zeppelin->nodes + (size_t)i * (size_t)nodes;
        int D = 0;
        for (int k = 0; k < nodes; k++) D += in[k] ? b->count : 0;
        /* A sample on several nodes takes the same part of each of their devices. */
        for (int d = 0; d < b->count && in[node] && zeppelin->node[i] < 0; d++)
            b->busy[d] += pairs_of(zeppelin->sample[i].count) / D,
                b->tokens[d] += (zeppelin->sample[i].count + D - 1) / D;
    }
}

/* Note each sample's node, or -1 if the sample is on several. */
static void find_nodes(struct zeppelin *zeppelin)
{
    const int nodes = zeppelin->load->devices / placed_together(zeppelin->load);
    for (int i = 0; i < zeppelin->load->samples; i++) {
        int n = 0;
        for (int k = 0; k < nodes; k++)
            if (zeppelin->nodes[(size_t)i * (size_t)nodes + (size_t)k]) n++, zeppelin->node[i] = k;
        if (n > 1) zeppelin->node[i] = -1;
    }
}

/* The devices of a sample, ascending.  @return how many. */
static int devices_of(const struct zeppelin *zeppelin, int i, int device[])
{
    const int G = placed_together(zeppelin->load), nodes = zeppelin->load->devices / G;
    int D = 0;
    for (int k = 0; k < nodes; k++)
        for (int d = 0; d < G && zeppelin->nodes[(size_t)i * (size_t)nodes + (size_t)k]; d++)
            if (zeppelin->node[i] < 0 || zeppelin->devices[(size_t)i * (size_t)G + (size_t)d]) device[D++] = k * G + d;
    return D;
}

enum zone { BETWEEN_NODES, INSIDE_A_NODE, LOCAL, ZONES };

/* Rings of a zone begin when those of the zone before are done. */
static void add_zone(struct context_plan *plan, const struct zeppelin *zeppelin, enum zone zone)
{
    const int begin = plan->divisions;
    int device[MESH_MOST_LISTED];
    for (int i = 0; i < zeppelin->load->samples; i++) {
        const int D = devices_of(zeppelin, i, device);
        if (zone == (zeppelin->node[i] < 0 ? BETWEEN_NODES : D > 1 ? INSIDE_A_NODE : LOCAL))
            context_add_ring(plan, zeppelin->load, zeppelin->sample[i], device, D, begin);
    }
}

/* @return worst_of the nodes or devices with the most work. */
static double place_samples(struct zeppelin *zeppelin)
{
    const struct context_load *const l = zeppelin->load;
    const int together = placed_together(l), nodes = l->devices / together;
    /* Without a given room a device may hold three times the mean. */
    const int64_t mean = (l->tokens + l->devices - 1) / l->devices, room = l->room > 0 ? l->room : 3 * mean;
    double work = 0;
    /* All work of the microbatch, in pairs; the mean of a bin is an equal part of it. */
    for (int i = 0; i < l->samples; i++) work += pairs_of(zeppelin->sample[i].count);
    empty_bins(&zeppelin->at, nodes, together);
    zeppelin->at.room = room * together, zeppelin->at.mean = work / nodes;
    /* Samples are first spread over nodes, then those of each node over its devices. */
    double worst = zeppelin_spread(zeppelin, -1, zeppelin->nodes);
    find_nodes(zeppelin);
    for (int k = 0; k < nodes; k++) {
        zeppelin->at.mean = work / l->devices, zeppelin->at.room = room;
        open_node(zeppelin, k);
        const double here = zeppelin_spread(zeppelin, k, zeppelin->devices);
        if (here > worst) worst = here;
    }
    return worst;
}

static enum error_code check_load(const struct context_load *load, struct error *err)
{
    /* The plan's devices must be whole nodes, or the bins would differ in size. */
    if (load->devices % load->node != 0)
        return fail(err, ERR_PLAN, "zeppelin: %d devices are not whole nodes of %d", load->devices, load->node);
    for (int i = 0; i < load->samples && load->room > 0; i++)
        if (load->length[i] > load->room * load->devices)
            return fail(err, ERR_PLAN, "zeppelin: a sample of %lld tokens is longer than all %d devices hold: %lld "
                        "each", (long long)load->length[i], load->devices, (long long)load->room);
    return OK;
}

/* Plan a microbatch: place samples on nodes and devices, make rings by zones, balance the rows.  Local. */
static enum error_code zeppelin_plan(struct context_plan *plan, const struct context_load *load, struct error *err)
{
    const enum error_code e = check_load(load, err);
    if (e) return e;
    const int together = placed_together(load), nodes = load->devices / together;
    const size_t samples = (size_t)load->samples, bins = (size_t)(nodes > together ? nodes : together);
    struct zeppelin *const z = malloc(sizeof *z);
    char *const in = calloc(3 * samples * bins + 1, 1);
    *plan = (struct context_plan){ .devices = load->devices, .tokens = load->tokens,
                                   .proxies = has(load, ROUTING) && load->devices > load->node ? load->node : 0,
                                   .lost = z == NULL || in == NULL };
    if (!plan->lost) {
        z->load = load, z->sample = context_samples(load), z->node = calloc(samples + 1, sizeof *z->node);
        z->nodes = in, z->devices = in + samples * bins, z->trial = in + 2 * samples * bins;
        plan->lost = z->sample == NULL || z->node == NULL;
    }
    double worst = 0;
    /* Zones follow one another: between nodes, inside a node, local; then rows are balanced. */
    if (!plan->lost) {
        worst = place_samples(z);
        for (enum zone zone = BETWEEN_NODES; zone < ZONES; zone++) add_zone(plan, z, zone);
        if (has(load, REMAP) && !remap_balance(plan, load->node)) plan->lost = true;
    }
    if (!(z == NULL || in == NULL)) free(z->sample), free(z->node);
    free(z), free(in);
    /* A worst of 1e6 or more means that tokens exceed the room, which matters only if the room was given. */
    if (load->room == 0 || worst < 1e6) return context_plan_finish(plan, load, err);
    context_plan_free(plan);
    return fail(err, ERR_PLAN, "zeppelin: samples of %lld tokens do not fit on %d devices that hold %lld each",
                (long long)load->tokens, load->devices, (long long)load->room);
}

const struct attention_scheme attention_scheme_zeppelin = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "zeppelin",
              .description = "a sample is on several nodes, in one or on a device, rows are balanced outside attention",
              .source = "Zeppelin, arXiv:2509.21841",
              .volume = "2 n K A (D-1) elements a layer forward for n tokens of a sample on D devices, and its rows",
              .memory = "log-sum-exp: H numbers a token; in a pass keys of the samples' other devices, and its rows",
              .needs = "nothing", .invariants = zeppelin_invariants },
    .parts = zeppelin_parts, .plan = zeppelin_plan, PLANNED_SCHEME,
};
