/* quantised reduce-scatter, ring: the partial sum is quantised again at every hop.
 *
 * Source    reduce_scatter/ring.c with codes in its messages; its error is larger, which is why G. Wang et al.,
 *           "ZeRO++", arXiv:2306.10209, quantise once and use an all-to-all
 * Needs     any P, equal blocks.
 * Cost      steps  P-1;  bytes  (P-1) quantised_bytes(n);  adds  (P-1) n
 * Memory    two blocks in the wide format, two of codes.
 * Error     sum_{h=1}^{P-1} t_h/2, or t_h where the code is the largest; t_h: scale of the sum of h members sent in
 *           hop h.  A device's own part is not quantised, so with P = 2 the error is smaller than that of
 *           quantised_reduce_scatter, which quantises all parts.
 *
 * P = 3     step 1     0 -Q(b2)-> 1    1 -Q(b0)-> 2    2 -Q(b1)-> 0
 *           step 2     0 -Q(b1 + received)-> 1 ..      then device r has block r
 *
 * `orrery bench quantized` and tests call this file.  Errors are ERR_MEMORY and ERR_COMM, on this member alone.
 */
#include "emulated_devices/collectives/quantised.h"
#include "emulated_devices/device/compute.h"
#include <stdlib.h>
#include <string.h>

static int around(int i, int P) { return (i % P + P) % P; }

/* One member's state on its way round the ring. */
struct hop {
    struct group *group;
    struct exchange exchange;
    struct tensor sum, came;            /* [n] in the wide format */
    char *out, *in;                     /* codes */
    int64_t n, bytes;
    struct block_format format;
    struct tracking sums, came_with;
    double *value;                      /* [2n] for tracking */
};

/* Send the sum so far to the next device; receive the previous device's sum into `came`. */
static enum error_code quantised_ring_pass_on(struct hop *hop, struct error *err)
{
    const int P = hop->group->size, next = around(hop->group->rank + 1, P), before = around(hop->group->rank - 1, P);
    struct device *d = hop->group->comm->device;
    quantised_encode(d, hop->out, hop->sum, hop->format);
    const enum error_code e =
        exchange_both(&hop->exchange, next, hop->out, (uint64_t)hop->bytes, before, hop->in, (uint64_t)hop->bytes, err);
    if (e) return e;
    dev_dequantise(d, hop->came, hop->in, hop->format);
    return OK;
}

/* Receive the tracking of the previous device's sum, and add the error of its codes. */
static enum error_code track(struct hop *hop, enum dtype from, struct error *err)
{
    const int P = hop->group->size;
    struct exchange control = exchange_begin(hop->group, CONTROL);
    const uint64_t bytes = 2 * (uint64_t)hop->n * sizeof(double);
    const struct tensor value = tensor_1d(hop->value + hop->n, F64, hop->n);
    enum error_code e = exchange_both(&control, around(hop->group->rank + 1, P), hop->sums.exact, bytes,
                                      around(hop->group->rank - 1, P), hop->came_with.exact, bytes, err);
    if (e) return e;
    struct views v = views_of(hop->group->comm->device);
    const char *codes = view_read(&v, tensor_1d(hop->in, U8, hop->bytes)).data;
    memset(hop->value, 0, (size_t)hop->n * sizeof *hop->value);
    block_dequantise(value, codes, hop->format);
    tracking_add_codes(hop->came_with.bound, hop->value, codes, hop->format, value, from);
    views_end(&v);
    tracking_add_rounding(hop->came_with.bound, hop->value, hop->n, 1, hop->came.dtype);
    return OK;
}

/* Add this device's part of block b to the received sum. */
static void add_own(struct hop *hop, struct tensor row, struct tracking tracking, int b)
{
    const int64_t n = hop->n;
    device_convert(hop->group->comm->device, hop->sum, quantised_block(row, n, b));
    reduce_local(&hop->exchange, SUM, hop->sum.dtype, hop->came.data, hop->sum.data, n);
    device_copy(hop->group->comm->device, hop->sum.data, hop->came.data, tensor_bytes(hop->came));
    if (!tracked(tracking)) return;
    memcpy(hop->sums.exact, hop->came_with.exact, 2 * (size_t)n * sizeof(double));
    tracking_add(hop->group->comm->device, hop->sums, tracking_from(tracking, b * n), hop->sum);
}

/* P - 1 hops: send the partial sum, receive that of the block before, add this device's part.  Tracking goes the
 * same way. */
static enum error_code go_round(struct hop *hop, struct tensor row, struct tracking tracking, struct error *err)
{
    const int P = hop->group->size, r = hop->group->rank;
    enum error_code e = OK;
    /* Device r starts block r - 1; after P - 1 hops its own block r has come round. */
    device_convert(hop->group->comm->device, hop->sum, quantised_block(row, hop->n, around(r - 1, P)));
    if (tracked(tracking)) {
        memcpy(hop->sums.exact, tracking.exact + around(r - 1, P) * hop->n, (size_t)hop->n * sizeof(double));
        memcpy(hop->sums.bound, tracking.bound + around(r - 1, P) * hop->n, (size_t)hop->n * sizeof(double));
    }
    for (int k = 1; k < P && !e; k++) {
        e = quantised_ring_pass_on(hop, err);
        if (!e && tracked(tracking)) e = track(hop, hop->sum.dtype, err);
        if (!e) add_own(hop, row, tracking, around(r - 1 - k, P));
    }
    if (e) return e;
    /* The finished sum is stored in the row's format, which may round it once more. */
    struct tensor own = quantised_block(row, hop->n, r);
    device_convert(hop->group->comm->device, own, hop->sum);
    if (!tracked(tracking)) return OK;
    memcpy(tracking.exact + r * hop->n, hop->sums.exact, (size_t)hop->n * sizeof(double));
    memcpy(tracking.bound + r * hop->n, hop->sums.bound, (size_t)hop->n * sizeof(double));
    if (own.dtype != hop->sum.dtype) tracking_add_storing(hop->group->comm->device, tracking.bound + r * hop->n, own);
    return OK;
}

/* These entries serve the expected ledger and the cost function. */
static void quantised_ring_enter(struct ledger *ledger, const struct group *group, int64_t n,
                                 struct block_format format)
{
    const uint64_t hops = (uint64_t)(group->size - 1);
    ledger_messages(ledger, group, REDUCE_SCATTER, around(group->rank + 1, group->size),
                    (uint64_t)quantised_bytes(format, n), hops);
    ledger_additions(ledger, group, REDUCE_SCATTER, hops * (uint64_t)n);
}

/* All members call this function.  The row's block r becomes the sum; other blocks do not change. */
enum error_code quantised_ring_reduce_scatter(struct group *group, struct tensor row, struct block_format format,
                                              struct tracking tracking, struct error *err)
{
    struct device *d = group->comm->device;
    const int64_t n = tensor_count(row) / group->size, bytes = quantised_bytes(format, n);
    const struct tensor sums = device_tensor_in(d, BUFFERS, dtype_wide(row.dtype), 2 * n);
    char *codes = arena_alloc(&d->arena, BUFFERS, 2 * (uint64_t)bytes);
    struct hop h = { .group = group,
                     .exchange = exchange_begin(group, REDUCE_SCATTER),
                     .sum = tensor_1d(sums.data, sums.dtype, n),
                     .came = quantised_block(sums, n, 1),
                     .out = codes,
                     .in = codes + bytes,
                     .n = n,
                     .bytes = bytes,
                     .format = format,
                     .value = calloc(2 * (size_t)n + 1, sizeof *h.value) };
    enum error_code e = sums.data && codes && h.value
                            ? OK
                            : fail(err, ERR_MEMORY, "no memory for %lld bytes of codes", (long long)(2 * bytes));
    if (!e && tracked(tracking)) e = tracking_open(&h.sums, n, err);
    if (!e && tracked(tracking)) e = tracking_open(&h.came_with, n, err);
    /* The ledger expects the hops also after an error, because the step cannot go on then. */
    quantised_ring_enter(&group->comm->expected, group, n, format);
    if (!e) e = go_round(&h, row, tracking, err);
    tracking_close(&h.sums), tracking_close(&h.came_with);
    free(h.value);
    arena_free(&d->arena, codes);
    device_free(d, sums);
    return e;
}

struct account quantised_ring_reduce_scatter_cost(const struct group *group, int64_t n, struct block_format format)
{
    struct ledger l = { 0 };
    quantised_ring_enter(&l, group, n, format);
    return l.of[group->kind];
}
