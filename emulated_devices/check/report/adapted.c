/* adapted.c -- compares a program that trains low-rank adapters with a golden file of the whole weights.
 * checker.c calls.  A tensor that differs is a finding, not an error; errors are those of reading and of memory. */
#include "emulated_devices/check/report/adapted.h"
#include "emulated_devices/check/report/sums.h"
#include "ref/golden/bounds.h"
#include "ref/golden/golden.h"
#include "ref/model/params.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what there is ----------------------------------------------------------------------------------------------- */

/* Find a parameter of the model.  @return false: it has none of this name. */
static bool adapted_param(const struct golden *golden, const char *name, struct param_spec *out)
{
    for (int i = 0; i < model_param_count(&golden->config); i++) {
        *out = model_param(&golden->config, i);
        if (strcmp(out->name, name) == 0) return true;
    }
    return false;
}

enum error_code adapted_check(const struct golden *golden, const struct actual *actual, struct error *err)
{
    const struct adapters *const list = &actual->adapters;
    struct param_spec spec;
    for (int i = 0; i < list->count; i++) {
        const struct adapter *const a = &list->all[i];
        if (!adapted_param(golden, a->of, &spec) || !param_is_linear(&spec))
            return fail(err, ERR_FORMAT, "adapter %s is of %s, which is no matrix of a layer in the golden file's "
                        "model",
                        printable(a->name).text, printable(a->of).text);
        if (interval_end(a->rows) > spec.dim[0])
            return fail(err, ERR_FORMAT, "adapter %s has rows up to %lld of %s, which has %lld",
                        printable(a->name).text, (long long)interval_end(a->rows), spec.name, (long long)spec.dim[0]);
    }
    for (int i = 0; i < list->trained; i++)
        if (!adapted_param(golden, list->whole[i], &spec))
            return fail(err, ERR_FORMAT, "the dump trains %s beside its adapters, which the golden file does not have",
                        printable(list->whole[i]).text);
    return OK;
}

int adapted_most(const struct actual *actual) { return actual->adapters.count > 0 ? 1 + 2 * PARAM_MOST_PARTS : 1; }

static bool has_adapter(const struct actual *actual, const char *param)
{
    for (int i = 0; i < actual->adapters.count; i++)
        if (strcmp(actual->adapters.all[i].of, param) == 0) return true;
    return false;
}

/* The parameter in a name; "" in a name that has none. */
static const char *param_in(const char *name)
{
    const char *const slash = strrchr(name, '/');
    return param_is_name(name) && slash ? slash + 1 : "";
}

/* Make an evidence of one comparison that all ranks share. */
static enum error_code all_ranks(const struct actual *actual, const struct sums *sums, double bound,
                                 struct checked *checked, struct error *err)
{
    checked->on = calloc(1, sizeof *checked->on);
    if (checked->on == NULL) return fail(err, ERR_MEMORY, "no memory to compare %s", checked->name);
    checked->on->rounding = bound;
    for (int r = 0; r < actual->mesh.devices; r++) evidence_add(checked->on, r, true, sums_scale(sums), sums->truth);
    return OK;
}

/* ---- the weights that the program begins with -------------------------------------------------------------------- */

static double adapted_norm(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* The numbers of a weight: the golden file's, the program's with its adapters, and its base alone. */
struct begun { double *truth, *have, *base; int64_t count; };

/* Base, A and B are each stored in the format, so their sum may be off by as much of each. */
static enum error_code compare_begun(const struct actual *actual, const struct begun *begun, struct checked *checked,
                                     enum dtype format, struct error *err)
{
    struct sums sums = { .expected = begun->count };
    const double size = adapted_norm(begun->truth, begun->count), base = adapted_norm(begun->base, begun->count);
    for (int64_t i = 0; i < begun->count; i++) begun->base[i] = begun->have[i] - begun->base[i];
    const double far = 4 * dtype_unit(format) * (base + adapted_norm(begun->base, begun->count));
    sums_add(&sums, tensor_1d(begun->have, F64, begun->count), 0, tensor_1d(begun->truth, F64, begun->count), 0,
             begun->count);
    checked->error = sums_error(&sums, size), checked->compared = true;
    checked->bound = relative_or_absolute(far, size, begun->count, format);
    if (checked->error <= checked->bound) return OK;
    checked->finding = DIFFERS;
    snprintf(checked->why, sizeof checked->why, "the golden file is of other weights than base + scaling B A: make it "
             "of the merged model that the program begins with");
    return all_ranks(actual, &sums, checked->bound, checked, err);
}

static enum error_code read_begun(const struct golden *golden, const struct actual *actual, const char *name,
                                  const int64_t dim[2], const struct begun *begun, bool *whole, struct error *err)
{
    struct assembly all = { 0 }, base = { 0 };
    enum error_code e = assembly_make(&all, actual, name, dim, begun->have, NULL, err);
    if (!e) e = assembly_base(&base, actual, name, dim, begun->base, err);
    if (!e) e = golden_read(golden, name, F64, begun->count, begun->truth, err);
    *whole = !e && all.any && base.any && all.missing + base.missing == 0;
    return e;
}

enum error_code adapted_start(const struct golden *golden, const struct actual *actual, struct checked *checked,
                              bool *is, enum dtype format, struct error *err)
{
    struct param_spec spec;
    const char *const param = param_in(checked->name);
    *is = has_adapter(actual, param) && adapted_param(golden, param, &spec);
    if (!*is) return OK;
    const int64_t dim[2] = { spec.dim[0], spec.dim[1] }, count = dim[0] * dim[1];
    double *const room = malloc((size_t)count * 3 * sizeof *room + 1);
    const struct begun begun = { room, room ? room + count : NULL, room ? room + 2 * count : NULL, count };
    bool whole = false;
    enum error_code e = room ? read_begun(golden, actual, checked->name, dim, &begun, &whole, err)
                             : fail(err, ERR_MEMORY, "no memory to compare %s", checked->name);
    if (e == ERR_CHECK) {
        checked->finding = MISSHAPED;
        snprintf(checked->why, sizeof checked->why, "%.299s", err->text);
        e = OK;
    } else if (!e && !whole) {
        checked->finding = INCOMPLETE;
        snprintf(checked->why, sizeof checked->why, "the weight has adapters, and the dump lacks a part of its base, "
                 "of A or of B before the first step");
    } else if (!e) e = compare_begun(actual, &begun, checked, format, err);
    free(room);
    return e;
}

/* ---- gradients of A and B ---------------------------------------------------------------------------------------- */

/* The gradients of an adapter follow from these numbers. */
struct follows { double *dW, *A, *B; int64_t cols; double size; };

static enum error_code follows_read(const struct golden *golden, const struct actual *actual,
                                    const struct adapter *adapter, struct follows *f, bool *whole, struct error *err)
{
    char name[RECORD_NAME + PARAM_NAME];
    struct assembly A = { 0 }, B = { 0 };
    const int64_t of_A[2] = { adapter->rank, f->cols }, of_B[2] = { adapter->rows.count, adapter->rank };
    snprintf(name, sizeof name, "start/%s", adapter_name(adapter, 'A').text);
    enum error_code e = assembly_make(&A, actual, name, of_A, f->A, NULL, err);
    snprintf(name, sizeof name, "start/%s", adapter_name(adapter, 'B').text);
    if (!e) e = assembly_make(&B, actual, name, of_B, f->B, NULL, err);
    snprintf(name, sizeof name, "grad/%s", adapter->of);
    const int64_t all = safetensors_find(&golden->file, name) ? safetensors_find(&golden->file, name)->count : 0;
    double *const dW = malloc((size_t)all * sizeof *dW + 1);
    if (!e && dW == NULL) e = fail(err, ERR_MEMORY, "no memory for the gradient of %s", adapter->of);
    if (!e) e = golden_read(golden, name, F64, all, dW, err);
    if (!e) f->size = adapted_norm(dW, all);
    f->dW = dW;
    *whole = !e && A.any && B.any && A.missing + B.missing == 0;
    return e;
}

/* Hold the gradient of A or B to the golden file's gradient of W, which may be off by `bound` of itself. */
static enum error_code compare_gradient(const struct golden *golden, const struct actual *actual,
                                        const struct adapter *adapter, char which, double bound,
                                        struct checked *checked, enum dtype format, struct error *err)
{
    struct param_spec spec = { 0 };
    bool whole = false;
    adapted_param(golden, adapter->of, &spec);
    const int64_t cols = spec.dim[1], rank = adapter->rank, rows = adapter->rows.count,
                  n = which == 'A' ? rank : rows, m = which == 'A' ? cols : rank;
    double *const room = calloc((size_t)(rank * cols + rows * rank + n * m) + 1, sizeof *room);
    if (room == NULL) return fail(err, ERR_MEMORY, "no memory to compare %s", checked->name);
    struct follows f = { .A = room, .B = room + rank * cols, .cols = cols };
    double *const truth = f.B + rows * rank;
    enum error_code e = follows_read(golden, actual, adapter, &f, &whole, err);
    if (!e && whole) {
        adapter_gradient(adapter, which, which == 'A' ? f.B : f.A, f.dW, cols, truth);
        const double other = which == 'A' ? adapted_norm(f.B, rows * rank) : adapted_norm(f.A, rank * cols),
                     far = fabs(adapter->scaling) * other * f.size * (bound + 8 * dtype_unit(format));
        checked->bound = relative_or_absolute(far, adapted_norm(truth, n * m), n * m, format);
        e = checker_compare(golden, actual, tensor_2d(truth, F64, n, m), checked, format, err);
    } else if (!e || e == ERR_CHECK) checked->finding = ALONE, e = OK;
    free(room), free(f.dW);
    return e;
}

/* ---- in the place of a golden tensor ----------------------------------------------------------------------------- */

/* Names of tensors that the golden file does not have live as long as the result. */
static struct checked *adapted_add(struct check_result *result, const char *golden_name, const struct adapter *adapter,
                                   char which)
{
    struct checked *const c = &result->all[result->count++];
    struct later_name *const name = &result->adapted[result->adapteds++];
    const int before = (int)(param_in(golden_name) - golden_name);
    snprintf(name->text, sizeof name->text, "%.*s%s", before, golden_name, adapter_name(adapter, which).text);
    *c = (struct checked){ .name = name->text, .finding = ALONE, .bound = INFINITY };
    return c;
}

/* Whether the program has some A or B at the same time: then it must have all of them. */
static bool has_others(const struct actual *actual, const char *golden_name)
{
    char name[RECORD_NAME + PARAM_NAME];
    const int before = (int)(param_in(golden_name) - golden_name);
    for (int i = 0; i < 2 * actual->adapters.count; i++) {
        snprintf(name, sizeof name, "%.*s%s", before, golden_name,
                 adapter_name(&actual->adapters.all[i / 2], i % 2 ? 'B' : 'A').text);
        if (actual_has(actual, name)) return true;
    }
    return false;
}

/* Judge A and B in the place of W: gradients of the first pass by the golden file, all else by what the program has. */
static enum error_code take_factors(const struct golden *golden, const struct actual *actual,
                                    const struct checked *of, struct check_result *result, enum dtype format,
                                    struct error *err)
{
    const bool gradient = strncmp(of->name, "grad/", 5) == 0, others = has_others(actual, of->name);
    enum error_code e = OK;
    for (int i = 0; i < 2 * actual->adapters.count && others && !e; i++) {
        const struct adapter *const a = &actual->adapters.all[i / 2];
        const char which = i % 2 ? 'B' : 'A';
        if (strcmp(a->of, param_in(of->name)) != 0) continue;
        struct checked *const c = adapted_add(result, of->name, a, which);
        if (!actual_has(actual, c->name)) {
            c->finding = MISSING;
            snprintf(c->why, sizeof c->why, "A and B of every adapter are trained, and others are there");
        } else if (gradient) e = compare_gradient(golden, actual, a, which, of->bound, c, format, err);
    }
    return e;
}

/* Whether a golden tensor is of a step: the program's own steps are others. */
static bool is_of_step(const char *name)
{
    return strcmp(name, "norm") == 0 || (strchr(name, '/') && strncmp(name, "act/", 4) != 0 &&
                                         strncmp(name, "grad/", 5) != 0);
}

/* No number is as small as this part of another: what differs in a bit has moved. */
static const double MOVED = 1e-30;

/* Read the base that a frozen weight must still be: that of the start or, while a step at a time is judged, that of the
 * step before. */
static enum error_code read_frozen(const struct golden *golden, const struct actual *actual, const char *name,
                                   const int64_t dim[2], double *base, struct assembly *all, struct error *err)
{
    char before[RECORD_NAME + PARAM_NAME];
    const int64_t step = checker_step_of(golden, name);
    snprintf(before, sizeof before, "start/%s", param_in(name));
    if (!actual_has(actual, before) && step > 1)
        snprintf(before, sizeof before, "%.*s/%lld/weight/%s", (int)strcspn(name, "/"), name, (long long)step - 1,
                 param_in(name));
    return assembly_base(all, actual, before, dim, base, err);
}

/* A frozen weight after a step is bit for bit the one that the program has begun with. */
static enum error_code take_frozen(const struct golden *golden, const struct actual *actual, const struct checked *of,
                                   struct check_result *result, enum dtype format, struct error *err)
{
    struct param_spec spec = { 0 };
    struct assembly all = { 0 };
    struct checked *const c = &result->all[result->count++];
    *c = (struct checked){ .name = of->name, .finding = GIVEN };
    adapted_param(golden, param_in(of->name), &spec);
    const int64_t dim[2] = { spec.dim[0], spec.ndim > 1 ? spec.dim[1] : 1 }, count = dim[0] * dim[1];
    double *const base = malloc((size_t)count * sizeof *base + 1);
    enum error_code e = base ? read_frozen(golden, actual, of->name, dim, base, &all, err)
                             : fail(err, ERR_MEMORY, "no memory to compare %s", of->name);
    if (!e && all.any && all.missing == 0) {
        c->bound = MOVED;
        e = checker_compare(golden, actual, tensor_2d(base, F64, dim[0], dim[1]), c, format, err);
        if (!e && c->finding == DIFFERS)
            snprintf(c->why, sizeof c->why, "frozen, and yet moved: it is not what the program began with; only "
                     "adapters are trained");
    } else if (e == ERR_CHECK) e = OK;
    free(base);
    return e;
}

enum error_code adapted_frozen(const struct golden *golden, const struct actual *actual, struct check_result *result,
                               enum dtype format, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; actual->adapters.count > 0 && i < result->list.count && !e; i++) {
        const struct checked of = { .name = result->list.all[i].name };
        const char *const param = param_in(of.name);
        if (param[0] && strstr(of.name, "/weight/") && adapters_freeze(&actual->adapters, param) &&
            actual_has(actual, of.name))
            e = take_frozen(golden, actual, &of, result, format, err);
    }
    return e;
}

enum error_code adapted_take(const struct golden *golden, const struct actual *actual, const struct checked *of,
                             bool *is, struct check_result *result, enum dtype format, struct error *err)
{
    const char *const param = param_in(of->name);
    const bool frozen = param[0] && adapters_freeze(&actual->adapters, param), there = actual_has(actual, of->name),
               step = is_of_step(of->name);
    enum error_code e = OK;
    *is = actual->adapters.count > 0 && (frozen || (step && there));
    if (!*is) return OK;
    /* A gradient of a frozen weight may be there all the same: it is held to the golden file. */
    if (frozen && there && !step) *is = false;
    else if (there && !frozen) result->all[result->count++] = (struct checked){ .name = of->name, .finding = ALONE,
                                                                                .bound = INFINITY };
    return e || !frozen ? e : take_factors(golden, actual, of, result, format, err);
}
