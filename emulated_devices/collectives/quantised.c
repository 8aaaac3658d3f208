#include "emulated_devices/collectives/quantised.h"
#include "emulated_devices/collectives/algorithm.h"
#include "emulated_devices/device/compute.h"
#include <stdlib.h>
#include <string.h>

int64_t quantised_bytes(struct block_format f, int64_t n) { return (block_quantised_bytes(f, n) + 3) / 4 * 4; }

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

void quantised_encode(struct device *d, char *code, struct tensor piece, struct block_format f)
{
    const int64_t n = tensor_count(piece), used = block_quantised_bytes(f, n);
    dev_quantise(d, code, piece, f);
    /* Bytes behind the codes are set to zero, so that a message has no chance values. */
    device_zero(d, tensor_1d(code + used, U8, quantised_bytes(f, n) - used));
}

static enum error_code no_room(int64_t bytes, struct error *err)
{
    return fail(err, ERR_MEMORY, "the machine has no memory left for %lld bytes of codes", (long long)bytes);
}

/* ---- all-gather -------------------------------------------------------------------------------------------------- */

static struct collective gather_call(const struct group *g, int64_t bytes)
{
    return (struct collective){ .count = g->size * bytes, .dtype = U8 };
}

enum error_code quantised_allgather(struct group *g, const char *algorithm, struct tensor own, struct tensor all,
                                    struct block_format f, struct error *err)
{
    struct device *d = g->comm->device;
    const int64_t n = tensor_count(own), bytes = quantised_bytes(f, n);
    char *codes = arena_alloc(&d->arena, BUFFERS, (uint64_t)(g->size * bytes));
    if (codes == NULL) return no_room(g->size * bytes, err);
    struct collective c = gather_call(g, bytes);
    c.in = codes + g->rank * bytes, c.out = codes;
    quantised_encode(d, codes + g->rank * bytes, own, f);
    const enum error_code e = collective_run(g, ALLGATHER, algorithm, &c, err);
    for (int m = 0; m < g->size && !e; m++) dev_dequantise(d, quantised_block(all, n, m), codes + m * bytes, f);
    arena_free(&d->arena, codes);
    return e;
}

struct account quantised_allgather_cost(const struct group *g, const char *algorithm, int64_t n, struct block_format f)
{
    const struct collective c = gather_call(g, quantised_bytes(f, n));
    return group_cost(g, ALLGATHER, algorithm, &c);
}

enum error_code quantised_as_gathered(struct device *d, struct tensor row, int64_t n, struct block_format f,
                                      struct error *err)
{
    const int64_t pieces = n > 0 ? tensor_count(row) / n : 0, bytes = block_quantised_bytes(f, n);
    void *code = malloc((size_t)bytes + 1);
    if (code == NULL) return no_room(bytes, err);
    for (int64_t i = 0; i < pieces; i++) {
        const struct tensor piece = quantised_block(row, n, i);
        if (d != NULL) device_quantise(d, code, piece, f), device_dequantise(d, piece, code, f);
        else block_quantise(code, piece, f), block_dequantise(piece, code, f);
    }
    free(code);
    return OK;
}

/* ---- groups of the two steps ------------------------------------------------------------------------------------- */

static enum error_code open_row(struct group *g, const struct group *whole, struct row w, struct error *err)
{
    int *ranks = malloc(sizeof *ranks * (size_t)w.size);
    if (ranks == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", w.size);
    for (int i = 0; i < w.size; i++) ranks[i] = whole->member[row_member(w, i)];
    const enum error_code e = group_of(g, whole->comm, ranks, w.size, whole->kind, whole->axes, err);
    free(ranks);
    return e;
}

enum error_code quantised_group_open(struct quantised_group *q, struct group *whole, struct error *err)
{
    const int P = whole->size;
    const struct collective c = { .nodes = group_nodes(whole) };
    *q = (struct quantised_group){ .whole = whole };
    if (c.nodes.devices == 0 || needs_even_nodes(P, &c) != NULL) return OK;
    const struct row node = row_in_node(&c, whole->rank, P), nodes = row_of_nodes(&c, whole->rank, P);
    /* One step does for a group inside a node, or with one device on each. */
    if (node.size == 1 || nodes.size == 1) return OK;
    enum error_code e = open_row(&q->inside, whole, node, err);
    if (!e) e = open_row(&q->between, whole, nodes, err);
    if (e) quantised_group_close(q);
    q->two_steps = !e;
    return e;
}

void quantised_group_close(struct quantised_group *q)
{
    group_close(&q->inside);
    group_close(&q->between);
    *q = (struct quantised_group){ 0 };
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

/* Member j of P gets the `each` blocks j, j + P, .. of X; Y, `each` blocks in the format of sums, gets the sums of the
 * received blocks. */
struct leg {
    struct group *group;
    struct tensor X, Y;
    struct tracking x, y;
    int64_t n, each, bytes;             /* of a block: elements, bytes in a message */
    struct block_format format;
};

static struct collective step_call(int64_t each, int64_t bytes)
{
    return (struct collective){ .count = each * bytes, .dtype = U8 };
}

static uint64_t step_additions(const struct group *g, int64_t n, int64_t each)
{
    return (uint64_t)((g->size - 1) * each * n);
}

static const char *code_from(const struct leg *s, const char *in, int member, int64_t i)
{
    return in + (member * s->each + i) * s->bytes;
}

/* Adds in the order of members. */
static void add_up(const struct leg *s, const char *in, struct tensor one)
{
    struct device *d = s->group->comm->device;
    struct exchange here = { .group = s->group, .operation = ALLTOALL };        /* sends nothing: to add with */
    for (int64_t i = 0; i < s->each; i++)
        for (int m = 0; m < s->group->size; m++) {
            const struct tensor sum = quantised_block(s->Y, s->n, i);
            /* The first member's codes become the sum itself; the others' are decoded beside it and added. */
            dev_dequantise(d, m == 0 ? sum : one, code_from(s, in, m, i), s->format);
            if (m > 0) reduce_local(&here, SUM, sum.dtype, sum.data, one.data, s->n);
        }
}

static enum error_code track(const struct leg *s, const char *codes, struct error *err)
{
    const int64_t n = s->n;
    struct device *d = s->group->comm->device;
    const char *in = host_read(d, codes, (uint64_t)(s->group->size * s->each * s->bytes));
    double *room = malloc((2 * (size_t)n + 1) * sizeof *room), *magnitude = room;
    enum error_code e = room ? OK : fail(err, ERR_MEMORY, "no memory to track %lld elements", (long long)n);
    if (!e) e = tracking_scatter(s->group, s->x, n, s->each, s->y, err);
    for (int64_t i = 0; i < s->each && !e; i++) {
        const struct tensor value = tensor_1d(room + n, F64, n);
        double *bound = s->y.bound + i * n;
        memset(magnitude, 0, (size_t)n * sizeof *magnitude);
        for (int m = 0; m < s->group->size; m++) {
            const char *code = code_from(s, in, m, i);
            block_dequantise(value, code, s->format);
            tracking_add_codes(bound, magnitude, code, s->format, value, s->X.dtype);
        }
        tracking_add_rounding(bound, magnitude, n, s->group->size, s->Y.dtype);
    }
    free(room);
    host_done(d, in);
    return e;
}

static enum error_code run_step(const struct leg *s, struct error *err)
{
    struct device *d = s->group->comm->device;
    const int P = s->group->size;
    const int64_t all = P * s->each * s->bytes;
    char *codes = arena_alloc(&d->arena, BUFFERS, (uint64_t)(2 * all));
    struct tensor one = device_tensor_in(d, BUFFERS, s->Y.dtype, s->n);
    enum error_code e = codes && one.data ? OK : no_room(2 * all, err);
    struct collective c = step_call(s->each, s->bytes);
    c.in = codes, c.out = codes + all;
    for (int m = 0; m < P && !e; m++)
        for (int64_t i = 0; i < s->each; i++)
            quantised_encode(d, codes + (m * s->each + i) * s->bytes, quantised_block(s->X, s->n, i * P + m),
                             s->format);
    ledger_additions(&s->group->comm->expected, s->group, ALLTOALL, step_additions(s->group, s->n, s->each));
    if (!e) e = collective_run(s->group, ALLTOALL, NULL, &c, err);
    if (!e) add_up(s, codes + all, one);
    if (!e && tracked(s->x)) e = track(s, codes + all, err);
    device_free(d, one);
    arena_free(&d->arena, codes);
    return e;
}

static struct account step_cost(const struct group *g, int64_t n, int64_t each, struct block_format f)
{
    const struct collective c = step_call(each, quantised_bytes(f, n));
    struct account cost = group_cost(g, ALLTOALL, NULL, &c);
    cost.of[ALLTOALL].additions += step_additions(g, n, each);
    return cost;
}

/* ---- reduce-scatter ---------------------------------------------------------------------------------------------- */

/* Rank m = node * q + place.  Step 1: each member of the node gets the blocks of its place in all nodes.  Step 2: each
 * node gets its block. */
static enum error_code run_steps(struct quantised_group *q, struct leg *s, struct tensor between, struct tracking kept,
                                 struct error *err)
{
    struct leg first = *s, second = *s;
    if (!q->two_steps) return run_step(s, err);
    first.group = &q->inside, first.each = q->between.size, first.Y = between, first.y = kept;
    second.group = &q->between, second.X = between, second.x = kept;
    const enum error_code e = run_step(&first, err);
    return e ? e : run_step(&second, err);
}

/* Store the sum at its place in the row, in the row's format. */
static void put_in_place(const struct quantised_group *q, struct tensor row, struct tracking t, const struct leg *s)
{
    struct tensor own = quantised_block(row, s->n, q->whole->rank);
    const struct tracking to = tracking_from(t, s->n * q->whole->rank);
    device_convert(q->whole->comm->device, own, s->Y);
    dev_charge(q->whole->comm->device, "copy", own, 2, 0);
    if (!tracked(t)) return;
    memcpy(to.exact, s->y.exact, (size_t)s->n * sizeof *to.exact);
    memcpy(to.bound, s->y.bound, (size_t)s->n * sizeof *to.bound);
    if (own.dtype != s->Y.dtype) tracking_add_storing(q->whole->comm->device, to.bound, own);
}

enum error_code quantised_reduce_scatter(struct quantised_group *q, struct tensor row, struct block_format f,
                                         struct tracking t, struct error *err)
{
    struct device *d = q->whole->comm->device;
    const int64_t n = tensor_count(row) / q->whole->size, between = q->two_steps ? q->between.size * n : 0;
    const struct tensor sums = device_tensor_in(d, BUFFERS, quantised_sum_format(row.dtype), n + between);
    struct tracking room = { 0 };
    enum error_code e = sums.data ? OK : no_room((int64_t)tensor_bytes(sums), err);
    if (!e && tracked(t)) e = tracking_open(&room, n + between, err);
    struct leg s = { .group = q->whole,
                      .X = row,
                      .x = t,
                      .n = n,
                      .each = 1,
                      .bytes = quantised_bytes(f, n),
                      .format = f,
                      .Y = tensor_1d(sums.data, sums.dtype, n),
                      .y = room };
    if (!e) e = run_steps(q, &s, quantised_block(sums, n, 1), tracking_from(room, n), err);
    if (!e) put_in_place(q, row, t, &s);
    tracking_close(&room);
    device_free(d, sums);
    return e;
}

struct account quantised_reduce_scatter_cost(const struct quantised_group *q, int64_t n, struct block_format f)
{
    if (!q->two_steps) return step_cost(q->whole, n, 1, f);
    struct account sum = step_cost(&q->inside, n, q->between.size, f);
    account_add(&sum, step_cost(&q->between, n, 1, f), 1);
    return sum;
}
