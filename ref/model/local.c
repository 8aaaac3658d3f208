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

static bool complete(const struct tensor t[], int count) { return t != NULL && t[count - 1].data != NULL; }

static void drop(struct tensor *t, int count)
{
    for (int i = 0; t && i < count; i++) free(t[i].data);
    free(t);
}

enum error_code local_open(struct local_run *l, int replicas, const struct model_config *c, enum dtype t, uint64_t seed,
                           const struct optimizer *o, const struct hyperparameters *h, struct outer outer,
                           struct error *err)
{
    enum error_code e = OK;
    *l = (struct local_run){ .outer = outer, .optimizer = o, .hyper = *h };
    l->replica = calloc((size_t)replicas, sizeof *l->replica);
    l->theta = calloc((size_t)replicas, sizeof *l->theta);
    bool ok = l->replica != NULL && l->theta != NULL;
    while (ok && !e && l->replicas < replicas) {
        struct replica *r = &l->replica[l->replicas];
        e = transformer_open(&r->model, c, t, seed, err);
        if (e) break;
        l->replicas++;
        r->state = zeros_like(r->model.w, r->model.params, OPTIMIZER_MAX_STATES);
        ok = complete(r->state, r->model.params * OPTIMIZER_MAX_STATES);
    }
    if (e) return e;
    const struct transformer *m = ok ? &l->replica[0].model : NULL;
    l->anchor = ok ? zeros_like(m->w, m->params, 1) : NULL;
    l->momentum = ok ? zeros_like(m->w, m->params, 1) : NULL;
    if (!ok || !complete(l->anchor, m->params) || !complete(l->momentum, m->params))
        return fail(err, ERR_MEMORY, "no memory for %d replicas", replicas);
    local_start(l, m->w);
    return OK;
}

void local_close(struct local_run *l)
{
    const int params = l->replicas > 0 ? l->replica[0].model.params : 0;
    drop(l->anchor, params), drop(l->momentum, params);
    for (int r = 0; r < l->replicas; r++) {
        drop(l->replica[r].state, params * OPTIMIZER_MAX_STATES);
        transformer_close(&l->replica[r].model);
    }
    free(l->replica), free(l->theta);
    *l = (struct local_run){ 0 };
}

static void copy(struct tensor to, struct tensor from)
{
    if (to.data != from.data) memcpy(to.data, from.data, tensor_bytes(to));
}

void local_start(struct local_run *l, const struct tensor w[])
{
    l->step = 0;
    for (int i = 0; i < l->replica[0].model.params; i++) {
        copy(l->anchor[i], w[i]);
        memset(l->momentum[i].data, 0, tensor_bytes(w[i]));
        for (int r = 0; r < l->replicas; r++) {
            copy(l->replica[r].model.w[i], l->anchor[i]);
            for (int s = 0; s < OPTIMIZER_MAX_STATES; s++)
                memset(l->replica[r].state[i * OPTIMIZER_MAX_STATES + s].data, 0, tensor_bytes(w[i]));
        }
    }
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static enum error_code inner_step(const struct local_run *l, struct replica *r, const int32_t *ids,
                                  const int32_t *labels, int64_t B, int64_t S, struct error *err)
{
    struct transformer *m = &r->model;
    const struct hyperparameters *h = &l->hyper;
    const enum error_code e = transformer_forward(m, ids, labels, B, S, &r->loss, err);
    if (e) return e;
    transformer_backward(m);
    r->norm = transformer_gradient_norm(m);
    for (int i = 0; i < m->params; i++)
        optimizer_step(l->optimizer, m->w[i], m->g[i], &r->state[i * OPTIMIZER_MAX_STATES],
                       (struct step){ .lr = learning_rate(h, l->step),
                                      .t = l->step,
                                      .gradient_scale = clip_scale(h, r->norm),
                                      .hyper = h,
                                      .weight_decay = weight_decay_of(h, m->spec[i].decay) });
    transformer_zero_gradients(m);
    return OK;
}

enum error_code local_step(struct local_run *l, const int32_t *ids, const int32_t *labels, const int64_t first[],
                           int64_t S, uint64_t seed, struct error *err)
{
    enum error_code e = OK;
    l->step++;
    for (int r = 0; r < l->replicas && !e; r++) {
        l->replica[r].model.seed = seed;
        /* Replica r trains on sequences first[r] .. first[r + 1]; dropout counts sequences of the whole batch. */
        l->replica[r].model.first = first[r];
        e = inner_step(l, &l->replica[r], ids + first[r] * S, labels + first[r] * S, first[r + 1] - first[r], S, err);
    }
    if (e || !outer_follows(&l->outer, l->step)) return e;
    for (int i = 0; i < l->replica[0].model.params; i++) {
        /* The outer step of a parameter: anchor and momentum change, and every replica gets the anchor. */
        for (int r = 0; r < l->replicas; r++) l->theta[r] = l->replica[r].model.w[i];
        outer_step(&l->outer, learning_rate(&l->hyper, l->step), l->anchor[i], l->momentum[i], l->theta, l->replicas);
    }
    return OK;
}
