/* charged.c -- compares the operations that devices were charged with to those that the model needs.  run/session.c,
 * run/reports.c and train/dry_run/dry_run.c check after the last step.  A charge that cannot be right is
 * ERR_INTERNAL.  run/report takes the operations of a step.  The checks change nothing. */
#include "emulated_devices/model/charged.h"

/* Sums of doubles, and times that are rounded up to picoseconds. */
#define NEARLY (1 - 1e-9)

double plan_step_flops(const struct plan *plan)
{
    return plan->optimizer->forward_only ? plan_passes(plan) * model_forward_flops(&plan->model, plan->B, plan->S)
                                      : model_step_flops(&plan->model, plan->B, plan->S);
}

/* Whether some choices may be computed by no expert. */
static bool leaves_choices(const struct mixture_config *config)
{
    return config->capacity_factor > 0 || config->zero > 0 || config->router.top_p > 0;
}

double plan_least_flops(const struct plan *plan)
{
    struct plan least = *plan;
    if (plan->batches || plan->packed || plan->skips) return 0;
    if (leaves_choices(&plan->model.mixture)) least.model.mixture.k = 0;
    /* A matrix that does not train has two products of three: forward, and the gradients of its inputs. */
    return plan_step_flops(&least) * (plan->model.trains ? 2.0 / 3 : 1);
}

enum error_code charged_check_device(const struct device *device, int rank, struct error *err)
{
    const struct clock *c = &device->clock;
    /* Products with exact sums go by the rate of fp64, which may be the larger one; a rate of 0 takes no time. */
    const int64_t own = c->cluster.flop_rate[c->dtype], wide = device->exact ? c->cluster.flop_rate[F64] : own;
    const double can = 1e-6 * (double)(own > wide ? own : wide) * (double)c->now;
    if (own == 0 || wide == 0 || c->flops * NEARLY <= can) return OK;
    return fail(err, ERR_INTERNAL, "internal error: device %d has computed %.6g operations in a virtual time in which "
                "it can do %.6g: times are too short", rank, c->flops, can);
}

enum error_code charged_check(const struct plan *plan, int64_t steps, double flops, struct error *err)
{
    const double least = (double)steps * plan_least_flops(plan);
    if (flops >= least * NEARLY) return OK;
    return fail(err, ERR_INTERNAL, "internal error: all devices were charged with %.6g operations in %lld step%s, and "
                "the model needs at least %.6g: virtual times are too short", flops, (long long)steps,
                steps == 1 ? "" : "s", least);
}
