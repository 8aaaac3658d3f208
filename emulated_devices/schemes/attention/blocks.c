#include "emulated_devices/schemes/attention/blocks.h"
#include "emulated_devices/device/compute.h"

/* ---- forward ----------------------------------------------------------------------------------------------------- */

enum { OUT, MORE };

enum error_code block_results_open(struct cp_pass *g, struct block_results *r, struct error *err)
{
    const struct attention_call *c = g->call;
    /* With 16-bit numbers the merged results stay wide [n, H A] until the end, which rounds them once. */
    const bool rounds = g->own != g->wide;
    const int more = g->cp->devices > 1 ? 1 : 0;
    const int64_t rows = tensor_rows(c->out), cols = tensor_cols(c->out), heads = g->B * g->shape.H;
    *r = (struct block_results){ 0 };
    enum error_code e = cp_open(g, &r->o[OUT], rounds ? 1 : 0, g->wide, rows, cols, err);
    if (!e) e = cp_open(g, &r->o[MORE], more, g->wide, rows, cols, err);
    if (!e) e = cp_open(g, &r->lse[MORE], more, g->wide, heads, rows / g->B, err);
    /* The own block's log-sum-exp is written where the backward pass keeps it. */
    if (!rounds) r->o[OUT] = c->out;
    r->lse[OUT] = cp_by_heads(g, c->kept[0]);
    return e;
}

void block_results_finish(struct cp_pass *g, struct block_results *r)
{
    if (g->own != g->wide) dev_round(g->device, g->call->out, r->o[OUT]);
}

void block_results_close(struct cp_pass *g, struct block_results *r)
{
    cp_close(g, &r->o[MORE], 1), cp_close(g, &r->lse[MORE], 1);
    if (g->own != g->wide) cp_close(g, &r->o[OUT], 1);
}

void block_attend(struct cp_pass *g, struct block_results *r, struct tensor keys, int owner)
{
    const double pairs = cp_pairs(g, owner);
    /* The own block writes the result itself; any other block writes a second one, which is merged. */
    const int into = owner == g->cp->rank ? OUT : MORE;
    /* A block of others without pairs adds nothing; the own block still has to set the result. */
    if (into == MORE && pairs == 0) return;
    dev_attention_part_forward(g->device, r->o[into], r->lse[into], g->call->qkv, keys,
                               positions_of(&g->at, g->cp->rank), positions_of(&g->at, owner),
                               attention_of_pairs(cp_shape(g, owner), pairs));
    /* The merge weighs both: o = sum_i exp(lse_i - lse) o_i, lse = log sum_i exp(lse_i). */
    if (into == MORE)
        dev_attention_merge(g->device, r->o[OUT], r->lse[OUT], r->o[MORE], r->lse[MORE], g->shape);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

enum error_code block_gradients_open(struct cp_pass *g, struct block_gradients *s, struct error *err)
{
    struct attention_call *c = g->call;
    const int64_t rows = tensor_rows(c->qkv);
    *s = (struct block_gradients){ .all = c->d_qkv };
    enum error_code e = cp_open(g, &s->delta, 1, g->wide, g->B * g->shape.H, rows / g->B, err);
    if (!e && g->own != g->wide) e = cp_open(g, &s->all, 1, g->wide, rows, tensor_cols(c->qkv), err);
    if (e) return e;
    /* delta[h,s] = sum_a d_out[s,h,a] out[s,h,a] is the same for all blocks of keys. */
    dev_attention_delta(g->device, s->delta, c->d_out, c->out, g->shape);
    if (tensor_present(c->d_sinks))
        dev_attention_sinks_backward(g->device, c->d_sinks, c->d_out, c->out, cp_by_heads(g, c->kept[0]), g->shape);
    /* Every block of keys adds its share to the gradient of the same queries. */
    device_zero(g->device, s->all);
    return OK;
}

void block_gradients_finish(struct cp_pass *g, struct block_gradients *s)
{
    if (g->own != g->wide) dev_round(g->device, g->call->d_qkv, s->all);
}

void block_gradients_close(struct cp_pass *g, struct block_gradients *s)
{
    cp_close(g, &s->delta, 1);
    if (g->own != g->wide && s->all.data != g->call->d_qkv.data) cp_close(g, &s->all, 1);
}

void block_add_share(struct cp_pass *g, const struct block_gradients *s, struct tensor d_keys, struct tensor keys,
                     int owner)
{
    const double pairs = cp_pairs(g, owner);
    if (pairs == 0) return;
    dev_attention_part_backward(g->device, s->all, d_keys, g->call->d_out, s->delta, cp_by_heads(g, g->call->kept[0]),
                                g->call->qkv, keys, positions_of(&g->at, g->cp->rank),
                                positions_of(&g->at, owner), attention_of_pairs(g->shape, pairs));
}
