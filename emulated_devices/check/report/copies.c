/* copies.c -- lets tensors hold that are right by their own inputs: copies that differ, and subnormal numbers.
 * emulated_devices/cli/check_judged.c calls copies_explain after singles_check.  The counts of the result are made
 * anew. */
#include "emulated_devices/check/report/copies.h"
#include "ref/golden/bounds.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* copies.h says where these factors come from. */
static const double LATER = 4, SUBNORMAL = 2;

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

/* Whether most numbers of a right result are subnormal ones of fp16. */
static bool is_subnormal(const struct singles *singles, const struct single_result *result)
{
    const double least = ldexp(dtype_step(F16), 10), count = (double)(result->rows * result->cols);
    return singles->format == F16 && result->squares[0] < least * least * count;
}

/* This is the result that the tensor's own inputs give.  A later pass may show no inputs; then its gradient in the
 * first pass stands for it. */
static const struct single_result *by_own_inputs(const struct singles *singles, const struct checked *checked)
{
    const struct single_result *r = singles_find(singles, checked->name);
    return r || !is_later_gradient(checked) ? r : singles_find(singles, strstr(checked->name, "/grad/") + 1);
}

/* A tensor of subnormal numbers may be off by twice its bound (copies.h). */
static void explain_subnormal(const struct singles *singles, struct checked *checked)
{
    const struct single_result *r = by_own_inputs(singles, checked);
    if (checked->finding != DIFFERS || !(checked->error <= SUBNORMAL * checked->bound) || r == NULL ||
        r->verdict >= SINGLE_WRONG || !is_subnormal(singles, r))
        return;
    checked->bound *= SUBNORMAL;
    checked->finding = bound_decides(checked->bound) ? HOLDS : OPEN;
    free(checked->on), checked->on = NULL;
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
        explain_subnormal(singles, c);
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
