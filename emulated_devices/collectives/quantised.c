/* quantised.c -- all-gather and reduce-scatter of quantised pieces, in one step or inside nodes first.
 *
 * schemes/data/stages/codes.c calls this file for quantised weights and gradients, `orrery bench quantized` for its
 * errors.  quantised.h states shapes, rounding and bounds.  Errors are ERR_MEMORY and ERR_COMM, on this member alone.
 */
#include "emulated_devices/collectives/quantised.h"
#include "emulated_devices/collectives/algorithm.h"
#include "emulated_devices/device/compute.h"
#include <stdlib.h>
#include <string.h>

int64_t quantised_bytes(struct block_format format,
                        int64_t n) { return (block_quantised_bytes(format, n) + 3) / 4 * 4; }

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

void quantised_encode(struct device *device, char *code, struct tensor piece, struct block_format format)
{
    const int64_t n = tensor_count(piece), used = block_quantised_bytes(format, n);
    dev_quantise(device, code, piece, format);
    /* Bytes behind the codes are set to zero, so that a message has no chance values. */
    device_zero(device, tensor_1d(code + used, U8, quantised_bytes(format, n) - used));
}

static enum error_code no_room(int64_t bytes, struct error *err)
{
    return fail(err, ERR_MEMORY, "the machine has no memory left for %lld bytes of codes", (long long)bytes);
}

/* ---- all-gather -------------------------------------------------------------------------------------------------- */

/* An all-gather of codes is one of bytes: each of the P members gives `bytes` of them. */
static struct collective gather_call(const struct group *group, int64_t bytes)
{
    return (struct collective){ .count = group->size * bytes, .dtype = U8 };
}

/* all [P, n] = decoded codes of every member's piece, also of this member's own. */
enum error_code quantised_allgather(struct group *group, const char *algorithm, struct tensor own, struct tensor all,
                                    struct block_format format, struct error *err)
{
    struct device *d = group->comm->device;
    const int64_t n = tensor_count(own), bytes = quantised_bytes(format, n);
    char *codes = arena_alloc(&d->arena, BUFFERS, (uint64_t)(group->size * bytes));
    if (codes == NULL) return no_room(group->size * bytes, err);
    struct collective c = gather_call(group, bytes);
    /* The all-gather is in place: a member's codes lie at their place among all. */
    c.in = codes + group->rank * bytes, c.out = codes;
    quantised_encode(d, codes + group->rank * bytes, own, format);
    const enum error_code e = collective_run(group, ALLGATHER, algorithm, &c, err);
    for (int m = 0; m < group->size && !e; m++)
        dev_dequantise(d, quantised_block(all, n, m), codes + m * bytes, format);
    arena_free(&d->arena, codes);
    return e;
}

struct account quantised_allgather_cost(const struct group *group, const char *algorithm, int64_t n,
                                        struct block_format format)
{
    const struct collective c = gather_call(group, quantised_bytes(format, n));
    return group_cost(group, ALLGATHER, algorithm, &c);
}

/* Each piece passes through the same buffer of codes.  Without a device the numbers are read and written directly. */
enum error_code quantised_as_gathered(struct device *device, struct tensor row, int64_t n, struct block_format format,
                                      struct error *err)
{
    const int64_t pieces = n > 0 ? tensor_count(row) / n : 0, bytes = block_quantised_bytes(format, n);
    void *code = malloc((size_t)bytes + 1);
    if (code == NULL) return no_room(bytes, err);
    for (int64_t i = 0; i < pieces; i++) {
        const struct tensor piece = quantised_block(row, n, i);
        if (device != NULL) device_quantise(device, code, piece, format),
            device_dequantise(device, piece, code, format);
        else block_quantise(code, piece, format), block_dequantise(piece, code, format);
    }
    free(code);
    return OK;
}

/* ---- groups of the two steps ------------------------------------------------------------------------------------- */

/* Open the group of one row of members; the group copies the list of ranks. */
static enum error_code open_row(struct group *group, const struct group *whole, struct row row, struct error *err)
{
    int *ranks = malloc(sizeof *ranks * (size_t)row.size);
    if (ranks == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", row.size);
    for (int i = 0; i < row.size; i++) ranks[i] = whole->member[row_member(row, i)];
    const enum error_code e = group_of(group, whole->comm, ranks, row.size, whole->kind, whole->axes, err);
    free(ranks);
    return e;
}

/* A reduce-scatter takes two steps only where nodes have equally many members of consecutive ranks. */
enum error_code quantised_group_open(struct quantised_group *group, struct group *whole, struct error *err)
{
    const int P = whole->size;
    const struct collective c = { .nodes = group_nodes(whole) };
    *group = (struct quantised_group){ .whole = whole };
    if (c.nodes.devices == 0 || needs_even_nodes(P, &c) != NULL) return OK;
    const struct row node = row_in_node(&c, whole->rank, P), nodes = row_of_nodes(&c, whole->rank, P);
    /* One step does for a group inside a node, or with one device on each. */
    if (node.size == 1 || nodes.size == 1) return OK;
    enum error_code e = open_row(&group->inside, whole, node, err);
    if (!e) e = open_row(&group->between, whole, nodes, err);
    if (e) quantised_group_close(group);
    group->two_steps = !e;
    return e;
}

void quantised_group_close(struct quantised_group *group)
{
    group_close(&group->inside);
    group_close(&group->between);
    *group = (struct quantised_group){ 0 };
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

/* The all-to-all moves codes as bytes: `each` blocks to each member. */
static struct collective step_call(int64_t each, int64_t bytes)
{
    return (struct collective){ .count = each * bytes, .dtype = U8 };
}

static uint64_t step_additions(const struct group *group, int64_t n, int64_t each)
{
    return (uint64_t)((group->size - 1) * each * n);
}

/* Codes from a member lie together: block i of member m is number m each + i. */
static const char *code_from(const struct leg *leg, const char *in, int member, int64_t i)
{
    return in + (member * leg->each + i) * leg->bytes;
}

/* Y[i] = sum over members m of decoded block i from m, in the order of members. */
static void add_up(const struct leg *leg, const char *in, struct tensor one)
{
    struct device *d = leg->group->comm->device;
    struct exchange here = { .group = leg->group, .operation = ALLTOALL };        /* sends nothing: to add with */
    for (int64_t i = 0; i < leg->each; i++)
        for (int m = 0; m < leg->group->size; m++) {
            const struct tensor sum = quantised_block(leg->Y, leg->n, i);
            /* The first member's codes become the sum itself; the others' are decoded beside it and added. */
            dev_dequantise(d, m == 0 ? sum : one, code_from(leg, in, m, i), leg->format);
            if (m > 0) reduce_local(&here, SUM, sum.dtype, sum.data, one.data, leg->n);
        }
}

/* y.exact = the sums without codes; y.bound = the errors of all received codes and of the sums. */
static enum error_code track(const struct leg *leg, const char *codes, struct error *err)
{
    const int64_t n = leg->n;
    struct device *d = leg->group->comm->device;
    const char *in = host_read(d, codes, (uint64_t)(leg->group->size * leg->each * leg->bytes));
    double *room = malloc((2 * (size_t)n + 1) * sizeof *room), *magnitude = room;
    enum error_code e = room ? OK : fail(err, ERR_MEMORY, "no memory to track %lld elements", (long long)n);
    if (!e) e = tracking_scatter(leg->group, leg->x, n, leg->each, leg->y, err);
    for (int64_t i = 0; i < leg->each && !e; i++) {
        const struct tensor value = tensor_1d(room + n, F64, n);
        double *bound = leg->y.bound + i * n;
        memset(magnitude, 0, (size_t)n * sizeof *magnitude);
        for (int m = 0; m < leg->group->size; m++) {
            const char *code = code_from(leg, in, m, i);
            block_dequantise(value, code, leg->format);
            tracking_add_codes(bound, magnitude, code, leg->format, value, leg->X.dtype);
        }
        tracking_add_rounding(bound, magnitude, n, leg->group->size, leg->Y.dtype);
    }
    free(room);
    host_done(d, in);
    return e;
}

/* A step is: encode all blocks, all-to-all of codes, decode and add, track.  The expected ledger gets its additions
 * before. */
static enum error_code run_step(const struct leg *leg, struct error *err)
{
    struct device *d = leg->group->comm->device;
    const int P = leg->group->size;
    const int64_t all = P * leg->each * leg->bytes;
    char *codes = arena_alloc(&d->arena, BUFFERS, (uint64_t)(2 * all));
    struct tensor one = device_tensor_in(d, BUFFERS, leg->Y.dtype, leg->n);
    enum error_code e = codes && one.data ? OK : no_room(2 * all, err);
    struct collective c = step_call(leg->each, leg->bytes);
    /* Codes to send and codes received lie in two halves of the buffer. */
    c.in = codes, c.out = codes + all;
    for (int m = 0; m < P && !e; m++)
        for (int64_t i = 0; i < leg->each; i++)
            quantised_encode(d, codes + (m * leg->each + i) * leg->bytes, quantised_block(leg->X, leg->n, i * P + m),
                             leg->format);
    ledger_additions(&leg->group->comm->expected, leg->group, ALLTOALL, step_additions(leg->group, leg->n, leg->each));
    if (!e) e = collective_run(leg->group, ALLTOALL, NULL, &c, err);
    if (!e) add_up(leg, codes + all, one);
    if (!e && tracked(leg->x)) e = track(leg, codes + all, err);
    device_free(d, one);
    arena_free(&d->arena, codes);
    return e;
}

static struct account step_cost(const struct group *group, int64_t n, int64_t each, struct block_format format)
{
    const struct collective c = step_call(each, quantised_bytes(format, n));
    struct account cost = group_cost(group, ALLTOALL, NULL, &c);
    cost.of[ALLTOALL].additions += step_additions(group, n, each);
    return cost;
}

/* ---- reduce-scatter ---------------------------------------------------------------------------------------------- */

/* Rank m = node * q + place.  Step 1: each member of the node gets the blocks of its place in all nodes.  Step 2: each
 * node gets its block. */
static enum error_code run_steps(struct quantised_group *group, struct leg *leg, struct tensor between,
                                 struct tracking kept, struct error *err)
{
    struct leg first = *leg, second = *leg;
    /* A group that is not on several nodes takes one step among all members. */
    if (!group->two_steps) return run_step(leg, err);
    first.group = &group->inside, first.each = group->between.size, first.Y = between, first.y = kept;
    second.group = &group->between, second.X = between, second.x = kept;
    const enum error_code e = run_step(&first, err);
    return e ? e : run_step(&second, err);
}

/* Store the sum at its place in the row, in the row's format. */
static void put_in_place(const struct quantised_group *group, struct tensor row, struct tracking tracking,
                         const struct leg *leg)
{
    struct tensor own = quantised_block(row, leg->n, group->whole->rank);
    const struct tracking to = tracking_from(tracking, leg->n * group->whole->rank);
    device_convert(group->whole->comm->device, own, leg->Y);
    dev_charge(group->whole->comm->device, "copy", own, 2, 0);
    if (!tracked(tracking)) return;
    memcpy(to.exact, leg->y.exact, (size_t)leg->n * sizeof *to.exact);
    memcpy(to.bound, leg->y.bound, (size_t)leg->n * sizeof *to.bound);
    /* A narrower format rounds the sum once more. */
    if (own.dtype != leg->Y.dtype) tracking_add_storing(group->whole->comm->device, to.bound, own);
}

/* Sums of both steps live in a buffer in the format of sums; the row's own block gets the result last. */
enum error_code quantised_reduce_scatter(struct quantised_group *group, struct tensor row, struct block_format format,
                                         struct tracking tracking, struct error *err)
{
    struct device *d = group->whole->comm->device;
    const int64_t n = tensor_count(row) / group->whole->size, between = group->two_steps ? group->between.size * n : 0;
    const struct tensor sums = device_tensor_in(d, BUFFERS, quantised_sum_format(row.dtype), n + between);
    struct tracking room = { 0 };
    enum error_code e = sums.data ? OK : no_room((int64_t)tensor_bytes(sums), err);
    if (!e && tracked(tracking)) e = tracking_open(&room, n + between, err);
    struct leg s = { .group = group->whole,
                      .X = row,
                      .x = tracking,
                      .n = n,
                      .each = 1,
                      .bytes = quantised_bytes(format, n),
                      .format = format,
                      .Y = tensor_1d(sums.data, sums.dtype, n),
                      .y = room };
    if (!e) e = run_steps(group, &s, quantised_block(sums, n, 1), tracking_from(room, n), err);
    if (!e) put_in_place(group, row, tracking, &s);
    tracking_close(&room);
    device_free(d, sums);
    return e;
}

struct account quantised_reduce_scatter_cost(const struct quantised_group *group, int64_t n, struct block_format format)
{
    if (!group->two_steps) return step_cost(group->whole, n, 1, format);
    struct account sum = step_cost(&group->inside, n, group->between.size, format);
    account_add(&sum, step_cost(&group->between, n, 1, format), 1);
    return sum;
}
