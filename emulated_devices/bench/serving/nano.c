/* nano.c -- runs nano-batches on three engines, and searches plans.  nano_claims.c calls.  The only error is
 * ERR_MEMORY. */
#include "emulated_devices/bench/serving/nano.h"
#include <math.h>
#include <stdlib.h>

/* The published point of attention: at 0.4 of the device it has 0.8 of its speed. */
#define KNEE_SHARE 0.4
#define KNEE_SPEED 0.8
#define NANO_EPSILON 1e-12              /* of a batch's rows, and of work: rounding of sums */

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
    const double at[NANO_BATCHES + 1] = { 0, plan->first / 2, plan->first, (1 + plan->first) / 2, 1 };
    return at[b * NANO_BATCHES / batches];
}

double nano_speed(enum nano_engine engine, double share)
{
    if (engine == NANO_COMPUTE) return share;
    if (share < KNEE_SHARE) return share * KNEE_SPEED / KNEE_SHARE;
    return KNEE_SPEED + (share - KNEE_SHARE) * (1 - KNEE_SPEED) / (1 - KNEE_SHARE);
}

double nano_engine_time(const struct nano_program *program, const struct nano_plan *plan, enum nano_engine engine)
{
    double sum = 0;
    for (int i = 0; i < program->operations; i++)
        if (program->operation[i].engine == engine)
            sum += program->operation[i].work + program->launch * plan->batches[i];
    return sum * program->layers;
}

/* ---- one run ----------------------------------------------------------------------------------------------------- */

/* An operation of a nano-batch. */
struct nano_item {
    int number;                         /* of its operation, over all layers */
    enum nano_engine engine;
    double begin, end, left;            /* its rows; seconds of work that are left */
    bool done;
};

struct nano_run {
    const struct nano_program *program;
    const struct nano_plan *plan;
    struct nano_item *item;             /* [items] in the order of operations, then of rows */
    int items;
    struct nano_item *busy[NANO_ENGINES];       /* NULL: idle */
};

static void list_items(struct nano_run *run)
{
    const struct nano_program *const p = run->program;
    for (int k = 0; k < p->operations * p->layers; k++) {
        const struct nano_operation *const o = &p->operation[k % p->operations];
        const int n = run->plan->batches[k % p->operations];
        for (int b = 0; b < n; b++) {
            const double begin = begin_of(run->plan, n, b), end = begin_of(run->plan, n, b + 1);
            run->item[run->items++] = (struct nano_item){ k, o->engine, begin, end,
                                                          o->work * (end - begin) + p->launch, false };
        }
    }
}

/* Whether the rows of an item have passed the operation before it. */
static bool can_start(const struct nano_run *run, const struct nano_item *item)
{
    for (const struct nano_item *i = run->item; i < item; i++)
        if (i->number == item->number - 1 && !i->done && i->begin < item->end - NANO_EPSILON &&
            i->end > item->begin + NANO_EPSILON)
            return false;
    return true;
}

/* Operations first, unless the plan puts rows first. */
static bool goes_before(const struct nano_run *run, const struct nano_item *a, const struct nano_item *b)
{
    if (run->plan->by_rows && fabs(a->begin - b->begin) > NANO_EPSILON) return a->begin < b->begin;
    return a < b;
}

static void start_items(struct nano_run *run)
{
    for (enum nano_engine e = 0; e < NANO_ENGINES; e++)
        for (int i = 0; i < run->items && run->busy[e] == NULL; i++) {
            struct nano_item *best = NULL;
            for (struct nano_item *at = run->item; at < run->item + run->items; at++)
                if (at->engine == e && !at->done && can_start(run, at) && (best == NULL || goes_before(run, at, best)))
                    best = at;
            run->busy[e] = best;
            if (best == NULL) break;
        }
}

static double speed_now(const struct nano_run *run, enum nano_engine engine)
{
    double all = 0;
    if (!run->program->interference) return 1;
    for (enum nano_engine e = 0; e < NANO_ENGINES; e++) all += run->busy[e] ? run->plan->share[e] : 0;
    return nano_speed(engine, run->plan->share[engine] / all);
}

/* Until the next item ends.  @return the seconds; 0: nothing runs. */
static double advance(struct nano_run *run)
{
    double speed[NANO_ENGINES], step = INFINITY;
    for (enum nano_engine e = 0; e < NANO_ENGINES; e++) {
        if (run->busy[e] == NULL) continue;
        speed[e] = speed_now(run, e);
        step = fmin(step, run->busy[e]->left / speed[e]);
    }
    if (isinf(step)) return 0;
    for (enum nano_engine e = 0; e < NANO_ENGINES; e++) {
        struct nano_item *const at = run->busy[e];
        if (at == NULL) continue;
        at->left -= step * speed[e];
        if (at->left > NANO_EPSILON) continue;
        at->done = true, run->busy[e] = NULL;
    }
    return step;
}

enum error_code nano_time(const struct nano_program *program, const struct nano_plan *plan, double *seconds,
                          struct error *err)
{
    struct nano_run run = { .program = program, .plan = plan };
    const size_t most = (size_t)(program->operations * program->layers * NANO_BATCHES);
    run.item = malloc(most * sizeof *run.item + 1);
    if (run.item == NULL) return fail(err, ERR_MEMORY, "no memory for %zu nano-batches", most);
    list_items(&run);
    *seconds = 0;
    for (double step = 1; step > 0; *seconds += step) {
        start_items(&run);
        step = advance(&run);
    }
    free(run.item);
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
        behind = behind || (i < program->operations && program->operation[i].engine == NANO_MEMORY);
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
