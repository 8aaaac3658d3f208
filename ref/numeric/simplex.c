/* simplex.c -- searches the least value of a function by moving the corners of a simplex.  bench/calibrate/fit.c
 * fits numbers to measurements here.  `x` is the start, and afterwards the best point; the result
 * is its value.  No function reports errors. */
#include "ref/numeric/simplex.h"
#include <stdlib.h>
#include <string.h>

struct corner { double p[SIMPLEX_MOST], value; };
struct simplex { simplex_fn *f; void *context; int n; struct corner of[SIMPLEX_MOST + 1]; };

static int by_value(const void *a, const void *b)
{
    const double x = ((const struct corner *)a)->value, y = ((const struct corner *)b)->value;
    return (x > y) - (x < y);
}

/* The worst corner moved through the centre of the others. */
static struct corner simplex_moved(const struct simplex *simplex, double by)
{
    struct corner c = { .value = 0 };
    for (int i = 0; i < simplex->n; i++) {
        double centre = 0;
        for (int k = 0; k < simplex->n; k++) centre += simplex->of[k].p[i] / simplex->n;
        c.p[i] = centre + by * (simplex->of[simplex->n].p[i] - centre);
    }
    c.value = simplex->f(simplex->context, c.p);
    return c;
}

static void shrink(struct simplex *simplex)
{
    for (int k = 1; k <= simplex->n; k++) {
        for (int i = 0; i < simplex->n; i++) simplex->of[k].p[i] = (simplex->of[k].p[i] + simplex->of[0].p[i]) / 2;
        simplex->of[k].value = simplex->f(simplex->context, simplex->of[k].p);
    }
}

static void sort(struct simplex *simplex) { qsort(simplex->of, (size_t)simplex->n + 1, sizeof *simplex->of, by_value); }

static void search(struct simplex *simplex, int calls)
{
    for (int i = 0; i < calls; i += 2) {
        sort(simplex);
        struct corner *const worst = &simplex->of[simplex->n];
        struct corner c = simplex_moved(simplex, -1);
        if (c.value < simplex->of[0].value) {
            const struct corner further = simplex_moved(simplex, -2);
            *worst = further.value < c.value ? further : c;
        } else if (c.value < simplex->of[simplex->n - 1].value) *worst = c;
        else {
            c = simplex_moved(simplex, c.value < worst->value ? -.5 : .5);
            if (c.value < worst->value) *worst = c;
            else shrink(simplex), i += simplex->n;
        }
    }
    sort(simplex);
}

double simplex_minimise(simplex_fn *f, void *context, int n, double *x, const double *spread, int calls)
{
    struct simplex s = { .f = f, .context = context, .n = n };
    memcpy(s.of[0].p, x, (size_t)n * sizeof *x);
    for (int again = 0; again < 2; again++) {
        for (int k = 0; k <= n; k++) {
            memcpy(s.of[k].p, s.of[0].p, sizeof s.of[k].p);
            if (k > 0) s.of[k].p[k - 1] += spread[k - 1];
            s.of[k].value = f(context, s.of[k].p);
        }
        search(&s, calls);
    }
    memcpy(x, s.of[0].p, (size_t)n * sizeof *x);
    return s.of[0].value;
}
