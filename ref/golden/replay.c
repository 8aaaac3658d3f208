#include "ref/golden/replay.h"
#include "ref/model/weights.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/distance.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- recording --------------------------------------------------------------------------------------------------- */

/* The same tensors come in the same order in every run of a file. */
static void keep_distance(struct replay *r, struct tensor t, double scale)
{
    const struct record *k = &r->follow->record[r->records];
    assert(r->records < r->follow->records && tensor_count(t) == tensor_count(k->values));
    r->apart[r->records++] = r->route == k->route ? squared_distance_of_quotient(t, scale, k->values) : INFINITY;
}

/* Record t / scale.  If scale is not 1, the record has a format that holds all quotients. */
static void keep(struct replay *r, const char *name, struct tensor t, double scale)
{
    enum { GROW = 256 };
    if (r->apart) {
        keep_distance(r, t, scale);
        return;
    }
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
    k->route = r->route;
    if (scale != 1) k->values.dtype = dtype_wide(t.dtype);
    k->values.data = malloc(tensor_bytes(k->values) + 1);
    if (k->values.data == NULL) {
        r->failed = ERR_MEMORY;
        return;
    }
    tensor_convert(k->values, t);
    for (int64_t i = 0; scale != 1 && i < tensor_count(t); i++) tensor_set(k->values, i, tensor_get(t, i) / scale);
    r->records++;
}

static void keep_numbers(struct replay *r, const char *name, double *x, int64_t n)
{
    keep(r, name, tensor_1d(x, F64, n), 1);
}

static bool ends(const char *name, const char *with)
{
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

/* Experts are in order of their weights, and so are the gradients of the weights: the order is part of the hash. */
static void note_choice(struct replay *r, struct tensor experts)
{
    const int32_t *chosen = experts.data;
    const int64_t n = tensor_count(experts);
    for (int64_t i = 0; i < n; i++) r->route = (r->route ^ (uint64_t)chosen[i]) * 0x100000001b3u;   /* FNV-1 */
    if (!r->keeping) return;
    int32_t *more = realloc(r->choice, (size_t)(r->choices + n) * sizeof *more);
    if (more == NULL) {
        r->failed = ERR_MEMORY;
        return;
    }
    memcpy(more + r->choices, chosen, (size_t)n * sizeof *more);
    r->choice = more;
    r->choices += n;
}

static void exchange(struct tensor t, int64_t i, int64_t j)
{
    const double x = tensor_get(t, i);
    tensor_set(t, i, tensor_get(t, j));
    tensor_set(t, j, x);
}

/* In each row, exchange logits so that the experts `chosen` have the k largest, in that order. */
static void make_choose(struct tensor logits, const int32_t *chosen, int64_t k)
{
    const int64_t E = tensor_cols(logits);
    for (int64_t n = 0; n < tensor_rows(logits); n++, chosen += k)
        for (int64_t i = 0; i < k; i++) {
            int64_t best = chosen[i];
            for (int64_t e = 0; e < E; e++) {
                bool earlier = false;
                for (int64_t j = 0; j < i; j++) earlier = earlier || chosen[j] == e;
                if (!earlier && tensor_get(logits, n * E + e) > tensor_get(logits, n * E + best)) best = e;
            }
            exchange(logits, n * E + best, n * E + chosen[i]);
        }
}

/* Experts of few groups, or with a correction bias, need not have the largest logits: a run that follows another is
 * told its choices. */
static bool is_told(const struct replay *r)
{
    const struct router_rule *rule = &r->model.config.mixture.router;
    return rule->groups > 1 || rule->biased;
}

/* The choices of all layers, of which those without a router have none; for free(). */
static enum error_code follow_choices(struct replay *r, int32_t **route, struct error *err)
{
    const struct model_config *c = &r->model.config;
    const int64_t n = r->golden->B * r->golden->S * c->mixture.k;
    *route = NULL;
    if (r->follow == NULL || c->mlp != MLP_MIXTURE || !is_told(r)) return OK;
    *route = calloc((size_t)(c->L * n), sizeof **route);
    if (*route == NULL) return fail(err, ERR_MEMORY, "no memory for %lld choices", (long long)(c->L * n));
    for (int64_t l = 0, from = 0; l < c->L; l++)
        if (layer_mlp(c, l) == MLP_MIXTURE)
            memcpy(*route + l * n, r->follow->choice + from, (size_t)n * sizeof **route), from += n;
    r->model.route = *route;
    return OK;
}

/* A tensor inside a block is announced with the layer as an argument; a parameter has it in its name. */
static void see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct replay *r = context;
    const bool parameter = ends(name, ".weight") || ends(name, ".bias"),
               in_block = layer >= 0 && layer < r->model.config.L && !parameter;
    char full[RECORD_NAME];
    if (r->disturb.see) r->disturb.see(r->disturb.context, name, layer, gradient, t, terms);
    if (!gradient && r->keeping && r->follow && !is_told(r) && strcmp(name, "router.logits") == 0)
        make_choose(t, r->follow->choice + r->choices, r->model.config.mixture.k);
    if (!gradient && strcmp(name, "router.weights") == 0) note_choice(r, r->model.block[layer].experts);
    if (!r->keeping) return;
    if (in_block) snprintf(full, sizeof full, "%s/h.%d.%s", gradient ? "grad" : "act", layer, name);
    else snprintf(full, sizeof full, "%s/%s", gradient ? "grad" : "act", name);
    keep(r, full, t, gradient ? r->model.loss_scale : 1);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static bool is_mixed(const struct replay *r) { return dtype_is_narrow(r->model.ops->dtype); }

/* Weights in 16 bits are rounded masters; a disturbance changes the weights, not the masters. */
static void round_master(struct replay *r, int i)
{
    if (!is_mixed(r)) return;
    tensor_convert(r->model.w[i], r->master[i]);
    if (r->disturb.see) r->disturb.see(r->disturb.context, r->model.spec[i].name, 0, false, r->model.w[i], 1);
}

/* Load the file's starting weights.  They are not fp32 numbers: rounding them to fp32 is a disturbance, too. */
static enum error_code start(struct replay *r, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < r->model.params && !e; i++) {
        char name[RECORD_NAME];
        const struct tensor m = r->master[i];
        snprintf(name, sizeof name, "start/%s", r->model.spec[i].name);
        e = golden_read(r->golden, name, m.dtype, tensor_count(m), m.data, err);
        if (!e && r->disturb.see && !is_mixed(r)) r->disturb.see(r->disturb.context, name, 0, false, m, 1);
        if (!e) round_master(r, i);
        for (int s = 0; s < OPTIMIZER_MAX_STATES; s++)
            memset(r->state[i * OPTIMIZER_MAX_STATES + s].data, 0, tensor_bytes(m));
    }
    if (!e) e = golden_read_biases(r->golden, r->model.router_bias, err);
    transformer_zero_gradients(&r->model);
    r->model.observer = (struct observer){ see, r };
    r->route = 0xcbf29ce484222325u;
    return e;
}

static enum error_code forward_backward(struct replay *r, int64_t step, double *loss, struct error *err)
{
    const struct golden *g = r->golden;
    const int64_t at = step * g->B * g->S;
    r->model.seed = dropout_seed(g->seed, step);
    r->model.micro_of = r->micro_of;
    const enum error_code e = transformer_forward(&r->model, g->ids + at, g->labels + at, g->B, g->S, loss, err);
    if (!e) transformer_backward(&r->model);
    r->model.micro_of = NULL;
    return e;
}

/* The norm of all gradients, without the loss scale. */
static double gradient_norm(const struct replay *r)
{
    return transformer_gradient_norm(&r->model) / r->model.loss_scale;
}

static enum error_code one_pass(struct replay *r, struct error *err)
{
    double loss = 0;
    int32_t *route;
    enum error_code e = follow_choices(r, &route, err);
    r->keeping = true;
    if (!e) e = forward_backward(r, 0, &loss, err);
    r->keeping = false, r->model.route = NULL;
    free(route);
    if (e) return e;
    double norm = gradient_norm(r);
    keep_numbers(r, "loss", &loss, 1);
    keep_numbers(r, "norm", &norm, 1);
    if (r->model.config.mlp == MLP_MIXTURE) {
        keep_numbers(r, "balance_loss", &r->model.balance_loss, 1);
        keep_numbers(r, "z_loss", &r->model.z_loss, 1);
    }
    return OK;
}

enum { FOLDER = RECORD_NAME - PARAM_NAME };     /* "momentum/64/momentum_buffer" */

static void keep_parameters(struct replay *r, const char *folder, const struct tensor *of, int stride, double scale)
{
    char name[RECORD_NAME];
    for (int i = 0; i < r->model.params; i++) {
        snprintf(name, sizeof name, "%.31s/%s", folder, r->model.spec[i].name);
        keep(r, name, of[i * stride], scale);
    }
}

/* What each microbatch adds to the gradients.  A label counts the same in every microbatch, so the parts add up to the
 * gradients of the whole batch however unevenly labels are ignored. */
static enum error_code microbatches(struct replay *r, struct error *err)
{
    const struct golden *g = r->golden;
    struct transformer *m = &r->model;
    const double scale = m->loss_scale;
    double *loss = calloc((size_t)g->micros + 1, sizeof *loss);
    const int64_t all = golden_labels(g, 0, g->B);
    enum error_code e = loss ? start(r, err) : fail(err, ERR_MEMORY, "no memory for %d losses", (int)g->micros);
    m->seed = dropout_seed(g->seed, 0);
    for (int64_t k = 0; k < g->micros && !e; k++) {
        int64_t count, first = golden_micro(g, k, &count);
        char folder[FOLDER];
        const double share = (double)golden_labels(g, first, count) / (double)(all ? all : 1);
        m->first = first, m->loss_scale = scale * share;        /* the forward pass sets slopes of routers' losses */
        e = transformer_forward(m, g->ids + first * g->S, g->labels + first * g->S, count, g->S, &loss[k], err);
        if (e) break;
        loss[k] *= share;
        transformer_backward(m);
        snprintf(folder, sizeof folder, "micro/%lld/grad", (long long)k);
        keep_parameters(r, folder, m->g, 1, scale);
        transformer_zero_gradients(m);
    }
    if (!e) keep_numbers(r, "micro/loss", loss, g->micros);
    m->loss_scale = scale, m->first = 0;
    free(loss);
    return e;
}

static void update(struct replay *r, const struct optimizer *o, const struct hyperparameters *h, int64_t t, double lr,
                   double norm)
{
    for (int i = 0; i < r->model.params; i++) {
        const struct step s = { .lr = lr,
                                .t = t,
                                .gradient_scale = clip_scale(h, norm) / r->model.loss_scale,
                                .hyper = h,
                                .weight_decay = weight_decay_of(h, r->model.spec[i].decay) };
        optimizer_step(o, r->master[i], r->model.g[i], &r->state[i * OPTIMIZER_MAX_STATES], s);
        round_master(r, i);
    }
    transformer_zero_gradients(&r->model);
}

/* Weights and states; `step`: "" after the last one, else "/K" after step K. */
static void keep_result(struct replay *r, const struct optimizer *o, const char *step)
{
    char folder[FOLDER];
    snprintf(folder, sizeof folder, "%s%s/weight", o->name, step);
    keep_parameters(r, folder, r->model.w, 1, 1);
    for (int s = 0; s < o->states; s++) {
        snprintf(folder, sizeof folder, "%s%s/%s", o->name, step, o->state_name[s]);
        keep_parameters(r, folder, r->state + s, OPTIMIZER_MAX_STATES, 1);
    }
}

/* One step of an optimizer, from 0.  The first one's gradients are those of the pass over the first batch. */
static enum error_code one_step(struct replay *r, const struct optimizer *o, const struct hyperparameters *h,
                                int64_t step, double lr, double *loss, double *norm, struct error *err)
{
    const struct golden *g = r->golden;
    char at[8], folder[FOLDER];
    enum error_code e = forward_backward(r, step, loss, err);
    if (e) return e;
    *norm = gradient_norm(r);
    snprintf(at, sizeof at, "/%d", (int)(step + 1) % 100);
    snprintf(folder, sizeof folder, "%s%s/grad", o->name, at);
    if (g->every_step && step > 0) keep_parameters(r, folder, r->model.g, 1, r->model.loss_scale);
    update(r, o, h, step + 1, lr, *norm);
    transformer_move_biases(&r->model);
    if (g->every_step && step + 1 < g->steps) keep_result(r, o, at);
    return OK;
}

static enum error_code some_steps(struct replay *r, const char *optimizer, struct error *err)
{
    const struct golden *g = r->golden;
    const struct hyperparameters h = golden_hyperparameters(g, optimizer);
    const struct optimizer *o;
    double lr[GOLDEN_MOST_STEPS], loss[GOLDEN_MOST_STEPS], norm[GOLDEN_MOST_STEPS];
    char name[RECORD_NAME];
    enum error_code e = optimizer_find(&o, optimizer, err);
    if (e) return e;
    snprintf(name, sizeof name, "%s/lr", optimizer);
    e = golden_read(g, name, F64, g->steps, lr, err);
    if (!e) e = start(r, err);
    for (int64_t i = 0; i < g->steps && !e; i++) e = one_step(r, o, &h, i, lr[i], &loss[i], &norm[i], err);
    if (e) return e;
    snprintf(name, sizeof name, "%s/loss", optimizer);
    keep_numbers(r, name, loss, g->steps);
    snprintf(name, sizeof name, "%s/norm", optimizer);
    keep_numbers(r, name, norm, g->steps);
    keep_result(r, o, "");
    return OK;
}

static bool make_masters(struct replay *r)
{
    r->master = calloc((size_t)r->model.params, sizeof *r->master);
    for (int i = 0; r->master && i < r->model.params; i++) {
        r->master[i] = r->model.w[i];
        if (!is_mixed(r)) continue;
        r->master[i].dtype = dtype_wide(r->model.w[i].dtype);
        r->master[i].data = malloc(tensor_bytes(r->master[i]));
        if (r->master[i].data == NULL) return false;
    }
    return r->master != NULL;
}

/* Number the microbatches of tokens, if balance losses are of microbatches.  @return whether there was memory. */
static bool name_microbatches(struct replay *r)
{
    const struct golden *g = r->golden;
    if (golden_balance_micros(g) == 0) return true;
    r->micro_of = malloc((size_t)(g->B * g->S) * sizeof *r->micro_of);
    for (int64_t k = 0; k < g->micros && r->micro_of; k++) {
        int64_t count, first = golden_micro(g, k, &count);
        for (int64_t i = first * g->S; i < (first + count) * g->S; i++) r->micro_of[i] = (int32_t)k;
    }
    return r->micro_of != NULL;
}

static enum error_code open_replay(struct replay *r, enum dtype t, struct error *err)
{
    enum error_code e = transformer_open(&r->model, &r->golden->config, t, r->golden->seed, err);
    if (!e && is_mixed(r)) e = transformer_keep_gradients_in(&r->model, dtype_wide(t), err);
    if (e) return e;
    if (t == F16) r->model.loss_scale = REPLAY_LOSS_SCALE;
    const int n = r->model.params * OPTIMIZER_MAX_STATES;
    r->state = calloc((size_t)n, sizeof *r->state);
    bool ok = r->state != NULL && make_masters(r);
    for (int i = 0; ok && i < n; i++) {
        r->state[i] = r->master[i / OPTIMIZER_MAX_STATES];
        r->state[i].data = malloc(tensor_bytes(r->state[i]));
        ok = r->state[i].data != NULL;
    }
    ok = ok && name_microbatches(r);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to run %s", r->golden->config.name);
}

static enum error_code run_from_start(struct replay *r, const struct perturbation *disturb, struct error *err)
{
    const struct golden *g = r->golden;
    char optimizer[32];
    r->records = 0, r->choices = 0;
    if (disturb) r->disturbance = *disturb;
    if (disturb) r->disturb = perturbing_observer(&r->disturbance);
    enum error_code e = start(r, err);
    if (!e) e = one_pass(r, err);
    if (!e && g->micros > 0) e = microbatches(r, err);
    for (const char *list = NULL; !e && (list = golden_next_optimizer(g, list, optimizer)) != NULL;)
        e = some_steps(r, optimizer, err);
    if (!e && r->failed) e = fail(err, ERR_MEMORY, "no memory to remember the tensors of %s", g->file.path);
    return e;
}

static enum error_code run(struct replay *r, const struct golden *g, enum dtype t, const struct perturbation *disturb,
                           const struct replay *follow, struct error *err)
{
    *r = (struct replay){ .golden = g, .follow = follow };
    enum error_code e = open_replay(r, t, err);
    if (!e) e = run_from_start(r, disturb, err);
    if (e) replay_free(r);
    return e;
}

enum error_code replay_run(struct replay *r, const struct golden *g, enum dtype t, const struct perturbation *disturb,
                           struct error *err)
{
    return run(r, g, t, disturb, NULL, err);
}

enum error_code replay_following(struct replay *r, const struct replay *other, enum dtype t,
                                 const struct perturbation *disturb, struct error *err)
{
    return run(r, other->golden, t, disturb, other, err);
}

enum error_code replay_twin_open(struct replay *r, const struct replay *other, enum dtype t, struct error *err)
{
    *r = (struct replay){ .golden = other->golden, .follow = other };
    const enum error_code e = open_replay(r, t, err);
    if (e) replay_free(r);
    return e;
}

enum error_code replay_twin_run(struct replay *r, const struct perturbation *disturb, double apart[], struct error *err)
{
    r->apart = apart;
    return run_from_start(r, disturb, err);
}

enum error_code replay_batch(struct replay *r, const struct golden *g, enum dtype t, const char *dir, struct error *err)
{
    *r = (struct replay){ .golden = g };
    enum error_code e = open_replay(r, t, err);
    if (!e && dir) e = weights_load(&r->model, dir, err);
    r->model.observer = (struct observer){ see, r };
    if (!e) e = one_pass(r, err);
    if (!e && r->failed) e = fail(err, ERR_MEMORY, "no memory to remember the tensors of %s", g->config.name);
    if (e) replay_free(r);
    return e;
}

void replay_free(struct replay *r)
{
    for (int i = 0; i < r->records && !r->apart; i++) free(r->record[i].values.data);
    for (int i = 0; r->state && i < r->model.params * OPTIMIZER_MAX_STATES; i++) free(r->state[i].data);
    for (int i = 0; r->master && i < r->model.params; i++)
        if (r->master[i].data != r->model.w[i].data) free(r->master[i].data);
    free(r->record), free(r->state), free(r->master), free(r->choice), free(r->micro_of);
    if (r->model.params) transformer_close(&r->model);
    *r = (struct replay){ 0 };
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

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

enum error_code replay_compare(const struct replay *r, int record, struct apart *a, struct tensor *want,
                               struct error *err)
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
        if (times != 1)
            return fail(err, ERR_CHECK, "%s: %s was computed %d times", printable_path(file->path).text, name, times);
    }
    return OK;
}
