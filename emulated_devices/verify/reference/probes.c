/* probes.c -- delivers the truth's parts to devices, compares them during a step, and collects sums or whole
 * tensors.  Messages are CONTROL traffic in host memory.  A message that fails, or missing memory on one device,
 * ends all devices.  Files of run/, dump/, cases/ and verify/reference/ call these functions.  The code is ERR_MEMORY
 * or ERR_COMM. */
#include "emulated_devices/verify/reference/probes.h"
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/verify/reference/probes_rows.h"
#include "ref/exact/unrounded.h"
#include "ref/exact/unrounded_rows.h"
#include "ref/model/kinds.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- during a step ----------------------------------------------------------------------------------------------- */

/* Compare a part with the truth, row by row.  Both have the same layout, but rows of the actual tensor may be
 * longer. */
static void add_up(struct sums *sums, struct tensor actual, struct tensor truth)
{
    for (int64_t n = 0; n < tensor_rows(truth); n++)
        sums_add(sums, actual, n * tensor_cols(actual), truth, n * tensor_cols(truth), tensor_cols(truth));
}

/* Overwrite the device's part with the truth, row by row: rows of the actual tensor may be longer. */
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

/* Copy some columns of a tensor, from `first` on: [rows, cols]. */
static void *copy_columns(struct tensor actual, int64_t first, int64_t cols)
{
    const size_t size = dtype_size(actual.dtype), row = (size_t)cols * size;
    char *copy = malloc((size_t)tensor_rows(actual) * row + 1);
    for (int64_t n = 0; copy && n < tensor_rows(actual); n++)
        memcpy(copy + (size_t)n * row, (char *)actual.data + (size_t)(n * tensor_cols(actual) + first) * size, row);
    return copy;
}

/* The plan of the layer that computes a tensor: the gradient of a layer's output is the next one's. */
static const struct plan *plan_of(const struct trainer *trainer, const struct expected *expected)
{
    const int layer = expected->layer + (expected->gradient && strcmp(expected->name, "out") == 0);
    return &trainer_of_layer(trainer, layer)->plan;
}

/* The plan says which rows and columns of a whole tensor a device computes in a microbatch. */
static struct part probes_part_of(const struct trainer *trainer, int rank, const struct expected *expected, int micro)
{
    return plan_part(plan_of(trainer, expected), rank, expected->width, expected->cols, micro, expected->gradient);
}

static struct part copied_part_of(const struct trainer *trainer, int rank, const struct expected *expected, int micro)
{
    const struct plan *const plan = plan_of(trainer, expected);
    return expected->gradient && mesh_has(&plan->mesh, rank)
        ? plan_copied_part(plan, rank, expected->width, expected->cols, micro) : (struct part){ .dim = { 0, 0 } };
}

/* Keep a computed tensor: its part, and what this device has of copied keys and values. */
static void probes_keep(struct probes *probes, int i, int micro, struct tensor seen, struct tensor beside)
{
    const struct trainer *t = probes->trainer;
    const int at = i * t->plan.micros + micro;
    struct part copied = copied_part_of(t, t->comm->rank, &probes->expected[i], micro);
    probes->shown[at] = copy_part(seen, beside);
    if (copied.cols.count > 0)
        probes->copied[at] = copy_columns(seen, tensor_cols(beside), intervals_total(&copied.cols));
    part_free(&copied);
}

/* Whether entry i is what is shown now.  Choices of experts have no truth; they are kept for probes_gather_routes. */
static bool is_shown(const struct probes *probes, int i, int micro, const char *name, int layer, bool gradient)
{
    const struct expected *e = &probes->expected[i];
    const int at = i * probes->trainer->plan.micros + micro;
    return e->layer == layer && e->gradient == gradient && strcmp(e->name, name) == 0 &&
           (i < probes->count ? probes->part[at] != NULL : probes->shown[at] == NULL);
}

/* Compare a device's sums before they were rounded, where both sides have them.  @param part  the truth's, freed. */
static void compare_unrounded(struct sums *sums, struct tensor seen, void *part, int64_t rows, int64_t cols)
{
    int64_t first = 0;
    const struct tensor own = part ? unrounded_take_rows(seen, &first) : tensor_none;
    const int64_t before = sums->elements;
    if (tensor_present(own) && tensor_count(own) == tensor_count(seen)) {
        add_up(sums, own, tensor_2d(part, EXACT, rows, cols));
        sums->expected += rows * cols, sums->unrounded += sums->elements - before;
    } else if (tensor_present(own) && tensor_cols(seen) == cols) {      /* another device compares other rows */
        sums_add(sums, own, 0, tensor_2d(part, EXACT, rows, cols), first, tensor_count(own));
        sums->expected += tensor_count(own), sums->unrounded += sums->elements - before;
    }
    free(own.data), free(part);
}

/* The trainer calls this with every tensor as soon as the device has computed it.  The first entry of this name,
 * layer and microbatch is taken; its truth is compared, then freed.  A tensor that no entry expects is passed over. */
static void probes_see(void *context, const char *name, int layer, bool gradient, int micro, struct tensor t)
{
    struct probes *p = context;
    const struct plan *plan = &p->trainer->plan;
    for (int i = 0; i < p->count + p->routers; i++) {
        const struct expected *e = &p->expected[i];
        if (!is_shown(p, i, micro, name, layer, gradient)) continue;
        const int rank = p->trainer->comm->rank;
        void **truth = &p->part[i * plan->micros + micro];
        struct part part = probes_part_of(p->trainer, rank, e, micro);
        const struct tensor beside =
            tensor_2d(*truth, t.dtype, intervals_total(&part.rows), intervals_total(&part.cols));
        struct views v = views_of(p->trainer->comm->device);
        const struct tensor seen = p->isolate ? view_write(&v, t) : view_read(&v, t);
        /* A tensor of another shape cannot be compared: NaN makes rank 0 count a failure. */
        /* wrong shape */
        if (tensor_rows(t) != tensor_rows(beside) ||
            tensor_cols(t) != plan_columns(plan_of(p->trainer, e), rank, e->width))
            p->sums[i].difference = NAN;
        else {
            if (*truth) add_up(&p->sums[i], seen, beside);
            if (i < p->count)
                compare_unrounded(&p->sums[i], seen, p->unrounded[i * plan->micros + micro], tensor_rows(beside),
                                  tensor_cols(beside)), p->unrounded[i * plan->micros + micro] = NULL;
            /* The copy is taken before `isolate` overwrites the tensor. */
            if (p->keep) probes_keep(p, i, micro, seen, beside);
            if (p->isolate && *truth) replace(seen, beside);
        }
        views_end(&v);
        part_free(&part);
        free(*truth);
        *truth = NULL;
        return;
    }
}

void probes_open(struct probes *probes, struct trainer *trainer, bool isolate)
{
    *probes = (struct probes){ .trainer = trainer, .isolate = isolate,
                               .probe = { .see = probes_see, .see_sorted = probes_see_sorted, .context = probes } };
    trainer_watch(trainer, &probes->probe);
    if (trainer->plan.model.exact) unrounded_begin();
}

/* Free the parts of the last step, also those that no device has shown. */
static void forget_parts(struct probes *probes)
{
    const int places = (probes->count + probes->routers) * probes->trainer->plan.micros;
    for (int i = 0; probes->part && i < places; i++) free(probes->part[i]);
    for (int i = 0; probes->unrounded && i < probes->count * probes->trainer->plan.micros; i++)
        free(probes->unrounded[i]);
    for (int i = 0; probes->shown && i < places; i++) free(probes->shown[i]);
    for (int i = 0; probes->copied && i < places; i++) free(probes->copied[i]);
    free(probes->part), free(probes->unrounded), free(probes->shown), free(probes->copied);
    probes->part = probes->unrounded = probes->shown = probes->copied = NULL;
    probes_forget_rows(probes);
}

void probes_close(struct probes *probes)
{
    if (probes->trainer == NULL) return;
    trainer_watch(probes->trainer, NULL);
    if (probes->trainer->plan.model.exact) unrounded_end();
    forget_parts(probes);
    free(probes->expected), free(probes->sums);
    *probes = (struct probes){ 0 };
}

/* ---- before a step ----------------------------------------------------------------------------------------------- */

/* Whether a device computes this tensor of this microbatch. */
static bool computes(const struct trainer *trainer, int rank, const struct expected *expected, int micro)
{
    const int stage = plan_stage_of(&trainer->plan, expected->name, expected->layer, expected->gradient);
    if (trainer->plan.sections) return mesh_has(&plan_of(trainer, expected)->mesh, rank);
    return place_of(&trainer->schedule, micro, stage).device == mesh_coordinate(&trainer->plan.mesh, rank, PP);
}

/* A device that cannot go on ends all devices: the others would wait for its messages. */
static void must(struct trainer *trainer, enum error_code e, const struct error *err)
{
    if (e) comm_give_up(trainer->comm, err);
}

/* Send data from rank 0 to all devices. */
static void probes_share(struct trainer *trainer, void *data, uint64_t bytes)
{
    struct error err;
    struct exchange x = exchange_begin(&trainer->world, CONTROL);
    if (trainer->comm->rank != 0)
        must(trainer, message_wait(trainer->comm, message_receive(&x, 0, data, bytes), &err), &err);
    /* Rank 0 sends rank after rank; all ranks must call, or their messages would not meet. */
    for (int r = 1; r < trainer->comm->size && trainer->comm->rank == 0; r++)
        must(trainer, message_wait(trainer->comm, message_send(&x, r, data, bytes), &err), &err);
}

/* Make entries for `count` tensors and, after them, for the choices of each mixture layer.  With `isolate` no
 * choices are kept.  Every device must call this with the same count. */
static enum error_code probes_make_room(struct probes *probes, int count, struct error *err)
{
    const struct model_config *c = &probes->trainer->plan.model;
    forget_parts(probes);
    free(probes->expected), free(probes->sums);
    probes->count = count;
    probes->routers = c->mlp == MLP_MIXTURE && !probes->isolate ? (int)mixture_layers(c) : 0;
    probes->keep = probes->keep || probes->routers > 0;
    const size_t entries = (size_t)(count + probes->routers) + 1,
        places = entries * (size_t)probes->trainer->plan.micros;
    probes->expected = calloc(entries, sizeof *probes->expected);
    probes->sums = calloc(entries, sizeof *probes->sums);
    probes->part = calloc(places, sizeof *probes->part);
    probes->unrounded = calloc(places, sizeof *probes->unrounded);
    probes->shown = calloc(places, sizeof *probes->shown);
    probes->copied = calloc(places, sizeof *probes->copied);
    return probes->expected && probes->sums && probes->part && probes->unrounded && probes->shown && probes->copied
               ? OK
               : fail(err, ERR_MEMORY, "no memory to compare %d activations", count);
}

/* Deliver one device's part of one microbatch: rank 0 cuts it and keeps or sends it; the device receives it.
 * @param kept  where a device keeps such parts.  @return the elements of the part, if it is this device's. */
static int64_t deliver(struct probes *probes, struct exchange *exchange, int i, int rank, int micro,
                       struct tensor truth, enum dtype format, void **kept)
{
    struct trainer *t = probes->trainer;
    struct error err;
    int64_t count = 0;
    if (!computes(t, rank, &probes->expected[i], micro)) return 0;
    struct part part = probes_part_of(t, rank, &probes->expected[i], micro);
    const size_t size = dtype_size(format), bytes = (size_t)part_count(&part) * size;
    void *room = malloc(bytes + 1);
    if (room == NULL || !part_made(&part))
        must(t, fail(&err, ERR_MEMORY, "no memory for the truth of %s", probes->expected[i].name), &err);
    if (t->comm->rank == 0) part_cut(&part, truth.data, room, size);
    /* The device keeps its part until the step computes the tensor; rank 0 frees what it has sent. */
    if (rank == t->comm->rank) {
        kept[i * t->plan.micros + micro] = room;
        count = part_count(&part);
        if (rank != 0) must(t, message_wait(t->comm, message_receive(exchange, 0, room, bytes), &err), &err);
    } else {
        must(t, message_wait(t->comm, message_send(exchange, rank, room, bytes), &err), &err);
        free(room);
    }
    part_free(&part);
    return count;
}

/* Deliver all parts of all tensors and, if `sums`, of the sums that they were rounded from.  Rank 0 walks all devices,
 * another device only its own parts; both in the same order. */
static void deliver_all(struct probes *probes, const struct recording *record, bool sums)
{
    struct trainer *t = probes->trainer;
    const bool here = t->comm->rank == 0;
    struct exchange x = exchange_begin(&t->world, CONTROL);
    for (int i = 0; i < probes->count; i++)
        for (int rank = here ? 0 : t->comm->rank; rank < (here ? t->comm->size : t->comm->rank + 1); rank++)
            for (int micro = 0; micro < t->plan.micros; micro++) {
                const struct recorded *const from = here ? &record->all[i] : NULL;
                probes->sums[i].expected += deliver(probes, &x, i, rank, micro, from ? from->truth : tensor_none,
                                                    probes->expected[i].format, probes->part);
                if (sums && probes->expected[i].sums)
                    deliver(probes, &x, i, rank, micro, from ? from->unrounded : tensor_none, EXACT,
                            probes->unrounded);
            }
}

enum error_code probes_deliver(struct probes *probes, const struct recording *record, struct error *err)
{
    struct trainer *t = probes->trainer;
    const bool here = t->comm->rank == 0;
    int count = here ? record->count : 0;
    /* Rank 0 alone knows the tensors, so the number travels first, then the descriptions, then the parts. */
    probes_share(t, &count, sizeof count);
    enum error_code e = comm_agree(t->comm, probes_make_room(probes, count, err), err);
    if (e) return e;
    for (int i = 0; here && i < count; i++) {
        const struct recorded *a = &record->all[i];
        probes->expected[i] = (struct expected){
            .layer = a->layer, .gradient = a->gradient, .cols = tensor_cols(a->truth), .format = a->truth.dtype,
            .sums = tensor_present(a->unrounded)
        };
        memcpy(probes->expected[i].name, a->name, sizeof a->name);
        activation_width_of(&t->plan.model, a->name, &probes->expected[i].width);
    }
    probes_share(t, probes->expected, (uint64_t)count * sizeof *probes->expected);
    /* Choices of experts have no truth to deliver: their entries stand after all tensors. */
    for (int l = 0, place = count; place < count + probes->routers; l++)
        if (layer_mlp(&t->plan.model, l) == MLP_MIXTURE)
            probes->expected[place++] = (struct expected){ .name = "router.experts", .layer = l, .format = I32,
                                                      .cols = t->plan.model.mixture.k, .width = WIDTH_CHOICES };
    deliver_all(probes, record, true);
    return OK;
}

/* ---- after a step ------------------------------------------------------------------------------------------------ */

enum error_code probes_collect(struct probes *probes, bool gradients,
                               void (*visit)(void *, int, int, const struct sums *), void *context, struct error *err)
{
    struct trainer *t = probes->trainer;
    /* sums [devices, count] on rank 0: every device sends the sums of all its tensors at once. */
    const uint64_t bytes = (uint64_t)probes->count * sizeof *probes->sums;
    if (t->comm->rank != 0) return comm_bring(t->comm, probes->sums, bytes, NULL, err);
    struct sums *all = malloc(bytes * (size_t)t->comm->size + 1);
    if (all == NULL) must(t, fail(err, ERR_MEMORY, "no memory for what %d devices found", t->comm->size), err);
    const enum error_code e = comm_bring(t->comm, probes->sums, bytes, all, err);
    for (int i = 0; i < probes->count && !e; i++)
        for (int r = 0; r < t->comm->size && probes->expected[i].gradient == gradients; r++) {
            const struct sums *s = &all[(int64_t)r * probes->count + i];
            if (s->expected > 0) visit(context, i, r, s);
        }
    free(all);
    return e;
}

/* This gives paste_run the whole tensor, one device's piece, and the bytes of an element. */
struct paste { char *whole; const char *piece; size_t size; };

static void paste_run(void *context, struct run run)
{
    const struct paste *p = context;
    memcpy(p->whole + (size_t)run.whole * p->size, p->piece + (size_t)run.piece * p->size,
           (size_t)run.length * p->size);
}

/* Send one device's part of one microbatch to rank 0. */
static void probes_bring(struct probes *probes, struct exchange *exchange, int i, int rank, int micro,
                         struct tensor whole)
{
    struct trainer *t = probes->trainer;
    struct error err;
    if (!computes(t, rank, &probes->expected[i], micro)) return;
    struct part part = probes_part_of(t, rank, &probes->expected[i], micro);
    const size_t size = dtype_size(probes->expected[i].format), bytes = (size_t)part_count(&part) * size;
    void *own = rank == t->comm->rank ? probes->shown[i * t->plan.micros + micro] : malloc(bytes + 1);
    if (own == NULL)
        must(t, fail(&err, ERR_MEMORY, "nothing to gather of %s on device %d", probes->expected[i].name, rank), &err);
    if (rank != t->comm->rank) must(t, message_wait(t->comm, message_receive(exchange, rank, own, bytes), &err), &err);
    else if (rank != 0) must(t, message_wait(t->comm, message_send(exchange, 0, own, bytes), &err), &err);
    struct paste into = { whole.data, own, size };
    if (t->comm->rank == 0) part_each_run(&part, paste_run, &into);
    if (rank != t->comm->rank) free(own);
    part_free(&part);
}

void probes_gather(struct probes *probes, int tensor, struct tensor whole)
{
    struct trainer *t = probes->trainer;
    const bool here = t->comm->rank == 0;
    struct exchange x = exchange_begin(&t->world, CONTROL);
    for (int rank = here ? 0 : t->comm->rank; rank < (here ? t->comm->size : t->comm->rank + 1); rank++)
        for (int micro = 0; micro < t->plan.micros; micro++) probes_bring(probes, &x, tensor, rank, micro, whole);
}

bool probes_have_copied(const struct probes *probes, int tensor)
{
    bool any = false;
    for (int rank = 0; rank < probes->trainer->comm->size && !any; rank++) {
        struct part part = copied_part_of(probes->trainer, rank, &probes->expected[tensor], 0);
        any = part.cols.count > 0;
        part_free(&part);
    }
    return any;
}

/* This gives add_run the whole tensor and one device's summand. */
struct adding { struct tensor whole, piece; };

static void add_run(void *context, struct run run)
{
    const struct adding *a = context;
    for (int64_t i = 0; i < run.length; i++)
        tensor_set(a->whole, run.whole + i,
                   tensor_get(a->whole, run.whole + i) + tensor_get(a->piece, run.piece + i));
}

/* Send one device's summand in one microbatch to rank 0, which adds it. */
static void bring_copied(struct probes *probes, struct exchange *exchange, int i, int rank, int micro,
                         struct tensor whole)
{
    struct trainer *t = probes->trainer;
    struct error err;
    struct part part = copied_part_of(t, rank, &probes->expected[i], micro);
    if (part.cols.count > 0 && computes(t, rank, &probes->expected[i], micro)) {
        const enum dtype format = probes->expected[i].format;
        const size_t bytes = (size_t)part_count(&part) * dtype_size(format);
        void *own = rank == t->comm->rank ? probes->copied[i * t->plan.micros + micro] : malloc(bytes + 1);
        if (own == NULL)
            must(t, fail(&err, ERR_MEMORY, "nothing to add to %s on device %d", probes->expected[i].name, rank), &err);
        if (rank != t->comm->rank)
            must(t, message_wait(t->comm, message_receive(exchange, rank, own, bytes), &err), &err);
        else if (rank != 0) must(t, message_wait(t->comm, message_send(exchange, 0, own, bytes), &err), &err);
        struct adding into = { whole, tensor_1d(own, format, part_count(&part)) };
        if (t->comm->rank == 0) part_each_run(&part, add_run, &into);
        if (rank != t->comm->rank) free(own);
    }
    part_free(&part);
}

void probes_add_copied(struct probes *probes, int tensor, struct tensor whole)
{
    struct trainer *t = probes->trainer;
    const bool here = t->comm->rank == 0;
    struct exchange x = exchange_begin(&t->world, CONTROL);
    for (int rank = here ? 0 : t->comm->rank; rank < (here ? t->comm->size : t->comm->rank + 1); rank++)
        for (int micro = 0; micro < t->plan.micros; micro++) bring_copied(probes, &x, tensor, rank, micro, whole);
}

const void *probes_own_copied(const struct probes *probes, int tensor, int micro, struct part *part)
{
    const struct trainer *t = probes->trainer;
    const void *own = probes->copied[tensor * t->plan.micros + micro];
    if (own) *part = copied_part_of(t, t->comm->rank, &probes->expected[tensor], micro);
    return own;
}

const void *probes_own(const struct probes *probes, int tensor, int micro, struct part *part)
{
    const struct trainer *t = probes->trainer;
    if (!computes(t, t->comm->rank, &probes->expected[tensor], micro)) return NULL;
    *part = probes_part_of(t, t->comm->rank, &probes->expected[tensor], micro);
    return probes->shown[tensor * t->plan.micros + micro];
}

/* ---- choices of experts ------------------------------------------------------------------------------------------ */

void probes_gather_routes(struct probes *probes, int32_t *experts)
{
    const struct plan *plan = &probes->trainer->plan;
    const int64_t N = plan->B * plan->S, k = plan->model.mixture.k;
    /* experts [L, N, k]: each mixture layer fills its own part. */
    for (int i = probes->count; i < probes->count + probes->routers; i++)
        probes_gather(probes, i, tensor_2d(experts ? experts + probes->expected[i].layer * N * k : NULL, I32, N, k));
}

int32_t *probes_share_routes(struct probes *probes)
{
    const struct plan *plan = &probes->trainer->plan;
    const size_t bytes = (size_t)(plan->model.L * plan->B * plan->S * plan->model.mixture.k) * sizeof (int32_t);
    int32_t *experts = malloc(bytes + 1);
    struct error err;
    if (comm_agree(probes->trainer->comm, experts ? OK : fail(&err, ERR_MEMORY, "no memory for choices"), &err)) {
        free(experts);
        return NULL;
    }
    probes_gather_routes(probes, experts);
    probes_share(probes->trainer, experts, bytes);
    return experts;
}

void probes_compare_again(struct probes *probes, const struct recording *record)
{
    struct trainer *t = probes->trainer;
    int again = record != NULL;
    probes_share(t, &again, sizeof again);
    if (!again) return;
    /* The sums start again at zero.  Their `expected` counts are set anew by the second delivery. */
    memset(probes->sums, 0, (size_t)probes->count * sizeof *probes->sums);
    /* Sums are not kept beyond the moment at which a tensor is shown. */
    deliver_all(probes, record, false);
    for (int i = 0; i < probes->count; i++)
        for (int micro = 0; micro < t->plan.micros; micro++) {
            const int at = i * t->plan.micros + micro;
            if (probes->part[at] == NULL || probes->shown[at] == NULL) continue;
            struct part part = probes_part_of(t, t->comm->rank, &probes->expected[i], micro);
            const int64_t rows = intervals_total(&part.rows), cols = intervals_total(&part.cols);
            add_up(&probes->sums[i], tensor_2d(probes->shown[at], probes->expected[i].format, rows, cols),
                   tensor_2d(probes->part[at], probes->expected[i].format, rows, cols));
            part_free(&part);
        }
}

int probes_device_of(const struct probes *probes, int layer, int64_t row)
{
    const struct trainer *t = probes->trainer;
    const struct expected *e = &probes->expected[probes->count];
    /* Entries of choices stand in the order of layers, after the tensors; the layer must be a mixture. */
    while (e->layer != layer) e++;
    for (int rank = 0; rank < t->comm->size; rank++)
        for (int micro = 0; micro < t->plan.micros; micro++) {
            if (!computes(t, rank, e, micro)) continue;
            struct part part = probes_part_of(t, rank, e, micro);
            bool has = false;
            for (int i = 0; i < part.rows.count; i++)
                has = has || (row >= part.rows.at[i].first && row < interval_end(part.rows.at[i]));
            part_free(&part);
            if (has) return rank;
        }
    return 0;
}
