/* copies.c -- lets copies hold that differ only because each rank computed them from its own inputs.
 * emulated_devices/cli/check.c calls copies_explain after singles_check.  The counts of the result are made anew. */
#include "emulated_devices/check/report/copies.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* copies.h says where this factor comes from. */
static const double LATER = 4;

static bool is_of_first_pass(const struct checked *checked) { return strncmp(checked->name, "grad/", 5) == 0; }

/* "adamw/3/grad/NAME" */
static bool is_later_gradient(const struct checked *checked)
{
    const char *grad = strstr(checked->name, "/grad/");
    return grad != NULL && !is_of_first_pass(checked);
}

/* Whether the tensor was recomputed on each rank and is right everywhere. */
static bool each_is_right(const struct singles *singles, const struct checked *checked)
{
    const struct single_result *r = singles_find(singles, checked->name);
    return r && singles->each[r - singles->all];
}

/* First the largest distance of right copies in the first pass; then each tensor with copies apart is held to it. */
void copies_explain(struct check_result *result, const struct singles *singles)
{
    double first = 0;
    /* Only copies that are right everywhere say how far rounding may part copies. */
    for (int i = 0; i < result->count; i++)
        if (is_of_first_pass(&result->all[i]) && each_is_right(singles, &result->all[i]))
            first = fmax(first, result->all[i].distance);
    for (int i = 0; i < result->count; i++) {
        struct checked *c = &result->all[i];
        if (c->finding != COPIES) continue;
        if (!each_is_right(singles, c) && !(is_later_gradient(c) && c->distance <= fmin(LATER * first, c->bound)))
            continue;
        /* Only a tensor that holds gets the finding COPIES, so HOLDS or OPEN is right here. */
        c->apart = false, c->why[0] = 0;
        c->finding = bound_decides(c->bound) ? HOLDS : OPEN;
        free(c->on), c->on = NULL;
    }
    check_result_count(result);
}
