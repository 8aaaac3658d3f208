/* rates.c -- the learning rate of a step by its schedule.
 *
 * model/, schemes/data/ and verify/reference/ call learning_rate for each step.  No function here can fail.
 */
#include "ref/exact/scalars.h"
#include "ref/optim/optimizer.h"
#include "ref/optim/rates.h"
#include <math.h>
#include <string.h>

const char *const rate_schedule_names[] = {
    [RATE_COSINE] = "cosine", [RATE_LINEAR] = "linear", [RATE_CONSTANT] = "constant", [RATE_WSD] = "wsd",
    [RATE_WSD_COSINE] = "wsd-cosine", [RATE_WSD_SQRT] = "wsd-sqrt", [RATE_SCHEDULES] = NULL,
};

/* The name has to be one of the list; options have checked it. */
enum rate_schedule rate_schedule_named(const char *name)
{
    int s = 0;
    while (strcmp(rate_schedule_names[s], name) != 0) s++;
    return (enum rate_schedule)s;
}

/* The function f of rates.h: from 1 at x = 0 to 0 at x = 1. */
static double falling(enum rate_schedule schedule, double x)
{
    const double pi = 3.14159265358979323846;
    switch (schedule) {
    case RATE_COSINE: case RATE_WSD_COSINE: return (1 + scalar_cosine(pi * x)) / 2;
    case RATE_LINEAR: case RATE_WSD: return 1 - x;
    case RATE_WSD_SQRT: return 1 - sqrt(x);
    default: return 1;
    }
}

double learning_rate(const struct hyperparameters *hyper, int64_t t)
{
    /* its last step */
    const int64_t level = rate_decays(hyper->schedule) ? hyper->steps - hyper->decay : hyper->warmup;
    /* Linear warm-up: step t of `warmup` has t / warmup of the rate. */
    if (t <= hyper->warmup) return hyper->lr * (double)t / (double)hyper->warmup;
    if (hyper->schedule == RATE_CONSTANT || hyper->steps <= level || t <= level) return hyper->lr;
    /* x runs from 0 at the last level step to 1 at `steps`. */
    const double x = (double)(t - level) / (double)(hyper->steps - level);
    return hyper->min_lr + (hyper->lr - hyper->min_lr) * falling(hyper->schedule, x < 1 ? x : 1);
}

/* The least rate that the schedule has after the warm-up; a rate of 0 would divide by zero in SlowMo. */
double learning_rate_least(const struct hyperparameters *hyper)
{
    return hyper->schedule != RATE_CONSTANT && hyper->steps > hyper->warmup
           ? fmin(hyper->lr, hyper->min_lr) : hyper->lr;
}
