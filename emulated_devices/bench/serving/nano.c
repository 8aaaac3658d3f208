/* nano.c -- runs nano-batches on three engines, and searches plans.  nano_claims.c calls.  The only error is
 * ERR_MEMORY. */
#include "emulated_devices/bench/serving/nano.h"
#include <stdlib.h>

#define NANO_EPSILON 1e-12              /* of seconds: rounding of sums */

/* ---- plans ------------------------------------------------------------------------------------------------------- */

struct nano_plan nano_whole(void)
{
    struct nano_plan plan = { .first = 0.5, .share = { 1. / 3, 1. / 3, 1. / 3 } };
    for (int i = 0; i < NANO_OPERATIONS; i++) plan.batches[i] = 1;
    return plan;
}

/* Where nano-batch b begins: both sides of the middle cut are halved once more for four. */
static double begin_of(const struct nano_plan *plan, int batches, int b)
{
    const double at[OVERLAP_PARTS + 1] = { 0, plan->first / 2, plan->first, (1 + plan->first) / 2, 1 };
    return at[b * OVERLAP_PARTS / batches];
}

double nano_engine_time(const struct nano_program *program, const struct nano_plan *plan, enum overlap_engine engine)
{
    double sum = 0;
    for (int i = 0; i < program->operations; i++)
        if (program->operation[i].engine == engine)
            sum += program->operation[i].work + program->launch * plan->batches[i];
    return sum * program->layers;
}

/* ---- one run ----------------------------------------------------------------------------------------------------- */

static int list_items(const struct nano_program *p, const struct nano_plan *plan, struct overlap_item *item)
{
    int items = 0;
    for (int k = 0; k < p->operations * p->layers; k++) {
        const struct nano_operation *const o = &p->operation[k % p->operations];
        const int n = plan->batches[k % p->operations], parts = OVERLAP_PARTS / n;
        for (int b = 0; b < n; b++) {
            const double rows = begin_of(plan, n, b + 1) - begin_of(plan, n, b);
            item[items++] = (struct overlap_item){ k, o->engine, b * parts, parts, o->work * rows + p->launch };
        }
    }
    return items;
}

enum error_code nano_time(const struct nano_program *program, const struct nano_plan *plan, double *seconds,
                          struct error *err)
{
    const size_t most = (size_t)(program->operations * program->layers * OVERLAP_PARTS);
    struct overlap_rule rule = { plan->by_rows, program->interference, { 0 } };
    struct overlap_item *const item = malloc(most * sizeof *item + 1);
    if (item == NULL) return fail(err, ERR_MEMORY, "no memory for %zu nano-batches", most);
    for (enum overlap_engine e = 0; e < OVERLAP_ENGINES; e++) rule.share[e] = plan->share[e];
    *seconds = overlap_time(item, list_items(program, plan, item), &rule);
    free(item);
    return OK;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

/* The numbers of the grid, from an index. */
static struct nano_plan plan_at(const struct nano_program *program, int index, int compute, int memory)
{
    static const int batches[] = { 1, 2, 4 };
    static const double first[] = { 0.25, 0.375, 0.5 };
    struct nano_plan plan = { .first = first[index / 9 % 3], .by_rows = index / 27 % 2,
                              .share = { compute / 10., memory / 10., (10 - compute - memory) / 10. } };
    bool behind = false;
    for (int i = 0; i < NANO_OPERATIONS; i++) {
        plan.batches[i] = batches[behind ? index / 3 % 3 : index % 3];
        behind = behind || (i < program->operations && program->operation[i].engine == OVERLAP_MEMORY);
    }
    return plan;
}

enum error_code nano_search(const struct nano_program *program, struct nano_plan *best, double *seconds,
                            struct error *err)
{
    enum { PLANS = 54 };
    enum error_code e = OK;
    *best = nano_whole();
    e = nano_time(program, best, seconds, err);
    for (int compute = 1; compute <= 8 && !e; compute++)
        for (int memory = 1; compute + memory <= 9 && !e; memory++)
            for (int index = 0; index < PLANS && !e; index++) {
                const struct nano_plan plan = plan_at(program, index, compute, memory);
                double time;
                /* Without interference shares mean nothing. */
                if (!program->interference && compute + memory > 2) break;
                e = nano_time(program, &plan, &time, err);
                if (!e && time < *seconds - NANO_EPSILON) *best = plan, *seconds = time;
            }
    return e;
}
