/* attention, whole: each sequence is on one device, and nothing is sent.
 *
 * Group    1 device
 * Layout   all tokens of every sequence
 * Sends    nothing
 * Memory   kept: the log-sum-exp of each row and head, in the wide format
 * Equals   permutes: it is the one-device operation
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/whole.h"

static const char *refuses(const struct context_parallel *cp, const struct model_config *c)
{
    (void)c;
    return cp->devices == 1 ? NULL : "every sequence whole on a device, so --cp 1; other schemes cut sequences";
}

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

enum error_code whole_forward(struct attention_call *c, struct error *err)
{
    (void)err;
    dev_attention_forward(c->cp->tp->device, c->out, c->kept[0], c->qkv, c->shape);
    return OK;
}

enum error_code whole_backward_input(struct attention_call *c, struct error *err)
{
    const struct tensor lse = c->kept[0];
    (void)err;
    dev_attention_backward_input(c->cp->tp->device, c->d_qkv, c->d_out, c->out, lse, c->qkv, c->shape);
    if (tensor_present(c->d_sinks) && tensor_count(lse) > 0)
        dev_attention_sinks_backward(c->cp->tp->device, c->d_sinks, c->d_out, c->out,
                                     tensor_2d(lse.data, lse.dtype, tensor_count(lse) / c->shape.S, c->shape.S),
                                     c->shape);
    return OK;
}

const struct attention_scheme attention_scheme_whole = {
    .head = { .kind = ATTENTION_SCHEME, .equality = PERMUTES, .name = "whole",
              .description = "each sequence is on one device", .source = "the one-device operation",
              .volume = "nothing", .memory = "log-sum-exp: H numbers a token", .needs = "--cp 1" },
    .refuses = refuses, WHOLE_SEQUENCES,
};
