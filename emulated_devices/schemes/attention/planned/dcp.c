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
 *          other are no vertices, and nothing is sent for them.  Runs have causal samples only
 * Order    4 divisions, as in the code: in the first what a device has, then what has come; of what a device sends
 *          another, a third in each
 * Sends    forward   a block's keys 2 n K A elements to each other device that needs them; queries n H A, and results
 *                    n H A (wide) and log-sum-exp n H (wide) back.  Here always from the block's home
 *          backward  see planned.h
 * Memory   kept: the log-sum-exp.  In a pass: every block that was moved here
 * Equals   reassociates
 */
#include "emulated_devices/schemes/attention/planned/context_invariants.h"
#include "emulated_devices/schemes/attention/planned/hypergraph.h"
#include "emulated_devices/schemes/attention/planned/planned.h"
#include "emulated_devices/schemes/attention/rings/ring.h"
#include <stdlib.h>

enum { BLOCKS_OF_A_DEVICE = 8, MOST_BLOCKS = 128, DIVISIONS = 4 };

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

static int64_t block_tokens(const struct context_load *l)
{
    /* A small machine gets eight blocks a device; a large one at most 128 in all. */
    const int64_t all = BLOCKS_OF_A_DEVICE * (int64_t)l->devices;
    const int64_t blocks = all < MOST_BLOCKS ? all : MOST_BLOCKS;
    return (l->tokens + blocks - 1) / blocks;
}

/* Blocks, the longest sample first. */
static void cut(struct dcp *d)
{
    const int64_t n = block_tokens(d->load);
    const size_t most = (size_t)(d->load->tokens / n) + (size_t)d->load->samples;
    struct interval *const sample = context_samples(d->load);
    d->sample = malloc((most + 1) * sizeof *d->sample), d->work = malloc((most + 1) * sizeof *d->work);
    d->plan->lost = sample == NULL || d->sample == NULL || d->work == NULL;
    for (int i = 0; i < d->load->samples && !d->plan->lost; i++) {
        /* Blocks do not cross samples, and those of a sample are nearly equal. */
        const int parts = (int)((sample[i].count + n - 1) / n), first = d->plan->blocks;
        for (int k = 0; k < parts && !d->plan->lost; k++) {
            const struct interval tokens = interval_moved(block_at(sample[i].count, parts, k), sample[i].first);
            d->sample[context_add_block(d->plan, tokens, (struct interval){ 0 }, 0)] = first;
        }
    }
    free(sample);
}

/* Works of each block with those of its sample of which it sees something. */
static void pair_up(struct dcp *d)
{
    struct context_plan *const p = d->plan;
    for (int b = 0; b < p->blocks && !p->lost; b++) {
        d->work[b] = p->works;
        for (int key = d->sample[b]; key < p->blocks && d->sample[key] == d->sample[b]; key++) {
            if (context_pairs(d->load, &p->block[b], &p->block[key]) > 0)
                context_add_work(p, (struct context_work){ b, key, 0, 0 });
        }
    }
    if (!p->lost) d->work[p->blocks] = p->works;
}

/* ---- the hypergraph ---------------------------------------------------------------------------------------------- */

static bool open_hypergraph(struct dcp *d)
{
    const size_t blocks = (size_t)d->plan->blocks, works = (size_t)d->plan->works, V = blocks + works;
    d->g = (struct hypergraph){ .vertices = (int)V, .edges = (int)(2 * blocks),
                                .weight = calloc(V + 1, sizeof *d->g.weight),
                                .cost = malloc((2 * blocks + 1) * sizeof *d->g.cost),
                                .first = malloc((2 * blocks + 1) * sizeof *d->g.first),
                                .pin = malloc(2 * (V + 1) * sizeof *d->g.pin) };
    d->device = calloc(V + 1, sizeof *d->device), d->when = malloc((2 * blocks + 1) * sizeof *d->when);
    return d->g.weight && d->g.cost && d->g.first && d->g.pin && d->device && d->when;
}

/* A block's vertex is before those of its works. */
static int vertex_of_block(const struct dcp *d, int b) { return d->work[b] + b; }
static int vertex_of_work(const struct dcp *d, int w) { return w + d->plan->work[w].query + 1; }

static void add_edges(struct dcp *d, int b, int *pins)
{
    const int64_t n = context_block_tokens(&d->plan->block[b]);
    /* A block weighs its tokens (second weight); works weigh pairs (first weight). */
    d->g.weight[vertex_of_block(d, b)][1] = n;
    d->g.cost[2 * b] = 2 * n * d->load->query_width, d->g.cost[2 * b + 1] = n * d->load->key_width;
    d->g.first[2 * b] = *pins;
    /* The first edge of a block joins it to all works with its queries. */
    for (int v = vertex_of_block(d, b); v <= d->work[b + 1] + b; v++) d->g.pin[(*pins)++] = v;
    d->g.first[2 * b + 1] = *pins;
    d->g.pin[(*pins)++] = vertex_of_block(d, b);
    /* The second edge joins it to all works with its keys, whoever asks. */
    for (int q = d->sample[b]; q < d->plan->blocks && d->sample[q] == d->sample[b]; q++)
        for (int w = d->work[q]; w < d->work[q + 1]; w++)
            if (d->plan->work[w].key == b) d->g.pin[(*pins)++] = vertex_of_work(d, w);
}

static void fill_hypergraph(struct dcp *d)
{
    int pins = 0;
    for (int b = 0; b < d->plan->blocks; b++) add_edges(d, b, &pins);
    d->g.first[d->g.edges] = pins;
    for (int w = 0; w < d->plan->works; w++) {
        const struct context_block *const q = &d->plan->block[d->plan->work[w].query],
                                   *const k = &d->plan->block[d->plan->work[w].key];
        d->g.weight[vertex_of_work(d, w)][0] = (int64_t)context_pairs(d->load, q, k);
    }
}

/* First among nodes, then among the devices of each. */
static enum error_code divide(struct dcp *d, struct error *err)
{
    const int R = d->load->devices, per_node = d->load->node, nodes = (R + per_node - 1) / per_node;
    int *const share = calloc(3 * (size_t)R, sizeof *share), *const one = share + R, *const node = one + R;
    int *const in = malloc(((size_t)d->g.vertices + 1) * sizeof *in);
    enum error_code e = share && in ? OK : fail(err, ERR_MEMORY, "no memory to plan for %d devices", R);
    for (int i = 0; i < R && !e; i++) one[i] = 1, node[i] = i / per_node, share[i / per_node]++;
    /* Volume between nodes is made small first, for their links are the slow ones. */
    if (!e) e = hypergraph_divide(in, &d->g, (struct hypergraph_parts){ nodes, share, NULL }, NULL, err);
    if (!e) e = hypergraph_divide(d->device, &d->g, (struct hypergraph_parts){ R, one, node }, in, err);
    free(share), free(in);
    return e;
}

/* ---- the schedule ------------------------------------------------------------------------------------------------ */

static void place(struct dcp *d)
{
    for (int b = 0; b < d->plan->blocks; b++) d->plan->block[b].home = d->device[vertex_of_block(d, b)];
    for (int w = 0; w < d->plan->works; w++) d->plan->work[w].device = d->device[vertex_of_work(d, w)];
}

static int64_t move_size(const struct dcp *d, int i)
{
    const int64_t width = i % 2 == CONTEXT_KEYS ? d->load->key_width : d->load->query_width;
    return width * context_block_tokens(&d->plan->block[i / 2]);
}

/* A device receives what it needs and does not have: in each division a third of what another device sends it. */
static void receive(struct dcp *d, int device, int64_t all[], int64_t before[])
{
    for (int i = 0; i < d->load->devices; i++) all[i] = before[i] = 0;
    for (int i = 0; i < 2 * d->plan->blocks; i++)
        if (d->when[i] > 0) all[d->plan->block[i / 2].home] += move_size(d, i);
    for (int i = 0; i < 2 * d->plan->blocks; i++) {
        if (d->when[i] <= 0) continue;
        const int home = d->plan->block[i / 2].home;
        const int division = (int)((DIVISIONS - 1) * before[home] / all[home]);
        context_add_move(d->plan, (struct context_move){ (enum context_data)(i % 2), i / 2, home, device, division });
        d->when[i] = division + 1, before[home] += move_size(d, i);
        if (division + 2 > d->plan->divisions) d->plan->divisions = division + 2;
    }
}

/* Works as soon as what they need has come. */
static void schedule(struct dcp *d, int device, int64_t all[], int64_t before[])
{
    struct context_plan *const p = d->plan;
    for (int i = 0; i < 2 * p->blocks; i++) d->when[i] = p->block[i / 2].home == device ? 0 : -1;
    for (int w = 0; w < p->works; w++) {
        int *const needs[] = { &d->when[2 * p->work[w].query + CONTEXT_QUERIES],
                               &d->when[2 * p->work[w].key + CONTEXT_KEYS] };
        for (int i = 0; i < 2 && p->work[w].device == device; i++)
            if (*needs[i] < 0) *needs[i] = 1;
    }
    receive(d, device, all, before);
    for (int w = 0; w < p->works; w++) {
        const int query = d->when[2 * p->work[w].query + CONTEXT_QUERIES];
        const int key = d->when[2 * p->work[w].key + CONTEXT_KEYS];
        if (p->work[w].device == device) p->work[w].division = query > key ? query : key;
    }
}

static enum error_code plan(struct context_plan *plan, const struct context_load *l, struct error *err)
{
    struct dcp d = { .load = l, .plan = plan };
    int64_t *const sums = malloc(2 * (size_t)l->devices * sizeof *sums);
    *plan = (struct context_plan){ .devices = l->devices, .divisions = 1, .tokens = l->tokens };
    cut(&d);
    pair_up(&d);
    const bool ok = sums && !plan->lost && open_hypergraph(&d);
    if (ok) fill_hypergraph(&d);
    enum error_code e = ok ? divide(&d, err) : fail(err, ERR_MEMORY, "no memory to plan %d blocks", plan->blocks);
    if (!e) place(&d);
    for (int i = 0; i < l->devices && !e; i++) schedule(&d, i, sums, sums + l->devices);
    free(sums), free(d.sample), free(d.work), free(d.device), free(d.when);
    hypergraph_free(&d.g);
    if (e) context_plan_free(plan);
    return e ? e : context_plan_finish(plan, l, err);
}

const struct attention_scheme attention_scheme_dcp = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "dcp",
              .description = "blocks and pairs of blocks where least must be sent, planned for each microbatch",
              .source = "DCP, arXiv:2510.10620",
              .volume = "2 n K A elements for keys of n tokens that move, 2 n H A for queries and results",
              .memory = "log-sum-exp: H numbers a token; in a pass all blocks that moved here",
              .needs = "nothing", .invariants = dcp_invariants },
    .plan = plan, PLANNED_SCHEME,
};
