/* blocks.c -- partial attention results [n, H A] and their log-sum-exp [B H, n] are merged block by block.  The
 * backward pass adds gradients of queries here and gives the shares of keys and values to the caller.  The only error
 * is ERR_MEMORY. */
#include "emulated_devices/schemes/attention/blocks.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/tops.h"

/* ---- forward ----------------------------------------------------------------------------------------------------- */

enum { OUT, MORE };

/* Exact sums begin with zeros, and are rounded once, at the end. */
static enum error_code open_exact(struct cp_pass *cp_pass, struct block_results *results, struct error *err)
{
    const struct attention_call *c = cp_pass->call;
    const int64_t rows = tensor_rows(c->out), heads = cp_pass->B * cp_pass->shape.H, n = rows / cp_pass->B;
    enum error_code e = cp_open(cp_pass, &results->o[OUT], 1, cp_pass->sums, rows, tensor_cols(c->out), err);
    if (!e) e = cp_open(cp_pass, &results->total, 1, cp_pass->sums, heads, n, err);
    if (!e) e = cp_open(cp_pass, &results->top, 1, cp_pass->wide, heads, n, err);
    if (!e) device_zero(cp_pass->device, results->o[OUT]), device_zero(cp_pass->device, results->total);
    return e;
}

enum error_code block_results_open(struct cp_pass *cp_pass, struct block_results *results, struct error *err)
{
    const struct attention_call *c = cp_pass->call;
    /* With 16-bit numbers the merged results stay wide [n, H A] until the end, which rounds them once. */
    const bool rounds = cp_pass->own != cp_pass->wide;
    /* A device alone has one block of keys, so a second result and a merge are not needed. */
    const int more = cp_pass->cp->devices > 1 ? 1 : 0;
    const int64_t rows = tensor_rows(c->out), cols = tensor_cols(c->out), heads = cp_pass->B * cp_pass->shape.H;
    *results = (struct block_results){ .lse = { cp_by_heads(cp_pass, c->kept[0]) } };
    if (cp_pass->device->exact) return open_exact(cp_pass, results, err);
    enum error_code e = cp_open(cp_pass, &results->o[OUT], rounds ? 1 : 0, cp_pass->wide, rows, cols, err);
    if (!e) e = cp_open(cp_pass, &results->o[MORE], more, cp_pass->wide, rows, cols, err);
    if (!e) e = cp_open(cp_pass, &results->lse[MORE], more, cp_pass->wide, heads, rows / cp_pass->B, err);
    /* The own block writes its log-sum-exp where the backward pass keeps that of the result. */
    if (!rounds) results->o[OUT] = c->out;
    return e;
}

void block_results_finish(struct cp_pass *cp_pass, struct block_results *results)
{
    /* In 16 bits the output is rounded once, after the last merge; else the output is already complete. */
    if (cp_pass->device->exact)
        dev_attention_part_finish(cp_pass->device, cp_pass->call->out, results->lse[OUT], results->o[OUT],
                                  results->total, results->top, cp_pass->shape);
    else if (cp_pass->own != cp_pass->wide) dev_round(cp_pass->device, cp_pass->call->out, results->o[OUT]);
}

void block_results_close(struct cp_pass *cp_pass, struct block_results *results)
{
    /* The output and the kept log-sum-exp belong to the call, and are not closed here. */
    cp_close(cp_pass, &results->o[MORE], 1), cp_close(cp_pass, &results->lse[MORE], 1);
    cp_close(cp_pass, &results->total, 1), cp_close(cp_pass, &results->top, 1);
    if (cp_pass->own != cp_pass->sums) cp_close(cp_pass, &results->o[OUT], 1);
}

void block_raise_tops(struct cp_pass *cp_pass, void *results, struct tensor keys, int64_t first, int owner)
{
    struct block_results *const r = results;
    const double pairs = cp_pairs(cp_pass, owner);
    const bool own = owner == cp_pass->cp->rank;
    /* The own block sets the tops; others raise them if a query sees a key. */
    if (!own && pairs == 0) return;
    dev_attention_part_top(cp_pass->device, r->top, cp_pass->call->qkv, keys, first,
                           positions_of(&cp_pass->at, cp_pass->cp->rank),
                           positions_of(&cp_pass->at, owner), attention_of_pairs(cp_shape(cp_pass, owner), pairs),
                           !own);
}

enum error_code block_find_tops(struct cp_pass *cp_pass, struct block_results *results, struct error *err)
{
    if (!cp_pass->device->exact) return OK;
    return tops_travel(cp_pass, cp_pass->call->qkv, block_raise_tops, results, err);
}

void block_attend(struct cp_pass *cp_pass, struct block_results *results, struct tensor keys, int owner)
{
    const double pairs = cp_pairs(cp_pass, owner);
    /* The own block writes the result itself; any other block writes a second one, which is merged. */
    const int into = owner == cp_pass->cp->rank ? OUT : MORE;
    /* A block of others without pairs adds nothing; the own block still has to set the result. */
    if (into == MORE && pairs == 0) return;
    if (cp_pass->device->exact) {
        dev_attention_part_sums(cp_pass->device, results->o[OUT], results->total, results->top, cp_pass->call->qkv,
                                keys, positions_of(&cp_pass->at, cp_pass->cp->rank),
                                positions_of(&cp_pass->at, owner),
                                attention_of_pairs(cp_shape(cp_pass, owner), pairs));
        return;
    }
    dev_attention_part_forward(cp_pass->device, results->o[into], results->lse[into], cp_pass->call->qkv, keys,
                               positions_of(&cp_pass->at, cp_pass->cp->rank), positions_of(&cp_pass->at, owner),
                               attention_of_pairs(cp_shape(cp_pass, owner), pairs));
    /* The merge weighs both: o = sum_i exp(lse_i - lse) o_i, lse = log sum_i exp(lse_i). */
    if (into == MORE)
        dev_attention_merge(cp_pass->device, results->o[OUT], results->lse[OUT], results->o[MORE], results->lse[MORE],
                            cp_pass->shape);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

enum error_code block_gradients_open(struct cp_pass *cp_pass, struct block_gradients *gradients, struct error *err)
{
    struct attention_call *c = cp_pass->call;
    const int64_t rows = tensor_rows(c->qkv);
    *gradients = (struct block_gradients){ .all = c->d_qkv };
    enum error_code e = cp_open(cp_pass, &gradients->delta, 1, cp_pass->wide, cp_pass->B * cp_pass->shape.H,
                                rows / cp_pass->B, err);
    /* The sum of all blocks' gradients is the call's d_qkv itself, unless sums have another format. */
    if (!e && c->d_qkv.dtype != cp_pass->sums)
        e = cp_open(cp_pass, &gradients->all, 1, cp_pass->sums, rows, tensor_cols(c->qkv), err);
    if (e) return e;
    /* delta[h,s] = sum_a d_out[s,h,a] out[s,h,a] is the same for all blocks of keys. */
    dev_attention_delta(cp_pass->device, gradients->delta, c->d_out, c->out, cp_pass->shape);
    if (tensor_present(c->d_sinks))
        dev_attention_sinks_backward(cp_pass->device, c->d_sinks, c->d_out, c->out, cp_by_heads(cp_pass, c->kept[0]),
                                     cp_pass->shape);
    /* Every block of keys adds its share to the gradient of the same queries. */
    device_zero(cp_pass->device, gradients->all);
    return OK;
}

void block_gradients_finish(struct cp_pass *cp_pass, struct block_gradients *gradients)
{
    if (gradients->all.data != cp_pass->call->d_qkv.data)
        dev_round(cp_pass->device, cp_pass->call->d_qkv, gradients->all);
}

void block_gradients_close(struct cp_pass *cp_pass, struct block_gradients *gradients)
{
    cp_close(cp_pass, &gradients->delta, 1);
    /* After an early failure `all` may still be the call's d_qkv, which must not be freed. */
    if (gradients->all.data != cp_pass->call->d_qkv.data) cp_close(cp_pass, &gradients->all, 1);
}

void block_add_share(struct cp_pass *cp_pass, const struct block_gradients *gradients, struct tensor d_keys,
                     struct tensor keys, int owner)
{
    const double pairs = cp_pairs(cp_pass, owner);
    /* A block without pairs has no gradient; the caller has already set d_keys to zeros. */
    if (pairs == 0) return;
    /* Without a cap: p = exp(score - lse), dV = p^T dO, dS = p (dO V^T - delta), dQ = dS K, dK = dS^T Q, scaled. */
    dev_attention_part_backward(cp_pass->device, gradients->all, d_keys, cp_pass->call->d_out, gradients->delta,
                                cp_by_heads(cp_pass, cp_pass->call->kept[0]),
                                cp_pass->call->qkv, keys, positions_of(&cp_pass->at, cp_pass->cp->rank),
                                positions_of(&cp_pass->at, owner), attention_of_pairs(cp_pass->shape, pairs));
}
