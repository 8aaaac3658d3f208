/* bounds.c -- measures how far runs with disturbed roundings get from the truth, and stores that as bounds.
 *
 * make.c, golden_list.c and cli/golden/ call this file.  Errors are those of replays and of JSON files, and
 * ERR_MEMORY.
 */
#include "ref/golden/bounds.h"
#include "ref/io/json.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const enum dtype bound_formats[BOUND_FORMATS] = { F32, F64, BF16, F16 };

/* Round up to three significant digits, so that nearly equal measurements give the same text. */
static double three_digits(double x)
{
    char text[32];
    double rounded;
    if (!isfinite(x)) return INFINITY;
    snprintf(text, sizeof text, "%.2e", x);
    rounded = strtod(text, NULL);
    if (rounded < x) {
        snprintf(text, sizeof text, "%.2e", x * 1.005);
        rounded = strtod(text, NULL);
    }
    return rounded;
}

/* Formats of 16 bits differ more from twin to twin, so these formats have more twins. */
int bound_twins(enum dtype dtype) { return dtype_is_narrow(dtype) ? 64 : 16; }

struct perturbation bound_twin(enum dtype dtype)
{
    return (struct perturbation){ .parts = BOUND_PARTS, .gradient_parts = BOUND_PARTS, .stored = dtype };
}

struct perturbation bound_clean(enum dtype dtype, uint64_t seed)
{
    return (struct perturbation){ .seed = seed, .lambda = 1, .stored = dtype, .steps = 0.5 };
}

/* The furthest of all twins.  @param size  [plain->records] norms.  @param apart  [plain->records] scratch */
static enum error_code furthest(const struct replay *plain, enum dtype dtype, struct perturbation disturb,
                                const double *size, double *apart, double bound[], const struct bounds_watch *watch,
                                struct error *err)
{
    struct replay twin;
    enum error_code e = replay_twin_open(&twin, plain, dtype, err);
    if (e) return e;
    for (int seed = 1; seed <= bound_twins(dtype) && !e; seed++) {
        disturb.seed = (uint64_t)seed;
        e = replay_twin_run(&twin, &disturb, apart, NULL, err);
        for (int i = 0; i < plain->records && !e; i++) {
            const int64_t count = tensor_count(plain->record[i].values);
            const double d = relative_when_stored(sqrt(apart[i]), size[i], count, dtype);
            /* A distance of NaN counts as the largest. */
            if (exceeds(d, bound[i])) bound[i] = d;
        }
        if (watch && !e) watch->twin(watch->context, dtype, seed);
    }
    replay_free(&twin);
    return e;
}

/* bound[i] = the largest relative distance of record i over all twins, rounded up to three digits. */
enum error_code bounds_measure(const struct replay *plain, enum dtype dtype, struct perturbation disturb,
                               double bound[], const struct bounds_watch *watch, struct error *err)
{
    double *size = calloc((size_t)(2 * plain->records) + 1, sizeof *size);
    if (size == NULL) return fail(err, ERR_MEMORY, "no memory for %d distances", plain->records);
    for (int i = 0; i < plain->records; i++) {
        bound[i] = 0;
        size[i] = sqrt(squared_distance_of_quotient(plain->record[i].values, 1, tensor_none));
    }
    const enum error_code e = furthest(plain, dtype, disturb, size, size + plain->records, bound, watch, err);
    for (int i = 0; i < plain->records && !e; i++) bound[i] = three_digits(bound[i]);
    free(size);
    return e;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

struct bounds_path bounds_beside(const char *golden_path)
{
    struct bounds_path p;
    const char *end = strrchr(golden_path, '.');
    snprintf(p.text, sizeof p.text, "%.*s.bounds.json", (int)(end ? (size_t)(end - golden_path) : strlen(golden_path)),
             golden_path);
    return p;
}

/* A bound of null means any number: the tensor's twins got to infinity. */
enum error_code bounds_read(const struct replay *plain, enum dtype dtype, double bound[], struct error *err)
{
    const struct bounds_path path = bounds_beside(plain->golden->file.path);
    const cJSON *format, *list;
    cJSON *root;
    enum error_code e = json_read(path.text, &root, err);
    if (e) return e;
    e = json_object(root, path.text, dtype_name(dtype), &format, err);
    if (!e) e = json_object(format, path.text, "bounds", &list, err);
    for (int i = 0; i < plain->records && !e; i++) {
        /* A bound of null stands for infinity, which JSON has no number for. */
        bound[i] = INFINITY;
        if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(list, plain->record[i].name))) continue;
        e = json_double(list, path.text, plain->record[i].name, &bound[i], err);
        if (!e && !(bound[i] > 0))
            e = fail(err, ERR_FORMAT, "%s: the bound of %s is %g; it must be above 0", path.text, plain->record[i].name,
                     bound[i]);
    }
    cJSON_Delete(root);
    return e;
}

/* Measure the bounds of one format and add them to the document. */
enum error_code bounds_add(cJSON *root, const struct golden *golden, enum dtype dtype, const struct bounds_watch *watch,
                           struct error *err)
{
    struct replay plain;
    enum error_code e = replay_run(&plain, golden, bound_base(dtype), NULL, err);
    if (e) return e;
    double *bound = calloc((size_t)plain.records + 1, sizeof *bound);
    cJSON *format = cJSON_AddObjectToObject(root, dtype_name(dtype));
    bool ok = bound && cJSON_AddNumberToObject(format, "twins", bound_twins(dtype));
    cJSON *list = cJSON_AddObjectToObject(format, "bounds");
    ok = ok && list;
    if (ok) e = bounds_measure(&plain, dtype, bound_twin(dtype), bound, watch, err);
    for (int i = 0; i < plain.records && ok && !e; i++)
        ok = (isfinite(bound[i]) ? cJSON_AddNumberToObject(list, plain.record[i].name, bound[i])
                                 : cJSON_AddNullToObject(list, plain.record[i].name)) != NULL;
    free(bound);
    replay_free(&plain);
    return e || ok ? e : fail(err, ERR_MEMORY, "no memory for the bounds of %s", golden->file.path);
}

cJSON *bounds_document(const char *golden_path)
{
    const char *slash = strrchr(golden_path, '/');
    cJSON *root = cJSON_CreateObject();
    if (cJSON_AddStringToObject(root, "golden", slash ? slash + 1 : golden_path) &&
        cJSON_AddNumberToObject(root, "lambda", PERTURB_LAMBDA) && cJSON_AddNumberToObject(root, "parts", BOUND_PARTS))
        return root;
    cJSON_Delete(root);
    return NULL;
}

/* The bounds of all formats are measured, and the file is written at once. */
enum error_code bounds_write(const struct golden *golden, const struct bounds_watch *watch, struct error *err)
{
    const struct bounds_path path = bounds_beside(golden->file.path);
    cJSON *root = bounds_document(golden->file.path);
    enum error_code e = root ? OK : fail(err, ERR_MEMORY, "%s: no memory to write it", path.text);
    for (int f = 0; f < BOUND_FORMATS && !e; f++) e = bounds_add(root, golden, bound_formats[f], watch, err);
    if (!e) e = json_write(path.text, root, err);
    cJSON_Delete(root);
    return e;
}
