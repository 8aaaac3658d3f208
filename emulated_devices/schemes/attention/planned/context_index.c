/* context_index.c -- makes the lists of a plan.  context_plan.c calls when a plan is finished or freed.  Without memory
 * the result is NULL. */
#include "emulated_devices/schemes/attention/planned/context_index.h"
#include <stdlib.h>
#include <string.h>

/* ---- lists by device --------------------------------------------------------------------------------------------- */

/* The two ends of an entry. */
struct ends { int from, to; };
typedef struct ends ends_fn(const struct context_plan *, const struct context_index *, int entry);

/* Devices first .. end - 1, and then those of the other node. */
struct touched { struct interval of[2]; };

static struct touched touched_by(const struct context_plan *plan, struct ends ends)
{
    const int node = plan->proxies;
    const bool carried = node > 0 && ends.from / node != ends.to / node;
    if (carried)
        return (struct touched){ { { ends.from / node * node, node }, { ends.to / node * node, node } } };
    return (struct touched){ { { ends.from, 1 }, { ends.to, ends.from != ends.to } } };
}

/* Count the entries of each device, then list them: entries ascend in each device's list. */
static bool list_by_device(struct context_list *list, const struct context_plan *plan,
                           const struct context_index *index, int entries, ends_fn *ends_of)
{
    int64_t *const next = calloc((size_t)plan->devices + 1, sizeof *next);
    list->first = calloc((size_t)plan->devices + 1, sizeof *list->first);
    for (int pass = 0; pass < 2 && next && list->first; pass++) {
        for (int i = 0; i < entries; i++) {
            const struct touched t = touched_by(plan, ends_of(plan, index, i));
            for (int k = 0; k < 2; k++)
                for (int64_t d = t.of[k].first; d < interval_end(t.of[k]); d++)
                    if (pass == 0) list->first[d + 1]++;
                    else list->at[next[d]++] = i;
        }
        if (pass == 1) break;
        for (int d = 0; d < plan->devices; d++) list->first[d + 1] += list->first[d];
        memcpy(next, list->first, (size_t)plan->devices * sizeof *next);
        list->at = malloc(((size_t)list->first[plan->devices] + 1) * sizeof *list->at);
        if (list->at == NULL) break;
    }
    free(next);
    return next && list->first && list->at;
}

static struct ends ends_of_move(const struct context_plan *plan, const struct context_index *index, int entry)
{
    (void)index;
    return (struct ends){ plan->move[entry].from, plan->move[entry].to };
}

static struct ends ends_of_query(const struct context_plan *plan, const struct context_index *index, int entry)
{
    const struct context_guest *const g = &index->guest[CONTEXT_QUERIES][entry];
    return (struct ends){ g->device, plan->block[g->block].home };
}

static struct ends ends_of_keys(const struct context_plan *plan, const struct context_index *index, int entry)
{
    const struct context_guest *const g = &index->guest[CONTEXT_KEYS][entry];
    return (struct ends){ g->device, plan->block[g->block].home };
}

/* Rows go straight, also with proxies. */
static bool list_runs(struct context_index *index, const struct context_plan *plan, ends_fn *ends_of)
{
    struct context_plan straight = *plan;
    straight.proxies = 0;
    return list_by_device(&index->remapped, &straight, index, index->runs, ends_of);
}

static struct ends ends_of_run(const struct context_plan *plan, const struct context_index *index, int entry)
{
    (void)plan;
    return (struct ends){ index->run[entry].inside, index->run[entry].outside };
}

/* ---- guests ------------------------------------------------------------------------------------------------------ */

static int compare_guests(const void *x, const void *y)
{
    const struct context_guest *a = x, *b = y;
    return a->block != b->block ? (a->block > b->block) - (a->block < b->block)
                                : (a->device > b->device) - (a->device < b->device);
}

/* @return how many guests there are, or -1 without memory. */
static int list_guests(struct context_index *index, const struct context_plan *plan, enum context_data data)
{
    struct context_guest *const all = malloc(((size_t)plan->works + 1) * sizeof *all);
    int n = 0, guests = 0;
    index->guest[data] = all;
    if (all == NULL) return -1;
    for (int i = 0; i < plan->works; i++) {
        const struct context_work *const w = &plan->work[i];
        const int block = data == CONTEXT_KEYS ? w->key : w->query;
        if (w->device != plan->block[block].home) all[n++] = (struct context_guest){ block, w->device };
    }
    if (n > 0) qsort(all, (size_t)n, sizeof *all, compare_guests);
    for (int i = 0; i < n; i++)
        if (i == 0 || compare_guests(&all[i - 1], &all[i]) != 0) all[guests++] = all[i];
    return guests;
}

bool context_index_has_guest(const struct context_index *index, enum context_data data, int block, int device)
{
    const struct context_guest wanted = { block, device };
    const size_t n = (size_t)index->guests_in_all[data];
    return n > 0 && bsearch(&wanted, index->guest[data], n, sizeof wanted, compare_guests) != NULL;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static bool list_works(struct context_index *index, const struct context_plan *plan)
{
    index->first_work = calloc((size_t)plan->devices + 1, sizeof *index->first_work);
    for (int i = 0; i < plan->works && index->first_work; i++) index->first_work[plan->work[i].device + 1]++;
    for (int d = 0; d < plan->devices && index->first_work; d++) index->first_work[d + 1] += index->first_work[d];
    return index->first_work != NULL;
}

/* Blocks are sorted by home, so the rows of a home count up from one block to the next. */
static bool list_blocks(struct context_index *index, const struct context_plan *plan)
{
    index->first_block = calloc((size_t)plan->devices + 1, sizeof *index->first_block);
    index->row = calloc((size_t)plan->blocks + 1, sizeof *index->row);
    if (index->first_block == NULL || index->row == NULL) return false;
    for (int b = 0; b < plan->blocks; b++) {
        const int64_t n = context_block_tokens(&plan->block[b]);
        const bool follows = b > 0 && plan->block[b].home == plan->block[b - 1].home;
        index->row[b] = follows ? index->row[b - 1] + context_block_tokens(&plan->block[b - 1]) : 0;
        index->first_block[plan->block[b].home + 1]++;
        if (n > index->longest) index->longest = n;
    }
    for (int d = 0; d < plan->devices; d++) index->first_block[d + 1] += index->first_block[d];
    return true;
}

/* The blocks of a device, each once: last[block] is the device that listed the block last. */
struct listing { int *last, *block, device, count; };

static void list_block(struct listing *listing, int block)
{
    if (listing->last[block] == listing->device) return;
    listing->last[block] = listing->device, listing->block[listing->count++] = block;
}

static int index_ascending(const void *x, const void *y) { return (*(const int *)x > *(const int *)y) -
                                                             (*(const int *)x < *(const int *)y); }

/* List the blocks of a device: its own, those of its moves, and those that it or another device is guest of. */
static void list_device(struct listing *listing, const struct context_index *index, const struct context_plan *plan)
{
    const int d = listing->device;
    listing->count = 0;
    for (int b = index->first_block[d]; b < index->first_block[d + 1]; b++) list_block(listing, b);
    for (int64_t i = 0; i < context_list_count(&index->moves, d); i++)
        list_block(listing, plan->move[context_list_of(&index->moves, d)[i]].block);
    for (int data = 0; data < 2; data++)
        for (int64_t i = 0; i < context_list_count(&index->guests[data], d); i++)
            list_block(listing, index->guest[data][context_list_of(&index->guests[data], d)[i]].block);
    if (listing->count > 0) qsort(listing->block, (size_t)listing->count, sizeof *listing->block, index_ascending);
}

static bool list_here(struct context_index *index, const struct context_plan *plan)
{
    struct context_list *const here = &index->here;
    struct listing l = { .last = malloc(((size_t)plan->blocks + 1) * sizeof *l.last),
                         .block = malloc(((size_t)plan->blocks + 1) * sizeof *l.block) };
    here->first = calloc((size_t)plan->devices + 1, sizeof *here->first);
    bool ok = l.last && l.block && here->first;
    for (int b = 0; b < plan->blocks && ok; b++) l.last[b] = -1;
    for (int64_t room = 0; l.device < plan->devices && ok; l.device++) {
        list_device(&l, index, plan);
        const int64_t first = here->first[l.device], end = here->first[l.device + 1] = first + l.count;
        if (end > room || here->at == NULL) {
            room = 2 * end + plan->blocks;
            int *const longer = realloc(here->at, ((size_t)room + 1) * sizeof *longer);
            ok = longer != NULL;
            if (ok) here->at = longer;
        }
        if (ok) memcpy(here->at + first, l.block, (size_t)l.count * sizeof *l.block);
    }
    free(l.last), free(l.block);
    return ok;
}

int context_index_here(const struct context_index *index, int device, int block)
{
    const int *const at = context_list_of(&index->here, device);
    int least = 0, most = (int)context_list_count(&index->here, device) - 1;
    while (least < most) {
        const int middle = (least + most) / 2;
        if (at[middle] < block) least = middle + 1;
        else most = middle;
    }
    return least;
}

static void context_index_add(void *context, const struct remap_run *run)
{
    struct context_index *const x = context;
    if (x->runs == x->room) {
        const int room = x->room ? 2 * x->room : 64;
        struct remap_run *const longer = x->room < 0 ? NULL : realloc(x->run, (size_t)room * sizeof *longer);
        x->room = longer ? room : -1;
        if (longer) x->run = longer;
    }
    if (x->room > x->runs) x->run[x->runs++] = *run;
}

/* The blocks of a device lie one after another in the plan, as they are sorted by home. */
static bool list_positions(struct context_index *index, const struct context_plan *plan)
{
    index->position = malloc(((size_t)plan->tokens + 1) * sizeof *index->position);
    index->start = calloc((size_t)plan->devices + 1, sizeof *index->start);
    int64_t at = 0;
    for (int d = 0, b = 0; d < plan->devices && index->position && index->start; d++) {
        for (; b < plan->blocks && plan->block[b].home == d; b++)
            for (int i = 0; i < 2; i++)
                for (int64_t k = 0; k < plan->block[b].tokens[i].count; k++)
                    index->position[at++] = (int32_t)(plan->block[b].tokens[i].first + k);
        index->start[d + 1] = at;
    }
    return index->position && index->start;
}

struct context_index *context_index_make(const struct context_plan *plan)
{
    struct context_index *const x = calloc(1, sizeof *x);
    bool ok = x != NULL && list_works(x, plan) && list_blocks(x, plan) && list_positions(x, plan) &&
              list_by_device(&x->moves, plan, x, plan->moves, ends_of_move);
    for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS && ok; data++) {
        const int guests = x->guests_in_all[data] = list_guests(x, plan, data);
        ok = guests >= 0 && list_by_device(&x->guests[data], plan, x, guests,
                                           data == CONTEXT_KEYS ? ends_of_keys : ends_of_query);
    }
    ok = ok && list_here(x, plan);
    if (ok) remap_each(plan, context_index_add, x);
    ok = ok && x->room >= 0 && list_runs(x, plan, ends_of_run);
    if (ok) return x;
    context_index_free(x);
    return NULL;
}

static void context_list_free(struct context_list *list) { free(list->first), free(list->at); }

void context_index_free(struct context_index *index)
{
    if (index == NULL) return;
    context_list_free(&index->moves), context_list_free(&index->remapped), context_list_free(&index->here);
    for (int i = 0; i < 2; i++) context_list_free(&index->guests[i]), free(index->guest[i]);
    free(index->first_block), free(index->row);
    free(index->first_work), free(index->run), free(index->position), free(index->start), free(index);
}
