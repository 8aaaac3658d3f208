/* attention, ulysses: an exchange of tokens for heads gives each device whole sequences of some heads.
 *
 * Source   S. A. Jacobs et al., "DeepSpeed Ulysses: system optimizations for enabling training of extreme long sequence
 *          Transformer models", arXiv:2309.14509
 * Group    P devices, each with the r-th of P nearly equal ranges of every sequence's S tokens; P need not divide S
 *          or the heads
 * Layout   before and after: n tokens of all H heads; between: all S tokens of h of H query heads and of the k
 *          key/value heads that they use.  With more devices than key/value heads, several devices have a copy of a
 *          head, and its gradients are summed
 * Sends    forward   all-to-all of queries, keys, values; all-to-all of the output
 *          backward  the same for their gradients
 *          n (H + 2 K) A (P-1)/P and n H A (P-1)/P elements each, if all numbers divide; copied keys and values are
 *          extra
 * Memory   kept: queries, keys, values and output of this device's heads for all S tokens, and the log-sum-exp; during
 *          a pass: packed data to send and received data, of one exchange at a time
 * Equals   permutes: each head is computed on one device, as in the one-device run.  Gradients of copied keys and
 *          values reassociate, in the order of ranks
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/attention.h"

enum { QKV, OUT, LSE };                 /* the slots that are kept */

/* ---- each device's share ----------------------------------------------------------------------------------------- */

static const char *refuses(const struct context_parallel *cp, const struct model_config *c)
{
    (void)c;
    if (cp->heads->queries.count < cp->devices)
        return "at least as many query heads on each device of tp as there are devices along cp";
    return cp->S < cp->devices ? "a token of each sequence for every device" : NULL;
}

/* A member's heads, out of those that tensor parallelism gives to this group. */
static struct heads heads_of(const struct context_parallel *cp, int member)
{
    struct model_config here = *cp->tp->config;
    here.H = cp->heads->queries.count, here.K = cp->heads->keys.count;
    return heads_at(&here, cp->devices, member);
}

/* Columns of the fused projection, or of the output, that go to a member. */
static int64_t width_of(const struct context_parallel *cp, int member, bool fused)
{
    const struct heads h = heads_of(cp, member);
    return (h.queries.count + (fused ? 2 * h.keys.count : 0)) * cp->tp->config->A;
}

static struct interval tokens_of(const struct context_parallel *cp, int member)
{
    return block_at(cp->S, cp->devices, member);
}

static void cut(struct intervals *tokens, const struct context_parallel *cp, int member)
{
    intervals_add(tokens, tokens_of(cp, member));
}

static int64_t sequences_in(const struct context_parallel *cp, int64_t rows)
{
    return rows / tokens_of(cp, cp->rank).count;
}

static struct tensor kept(const struct context_parallel *cp, int slot, int64_t rows)
{
    const int64_t all = sequences_in(cp, rows) * cp->S;
    const enum dtype own = cp->tp->device->dtype;
    if (slot == LSE) return tensor_2d(NULL, dtype_wide(own), all, heads_of(cp, cp->rank).queries.count);
    return tensor_2d(NULL, own, all, width_of(cp, cp->rank, slot == QKV));
}

/* ---- moving blocks ----------------------------------------------------------------------------------------------- */

/* Own tokens with all heads, and all tokens with own heads, have different layouts.  To send them, blocks are packed,
 * member by member.  ADD: unpack by adding to the tensor. */
enum way { PACK, UNPACK, ADD };

struct block { char *packed; struct tensor t; int64_t row, rows, column, columns; };

/* Move some columns of some adjacent rows.  @return the address after the packed block. */
static char *move(struct device *d, struct block b, enum way way)
{
    const size_t size = dtype_size(b.t.dtype), pitch = (size_t)tensor_cols(b.t) * size,
                 length = (size_t)b.columns * size;
    char *const at = (char *)b.t.data + (size_t)b.row * pitch + (size_t)b.column * size;
    if (way == PACK) device_copy_rows(d, b.packed, length, at, pitch, length, b.rows);
    if (way == UNPACK) device_copy_rows(d, at, pitch, b.packed, length, length, b.rows);
    for (int64_t r = 0; r < b.rows && way == ADD; r++) {
        const struct tensor here = tensor_1d(at + (size_t)r * pitch, b.t.dtype, b.columns);
        dev_add(d, here, here, tensor_1d(b.packed + (size_t)r * length, b.t.dtype, b.columns));
    }
    return b.packed + (size_t)b.rows * length;
}

/* Move a member's heads of all of this device's rows: queries of all rows, then keys, then values. */
static char *move_heads(struct context_parallel *cp, int member, struct tensor t, bool fused, char *packed,
                        enum way way)
{
    const struct heads h = heads_of(cp, member), all = *cp->heads;
    const int64_t A = cp->tp->config->A, rows = tensor_rows(t);
    struct device *d = cp->tp->device;
    packed = move(d, (struct block){ packed, t, 0, rows, h.queries.first * A, h.queries.count * A },
                  way == ADD ? UNPACK : way);
    for (int part = 0; part < 2 && fused; part++)
        packed =
            move(d,
                 (struct block){ packed, t, 0, rows, (all.queries.count + part * all.keys.count + h.keys.first) * A,
                                 h.keys.count * A },
                 way);
    return packed;
}

/* Move a member's tokens of this device's heads, in the same order. */
static char *move_tokens(struct context_parallel *cp, int member, struct tensor t, bool fused, char *packed,
                         enum way way)
{
    const struct heads h = heads_of(cp, cp->rank);
    const int64_t A = cp->tp->config->A, columns[] = { h.queries.count * A, h.keys.count * A, h.keys.count * A };
    const struct interval tokens = tokens_of(cp, member);
    int64_t column = 0;
    for (int part = 0; part < (fused ? 3 : 1); column += columns[part++])
        for (int64_t b = 0; b < tensor_rows(t) / cp->S; b++)
            packed =
                move(cp->tp->device,
                     (struct block){ packed, t, b * cp->S + tokens.first, tokens.count, column, columns[part] }, way);
    return packed;
}

/* ---- the exchange ------------------------------------------------------------------------------------------------ */

/* For the exchange of tokens for heads: the elements sent to each member (heads) and received from it (tokens).  In the
 * exchange back the two are swapped. */
static void counts_of(const struct context_parallel *cp, int64_t sequences, bool fused, int64_t heads[],
                      int64_t tokens[])
{
    const int64_t here = sequences * tokens_of(cp, cp->rank).count, width = width_of(cp, cp->rank, fused);
    for (int i = 0; i < cp->devices; i++) {
        heads[i] = here * width_of(cp, i, fused);
        tokens[i] = sequences * tokens_of(cp, i).count * width;
    }
}

/* mine: this device's tokens, all heads; theirs: all tokens, its heads.  gather: from mine to theirs; else back.
 * adds: sum what several members send for one head (copied keys and values). */
static enum error_code exchange(struct context_parallel *cp, struct tensor mine, struct tensor theirs, bool fused,
                                bool gather, bool adds, struct error *err)
{
    int64_t heads[MESH_MOST_DEVICES], tokens[MESH_MOST_DEVICES];
    struct device *d = cp->tp->device;
    counts_of(cp, tensor_rows(theirs) / cp->S, fused, heads, tokens);
    int64_t sums[2] = { 0, 0 };
    for (int i = 0; i < cp->devices; i++) sums[0] += heads[i], sums[1] += tokens[i];
    struct tensor packed_mine = device_tensor_in(d, BUFFERS, mine.dtype, sums[0]);
    struct tensor packed_theirs = device_tensor_in(d, BUFFERS, mine.dtype, sums[1]);
    enum error_code e =
        packed_mine.data && packed_theirs.data ? OK : fail(err, ERR_MEMORY, "no memory to exchange tokens for heads");
    char *at = gather ? packed_mine.data : packed_theirs.data;
    for (int i = 0; i < cp->devices && !e; i++)
        at = gather ? move_heads(cp, i, mine, fused, at, PACK) : move_tokens(cp, i, theirs, fused, at, PACK);
    if (!e) e = collective_run(cp->group, ALLTOALL, NULL, &(struct collective){
        .in = gather ? packed_mine.data : packed_theirs.data, .out = gather ? packed_theirs.data : packed_mine.data,
        .dtype = mine.dtype,
        .counts = gather ? heads : tokens, .recvcounts = gather ? tokens : heads }, err);
    at = gather ? packed_theirs.data : packed_mine.data;
    for (int i = 0; i < cp->devices && !e; i++)
        at = gather ? move_tokens(cp, i, theirs, fused, at, UNPACK)
                    : move_heads(cp, i, mine, fused, at, adds ? ADD : UNPACK);
    if (!e) dev_charge(d, "exchange tokens for heads", tensor_1d(NULL, mine.dtype, sums[0] + sums[1]), 2, 0);
    device_free(d, packed_mine), device_free(d, packed_theirs);
    return e;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static struct attention shape_here(const struct attention_call *c)
{
    const struct heads h = heads_of(c->cp, c->cp->rank);
    struct attention a = c->shape;
    a.H = h.queries.count, a.K = h.keys.count;
    a.drop.col0 += h.queries.first;
    return a;
}

static enum error_code forward(struct attention_call *c, struct error *err)
{
    struct context_parallel *cp = c->cp;
    enum error_code e = exchange(cp, c->qkv, c->kept[QKV], true, true, false, err);
    if (e) return e;
    dev_attention_forward(cp->tp->device, c->kept[OUT], c->kept[LSE], c->kept[QKV], shape_here(c));
    return exchange(cp, c->out, c->kept[OUT], false, false, false, err);
}

static enum error_code backward_input(struct attention_call *c, struct error *err)
{
    struct context_parallel *cp = c->cp;
    struct device *d = cp->tp->device;
    const struct tensor in = c->kept[QKV], out = c->kept[OUT];
    struct tensor d_out = device_tensor_2d(d, BUFFERS, tensor_rows(out), tensor_cols(out));
    struct tensor d_in = device_tensor_2d(d, BUFFERS, tensor_rows(in), tensor_cols(in));
    const bool adds = cp->devices > cp->heads->keys.count;
    enum error_code e =
        d_out.data && d_in.data ? OK : fail(err, ERR_MEMORY, "no memory for the gradients of attention");
    if (!e) e = exchange(cp, c->d_out, d_out, false, true, false, err);
    if (!e) dev_attention_backward_input(d, d_in, d_out, out, c->kept[LSE], in, shape_here(c));
    if (!e && adds) device_zero(d, c->d_qkv);
    if (!e) e = exchange(cp, c->d_qkv, d_in, true, false, adds, err);
    device_free(d, d_out), device_free(d, d_in);
    return e;
}

static void enter(struct forecast *f, const struct context_parallel *cp, int64_t rows, bool fused, bool gather)
{
    int64_t heads[MESH_MOST_DEVICES], tokens[MESH_MOST_DEVICES];
    counts_of(cp, sequences_in(cp, rows), fused, heads, tokens);
    forecast_on(f, cp->group, ALLTOALL, NULL,
                (struct collective){ .counts = gather ? heads : tokens,
                                     .recvcounts = gather ? tokens : heads,
                                     .dtype = cp->tp->device->dtype });
}

static void cost(struct forecast *f, const struct context_parallel *cp, enum tensor_pass pass, int64_t rows)
{
    if (pass == WEIGHT_PASS) return;
    enter(f, cp, rows, pass == FORWARD_PASS, true);
    enter(f, cp, rows, pass != FORWARD_PASS, false);
}

const struct attention_scheme attention_scheme_ulysses = {
    .head = { .kind = ATTENTION_SCHEME, .equality = PERMUTES, .name = "ulysses",
              .description = "tokens exchanged for heads before attention, and back after it",
              .source = "DeepSpeed Ulysses, arXiv:2309.14509",
              .volume = "n (2 H + 2 K) A (P-1)/P elements a layer and microbatch, each way, n = B S/P",
              .memory = "queries, keys, values and output once more, in heads",
              .needs = "P <= H on each device of tp, P <= S" },
    .refuses = refuses, .cut = cut, .slots = 3, .kept = kept, .forward = forward, .backward_input = backward_input,
    .cost = cost,
};
