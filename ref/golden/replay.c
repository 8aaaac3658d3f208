/* replay.c -- runs the one-device model from the inputs of a golden file, and records or compares its tensors.
 *
 * bounds.c, make.c, golden_list.c, cli/golden/ and cli/dump.c call this file, and so do passes.c and choices.c of
 * check/report/ and check/recompute/own_pass.c.  Errors are those of the model, ERR_FORMAT, ERR_CHECK and ERR_MEMORY;
 * after a failed run everything is freed.
 */
#include "ref/golden/replay.h"
#include "ref/model/kinds.h"
#include "ref/model/loss_rule.h"
#include "ref/model/params.h"
#include "ref/model/weights.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/distance.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- recording --------------------------------------------------------------------------------------------------- */

/* The tensors come in an order that every run of a file has. */
static void keep_distance(struct replay *replay, struct tensor t, double scale)
{
    const struct record *k = &replay->follow->record[replay->records];
    assert(replay->records < replay->follow->records && tensor_count(t) == tensor_count(k->values));
    if (replay->size) replay->size[replay->records] = squared_distance_of_quotient(t, scale, tensor_none);
    replay->apart[replay->records++] = replay->route == k->route
        ? squared_distance_of_quotient(t, scale, k->values) : INFINITY;
}

/* Record t / scale.  If scale is not 1, the record has a format that holds all quotients. */
static void replay_keep(struct replay *replay, const char *name, struct tensor t, double scale)
{
    enum { GROW = 256 };
    if (replay->pass && !replay->pass->wanted(replay->pass->context, name)) return;
    if (replay->judge) {
        replay->judge->see(replay->judge->context, name, t, scale);
        return;
    }
    if (replay->apart) {
        keep_distance(replay, t, scale);
        return;
    }
    if (replay->records % GROW == 0) {
        struct record *more = realloc(replay->record, (size_t)(replay->records + GROW) * sizeof *more);
        if (more == NULL) {
            replay->failed = ERR_MEMORY;
            return;
        }
        replay->record = more;
    }
    struct record *k = &replay->record[replay->records];
    snprintf(k->name, sizeof k->name, "%s", name);
    k->values = t;
    k->route = replay->route;
    if (scale != 1) k->values.dtype = dtype_wide(t.dtype);
    k->values.data = malloc(tensor_bytes(k->values) + 1);
    if (k->values.data == NULL) {
        replay->failed = ERR_MEMORY;
        return;
    }
    tensor_convert(k->values, t);
    for (int64_t i = 0; scale != 1 && i < tensor_count(t); i++) tensor_set(k->values, i, tensor_get(t, i) / scale);
    replay->records++;
}

/* Losses and norms are recorded in fp64, whatever the run computes in. */
static void keep_numbers(struct replay *replay, const char *name, double *x, int64_t n)
{
    replay_keep(replay, name, tensor_1d(x, F64, n), 1);
}

/* Experts are in order of their weights, and so are the gradients of the weights: the order is part of the hash. */
static void note_choice(struct replay *replay, struct tensor experts)
{
    const int32_t *chosen = experts.data;
    const int64_t n = tensor_count(experts);
    /* FNV-1 */
    for (int64_t i = 0; i < n; i++) replay->route = (replay->route ^ (uint64_t)chosen[i]) * 0x100000001b3u;
    if (!replay->keeping) return;
    int32_t *more = realloc(replay->choice, (size_t)(replay->choices + n) * sizeof *more);
    if (more == NULL) {
        replay->failed = ERR_MEMORY;
        return;
    }
    memcpy(more + replay->choices, chosen, (size_t)n * sizeof *more);
    replay->choice = more;
    replay->choices += n;
}

/* Count the experts that no token of a whole batch chose. */
static void note_idle(struct replay *replay, struct tensor experts)
{
    const int32_t *chosen = experts.data;
    const int64_t n = tensor_count(experts);
    for (int64_t e = 0; e < replay->model.config.mixture.E && replay->model.B == replay->golden->B; e++) {
        bool found = false;
        for (int64_t i = 0; i < n && !found; i++) found = chosen[i] == e;
        replay->idle += !found;
    }
}

static void replay_exchange(struct tensor t, int64_t i, int64_t j)
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
            replay_exchange(logits, n * E + best, n * E + chosen[i]);
        }
}

/* Experts of few groups, or with a correction bias, need not have the largest logits: a run that follows another is
 * told its choices. */
static bool is_told(const struct replay *replay)
{
    const struct router_rule *rule = &replay->model.config.mixture.router;
    return rule->groups > 1 || rule->biased || (replay->pass && replay->pass->route);
}

/* The choices of all layers, of which those without a router have none; for free(). */
static enum error_code follow_choices(struct replay *replay, int32_t **route, struct error *err)
{
    const struct model_config *c = &replay->model.config;
    const int64_t n = replay->golden->B * replay->golden->S * c->mixture.k;
    *route = NULL;
    if (replay->pass) replay->model.route = replay->pass->route;
    if (replay->model.route || replay->follow == NULL || c->mlp != MLP_MIXTURE || !is_told(replay)) return OK;
    *route = calloc((size_t)(c->L * n), sizeof **route);
    if (*route == NULL) return fail(err, ERR_MEMORY, "no memory for %lld choices", (long long)(c->L * n));
    for (int64_t l = 0, from = 0; l < c->L; l++)
        if (layer_mlp(c, l) == MLP_MIXTURE)
            memcpy(*route + l * n, replay->follow->choice + from, (size_t)n * sizeof **route), from += n;
    replay->model.route = *route;
    return OK;
}

/* The model announces each tensor here.  A tensor inside a block comes with the layer as an argument; a parameter
 * has it in its name. */
static void replay_see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct replay *r = context;
    const bool parameter = param_is_name(name),
               in_block = layer >= 0 && layer < r->model.config.L && !parameter;
    char full[RECORD_NAME];
    /* A disturbance changes the tensor before it is recorded or used. */
    if (r->disturb.see) r->disturb.see(r->disturb.context, name, layer, gradient, t, terms);
    if (!gradient && r->keeping && r->follow && !is_told(r) && strcmp(name, "router.logits") == 0)
        make_choose(t, r->follow->choice + r->choices, r->model.config.mixture.k);
    /* The choices are known when the weights of the chosen experts are. */
    if (!gradient && strcmp(name, "router.weights") == 0) {
        note_choice(r, r->model.block[layer].experts);
        note_idle(r, r->model.block[layer].experts);
    }
    if (!r->keeping) return;
    if (in_block) snprintf(full, sizeof full, "%s%s/h.%d.%s", r->before, gradient ? "grad" : "act", layer, name);
    else snprintf(full, sizeof full, "%s%s/%s", r->before, gradient ? "grad" : "act", name);
    replay_keep(r, full, t, gradient ? r->model.loss_scale : 1);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static bool is_mixed(const struct replay *replay) { return dtype_is_narrow(replay->model.ops->dtype); }

/* Weights in 16 bits are rounded masters; a disturbance changes the weights, not the masters. */
static void round_master(struct replay *replay, int i)
{
    if (!is_mixed(replay)) return;
    tensor_convert(replay->model.w[i], replay->master[i]);
    if (replay->disturb.see)
        replay->disturb.see(replay->disturb.context, replay->model.spec[i].name, 0, false, replay->model.w[i], 1);
}

/* Read the corrections of routers that the run begins with. */
static enum error_code replay_start_biases(struct replay *replay, struct error *err)
{
    const struct model_config *c = &replay->model.config;
    if (replay->pass == NULL) return golden_read_biases(replay->golden, replay->model.router_bias, err);
    if (c->mlp == MLP_MIXTURE && replay->pass->bias)
        memcpy(replay->model.router_bias, replay->pass->bias,
               (size_t)(c->L * mixture_columns(&c->mixture)) * sizeof *replay->pass->bias);
    return OK;
}

/* Load the starting weights: the file's, or those of the pass.  They are not fp32 numbers: rounding them to fp32 is a
 * disturbance, too. */
static enum error_code replay_start(struct replay *replay, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < replay->model.params && !e; i++) {
        char name[RECORD_NAME];
        const struct tensor m = replay->master[i];
        snprintf(name, sizeof name, "start/%s", replay->model.spec[i].name);
        if (replay->pass) tensor_convert(m, replay->pass->weights[i]);
        else e = golden_read(replay->golden, name, m.dtype, tensor_count(m), m.data, err);
        if (!e && replay->disturb.see && !is_mixed(replay))
            replay->disturb.see(replay->disturb.context, name, 0, false, m, 1);
        if (!e && replay->judge) replay_keep(replay, name, m, 1);
        if (!e) round_master(replay, i);
        for (int s = 0; s < OPTIMIZER_MAX_STATES; s++)
            memset(replay->state[i * OPTIMIZER_MAX_STATES + s].data, 0, tensor_bytes(m));
    }
    if (!e) e = replay_start_biases(replay, err);
    transformer_zero_gradients(&replay->model);
    replay->model.observer = (struct observer){ replay_see, replay };
    replay->route = 0xcbf29ce484222325u;
    return e;
}

/* One batch forward and backward; its dropout is drawn for this step. */
static enum error_code forward_backward(struct replay *replay, int64_t step, double *loss, struct error *err)
{
    const struct golden *g = replay->golden;
    const int64_t at = step * g->B * g->S;
    replay->model.seed = dropout_seed(g->seed, step);
    replay->model.micro_of = replay->micro_of, replay->model.packed = golden_positions(g, step, 0);
    const enum error_code e = transformer_forward(&replay->model, g->ids + at, g->labels + at, g->B, g->S, loss, err);
    if (!e) transformer_backward(&replay->model);
    replay->model.micro_of = NULL, replay->model.packed = NULL;
    return e;
}

/* The norm of all gradients, without the loss scale. */
static double gradient_norm(const struct replay *replay)
{
    return transformer_gradient_norm(&replay->model) / replay->model.loss_scale;
}

/* A pass over the first batch, or that of a given pass; every tensor is recorded, then its losses and norm. */
static enum error_code one_pass(struct replay *replay, struct error *err)
{
    double loss = 0;
    int32_t *route;
    enum error_code e = follow_choices(replay, &route, err);
    replay->keeping = true;
    if (!e) e = forward_backward(replay, replay->pass ? replay->pass->step : 0, &loss, err);
    replay->keeping = false, replay->model.route = NULL;
    free(route);
    if (e) return e;
    double norm = gradient_norm(replay);
    keep_numbers(replay, "loss", &loss, 1);
    keep_numbers(replay, "norm", &norm, 1);
    if (replay->model.config.mlp == MLP_MIXTURE) {
        keep_numbers(replay, "balance_loss", &replay->model.balance_loss, 1);
        keep_numbers(replay, "z_loss", &replay->model.z_loss, 1);
    }
    return OK;
}

enum { FOLDER = RECORD_NAME - PARAM_NAME };     /* "momentum/64/momentum_buffer" */

/* A list of parameters in a folder of names; `stride` picks one of several states. */
static void keep_parameters(struct replay *replay, const char *folder, const struct tensor *of, int stride,
                            double scale)
{
    char name[RECORD_NAME];
    for (int i = 0; i < replay->model.params; i++) {
        snprintf(name, sizeof name, "%.31s/%s", folder, replay->model.spec[i].name);
        replay_keep(replay, name, of[i * stride], scale);
    }
}

/* The losses of routers count so often. */
static void weigh_routers(struct replay *replay, double times)
{
    const struct mixture_config *whole = &replay->golden->config.mixture;
    struct mixture_config *now = &replay->model.config.mixture;
    now->balance_coefficient = whole->balance_coefficient * times;
    now->z_coefficient = whole->z_coefficient * times;
    now->sequence_coefficient = whole->sequence_coefficient * times;
}

/* The losses of routers are means over tokens, the cross entropy is a mean over labels.  A pass over a microbatch is
 * multiplied by its share of the labels, so the routers' coefficients make that its share of the tokens.  Where the
 * loss is no mean over labels, rows have the divisors of the batch, and the routers alone a share.
 * @param divisors  [B*S] to work in.  @return what the pass is multiplied by. */
static double weigh_microbatch(struct replay *replay, int64_t first, int64_t count, double *divisors)
{
    const struct golden *g = replay->golden;
    const int64_t labels = golden_labels(g, first, count), all = golden_labels(g, 0, g->B);
    if (!loss_rule_is_usual(&g->config.loss)) {
        loss_divisors(&g->config.loss, g->labels, g->B, g->S, divisors);
        replay->model.divisors = divisors + first * g->S;
        weigh_routers(replay, (double)count / (double)g->B);
        return 1;
    }
    /* Exactly 1 where the shares are the same. */
    weigh_routers(replay, labels > 0 ? (double)(count * all) / (double)(g->B * labels) : 0);
    return (double)labels / (double)(all ? all : 1);
}

/* Record the part of the gradients that each microbatch adds.  A label counts the same in every microbatch.  So the
 * parts add up to the gradients of the whole batch, also if labels are ignored unevenly. */
static enum error_code microbatches(struct replay *replay, struct error *err)
{
    const struct golden *g = replay->golden;
    struct transformer *m = &replay->model;
    const double scale = m->loss_scale;
    double *loss = calloc((size_t)(g->micros + g->B * g->S) + 1, sizeof *loss);
    enum error_code e = loss ? replay_start(replay, err)
        : fail(err, ERR_MEMORY, "no memory for %d losses", (int)g->micros);
    m->seed = dropout_seed(g->seed, 0);
    for (int64_t k = 0; k < g->micros && !e; k++) {
        int64_t count, first = golden_micro(g, k, &count);
        char folder[FOLDER];
        const double share = weigh_microbatch(replay, first, count, loss + g->micros);
        m->first = first, m->loss_scale = scale * share;        /* the forward pass sets slopes of routers' losses */
        m->packed = golden_positions(g, 0, first);
        e = transformer_forward(m, g->ids + first * g->S, g->labels + first * g->S, count, g->S, &loss[k], err);
        if (e) break;
        loss[k] *= share;
        transformer_backward(m);
        snprintf(folder, sizeof folder, "micro/%lld/grad", (long long)k);
        keep_parameters(replay, folder, m->g, 1, scale);
        transformer_zero_gradients(m);
    }
    if (!e) keep_numbers(replay, "micro/loss", loss, g->micros);
    m->loss_scale = scale, m->first = 0, m->packed = NULL, m->divisors = NULL, m->config.mixture = g->config.mixture;
    free(loss);
    return e;
}

/* w, states = the optimizer's step from the gradients, which are unscaled and clipped first. */
static void replay_update(struct replay *replay, const struct optimizer *optimizer, const struct hyperparameters *hyper,
                          int64_t t, double lr, double norm)
{
    for (int i = 0; i < replay->model.params; i++) {
        /* Clipping and the loss scale are one factor of the gradients. */
        const struct step s = { .lr = lr,
                                .t = t,
                                .gradient_scale = clip_scale(hyper, norm) / replay->model.loss_scale,
                                .hyper = hyper,
                                .weight_decay = weight_decay_of(hyper, replay->model.spec[i].decay) };
        optimizer_step(optimizer, replay->master[i], replay->model.g[i], &replay->state[i * OPTIMIZER_MAX_STATES], s);
        round_master(replay, i);
    }
    transformer_zero_gradients(&replay->model);
}

/* The corrections of routers.  Files of other programs do not have them. */
static void keep_biases(struct replay *replay, const char *folder)
{
    char name[RECORD_NAME];
    const bool kept = golden_is_own(replay->golden) || replay->judge;
    for (int64_t l = 0; l < replay->model.config.L && kept; l++) {
        const struct param_spec s = model_router_bias(&replay->model.config, l);
        snprintf(name, sizeof name, "%.31s/%s", folder, s.name);
        if (s.ndim > 0) keep_numbers(replay, name, replay->model.router_bias + l * s.dim[0], s.dim[0]);
    }
}

/* Weights, corrections of routers, and states; `step`: "" after the last one, else "/K" after step K. */
static void keep_result(struct replay *replay, const struct optimizer *optimizer, const char *step)
{
    char folder[FOLDER];
    snprintf(folder, sizeof folder, "%s%s/weight", optimizer->name, step);
    keep_parameters(replay, folder, replay->model.w, 1, 1);
    keep_biases(replay, folder);
    for (int s = 0; s < optimizer->states; s++) {
        snprintf(folder, sizeof folder, "%s%s/%s", optimizer->name, step, optimizer->state_name[s]);
        keep_parameters(replay, folder, replay->state + s, OPTIMIZER_MAX_STATES, 1);
    }
}

/* forward_backward, which shows a judge all tensors of the step's pass under names of their own. */
static enum error_code judged_pass(struct replay *replay, const struct optimizer *optimizer, int64_t step,
                                   double *loss, struct error *err)
{
    replay->before[0] = 0;
    if (step > 0)
        snprintf(replay->before, sizeof replay->before, "%.16s/%d/", optimizer->name, (int)(step + 1) % 100);
    replay->keeping = replay->judge != NULL;
    const enum error_code e = forward_backward(replay, step, loss, err);
    replay->keeping = false;
    return e;
}

/* A judge is shown the loss and norm of each pass, and clipping takes the norm that the judge leaves. */
static void keep_pass_numbers(struct replay *replay, double *loss, double *norm)
{
    char name[RECORD_NAME];
    snprintf(name, sizeof name, "%sloss", replay->before);
    keep_numbers(replay, name, loss, 1);
    snprintf(name, sizeof name, "%snorm", replay->before);
    keep_numbers(replay, name, norm, 1);
}

/* One step of an optimizer, from 0.  The first one's gradients are those of the pass over the first batch. */
static enum error_code one_step(struct replay *replay, const struct optimizer *optimizer,
                                const struct hyperparameters *hyper,
                                int64_t step, double lr, double *loss, double *norm, struct error *err)
{
    const struct golden *g = replay->golden;
    char at[8], folder[FOLDER];
    snprintf(at, sizeof at, "/%d", (int)(step + 1) % 100);
    enum error_code e = judged_pass(replay, optimizer, step, loss, err);
    if (e) return e;
    /* The norm is that of the gradients before clipping. */
    *norm = gradient_norm(replay);
    if (replay->judge) keep_pass_numbers(replay, loss, norm);
    snprintf(folder, sizeof folder, "%s%s/grad", optimizer->name, at);
    /* A judge has seen the gradients in the pass. */
    const bool kept = g->every_step && step > 0 && replay->judge == NULL;
    if (kept) keep_parameters(replay, folder, replay->model.g, 1, replay->model.loss_scale);
    replay_update(replay, optimizer, hyper, step + 1, lr, *norm);
    transformer_move_biases(&replay->model);
    if (g->every_step && step + 1 < g->steps) keep_result(replay, optimizer, at);
    return OK;
}

/* All steps with one optimizer, from the start again.  Losses and norms of all steps are recorded at the end. */
static enum error_code some_steps(struct replay *replay, const char *optimizer, struct error *err)
{
    const struct golden *g = replay->golden;
    const struct hyperparameters h = golden_hyperparameters(g, optimizer);
    const struct optimizer *o;
    double lr[GOLDEN_MOST_STEPS], loss[GOLDEN_MOST_STEPS], norm[GOLDEN_MOST_STEPS];
    char name[RECORD_NAME];
    enum error_code e = optimizer_find(&o, optimizer, err);
    if (e) return e;
    snprintf(name, sizeof name, "%s/lr", optimizer);
    e = golden_read(g, name, F64, g->steps, lr, err);
    if (!e) e = replay_start(replay, err);
    for (int64_t i = 0; i < g->steps && !e; i++) e = one_step(replay, o, &h, i, lr[i], &loss[i], &norm[i], err);
    if (e) return e;
    snprintf(name, sizeof name, "%s/loss", optimizer);
    keep_numbers(replay, name, loss, g->steps);
    snprintf(name, sizeof name, "%s/norm", optimizer);
    keep_numbers(replay, name, norm, g->steps);
    keep_result(replay, o, "");
    return OK;
}

/* Masters are the weights themselves, or copies in a wide format if the weights have 16 bits. */
static bool make_masters(struct replay *replay)
{
    replay->master = calloc((size_t)replay->model.params, sizeof *replay->master);
    for (int i = 0; replay->master && i < replay->model.params; i++) {
        /* Without 16-bit weights a master is the weight itself, with the same memory. */
        replay->master[i] = replay->model.w[i];
        if (!is_mixed(replay)) continue;
        replay->master[i].dtype = dtype_wide(replay->model.w[i].dtype);
        replay->master[i].data = malloc(tensor_bytes(replay->master[i]));
        if (replay->master[i].data == NULL) return false;
    }
    return replay->master != NULL;
}

/* Number the microbatches of tokens, if balance losses are of microbatches.  @return whether there was memory. */
static bool name_microbatches(struct replay *replay)
{
    const struct golden *g = replay->golden;
    if (golden_balance_micros(g) == 0) return true;
    replay->micro_of = malloc((size_t)(g->B * g->S) * sizeof *replay->micro_of);
    for (int64_t k = 0; k < g->micros && replay->micro_of; k++) {
        int64_t count, first = golden_micro(g, k, &count);
        for (int64_t i = first * g->S; i < (first + count) * g->S; i++) replay->micro_of[i] = (int32_t)k;
    }
    return replay->micro_of != NULL;
}

/* Open the model, its masters and states.  After a failure the caller frees what there is. */
static enum error_code open_replay(struct replay *replay, enum dtype dtype, struct error *err)
{
    enum error_code e = transformer_open(&replay->model, &replay->golden->config, dtype, replay->golden->seed, err);
    if (!e && is_mixed(replay) && !replay->model.config.exact)
        e = transformer_keep_gradients_in(&replay->model, dtype_wide(dtype), err);
    if (e) return e;
    const double own_scale = replay->pass ? replay->pass->loss_scale : 0;
    if (dtype == F16) replay->model.loss_scale = own_scale > 0 ? own_scale : REPLAY_LOSS_SCALE;
    const int n = replay->model.params * OPTIMIZER_MAX_STATES;
    replay->state = calloc((size_t)n, sizeof *replay->state);
    bool ok = replay->state != NULL && make_masters(replay);
    for (int i = 0; ok && i < n; i++) {
        replay->state[i] = replay->master[i / OPTIMIZER_MAX_STATES];
        replay->state[i].data = malloc(tensor_bytes(replay->state[i]));
        ok = replay->state[i].data != NULL;
    }
    ok = ok && name_microbatches(replay);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to run %s", replay->golden->config.name);
}

/* The order of these runs is that of the records, which a following run relies on. */
static enum error_code run_from_start(struct replay *replay, const struct perturbation *disturb, struct error *err)
{
    const struct golden *g = replay->golden;
    char optimizer[32];
    replay->records = 0, replay->choices = 0, replay->idle = 0;
    if (disturb) replay->disturbance = *disturb;
    if (disturb) replay->disturb = perturbing_observer(&replay->disturbance);
    enum error_code e = replay_start(replay, err);
    if (!e) e = one_pass(replay, err);
    if (!e && g->micros > 0 && replay->pass == NULL && replay->judge == NULL) e = microbatches(replay, err);
    for (const char *list = NULL; !e && replay->pass == NULL;) {
        list = golden_next_optimizer(g, list, optimizer);
        if (list == NULL) break;
        if (replay->judge && !replay->judge->wants(replay->judge->context, optimizer)) continue;
        e = some_steps(replay, optimizer, err);
    }
    if (!e && replay->failed) e = fail(err, ERR_MEMORY, "no memory to remember the tensors of %s", g->file.path);
    return e;
}

/* A new replay that owns its model; a failed one is freed. */
static enum error_code golden_replay_run(struct replay *replay, const struct golden *golden, enum dtype dtype,
                                         const struct perturbation *disturb, const struct replay *follow,
                                         const struct replay_pass *pass, struct error *err)
{
    *replay = (struct replay){ .golden = golden, .follow = follow, .pass = pass };
    enum error_code e = open_replay(replay, dtype, err);
    if (!e) e = run_from_start(replay, disturb, err);
    if (e) replay_free(replay);
    return e;
}

enum error_code replay_run(struct replay *replay, const struct golden *golden, enum dtype dtype,
                           const struct perturbation *disturb, struct error *err)
{
    return golden_replay_run(replay, golden, dtype, disturb, NULL, NULL, err);
}

enum error_code replay_judged(const struct golden *golden, enum dtype dtype, enum exact_rule rule, double scale,
                              const struct replay_judge *judge, struct error *err)
{
    struct golden own = *golden;
    struct replay replay = { .golden = &own, .judge = judge };
    own.config.exact = rule;
    enum error_code e = open_replay(&replay, dtype, err);
    replay.model.loss_scale = scale;
    if (!e) e = run_from_start(&replay, NULL, err);
    replay_free(&replay);
    return e;
}

enum error_code replay_pass_run(struct replay *replay, const struct golden *golden, enum dtype dtype,
                                const struct replay_pass *pass, const struct perturbation *disturb, struct error *err)
{
    return golden_replay_run(replay, golden, dtype, disturb, NULL, pass, err);
}

enum error_code replay_following(struct replay *replay, const struct replay *other, enum dtype dtype,
                                 const struct perturbation *disturb, struct error *err)
{
    return golden_replay_run(replay, other->golden, dtype, disturb, other, other->pass, err);
}

enum error_code replay_twin_open(struct replay *replay, const struct replay *other, enum dtype dtype, struct error *err)
{
    *replay = (struct replay){ .golden = other->golden, .follow = other, .pass = other->pass };
    const enum error_code e = open_replay(replay, dtype, err);
    if (e) replay_free(replay);
    return e;
}

enum error_code replay_twin_run(struct replay *replay, const struct perturbation *disturb, double apart[],
                                double size[], struct error *err)
{
    replay->apart = apart, replay->size = size;
    return run_from_start(replay, disturb, err);
}

enum error_code replay_batch(struct replay *replay, const struct golden *golden, enum dtype dtype, const char *dir,
                             struct error *err)
{
    *replay = (struct replay){ .golden = golden };
    enum error_code e = open_replay(replay, dtype, err);
    if (!e && dir) e = weights_load(&replay->model, dir, err);
    replay->model.observer = (struct observer){ replay_see, replay };
    if (!e) e = one_pass(replay, err);
    if (!e && replay->failed) e = fail(err, ERR_MEMORY, "no memory to remember the tensors of %s", golden->config.name);
    if (e) replay_free(replay);
    return e;
}

void replay_free(struct replay *replay)
{
    for (int i = 0; i < replay->records && !replay->apart; i++) free(replay->record[i].values.data);
    for (int i = 0; replay->state && i < replay->model.params * OPTIMIZER_MAX_STATES; i++) free(replay->state[i].data);
    for (int i = 0; replay->master && i < replay->model.params; i++)
        if (replay->master[i].data != replay->model.w[i].data) free(replay->master[i].data);
    free(replay->record), free(replay->state), free(replay->master), free(replay->choice), free(replay->micro_of);
    if (replay->model.params) transformer_close(&replay->model);
    *replay = (struct replay){ 0 };
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* relative = |got - want| / |want|, in fp64.  The worst element is that with the largest difference; the first NaN is
 * larger than all. */
struct apart tensor_apart(struct tensor got, struct tensor want)
{
    double difference = 0, size = 0, most = -1;
    struct apart a = { 0, 0 };
    for (int64_t i = 0; i < tensor_count(want); i++) {
        const double x = tensor_get(got, i), y = tensor_get(want, i);
        difference += (x - y) * (x - y);
        size += y * y;
        if (!isnan(most) && !(fabs(x - y) <= most)) most = fabs(x - y), a.worst = i;
    }
    a.relative = difference == 0 ? 0 : sqrt(difference / size);
    return a;
}

/* The caller frees want->data, also after an error. */
enum error_code replay_compare(const struct replay *replay, int record, struct apart *apart, struct tensor *want,
                               struct error *err)
{
    const struct record *k = &replay->record[record];
    *want = k->values;
    want->dtype = F64;
    want->data = malloc(tensor_bytes(*want) + 1);
    if (want->data == NULL) return fail(err, ERR_MEMORY, "no memory to compare %s", k->name);
    const enum error_code e = golden_read(replay->golden, k->name, F64, tensor_count(*want), want->data, err);
    if (!e) *apart = tensor_apart(k->values, *want);
    return e;
}

/* Every result of the file has to be computed exactly once. */
enum error_code replay_covers(const struct replay *replay, struct error *err)
{
    const struct safetensors *file = &replay->golden->file;
    for (int e = 0; e < file->count; e++) {
        const char *name = file->entry[e].name;
        int times = golden_is_input(name);
        for (int i = 0; i < replay->records; i++) times += strcmp(replay->record[i].name, name) == 0;
        if (times != 1)
            return fail(err, ERR_CHECK, "%s: %s was computed %d times", printable_path(file->path).text, name, times);
    }
    return OK;
}
