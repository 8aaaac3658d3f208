#include "emulated_devices/cli/simplex.h"
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
static struct corner moved(const struct simplex *s, double by)
{
    struct corner c = { .value = 0 };
    for (int i = 0; i < s->n; i++) {
        double centre = 0;
        for (int k = 0; k < s->n; k++) centre += s->of[k].p[i] / s->n;
        c.p[i] = centre + by * (s->of[s->n].p[i] - centre);
    }
    c.value = s->f(s->context, c.p);
    return c;
}

static void shrink(struct simplex *s)
{
    for (int k = 1; k <= s->n; k++) {
        for (int i = 0; i < s->n; i++) s->of[k].p[i] = (s->of[k].p[i] + s->of[0].p[i]) / 2;
        s->of[k].value = s->f(s->context, s->of[k].p);
    }
}

static void sort(struct simplex *s) { qsort(s->of, (size_t)s->n + 1, sizeof *s->of, by_value); }

static void search(struct simplex *s, int calls)
{
    for (int i = 0; i < calls; i += 2) {
        sort(s);
        struct corner *const worst = &s->of[s->n];
        struct corner c = moved(s, -1);
        if (c.value < s->of[0].value) {
            const struct corner further = moved(s, -2);
            *worst = further.value < c.value ? further : c;
        } else if (c.value < s->of[s->n - 1].value) *worst = c;
        else {
            c = moved(s, c.value < worst->value ? -.5 : .5);
            if (c.value < worst->value) *worst = c;
            else shrink(s), i += s->n;
        }
    }
    sort(s);
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
