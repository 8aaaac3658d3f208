/* batch_plan.c -- a batch plan in memory: making, asking, and checking that all devices have the same plan.  The
 * file plan.c asks for microbatches, the trainer checks agreement.  Errors: ERR_PLAN for a step without sequences,
 * or devices that differ. */
#include "emulated_devices/plan/batch_plan.h"
#include <stdlib.h>
#include <string.h>

/* The result is the row [copies, micros] of a step; after the last step the first step comes again. */
static const int *batch_plan_step_of(const struct batch_plan *plan, int64_t step)
{
    return plan->sequences + (step % plan->steps) * plan->copies * plan->micros;
}

/* The digest is over the sizes and all numbers as text, so that it does not depend on the machine. */
static struct sha256_text digest_of(const struct batch_plan *plan)
{
    struct sha256 h = sha256_begin();
    char text[64];
    const int size[] = { plan->steps, plan->copies, plan->micros };
    for (int i = 0; i < 3; i++) sha256_add(&h, text, (size_t)snprintf(text, sizeof text, "%d ", size[i]));
    for (int64_t i = 0; i < (int64_t)plan->steps * plan->copies * plan->micros; i++)
        sha256_add(&h, text, (size_t)snprintf(text, sizeof text, "%d ", plan->sequences[i]));
    return sha256_end(&h);
}

enum error_code batch_plan_make(struct batch_plan *plan, int steps, int copies, int micros, int *sequences,
                                struct error *err)
{
    *plan = (struct batch_plan){ .steps = steps, .copies = copies, .micros = micros, .sequences = sequences };
    /* A step without sequences has no loss, so the whole plan is refused. */
    for (int s = 0; s < steps; s++) {
        const int64_t all = batch_plan_total(plan, s);
        if (all > plan->most) plan->most = all;
        if (all > 0) continue;
        batch_plan_free(plan);
        return fail(err, ERR_PLAN, "step %d has no sequences", s);
    }
    plan->digest = digest_of(plan);
    return OK;
}

void batch_plan_free(struct batch_plan *plan)
{
    free(plan->sequences);
    *plan = (struct batch_plan){ 0 };
}

struct interval batch_plan_at(const struct batch_plan *plan, int64_t step, int copy, int micro)
{
    const int *n = batch_plan_step_of(plan, step);
    const int own = copy * plan->micros + micro;
    /* The sequences of a step are ordered by copy, then by microbatch: what comes before is summed. */
    int64_t first = 0;
    for (int i = 0; i < own; i++) first += n[i];
    return (struct interval){ first, n[own] };
}

int64_t batch_plan_total(const struct batch_plan *plan, int64_t step)
{
    const int *n = batch_plan_step_of(plan, step);
    int64_t sum = 0;
    for (int i = 0; i < plan->copies * plan->micros; i++) sum += n[i];
    return sum;
}

enum error_code batch_plan_agree(const struct batch_plan *plan, struct comm *comm, struct error *err)
{
    return group_same(comm->everyone, plan->digest.text, sizeof plan->digest.text - 1, "--batches: the plan", err);
}
