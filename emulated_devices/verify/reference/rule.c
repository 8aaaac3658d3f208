#include "emulated_devices/verify/reference/rule.h"
#include <stdlib.h>

static bool leaves_out(const struct schedule *s, int micro, int stage) { return place_of(s, micro, stage).device < 0; }

/* Enter one microbatch of one copy. */
static void note(struct rule *r, const struct plan *p, const struct schedule *s, int dp, int micro)
{
    const struct interval of = plan_microbatch(p, dp, micro);
    for (int64_t b = of.first - r->own.first; b < of.first - r->own.first + of.count; b++) {
        r->update_of[b] = micro / s->update_every;
        for (int stage = 0; r->passes_by && stage < s->stages; stage++)
            for (int64_t l = plan_first_layer(p, stage); l < plan_first_layer(p, stage + 1); l++)
                r->passes_by[l * r->own.count + b] = leaves_out(s, micro, stage);
    }
}

/* The sequences of adjacent copies: from the first copy's first microbatch to the last copy's last. */
static struct interval sequences_of(const struct plan *p, struct interval copies, int micros)
{
    const struct interval first = plan_microbatch(p, (int)copies.first, 0),
                          last = plan_microbatch(p, (int)(copies.first + copies.count) - 1, micros - 1);
    return (struct interval){ first.first, last.first + last.count - first.first };
}

enum error_code rule_of_plan(struct rule *r, const struct plan *p, int replica, struct error *err)
{
    struct schedule s;
    const enum error_code found = plan_schedule(p, &s, err);
    enum error_code e = found;
    if (e) return e;
    const struct interval copies = plan_replica_copies(p, replica);
    *r = (struct rule){ .updates = p->updates,
                        .delayed = s.weight_versions > 1,
                        .own = sequences_of(p, copies, s.micros) };
    const bool partial = schedule_is_partial(&s);
    r->update_of = calloc((size_t)r->own.count, sizeof *r->update_of);
    r->passes_by = partial ? calloc((size_t)(p->model.L * r->own.count), sizeof *r->passes_by) : NULL;
    if (r->update_of == NULL || (partial && r->passes_by == NULL)) {
        rule_free(r);
        e = fail(err, ERR_MEMORY, "no memory for the rule of %lld sequences", (long long)p->B);
    }
    for (int dp = (int)copies.first; dp < copies.first + copies.count && !e; dp++)
        for (int m = 0; m < s.micros; m++) note(r, p, &s, dp, m);
    schedule_free(&s);
    return e;
}

void rule_free(struct rule *r)
{
    free(r->update_of), free(r->passes_by);
    *r = (struct rule){ 0 };
}
