/* shuffle.c -- the order of a microbatch's rows outside attention, if it is not that of the batch: speculative.c. */
#include "emulated_devices/plan/plan.h"
#include <stdlib.h>

bool plan_shuffles(const struct plan *p)
{
    const struct expert_scheme *s;
    return plan_cuts_experts(p) && p->affinity && !expert_scheme_find(&s, p->dispatch, NULL) && s->predicts;
}

/* The part of the experts of each device along tp. */
static void parts_along_tp(const struct plan *p, int rank, int own[])
{
    for (int r = 0; r < p->mesh.size[TP]; r++)
        own[r] = plan_expert_place(p, mesh_neighbour(&p->mesh, rank, TP, r), EXPERT_PARTS);
}

static void reorder(const struct plan *p, int rank, struct intervals *rows, int32_t *id, int64_t *row, int32_t *order)
{
    int own[MESH_MOST_DEVICES];
    const int64_t n = intervals_total(rows);
    struct intervals out = { 0 };
    parts_along_tp(p, rank, own);
    for (int64_t i = 0, n = 0; i < rows->count; i++)
        for (int64_t at = rows->at[i].first; at < interval_end(rows->at[i]); at++, n++) row[n] = at, id[n] = p->ids[at];
    const enum error_code e = affinity_order(p->affinity, id, n, own, p->mesh.size[TP], order, NULL);
    /* Rows come one by one; intervals_add joins those that stay neighbours. */
    for (int64_t i = 0; i < n && !e; i++) intervals_add(&out, (struct interval){ row[order[i]], 1 });
    intervals_free(rows);
    *rows = out;
    if (e) rows->room = -1;
}

void plan_shuffle(const struct plan *p, int rank, struct intervals *rows)
{
    const int64_t n = intervals_total(rows);
    if (!plan_shuffles(p) || p->ids == NULL || p->mesh.size[TP] == 1 || intervals_lost(rows)) return;
    int32_t *const ints = malloc((size_t)(2 * n + 1) * sizeof *ints);
    int64_t *const row = malloc((size_t)(n + 1) * sizeof *row);
    if (ints && row) reorder(p, rank, rows, ints, row, ints + n);
    else intervals_free(rows), *rows = (struct intervals){ .room = -1 };
    free(ints), free(row);
}

enum error_code plan_check_affinity(const struct plan *p, struct error *err)
{
    const struct affinity *a = p->affinity;
    const struct expert_scheme *s;
    if (a == NULL || expert_scheme_find(&s, p->dispatch, err)) return OK;
    if (!s->predicts)
        return fail(err, ERR_PLAN, "--affinity: --dispatch %s predicts nothing; speculative does", s->head.name);
    if (a->parts != plan_ep(p))
        return fail(err, ERR_PLAN, "--affinity: the file's experts are in %d parts, and --ep is %d", a->parts,
                    plan_ep(p));
    if (a->V != p->model.V)
        return fail(err, ERR_PLAN, "--affinity: the file has %lld tokens, and --model %s has %lld", (long long)a->V,
                    p->model.name, (long long)p->model.V);
    return OK;
}
