#include "emulated_devices/model/stage.h"
#include "emulated_devices/device/compute.h"
#include <math.h>
#include <stdlib.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Allocation within a step: a failure is remembered and reported once, at the end of the pass. */
struct allocator { struct device *device; enum arena_tag tag; bool failed; };

static struct tensor matrix(struct allocator *a, int64_t rows, int64_t cols)
{
    struct tensor t = device_tensor_2d(a->device, a->tag, rows, cols);
    a->failed = a->failed || t.data == NULL;
    return t;
}

static struct tensor vector(struct allocator *a, int64_t n)
{
    struct tensor t = device_tensor_1d(a->device, a->tag, n);
    a->failed = a->failed || t.data == NULL;
    return t;
}

static void drop(struct stage *s, struct tensor *t)
{
    device_free(s->device, *t);
    *t = tensor_none;
}

static enum error_code out_of_memory(const struct stage *s, int micro, struct error *err)
{
    return fail(err, ERR_MEMORY, "the machine has no memory left for microbatch %d of stage %d", micro, s->index);
}

static int64_t heads_width(const struct stage *s) { return s->tp->heads * s->plan->model.A; }

static bool make_block(struct stage *s, struct block_activations *b, int64_t N)
{
    struct allocator a = { s->device, ACTIVATIONS, false };
    const int64_t D = s->plan->model.D;
    b->ln1_mean = vector(&a, N), b->ln1_rstd = vector(&a, N), b->ln1 = matrix(&a, N, D);
    b->qkv = matrix(&a, N, 3 * heads_width(s)), b->lse = matrix(&a, N, s->tp->heads), b->att = matrix(&a, N, heads_width(s));
    b->mid = matrix(&a, N, D);
    b->ln2_mean = vector(&a, N), b->ln2_rstd = vector(&a, N), b->ln2 = matrix(&a, N, D);
    b->up = matrix(&a, N, s->tp->columns), b->act = matrix(&a, N, s->tp->columns);
    return !a.failed;
}

static void drop_block(struct stage *s, struct block_activations *b)
{
    struct tensor *const all[] = { &b->in, &b->ln1_mean, &b->ln1_rstd, &b->ln1, &b->qkv, &b->lse, &b->att, &b->mid,
                                   &b->ln2_mean, &b->ln2_rstd, &b->ln2, &b->up, &b->act };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(s, all[i]);
}

static void drop_gradients(struct stage *s, struct block_gradients *d)
{
    struct tensor *const all[] = { &d->out, &d->up, &d->ln2, &d->attention_out, &d->qkv, &d->ln1 };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(s, all[i]);
}

static void drop_microbatch(struct stage *s, struct microbatch *m)
{
    for (int l = 0; l < s->layers; l++) {
        drop_block(s, &m->block[l]);
        drop_gradients(s, &m->d_block[l]);
    }
    struct tensor *const all[] = { &m->out, &m->lnf_mean, &m->lnf_rstd, &m->lnf, &m->logits, &m->top, &m->sums, &m->d_lnf,
                                   &m->d_out, &m->d_in };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(s, all[i]);
}

uint64_t stage_activation_bytes(const struct stage *s, int64_t N)
{
    const struct model_config *c = &s->plan->model;
    /* in, ln1, mid, ln2: D each;  qkv 3, att 1 of this device's heads;  up, act;  four statistics and lse */
    const int64_t block = 4 * c->D + 4 * heads_width(s) + 2 * s->tp->columns + 4 + s->tp->heads;
    const int64_t end = s->last ? 2 * c->D + s->tp->tokens + 2 + 3 : 0;         /* out, lnf; logits; statistics; top, total, hit */
    return (uint64_t)(N * (s->layers * block + end)) * dtype_size(s->device->dtype);
}

/* The three tables of integers are inputs, not tensors of the model: they are not counted. */
enum error_code stage_open(struct stage *s, const struct plan *plan, struct device *device, struct tensor_parallel *tp,
                           struct parameters *parameters, int index, int dp, struct error *err)
{
    *s = (struct stage){ .plan = plan, .device = device, .tp = tp, .parameters = parameters, .index = index,
                         .first = index == 0, .last = index == plan->stages - 1, .first_layer = (int)plan_first_layer(plan, index) };
    s->layers = (int)plan_first_layer(plan, index + 1) - s->first_layer;
    s->micro = calloc((size_t)plan->micros, sizeof *s->micro);
    bool ok = s->micro != NULL;
    for (int i = 0; ok && i < plan->micros; i++) {
        struct microbatch *m = &s->micro[i];
        m->sequences = plan_microbatch(plan, dp, i);
        m->N = m->sequences.count * plan->S;
        m->block = calloc((size_t)s->layers, sizeof *m->block);
        m->d_block = calloc((size_t)s->layers, sizeof *m->d_block);
        int32_t *ints = calloc((size_t)(3 * m->N), sizeof *ints);
        ok = m->block && m->d_block && ints;
        m->ids = tensor_1d(ints, I32, m->N);
        m->positions = tensor_1d(ints ? ints + m->N : NULL, I32, m->N);
        m->labels = tensor_1d(ints ? ints + 2 * m->N : NULL, I32, m->N);
        for (int64_t n = 0; ok && n < m->N; n++) ints[m->N + n] = (int32_t)(n % plan->S);
    }
    if (ok) return OK;
    stage_close(s);
    return fail(err, ERR_MEMORY, "no memory for the lists of %d microbatches", plan->micros);
}

void stage_close(struct stage *s)
{
    for (int i = 0; s->micro && i < s->plan->micros; i++) {
        struct microbatch *m = &s->micro[i];
        if (m->block && m->d_block) drop_microbatch(s, m);
        free(m->block), free(m->d_block), free(m->ids.data);
    }
    free(s->micro);
    s->micro = NULL;
}

/* ---- the executor's places ----------------------------------------------------------------------------------------- */

struct tensor stage_input(struct stage *s, int micro)
{
    struct microbatch *m = &s->micro[micro];
    return m->block[0].in = device_tensor_2d(s->device, ACTIVATIONS, m->N, s->plan->model.D);
}

struct tensor stage_output_gradient(struct stage *s, int micro)
{
    struct microbatch *m = &s->micro[micro];
    return m->d_out = device_tensor_2d(s->device, BUFFERS, m->N, s->plan->model.D);
}

static struct tensor take(struct tensor *t)
{
    const struct tensor taken = *t;
    *t = tensor_none;
    return taken;
}

struct tensor stage_take_output(struct stage *s, int micro) { return take(&s->micro[micro].out); }
struct tensor stage_take_input_gradient(struct stage *s, int micro) { return take(&s->micro[micro].d_in); }

/* ---- forward --------------------------------------------------------------------------------------------------------- */

static const struct parameter *block_parameter(const struct stage *s, int layer, enum block_param p)
{
    return parameter_find(s->parameters, param_of_block(layer, p));
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

static struct dropout dropout_of(const struct stage *s, const struct microbatch *m, double p, int layer, const char *where)
{
    return dropout_at(p, s->dropout_seed, layer, where, m->sequences.first * s->plan->S, 0, s->plan->model.D);
}

static enum error_code block_forward(struct stage *s, struct microbatch *m, int layer, struct tensor out, struct error *err)
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

static enum error_code embed(struct stage *s, struct microbatch *m, struct tensor x, struct error *err)
{
    const struct parameter *wte = parameter_find(s->parameters, PARAM_WTE), *wpe = parameter_find(s->parameters, PARAM_WPE);
    enum error_code e = s->tp->scheme->embedding_forward(s->tp, x, m->ids, wte->w, err);
    if (e) return e;
    dev_embedding_forward(s->device, x, m->positions, wpe->w, 0, true);
    dev_dropout(s->device, x, x, dropout_of(s, m, s->plan->model.dropout_embedding, -1, "embedding"));
    return OK;
}

static struct tensor half(struct tensor sums, int which)
{
    const int64_t N = tensor_count(sums) / 2;
    return tensor_1d((char *)sums.data + (size_t)(which * N) * dtype_size(sums.dtype), sums.dtype, N);
}

static enum error_code loss_forward(struct stage *s, struct microbatch *m, int micro, struct error *err)
{
    const struct model_config *c = &s->plan->model;
    struct allocator a = { s->device, ACTIVATIONS, false };
    const int final = param_final_norm(c);
    double loss = 0;
    m->lnf_mean = vector(&a, m->N), m->lnf_rstd = vector(&a, m->N), m->lnf = matrix(&a, m->N, c->D);
    m->logits = matrix(&a, m->N, s->tp->tokens), m->top = vector(&a, m->N), m->sums = vector(&a, 2 * m->N);
    if (a.failed) return out_of_memory(s, micro, err);
    dev_layernorm_forward(s->device, m->lnf, m->lnf_mean, m->lnf_rstd, m->out, parameter_find(s->parameters, final)->w,
                          parameter_find(s->parameters, final + 1)->w, c->eps);
    enum error_code e = s->tp->scheme->linear_forward(s->tp, ROLE_HEAD, m->logits, m->lnf,
                                                      parameter_find(s->parameters, param_head(c))->w, tensor_none, err);
    if (!e) e = s->tp->scheme->cross_entropy_forward(s->tp, &loss, m->top, half(m->sums, 0), half(m->sums, 1), m->logits, m->labels, err);
    s->loss += loss;
    return e;
}

enum error_code stage_forward(struct stage *s, int micro, struct error *err)
{
    struct microbatch *m = &s->micro[micro];
    struct allocator a = { s->device, ACTIVATIONS, false };
    const int64_t D = s->plan->model.D;
    enum error_code e = OK;
    if (s->first) {
        m->block[0].in = matrix(&a, m->N, D);
        if (a.failed) return out_of_memory(s, micro, err);
        e = embed(s, m, m->block[0].in, err);
    }
    for (int l = 0; l < s->layers && !e; l++) {
        /* what goes to the next stage is on its way out, not kept */
        const bool leaves = l + 1 == s->layers && !s->last;
        struct tensor out = leaves ? device_tensor_2d(s->device, BUFFERS, m->N, D) : matrix(&a, m->N, D);
        a.failed = a.failed || out.data == NULL;
        *(l + 1 < s->layers ? &m->block[l + 1].in : &m->out) = out;
        if (!make_block(s, &m->block[l], m->N) || a.failed) return out_of_memory(s, micro, err);
        e = block_forward(s, m, s->first_layer + l, out, err);
    }
    if (!e && s->last) e = loss_forward(s, m, micro, err);
    return e;
}

/* ---- backward --------------------------------------------------------------------------------------------------------- */

/* d, the gradient of the block's output, becomes that of its input; the gradients of the linear layers' outputs stay in g. */
static enum error_code block_backward_input(struct stage *s, struct microbatch *m, int layer, struct tensor d, struct error *err)
{
    struct device *dev = s->device;
    const struct model_config *c = &s->plan->model;
    const struct tensor_scheme *scheme = s->tp->scheme;
    const struct block_activations *a = &m->block[layer - s->first_layer];
    struct block_gradients *g = &m->d_block[layer - s->first_layer];
    struct allocator mem = { dev, BUFFERS, false };
    g->out = matrix(&mem, m->N, c->D), g->up = matrix(&mem, m->N, s->tp->columns), g->ln2 = matrix(&mem, m->N, c->D);
    g->attention_out = matrix(&mem, m->N, c->D), g->qkv = matrix(&mem, m->N, 3 * heads_width(s)), g->ln1 = matrix(&mem, m->N, c->D);
    struct tensor d_att = matrix(&mem, m->N, heads_width(s)), branch = matrix(&mem, m->N, c->D);
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

static void block_backward_weight(struct stage *s, struct microbatch *m, int layer)
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
    drop_block(s, a);
    drop_gradients(s, g);
}

/* The gradient of the last layer's output, from the loss.  Logits become their own gradient, which the weights' part uses. */
static enum error_code loss_backward_input(struct stage *s, struct microbatch *m, struct error *err)
{
    const struct model_config *c = &s->plan->model;
    struct allocator a = { s->device, BUFFERS, false };
    m->d_out = matrix(&a, m->N, c->D);
    m->d_lnf = matrix(&a, m->N, c->D);
    if (a.failed) return fail(err, ERR_MEMORY, "no memory for the gradient of the loss");
    s->tp->scheme->cross_entropy_backward(s->tp, m->logits, m->logits, half(m->sums, 0), m->top, m->labels,
                                          1 / (double)(s->counted ? s->counted : 1));
    enum error_code e = s->tp->scheme->linear_backward_input(s->tp, ROLE_HEAD, m->d_lnf, m->logits,
                                                             parameter_find(s->parameters, param_head(c))->w, err);
    if (!e) dev_layernorm_backward_input(s->device, m->d_out, m->d_lnf, m->out, parameter_find(s->parameters, param_final_norm(c))->w,
                                         m->lnf_mean, m->lnf_rstd);
    return e;
}

static void loss_backward_weight(struct stage *s, struct microbatch *m)
{
    const struct model_config *c = &s->plan->model;
    const int final = param_final_norm(c);
    s->tp->scheme->linear_backward_weight(s->tp, ROLE_HEAD, parameter_find(s->parameters, param_head(c))->g, tensor_none, m->logits, m->lnf);
    dev_layernorm_backward_weight(s->device, parameter_find(s->parameters, final)->g, parameter_find(s->parameters, final + 1)->g,
                                  m->d_lnf, m->out, m->lnf_mean, m->lnf_rstd);
    struct tensor *const all[] = { &m->out, &m->lnf_mean, &m->lnf_rstd, &m->lnf, &m->logits, &m->top, &m->sums, &m->d_lnf };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(s, all[i]);
}

static void embedding_backward_weight(struct stage *s, struct microbatch *m)
{
    s->tp->scheme->embedding_backward_weight(s->tp, parameter_find(s->parameters, PARAM_WTE)->g, m->d_in, m->ids);
    dev_embedding_backward_weight(s->device, parameter_find(s->parameters, PARAM_WPE)->g, m->d_in, m->positions, 0);
    drop(s, &m->d_in);
}

enum error_code stage_backward(struct stage *s, int micro, bool input, bool weight, struct error *err)
{
    struct microbatch *m = &s->micro[micro];
    enum error_code e = OK;
    if (s->last && input) e = loss_backward_input(s, m, err);
    if (e) return e;
    if (s->last && weight) loss_backward_weight(s, m);
    for (int l = s->layers - 1; l >= 0 && !e; l--) {
        if (input) e = block_backward_input(s, m, s->first_layer + l, m->d_out, err);
        if (weight && !e) block_backward_weight(s, m, s->first_layer + l);
    }
    if (e) return e;
    if (input) m->d_in = take(&m->d_out);
    if (s->first && input) dev_dropout(s->device, m->d_in, m->d_in, dropout_of(s, m, s->plan->model.dropout_embedding, -1, "embedding"));
    if (s->first && weight) embedding_backward_weight(s, m);
    return OK;
}
