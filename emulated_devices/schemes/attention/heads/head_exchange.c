/* head_exchange.c -- packs blocks, member by member, and exchanges them by one all-to-all.
 *
 * Input is [B n, all heads], output is [B tokens, own heads], or the reverse.  two_dimensional.c and planned/flexsp.c
 * call it; without buffers it reports ERR_MEMORY, else the error of the all-to-all.
 */
#include "emulated_devices/schemes/attention/heads/head_exchange.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/config.h"

struct heads head_exchange_heads(const struct head_exchange *exchange, int member)
{
    /* heads_at cuts the heads that all members have together, as if they were the model's. */
    struct model_config here = *exchange->tp->config;
    here.H = exchange->heads->queries.count, here.K = exchange->heads->keys.count;
    return heads_at(&here, exchange->devices, member);
}

int64_t head_exchange_width(const struct head_exchange *exchange, int member, bool fused)
{
    const struct heads h = head_exchange_heads(exchange, member);
    return (h.queries.count + (fused ? 2 * h.keys.count : 0)) * exchange->tp->config->A;
}

/* Return a member's range of a sequence's tokens before the exchange. */
static struct interval head_exchange_tokens_of(const struct head_exchange *exchange, int member)
{
    return block_at(exchange->tokens, exchange->devices, member);
}

int64_t head_exchange_sequences(const struct head_exchange *exchange, int64_t rows)
{
    /* Every sequence gives this device equally many rows. */
    return rows / head_exchange_tokens_of(exchange, exchange->rank).count;
}

struct tensor head_exchange_sinks(const struct head_exchange *exchange, struct tensor all)
{
    const struct heads h = head_exchange_heads(exchange, exchange->rank);
    /* A model without sinks, or a pass without their gradient, has nothing to cut. */
    if (!tensor_present(all)) return all;
    return tensor_1d((char *)all.data + (size_t)h.queries.first * dtype_size(all.dtype), all.dtype, h.queries.count);
}

struct attention head_exchange_shape(const struct head_exchange *exchange, struct attention all)
{
    const struct heads h = head_exchange_heads(exchange, exchange->rank);
    /* Attention after the exchange has whole sequences, so S and the mask of `all` stay. */
    all.H = h.queries.count, all.K = h.keys.count;
    /* Dropout is numbered by heads of the whole model: the part begins at its first head. */
    all.drop.col0 += h.queries.first;
    all.sinks = head_exchange_sinks(exchange, all.sinks);
    return all;
}

/* ---- moving blocks ----------------------------------------------------------------------------------------------- */

/* Own tokens with all heads, and all tokens with own heads, have different layouts.  To send them, blocks are packed,
 * member by member.  ADD: unpack by adding to the tensor. */
enum way { PACK, UNPACK, ADD };

/* A block is a rectangle of t, from (row, column) on; `packed` is its place in the message. */
struct block { char *packed; struct tensor t; int64_t row, rows, column, columns; };

/* Move some columns of some adjacent rows.  @return the address after the packed block. */
static char *head_exchange_move(struct device *device, struct block block, enum way way)
{
    /* Packed rows follow one another without a gap; in the tensor they are `pitch` bytes apart. */
    const size_t size = dtype_size(block.t.dtype), pitch = (size_t)tensor_cols(block.t) * size,
                 length = (size_t)block.columns * size;
    char *const at = (char *)block.t.data + (size_t)block.row * pitch + (size_t)block.column * size;
    if (way == PACK) device_copy_rows(device, block.packed, length, at, pitch, length, block.rows);
    if (way == UNPACK) device_copy_rows(device, at, pitch, block.packed, length, length, block.rows);
    /* Several members may have the same key heads: their gradients add up, row by row. */
    for (int64_t r = 0; r < block.rows && way == ADD; r++) {
        const struct tensor here = tensor_1d(at + (size_t)r * pitch, block.t.dtype, block.columns);
        dev_add_part(device, here, here, tensor_1d(block.packed + (size_t)r * length, block.t.dtype, block.columns));
    }
    /* The rows were added one by one without a charge, and are charged together here. */
    if (way == ADD) device_charge(device, "add", elementwise_cost(block.rows * block.columns, 3, 1, block.t.dtype));
    return block.packed + (size_t)block.rows * length;
}

/* Move a member's heads of all of this device's rows: queries of all rows, then keys, then values. */
static char *move_heads(const struct head_exchange *exchange, int member, struct tensor t, bool fused, char *packed,
                        enum way way)
{
    const struct heads h = head_exchange_heads(exchange, member), all = *exchange->heads;
    const int64_t A = exchange->tp->config->A, rows = tensor_rows(t);
    struct device *d = exchange->tp->device;
    /* A query head has one owner, so it is never added. */
    packed = head_exchange_move(d, (struct block){ packed, t, 0, rows, h.queries.first * A, h.queries.count * A },
                                way == ADD ? UNPACK : way);
    /* Columns of qkv lie as queries, keys, values: part 0 has the member's keys, part 1 its values. */
    for (int part = 0; part < 2 && fused; part++)
        packed =
            head_exchange_move(d,
                               (struct block){ packed, t, 0, rows,
                                              (all.queries.count + part * all.keys.count + h.keys.first) * A,
                                 h.keys.count * A },
                               way);
    return packed;
}

/* Move a member's tokens of this device's heads, in the same order. */
static char *move_tokens(const struct head_exchange *exchange, int member, struct tensor t, bool fused, char *packed,
                         enum way way)
{
    /* After the exchange the columns are those of the own heads: queries, then keys, then values. */
    const struct heads h = head_exchange_heads(exchange, exchange->rank);
    const int64_t A = exchange->tp->config->A, columns[] = { h.queries.count * A, h.keys.count * A, h.keys.count * A };
    const struct interval tokens = head_exchange_tokens_of(exchange, member);
    int64_t column = 0;
    /* The member's range of each sequence follows that of the sequence before, part by part. */
    for (int part = 0; part < (fused ? 3 : 1); column += columns[part++])
        for (int64_t b = 0; b < tensor_rows(t) / exchange->tokens; b++)
            packed =
                head_exchange_move(exchange->tp->device,
                                   (struct block){ packed, t, b * exchange->tokens + tokens.first, tokens.count, column,
                                                  columns[part] },
                                   way);
    return packed;
}

/* ---- the exchange ------------------------------------------------------------------------------------------------ */

/* Count the elements sent to each member (heads) and received from each (tokens), when tokens are exchanged for heads.
 * On the way back the two are swapped. */
static void counts_of(const struct head_exchange *exchange, int64_t sequences, bool fused, int64_t heads[],
                      int64_t tokens[])
{
    /* Member i gets this device's rows of i's heads, and sends i's rows of the own heads. */
    const int64_t here = sequences * head_exchange_tokens_of(exchange, exchange->rank).count,
        width = head_exchange_width(exchange, exchange->rank, fused);
    for (int i = 0; i < exchange->devices; i++) {
        heads[i] = here * head_exchange_width(exchange, i, fused);
        tokens[i] = sequences * head_exchange_tokens_of(exchange, i).count * width;
    }
}

/* Exchange both ways. gather: from `mine` to `theirs`, tokens for heads; else the way back.  Collective over the group.
 * Both packed buffers are freed in the end. */
static enum error_code head_exchange_run(const struct head_exchange *exchange, struct tensor mine,
                                         struct tensor theirs, bool fused, bool gather, struct error *err)
{
    /* More members than key heads: some have copies of a head, and backward adds the copies' gradients. */
    const bool adds = fused && !gather && exchange->devices > exchange->heads->keys.count;
    int64_t heads[MESH_MOST_LISTED], tokens[MESH_MOST_LISTED];
    struct device *d = exchange->tp->device;
    counts_of(exchange, tensor_rows(theirs) / exchange->tokens, fused, heads, tokens);
    int64_t sums[2] = { 0, 0 };
    for (int i = 0; i < exchange->devices; i++) sums[0] += heads[i], sums[1] += tokens[i];
    /* The buffers hold all blocks of one direction: what is sent, and what is received. */
    struct tensor packed_mine = device_tensor_in(d, BUFFERS, mine.dtype, sums[0]);
    struct tensor packed_theirs = device_tensor_in(d, BUFFERS, mine.dtype, sums[1]);
    enum error_code e =
        packed_mine.data && packed_theirs.data ? OK : fail(err, ERR_MEMORY, "no memory to exchange tokens for heads");
    /* All blocks are packed in the order of members, as the all-to-all expects them. */
    char *at = gather ? packed_mine.data : packed_theirs.data;
    /* Copies are added to zeros; without copies every column is written once. */
    if (!e && adds) device_zero(d, mine);
    for (int i = 0; i < exchange->devices && !e; i++)
        at = gather ? move_heads(exchange, i, mine, fused, at, PACK)
            : move_tokens(exchange, i, theirs, fused, at, PACK);
    if (!e) e = collective_run(exchange->group, ALLTOALL, NULL, &(struct collective){
        .in = gather ? packed_mine.data : packed_theirs.data, .out = gather ? packed_theirs.data : packed_mine.data,
        .dtype = mine.dtype,
        .counts = gather ? heads : tokens, .recvcounts = gather ? tokens : heads }, err);
    /* The received blocks lie in the order of members, too, and are put in their places. */
    at = gather ? packed_theirs.data : packed_mine.data;
    for (int i = 0; i < exchange->devices && !e; i++)
        at = gather ? move_tokens(exchange, i, theirs, fused, at, UNPACK)
                    : move_heads(exchange, i, mine, fused, at, adds ? ADD : UNPACK);
    /* Packing and unpacking read and write every number once. */
    if (!e) dev_charge(d, "exchange tokens for heads", tensor_1d(NULL, mine.dtype, sums[0] + sums[1]), 2, 0);
    device_free(d, packed_mine), device_free(d, packed_theirs);
    return e;
}

enum error_code head_exchange_gather(const struct head_exchange *exchange, struct tensor mine, struct tensor theirs,
                                     bool fused, struct error *err)
{
    return head_exchange_run(exchange, mine, theirs, fused, true, err);
}

enum error_code head_exchange_back(const struct head_exchange *exchange, struct tensor mine,
                                   struct tensor theirs, bool fused, struct error *err)
{
    return head_exchange_run(exchange, mine, theirs, fused, false, err);
}

/* The format of gradients on their way. */
static enum dtype head_exchange_format(const struct head_exchange *exchange)
{
    const struct tensor_parallel *const tp = exchange->tp;
    const bool copies = exchange->devices > exchange->heads->keys.count || tp->heads.copies > 1;
    return tp->device->exact && copies ? EXACT : tp->device->dtype;
}

struct tensor head_exchange_sums(const struct head_exchange *exchange, int64_t rows, int64_t cols)
{
    const enum dtype format = head_exchange_format(exchange);
    return tensor_2d(device_tensor_in(exchange->tp->device, BUFFERS, format, rows * cols).data, format, rows, cols);
}

enum error_code head_exchange_gradients(const struct head_exchange *exchange, struct tensor d_qkv,
                                        struct tensor theirs, struct error *err)
{
    if (theirs.dtype == d_qkv.dtype) return head_exchange_back(exchange, d_qkv, theirs, true, err);
    struct device *const d = exchange->tp->device;
    const struct tensor sums = head_exchange_sums(exchange, tensor_rows(d_qkv), tensor_cols(d_qkv));
    if (sums.data == NULL) return fail(err, ERR_MEMORY, "no memory for the gradients of copied keys");
    const enum error_code e = head_exchange_back(exchange, sums, theirs, true, err);
    if (!e) dev_round(d, d_qkv, sums);
    device_free(d, sums);
    return e;
}

static void enter_exchange(struct forecast *forecast, const struct head_exchange *exchange, int64_t B, bool fused,
                           bool gather, enum dtype dtype)
{
    int64_t heads[MESH_MOST_LISTED], tokens[MESH_MOST_LISTED];
    /* The counts are those of head_exchange_run, so the forecast is exact. */
    counts_of(exchange, B, fused, heads, tokens);
    forecast_on(forecast, exchange->group, ALLTOALL, NULL,
                (struct collective){ .counts = gather ? heads : tokens, .recvcounts = gather ? tokens : heads,
                                     .dtype = dtype });
}

void head_exchange_cost(struct forecast *forecast, const struct head_exchange *exchange, int64_t B,
                        bool fused, bool gather)
{
    enter_exchange(forecast, exchange, B, fused, gather, exchange->tp->device->dtype);
}

void head_exchange_gradients_cost(struct forecast *forecast, const struct head_exchange *exchange, int64_t B)
{
    enter_exchange(forecast, exchange, B, true, false, head_exchange_format(exchange));
}
