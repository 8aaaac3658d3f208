/* golden_list.c -- the tensors of a golden file with their bounds, stored or measured.
 *
 * check/report/ and verify/reference/ call this file.  Errors are ERR_CHECK if our model does not reproduce the file,
 * and those of bounds.c.
 */
#include "ref/golden/bounds.h"
#include "ref/io/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stored bounds serve unless this run adds up more parts than they were measured with; a missing file is no error. */
static enum error_code bounds_of(const struct replay *plain, enum dtype dtype, int parts, int gradient_parts,
                                 double bound[], struct error *err)
{
    struct perturbation twin = bound_twin(dtype);
    if (parts <= twin.parts && gradient_parts <= twin.gradient_parts) {
        const enum error_code e = bounds_read(plain, dtype, bound, err);
        if (e != ERR_FILE) return e;
    }
    if (parts > twin.parts) twin.parts = parts;
    if (gradient_parts > twin.gradient_parts) twin.gradient_parts = gradient_parts;
    return bounds_measure(plain, dtype, twin, bound, NULL, err);
}

/* Check that our model reproduces the file.  In fp32 the error may be as large as the bound; for a file of another
 * model it is much larger. */
static enum error_code agree_with_file(const struct replay *replay, const double bound[], struct error *err)
{
    enum error_code e = replay_covers(replay, err);
    for (int i = 0; i < replay->records && !e; i++) {
        struct apart apart;
        struct tensor want = tensor_none;
        e = replay_compare(replay, i, &apart, &want, err);
        free(want.data);
        if (!e && isfinite(bound[i]) && !(apart.relative <= bound[i] + 1e-10))
            e = fail(err, ERR_CHECK, "%s: %s is not what our model computes; it differs by %.3g",
                     printable_path(replay->golden->file.path).text, replay->record[i].name, apart.relative);
    }
    return e;
}

static enum error_code make_list(const struct replay *replay, const double bound[], struct golden_list *list,
                                 struct error *err)
{
    *list = (struct golden_list){ .count = replay->records,
                                 .all = calloc((size_t)replay->records + 1, sizeof *list->all) };
    if (list->all == NULL) return fail(err, ERR_MEMORY, "no memory for %d bounds", replay->records);
    for (int i = 0; i < replay->records; i++) {
        memcpy(list->all[i].name, replay->record[i].name, sizeof list->all[i].name);
        list->all[i].bound = bound[i];
    }
    return OK;
}

/* ---- bounds as they are stored ----------------------------------------------------------------------------------- */

/* Every tensor that was computed has a bound, and is in the file. */
static enum error_code take_bounds(const struct golden *golden, const cJSON *bounds, const char *path,
                                   struct golden_list *list, struct error *err)
{
    const cJSON *one;
    int computed = 0;
    for (int i = 0; i < golden->file.count; i++) computed += !golden_is_input(golden->file.entry[i].name);
    list->all = calloc((size_t)cJSON_GetArraySize(bounds) + 1, sizeof *list->all);
    if (list->all == NULL) return fail(err, ERR_MEMORY, "no memory for the bounds of %s", path);
    cJSON_ArrayForEach(one, bounds) {
        struct golden_tensor *t = &list->all[list->count++];
        const bool any = cJSON_IsNull(one), number = cJSON_IsNumber(one) && one->valuedouble > 0;
        snprintf(t->name, sizeof t->name, "%s", one->string);
        t->bound = any ? INFINITY : one->valuedouble;
        if ((!any && !number) || safetensors_find(&golden->file, t->name) == NULL || golden_is_input(t->name))
            return fail(err, ERR_FORMAT, "%s: \"%s\" is no tensor that was computed, with a bound above 0", path,
                        printable(one->string).text);
    }
    return list->count == computed ? OK : fail(err, ERR_FORMAT, "%s: has bounds of %d tensors, but %d were computed",
                                               path, list->count, computed);
}

/* Read the bounds that stand beside the file, for one format. */
enum error_code golden_stored(const struct golden *golden, enum dtype dtype, struct golden_list *list,
                              struct error *err)
{
    *list = (struct golden_list){ 0 };
    const struct bounds_path path = bounds_beside(golden->file.path);
    const cJSON *format = NULL, *bounds;
    cJSON *root;
    enum error_code e = json_read(path.text, &root, err);
    if (e) return e;
    e = json_object(root, path.text, dtype_name(dtype), &format, err);
    if (!e) e = json_object(format, path.text, "bounds", &bounds, err);
    if (!e) e = take_bounds(golden, bounds, printable_path(path.text).text, list, err);
    cJSON_Delete(root);
    if (e) golden_list_free(list);
    return e;
}

/* With hashes the stored bounds are trusted; else the model runs, and has to agree with the file first. */
enum error_code golden_measure(const struct golden *golden, enum dtype dtype, int parts, int gradient_parts,
                               struct golden_list *list, struct error *err)
{
    struct replay plain;
    /* Parts are sums stored in 16 bits; wide formats have none. */
    if (!dtype_is_narrow(dtype)) parts = gradient_parts = 1;
    *list = (struct golden_list){ 0 };
    if (golden->seal && parts <= BOUND_PARTS && gradient_parts <= BOUND_PARTS)
        return golden_stored(golden, dtype, list, err);
    enum error_code e = replay_run(&plain, golden, bound_base(dtype), NULL, err);
    if (e) return e;
    double *bound = calloc((size_t)plain.records + 1, sizeof *bound);
    e = bound ? bounds_of(&plain, dtype, parts, gradient_parts, bound, err)
              : fail(err, ERR_MEMORY, "no memory for %d bounds", plain.records);
    if (!e) e = agree_with_file(&plain, bound, err);
    if (!e) e = make_list(&plain, bound, list, err);
    free(bound);
    replay_free(&plain);
    return e;
}

/* ---- exact sums -------------------------------------------------------------------------------------------------- */

/* The bound of each of the list's tensors grows by that of its record. */
static enum error_code add_bounds(struct golden_list *list, const struct replay *replay, const double bound[],
                                  struct error *err)
{
    for (int i = 0; i < list->count; i++) {
        int r = 0;
        while (r < replay->records && strcmp(replay->record[r].name, list->all[i].name) != 0) r++;
        if (r == replay->records)
            return fail(err, ERR_CHECK, "%s: %s is nothing that our model computes",
                        printable_path(replay->golden->file.path).text, list->all[i].name);
        list->all[i].bound += bound[r];
    }
    return OK;
}

/* Errors of grids are those of fp32 numbers in each format, since 16-bit numbers are operands as they are. */
enum error_code golden_add_grids(const struct golden *golden, enum exact_rule rule, struct golden_list *list,
                                 struct error *err)
{
    struct replay plain;
    enum error_code e = replay_run(&plain, golden, F32, NULL, err);
    if (e) return e;
    double *const bound = calloc((size_t)plain.records + 1, sizeof *bound);
    e = bound ? bounds_measure(&plain, F32, (struct perturbation){ .grids = rule }, bound, NULL, err)
              : fail(err, ERR_MEMORY, "no memory for %d bounds", plain.records);
    if (!e) e = add_bounds(list, &plain, bound, err);
    free(bound);
    replay_free(&plain);
    return e;
}

void golden_list_free(struct golden_list *list)
{
    free(list->all);
    *list = (struct golden_list){ 0 };
}

double golden_list_bound(const struct golden_list *list, const char *name)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->all[i].name, name) == 0) return list->all[i].bound;
    return 0;
}
