#include "emulated_devices/verify/reference/adaptation.h"
#include "emulated_devices/schemes/attention/planned/context_invariants.h"
#include "emulated_devices/schemes/experts/expert_invariants.h"
#include "emulated_devices/verify/reference/model_invariants.h"
#include <stdlib.h>
#include <string.h>

int64_t invariants_checked(const struct invariant_counts *c)
{
    int64_t sum = 0;
    for (int i = 0; i < INVARIANTS_MOST; i++) sum += c->checked[i];
    return sum;
}

static enum error_code hold(struct invariant_counts *c, const void *seen, struct error *err)
{
    const struct invariant *const all = c->scheme->invariants;
    struct error found;
    for (int i = 0; all && all[i].name; i++) {
        const enum error_code e = all[i].holds(seen, &c->checked[i], &found);
        if (e == ERR_CHECK)
            return fail(err, e, "%s: %s: %s", c->scheme->name, all[i].sentence, found.text);
        if (e) return fail(err, e, "%s", found.text);
    }
    return OK;
}

enum error_code adaptation_open(struct adaptation *a, const struct trainer *t, struct error *err)
{
    const int64_t L = t->plan.model.L, E = t->plan.model.mixture.E;
    const size_t biases = (size_t)(L * mixture_columns(&t->plan.model.mixture)) + 1;
    *a = (struct adaptation){ .of = { [ADAPTS_ATTENTION].scheme = &t->seams.cp.scheme->head,
                                      [ADAPTS_EXPERTS].scheme = &t->seams.ep.scheme->head,
                                      [ADAPTS_PLACEMENT].scheme = &placement_by_speed,
                                      [ADAPTS_ROUTERS].scheme = &router_biases } };
    a->chosen = calloc((size_t)((LOAD_WINDOW + 1) * L * E + 1), sizeof *a->chosen);
    a->bias = calloc(biases, sizeof *a->bias), a->choices = calloc(biases, sizeof *a->choices);
    const bool ok = a->chosen && a->bias && a->choices;
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to count choices of %lld experts", (long long)E);
}

void adaptation_close(struct adaptation *a)
{
    free(a->chosen), free(a->bias), free(a->choices);
    a->chosen = NULL, a->bias = a->choices = NULL;
}

/* ---- attention: a microbatch's plan ------------------------------------------------------------------------------ */

static enum error_code check_plan(struct adaptation *a, const struct trainer *t, int micro, struct error *err)
{
    const struct context_plan *const plan = &t->stage[0].micro[micro].plan;
    struct context_load load;
    if (plan->tokens == 0) return OK;
    enum error_code e =
        plan_context_load(&t->plan, mesh_coordinate(&t->plan.mesh, t->comm->rank, DP), micro, &load, err);
    if (e) return e;
    e = hold(&a->of[ADAPTS_ATTENTION], &(struct context_seen){ &load, plan }, err);
    context_load_free(&load);
    return e;
}

/* ---- experts: a layer's routing ---------------------------------------------------------------------------------- */

/* Choices are told by each member of the ep group, for each of the E experts. */
static bool tells_choices(const struct expert_parallel *ep) { return ep->scheme->told == NULL && ep->routing->table; }

static int64_t *chosen_in(const struct adaptation *a, const struct trainer *t, int64_t step, int64_t layer)
{
    const int64_t L = t->plan.model.L, E = t->plan.model.mixture.E;
    return a->chosen + (step * L + layer) * E;
}

static void count_choices(struct adaptation *a, const struct trainer *t, const struct expert_parallel *ep)
{
    int64_t *const now = chosen_in(a, t, LOAD_WINDOW, ep->layer);
    const int64_t E = t->plan.model.mixture.E;
    for (int m = 0; m < ep->devices && tells_choices(ep); m++)
        for (int64_t e = 0; e < E; e++) now[e] += ep->routing->table[m * E + e];
}

/* Add up the steps before this one. */
static void add_steps(const struct adaptation *a, const struct trainer *t, int64_t layer, int64_t load[])
{
    for (int64_t e = 0; e < t->plan.model.mixture.E; e++) {
        load[e] = 0;
        for (int s = 0; s < LOAD_WINDOW; s++) load[e] += chosen_in(a, t, s, layer)[e];
    }
}

/* Passes without a backward one are two for each step, of which only the last routing is left to be seen. */
static bool sees_all_routings(const struct trainer *t) { return !t->plan.optimizer->forward_only; }

static enum error_code check_layer(struct adaptation *a, const struct trainer *t, const struct stage *s,
                                   const struct microbatch *m, const struct model_part *p, struct error *err)
{
    struct expert_parallel ep = stage_seams(s, m, p).ep;
    int64_t *const load = calloc((size_t)t->plan.model.mixture.E + 1, sizeof *load);
    ep.layer = p->layer;
    if (load == NULL) return fail(err, ERR_MEMORY, "no memory for the loads of a layer");
    add_steps(a, t, ep.layer, load);
    const struct expert_seen seen = { .ep = &ep, .load = sees_all_routings(t) ? load : NULL };
    const enum error_code e = hold(&a->of[ADAPTS_EXPERTS], &seen, err);
    count_choices(a, t, &ep);
    free(load);
    return e;
}

static enum error_code check_experts(struct adaptation *a, const struct trainer *t, const struct stage *s, int micro,
                                     struct error *err)
{
    const struct microbatch *const m = &s->micro[micro];
    enum error_code e = OK;
    for (int i = 1; i <= s->layers && m->routing && !e; i++)
        if (m->routing[i].table) e = check_layer(a, t, s, m, &s->part[i], err);
    return e;
}

/* ---- experts: the order of rows ---------------------------------------------------------------------------------- */

/* All rows that devices along tp share of a microbatch, in their order. */
static enum error_code check_order(struct adaptation *a, const struct trainer *t, int micro, struct error *err)
{
    const struct plan *const p = &t->plan;
    const struct intervals *const rows = &t->stage[0].micro[micro].rows;
    int own[MESH_MOST_DEVICES];
    const int64_t n = intervals_total(rows);
    if (!plan_shuffles(p) || p->ids == NULL || p->mesh.size[TP] == 1) return OK;
    int32_t *const part = malloc((size_t)(n + 1) * sizeof *part);
    if (part == NULL) return fail(err, ERR_MEMORY, "no memory for the order of %lld rows", (long long)n);
    for (int64_t i = 0, k = 0; i < rows->count; i++)
        for (int64_t at = rows->at[i].first; at < interval_end(rows->at[i]); at++)
            part[k++] = p->affinity->part[p->ids[at]];
    for (int r = 0; r < p->mesh.size[TP]; r++)
        own[r] = plan_expert_place(p, mesh_neighbour(&p->mesh, t->comm->rank, TP, r), EXPERT_PARTS);
    const struct expert_parallel *const ep = &t->seams.ep;
    const struct expert_seen seen = { .ep = ep, .part = part, .own = own, .rows = n, .sharing = p->mesh.size[TP] };
    const enum error_code e = hold(&a->of[ADAPTS_EXPERTS], &seen, err);
    free(part);
    return e;
}

/* ---- layers by speed, biases of routers -------------------------------------------------------------------------- */

static enum error_code check_placement(struct adaptation *a, const struct trainer *t, struct error *err)
{
    bool given = false;
    for (int d = 0; d < t->schedule.devices && d < PLAN_MOST_STAGES; d++) given = given || t->plan.speed[d] != 0;
    if (!given || a->steps > 0) return OK;
    return hold(&a->of[ADAPTS_PLACEMENT], &(struct placement_seen){ &t->plan, &t->schedule }, err);
}

/* The biases have been moved since the last step by the choices of its whole batch. */
static enum error_code check_biases(struct adaptation *a, const struct trainer *t, struct error *err)
{
    const struct mixture_config *const x = &t->plan.model.mixture;
    const int64_t columns = mixture_columns(x);
    enum error_code e = OK;
    if (t->plan.model.mlp != MLP_MIXTURE || !x->router.biased || t->plan.optimizer->forward_only) return OK;
    for (int64_t l = 0; l < t->plan.model.L && a->steps > 0 && t->skipped == 0 && !e; l++)
        e = hold(&a->of[ADAPTS_ROUTERS], &(struct bias_seen){ l, x->E, a->bias + l * columns,
                                                              t->routers.bias + l * columns, a->choices + l * columns },
                 err);
    const size_t bytes = (size_t)(t->plan.model.L * columns) * sizeof *a->bias;
    memcpy(a->bias, t->routers.bias, bytes), memcpy(a->choices, t->routers.sums + ROUTERS_CHOICES, bytes);
    return e;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void end_step(struct adaptation *a, const struct trainer *t)
{
    const size_t step = (size_t)(t->plan.model.L * t->plan.model.mixture.E);
    int64_t *const now = a->chosen + LOAD_WINDOW * step;
    memcpy(a->chosen + (size_t)(a->steps++ % LOAD_WINDOW) * step, now, step * sizeof *now);
    memset(now, 0, step * sizeof *now);
}

enum error_code adaptation_check(struct adaptation *a, const struct trainer *t, struct error *err)
{
    enum error_code e = check_placement(a, t, err);
    if (!e) e = check_biases(a, t, err);
    for (int i = 0; i < t->plan.micros && !e; i++) {
        e = check_plan(a, t, i, err);
        if (!e) e = check_order(a, t, i, err);
        for (int c = 0; c < t->plan.chunks && !e; c++) e = check_experts(a, t, &t->stage[c], i, err);
    }
    end_step(a, t);
    return e;
}
