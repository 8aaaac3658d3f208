/* rsa_exact.c -- ring self-attention with exact sums: keys travel around the ring, then values, as in rsa.c.
 *
 * No scores are stored: exact sums are computed from queries and keys, forward and backward.  So a device keeps the
 * blocks that come by during a pass, and attends to a member's keys when both its keys and its values are there.
 *
 *          forward   keys around the ring      tops of all queries
 *                    values around the ring    sums of the keys of each block, which are rounded once
 *          backward  values around the ring
 *                    keys around the ring      dQ, and what this device's queries add to dK, dV of all tokens
 *                    all-reduce of dK, dV      EXACT sums; keep the own rows
 *
 * Memory   forward: keys and values of B S tokens; backward: also as many EXACT sums
 *
 * Called by: rsa.c.  Errors: ERR_MEMORY, ERR_COMM of a failed all-reduce; a failed ring message ends the job.
 */
#include "emulated_devices/schemes/attention/blocks.h"
#include "emulated_devices/schemes/attention/rings/ring.h"

enum what { KEYS, VALUES };

struct rsa_exact {
    struct cp_pass pass;
    struct tensor moving[2];            /* blocks on their way: [longest, K A] */
    struct tensor all, d_all;           /* [B S, 2 K A]: keys and values of all members by blocks; their gradients */
    struct block_results results;
    struct block_gradients gradients;
};

static int64_t rsa_exact_width(const struct rsa_exact *rsa) { return cp_keys_width(rsa->pass.cp) / 2; }

static struct tensor rsa_exact_block(const struct rsa_exact *rsa, struct tensor all, int member)
{
    const struct cp_pass *const g = &rsa->pass;
    return tensor_rows_of(all, g->B * g->at.start[member], g->B * positions_count(&g->at, member));
}

/* After an error rsa_exact_close is still due. */
static enum error_code rsa_exact_open(struct rsa_exact *rsa, struct error *err)
{
    struct cp_pass *const g = &rsa->pass;
    const enum error_code e = cp_open(g, rsa->moving, 2, g->own, g->longest, rsa_exact_width(rsa), err);
    return e ? e : cp_open(g, &rsa->all, 1, g->own, g->B * g->cp->S, cp_keys_width(g->cp), err);
}

static void rsa_exact_close(struct rsa_exact *rsa)
{
    cp_close(&rsa->pass, rsa->moving, 2), cp_close(&rsa->pass, &rsa->all, 1), cp_close(&rsa->pass, &rsa->d_all, 1);
    cp_end(&rsa->pass);
}

/* Send this device's keys or values around, keep each block, and use what is there of its member. */
static void rsa_exact_around(struct rsa_exact *rsa, enum what what, void (*use)(struct rsa_exact *, int owner))
{
    struct cp_pass *const g = &rsa->pass;
    const int64_t width = rsa_exact_width(rsa), first = tensor_cols(g->call->qkv) - (2 - what) * width;
    cp_copy_columns(g, cp_rows(g, rsa->moving[0], g->cp->rank), 0, g->call->qkv, first, width);
    for (int step = 0; step < g->cp->devices; step++) {
        const int owner = cp_before(g->cp, step);
        const bool travels = step < g->cp->devices - 1;
        struct cp_turn on_way = { { -1 }, { -1 } };
        /* The next block comes while this one is used. */
        if (travels) on_way = cp_turn(g, rsa->moving, step);
        cp_copy_columns(g, rsa_exact_block(rsa, rsa->all, owner), what * width,
                        cp_rows(g, rsa->moving[step % 2], owner), 0, width);
        if (use) use(rsa, owner);
        if (travels) cp_arrive(g, on_way.in), cp_arrive(g, on_way.out);
    }
}

/* The keys of a member are here. */
static void raise_tops(struct rsa_exact *rsa, int owner)
{
    block_raise_tops(&rsa->pass, &rsa->results, rsa_exact_block(rsa, rsa->all, owner), 0, owner);
}

/* The values of a member are here, too. */
static void attend(struct rsa_exact *rsa, int owner)
{
    block_attend(&rsa->pass, &rsa->results, rsa_exact_block(rsa, rsa->all, owner), owner);
}

static void add_gradients(struct rsa_exact *rsa, int owner)
{
    block_add_share(&rsa->pass, &rsa->gradients, rsa_exact_block(rsa, rsa->d_all, owner),
                    rsa_exact_block(rsa, rsa->all, owner), owner);
}

enum error_code rsa_exact_forward(struct attention_call *call, struct error *err)
{
    struct rsa_exact rsa = { .all = tensor_none };
    enum error_code e = cp_begin(&rsa.pass, call, FORWARD_PASS, err);
    if (e || rsa.pass.B == 0) return e;
    e = rsa_exact_open(&rsa, err);
    if (!e) e = block_results_open(&rsa.pass, &rsa.results, err);
    if (!e) {
        rsa_exact_around(&rsa, KEYS, raise_tops);
        rsa_exact_around(&rsa, VALUES, attend);
        block_results_finish(&rsa.pass, &rsa.results);
    }
    block_results_close(&rsa.pass, &rsa.results);
    rsa_exact_close(&rsa);
    return e;
}

/* Gradients of keys and values of all tokens, which are summed over the devices. */
static enum error_code rsa_exact_differentiate(struct rsa_exact *rsa, struct error *err)
{
    struct cp_pass *const g = &rsa->pass;
    enum error_code e = cp_open(g, &rsa->d_all, 1, g->sums, g->B * g->cp->S, cp_keys_width(g->cp), err);
    if (!e) e = block_gradients_open(g, &rsa->gradients, err);
    if (e) return e;
    device_zero(g->device, rsa->d_all);
    rsa_exact_around(rsa, VALUES, NULL);
    rsa_exact_around(rsa, KEYS, add_gradients);
    e = allreduce(g->cp->group, rsa->d_all.data, tensor_count(rsa->d_all), g->sums, SUM, NULL, err);
    if (e) return e;
    cp_copy_keys(g, rsa->gradients.all, rsa_exact_block(rsa, rsa->d_all, g->cp->rank));
    block_gradients_finish(g, &rsa->gradients);
    return OK;
}

enum error_code rsa_exact_backward_input(struct attention_call *call, struct error *err)
{
    struct rsa_exact rsa = { .all = tensor_none };
    enum error_code e = cp_begin(&rsa.pass, call, INPUT_PASS, err);
    if (e || rsa.pass.B == 0) return e;
    e = rsa_exact_open(&rsa, err);
    if (!e) e = rsa_exact_differentiate(&rsa, err);
    block_gradients_close(&rsa.pass, &rsa.gradients);
    rsa_exact_close(&rsa);
    return e;
}
