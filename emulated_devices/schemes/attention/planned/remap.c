/* remap.c -- rows outside attention, for zeppelin.c's planner, and the runs of rows that move, for planned_pass.c and
 * planned_cost.c.  Without memory remap_balance returns false. */
#include "emulated_devices/schemes/attention/planned/remap.h"
#include "emulated_devices/schemes/attention/planned/context_index.h"
#include <stdlib.h>

/* A device's tokens in attention, ascending; how many more than the mean; the first that is not yet given. */
struct share { struct intervals tokens; int64_t over, next; };

static int by_first(const void *x, const void *y)
{
    const struct interval *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

/* The device of which one token more is expected: that with the most tokens of those without. */
static int with_most(const struct share share[], const char *chosen, int devices)
{
    int best = -1;
    for (int d = 0; d < devices; d++)
        if (!chosen[d] && (best < 0 || share[d].over > share[best].over)) best = d;
    return best;
}

/* Set each device's share: its tokens in attention, and how many more it has than outside.
 * @return false without memory. */
static bool list(const struct context_plan *plan, struct share share[])
{
    char *const chosen = calloc((size_t)plan->devices, 1);
    int64_t total = 0;
    for (int d = 0; d < plan->devices && chosen; d++) {
        context_plan_attended(&share[d].tokens, plan, d);
        if (intervals_lost(&share[d].tokens)) return free(chosen), false;
        if (share[d].tokens.count > 0)
            qsort(share[d].tokens.at, (size_t)share[d].tokens.count, sizeof *share[d].tokens.at, by_first);
        share[d].over = intervals_total(&share[d].tokens), total += share[d].over;
    }
    for (int d = 0; d < plan->devices && chosen; d++) share[d].over -= total / plan->devices;
    /* The rest of the division is given to the devices with most tokens, so fewest rows move. */
    for (int64_t i = 0; i < total % plan->devices && chosen; i++) {
        const int d = with_most(share, chosen, plan->devices);
        chosen[d] = 1, share[d].over--;
    }
    free(chosen);
    return chosen != NULL;
}

/* Give n of a device's tokens, from its first ungiven one on, to a device as rows.  @return false without memory. */
static bool remap_give(struct context_plan *plan, struct share *from, int64_t n, int to)
{
    struct intervals part = { 0 };
    intervals_add_part(&part, &from->tokens, (struct interval){ from->next, n });
    for (int i = 0; i < part.count; i++) context_add_rows(plan, part.at[i], to);
    from->next += n;
    const bool lost = intervals_lost(&part);
    intervals_free(&part);
    return !lost;
}

/* Devices with too many rows give to those with too few: inside nodes, or anywhere. */
static bool match(struct context_plan *plan, struct share share[], int node, bool inside)
{
    bool ok = true;
    for (int a = 0; a < plan->devices; a++)
        for (int b = 0; b < plan->devices && share[a].over > 0 && ok; b++) {
            if (share[b].over >= 0 || (inside && a / node != b / node)) continue;
            /* The pair's transfer ends when the giver or the taker is even. */
            const int64_t n = share[a].over < -share[b].over ? share[a].over : -share[b].over;
            ok = remap_give(plan, &share[a], n, b);
            share[a].over -= n, share[b].over += n;
        }
    return ok;
}

bool remap_balance(struct context_plan *plan, int node)
{
    struct share *const share = calloc((size_t)plan->devices, sizeof *share);
    bool ok = share != NULL && list(plan, share), moves = false;
    /* A balanced plan gets no rows, and then nothing is remapped. */
    for (int d = 0; d < plan->devices && ok; d++) moves = moves || share[d].over > 0;
    for (int d = 0; d < plan->devices && ok && moves; d++) {
        /* A device first keeps its first tokens, up to the mean; the tail is given away. */
        const int64_t n = intervals_total(&share[d].tokens);
        ok = remap_give(plan, &share[d], share[d].over > 0 ? n - share[d].over : n, d);
    }
    /* Neighbours in a node are served first, so that the fewest rows cross nodes. */
    ok = ok && match(plan, share, node, true) && match(plan, share, node, false);
    for (int d = 0; d < plan->devices && share; d++) intervals_free(&share[d].tokens);
    free(share);
    return ok && !plan->lost;
}

void remap_each(const struct context_plan *plan, void (*f)(void *context, const struct remap_run *), void *context)
{
    for (int64_t r = 0, out = 0; r < plan->rows; out += plan->row[r++].tokens.count) {
        /* `out` and `in` count rows from the start of their device. */
        if (r > 0 && plan->row[r - 1].device != plan->row[r].device) out = 0;
        for (int64_t b = 0, in = 0; b < plan->blocks; b++) {
            if (b > 0 && plan->block[b - 1].home != plan->block[b].home) in = 0;
            for (int i = 0; i < 2; in += plan->block[b].tokens[i++].count) {
                const struct interval of = plan->block[b].tokens[i], both = interval_meet(of, plan->row[r].tokens);
                /* Rows of one block that lie in one entry of rows are adjacent on both sides: one run. */
                if (both.count > 0)
                    f(context, &(struct remap_run){ plan->row[r].device, plan->block[b].home,
                                                    out + both.first - plan->row[r].tokens.first,
                                                    in + both.first - of.first, both.count });
            }
        }
    }
}

void remap_each_of(const struct context_plan *plan, int device, void (*f)(void *context, const struct remap_run *),
                   void *context)
{
    const struct context_index *const index = plan->index;
    const int *const entry = context_list_of(&index->remapped, device);
    for (int64_t i = 0; i < context_list_count(&index->remapped, device); i++) f(context, &index->run[entry[i]]);
}
