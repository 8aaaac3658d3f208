/* shuffle.c -- the order of a microbatch's rows outside attention, if it is not that of the batch: speculative.c.
 *
 * context.c orders rows with it, verify/reference/adaptation.c holds the order to its invariants; plan_check calls
 * plan_check_affinity.  ERR_PLAN says what of --affinity does not fit the plan; other errors are those of reading its
 * file.
 */
#include "emulated_devices/plan/plan.h"
#include <stdlib.h>

bool plan_shuffles(const struct plan *plan)
{
    const struct expert_scheme *s;
    return plan_cuts_experts(plan) && plan->affinity && !expert_scheme_find(&s, plan->dispatch, NULL) && s->predicts;
}

/* own [tp] gets the part of the experts of each device along tp. */
static void parts_along_tp(const struct plan *plan, int rank, int own[])
{
    for (int r = 0; r < plan->mesh.size[TP]; r++)
        own[r] = plan_expert_place(plan, mesh_neighbour(&plan->mesh, rank, TP, r), EXPERT_PARTS);
}

/* Put the rows of a microbatch into the order of the affinities.  part [n] gets the tokens' parts, row [n] their rows,
 * order [n] the new order. */
static void reorder(const struct plan *plan, int rank, struct intervals *rows, int32_t *part, int64_t *row,
                    int32_t *order)
{
    int own[MESH_MOST_LISTED];
    const int64_t n = intervals_total(rows);
    struct intervals out = { 0 };
    parts_along_tp(plan, rank, own);
    for (int64_t i = 0, n = 0; i < rows->count; i++)
        for (int64_t at = rows->at[i].first; at < interval_end(rows->at[i]); at++, n++)
            row[n] = at, part[n] = affinity_part_at(plan->affinity, plan->ids, plan->S, at);
    const enum error_code e = affinity_order(part, n, own, plan->mesh.size[TP], order, NULL);
    /* Rows come one by one; intervals_add joins those that stay neighbours. */
    for (int64_t i = 0; i < n && !e; i++) intervals_add(&out, (struct interval){ row[order[i]], 1 });
    intervals_free(rows);
    *rows = out;
    if (e) rows->room = -1;
}

void plan_shuffle(const struct plan *plan, int rank, struct intervals *rows)
{
    const int64_t n = intervals_total(rows);
    if (!plan_shuffles(plan) || plan->ids == NULL || plan->mesh.size[TP] == 1 || intervals_lost(rows)) return;
    int32_t *const ints = malloc((size_t)(2 * n + 1) * sizeof *ints);
    int64_t *const row = malloc((size_t)(n + 1) * sizeof *row);
    /* A list that is lost (room -1) tells the caller that memory was missing. */
    if (ints && row) reorder(plan, rank, rows, ints, row, ints + n);
    else intervals_free(rows), *rows = (struct intervals){ .room = -1 };
    free(ints), free(row);
}

enum error_code plan_check_affinity(const struct plan *plan, struct error *err)
{
    const struct affinity *a = plan->affinity;
    const struct expert_scheme *s;
    /* Without a table there is nothing to check; a scheme that predicts then orders nothing. */
    if (a == NULL || expert_scheme_find(&s, plan->dispatch, err)) return OK;
    if (!s->predicts)
        return fail(err, ERR_PLAN, "--affinity: --dispatch %s predicts nothing; speculative does", s->head.name);
    if (a->parts != plan_ep(plan))
        return fail(err, ERR_PLAN, "--affinity: the file's experts are in %d parts, and --ep is %d", a->parts,
                    plan_ep(plan));
    if (a->V != plan->model.V)
        return fail(err, ERR_PLAN, "--affinity: the file has %lld tokens, and --model %s has %lld", (long long)a->V,
                    plan->model.name, (long long)plan->model.V);
    return OK;
}
