/* attention.c -- builds and runs one layer of attention under a context-parallel scheme, without the rest of a
 * model.  Callers are drawings (draw/attention/), `orrery bench` and tests.  Errors are those of the plan and the
 * scheme, and ERR_MEMORY. */
#include "emulated_devices/verify/cases/attention.h"
#include "emulated_devices/verify/cases/layer.h"
#include <stdlib.h>

enum error_code attention_layer_plan(struct plan *plan, struct attention_shape shape, enum dtype dtype,
                                     const char *attention,
                                     struct context_split split, int P, const struct cluster *cluster,
                                     struct error *err)
{
    const int size[AXIS_COUNT] = { [DP] = 1, [TP] = 1, [PP] = 1, [CP] = P, [EP] = 1 };
    /* The preset gives the architecture; the shape replaces its sizes. */
    struct model_config llama;
    int64_t batch;
    enum error_code e = model_config_preset(&llama, &batch, "llama-tiny", err);
    llama.S = shape.S, llama.H = shape.H, llama.K = shape.K, llama.A = shape.A, llama.D = shape.H * shape.A;
    if (!e) e = layer_plan(plan, &llama, shape.B, dtype, tensor_scheme_at(0)->head.name, 1, cluster, err);
    if (!e) e = mesh_make(&plan->mesh, size, err);
    plan->attention = attention, plan->split = split;
    return e ? e : plan_check(plan, err);
}

/* Let the scheme plan: all B sequences are one sequence of B S tokens.  A token sees those of its own sequence, or
 * what the mask says. */
static enum error_code take_plan(struct attention_layer *layer, struct tensor mask, struct error *err)
{
    const int64_t S = layer->plan.S, tokens = layer->plan.B * S;
    const enum error_code e = plan_context(&layer->plan, 0, 0, mask, &layer->placed, err);
    if (e) return e;
    layer->cp.plan = &layer->placed, layer->cp.S = tokens, layer->call.shape.mask = mask;
    if (tensor_present(mask)) return OK;
    layer->sees = malloc((size_t)(2 * tokens) * sizeof *layer->sees);
    if (layer->sees == NULL) return fail(err, ERR_MEMORY, "no memory for a mask of %lld tokens", (long long)tokens);
    /* sees [B S, 2]: the range from the sequence's first token to the token itself, which is a causal mask. */
    for (int64_t i = 0; i < tokens; i++)
        layer->sees[2 * i] = (int32_t)(i - i % S), layer->sees[2 * i + 1] = (int32_t)i + 1;
    layer->call.shape.mask = tensor_2d(layer->sees, I32, tokens, 2);
    return OK;
}

/* Make this device's groups, a tensor-parallel share of one device, and the share of the sequences.  The plan comes
 * before the scheme is opened, because opening may read the plan. */
static enum error_code attention_open_groups(struct attention_layer *layer, struct comm *comm, struct tensor mask,
                                             struct error *err)
{
    enum error_code e = group_along(&layer->one, comm, &layer->plan.mesh, TRAFFIC_TENSOR, AXIS_BIT(TP), err);
    if (!e) e = group_along(&layer->along, comm, &layer->plan.mesh, TRAFFIC_ATTENTION, AXIS_BIT(CP), err);
    if (!e) e = tensor_open(&layer->tp, &layer->one, err);
    layer->cp = plan_context_share(&layer->plan, &layer->tp, comm->rank);
    layer->cp.group = &layer->along, layer->cp.part = layer->part;
    if (!e && layer->cp.scheme->plan) e = take_plan(layer, mask, err);
    return !e && layer->cp.scheme->open ? layer->cp.scheme->open(&layer->cp, err) : e;
}

/* Give a tensor of this shape memory of the device, as ACTIVATIONS. */
static enum error_code attention_give(struct attention_layer *layer, struct tensor *tensor, struct tensor shape,
                                      struct error *err)
{
    *tensor = tensor_2d(device_tensor_in(layer->tp.device, ACTIVATIONS, shape.dtype,
                                         tensor_count(shape)).data, shape.dtype,
                        tensor_rows(shape), tensor_cols(shape));
    return tensor->data ? OK
           : fail(err, ERR_MEMORY, "no memory for attention of %lld tokens", (long long)layer->plan.S);
}

enum error_code attention_layer_open(struct attention_layer *layer, const struct plan *plan, struct comm *comm,
                                     struct tensor mask, struct error *err)
{
    *layer = (struct attention_layer){ .plan = *plan };
    const struct model_config *m = &layer->plan.model;
    struct attention_call *c = &layer->call;
    layer->tp = (struct tensor_parallel){ .config = m, .device = comm->device, .S = layer->plan.S };
    enum error_code e = tensor_scheme_find(&layer->tp.scheme, layer->plan.tensor, err);
    if (!e) e = attention_open_groups(layer, comm, mask, err);
    if (e) return e;
    struct intervals own = context_tokens(&layer->cp);
    /* A plan counts the tokens of all sequences; without a plan own has the tokens of one sequence. */
    const int64_t rows = (layer->cp.plan ? 1 : layer->plan.B) * intervals_total(&own);
    intervals_free(&own);
    /* The call is made anew, so the mask that take_plan has set is carried over. */
    const struct tensor sees = c->shape.mask;
    *c = (struct attention_call){ .cp = &layer->cp, .shape = attention_of_layer(m, 0, layer->cp.S) };
    c->shape.mask = sees;
    /* wide [rows, (H + 2 K) A] holds queries, keys and values; narrow [rows, H A] holds results. */
    const struct tensor wide = tensor_2d(NULL, layer->plan.dtype, rows, (m->H + 2 * m->K) * m->A),
                        narrow = tensor_2d(NULL, layer->plan.dtype, rows, m->H * m->A);
    e = attention_give(layer, &c->qkv, wide, err);
    if (!e) e = attention_give(layer, &c->out, narrow, err);
    if (!e) e = attention_give(layer, &c->d_qkv, wide, err);
    if (!e) e = attention_give(layer, &c->d_out, narrow, err);
    for (int i = 0; i < layer->cp.scheme->slots && !e; i++)
        e = attention_give(layer, &c->kept[i], layer->cp.scheme->kept(&layer->cp, i, rows), err);
    return e;
}

void attention_layer_close(struct attention_layer *layer)
{
    struct tensor *const own[] = { &layer->call.qkv, &layer->call.out, &layer->call.d_qkv, &layer->call.d_out,
                                  &layer->call.kept[0],
                                   &layer->call.kept[1], &layer->call.kept[2], &layer->call.kept[3] };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i]->data) device_free(layer->tp.device, *own[i]);
    context_plan_free(&layer->placed), free(layer->sees);
    tensor_close(&layer->tp);
    for (int i = 0; i < ATTENTION_GROUPS; i++) group_close(&layer->part[i]);
    group_close(&layer->along), group_close(&layer->one);
}

enum error_code attention_layer_pass(struct attention_layer *layer, enum tensor_pass pass, struct error *err)
{
    const struct attention_scheme *s = layer->cp.scheme;
    return pass == FORWARD_PASS ? s->forward(&layer->call, err) : s->backward_input(&layer->call, err);
}

struct traffic attention_layer_cost(const struct attention_layer *layer, enum tensor_pass pass)
{
    struct forecast f = { .tp = &layer->tp };
    if (layer->cp.scheme->cost) layer->cp.scheme->cost(&f, &layer->cp, pass, tensor_rows(layer->call.qkv));
    return account_total(&f.sum);
}
