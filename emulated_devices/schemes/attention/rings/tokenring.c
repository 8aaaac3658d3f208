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
 *          With exact sums keys travel once around a ring before (tops.h); queries take H tops of a token along, and
 *          results are n H A and n H EXACT sums
 *          The released code rounds results to 16 bits before it sends them, and so does tokenring-narrow: with K = H
 *          each way then has half of ring.c's bytes at most.  With P = 1 that code merges the one result twice
 * Memory   kept: the log-sum-exp.  Forward: queries of two devices and the late ones, four results.  Backward: three
 *          times queries, gradients, log-sum-exp and delta, five times gradients of queries
 * Equals   reassociates: results are merged, and gradients of queries added up, in the order r, r-1, ..; those of keys
 *          over the queries of r, r+1, ..; all in the wide format
 *
 * Called by: model/run/run_attention.c.  Errors: ERR_MEMORY without the bundles; a failed message ends the job.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/blocks.h"
#include "emulated_devices/schemes/attention/rings/ring.h"
#include "emulated_devices/schemes/attention/tops.h"
#include "ref/model/config.h"

/* ---- what travels ------------------------------------------------------------------------------------------------ */

/* Four kinds of tensors travel.  OWN_ROWS has H A numbers of a token in the device's format; SUM_ROWS has as many in
 * the format of sums, the wide one or EXACT.  WIDE_HEADS has H wide numbers of a token, as [B H, n]; SUM_HEADS sums. */
enum kind { OWN_ROWS, SUM_ROWS, WIDE_HEADS, SUM_HEADS };
enum { MOST = 4 };
struct load { int count; enum kind kind[MOST]; };

/* Tensors have these places in a bundle of queries, and in a bundle of results. */
enum { Q, D_OUT, LSE, DELTA };
enum { RESULT, RESULT_LSE };
/* With exact sums queries take their tops along, and results their totals in place of the log-sum-exp. */
enum { TOP = D_OUT, TOTAL = RESULT_LSE };
static const struct load queries_forward = { 1, { OWN_ROWS } }, results_forward = { 2, { SUM_ROWS, WIDE_HEADS } },
                         results_narrow = { 2, { OWN_ROWS, WIDE_HEADS } }, results_wide = { 1, { SUM_ROWS } },
                         queries_backward = { 4, { OWN_ROWS, OWN_ROWS, WIDE_HEADS, WIDE_HEADS } },
                         results_backward = { 1, { SUM_ROWS } },
                         queries_exact = { 2, { OWN_ROWS, WIDE_HEADS } },
                         results_exact = { 2, { SUM_ROWS, SUM_HEADS } };

extern const struct attention_scheme attention_scheme_tokenring_narrow;

/* Return what a forward pass sends home of each result. */
static const struct load *results_of(const struct context_parallel *cp)
{
    if (cp->tp->device->exact) return &results_exact;
    return cp->scheme == &attention_scheme_tokenring_narrow ? &results_narrow : &results_forward;
}

/* Return what a forward pass sends of queries. */
static const struct load *queries_of(const struct context_parallel *cp)
{
    return cp->tp->device->exact ? &queries_exact : &queries_forward;
}

static bool of_heads(enum kind kind) { return kind == WIDE_HEADS || kind == SUM_HEADS; }

/* Return the numbers of a token in a tensor of this kind. */
static int64_t width_of(const struct context_parallel *cp, enum kind kind)
{
    return cp->heads->queries.count * (of_heads(kind) ? 1 : cp->tp->config->A);
}

static enum dtype format_of(const struct context_parallel *cp, enum kind kind)
{
    const struct device *const d = cp->tp->device;
    return kind == OWN_ROWS ? d->dtype : kind == WIDE_HEADS ? dtype_wide(d->dtype) : d->sums;
}

/* Count the tokens of an owner's late chunk, which is chunk 2P-1-owner of each sequence. */
static int64_t late_count(const struct context_parallel *cp, int owner)
{
    return block_at(cp->S, 2 * cp->devices, 2 * cp->devices - 1 - owner).count;
}

/* Count the tokens of each sequence whose queries come from their owner to a holder.  Early queries see no keys of a
 * holder with a higher rank.  Such a holder gets the late queries alone. */
static int64_t count_at(const struct context_parallel *cp, int owner, int holder)
{
    return holder > owner ? late_count(cp, owner) : context_count(cp, owner);
}

/* Enter one message for each tensor of a load, of `tokens` tokens in all sequences. */
static void tokenring_enter(struct forecast *forecast, const struct context_parallel *cp, int peer,
                            const struct load *load, int64_t tokens)
{
    for (int i = 0; i < load->count; i++)
        forecast_message(forecast, cp->group, peer,
                         (uint64_t)(tokens * width_of(cp, load->kind[i])) * dtype_size(format_of(cp, load->kind[i])));
}

static void tokenring_cost(struct forecast *forecast, const struct context_parallel *cp, enum tensor_pass pass,
                           int64_t rows)
{
    const int64_t B = context_sequences(cp, rows);
    const int left = cp_before(cp, 1);
    const bool backward = pass == INPUT_PASS;
    if (cp->devices > 1) tops_cost(forecast, cp, pass, B);
    for (int step = 1; step < cp->devices && B > 0 && pass != WEIGHT_PASS; step++) {
        /* At a step the queries of `leaving` go on to the left, and a result for `owner` goes straight home. */
        const int leaving = cp_before(cp, 1 - step), owner = cp_before(cp, -step);
        tokenring_enter(forecast, cp, left, backward ? &queries_backward : queries_of(cp),
                        B * count_at(cp, leaving, left));
        tokenring_enter(forecast, cp, owner, backward ? &results_backward : results_of(cp),
                        B * count_at(cp, owner, cp->rank));
    }
}

/* ---- a journey --------------------------------------------------------------------------------------------------- */

/* A bundle is what travels together: one tensor for each kind of its load. */
struct bundle { const struct load *load; struct tensor t[MOST]; };

struct journey {
    struct cp_pass *g;
    struct bundle queries[2], leaving;  /* here, and those that come; of device 0, the late ones that go on */
    struct bundle result[2], in;        /* for others, computed and on its way; for this device, that arrives */
    struct bundle own, own_late;        /* this device's result so far; of its late tokens while these are merged */
    struct bundle wide;                 /* a result before it is rounded for its way, or after it has come */
    struct block_gradients gradients;
    struct message flying[4 * MOST];
    int count;
    void (*compute)(struct journey *, struct bundle *into, const struct bundle *queries, int owner);
    void (*merge)(struct journey *, struct bundle *into, int holder);
};

/* Return the rows of tensor i of a bundle that a holder has of the owner's tokens: [B n, width], or [B H, n]. */
static struct tensor view(const struct journey *journey, const struct bundle *bundle, int i, int owner, int holder)
{
    const int64_t n = count_at(journey->g->cp, owner, holder), B = journey->g->B;
    const struct tensor t = bundle->t[i];
    return of_heads(bundle->load->kind[i]) ? tensor_2d(t.data, t.dtype, B * journey->g->shape.H, n)
                                          : tensor_2d(t.data, t.dtype, B * n,
                                                      width_of(journey->g->cp, bundle->load->kind[i]));
}

/* Late tokens are the last of their owner's positions, so a shorter list begins later. */
static struct tensor positions_at(const struct journey *journey, int owner, int holder)
{
    const struct tensor all = positions_of(&journey->g->at, owner);
    const int64_t n = count_at(journey->g->cp, owner, holder);
    return tensor_1d((int32_t *)all.data + tensor_count(all) - n, I32, n);
}

/* Every bundle has room for the longest share of a member, since any owner's tokens may come. */
static enum error_code open_bundle(struct journey *journey, struct bundle *bundle, const struct load *load,
                                   struct error *err)
{
    enum error_code e = OK;
    *bundle = (struct bundle){ .load = load };
    for (int i = 0; i < load->count && !e; i++)
        e = cp_open(journey->g, &bundle->t[i], 1, format_of(journey->g->cp, load->kind[i]), journey->g->longest,
                    width_of(journey->g->cp, load->kind[i]), err);
    return e;
}

/* The late tokens of a device are the last of each sequence: take them out of a bundle of all, or put them back. */
static void copy_late(struct journey *journey, struct bundle *all, struct bundle *late, int owner, bool back)
{
    const int64_t n = late_count(journey->g->cp, owner), before = context_count(journey->g->cp, owner) - n;
    for (int i = 0; i < all->load->count; i++) {
        const bool heads = of_heads(all->load->kind[i]);
        /* Late rows are the last n of each sequence, or the last n columns of [B H, n] statistics. */
        const struct tensor t = view(journey, late, i, owner, owner + 1);
        const uint64_t token = dtype_size(t.dtype) * (uint64_t)(heads ? 1 : tensor_cols(t)),
                       length = token * (uint64_t)n, skipped = token * (uint64_t)before, pitch = skipped + length;
        char *whole = (char *)all->t[i].data + skipped, *part = t.data;
        device_copy_rows(journey->g->device, back ? whole : part, back ? pitch : length, back ? part : whole,
                         back ? length : pitch, length, heads ? tensor_rows(t) : journey->g->B);
        dev_charge(journey->g->device, "copy late tokens", t, 2, 0);
    }
}

/* Copy as many of the first columns as both tensors have. */
static void copy_first(struct journey *journey, struct tensor to, struct tensor from)
{
    const uint64_t size = dtype_size(to.dtype), in = (uint64_t)tensor_cols(from) * size,
                   out = (uint64_t)tensor_cols(to) * size, length = in < out ? in : out;
    device_copy_rows(journey->g->device, to.data, out, from.data, in, length, tensor_rows(from));
    dev_charge(journey->g->device, "copy queries",
               tensor_2d(NULL, to.dtype, tensor_rows(from), (int64_t)(length / size)), 2, 0);
}

/* Start one message for each tensor of a bundle; tokenring_arrive waits for all of them. */
static void send(struct journey *journey, const struct bundle *bundle, int owner, int holder, int to)
{
    for (int i = 0; i < bundle->load->count; i++) {
        const struct tensor t = view(journey, bundle, i, owner, holder);
        journey->flying[journey->count++] = message_send(&journey->g->exchange, to, t.data, tensor_bytes(t));
    }
}

static void tokenring_receive(struct journey *journey, const struct bundle *bundle, int owner, int holder, int from)
{
    for (int i = 0; i < bundle->load->count; i++) {
        const struct tensor t = view(journey, bundle, i, owner, holder);
        journey->flying[journey->count++] = message_receive(&journey->g->exchange, from, t.data, tensor_bytes(t));
    }
}

/* Every step ends here, so the buffers of the step may be used again. */
static void tokenring_arrive(struct journey *journey)
{
    for (int i = 0; i < journey->count; i++) cp_arrive(journey->g, journey->flying[i]);
    journey->count = 0;
}

/* Queries go on to the device before; from the first one to the last, only late ones. */
static void tokenring_pass_on(struct journey *journey, int step)
{
    const struct context_parallel *cp = journey->g->cp;
    const int left = cp_before(cp, 1), right = cp_before(cp, -1), owner = cp_before(cp, -step),
              next = cp_before(cp, -step - 1);
    struct bundle *here = &journey->queries[step % 2];
    /* The next holder is behind the owner in a zigzag: only the owner's late tokens see its keys. */
    const bool shrinks = owner >= cp->rank && owner < left;
    if (shrinks) copy_late(journey, here, &journey->leaving, owner, false);
    /* The neighbour on the right passes on the next owner's queries at the same time. */
    send(journey, shrinks ? &journey->leaving : here, owner, left, left);
    tokenring_receive(journey, &journey->queries[(step + 1) % 2], next, cp->rank, right);
}

/* The result of a step's queries goes to their owner, and the own result comes from the step's holder. */
static void bring_home(struct journey *journey, int step)
{
    const int rank = journey->g->cp->rank, owner = cp_before(journey->g->cp, -step),
        holder = cp_before(journey->g->cp, step);
    send(journey, &journey->result[step % 2], owner, rank, owner);
    tokenring_receive(journey, &journey->in, rank, holder, holder);
}

/* Merge what has come from the holder of a step.  Once only late tokens come back, it is so until the end. */
static void tokenring_take(struct journey *journey, int step)
{
    const int rank = journey->g->cp->rank, holder = cp_before(journey->g->cp, step);
    /* Results of late tokens alone come from this step on, and are merged in a copy of their own. */
    if (step == rank + 1) copy_late(journey, &journey->own, &journey->own_late, rank, false);
    journey->merge(journey, holder > rank ? &journey->own_late : &journey->own, holder);
}

/* Run the steps of a pass.  Every device of the group takes part, with the same number of messages in each step. */
static void travel(struct journey *journey)
{
    const int P = journey->g->cp->devices, rank = journey->g->cp->rank;
    for (int step = 0; step < P; step++) {
        /* Three things at once: queries go on, an earlier result goes home, and this step is computed. */
        if (step < P - 1) tokenring_pass_on(journey, step);
        if (step > 1) bring_home(journey, step - 1);
        journey->compute(journey, step == 0 ? &journey->own : &journey->result[step % 2], &journey->queries[step % 2],
                         cp_before(journey->g->cp, -step));
        tokenring_arrive(journey);
        if (step > 1) tokenring_take(journey, step - 1);
    }
    /* The last result has nothing to hide behind. */
    if (P > 1) bring_home(journey, P - 1), tokenring_arrive(journey), tokenring_take(journey, P - 1);
    /* Late results were merged in a copy, unless no member has a higher rank. */
    if (rank < P - 1) copy_late(journey, &journey->own, &journey->own_late, rank, true);
}

/* Three bundles of queries and three of results are opened here; the caller sets `own`, `in` and `wide`. */
static enum error_code open_journey(struct journey *journey, const struct load *queries, const struct load *results,
                                    struct error *err)
{
    struct bundle *const q[] = { &journey->queries[0], &journey->queries[1], &journey->leaving };
    enum error_code e = OK;
    for (int i = 0; i < 3 && !e; i++) e = open_bundle(journey, q[i], queries, err);
    for (int i = 0; i < 2 && !e; i++) e = open_bundle(journey, &journey->result[i], results, err);
    /* This device's own result stays wide until all others are merged with it. */
    return e ? e : open_bundle(journey, &journey->own_late, results == &results_narrow ? &results_forward : results,
                               err);
}

static void close_journey(struct journey *journey)
{
    struct bundle *const all[] = { &journey->queries[0], &journey->queries[1], &journey->leaving, &journey->result[0],
                                  &journey->result[1],
                                   &journey->own_late, &journey->wide };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) cp_close(journey->g, all[i]->t, MOST);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Whether a bundle of results has another format than the result itself, as in tokenring-narrow with 16 bits. */
static bool is_rounded(const struct journey *journey, const struct bundle *bundle)
{
    return bundle->t[RESULT].dtype != journey->g->sums;
}

static void compute_forward(struct journey *journey, struct bundle *into, const struct bundle *queries, int owner)
{
    struct cp_pass *g = journey->g;
    const int rank = g->cp->rank;
    const bool rounded = is_rounded(journey, into);
    const struct tensor result = view(journey, rounded ? &journey->wide : into, RESULT, owner, rank);
    /* The owner's queries with this device's keys: a partial result and its log-sum-exp. */
    dev_attention_part_forward(g->device, result,
                               view(journey, into, RESULT_LSE, owner, rank),
                               view(journey, queries, Q, owner, rank), g->call->qkv, positions_at(journey, owner, rank),
                               positions_of(&g->at, rank),
                               attention_of_pairs(cp_shape(g, owner), positions_pairs(&g->at, g->shape, g->B, owner,
                                                                                      rank)));
    if (rounded) dev_round(g->device, view(journey, into, RESULT, owner, rank), result);
}

/* With exact sums: those of the owner's queries over this device's keys, for the tops that came along. */
static void compute_exact(struct journey *journey, struct bundle *into, const struct bundle *queries, int owner)
{
    struct cp_pass *g = journey->g;
    const int rank = g->cp->rank;
    const struct tensor o = view(journey, into, RESULT, owner, rank), total = view(journey, into, TOTAL, owner, rank);
    device_zero(g->device, o), device_zero(g->device, total);
    dev_attention_part_sums(g->device, o, total, view(journey, queries, TOP, owner, rank),
                            view(journey, queries, Q, owner, rank), g->call->qkv, positions_at(journey, owner, rank),
                            positions_of(&g->at, rank),
                            attention_of_pairs(cp_shape(g, owner), positions_pairs(&g->at, g->shape, g->B, owner,
                                                                                   rank)));
}

static void merge_exact(struct journey *journey, struct bundle *into, int holder)
{
    const int rank = journey->g->cp->rank;
    /* o [n, H A] and total [B H, n] for the same top: the holder's sums are added. */
    for (int i = RESULT; i <= TOTAL; i++) {
        const struct tensor sum = view(journey, into, i, rank, holder);
        dev_add(journey->g->device, sum, sum, view(journey, &journey->in, i, rank, holder));
    }
}

static void merge_forward(struct journey *journey, struct bundle *into, int holder)
{
    const int rank = journey->g->cp->rank;
    const bool rounded = is_rounded(journey, &journey->in);
    const struct tensor came = view(journey, &journey->in, RESULT, rank, holder),
                        result = rounded ? view(journey, &journey->wide, RESULT, rank, holder) : came;
    if (rounded) dev_round(journey->g->device, result, came);
    /* The holder's partial result is weighed against that so far by their log-sum-exp. */
    dev_attention_merge(journey->g->device, view(journey, into, RESULT, rank, holder),
                        view(journey, into, RESULT_LSE, rank, holder), result,
                        view(journey, &journey->in, RESULT_LSE, rank, holder), journey->g->shape);
}

/* Forward: out [n, H A] and the log-sum-exp; the keys of qkv never move.  Collective over the cp group. */
static enum error_code tokenring_forward(struct attention_call *call, struct error *err)
{
    struct cp_pass g;
    struct block_results r = { 0 };
    struct journey j = { .g = &g, .compute = compute_forward, .merge = merge_forward };
    enum error_code e = cp_begin(&g, call, FORWARD_PASS, err);
    if (e || g.B == 0) return e;
    const struct load *const results = results_of(g.cp);
    const bool narrow = results == &results_narrow && g.own != g.wide, exact = g.device->exact;
    struct bundle come = { .load = results };
    if (exact) j.compute = compute_exact, j.merge = merge_exact;
    e = open_journey(&j, queries_of(g.cp), results, err);
    if (!e && narrow) e = open_bundle(&j, &j.wide, &results_wide, err);
    if (!e && (narrow || exact)) e = open_bundle(&j, &come, results, err);
    if (!e) e = block_results_open(&g, &r, err);
    if (!e) e = block_find_tops(&g, &r, err);
    if (!e) {
        /* The own result lies in the buffers of blocks.h, and so does the result that arrives, if it is wide. */
        j.own = (struct bundle){ exact ? results : &results_forward, { r.o[0], exact ? r.total : r.lse[0] } };
        j.in = narrow || exact ? come : (struct bundle){ results, { r.o[1], r.lse[1] } };
        copy_first(&j, j.queries[0].t[Q], call->qkv);
        if (exact) copy_first(&j, j.queries[0].t[TOP], tensor_2d(r.top.data, r.top.dtype, tensor_rows(call->qkv),
                                                                 g.shape.H));
        travel(&j);
        block_results_finish(&g, &r);
    }
    close_journey(&j), cp_close(&g, come.t, MOST), block_results_close(&g, &r);
    cp_end(&g);
    return e;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static void compute_backward(struct journey *journey, struct bundle *into, const struct bundle *queries, int owner)
{
    struct cp_pass *g = journey->g;
    const int rank = g->cp->rank;
    const struct tensor dQ = view(journey, into, RESULT, owner, rank);
    /* dQ of the owner's queries with this device's keys goes home; dK and dV add up here. */
    device_zero(g->device, dQ);
    dev_attention_part_backward(g->device, dQ, journey->gradients.all, view(journey, queries, D_OUT, owner, rank),
                                view(journey, queries, DELTA, owner, rank), view(journey, queries, LSE, owner, rank),
                                view(journey, queries, Q, owner, rank), g->call->qkv,
                                positions_at(journey, owner, rank),
                                positions_of(&g->at, rank),
                                attention_of_pairs(g->shape, positions_pairs(&g->at, g->shape, g->B, owner, rank)));
}

static void merge_backward(struct journey *journey, struct bundle *into, int holder)
{
    const int rank = journey->g->cp->rank;
    /* dQ of this device's queries, or of the late ones: the holder's share is added. */
    const struct tensor sum = view(journey, into, RESULT, rank, holder);
    dev_add(journey->g->device, sum, sum, view(journey, &journey->in, RESULT, rank, holder));
}

/* Fill the first bundle: this device's queries, the output's gradient, log-sum-exp and delta, from the call. */
static void load_backward(struct journey *journey)
{
    const struct attention_call *c = journey->g->call;
    const int64_t rows = tensor_rows(c->qkv), H = journey->g->shape.H;
    struct tensor *t = journey->queries[0].t;
    copy_first(journey, t[Q], c->qkv), copy_first(journey, t[D_OUT], c->d_out), copy_first(journey, t[LSE], c->kept[0]);
    copy_first(journey, t[DELTA], tensor_2d(journey->gradients.delta.data, t[DELTA].dtype, rows, H));
}

/* Backward: dQ comes home in parts; dK and dV add up where the keys are.  Collective over the cp group. */
static enum error_code tokenring_backward_input(struct attention_call *call, struct error *err)
{
    struct cp_pass g;
    struct journey j = { .g = &g, .compute = compute_backward, .merge = merge_backward };
    enum error_code e = cp_begin(&g, call, INPUT_PASS, err);
    if (e || g.B == 0) return e;
    e = open_journey(&j, &queries_backward, &results_backward, err);
    if (!e) e = open_bundle(&j, &j.own, &results_backward, err);
    if (!e) e = open_bundle(&j, &j.in, &results_backward, err);
    if (!e) e = block_gradients_open(&g, &j.gradients, err);
    if (!e) {
        load_backward(&j);
        travel(&j);
        /* The sum of dQ goes into the first columns; dK and dV have added up in the last ones. */
        copy_first(&j, j.gradients.all, view(&j, &j.own, RESULT, g.cp->rank, g.cp->rank));
        block_gradients_finish(&g, &j.gradients);
    }
    close_journey(&j), cp_close(&g, j.own.t, 1), cp_close(&g, j.in.t, 1), block_gradients_close(&g, &j.gradients);
    cp_end(&g);
    return e;
}

#define TOKENRING                                                                                                 \
    .refuses = ring_attention_refuses, .cut = ring_zigzag_cut, .slots = 1, .kept = ring_attention_kept,          \
    .reads_input = true, .reads_output = true, .forward = tokenring_forward,                                      \
    .backward_input = tokenring_backward_input, .cost = tokenring_cost

const struct attention_scheme attention_scheme_tokenring = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "tokenring",
              .description = "queries travel, keys and values stay; results go straight back; cut as ring-zigzag",
              .source = "TokenRing, arXiv:2412.20501",
              .volume = "0.75 n H A (P-1) elements a layer forward each way, in the mean; backward 1.5 and 0.75",
              .memory = "log-sum-exp: H numbers a token; on their way queries of 2 devices, and 2 results",
              .needs = "P <= S" },
    .exact = true, TOKENRING,
};

const struct attention_scheme attention_scheme_tokenring_narrow = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "tokenring-narrow",
              .description = "as tokenring; in 16 bits results are rounded before they go back, as its code does",
              .source = "TokenRing, arXiv:2412.20501, released code",
              .volume = "as tokenring, results forward in the device's format",
              .memory = "as tokenring", .needs = "P <= S" },
    .exact = true, TOKENRING,
};
