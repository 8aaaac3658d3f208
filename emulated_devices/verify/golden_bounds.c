#include "emulated_devices/verify/golden_bounds.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum error_code bounds_of(const struct replay *plain, enum dtype t, int parts, int gradient_parts,
                                 double bound[], struct error *err)
{
    struct perturbation twin = bound_twin(t);
    if (parts <= twin.parts && gradient_parts <= twin.gradient_parts) {
        const enum error_code e = bounds_read(plain, t, bound, err);
        if (e != ERR_FILE) return e;
    }
    if (parts > twin.parts) twin.parts = parts;
    if (gradient_parts > twin.gradient_parts) twin.gradient_parts = gradient_parts;
    return bounds_measure(plain, t, twin, bound, err);
}

/* Check that our model reproduces the file.  In fp32 the error may be as large as the bound; for a file of another
 * model it is much larger. */
static enum error_code agree_with_file(const struct replay *r, const double bound[], struct error *err)
{
    enum error_code e = replay_covers(r, err);
    for (int i = 0; i < r->records && !e; i++) {
        struct apart apart;
        struct tensor want = tensor_none;
        e = replay_compare(r, i, &apart, &want, err);
        free(want.data);
        if (!e && isfinite(bound[i]) && !(apart.relative <= bound[i] + 1e-10))
            e = fail(err, ERR_CHECK, "%s: %s is not what our model computes; it differs by %.3g",
                     printable_path(r->golden->file.path).text, r->record[i].name, apart.relative);
    }
    return e;
}

static enum error_code make_list(const struct replay *r, const double bound[], struct golden_list *list,
                                 struct error *err)
{
    *list = (struct golden_list){ .count = r->records, .all = calloc((size_t)r->records + 1, sizeof *list->all) };
    if (list->all == NULL) return fail(err, ERR_MEMORY, "no memory for %d bounds", r->records);
    for (int i = 0; i < r->records; i++) {
        memcpy(list->all[i].name, r->record[i].name, sizeof list->all[i].name);
        list->all[i].bound = bound[i];
    }
    return OK;
}

enum error_code golden_measure(const struct golden *g, enum dtype t, int parts, int gradient_parts,
                               struct golden_list *list, struct error *err)
{
    struct replay plain;
    if (dtype_wide(t) == t) parts = gradient_parts = 1;
    *list = (struct golden_list){ 0 };
    enum error_code e = replay_run(&plain, g, bound_base(t), NULL, err);
    if (e) return e;
    double *bound = calloc((size_t)plain.records + 1, sizeof *bound);
    e = bound ? bounds_of(&plain, t, parts, gradient_parts, bound, err)
              : fail(err, ERR_MEMORY, "no memory for %d bounds", plain.records);
    if (!e) e = agree_with_file(&plain, bound, err);
    if (!e) e = make_list(&plain, bound, list, err);
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
