#include "emulated_devices/verify/rule.h"
#include <stdlib.h>

static bool leaves_out(const struct schedule *s, int micro, int stage) { return place_of(s, micro, stage).device < 0; }

static bool is_partial(const struct schedule *s)
{
    for (int m = 0; m < s->micros; m++)
        for (int stage = 0; stage < s->stages; stage++)
            if (leaves_out(s, m, stage)) return true;
    return false;
}

/* One microbatch of one copy. */
static void note(struct rule *r, const struct plan *p, const struct schedule *s, int dp, int micro)
{
    const struct sequences own = plan_microbatch(p, dp, micro);
    for (int64_t b = own.first; b < own.first + own.count; b++) {
        r->update_of[b] = micro / s->update_every;
        for (int stage = 0; r->passes_by && stage < s->stages; stage++)
            for (int64_t l = plan_first_layer(p, stage); l < plan_first_layer(p, stage + 1); l++)
                r->passes_by[l * p->B + b] = leaves_out(s, micro, stage);
    }
}

enum error_code rule_of_plan(struct rule *r, const struct plan *p, struct error *err)
{
    struct schedule s;
    enum error_code e = plan_schedule(p, &s, err);
    if (e) return e;
    *r = (struct rule){ .updates = p->updates, .delayed = s.weight_versions > 1 };
    const bool partial = is_partial(&s);
    r->update_of = calloc((size_t)p->B, sizeof *r->update_of);
    r->passes_by = partial ? calloc((size_t)(p->model.L * p->B), sizeof *r->passes_by) : NULL;
    if (r->update_of == NULL || (partial && r->passes_by == NULL)) {
        rule_free(r);
        e = fail(err, ERR_MEMORY, "no memory for the rule of %lld sequences", (long long)p->B);
    }
    for (int dp = 0; dp < p->mesh.size[DP] && !e; dp++)
        for (int m = 0; m < s.micros; m++) note(r, p, &s, dp, m);
    schedule_free(&s);
    return e;
}

void rule_free(struct rule *r)
{
    free(r->update_of), free(r->passes_by);
    *r = (struct rule){ 0 };
}
