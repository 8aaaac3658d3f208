#include "emulated_devices/schemes/attention/context_plan.h"
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

static struct interval last_of(const struct context_block *b) { return b->tokens[b->tokens[1].count > 0]; }

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
            if (!plan->lost && interval_end(last_of(&plan->block[begin + m])) > plan->block[key].tokens[0].first)
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

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

int64_t context_block_tokens(const struct context_block *b) { return b->tokens[0].count + b->tokens[1].count; }

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

/* The first token of the sample that a token is in: the load's list is walked, so once for each block. */
static int64_t sample_of(const struct context_load *l, int64_t token)
{
    int64_t first = 0;
    for (int i = 0; i < l->samples && first + l->length[i] <= token; i++) first += l->length[i];
    return first;
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

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static int compare_starts(const void *x, const void *y)
{
    return by_number(((const struct interval *)x)->first, ((const struct interval *)y)->first);
}

/* Whether tokens from `first` to `end` are whole samples that may be in another microbatch. */
static bool elsewhere(const struct context_load *l, int64_t first, int64_t end)
{
    return l->micros > 1 && sample_of(l, first) == first && (end == l->tokens || sample_of(l, end) == end);
}

/* Every token is in one block, and a block has tokens of one sample. */
static enum error_code check_tokens(const struct context_plan *p, const struct context_load *l, struct error *err)
{
    struct interval *all = malloc((2 * (size_t)p->blocks + 1) * sizeof *all);
    int n = 0;
    int64_t next = 0;
    enum error_code e = all ? OK : fail(err, ERR_MEMORY, "no memory to check %d blocks", p->blocks);
    for (int b = 0; b < p->blocks && !e; b++) {
        const struct context_block *k = &p->block[b];
        for (int i = 0; i < 2; i++)
            if (k->tokens[i].count > 0) all[n++] = k->tokens[i];
        const struct interval last = last_of(k);
        if (k->home < 0 || k->home >= p->devices || k->tokens[0].count < 1 || k->tokens[1].count < 0 ||
            sample_of(l, k->tokens[0].first) != sample_of(l, interval_end(last) - 1))
            e = fail(err, ERR_PLAN, "block %d of the plan is on no device, empty or of two samples", b);
        else if (b > 0 && k[-1].home == k->home &&
                 interval_end(last_of(&k[-1])) > k->tokens[0].first)
            e = fail(err, ERR_PLAN, "blocks %d and %d of the plan interleave on device %d", b - 1, b, k->home);
    }
    if (!e) qsort(all, (size_t)n, sizeof *all, compare_starts);
    for (int i = 0; i < n && !e; next = interval_end(all[i++]))
        if (all[i].first < next || (all[i].first > next && !elsewhere(l, next, all[i].first)))
            e = fail(err, ERR_PLAN, "token %lld of the plan is in %s",
                     (long long)(all[i].first > next ? next : all[i].first),
                     all[i].first > next ? "no block" : "two blocks");
    if (!e && next != l->tokens && !elsewhere(l, next, l->tokens))
        e = fail(err, ERR_PLAN, "token %lld of the plan is in no block", (long long)next);
    free(all);
    return e;
}

/* How many of some tokens are in blocks. */
static int64_t in_blocks(const struct context_plan *p, struct interval tokens)
{
    int64_t sum = 0;
    for (int b = 0; b < p->blocks; b++)
        for (int i = 0; i < 2; i++) sum += interval_meet(tokens, p->block[b].tokens[i]).count;
    return sum;
}

/* Outside attention each token of the blocks has one row. */
static enum error_code check_rows(const struct context_plan *p, struct error *err)
{
    int64_t left = in_blocks(p, (struct interval){ 0, p->tokens });
    for (int r = 0; r < p->rows; left -= p->row[r++].tokens.count) {
        const struct context_rows *x = &p->row[r];
        int64_t twice = 0;
        for (int k = 0; k < r; k++) twice += interval_meet(p->row[k].tokens, x->tokens).count;
        if (x->device < 0 || x->device >= p->devices || twice > 0 || in_blocks(p, x->tokens) != x->tokens.count)
            return fail(err, ERR_PLAN, "rows of token %lld of the plan are on device %d of %d, twice or in no block",
                        (long long)x->tokens.first, x->device, p->devices);
    }
    return p->rows > 0 && left != 0
        ? fail(err, ERR_PLAN, "%lld tokens of the plan have no row outside attention", (long long)left) : OK;
}

/* When a device has a block's data: the division from which on; INT_MAX: never. */
struct presence { int *from; int devices; };

static int *presence_of(const struct presence *h, enum context_data data, int block, int device)
{
    return &h->from[(2 * block + (int)data) * h->devices + device];
}

static enum error_code check_moves(const struct context_plan *p, const struct presence *h, struct error *err)
{
    for (int i = 0; i < p->moves; i++) {
        const struct context_move m = p->move[i];
        const bool known = m.to >= 0 && m.to < p->devices && m.from >= 0 && m.from < p->devices && m.division >= 0 &&
            m.division < p->divisions;
        if (!known || *presence_of(h, m.data, m.block, m.from) > m.division ||
            *presence_of(h, m.data, m.block, m.to) != INT_MAX)
            return fail(err, ERR_PLAN, "the plan sends block %d from device %d, which does not have it, or to device "
                        "%d, which does, in division %d", m.block, m.from, m.to, m.division);
        *presence_of(h, m.data, m.block, m.to) = m.division + 1;
    }
    return OK;
}

static enum error_code check_works(const struct context_plan *p, const struct context_load *l,
                                   const int64_t sample[], const struct presence *h, struct error *err)
{
    int needed = 0, before = 0;
    char *done = calloc((size_t)p->blocks * (size_t)p->blocks + 1, 1);
    if (done == NULL) return fail(err, ERR_MEMORY, "no memory to check the work of %d blocks", p->blocks);
    enum error_code e = OK;
    for (int q = 0; q < p->blocks && !e; q++) {
        for (int k = 0; k < p->blocks; k++) {
            const bool sees = (sample[q] == sample[k] || l->sees) && context_pairs(l, &p->block[q], &p->block[k]) > 0;
            done[q * p->blocks + k] = !sees, needed += sees;
        }
        if (needed == before) e = fail(err, ERR_PLAN, "block %d of the plan sees nothing", q);
        before = needed;
    }
    for (int i = 0; i < p->works && !e; i++) {
        const struct context_work w = p->work[i];
        const bool known = w.device >= 0 && w.device < p->devices && w.division >= 0 && w.division < p->divisions;
        if (!known || *presence_of(h, CONTEXT_QUERIES, w.query, w.device) > w.division ||
            *presence_of(h, CONTEXT_KEYS, w.key, w.device) > w.division)
            e = fail(err, ERR_PLAN, "device %d of the plan does not have blocks %d and %d in division %d", w.device,
                     w.query, w.key, w.division);
        else if (done[w.query * p->blocks + w.key]++)
            e = fail(err, ERR_PLAN, "the plan computes blocks %d and %d twice, or without a pair that sees each other",
                     w.query, w.key);
    }
    free(done);
    return !e && p->works != needed ? fail(err, ERR_PLAN, "the plan has %d works of %d", p->works, needed) : e;
}

/* Groups follow one another, and a sample is in one. */
static enum error_code check_groups(const struct context_plan *p, const int64_t sample[], struct error *err)
{
    int next = 0;
    for (int i = 0; i < p->groups; next += p->group[i++].devices)
        if (p->group[i].first != next || p->group[i].devices < 1)
            return fail(err, ERR_PLAN, "group %d of the plan does not begin at device %d", i, next);
    if (next != p->devices || p->works + p->moves > 0)
        return fail(err, ERR_PLAN, "the plan's groups have %d devices of %d, or work beside them", next, p->devices);
    for (int b = 0; b < p->blocks; b++)
        for (int k = 0; k < b; k++)
            if (sample[b] == sample[k] &&
                context_group_of(p, p->block[b].home) != context_group_of(p, p->block[k].home))
                return fail(err, ERR_PLAN, "blocks %d and %d of the plan are one sample's, in two groups", k, b);
    return OK;
}

static enum error_code check(const struct context_plan *p, const struct context_load *l, struct error *err)
{
    const size_t entries = 2 * (size_t)p->blocks * (size_t)p->devices;
    struct presence h = { malloc((entries + 1) * sizeof *h.from), p->devices };
    int64_t *const sample = malloc(((size_t)p->blocks + 1) * sizeof *sample);
    enum error_code e = h.from && sample ? check_tokens(p, l, err) : fail(err, ERR_MEMORY, "no memory to check a plan");
    for (int b = 0; b < p->blocks && !e; b++) sample[b] = sample_of(l, p->block[b].tokens[0].first);
    for (size_t i = 0; i < entries && !e; i++) h.from[i] = INT_MAX;
    for (int b = 0; b < p->blocks && !e; b++)
        for (enum context_data d = CONTEXT_QUERIES; d <= CONTEXT_KEYS; d++)
            *presence_of(&h, d, b, p->block[b].home) = 0;
    if (!e && p->groups > 0) e = check_groups(p, sample, err);
    if (!e && p->groups == 0) e = check_moves(p, &h, err);
    if (!e && p->groups == 0) e = check_works(p, l, sample, &h, err);
    if (!e) e = check_rows(p, err);
    free(h.from), free(sample);
    return e;
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
                                            : check(p, l, err);
    if (!e) p->pairs = malloc(((size_t)p->works + 1) * sizeof *p->pairs);
    if (!e && p->pairs == NULL) e = fail(err, ERR_MEMORY, "no memory for a plan of %d works", p->works);
    for (int i = 0; i < p->works && !e; i++)
        p->pairs[i] = context_pairs(l, &p->block[p->work[i].query], &p->block[p->work[i].key]);
    if (e) context_plan_free(p);
    else p->digest = digest(p);
    return e;
}
