/* model_invariants.c -- the rules that placements by speed and router biases must obey, as tables of functions.
 * adaptation.c calls each rule with what a run has seen.  A rule that is broken returns ERR_CHECK with both
 * numbers. */
#include "emulated_devices/verify/reference/model_invariants.h"

typedef long long wide;

/* ---- layers by speed --------------------------------------------------------------------------------------------- */

/* A stage is as fast as the slowest device that holds it; without a speed all are alike. */
static int64_t speed_of(const struct placement_seen *seen, int stage)
{
    int64_t slowest = 0;
    for (int d = 0; d < seen->schedule->devices; d++)
        for (int c = 0; c < seen->schedule->chunks; c++)
            if (seen->schedule->stage_of[d][c] == stage && (slowest == 0 || seen->plan->speed[d] < slowest))
                slowest = seen->plan->speed[d];
    return slowest;
}

/* Consecutive layers belong to a stage, so two first layers give their number. */
static int64_t layers_of(const struct placement_seen *seen, int stage)
{
    return seen->plan->first_layer[stage + 1] - seen->plan->first_layer[stage];
}

/* Whether layers / speed > others / other_speed, without dividing: both sides are whole numbers. */
static bool is_slower(int64_t layers, int64_t speed, int64_t others, int64_t other_speed)
{
    return layers * other_speed > others * speed;
}

/* This finds the stage whose layers take longest; of equal stages the first. */
static int slowest_stage(const struct placement_seen *seen)
{
    int slowest = 0;
    for (int t = 1; t < seen->schedule->stages; t++)
        if (is_slower(layers_of(seen, t), speed_of(seen, t), layers_of(seen, slowest), speed_of(seen, slowest)))
            slowest = t;
    return slowest;
}

/* Layers are equal, so where no layer of the slowest stage is better elsewhere, no other division is better. */
static enum error_code slowest_is_fastest(const void *seen, int64_t *checked, struct error *err)
{
    const struct placement_seen *const s = seen;
    const int from = slowest_stage(s);
    /* A stage keeps at least one layer, so a stage of one layer cannot be improved. */
    for (int to = 0; to < s->schedule->stages && layers_of(s, from) > 1; to++) {
        if (to == from) continue;
        ++*checked;
        if (is_slower(layers_of(s, from), speed_of(s, from), layers_of(s, to) + 1, speed_of(s, to)))
            return fail(err, ERR_CHECK, "stage %d has %lld layers at speed %lld; stage %d would do %lld at speed %lld "
                        "earlier", from, (wide)layers_of(s, from), (wide)speed_of(s, from), to,
                        (wide)layers_of(s, to) + 1, (wide)speed_of(s, to));
    }
    return OK;
}

static const struct invariant placement_rules[] = {
    { "slowest", "no layer of the slowest stage would be done earlier on another stage", slowest_is_fastest }, { 0 }
};
const struct scheme placement_by_speed = {
    .kind = PIPELINE_SCHEME, .name = "placement", .invariants = placement_rules
};

/* ---- biases of routers ------------------------------------------------------------------------------------------- */

/* A move may be by the sign alone: then equal moves go with other numbers of choices. */
static enum error_code moves_follow_choices(const void *seen, int64_t *checked, struct error *err)
{
    const struct bias_seen *const s = seen;
    for (int64_t e = 0; e < s->E; e++)
        for (int64_t f = 0; f < s->E; f++) {
            const double more = s->after[e] - s->before[e], less = s->after[f] - s->before[f];
            if (s->choices[e] <= s->choices[f]) continue;
            ++*checked;
            if (more > less)
                return fail(err, ERR_CHECK, "layer %lld: expert %lld has %g choices and moves by %g, expert %lld has "
                            "%g and moves by %g", (wide)s->layer, (wide)e, s->choices[e], more, (wide)f,
                            s->choices[f], less);
        }
    return OK;
}

/* Where choices differ, the experts with the most and with the fewest are moved apart. */
static enum error_code extremes_part(const void *seen, int64_t *checked, struct error *err)
{
    const struct bias_seen *const s = seen;
    int64_t most = 0, fewest = 0;
    for (int64_t e = 1; e < s->E; e++) {
        if (s->choices[e] > s->choices[most]) most = e;
        if (s->choices[e] < s->choices[fewest]) fewest = e;
    }
    if (s->choices[most] == s->choices[fewest]) return OK;
    ++*checked;
    const double down = s->after[most] - s->before[most], up = s->after[fewest] - s->before[fewest];
    if (down < up) return OK;
    return fail(err, ERR_CHECK, "layer %lld: expert %lld has %g choices and moves by %g, expert %lld has %g and moves "
                "by %g", (wide)s->layer, (wide)most, s->choices[most], down, (wide)fewest, s->choices[fewest], up);
}

static const struct invariant bias_rules[] = {
    { "moves", "a bias with more choices does not rise above one with fewer", moves_follow_choices },
    { "extremes", "the biases with the most and the fewest choices come nearer", extremes_part },
    { 0 }
};
const struct scheme router_biases = { .kind = EXPERT_SCHEME, .name = "router bias", .invariants = bias_rules };
