#include "emulated_devices/verify/cases/experts.h"
#include "emulated_devices/device/compute.h"
#include <math.h>

/* ---- choices and numbers ----------------------------------------------------------------------------------------- */

static int64_t divisor(int64_t a, int64_t b) { return b == 0 ? a : divisor(b, a % b); }

/* Each part of the experts has k, so that the choices of a token differ if the ith is the ith of a part. */
static int32_t choice_of_part(const struct expert_shape *s, int device, int64_t t, int64_t i)
{
    const int64_t number = t * s->k + i, own = device / s->etp;
    const int64_t part = number % 100 < s->local ? own : (own + 1 + number % (s->ep - 1)) % s->ep;
    return (int32_t)(part * s->k + i);
}

/* The first expert such that it and those before it have more than this part of all loads 1/(e+1). */
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
static int32_t zipf_choice(const struct expert_shape *s, int device, int64_t t, int64_t i)
{
    double whole;
    int32_t e = zipf_expert(s->E, modf((double)((device * s->tokens + t) * s->k + i + 1) * 0.6180339887498949, &whole));
    for (int64_t before = 0; before < i; before++)
        if (zipf_choice(s, device, t, before) == e) e = (int32_t)((e + 1) % s->E), before = -1;
    return e;
}

int32_t expert_layer_choice(const struct expert_shape *s, int device, int64_t t, int64_t i)
{
    if (s->zipf) return zipf_choice(s, device, t, i);
    if (s->local > 0 && s->ep > 1) return choice_of_part(s, device, t, i);
    int64_t stride = 3;                 /* so that the choices of a token are not neighbours */
    while (divisor(stride, s->E) != 1) stride += 2;
    return (int32_t)((device + t * s->k + i) * stride % s->E);
}

static double value(int device, int64_t t, int64_t column) { return (double)((device * 31 + t * 7 + column) % 17 - 8); }
static double weight_of(int64_t i) { return 0.5 + (double)i; }

static void multiply(const struct expert_layer *l, struct tensor out, struct tensor in, const int32_t *counts)
{
    struct views v = views_of(l->tp.device);
    const struct tensor x = view_read(&v, in), y = view_write(&v, out);
    int64_t at = 0;
    for (int64_t e = 0; e < l->shape.E; e++)
        for (int64_t i = 0; i < counts[e] * l->shape.D; i++, at++)
            tensor_set(y, at, (double)(e + 1) / l->shape.etp * tensor_get(x, at));
    views_end(&v);
}

static enum error_code body_forward(const void *layer, struct expert_rows r, struct error *err)
{
    (void)err;
    multiply(layer, r.results, r.rows, r.counts);
    return OK;
}
static void body_input(const void *layer, struct expert_rows r, struct expert_gradients g)
{
    multiply(layer, g.rows, g.results, r.counts);
}
static void body_weight(const void *layer, struct expert_rows r, struct expert_gradients g)
{
    (void)layer, (void)r, (void)g;
}

static struct tensor body_piece(const void *layer, int64_t expert, int matrix, bool gradient)
{
    const struct expert_layer *l = layer;
    (void)expert, (void)gradient;
    return l->piece[matrix];
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static enum error_code make_groups(struct expert_layer *l, struct comm *world, struct error *err)
{
    int along[MESH_MOST_DEVICES], across[MESH_MOST_DEVICES];
    const int slices = l->shape.etp, slice = world->rank % slices;
    for (int i = 0; i < l->shape.ep; i++) along[i] = i * slices + slice;
    for (int i = 0; i < slices; i++) across[i] = world->rank - slice + i;
    enum error_code e = group_of(&l->along_ep, world, along, l->shape.ep, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
    return e ? e : group_of(&l->along_etp, world, across, slices, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
}

static struct tensor make(struct device *d, enum dtype type, int64_t cols, int64_t rows)
{
    return tensor_2d(device_tensor_in(d, ACTIVATIONS, type, rows * cols).data, type, rows, cols);
}

static void fill(struct expert_layer *l, int device)
{
    const struct expert_shape *s = &l->shape;
    struct views v = views_of(l->tp.device);
    const struct tensor x = view_write(&v, l->call.x), dy = view_write(&v, l->call.dy),
                        weights = view_write(&v, l->call.weights), experts = view_write(&v, l->call.experts);
    for (int64_t t = 0; t < s->tokens; t++) {
        for (int64_t i = 0; i < s->k; i++) {
            ((int32_t *)experts.data)[t * s->k + i] = expert_layer_choice(s, device, t, i);
            tensor_set(weights, t * s->k + i, weight_of(i));
        }
        for (int64_t c = 0; c < s->D; c++) {
            tensor_set(x, t * s->D + c, value(device, t, c));
            tensor_set(dy, t * s->D + c, value(device, t, c + 1));
        }
    }
    views_end(&v);
}

enum error_code expert_layer_open(struct expert_layer *l, struct comm *world, const struct expert_scheme *scheme,
                                  struct expert_shape s, struct error *err)
{
    struct device *d = world->device;
    *l = (struct expert_layer){ .shape = s, .tp = { .scheme = tensor_scheme_at(0), .device = d, .devices = 1,
                                        .config = &l->config },
                                .config = { .L = 1, .D = s.D, .F = s.F, .mlp = MLP_MIXTURE,
                                            .mixture = { .E = s.E, .k = s.k } } };
    enum error_code e = make_groups(l, world, err);
    if (e) return e;
    l->ep = (struct expert_parallel){ .scheme = scheme, .tp = &l->tp, .group = &l->along_ep, .part = l->part,
                                      .devices = s.ep, .rank = l->along_ep.rank, .along_etp = &l->along_etp,
                                      .slices = s.etp, .slice = l->along_etp.rank, .degree = -1, .copying = s.copying,
                                      .routing = &l->routing,
                                      .node = nodes_even(group_nodes(&l->along_ep), s.ep) };
    const char *needs = scheme->refuses(&l->ep, &l->config);
    if (needs) return fail(err, ERR_PLAN, "%s on %d devices: needs %s", scheme->head.name, s.ep, needs);
    if (scheme->open) e = scheme->open(&l->ep, err);
    l->call = (struct mixture_call){ .ep = &l->ep, .routing = &l->routing, .phases = ALL_PHASES,
                                     .body = { l, body_forward, body_input, body_weight, body_piece },
                                     .x = make(d, d->dtype, s.D, s.tokens), .y = make(d, d->dtype, s.D, s.tokens),
                                     .weights = make(d, d->dtype, s.k, s.tokens),
                                     .experts = make(d, I32, s.k, s.tokens), .dx = make(d, d->dtype, s.D, s.tokens),
                                     .dy = make(d, d->dtype, s.D, s.tokens),
                                     .d_weights = make(d, d->dtype, s.k, s.tokens) };
    const int64_t columns = expert_columns(&l->ep).count;
    l->piece[0] = make(d, d->dtype, s.D, 2 * columns), l->piece[1] = make(d, d->dtype, columns, s.D);
    const struct mixture_call *c = &l->call;
    if (!e && !(l->piece[0].data && l->piece[1].data && c->x.data && c->y.data && c->weights.data && c->experts.data &&
                c->dx.data && c->dy.data && c->d_weights.data))
        e = fail(err, ERR_MEMORY, "no memory for %lld tokens", (long long)s.tokens);
    if (!e) fill(l, world->rank), device_zero(d, l->piece[0]), device_zero(d, l->piece[1]);
    return e;
}

void expert_layer_close(struct expert_layer *l)
{
    struct mixture_call *c = &l->call;
    const struct tensor own[] = { c->x, c->y, c->weights, c->experts, c->dx, c->dy, c->d_weights, l->piece[0],
                                  l->piece[1] };
    for (size_t i = 0; i < sizeof own / sizeof *own && l->tp.device; i++) device_free(l->tp.device, own[i]);
    for (int i = 0; i < EXPERT_SLOTS && l->tp.device; i++) device_free(l->tp.device, c->kept[i]);
    for (int i = 0; i < EXPERT_GRADIENT_SLOTS && l->tp.device; i++) device_free(l->tp.device, c->left[i]);
    if (l->ep.scheme && l->ep.scheme->close) l->ep.scheme->close(&l->ep);
    for (int i = 0; i < EXPERT_GROUPS; i++) group_close(&l->part[i]);
    expert_routing_clear(&l->routing);
    group_close(&l->along_ep), group_close(&l->along_etp);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

enum error_code expert_call_announce(const struct mixture_call *c, struct error *err)
{
    struct views v = views_of(c->ep->tp->device);
    const struct choices own = { view_read(&v, c->experts).data, tensor_rows(c->experts), tensor_cols(c->experts) };
    const enum error_code e = c->ep->scheme->announce(c->routing, c->ep, &own, err);
    views_end(&v);
    return e;
}

enum error_code expert_layer_learn(struct expert_layer *l, struct error *err)
{
    const struct expert_scheme *s = l->ep.scheme;
    if (s->step == NULL) return OK;
    const enum error_code e = expert_call_announce(&l->call, err);
    s->step(&l->ep);
    return e;
}

enum error_code expert_layer_announce(struct expert_layer *l, struct error *err)
{
    const struct expert_scheme *s = l->ep.scheme;
    struct device *d = l->tp.device;
    const enum error_code e = expert_call_announce(&l->call, err);
    bool room = true;
    for (int i = 0; i < s->slots + s->gradient_slots && !e; i++) {
        struct tensor *t = i < s->slots ? &l->call.kept[i] : &l->call.left[i - s->slots];
        *t = i < s->slots ? s->kept(&l->ep, i, l->shape.tokens) : s->left(&l->ep, i - s->slots, l->shape.tokens);
        t->data = arena_alloc(&d->arena, ACTIVATIONS, tensor_bytes(*t));
        room = room && t->data;
    }
    return e || room ? e : fail(err, ERR_MEMORY, "no memory for rows of experts");
}

enum error_code expert_layer_run(struct expert_layer *l, struct error *err)
{
    const struct expert_scheme *s = l->ep.scheme;
    enum error_code e = s->forward(&l->call, err);
    if (!e) e = s->input(&l->call, err);
    return e ? e : s->weight(&l->call, err);
}

struct traffic expert_layer_cost(const struct expert_layer *l)
{
    struct forecast f = { .tp = &l->tp };
    if (l->ep.scheme->announce_cost) l->ep.scheme->announce_cost(&f, &l->ep);
    if (l->ep.scheme->cost) l->ep.scheme->cost(&f, &l->ep, FORWARD_PASS);
    if (l->ep.scheme->cost) l->ep.scheme->cost(&f, &l->ep, INPUT_PASS);
    if (l->ep.scheme->cost) l->ep.scheme->cost(&f, &l->ep, WEIGHT_PASS);
    return account_total(&f.sum);
}

/* y and dx of a token are sums of weight (expert + 1) x and dy; d_weight is (expert + 1) x . dy. */
static bool token_right(const struct expert_layer *l, int device, int64_t t, struct tensor y, struct tensor dx,
                        struct tensor d_weights)
{
    const struct expert_shape *s = &l->shape;
    double factor = 0, inner = 0, off = 0;
    for (int64_t c = 0; c < s->D; c++) inner += value(device, t, c) * value(device, t, c + 1);
    for (int64_t i = 0; i < s->k; i++) {
        const double by = expert_layer_choice(s, device, t, i) + 1;
        factor += weight_of(i) * by;
        off = fmax(off, fabs(tensor_get(d_weights, t * s->k + i) - by * inner));
    }
    for (int64_t c = 0; c < s->D; c++) {
        off = fmax(off, fabs(tensor_get(y, t * s->D + c) - factor * value(device, t, c)));
        off = fmax(off, fabs(tensor_get(dx, t * s->D + c) - factor * value(device, t, c + 1)));
    }
    return off < 1e-9 * (1 + factor * 64 * (double)s->D);
}

bool expert_layer_right(const struct expert_layer *l)
{
    struct views v = views_of(l->tp.device);
    const struct tensor y = view_read(&v, l->call.y), dx = view_read(&v, l->call.dx),
                        d_weights = view_read(&v, l->call.d_weights);
    bool right = true;
    for (int64_t t = 0; t < l->shape.tokens; t++)
        right = right && token_right(l, l->along_ep.comm->rank, t, y, dx, d_weights);
    views_end(&v);
    return right;
}
