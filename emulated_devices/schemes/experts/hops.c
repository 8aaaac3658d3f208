/* hops.c -- hops run here one by one, and backward in reverse.  Callers are dispatch.c, announce.c and the schemes' own
 * hop functions.  Errors are ERR_MEMORY without a buffer, and ERR_COMM of a failed collective. */
#include "emulated_devices/schemes/experts/hops.h"
#include "emulated_devices/device/compute.h"
#include <stdlib.h>
#include <string.h>

enum error_code hop_make(struct expert_hop *hop, struct group *group, enum operation operation, int64_t picked,
                         struct error *err)
{
    /* An order is in the host's memory, since hops are planned there. */
    int32_t *order = picked < 0 ? NULL : malloc((size_t)(picked + 1) * sizeof *order);
    *hop = (struct expert_hop){ .group = group, .operation = operation,
                              .sent = calloc((size_t)group->size, sizeof *hop->sent),
                              .got = calloc((size_t)group->size, sizeof *hop->got),
                              .order = picked < 0 ? tensor_none : tensor_1d(order, I32, picked) };
    const bool ok = hop->sent && hop->got && (picked < 0 || order);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to list rows of experts");
}

void expert_routing_clear(struct expert_routing *routing)
{
    for (int i = 0; routing->part && i < routing->parts; i++) expert_routing_clear(&routing->part[i]);
    free(routing->part);
    /* Unused hops are zeros, which free accepts. */
    for (int i = 0; i < EXPERT_HOPS; i++)
        free(routing->hop[i].sent), free(routing->hop[i].got), free(routing->hop[i].order.data);
    free(routing->table), free(routing->told), free(routing->order.data), free(routing->counts),
    free(routing->owner), free(routing->held), free(routing->copied), free(routing->row);
    *routing = (struct expert_routing){ 0 };
}

int64_t hop_arrives(const struct expert_hop *hop)
{
    int64_t sum = 0;
    /* For an all-gather the sum has this device's own rows, too. */
    for (int i = 0; i < hop->group->size; i++) sum += hop->got[i];
    return sum;
}

/* ---- one hop ----------------------------------------------------------------------------------------------------- */

enum way { THERE, BACK };

/* The call of a hop for rows of this width. */
static struct collective hops_call_of(const struct expert_hop *hop, enum way way, enum dtype dtype, int64_t width,
                                      int64_t to[], int64_t from[])
{
    for (int i = 0; i < hop->group->size; i++) {
        /* On the way back the counts change places; an all-gather comes back as a reduce-scatter. */
        to[i] = (way == THERE && hop->operation == ALLTOALL ? hop->sent[i] : hop->got[i]) * width;
        from[i] = (way == THERE ? hop->got[i] : hop->sent[i]) * width;
    }
    return (struct collective){ .counts = to, .recvcounts = hop->operation == ALLTOALL ? from : NULL, .dtype = dtype,
                                .reduction = SUM };
}

/* A reduce-scatter sums on the way back what an all-gather has spread. */
static enum operation operation_of(const struct expert_hop *hop, enum way way)
{
    return hop->operation == ALLGATHER && way == BACK ? REDUCE_SCATTER : hop->operation;
}

/* Run one collective over the hop's group; rows are in the order of members on both sides. */
static enum error_code hops_exchange(const struct expert_hop *hop, enum way way, struct tensor in, struct tensor out,
                                     struct error *err)
{
    int64_t to[MESH_MOST_LISTED], from[MESH_MOST_LISTED];
    struct collective call = hops_call_of(hop, way, in.dtype, tensor_cols(in), to, from);
    call.in = in.data, call.out = out.data;
    return collective_run(hop->group, operation_of(hop, way), NULL, &call, err);
}

/* Rows of integers are moved by the host, others by the device. */
static void pick(struct device *device, struct tensor to, struct tensor from, struct tensor order)
{
    if (from.dtype != I32) {
        dev_gather_forward(device, to, from, order, 1);
        return;
    }
    struct views v = views_of(device);
    /* Row i of `to` is row order[i] of `from`. */
    const size_t row = (size_t)tensor_cols(from) * sizeof (int32_t);
    char *out = view_write(&v, to).data;
    const char *in = view_read(&v, from).data;
    for (int64_t i = 0; i < tensor_count(order); i++)
        memcpy(out + (size_t)i * row, in + (size_t)((const int32_t *)order.data)[i] * row, row);
    views_end(&v);
}

/* Integers are in a list of the device, numbers in a buffer; device_free takes both. */
static struct tensor make_rows(struct device *device, enum dtype dtype, int64_t rows, int64_t cols)
{
    const int64_t n = rows * cols;
    const struct tensor t = dtype == I32 ? device_list(device, n) : device_tensor_in(device, BUFFERS, dtype, n);
    return tensor_2d(t.data, dtype, rows, cols);
}

static enum error_code hops_no_memory(struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory for rows of experts");
}

/* Rows in their order are only needed for the time of the exchange. */
static enum error_code hops_run(const struct expert_hop *hop, struct device *device, enum way way, struct tensor in,
                                struct tensor out, struct error *err)
{
    if (!tensor_present(hop->order)) return hops_exchange(hop, way, in, out, err);
    const struct tensor picked = make_rows(device, in.dtype, tensor_count(hop->order), tensor_cols(in));
    if (picked.data == NULL) return hops_no_memory(err);
    /* A row may be sent several times: order repeats it; on the way back its copies add up. */
    if (way == THERE) pick(device, picked, in, hop->order);
    const enum error_code e = way == THERE ? hops_exchange(hop, way, picked, out, err)
        : hops_exchange(hop, way, in, picked, err);
    if (way == BACK && !e) dev_gather_backward_input(device, out, picked, hop->order, 1);
    if (way == BACK && tensor_count(out) > 0) clock_made(&device->clock, out.data, tensor_bytes(out));
    device_free(device, picked);
    return e;
}

enum error_code hop_run(const struct expert_hop *hop, struct device *device, struct tensor in, struct tensor out,
                        struct error *err)
{
    return hops_run(hop, device, THERE, in, out, err);
}

/* ---- all hops ---------------------------------------------------------------------------------------------------- */

/* Run all hops there, or all hops back.  Collective over the ep group, and over the groups of the hops. */
static enum error_code walk(const struct expert_parallel *ep, enum way way, struct tensor in, struct tensor out,
                            struct error *err)
{
    struct device *d = ep->tp->device;
    const struct expert_routing *r = ep->routing;
    struct tensor at = in;
    enum error_code e = OK;
    /* Rows that stay are copied, and their results, too. */
    if (r->hops == 0 && tensor_count(in) > 0) {
        device_copy(d, out.data, in.data, tensor_bytes(in));
        clock_made(&d->clock, out.data, tensor_bytes(out));
    }
    /* Hops run forward in their order, backward from the last; rows between two hops are in a buffer. */
    for (int n = 0; n < r->hops && !e; n++) {
        const struct expert_hop *h = &r->hop[way == THERE ? n : r->hops - 1 - n];
        const bool last = n == r->hops - 1;
        const struct tensor next =
            last ? out : make_rows(d, in.dtype, hop_arrives(way == THERE ? h : h - 1), tensor_cols(in));
        e = next.data ? hops_run(h, d, way, at, next, err) : hops_no_memory(err);
        if (n > 0) device_free(d, at);
        at = next;
        if (e && !last) device_free(d, next);
    }
    return e;
}

enum error_code rows_spread(const struct expert_parallel *ep, struct tensor mine, struct tensor pool, struct error *err)
{
    return walk(ep, THERE, mine, pool, err);
}

enum error_code rows_collect(const struct expert_parallel *ep, struct tensor pool, struct tensor mine,
                             struct error *err)
{
    return walk(ep, BACK, pool, mine, err);
}

/* Enter the forecast of a walk, from hop `first` on: the same calls without data. */
static void hops_cost(struct forecast *forecast, const struct expert_parallel *ep, enum way way, int first,
                      enum dtype dtype, int64_t width)
{
    int64_t to[MESH_MOST_LISTED], from[MESH_MOST_LISTED];
    for (int i = first; i < ep->routing->hops; i++) {
        const struct expert_hop *h = &ep->routing->hop[i];
        forecast_on(forecast, h->group, operation_of(h, way), NULL, hops_call_of(h, way, dtype, width, to, from));
    }
}

void rows_spread_cost(struct forecast *forecast, const struct expert_parallel *ep, int first, enum dtype dtype,
                      int64_t width)
{
    hops_cost(forecast, ep, THERE, first, dtype, width);
}

void rows_collect_cost(struct forecast *forecast, const struct expert_parallel *ep, enum dtype dtype, int64_t width)
{
    hops_cost(forecast, ep, BACK, 0, dtype, width);
}
