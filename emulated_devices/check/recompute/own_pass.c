/* own_pass.c -- puts together the weights that another program had before a step, and runs our model from them.
 * report/passes.c and report/choices.c call these functions.  A tensor that ACTUAL lacks, or that does not fit, is no
 * error: the caller learns that it is not there. */
#include "emulated_devices/check/recompute/own_pass.h"
#include "ref/numeric/distance.h"
#include "ref/model/operands.h"
#include "ref/model/params.h"
#include "ref/model/kinds.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum error_code own_tensor_read(const struct actual *actual, const char *name, const int64_t dim[2], double *values,
                                bool *there, struct error *err)
{
    struct assembly all;
    *there = false;
    const enum error_code e = assembly_make(&all, actual, name, dim, values, NULL, err);
    *there = e == OK && all.any && all.missing == 0;
    return e == ERR_CHECK ? OK : e;             /* pieces do not fit: the comparison reports it */
}

const char *own_name(const struct golden *golden, const char *optimizer, int64_t step, const char *param, char out[160])
{
    if (step == 0) snprintf(out, 160, "start/%.*s", PARAM_NAME, param);
    else if (step == golden->steps) snprintf(out, 160, "%.31s/weight/%.*s", optimizer, PARAM_NAME, param);
    else snprintf(out, 160, "%.31s/%d/weight/%.*s", optimizer, (int)step, PARAM_NAME, param);
    return out;
}

enum error_code own_biases_read(const struct golden *golden, const struct actual *actual, const char *optimizer,
                                int64_t step, double *bias, bool *there, struct error *err)
{
    const int64_t columns = mixture_columns(&golden->config.mixture);
    enum error_code e = OK;
    double *own = malloc((size_t)columns * sizeof *own + 1);
    *there = own != NULL;
    if (own == NULL) return fail(err, ERR_MEMORY, "no memory for the corrections of routers");
    for (int64_t l = 0; l < golden->config.L && !e; l++) {
        const struct param_spec s = model_router_bias(&golden->config, l);
        char name[160];
        bool one = false;
        if (s.ndim == 0) continue;
        e = own_tensor_read(actual, own_name(golden, optimizer, step, s.name, name), (int64_t[]){ columns, 1 }, own,
                            &one, err);
        if (!e && one) memcpy(bias + l * columns, own, (size_t)columns * sizeof *own);
        *there = *there && one;
    }
    free(own);
    return e;
}

/* Read one weight.  Before the first step the golden file has what ACTUAL has not. */
static enum error_code own_weight_read(const struct golden *golden, const struct actual *actual, const char *optimizer,
                                       int64_t step, const struct param_spec *spec, struct tensor out, bool *there,
                                       struct error *err)
{
    char name[160];
    own_name(golden, optimizer, step, spec->name, name);
    const int64_t dim[2] = { spec->dim[0], spec->ndim > 1 ? spec->dim[1] : 1 };
    const enum error_code e = own_tensor_read(actual, name, dim, out.data, there, err);
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

static int own_pass_compare(const void *a, const void *b)
{
    return strcmp(((const struct own_result *)a)->name, ((const struct own_result *)b)->name);
}

struct own_result *own_pass_find(const struct own_pass *pass, const char *name)
{
    struct own_result key, *found;
    snprintf(key.name, sizeof key.name, "%s", name);
    found = pass->count ? bsearch(&key, pass->all, (size_t)pass->count, sizeof key, own_pass_compare) : NULL;
    while (found && found > pass->all && own_pass_compare(found, found - 1) == 0) found--;
    return found;
}

struct own_result *own_pass_next(const struct own_pass *pass, struct own_result *result)
{
    struct own_result *const next = result + 1;
    return next < pass->all + pass->count && own_pass_compare(result, next) == 0 ? next : NULL;
}

/* replay.c asks which tensors it records. */
static bool own_pass_wants(const void *context, const char *name) { return own_pass_find(context, name) != NULL; }

enum error_code own_pass_open(struct own_pass *pass, const struct own_weights *own, const struct golden *golden,
                              int64_t step, const double *bias, struct error *err)
{
    const size_t biases = (size_t)own_pass_biases(golden);
    *pass = (struct own_pass){ .bias = malloc(biases * sizeof *bias + 1) };
    if (pass->bias == NULL) return fail(err, ERR_MEMORY, "no memory for the pass of step %lld", (long long)step + 1);
    memcpy(pass->bias, bias, biases * sizeof *bias);
    pass->begins = (struct replay_pass){ .step = step, .weights = own->all, .bias = pass->bias,
                                         .wanted = own_pass_wants, .context = pass };
    return OK;
}

/* Make room for one more result with so many numbers. */
static enum error_code own_pass_grow(struct own_pass *pass, const char *name, const int64_t dim[2], int entry,
                                     struct own_result **out, struct error *err)
{
    struct own_result *more = realloc(pass->all, (size_t)(pass->count + 1) * sizeof *more);
    if (more) pass->all = more;
    double *have = malloc((size_t)(dim[0] * dim[1]) * sizeof *have + 1);
    if (more == NULL || have == NULL) {
        free(have);
        return fail(err, ERR_MEMORY, "no memory to judge %s", name);
    }
    *out = &pass->all[pass->count++];
    **out = (struct own_result){ .entry = entry, .have = have, .dim = { dim[0], dim[1] }, .count = dim[0] * dim[1],
                                 .record = -1 };
    snprintf((*out)->name, sizeof (*out)->name, "%s", name);
    return OK;
}

enum error_code own_pass_add(struct own_pass *pass, const struct golden *golden, const struct actual *actual,
                             const char *name, const char *actual_name, int entry, struct error *err)
{
    const struct safetensors_entry *of = safetensors_find(&golden->file, name);
    struct own_result *result = NULL;
    bool there = false;
    if (of == NULL) return OK;
    /* A tensor's last dimension is its columns. */
    const int64_t cols = of->ndim > 1 ? of->dim[of->ndim - 1] : 1, dim[2] = { cols > 0 ? of->count / cols : 0, cols };
    enum error_code e = own_pass_grow(pass, name, dim, entry, &result, err);
    if (e) return e;
    e = own_tensor_read(actual, actual_name, dim, result->have, &there, err);
    if (!there) free(result->have), pass->count--;
    return e;
}

/* Read the factor that a gradient follows from, as it is before the step. */
static enum error_code read_other(struct own_factor *factor, const struct golden *golden, const struct actual *actual,
                                  const char *optimizer, int64_t step, bool *there, struct error *err)
{
    const struct adapter *const a = factor->of;
    const char other = factor->which == 'A' ? 'B' : 'A';
    const int64_t dim[2] = { other == 'A' ? a->rank : a->rows.count, other == 'A' ? factor->in : a->rank };
    char name[160];
    factor->other = malloc((size_t)(dim[0] * dim[1]) * sizeof *factor->other + 1);
    if (factor->other == NULL) return fail(err, ERR_MEMORY, "no memory to judge the adapter of %s", a->of);
    own_name(golden, optimizer, step, adapter_name(a, other).text, name);
    const enum error_code e = own_tensor_read(actual, name, dim, factor->other, there, err);
    if (!e && *there)
        factor->size = fabs(a->scaling) * sqrt(squared_distance(tensor_1d(factor->other, F64, dim[0] * dim[1]),
                                                                tensor_none));
    return e;
}

static void factor_free(struct own_factor *factor)
{
    if (factor) free(factor->other);
    free(factor);
}

enum error_code own_pass_add_factor(struct own_pass *pass, const struct golden *golden, const struct actual *actual,
                                    const char *optimizer, const char *actual_name, int entry, struct error *err)
{
    struct own_factor found = { 0 };
    struct own_result *result = NULL;
    char name[RECORD_NAME];
    bool there = false, other = false;
    found.of = adapters_find(&actual->adapters, actual_name, &found.which);
    if (found.of == NULL) return OK;
    snprintf(name, sizeof name, "grad/%s", found.of->of);
    const struct safetensors_entry *const of = safetensors_find(&golden->file, name);
    if (of == NULL || of->ndim != 2) return OK;
    found.in = of->dim[1];
    const int64_t rank = found.of->rank, dim[2] = { found.which == 'A' ? rank : found.of->rows.count,
                                                    found.which == 'A' ? found.in : rank };
    enum error_code e = own_pass_grow(pass, name, dim, entry, &result, err);
    if (e) return e;
    result->factor = malloc(sizeof *result->factor);
    if (result->factor == NULL) e = fail(err, ERR_MEMORY, "no memory to judge %s", actual_name);
    else *result->factor = found;
    if (!e) e = own_tensor_read(actual, actual_name, dim, result->have, &there, err);
    if (!e && there) e = read_other(result->factor, golden, actual, optimizer, pass->begins.step, &other, err);
    if (e || !there || !other) free(result->have), factor_free(result->factor), pass->count--;
    return e;
}

enum error_code own_pass_add_number(struct own_pass *pass, const char *name, double have, int entry, struct error *err)
{
    struct own_result *result = NULL;
    const enum error_code e = own_pass_grow(pass, name, (int64_t[]){ 1, 1 }, entry, &result, err);
    if (!e) result->have[0] = have;
    return e;
}

/* How far ACTUAL's gradient of A or B is from ours, in parts of what the weight's gradient may make of it. */
static enum error_code own_factor_off(struct own_result *result, int record, struct tensor ours, struct error *err)
{
    double *const made = malloc((size_t)result->count * sizeof *made + 1);
    if (made == NULL) return fail(err, ERR_MEMORY, "no memory to judge %s", result->name);
    own_factor_make(result->factor, ours, made);
    const double off = sqrt(squared_distance(tensor_1d(result->have, F64, result->count),
                                             tensor_1d(made, F64, result->count)));
    result->record = record, result->size = sqrt(squared_distance(ours, tensor_none));
    result->off = off == 0 ? 0 : off / (result->factor->size * result->size);
    free(made);
    return OK;
}

/* |x|^2 = |ours|^2 + 2 <x - ours, ours> + |x - ours|^2.  Ours has a norm where it is not zero. */
static double share_between(const struct own_result *result, double apart, double size)
{
    const double ours = result->size * result->size;
    return ours == 0 ? 0 : fabs(size - ours - apart) / (2 * ours);
}

double own_share_of(const struct own_result *result, double apart, double size, enum dtype dtype)
{
    if (!isfinite(apart)) return INFINITY;
    return relative_when_stored(share_between(result, apart, size) * result->size, result->size, result->count, dtype);
}

/* The order of records differs from that of results, so each result notes its record. */
enum error_code own_pass_run(struct own_pass *pass, const struct golden *golden, struct error *err)
{
    replay_free(&pass->plain);
    pass->begins.route = pass->route;
    qsort(pass->all, (size_t)pass->count, sizeof *pass->all, own_pass_compare);
    enum error_code e = replay_pass_run(&pass->plain, golden, F64, &pass->begins, NULL, err);
    for (int i = 0; i < pass->plain.records && !e; i++) {
        const struct tensor ours = pass->plain.record[i].values;
        struct own_result *r = own_pass_find(pass, pass->plain.record[i].name);
        for (; r; r = own_pass_next(pass, r)) {
            if (r->factor && !e) e = own_factor_off(r, i, ours, err);
            if (tensor_count(ours) != r->count || r->factor) continue;
            r->record = i, r->size = sqrt(squared_distance(ours, tensor_none));
            const double off = sqrt(squared_distance(tensor_1d(r->have, F64, r->count), ours));
            /* off = |have - ours| / |ours|; a result of zeros has no part that may be off. */
            r->off = off == 0 ? 0 : off / r->size;
            r->share.off = share_between(r, off * off, squared_distance(tensor_1d(r->have, F64, r->count),
                                                                         tensor_none));
        }
    }
    return e;
}

double own_result_apart(const struct own_pass *pass, const struct own_result *result, const struct replay *other,
                        enum dtype dtype)
{
    const double off = sqrt(squared_distance(other->record[result->record].values,
                                             pass->plain.record[result->record].values));
    return relative_when_stored(off, result->size, result->count, dtype);
}

void own_pass_close(struct own_pass *pass)
{
    for (int i = 0; i < pass->count; i++) {
        free(pass->all[i].have), free(pass->all[i].rest.truth);
        factor_free(pass->all[i].factor);
    }
    replay_free(&pass->plain);
    free(pass->all), free(pass->bias), free(pass->route);
    *pass = (struct own_pass){ 0 };
}
