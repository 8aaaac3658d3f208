#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/block.h"
#include "emulated_devices/model/memory.h"
#include <math.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int64_t heads_width(const struct stage *s) { return s->tp->heads * s->plan->model.A; }

bool block_make(struct stage *s, struct block_activations *b, int64_t N)
{
    struct allocator a = { s->device, ACTIVATIONS, false };
    const int64_t D = s->plan->model.D;
    b->ln1_mean = allocate_statistics(&a, N, 0), b->ln1_rstd = allocate_statistics(&a, N, 0), b->ln1 = allocate_matrix(&a, N, D);
    b->qkv = allocate_matrix(&a, N, 3 * heads_width(s)), b->lse = allocate_statistics(&a, N, s->tp->heads), b->att = allocate_matrix(&a, N, heads_width(s));
    b->mid = allocate_matrix(&a, N, D);
    b->ln2_mean = allocate_statistics(&a, N, 0), b->ln2_rstd = allocate_statistics(&a, N, 0), b->ln2 = allocate_matrix(&a, N, D);
    b->up = allocate_matrix(&a, N, s->tp->columns), b->act = allocate_matrix(&a, N, s->tp->columns);
    return !a.failed;
}

struct kept block_keeps(const struct stage *s)
{
    /* in, ln1, mid, ln2: D each;  qkv 3, att 1 of this device's heads;  up, act;  mean and rstd twice, lse */
    return (struct kept){ .elements = 4 * s->plan->model.D + 4 * heads_width(s) + 2 * s->tp->columns, .statistics = 4 + s->tp->heads };
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

static const struct parameter *block_parameter(const struct stage *s, int layer, enum block_param p)
{
    return parameter_find(s->parameters, param_of_block(&s->plan->model, layer, p));
}

#define W(p) block_parameter(s, layer, p)->w
#define G(p) block_parameter(s, layer, p)->g

static struct attention attention_of(const struct stage *s, const struct microbatch *m, int layer)
{
    const struct model_config *c = &s->plan->model;
    return (struct attention){ .S = s->plan->S, .H = s->tp->heads, .K = s->tp->heads, .A = c->A, .scale = 1 / sqrt((double)c->A),
                               .drop = dropout_at(c->dropout_attention, s->dropout_seed, layer, "probabilities",
                                                  m->sequences.first, s->tp->head, c->H) };
}

struct dropout dropout_of(const struct stage *s, const struct microbatch *m, double p, int layer, const char *where)
{
    return dropout_at(p, s->dropout_seed, layer, where, m->sequences.first * s->plan->S, 0, s->plan->model.D);
}

enum error_code block_forward(struct stage *s, struct microbatch *m, int layer, struct tensor out, struct error *err)
{
    struct device *d = s->device;
    const struct model_config *c = &s->plan->model;
    const struct tensor_scheme *scheme = s->tp->scheme;
    struct block_activations *a = &m->block[layer - s->first_layer];

    dev_layernorm_forward(d, a->ln1, a->ln1_mean, a->ln1_rstd, a->in, W(LN1_W), W(LN1_B), c->eps);
    enum error_code e = scheme->linear_forward(s->tp, ROLE_QKV, a->qkv, a->ln1, W(QKV_W), W(QKV_B), err);
    if (e) return e;
    dev_attention_forward(d, a->att, a->lse, a->qkv, attention_of(s, m, layer));
    e = scheme->linear_forward(s->tp, ROLE_ATTENTION_OUT, a->mid, a->att, W(PROJ_W), W(PROJ_B), err);
    if (e) return e;
    dev_dropout(d, a->mid, a->mid, dropout_of(s, m, c->dropout_residual, layer, "attention"));
    dev_add(d, a->mid, a->in, a->mid);

    dev_layernorm_forward(d, a->ln2, a->ln2_mean, a->ln2_rstd, a->mid, W(LN2_W), W(LN2_B), c->eps);
    e = scheme->linear_forward(s->tp, ROLE_UP, a->up, a->ln2, W(UP_W), W(UP_B), err);
    if (e) return e;
    dev_gelu_forward(d, a->act, a->up);
    e = scheme->linear_forward(s->tp, ROLE_DOWN, out, a->act, W(DOWN_W), W(DOWN_B), err);
    if (e) return e;
    dev_dropout(d, out, out, dropout_of(s, m, c->dropout_residual, layer, "mlp"));
    dev_add(d, out, a->mid, out);
    return OK;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

enum error_code block_backward_input(struct stage *s, struct microbatch *m, int layer, struct tensor d, struct error *err)
{
    struct device *dev = s->device;
    const struct model_config *c = &s->plan->model;
    const struct tensor_scheme *scheme = s->tp->scheme;
    const struct block_activations *a = &m->block[layer - s->first_layer];
    struct block_gradients *g = &m->d_block[layer - s->first_layer];
    struct allocator mem = { dev, BUFFERS, false };
    g->out = allocate_matrix(&mem, m->N, c->D), g->up = allocate_matrix(&mem, m->N, s->tp->columns), g->ln2 = allocate_matrix(&mem, m->N, c->D);
    g->attention_out = allocate_matrix(&mem, m->N, c->D), g->qkv = allocate_matrix(&mem, m->N, 3 * heads_width(s)), g->ln1 = allocate_matrix(&mem, m->N, c->D);
    struct tensor d_att = allocate_matrix(&mem, m->N, heads_width(s)), branch = allocate_matrix(&mem, m->N, c->D);
    enum error_code e = mem.failed ? fail(err, ERR_MEMORY, "no memory for the gradients of layer %d", layer) : OK;
    if (e) goto done;

    dev_dropout(dev, g->out, d, dropout_of(s, m, c->dropout_residual, layer, "mlp"));
    e = scheme->linear_backward_input(s->tp, ROLE_DOWN, g->up, g->out, W(DOWN_W), err);
    if (e) goto done;
    dev_gelu_backward_input(dev, g->up, g->up, a->up);
    e = scheme->linear_backward_input(s->tp, ROLE_UP, g->ln2, g->up, W(UP_W), err);
    if (e) goto done;
    dev_layernorm_backward_input(dev, branch, g->ln2, a->mid, W(LN2_W), a->ln2_mean, a->ln2_rstd);
    dev_add(dev, d, d, branch);

    dev_dropout(dev, g->attention_out, d, dropout_of(s, m, c->dropout_residual, layer, "attention"));
    e = scheme->linear_backward_input(s->tp, ROLE_ATTENTION_OUT, d_att, g->attention_out, W(PROJ_W), err);
    if (e) goto done;
    dev_attention_backward_input(dev, g->qkv, d_att, a->att, a->lse, a->qkv, attention_of(s, m, layer));
    e = scheme->linear_backward_input(s->tp, ROLE_QKV, g->ln1, g->qkv, W(QKV_W), err);
    if (e) goto done;
    dev_layernorm_backward_input(dev, branch, g->ln1, a->in, W(LN1_W), a->ln1_mean, a->ln1_rstd);
    dev_add(dev, d, d, branch);
done:
    device_free(dev, d_att);
    device_free(dev, branch);
    return e;
}

void block_backward_weight(struct stage *s, struct microbatch *m, int layer)
{
    const struct tensor_scheme *scheme = s->tp->scheme;
    struct block_activations *a = &m->block[layer - s->first_layer];
    struct block_gradients *g = &m->d_block[layer - s->first_layer];
    scheme->linear_backward_weight(s->tp, ROLE_DOWN, G(DOWN_W), G(DOWN_B), g->out, a->act);
    scheme->linear_backward_weight(s->tp, ROLE_UP, G(UP_W), G(UP_B), g->up, a->ln2);
    dev_layernorm_backward_weight(s->device, G(LN2_W), G(LN2_B), g->ln2, a->mid, a->ln2_mean, a->ln2_rstd);
    scheme->linear_backward_weight(s->tp, ROLE_ATTENTION_OUT, G(PROJ_W), G(PROJ_B), g->attention_out, a->att);
    scheme->linear_backward_weight(s->tp, ROLE_QKV, G(QKV_W), G(QKV_B), g->qkv, a->ln1);
    dev_layernorm_backward_weight(s->device, G(LN1_W), G(LN1_B), g->ln1, a->in, a->ln1_mean, a->ln1_rstd);
    block_drop(s, a);
    block_drop_gradients(s, g);
}
