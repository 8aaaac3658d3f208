/* experts.c -- runs one call of an expert scheme whose experts multiply by known numbers.  Callers are cli/bench,
 * draw/dispatch/, drawn.c and tests.  Errors are the scheme's, ERR_PLAN and ERR_MEMORY. */
#include "emulated_devices/verify/cases/experts.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/kinds.h"
#include <math.h>

/* ---- choices and numbers ----------------------------------------------------------------------------------------- */

/* The result is the greatest common divisor, by Euclid. */
static int64_t divisor(int64_t a, int64_t b) { return b == 0 ? a : divisor(b, a % b); }

/* Each part of the experts has k, so that the choices of a token differ if the ith is the ith of a part. */
static int32_t choice_of_part(const struct expert_shape *shape, int device, int64_t t, int64_t i)
{
    const int64_t number = t * shape->k + i, own = device / shape->etp;
    const int64_t part = number % 100 < shape->local ? own : (own + 1 + number % (shape->ep - 1)) % shape->ep;
    return (int32_t)(part * shape->k + i);
}

/* The result is the first expert for which all experts so far have more than this part of the loads 1/(e+1). */
static int32_t zipf_expert(int64_t E, double part)
{
    double all = 0, sum = 1;
    int32_t e = 0;
    for (int64_t i = 1; i <= E; i++) all += 1.0 / (double)i;
    while (e < E - 1 && sum < part * all) sum += 1.0 / (double)(++e + 1);
    return e;
}

/* Parts are multiples of the golden ratio without their whole numbers: they fill 0 to 1 evenly.  An expert that the
 * token has chosen already makes room for the next. */
static int32_t zipf_choice(const struct expert_shape *shape, int device, int64_t t, int64_t i)
{
    double whole;
    int32_t e = zipf_expert(shape->E, modf((double)((device * shape->tokens + t) * shape->k + i + 1)
                                           * 0.6180339887498949, &whole));
    /* After a collision all earlier choices are compared once more. */
    for (int64_t before = 0; before < i; before++)
        if (zipf_choice(shape, device, t, before) == e) e = (int32_t)((e + 1) % shape->E), before = -1;
    return e;
}

int32_t expert_layer_choice(const struct expert_shape *shape, int device, int64_t t, int64_t i)
{
    if (shape->zipf) return zipf_choice(shape, device, t, i);
    if (shape->local > 0 && shape->ep > 1) return choice_of_part(shape, device, t, i);
    int64_t stride = 3;                 /* so that the choices of a token are not neighbours */
    while (divisor(stride, shape->E) != 1) stride += 2;
    return (int32_t)((device + t * shape->k + i) * stride % shape->E);
}

/* value(device, t, column) is a whole number from -8 to 8; weight(i) grows with i, so exchanged choices are noticed. */
static double value(int device, int64_t t, int64_t column) { return (double)((device * 31 + t * 7 + column) % 17 - 8); }
static double cases_experts_weight_of(int64_t i) { return 0.5 + (double)i; }

/* y [rows, D] = (e + 1) / etp times x [rows, D], expert after expert.  The slices of an expert sum to e + 1. */
static void experts_multiply(const struct expert_layer *layer, struct tensor out, struct tensor in,
                             const int32_t *counts)
{
    struct views v = views_of(layer->tp.device);
    const struct tensor x = view_read(&v, in), y = view_write(&v, out);
    int64_t at = 0;
    for (int64_t e = 0; e < layer->shape.E; e++)
        for (int64_t i = 0; i < counts[e] * layer->shape.D; i++, at++)
            tensor_set(y, at, (double)(e + 1) / layer->shape.etp * tensor_get(x, at));
    views_end(&v);
}

static enum error_code body_forward(const void *layer, struct expert_rows rows, struct error *err)
{
    (void)err;
    experts_multiply(layer, rows.results, rows.rows, rows.counts);
    return OK;
}
static enum error_code body_input(const void *layer, struct expert_rows rows, struct expert_gradients gradients,
                                  struct error *err)
{
    (void)err;
    experts_multiply(layer, gradients.rows, gradients.results, rows.counts);
    return OK;
}
static enum error_code body_weight(const void *layer, struct expert_rows rows, struct expert_gradients gradients,
                                   struct error *err)
{
    (void)layer, (void)rows, (void)gradients, (void)err;
    return OK;
}

/* All experts share one piece of zeros for each matrix: weights are moved by schemes, but not read here. */
static struct tensor body_piece(const void *layer, int64_t expert, int matrix, bool gradient)
{
    const struct expert_layer *l = layer;
    (void)expert, (void)gradient;
    return l->piece[matrix];
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Ranks are numbered with slices fastest: along_ep has equal slices of all parts, along_etp all slices of one part. */
static enum error_code make_groups(struct expert_layer *layer, struct comm *world, struct error *err)
{
    int along[MESH_MOST_LISTED], across[MESH_MOST_LISTED];
    const int slices = layer->shape.etp, slice = world->rank % slices;
    for (int i = 0; i < layer->shape.ep; i++) along[i] = i * slices + slice;
    for (int i = 0; i < slices; i++) across[i] = world->rank - slice + i;
    enum error_code e = group_of(&layer->along_ep, world, along, layer->shape.ep, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
    return e ? e : group_of(&layer->along_etp, world, across, slices, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
}

static struct tensor experts_make(struct device *device, enum dtype type, int64_t cols, int64_t rows)
{
    return tensor_2d(device_tensor_in(device, ACTIVATIONS, type, rows * cols).data, type, rows, cols);
}

/* Fill x and dy [tokens, D], weights and experts [tokens, k] with the known numbers of this device. */
static void experts_fill(struct expert_layer *layer, int device)
{
    const struct expert_shape *s = &layer->shape;
    struct views v = views_of(layer->tp.device);
    const struct tensor x = view_write(&v, layer->call.x), dy = view_write(&v, layer->call.dy),
                        weights = view_write(&v, layer->call.weights), experts = view_write(&v, layer->call.experts);
    for (int64_t t = 0; t < s->tokens; t++) {
        for (int64_t i = 0; i < s->k; i++) {
            ((int32_t *)experts.data)[t * s->k + i] = expert_layer_choice(s, device, t, i);
            tensor_set(weights, t * s->k + i, cases_experts_weight_of(i));
        }
        for (int64_t c = 0; c < s->D; c++) {
            tensor_set(x, t * s->D + c, value(device, t, c));
            tensor_set(dy, t * s->D + c, value(device, t, c + 1));
        }
    }
    views_end(&v);
}

enum error_code expert_layer_open(struct expert_layer *layer, struct comm *world, const struct expert_scheme *scheme,
                                  struct expert_shape shape, struct error *err)
{
    struct device *d = world->device;
    *layer = (struct expert_layer){ .shape = shape, .tp = { .scheme = tensor_scheme_at(0), .device = d, .devices = 1,
                                        .config = &layer->config },
                                .config = { .L = 1, .D = shape.D, .F = shape.F, .mlp = MLP_MIXTURE,
                                            .mixture = { .E = shape.E, .k = shape.k } } };
    enum error_code e = make_groups(layer, world, err);
    if (e) return e;
    layer->ep = (struct expert_parallel){ .scheme = scheme, .tp = &layer->tp, .group = &layer->along_ep,
                                         .part = layer->part,
                                      .devices = shape.ep, .rank = layer->along_ep.rank, .along_etp = &layer->along_etp,
                                      .slices = shape.etp, .slice = layer->along_etp.rank, .degree = -1,
                                      .parts = scheme->has_parts ? shape.parts : 0, .copying = shape.copying,
                                      .routing = &layer->routing,
                                      .node = nodes_even(group_nodes(&layer->along_ep), shape.ep) };
    /* The scheme says in words which devices or models it needs. */
    const char *needs = scheme->refuses(&layer->ep, &layer->config);
    if (needs) return fail(err, ERR_PLAN, "%s on %d devices: needs %s", scheme->head.name, shape.ep, needs);
    if (scheme->open) e = scheme->open(&layer->ep, err);
    layer->call = (struct mixture_call){ .ep = &layer->ep, .routing = &layer->routing, .phases = ALL_PHASES,
                                     .body = { layer, body_forward, body_input, body_weight, body_piece },
                                     .x = experts_make(d, d->dtype, shape.D, shape.tokens),
                                         .y = experts_make(d, d->dtype, shape.D, shape.tokens),
                                     .weights = experts_make(d, d->dtype, shape.k, shape.tokens),
                                     .experts = experts_make(d, I32, shape.k, shape.tokens),
                                         .dx = experts_make(d, d->dtype, shape.D, shape.tokens),
                                     .dy = experts_make(d, d->dtype, shape.D, shape.tokens),
                                     .d_weights = experts_make(d, d->dtype, shape.k, shape.tokens) };
    /* piece 0 [2 columns, D] stands for gate and up, piece 1 [D, columns] for down.  The columns are this device's
     * part of F. */
    const int64_t columns = expert_columns(&layer->ep).count;
    layer->piece[0] = experts_make(d, d->dtype, shape.D, 2 * columns),
        layer->piece[1] = experts_make(d, d->dtype, columns, shape.D);
    const struct mixture_call *c = &layer->call;
    if (!e && !(layer->piece[0].data && layer->piece[1].data && c->x.data && c->y.data && c->weights.data
                && c->experts.data && c->dx.data && c->dy.data && c->d_weights.data))
        e = fail(err, ERR_MEMORY, "no memory for %lld tokens", (long long)shape.tokens);
    if (!e) experts_fill(layer, world->rank), device_zero(d, layer->piece[0]), device_zero(d, layer->piece[1]);
    return e;
}

void expert_layer_close(struct expert_layer *layer)
{
    struct mixture_call *c = &layer->call;
    const struct tensor own[] = { c->x, c->y, c->weights, c->experts, c->dx, c->dy, c->d_weights, layer->piece[0],
                                  layer->piece[1] };
    for (size_t i = 0; i < sizeof own / sizeof *own && layer->tp.device; i++) device_free(layer->tp.device, own[i]);
    for (int i = 0; i < EXPERT_SLOTS && layer->tp.device; i++) device_free(layer->tp.device, c->kept[i]);
    for (int i = 0; i < EXPERT_GRADIENT_SLOTS && layer->tp.device; i++) device_free(layer->tp.device, c->left[i]);
    if (layer->ep.scheme && layer->ep.scheme->close) layer->ep.scheme->close(&layer->ep);
    for (int i = 0; i < EXPERT_GROUPS; i++) group_close(&layer->part[i]);
    expert_routing_clear(&layer->routing);
    group_close(&layer->along_ep), group_close(&layer->along_etp);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

enum error_code expert_call_announce(const struct mixture_call *call, struct error *err)
{
    struct views v = views_of(call->ep->tp->device);
    const struct choices own = { view_read(&v, call->experts).data, tensor_rows(call->experts),
                                tensor_cols(call->experts) };
    const enum error_code e = call->ep->scheme->announce(call->routing, call->ep, &own, err);
    views_end(&v);
    return e;
}

enum error_code expert_layer_learn(struct expert_layer *layer, struct error *err)
{
    const struct expert_scheme *s = layer->ep.scheme;
    if (s->step == NULL) return OK;
    const enum error_code e = expert_call_announce(&layer->call, err);
    s->step(&layer->ep);
    return e;
}

enum error_code expert_layer_announce(struct expert_layer *layer, struct error *err)
{
    const struct expert_scheme *s = layer->ep.scheme;
    struct device *d = layer->tp.device;
    const enum error_code e = expert_call_announce(&layer->call, err);
    /* Room is made only after the announcement: the number of rows is then known. */
    bool room = true;
    for (int i = 0; i < s->slots + s->gradient_slots && !e; i++) {
        struct tensor *t = i < s->slots ? &layer->call.kept[i] : &layer->call.left[i - s->slots];
        *t = i < s->slots ? s->kept(&layer->ep, i, layer->shape.tokens)
            : s->left(&layer->ep, i - s->slots, layer->shape.tokens);
        t->data = arena_alloc(&d->arena, ACTIVATIONS, tensor_bytes(*t));
        room = room && t->data;
    }
    return e || room ? e : fail(err, ERR_MEMORY, "no memory for rows of experts");
}

enum error_code expert_layer_run(struct expert_layer *layer, struct error *err)
{
    const struct expert_scheme *s = layer->ep.scheme;
    enum error_code e = s->forward(&layer->call, err);
    if (!e) e = s->input(&layer->call, err);
    return e ? e : s->weight(&layer->call, err);
}

struct traffic expert_layer_cost(const struct expert_layer *layer)
{
    struct forecast f = { .tp = &layer->tp };
    if (layer->ep.scheme->announce_cost) layer->ep.scheme->announce_cost(&f, &layer->ep);
    if (layer->ep.scheme->cost) layer->ep.scheme->cost(&f, &layer->ep, FORWARD_PASS);
    if (layer->ep.scheme->cost) layer->ep.scheme->cost(&f, &layer->ep, INPUT_PASS);
    if (layer->ep.scheme->cost) layer->ep.scheme->cost(&f, &layer->ep, WEIGHT_PASS);
    return account_total(&f.sum);
}

/* y and dx of a token are sums of weight (expert + 1) x and dy; d_weight is (expert + 1) x . dy. */
static bool token_right(const struct expert_layer *layer, int device, int64_t t, struct tensor y, struct tensor dx,
                        struct tensor d_weights)
{
    const struct expert_shape *s = &layer->shape;
    double factor = 0, inner = 0, off = 0;
    /* inner = x . dy, factor = sum over the choices of weight (expert + 1). */
    for (int64_t c = 0; c < s->D; c++) inner += value(device, t, c) * value(device, t, c + 1);
    for (int64_t i = 0; i < s->k; i++) {
        const double by = expert_layer_choice(s, device, t, i) + 1;
        factor += cases_experts_weight_of(i) * by;
        off = fmax(off, fabs(tensor_get(d_weights, t * s->k + i) - by * inner));
    }
    for (int64_t c = 0; c < s->D; c++) {
        off = fmax(off, fabs(tensor_get(y, t * s->D + c) - factor * value(device, t, c)));
        off = fmax(off, fabs(tensor_get(dx, t * s->D + c) - factor * value(device, t, c + 1)));
    }
    /* 1e-9 is far above rounding in fp64; the factor follows the size of the sums. */
    return off < 1e-9 * (1 + factor * 64 * (double)s->D);
}

bool expert_layer_right(const struct expert_layer *layer)
{
    struct views v = views_of(layer->tp.device);
    const struct tensor y = view_read(&v, layer->call.y), dx = view_read(&v, layer->call.dx),
                        d_weights = view_read(&v, layer->call.d_weights);
    bool right = true;
    for (int64_t t = 0; t < layer->shape.tokens; t++)
        right = right && token_right(layer, layer->along_ep.comm->rank, t, y, dx, d_weights);
    views_end(&v);
    return right;
}
