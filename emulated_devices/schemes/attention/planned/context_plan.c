#include "emulated_devices/schemes/attention/planned/context_plan.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int by_number(int64_t a, int64_t b) { return (a > b) - (a < b); }

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Room for one more of `size` bytes.  @return false if there is no memory. */
static bool grow(struct context_plan *p, void **list, int count, int *room, size_t size)
{
    if (count < *room) return true;
    const int more = *room ? 2 * *room : 16;
    void *const longer = realloc(*list, (size_t)more * size);
    if (longer == NULL) return !(p->lost = true);
    *list = longer, *room = more;
    return true;
}

int context_add_block(struct context_plan *p, struct interval a, struct interval b, int home)
{
    if (!grow(p, (void **)&p->block, p->blocks, &p->room[0], sizeof *p->block)) return 0;
    p->block[p->blocks] = (struct context_block){ .tokens = { a, b }, .home = home };
    return p->blocks++;
}

void context_add_work(struct context_plan *p, struct context_work w)
{
    if (grow(p, (void **)&p->work, p->works, &p->room[1], sizeof *p->work)) p->work[p->works++] = w;
}

void context_add_move(struct context_plan *p, struct context_move m)
{
    if (grow(p, (void **)&p->move, p->moves, &p->room[2], sizeof *p->move)) p->move[p->moves++] = m;
}

void context_add_ring(struct context_plan *plan, struct interval sample, const int device[], int D, int division)
{
    const int begin = plan->blocks;
    for (int m = 0; m < D; m++)
        context_add_block(plan, interval_moved(block_at(sample.count, 2 * D, m), sample.first),
                          interval_moved(block_at(sample.count, 2 * D, 2 * D - 1 - m), sample.first), device[m]);
    for (int step = 0; step < D; step++)
        for (int m = 0; m < D; m++) {
            const int key = begin + (m - step + D) % D, at = device[m], to = device[(m + 1) % D];
            /* a few tokens on many devices: the last parts are empty, and the first sees nothing of others */
            if (!plan->lost && context_block_end(&plan->block[begin + m]) > plan->block[key].tokens[0].first)
                context_add_work(plan, (struct context_work){ begin + m, key, at, division + step });
            if (step < D - 1)
                context_add_move(plan, (struct context_move){ CONTEXT_KEYS, key, at, to, division + step });
        }
    if (division + D > plan->divisions) plan->divisions = division + D;
}

void context_add_group(struct context_plan *p, int first, int devices)
{
    if (grow(p, (void **)&p->group, p->groups, &p->room[3], sizeof *p->group))
        p->group[p->groups++] = (struct context_group){ first, devices };
}

void context_add_rows(struct context_plan *p, struct interval tokens, int device)
{
    if (tokens.count > 0 && grow(p, (void **)&p->row, p->rows, &p->room[4], sizeof *p->row))
        p->row[p->rows++] = (struct context_rows){ tokens, device };
}

void context_plan_free(struct context_plan *p)
{
    free(p->block), free(p->work), free(p->move), free(p->group), free(p->row), free(p->pairs), free(p->away);
    *p = (struct context_plan){ 0 };
}

/* NULL stays NULL.  @return false if there is no memory. */
static bool copy(void *list, const void *from, int count, size_t size)
{
    void *own = from ? malloc(((size_t)count + 1) * size) : NULL;
    if (own) memcpy(own, from, (size_t)count * size);
    memcpy(list, &own, sizeof own);
    return own != NULL || from == NULL;
}

enum error_code context_plan_copy(struct context_plan *p, const struct context_plan *from, struct error *err)
{
    *p = *from;
    bool ok = copy(&p->block, from->block, p->room[0] = p->blocks, sizeof *p->block);
    ok = copy(&p->work, from->work, p->room[1] = p->works, sizeof *p->work) && ok;
    ok = copy(&p->move, from->move, p->room[2] = p->moves, sizeof *p->move) && ok;
    ok = copy(&p->group, from->group, p->room[3] = p->groups, sizeof *p->group) && ok;
    ok = copy(&p->row, from->row, p->room[4] = p->rows, sizeof *p->row) && ok;
    ok = copy(&p->away, from->away, p->devices, sizeof *p->away) && ok;
    ok = copy(&p->pairs, from->pairs, p->works, sizeof *p->pairs) && ok;
    if (ok) return OK;
    context_plan_free(p);
    return fail(err, ERR_MEMORY, "no memory for a plan of %d works", from->works);
}

bool context_load_same(const struct context_load *a, const struct context_load *b)
{
    const int64_t one[] = { a->samples, a->tokens, a->micros, a->micro, a->devices, a->node, a->room, a->layers,
                            a->heads, a->query_width, a->key_width },
                  other[] = { b->samples, b->tokens, b->micros, b->micro, b->devices, b->node, b->room, b->layers,
                              b->heads, b->query_width, b->key_width };
    return a->sees == NULL && b->sees == NULL && memcmp(one, other, sizeof one) == 0 &&
           a->per_pair == b->per_pair && a->per_token == b->per_token && a->per_element == b->per_element &&
           a->per_kept == b->per_kept && memcmp(a->length, b->length, (size_t)a->samples * sizeof *a->length) == 0;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

int64_t context_block_tokens(const struct context_block *b) { return b->tokens[0].count + b->tokens[1].count; }

int64_t context_block_end(const struct context_block *b) { return interval_end(b->tokens[b->tokens[1].count > 0]); }

void context_plan_attended(struct intervals *tokens, const struct context_plan *p, int device)
{
    for (int b = 0; b < p->blocks; b++)
        for (int i = 0; i < 2 && p->block[b].home == device; i++) intervals_add(tokens, p->block[b].tokens[i]);
}

void context_plan_tokens(struct intervals *tokens, const struct context_plan *p, int device)
{
    if (p->row == NULL) context_plan_attended(tokens, p, device);
    for (int r = 0; r < p->rows; r++)
        if (p->row[r].device == device) intervals_add(tokens, p->row[r].tokens);
}

/* Tokens of q see those of k that are not after them. */
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

bool context_works_with(const struct context_plan *p, enum context_data data, int block, int device)
{
    for (int i = 0; i < p->works; i++)
        if (p->work[i].device == device && (data == CONTEXT_KEYS ? p->work[i].key : p->work[i].query) == block)
            return true;
    return false;
}

int context_group_of(const struct context_plan *p, int device)
{
    int i = 0;
    while (device >= p->group[i].first + p->group[i].devices) i++;
    return i;
}

/* Of the mask: what the tokens of q see of k. */
static int64_t masked_pairs(const struct context_load *l, struct interval q, struct interval k)
{
    int64_t pairs = 0;
    for (int64_t i = q.first * l->ranges; i < interval_end(q) * l->ranges; i++) {
        const struct interval seen = { l->sees[2 * i], l->sees[2 * i + 1] - l->sees[2 * i] };
        pairs += interval_meet(seen, k).count;
    }
    return pairs;
}

double context_pairs(const struct context_load *l, const struct context_block *q, const struct context_block *k)
{
    int64_t pairs = 0;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            if (q->tokens[i].count > 0 && k->tokens[j].count > 0)
                pairs += l->sees ? masked_pairs(l, q->tokens[i], k->tokens[j])
                                 : causal_pairs(q->tokens[i], k->tokens[j]);
    return (double)pairs;
}

double context_work_pairs(const struct context_plan *p, const struct context_work *w)
{
    return p->pairs[w - p->work];
}

double context_device_pairs(const struct context_plan *p, int device)
{
    double sum = 0;
    for (int i = 0; i < p->works; i++)
        if (p->work[i].device == device) sum += p->pairs[i];
    return sum;
}

static int longer_first(const void *x, const void *y)
{
    const struct interval *a = x, *b = y;
    const int length = by_number(b->count, a->count);
    return length ? length : by_number(a->first, b->first);
}

struct interval *context_samples(const struct context_load *l)
{
    struct interval *all = malloc(((size_t)l->samples + 1) * sizeof *all);
    int64_t first = 0;
    for (int i = 0; i < l->samples && all; first += l->length[i++]) all[i] = (struct interval){ first, l->length[i] };
    if (all) qsort(all, (size_t)l->samples, sizeof *all, longer_first);
    return all;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

struct numbered { struct context_block block; int number; };

static int compare_blocks(const void *x, const void *y)
{
    const struct context_block *a = &((const struct numbered *)x)->block, *b = &((const struct numbered *)y)->block;
    const int home = by_number(a->home, b->home);
    return home ? home : by_number(a->tokens[0].first, b->tokens[0].first);
}

static int compare_works(const void *x, const void *y)
{
    const struct context_work *a = x, *b = y;
    const int order[] = { by_number(a->device, b->device), by_number(a->division, b->division),
                          by_number(a->query, b->query), by_number(a->key, b->key) };
    for (int i = 0; i < 3; i++)
        if (order[i]) return order[i];
    return order[3];
}

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

/* @return false if there is no memory. */
static bool sort(struct context_plan *p)
{
    struct numbered *all = malloc(((size_t)p->blocks + 1) * sizeof *all);
    int *at = malloc(((size_t)p->blocks + 1) * sizeof *at);
    const bool ok = all && at;
    for (int b = 0; b < p->blocks && ok; b++) all[b] = (struct numbered){ p->block[b], b };
    if (ok) qsort(all, (size_t)p->blocks, sizeof *all, compare_blocks);
    for (int b = 0; b < p->blocks && ok; b++) p->block[b] = all[b].block, at[all[b].number] = b;
    for (int w = 0; w < p->works && ok; w++)
        p->work[w].query = at[p->work[w].query], p->work[w].key = at[p->work[w].key];
    for (int m = 0; m < p->moves && ok; m++) p->move[m].block = at[p->move[m].block];
    free(all), free(at);
    if (p->works > 0) qsort(p->work, (size_t)p->works, sizeof *p->work, compare_works);
    if (p->moves > 0) qsort(p->move, (size_t)p->moves, sizeof *p->move, compare_moves);
    if (p->rows > 0) qsort(p->row, (size_t)p->rows, sizeof *p->row, compare_rows);
    return ok;
}

static struct sha256_text digest(const struct context_plan *p)
{
    struct sha256 sum = sha256_begin();
    const int64_t sizes[] = { p->devices, p->divisions, p->tokens, p->blocks, p->works, p->moves, p->groups,
                              p->rows, p->proxies };
    sha256_add(&sum, sizes, sizeof sizes);
    for (int b = 0; b < p->blocks; b++) {
        const struct context_block *k = &p->block[b];
        const int64_t numbers[] = { k->tokens[0].first, k->tokens[0].count, k->tokens[1].first, k->tokens[1].count,
                                    k->home };
        sha256_add(&sum, numbers, sizeof numbers);
    }
    sha256_add(&sum, p->work, (size_t)p->works * sizeof *p->work);
    sha256_add(&sum, p->move, (size_t)p->moves * sizeof *p->move);
    sha256_add(&sum, p->group, (size_t)p->groups * sizeof *p->group);
    if (p->away) sha256_add(&sum, p->away, (size_t)p->devices * sizeof *p->away);
    for (int r = 0; r < p->rows; r++) {
        const int64_t numbers[] = { p->row[r].tokens.first, p->row[r].tokens.count, p->row[r].device };
        sha256_add(&sum, numbers, sizeof numbers);
    }
    return sha256_end(&sum);
}

enum error_code context_plan_finish(struct context_plan *p, const struct context_load *l, struct error *err)
{
    enum error_code e = p->lost || !sort(p) ? fail(err, ERR_MEMORY, "no memory for a plan of %d blocks", p->blocks)
                                            : context_plan_check(p, l, err);
    if (!e) p->pairs = malloc(((size_t)p->works + 1) * sizeof *p->pairs);
    if (!e && p->pairs == NULL) e = fail(err, ERR_MEMORY, "no memory for a plan of %d works", p->works);
    for (int i = 0; i < p->works && !e; i++)
        p->pairs[i] = context_pairs(l, &p->block[p->work[i].query], &p->block[p->work[i].key]);
    if (e) context_plan_free(p);
    else p->digest = digest(p);
    return e;
}
