#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/block.h"
#include "emulated_devices/model/matrix.h"
#include "emulated_devices/model/memory.h"
#include "emulated_devices/model/recompute.h"
#include <math.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int64_t heads_width(const struct stage *s) { return s->tp->heads.queries * s->plan->model.A; }

static bool is_rotary(const struct stage *s) { return s->plan->model.positions == POSITIONS_ROTARY; }
static bool is_gelu(const struct stage *s) { return s->plan->model.mlp == MLP_GELU; }

bool block_make(struct stage *s, const struct microbatch *m, struct block_activations *b)
{
    struct allocator a = { s->device, ACTIVATIONS, false };
    const int64_t n = m->stream.count, input = m->input.count, inner = m->inner.count, D = s->tp->channels;
    const bool mean = s->plan->model.norm == NORM_LAYER;
    if (mean) b->ln1_mean = allocate_statistics(&a, n, 0), b->ln2_mean = allocate_statistics(&a, n, 0);
    b->ln1_rstd = allocate_statistics(&a, n, 0), b->ln1 = allocate_matrix(&a, input, D);
    b->qkv = allocate_matrix(&a, inner, tensor_qkv_columns(s->tp)), b->lse = allocate_statistics(&a, inner, s->tp->heads.queries);
    b->att = allocate_matrix(&a, inner, heads_width(s));
    b->mid = allocate_matrix(&a, n, D);
    b->ln2_rstd = allocate_statistics(&a, n, 0), b->ln2 = allocate_matrix(&a, input, D);
    b->up = allocate_matrix(&a, inner, tensor_up_columns(s->tp)), b->act = allocate_matrix(&a, inner, s->tp->columns);
    return !a.failed;
}

struct kept block_keeps(const struct stage *s, const struct microbatch *m)
{
    /* in, mid;  ln1, ln2;  qkv, att of this device's heads, up, act.  Of statistics two or one of each norm, and lse */
    const int64_t inner = tensor_qkv_columns(s->tp) + heads_width(s) + tensor_up_columns(s->tp) + s->tp->columns;
    return (struct kept){
        .elements = 2 * (m->stream.count + m->input.count) * s->tp->channels + m->inner.count * inner,
        .statistics = 2 * (s->plan->model.norm == NORM_LAYER ? 2 : 1) * m->stream.count + m->inner.count * s->tp->heads.queries,
    };
}

void block_drop(struct stage *s, struct block_activations *b)
{
    struct tensor *const all[] = { &b->in, &b->ln1_mean, &b->ln1_rstd, &b->ln1, &b->qkv, &b->lse, &b->att, &b->mid,
                                   &b->ln2_mean, &b->ln2_rstd, &b->ln2, &b->up, &b->act };
    drop_tensors(s->device, all, sizeof all / sizeof *all);
}

void block_drop_gradients(struct stage *s, struct block_gradients *d)
{
    struct tensor *const all[] = { &d->out, &d->up, &d->ln2, &d->attention_out, &d->qkv, &d->ln1 };
    drop_tensors(s->device, all, sizeof all / sizeof *all);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

#define W(p) stage_weight(s, param_of_block(&s->plan->model, layer, p))
#define G(p) stage_gradient(s, param_of_block(&s->plan->model, layer, p))

static struct attention attention_of(const struct stage *s, const struct microbatch *m, int layer)
{
    const struct model_config *c = &s->plan->model;
    return (struct attention){ .S = s->plan->S, .H = s->tp->heads.queries, .K = s->tp->heads.keys, .A = c->A, .scale = 1 / sqrt((double)c->A),
                               .drop = dropout_at(c->dropout_attention, s->dropout_seed, layer, "probabilities",
                                                  m->sequences.first + m->inner.first / s->plan->S, s->tp->heads.query, c->H) };
}

struct dropout dropout_of(const struct stage *s, const struct microbatch *m, double p, int layer, const char *where)
{
    return dropout_at(p, s->dropout_seed, layer, where, m->sequences.first * s->plan->S + m->stream.first, s->tp->channel, s->plan->model.D);
}

/* mid = in + attention(norm(in)). */
static enum error_code attention_forward(struct stage *s, struct microbatch *m, int layer, struct error *err)
{
    struct device *d = s->device;
    struct tensor_parallel *tp = s->tp;
    const struct model_config *c = &s->plan->model;
    struct block_activations *a = &m->block[layer - s->first_layer];
    enum error_code e = tensor_norm_forward(tp, tensor_own_rows(tp, a->ln1, m->N), a->ln1_mean, a->ln1_rstd, a->in, W(LN1_W), W(LN1_B), c->eps, err);
    if (!e) stage_show(s, m, "ln_1", layer, tensor_own_rows(tp, a->ln1, m->N));
    if (!e) e = matrix_forward(s, ROLE_QKV, layer, m->N, a->qkv, a->ln1, err);
    if (e) return e;
    stage_show(s, m, "attn.qkv", layer, a->qkv);
    if (is_rotary(s)) {
        dev_rotary_forward(d, a->qkv, rows_of(m->positions, m->inner), s->rotary, attention_of(s, m, layer));
        stage_show(s, m, "attn.rotated", layer, a->qkv);
    }
    dev_attention_forward(d, a->att, a->lse, a->qkv, attention_of(s, m, layer));
    stage_show(s, m, "attn.heads", layer, a->att);
    e = matrix_forward(s, ROLE_ATTENTION_OUT, layer, m->N, a->mid, a->att, err);
    if (e) return e;
    stage_show(s, m, "attn.out", layer, a->mid);
    dev_dropout(d, a->mid, a->mid, dropout_of(s, m, c->dropout_residual, layer, "attention"));
    dev_add(d, a->mid, a->in, a->mid);
    stage_show(s, m, "mid", layer, a->mid);
    return OK;
}

/* act: what the last matrix takes in. */
static enum error_code mlp_forward(struct stage *s, struct microbatch *m, int layer, struct error *err)
{
    struct tensor_parallel *tp = s->tp;
    const struct model_config *c = &s->plan->model;
    struct block_activations *a = &m->block[layer - s->first_layer];
    enum error_code e = tensor_norm_forward(tp, tensor_own_rows(tp, a->ln2, m->N), a->ln2_mean, a->ln2_rstd, a->mid, W(LN2_W), W(LN2_B), c->eps, err);
    if (!e) stage_show(s, m, "ln_2", layer, tensor_own_rows(tp, a->ln2, m->N));
    if (!e) e = matrix_forward(s, ROLE_UP, layer, m->N, a->up, a->ln2, err);
    if (e) return e;
    stage_show(s, m, "mlp.up", layer, a->up);
    if (is_gelu(s)) dev_gelu_forward(s->device, a->act, a->up);
    else dev_swiglu_forward(s->device, a->act, a->up);
    stage_show(s, m, "mlp.act", layer, a->act);
    return OK;
}

enum error_code block_forward(struct stage *s, struct microbatch *m, int layer, struct tensor out, struct error *err)
{
    struct block_activations *a = &m->block[layer - s->first_layer];
    enum error_code e = attention_forward(s, m, layer, err);
    if (!e) e = mlp_forward(s, m, layer, err);
    if (!e) e = matrix_forward(s, ROLE_DOWN, layer, m->N, out, a->act, err);
    if (e) return e;
    stage_show(s, m, "mlp.out", layer, out);
    dev_dropout(s->device, out, out, dropout_of(s, m, s->plan->model.dropout_residual, layer, "mlp"));
    dev_add(s->device, out, a->mid, out);
    stage_show(s, m, "out", layer, out);
    return OK;
}

/* ---- recomputation ------------------------------------------------------------------------------------------------ */

static enum recompute choice(const struct stage *s, int layer) { return recompute_of(s->plan->recompute, layer); }

void block_forget(struct stage *s, struct microbatch *m, int layer)
{
    struct block_activations *a = &m->block[layer - s->first_layer];
    if (choice(s, layer) == RECOMPUTE_SELECTIVE) {
        drop_tensor(s->device, &a->att);
        drop_tensor(s->device, &a->lse);
    }
    if (choice(s, layer) == RECOMPUTE_FULL) {
        const struct tensor in = take_tensor(&a->in);
        block_drop(s, a);
        a->in = in;
    }
}

struct kept block_forgets(const struct stage *s, const struct microbatch *m, int layer)
{
    struct kept all = block_keeps(s, m);
    all.elements -= m->stream.count * s->tp->channels;          /* in stays */
    switch (choice(s, layer)) {
    case RECOMPUTE_SELECTIVE: return (struct kept){ m->inner.count * heads_width(s), m->inner.count * s->tp->heads.queries };
    case RECOMPUTE_FULL:      return all;
    default:                  return (struct kept){ 0 };
    }
}

static enum error_code remember_attention(struct stage *s, struct microbatch *m, int layer, struct error *err)
{
    struct block_activations *a = &m->block[layer - s->first_layer];
    struct allocator mem = { s->device, ACTIVATIONS, false };
    a->lse = allocate_statistics(&mem, m->inner.count, s->tp->heads.queries);
    a->att = allocate_matrix(&mem, m->inner.count, heads_width(s));
    if (mem.failed) return fail(err, ERR_MEMORY, "no memory to compute attention in layer %d again", layer);
    dev_attention_forward(s->device, a->att, a->lse, a->qkv, attention_of(s, m, layer));
    return OK;
}

enum error_code block_remember(struct stage *s, struct microbatch *m, int layer, struct error *err)
{
    if (choice(s, layer) == RECOMPUTE_NONE) return OK;
    if (choice(s, layer) == RECOMPUTE_SELECTIVE) return remember_attention(s, m, layer, err);
    if (!block_make(s, m, &m->block[layer - s->first_layer])) return fail(err, ERR_MEMORY, "no memory to compute layer %d again", layer);
    const enum error_code e = attention_forward(s, m, layer, err);
    return e ? e : mlp_forward(s, m, layer, err);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static bool make_gradients(struct stage *s, const struct microbatch *m, struct block_gradients *g)
{
    struct allocator mem = { s->device, BUFFERS, false };
    const int64_t n = m->stream.count, inner = m->inner.count, D = s->tp->channels;
    g->out = allocate_matrix(&mem, m->gradient.count, D), g->up = allocate_matrix(&mem, inner, tensor_up_columns(s->tp)), g->ln2 = allocate_matrix(&mem, n, D);
    g->attention_out = allocate_matrix(&mem, m->gradient.count, D), g->qkv = allocate_matrix(&mem, inner, tensor_qkv_columns(s->tp));
    g->ln1 = allocate_matrix(&mem, n, D);
    return !mem.failed;
}

/* g->up from g->out, through the last matrix and what stands before it.  gelu's gradient takes the place of act's. */
static enum error_code feed_backward_input(struct stage *s, struct microbatch *m, int layer, struct error *err)
{
    const struct block_activations *a = &m->block[layer - s->first_layer];
    const struct block_gradients *g = &m->d_block[layer - s->first_layer];
    struct tensor d_act = is_gelu(s) ? g->up : device_tensor_2d(s->device, BUFFERS, m->inner.count, s->tp->columns);
    if (d_act.data == NULL) return fail(err, ERR_MEMORY, "no memory for the gradient of the feed-forward in layer %d", layer);
    const enum error_code e = matrix_backward_input(s, ROLE_DOWN, layer, m->N, d_act, g->out, err);
    if (!e) stage_show_gradient(s, m, "mlp.act", layer, d_act);
    if (!e && is_gelu(s)) dev_gelu_backward_input(s->device, g->up, d_act, a->up);
    else if (!e) dev_swiglu_backward_input(s->device, g->up, d_act, a->up);
    if (!is_gelu(s)) device_free(s->device, d_act);
    if (!e) stage_show_gradient(s, m, "mlp.up", layer, g->up);
    return e;
}

/* d, the gradient of mid + mlp(norm(mid)), becomes that of mid.  branch: [n,D] of scratch. */
static enum error_code mlp_backward_input(struct stage *s, struct microbatch *m, int layer, struct tensor d, struct tensor branch, struct error *err)
{
    struct tensor_parallel *tp = s->tp;
    const struct block_activations *a = &m->block[layer - s->first_layer];
    struct block_gradients *g = &m->d_block[layer - s->first_layer];
    dev_dropout(s->device, tensor_own_rows(tp, g->out, m->N), d, dropout_of(s, m, s->plan->model.dropout_residual, layer, "mlp"));
    stage_show_gradient(s, m, "mlp.out", layer, tensor_own_rows(tp, g->out, m->N));
    enum error_code e = feed_backward_input(s, m, layer, err);
    if (!e) e = matrix_backward_input(s, ROLE_UP, layer, m->N, g->ln2, g->up, err);
    if (!e) stage_show_gradient(s, m, "ln_2", layer, g->ln2);
    if (!e) e = tensor_norm_backward_input(tp, branch, g->ln2, a->mid, W(LN2_W), a->ln2_mean, a->ln2_rstd, err);
    if (e) return e;
    dev_add(s->device, d, d, branch);
    stage_show_gradient(s, m, "mid", layer, d);
    return OK;
}

/* d, the gradient of in + attention(norm(in)), becomes that of in. */
static enum error_code attention_backward_input(struct stage *s, struct microbatch *m, int layer, struct tensor d, struct tensor branch,
                                                struct error *err)
{
    struct tensor_parallel *tp = s->tp;
    const struct block_activations *a = &m->block[layer - s->first_layer];
    struct block_gradients *g = &m->d_block[layer - s->first_layer];
    struct tensor d_att = device_tensor_2d(s->device, BUFFERS, m->inner.count, heads_width(s));
    if (d_att.data == NULL) return fail(err, ERR_MEMORY, "no memory for the gradient of attention in layer %d", layer);
    dev_dropout(s->device, tensor_own_rows(tp, g->attention_out, m->N), d, dropout_of(s, m, s->plan->model.dropout_residual, layer, "attention"));
    stage_show_gradient(s, m, "attn.out", layer, tensor_own_rows(tp, g->attention_out, m->N));
    enum error_code e = matrix_backward_input(s, ROLE_ATTENTION_OUT, layer, m->N, d_att, g->attention_out, err);
    if (!e) stage_show_gradient(s, m, "attn.heads", layer, d_att);
    if (!e) dev_attention_backward_input(s->device, g->qkv, d_att, a->att, a->lse, a->qkv, attention_of(s, m, layer));
    device_free(s->device, d_att);
    if (!e && is_rotary(s)) {
        stage_show_gradient(s, m, "attn.rotated", layer, g->qkv);
        dev_rotary_backward_input(s->device, g->qkv, rows_of(m->positions, m->inner), s->rotary, attention_of(s, m, layer));
    }
    if (!e) stage_show_gradient(s, m, "attn.qkv", layer, g->qkv);
    if (!e) e = matrix_backward_input(s, ROLE_QKV, layer, m->N, g->ln1, g->qkv, err);
    if (!e) stage_show_gradient(s, m, "ln_1", layer, g->ln1);
    if (!e) e = tensor_norm_backward_input(tp, branch, g->ln1, a->in, W(LN1_W), a->ln1_mean, a->ln1_rstd, err);
    if (e) return e;
    dev_add(s->device, d, d, branch);
    stage_show_gradient(s, m, layer == 0 ? "embedding" : "out", layer - 1, d);
    return OK;
}

enum error_code block_backward_input(struct stage *s, struct microbatch *m, int layer, struct tensor d, struct error *err)
{
    struct tensor branch = device_tensor_2d(s->device, BUFFERS, m->stream.count, s->tp->channels);
    enum error_code e = make_gradients(s, m, &m->d_block[layer - s->first_layer]) && branch.data
                      ? OK : fail(err, ERR_MEMORY, "no memory for the gradients of layer %d", layer);
    if (!e) e = mlp_backward_input(s, m, layer, d, branch, err);
    if (!e) e = attention_backward_input(s, m, layer, d, branch, err);
    device_free(s->device, branch);
    return e;
}

enum error_code block_backward_weight(struct stage *s, struct microbatch *m, int layer, struct error *err)
{
    struct tensor_parallel *tp = s->tp;
    struct block_activations *a = &m->block[layer - s->first_layer];
    struct block_gradients *g = &m->d_block[layer - s->first_layer];
    enum error_code e = matrix_backward_weight(s, ROLE_DOWN, layer, m->N, g->out, a->act, err);
    if (!e) e = matrix_backward_weight(s, ROLE_UP, layer, m->N, g->up, a->ln2, err);
    if (!e) e = tensor_norm_backward_weight(tp, G(LN2_W), G(LN2_B), g->ln2, a->mid, a->ln2_mean, a->ln2_rstd, err);
    if (!e) e = matrix_backward_weight(s, ROLE_ATTENTION_OUT, layer, m->N, g->attention_out, a->att, err);
    if (!e) e = matrix_backward_weight(s, ROLE_QKV, layer, m->N, g->qkv, a->ln1, err);
    if (!e) e = tensor_norm_backward_weight(tp, G(LN1_W), G(LN1_B), g->ln1, a->in, a->ln1_mean, a->ln1_rstd, err);
    block_drop(s, a);
    block_drop_gradients(s, g);
    return e;
}
