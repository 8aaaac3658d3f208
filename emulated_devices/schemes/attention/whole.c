/* attention, whole: each sequence is on one device, and nothing is sent.
 *
 * Group    1 device
 * Layout   all tokens of every sequence
 * Sends    nothing
 * Memory   kept: the log-sum-exp of each row and head, in the wide format
 * Equals   permutes: it is the one-device operation
 *
 * Called by: model/run/run_attention.c if cp is 1, heads/two_dimensional.c for a ring of one device.  No pass can fail
 * here.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/whole.h"

/* This text is what `--attention whole` answers if --cp is larger than 1. */
static const char *whole_refuses(const struct context_parallel *cp, const struct model_config *config)
{
    (void)config;
    return cp->devices == 1 ? NULL : "every sequence whole on a device, so --cp 1; other schemes cut sequences";
}

/* Every member would have the whole sequence [0, S); there is one member. */
void whole_cut(struct intervals *tokens, const struct context_parallel *cp, int member)
{
    (void)member;
    intervals_add(tokens, (struct interval){ 0, cp->S });
}

struct tensor whole_kept(const struct context_parallel *cp, int slot, int64_t rows)
{
    (void)slot;
    return tensor_2d(NULL, dtype_wide(cp->tp->device->dtype), rows, cp->heads->queries.count);
}

enum error_code whole_forward(struct attention_call *call, struct error *err)
{
    (void)err;
    /* out [n, H A] = softmax(scale Q K^T, masked) V, head by head; the log-sum-exp stays for backward. */
    dev_attention_forward(call->cp->tp->device, call->out, call->kept[0], call->qkv, call->shape);
    return OK;
}

/* d_qkv, EXACT: sums that are not finished, because other devices have parts of the same keys' gradients. */
static enum error_code whole_backward_sums(struct attention_call *call, struct error *err)
{
    struct device *const device = call->cp->tp->device;
    const struct attention shape = call->shape;
    const struct tensor kept = call->kept[0];
    const int64_t rows = tensor_count(kept);
    device_zero(device, call->d_qkv);
    if (rows == 0) return OK;
    struct tensor delta = device_statistics(device, BUFFERS, tensor_rows(kept), tensor_cols(kept));
    if (delta.data == NULL) return fail(err, ERR_MEMORY, "no memory for the gradients of copied keys");
    delta = tensor_2d(delta.data, delta.dtype, rows / shape.S, shape.S);
    dev_attention_delta(device, delta, call->d_out, call->out, shape);
    dev_attention_part_backward(
        device, call->d_qkv, call->d_qkv, call->d_out, delta, tensor_2d(kept.data, kept.dtype, rows / shape.S, shape.S),
        call->qkv, call->qkv, tensor_none, tensor_none,
        tensor_present(shape.mask) ? shape : attention_of_pairs(shape, attention_pairs(tensor_rows(kept), shape)));
    device_free(device, delta);
    return OK;
}

enum error_code whole_backward_input(struct attention_call *call, struct error *err)
{
    const struct tensor lse = call->kept[0];
    if (call->d_qkv.dtype == EXACT) {
        const enum error_code e = whole_backward_sums(call, err);
        if (e) return e;
    } else
        dev_attention_backward_input(call->cp->tp->device, call->d_qkv, call->d_out, call->out, lse, call->qkv,
                                     call->shape);
    /* Sinks have a gradient [H] of their own; an empty microbatch has no rows to add. */
    if (tensor_present(call->d_sinks) && tensor_count(lse) > 0)
        dev_attention_sinks_backward(call->cp->tp->device, call->d_sinks, call->d_out, call->out,
                                     tensor_2d(lse.data, lse.dtype, tensor_count(lse) / call->shape.S, call->shape.S),
                                     call->shape);
    return OK;
}

const struct attention_scheme attention_scheme_whole = {
    .head = { .kind = ATTENTION_SCHEME, .equality = PERMUTES, .name = "whole",
              .description = "each sequence is on one device", .source = "the one-device operation",
              .volume = "nothing", .memory = "log-sum-exp: H numbers a token", .needs = "--cp 1" },
    .refuses = whole_refuses, WHOLE_SEQUENCES,
};
