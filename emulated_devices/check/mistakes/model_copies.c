/* model_copies.c -- runs the one-device model on the labels of one copy and keeps its gradients.  report/singles.c
 * opens the copies for the ranks along dp, and mistakes/ asks for them by name.  Only ERR_MEMORY is an error: a
 * copy that cannot be run is not found. */
#include "emulated_devices/check/mistakes/model_copies.h"
#include "emulated_devices/check/mistakes/own_model.h"
#include "ref/model/operands.h"
#include "ref/model/params.h"
#include "ref/model/transformer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model_copies model_copies_of(const struct golden *golden, const struct single_params *params,
                                    const struct batch_cut *cut)
{
    return (struct model_copies){ .golden = golden, .params = params, .cut = cut, .n = cut ? cut->parts : 0 };
}

void model_copies_free(struct model_copies *copies)
{
    for (int k = 0; k < copies->n && copies->grad; k++) free(copies->grad[k]);
    free(copies->grad), free(copies->share), free(copies->begin);
    *copies = (struct model_copies){ 0 };
}

/* ---- one copy ---------------------------------------------------------------------------------------------------- */

/* Write a copy's labels [B S]; labels of other copies become -1, which the loss ignores.  @return the copy's part
 * of the labels that count. */
static double labels_of(const struct golden *golden, const struct batch_cut *cut, int k, int32_t *labels)
{
    int64_t all = 0, own = 0;
    for (int64_t i = 0; i < golden->B * golden->S; i++) {
        const bool is_own = cut->part[i / golden->S] == k;
        labels[i] = is_own ? golden->labels[i] : -1;
        all += golden->labels[i] >= 0, own += labels[i] >= 0;
    }
    return all ? (double)own / (double)all : 0;
}

/* Set the weights, corrections of routers and the seed of dropout that the first step has. */
static enum error_code model_copies_start(struct transformer *model, const struct golden *golden, struct error *err)
{
    enum error_code e = golden_read_biases(golden, model->router_bias, err);
    for (int i = 0; i < model->params && !e; i++) {
        char name[PARAM_NAME + 8];
        snprintf(name, sizeof name, "start/%s", model->spec[i].name);
        e = golden_read(golden, name, F64, tensor_count(model->w[i]), model->w[i].data, err);
    }
    model->seed = dropout_seed(golden->seed, 0);
    return e;
}

/* This copies the gradients of all parameters, one after another.  The model divides by the copy's own labels, so
 * `share` turns them into the copy's part of the batch's mean. */
static double *gradients_of(const struct transformer *model, double share)
{
    int64_t n = 0;
    for (int i = 0; i < model->params; i++) n += tensor_count(model->g[i]);
    double *all = malloc((size_t)n * sizeof *all + 1), *to = all;
    for (int i = 0; i < model->params && all; i++)
        for (int64_t j = 0; j < tensor_count(model->g[i]); j++) *to++ = share * tensor_get(model->g[i], j);
    return all;
}

/* Run our model on a copy's labels.  A copy that cannot be run has no gradients, and only ERR_MEMORY is reported. */
static enum error_code model_copies_compute(struct model_copies *copies, int k, struct error *err)
{
    const struct golden *g = copies->golden;
    struct transformer m;
    int32_t *labels = malloc((size_t)(g->B * g->S) * sizeof *labels + 1);
    if (labels == NULL) return fail(err, ERR_MEMORY, "no memory for the labels of a copy");
    copies->share[k] = labels_of(g, copies->cut, k, labels);
    /* A copy without labels has no loss. */
    enum error_code e = copies->share[k] > 0 ? transformer_open(&m, &g->config, F64, g->seed, err) : ERR_CHECK;
    if (!e) {
        e = model_copies_start(&m, g, err);
        const struct own_batch batch = { g->ids, labels, golden_positions(g, 0, 0), g->B, 0 };
        if (!e) e = own_model_batch(&m, &batch, g->S, err);
        if (!e) {
            copies->grad[k] = gradients_of(&m, copies->share[k]);
            if (copies->grad[k] == NULL) e = fail(err, ERR_MEMORY, "no memory for the gradients of a copy");
        }
        transformer_close(&m);
    }
    free(labels);
    return e == ERR_MEMORY ? e : OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int64_t model_copies_count(const struct param_spec *spec)
{
    return spec->ndim > 1 ? spec->dim[0] * spec->dim[1] : spec->dim[0];
}

/* Find where each parameter's gradients begin, once for all copies. */
static enum error_code find_begins(struct model_copies *copies, struct error *err)
{
    const struct single_params *all = copies->params;
    if (copies->begin) return OK;
    copies->begin = malloc(((size_t)all->count + 1) * sizeof *copies->begin);
    if (copies->begin == NULL) return fail(err, ERR_MEMORY, "no memory for the copies of a model");
    for (int64_t i = 0, at = 0; i < all->count; at += model_copies_count(&all->spec[i++])) copies->begin[i] = at;
    return OK;
}

/* Where a parameter's gradients begin in the copy's list; -1: no parameter has this name and size. */
static int64_t begin_of(const struct model_copies *copies, const char *name, int64_t count)
{
    const int i = single_params_find(copies->params, name);
    return i >= 0 && model_copies_count(&copies->params->spec[i]) == count ? copies->begin[i] : -1;
}

enum error_code model_copies_fetch(struct model_copies *copies, const char *name, struct tensor out,
                                   enum single_found *found, struct error *err)
{
    int k, used = 0;
    *found = SINGLE_HAS_NOT;
    /* The name must be copy/K/..., with K below n; any other name belongs to another source. */
    if (sscanf(name, "copy/%d/%n", &k, &used) != 1 || used == 0 || k < 0 || k >= copies->n) return OK;
    if (copies->grad == NULL) copies->grad = calloc((size_t)copies->n, sizeof *copies->grad);
    if (copies->share == NULL) copies->share = calloc((size_t)copies->n, sizeof *copies->share);
    if (copies->grad == NULL || copies->share == NULL)
        return fail(err, ERR_MEMORY, "no memory for the copies of a model");
    /* The gradients are computed when the first of them is asked for; later reads only copy. */
    enum error_code e = find_begins(copies, err);
    if (!e && copies->grad[k] == NULL) e = model_copies_compute(copies, k, err);
    if (e || copies->grad[k] == NULL) return e;
    const char *what = name + used;
    const int64_t at = strncmp(what, "grad/", 5) == 0
        ? begin_of(copies, what + 5, tensor_count(out)) : -1;
    if (strcmp(what, "share") == 0) tensor_set(out, 0, copies->share[k]);
    else if (at >= 0) memcpy(out.data, copies->grad[k] + at, (size_t)tensor_count(out) * sizeof(double));
    else return OK;
    *found = SINGLE_HAS;
    return OK;
}
