/* open.c -- the engine's groups, units and memory. */
#include "emulated_devices/schemes/data/bucket.h"
#include "emulated_devices/schemes/data/low_rank.h"
#include "emulated_devices/schemes/data/offload.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "ref/model/transformer.h"
#include "ref/numeric/convert.h"
#include <stdlib.h>
#include <string.h>

/* ---- groups ------------------------------------------------------------------------------------------------------------ */

static enum error_code open_groups(struct data_parallel *dp, struct error *err)
{
    const struct shards *s = &dp->shards;
    enum error_code e = OK;
    for (enum shard_level l = BY_WEIGHTS; l < SHARD_LEVELS && !e; l++) {
        const int size = shards_size(s, l), first = s->rank - shards_digit(s, l) * shards_stride(s, l);
        int *ranks = malloc(sizeof *ranks * (size_t)size);
        if (ranks == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", size);
        for (int i = 0; i < size; i++) ranks[i] = dp->group->member[first + i * shards_stride(s, l)];
        e = group_of(&dp->level[l], dp->group->comm, ranks, size, dp->group->kind, dp->group->axes, err);
        free(ranks);
        if (!e && dp->request.quantise_gradients.bits > 0) e = quantised_group_open(&dp->scatter[l], &dp->level[l], err);
    }
    return e;
}

/* ---- units --------------------------------------------------------------------------------------------------------------- */

static enum error_code open_units(struct data_parallel *dp, struct error *err)
{
    struct parameters *ps = dp->parameters;
    dp->units = data_unit_count(dp->config, &dp->request);
    dp->unit = calloc((size_t)dp->units, sizeof *dp->unit);
    if (dp->unit == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d units", dp->units);
    for (int i = 0, u = 0; u < dp->units; u++) {
        const int first = i;
        while (i < ps->count && data_unit_of(dp->config, &dp->request, &ps->all[i].spec, ps->all[i].tile) == u) i++;
        unit_lay_out(&dp->unit[u], &ps->all[first], i - first, &dp->shards, dp->scheme->rows);
    }
    return OK;
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

static struct tensor zeros(struct data_parallel *dp, enum arena_tag tag, enum tensor_kind kind, int64_t n, bool *failed)
{
    if (offloads(&dp->request, tag)) return tier_place(&dp->tier, data_format(dp, kind), n);
    const struct tensor t = device_tensor_in(dp->device, tag, data_format(dp, kind), n);
    if (t.data) device_zero(dp->device, t);
    *failed = *failed || t.data == NULL;
    return t;
}

/* What is kept whole is not kept a second time as this device's part of it. */
static void make_unit(struct data_parallel *dp, struct unit *u, bool *failed)
{
    const struct shards *s = &dp->shards;
    const int64_t stepped = shards_range(s, BY_OPTIMIZER, u->padded).count;
    u->own_w = zeros(dp, PARAMETERS, KIND_WEIGHT, shards_range(s, BY_WEIGHTS, u->padded).count, failed);
    if (dp->versions > 1) u->older = zeros(dp, PARAMETERS, KIND_OLDER_WEIGHT, tensor_count(u->own_w), failed);
    u->w = makes_weights(dp) ? tensor_1d(NULL, dp->device->dtype, whole_elements(u)) : u->own_w;
    u->g = tensor_1d(NULL, data_format(dp, KIND_GRADIENT), whole_elements(u));
    if (data_scatters(dp)) u->own_g = zeros(dp, GRADIENTS, KIND_GRADIENT, shards_range(s, BY_GRADIENTS, u->padded).count, failed);
    u->sum = offloads(&dp->request, GRADIENTS) ? tensor_none : u->own_g;
    if (data_has_masters(dp)) u->master = zeros(dp, OPTIMIZER, KIND_MASTER, stepped, failed);
    for (int i = 0; i < dp->optimizer->states; i++)
        u->state[i] = zeros(dp, OPTIMIZER, KIND_STATE, dp->optimizer->low_rank ? low_rank_state_elements(dp, u, i) : stepped, failed);
    if (s->apart) u->anchor = zeros(dp, OPTIMIZER, KIND_ANCHOR, stepped, failed);
    if (s->apart && dp->outer.momentum > 0) u->momentum = zeros(dp, OPTIMIZER, KIND_MOMENTUM, stepped, failed);
}

static void place_gradients(struct data_parallel *dp, bool *failed)
{
    int64_t at = 0;
    for (int u = 0; u < dp->units; u++) at += dp->unit[u].padded;
    dp->gradients = zeros(dp, GRADIENTS, KIND_GRADIENT, at, failed);
    at = 0;
    for (int u = dp->units - 1; u >= 0; u--) {
        dp->unit[u].g = dp->unit[u].own_g = dp->unit[u].sum = slice(dp->gradients, (struct interval){ at, dp->unit[u].padded });
        at += dp->unit[u].padded;
    }
}

void show_weights(struct unit *u)
{
    for (int i = 0; i < u->count; i++) {
        struct parameter *p = &u->parameter[i];
        p->w = parameter_view(p, slice(u->w, (struct interval){ p->place, 0 }).data, u->w.dtype);
    }
}

void show_gradients(struct unit *u)
{
    for (int i = 0; i < u->count; i++) {
        struct parameter *p = &u->parameter[i];
        p->g = parameter_view(p, slice(u->g, (struct interval){ p->place, 0 }).data, u->g.dtype);
    }
}

/* ---- initial weights ------------------------------------------------------------------------------------------------------- */

struct draw { uint64_t seed; struct tensor own; int64_t first; struct portion stretch; };

enum { DRAWN_AT_ONCE = 512 };

/* In the format of the master, so that weights are what it rounds to, also of elements whose master another device keeps. */
static void draw_run(void *context, struct run r)
{
    const struct draw *d = context;
    const enum dtype master = dtype_wide(d->own.dtype);
    char *out = (char *)d->own.data + (size_t)(d->stretch.row - d->first + r.piece) * dtype_size(d->own.dtype);
    double drawn[DRAWN_AT_ONCE];
    for (int64_t done = 0, n; done < r.length; done += n) {
        n = r.length - done < DRAWN_AT_ONCE ? r.length - done : DRAWN_AT_ONCE;
        param_init(&d->stretch.parameter->spec, d->seed, master, r.whole + done, n, drawn);
        convert(out + (size_t)done * dtype_size(d->own.dtype), d->own.dtype, drawn, master, n);
    }
}

static void draw_stretch(void *context, struct portion s)
{
    struct draw *d = context;
    d->stretch = s;
    layout_each_run_within(&s.parameter->layout, s.piece, s.length, draw_run, d);
}

static void draw(const struct data_parallel *dp, const struct unit *u, enum tensor_kind kind, uint64_t seed)
{
    const struct interval own = data_kept(&dp->shards, u, kind);
    struct views v = views_of(dp->device);
    struct draw d = { .seed = seed, .own = view_write(&v, data_kept_tensor(dp, u, kind)), .first = own.first };
    unit_each_stretch(u, own, draw_stretch, &d);
    views_end(&v);
}

/* ---- versions ----------------------------------------------------------------------------------------------------------------- */

void data_use_older(struct data_parallel *dp, bool older)
{
    for (int i = 0; i < dp->units && dp->versions > 1 && dp->older != older; i++) {
        struct unit *u = &dp->unit[i];
        const struct tensor other = u->older;
        u->older = u->own_w;
        u->own_w = u->w = other;
        show_weights(u);
    }
    dp->older = older;
}

void data_same_versions(struct data_parallel *dp)
{
    for (int i = 0; i < dp->units && dp->versions > 1; i++)
        device_copy(dp->device, dp->unit[i].older.data, dp->unit[i].own_w.data, tensor_bytes(dp->unit[i].own_w));
}

/* ---- all of it --------------------------------------------------------------------------------------------------------------- */

enum error_code data_outline(struct data_parallel *dp, struct error *err)
{
    dp->outer = data_outer(&dp->request);
    dp->request.allgather = data_allgather(&dp->request);
    enum error_code e = data_shards(&dp->shards, &dp->request, dp->group->size, dp->group->rank, err);
    if (!e) e = open_groups(dp, err);
    if (!e) e = open_units(dp, err);
    if (!e) e = bucket_open(&dp->reducing, dp->units, err);
    if (!e) e = bucket_open(&dp->sharing, dp->units, err);
    return e ? e : offload_list_slices(dp, err);
}

enum error_code data_fill(struct data_parallel *dp, uint64_t seed, struct error *err)
{
    bool failed = false;
    enum error_code e = offload_open_tier(dp, err);
    if (e) return e;
    for (int u = 0; u < dp->units; u++) make_unit(dp, &dp->unit[u], &failed);
    if (!data_scatters(dp) && has_gradients(dp)) place_gradients(dp, &failed);
    if (failed) return fail(err, ERR_MEMORY, "no memory for weights, gradients and optimizer state");
    for (int u = 0; u < dp->units; u++) {
        draw(dp, &dp->unit[u], KIND_WEIGHT, seed);
        if (data_has_masters(dp)) draw(dp, &dp->unit[u], KIND_MASTER, seed);
        show_weights(&dp->unit[u]);
        show_gradients(&dp->unit[u]);
    }
    e = data_requantise(dp, err);
    data_same_versions(dp);
    data_start_round(dp);
    return e;
}

enum error_code data_open(struct data_parallel *dp, uint64_t seed, struct error *err)
{
    const enum error_code e = data_outline(dp, err);
    return e ? e : data_fill(dp, seed, err);
}

/* What lies on the slow tier goes with it. */
static void let_go(struct data_parallel *dp, enum arena_tag tag, struct tensor t)
{
    if (!offloads(&dp->request, tag)) device_free(dp->device, t);
}

void data_close(struct data_parallel *dp)
{
    for (int i = 0; i < dp->units && dp->unit; i++) {
        struct unit *u = &dp->unit[i];
        if (u->w.data != u->own_w.data) device_free(dp->device, u->w);
        if (data_scatters(dp)) {
            if (u->g.data != u->sum.data) device_free(dp->device, u->g);
            let_go(dp, GRADIENTS, u->own_g);
        }
        let_go(dp, PARAMETERS, u->own_w);
        device_free(dp->device, u->older);
        let_go(dp, OPTIMIZER, u->master);
        tracking_close(&u->tracking);
        device_free(dp->device, u->anchor);
        device_free(dp->device, u->momentum);
        for (int s = 0; s < dp->optimizer->states; s++) let_go(dp, OPTIMIZER, u->state[s]);
    }
    offload_close(dp);
    device_free(dp->device, dp->gradients);
    free(dp->unit), free(dp->use);
    bucket_close(&dp->reducing), bucket_close(&dp->sharing);
    for (int l = 0; l < SHARD_LEVELS; l++) quantised_group_close(&dp->scatter[l]), group_close(&dp->level[l]);
    dp->unit = NULL, dp->use = NULL;
}
