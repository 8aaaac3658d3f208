#include "emulated_devices/verify/cases/attention.h"
#include "emulated_devices/verify/cases/layer.h"
#include <stdlib.h>

enum error_code attention_layer_plan(struct plan *p, struct attention_shape a, enum dtype dtype, const char *attention,
                                     struct context_split split, int P, const struct cluster *cluster,
                                     struct error *err)
{
    const int size[AXIS_COUNT] = { [DP] = 1, [TP] = 1, [PP] = 1, [CP] = P, [EP] = 1 };
    struct model_config llama;
    int64_t batch;
    enum error_code e = model_config_preset(&llama, &batch, "llama-tiny", err);
    llama.S = a.S, llama.H = a.H, llama.K = a.K, llama.A = a.A, llama.D = a.H * a.A;
    if (!e) e = layer_plan(p, &llama, a.B, dtype, tensor_scheme_at(0)->head.name, 1, cluster, err);
    if (!e) e = mesh_make(&p->mesh, size, err);
    p->attention = attention, p->split = split;
    return e ? e : plan_check(p, err);
}

/* All sequences are one, and a token sees those of its own, or what the mask says. */
static enum error_code take_plan(struct attention_layer *l, struct tensor mask, struct error *err)
{
    const int64_t S = l->plan.S, tokens = l->plan.B * S;
    const enum error_code e = plan_context(&l->plan, 0, 0, mask, &l->placed, err);
    if (e) return e;
    l->cp.plan = &l->placed, l->cp.S = tokens, l->call.shape.mask = mask;
    if (tensor_present(mask)) return OK;
    l->sees = malloc((size_t)(2 * tokens) * sizeof *l->sees);
    if (l->sees == NULL) return fail(err, ERR_MEMORY, "no memory for a mask of %lld tokens", (long long)tokens);
    for (int64_t i = 0; i < tokens; i++) l->sees[2 * i] = (int32_t)(i - i % S), l->sees[2 * i + 1] = (int32_t)i + 1;
    l->call.shape.mask = tensor_2d(l->sees, I32, tokens, 2);
    return OK;
}

static enum error_code open_groups(struct attention_layer *l, struct comm *comm, struct tensor mask, struct error *err)
{
    enum error_code e = group_along(&l->one, comm, &l->plan.mesh, TRAFFIC_TENSOR, AXIS_BIT(TP), err);
    if (!e) e = group_along(&l->along, comm, &l->plan.mesh, TRAFFIC_ATTENTION, AXIS_BIT(CP), err);
    if (!e) e = tensor_open(&l->tp, &l->one, err);
    l->cp = plan_context_share(&l->plan, &l->tp, comm->rank);
    l->cp.group = &l->along, l->cp.part = l->part;
    if (!e && l->cp.scheme->plan) e = take_plan(l, mask, err);
    return !e && l->cp.scheme->open ? l->cp.scheme->open(&l->cp, err) : e;
}

/* A tensor of this shape. */
static enum error_code give(struct attention_layer *l, struct tensor *t, struct tensor shape, struct error *err)
{
    *t = tensor_2d(device_tensor_in(l->tp.device, ACTIVATIONS, shape.dtype, tensor_count(shape)).data, shape.dtype,
                   tensor_rows(shape), tensor_cols(shape));
    return t->data ? OK : fail(err, ERR_MEMORY, "no memory for attention of %lld tokens", (long long)l->plan.S);
}

enum error_code attention_layer_open(struct attention_layer *l, const struct plan *plan, struct comm *comm,
                                     struct tensor mask, struct error *err)
{
    *l = (struct attention_layer){ .plan = *plan };
    const struct model_config *m = &l->plan.model;
    struct attention_call *c = &l->call;
    l->tp = (struct tensor_parallel){ .config = m, .device = comm->device, .S = l->plan.S };
    enum error_code e = tensor_scheme_find(&l->tp.scheme, l->plan.tensor, err);
    if (!e) e = open_groups(l, comm, mask, err);
    if (e) return e;
    struct intervals own = context_tokens(&l->cp);
    const int64_t rows = (l->cp.plan ? 1 : l->plan.B) * intervals_total(&own);
    intervals_free(&own);
    const struct tensor sees = c->shape.mask;
    *c = (struct attention_call){ .cp = &l->cp, .shape = attention_of_layer(m, 0, l->cp.S) };
    c->shape.mask = sees;
    const struct tensor wide = tensor_2d(NULL, l->plan.dtype, rows, (m->H + 2 * m->K) * m->A),
                        narrow = tensor_2d(NULL, l->plan.dtype, rows, m->H * m->A);
    e = give(l, &c->qkv, wide, err);
    if (!e) e = give(l, &c->out, narrow, err);
    if (!e) e = give(l, &c->d_qkv, wide, err);
    if (!e) e = give(l, &c->d_out, narrow, err);
    for (int i = 0; i < l->cp.scheme->slots && !e; i++)
        e = give(l, &c->kept[i], l->cp.scheme->kept(&l->cp, i, rows), err);
    return e;
}

void attention_layer_close(struct attention_layer *l)
{
    struct tensor *const own[] = { &l->call.qkv, &l->call.out, &l->call.d_qkv, &l->call.d_out, &l->call.kept[0],
                                   &l->call.kept[1], &l->call.kept[2], &l->call.kept[3] };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i]->data) device_free(l->tp.device, *own[i]);
    context_plan_free(&l->placed), free(l->sees);
    tensor_close(&l->tp);
    for (int i = 0; i < ATTENTION_GROUPS; i++) group_close(&l->part[i]);
    group_close(&l->along), group_close(&l->one);
}

enum error_code attention_layer_pass(struct attention_layer *l, enum tensor_pass pass, struct error *err)
{
    const struct attention_scheme *s = l->cp.scheme;
    return pass == FORWARD_PASS ? s->forward(&l->call, err) : s->backward_input(&l->call, err);
}

struct traffic attention_layer_cost(const struct attention_layer *l, enum tensor_pass pass)
{
    struct forecast f = { .tp = &l->tp };
    if (l->cp.scheme->cost) l->cp.scheme->cost(&f, &l->cp, pass, tensor_rows(l->call.qkv));
    return account_total(&f.sum);
}
