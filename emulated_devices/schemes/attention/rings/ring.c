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
 * Memory   kept: the log-sum-exp.  Forward: two blocks of keys and values, one result to merge.  Backward: two blocks,
 *          two of their gradients, one device's share of these.  No scores are stored
 * Work     a device computes only with keys that its queries see.  Cut in a row, causal, the devices of P = 4 do 1, 3,
 *          5 and 7 parts of 16 of it; see ring_striped.c and ring_zigzag.c
 * Equals   reassociates: results are merged in the order r, r-1, ..; gradients of a block of keys are summed over
 *          devices m, m+1, .. from its owner m on, in the wide format
 */
#include "emulated_devices/schemes/attention/rings/ring.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/blocks.h"

const char *ring_attention_refuses(const struct context_parallel *cp, const struct model_config *c)
{
    (void)c;
    return cp->S < cp->devices ? "a token of each sequence for every device" : NULL;
}

struct tensor ring_attention_kept(const struct context_parallel *cp, int slot, int64_t rows)
{
    (void)slot;
    return tensor_2d(NULL, dtype_wide(cp->tp->device->dtype), rows, cp->heads->queries.count);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static uint64_t block_bytes(const struct context_parallel *cp, int64_t B, int step, enum dtype t)
{
    return (uint64_t)(B * context_count(cp, cp_before(cp, step)) * cp_keys_width(cp)) * dtype_size(t);
}

void ring_attention_cost(struct forecast *f, const struct context_parallel *cp, enum tensor_pass pass, int64_t rows)
{
    const int64_t B = context_sequences(cp, rows);
    const enum dtype own = cp->tp->device->dtype;
    const int P = cp->devices, right = (cp->rank + 1) % P;
    if (P == 1 || B == 0 || pass == WEIGHT_PASS) return;
    /* Keys and values take P - 1 steps; their gradients P, because the last one brings them home. */
    for (int step = 0; step < P - 1; step++)
        forecast_message(f, cp->group, right, block_bytes(cp, B, step, own));
    for (int step = 0; step < P && pass == INPUT_PASS; step++)
        forecast_message(f, cp->group, right, block_bytes(cp, B, step, dtype_wide(own)));
}

/* The first rows of a buffer: as many as the block at a step has. */
static struct tensor block_in(const struct cp_pass *g, struct tensor buffer, int step)
{
    return cp_rows(g, buffer, cp_before(g->cp, step));
}

/* At step 0 these are this device's own. */
static struct tensor keys_at(const struct cp_pass *g, struct tensor buffer[2], int step)
{
    return step == 0 ? g->call->qkv : block_in(g, buffer[step % 2], step);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static enum error_code run_forward(struct cp_pass *g, struct block_results *r, struct tensor buffer[2],
                                   struct error *err)
{
    const int P = g->cp->devices;
    enum error_code e = cp_open(g, buffer, P > 1 ? 2 : 0, g->own, g->longest, cp_keys_width(g->cp), err);
    if (!e) e = block_results_open(g, r, err);
    if (e) return e;
    if (P > 1) cp_copy_keys(g, block_in(g, buffer[0], 0), g->call->qkv);
    /* Step s: (o, lse) takes in attention to the block of the device s before, while the next block comes from the
     * left. */
    for (int step = 0; step < P; step++) {
        struct cp_turn on_way = { { -1 }, { -1 } };
        if (step < P - 1) on_way = cp_turn(g, buffer, step);
        block_attend(g, r, keys_at(g, buffer, step), cp_before(g->cp, step));
        if (step < P - 1) cp_arrive(g, on_way.in), cp_arrive(g, on_way.out);
    }
    block_results_finish(g, r);
    return OK;
}

enum error_code ring_attention_forward(struct attention_call *c, struct error *err)
{
    struct cp_pass g;
    struct block_results r = { 0 };
    struct tensor buffer[2] = { 0 };
    enum error_code e = cp_begin(&g, c, FORWARD_PASS, err);
    if (e || g.B == 0) return e;
    e = run_forward(&g, &r, buffer, err);
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
static void step_backward(struct cp_pass *g, struct gradients *s, struct tensor keys, struct cp_turn *sums, int step)
{
    struct tensor sum = block_in(g, s->block[step % 2], step), share = block_in(g, s->share, step);
    const struct tensor into = step == 0 ? sum : share;
    /* At step 0 the share begins the sum; later it waits for the sum that is on its way. */
    device_zero(g->device, into);
    block_add_share(g, &s->own, into, keys, cp_before(g->cp, step));
    if (step > 0) {
        /* sum [rows, 2 K A] of the devices before, plus this device's share; then it goes to the right. */
        cp_arrive(g, sums->in), cp_arrive(g, sums->out);
        dev_add(g->device, sum, sum, share);
    }
    *sums = cp_turn(g, s->block, step);
}

static enum error_code open_gradients(struct cp_pass *g, struct gradients *s, struct error *err)
{
    const int moving = g->cp->devices > 1 ? 1 : 0;
    const int64_t width = cp_keys_width(g->cp);
    enum error_code e = block_gradients_open(g, &s->own, err);
    if (!e) e = cp_open(g, s->block, 2 * moving, g->wide, g->longest, width, err);
    if (!e) e = cp_open(g, &s->share, moving, g->wide, g->longest, width, err);
    return e;
}

static enum error_code run_backward(struct cp_pass *g, struct gradients *s, struct tensor buffer[2], struct error *err)
{
    struct attention_call *c = g->call;
    const int P = g->cp->devices;
    struct cp_turn sums = { { -1 }, { -1 } };
    enum error_code e = open_gradients(g, s, err);
    if (!e) e = cp_open(g, buffer, P > 1 ? 2 : 0, g->own, g->longest, cp_keys_width(g->cp), err);
    if (e) return e;
    /* One device needs no ring: its share is the gradient. */
    if (P == 1) block_add_share(g, &s->own, s->own.all, c->qkv, 0);
    else cp_copy_keys(g, block_in(g, buffer[0], 0), c->qkv);
    for (int step = 0; step < P && P > 1; step++) {
        struct cp_turn on_way = { { -1 }, { -1 } };
        if (step < P - 1) on_way = cp_turn(g, buffer, step);
        step_backward(g, s, keys_at(g, buffer, step), &sums, step);
        if (step < P - 1) cp_arrive(g, on_way.in), cp_arrive(g, on_way.out);
    }
    if (P > 1)
        /* After P steps the own block's sum is back. */
        cp_arrive(g, sums.in), cp_arrive(g, sums.out), cp_copy_keys(g, s->own.all, block_in(g, s->block[P % 2], P));
    block_gradients_finish(g, &s->own);
    return OK;
}

enum error_code ring_attention_backward_input(struct attention_call *c, struct error *err)
{
    struct cp_pass g;
    struct gradients s = { 0 };
    struct tensor buffer[2] = { 0 };
    enum error_code e = cp_begin(&g, c, INPUT_PASS, err);
    if (e || g.B == 0) return e;
    e = run_backward(&g, &s, buffer, err);
    cp_close(&g, buffer, 2), cp_close(&g, s.block, 2), cp_close(&g, &s.share, 1);
    block_gradients_close(&g, &s.own);
    cp_end(&g);
    return e;
}

/* ---- the scheme -------------------------------------------------------------------------------------------------- */

static void cut(struct intervals *tokens, const struct context_parallel *cp, int member)
{
    intervals_add(tokens, block_at(cp->S, cp->devices, member));
}

const struct attention_scheme attention_scheme_ring = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "ring",
              .description = "keys and values travel around a ring of devices; a sequence is cut in a row",
              .source = "Ring attention, arXiv:2310.01889", RING_HEAD },
    .cut = cut, RING_SCHEME,
};
