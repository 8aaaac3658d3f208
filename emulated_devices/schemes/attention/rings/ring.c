/* attention, ring: keys and values travel around a ring while each device computes attention with those it has.
 *
 * Source   H. Liu, M. Zaharia, P. Abbeel, "Ring attention with blockwise transformers for near-infinite context",
 *          arXiv:2310.01889
 * Group    P devices, each with a part of every sequence's S tokens (`ring`: the r-th of P nearly equal ranges); P need
 *          not divide S
 * Layout   n tokens of all heads; at step s device r has the keys and values of device r - s
 *
 *          P = 3, device r                         computes                  sends to r + 1
 *          step 0                                  Q[r] K[r], V[r]           K[r], V[r]
 *          step 1                                  Q[r] K[r-1], V[r-1]       K[r-1], V[r-1]
 *          step 2                                  Q[r] K[r-2], V[r-2]
 *
 * Sends    forward   P-1 messages of 2 n K A elements
 *          backward  the same, and P messages of 2 n K A elements in the wide format: the gradients of keys and values
 *                    follow them, each device adds its share, and the last message brings them home
 *          Blocks are sent while they are computed with.
 *          with exact sums keys travel once more, before: P-1 messages of n K A (tops.h); gradients are EXACT sums
 * Memory   kept: the log-sum-exp.  Forward: two blocks of keys and values, one result to merge.  Backward: two blocks,
 *          two of their gradients, one device's share of these.  No scores are stored
 * Work     a device computes only with keys that its queries see.  Cut in a row, causal, the devices of P = 4 do 1, 3,
 *          5 and 7 parts of 16 of it; see ring_striped.c and ring_zigzag.c
 * Equals   reassociates: results are merged in the order r, r-1, ..; gradients of a block of keys are summed over
 *          devices m, m+1, .. from its owner m on, in the wide format.  With exact sums: bit for bit
 *
 * Called by: model/run/run_attention.c and, for the ring inside, heads/two_dimensional.c.  Errors: ERR_MEMORY without
 * the two blocks; a failed message ends the job.
 */
#include "emulated_devices/schemes/attention/rings/ring.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/blocks.h"
#include "emulated_devices/schemes/attention/tops.h"

const char *ring_attention_refuses(const struct context_parallel *cp, const struct model_config *config)
{
    (void)config;
    /* Every member needs a token of each sequence, or its block and its queries would be empty. */
    return cp->S < cp->devices ? "a token of each sequence for every device" : NULL;
}

struct tensor ring_attention_kept(const struct context_parallel *cp, int slot, int64_t rows)
{
    (void)slot;
    /* The one slot is the log-sum-exp: a wide number for each row and query head. */
    return tensor_2d(NULL, dtype_wide(cp->tp->device->dtype), rows, cp->heads->queries.count);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Return the bytes of the block that leaves at a step: B n keys and values of the device `step` before. */
static uint64_t block_bytes(const struct context_parallel *cp, int64_t B, int step, enum dtype dtype)
{
    return (uint64_t)(B * context_count(cp, cp_before(cp, step)) * cp_keys_width(cp)) * dtype_size(dtype);
}

void ring_attention_cost(struct forecast *forecast, const struct context_parallel *cp, enum tensor_pass pass,
                         int64_t rows)
{
    const int64_t B = context_sequences(cp, rows);
    const enum dtype own = cp->tp->device->dtype;
    const int P = cp->devices, right = (cp->rank + 1) % P;
    /* Without partners or sequences no message is sent; attention has no weights. */
    if (P == 1 || B == 0 || pass == WEIGHT_PASS) return;
    tops_cost(forecast, cp, pass, B);
    /* Keys and values take P - 1 steps; their gradients P, because the last one brings them home. */
    for (int step = 0; step < P - 1; step++)
        forecast_message(forecast, cp->group, right, block_bytes(cp, B, step, own));
    for (int step = 0; step < P && pass == INPUT_PASS; step++)
        forecast_message(forecast, cp->group, right, block_bytes(cp, B, step, cp->tp->device->sums));
}

/* The first rows of a buffer: as many as the block at a step has. */
static struct tensor block_in(const struct cp_pass *cp_pass, struct tensor buffer, int step)
{
    return cp_rows(cp_pass, buffer, cp_before(cp_pass->cp, step));
}

/* At step 0 these are this device's own. */
static struct tensor keys_at(const struct cp_pass *cp_pass, struct tensor buffer[2], int step)
{
    return step == 0 ? cp_pass->call->qkv : block_in(cp_pass, buffer[step % 2], step);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Buffers are opened first, so that no device begins the ring and then fails without sending. */
static enum error_code ring_run_forward(struct cp_pass *cp_pass, struct block_results *results, struct tensor buffer[2],
                                        struct error *err)
{
    const int P = cp_pass->cp->devices;
    enum error_code e = cp_open(cp_pass, buffer, P > 1 ? 2 : 0, cp_pass->own, cp_pass->longest,
                                cp_keys_width(cp_pass->cp), err);
    if (!e) e = block_results_open(cp_pass, results, err);
    if (!e) e = block_find_tops(cp_pass, results, err);
    if (e) return e;
    /* The own keys and values [B n, 2 K A] leave qkv, whose rows are too wide to send. */
    if (P > 1) cp_copy_keys(cp_pass, block_in(cp_pass, buffer[0], 0), cp_pass->call->qkv);
    /* Step s: (o, lse) takes in attention to the block of the device s before, while the next block comes from the
     * left. */
    for (int step = 0; step < P; step++) {
        struct cp_turn on_way = { { -1 }, { -1 } };
        if (step < P - 1) on_way = cp_turn(cp_pass, buffer, step);
        block_attend(cp_pass, results, keys_at(cp_pass, buffer, step), cp_before(cp_pass->cp, step));
        if (step < P - 1) cp_arrive(cp_pass, on_way.in), cp_arrive(cp_pass, on_way.out);
    }
    block_results_finish(cp_pass, results);
    return OK;
}

enum error_code ring_attention_forward(struct attention_call *call, struct error *err)
{
    struct cp_pass g;
    struct block_results r = { 0 };
    struct tensor buffer[2] = { 0 };
    enum error_code e = cp_begin(&g, call, FORWARD_PASS, err);
    if (e || g.B == 0) return e;
    e = ring_run_forward(&g, &r, buffer, err);
    cp_close(&g, buffer, 2), block_results_close(&g, &r);
    cp_end(&g);
    return e;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

struct gradients {
    struct block_gradients own;
    struct tensor block[2];             /* gradients of keys and values on their way */
    struct tensor share;                /* what this device adds to them */
};

/* The share is computed while the sum so far is on its way. */
static void step_backward(struct cp_pass *cp_pass, struct gradients *gradients, struct tensor keys,
                          struct cp_turn *sums, int step)
{
    struct tensor sum = block_in(cp_pass, gradients->block[step % 2], step),
        share = block_in(cp_pass, gradients->share, step);
    const struct tensor into = step == 0 ? sum : share;
    /* At step 0 the share begins the sum; later it waits for the sum that is on its way. */
    device_zero(cp_pass->device, into);
    block_add_share(cp_pass, &gradients->own, into, keys, cp_before(cp_pass->cp, step));
    if (step > 0) {
        /* sum [rows, 2 K A] of the devices before, plus this device's share; then it goes to the right. */
        cp_arrive(cp_pass, sums->in), cp_arrive(cp_pass, sums->out);
        dev_add(cp_pass->device, sum, sum, share);
    }
    *sums = cp_turn(cp_pass, gradients->block, step);
}

/* Two blocks [longest, 2 K A] travel, a third has this device's share.  A device alone needs none of them. */
static enum error_code ring_open_gradients(struct cp_pass *cp_pass, struct gradients *gradients, struct error *err)
{
    const int moving = cp_pass->cp->devices > 1 ? 1 : 0;
    const int64_t width = cp_keys_width(cp_pass->cp);
    enum error_code e = block_gradients_open(cp_pass, &gradients->own, err);
    if (!e) e = cp_open(cp_pass, gradients->block, 2 * moving, cp_pass->sums, cp_pass->longest, width, err);
    if (!e) e = cp_open(cp_pass, &gradients->share, moving, cp_pass->sums, cp_pass->longest, width, err);
    return e;
}

/* Two rings run at once: keys and values one step ahead, the sums of their gradients behind. */
static enum error_code run_backward(struct cp_pass *cp_pass, struct gradients *gradients, struct tensor buffer[2],
                                    struct error *err)
{
    struct attention_call *c = cp_pass->call;
    const int P = cp_pass->cp->devices;
    struct cp_turn sums = { { -1 }, { -1 } };
    enum error_code e = ring_open_gradients(cp_pass, gradients, err);
    if (!e) e = cp_open(cp_pass, buffer, P > 1 ? 2 : 0, cp_pass->own, cp_pass->longest,
                        cp_keys_width(cp_pass->cp), err);
    if (e) return e;
    /* A device alone needs no ring: its share is the gradient. */
    if (P == 1) block_add_share(cp_pass, &gradients->own, gradients->own.all, c->qkv, 0);
    else cp_copy_keys(cp_pass, block_in(cp_pass, buffer[0], 0), c->qkv);
    /* Step s: this device adds its queries' share to the gradient of the block of the device s before. */
    for (int step = 0; step < P && P > 1; step++) {
        struct cp_turn on_way = { { -1 }, { -1 } };
        if (step < P - 1) on_way = cp_turn(cp_pass, buffer, step);
        step_backward(cp_pass, gradients, keys_at(cp_pass, buffer, step), &sums, step);
        if (step < P - 1) cp_arrive(cp_pass, on_way.in), cp_arrive(cp_pass, on_way.out);
    }
    /* After P steps the own block's sum is back, and goes into the last columns of the gradients. */
    if (P > 1)
        cp_arrive(cp_pass, sums.in), cp_arrive(cp_pass, sums.out),
            cp_copy_keys(cp_pass, gradients->own.all, block_in(cp_pass, gradients->block[P % 2], P));
    block_gradients_finish(cp_pass, &gradients->own);
    return OK;
}

enum error_code ring_attention_backward_input(struct attention_call *call, struct error *err)
{
    struct cp_pass g;
    struct gradients s = { 0 };
    struct tensor buffer[2] = { 0 };
    enum error_code e = cp_begin(&g, call, INPUT_PASS, err);
    if (e || g.B == 0) return e;
    e = run_backward(&g, &s, buffer, err);
    cp_close(&g, buffer, 2), cp_close(&g, s.block, 2), cp_close(&g, &s.share, 1);
    block_gradients_close(&g, &s.own);
    cp_end(&g);
    return e;
}

/* ---- the scheme -------------------------------------------------------------------------------------------------- */

static void ring_cut(struct intervals *tokens, const struct context_parallel *cp, int member)
{
    intervals_add(tokens, block_at(cp->S, cp->devices, member));
}

const struct attention_scheme attention_scheme_ring = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "ring",
              .description = "keys and values travel around a ring of devices; a sequence is cut in a row",
              .source = "Ring attention, arXiv:2310.01889", RING_HEAD },
    .cut = ring_cut, RING_SCHEME,
};
