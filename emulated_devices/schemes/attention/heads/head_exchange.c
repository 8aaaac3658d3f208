/* head_exchange.c -- packs blocks, member by member, and exchanges them by one all-to-all. */
#include "emulated_devices/schemes/attention/heads/head_exchange.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/config.h"

struct heads head_exchange_heads(const struct head_exchange *x, int member)
{
    struct model_config here = *x->tp->config;
    here.H = x->heads->queries.count, here.K = x->heads->keys.count;
    return heads_at(&here, x->devices, member);
}

int64_t head_exchange_width(const struct head_exchange *x, int member, bool fused)
{
    const struct heads h = head_exchange_heads(x, member);
    return (h.queries.count + (fused ? 2 * h.keys.count : 0)) * x->tp->config->A;
}

static struct interval tokens_of(const struct head_exchange *x, int member)
{
    return block_at(x->tokens, x->devices, member);
}

int64_t head_exchange_sequences(const struct head_exchange *x, int64_t rows)
{
    return rows / tokens_of(x, x->rank).count;
}

struct tensor head_exchange_sinks(const struct head_exchange *x, struct tensor all)
{
    const struct heads h = head_exchange_heads(x, x->rank);
    if (!tensor_present(all)) return all;
    return tensor_1d((char *)all.data + (size_t)h.queries.first * dtype_size(all.dtype), all.dtype, h.queries.count);
}

struct attention head_exchange_shape(const struct head_exchange *x, struct attention all)
{
    const struct heads h = head_exchange_heads(x, x->rank);
    all.H = h.queries.count, all.K = h.keys.count;
    /* Dropout is numbered by heads of the whole model: the part begins at its first head. */
    all.drop.col0 += h.queries.first;
    all.sinks = head_exchange_sinks(x, all.sinks);
    return all;
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
    /* Several members may have the same key heads: their gradients add up, row by row. */
    for (int64_t r = 0; r < b.rows && way == ADD; r++) {
        const struct tensor here = tensor_1d(at + (size_t)r * pitch, b.t.dtype, b.columns);
        dev_add_part(d, here, here, tensor_1d(b.packed + (size_t)r * length, b.t.dtype, b.columns));
    }
    if (way == ADD) device_charge(d, "add", elementwise_cost(b.rows * b.columns, 3, 1, b.t.dtype));
    return b.packed + (size_t)b.rows * length;
}

/* Move a member's heads of all of this device's rows: queries of all rows, then keys, then values. */
static char *move_heads(const struct head_exchange *x, int member, struct tensor t, bool fused, char *packed,
                        enum way way)
{
    const struct heads h = head_exchange_heads(x, member), all = *x->heads;
    const int64_t A = x->tp->config->A, rows = tensor_rows(t);
    struct device *d = x->tp->device;
    /* A query head has one owner, so it is never added. */
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
static char *move_tokens(const struct head_exchange *x, int member, struct tensor t, bool fused, char *packed,
                         enum way way)
{
    const struct heads h = head_exchange_heads(x, x->rank);
    const int64_t A = x->tp->config->A, columns[] = { h.queries.count * A, h.keys.count * A, h.keys.count * A };
    const struct interval tokens = tokens_of(x, member);
    int64_t column = 0;
    for (int part = 0; part < (fused ? 3 : 1); column += columns[part++])
        for (int64_t b = 0; b < tensor_rows(t) / x->tokens; b++)
            packed =
                move(x->tp->device,
                     (struct block){ packed, t, b * x->tokens + tokens.first, tokens.count, column, columns[part] },
                     way);
    return packed;
}

/* ---- the exchange ------------------------------------------------------------------------------------------------ */

/* For the exchange of tokens for heads: the elements sent to each member (heads) and received from it (tokens).  In the
 * exchange back the two are swapped. */
static void counts_of(const struct head_exchange *x, int64_t sequences, bool fused, int64_t heads[],
                      int64_t tokens[])
{
    const int64_t here = sequences * tokens_of(x, x->rank).count, width = head_exchange_width(x, x->rank, fused);
    for (int i = 0; i < x->devices; i++) {
        heads[i] = here * head_exchange_width(x, i, fused);
        tokens[i] = sequences * tokens_of(x, i).count * width;
    }
}

/* gather: from mine to theirs; else back. */
static enum error_code run(const struct head_exchange *x, struct tensor mine, struct tensor theirs, bool fused,
                           bool gather, struct error *err)
{
    /* More members than key heads: some have copies of a head, and backward adds the copies' gradients. */
    const bool adds = fused && !gather && x->devices > x->heads->keys.count;
    int64_t heads[MESH_MOST_DEVICES], tokens[MESH_MOST_DEVICES];
    struct device *d = x->tp->device;
    counts_of(x, tensor_rows(theirs) / x->tokens, fused, heads, tokens);
    int64_t sums[2] = { 0, 0 };
    for (int i = 0; i < x->devices; i++) sums[0] += heads[i], sums[1] += tokens[i];
    struct tensor packed_mine = device_tensor_in(d, BUFFERS, mine.dtype, sums[0]);
    struct tensor packed_theirs = device_tensor_in(d, BUFFERS, mine.dtype, sums[1]);
    enum error_code e =
        packed_mine.data && packed_theirs.data ? OK : fail(err, ERR_MEMORY, "no memory to exchange tokens for heads");
    char *at = gather ? packed_mine.data : packed_theirs.data;
    if (!e && adds) device_zero(d, mine);
    for (int i = 0; i < x->devices && !e; i++)
        at = gather ? move_heads(x, i, mine, fused, at, PACK) : move_tokens(x, i, theirs, fused, at, PACK);
    if (!e) e = collective_run(x->group, ALLTOALL, NULL, &(struct collective){
        .in = gather ? packed_mine.data : packed_theirs.data, .out = gather ? packed_theirs.data : packed_mine.data,
        .dtype = mine.dtype,
        .counts = gather ? heads : tokens, .recvcounts = gather ? tokens : heads }, err);
    at = gather ? packed_theirs.data : packed_mine.data;
    for (int i = 0; i < x->devices && !e; i++)
        at = gather ? move_tokens(x, i, theirs, fused, at, UNPACK)
                    : move_heads(x, i, mine, fused, at, adds ? ADD : UNPACK);
    if (!e) dev_charge(d, "exchange tokens for heads", tensor_1d(NULL, mine.dtype, sums[0] + sums[1]), 2, 0);
    device_free(d, packed_mine), device_free(d, packed_theirs);
    return e;
}

enum error_code head_exchange_gather(const struct head_exchange *x, struct tensor mine, struct tensor theirs,
                                     bool fused, struct error *err)
{
    return run(x, mine, theirs, fused, true, err);
}

enum error_code head_exchange_back(const struct head_exchange *x, struct tensor mine, struct tensor theirs, bool fused,
                                   struct error *err)
{
    return run(x, mine, theirs, fused, false, err);
}

void head_exchange_cost(struct forecast *f, const struct head_exchange *x, int64_t B, bool fused, bool gather)
{
    int64_t heads[MESH_MOST_DEVICES], tokens[MESH_MOST_DEVICES];
    counts_of(x, B, fused, heads, tokens);
    forecast_on(f, x->group, ALLTOALL, NULL,
                (struct collective){ .counts = gather ? heads : tokens, .recvcounts = gather ? tokens : heads,
                                     .dtype = x->tp->device->dtype });
}
