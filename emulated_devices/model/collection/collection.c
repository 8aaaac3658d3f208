/* collection.c -- lists the tensors of a job, and computes who has, wants and writes which boxes.
 * model/checkpoint/sharded/, moves.c, transfer.c and cli/reshard.c call.  ERR_MEMORY, and ERR_CHECK where a plan's
 * devices together do not have a whole tensor. */
#include "emulated_devices/model/collection/collection.h"
#include "emulated_devices/model/collection/holding.h"
#include "emulated_devices/model/checkpoint/checkpoint_states.h"
#include "emulated_devices/model/collection/progress.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* A kind of tensor of every parameter. */
struct of_every { struct state_tensor state; bool weights, rounded; };

static void add_parameter(struct collection *collection, int index, const struct of_every *of)
{
    struct trainer *const trainer = collection->trainer;
    const struct param_spec own = trainer_spec(trainer, index), spec = data_spec(&trainer->data, &own, of->state.kind);
    struct named_tensor *const t = &collection->tensor[collection->count];
    /* Some parameters do not have this state. */
    if (spec.ndim == 0) return;
    *t = (struct named_tensor){ .index = index, .kind = of->state.kind, .replica = of->state.replica,
                                .common = kind_is_common(of->state.kind), .weights = of->weights,
                                .rounded = of->rounded, .format = data_format(&trainer->data, of->state.kind),
                                .ndim = spec.ndim };
    snprintf(t->name, sizeof t->name, "%s%s", own.name, of->state.suffix);
    memcpy(t->dim, spec.dim, sizeof *t->dim * (size_t)spec.ndim);
    collection->count++;
}

/* An encoder's parameter; encoders have one state for each weight, as plan_check_encoders says. */
static void add_of_encoder(struct collection *collection, int modality, enum encoder_param param,
                           const struct of_every *of)
{
    struct trainer *const trainer = collection->trainer;
    const struct param_spec spec = encoder_spec(&modalities[modality], trainer->plan.model.D, param);
    struct named_tensor *const t = &collection->tensor[collection->count++];
    *t = (struct named_tensor){ .index = (int)param, .encoder = 1 + modality, .kind = of->state.kind,
                                .common = true, .weights = of->weights, .rounded = of->rounded,
                                .format = data_format(&trainer->data, of->state.kind), .ndim = spec.ndim };
    snprintf(t->name, sizeof t->name, "%s%s", spec.name, of->state.suffix);
    memcpy(t->dim, spec.dim, sizeof *t->dim * (size_t)spec.ndim);
}

static void add_of_every(struct collection *collection, const struct of_every *of)
{
    const struct plan *const p = &collection->trainer->plan;
    for (int i = 0; i < model_param_count(&p->model); i++) add_parameter(collection, i, of);
    for (int n = 0; n < p->encoders.kinds * ENCODER_PARAMS; n++)
        add_of_encoder(collection, n / ENCODER_PARAMS, (enum encoder_param)(n % ENCODER_PARAMS), of);
}

static void add_job(struct collection *collection, enum job_tensor job, const char *name, int64_t numbers)
{
    if (numbers > 0)
        collection->tensor[collection->count] = (struct named_tensor){
            .index = -1, .job = job, .common = true, .format = F64, .ndim = 1, .dim = { numbers } };
    if (numbers > 0) snprintf(collection->tensor[collection->count++].name, TENSOR_NAME, "%s", name);
}

/* With masters of 16-bit or quantised weights, devices that step weights round them anew; the others want them
 * rounded. */
static void list_weights(struct collection *collection)
{
    const struct trainer *const trainer = collection->trainer;
    struct of_every weights = { .state = checkpoint_weights(trainer), .weights = true };
    struct of_every rounded = { .state = { .kind = KIND_WEIGHT, .suffix = ".rounded" }, .rounded = true };
    const bool masters = data_has_masters(&trainer->data);
    if (collection->use == FOR_DEVICES && !masters) weights.state.kind = KIND_WEIGHT;
    add_of_every(collection, &weights);
    if (collection->use == FOR_DEVICES && masters) add_of_every(collection, &rounded);
}

enum error_code collection_open(struct collection *collection, struct trainer *trainer, enum collection_use use,
                                int replicas, struct error *err)
{
    const int states = checkpoint_states(trainer, replicas, NULL);
    const int params = model_param_count(&trainer->plan.model) + trainer->plan.encoders.kinds * ENCODER_PARAMS;
    const size_t most = (size_t)params * (size_t)(states + 2) + 2;
    struct state_tensor *const list = malloc((size_t)states * sizeof *list + 1);
    *collection = (struct collection){ .trainer = trainer, .use = use };
    collection->tensor = calloc(most, sizeof *collection->tensor);
    if (list == NULL || collection->tensor == NULL) {
        free(list);
        return fail(err, ERR_MEMORY, "no memory for a list of %zu tensors", most);
    }
    checkpoint_states(trainer, replicas, list);
    list_weights(collection);
    for (int s = 0; s < states; s++)
        add_of_every(collection, &(struct of_every){ .state = list[s], .weights = list[s].kind == KIND_MASTER });
    free(list);
    if (use == FOR_FILES) return OK;
    add_job(collection, JOB_PROGRESS, "job.progress", PROGRESS_NUMBERS);
    add_job(collection, JOB_ROUTER_BIAS, "job.router_bias", progress_biases(&trainer->plan.model));
    return OK;
}

void collection_close(struct collection *collection)
{
    free(collection->tensor);
    *collection = (struct collection){ 0 };
}

int collection_find(const struct collection *collection, const char *name)
{
    for (int i = 0; i < collection->count; i++)
        if (strcmp(collection->tensor[i].name, name) == 0) return i;
    return -1;
}

size_t collection_size(const struct collection *collection, int tensor)
{
    return dtype_size(collection->tensor[tensor].format);
}

uint64_t collection_bytes(const struct collection *collection)
{
    uint64_t bytes = 0;
    for (int i = 0; i < collection->count; i++) {
        const struct named_tensor *const t = &collection->tensor[i];
        uint64_t n = dtype_size(t->format);
        for (int d = 0; d < t->ndim; d++) n *= (uint64_t)t->dim[d];
        bytes += n;
    }
    return bytes;
}

/* ---- who has what ------------------------------------------------------------------------------------------------ */

/* Append what is kept of a layout, without what is kept of its masters. */
static void add_without(struct boxes *boxes, const struct layout *layout, struct interval kept,
                        struct interval masters)
{
    const struct interval less = interval_meet(kept, masters);
    if (less.count == 0) boxes_add_layout(boxes, layout, kept);
    else {
        boxes_add_layout(boxes, layout, (struct interval){ kept.first, less.first - kept.first });
        boxes_add_layout(boxes, layout,
                         (struct interval){ interval_end(less), interval_end(kept) - interval_end(less) });
    }
}

/* Append what a rank keeps of one kind, without what it keeps of another. */
static enum error_code add_kept(const struct trainer *section, const struct named_tensor *tensor, int rank, int tile,
                                enum tensor_kind kind, bool without_masters, struct boxes *boxes, struct error *err)
{
    struct holding held, masters = { .replica = 0 };
    enum error_code e = holding_of(section, rank, tensor->index, tile, kind, &held, err);
    if (!e && without_masters) e = holding_of(section, rank, tensor->index, tile, KIND_MASTER, &masters, err);
    if (e || (!tensor->common && held.replica != tensor->replica)) return e;
    add_without(boxes, &held.layout, held.kept, masters.kept);
    return OK;
}

static enum error_code add_kept_of_encoder(const struct trainer *trainer, const struct named_tensor *tensor, int rank,
                                           enum tensor_kind kind, bool without_masters, struct boxes *boxes,
                                           struct error *err)
{
    const struct layout whole = layout_whole(tensor->ndim, tensor->dim);
    const enum encoder_param param = (enum encoder_param)tensor->index;
    struct interval kept, masters = { 0 };
    enum error_code e = encoder_kept(trainer, tensor->encoder - 1, rank, param, kind, &kept, err);
    if (!e && without_masters)
        e = encoder_kept(trainer, tensor->encoder - 1, rank, param, KIND_MASTER, &masters, err);
    if (!e) add_without(boxes, &whole, kept, masters);
    return e;
}

static enum error_code add_of_rank(const struct collection *collection, int tensor, int rank, enum tensor_kind kind,
                                   bool without_masters, struct boxes *boxes, struct error *err)
{
    const struct named_tensor *const t = &collection->tensor[tensor];
    struct trainer *section;
    enum error_code e = OK;
    if (t->job) {
        const struct layout whole = layout_whole(t->ndim, t->dim);
        if (mesh_has(&collection->trainer->plan.mesh, rank)) boxes_add(boxes, &whole.box[0], t->ndim);
    }
    if (t->encoder) e = add_kept_of_encoder(collection->trainer, t, rank, kind, without_masters, boxes, err);
    for (int s = 0; !t->job && !t->encoder && (section = trainer_section(collection->trainer, s)) != NULL; s++) {
        const struct param_spec spec = trainer_spec(section, t->index);
        if (!holding_exists(section, rank, &spec, NULL)) continue;
        const int tiles = data_keeps_whole(&section->data, kind) ? 1 : tiles_of(&section->plan.data, &spec);
        for (int tile = 0; tile < tiles && !e; tile++)
            e = add_kept(section, t, rank, tile, kind, without_masters, boxes, err);
    }
    return e ? e : boxes_lost(boxes) ? fail(err, ERR_MEMORY, "no memory for the boxes of %s", t->name) : OK;
}

static int rank_of_device(const struct collection *collection, int device)
{
    return collection->place ? collection->place[device] : device;
}

int collection_place(const struct collection *collection, int device)
{
    return collection->losses && losses_has(collection->losses, device) ? -1 : rank_of_device(collection, device);
}

static enum error_code add_own(const struct collection *collection, int tensor, int rank, struct boxes *boxes,
                               struct error *err)
{
    return add_of_rank(collection, tensor, rank, collection->tensor[tensor].kind, false, boxes, err);
}

enum error_code collection_has(const struct collection *collection, int tensor, int device, struct boxes *boxes,
                               struct error *err)
{
    const struct losses *const l = collection->losses;
    const int rank = collection_place(collection, device);
    enum error_code e = rank < 0 ? OK : add_own(collection, tensor, rank, boxes, err);
    for (int i = 0; l && i < l->count && !e && rank >= 0; i++) {
        const int gone = rank_of_device(collection, l->device[i]);
        if (gone >= 0 && collection_keeper(collection, gone) == rank)
            e = collection_only(collection, tensor, gone, boxes, err);
    }
    return e;
}

int collection_keeper(const struct collection *collection, int rank)
{
    const struct plan *const p = &collection->trainer->plan;
    const int devices = p->mesh.devices;
    const int node = p->cluster && p->cluster->levels > 1 ? p->cluster->link[p->cluster->levels - 2].devices : 0;
    /* A whole node can be lost, so the keeper is on the next one if there is another. */
    return (rank + (node > 0 && node < devices ? node : 1)) % devices;
}

enum error_code collection_only(const struct collection *collection, int tensor, int rank, struct boxes *boxes,
                                struct error *err)
{
    const int ndim = collection->tensor[tensor].ndim;
    struct boxes own = { 0 };
    enum error_code e = add_own(collection, tensor, rank, &own, err);
    for (int r = 0; r < collection->trainer->plan.mesh.devices && !e && own.count > 0; r++) {
        struct boxes other = { 0 };
        if (r == rank) continue;
        e = add_own(collection, tensor, r, &other, err);
        boxes_subtract_all(&own, &other, ndim);
        boxes_free(&other);
    }
    boxes_add_all(boxes, &own, ndim);
    if (!e && (boxes_lost(&own) || boxes_lost(boxes)))
        e = fail(err, ERR_MEMORY, "no memory for the boxes of %s", collection->tensor[tensor].name);
    boxes_free(&own);
    return e;
}

enum error_code collection_wants(const struct collection *collection, int tensor, int device, struct boxes *boxes,
                                 struct error *err)
{
    const struct named_tensor *const t = &collection->tensor[tensor];
    const bool all = collection->use == FOR_FILES && t->weights;
    const int rank = collection_place(collection, device);
    if (rank < 0) return OK;
    return add_of_rank(collection, tensor, rank, all ? KIND_WEIGHT : t->kind, t->rounded, boxes, err);
}

/* ---- who writes what --------------------------------------------------------------------------------------------- */

/* Share a list among the ranks that have the same one. */
static void share_alike(const struct boxes *list, int rank, const struct boxes *left, int ndim, struct boxes *out,
                        int ranks)
{
    int alike = 0, at = 0;
    for (int r = rank; r < ranks; r++) alike += boxes_equal(&list[r], &list[rank], ndim);
    for (int r = rank; r < ranks; r++)
        if (boxes_equal(&list[r], &list[rank], ndim))
            boxes_add_part(&out[r], left, ndim, block_at(boxes_total(left, ndim), alike, at++));
}

/* The first rank of each different list takes what earlier lists have left. */
static void share_all(const struct boxes *list, int ndim, const int64_t dim[], struct boxes *out, int ranks,
                      int64_t *left_over)
{
    const struct layout whole = layout_whole(ndim, dim);
    struct boxes free_ones = { 0 };
    boxes_add(&free_ones, &whole.box[0], ndim);
    for (int r = 0; r < ranks; r++) {
        bool seen = list[r].count == 0;
        for (int before = 0; before < r && !seen; before++) seen = boxes_equal(&list[before], &list[r], ndim);
        if (seen) continue;
        struct boxes own = { 0 };
        struct box both;
        for (int b = 0; b < list[r].count; b++) {
            struct boxes part = { 0 };
            for (int f = 0; f < free_ones.count; f++)
                if (box_meet(&list[r].at[b], &free_ones.at[f], ndim, &both)) boxes_add(&part, &both, ndim);
            boxes_add_all(&own, &part, ndim);
            boxes_free(&part);
        }
        boxes_subtract_all(&free_ones, &list[r], ndim);
        share_alike(list, r, &own, ndim, out, ranks);
        if (boxes_lost(&own)) boxes_add_all(&out[r], &own, ndim);
        boxes_free(&own);
    }
    *left_over = boxes_lost(&free_ones) ? -1 : boxes_total(&free_ones, ndim);
    boxes_free(&free_ones);
}

enum error_code collection_writes(const struct collection *collection, int tensor, struct boxes *boxes, int ranks,
                                  struct error *err)
{
    const struct named_tensor *const t = &collection->tensor[tensor];
    struct boxes *const list = calloc((size_t)ranks, sizeof *list);
    enum error_code e = list ? OK : fail(err, ERR_MEMORY, "no memory for the boxes of %s", t->name);
    int64_t left = 0;
    for (int r = 0; r < ranks && !e; r++) e = collection_has(collection, tensor, r, &list[r], err);
    if (!e) share_all(list, t->ndim, t->dim, boxes, ranks, &left);
    bool lost = left < 0;
    for (int r = 0; r < ranks && !e; r++) lost = lost || boxes_lost(&boxes[r]);
    for (int r = 0; r < ranks && list; r++) boxes_free(&list[r]);
    free(list);
    if (!e && lost) e = fail(err, ERR_MEMORY, "no memory for the boxes of %s", t->name);
    if (!e && left > 0)
        e = fail(err, ERR_CHECK, "%s: no device of the plan has %lld of its elements", t->name, (long long)left);
    return e;
}
