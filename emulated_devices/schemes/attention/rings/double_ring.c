/* double ring: ring attention in which rings of w neighbours, windows, are on an outer ring.
 *
 * Source   D. Gu et al., "LoongTrain", arXiv:2406.18485, section 4.3 (Double-Ring-Attention)
 * Group    C devices, C/w windows of w
 * Layout   as ring-zigzag.  In round j and step i, the device at place q of window W has the keys and values of place
 *          q - i of window W - j
 *
 *          C = 4, w = 2     device 0 has those of     sends keys and values           sends gradients
 *          round 0 step 0   0                         to 1 (inside), to 2 (outside)   to 1
 *                  step 1   1                                                         to 1, then those of 0 to 2
 *          round 1 step 0   2                         to 1                            to 1
 *                  step 1   3                                                         to 1, then those of 2 to 2
 *
 * Sends    forward   C - C/w messages of 2 n K A elements inside windows, C/w - 1 between them: C - 1, as a ring
 *          backward  the same, and gradients in the wide format: C inside, C/w between.  They come home inside each
 *                    window before they go to the next one: C/w more than on a ring
 *          Between windows every device sends C/w - 1 blocks; on one ring one device of each window sends C - 1
 * Memory   as ring.c, and two blocks that travel between windows
 * Equals   reassociates: results are merged in the order above; gradients of a block are added up over the places q,
 *          q+1, .. of its own window, then of the next
 *
 * Called by: heads/two_dimensional.c, if --ring-window cuts the ring of a plan; the scheme has no name of its own in a
 * plan.  Errors: ERR_MEMORY without the blocks; a failed message ends the job.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/blocks.h"
#include "emulated_devices/schemes/attention/tops.h"
#include "emulated_devices/schemes/attention/rings/ring.h"

/* ---- places ------------------------------------------------------------------------------------------------------ */

static int windows_of(const struct context_parallel *cp) { return cp->devices / cp->split.window; }

/* The member `windows` and `steps` before this device. */
static int member_before(const struct context_parallel *cp, int windows, int steps)
{
    /* Both differences wrap: the window on the outer ring, the place on the ring inside. */
    const int w = cp->split.window, n = windows_of(cp);
    const int window = ((cp->rank / w - windows) % n + n) % n, place = ((cp->rank % w - steps) % w + w) % w;
    return window * w + place;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Return the bytes of keys and values of an owner's B n tokens, or of their gradients, in a format. */
static uint64_t block_bytes(const struct context_parallel *cp, int64_t B, int owner, enum dtype dtype)
{
    return (uint64_t)(B * context_count(cp, owner) * cp_keys_width(cp)) * dtype_size(dtype);
}

/* Enter the messages of a pass, as `walk` and step_backward send them. */
static void double_ring_cost(struct forecast *forecast, const struct context_parallel *cp, enum tensor_pass pass,
                             int64_t rows)
{
    const int64_t B = context_sequences(cp, rows);
    const enum dtype own = cp->tp->device->dtype, sums = cp->tp->device->sums;
    const int w = cp->split.window, n = windows_of(cp), inside = member_before(cp, 0, -1),
              between = member_before(cp, -1, 0);
    const bool backward = pass == INPUT_PASS;
    tops_cost(forecast, cp, pass, B);
    /* The loops are those of `walk` and step_backward; every message here is sent there once. */
    for (int j = 0; j < n && B > 0 && pass != WEIGHT_PASS; j++) {
        /* Round j has the blocks of the window that is j windows before. */
        const int first = member_before(cp, j, 0);
        for (int i = 0; i < w; i++) {
            const int owner = member_before(cp, j, i);
            /* Each step but the last sends keys and values on inside the window; backward sends sums in every step. */
            if (i < w - 1) forecast_message(forecast, cp->group, inside, block_bytes(cp, B, owner, own));
            if (backward) forecast_message(forecast, cp->group, inside, block_bytes(cp, B, owner, sums));
        }
        if (j < n - 1) forecast_message(forecast, cp->group, between, block_bytes(cp, B, first, own));
        if (backward) forecast_message(forecast, cp->group, between, block_bytes(cp, B, first, sums));
    }
}

/* Two messages on their way, in and out. */
struct pair { struct message in, out; };

/* Start to send `out` to the member ahead, and to receive `in` from the member behind.  The caller waits for both. */
static struct pair double_ring_hop(struct cp_pass *cp_pass, int windows, int steps, struct tensor out, struct tensor in)
{
    const int from = member_before(cp_pass->cp, windows, steps), to = member_before(cp_pass->cp, -windows, -steps);
    return (struct pair){ .in = message_receive(&cp_pass->exchange, from, in.data, tensor_bytes(in)),
                          .out = message_send(&cp_pass->exchange, to, out.data, tensor_bytes(out)) };
}

static struct pair hop_inside(struct cp_pass *cp_pass, struct tensor out, struct tensor in)
{
    return double_ring_hop(cp_pass, 0, 1, out, in);
}
static struct pair hop_between(struct cp_pass *cp_pass, struct tensor out, struct tensor in)
{
    return double_ring_hop(cp_pass, 1, 0, out, in);
}
static void double_ring_arrive(struct cp_pass *cp_pass, struct pair pair)
{
    cp_arrive(cp_pass, pair.in), cp_arrive(cp_pass, pair.out);
}

/* ---- keys and values --------------------------------------------------------------------------------------------- */

/* Blocks of keys and values lie in two pairs of buffers: `first` has those of this place of each window, by round;
 * `other` the rest of a round, by step. */
struct keys { struct tensor first[2], other[2]; };

/* Two buffers alternate on each of the two rings.  With windows of 2 the inner ring has one hop and one buffer. */
static enum error_code open_keys(struct cp_pass *cp_pass, struct keys *keys, struct error *err)
{
    const int64_t width = cp_keys_width(cp_pass->cp);
    enum error_code e = cp_open(cp_pass, keys->first, 2, cp_pass->own, cp_pass->longest, width, err);
    if (!e) e = cp_open(cp_pass, keys->other, cp_pass->cp->split.window > 2 ? 2 : 1, cp_pass->own,
                        cp_pass->longest, width, err);
    if (!e) cp_copy_keys(cp_pass, cp_rows(cp_pass, keys->first[0], cp_pass->cp->rank), cp_pass->call->qkv);
    return e;
}

static void close_keys(struct cp_pass *cp_pass, struct keys *keys)
{
    cp_close(cp_pass, keys->first, 2), cp_close(cp_pass, keys->other, 2);
}

/* Return the keys and values with which this device computes in a step: as many rows as their owner has. */
static struct tensor keys_at(const struct cp_pass *cp_pass, const struct keys *keys, int round, int step)
{
    return cp_rows(cp_pass, step == 0 ? keys->first[round % 2] : keys->other[(step - 1) % 2],
                   member_before(cp_pass->cp, round, step));
}

/* A pass's computation in a step, with the keys and values that are here. */
typedef void (*step_function)(struct cp_pass *, void *context, struct tensor keys, int round, int step);

/* Run all rounds and steps of a pass.  Blocks travel on while this device computes with them: those of the first place
 * during a whole round. */
static void walk(struct cp_pass *cp_pass, struct keys *keys, step_function compute, void *context)
{
    const int w = cp_pass->cp->split.window, n = windows_of(cp_pass->cp);
    for (int j = 0; j < n; j++) {
        struct pair next_round = { { -1 }, { -1 } }, next = next_round;
        /* The first place's block leaves for the next window now, and has a whole round to arrive. */
        if (j < n - 1) next_round = hop_between(cp_pass, keys_at(cp_pass, keys, j, 0),
                                                keys_at(cp_pass, keys, j + 1, 0));
        for (int i = 0; i < w; i++) {
            /* A step's block goes on to the next place while this device computes with it. */
            if (i < w - 1) next = hop_inside(cp_pass, keys_at(cp_pass, keys, j, i), keys_at(cp_pass, keys, j, i + 1));
            compute(cp_pass, context, keys_at(cp_pass, keys, j, i), j, i);
            /* Both buffers are used again in the next step: the hop must be over. */
            if (i < w - 1) double_ring_arrive(cp_pass, next);
        }
        if (j < n - 1) double_ring_arrive(cp_pass, next_round);
    }
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Attention to this block of keys is merged into the device's results (context). */
static void step_forward(struct cp_pass *cp_pass, void *context, struct tensor keys, int round, int step)
{
    block_attend(cp_pass, context, keys, member_before(cp_pass->cp, round, step));
}

static enum error_code double_ring_forward(struct attention_call *call, struct error *err)
{
    struct cp_pass g;
    struct block_results r = { 0 };
    struct keys k = { 0 };
    enum error_code e = cp_begin(&g, call, FORWARD_PASS, err);
    if (e || g.B == 0) return e;
    e = open_keys(&g, &k, err);
    if (!e) e = block_results_open(&g, &r, err);
    if (!e) e = block_find_tops(&g, &r, err);
    /* All buffers are open: from here on no device may fail, because the others wait for its messages. */
    if (!e) walk(&g, &k, step_forward, &r), block_results_finish(&g, &r);
    close_keys(&g, &k), block_results_close(&g, &r);
    cp_end(&g);
    return e;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

struct gradients {
    struct block_gradients own;
    struct tensor sum[2];               /* of keys and values, on their way; hop h sends sum[h % 2] */
    struct tensor share;                /* what this device adds to them */
    struct pair on_way;
    int hops;
};

/* Send the sum on, and receive that of another member. */
static void double_ring_pass_on(struct cp_pass *cp_pass, struct gradients *gradients, bool inside, int owner, int next)
{
    const struct tensor out = cp_rows(cp_pass, gradients->sum[gradients->hops % 2], owner),
        in = cp_rows(cp_pass, gradients->sum[(gradients->hops + 1) % 2], next);
    gradients->on_way = inside ? hop_inside(cp_pass, out, in) : hop_between(cp_pass, out, in);
    gradients->hops++;
}

/* The share is computed while the sum so far is on its way.  After a round's last step the sum comes home. */
static void step_backward(struct cp_pass *cp_pass, void *context, struct tensor keys, int round, int step)
{
    struct gradients *s = context;
    /* sum [rows, 2 K A] belongs to the block's owner, and has the shares of all devices that met this block. */
    const int owner = member_before(cp_pass->cp, round, step), w = cp_pass->cp->split.window;
    const struct tensor sum = cp_rows(cp_pass, s->sum[s->hops % 2], owner), share = cp_rows(cp_pass, s->share, owner),
                        into = s->hops == 0 ? sum : share;
    /* The first share begins the sum; a later one is computed apart, because the sum has not arrived yet. */
    device_zero(cp_pass->device, into);
    block_add_share(cp_pass, &s->own, into, keys, owner);
    if (s->hops > 0) double_ring_arrive(cp_pass, s->on_way), dev_add(cp_pass->device, sum, sum, share);
    double_ring_pass_on(cp_pass, s, true, owner, member_before(cp_pass->cp, round, step + 1));
    /* The round ends: the sum has been at all places of the window, and moves to the next window. */
    if (step < w - 1) return;
    double_ring_arrive(cp_pass, s->on_way);
    double_ring_pass_on(cp_pass, s, false, member_before(cp_pass->cp, round, 0),
                        member_before(cp_pass->cp, round + 1, 0));
}

/* Sums and share are wide, because many devices add to them before the owner rounds. */
static enum error_code double_ring_open_gradients(struct cp_pass *cp_pass, struct gradients *gradients,
                                                  struct error *err)
{
    const int64_t width = cp_keys_width(cp_pass->cp);
    enum error_code e = block_gradients_open(cp_pass, &gradients->own, err);
    if (!e) e = cp_open(cp_pass, gradients->sum, 2, cp_pass->sums, cp_pass->longest, width, err);
    if (!e) e = cp_open(cp_pass, &gradients->share, 1, cp_pass->sums, cp_pass->longest, width, err);
    return e;
}

/* Backward: two pairs of buffers travel, keys with values and their gradients.  Collective over the ring. */
static enum error_code double_ring_backward_input(struct attention_call *call, struct error *err)
{
    struct cp_pass g;
    struct gradients s = { 0 };
    struct keys k = { 0 };
    enum error_code e = cp_begin(&g, call, INPUT_PASS, err);
    if (e || g.B == 0) return e;
    e = double_ring_open_gradients(&g, &s, err);
    if (!e) e = open_keys(&g, &k, err);
    if (!e) {
        walk(&g, &k, step_backward, &s);
        /* The last hop has brought this device's own gradients of keys and values home. */
        double_ring_arrive(&g, s.on_way);
        cp_copy_keys(&g, s.own.all, cp_rows(&g, s.sum[s.hops % 2], g.cp->rank));
        block_gradients_finish(&g, &s.own);
    }
    close_keys(&g, &k), cp_close(&g, s.sum, 2), cp_close(&g, &s.share, 1), block_gradients_close(&g, &s.own);
    cp_end(&g);
    return e;
}

const struct attention_scheme attention_double_ring = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "double ring" },
    .cut = ring_zigzag_cut, .slots = 1, .kept = ring_attention_kept, .forward = double_ring_forward,
    .backward_input = double_ring_backward_input, .cost = double_ring_cost,
};
