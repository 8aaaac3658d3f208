#include "emulated_devices/model/encoders.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/trainer.h"
#include <stdlib.h>
#include <string.h>

static enum error_code no_memory(struct error *err) { return fail(err, ERR_MEMORY, "no memory for encoders"); }
static int64_t width(const struct trainer *t) { return t->plan.model.D; }
static int devices(const struct trainer *t) { return t->comm->size; }

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static enum error_code open_encoder(struct trainer *t, int m, struct error *err)
{
    struct encoders *x = &t->encoders;
    int member[MESH_MOST_DEVICES], n = 0;
    for (int d = 0; d < devices(t); d++)
        if (encoder_is_on(x->request, devices(t), m, d)) member[n++] = d;
    x->here[m] = encoder_is_on(x->request, devices(t), m, t->comm->rank);
    if (!x->here[m]) return OK;
    const enum error_code e = group_of(&x->with[m], t->comm, member, n, TRAFFIC_ENCODERS, 0, err);
    if (e) return e;
    const int64_t count = encoder_counts(&modalities[m], width(t));
    const enum dtype own = t->device->dtype;
    x->w[m] = device_tensor_in(t->device, BUFFERS, own, count);
    x->g[m] = device_tensor_in(t->device, BUFFERS, own, count);
    bool ok = x->w[m].data && x->g[m].data;
    for (int i = 0; i < t->plan.optimizer->states; i++) {
        x->state[m][i] = device_tensor_in(t->device, BUFFERS, own, count);
        ok = ok && x->state[m][i].data;
        if (ok) device_zero(t->device, x->state[m][i]);
    }
    if (!ok) return no_memory(err);
    device_zero(t->device, x->g[m]);
    struct views v = views_of(t->device);
    encoder_draw(&modalities[m], width(t), t->plan.seed, view_write(&v, x->w[m]));
    views_end(&v);
    return OK;
}

static enum error_code open_world(struct trainer *t, struct error *err)
{
    int member[MESH_MOST_DEVICES];
    for (int d = 0; d < devices(t); d++) member[d] = d;
    return group_of(&t->encoders.world, t->comm, member, devices(t), TRAFFIC_ENCODERS, 0, err);
}

enum error_code encoders_open(struct trainer *t, struct error *err)
{
    struct encoders *x = &t->encoders;
    *x = (struct encoders){ .request = &t->plan.encoders };
    if (x->request->kinds == 0) return OK;
    x->needs = calloc((size_t)devices(t), sizeof *x->needs);
    enum error_code e = x->needs ? open_world(t, err) : no_memory(err);
    for (int m = 0; m < x->request->kinds && !e; m++) e = open_encoder(t, m, err);
    return e;
}

static void free_tensors(struct trainer *t, struct tensor list[], int n)
{
    for (int i = 0; i < n; i++) {
        if (tensor_present(list[i])) device_free(t->device, list[i]);
        list[i] = tensor_none;
    }
}

static struct stage *first_stage(struct trainer *t)
{
    for (int c = 0; c < t->stages_open; c++)
        if (t->stage[c].first) return &t->stage[c];
    return NULL;
}

static void drop_batch(struct trainer *t)
{
    struct encoders *x = &t->encoders;
    struct stage *s = first_stage(t);
    clips_free(&x->clips);
    free(x->device), free(x->source), free(x->home);
    x->device = x->source = x->home = NULL;
    for (int d = 0; d < devices(t) && x->needs; d++) free(x->needs[d].of), x->needs[d] = (struct needs){ 0 };
    free_tensors(t, x->x, MODALITIES), free_tensors(t, x->up, MODALITIES), free_tensors(t, x->act, MODALITIES);
    free_tensors(t, x->out, MODALITIES), free_tensors(t, x->d_out, MODALITIES);
    for (int i = 0; s && i < t->plan.micros; i++) {
        free(s->micro[i].patch), s->micro[i].patch = NULL;
        free_tensors(t, &s->micro[i].patches, 1), free_tensors(t, &s->micro[i].d_patches, 1);
    }
}

void encoders_close(struct trainer *t)
{
    struct encoders *x = &t->encoders;
    if (x->request == NULL || x->request->kinds == 0) return;
    drop_batch(t);
    free(x->needs);
    for (int m = 0; m < MODALITIES; m++) {
        free_tensors(t, &x->w[m], 1), free_tensors(t, &x->g[m], 1), free_tensors(t, x->state[m], OPTIMIZER_MAX_STATES);
        group_close(&x->with[m]);
    }
    group_close(&x->world);
    *x = (struct encoders){ 0 };
}

/* ---- who needs which rows ---------------------------------------------------------------------------------------- */

/* The patch of each row of the batch, or -1. */
static int32_t *patch_of_rows(const struct clips *c, int64_t rows)
{
    int32_t *at = malloc((size_t)rows * sizeof *at);
    for (int64_t n = 0; at && n < rows; n++) at[n] = -1;
    for (int i = 0; at && i < c->count; i++)
        for (int64_t k = 0; k < c->clip[i].count; k++) at[c->clip[i].row + k] = (int32_t)(c->clip[i].first + k);
    return at;
}

static int by_patch(const void *a, const void *b)
{
    const struct needed *x = a, *y = b;
    return (x->patch > y->patch) - (x->patch < y->patch);
}

/* Whether a microbatch enters the pipeline on this device. */
static bool enters(const struct trainer *t, int rank, int micro)
{
    return place_of(&t->schedule, micro, 0).device == mesh_coordinate(&t->plan.mesh, rank, PP);
}

/* The rows of the stream on one device that are patches. */
static enum error_code find_needs(struct trainer *t, int rank, const int32_t *patch, struct error *err)
{
    const struct tensor_parallel share = plan_tensor_share(&t->plan, rank);
    struct needs *n = &t->encoders.needs[rank];
    n->of = malloc((size_t)(t->encoders.clips.patches + 1) * sizeof *n->of);
    bool ok = n->of;
    for (int i = 0; i < t->plan.micros && ok; i++) {
        struct intervals rows = plan_rows(&t->plan, rank, i);
        const struct interval own = tensor_rows_at(&share, STREAM, intervals_total(&rows));
        int64_t at = 0;
        ok = !intervals_lost(&rows);
        for (int k = 0; k < rows.count && enters(t, rank, i); k++)
            for (int64_t row = rows.at[k].first; row < interval_end(rows.at[k]); row++, at++)
                /* Only the rows of the stream that tp leaves to this device count. */
                if (patch[row] >= 0 && at >= own.first && at < interval_end(own))
                    n->of[n->count++] = (struct needed){ patch[row], i, (int32_t)(at - own.first) };
        intervals_free(&rows);
    }
    if (ok) qsort(n->of, (size_t)n->count, sizeof *n->of, by_patch);
    return ok ? OK : no_memory(err);
}

static const struct needed *need_of(const struct needs *n, int64_t patch)
{
    const struct needed key = { .patch = (int32_t)patch };
    return n->count ? bsearch(&key, n->of, (size_t)n->count, sizeof *n->of, by_patch) : NULL;
}

/* ---- who encodes which clips ------------------------------------------------------------------------------------- */

/* With encoders on all devices those encode a clip that have its copy of the batch, whatever they have of the model. */
static bool may_encode(const struct trainer *t, const struct clip *c, int device)
{
    const struct plan *p = &t->plan;
    if (!encoder_is_on(&p->encoders, devices(t), c->modality, device)) return false;
    if (p->encoders.placement == ENCODERS_APART) return true;
    const int64_t sequence = c->row / p->S;
    for (int i = 0; i < p->micros; i++) {
        const struct interval own = plan_microbatch(p, mesh_coordinate(&p->mesh, device, DP), i);
        if (sequence >= own.first && sequence < interval_end(own)) return true;
    }
    return false;
}

static enum error_code share_out(struct trainer *t, struct error *err)
{
    struct encoders *x = &t->encoders;
    const int P = devices(t);
    const size_t pairs = (size_t)(x->clips.count * P) + 1;
    bool *may = calloc(pairs, sizeof *may), *need = calloc(pairs, sizeof *need);
    enum error_code e = may && need ? OK : no_memory(err);
    for (int i = 0; i < x->clips.count && !e; i++)
        for (int d = 0; d < P; d++) {
            may[i * P + d] = may_encode(t, &x->clips.clip[i], d);
            need[i * P + d] = need_of(&x->needs[d], x->clips.clip[i].first) != NULL;
        }
    if (!e) e = clips_share_out(&x->clips, width(t), P, x->request->slack, may, need, x->device, err);
    free(may), free(need);
    return e;
}

enum error_code encoders_take_batch(struct trainer *t, int32_t *ids, int32_t *labels, struct error *err)
{
    struct encoders *x = &t->encoders;
    const struct plan *p = &t->plan;
    if (p->encoders.kinds == 0) return OK;
    drop_batch(t);
    enum error_code e = clips_of_step(&x->clips, p->encoders.kinds, p->seed, t->step, p->B, p->S, err);
    if (e) return e;
    clips_mark(&x->clips, 0, p->B * p->S, ids, labels);
    int32_t *const patch = patch_of_rows(&x->clips, p->B * p->S);
    x->device = calloc((size_t)x->clips.count + 1, sizeof *x->device);
    x->source = calloc((size_t)x->clips.patches + 1, sizeof *x->source);
    x->home = calloc((size_t)x->clips.patches + 1, sizeof *x->home);
    if (!patch || !x->device || !x->source || !x->home) e = no_memory(err);
    for (int d = 0; d < devices(t) && !e; d++) e = find_needs(t, d, patch, err);
    if (!e) e = share_out(t, err);
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

static bool encodes(const struct trainer *t, int clip, int modality)
{
    return t->encoders.device[clip] == t->comm->rank && t->encoders.clips.clip[clip].modality == modality;
}

static int64_t own_patches(const struct trainer *t, int modality)
{
    int64_t n = 0;
    for (int i = 0; i < t->encoders.clips.count; i++)
        if (encodes(t, i, modality)) n += t->encoders.clips.clip[i].count;
    return n;
}

/* A patch's row in this device's tensors of embeddings, or of their gradients. */
static char *encoded_row(const struct trainer *t, int64_t patch, bool gradient)
{
    const struct encoders *x = &t->encoders;
    int64_t at[MODALITIES] = { 0 };
    for (int i = 0; i < x->clips.count; i++) {
        const struct clip *c = &x->clips.clip[i];
        if (x->device[i] != t->comm->rank) continue;
        /* Own clips lie one after another in the tensor of their modality. */
        if (patch < c->first || patch >= c->first + c->count) {
            at[c->modality] += c->count;
            continue;
        }
        const struct tensor rows = gradient ? x->d_out[c->modality] : x->out[c->modality];
        return tensor_rows_of(rows, at[c->modality] + patch - c->first, 1).data;
    }
    return NULL;
}

/* A patch's row in the memory of a device that needs it. */
static char *needed_row(struct trainer *t, int64_t patch, bool gradient)
{
    const struct needed *n = need_of(&t->encoders.needs[t->comm->rank], patch);
    const struct microbatch *m = &first_stage(t)->micro[n->micro];
    return tensor_rows_of(gradient ? m->d_patches : m->patches, m->patch[n->row], 1).data;
}

/* ---- the bridge -------------------------------------------------------------------------------------------------- */

enum way { THERE, BACK };

/* Whether a patch crosses from one device to another: from its encoder to all that need it; back from one of these. */
static bool crosses(const struct trainer *t, enum way way, int64_t patch, int from, int to)
{
    const struct encoders *x = &t->encoders;
    if (way == BACK) return x->home[patch] == from && x->source[patch] == to;
    return x->source[patch] == from && need_of(&x->needs[to], patch);
}

static void count_rows(const struct trainer *t, enum way way, struct interval chunk, int64_t to[], int64_t from[])
{
    for (int d = 0; d < devices(t); d++) {
        to[d] = from[d] = 0;
        for (int64_t f = chunk.first; f < interval_end(chunk); f++) {
            to[d] += crosses(t, way, f, t->comm->rank, d) ? width(t) : 0;
            from[d] += crosses(t, way, f, d, t->comm->rank) ? width(t) : 0;
        }
    }
}

static int64_t sum_of(const int64_t n[], int count)
{
    int64_t sum = 0;
    for (int i = 0; i < count; i++) sum += n[i];
    return sum;
}

/* Copy the rows of a chunk between where they are and a buffer, in which they lie by device, then by patch. */
static void pack(struct trainer *t, enum way way, struct interval chunk, struct tensor buffer, bool sending)
{
    const size_t row = (size_t)width(t) * dtype_size(buffer.dtype);
    char *at = buffer.data;
    for (int d = 0; d < devices(t); d++)
        for (int64_t f = chunk.first; f < interval_end(chunk); f++) {
            const int from = sending ? t->comm->rank : d, to = sending ? d : t->comm->rank;
            if (!crosses(t, way, f, from, to)) continue;
            /* The encoder's side sends on the way there, and receives on the way back. */
            const bool encoded = (way == THERE) == sending;
            char *const own = encoded ? encoded_row(t, f, way == BACK) : needed_row(t, f, way == BACK);
            device_copy(t->device, sending ? at : own, sending ? own : at, row);
            at += row;
        }
}

static enum error_code cross_chunk(struct trainer *t, enum way way, struct interval chunk, struct error *err)
{
    struct encoders *x = &t->encoders;
    const enum dtype own = t->device->dtype;
    int64_t to[MESH_MOST_DEVICES], from[MESH_MOST_DEVICES];
    count_rows(t, way, chunk, to, from);
    struct tensor out = device_tensor_in(t->device, BUFFERS, own, sum_of(to, devices(t))),
                  in = device_tensor_in(t->device, BUFFERS, own, sum_of(from, devices(t)));
    struct collective call = { .in = out.data, .out = in.data, .counts = to, .recvcounts = from, .dtype = own };
    enum error_code e = out.data && in.data ? OK : no_memory(err);
    if (!e) pack(t, way, chunk, out, true), e = collective_run(&x->world, ALLTOALL, NULL, &call, err);
    if (!e) pack(t, way, chunk, in, false);
    /* The forecast of the bridge is counted as it is sent, because each batch has other clips. */
    account_add(&x->bridged, group_cost(&x->world, ALLTOALL, NULL, &call), 1);
    if (tensor_bytes(out) + tensor_bytes(in) > x->peak) x->peak = tensor_bytes(out) + tensor_bytes(in);
    device_free(t->device, out), device_free(t->device, in);
    return e;
}

static enum error_code cross(struct trainer *t, enum way way, struct error *err)
{
    const int chunks = t->plan.encoders.chunks > 0 ? t->plan.encoders.chunks : 1;
    enum error_code e = OK;
    for (int i = 0; i < chunks && !e; i++)
        e = cross_chunk(t, way, block_at(t->encoders.clips.patches, chunks, i), err);
    return e;
}

/* Tables and memory of the first stage's microbatches. */
static enum error_code make_places(struct trainer *t, struct error *err)
{
    const struct needs *n = &t->encoders.needs[t->comm->rank];
    struct stage *s = first_stage(t);
    bool ok = true;
    for (int i = 0; s && i < t->plan.micros && ok; i++) {
        struct microbatch *m = &s->micro[i];
        const int64_t rows = tensor_rows_at(s->tp, STREAM, m->N).count;
        int32_t count = 0;
        m->patch = malloc((size_t)(rows + 1) * sizeof *m->patch);
        for (int64_t k = 0; m->patch && k < rows; k++) m->patch[k] = -1;
        for (int k = 0; m->patch && k < n->count; k++)
            if (n->of[k].micro == i) m->patch[n->of[k].row] = count++;
        m->patches = device_tensor_2d(t->device, BUFFERS, count, width(t));
        m->d_patches = device_tensor_2d(t->device, BUFFERS, count, width(t));
        ok = m->patch && m->patches.data && m->d_patches.data;
    }
    return ok ? OK : no_memory(err);
}

/* ---- the encoders ------------------------------------------------------------------------------------------------ */

static struct tensor weight_of(const struct trainer *t, int m, enum encoder_param p)
{
    return encoder_view(&modalities[m], width(t), t->encoders.w[m], p);
}

static struct tensor gradient_of(const struct trainer *t, int m, enum encoder_param p)
{
    return encoder_view(&modalities[m], width(t), t->encoders.g[m], p);
}

static void draw_patches(struct trainer *t, int m)
{
    struct encoders *x = &t->encoders;
    struct views v = views_of(t->device);
    const struct tensor all = view_write(&v, x->x[m]);
    for (int64_t i = 0, at = 0; i < x->clips.count; i++) {
        const struct clip *c = &x->clips.clip[i];
        /* Patches are drawn from the clip's own numbers, so it does not matter which device draws them. */
        if (encodes(t, (int)i, m))
            clip_draw(c, t->plan.seed, t->step, tensor_rows_of(all, at, c->count)), at += c->count;
    }
    views_end(&v);
}

static enum error_code encode(struct trainer *t, int m, struct error *err)
{
    struct encoders *x = &t->encoders;
    struct device *d = t->device;
    const struct modality *is = &modalities[m];
    const int64_t n = own_patches(t, m);
    x->x[m] = device_tensor_2d(d, BUFFERS, n, is->C), x->up[m] = device_tensor_2d(d, BUFFERS, n, is->F);
    x->act[m] = device_tensor_2d(d, BUFFERS, n, is->F), x->out[m] = device_tensor_2d(d, BUFFERS, n, width(t));
    x->d_out[m] = device_tensor_2d(d, BUFFERS, n, width(t));
    if (!x->x[m].data || !x->up[m].data || !x->act[m].data || !x->out[m].data || !x->d_out[m].data)
        return no_memory(err);
    if (n == 0) return OK;
    draw_patches(t, m);
    dev_linear_forward(d, x->up[m], x->x[m], weight_of(t, m, ENCODER_UP_W), weight_of(t, m, ENCODER_UP_B));
    dev_gelu_forward(d, x->act[m], x->up[m]);
    dev_linear_forward(d, x->out[m], x->act[m], weight_of(t, m, ENCODER_OUT_W), weight_of(t, m, ENCODER_OUT_B));
    return OK;
}

enum error_code encoders_forward(struct trainer *t, struct error *err)
{
    const int kinds = t->plan.encoders.kinds;
    enum error_code e = kinds ? make_places(t, err) : OK;
    for (int m = 0; m < kinds && !e; m++)
        if (t->encoders.here[m]) e = encode(t, m, err);
    return e || kinds == 0 ? e : cross(t, THERE, err);
}

static enum error_code encode_back(struct trainer *t, int m, struct error *err)
{
    struct encoders *x = &t->encoders;
    struct device *d = t->device;
    const int64_t n = tensor_rows(x->x[m]), F = modalities[m].F;
    struct tensor d_act = device_tensor_2d(d, BUFFERS, n, F), d_up = device_tensor_2d(d, BUFFERS, n, F);
    const bool ok = d_act.data && d_up.data;
    if (ok && n > 0) {
        dev_linear_backward_weight(d, gradient_of(t, m, ENCODER_OUT_W), gradient_of(t, m, ENCODER_OUT_B), x->d_out[m],
                                   x->act[m]);
        /* Patches are data, so no gradient goes further than d_up [n, F]. */
        dev_linear_backward_input(d, d_act, x->d_out[m], weight_of(t, m, ENCODER_OUT_W));
        dev_gelu_backward_input(d, d_up, d_act, x->up[m]);
        dev_linear_backward_weight(d, gradient_of(t, m, ENCODER_UP_W), gradient_of(t, m, ENCODER_UP_B), d_up, x->x[m]);
    }
    device_free(d, d_act), device_free(d, d_up);
    return ok ? OK : no_memory(err);
}

/* Devices without a clip of a modality add zeros. */
static enum error_code reduce(struct trainer *t, int m, struct error *err)
{
    struct encoders *x = &t->encoders;
    const struct collective call = { .count = tensor_count(x->g[m]), .dtype = x->g[m].dtype, .reduction = SUM };
    account_add(&x->reduced, group_cost(&x->with[m], ALLREDUCE, t->plan.allreduce, &call), 1);
    return allreduce(&x->with[m], x->g[m].data, tensor_count(x->g[m]), x->g[m].dtype, SUM, t->plan.allreduce, err);
}

enum error_code encoders_backward(struct trainer *t, struct error *err)
{
    const int kinds = t->plan.encoders.kinds;
    enum error_code e = kinds ? cross(t, BACK, err) : OK;
    for (int m = 0; m < kinds && !e; m++)
        if (t->encoders.here[m]) e = encode_back(t, m, err);
    for (int m = 0; m < kinds && !e; m++)
        if (t->encoders.here[m]) e = reduce(t, m, err);
    return e;
}

void encoders_update(struct trainer *t, double gradient_scale)
{
    struct encoders *x = &t->encoders;
    const struct step step = { .lr = learning_rate(&t->plan.hyper, t->step + 1), .t = t->step + 1,
                               .gradient_scale = gradient_scale, .hyper = &t->plan.hyper };
    for (int m = 0; m < t->plan.encoders.kinds; m++) {
        if (!x->here[m]) continue;
        device_optimizer_step(t->device, t->plan.optimizer, x->w[m], x->g[m], x->state[m], step);
        device_zero(t->device, x->g[m]);
    }
}
