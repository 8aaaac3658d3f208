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
#include "emulated_devices/schemes/attention/ring.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/positions.h"

/* One pass of one call. */
struct ring {
    struct attention_call *call;
    struct context_parallel *cp;
    struct device *device;
    struct attention shape;
    struct exchange exchange;
    struct positions at;
    int64_t B;                          /* sequences */
    int64_t longest;                    /* rows of the longest block */
    enum dtype own, wide;
};

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

/* Whose keys and values this device has at a step. */
static int owner(const struct context_parallel *cp, int step)
{
    return ((cp->rank - step) % cp->devices + cp->devices) % cp->devices;
}

static int64_t block_width(const struct context_parallel *cp)
{
    return 2 * cp->heads->keys.count * cp->tp->config->A;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static uint64_t block_bytes(const struct context_parallel *cp, int64_t B, int step, enum dtype t)
{
    return (uint64_t)(B * context_count(cp, owner(cp, step)) * block_width(cp)) * dtype_size(t);
}

void ring_attention_cost(struct forecast *f, const struct context_parallel *cp, enum tensor_pass pass, int64_t rows)
{
    const int64_t B = context_sequences(cp, rows);
    const enum dtype own = cp->tp->device->dtype;
    const int P = cp->devices, right = (cp->rank + 1) % P;
    if (P == 1 || B == 0 || pass == WEIGHT_PASS) return;
    for (int step = 0; step < P - 1; step++)
        forecast_message(f, cp->group, right, block_bytes(cp, B, step, own));
    for (int step = 0; step < P && pass == INPUT_PASS; step++)
        forecast_message(f, cp->group, right, block_bytes(cp, B, step, dtype_wide(own)));
}

static void expect(struct ring *g, enum tensor_pass pass)
{
    struct forecast f = { .tp = g->cp->tp };
    ring_attention_cost(&f, g->cp, pass, tensor_rows(g->call->qkv));
    account_add(&g->cp->group->comm->expected.of[g->cp->group->kind], f.sum, 1);
}

static struct message send_right(struct ring *g, struct tensor t)
{
    return message_send(&g->exchange, (g->cp->rank + 1) % g->cp->devices, t.data, tensor_bytes(t));
}

static struct message receive_left(struct ring *g, struct tensor t)
{
    return message_receive(&g->exchange, owner(g->cp, 1), t.data, tensor_bytes(t));
}

/* A failed message ends the job, because other devices wait for the messages that would follow. */
static void arrive(struct ring *g, struct message m)
{
    struct error err;
    if (message_wait(g->cp->group->comm, m, &err) != OK) comm_give_up(g->cp->group->comm, &err);
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

static enum error_code begin(struct ring *g, struct attention_call *c, enum tensor_pass pass, struct error *err)
{
    struct context_parallel *cp = c->cp;
    struct device *d = cp->tp->device;
    *g = (struct ring){ .call = c, .cp = cp, .device = d, .shape = c->shape, .own = d->dtype,
                        .wide = dtype_wide(d->dtype), .B = context_sequences(cp, tensor_rows(c->qkv)) };
    if (g->B == 0) return OK;
    const enum error_code e = positions_open(&g->at, cp, err);
    if (e) return e;
    for (int m = 0; m < cp->devices; m++)
        if (g->B * positions_count(&g->at, m) > g->longest) g->longest = g->B * positions_count(&g->at, m);
    if (cp->devices > 1) g->exchange = exchange_begin(cp->group, POINT_TO_POINT), expect(g, pass);
    return OK;
}

static enum error_code open_buffers(struct ring *g, struct tensor *t, int n, enum dtype type, int64_t rows,
                                    int64_t cols, struct error *err)
{
    for (int i = 0; i < n; i++) {
        t[i] = device_tensor_in(g->device, BUFFERS, type, rows * cols);
        if (t[i].data == NULL) return fail(err, ERR_MEMORY, "no memory for ring attention");
        t[i] = tensor_2d(t[i].data, type, rows, cols);
    }
    return OK;
}

static void close_buffers(struct ring *g, struct tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        if (tensor_present(t[i])) device_free(g->device, t[i]);
}

/* The first rows of a buffer: as many as the block at a step has. */
static struct tensor block_in(const struct ring *g, struct tensor buffer, int step)
{
    return tensor_rows_of(buffer, 0, g->B * positions_count(&g->at, owner(g->cp, step)));
}

/* Copy between a contiguous block and the last columns of a fused tensor. */
static void copy_columns(struct ring *g, struct tensor to, struct tensor from)
{
    const uint64_t size = dtype_size(to.dtype), length = (uint64_t)block_width(g->cp) * size;
    const uint64_t to_pitch = (uint64_t)tensor_cols(to) * size, from_pitch = (uint64_t)tensor_cols(from) * size;
    device_copy_rows(g->device, (char *)to.data + to_pitch - length, to_pitch,
                     (const char *)from.data + from_pitch - length, from_pitch, length, tensor_rows(to));
    dev_charge(g->device, "copy keys and values", tensor_2d(NULL, to.dtype, tensor_rows(to), block_width(g->cp)), 2, 0);
}

/* Two messages on their way, in and out. */
struct pair { struct message in, out; };

/* Send the block of this step, and receive that of the next into the other buffer. */
static struct pair turn(struct ring *g, struct tensor buffer[2], int step)
{
    return (struct pair){ .in = receive_left(g, block_in(g, buffer[(step + 1) % 2], step + 1)),
                          .out = send_right(g, block_in(g, buffer[step % 2], step)) };
}

static double pairs_at(const struct ring *g, int step)
{
    return positions_pairs(&g->at, g->shape, g->B, g->cp->rank, owner(g->cp, step));
}

/* At step 0 these are this device's own. */
static struct tensor keys_at(const struct ring *g, struct tensor buffer[2], int step)
{
    return step == 0 ? g->call->qkv : block_in(g, buffer[step % 2], step);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

enum { OUT, MORE, RESULTS };            /* the result so far, and that of one more block */
struct results { struct tensor o[RESULTS], lse[RESULTS]; };

/* A block of which no query sees a key adds nothing; the first one begins the result. */
static void attend(struct ring *g, struct results *r, struct tensor keys, int step)
{
    const double pairs = pairs_at(g, step);
    const int into = step == 0 ? OUT : MORE;
    if (step > 0 && pairs == 0) return;
    dev_attention_part_forward(g->device, r->o[into], r->lse[into], g->call->qkv, keys,
                               positions_of(&g->at, g->cp->rank), positions_of(&g->at, owner(g->cp, step)), g->shape,
                               pairs);
    if (into == MORE)
        dev_attention_merge(g->device, r->o[OUT], r->lse[OUT], r->o[MORE], r->lse[MORE], g->shape);
}

static struct tensor by_heads(const struct ring *g, struct tensor t)
{
    return tensor_2d(t.data, t.dtype, g->B * g->shape.H, positions_count(&g->at, g->cp->rank));
}

static enum error_code run_forward(struct ring *g, struct results *r, struct tensor buffer[2], struct error *err)
{
    struct attention_call *c = g->call;
    const int P = g->cp->devices;
    const bool rounds = g->own != g->wide;
    const int64_t rows = tensor_rows(c->out), cols = tensor_cols(c->out), heads = g->B * g->shape.H;
    enum error_code e = open_buffers(g, buffer, P > 1 ? 2 : 0, g->own, g->longest, block_width(g->cp), err);
    if (!e) e = open_buffers(g, &r->o[OUT], rounds ? 1 : 0, g->wide, rows, cols, err);
    if (!e) e = open_buffers(g, &r->o[MORE], P > 1 ? 1 : 0, g->wide, rows, cols, err);
    if (!e) e = open_buffers(g, &r->lse[MORE], P > 1 ? 1 : 0, g->wide, heads, rows / g->B, err);
    if (e) return e;
    if (!rounds) r->o[OUT] = c->out;
    r->lse[OUT] = by_heads(g, c->kept[0]);
    if (P > 1) copy_columns(g, block_in(g, buffer[0], 0), c->qkv);
    for (int step = 0; step < P; step++) {
        struct pair on_way = { { -1 }, { -1 } };
        if (step < P - 1) on_way = turn(g, buffer, step);
        attend(g, r, keys_at(g, buffer, step), step);
        if (step < P - 1) arrive(g, on_way.in), arrive(g, on_way.out);
    }
    if (rounds) dev_round(g->device, c->out, r->o[OUT]);
    return OK;
}

enum error_code ring_attention_forward(struct attention_call *c, struct error *err)
{
    struct ring g;
    struct results r = { 0 };
    struct tensor buffer[2] = { 0 };
    enum error_code e = begin(&g, c, FORWARD_PASS, err);
    if (e || g.B == 0) return e;
    e = run_forward(&g, &r, buffer, err);
    close_buffers(&g, buffer, 2), close_buffers(&g, &r.o[MORE], 1), close_buffers(&g, &r.lse[MORE], 1);
    if (g.own != g.wide) close_buffers(&g, &r.o[OUT], 1);
    positions_close(&g.at);
    return e;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

struct gradients {
    struct tensor delta;                /* [B H, n] */
    struct tensor all;                  /* [rows, (H+2K) A] in the wide format: queries' add up in its first columns */
    struct tensor block[2];             /* gradients of keys and values on their way */
    struct tensor share;                /* what this device adds to them */
};

static void add_share(struct ring *g, const struct gradients *s, struct tensor d_keys, struct tensor keys, int step)
{
    const double pairs = pairs_at(g, step);
    if (pairs == 0) return;
    dev_attention_part_backward(g->device, s->all, d_keys, g->call->d_out, s->delta, by_heads(g, g->call->kept[0]),
                                g->call->qkv, keys, positions_of(&g->at, g->cp->rank),
                                positions_of(&g->at, owner(g->cp, step)), g->shape, pairs);
}

/* The share is computed while the sum so far is on its way. */
static void step_backward(struct ring *g, struct gradients *s, struct tensor keys, struct pair *sums, int step)
{
    struct tensor sum = block_in(g, s->block[step % 2], step), share = block_in(g, s->share, step);
    const struct tensor into = step == 0 ? sum : share;
    device_zero(g->device, into);
    add_share(g, s, into, keys, step);
    if (step > 0) {
        arrive(g, sums->in), arrive(g, sums->out);
        dev_add(g->device, sum, sum, share);
    }
    *sums = turn(g, s->block, step);
}

static enum error_code open_gradients(struct ring *g, struct gradients *s, struct error *err)
{
    struct attention_call *c = g->call;
    const int moving = g->cp->devices > 1 ? 1 : 0;
    const int64_t rows = tensor_rows(c->qkv), width = block_width(g->cp);
    enum error_code e = open_buffers(g, &s->delta, 1, g->wide, g->B * g->shape.H, rows / g->B, err);
    if (!e && g->own != g->wide) e = open_buffers(g, &s->all, 1, g->wide, rows, tensor_cols(c->qkv), err);
    if (!e) e = open_buffers(g, s->block, 2 * moving, g->wide, g->longest, width, err);
    if (!e) e = open_buffers(g, &s->share, moving, g->wide, g->longest, width, err);
    if (g->own == g->wide) s->all = c->d_qkv;
    return e;
}

static enum error_code run_backward(struct ring *g, struct gradients *s, struct tensor buffer[2], struct error *err)
{
    struct attention_call *c = g->call;
    const int P = g->cp->devices;
    struct pair sums = { { -1 }, { -1 } };
    enum error_code e = open_gradients(g, s, err);
    if (!e) e = open_buffers(g, buffer, P > 1 ? 2 : 0, g->own, g->longest, block_width(g->cp), err);
    if (e) return e;
    dev_attention_delta(g->device, s->delta, c->d_out, c->out, g->shape);
    device_zero(g->device, s->all);
    if (P == 1) add_share(g, s, s->all, c->qkv, 0);
    else copy_columns(g, block_in(g, buffer[0], 0), c->qkv);
    for (int step = 0; step < P && P > 1; step++) {
        struct pair on_way = { { -1 }, { -1 } };
        if (step < P - 1) on_way = turn(g, buffer, step);
        step_backward(g, s, keys_at(g, buffer, step), &sums, step);
        if (step < P - 1) arrive(g, on_way.in), arrive(g, on_way.out);
    }
    if (P > 1) arrive(g, sums.in), arrive(g, sums.out), copy_columns(g, s->all, block_in(g, s->block[P % 2], P));
    if (g->own != g->wide) dev_round(g->device, c->d_qkv, s->all);
    return OK;
}

enum error_code ring_attention_backward_input(struct attention_call *c, struct error *err)
{
    struct ring g;
    struct gradients s = { 0 };
    struct tensor buffer[2] = { 0 };
    enum error_code e = begin(&g, c, INPUT_PASS, err);
    if (e || g.B == 0) return e;
    e = run_backward(&g, &s, buffer, err);
    close_buffers(&g, buffer, 2), close_buffers(&g, s.block, 2), close_buffers(&g, &s.share, 1);
    close_buffers(&g, &s.delta, 1);
    if (g.own != g.wide) close_buffers(&g, &s.all, 1);
    positions_close(&g.at);
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
