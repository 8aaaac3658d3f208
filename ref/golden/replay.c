#include "ref/golden/replay.h"
#include "ref/model/weights.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- remembering -------------------------------------------------------------------------------------------------------- */

static void keep(struct replay *r, const char *name, struct tensor t)
{
    enum { GROW = 256 };
    if (r->records % GROW == 0) {
        struct record *more = realloc(r->record, (size_t)(r->records + GROW) * sizeof *more);
        if (more == NULL) {
            r->failed = ERR_MEMORY;
            return;
        }
        r->record = more;
    }
    struct record *k = &r->record[r->records];
    snprintf(k->name, sizeof k->name, "%s", name);
    k->values = t;
    k->values.data = malloc(tensor_bytes(t) + 1);
    if (k->values.data == NULL) {
        r->failed = ERR_MEMORY;
        return;
    }
    memcpy(k->values.data, t.data, tensor_bytes(t));
    r->records++;
}

static void keep_numbers(struct replay *r, const char *name, double *x, int64_t n) { keep(r, name, tensor_1d(x, F64, n)); }

static bool ends(const char *name, const char *with)
{
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

/* Tensors inside a block are announced with its number beside; parameters have it in their name. */
static void see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct replay *r = context;
    const bool parameter = ends(name, ".weight") || ends(name, ".bias"), in_block = layer >= 0 && layer < r->model.config.L && !parameter;
    char full[RECORD_NAME];
    if (r->disturb.see) r->disturb.see(r->disturb.context, name, layer, gradient, t, terms);
    if (in_block) snprintf(full, sizeof full, "%s/h.%d.%s", gradient ? "grad" : "act", layer, name);
    else snprintf(full, sizeof full, "%s/%s", gradient ? "grad" : "act", name);
    keep(r, full, t);
}

/* ---- running ---------------------------------------------------------------------------------------------------------------- */

/* The file's starting weights.  They are not fp32 numbers, and rounding them to fp32 is a disturbance like any other. */
static enum error_code start(struct replay *r, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < r->model.params && !e; i++) {
        char name[RECORD_NAME];
        const struct tensor w = r->model.w[i];
        snprintf(name, sizeof name, "start/%s", r->model.spec[i].name);
        e = golden_read(r->golden, name, w.dtype, tensor_count(w), w.data, err);
        if (!e && r->disturb.see) r->disturb.see(r->disturb.context, name, 0, false, w, 1);
        for (int s = 0; s < OPTIMIZER_MAX_STATES; s++) memset(r->state[i * OPTIMIZER_MAX_STATES + s].data, 0, tensor_bytes(w));
    }
    transformer_zero_gradients(&r->model);
    return e;
}

static enum error_code forward_backward(struct replay *r, int64_t step, double *loss, struct error *err)
{
    const struct golden *g = r->golden;
    const int64_t at = step * g->B * g->S;
    const enum error_code e = transformer_forward(&r->model, g->ids + at, g->labels + at, g->B, g->S, loss, err);
    if (!e) transformer_backward(&r->model);
    return e;
}

static enum error_code one_pass(struct replay *r, struct error *err)
{
    double loss = 0;
    r->model.observer = (struct observer){ see, r };
    enum error_code e = forward_backward(r, 0, &loss, err);
    r->model.observer = r->disturb;
    if (e) return e;
    double norm = transformer_gradient_norm(&r->model);
    keep_numbers(r, "loss", &loss, 1);
    keep_numbers(r, "norm", &norm, 1);
    if (r->model.config.mlp == MLP_MIXTURE) {
        keep_numbers(r, "balance_loss", &r->model.balance_loss, 1);
        keep_numbers(r, "z_loss", &r->model.z_loss, 1);
    }
    return OK;
}

static void update(struct replay *r, const struct optimizer *o, const struct hyperparameters *h, int64_t t, double lr, double norm)
{
    for (int i = 0; i < r->model.params; i++) {
        const struct step s = { .lr = lr, .t = t, .gradient_scale = clip_scale(h, norm), .hyper = h,
                                .weight_decay = r->model.spec[i].decay ? h->weight_decay : 0 };
        optimizer_step(o, r->model.w[i], r->model.g[i], &r->state[i * OPTIMIZER_MAX_STATES], s);
    }
    transformer_zero_gradients(&r->model);
}

static void keep_result(struct replay *r, const struct optimizer *o)
{
    char name[RECORD_NAME];
    for (int i = 0; i < r->model.params; i++) {
        snprintf(name, sizeof name, "%s/weight/%s", o->name, r->model.spec[i].name);
        keep(r, name, r->model.w[i]);
        for (int s = 0; s < o->states; s++) {
            snprintf(name, sizeof name, "%s/%s/%s", o->name, o->state_name[s], r->model.spec[i].name);
            keep(r, name, r->state[i * OPTIMIZER_MAX_STATES + s]);
        }
    }
}

static enum error_code some_steps(struct replay *r, const char *optimizer, struct error *err)
{
    enum { MOST_STEPS = 8 };
    const struct golden *g = r->golden;
    const struct hyperparameters h = golden_hyperparameters(g, optimizer);
    const struct optimizer *o;
    double lr[MOST_STEPS], loss[MOST_STEPS], norm[MOST_STEPS];
    char name[RECORD_NAME];
    enum error_code e = optimizer_find(&o, optimizer, err);
    if (!e && g->steps > MOST_STEPS) e = fail(err, ERR_FORMAT, "%s: has %lld steps; at most %d", g->file.path, (long long)g->steps, MOST_STEPS);
    if (e) return e;
    snprintf(name, sizeof name, "%s/lr", optimizer);
    e = golden_read(g, name, F64, g->steps, lr, err);
    if (!e) e = start(r, err);
    for (int64_t i = 0; i < g->steps && !e; i++) {
        e = forward_backward(r, i, &loss[i], err);
        norm[i] = transformer_gradient_norm(&r->model);
        update(r, o, &h, i + 1, lr[i], norm[i]);
    }
    if (e) return e;
    snprintf(name, sizeof name, "%s/loss", optimizer);
    keep_numbers(r, name, loss, g->steps);
    snprintf(name, sizeof name, "%s/norm", optimizer);
    keep_numbers(r, name, norm, g->steps);
    keep_result(r, o);
    return OK;
}

static enum error_code open_replay(struct replay *r, enum dtype t, struct error *err)
{
    enum error_code e = transformer_open(&r->model, &r->golden->config, t, r->golden->seed, err);
    if (e) return e;
    const int n = r->model.params * OPTIMIZER_MAX_STATES;
    r->state = calloc((size_t)n, sizeof *r->state);
    bool ok = r->state != NULL;
    for (int i = 0; ok && i < n; i++) {
        r->state[i] = r->model.w[i / OPTIMIZER_MAX_STATES];
        r->state[i].data = malloc(tensor_bytes(r->state[i]));
        ok = r->state[i].data != NULL;
    }
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to run %s", r->golden->config.name);
}

enum error_code replay_run(struct replay *r, const struct golden *g, enum dtype t, uint64_t twin, double lambda, struct error *err)
{
    const struct perturbation disturb = { .seed = twin, .lambda = lambda };
    return replay_disturbed(r, g, t, twin ? &disturb : NULL, err);
}

enum error_code replay_disturbed(struct replay *r, const struct golden *g, enum dtype t, const struct perturbation *disturb, struct error *err)
{
    char optimizer[32];
    *r = (struct replay){ .golden = g };
    enum error_code e = open_replay(r, t, err);
    if (disturb) r->disturbance = *disturb;
    if (disturb) r->disturb = perturbing_observer(&r->disturbance);
    if (!e) e = start(r, err);
    if (!e) e = one_pass(r, err);
    for (const char *list = NULL; !e && (list = golden_next_optimizer(g, list, optimizer)) != NULL;) e = some_steps(r, optimizer, err);
    if (!e && r->failed) e = fail(err, ERR_MEMORY, "no memory to remember the tensors of %s", g->file.path);
    if (e) replay_free(r);
    return e;
}

enum error_code replay_batch(struct replay *r, const struct golden *g, enum dtype t, const char *dir, struct error *err)
{
    *r = (struct replay){ .golden = g };
    enum error_code e = open_replay(r, t, err);
    if (!e && dir) e = weights_load(&r->model, dir, err);
    if (!e) e = one_pass(r, err);
    if (!e && r->failed) e = fail(err, ERR_MEMORY, "no memory to remember the tensors of %s", g->config.name);
    if (e) replay_free(r);
    return e;
}

void replay_free(struct replay *r)
{
    for (int i = 0; i < r->records; i++) free(r->record[i].values.data);
    for (int i = 0; r->state && i < r->model.params * OPTIMIZER_MAX_STATES; i++) free(r->state[i].data);
    free(r->record), free(r->state);
    if (r->model.params) transformer_close(&r->model);
    *r = (struct replay){ 0 };
}

/* ---- comparing ---------------------------------------------------------------------------------------------------------------- */

struct apart tensor_apart(struct tensor got, struct tensor want)
{
    double difference = 0, size = 0, most = -1;
    struct apart a = { 0, 0 };
    for (int64_t i = 0; i < tensor_count(want); i++) {
        const double x = tensor_get(got, i), y = tensor_get(want, i);
        difference += (x - y) * (x - y);
        size += y * y;
        if (!(fabs(x - y) <= most)) most = fabs(x - y), a.worst = i;
    }
    a.relative = difference == 0 ? 0 : sqrt(difference / size);
    return a;
}

enum error_code replay_compare(const struct replay *r, int record, struct apart *a, struct tensor *want, struct error *err)
{
    const struct record *k = &r->record[record];
    *want = k->values;
    want->dtype = F64;
    want->data = malloc(tensor_bytes(*want) + 1);
    if (want->data == NULL) return fail(err, ERR_MEMORY, "no memory to compare %s", k->name);
    const enum error_code e = golden_read(r->golden, k->name, F64, tensor_count(*want), want->data, err);
    if (!e) *a = tensor_apart(k->values, *want);
    return e;
}

enum error_code replay_covers(const struct replay *r, struct error *err)
{
    const struct safetensors *file = &r->golden->file;
    for (int e = 0; e < file->count; e++) {
        const char *name = file->entry[e].name;
        int times = golden_is_input(name);
        for (int i = 0; i < r->records; i++) times += strcmp(r->record[i].name, name) == 0;
        if (times != 1) return fail(err, ERR_CHECK, "%s: %s was computed %d times", shown_path(file->path).text, name, times);
    }
    return OK;
}
