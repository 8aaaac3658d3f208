/* attention, dcp: blocks of tokens and pairs of blocks go wherever least must be sent.
 *
 * Source   Jiang et al., "DCP: addressing input dynamism in long-context training via dynamic context parallelism",
 *          SOSP 2025, arXiv:2510.10620, section 4; code: chenyu-jiang/dcp
 * Group    P devices, which data and context parallelism share: a flat group
 * Layout   a sample of s tokens is cut into ceil(s/n) blocks in a row; n = ceil(T/8P) for a microbatch of T tokens, so
 *          that a device has about 8 blocks; 4 of more than 32 devices.  A block can be on any device
 *
 *          P = 2, samples of 8, 4 and 4 tokens, blocks of one token: the numbers are devices
 *          token  0 1 2 3 4 5 6 7    8 9 10 11   12 13 14 15
 *                 0 0 0 0 1 1 1 1    0 0 0  0    1  1  1  1
 *
 * Plan     a hypergraph: vertices are blocks (weight: tokens) and pairs of blocks that see each other (weight: pairs of
 *          tokens).  A block's queries with their results, and its keys with its values, are an edge each: it has the
 *          block and the pairs that need them, and costs what moving them sends.  Divided (dcp_divide.h) first among
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
#include "emulated_devices/schemes/attention/planned/dcp_divide.h"
#include "emulated_devices/schemes/attention/planned/planned.h"
#include "emulated_devices/schemes/attention/rings/ring.h"
#include <stdlib.h>

enum { DIVISIONS = 4 };

/* Small blocks make work even, and each is a message and a kernel.  A device has 8 blocks while there are few in all,
 * and 4 on many devices: `orrery bench published --only dcp-masks --every` and `bench lengths --devices 64`, with
 * others. */
enum { BLOCKS_OF_A_DEVICE = 8, LEAST_BLOCKS_OF_A_DEVICE = 4, FEW_BLOCKS = 128 };

/* The parts that a plan may leave out; load.without has a bit for each. */
enum dcp_part { WITH_DIVISIONS, WITH_NODES };
static const struct planned_part dcp_parts[] = {
    [WITH_DIVISIONS] = { "divisions", "all that a device needs is sent at once, while what needs nothing computes" },
    [WITH_NODES] = { "nodes", "blocks are divided among all devices at once, wherever their nodes are" },
    { NULL, NULL },
};

static bool dcp_has(const struct context_load *load, enum dcp_part part) { return !(load->without & 1u << part); }

struct dcp {
    const struct context_load *load;
    struct context_plan *plan;          /* works are added with no device: those of a block follow one another */
    int *sample;                        /* [blocks] the first block of its sample */
    int64_t *pairs;                     /* [works] of tokens that see each other */
    int room;                           /* works for which `pairs` has memory */
    int *work;                          /* [works] device after device */
    int *first_work;                    /* [devices + 1] where each device's begin */
    int *when;                          /* [blocks][2] of one device: from which division on it has them; -1: never */
};

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static int64_t block_tokens(const struct context_load *load)
{
    const int64_t P = load->devices, least = LEAST_BLOCKS_OF_A_DEVICE * P;
    int64_t blocks = BLOCKS_OF_A_DEVICE * P;
    if (blocks > FEW_BLOCKS) blocks = least > FEW_BLOCKS ? least : FEW_BLOCKS;
    return (load->tokens + blocks - 1) / blocks;
}

/* Cut all samples into blocks, the longest sample first. */
static void dcp_cut(struct dcp *dcp)
{
    const int64_t n = block_tokens(dcp->load);
    const size_t most = (size_t)(dcp->load->tokens / n) + (size_t)dcp->load->samples;
    struct interval *const sample = context_samples(dcp->load);
    dcp->sample = malloc((most + 1) * sizeof *dcp->sample);
    dcp->plan->lost = sample == NULL || dcp->sample == NULL;
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

/* Keep the pairs of the work that is added next. */
static void keep_pairs(struct dcp *dcp, int64_t pairs)
{
    if (dcp->plan->works == dcp->room) {
        const int room = dcp->room ? 2 * dcp->room : 64;
        int64_t *const longer = realloc(dcp->pairs, (size_t)room * sizeof *longer);
        dcp->plan->lost |= longer == NULL;
        if (longer) dcp->pairs = longer, dcp->room = room;
    }
    if (!dcp->plan->lost) dcp->pairs[dcp->plan->works] = pairs;
}

/* Add the works of each block with those blocks of its sample of which it sees something. */
static void pair_up(struct dcp *dcp)
{
    struct context_plan *const p = dcp->plan;
    for (int b = 0; b < p->blocks && !p->lost; b++)
        for (int key = dcp->sample[b]; key < p->blocks && dcp->sample[key] == dcp->sample[b]; key++) {
            const int64_t pairs = (int64_t)context_pairs(dcp->load, &p->block[b], &p->block[key]);
            if (pairs <= 0 || p->lost) continue;
            keep_pairs(dcp, pairs);
            context_add_work(p, (struct context_work){ b, key, 0, 0 });
        }
}

/* ---- the schedule ------------------------------------------------------------------------------------------------ */

/* List the works of each device, and make room for what one has when. */
static bool list_works(struct dcp *dcp)
{
    const struct context_plan *const p = dcp->plan;
    dcp->work = malloc(((size_t)p->works + 1) * sizeof *dcp->work);
    dcp->first_work = calloc((size_t)p->devices + 2, sizeof *dcp->first_work);
    dcp->when = malloc((2 * (size_t)p->blocks + 1) * sizeof *dcp->when);
    if (!dcp->work || !dcp->first_work || !dcp->when) return false;
    /* first_work[d + 1] is where the next work of device d goes. */
    for (int w = 0; w < p->works; w++) dcp->first_work[p->work[w].device + 2]++;
    for (int d = 0; d < p->devices; d++) dcp->first_work[d + 2] += dcp->first_work[d + 1];
    for (int w = 0; w < p->works; w++) dcp->work[dcp->first_work[p->work[w].device + 1]++] = w;
    return true;
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
        const int parts = dcp_has(dcp->load, WITH_DIVISIONS) ? DIVISIONS - 1 : 1;
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
    for (int i = 0; i < 2 * p->blocks; i++)
        dcp->when[i] = p->block[i / 2].home == device ? 0 : -1;
    for (int i = dcp->first_work[device]; i < dcp->first_work[device + 1]; i++) {
        const struct context_work *const w = &p->work[dcp->work[i]];
        int *const needs[] = { &dcp->when[2 * w->query + CONTEXT_QUERIES], &dcp->when[2 * w->key + CONTEXT_KEYS] };
        for (int k = 0; k < 2; k++)
            if (*needs[k] < 0) *needs[k] = 1;
    }
    dcp_receive(dcp, device, all, before);
    for (int i = dcp->first_work[device]; i < dcp->first_work[device + 1]; i++) {
        struct context_work *const w = &p->work[dcp->work[i]];
        const int query = dcp->when[2 * w->query + CONTEXT_QUERIES], key = dcp->when[2 * w->key + CONTEXT_KEYS];
        w->division = query > key ? query : key;
    }
}

/* Cut, pair, divide and schedule; the finished plan is checked before anyone uses it. */
static enum error_code dcp_plan(struct context_plan *plan, const struct context_load *load, struct error *err)
{
    struct dcp d = { .load = load, .plan = plan };
    int64_t *const sums = malloc(2 * (size_t)load->devices * sizeof *sums);
    *plan = (struct context_plan){ .devices = load->devices, .divisions = 1, .tokens = load->tokens };
    dcp_cut(&d);
    pair_up(&d);
    const struct dcp_pieces pieces = { plan, load, d.sample, d.pairs,
                                       dcp_has(load, WITH_NODES) ? load->node : load->devices };
    enum error_code e = sums && !plan->lost ? dcp_divide(&pieces, err)
                                            : fail(err, ERR_MEMORY, "no memory to plan %d blocks", plan->blocks);
    if (!e && !list_works(&d)) e = fail(err, ERR_MEMORY, "no memory to plan %d works", plan->works);
    for (int i = 0; i < load->devices && !e; i++) schedule(&d, i, sums, sums + load->devices);
    /* The plan keeps nothing of the search. */
    free(sums), free(d.sample), free(d.pairs), free(d.work), free(d.first_work), free(d.when);
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
