/* attention, dcp: blocks of tokens and pairs of blocks go wherever least must be sent.
 *
 * Source   Jiang et al., "DCP: addressing input dynamism in long-context training via dynamic context parallelism",
 *          SOSP 2025, arXiv:2510.10620, section 4; code: chenyu-jiang/dcp
 * Group    P devices, which data and context parallelism share: a flat group
 * Layout   a sample of s tokens is cut into ceil(s/n) blocks in a row; n = ceil(T/8P) for a microbatch of T tokens, so
 *          that a device has about 8 blocks (with more than 16 devices n = ceil(T/128)).  A block can be on any device
 *
 *          P = 2, samples of 8, 4 and 4 tokens, blocks of one token: the numbers are devices
 *          token  0 1 2 3 4 5 6 7    8 9 10 11   12 13 14 15
 *                 0 0 0 0 1 1 1 1    0 0 0  0    1  1  1  1
 *
 * Plan     a hypergraph: vertices are blocks (weight: tokens) and pairs of blocks that see each other (weight: pairs of
 *          tokens).  A block's queries with their results, and its keys with its values, are an edge each: it has the
 *          block and the pairs that need them, and costs what moving them sends.  Divided (hypergraph.h) first among
 *          nodes, then among the devices of each.  The paper's formula, sum of cost times (devices - 1), is the volume
 * Masks    what tokens see may be any ranges of their sample (context_plan.h): pairs of blocks of which none sees the
 *          other are no vertices, and nothing is sent for them.  Runs have those of --mask
 * Order    4 divisions, as in the code: in the first what a device has, then what has come; of what a device sends
 *          another, a third in each
 * Sends    forward   a block's keys 2 n K A elements to each other device that needs them; queries n H A, and results
 *                    n H A (wide) and log-sum-exp n H (wide) back.  Here always from the block's home
 *          backward  see planned.h
 * Memory   kept: the log-sum-exp.  In a pass: every block that was moved here
 * Equals   reassociates
 *
 * Called by: plan/context.c (plan), model/run/run_attention.c (passes, which are planned.c's).  Errors: ERR_MEMORY or
 * ERR_PLAN of the planner.
 */
#include "emulated_devices/schemes/attention/planned/context_invariants.h"
#include "emulated_devices/schemes/attention/planned/hypergraph.h"
#include "emulated_devices/schemes/attention/planned/planned.h"
#include "emulated_devices/schemes/attention/rings/ring.h"
#include <stdlib.h>

enum { BLOCKS_OF_A_DEVICE = 8, MOST_BLOCKS = 128, DIVISIONS = 4 };

/* The parts that a plan may leave out; load.without has a bit for each. */
enum dcp_part { WITH_DIVISIONS, WITH_NODES };
static const struct planned_part dcp_parts[] = {
    [WITH_DIVISIONS] = { "divisions", "all that a device needs is sent at once, while what needs nothing computes" },
    [WITH_NODES] = { "nodes", "blocks are divided among all devices at once, wherever their nodes are" },
    { NULL, NULL },
};

static bool has(const struct context_load *load, enum dcp_part part) { return !(load->without & 1u << part); }

struct dcp {
    const struct context_load *load;
    struct context_plan *plan;          /* works are added with no device: those of a block follow one another */
    int *sample;                        /* [blocks] the first block of its sample */
    int *work;                          /* [blocks + 1] the first work of each */
    struct hypergraph g;
    int *device;                        /* [vertices] block 0, its works, block 1, ... */
    int *when;                          /* [blocks][2] of one device: from which division on it has them; -1: never */
};

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static int64_t block_tokens(const struct context_load *load)
{
    /* A small machine gets eight blocks a device; a large one at most 128 in all. */
    const int64_t all = BLOCKS_OF_A_DEVICE * (int64_t)load->devices;
    const int64_t blocks = all < MOST_BLOCKS ? all : MOST_BLOCKS;
    return (load->tokens + blocks - 1) / blocks;
}

/* Cut all samples into blocks, the longest sample first. */
static void dcp_cut(struct dcp *dcp)
{
    const int64_t n = block_tokens(dcp->load);
    const size_t most = (size_t)(dcp->load->tokens / n) + (size_t)dcp->load->samples;
    struct interval *const sample = context_samples(dcp->load);
    dcp->sample = malloc((most + 1) * sizeof *dcp->sample), dcp->work = malloc((most + 1) * sizeof *dcp->work);
    dcp->plan->lost = sample == NULL || dcp->sample == NULL || dcp->work == NULL;
    for (int i = 0; i < dcp->load->samples && !dcp->plan->lost; i++) {
        /* Blocks do not cross samples, and those of a sample are nearly equal. */
        const int parts = (int)((sample[i].count + n - 1) / n), first = dcp->plan->blocks;
        for (int k = 0; k < parts && !dcp->plan->lost; k++) {
            const struct interval tokens = interval_moved(block_at(sample[i].count, parts, k), sample[i].first);
            dcp->sample[context_add_block(dcp->plan, tokens, (struct interval){ 0 }, 0)] = first;
        }
    }
    free(sample);
}

/* Add the works of each block with those blocks of its sample of which it sees something. */
static void pair_up(struct dcp *dcp)
{
    struct context_plan *const p = dcp->plan;
    for (int b = 0; b < p->blocks && !p->lost; b++) {
        dcp->work[b] = p->works;
        for (int key = dcp->sample[b]; key < p->blocks && dcp->sample[key] == dcp->sample[b]; key++) {
            if (context_pairs(dcp->load, &p->block[b], &p->block[key]) > 0)
                context_add_work(p, (struct context_work){ b, key, 0, 0 });
        }
    }
    if (!p->lost) dcp->work[p->blocks] = p->works;
}

/* ---- the hypergraph ---------------------------------------------------------------------------------------------- */

/* Allocate V vertices for blocks and works, and two edges for each block: its queries, its keys. */
static bool open_hypergraph(struct dcp *dcp)
{
    const size_t blocks = (size_t)dcp->plan->blocks, works = (size_t)dcp->plan->works, V = blocks + works;
    dcp->g = (struct hypergraph){ .vertices = (int)V, .edges = (int)(2 * blocks),
                                .weight = calloc(V + 1, sizeof *dcp->g.weight),
                                .cost = malloc((2 * blocks + 1) * sizeof *dcp->g.cost),
                                .first = malloc((2 * blocks + 1) * sizeof *dcp->g.first),
                                .pin = malloc(2 * (V + 1) * sizeof *dcp->g.pin) };
    dcp->device = calloc(V + 1, sizeof *dcp->device), dcp->when = malloc((2 * blocks + 1) * sizeof *dcp->when);
    return dcp->g.weight && dcp->g.cost && dcp->g.first && dcp->g.pin && dcp->device && dcp->when;
}

/* A block's vertex is before those of its works. */
static int vertex_of_block(const struct dcp *dcp, int b) { return dcp->work[b] + b; }
static int vertex_of_work(const struct dcp *dcp, int w) { return w + dcp->plan->work[w].query + 1; }

/* Set a block's weight and its two edges; *pins is the next free entry of the list of pins. */
static void add_edges(struct dcp *dcp, int b, int *pins)
{
    const int64_t n = context_block_tokens(&dcp->plan->block[b]);
    /* A block weighs its tokens (second weight); works weigh pairs (first weight). */
    dcp->g.weight[vertex_of_block(dcp, b)][1] = n;
    dcp->g.cost[2 * b] = 2 * n * dcp->load->query_width, dcp->g.cost[2 * b + 1] = n * dcp->load->key_width;
    dcp->g.first[2 * b] = *pins;
    /* The first edge of a block joins it to all works with its queries. */
    for (int v = vertex_of_block(dcp, b); v <= dcp->work[b + 1] + b; v++) dcp->g.pin[(*pins)++] = v;
    dcp->g.first[2 * b + 1] = *pins;
    dcp->g.pin[(*pins)++] = vertex_of_block(dcp, b);
    /* The second edge joins it to all works with its keys, whoever asks. */
    for (int q = dcp->sample[b]; q < dcp->plan->blocks && dcp->sample[q] == dcp->sample[b]; q++)
        for (int w = dcp->work[q]; w < dcp->work[q + 1]; w++)
            if (dcp->plan->work[w].key == b) dcp->g.pin[(*pins)++] = vertex_of_work(dcp, w);
}

static void fill_hypergraph(struct dcp *dcp)
{
    int pins = 0;
    for (int b = 0; b < dcp->plan->blocks; b++) add_edges(dcp, b, &pins);
    dcp->g.first[dcp->g.edges] = pins;
    for (int w = 0; w < dcp->plan->works; w++) {
        const struct context_block *const q = &dcp->plan->block[dcp->plan->work[w].query],
                                   *const k = &dcp->plan->block[dcp->plan->work[w].key];
        dcp->g.weight[vertex_of_work(dcp, w)][0] = (int64_t)context_pairs(dcp->load, q, k);
    }
}

/* Divide the vertices first among nodes, then among the devices of each node. */
static enum error_code dcp_divide(struct dcp *dcp, struct error *err)
{
    const int R = dcp->load->devices, per_node = has(dcp->load, WITH_NODES) ? dcp->load->node : R;
    const int nodes = (R + per_node - 1) / per_node;
    int *const share = calloc(3 * (size_t)R, sizeof *share), *const one = share + R, *const node = one + R;
    int *const in = malloc(((size_t)dcp->g.vertices + 1) * sizeof *in);
    enum error_code e = share && in ? OK : fail(err, ERR_MEMORY, "no memory to plan for %d devices", R);
    for (int i = 0; i < R && !e; i++) one[i] = 1, node[i] = i / per_node, share[i / per_node]++;
    /* Volume between nodes is made small first, for their links are the slow ones. */
    if (!e) e = hypergraph_divide(in, &dcp->g, (struct hypergraph_parts){ nodes, share, NULL }, NULL, err);
    if (!e) e = hypergraph_divide(dcp->device, &dcp->g, (struct hypergraph_parts){ R, one, node }, in, err);
    free(share), free(in);
    return e;
}

/* ---- the schedule ------------------------------------------------------------------------------------------------ */

/* The parts of the hypergraph are devices: homes of blocks, and devices of works. */
static void dcp_place(struct dcp *dcp)
{
    for (int b = 0; b < dcp->plan->blocks; b++) dcp->plan->block[b].home = dcp->device[vertex_of_block(dcp, b)];
    for (int w = 0; w < dcp->plan->works; w++) dcp->plan->work[w].device = dcp->device[vertex_of_work(dcp, w)];
}

/* Return the numbers that a move of entry i of `when` sends: queries and keys of block i / 2 take turns. */
static int64_t move_size(const struct dcp *dcp, int i)
{
    const int64_t width = i % 2 == CONTEXT_KEYS ? dcp->load->key_width : dcp->load->query_width;
    return width * context_block_tokens(&dcp->plan->block[i / 2]);
}

/* A device receives what it needs and does not have: in each division a third of what another device sends it. */
static void dcp_receive(struct dcp *dcp, int device, int64_t all[], int64_t before[])
{
    /* all[home] becomes what this device receives from a home; before[home] what is already scheduled. */
    for (int i = 0; i < dcp->load->devices; i++) all[i] = before[i] = 0;
    for (int i = 0; i < 2 * dcp->plan->blocks; i++)
        if (dcp->when[i] > 0) all[dcp->plan->block[i / 2].home] += move_size(dcp, i);
    for (int i = 0; i < 2 * dcp->plan->blocks; i++) {
        if (dcp->when[i] <= 0) continue;
        const int home = dcp->plan->block[i / 2].home;
        const int parts = has(dcp->load, WITH_DIVISIONS) ? DIVISIONS - 1 : 1;
        const int division = (int)(parts * before[home] / all[home]);
        context_add_move(dcp->plan, (struct context_move){ (enum context_data)(i % 2), i / 2, home, device, division });
        dcp->when[i] = division + 1, before[home] += move_size(dcp, i);
        if (division + 2 > dcp->plan->divisions) dcp->plan->divisions = division + 2;
    }
}

/* Give the works of one device the first division in which both their blocks are there. */
static void schedule(struct dcp *dcp, int device, int64_t all[], int64_t before[])
{
    struct context_plan *const p = dcp->plan;
    /* An entry of 0 says that the device has the data from the start; 1 that the device needs the data; -1 neither. */
    for (int i = 0; i < 2 * p->blocks; i++) dcp->when[i] = p->block[i / 2].home == device ? 0 : -1;
    for (int w = 0; w < p->works; w++) {
        int *const needs[] = { &dcp->when[2 * p->work[w].query + CONTEXT_QUERIES],
                               &dcp->when[2 * p->work[w].key + CONTEXT_KEYS] };
        for (int i = 0; i < 2 && p->work[w].device == device; i++)
            if (*needs[i] < 0) *needs[i] = 1;
    }
    dcp_receive(dcp, device, all, before);
    for (int w = 0; w < p->works; w++) {
        const int query = dcp->when[2 * p->work[w].query + CONTEXT_QUERIES];
        const int key = dcp->when[2 * p->work[w].key + CONTEXT_KEYS];
        if (p->work[w].device == device) p->work[w].division = query > key ? query : key;
    }
}

/* Cut, pair, divide, place and schedule; the finished plan is checked before anyone uses it. */
static enum error_code dcp_plan(struct context_plan *plan, const struct context_load *load, struct error *err)
{
    struct dcp d = { .load = load, .plan = plan };
    int64_t *const sums = malloc(2 * (size_t)load->devices * sizeof *sums);
    *plan = (struct context_plan){ .devices = load->devices, .divisions = 1, .tokens = load->tokens };
    dcp_cut(&d);
    pair_up(&d);
    const bool ok = sums && !plan->lost && open_hypergraph(&d);
    if (ok) fill_hypergraph(&d);
    enum error_code e = ok ? dcp_divide(&d, err) : fail(err, ERR_MEMORY, "no memory to plan %d blocks", plan->blocks);
    if (!e) dcp_place(&d);
    for (int i = 0; i < load->devices && !e; i++) schedule(&d, i, sums, sums + load->devices);
    /* The plan keeps nothing of the search. */
    free(sums), free(d.sample), free(d.work), free(d.device), free(d.when);
    hypergraph_free(&d.g);
    if (e) context_plan_free(plan);
    return e ? e : context_plan_finish(plan, load, err);
}

const struct attention_scheme attention_scheme_dcp = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "dcp",
              .description = "blocks and pairs of blocks where least must be sent, planned for each microbatch",
              .source = "DCP, arXiv:2510.10620",
              .volume = "2 n K A elements for keys of n tokens that move, 2 n H A for queries and results",
              .memory = "log-sum-exp: H numbers a token; in a pass all blocks that moved here",
              .needs = "nothing", .invariants = dcp_invariants },
    .parts = dcp_parts, .plan = dcp_plan, PLANNED_SCHEME,
};
