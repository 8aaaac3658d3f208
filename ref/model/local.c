/* local.c -- trains replicas separately on one device, and joins them by outer steps.  tests/ref/test_outer.c and
 * tests/devices/test_local.c call; no command does.  local_open reports ERR_MEMORY; errors of the model are passed
 * on. */
#include "ref/model/local.h"
#include <stdlib.h>
#include <string.h>

/* ---- building ---------------------------------------------------------------------------------------------------- */

/* `each` tensors of zeros for each of `count` tensors, of its shape and format. */
static struct tensor *zeros_like(const struct tensor w[], int count, int each)
{
    struct tensor *t = calloc((size_t)(count * each), sizeof *t);
    bool ok = t != NULL;
    for (int i = 0; ok && i < count * each; i++) {
        t[i] = w[i / each];
        /* There is one byte more, because calloc of nothing may return NULL. */
        t[i].data = calloc(1, tensor_bytes(t[i]) + 1);
        ok = t[i].data != NULL;
    }
    return t;
}

static bool local_complete(const struct tensor t[], int count) { return t != NULL && t[count - 1].data != NULL; }

static void local_drop(struct tensor *tensor, int count)
{
    for (int i = 0; tensor && i < count; i++) free(tensor[i].data);
    free(tensor);
}

enum error_code local_open(struct local_run *local_run, int replicas, const struct model_config *config,
                           enum dtype dtype, uint64_t seed,
                           const struct optimizer *optimizer, const struct hyperparameters *hyper, struct outer outer,
                           struct error *err)
{
    enum error_code e = OK;
    *local_run = (struct local_run){ .outer = outer, .optimizer = optimizer, .hyper = *hyper };
    local_run->replica = calloc((size_t)replicas, sizeof *local_run->replica);
    local_run->theta = calloc((size_t)replicas, sizeof *local_run->theta);
    bool ok = local_run->replica != NULL && local_run->theta != NULL;
    while (ok && !e && local_run->replicas < replicas) {
        struct replica *r = &local_run->replica[local_run->replicas];
        e = transformer_open(&r->model, config, dtype, seed, err);
        if (e) break;
        local_run->replicas++;
        r->state = zeros_like(r->model.w, r->model.params, OPTIMIZER_MAX_STATES);
        ok = local_complete(r->state, r->model.params * OPTIMIZER_MAX_STATES);
    }
    if (e) return e;
    const struct transformer *m = ok ? &local_run->replica[0].model : NULL;
    local_run->anchor = ok ? zeros_like(m->w, m->params, 1) : NULL;
    local_run->momentum = ok ? zeros_like(m->w, m->params, 1) : NULL;
    if (!ok || !local_complete(local_run->anchor, m->params) || !local_complete(local_run->momentum, m->params))
        return fail(err, ERR_MEMORY, "no memory for %d replicas", replicas);
    local_start(local_run, m->w);
    return OK;
}

void local_close(struct local_run *local_run)
{
    const int params = local_run->replicas > 0 ? local_run->replica[0].model.params : 0;
    local_drop(local_run->anchor, params), local_drop(local_run->momentum, params);
    for (int r = 0; r < local_run->replicas; r++) {
        local_drop(local_run->replica[r].state, params * OPTIMIZER_MAX_STATES);
        transformer_close(&local_run->replica[r].model);
    }
    free(local_run->replica), free(local_run->theta);
    *local_run = (struct local_run){ 0 };
}

static void local_copy(struct tensor to, struct tensor from)
{
    if (to.data != from.data) memcpy(to.data, from.data, tensor_bytes(to));
}

void local_start(struct local_run *local_run, const struct tensor w[])
{
    local_run->step = 0;
    for (int i = 0; i < local_run->replica[0].model.params; i++) {
        local_copy(local_run->anchor[i], w[i]);
        memset(local_run->momentum[i].data, 0, tensor_bytes(w[i]));
        for (int r = 0; r < local_run->replicas; r++) {
            local_copy(local_run->replica[r].model.w[i], local_run->anchor[i]);
            for (int s = 0; s < OPTIMIZER_MAX_STATES; s++)
                memset(local_run->replica[r].state[i * OPTIMIZER_MAX_STATES + s].data, 0, tensor_bytes(w[i]));
        }
    }
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static enum error_code inner_step(const struct local_run *local_run, struct replica *replica, const int32_t *ids,
                                  const int32_t *labels, int64_t B, int64_t S, struct error *err)
{
    struct transformer *m = &replica->model;
    const struct hyperparameters *h = &local_run->hyper;
    const enum error_code e = transformer_forward(m, ids, labels, B, S, &replica->loss, err);
    if (e) return e;
    transformer_backward(m);
    replica->norm = transformer_gradient_norm(m);
    for (int i = 0; i < m->params; i++)
        optimizer_step(local_run->optimizer, m->w[i], m->g[i], &replica->state[i * OPTIMIZER_MAX_STATES],
                       (struct step){ .lr = learning_rate(h, local_run->step),
                                      .t = local_run->step,
                                      .gradient_scale = clip_scale(h, replica->norm),
                                      .hyper = h,
                                      .weight_decay = weight_decay_of(h, m->spec[i].decay) });
    transformer_zero_gradients(m);
    return OK;
}

enum error_code local_step(struct local_run *local_run, const int32_t *ids, const int32_t *labels,
                           const int64_t first[], int64_t S, uint64_t seed, struct error *err)
{
    enum error_code e = OK;
    local_run->step++;
    for (int r = 0; r < local_run->replicas && !e; r++) {
        local_run->replica[r].model.seed = seed;
        /* Replica r trains on sequences first[r] .. first[r + 1]; dropout counts sequences of the whole batch. */
        local_run->replica[r].model.first = first[r];
        e = inner_step(local_run, &local_run->replica[r], ids + first[r] * S, labels + first[r] * S,
                       first[r + 1] - first[r], S, err);
    }
    if (e || !outer_follows(&local_run->outer, local_run->step)) return e;
    for (int i = 0; i < local_run->replica[0].model.params; i++) {
        /* The outer step of a parameter: anchor and momentum change, and every replica gets the anchor. */
        for (int r = 0; r < local_run->replicas; r++) local_run->theta[r] = local_run->replica[r].model.w[i];
        outer_step(&local_run->outer, learning_rate(&local_run->hyper, local_run->step), local_run->anchor[i],
                   local_run->momentum[i], local_run->theta, local_run->replicas);
    }
    return OK;
}
