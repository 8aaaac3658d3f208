/* adaptation.c -- counts a run's choices and holds what its schemes have planned to their invariants.  A whole run
 * (verify/cases/case.c) calls this file after each step's passes, on every device by itself.  The first invariant
 * that does not hold ends the check with ERR_CHECK.  Without memory the code is ERR_MEMORY. */
#include "emulated_devices/verify/reference/adaptation.h"
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/schemes/attention/planned/context_invariants.h"
#include "emulated_devices/schemes/experts/expert_invariants.h"
#include "emulated_devices/verify/reference/model_invariants.h"
#include "ref/model/kinds.h"
#include <stdlib.h>
#include <string.h>

int64_t invariants_checked(const struct invariant_counts *counts)
{
    int64_t sum = 0;
    for (int i = 0; i < INVARIANTS_MOST; i++) sum += counts->checked[i];
    return sum;
}

/* Hold what was seen to all invariants of one scheme, in the order of its table.  The table ends with an entry
 * without a name; a scheme may have no table at all. */
static enum error_code adaptation_hold(struct invariant_counts *counts, const void *seen, struct error *err)
{
    const struct invariant *const all = counts->scheme->invariants;
    struct error found;
    for (int i = 0; all && all[i].name; i++) {
        const enum error_code e = all[i].holds(seen, &counts->checked[i], &found);
        if (e == ERR_CHECK)
            return fail(err, e, "%s: %s: %s", counts->scheme->name, all[i].sentence, found.text);
        if (e) return fail(err, e, "%s", found.text);
    }
    return OK;
}

enum error_code adaptation_open(struct adaptation *adaptation, const struct trainer *trainer, struct error *err)
{
    const int64_t L = trainer->plan.model.L, E = trainer->plan.model.mixture.E;
    const size_t biases = (size_t)(L * mixture_columns(&trainer->plan.model.mixture)) + 1;
    /* Placement and routers have no scheme of the registry: model_invariants.c gives these two a head. */
    *adaptation = (struct adaptation){ .of = { [ADAPTS_ATTENTION].scheme = &trainer->seams.cp.scheme->head,
                                      [ADAPTS_EXPERTS].scheme = &trainer->seams.ep.scheme->head,
                                      [ADAPTS_PLACEMENT].scheme = &placement_by_speed,
                                      [ADAPTS_ROUTERS].scheme = &router_biases } };
    /* chosen [LOAD_WINDOW + 1, L, E]: the extra element keeps calloc from a size of 0 in a model without experts. */
    adaptation->chosen = calloc((size_t)((LOAD_WINDOW + 1) * L * E + 1), sizeof *adaptation->chosen);
    adaptation->bias = calloc(biases, sizeof *adaptation->bias),
        adaptation->choices = calloc(biases, sizeof *adaptation->choices);
    const bool ok = adaptation->chosen && adaptation->bias && adaptation->choices;
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to count choices of %lld experts", (long long)E);
}

void adaptation_close(struct adaptation *adaptation)
{
    free(adaptation->chosen), free(adaptation->bias), free(adaptation->choices);
    adaptation->chosen = NULL, adaptation->bias = adaptation->choices = NULL;
}

/* ---- attention: a microbatch's plan ------------------------------------------------------------------------------ */

/* Hold the plan of one microbatch's attention to the scheme's invariants.  A scheme that makes no plans leaves a
 * plan of 0 tokens, which is not checked.  step: the plans of all microbatches. */
static enum error_code check_plan(struct adaptation *adaptation, const struct trainer *trainer, int micro,
                                  const struct context_plan *const step[], struct error *err)
{
    const struct context_plan *const plan = step[micro];
    struct context_load load;
    if (plan->tokens == 0) return OK;
    enum error_code e =
        plan_context_load(&trainer->plan, mesh_coordinate(&trainer->plan.mesh, trainer->comm->rank, DP),
                          micro, &load, err);
    if (e) return e;
    /* A scheme that does not plan steps plans each microbatch as a step of one. */
    const struct context_seen seen = { &load, plan, load.micros > 1 ? step : step + micro,
                                       trainer->seams.cp.scheme->plan };
    e = adaptation_hold(&adaptation->of[ADAPTS_ATTENTION], &seen, err);
    context_load_free(&load);
    return e;
}

static enum error_code check_plans(struct adaptation *adaptation, const struct trainer *trainer, struct error *err)
{
    const int micros = trainer->plan.micros;
    const struct context_plan **const step = malloc((size_t)micros * sizeof *step);
    enum error_code e = step ? OK : fail(err, ERR_MEMORY, "no memory to check %d plans", micros);
    for (int i = 0; i < micros && !e; i++) step[i] = &trainer->stage[0].micro[i].plan;
    for (int i = 0; i < micros && !e; i++) e = check_plan(adaptation, trainer, i, step, err);
    free(step);
    return e;
}

/* ---- experts: a layer's routing ---------------------------------------------------------------------------------- */

/* Choices are told by each member of the ep group, for each of the E experts. */
static bool tells_choices(const struct expert_parallel *ep) { return ep->scheme->told == NULL && ep->routing->table; }

/* The result is the row [E] of one layer in chosen [LOAD_WINDOW + 1, L, E]. The step LOAD_WINDOW is the one that is
 * still being counted. */
static int64_t *chosen_in(const struct adaptation *adaptation, const struct trainer *trainer, int64_t step,
                          int64_t layer)
{
    const int64_t L = trainer->plan.model.L, E = trainer->plan.model.mixture.E;
    return adaptation->chosen + (step * L + layer) * E;
}

/* now [E] += table [ep, E], summed over the members of the ep group: how many choices each expert has got. */
static void adaptation_count_choices(struct adaptation *adaptation, const struct trainer *trainer,
                                     const struct expert_parallel *ep)
{
    int64_t *const now = chosen_in(adaptation, trainer, LOAD_WINDOW, ep->layer);
    const int64_t E = trainer->plan.model.mixture.E;
    for (int m = 0; m < ep->devices && tells_choices(ep); m++)
        for (int64_t e = 0; e < E; e++) now[e] += ep->routing->table[m * E + e];
}

/* load [E] = the sum of the last LOAD_WINDOW steps' choices.  The step that is being counted is left out, because
 * placements are decided from earlier steps. */
static void add_steps(const struct adaptation *adaptation, const struct trainer *trainer, int64_t layer, int64_t load[])
{
    for (int64_t e = 0; e < trainer->plan.model.mixture.E; e++) {
        load[e] = 0;
        for (int s = 0; s < LOAD_WINDOW; s++) load[e] += chosen_in(adaptation, trainer, s, layer)[e];
    }
}

/* An optimizer without a backward pass makes two passes for each step.  Only the last pass's routing is left to be
 * seen. */
static bool sees_all_routings(const struct trainer *trainer) { return !trainer->plan.optimizer->forward_only; }

/* Hold one layer's routing of one microbatch to the dispatch scheme's invariants, then add its choices to this
 * step's.  The order matters: the loads must be those of earlier steps when the invariants read them. */
static enum error_code check_layer(struct adaptation *adaptation, const struct trainer *trainer,
                                   const struct stage *stage,
                                   const struct microbatch *micro, const struct model_part *part, struct error *err)
{
    struct expert_parallel ep = stage_seams(stage, micro, part).ep;
    const int64_t at = part - stage->part;
    /* Weights for a layer's backward pass leave when that of the mixture above ends, or before the loss. */
    const bool above = at < stage->layers ? micro->routing[at + 1].table != NULL : stage->last;
    int64_t *const load = calloc((size_t)trainer->plan.model.mixture.E + 1, sizeof *load);
    /* The seam is a copy for this check alone, so its layer can be set here. */
    ep.layer = part->layer;
    if (load == NULL) return fail(err, ERR_MEMORY, "no memory for the loads of a layer");
    add_steps(adaptation, trainer, ep.layer, load);
    const struct expert_seen seen = { .ep = &ep, .load = sees_all_routings(trainer) ? load : NULL,
                                      .early = above && data_keeps_weights(stage->data, part->index) };
    const enum error_code e = adaptation_hold(&adaptation->of[ADAPTS_EXPERTS], &seen, err);
    adaptation_count_choices(adaptation, trainer, &ep);
    free(load);
    return e;
}

/* Check all mixture layers of one stage for one microbatch.  Part 0 of a stage is the embedding, so layers count
 * from 1. A layer without a table has no experts. */
static enum error_code check_experts(struct adaptation *adaptation, const struct trainer *trainer,
                                     const struct stage *stage, int micro, struct error *err)
{
    const struct microbatch *const m = &stage->micro[micro];
    enum error_code e = OK;
    for (int i = 1; i <= stage->layers && m->routing && !e; i++)
        if (m->routing[i].table) e = check_layer(adaptation, trainer, stage, m, &stage->part[i], err);
    return e;
}

/* ---- experts: the order of rows ---------------------------------------------------------------------------------- */

/* Hold the order of a microbatch's rows, which the devices along tp share, to the invariants of shuffling.  Plans
 * that do not shuffle by affinity, or have one device along tp, have nothing to check. */
static enum error_code check_order(struct adaptation *adaptation, const struct trainer *trainer, int micro,
                                   struct error *err)
{
    const struct plan *const p = &trainer->plan;
    const struct intervals *const rows = &trainer->stage[0].micro[micro].rows;
    int own[MESH_MOST_LISTED];
    const int64_t n = intervals_total(rows);
    if (!plan_shuffles(p) || p->ids == NULL || p->mesh.size[TP] == 1) return OK;
    int32_t *const part = malloc((size_t)(n + 1) * sizeof *part);
    if (part == NULL) return fail(err, ERR_MEMORY, "no memory for the order of %lld rows", (long long)n);
    /* part [n]: for each row in its order the part of the experts to which its token has most affinity. */
    for (int64_t i = 0, k = 0; i < rows->count; i++)
        for (int64_t at = rows->at[i].first; at < interval_end(rows->at[i]); at++)
            part[k++] = affinity_part_at(p->affinity, p->ids, p->S, at);
    /* own [tp]: the part of the experts that each device along tp holds. */
    for (int r = 0; r < p->mesh.size[TP]; r++)
        own[r] = plan_expert_place(p, mesh_neighbour(&p->mesh, trainer->comm->rank, TP, r), EXPERT_PARTS);
    const struct expert_parallel *const ep = &trainer->seams.ep;
    const struct expert_seen seen = { .ep = ep, .part = part, .own = own, .rows = n, .sharing = p->mesh.size[TP] };
    const enum error_code e = adaptation_hold(&adaptation->of[ADAPTS_EXPERTS], &seen, err);
    free(part);
    return e;
}

/* ---- layers by speed, biases of routers -------------------------------------------------------------------------- */

/* Hold the layers of stages to the speeds of devices.  The check runs once, in the first step, and only if the plan
 * gives a speed.  A plan does not move layers later. */
static enum error_code check_placement(struct adaptation *adaptation, const struct trainer *trainer, struct error *err)
{
    bool given = false;
    for (int d = 0; d < trainer->schedule.devices && d < PLAN_MOST_STAGES; d++)
        given = given || trainer->plan.speed[d] != 0;
    if (!given || adaptation->steps > 0) return OK;
    return adaptation_hold(&adaptation->of[ADAPTS_PLACEMENT],
                           &(struct placement_seen){ &trainer->plan, &trainer->schedule }, err);
}

/* Hold the routers' biases [L, columns] to the choices of the step before.  Its update has moved them since the last
 * call, by the choices of its whole batch.  The first step, runs with skipped steps and runs without a backward pass
 * are not checked. */
static enum error_code check_biases(struct adaptation *adaptation, const struct trainer *trainer, struct error *err)
{
    const struct mixture_config *const x = &trainer->plan.model.mixture;
    const int64_t columns = mixture_columns(x);
    enum error_code e = OK;
    if (trainer->plan.model.mlp != MLP_MIXTURE || !x->router.biased || trainer->plan.optimizer->forward_only) return OK;
    for (int64_t l = 0; l < trainer->plan.model.L && adaptation->steps > 0 && trainer->skipped == 0 && !e; l++)
        e = adaptation_hold(&adaptation->of[ADAPTS_ROUTERS],
                            &(struct bias_seen){ l, x->E, adaptation->bias + l * columns,
                                                              trainer->routers.bias + l * columns,
                                                              adaptation->choices + l * columns },
                            err);
    /* This step's biases and choices are what the next call compares with, also after an error. */
    const size_t bytes = (size_t)(trainer->plan.model.L * columns) * sizeof *adaptation->bias;
    memcpy(adaptation->bias, trainer->routers.bias, bytes),
        memcpy(adaptation->choices, trainer->routers.sums + ROUTERS_CHOICES, bytes);
    return e;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* chosen [step modulo LOAD_WINDOW] = this step's counts, which start again at 0. */
static void end_step(struct adaptation *adaptation, const struct trainer *trainer)
{
    const size_t step = (size_t)(trainer->plan.model.L * trainer->plan.model.mixture.E);
    int64_t *const now = adaptation->chosen + LOAD_WINDOW * step;
    memcpy(adaptation->chosen + (size_t)(adaptation->steps++ % LOAD_WINDOW) * step, now, step * sizeof *now);
    memset(now, 0, step * sizeof *now);
}

/* A section is held to the tables of its own schemes. */
static enum error_code check_schemes(struct adaptation *adaptation, const struct trainer *trainer, struct error *err)
{
    adaptation->of[ADAPTS_ATTENTION].scheme = &trainer->seams.cp.scheme->head;
    adaptation->of[ADAPTS_EXPERTS].scheme = &trainer->seams.ep.scheme->head;
    enum error_code e = check_plans(adaptation, trainer, err);
    for (int i = 0; i < trainer->plan.micros && !e; i++) {
        e = check_order(adaptation, trainer, i, err);
        for (int c = 0; c < trainer->plan.chunks && !e; c++)
            e = check_experts(adaptation, trainer, &trainer->stage[c], i, err);
    }
    return e;
}

enum error_code adaptation_check(struct adaptation *adaptation, const struct trainer *trainer, struct error *err)
{
    enum error_code e = check_placement(adaptation, trainer, err);
    if (!e) e = check_biases(adaptation, trainer, err);
    if (!e && trainer->section == NULL) e = check_schemes(adaptation, trainer, err);
    for (int i = 0; trainer->section && i < trainer->plan.sections->count && !e; i++)
        if (trainer_takes_part(&trainer->section[i])) e = check_schemes(adaptation, &trainer->section[i], err);
    end_step(adaptation, trainer);
    return e;
}
