/* singles_parts.c -- how many parts of a sum a program stores and then adds up. */
#include "emulated_devices/verify/check/singles.h"

int singles_parts(const struct actual *a)
{
    if (a->parts > 0) return a->parts;
    const int tp = a->mesh.size[TP], others = a->mesh.devices / a->mesh.size[PP] / tp;
    return tp > others ? tp : others;
}

int singles_gradient_parts(const struct golden *g, const struct actual *a)
{
    const int parts = singles_parts(a);
    if (a->parts > 0) return parts;
    const int of_layout = actual_micros(a), of_golden = actual_has(a, "micro/loss") ? (int)g->micros : 0,
              micros = of_layout > of_golden ? of_layout : of_golden;
    return micros > parts ? micros : parts;
}

enum error_code singles_find_parts(const struct golden *g, const struct actual *a, enum dtype format,
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
        e = singles_check_copy(g, a, format, more, wrong->name, NULL, &one, err);
        if (!e && one.name[0] && one.verdict < SINGLE_WRONG) out->parts = parts;
    }
    return e;
}
