/* attention, rsa: ring self-attention.  Keys travel around a ring, then values; whole rows of scores are stored.
 *
 * Source   S. Li, F. Xue, C. Baranwal, Y. Li, Y. You, "Sequence parallelism: long sequence training from system
 *          perspective", arXiv:2105.13120; ColossalAI, colossalai/legacy/nn/layer/parallel_sequence
 * Group    P devices, each with the r-th of P nearly equal ranges of every sequence's S tokens; P need not divide S
 * Layout   n tokens of all heads; P [B H n, S]: the probabilities of this device's n queries with all tokens
 *
 *          forward   keys around the ring      scores = scale Q K^T, block by block
 *                    softmax                   of whole rows; with capped scores their lse are kept
 *                    values around the ring    O = sum of m P V over the blocks, m by dropout's rule
 *          backward  dV = (m P)^T dO           for all S tokens; all-reduce, keep the own rows
 *                    values around the ring    dP = m dO V^T
 *                    softmax                   dS = P (dP - sum of P dP), of whole rows
 *                    dK = scale dS^T Q         for all S tokens; all-reduce, keep the own rows
 *                    keys around the ring      dQ = sum of scale dS K over the blocks
 *
 * Sends    forward   2 (P-1) messages of n K A elements
 *          backward  the same, and two all-reduces of B S K A elements in the wide format, by the default algorithm
 *          If all numbers divide and K = H: 8 (P-1) B H (S/P) A elements, as many as the four all-reduces of a layer
 *          under --tensor 1d.  Only the own rows of the two sums are used: reduce-scatters would make it 6
 * Memory   kept: B H n S probabilities, in the wide format; with capped scores B H n more.  Both passes: two blocks of
 *          keys or values.  Backward: also the gradients of the probabilities, and of keys or values of all S tokens
 * Work     every pair of tokens is computed, also those that do not see each other
 * Equals   reassociates: O and dQ are added in the order of blocks r, r-1, ..; dK and dV in the order of ranks.  The
 *          released code also divides dQ, dK and dV by P, but not the gradients beside attention: that is the gradient
 *          of no loss, and is not done here
 * Exact    with exact sums rsa_exact.c runs: the same messages, no stored scores, and one all-reduce of EXACT sums
 *
 * Called by: model/run/run_attention.c.  Errors: ERR_MEMORY without room for scores or blocks, ERR_COMM of a failed
 * all-reduce; a failed ring message ends the job.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/pass.h"
#include "emulated_devices/schemes/attention/rings/ring.h"
#include "ref/model/config.h"

enum what { KEYS, VALUES, KINDS };

struct rsa {
    struct cp_pass pass;
    struct attention shape[KINDS];      /* of products with keys, and with values */
    struct tensor at;                   /* positions of this device's queries */
    struct tensor buffer[2];            /* blocks on their way: [longest, K A] */
    struct tensor P, dP;                /* [B H n, S] */
    struct tensor lse;                  /* [B H n] if scores are capped: what gives them back, for the cap's slope */
    struct tensor out, all;             /* output; gradients of queries, keys and values: in the wide format */
    struct tensor whole;                /* gradients of keys or values of all tokens: [B S, K A], likewise */
};

/* Keys and values travel apart here, so a block has K A columns. */
static int64_t width_of(const struct context_parallel *cp) { return cp_keys_width(cp) / 2; }

/* Return the first column of the keys, or of the values, in a row of qkv: queries, keys, values. */
static int64_t column_of(const struct cp_pass *cp_pass, enum what what)
{
    return (cp_pass->shape.H + what * cp_pass->shape.K) * cp_pass->shape.A;
}

static struct tensor rsa_kept(const struct context_parallel *cp, int slot, int64_t rows)
{
    const enum dtype t = dtype_wide(cp->tp->device->dtype);
    if (cp->tp->device->exact) return slot == 0 ? ring_attention_kept(cp, slot, rows) : tensor_1d(NULL, t, 0);
    /* Slot 0 keeps the probabilities [B H n, S]; slot 1 the log-sum-exp if scores are capped. */
    const int64_t scores = rows * cp->heads->queries.count;
    return slot == 0 ? tensor_2d(NULL, t, scores, cp->S)
                     : tensor_1d(NULL, t, cp->tp->config->score_cap > 0 ? scores : 0);
}

/* Enter P - 1 messages each for keys and values; backward also two all-reduces of B S K A wide numbers, or one of both
 * as EXACT sums. */
static void rsa_cost(struct forecast *forecast, const struct context_parallel *cp, enum tensor_pass pass, int64_t rows)
{
    const int64_t B = context_sequences(cp, rows), width = width_of(cp);
    const enum dtype own = cp->tp->device->dtype;
    const int P = cp->devices, right = (cp->rank + 1) % P;
    if (P == 1 || B == 0 || pass == WEIGHT_PASS) return;
    /* Keys and values go around separately; backward also sums the gradients of each over the devices. */
    for (int w = KEYS; w <= VALUES; w++) {
        for (int step = 0; step < P - 1; step++)
            forecast_message(forecast, cp->group, right,
                             (uint64_t)(B * context_count(cp, cp_before(cp, step)) * width) * dtype_size(own));
        if (pass == INPUT_PASS && !cp->tp->device->exact)
            forecast_on(forecast, cp->group, ALLREDUCE, NULL,
                        (struct collective){ .count = B * cp->S * width, .dtype = dtype_wide(own), .reduction = SUM });
    }
    if (pass == INPUT_PASS && cp->tp->device->exact)
        forecast_on(forecast, cp->group, ALLREDUCE, NULL,
                    (struct collective){ .count = 2 * B * cp->S * width, .dtype = EXACT, .reduction = SUM });
}

/* ---- what both passes need --------------------------------------------------------------------------------------- */

/* Fill the pass for forward or backward.  `out` and `all` are the call's until a wide buffer replaces them. */
static enum error_code rsa_begin(struct rsa *rsa, struct attention_call *call, enum tensor_pass pass, struct error *err)
{
    struct cp_pass *g = &rsa->pass;
    *rsa = (struct rsa){ .shape = { call->shape, call->shape }, .P = call->kept[0], .out = call->out,
                        .all = call->d_qkv };
    if (call->shape.cap > 0) rsa->lse = call->kept[1];
    /* Scores have no dropout; products with values have neither scale nor cap. */
    rsa->shape[KEYS].drop.p = 0, rsa->shape[VALUES].scale = 1, rsa->shape[VALUES].cap = 0;
    const enum error_code e = cp_begin(g, call, pass, err);
    if (!e && g->B > 0) rsa->at = positions_of(&g->at, g->cp->rank);
    return e;
}

static enum error_code open_blocks(struct rsa *rsa, struct error *err)
{
    struct cp_pass *g = &rsa->pass;
    /* A device alone still copies its keys into one block, which the products read. */
    return cp_open(g, rsa->buffer, g->cp->devices > 1 ? 2 : 1, g->own, g->longest, width_of(g->cp), err);
}

static void rsa_end(struct rsa *rsa)
{
    cp_close(&rsa->pass, rsa->buffer, 2);
    cp_end(&rsa->pass);
}

/* Send this device's keys or values around, and use each block; first: its first token. */
static void around(struct rsa *rsa, enum what what, void (*use)(struct rsa *, struct tensor block, int64_t first))
{
    struct cp_pass *g = &rsa->pass;
    const int P = g->cp->devices;
    /* Block 0 is the own one: [n, K A] columns of qkv. */
    cp_copy_columns(g, cp_rows(g, rsa->buffer[0], g->cp->rank), 0, g->call->qkv, column_of(g, what), width_of(g->cp));
    for (int step = 0; step < P; step++) {
        const int owner = cp_before(g->cp, step);
        struct cp_turn on_way = { { -1 }, { -1 } };
        /* The next block comes while this one is used. */
        if (step < P - 1) on_way = cp_turn(g, rsa->buffer, step);
        use(rsa, cp_rows(g, rsa->buffer[step % 2], owner), block_at(g->cp->S, P, owner).first);
        if (step < P - 1) cp_arrive(g, on_way.in), cp_arrive(g, on_way.out);
    }
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* P[:, first .. first + n) = scale Q K^T with the keys of one member; the mask is applied, too. */
static void rsa_score(struct rsa *rsa, struct tensor keys, int64_t first)
{
    dev_attention_scores(rsa->pass.device, rsa->P, first, rsa->pass.call->qkv, keys, rsa->at, rsa->shape[KEYS]);
}

/* out [B n, H A] += (m P)[:, block] V [block] for the values of one member. */
static void add_values(struct rsa *rsa, struct tensor values, int64_t first)
{
    dev_attention_scores_times(rsa->pass.device, rsa->out, rsa->P, first, values, rsa->at, rsa->shape[VALUES]);
}

/* Compute scores of whole rows, their softmax, then the weighted sum of values.  The probabilities stay in the call's
 * slot. */
static enum error_code rsa_run_forward(struct rsa *rsa, struct error *err)
{
    struct cp_pass *g = &rsa->pass;
    const bool rounds = g->own != g->wide;
    const struct tensor out = g->call->out;
    enum error_code e = open_blocks(rsa, err);
    /* In 16 bits the sum over blocks is wide, and the call's output is its rounding. */
    if (!e && rounds) e = cp_open(g, &rsa->out, 1, g->wide, tensor_rows(out), tensor_cols(out), err);
    if (e) return e;
    /* P [B H n, S] gets columns of scores, a block of keys at a time. */
    around(rsa, KEYS, rsa_score);
    /* Whole rows are there, so the softmax is an ordinary one. */
    dev_attention_softmax(g->device, rsa->P, rsa->lse, rsa->at, g->shape);
    device_zero(g->device, rsa->out);
    /* out [B n, H A] += P[:, block] V[block]. */
    around(rsa, VALUES, add_values);
    if (rounds) dev_round(g->device, out, rsa->out);
    return OK;
}

static enum error_code rsa_forward(struct attention_call *call, struct error *err)
{
    struct rsa s;
    if (call->cp->tp->device->exact) return rsa_exact_forward(call, err);
    enum error_code e = rsa_begin(&s, call, FORWARD_PASS, err);
    if (e || s.pass.B == 0) return e;
    e = rsa_run_forward(&s, err);
    if (s.out.data != call->out.data) cp_close(&s.pass, &s.out, 1);
    rsa_end(&s);
    return e;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* dP[:, first .. first + n) = m dO V^T with the values of one member. */
static void score_values(struct rsa *rsa, struct tensor values, int64_t first)
{
    dev_attention_scores(rsa->pass.device, rsa->dP, first, rsa->pass.call->d_out, values, rsa->at, rsa->shape[VALUES]);
}

/* dQ [B n, H A] += scale dS[:, block] K [block], in the first columns of `all`. */
static void add_keys(struct rsa *rsa, struct tensor keys, int64_t first)
{
    dev_attention_scores_times(rsa->pass.device, rsa->all, rsa->dP, first, keys, rsa->at, rsa->shape[KEYS]);
}

/* Gradients of keys or values of all tokens, X^T rows, summed over the devices: keep this device's. */
static enum error_code sum_over_devices(struct rsa *rsa, enum what what, struct tensor X, struct tensor rows,
                                        struct error *err)
{
    struct cp_pass *g = &rsa->pass;
    const struct interval own = block_at(g->cp->S, g->cp->devices, g->cp->rank);
    /* whole [B S, K A] = X^T rows: what this device's queries give to all keys or values. */
    dev_attention_scores_transposed(g->device, rsa->whole, X, rows, rsa->at, rsa->shape[what]);
    const enum error_code e =
        allreduce(g->cp->group, rsa->whole.data, tensor_count(rsa->whole), g->wide, SUM, NULL, err);
    /* This device keeps its n rows of each sequence's S rows, and drops the sums of the rest. */
    for (int64_t b = 0; b < g->B && !e; b++)
        cp_copy_columns(g, tensor_rows_of(rsa->all, b * own.count, own.count), column_of(g, what),
                        tensor_rows_of(rsa->whole, b * g->cp->S + own.first, own.count), 0, width_of(g->cp));
    return e;
}

/* Open the largest buffers of the scheme: dP has the size of the kept probabilities. */
static enum error_code rsa_open_gradients(struct rsa *rsa, struct error *err)
{
    struct cp_pass *g = &rsa->pass;
    const struct tensor all = g->call->d_qkv;
    enum error_code e = open_blocks(rsa, err);
    if (!e) e = cp_open(g, &rsa->dP, 1, g->wide, tensor_rows(rsa->P), tensor_cols(rsa->P), err);
    if (!e) e = cp_open(g, &rsa->whole, 1, g->wide, g->B * g->cp->S, width_of(g->cp), err);
    if (!e && g->own != g->wide) e = cp_open(g, &rsa->all, 1, g->wide, tensor_rows(all), tensor_cols(all), err);
    return e;
}

/* Backward in the order of the head's table: dV, dP, dS, dK, dQ. */
static enum error_code run_backward(struct rsa *rsa, struct error *err)
{
    struct cp_pass *g = &rsa->pass;
    enum error_code e = rsa_open_gradients(rsa, err);
    if (e) return e;
    /* The order below is fixed: dV needs P, dP needs the values, dK and dQ need dS. */
    device_zero(g->device, rsa->all);
    /* dV = P^T dO, summed over the devices. */
    e = sum_over_devices(rsa, VALUES, rsa->P, g->call->d_out, err);
    if (e) return e;
    /* dP = dO V^T, block by block; then dS = P (dP - sum of P dP in the row). */
    around(rsa, VALUES, score_values);
    dev_attention_softmax_backward(g->device, rsa->dP, rsa->P, rsa->lse, g->shape);
    /* dK = dS^T Q, summed over the devices; then dQ = dS K around the ring. */
    e = sum_over_devices(rsa, KEYS, rsa->dP, g->call->qkv, err);
    if (e) return e;
    around(rsa, KEYS, add_keys);
    if (g->own != g->wide) dev_round(g->device, g->call->d_qkv, rsa->all);
    return OK;
}

static enum error_code rsa_backward_input(struct attention_call *call, struct error *err)
{
    struct rsa s;
    if (call->cp->tp->device->exact) return rsa_exact_backward_input(call, err);
    enum error_code e = rsa_begin(&s, call, INPUT_PASS, err);
    if (e || s.pass.B == 0) return e;
    e = run_backward(&s, err);
    cp_close(&s.pass, &s.dP, 1), cp_close(&s.pass, &s.whole, 1);
    if (s.all.data != call->d_qkv.data) cp_close(&s.pass, &s.all, 1);
    rsa_end(&s);
    return e;
}

/* ---- the scheme -------------------------------------------------------------------------------------------------- */

static void rsa_cut(struct intervals *tokens, const struct context_parallel *cp, int member)
{
    intervals_add(tokens, block_at(cp->S, cp->devices, member));
}

const struct attention_scheme attention_scheme_rsa = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "rsa",
              .description = "keys, then values travel around a ring; whole rows of scores are stored",
              .source = "Sequence parallelism (ring self-attention), arXiv:2105.13120",
              .volume = "2 n K A (P-1) elements a layer forward, 6 n K A (P-1) backward, n = B S/P",
              .memory = "scores: H S numbers a token; gradients of all keys or values", .needs = "P <= S" },
    .exact = true, .refuses = ring_attention_refuses, .cut = rsa_cut, .slots = 2, .kept = rsa_kept, .reads_input = true,
        .forward = rsa_forward,
    .backward_input = rsa_backward_input, .cost = rsa_cost,
};
