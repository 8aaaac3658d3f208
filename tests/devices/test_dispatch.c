/* Expert schemes that move rows, without a model: each row reaches its experts once and comes home, whatever the
 * routing; bytes are those of the routing.
 * ranks: 1 2 3 4
 * verify ranks: 5 6 8
 */
#include "ref/model/kinds.h"
#include "tests/devices/on_devices.h"
#include "tests/tier.h"
#include "emulated_devices/verify/cases/experts.h"

static struct error err;

/* ---- a call without a model -------------------------------------------------------------------------------------- */

enum { WIDTH = 3, INNER_WIDTH = 12 };

/* One call of a scheme, with the rows that its experts have seen. */
struct dispatch {
    struct model_config config;
    struct tensor_parallel tp;
    struct expert_parallel ep;
    struct expert_routing routing;
    struct mixture_call call;
    struct group group, etp, part[EXPERT_GROUPS];
    struct tensor piece[2];             /* stands for all matrices and their gradients, which are 0 */
    int64_t seen[64];                   /* rows of each expert that were computed here */
};

/* Experts without matrices: expert e multiplies by e + 1; each of its slices has an equal part of that. */
static void multiply(const struct dispatch *d, struct tensor out, struct tensor in, const int32_t *counts,
                     int64_t *seen)
{
    const int64_t E = d->config.mixture.E;
    const double part = 1.0 / d->ep.slices;
    struct views v = views_of(&device);
    const double *x = view_read(&v, in).data;
    double *y = view_write(&v, out).data;
    for (int64_t e = 0; e < E; e++)
        for (int64_t i = 0; i < counts[e] * WIDTH; i++) *y++ = (double)(e + 1) * part * *x++;
    views_end(&v);
    for (int64_t e = 0; e < E && seen; e++) seen[e] += counts[e];
}

static enum error_code forward(const void *context, struct expert_rows r, struct error *unused)
{
    struct dispatch *d = (struct dispatch *)(uintptr_t)context;
    (void)unused;
    multiply(d, r.results, r.rows, r.counts, d->seen);
    return OK;
}
static enum error_code input(const void *context, struct expert_rows r, struct expert_gradients g,
                             struct error *error)
{
    const struct dispatch *d = context;
    multiply(d, g.rows, g.results, r.counts, NULL);
    (void)error;
    return OK;
}
static enum error_code weight(const void *context, struct expert_rows r, struct expert_gradients g,
                              struct error *error)
{
    (void)context, (void)r, (void)g;
    (void)error;
    return OK;
}

static struct tensor piece(const void *context, int64_t expert, int matrix, bool gradient)
{
    const struct dispatch *d = context;
    (void)expert, (void)gradient;
    return d->piece[matrix];
}

/* The expert of a device's token: all to the last one, none to the first, or mixed; or mixed, but some choices, and all
 * of some tokens, are computed by no expert: dropped, or of numbers above those of the experts. */
enum pattern { ALL_TO_ONE, NONE_TO_FIRST, MIXED, ABSENT, PATTERNS };
static int32_t expert_of(enum pattern p, int device, int64_t token, int64_t choice, int64_t E)
{
    if (p == ALL_TO_ONE) return (int32_t)((E - 1 + choice) % E);
    if (p == NONE_TO_FIRST) return (int32_t)(E == 1 ? 0 : 1 + (device * 3 + token + choice) % (E - 1));
    const int32_t mixed = (int32_t)((device + token * token + choice) % E);
    if (p == ABSENT && (device + token + choice) % 3 == 0) return choice_dropped(mixed);
    return p == ABSENT && token % 4 == 1 ? (int32_t)(E + choice) : mixed;
}

static bool is_computed(int64_t expert, int64_t E) { return expert >= 0 && expert < E; }

/* The second device has no tokens. */
static int load_factor = 1;
static int64_t tokens_of(int device) { return device == 1 ? 0 : (3 + 2 * device) * load_factor; }

static double value(int device, int64_t token, int64_t column, int seed)
{
    return 0.25 * (double)((device * 31 + token * 7 + column * 3 + seed) % 17 - 8);
}

static struct tensor rows_of(int64_t rows, int64_t cols, enum dtype type)
{
    struct tensor t = device_tensor_in(&device, BUFFERS, type, rows * cols);
    return tensor_2d(t.data, type, rows, cols);
}

/* @return whether the scheme takes these devices. */
static bool open_call(struct dispatch *d, const struct expert_scheme *s, enum pattern p, int64_t E, int64_t k,
                      int slices, int degree)
{
    const int64_t n = tokens_of(test_rank);
    const int P = test_size / slices, slice = test_rank % slices;
    int along[64], across[64];
    bool takes;
    *d = (struct dispatch){ .config = { .L = 1, .D = WIDTH, .F = INNER_WIDTH, .mlp = MLP_MIXTURE,
                                        .mixture = { .E = E, .k = k, .router.scale = 1 } },
                            .tp = { .scheme = tensor_scheme_at(0), .device = &device, .devices = 1 } };
    for (int i = 0; i < P; i++) along[i] = i * slices + slice;
    for (int i = 0; i < slices; i++) across[i] = test_rank - slice + i;
    assert_int_equal(group_of(&d->group, &comm, along, P, TRAFFIC_EXPERTS, AXIS_BIT(EP), &err), OK);
    assert_int_equal(group_of(&d->etp, &comm, across, slices, TRAFFIC_EXPERTS, AXIS_BIT(EP), &err), OK);
    d->tp.config = &d->config;
    d->ep = (struct expert_parallel){ .scheme = s, .tp = &d->tp, .group = &d->group, .devices = P,
                                      .rank = test_rank / slices, .routing = &d->routing, .part = d->part,
                                      .along_etp = &d->etp, .slices = slices, .slice = slice, .degree = degree,
                                      .node = nodes_even(group_nodes(&d->group), P) };
    takes = s->refuses(&d->ep, &d->config) == NULL;
    if (!takes) group_close(&d->group), group_close(&d->etp);
    if (!takes) return false;
    if (s->open) assert_int_equal(s->open(&d->ep, &err), OK);
    struct mixture_call *c = &d->call;
    *c = (struct mixture_call){ .ep = &d->ep, .routing = &d->routing, .phases = ALL_PHASES,
                                .body = { d, forward, input, weight, piece }, .x = rows_of(n, WIDTH, F64),
                                .y = rows_of(n, WIDTH, F64), .weights = rows_of(n, k, F64),
                                .experts = rows_of(n, k, I32), .dx = rows_of(n, WIDTH, F64),
                                .dy = rows_of(n, WIDTH, F64), .d_weights = rows_of(n, k, F64) };
    const int64_t columns = expert_columns(&d->ep).count;
    d->piece[0] = rows_of(2 * columns, WIDTH, F64), d->piece[1] = rows_of(WIDTH, columns, F64);
    device_zero(&device, d->piece[0]), device_zero(&device, d->piece[1]);
    struct views v = views_of(&device);
    int32_t *experts = view_write(&v, c->experts).data;
    double *weights = view_write(&v, c->weights).data, *x = view_write(&v, c->x).data, *dy = view_write(&v, c->dy).data;
    for (int64_t t = 0; t < n; t++) {
        for (int64_t i = 0; i < k; i++)
            experts[t * k + i] = expert_of(p, test_rank, t, i, E), weights[t * k + i] = 0.5 + (double)i;
        for (int64_t col = 0; col < WIDTH; col++)
            x[t * WIDTH + col] = value(test_rank, t, col, 1), dy[t * WIDTH + col] = value(test_rank, t, col, 2);
    }
    views_end(&v);
    return true;
}

static void close_call(struct dispatch *d)
{
    const struct tensor own[] = { d->call.x, d->call.y, d->call.weights, d->call.experts, d->call.dx, d->call.dy,
                                  d->call.d_weights, d->piece[0], d->piece[1] };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) device_free(&device, own[i]);
    for (int i = 0; i < EXPERT_SLOTS; i++) device_free(&device, d->call.kept[i]);
    for (int i = 0; i < EXPERT_GRADIENT_SLOTS; i++) device_free(&device, d->call.left[i]);
    expert_routing_clear(&d->routing);
    if (d->ep.scheme->close) d->ep.scheme->close(&d->ep);
    for (int i = 0; i < EXPERT_GROUPS; i++) group_close(&d->part[i]);
    group_close(&d->group), group_close(&d->etp);
}

static void run_call(struct dispatch *d)
{
    const struct expert_scheme *s = d->ep.scheme;
    const int64_t n = tokens_of(test_rank);
    enum error_code e = expert_call_announce(&d->call, &err);
    for (int i = 0; i < s->slots; i++) {
        d->call.kept[i] = s->kept(&d->ep, i, n);
        d->call.kept[i].data = arena_alloc(&device.arena, ACTIVATIONS, tensor_bytes(d->call.kept[i]));
    }
    for (int i = 0; i < s->gradient_slots; i++) {
        d->call.left[i] = s->left(&d->ep, i, n);
        d->call.left[i].data = arena_alloc(&device.arena, BUFFERS, tensor_bytes(d->call.left[i]));
    }
    if (!e) e = s->forward(&d->call, &err);
    if (!e) e = s->input(&d->call, &err);
    if (!e) e = s->weight(&d->call, &err);
    ASSERT_ALL(e == OK, "%s: %s", s->head.name, err.text);
}

static bool near(double a, double b) { return a - b < 1e-12 && b - a < 1e-12; }

/* y = sum of weight (e + 1) x, dx the same of dy, d_weight = (e + 1) x . dy. */
static void check_results(const struct dispatch *d, enum pattern p)
{
    const int64_t n = tokens_of(test_rank), E = d->config.mixture.E, k = d->config.mixture.k;
    int64_t wrong = -1;
    struct views v = views_of(&device);
    const double *y = view_read(&v, d->call.y).data, *dx = view_read(&v, d->call.dx).data,
                 *d_weights = view_read(&v, d->call.d_weights).data;
    for (int64_t t = 0; t < n; t++) {
        double factor = 0, inner = 0;
        for (int64_t col = 0; col < WIDTH; col++) inner += value(test_rank, t, col, 1) * value(test_rank, t, col, 2);
        for (int64_t i = 0; i < k; i++) {
            const int64_t e = expert_of(p, test_rank, t, i, E);
            const double by = is_computed(e, E) ? (double)(e + 1) : 0;
            factor += (0.5 + (double)i) * by;
            if (!near(d_weights[t * k + i], by * inner)) wrong = t;
        }
        for (int64_t col = 0; col < WIDTH; col++)
            if (!near(y[t * WIDTH + col], factor * value(test_rank, t, col, 1)) ||
                !near(dx[t * WIDTH + col], factor * value(test_rank, t, col, 2)))
                wrong = t;
    }
    views_end(&v);
    ASSERT_ALL(wrong < 0, "%s, pattern %d, E=%lld k=%lld: token %lld has another result", d->ep.scheme->head.name, p,
               (long long)E, (long long)k, (long long)wrong);
}

/* Each expert has computed, on one device, all rows of all devices that chose it; with degrees those of the devices
 * that share its slices with this one, in each of its slices. */
static void check_rows(const struct dispatch *d, enum pattern p)
{
    const int64_t E = d->config.mixture.E, k = d->config.mixture.k;
    const int slices = d->ep.slices, r = d->routing.degree, g = r > 0 ? slices / r : slices;
    int64_t chosen[64] = { 0 }, received = 0, wrong = -1;
    for (int m = 0; m < test_size; m++)
        for (int64_t t = 0; t < tokens_of(m); t++)
            for (int64_t i = 0; i < k; i++) {
                const int64_t e = expert_of(p, m, t, i, E);
                if (!is_computed(e, E)) continue;
                chosen[e] += r == 0 ? m == test_rank : m % slices % g == d->ep.slice % g;
            }
    const struct interval own = r == 0 ? (struct interval){ 0, E } : experts_of(&d->ep, d->ep.rank);
    for (int64_t e = 0; e < E; e++) {
        const bool here = e >= own.first && e < interval_end(own);
        if (d->seen[e] != (here ? chosen[e] * g : 0)) wrong = e;
        received += here ? chosen[e] : 0;
    }
    ASSERT_ALL(wrong < 0 && d->routing.received == received, "%s, pattern %d: expert %lld had %lld rows of %lld",
               d->ep.scheme->head.name, p, (long long)wrong, (long long)d->seen[wrong < 0 ? 0 : wrong],
               (long long)chosen[wrong < 0 ? 0 : wrong]);
}

/* ---- what each device sends to each other, by the routing, scheme by scheme -------------------------------------- */

enum { ROW_BYTES = WIDTH * 8 };         /* of a row's numbers */

/* The choices of a call: who chooses what, among whom.  Devices are numbered along ep, and along etp. */
struct load { enum pattern p; int64_t E, k; int P, own, slices, slice, node, degree; };

static int rank_of(const struct load *l, int member) { return member * l->slices + l->slice; }

/* Choices of one device's tokens for the experts of some neighbours; once: a token counts once. */
static int64_t chosen(const struct load *l, int from, int first, int count, bool once)
{
    const int64_t start = block_at(l->E, l->P, first).first,
                  end = interval_end(block_at(l->E, l->P, first + count - 1));
    int64_t sum = 0;
    for (int64_t t = 0; t < tokens_of(rank_of(l, from)); t++) {
        int64_t n = 0;
        for (int64_t i = 0; i < l->k; i++) {
            const int64_t e = expert_of(l->p, rank_of(l, from), t, i, l->E);
            n += e >= start && e < end;
        }
        sum += once ? n > 0 : n;
    }
    return sum;
}

static int64_t tokens_at(const struct load *l, int member) { return tokens_of(rank_of(l, member)); }

/* What this device sends to each other, in bytes; what stays is included. */
struct sends { int64_t along[64], across[64], world[64], messages; };

static void to_right(const struct load *l, struct sends *s, int64_t bytes) { s->along[(l->own + 1) % l->P] += bytes; }

/* D numbers of a row to an expert elsewhere, and back, twice. */
static void alltoall_sends(const struct load *l, struct sends *s)
{
    for (int m = 0; m < l->P; m++)
        s->along[m] += 2 * (chosen(l, l->own, m, 1, false) + chosen(l, m, l->own, 1, false)) * ROW_BYTES;
    to_right(l, s, (l->P - 1) * l->E * 4);
    s->messages += 5 * (l->P - 1);
}

/* Rings pass on all rows but the next device's; sums go straight to whose rows they are.  With a row: its choices, its
 * weights, and the gradients of these. */
static void allgather_sends(const struct load *l, struct sends *s)
{
    int64_t all = 0;
    for (int m = 0; m < l->P; m++) {
        all += tokens_at(l, m);
        s->along[m] += tokens_at(l, m) * (2 * ROW_BYTES + l->k * 8);
    }
    to_right(l, s, (all - tokens_at(l, (l->own + 1) % l->P)) * (2 * ROW_BYTES + l->k * (4 + 8)));
    to_right(l, s, (l->P - 1) * 4);
    s->messages += 8 * (l->P - 1);
}

/* A row goes to the right place of its node, then to its node; k copies of it. */
static void hierarchical_sends(const struct load *l, struct sends *s)
{
    const int m = l->node, nodes = l->P / m, own = l->own / m, place = l->own % m;
    for (int b = 0; b < nodes; b++)
        for (int i = 0; i < m; i++) {
            s->along[own * m + i] += 2 * (chosen(l, l->own, b * m + i, 1, false) +
                                          chosen(l, own * m + i, b * m + place, 1, false)) * ROW_BYTES;
            s->along[b * m + place] += 2 * (chosen(l, own * m + i, b * m + place, 1, false) +
                                            chosen(l, b * m + i, l->own, 1, false)) * ROW_BYTES;
        }
    to_right(l, s, (l->P - 1) * l->E * 4);
    s->messages += 4 * (m - 1 + nodes - 1) + l->P - 1;
}

/* A row goes once to each node with experts of it, then once to each device there. */
static void two_step_sends(const struct load *l, struct sends *s)
{
    const int m = l->node, nodes = l->P / m, own = l->own / m, place = l->own % m;
    const int64_t there = 2 * ROW_BYTES + l->k * (4 + 8), back = 2 * ROW_BYTES + l->k * 8;
    for (int b = 0; b < nodes; b++) {
        s->along[b * m + place] += chosen(l, l->own, b * m, m, true) * there +
                                   chosen(l, b * m + place, own * m, m, true) * back;
        for (int i = 0; i < m; i++)
            s->along[own * m + i] += chosen(l, b * m + place, own * m + i, 1, true) * there +
                                     chosen(l, b * m + i, l->own, 1, true) * back;
    }
    to_right(l, s, (l->P - 1) * (l->P + nodes) * 4);
    s->messages += 7 * (m - 1 + nodes - 1) + l->P - 1;
}

/* Numbers of a device's piece of the weights, by its rank. */
static int64_t piece_of(const struct load *l, int rank)
{
    return block_at(l->E, l->P, rank / l->slices).count * 3 * WIDTH *
           block_at(INNER_WIDTH, l->slices, rank % l->slices).count;
}

/* A group gathers pieces twice, by a ring, and sums gradients once, each straight to its owner. */
static void weights_sent(const struct load *l, struct sends *s, int first, int count)
{
    const int own = test_rank - first, next = first + (own + 1) % count;
    int64_t all = 0;
    for (int i = first; i < first + count; i++) {
        all += piece_of(l, i);
        s->world[i] += piece_of(l, i) * 8;
    }
    s->world[next] += 2 * (all - piece_of(l, next)) * 8;
    if (all > 0) s->messages += 3 * (count - 1);
}

/* Degree 0: the pieces of all come to each.  Else rows as alltoall, and the slices of neighbours. */
static void tutel_sends(const struct load *l, struct sends *s)
{
    const int W = l->P * l->slices, g = l->degree > 0 ? l->slices / l->degree : W;
    weights_sent(l, s, test_rank / g * g, g);
    if (l->degree > 0) {
        alltoall_sends(l, s);
        to_right(l, s, -(l->P - 1) * l->E * 4);
        s->messages -= l->P - 1;
    }
    s->world[(test_rank + 1) % W] += (W - 1) * l->E * 4;
    s->messages += W - 1;
}

/* What comes to a device: rows a choice, rows once, or all rows. */
enum pool { CHOICES, ONCE, ALL };
static const struct formula {
    const char *scheme;
    void (*sends)(const struct load *, struct sends *);
    enum pool pool;
} formula[] = {
    { "alltoall", alltoall_sends, CHOICES },
    { "allgather", allgather_sends, ALL },
    { "alltoall-2dh", hierarchical_sends, CHOICES },
    { "two-step", two_step_sends, ONCE },
    { "tutel", tutel_sends, CHOICES },
    { "speculative", alltoall_sends, CHOICES },
    { "fssdp", alltoall_sends, CHOICES },               /* of the first step: nothing is copied */
};

static int64_t pool_of(const struct formula *f, struct load l, int slice)
{
    int64_t sum = 0;
    l.slice = slice;
    for (int m = 0; m < l.P; m++)
        sum += f->pool == ALL ? tokens_at(&l, m) : chosen(&l, m, l.own, 1, f->pool == ONCE);
    return sum;
}

/* Devices with slices of the same experts gather what has come to each, and add their results; with it go choices. */
static void sends_along_etp(const struct formula *f, const struct load *l, struct sends *s)
{
    const int g = l->slices / l->degree, next = (l->slice + g) % l->slices;     /* g apart: those that compute alike */
    const bool weights = f->pool != CHOICES;
    const int64_t there = 2 * ROW_BYTES + (weights ? l->k * (4 + 8) : 4),
                  back = 2 * ROW_BYTES + (weights ? l->k * 8 : 0);
    int64_t rows = 0;
    for (int i = l->slice % g; i < l->slices; i += g) {
        rows += pool_of(f, *l, i);
        s->across[i] += pool_of(f, *l, i) * back;
        if (i != next) s->across[next] += pool_of(f, *l, i) * there;
    }
    s->across[next] += (l->degree - 1) * 4;
    s->messages += (l->degree - 1) * (rows == 0 ? 1 : weights ? 8 : 6);
}

static void check_bytes(const struct dispatch *d, enum pattern p, struct account before)
{
    const struct load l = { p, d->config.mixture.E, d->config.mixture.k, d->ep.devices, d->ep.rank, d->ep.slices,
                            d->ep.slice, d->ep.node, d->routing.degree };
    const struct formula *f = formula;
    const struct cluster *cluster = &device.clock.cluster;
    struct sends s = { 0 };
    while (f < formula + sizeof formula / sizeof *formula && strcmp(f->scheme, d->ep.scheme->head.name) != 0) f++;
    assert_true(f < formula + sizeof formula / sizeof *formula);
    f->sends(&l, &s);
    if (l.degree > 1) sends_along_etp(f, &l, &s);
    struct account sent = comm.counted.of[TRAFFIC_EXPERTS];
    account_add(&sent, before, -1);
    const struct traffic t = account_total(&sent);
    for (int level = 0; level < CLUSTER_LEVELS; level++) {
        uint64_t want = 0;
        for (int m = 0; m < l.P; m++)
            if (m != l.own && group_level(&d->group, m) == level) want += (uint64_t)s.along[m];
        for (int i = 0; i < l.slices; i++)
            if (i != l.slice && group_level(&d->etp, i) == level) want += (uint64_t)s.across[i];
        for (int i = 0; i < test_size; i++)
            if (i != test_rank && link_between(cluster->link, cluster->levels, test_rank, i) == level)
                want += (uint64_t)s.world[i];
        ASSERT_ALL(t.level[level].bytes == want, "%s, pattern %d, E=%lld, etp=%d: sent %llu bytes over links of level "
                   "%d; the routing says %llu", d->ep.scheme->head.name, p, (long long)l.E, l.slices,
                   (unsigned long long)t.level[level].bytes, level, (unsigned long long)want);
    }
    ASSERT_ALL(t.messages_sent == (uint64_t)s.messages, "%s, pattern %d, E=%lld, etp=%d: sent %llu messages instead of "
               "%lld", d->ep.scheme->head.name, p, (long long)l.E, l.slices, (unsigned long long)t.messages_sent,
               (long long)s.messages);
}

/* ---- every scheme ------------------------------------------------------------------------------------------------ */

/* The results of a call, one after another. */
static int64_t copy_results(const struct dispatch *d, double *to)
{
    const struct tensor result[] = { d->call.y, d->call.dx, d->call.d_weights };
    int64_t n = 0;
    for (int i = 0; i < 3; n += tensor_count(result[i++])) {
        struct views v = views_of(&device);
        if (tensor_count(result[i])) memcpy(to + n, view_read(&v, result[i]).data, tensor_bytes(result[i]));
        views_end(&v);
    }
    return n;
}

/* A row a choice: rows arrive in the same order, whatever their way, so results are those of alltoall, bit for bit. */
static void check_bits(const struct dispatch *d, enum pattern p)
{
    static double first[1024], own[1024];
    if (d->ep.scheme->weighs_there || d->ep.scheme->has_degrees) return;
    const bool is_first = strcmp(d->ep.scheme->head.name, "alltoall") == 0;
    const int64_t n = copy_results(d, is_first ? first : own);
    ASSERT_ALL(is_first || memcmp(first, own, (size_t)n * sizeof *own) == 0, "%s, pattern %d, E=%lld: other bits than "
               "alltoall", d->ep.scheme->head.name, p, (long long)d->config.mixture.E);
}

static void test_call(const struct expert_scheme *s, enum pattern p, int64_t E, int64_t k, int slices, int degree)
{
    struct dispatch d;
    if (!open_call(&d, s, p, E, k, slices, degree)) return;
    const struct account before = comm.counted.of[TRAFFIC_EXPERTS];
    run_call(&d);
    check_results(&d, p);
    check_rows(&d, p);
    check_bytes(&d, p, before);
    check_bits(&d, p);
    close_call(&d);
}

/* Every scheme; with degrees, each of them, and the scheme's own choice. */
static void test_calls(int slices)
{
    static const struct { int64_t E, k; } shape[] = { { 1, 1 }, { 2, 1 }, { 5, 2 }, { 7, 3 } };
    for (enum pattern p = 0; p < PATTERNS; p++)
        for (int i = 0; i < 4; i++)
            for (int s = 0; expert_scheme_at(s); s++) {
                const struct expert_scheme *e = expert_scheme_at(s);
                if (tier_now() != TIER_VERIFY && (i + (int)p) % 2 == 0) continue;
                if (e->cuts_experts) test_call(e, p, shape[i].E, shape[i].k, slices, -1);
                for (int degree = 0; degree <= slices && e->has_degrees; degree++)
                    test_call(e, p, shape[i].E, shape[i].k, slices, degree);
            }
}

static void test_rows_reach_their_experts(void **state)
{
    (void)state;
    for (int slices = 1; slices <= test_size; slices++)
        if (test_size % slices == 0) test_calls(slices);
}

/* Bytes of all devices, of a call with this degree; -1: the scheme's choice, which *chosen gets. */
static double bytes_of_all(int slices, int degree, int *chosen)
{
    const struct expert_scheme *tutel;
    struct dispatch d;
    double all[64], sum = 0;
    assert_int_equal(expert_scheme_find(&tutel, "tutel", &err), OK);
    assert_true(open_call(&d, tutel, MIXED, 7, 3, slices, degree));
    const struct account before = comm.counted.of[TRAFFIC_EXPERTS];
    run_call(&d);
    struct account sent = comm.counted.of[TRAFFIC_EXPERTS];
    account_add(&sent, before, -1);
    const double own = (double)account_total(&sent).bytes_sent;
    *chosen = d.routing.degree;
    close_call(&d);
    assert_int_equal(comm_bring(&comm, &own, sizeof own, all, &err), OK);
    for (int i = 0; i < test_size && test_rank == 0; i++) sum += all[i];
    return sum;
}

/* With more and more tokens, the degree that tutel chooses is always the one that sends least, as counted. */
static void test_the_best_degree(void **state)
{
    int changes = 0, before = -2;
    (void)state;
    for (load_factor = 1; load_factor <= 64; load_factor *= tier_now() == TIER_VERIFY ? 2 : 4) {
        int chosen, forced, best = -1;
        double least = 0;
        const double own = bytes_of_all(test_size, -1, &chosen);
        for (int degree = 0; degree <= test_size; degree++) {
            if (degree > 0 && test_size % degree != 0) continue;
            const double bytes = bytes_of_all(test_size, degree, &forced);
            if (best < 0 || bytes < least) best = degree, least = bytes;
        }
        ASSERT_ALL(test_rank != 0 || (chosen == best && own == least), "tutel, %d times the tokens: degree %d, which "
                   "sends %g bytes; degree %d sends %g", load_factor, chosen, own, best, least);
        changes += chosen != before, before = chosen;
    }
    load_factor = 1;
    ASSERT_ALL(test_size == 1 || changes > 1, "tutel always takes degree %d", before);
}

/* The same on nodes of two devices. */
static int open_on_nodes(void **state)
{
    static const struct cluster pairs = { .name = "pairs", .levels = 2,
                                          .link = { { .level = "node", .devices = 2 }, { .level = "cluster" } } };
    return open_on(state, &pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICES(test_rows_reach_their_experts), ON_DEVICES(test_the_best_degree),
        cmocka_unit_test_setup_teardown(test_rows_reach_their_experts, open_on_nodes, close_devices),
    };
    return MPI_RUN("dispatch", tests);
}
