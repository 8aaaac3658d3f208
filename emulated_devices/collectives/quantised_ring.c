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
 */
#include "emulated_devices/collectives/quantised.h"
#include "emulated_devices/device/compute.h"
#include <stdlib.h>
#include <string.h>

static int around(int i, int P) { return (i % P + P) % P; }

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
static enum error_code pass_on(struct hop *h, struct error *err)
{
    const int P = h->group->size, next = around(h->group->rank + 1, P), before = around(h->group->rank - 1, P);
    struct device *d = h->group->comm->device;
    quantised_encode(d, h->out, h->sum, h->format);
    const enum error_code e =
        exchange_both(&h->exchange, next, h->out, (uint64_t)h->bytes, before, h->in, (uint64_t)h->bytes, err);
    if (e) return e;
    dev_dequantise(d, h->came, h->in, h->format);
    return OK;
}

/* Receive the tracking of the previous device's sum, and add the error of its codes. */
static enum error_code track(struct hop *h, enum dtype from, struct error *err)
{
    const int P = h->group->size;
    struct exchange control = exchange_begin(h->group, CONTROL);
    const uint64_t bytes = 2 * (uint64_t)h->n * sizeof(double);
    const struct tensor value = tensor_1d(h->value + h->n, F64, h->n);
    enum error_code e = exchange_both(&control, around(h->group->rank + 1, P), h->sums.exact, bytes,
                                      around(h->group->rank - 1, P), h->came_with.exact, bytes, err);
    if (e) return e;
    struct views v = views_of(h->group->comm->device);
    const char *codes = view_read(&v, tensor_1d(h->in, U8, h->bytes)).data;
    memset(h->value, 0, (size_t)h->n * sizeof *h->value);
    block_dequantise(value, codes, h->format);
    tracking_add_codes(h->came_with.bound, h->value, codes, h->format, value, from);
    views_end(&v);
    tracking_add_rounding(h->came_with.bound, h->value, h->n, 1, h->came.dtype);
    return OK;
}

/* Add this device's part of block b to the received sum. */
static void add_own(struct hop *h, struct tensor row, struct tracking t, int b)
{
    const int64_t n = h->n;
    device_convert(h->group->comm->device, h->sum, quantised_block(row, n, b));
    reduce_local(&h->exchange, SUM, h->sum.dtype, h->came.data, h->sum.data, n);
    device_copy(h->group->comm->device, h->sum.data, h->came.data, tensor_bytes(h->came));
    if (!tracked(t)) return;
    memcpy(h->sums.exact, h->came_with.exact, 2 * (size_t)n * sizeof(double));
    tracking_add(h->group->comm->device, h->sums, tracking_from(t, b * n), h->sum);
}

static enum error_code go_round(struct hop *h, struct tensor row, struct tracking t, struct error *err)
{
    const int P = h->group->size, r = h->group->rank;
    enum error_code e = OK;
    /* Device r starts block r - 1; after P - 1 hops its own block r has come round. */
    device_convert(h->group->comm->device, h->sum, quantised_block(row, h->n, around(r - 1, P)));
    if (tracked(t)) {
        memcpy(h->sums.exact, t.exact + around(r - 1, P) * h->n, (size_t)h->n * sizeof(double));
        memcpy(h->sums.bound, t.bound + around(r - 1, P) * h->n, (size_t)h->n * sizeof(double));
    }
    for (int k = 1; k < P && !e; k++) {
        e = pass_on(h, err);
        if (!e && tracked(t)) e = track(h, h->sum.dtype, err);
        if (!e) add_own(h, row, t, around(r - 1 - k, P));
    }
    if (e) return e;
    struct tensor own = quantised_block(row, h->n, r);
    device_convert(h->group->comm->device, own, h->sum);
    if (!tracked(t)) return OK;
    memcpy(t.exact + r * h->n, h->sums.exact, (size_t)h->n * sizeof(double));
    memcpy(t.bound + r * h->n, h->sums.bound, (size_t)h->n * sizeof(double));
    if (own.dtype != h->sum.dtype) tracking_add_storing(h->group->comm->device, t.bound + r * h->n, own);
    return OK;
}

static void enter(struct ledger *l, const struct group *g, int64_t n, struct block_format f)
{
    const uint64_t hops = (uint64_t)(g->size - 1);
    ledger_messages(l, g, REDUCE_SCATTER, around(g->rank + 1, g->size), (uint64_t)quantised_bytes(f, n), hops);
    ledger_additions(l, g, REDUCE_SCATTER, hops * (uint64_t)n);
}

enum error_code quantised_ring_reduce_scatter(struct group *g, struct tensor row, struct block_format f,
                                              struct tracking t, struct error *err)
{
    struct device *d = g->comm->device;
    const int64_t n = tensor_count(row) / g->size, bytes = quantised_bytes(f, n);
    const struct tensor sums = device_tensor_in(d, BUFFERS, dtype_wide(row.dtype), 2 * n);
    char *codes = arena_alloc(&d->arena, BUFFERS, 2 * (uint64_t)bytes);
    struct hop h = { .group = g,
                     .exchange = exchange_begin(g, REDUCE_SCATTER),
                     .sum = tensor_1d(sums.data, sums.dtype, n),
                     .came = quantised_block(sums, n, 1),
                     .out = codes,
                     .in = codes + bytes,
                     .n = n,
                     .bytes = bytes,
                     .format = f,
                     .value = calloc(2 * (size_t)n + 1, sizeof *h.value) };
    enum error_code e = sums.data && codes && h.value
                            ? OK
                            : fail(err, ERR_MEMORY, "no memory for %lld bytes of codes", (long long)(2 * bytes));
    if (!e && tracked(t)) e = tracking_open(&h.sums, n, err);
    if (!e && tracked(t)) e = tracking_open(&h.came_with, n, err);
    enter(&g->comm->expected, g, n, f);
    if (!e) e = go_round(&h, row, t, err);
    tracking_close(&h.sums), tracking_close(&h.came_with);
    free(h.value);
    arena_free(&d->arena, codes);
    device_free(d, sums);
    return e;
}

struct account quantised_ring_reduce_scatter_cost(const struct group *g, int64_t n, struct block_format f)
{
    struct ledger l = { 0 };
    enter(&l, g, n, f);
    return l.of[g->kind];
}
