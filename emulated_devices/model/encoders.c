/* encoders.c -- runs the encoders of inputs other than text, and moves their rows to the first stage.
 * model/trainer.c calls in each step, model/trainer_batch.c for each batch.  model/encoders_open.c opens and closes.
 * Without memory the code is ERR_MEMORY; errors of messages are passed on. */
#include "emulated_devices/model/encoders.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/trainer.h"
#include "emulated_devices/plan/sections.h"
#include "ref/model/trained.h"
#include <stdlib.h>
#include <string.h>

static enum error_code encoders_no_memory(struct error *err) { return fail(err, ERR_MEMORY, "no memory for encoders"); }
static int64_t width(const struct trainer *trainer) { return trainer->plan.model.D; }
static int devices(const struct trainer *trainer) { return trainer->comm->size; }

/* ---- a batch ends ------------------------------------------------------------------------------------------------ */

static void free_tensors(struct trainer *trainer, struct tensor list[], int n)
{
    for (int i = 0; i < n; i++) {
        if (tensor_present(list[i])) device_free(trainer->device, list[i]);
        list[i] = tensor_none;
    }
}

/* Clips enter at the embedding, which the first of several sections has. */
static struct stage *first_stage(struct trainer *trainer)
{
    const struct trainer *const enters = trainer_of_layer(trainer, -1);
    for (int c = 0; c < enters->stages_open; c++)
        if (enters->stage[c].first) return &enters->stage[c];
    return NULL;
}

/* Rows of the first stage's microbatches. */
static void drop_places(struct trainer *trainer)
{
    struct stage *s = first_stage(trainer);
    for (int i = 0; s && i < trainer->plan.micros; i++) {
        free(s->micro[i].patch), s->micro[i].patch = NULL;
        free_tensors(trainer, &s->micro[i].patches, 1), free_tensors(trainer, &s->micro[i].d_patches, 1);
    }
}

void encoders_drop_batch(struct trainer *trainer)
{
    struct encoders *x = &trainer->encoders;
    if (trainer->plan.encoders.kinds == 0) return;
    clips_free(&x->clips);
    free(x->device), free(x->source), free(x->home);
    x->device = x->source = x->home = NULL;
    for (int d = 0; d < devices(trainer) && x->needs; d++) free(x->needs[d].of), x->needs[d] = (struct needs){ 0 };
    for (int m = 0; m < MODALITIES; m++) {
        struct encoder *const e = &x->of[m];
        struct tensor *const list[] = { &e->x, &e->up, &e->act, &e->out, &e->d_out };
        for (size_t i = 0; i < sizeof list / sizeof *list; i++) free_tensors(trainer, list[i], 1);
    }
    drop_places(trainer);
}

/* ---- who needs which rows ---------------------------------------------------------------------------------------- */

/* The patch of each row of the batch, or -1. */
static int32_t *patch_of_rows(const struct clips *clips, int64_t rows)
{
    int32_t *at = malloc((size_t)rows * sizeof *at);
    for (int64_t n = 0; at && n < rows; n++) at[n] = -1;
    for (int i = 0; at && i < clips->count; i++)
        for (int64_t k = 0; k < clips->clip[i].count; k++)
            at[clips->clip[i].row + k] = (int32_t)(clips->clip[i].first + k);
    return at;
}

static int by_patch(const void *a, const void *b)
{
    const struct needed *x = a, *y = b;
    return (x->patch > y->patch) - (x->patch < y->patch);
}

/* Whether a microbatch enters the pipeline on this device. */
static bool enters(const struct trainer *trainer, int rank, int micro)
{
    return place_of(&trainer->schedule, micro, 0).device == plan_place(&trainer->plan, rank);
}

/* The rows of the stream on one device that are patches. */
static enum error_code find_needs(struct trainer *trainer, int rank, const int32_t *patch, struct error *err)
{
    const struct plan *const plan = &trainer_of_layer(trainer, -1)->plan;
    struct needs *n = &trainer->encoders.needs[rank];
    n->of = malloc((size_t)(trainer->encoders.clips.patches + 1) * sizeof *n->of);
    bool ok = n->of;
    if (ok && !mesh_has(&plan->mesh, rank)) return OK;
    const struct tensor_parallel share = plan_tensor_share(plan, rank);
    for (int i = 0; i < plan->micros && ok; i++) {
        struct intervals rows = plan_rows(plan, rank, i);
        const struct interval own = tensor_rows_at(&share, STREAM, intervals_total(&rows));
        int64_t at = 0;
        ok = !intervals_lost(&rows);
        for (int k = 0; k < rows.count && enters(trainer, rank, i); k++)
            for (int64_t row = rows.at[k].first; row < interval_end(rows.at[k]); row++, at++)
                /* Only the rows of the stream that tp leaves to this device count. */
                if (patch[row] >= 0 && at >= own.first && at < interval_end(own))
                    n->of[n->count++] = (struct needed){ patch[row], i, (int32_t)(at - own.first) };
        intervals_free(&rows);
    }
    if (ok) qsort(n->of, (size_t)n->count, sizeof *n->of, by_patch);
    return ok ? OK : encoders_no_memory(err);
}

static const struct needed *need_of(const struct needs *needs, int64_t patch)
{
    const struct needed key = { .patch = (int32_t)patch };
    return needs->count ? bsearch(&key, needs->of, (size_t)needs->count, sizeof *needs->of, by_patch) : NULL;
}

/* ---- who encodes which clips ------------------------------------------------------------------------------------- */

/* With encoders on all devices those encode a clip that have its copy of the batch, whatever they have of the model. */
static bool may_encode(const struct trainer *trainer, const struct clip *clip, int device)
{
    const struct encoder_request *const request = &trainer->plan.encoders;
    if (!encoder_is_on(request, devices(trainer), clip->modality, device)) return false;
    if (request->placement == ENCODERS_APART) return true;
    const struct plan *const p = plan_of_device(&trainer->plan, device);
    const int64_t sequence = clip->row / p->S;
    for (int i = 0; i < p->micros; i++) {
        const struct interval own = plan_microbatch(p, mesh_coordinate(&p->mesh, device, DP), i);
        if (sequence >= own.first && sequence < interval_end(own)) return true;
    }
    return false;
}

static enum error_code share_out(struct trainer *trainer, struct error *err)
{
    struct encoders *x = &trainer->encoders;
    const int P = devices(trainer);
    const size_t pairs = (size_t)(x->clips.count * P) + 1;
    bool *may = calloc(pairs, sizeof *may), *need = calloc(pairs, sizeof *need);
    enum error_code e = may && need ? OK : encoders_no_memory(err);
    for (int i = 0; i < x->clips.count && !e; i++)
        for (int d = 0; d < P; d++) {
            may[i * P + d] = may_encode(trainer, &x->clips.clip[i], d);
            need[i * P + d] = need_of(&x->needs[d], x->clips.clip[i].first) != NULL;
        }
    if (!e) e = clips_share_out(&x->clips, width(trainer), P, x->request->slack, may, need, x->device, err);
    free(may), free(need);
    return e;
}

enum error_code encoders_read(struct trainer *trainer, int32_t *ids, int32_t *labels, const int32_t *within, bool marks,
                              struct error *err)
{
    struct encoders *x = &trainer->encoders;
    const struct plan *p = &trainer->plan;
    if (p->encoders.kinds == 0) return OK;
    const enum error_code e = p->encoders.given
        ? clips_of_tokens(&x->clips, p->B, p->S, ids, err)
        : clips_of_step(&x->clips, p->encoders.kinds, p->encoders.only, p->seed, trainer->step, p->B, p->S, within,
                        err);
    if (!e && marks && ids) clips_mark(&x->clips, 0, p->B * p->S, ids, labels);
    return e;
}

enum error_code encoders_place(struct trainer *trainer, struct error *err)
{
    struct encoders *x = &trainer->encoders;
    const struct plan *p = &trainer->plan;
    enum error_code e = OK;
    if (p->encoders.kinds == 0) return OK;
    int32_t *const patch = patch_of_rows(&x->clips, p->B * p->S);
    x->device = calloc((size_t)x->clips.count + 1, sizeof *x->device);
    x->source = calloc((size_t)x->clips.patches + 1, sizeof *x->source);
    x->home = calloc((size_t)x->clips.patches + 1, sizeof *x->home);
    if (!patch || !x->device || !x->source || !x->home) e = encoders_no_memory(err);
    for (int d = 0; d < devices(trainer) && !e; d++) e = find_needs(trainer, d, patch, err);
    if (!e) e = share_out(trainer, err);
    for (int i = 0; i < x->clips.count && !e; i++)
        for (int64_t f = x->clips.clip[i].first; f < x->clips.clip[i].first + x->clips.clip[i].count; f++) {
            /* Several devices may need a patch; the first of them sends its gradient back. */
            x->source[f] = x->device[i], x->home[f] = 0;
            while (!need_of(&x->needs[x->home[f]], f)) x->home[f]++;
        }
    free(patch);
    return e;
}

/* ---- rows of patches --------------------------------------------------------------------------------------------- */

static bool encodes(const struct trainer *trainer, int clip, int modality)
{
    return trainer->encoders.device[clip] == trainer->comm->rank
           && trainer->encoders.clips.clip[clip].modality == modality;
}

int64_t encoder_own_patches(const struct trainer *trainer, int modality)
{
    int64_t n = 0;
    for (int i = 0; i < trainer->encoders.clips.count; i++)
        if (encodes(trainer, i, modality)) n += trainer->encoders.clips.clip[i].count;
    return n;
}

/* A patch's row in this device's tensors of embeddings, or of their gradients. */
static char *encoded_row(const struct trainer *trainer, int64_t patch, bool gradient)
{
    const struct encoders *x = &trainer->encoders;
    int64_t at[MODALITIES] = { 0 };
    for (int i = 0; i < x->clips.count; i++) {
        const struct clip *c = &x->clips.clip[i];
        if (x->device[i] != trainer->comm->rank) continue;
        /* Own clips lie one after another in the tensor of their modality. */
        if (patch < c->first || patch >= c->first + c->count) {
            at[c->modality] += c->count;
            continue;
        }
        const struct tensor rows = gradient ? x->of[c->modality].d_out : x->of[c->modality].out;
        return tensor_rows_of(rows, at[c->modality] + patch - c->first, 1).data;
    }
    return NULL;
}

/* A patch's row in the memory of a device that needs it. */
static char *needed_row(struct trainer *trainer, int64_t patch, bool gradient)
{
    const struct needed *n = need_of(&trainer->encoders.needs[trainer->comm->rank], patch);
    const struct microbatch *m = &first_stage(trainer)->micro[n->micro];
    return tensor_rows_of(gradient ? m->d_patches : m->patches, m->patch[n->row], 1).data;
}

/* ---- the bridge -------------------------------------------------------------------------------------------------- */

enum way { THERE, BACK };

/* Whether a patch crosses from one device to another: from its encoder to all that need it; back from one of these. */
static bool crosses(const struct trainer *trainer, enum way way, int64_t patch, int from, int to)
{
    const struct encoders *x = &trainer->encoders;
    if (way == BACK) return x->home[patch] == from && x->source[patch] == to;
    return x->source[patch] == from && need_of(&x->needs[to], patch);
}

static void encoders_count_rows(const struct trainer *trainer, enum way way, struct interval chunk, int64_t to[],
                                int64_t from[])
{
    for (int d = 0; d < devices(trainer); d++) {
        to[d] = from[d] = 0;
        for (int64_t f = chunk.first; f < interval_end(chunk); f++) {
            to[d] += crosses(trainer, way, f, trainer->comm->rank, d) ? width(trainer) : 0;
            from[d] += crosses(trainer, way, f, d, trainer->comm->rank) ? width(trainer) : 0;
        }
    }
}

static int64_t encoders_sum_of(const int64_t n[], int count)
{
    int64_t sum = 0;
    for (int i = 0; i < count; i++) sum += n[i];
    return sum;
}

/* Copy the rows of a chunk between where they are and a buffer, in which they lie by device, then by patch. */
static void encoders_pack(struct trainer *trainer, enum way way, struct interval chunk, struct tensor buffer,
                          bool sending)
{
    const size_t row = (size_t)width(trainer) * dtype_size(buffer.dtype);
    char *at = buffer.data;
    for (int d = 0; d < devices(trainer); d++)
        for (int64_t f = chunk.first; f < interval_end(chunk); f++) {
            const int from = sending ? trainer->comm->rank : d, to = sending ? d : trainer->comm->rank;
            if (!crosses(trainer, way, f, from, to)) continue;
            /* The encoder's side sends on the way there, and receives on the way back. */
            const bool encoded = (way == THERE) == sending;
            char *const own = encoded ? encoded_row(trainer, f, way == BACK) : needed_row(trainer, f, way == BACK);
            device_copy(trainer->device, sending ? at : own, sending ? own : at, row);
            at += row;
        }
}

static enum error_code cross_chunk(struct trainer *trainer, enum way way, struct interval chunk, struct error *err)
{
    struct encoders *x = &trainer->encoders;
    const enum dtype own = trainer->device->dtype;
    int64_t to[MESH_MOST_LISTED], from[MESH_MOST_LISTED];
    encoders_count_rows(trainer, way, chunk, to, from);
    struct tensor out = device_tensor_in(trainer->device, BUFFERS, own, encoders_sum_of(to, devices(trainer))),
                  in = device_tensor_in(trainer->device, BUFFERS, own, encoders_sum_of(from, devices(trainer)));
    struct collective call = { .in = out.data, .out = in.data, .counts = to, .recvcounts = from, .dtype = own };
    enum error_code e = out.data && in.data ? OK : encoders_no_memory(err);
    if (!e) encoders_pack(trainer, way, chunk, out, true), e = collective_run(&x->world, ALLTOALL, NULL, &call, err);
    if (!e) encoders_pack(trainer, way, chunk, in, false);
    /* The forecast of the bridge is counted as it is sent, because each batch has other clips. */
    account_add(&x->bridged, group_cost(&x->world, ALLTOALL, NULL, &call), 1);
    if (tensor_bytes(out) + tensor_bytes(in) > x->peak) x->peak = tensor_bytes(out) + tensor_bytes(in);
    device_free(trainer->device, out), device_free(trainer->device, in);
    return e;
}

static enum error_code cross(struct trainer *trainer, enum way way, struct error *err)
{
    const int chunks = trainer->plan.encoders.chunks > 0 ? trainer->plan.encoders.chunks : 1;
    enum error_code e = OK;
    for (int i = 0; i < chunks && !e; i++)
        e = cross_chunk(trainer, way, block_at(trainer->encoders.clips.patches, chunks, i), err);
    return e;
}

/* Tables and memory of the first stage's microbatches. */
static enum error_code make_places(struct trainer *trainer, struct error *err)
{
    const struct needs *n = &trainer->encoders.needs[trainer->comm->rank];
    struct stage *s = first_stage(trainer);
    bool ok = true;
    for (int i = 0; s && i < trainer->plan.micros && ok; i++) {
        struct microbatch *m = &s->micro[i];
        const int64_t rows = tensor_rows_at(s->tp, STREAM, m->N).count;
        int32_t count = 0;
        m->patch = malloc((size_t)(rows + 1) * sizeof *m->patch);
        for (int64_t k = 0; m->patch && k < rows; k++) m->patch[k] = -1;
        for (int k = 0; m->patch && k < n->count; k++)
            if (n->of[k].micro == i) m->patch[n->of[k].row] = count++;
        m->patches = device_tensor_2d(trainer->device, ACTIVATIONS, count, width(trainer));
        m->d_patches = device_tensor_2d(trainer->device, ACTIVATIONS, count, width(trainer));
        ok = m->patch && m->patches.data && m->d_patches.data;
    }
    return ok ? OK : encoders_no_memory(err);
}

/* ---- the encoders ------------------------------------------------------------------------------------------------ */

/* A parameter, or its gradient, as the data scheme has made them whole. */
static struct tensor weight_of(const struct encoder *encoder, enum encoder_param param)
{
    return encoder->parameters.all[param].w;
}

static struct tensor gradient_of(const struct encoder *encoder, enum encoder_param param)
{
    return encoder->parameters.all[param].g;
}

static void draw_patches(struct trainer *trainer, int m)
{
    struct encoders *x = &trainer->encoders;
    struct views v = views_of(trainer->device);
    const struct tensor all = view_write(&v, x->of[m].x);
    for (int64_t i = 0, at = 0; i < x->clips.count; i++) {
        const struct clip *c = &x->clips.clip[i];
        /* Patches are drawn from the clip's own numbers, so it does not matter which device draws them. */
        if (encodes(trainer, (int)i, m))
            clip_draw(c, trainer->plan.seed, trainer->step, tensor_rows_of(all, at, c->count)), at += c->count;
    }
    views_end(&v);
}

static bool make_rows(struct trainer *trainer, struct tensor *t, int64_t rows, int64_t columns)
{
    *t = device_tensor_2d(trainer->device, ACTIVATIONS, rows, columns);
    return t->data != NULL;
}

/* The inner activations, which are kept for the backward pass or computed again before it. */
static enum error_code encode_inner(struct trainer *trainer, int m, int64_t n, struct error *err)
{
    struct encoder *const e = &trainer->encoders.of[m];
    const int64_t F = modalities[m].F;
    if (!make_rows(trainer, &e->up, n, F) || !make_rows(trainer, &e->act, n, F)) return encoders_no_memory(err);
    if (n == 0) return OK;
    dev_linear_forward(trainer->device, e->up, e->x, weight_of(e, ENCODER_UP_W), weight_of(e, ENCODER_UP_B));
    dev_gelu_forward(trainer->device, e->act, e->up);
    return OK;
}

static void drop_inner(struct trainer *trainer, int m)
{
    free_tensors(trainer, &trainer->encoders.of[m].up, 1), free_tensors(trainer, &trainer->encoders.of[m].act, 1);
}

/* A device without a clip takes part in gathering the weights all the same. */
static enum error_code encoders_encode(struct trainer *trainer, int m, struct error *err)
{
    struct encoder *const x = &trainer->encoders.of[m];
    const int64_t n = encoder_own_patches(trainer, m);
    enum error_code e = data_acquire(&x->data, ENCODER_PART, err);
    if (e) return e;
    if (!make_rows(trainer, &x->x, n, modalities[m].C)) return encoders_no_memory(err);
    draw_patches(trainer, m);
    e = encode_inner(trainer, m, n, err);
    if (e) return e;
    if (!make_rows(trainer, &x->out, n, width(trainer))) return encoders_no_memory(err);
    if (n > 0)
        dev_linear_forward(trainer->device, x->out, x->act, weight_of(x, ENCODER_OUT_W), weight_of(x, ENCODER_OUT_B));
    if (encoders_recompute(&trainer->plan)) drop_inner(trainer, m);
    data_release(&x->data, ENCODER_PART);
    e = data_acquire(&x->data, ENCODER_REST, err);
    if (!e) data_release(&x->data, ENCODER_REST);
    return e;
}

enum error_code encoders_forward(struct trainer *trainer, struct error *err)
{
    const int kinds = trainer->plan.encoders.kinds;
    enum error_code e = OK;
    if (kinds == 0) return OK;
    trainer->device->arena.doing = (struct doing){ .pass = "encoders", .micro = -1 };
    for (int m = 0; m < kinds && !e; m++)
        if (trainer->encoders.of[m].here) e = encoders_encode(trainer, m, err);
    if (!e) e = make_places(trainer, err);
    if (!e) e = cross(trainer, THERE, err);
    /* The backward pass does not read the embeddings. */
    for (int m = 0; m < kinds; m++) free_tensors(trainer, &trainer->encoders.of[m].out, 1);
    return e;
}

/* The gradients of an encoder's weights on this device.  Patches are data, so no gradient goes further than d_up. */
static enum error_code encode_back(struct trainer *trainer, int m, struct error *err)
{
    struct encoder *const x = &trainer->encoders.of[m];
    struct device *const d = trainer->device;
    struct tensor d_act = tensor_none, d_up = tensor_none;
    const int64_t n = tensor_rows(x->x), F = modalities[m].F;
    enum error_code e = data_acquire(&x->data, ENCODER_PART, err);
    if (!e && encoders_recompute(&trainer->plan)) e = encode_inner(trainer, m, n, err);
    if (!e && !(make_rows(trainer, &d_act, n, F) && make_rows(trainer, &d_up, n, F))) e = encoders_no_memory(err);
    if (!e && n > 0) {
        dev_linear_backward_input(d, d_act, x->d_out, weight_of(x, ENCODER_OUT_W));
        dev_gelu_backward_input(d, d_up, d_act, x->up);
    }
    if (!e) data_release(&x->data, ENCODER_PART), e = data_begin_gradient(&x->data, ENCODER_PART, err);
    if (!e && n > 0 && param_trains(&trainer->plan.model, &x->parameters.all[0].spec)) {
        dev_linear_backward_weight(d, gradient_of(x, ENCODER_OUT_W), gradient_of(x, ENCODER_OUT_B), x->d_out, x->act);
        dev_linear_backward_weight(d, gradient_of(x, ENCODER_UP_W), gradient_of(x, ENCODER_UP_B), d_up, x->x);
    }
    free_tensors(trainer, &d_act, 1), free_tensors(trainer, &d_up, 1);
    drop_inner(trainer, m);
    free_tensors(trainer, &x->x, 1), free_tensors(trainer, &x->d_out, 1);
    /* Devices without a clip of a modality add zeros. */
    if (!e) e = data_end_gradient(&x->data, ENCODER_PART, err);
    return e ? e : data_finish_gradients(&x->data, err);
}

enum error_code encoders_backward(struct trainer *trainer, struct error *err)
{
    struct encoders *const x = &trainer->encoders;
    const int kinds = trainer->plan.encoders.kinds;
    bool ok = true;
    if (kinds == 0) return OK;
    trainer->device->arena.doing = (struct doing){ .pass = "backward of encoders", .micro = -1 };
    for (int m = 0; m < kinds && ok; m++)
        ok = !x->of[m].here || make_rows(trainer, &x->of[m].d_out, tensor_rows(x->of[m].x), width(trainer));
    enum error_code e = ok ? cross(trainer, BACK, err) : encoders_no_memory(err);
    drop_places(trainer);
    for (int m = 0; m < kinds && !e; m++)
        if (x->of[m].here) e = encode_back(trainer, m, err);
    return e;
}

enum error_code encoders_update(struct trainer *trainer, double gradient_scale, struct error *err)
{
    enum error_code e = OK;
    for (int m = 0; m < trainer->plan.encoders.kinds && !e; m++)
        if (trainer->encoders.of[m].here)
            e = data_step(&trainer->encoders.of[m].data, trainer->step + 1 - trainer->skipped, gradient_scale, err);
    return e;
}

void encoders_skip(struct trainer *trainer)
{
    for (int m = 0; m < trainer->plan.encoders.kinds; m++)
        if (trainer->encoders.of[m].here) data_skip_step(&trainer->encoders.of[m].data);
}
