/* attention, tokenring: keys and values stay; queries travel around a ring, and what each device computes for them goes
 * directly back to their owner, the other way, while the next is computed.
 *
 * Source   "TokenRing: an efficient parallelism framework for infinite-context LLMs via bidirectional communication",
 *          arXiv:2412.20501, and its released code, zigzag_token_ring.py.  Backward is not in that code
 * Group    P devices; device r has chunks r and 2P-1-r of 2P of every sequence's S tokens.  P need not divide S
 * Layout   n tokens of all heads; at step s device r has queries of device r + s: all of them, or only the late chunk's
 *
 *          P = 3, device r        computes                sends to r - 1          returns
 *          step 0                 Q[r] K[r], V[r]         Q[r]
 *          step 1                 Q[r+1] K[r], V[r]       Q[r+1]
 *          step 2                 Q[r+2] K[r], V[r]                               result of step 1 to r + 1
 *          at the end                                                             result of step 2 to r + 2
 *
 *          Queries of an early chunk see no keys of later devices: they go from r to r - 1, .., 0, and no further.  So
 *          it is under every mask in which no token sees a later one; of packed samples, some travel that see nothing
 * Sends    forward   queries, H A numbers of a token, and results, H A and the log-sum-exp, H, in the wide format
 *          backward  queries, gradients of the output, log-sum-exp and delta; gradients of queries in the wide format
 *          Queries of device r travel to r devices in whole, and to P-1-r others the late ones alone: in the mean
 *          0.75 n (P-1) tokens each way.  Devices do not send the same: for P = 4 queries of 1.5, 3, 2.5, 2 times n
 *          tokens, results of 3, 2.5, 2, 1.5.  Ring.c sends 2 n K A (P-1) one way: less than both ways if K < 3/4 H
 *          The released code rounds results to 16 bits before it sends them; with P = 1 it merges the one result twice
 * Memory   kept: the log-sum-exp.  Forward: queries of two devices and the late ones, four results.  Backward: three
 *          times queries, gradients, log-sum-exp and delta, five times gradients of queries
 * Equals   reassociates: results are merged, and gradients of queries added up, in the order r, r-1, ..; those of keys
 *          over the queries of r, r+1, ..; all in the wide format
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/blocks.h"
#include "emulated_devices/schemes/attention/rings/ring.h"
#include "ref/model/config.h"

/* ---- what travels ------------------------------------------------------------------------------------------------ */

/* Numbers of each token: H A in the device's format, H A in the wide one, H in the wide one as [B H, n]. */
enum kind { OWN_ROWS, WIDE_ROWS, WIDE_HEADS };
enum { MOST = 4 };
struct load { int count; enum kind kind[MOST]; };

enum { Q, D_OUT, LSE, DELTA };
enum { RESULT, RESULT_LSE };
static const struct load queries_forward = { 1, { OWN_ROWS } }, results_forward = { 2, { WIDE_ROWS, WIDE_HEADS } },
                         queries_backward = { 4, { OWN_ROWS, OWN_ROWS, WIDE_HEADS, WIDE_HEADS } },
                         results_backward = { 1, { WIDE_ROWS } };

static int64_t width_of(const struct context_parallel *cp, enum kind kind)
{
    return cp->heads->queries.count * (kind == WIDE_HEADS ? 1 : cp->tp->config->A);
}

static enum dtype format_of(const struct context_parallel *cp, enum kind kind)
{
    const enum dtype own = cp->tp->device->dtype;
    return kind == OWN_ROWS ? own : dtype_wide(own);
}

static int64_t late_count(const struct context_parallel *cp, int owner)
{
    return block_at(cp->S, 2 * cp->devices, 2 * cp->devices - 1 - owner).count;
}

/* The tokens of each sequence whose queries come from their owner to a holder. */
static int64_t count_at(const struct context_parallel *cp, int owner, int holder)
{
    return holder > owner ? late_count(cp, owner) : context_count(cp, owner);
}

static void enter(struct forecast *f, const struct context_parallel *cp, int peer, const struct load *l, int64_t tokens)
{
    for (int i = 0; i < l->count; i++)
        forecast_message(f, cp->group, peer,
                         (uint64_t)(tokens * width_of(cp, l->kind[i])) * dtype_size(format_of(cp, l->kind[i])));
}

static void cost(struct forecast *f, const struct context_parallel *cp, enum tensor_pass pass, int64_t rows)
{
    const int64_t B = context_sequences(cp, rows);
    const int left = cp_before(cp, 1);
    const bool backward = pass == INPUT_PASS;
    for (int step = 1; step < cp->devices && B > 0 && pass != WEIGHT_PASS; step++) {
        const int leaving = cp_before(cp, 1 - step), owner = cp_before(cp, -step);
        enter(f, cp, left, backward ? &queries_backward : &queries_forward, B * count_at(cp, leaving, left));
        enter(f, cp, owner, backward ? &results_backward : &results_forward, B * count_at(cp, owner, cp->rank));
    }
}

/* ---- a journey --------------------------------------------------------------------------------------------------- */

struct bundle { const struct load *load; struct tensor t[MOST]; };

struct journey {
    struct cp_pass *g;
    struct bundle queries[2], leaving;  /* here, and those that come; of device 0, the late ones that go on */
    struct bundle result[2], in;        /* for others, computed and on its way; for this device, that arrives */
    struct bundle own, own_late;        /* this device's result so far; of its late tokens while these are merged */
    struct block_gradients gradients;
    struct message flying[4 * MOST];
    int count;
    void (*compute)(struct journey *, struct bundle *into, const struct bundle *queries, int owner);
    void (*merge)(struct journey *, struct bundle *into, int holder);
};

/* The rows of a bundle that a holder has of the owner's tokens. */
static struct tensor view(const struct journey *j, const struct bundle *b, int i, int owner, int holder)
{
    const int64_t n = count_at(j->g->cp, owner, holder), B = j->g->B;
    const struct tensor t = b->t[i];
    return b->load->kind[i] == WIDE_HEADS ? tensor_2d(t.data, t.dtype, B * j->g->shape.H, n)
                                          : tensor_2d(t.data, t.dtype, B * n, width_of(j->g->cp, b->load->kind[i]));
}

static struct tensor positions_at(const struct journey *j, int owner, int holder)
{
    const struct tensor all = positions_of(&j->g->at, owner);
    const int64_t n = count_at(j->g->cp, owner, holder);
    return tensor_1d((int32_t *)all.data + tensor_count(all) - n, I32, n);
}

static enum error_code open_bundle(struct journey *j, struct bundle *b, const struct load *l, struct error *err)
{
    enum error_code e = OK;
    *b = (struct bundle){ .load = l };
    for (int i = 0; i < l->count && !e; i++)
        e = cp_open(j->g, &b->t[i], 1, format_of(j->g->cp, l->kind[i]), j->g->longest,
                    width_of(j->g->cp, l->kind[i]), err);
    return e;
}

/* The late tokens of a device are the last of each sequence: take them out of a bundle of all, or put them back. */
static void copy_late(struct journey *j, struct bundle *all, struct bundle *late, int owner, bool back)
{
    const int64_t n = late_count(j->g->cp, owner), before = context_count(j->g->cp, owner) - n;
    for (int i = 0; i < all->load->count; i++) {
        const bool heads = all->load->kind[i] == WIDE_HEADS;
        /* Late rows are the last n of each sequence, or the last n columns of [B H, n] statistics. */
        const struct tensor t = view(j, late, i, owner, owner + 1);
        const uint64_t token = dtype_size(t.dtype) * (uint64_t)(heads ? 1 : tensor_cols(t)),
                       length = token * (uint64_t)n, skipped = token * (uint64_t)before, pitch = skipped + length;
        char *whole = (char *)all->t[i].data + skipped, *part = t.data;
        device_copy_rows(j->g->device, back ? whole : part, back ? pitch : length, back ? part : whole,
                         back ? length : pitch, length, heads ? tensor_rows(t) : j->g->B);
        dev_charge(j->g->device, "copy late tokens", t, 2, 0);
    }
}

/* Copies as many of the first columns as both tensors have. */
static void copy_first(struct journey *j, struct tensor to, struct tensor from)
{
    const uint64_t size = dtype_size(to.dtype), in = (uint64_t)tensor_cols(from) * size,
                   out = (uint64_t)tensor_cols(to) * size, length = in < out ? in : out;
    device_copy_rows(j->g->device, to.data, out, from.data, in, length, tensor_rows(from));
    dev_charge(j->g->device, "copy queries",
               tensor_2d(NULL, to.dtype, tensor_rows(from), (int64_t)(length / size)), 2, 0);
}

static void send(struct journey *j, const struct bundle *b, int owner, int holder, int to)
{
    for (int i = 0; i < b->load->count; i++) {
        const struct tensor t = view(j, b, i, owner, holder);
        j->flying[j->count++] = message_send(&j->g->exchange, to, t.data, tensor_bytes(t));
    }
}

static void receive(struct journey *j, const struct bundle *b, int owner, int holder, int from)
{
    for (int i = 0; i < b->load->count; i++) {
        const struct tensor t = view(j, b, i, owner, holder);
        j->flying[j->count++] = message_receive(&j->g->exchange, from, t.data, tensor_bytes(t));
    }
}

static void arrive(struct journey *j)
{
    for (int i = 0; i < j->count; i++) cp_arrive(j->g, j->flying[i]);
    j->count = 0;
}

/* Queries go on to the device before; from the first one to the last, only late ones. */
static void pass_on(struct journey *j, int step)
{
    const struct context_parallel *cp = j->g->cp;
    const int left = cp_before(cp, 1), right = cp_before(cp, -1), owner = cp_before(cp, -step),
              next = cp_before(cp, -step - 1);
    struct bundle *here = &j->queries[step % 2];
    /* The next holder is behind the owner in a zigzag: only the owner's late tokens see its keys. */
    const bool shrinks = owner >= cp->rank && owner < left;
    if (shrinks) copy_late(j, here, &j->leaving, owner, false);
    send(j, shrinks ? &j->leaving : here, owner, left, left);
    receive(j, &j->queries[(step + 1) % 2], next, cp->rank, right);
}

static void bring_home(struct journey *j, int step)
{
    const int rank = j->g->cp->rank, owner = cp_before(j->g->cp, -step), holder = cp_before(j->g->cp, step);
    send(j, &j->result[step % 2], owner, rank, owner);
    receive(j, &j->in, rank, holder, holder);
}

/* Merge what has come from the holder of a step.  Once only late tokens come back, it is so until the end. */
static void take(struct journey *j, int step)
{
    const int rank = j->g->cp->rank, holder = cp_before(j->g->cp, step);
    /* From this step on only results of late tokens come: they are merged in a copy of their own. */
    if (step == rank + 1) copy_late(j, &j->own, &j->own_late, rank, false);
    j->merge(j, holder > rank ? &j->own_late : &j->own, holder);
}

static void travel(struct journey *j)
{
    const int P = j->g->cp->devices, rank = j->g->cp->rank;
    for (int step = 0; step < P; step++) {
        /* Three things at once: queries go on, an earlier result goes home, and this step is computed. */
        if (step < P - 1) pass_on(j, step);
        if (step > 1) bring_home(j, step - 1);
        j->compute(j, step == 0 ? &j->own : &j->result[step % 2], &j->queries[step % 2], cp_before(j->g->cp, -step));
        arrive(j);
        if (step > 1) take(j, step - 1);
    }
    /* The last result has nothing to hide behind. */
    if (P > 1) bring_home(j, P - 1), arrive(j), take(j, P - 1);
    if (rank < P - 1) copy_late(j, &j->own, &j->own_late, rank, true);
}

static enum error_code open_journey(struct journey *j, const struct load *queries, const struct load *results,
                                    struct error *err)
{
    struct bundle *const q[] = { &j->queries[0], &j->queries[1], &j->leaving },
                  *const r[] = { &j->result[0], &j->result[1], &j->own_late };
    enum error_code e = OK;
    for (int i = 0; i < 3 && !e; i++) e = open_bundle(j, q[i], queries, err);
    for (int i = 0; i < 3 && !e; i++) e = open_bundle(j, r[i], results, err);
    return e;
}

static void close_journey(struct journey *j)
{
    struct bundle *const all[] = { &j->queries[0], &j->queries[1], &j->leaving, &j->result[0], &j->result[1],
                                   &j->own_late };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) cp_close(j->g, all[i]->t, MOST);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static void compute_forward(struct journey *j, struct bundle *into, const struct bundle *queries, int owner)
{
    struct cp_pass *g = j->g;
    const int rank = g->cp->rank;
    dev_attention_part_forward(g->device, view(j, into, RESULT, owner, rank), view(j, into, RESULT_LSE, owner, rank),
                               view(j, queries, Q, owner, rank), g->call->qkv, positions_at(j, owner, rank),
                               positions_of(&g->at, rank),
                               attention_of_pairs(cp_shape(g, owner), positions_pairs(&g->at, g->shape, g->B, owner,
                                                                                      rank)));
}

static void merge_forward(struct journey *j, struct bundle *into, int holder)
{
    const int rank = j->g->cp->rank;
    dev_attention_merge(j->g->device, view(j, into, RESULT, rank, holder), view(j, into, RESULT_LSE, rank, holder),
                        view(j, &j->in, RESULT, rank, holder), view(j, &j->in, RESULT_LSE, rank, holder), j->g->shape);
}

static enum error_code forward(struct attention_call *c, struct error *err)
{
    struct cp_pass g;
    struct block_results r = { 0 };
    struct journey j = { .g = &g, .compute = compute_forward, .merge = merge_forward };
    enum error_code e = cp_begin(&g, c, FORWARD_PASS, err);
    if (e || g.B == 0) return e;
    e = open_journey(&j, &queries_forward, &results_forward, err);
    if (!e) e = block_results_open(&g, &r, err);
    if (!e) {
        j.own = (struct bundle){ &results_forward, { r.o[0], r.lse[0] } };
        j.in = (struct bundle){ &results_forward, { r.o[1], r.lse[1] } };
        copy_first(&j, j.queries[0].t[Q], c->qkv);
        travel(&j);
        block_results_finish(&g, &r);
    }
    close_journey(&j), block_results_close(&g, &r);
    cp_end(&g);
    return e;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static void compute_backward(struct journey *j, struct bundle *into, const struct bundle *queries, int owner)
{
    struct cp_pass *g = j->g;
    const int rank = g->cp->rank;
    const struct tensor dQ = view(j, into, RESULT, owner, rank);
    /* dQ of the owner's queries with this device's keys goes home; dK and dV add up here. */
    device_zero(g->device, dQ);
    dev_attention_part_backward(g->device, dQ, j->gradients.all, view(j, queries, D_OUT, owner, rank),
                                view(j, queries, DELTA, owner, rank), view(j, queries, LSE, owner, rank),
                                view(j, queries, Q, owner, rank), g->call->qkv, positions_at(j, owner, rank),
                                positions_of(&g->at, rank),
                                attention_of_pairs(g->shape, positions_pairs(&g->at, g->shape, g->B, owner, rank)));
}

static void merge_backward(struct journey *j, struct bundle *into, int holder)
{
    const int rank = j->g->cp->rank;
    const struct tensor sum = view(j, into, RESULT, rank, holder);
    dev_add(j->g->device, sum, sum, view(j, &j->in, RESULT, rank, holder));
}

/* This device's own queries, and what belongs to them. */
static void load_backward(struct journey *j)
{
    const struct attention_call *c = j->g->call;
    const int64_t rows = tensor_rows(c->qkv), H = j->g->shape.H;
    struct tensor *t = j->queries[0].t;
    copy_first(j, t[Q], c->qkv), copy_first(j, t[D_OUT], c->d_out), copy_first(j, t[LSE], c->kept[0]);
    copy_first(j, t[DELTA], tensor_2d(j->gradients.delta.data, t[DELTA].dtype, rows, H));
}

static enum error_code backward_input(struct attention_call *c, struct error *err)
{
    struct cp_pass g;
    struct journey j = { .g = &g, .compute = compute_backward, .merge = merge_backward };
    enum error_code e = cp_begin(&g, c, INPUT_PASS, err);
    if (e || g.B == 0) return e;
    e = open_journey(&j, &queries_backward, &results_backward, err);
    if (!e) e = open_bundle(&j, &j.own, &results_backward, err);
    if (!e) e = open_bundle(&j, &j.in, &results_backward, err);
    if (!e) e = block_gradients_open(&g, &j.gradients, err);
    if (!e) {
        load_backward(&j);
        travel(&j);
        copy_first(&j, j.gradients.all, view(&j, &j.own, RESULT, g.cp->rank, g.cp->rank));
        block_gradients_finish(&g, &j.gradients);
    }
    close_journey(&j), cp_close(&g, j.own.t, 1), cp_close(&g, j.in.t, 1), block_gradients_close(&g, &j.gradients);
    cp_end(&g);
    return e;
}

const struct attention_scheme attention_scheme_tokenring = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "tokenring",
              .description = "queries travel, keys and values stay; results go straight back; cut as ring-zigzag",
              .source = "TokenRing, arXiv:2412.20501",
              .volume = "0.75 n H A (P-1) elements a layer forward each way, in the mean; backward 1.5 and 0.75",
              .memory = "log-sum-exp: H numbers a token; on their way queries of 2 devices, and 2 results",
              .needs = "P <= S" },
    .refuses = ring_attention_refuses, .cut = ring_zigzag_cut, .slots = 1, .kept = ring_attention_kept,
    .reads_input = true, .reads_output = true, .forward = forward, .backward_input = backward_input, .cost = cost,
};
