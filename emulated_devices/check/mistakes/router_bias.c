/* router_bias.c -- what the correction of a router is after a step with one mistake.
 * report/biases.c asks for a wrong one.  A hypothesis is taken if it gives all of the program's numbers. */
#include "emulated_devices/check/mistakes/router_bias.h"
#include "emulated_devices/check/recompute/turns.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 64 };

static bool router_bias_fits(const struct bias_move *move, const double *y)
{
    for (int64_t e = 0; e < move->columns; e++)
        if (!(fabs(y[e] - move->have[e]) <= move->near)) return false;
    return true;
}

/* y = the correction before the step + times what moves it. */
static bool router_bias_moved(const struct bias_move *move, double times, double *y)
{
    for (int64_t e = 0; e < move->columns; e++) y[e] = move->before[e] + times * (move->right[e] - move->before[e]);
    return router_bias_fits(move, y);
}

/* Add `times` what the choices of a part of the batch alone move the correction by. */
static void router_bias_add_part(const struct bias_move *move, int parts, int part, double times, double *y)
{
    double loads[1 << 12] = { 0 }, by[1 << 12] = { 0 };
    const int64_t from = part_begin(move->B, parts, part) * move->S,
                  to = part_begin(move->B, parts, part + 1) * move->S;
    for (int64_t i = from * move->k; i < to * move->k; i++) loads[move->experts[i]]++;
    router_move_bias(move->rule, by, loads, move->E, move->zero, move->k);
    for (int64_t e = 0; e < move->columns; e++) y[e] += times * by[e];
}

/* Try that each of so many parts of the batch moves the correction: only one of them, one after the other, or their
 * mean. */
static bool router_bias_try_parts(const struct bias_move *move, int parts, double *y, char *out, size_t size)
{
    if (parts < 2 || parts > MOST_PARTS || parts > move->B) return false;
    const size_t bytes = (size_t)move->columns * sizeof *y;
    for (int p = 0; p < parts; p++) {
        memcpy(y, move->before, bytes);
        router_bias_add_part(move, parts, p, 1, y);
        if (!router_bias_fits(move, y)) continue;
        snprintf(out, size, "it moves by the choices of part %d of %d of the batch alone: they are not summed", p + 1,
                 parts);
        return true;
    }
    for (int mean = 0; mean < 2; mean++) {
        memcpy(y, move->before, bytes);
        for (int p = 0; p < parts; p++) router_bias_add_part(move, parts, p, mean ? 1. / parts : 1, y);
        if (!router_bias_fits(move, y)) continue;
        snprintf(out, size, "each of %d parts of the batch moves it by its own choices, %s", parts,
                 mean ? "and the mean is taken" : "one after the other");
        return true;
    }
    return false;
}

/* Another rate, which is measured. */
static bool router_bias_try_rate(const struct bias_move *move, double *y, char *out, size_t size)
{
    double along = 0, squares = 0;
    for (int64_t e = 0; e < move->columns; e++) {
        const double by = move->right[e] - move->before[e];
        along += (move->have[e] - move->before[e]) * by, squares += by * by;
    }
    if (!(squares > 0) || !router_bias_moved(move, along / squares, y)) return false;
    snprintf(out, size, "its rate is %.4g, not %.4g", along / squares * move->speed, move->speed);
    return true;
}

/* The other rule: by the share of choices in place of a sign, or the other way round. */
static bool router_bias_try_rule(const struct bias_move *move, double *y, char *out, size_t size)
{
    struct router_rule other = *move->rule;
    other.bias_update = move->by_share ? BIAS_BY_SIGN : BIAS_BY_SHARE;
    memcpy(y, move->before, (size_t)move->columns * sizeof *y);
    router_move_bias(&other, y, move->loads, move->E, move->zero, move->k);
    if (!router_bias_fits(move, y)) return false;
    snprintf(out, size, move->by_share ? "it moves by the sign of what lacks, not by its share"
                                       : "it moves by the share of choices, not by the sign of what lacks");
    return true;
}

void router_bias_explain(const struct bias_move *move, char *out, size_t size)
{
    double *y = move->columns <= 1 << 12 ? malloc((size_t)move->columns * sizeof *y + 1) : NULL;
    const int parts[] = { move->copies, move->micros, move->copies * move->micros };
    out[0] = '\0';
    if (y == NULL) return;
    bool found = true;
    if (router_bias_moved(move, 0, y)) snprintf(out, size, "stale: it is not moved");
    else if (router_bias_moved(move, -1, y))
        snprintf(out, size, "it moves the wrong way: experts that are chosen often are chosen more");
    else if (router_bias_moved(move, 2, y)) snprintf(out, size, "it is moved twice");
    else found = false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !found; i++)
        found = router_bias_try_parts(move, parts[i], y, out, size);
    if (!found) found = router_bias_try_rule(move, y, out, size);
    if (!found) router_bias_try_rate(move, y, out, size);
    free(y);
}
