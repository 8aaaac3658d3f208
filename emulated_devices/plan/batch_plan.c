#include "emulated_devices/plan/batch_plan.h"
#include <stdlib.h>
#include <string.h>

static const int *step_of(const struct batch_plan *b, int64_t step)
{
    return b->sequences + (step % b->steps) * b->copies * b->micros;
}

static struct sha256_text digest_of(const struct batch_plan *b)
{
    struct sha256 h = sha256_begin();
    char text[64];
    const int size[] = { b->steps, b->copies, b->micros };
    for (int i = 0; i < 3; i++) sha256_add(&h, text, (size_t)snprintf(text, sizeof text, "%d ", size[i]));
    for (int64_t i = 0; i < (int64_t)b->steps * b->copies * b->micros; i++)
        sha256_add(&h, text, (size_t)snprintf(text, sizeof text, "%d ", b->sequences[i]));
    return sha256_end(&h);
}

enum error_code batch_plan_make(struct batch_plan *b, int steps, int copies, int micros, int *sequences,
                                struct error *err)
{
    *b = (struct batch_plan){ .steps = steps, .copies = copies, .micros = micros, .sequences = sequences };
    for (int s = 0; s < steps; s++) {
        const int64_t all = batch_plan_total(b, s);
        if (all > b->most) b->most = all;
        if (all > 0) continue;
        batch_plan_free(b);
        return fail(err, ERR_PLAN, "step %d has no sequences", s);
    }
    b->digest = digest_of(b);
    return OK;
}

void batch_plan_free(struct batch_plan *b)
{
    free(b->sequences);
    *b = (struct batch_plan){ 0 };
}

struct interval batch_plan_at(const struct batch_plan *b, int64_t step, int copy, int micro)
{
    const int *n = step_of(b, step);
    const int own = copy * b->micros + micro;
    int64_t first = 0;
    for (int i = 0; i < own; i++) first += n[i];
    return (struct interval){ first, n[own] };
}

int64_t batch_plan_total(const struct batch_plan *b, int64_t step)
{
    const int *n = step_of(b, step);
    int64_t sum = 0;
    for (int i = 0; i < b->copies * b->micros; i++) sum += n[i];
    return sum;
}

enum error_code batch_plan_agree(const struct batch_plan *b, struct comm *comm, struct error *err)
{
    return group_same(comm->everyone, b->digest.text, sizeof b->digest.text - 1, "--batches: the plan", err);
}
