/* outer.c -- copies of the model that train apart: what they are made of, and the step at the end of each round.
 *
 * The rule is that of ref/optim/outer.h; its arithmetic is in device/outward.c.  Each device steps outward what it
 * steps inward.  The outer gradient needs no memory of its own: gradients are zero after the inner step, and theirs has
 * its size and format.
 *
 * What lies on the slow tier is copied to the device as it is stepped, in slices of --offload-slice elements.  A round
 * has one such step, so nothing overlaps it.
 *
 * Units are reduced one by one, not as one block: a tied embedding is a unit on both stages that hold it, so both add
 * up the replicas in one order and keep the same bits, without a message between them.
 *
 * The chain calls outer_after at the end of data_step.  The all-reduce is collective over devices at the same place
 * in all replicas.  Errors are ERR_MEMORY, ERR_COMM, ERR_FILE, and ERR_PLAN where the rule divides by a rate of 0.
 */
#include "emulated_devices/schemes/data/stages/offload.h"
#include "emulated_devices/device/compute.h"
#include <math.h>
#include <stdlib.h>

const char *share_replica(struct shards *shards, const struct data_request *request)
{
    if (request->shards[0] > 0 && request->group > 0) return "takes --shards W,G,O or --shard-group, not both";
    /* A replica's size is the third number of --shards, or --shard-group, or 1. */
    if (request->shards[0] > 0) shards->weights = request->shards[0], shards->gradients = request->shards[1],
        shards->optimizer = request->shards[2];
    else shards->weights = shards->gradients = shards->optimizer = request->group > 0 ? request->group : 1;
    return shards->P > 1 && shards->optimizer == shards->P
               ? "all devices along --dp would be one replica; fewer must share the optimizer's state"
               : NULL;
}

/* Devices that step the same in all replicas: at one place in each, also of experts that only some devices have. */
struct outer_stage { struct group replicas; };

static struct outer_stage *outer_own_state(const struct data_parallel *dp) { return chain_state(dp, &stage_outer); }

static bool outer_takes_part(const struct data_parallel *dp) { return dp->shards.apart; }

/* Some rules divide by the optimizer's rate. */
static enum error_code check_rates(const struct data_parallel *dp, struct error *err)
{
    const struct hyperparameters *h = dp->hyper;
    return isfinite(dp->scheme->outward(&dp->outer, learning_rate_least(h)).take)
               ? OK
               : fail(err, ERR_PLAN, "--data-parallel %s: divides by the learning rate, so --lr and --min-lr must be "
                                     "above 0", dp->scheme->head.name);
}

static enum error_code open_group(struct data_parallel *dp, struct error *err)
{
    struct outer_stage *o = outer_own_state(dp);
    const int stride = dp->shards.optimizer, R = shards_replicas(&dp->shards);
    int *ranks = malloc(sizeof *ranks * (size_t)R);
    enum error_code e = ranks ? check_rates(dp, err) : fail(err, ERR_MEMORY, "no memory for a group of %d devices", R);
    /* Replica i is `stride` ranks: members at the same place hold the same part. */
    for (int i = 0; i < R && !e; i++) ranks[i] = dp->group->member[dp->shards.rank % stride + i * stride];
    if (!e) e = group_of(&o->replicas, dp->group->comm, ranks, R, dp->group->kind, dp->group->axes, err);
    free(ranks);
    return e;
}

static void close_group(struct data_parallel *dp)
{
    group_close(&outer_own_state(dp)->replicas);
}

/* Rules without momentum keep none (-1). */
static int64_t momentum_elements(const struct data_parallel *dp, const struct unit *unit, enum tensor_kind kind)
{
    (void)kind;
    return outer_has_momentum(&dp->outer) ? kept_elements(unit, BY_OPTIMIZER) : -1;
}

void data_start_round(struct data_parallel *dp)
{
    for (int i = 0; i < dp->units && outer_takes_part(dp); i++) {
        const struct unit *u = &dp->unit[i];
        /* The anchor is the weights at the beginning of the round. */
        device_convert(dp->device, u->anchor, data_kept_tensor(dp, u, KIND_MASTER));
        device_zero(dp->device, u->momentum);
    }
}

/* ---- the outer step ---------------------------------------------------------------------------------------------- */

/* Elements of a unit that are stepped at once: all, or a slice if something lies on the slow tier. */
static int64_t most_at_once(const struct data_parallel *dp, const struct unit *unit)
{
    const int64_t n = kept_elements(unit, BY_OPTIMIZER);
    return dp->request.offload && dp->request.offload_slice < n ? dp->request.offload_slice : n;
}

/* An operand is a tensor of the step, for a part of a unit.  `home` is where the operand lies, `here` its copy on the
 * device. */
enum { GRADIENT, ANCHOR, THETA, MOMENTUM, WEIGHT, OPERANDS };
struct operand { enum arena_tag tag; enum tensor_kind kind; bool read, written; struct tensor home, here; };

/* The momentum takes part only if the rule has one; the rounded weight only if there are masters. */
static bool outer_takes(const struct data_parallel *dp, int operand)
{
    return operand == MOMENTUM ? outer_has_momentum(&dp->outer) : operand != WEIGHT || data_has_masters(dp);
}

/* Gradients are zero here, wherever they lie: what is on the tier need not be moved. */
static struct operand operand_of(const struct data_parallel *dp, int operand)
{
    static const struct operand all[] = {
        [GRADIENT] = { .tag = GRADIENTS, .kind = KIND_GRADIENT },
        [ANCHOR] = { OPTIMIZER, KIND_ANCHOR, .read = true, .written = true },
        [THETA] = { OPTIMIZER, KIND_MASTER, .read = true, .written = true },
        [MOMENTUM] = { OPTIMIZER, KIND_MOMENTUM, .read = true, .written = true },
        [WEIGHT] = { PARAMETERS, KIND_WEIGHT, .written = true },
    };
    struct operand o = all[operand];
    if (operand == THETA && !data_has_masters(dp)) o.tag = PARAMETERS;
    return o;
}

/* borrow_operands brings the operands of part `own` to the device, or takes views of those that are there. */
static enum error_code borrow_operands(struct data_parallel *dp, const struct unit *unit, struct interval own,
                                       struct operand operand[], struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < OPERANDS && !e; i++) {
        operand[i] = operand_of(dp, i);
        if (!outer_takes(dp, i)) continue;
        const struct tensor all = i == WEIGHT ? stepped_weights(unit) : data_kept_tensor(dp, unit, operand[i].kind);
        operand[i].home = slice(all, own);
        e = borrow(dp, operand[i].tag, operand[i].home, operand[i].read, &operand[i].here, err);
    }
    return e;
}

/* Every operand is given back, also after an error; only then are results not written. */
static enum error_code give_operands(struct data_parallel *dp, struct operand operand[], struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < OPERANDS; i++) {
        const enum error_code given = give(dp, operand[i].home, operand[i].here, operand[i].written && !e, err);
        if (!e) e = given;
    }
    return e;
}

/* step_operands_outward does the outer step on operands that are on the device.  All replicas make this call for the
 * same part. */
static enum error_code step_operands_outward(struct data_parallel *dp, struct group *replicas, struct operand operand[],
                                             struct outward outward, struct error *err)
{
    const struct tensor g = operand[GRADIENT].here, theta = operand[THETA].here, anchor = operand[ANCHOR].here,
                        momentum = operand[MOMENTUM].here;
    const bool moves = tensor_present(momentum);
    /* g = anchor - theta: how far this replica has gone. */
    device_outward_way(dp->device, g, anchor, theta);
    dev_charge(dp->device, "outer gradient", g, 3, 1);
    const enum error_code e = allreduce(replicas, g.data, tensor_count(g), g.dtype, SUM, dp->allreduce, err);
    if (e) return e;
    /* g / replicas is the mean way; anchor and momentum take the outer step, and theta becomes the anchor. */
    device_outward_step(dp->device, theta, anchor, momentum, g, replicas->size, outward);
    dev_charge(dp->device, "outer step", g, moves ? 6 : 4, moves ? 7 : 3);
    device_zero(dp->device, g);
    if (!tensor_present(operand[WEIGHT].here)) return OK;
    device_convert(dp->device, operand[WEIGHT].here, theta);
    dev_charge(dp->device, "round weights", theta, 2, 1);
    return OK;
}

/* step_part does the outer step for one part of a unit, and returns the first error. */
static enum error_code step_part(struct data_parallel *dp, const struct unit *unit, struct interval own,
                                 struct outward outward, struct error *err)
{
    struct operand o[OPERANDS] = { { 0 } };
    enum error_code e = borrow_operands(dp, unit, own, o, err);
    if (!e) e = step_operands_outward(dp, &outer_own_state(dp)->replicas, o, outward, err);
    const enum error_code given = give_operands(dp, o, err);
    return e ? e : given;
}

/* outer_step_unit steps a unit part by part, then shares its new weights as an inner step does. */
static enum error_code outer_step_unit(struct data_parallel *dp, struct unit *unit, struct outward outward,
                                       struct error *err)
{
    const int64_t n = kept_elements(unit, BY_OPTIMIZER), most = most_at_once(dp, unit);
    enum error_code e = OK;
    /* Parts bound the copies of what lies on the slow tier. */
    for (int64_t at = 0; at < n && !e; at += most)
        e = step_part(dp, unit, (struct interval){ at, n - at < most ? n - at : most }, outward, err);
    return e || n == 0 ? e : share_weights(dp, unit, err);
}

/* At the end of a round. */
static enum error_code outer_after(struct data_parallel *dp, int64_t t, struct error *err)
{
    enum error_code e = OK;
    if (!outer_follows(&dp->outer, t)) return OK;
    const struct outward f = dp->scheme->outward(&dp->outer, learning_rate(dp->hyper, t));
    dp->stepped_outward = true;
    for (int i = 0; i < dp->units && !e; i++) e = outer_step_unit(dp, &dp->unit[i], f, err);
    return e ? e : share_weights(dp, NULL, err);
}

/* ---- prediction -------------------------------------------------------------------------------------------------- */

/* Calls f for each part that is stepped at once. */
static void each_part(const struct data_parallel *dp,
                      void (*f)(void *context, const struct data_parallel *, const struct unit *, int64_t n),
                      void *context)
{
    for (int i = 0; i < dp->units && outer_takes_part(dp); i++) {
        const int64_t n = kept_elements(&dp->unit[i], BY_OPTIMIZER), most = most_at_once(dp, &dp->unit[i]);
        for (int64_t at = 0; at < n; at += most) f(context, dp, &dp->unit[i], n - at < most ? n - at : most);
    }
}

/* The cost of a part is an all-reduce of n gradients among the replicas. */
static void add_part_cost(void *sum, const struct data_parallel *dp, const struct unit *unit, int64_t n)
{
    (void)unit;
    const struct collective c = { .count = n, .dtype = data_format(dp, KIND_GRADIENT) };
    account_add(sum, group_cost(&outer_own_state(dp)->replicas, ALLREDUCE, dp->allreduce, &c), 1);
}

/* add_part_moves counts the reads and writes of borrow_operands and give_operands. */
static void add_part_moves(void *sum, const struct data_parallel *dp, const struct unit *unit, int64_t n)
{
    for (int i = 0; i < OPERANDS; i++) {
        const struct operand o = operand_of(dp, i);
        if (!outer_takes(dp, i) || !unit_offloads(dp, unit, o.tag)) continue;
        if (o.read) add_reads(sum, 1, n, data_format(dp, o.kind));
        if (o.written) add_writes(sum, 1, n, data_format(dp, o.kind));
    }
}

/* The longest part whose tensors with a tag are on the slow tier. */
struct longest_part { enum arena_tag tag; int64_t elements; };

static void keep_longest(void *longest, const struct data_parallel *dp, const struct unit *unit, int64_t n)
{
    struct longest_part *const most = longest;
    if (n > most->elements && unit_offloads(dp, unit, most->tag)) most->elements = n;
}

/* New weights are shared in the step that it ends, as in any other. */
struct account data_outer_cost(const struct data_parallel *dp)
{
    struct account sum = { 0 };
    each_part(dp, add_part_cost, &sum);
    return sum;
}

struct tier_traffic data_outer_moves(const struct data_parallel *dp)
{
    struct tier_traffic sum = { 0 };
    each_part(dp, add_part_moves, &sum);
    return sum;
}

/* Copies of the longest part. */
static void outer_passing(const struct data_parallel *dp, struct model_state *sum)
{
    struct model_state copies = { 0 };
    for (int i = 0; i < OPERANDS && dp->stepped_outward; i++) {
        const struct operand o = operand_of(dp, i);
        struct longest_part longest = { .tag = o.tag };
        if (!outer_takes(dp, i)) continue;
        each_part(dp, keep_longest, &longest);
        *model_state_of(&copies, o.tag) += (uint64_t)longest.elements * dtype_size(data_format(dp, o.kind));
    }
    if (copies.weights > sum->weights) sum->weights = copies.weights;
    if (copies.gradients > sum->gradients) sum->gradients = copies.gradients;
    if (copies.optimizer > sum->optimizer) sum->optimizer = copies.optimizer;
}

const struct data_stage stage_outer = {
    .name = "outer step", .of_the_step = true, .takes_part = outer_takes_part,
    .state = sizeof (struct outer_stage), .outline = open_group,
    .close = close_group, .after = outer_after,
    .passing = outer_passing,
    .keeps = { { offsetof(struct unit, anchor), OPTIMIZER, KIND_ANCHOR, NULL },
               { offsetof(struct unit, momentum), OPTIMIZER, KIND_MOMENTUM, momentum_elements } }, .kept = 2,
};
