/* compute.h -- what a device computes: dev_NAME for each operation NAME of ref/ops/ops.def, done by the device's
 * backend and charged to its clock.
 *
 * The arguments after the device are those of the operation, and mean the same.  Callers never touch ->ops.  Every
 * computing backend must provide REQUIRED operations; the host runs OPTIONAL ones that a backend leaves NULL
 * (backend.h).  Charged are floating-point operations as in ref/ops, and each tensor once for every time it is read or
 * written: the row in ops.def says what.
 *
 * model/run/ and schemes/ call dev_NAME with tensors of one device.  Operations cannot fail.
 */
#ifndef ORRERY_COMPUTE_H
#define ORRERY_COMPUTE_H

#include "emulated_devices/device/backend.h"
#include "ref/exact/unrounded.h"

static inline void backend_begin(struct device *device)
{
    if (device->backend->begin != NULL) device->backend->begin(device);
}

static inline void backend_end(struct device *device)
{
    if (device->backend->end != NULL) device->backend->end(device);
}

/* Charge an elementwise operation: `tensors` tensors of the size of X, `flops_each` operations per element. */
static inline void dev_charge(struct device *device, const char *what, struct tensor X, int tensors, double flops_each)
{
    device_charge(device, what, elementwise_cost(tensor_count(X), tensors, flops_each, X.dtype));
}

/* A pass of Y = X W' for N rows of X and Y: the three take the same operations and bytes, in other shapes. */
static inline struct op_cost product_cost(enum product_pass pass, int64_t N, int64_t I, int64_t O, enum dtype dtype)
{
    struct op_cost c = linear_cost(N, I, O, dtype);
    if (pass == PRODUCT_INPUT) c.columns = I, c.depth = O;
    if (pass == PRODUCT_WEIGHT) c.rows = O, c.columns = I, c.depth = N;
    return c;
}

/* A result whose sums are not finished has 16 bytes an element. */
static inline void product_exactly(const struct device *device, struct op_cost *cost, struct tensor result)
{
    *cost = cost_exactly(*cost, device->exact);
    if (result.dtype == EXACT)
        cost->bytes += (double)tensor_count(result) * (double)(dtype_size(EXACT) - dtype_size(device->dtype));
}

static inline void dev_charge_linear(struct device *device, enum product_pass pass, struct tensor result,
                                     struct tensor rows, struct tensor W)
{
    static const char *const what[] = { "linear forward", "linear backward input", "linear backward weight" };
    struct op_cost cost = product_cost(pass, tensor_rows(rows), tensor_cols(W), tensor_rows(W), device->dtype);
    product_exactly(device, &cost, result);
    device_charge(device, what[pass], cost);
}

/* To another format: Y = X, rounded. */
static inline void dev_round(struct device *device, struct tensor Y, struct tensor X)
{
    device_convert(device, Y, X);
    if (X.dtype == EXACT && device->ops) unrounded_note(Y, X);
    dev_charge(device, "round", X, 2, 1);
}

/* To codes, and back. */
static inline void dev_quantise(struct device *device, void *code, struct tensor X, struct block_format format)
{
    device_quantise(device, code, X, format);
    dev_charge(device, "quantise", X, 2, 3);
}

static inline void dev_dequantise(struct device *device, struct tensor Y, const void *code, struct block_format format)
{
    device_dequantise(device, Y, code, format);
    dev_charge(device, "dequantise", Y, 2, 1);
}

/* A list of products is one operation.  Nothing is charged for one without rows. */
static inline void dev_products(struct device *device, enum product_pass pass,
                                const struct device_product *list, int count)
{
    static const char *const what[] = { "products forward", "products backward input", "products backward weight" };
    struct op_cost sum = { .flops = 0 };
    for (int i = 0; i < count; i++) {
        const int64_t rows = tensor_rows(list[i].Y);
        const struct tensor W = list[i].W;
        if (rows == 0) continue;
        struct op_cost one = product_cost(pass, rows, tensor_cols(W), tensor_rows(W), device->dtype);
        product_exactly(device, &one, pass == PRODUCT_FORWARD ? list[i].Y : pass == PRODUCT_INPUT ? list[i].X : W);
        sum.exact = one.exact;
        sum.flops += one.flops, sum.bytes += one.bytes;
        /* Products of a list share their matrix's sizes; their rows, or the terms of a weight's sums, add up. */
        sum.rows = pass == PRODUCT_WEIGHT ? sum.rows + one.rows : sum.rows + rows;
        sum.columns = one.columns, sum.grouped = true;
        sum.depth = pass == PRODUCT_WEIGHT && one.depth < sum.depth ? sum.depth : one.depth;
    }
    if (sum.bytes == 0) return;
    for (int i = 0; i < count; i++) WATCH_OPERANDS(device, products, list[i].Y, list[i].X, list[i].W, list[i].b);
    device_products(device, pass, list, count);
    device_charge(device, what[pass], sum);
}

/* ---- what operations cost ---------------------------------------------------------------------------------------- */

/* A product with stored scores; every pair is computed, seen or not. */
static inline struct op_cost scores_cost(struct tensor queries, struct tensor keys, struct tensor q_at,
                                         struct attention attention, enum dtype dtype)
{
    const int64_t scores = attention.H * tensor_count(q_at) * tensor_rows(keys);
    return attention_scores_cost(scores, tensor_rows(queries), tensor_rows(keys), attention, dtype);
}

/* Queries and keys turn, so they are read and written once; values are not touched. */
static inline struct op_cost rotary_cost(struct tensor QKV, struct tensor table, struct attention attention,
                                         enum dtype dtype)
{
    return elementwise_cost(tensor_rows(QKV) * (attention.H + attention.K) * tensor_cols(table), 2, 3, dtype);
}

#define CHARGE(cost) CHARGE_##cost
#define CHARGE_PASSES(what, X, tensors, flops_each) dev_charge(d, what, X, tensors, flops_each);
#define CHARGE_PRODUCT(pass, result, rows, W) dev_charge_linear(d, PRODUCT_##pass, result, rows, W);
#define CHARGE_COST(what, cost)                                                                                        \
    const enum dtype format = d->dtype;                                                                                \
    (void)format, device_charge(d, what, cost);
#define CHARGE_FREE

/* ---- the operations of ops.def ----------------------------------------------------------------------------------- */

#define COMPUTE_REQUIRED(name, operands)                                                                               \
    backend_begin(d), d->ops->name(LIST_OF(ARGUMENT, operands)), backend_end(d);
#define COMPUTE_OPTIONAL(name, operands)                                                                               \
    if (d->ops->name == NULL) generic_##name(d, LIST_OF(ARGUMENT, operands));                                          \
    else COMPUTE_REQUIRED(name, operands)

/* d->ops is NULL where a device has no numbers: then the operation is only charged. */
#define OPERATION(name, need, operands, cost)                                                                          \
    static inline void dev_##name(struct device *d, LIST_OF(PARAMETER, operands))                                      \
    {                                                                                                                  \
        if (d->ops != NULL) {                                                                                          \
            WATCH_OPERANDS(d, name, LIST_OF(ARGUMENT, operands));                                                      \
            COMPUTE_##need(name, operands)                                                                             \
        }                                                                                                              \
        CHARGE(cost)                                                                                                   \
    }
#include "ref/ops/ops.def"

/* ---- operations that are not charged ----------------------------------------------------------------------------- */

/* Parts of what one kernel does on a GPU, such as rows with a distance between them: the caller charges the whole. */
static inline void dev_add_part(struct device *device, struct tensor Y, struct tensor X, struct tensor Z)
{
    if (device->ops == NULL) return;
    WATCH_OPERANDS(device, add, Y, X, Z);
    backend_begin(device), device->ops->add(Y, X, Z), backend_end(device);
}

static inline void dev_dropout_part(struct device *device, struct tensor Y, struct tensor X, struct dropout drop)
{
    if (device->ops == NULL) return;
    WATCH_OPERANDS(device, dropout, Y, X, drop);
    backend_begin(device), device->ops->dropout(Y, X, drop), backend_end(device);
}

static inline void dev_attention_piece(struct device *d, struct tensor O, struct tensor lse, struct tensor Q,
                                       struct tensor KV, struct tensor q_at, struct attention a)
{
    const struct tensor k_at = tensor_none;
    if (d->ops == NULL) return;
    WATCH_OPERANDS(d, attention_part_forward, O, lse, Q, KV, q_at, k_at, a);
    if (d->ops->attention_part_forward == NULL) generic_attention_part_forward(d, O, lse, Q, KV, q_at, k_at, a);
    else backend_begin(d), d->ops->attention_part_forward(O, lse, Q, KV, q_at, k_at, a), backend_end(d);
}

#undef CHARGE
#undef CHARGE_PASSES
#undef CHARGE_PRODUCT
#undef CHARGE_COST
#undef CHARGE_FREE
#undef COMPUTE_REQUIRED
#undef COMPUTE_OPTIONAL

#endif
