/* heads.c -- each device's heads in grouped-query attention, and the gradients of copied keys and values.
 *
 * Source   J. Ainslie et al., "GQA: training generalized multi-query transformer models from multi-head checkpoints",
 *          arXiv:2305.13245: each of K key/value heads is used by a group of H/K query heads
 * Layout   P parts of the inner side.
 *          P <= K   each part gets key/value heads, in numbers as equal as possible, and the query heads that use them
 *          P > K    each key/value head gets several parts: each has a copy of the head and some of its query heads.
 *                   So each part has one key/value head and, since H >= P, at least one query head
 * Sends    P > K: an all-reduce over the parts with copies of a head, of the gradient of its rows in QKV, for each
 *          microbatch: 2 A I elements, where I is the number of columns of D in a device's piece of that matrix; one
 *          of 2 A elements for their bias, if there is one; one for the gradient of a prefix.  Norms of heads:
 *          heads_norm.c
 *          With exact sums (ref/exact/) instead, before the product: an all-reduce of the gradients of keys and values
 *          of each row, 2 A numbers of 16 bytes
 * Equals   a copy's gradient comes from the query heads of its own part.  Their sum is the gradient from the whole
 *          group, reassociated in the order of the all-reduce.  All copies have the same bits.  With exact sums every
 *          copy has the whole gradient of its keys and values, of which the first copy alone counts for the input
 * Called   Files of model/, plan/ and schemes/ call these functions.  Errors: ERR_MEMORY, and ERR_COMM of the sum.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/config.h"

struct heads heads_at(const struct model_config *config, int parts, int index)
{
    const int64_t group = config->H / config->K;
    /* Each part has whole key heads, with all queries that use them. */
    if (parts <= config->K) {
        const struct interval keys = block_at(config->K, parts, index);
        return (struct heads){ .queries = { keys.first * group, keys.count * group }, .keys = keys, .copies = 1 };
    }
    int64_t key = 0;
    /* More parts than key heads: neighbours share a key head, and divide its queries. */
    while (block_start(parts, (int)config->K, (int)key + 1) <= index) key++;
    const struct interval with_key = block_at(parts, (int)config->K, (int)key);
    const int copy = index - (int)with_key.first, copies = (int)with_key.count;
    const struct interval of_group = block_at(group, copies, copy);
    return (struct heads){
        .queries = { key * group + of_group.first, of_group.count }, .keys = { key, 1 }, .copy = copy, .copies = copies
    };
}

struct interval heads_columns(const struct model_config *config, struct interval heads)
{
    return (struct interval){ heads.first * config->A, heads.count * config->A };
}

enum error_code heads_open(struct tensor_parallel *tp, struct error *err)
{
    /* Copies of a head are neighbours in this group, so their ranks begin at rank - copy. */
    const struct group *all = &tp->along[tp->scheme->heads.columns];
    return group_of(&tp->copies, tp->group->comm, all->member + all->rank - tp->heads.copy, tp->heads.copies,
                    TRAFFIC_TENSOR, AXIS_BIT(TP), err);
}

/* The rows of keys and values in a gradient, which come last, and what earlier microbatches have summed up of them. */
struct copied { struct tensor rows, earlier; };

/* Saves the sum of earlier microbatches, which is already reduced. */
static enum error_code heads_begin(struct tensor_parallel *tp, struct copied *copied, struct tensor g,
                                   struct error *err)
{
    /* The gradient is [(h + 2 k) A, cols], with queries first; a bias has one column. */
    const int64_t keys = 2 * tp->heads.keys.count * tp->config->A, queries = tp->heads.queries.count * tp->config->A;
    const int64_t cols = tensor_count(g) / (queries + keys);
    *copied = (struct copied){ 0 };
    if (!tensor_present(g)) return OK;
    copied->rows = tensor_2d((char *)g.data + (size_t)(queries * cols) * dtype_size(g.dtype), g.dtype, keys, cols);
    const enum error_code e = tensor_gradient_buffer(tp, &copied->earlier, keys, cols, err);
    if (e) return e;
    device_copy(tp->device, copied->earlier.data, copied->rows.data, tensor_bytes(copied->rows));
    device_zero(tp->device, copied->rows);
    return OK;
}

static enum error_code heads_end(struct tensor_parallel *tp, struct copied *copied, struct error *err)
{
    if (!tensor_present(copied->rows)) return OK;
    /* The new summands are reduced over the copies; the sum of earlier microbatches already is. */
    const enum error_code e =
        allreduce(&tp->copies, copied->rows.data, tensor_count(copied->rows), copied->rows.dtype, SUM,
                  tp->allreduce, err);
    if (!e) dev_add(tp->device, copied->rows, copied->earlier, copied->rows);
    device_free(tp->device, copied->earlier);
    return e;
}

enum error_code heads_add_copies(struct tensor_parallel *tp, struct tensor g, struct error *err)
{
    if (tp->heads.copies == 1) return OK;
    return allreduce(&tp->copies, g.data, tensor_count(g), g.dtype, SUM, tp->allreduce, err);
}

enum error_code heads_add_keys(struct tensor_parallel *tp, struct tensor sums, struct error *err)
{
    const int64_t rows = tensor_rows(sums), width = 2 * tp->heads.keys.count * tp->config->A;
    const size_t size = dtype_size(EXACT), length = (size_t)width * size, pitch = (size_t)tensor_cols(sums) * size;
    const struct tensor keys = device_tensor_in(tp->device, BUFFERS, EXACT, rows * width);
    char *const last = (char *)sums.data + pitch - length;
    if (keys.data == NULL) return fail(err, ERR_MEMORY, "no memory for the gradients of copied keys");
    /* Keys and values are the last columns of each row. */
    device_copy_rows(tp->device, keys.data, length, last, pitch, length, rows);
    const enum error_code e = allreduce(&tp->copies, keys.data, rows * width, EXACT, SUM, tp->allreduce, err);
    if (!e) device_copy_rows(tp->device, last, pitch, keys.data, length, length, rows);
    device_free(tp->device, keys);
    return e;
}

bool heads_add_exactly(const struct tensor_parallel *tp) { return tp->device->exact && tp->heads.copies > 1; }

enum error_code heads_backward_input(struct tensor_parallel *tp, int64_t N, struct tensor dX, struct tensor dY,
                                     struct tensor W, struct error *err)
{
    const int64_t queries = tp->heads.queries.count * tp->config->A;
    struct tensor part;
    if (!heads_add_exactly(tp) || tp->heads.copy == 0)
        return tp->scheme->linear_backward_input(tp, ROLE_QKV, N, dX, dY, W, err);
    /* Keys and values are terms of the first copy.  Queries are the first columns of dY and the first rows of W. */
    enum error_code e = tensor_buffer(tp, &part, tensor_rows(dY), queries, err);
    if (e) return e;
    dev_columns_move(tp->device, part, dY, (struct column_blocks){ 1, queries, 0, queries, 0, queries }, false);
    e = tp->scheme->linear_backward_input(tp, ROLE_QKV, N, dX, part, tensor_rows_of(W, 0, queries), err);
    device_free(tp->device, part);
    return e;
}

enum error_code heads_backward_weight(struct tensor_parallel *tp, int64_t N, struct tensor dW, struct tensor db,
                                      struct tensor dY, struct tensor X, struct error *err)
{
    struct copied weight, bias;
    /* Without copies a part's gradient is whole; with exact sums dY has been added over the copies before. */
    if (tp->heads.copies == 1 || heads_add_exactly(tp))
        return tp->scheme->linear_backward_weight(tp, ROLE_QKV, N, dW, db, dY, X, err);
    enum error_code e = heads_begin(tp, &weight, dW, err);
    if (!e) e = heads_begin(tp, &bias, db, err);
    if (!e) e = tp->scheme->linear_backward_weight(tp, ROLE_QKV, N, dW, db, dY, X, err);
    if (!e) e = heads_end(tp, &weight, err);
    return e ? e : heads_end(tp, &bias, err);
}
