/* context_plan.c -- lists of a plan, their order and digest.  Planners (hdp.c, dcp.c, zeppelin.c, flexsp_plan.c) add
 * entries and call context_plan_finish.  Adding never fails: without memory the plan is marked lost, and finishing
 * reports ERR_MEMORY. */
#include "emulated_devices/schemes/attention/planned/context_plan.h"
#include "emulated_devices/schemes/attention/planned/context_index.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int by_number(int64_t a, int64_t b) { return (a > b) - (a < b); }

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Room for one more of `size` bytes.  @return false if there is no memory. */
static bool context_plan_grow(struct context_plan *plan, void **list, int count, int *room, size_t size)
{
    if (count < *room) return true;
    const int more = *room ? 2 * *room : 16;
    void *const longer = realloc(*list, (size_t)more * size);
    if (longer == NULL) return !(plan->lost = true);
    *list = longer, *room = more;
    return true;
}

/* A lost plan gets number 0, which is harmless because nobody reads the plan. */
int context_add_block(struct context_plan *plan, struct interval a, struct interval b, int home)
{
    if (!context_plan_grow(plan, (void **)&plan->block, plan->blocks, &plan->room[0], sizeof *plan->block)) return 0;
    plan->block[plan->blocks] = (struct context_block){ .tokens = { a, b }, .home = home };
    return plan->blocks++;
}

void context_add_work(struct context_plan *plan, struct context_work work)
{
    if (context_plan_grow(plan, (void **)&plan->work, plan->works, &plan->room[1], sizeof *plan->work))
        plan->work[plan->works++] = work;
}

void context_add_move(struct context_plan *plan, struct context_move move)
{
    if (context_plan_grow(plan, (void **)&plan->move, plan->moves, &plan->room[2], sizeof *plan->move))
        plan->move[plan->moves++] = move;
}

void context_add_ring(struct context_plan *plan, const struct context_load *load, struct interval sample,
                      const int device[], int D, int division)
{
    /* Blocks of the ring are numbered from `begin`: member m has block begin + m. */
    const int begin = plan->blocks;
    for (int m = 0; m < D; m++)
        context_add_block(plan, interval_moved(block_at(sample.count, 2 * D, m), sample.first),
                          interval_moved(block_at(sample.count, 2 * D, 2 * D - 1 - m), sample.first), device[m]);
    /* Step s: member m computes with the keys of member m - s, and passes them on to member m + 1. */
    for (int step = 0; step < D; step++)
        for (int m = 0; m < D; m++) {
            const int key = begin + (m - step + D) % D, at = device[m], to = device[(m + 1) % D];
            /* With few tokens on many devices the last parts are empty, and the first sees nothing of other devices. */
            if (!plan->lost && context_pairs(load, &plan->block[begin + m], &plan->block[key]) > 0)
                context_add_work(plan, (struct context_work){ begin + m, key, at, division + step });
            if (step < D - 1)
                context_add_move(plan, (struct context_move){ CONTEXT_KEYS, key, at, to, division + step });
        }
    /* A ring of D members takes D divisions; several rings may run in the same ones. */
    if (division + D > plan->divisions) plan->divisions = division + D;
}

void context_add_group(struct context_plan *plan, int first, int devices)
{
    if (context_plan_grow(plan, (void **)&plan->group, plan->groups, &plan->room[3], sizeof *plan->group))
        plan->group[plan->groups++] = (struct context_group){ first, devices };
}

void context_add_rows(struct context_plan *plan, struct interval tokens, int device)
{
    if (tokens.count > 0 && context_plan_grow(plan, (void **)&plan->row, plan->rows, &plan->room[4], sizeof *plan->row))
        plan->row[plan->rows++] = (struct context_rows){ tokens, device };
}

void context_plan_free(struct context_plan *plan)
{
    const bool last = plan->users == NULL || --*plan->users == 0;
    if (last) {
        free(plan->block), free(plan->work), free(plan->move), free(plan->group), free(plan->row), free(plan->pairs);
        free(plan->away), free(plan->users);
        context_index_free(plan->index);
    }
    *plan = (struct context_plan){ 0 };
}

enum error_code context_plan_share(struct context_plan *plan, struct context_plan *from, struct error *err)
{
    *plan = (struct context_plan){ 0 };
    if (from->users == NULL) {
        from->users = malloc(sizeof *from->users);
        if (from->users == NULL) return fail(err, ERR_MEMORY, "no memory to share a plan");
        *from->users = 1;
    }
    ++*from->users;
    *plan = *from;
    return OK;
}

/* The bytes of the ranges that context_load_mask makes. */
static size_t made_bytes(const struct context_load *load)
{
    return (size_t)load->tokens * 2 * (size_t)load->ranges * sizeof *load->made;
}

enum error_code context_load_mask(struct context_load *load, const struct attention_mask *mask, struct error *err)
{
    const int ranges = attention_mask_ranges(mask);
    int64_t first = 0;
    if (attention_mask_is_causal(mask)) return OK;
    load->ranges = ranges;
    load->made = malloc(made_bytes(load) + 1);
    if (load->made == NULL)
        return fail(err, ERR_MEMORY, "no memory for a mask of %lld tokens", (long long)load->tokens);
    for (int i = 0; i < load->samples; first += load->length[i++])
        attention_mask_fill(mask, first, load->length[i], load->made + first * 2 * ranges);
    load->sees = load->made;
    return OK;
}

bool context_load_same(const struct context_load *a, const struct context_load *b)
{
    /* Given ranges are not compared: a load that has them is never the same as another. */
    const int64_t one[] = { a->samples, a->tokens, a->micros, a->micro, a->devices, a->node, a->room, a->layers,
                            a->heads, a->query_width, a->key_width, a->without },
                  other[] = { b->samples, b->tokens, b->micros, b->micro, b->devices, b->node, b->room, b->layers,
                              b->heads, b->query_width, b->key_width, b->without };
    return a->sees == a->made && b->sees == b->made && memcmp(one, other, sizeof one) == 0 &&
           (a->made == NULL) == (b->made == NULL) && a->ranges == b->ranges &&
           (a->made == NULL || memcmp(a->made, b->made, made_bytes(a)) == 0) &&
           a->per_pair == b->per_pair && a->per_token == b->per_token && a->per_element == b->per_element &&
           a->per_far_element == b->per_far_element && a->per_micro == b->per_micro &&
           a->per_kept == b->per_kept && memcmp(a->length, b->length, (size_t)a->samples * sizeof *a->length) == 0;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

int64_t context_block_tokens(const struct context_block *block) { return block->tokens[0].count
                                                                 + block->tokens[1].count; }

/* The second interval comes later in the sequence, if the block has two. */
int64_t context_block_end(const struct context_block *block)
{
    return interval_end(block->tokens[block->tokens[1].count > 0]);
}

void context_plan_attended(struct intervals *tokens, const struct context_plan *plan, int device)
{
    /* While a planner plans, blocks are not sorted yet, so all of them are looked at. */
    const int *const first = plan->index ? plan->index->first_block + device : (const int[]){ 0, plan->blocks };
    for (int b = first[0]; b < first[1]; b++)
        for (int i = 0; i < 2 && plan->block[b].home == device; i++) intervals_add(tokens, plan->block[b].tokens[i]);
}

/* A plan without rows has the same tokens outside attention as in it. */
void context_plan_tokens(struct intervals *tokens, const struct context_plan *plan, int device)
{
    if (plan->row == NULL) context_plan_attended(tokens, plan, device);
    for (int r = 0; r < plan->rows; r++)
        if (plan->row[r].device == device) intervals_add(tokens, plan->row[r].tokens);
}

/* Count the pairs of a query in q and a key in k with key <= query, by formula: first the queries that see all of k,
 * then those that see a part. */
static int64_t causal_pairs(struct interval q, struct interval k)
{
    int64_t pairs = 0;
    const int64_t full = interval_end(q) - interval_end(k) + 1;            /* queries from the last key on see all */
    const int64_t all = full < 0 ? 0 : full > q.count ? q.count : full;
    pairs += all * k.count;
    const int64_t last = interval_end(q) - all - 1;                         /* the last query that does not */
    const int64_t low = last - k.first + 1;                                 /* keys that it sees */
    const int64_t rest = q.count - all < low ? q.count - all : low;         /* queries that see some */
    if (rest > 0) pairs += rest * low - rest * (rest - 1) / 2;
    return pairs;
}

bool context_works_with(const struct context_plan *plan, enum context_data data, int block, int device)
{
    const struct context_index *const index = plan->index;
    const int *const first = index->first_work;
    if (plan->block[block].home != device) return context_index_has_guest(index, data, block, device);
    for (int i = first[device]; i < first[device + 1]; i++)
        if ((data == CONTEXT_KEYS ? plan->work[i].key : plan->work[i].query) == block) return true;
    return false;
}

int context_group_of(const struct context_plan *plan, int device)
{
    int i = 0;
    while (device >= plan->group[i].first + plan->group[i].devices) i++;
    return i;
}

/* Count the pairs of a query in q and a key in k that the mask lets the query see. */
static int64_t masked_pairs(const struct context_load *load, struct interval q, struct interval k)
{
    int64_t pairs = 0;
    for (int64_t i = q.first * load->ranges; i < interval_end(q) * load->ranges; i++) {
        /* Each of a token's `ranges` is one interval of its sample, counted from the microbatch's first token. */
        const struct interval seen = { load->sees[2 * i], load->sees[2 * i + 1] - load->sees[2 * i] };
        pairs += interval_meet(seen, k).count;
    }
    return pairs;
}

/* Both blocks have up to two intervals, so four products of intervals are added. */
double context_pairs(const struct context_load *load, const struct context_block *q, const struct context_block *k)
{
    int64_t pairs = 0;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            if (q->tokens[i].count > 0 && k->tokens[j].count > 0)
                pairs += load->sees ? masked_pairs(load, q->tokens[i], k->tokens[j])
                                 : causal_pairs(q->tokens[i], k->tokens[j]);
    return (double)pairs;
}

double context_work_pairs(const struct context_plan *plan, const struct context_work *work)
{
    return plan->pairs[work - plan->work];
}

double context_device_pairs(const struct context_plan *plan, int device)
{
    const int *const first = plan->index->first_work;
    double sum = 0;
    for (int i = first[device]; i < first[device + 1]; i++) sum += plan->pairs[i];
    return sum;
}

static int longer_first(const void *x, const void *y)
{
    const struct interval *a = x, *b = y;
    const int length = by_number(b->count, a->count);
    return length ? length : by_number(a->first, b->first);
}

struct interval *context_samples(const struct context_load *load)
{
    /* Samples lie one after another, so their first tokens are sums of the lengths before. */
    struct interval *all = malloc(((size_t)load->samples + 1) * sizeof *all);
    int64_t first = 0;
    for (int i = 0; i < load->samples && all; first += load->length[i++])
        all[i] = (struct interval){ first, load->length[i] };
    if (all) qsort(all, (size_t)load->samples, sizeof *all, longer_first);
    return all;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* A block stands beside the number under which works and moves know it, until both are sorted. */
struct numbered { struct context_block block; int number; };

static int compare_blocks(const void *x, const void *y)
{
    const struct context_block *a = &((const struct numbered *)x)->block, *b = &((const struct numbered *)y)->block;
    const int home = by_number(a->home, b->home);
    return home ? home : by_number(a->tokens[0].first, b->tokens[0].first);
}

/* The order of works decides the order of additions, so results have the same bits in every run. */
static int compare_works(const void *x, const void *y)
{
    const struct context_work *a = x, *b = y;
    const int order[] = { by_number(a->device, b->device), by_number(a->division, b->division),
                          by_number(a->query, b->query), by_number(a->key, b->key) };
    for (int i = 0; i < 3; i++)
        if (order[i]) return order[i];
    return order[3];
}

/* The order of moves is that of messages between two devices: both sides must agree on it. */
static int compare_moves(const void *x, const void *y)
{
    const struct context_move *a = x, *b = y;
    const int order[] = { by_number(a->division, b->division), by_number(a->block, b->block),
                          by_number((int)a->data, (int)b->data), by_number(a->to, b->to) };
    for (int i = 0; i < 3; i++)
        if (order[i]) return order[i];
    return order[3];
}

static int compare_rows(const void *x, const void *y)
{
    const struct context_rows *a = x, *b = y;
    const int device = by_number(a->device, b->device);
    return device ? device : by_number(a->tokens.first, b->tokens.first);
}

/* The new number of a block; a number that no block has stays, for context_plan_check to refuse. */
static int renumber_block(const struct context_plan *plan, const int at[], int block)
{
    return block >= 0 && block < plan->blocks ? at[block] : block;
}

/* @return false if there is no memory. */
static bool sort(struct context_plan *plan)
{
    /* at[old number] is the new number of a block, for works and moves. */
    struct numbered *all = malloc(((size_t)plan->blocks + 1) * sizeof *all);
    int *at = malloc(((size_t)plan->blocks + 1) * sizeof *at);
    const bool ok = all && at;
    for (int b = 0; b < plan->blocks && ok; b++) all[b] = (struct numbered){ plan->block[b], b };
    if (ok) qsort(all, (size_t)plan->blocks, sizeof *all, compare_blocks);
    for (int b = 0; b < plan->blocks && ok; b++) plan->block[b] = all[b].block, at[all[b].number] = b;
    for (int w = 0; w < plan->works && ok; w++) {
        plan->work[w].query = renumber_block(plan, at, plan->work[w].query);
        plan->work[w].key = renumber_block(plan, at, plan->work[w].key);
    }
    for (int m = 0; m < plan->moves && ok; m++) plan->move[m].block = renumber_block(plan, at, plan->move[m].block);
    free(all), free(at);
    if (plan->works > 0) qsort(plan->work, (size_t)plan->works, sizeof *plan->work, compare_works);
    if (plan->moves > 0) qsort(plan->move, (size_t)plan->moves, sizeof *plan->move, compare_moves);
    if (plan->rows > 0) qsort(plan->row, (size_t)plan->rows, sizeof *plan->row, compare_rows);
    return ok;
}

/* The first token of the sample with a token: the last of the ascending `first` that is not after the token. */
static int64_t sample_with(const int64_t first[], int samples, int64_t token)
{
    int least = 0, most = samples - 1;
    while (least < most) {
        const int middle = (least + most + 1) / 2;
        if (first[middle] <= token) least = middle;
        else most = middle - 1;
    }
    return first[least];
}

/* Count the tokens that those of a range see, who are of a sample that begins at `first`. */
static int64_t pairs_seen_from(const struct context_load *load, struct interval tokens, int64_t first)
{
    int64_t pairs = 0;
    if (load->sees == NULL) return tokens.count * (tokens.first - first) + tokens.count * (tokens.count + 1) / 2;
    for (int64_t i = tokens.first * load->ranges; i < interval_end(tokens) * load->ranges; i++)
        pairs += load->sees[2 * i + 1] - load->sees[2 * i];
    return pairs;
}

/* A sample is in one group, so the tokens of a group see only tokens of the group.  @return false without memory. */
static bool count_pairs_of_groups(struct context_plan *plan, const struct context_load *load)
{
    int64_t *const first = malloc(((size_t)load->samples + 1) * sizeof *first);
    if (first == NULL) return false;
    first[0] = 0;
    for (int i = 0; i < load->samples; i++) first[i + 1] = first[i] + load->length[i];
    for (int g = 0; g < plan->groups; g++) plan->pairs[g] = 0;
    for (int b = 0, g = 0; b < plan->blocks; b++) {
        const struct context_block *const k = &plan->block[b];
        const int64_t begin = sample_with(first, load->samples, k->tokens[0].first);
        while (k->home >= plan->group[g].first + plan->group[g].devices) g++;
        for (int i = 0; i < 2; i++) plan->pairs[g] += (double)pairs_seen_from(load, k->tokens[i], begin);
    }
    free(first);
    return true;
}

/* The virtual clock is charged by the pairs of each work, or of a group, which are counted once here. */
static enum error_code context_plan_count(struct context_plan *plan, const struct context_load *load,
                                          struct error *err)
{
    plan->pairs = malloc(((size_t)plan->works + (size_t)plan->groups + 1) * sizeof *plan->pairs);
    if (plan->pairs == NULL || (plan->groups > 0 && !count_pairs_of_groups(plan, load)))
        return fail(err, ERR_MEMORY, "no memory for a plan of %d works", plan->works);
    for (int i = 0; i < plan->works; i++)
        plan->pairs[i] = context_pairs(load, &plan->block[plan->work[i].query], &plan->block[plan->work[i].key]);
    return OK;
}

/* Return a digest of all that the plan says.  Only numbers are added, no pointers, so equal plans have equal
 * digests. */
static struct sha256_text digest(const struct context_plan *plan)
{
    struct sha256 sum = sha256_begin();
    /* The sizes come first, so that entries cannot be taken for those of another list. */
    const int64_t sizes[] = { plan->devices, plan->divisions, plan->tokens, plan->blocks, plan->works, plan->moves,
                             plan->groups,
                              plan->rows, plan->proxies };
    sha256_add(&sum, sizes, sizeof sizes);
    for (int b = 0; b < plan->blocks; b++) {
        const struct context_block *k = &plan->block[b];
        const int64_t numbers[] = { k->tokens[0].first, k->tokens[0].count, k->tokens[1].first, k->tokens[1].count,
                                    k->home };
        sha256_add(&sum, numbers, sizeof numbers);
    }
    sha256_add(&sum, plan->work, (size_t)plan->works * sizeof *plan->work);
    sha256_add(&sum, plan->move, (size_t)plan->moves * sizeof *plan->move);
    sha256_add(&sum, plan->group, (size_t)plan->groups * sizeof *plan->group);
    if (plan->away) sha256_add(&sum, plan->away, (size_t)plan->devices * sizeof *plan->away);
    for (int r = 0; r < plan->rows; r++) {
        const int64_t numbers[] = { plan->row[r].tokens.first, plan->row[r].tokens.count, plan->row[r].device };
        sha256_add(&sum, numbers, sizeof numbers);
    }
    return sha256_end(&sum);
}

enum error_code context_plan_finish(struct context_plan *plan, const struct context_load *load, struct error *err)
{
    enum error_code e = plan->lost || !sort(plan)
        ? fail(err, ERR_MEMORY, "no memory for a plan of %d blocks", plan->blocks)
                                            : context_plan_check(plan, load, err);
    if (!e) e = context_plan_count(plan, load, err);
    if (!e) plan->index = context_index_make(plan);
    if (!e && plan->index == NULL) e = fail(err, ERR_MEMORY, "no memory for the lists of %d devices", plan->devices);
    if (e) context_plan_free(plan);
    else plan->digest = digest(plan);
    return e;
}
