/* trace.c -- follows rows to their experts: which rows of the batch a device computes, in the order in which they lie
 * there.
 *
 * The numbers of rows go the hops that the rows go, in the host's memory and as CONTROL traffic.  So they are not
 * counted, and take no virtual time.  model/run/run_mixture.c calls rows_trace after a router's choices are announced,
 * if a probe wants rows that are sorted by expert.  Errors are ERR_MEMORY and ERR_COMM, after which the step cannot go
 * on.
 */
#include "emulated_devices/schemes/experts/hops.h"
#include <stdlib.h>
#include <string.h>

/* Numbers of the batch's rows, in the order in which the rows lie on this device. */
struct traced { int32_t *row; int64_t count; };

static enum error_code trace_no_memory(struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory to follow rows to their experts");
}

static enum error_code trace_make(struct traced *traced, int64_t count, struct error *err)
{
    *traced = (struct traced){ malloc((size_t)(count + 1) * sizeof *traced->row), count };
    return traced->row ? OK : trace_no_memory(err);
}

/* As rows leave: each once with its weights, or once for each choice that an expert computes, sorted by expert. */
static enum error_code trace_leave(struct traced *traced, bool there, int64_t E, const struct choices *own,
                                   const int32_t *row, struct error *err)
{
    const int64_t all = own->rows * own->each;
    const enum error_code e = trace_make(traced, there ? own->rows : all, err);
    int64_t n = 0;
    for (int64_t i = 0; i < own->rows && !e && there; i++) traced->row[n++] = row[i];
    for (int64_t x = 0; x < E && !e && !there; x++)
        for (int64_t i = 0; i < all; i++)
            if (own->expert[i] == x) traced->row[n++] = row[i / own->each];
    traced->count = n;
    return e;
}

/* Send numbers by a hop's counts: to each member its own, or, where all rows go to all members, all. */
static enum error_code trace_exchange(const struct expert_hop *hop, struct traced in, struct traced *out,
                                      struct error *err)
{
    struct group *const group = hop->group;
    struct message message[2 * MESH_MOST_LISTED];
    struct exchange exchange = exchange_begin(group, CONTROL);
    const bool gathers = hop->operation == ALLGATHER;
    int64_t to = 0, from = 0;
    int messages = 0;
    enum error_code e = OK;
    for (int m = 0; m < group->size; from += hop->got[m++]) {
        if (m == group->rank || hop->got[m] == 0) continue;
        message[messages++] = message_receive(&exchange, m, out->row + from, (uint64_t)hop->got[m] * sizeof *out->row);
    }
    from = 0;
    for (int m = 0; m < group->size; from += hop->got[m++]) {
        const int64_t n = gathers ? in.count : hop->sent[m];
        if (m == group->rank) memcpy(out->row + from, in.row + to, (size_t)n * sizeof *in.row);
        else if (n > 0) message[messages++] = message_send(&exchange, m, in.row + to, (uint64_t)n * sizeof *in.row);
        to += gathers ? 0 : n;
    }
    for (int i = 0; i < messages; i++) {
        const enum error_code waited = message_wait(group->comm, message[i], err);
        e = e ? e : waited;
    }
    return e;
}

/* One hop: pick rows in its order, and exchange them.  The numbers become those of the rows that came. */
static enum error_code trace_hop(const struct expert_hop *hop, struct traced *traced, struct error *err)
{
    struct traced picked = *traced, came = { NULL };
    const bool picks = tensor_present(hop->order);
    enum error_code e = trace_make(&came, hop_arrives(hop), err);
    if (!e && picks) e = trace_make(&picked, tensor_count(hop->order), err);
    for (int64_t i = 0; i < picked.count && !e && picks; i++)
        picked.row[i] = traced->row[((const int32_t *)hop->order.data)[i]];
    if (!e) e = trace_exchange(hop, picked, &came, err);
    if (picks && picked.row != traced->row) free(picked.row);
    free(traced->row);
    *traced = came;
    return e;
}

/* Follow rows along the hops of a routing, or of a part.  `at` has the rows that leave, and is freed.
 * @param[out] row  [received] in the order in which experts take them. */
static enum error_code trace_way(const struct expert_routing *routing, struct traced at, int64_t each, int32_t *row,
                                 struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < routing->hops && !e; i++) e = trace_hop(&routing->hop[i], &at, err);
    /* Experts take the choices of the pool's rows in an order; without hops the choices are in it already. */
    const int32_t *const order = routing->order.data;
    for (int64_t i = 0; i < routing->received && !e; i++) row[i] = at.row[order ? order[i] / each : i];
    free(at.row);
    return e;
}

/* Rows that travel in parts leave, and are computed, part after part. */
static enum error_code trace_parts(const struct expert_parallel *ep, const struct expert_routing *routing,
                                   struct traced at, struct error *err)
{
    int32_t *order = malloc((size_t)(at.count + 1) * sizeof *order);
    enum error_code e = order ? OK : trace_no_memory(err);
    int64_t left = 0, came = 0;
    if (!e) expert_parts_order(ep, routing, order);
    for (int p = 0; p < routing->parts && !e; p++) {
        struct traced part;
        e = trace_make(&part, routing->part[p].sent, err);
        for (int64_t i = 0; i < part.count && !e; i++) part.row[i] = at.row[order[left++]];
        if (!e) e = trace_way(&routing->part[p], part, 1, routing->row + came, err);
        came += routing->part[p].received;
    }
    free(order), free(at.row);
    return e;
}

enum error_code rows_trace(struct expert_routing *routing, const struct expert_parallel *ep, int64_t E,
                           const struct choices *own, const int32_t *row, struct error *err)
{
    const int64_t each = ep->scheme->weighs_there ? own->each : 1;
    struct traced at;
    free(routing->row);
    routing->row = malloc((size_t)(routing->received + 1) * sizeof *routing->row);
    enum error_code e = routing->row ? OK : trace_no_memory(err);
    if (!e) e = trace_leave(&at, ep->scheme->weighs_there, E, own, row, err);
    if (!e) e = routing->part ? trace_parts(ep, routing, at, err) : trace_way(routing, at, each, routing->row, err);
    if (e) free(routing->row), routing->row = NULL;
    return e;
}
