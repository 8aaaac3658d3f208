#include "emulated_devices/verify/reference/probes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- during a step ----------------------------------------------------------------------------------------------- */

/* Compare a part with the truth, row by row.  Both have the same layout, but rows of the actual tensor may be
 * longer. */
static void add_up(struct sums *s, struct tensor actual, struct tensor truth)
{
    for (int64_t n = 0; n < tensor_rows(truth); n++)
        sums_add(s, actual, n * tensor_cols(actual), truth, n * tensor_cols(truth), tensor_cols(truth));
}

static void replace(struct tensor actual, struct tensor truth)
{
    const size_t size = dtype_size(truth.dtype), row = (size_t)tensor_cols(truth) * size;
    for (int64_t n = 0; n < tensor_rows(truth); n++)
        memcpy((char *)actual.data + (size_t)(n * tensor_cols(actual)) * size, (char *)truth.data + (size_t)n * row,
               row);
}

/* Copy the part only: rows of the actual tensor may be longer. */
static void *copy_part(struct tensor actual, struct tensor part)
{
    const size_t size = dtype_size(part.dtype), row = (size_t)tensor_cols(part) * size;
    char *copy = malloc(tensor_bytes(part) + 1);
    for (int64_t n = 0; copy && n < tensor_rows(part); n++)
        memcpy(copy + (size_t)n * row, (char *)actual.data + (size_t)(n * tensor_cols(actual)) * size, row);
    return copy;
}

static struct part part_of(const struct trainer *t, int rank, const struct expected *e, int micro)
{
    return plan_part(&t->plan, rank, e->width, e->cols, micro, e->gradient);
}

/* Whether entry i is what is shown now.  Choices of experts have no truth; they are kept for probes_gather_routes. */
static bool is_shown(const struct probes *p, int i, int micro, const char *name, int layer, bool gradient)
{
    const struct expected *e = &p->expected[i];
    const int at = i * p->trainer->plan.micros + micro;
    return e->layer == layer && e->gradient == gradient && strcmp(e->name, name) == 0 &&
           (i < p->count ? p->part[at] != NULL : p->shown[at] == NULL);
}

static void see(void *context, const char *name, int layer, bool gradient, int micro, struct tensor t)
{
    struct probes *p = context;
    const struct plan *plan = &p->trainer->plan;
    for (int i = 0; i < p->count + p->routers; i++) {
        const struct expected *e = &p->expected[i];
        if (!is_shown(p, i, micro, name, layer, gradient)) continue;
        const int rank = p->trainer->comm->rank;
        void **truth = &p->part[i * plan->micros + micro];
        struct part part = part_of(p->trainer, rank, e, micro);
        const struct tensor beside =
            tensor_2d(*truth, t.dtype, intervals_total(&part.rows), intervals_total(&part.cols));
        struct views v = views_of(p->trainer->comm->device);
        const struct tensor seen = p->isolate ? view_write(&v, t) : view_read(&v, t);
        /* wrong shape */
        if (tensor_rows(t) != tensor_rows(beside) || tensor_cols(t) != plan_columns(plan, rank, e->width))
            p->sums[i].difference = NAN;
        else {
            if (*truth) add_up(&p->sums[i], seen, beside);
            if (p->keep) p->shown[i * plan->micros + micro] = copy_part(seen, beside);
            if (p->isolate && *truth) replace(seen, beside);
        }
        views_end(&v);
        part_free(&part);
        free(*truth);
        *truth = NULL;
        return;
    }
}

void probes_open(struct probes *p, struct trainer *t, bool isolate)
{
    *p = (struct probes){ .trainer = t, .isolate = isolate, .probe = { see, p } };
    trainer_watch(t, &p->probe);
}

static void forget_parts(struct probes *p)
{
    const int places = (p->count + p->routers) * p->trainer->plan.micros;
    for (int i = 0; p->part && i < places; i++) free(p->part[i]);
    for (int i = 0; p->shown && i < places; i++) free(p->shown[i]);
    free(p->part), free(p->shown);
    p->part = p->shown = NULL;
}

void probes_close(struct probes *p)
{
    if (p->trainer == NULL) return;
    trainer_watch(p->trainer, NULL);
    forget_parts(p);
    free(p->expected), free(p->sums);
    *p = (struct probes){ 0 };
}

/* ---- before a step ----------------------------------------------------------------------------------------------- */

/* Whether a device computes this tensor of this microbatch. */
static bool computes(const struct trainer *t, int rank, const struct expected *e, int micro)
{
    const int stage = plan_stage_of(&t->plan, e->name, e->layer, e->gradient);
    return place_of(&t->schedule, micro, stage).device == mesh_coordinate(&t->plan.mesh, rank, PP);
}

static void must(struct trainer *t, enum error_code e, const struct error *err)
{
    if (e) comm_give_up(t->comm, err);
}

/* Send data from rank 0 to all devices. */
static void share(struct trainer *t, void *data, uint64_t bytes)
{
    struct error err;
    struct exchange x = exchange_begin(&t->world, CONTROL);
    if (t->comm->rank != 0) must(t, message_wait(t->comm, message_receive(&x, 0, data, bytes), &err), &err);
    for (int r = 1; r < t->comm->size && t->comm->rank == 0; r++)
        must(t, message_wait(t->comm, message_send(&x, r, data, bytes), &err), &err);
}

static enum error_code make_room(struct probes *p, int count, struct error *err)
{
    const struct model_config *c = &p->trainer->plan.model;
    forget_parts(p);
    free(p->expected), free(p->sums);
    p->count = count;
    p->routers = c->mlp == MLP_MIXTURE && !p->isolate ? (int)mixture_layers(c) : 0;
    p->keep = p->keep || p->routers > 0;
    const size_t entries = (size_t)(count + p->routers) + 1, places = entries * (size_t)p->trainer->plan.micros;
    p->expected = calloc(entries, sizeof *p->expected);
    p->sums = calloc(entries, sizeof *p->sums);
    p->part = calloc(places, sizeof *p->part);
    p->shown = calloc(places, sizeof *p->shown);
    return p->expected && p->sums && p->part && p->shown
               ? OK
               : fail(err, ERR_MEMORY, "no memory to compare %d activations", count);
}

/* Deliver one device's part of one microbatch: rank 0 cuts it and keeps or sends it; the device receives it. */
static void deliver(struct probes *p, struct exchange *x, int i, int rank, int micro, struct tensor truth)
{
    struct trainer *t = p->trainer;
    struct error err;
    if (!computes(t, rank, &p->expected[i], micro)) return;
    struct part part = part_of(t, rank, &p->expected[i], micro);
    const size_t size = dtype_size(p->expected[i].format), bytes = (size_t)part_count(&part) * size;
    void *room = malloc(bytes + 1);
    if (room == NULL || !part_made(&part))
        must(t, fail(&err, ERR_MEMORY, "no memory for the truth of %s", p->expected[i].name), &err);
    if (t->comm->rank == 0) part_cut(&part, truth.data, room, size);
    if (rank == t->comm->rank) {
        p->part[i * t->plan.micros + micro] = room;
        p->sums[i].expected += part_count(&part);
        if (rank != 0) must(t, message_wait(t->comm, message_receive(x, 0, room, bytes), &err), &err);
    } else {
        must(t, message_wait(t->comm, message_send(x, rank, room, bytes), &err), &err);
        free(room);
    }
    part_free(&part);
}

static void deliver_all(struct probes *p, const struct recording *record)
{
    struct trainer *t = p->trainer;
    const bool here = t->comm->rank == 0;
    struct exchange x = exchange_begin(&t->world, CONTROL);
    for (int i = 0; i < p->count; i++)
        for (int rank = here ? 0 : t->comm->rank; rank < (here ? t->comm->size : t->comm->rank + 1); rank++)
            for (int micro = 0; micro < t->plan.micros; micro++)
                deliver(p, &x, i, rank, micro, here ? record->all[i].truth : tensor_none);
}

enum error_code probes_deliver(struct probes *p, const struct recording *record, struct error *err)
{
    struct trainer *t = p->trainer;
    const bool here = t->comm->rank == 0;
    int count = here ? record->count : 0;
    share(t, &count, sizeof count);
    enum error_code e = comm_agree(t->comm, make_room(p, count, err), err);
    if (e) return e;
    for (int i = 0; here && i < count; i++) {
        const struct recorded *a = &record->all[i];
        p->expected[i] = (struct expected){
            .layer = a->layer, .gradient = a->gradient, .cols = tensor_cols(a->truth), .format = a->truth.dtype
        };
        memcpy(p->expected[i].name, a->name, sizeof a->name);
        activation_width_of(&t->plan.model, a->name, &p->expected[i].width);
    }
    share(t, p->expected, (uint64_t)count * sizeof *p->expected);
    for (int l = 0, place = count; place < count + p->routers; l++)
        if (layer_mlp(&t->plan.model, l) == MLP_MIXTURE)
            p->expected[place++] = (struct expected){ .name = "router.experts", .layer = l, .format = I32,
                                                      .cols = t->plan.model.mixture.k, .width = WIDTH_CHOICES };
    deliver_all(p, record);
    return OK;
}

/* ---- after a step ------------------------------------------------------------------------------------------------ */

enum error_code probes_collect(struct probes *p, bool gradients, void (*visit)(void *, int, int, const struct sums *),
                               void *context, struct error *err)
{
    struct trainer *t = p->trainer;
    const uint64_t bytes = (uint64_t)p->count * sizeof *p->sums;
    if (t->comm->rank != 0) return comm_bring(t->comm, p->sums, bytes, NULL, err);
    struct sums *all = malloc(bytes * (size_t)t->comm->size + 1);
    if (all == NULL) must(t, fail(err, ERR_MEMORY, "no memory for what %d devices found", t->comm->size), err);
    const enum error_code e = comm_bring(t->comm, p->sums, bytes, all, err);
    for (int i = 0; i < p->count && !e; i++)
        for (int r = 0; r < t->comm->size && p->expected[i].gradient == gradients; r++) {
            const struct sums *s = &all[(int64_t)r * p->count + i];
            if (s->expected > 0) visit(context, i, r, s);
        }
    free(all);
    return e;
}

struct paste { char *whole; const char *piece; size_t size; };

static void paste_run(void *context, struct run r)
{
    const struct paste *p = context;
    memcpy(p->whole + (size_t)r.whole * p->size, p->piece + (size_t)r.piece * p->size, (size_t)r.length * p->size);
}

/* Send one device's part of one microbatch to rank 0. */
static void bring(struct probes *p, struct exchange *x, int i, int rank, int micro, struct tensor whole)
{
    struct trainer *t = p->trainer;
    struct error err;
    if (!computes(t, rank, &p->expected[i], micro)) return;
    struct part part = part_of(t, rank, &p->expected[i], micro);
    const size_t size = dtype_size(p->expected[i].format), bytes = (size_t)part_count(&part) * size;
    void *own = rank == t->comm->rank ? p->shown[i * t->plan.micros + micro] : malloc(bytes + 1);
    if (own == NULL)
        must(t, fail(&err, ERR_MEMORY, "nothing to gather of %s on device %d", p->expected[i].name, rank), &err);
    if (rank != t->comm->rank) must(t, message_wait(t->comm, message_receive(x, rank, own, bytes), &err), &err);
    else if (rank != 0) must(t, message_wait(t->comm, message_send(x, 0, own, bytes), &err), &err);
    struct paste into = { whole.data, own, size };
    if (t->comm->rank == 0) part_each_run(&part, paste_run, &into);
    if (rank != t->comm->rank) free(own);
    part_free(&part);
}

void probes_gather(struct probes *p, int tensor, struct tensor whole)
{
    struct trainer *t = p->trainer;
    const bool here = t->comm->rank == 0;
    struct exchange x = exchange_begin(&t->world, CONTROL);
    for (int rank = here ? 0 : t->comm->rank; rank < (here ? t->comm->size : t->comm->rank + 1); rank++)
        for (int micro = 0; micro < t->plan.micros; micro++) bring(p, &x, tensor, rank, micro, whole);
}

const void *probes_own(const struct probes *p, int tensor, int micro, struct part *part)
{
    const struct trainer *t = p->trainer;
    if (!computes(t, t->comm->rank, &p->expected[tensor], micro)) return NULL;
    *part = part_of(t, t->comm->rank, &p->expected[tensor], micro);
    return p->shown[tensor * t->plan.micros + micro];
}

/* ---- choices of experts ------------------------------------------------------------------------------------------ */

void probes_gather_routes(struct probes *p, int32_t *experts)
{
    const struct plan *plan = &p->trainer->plan;
    const int64_t N = plan->B * plan->S, k = plan->model.mixture.k;
    for (int i = p->count; i < p->count + p->routers; i++)
        probes_gather(p, i, tensor_2d(experts ? experts + p->expected[i].layer * N * k : NULL, I32, N, k));
}

void probes_compare_again(struct probes *p, const struct recording *record)
{
    struct trainer *t = p->trainer;
    int again = record != NULL;
    share(t, &again, sizeof again);
    if (!again) return;
    memset(p->sums, 0, (size_t)p->count * sizeof *p->sums);
    deliver_all(p, record);
    for (int i = 0; i < p->count; i++)
        for (int micro = 0; micro < t->plan.micros; micro++) {
            const int at = i * t->plan.micros + micro;
            if (p->part[at] == NULL || p->shown[at] == NULL) continue;
            struct part part = part_of(t, t->comm->rank, &p->expected[i], micro);
            const int64_t rows = intervals_total(&part.rows), cols = intervals_total(&part.cols);
            add_up(&p->sums[i], tensor_2d(p->shown[at], p->expected[i].format, rows, cols),
                   tensor_2d(p->part[at], p->expected[i].format, rows, cols));
            part_free(&part);
        }
}

int probes_device_of(const struct probes *p, int layer, int64_t row)
{
    const struct trainer *t = p->trainer;
    const struct expected *e = &p->expected[p->count];
    while (e->layer != layer) e++;
    for (int rank = 0; rank < t->comm->size; rank++)
        for (int micro = 0; micro < t->plan.micros; micro++) {
            if (!computes(t, rank, e, micro)) continue;
            struct part part = part_of(t, rank, e, micro);
            bool has = false;
            for (int i = 0; i < part.rows.count; i++)
                has = has || (row >= part.rows.at[i].first && row < interval_end(part.rows.at[i]));
            part_free(&part);
            if (has) return rank;
        }
    return 0;
}
