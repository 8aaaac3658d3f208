#include "emulated_devices/check/report/copies.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LATER = 4;

static bool is_of_first_pass(const struct checked *c) { return strncmp(c->name, "grad/", 5) == 0; }

/* "adamw/3/grad/NAME" */
static bool is_later_gradient(const struct checked *c)
{
    const char *grad = strstr(c->name, "/grad/");
    return grad != NULL && !is_of_first_pass(c);
}

static bool each_is_right(const struct singles *s, const struct checked *c)
{
    const struct single_result *r = singles_find(s, c->name);
    return r && s->each[r - s->all];
}

void copies_explain(struct check_result *r, const struct singles *s)
{
    double first = 0;
    for (int i = 0; i < r->count; i++)
        if (is_of_first_pass(&r->all[i]) && each_is_right(s, &r->all[i])) first = fmax(first, r->all[i].distance);
    for (int i = 0; i < r->count; i++) {
        struct checked *c = &r->all[i];
        if (c->finding != COPIES) continue;
        if (!each_is_right(s, c) && !(is_later_gradient(c) && c->distance <= fmin(LATER * first, c->bound))) continue;
        c->apart = false, c->why[0] = 0;
        c->finding = bound_decides(c->bound) ? HOLDS : OPEN;
        free(c->on), c->on = NULL;
    }
    check_result_count(r);
}
