/* own_pass.c -- puts together the weights that another program had before a step, and runs our model from them.
 * report/passes.c and report/choices.c call these functions.  A tensor that ACTUAL lacks, or that does not fit, is no
 * error: the caller learns that it is not there. */
#include "emulated_devices/check/recompute/own_pass.h"
#include "ref/numeric/distance.h"
#include "ref/model/operands.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum error_code own_tensor_read(const struct actual *actual, const char *name, const struct param_spec *spec,
                                double *values, bool *there, struct error *err)
{
    const int64_t dim[2] = { spec->dim[0], spec->ndim > 1 ? spec->dim[1] : 1 };
    struct assembly all;
    *there = false;
    if (!actual_has(actual, name)) return OK;
    const enum error_code e = assembly_make(&all, actual, name, dim, values, NULL, err);
    *there = e == OK && all.any && all.missing == 0;
    return e == ERR_CHECK ? OK : e;             /* pieces do not fit: the comparison reports it */
}

/* Read one weight.  Before the first step the golden file has what ACTUAL has not. */
static enum error_code own_weight_read(const struct golden *golden, const struct actual *actual, const char *optimizer,
                                       int64_t step, const struct param_spec *spec, struct tensor out, bool *there,
                                       struct error *err)
{
    char name[160];
    if (step == 0) snprintf(name, sizeof name, "start/%.*s", PARAM_NAME, spec->name);
    else snprintf(name, sizeof name, "%.31s/%lld/weight/%.*s", optimizer, (long long)step, PARAM_NAME, spec->name);
    const enum error_code e = own_tensor_read(actual, name, spec, out.data, there, err);
    if (e || *there || step > 0) return e;
    *there = true;
    return golden_read(golden, name, F64, tensor_count(out), out.data, err);
}

enum error_code own_weights_read(struct own_weights *own, const struct golden *golden, const struct actual *actual,
                                 const char *optimizer, int64_t step, struct error *err)
{
    const int params = model_param_count(&golden->config);
    *own = (struct own_weights){ .params = params, .complete = true,
                                 .all = calloc((size_t)params, sizeof *own->all) };
    enum error_code e = own->all ? OK : fail(err, ERR_MEMORY, "no memory for the weights before step %lld",
                                             (long long)step + 1);
    for (int i = 0; i < params && !e && own->complete; i++) {
        const struct param_spec spec = model_param(&golden->config, i);
        struct tensor *t = &own->all[i];
        const int64_t count = spec.dim[0] * (spec.ndim > 1 ? spec.dim[1] : 1);
        *t = tensor_1d(malloc((size_t)count * sizeof(double) + 1), F64, count);
        if (t->data == NULL) e = fail(err, ERR_MEMORY, "no memory for the weights of %s", spec.name);
        else e = own_weight_read(golden, actual, optimizer, step, &spec, *t, &own->complete, err);
    }
    if (e) own_weights_free(own);
    return e;
}

void own_weights_free(struct own_weights *own)
{
    for (int i = 0; own->all && i < own->params; i++) free(own->all[i].data);
    free(own->all);
    *own = (struct own_weights){ 0 };
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static int64_t own_pass_biases(const struct golden *golden)
{
    const struct model_config *c = &golden->config;
    return c->mlp == MLP_MIXTURE ? c->L * mixture_columns(&c->mixture) : 0;
}

enum error_code own_pass_open(struct own_pass *pass, const struct own_weights *own, const struct golden *golden,
                              int64_t step, const double *bias, struct error *err)
{
    const size_t n = (size_t)own->params, biases = (size_t)own_pass_biases(golden);
    *pass = (struct own_pass){ .params = own->params, .have = calloc(n, sizeof *pass->have),
                               .size = calloc(4 * n, sizeof *pass->size),
                               .bias = malloc(biases * sizeof *bias + 1) };
    if (pass->have == NULL || pass->size == NULL || pass->bias == NULL) {
        own_pass_close(pass);
        return fail(err, ERR_MEMORY, "no memory for the pass of step %lld", (long long)step + 1);
    }
    pass->off = pass->size + n, pass->bound = pass->off + n, pass->spread = pass->bound + n;
    memcpy(pass->bias, bias, biases * sizeof *bias);
    pass->begins = (struct replay_pass){ .step = step, .weights = own->all, .bias = pass->bias };
    return OK;
}

enum error_code own_pass_run(struct own_pass *pass, const struct golden *golden, struct error *err)
{
    replay_free(&pass->plain);
    pass->begins.route = pass->route;
    const enum error_code e = replay_pass_run(&pass->plain, golden, F64, &pass->begins, NULL, err);
    for (int i = 0; i < pass->params && !e; i++) {
        const struct tensor g = pass->plain.model.g[i];
        pass->size[i] = sqrt(squared_distance(g, tensor_none)), pass->off[i] = 0;
        if (pass->have[i] == NULL) continue;
        const double off = sqrt(squared_distance(tensor_1d(pass->have[i], F64, tensor_count(g)), g));
        /* off = |have - g| / |g|; a gradient of zeros has no part that may be off. */
        pass->off[i] = off == 0 ? 0 : off / pass->size[i];
    }
    return e;
}

double own_pass_apart(const struct own_pass *pass, const struct replay *other, int param, enum dtype dtype)
{
    const struct tensor ours = pass->plain.model.g[param];
    const double off = sqrt(squared_distance_of_quotient(other->model.g[param], other->model.loss_scale, ours));
    return relative_when_stored(off, pass->size[param], tensor_count(ours), dtype);
}

void own_pass_close(struct own_pass *pass)
{
    for (int i = 0; pass->have && i < pass->params; i++) free(pass->have[i]);
    replay_free(&pass->plain);
    free(pass->have), free(pass->size), free(pass->bias), free(pass->route);
    *pass = (struct own_pass){ 0 };
}
