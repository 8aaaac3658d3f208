/* singles_find.c -- results of operations by their names, and how many parts of a sum a program stores and adds.
 * emulated_devices/cli/check.c asks for the parts that explain a wrong sum; checked_kinds.c and copies.c look up
 * results. */
#include "emulated_devices/check/report/singles.h"
#include "emulated_devices/check/report/batch_parts.h"
#include <stdlib.h>
#include <string.h>

/* Results of one name stay in order of execution, because their addresses decide. */
static int by_name(const void *a, const void *b)
{
    const struct single_result *const *x = a, *const *y = b;
    const int c = strcmp((*x)->name, (*y)->name);
    return c != 0 ? c : (*x > *y) - (*x < *y);
}

enum error_code singles_sort(struct singles *singles, struct error *err)
{
    const struct single_result **sorted = calloc((size_t)singles->count + 1, sizeof *sorted);
    singles->by_name = calloc((size_t)singles->count + 1, sizeof *singles->by_name);
    enum error_code e = sorted && singles->by_name ? OK : fail(err, ERR_MEMORY, "no memory for the results' names");
    for (int i = 0; i < singles->count && !e; i++) sorted[i] = &singles->all[i];
    if (!e) qsort(sorted, (size_t)singles->count, sizeof *sorted, by_name);
    for (int i = 0; i < singles->count && !e; i++) singles->by_name[i] = (int)(sorted[i] - singles->all);
    free(sorted);
    return e;
}

/* Find the place of the first result with this name in by_name, or where it would be. */
static int find_first(const struct singles *singles, const char *name)
{
    int low = 0, high = singles->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (strcmp(singles->all[singles->by_name[middle]].name, name) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The result at a place, if it still has this name. */
static const struct single_result *result_at(const struct singles *singles, int at, const char *name)
{
    const struct single_result *r = at < singles->count ? &singles->all[singles->by_name[at]] : NULL;
    return r && strcmp(r->name, name) == 0 ? r : NULL;
}

/* A wrong result wins over a right one, and a right one over one without a verdict. */
const struct single_result *singles_find(const struct singles *singles, const char *name)
{
    const int first = find_first(singles, name);
    const struct single_result *best = result_at(singles, first, name), *r;
    for (int i = first; (r = result_at(singles, i, name)) != NULL; i++)
        if ((r->verdict == SINGLE_WRONG && best->verdict != SINGLE_WRONG) ||
            (r->verdict < SINGLE_WRONG && best->verdict > SINGLE_WRONG))
            best = r;
    return best;
}

int singles_wrong(const struct singles *singles, const char *name)
{
    int wrong = 0;
    const struct single_result *r;
    for (int i = find_first(singles, name); (r = result_at(singles, i, name)) != NULL; i++)
        wrong += r->verdict == SINGLE_WRONG;
    return wrong;
}

/* ---- parts of sums ----------------------------------------------------------------------------------------------- */

/* If the dump does not say it, sums have as many stored parts as tp has ranks.  All other axes together count
 * instead if they have more. */
int singles_parts(const struct actual *actual)
{
    if (actual->parts > 0) return actual->parts;
    const int tp = actual->mesh.size[TP], others = actual->mesh.devices / actual->mesh.size[PP] / tp;
    return tp > others ? tp : others;
}

/* Each microbatch of each copy of the model stores a part of a gradient, too.  Without a layout that says which these
 * are, the highest number of a microbatch counts. */
int singles_gradient_parts(const struct golden *golden, const struct actual *actual)
{
    const int parts = singles_parts(actual);
    if (actual->parts > 0) return parts;
    const struct batch_parts batch = batch_parts_of(golden, actual);
    const int of_layout = batch.count > 0 ? batch.count : actual_micros(actual),
              of_golden = actual_has(actual, "micro/loss") ? (int)golden->micros : 0,
              micros = of_layout > of_golden ? of_layout : of_golden;
    free(batch.part);
    return micros > parts ? micros : parts;
}

/* More parts are tried one by one on the first wrong result, since each try recomputes it. */
enum error_code singles_find_parts(const struct golden *golden, const struct actual *actual, enum dtype format,
                                   struct rounding rounding, struct singles *out, struct error *err)
{
    enum { MOST_PARTS = 8 };
    const struct single_result *wrong = NULL;
    enum error_code e = OK;
    for (int i = 0; i < out->count && wrong == NULL; i++)
        if (out->all[i].verdict == SINGLE_WRONG) wrong = &out->all[i];
    if (wrong == NULL || !dtype_is_narrow(format) || wrong->rows * wrong->cols == 1) return OK;
    for (int parts = rounding.parts + 1; parts <= MOST_PARTS && !e && out->parts == 0; parts++) {
        struct rounding more = rounding;
        struct single_result one;
        more.parts = more.gradient_parts = parts;
        e = singles_check_copy(golden, actual, format, more, wrong->name, NULL, &one, err);
        /* A result that is right with so many parts answers the question for all results. */
        if (!e && one.name[0] && one.verdict < SINGLE_WRONG) out->parts = parts;
    }
    return e;
}
