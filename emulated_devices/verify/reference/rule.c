/* rule.c -- derives a rule from a plan and its schedule: for which optimizer step each sequence counts, and which
 * layers it skips.  The caller is reference.c, once, or with a batch plan once a step.  Errors are those of
 * plan_schedule, and ERR_MEMORY. */
#include "emulated_devices/verify/reference/rule.h"
#include <stdlib.h>

/* A microbatch that has no place on a stage skips the stage's layers. */
static bool leaves_out(const struct schedule *schedule, int micro, int stage)
{
    return place_of(schedule, micro, stage).device < 0;
}

/* Enter the sequences of one microbatch of one copy: their optimizer step, and for each layer whether it is skipped. */
static void rule_note(struct rule *rule, const struct plan *plan, const struct schedule *schedule, int dp, int micro)
{
    const struct interval of = plan_microbatch(plan, dp, micro);
    for (int64_t b = of.first - rule->own.first; b < of.first - rule->own.first + of.count; b++) {
        rule->update_of[b] = micro / schedule->update_every;
        for (int stage = 0; rule->passes_by && stage < schedule->stages; stage++)
            for (int64_t l = plan_first_layer(plan, stage); l < plan_first_layer(plan, stage + 1); l++)
                rule->passes_by[l * rule->own.count + b] = leaves_out(schedule, micro, stage);
    }
}

/* The sequences of adjacent copies lie together, from the first copy's first microbatch to the last copy's last. */
static struct interval sequences_of(const struct plan *plan, struct interval copies, int micros)
{
    const struct interval first = plan_microbatch(plan, (int)copies.first, 0),
                          last = plan_microbatch(plan, (int)(copies.first + copies.count) - 1, micros - 1);
    return (struct interval){ first.first, last.first + last.count - first.first };
}

enum error_code rule_of_plan(struct rule *rule, const struct plan *plan, int replica, struct error *err)
{
    struct schedule s;
    const enum error_code found = plan_schedule(plan, &s, err);
    enum error_code e = found;
    if (e) return e;
    const struct interval copies = plan_replica_copies(plan, replica);
    *rule = (struct rule){ .updates = plan->updates,
                        .delayed = s.weight_versions > 1,
                        .own = sequences_of(plan, copies, s.micros) };
    /* passes_by [L, own] exists for partial pipelines alone. */
    const bool partial = schedule_is_partial(&s);
    rule->update_of = calloc((size_t)rule->own.count, sizeof *rule->update_of);
    rule->passes_by = partial ? calloc((size_t)(plan->model.L * rule->own.count), sizeof *rule->passes_by) : NULL;
    if (rule->update_of == NULL || (partial && rule->passes_by == NULL)) {
        rule_free(rule);
        e = fail(err, ERR_MEMORY, "no memory for the rule of %lld sequences", (long long)plan->B);
    }
    for (int dp = (int)copies.first; dp < copies.first + copies.count && !e; dp++)
        for (int m = 0; m < s.micros; m++) rule_note(rule, plan, &s, dp, m);
    schedule_free(&s);
    return e;
}

void rule_free(struct rule *rule)
{
    free(rule->update_of), free(rule->passes_by);
    *rule = (struct rule){ 0 };
}
