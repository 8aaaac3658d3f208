/* context_check.c -- whether a plan is one of its microbatch.
 *
 * context_plan_finish calls it for every plan before a message is sent; tests call it with mistakes.  A mistake is
 * ERR_PLAN with the block, token or device; missing memory is ERR_MEMORY.
 */
#include "emulated_devices/schemes/attention/planned/context_plan.h"
#include <limits.h>
#include <stdlib.h>

/* The first token of the sample that a token is in: the load's list is walked, so once for each block. */
static int64_t sample_of(const struct context_load *load, int64_t token)
{
    int64_t first = 0;
    for (int i = 0; i < load->samples && first + load->length[i] <= token; i++) first += load->length[i];
    return first;
}

static int compare_starts(const void *x, const void *y)
{
    const struct interval *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

/* Whether tokens from `first` to `end` are whole samples that may be in another microbatch. */
static bool elsewhere(const struct context_load *load, int64_t first, int64_t end)
{
    return load->micros > 1 && sample_of(load, first) == first && (end == load->tokens || sample_of(load, end) == end);
}

/* Every token is in one block, and a block has tokens of one sample. */
static enum error_code check_tokens(const struct context_plan *plan, const struct context_load *load, struct error *err)
{
    /* `all` gets both intervals of every block; sorted, they must follow one another from token 0 on. */
    struct interval *all = malloc((2 * (size_t)plan->blocks + 1) * sizeof *all);
    int n = 0;
    int64_t next = 0;
    enum error_code e = all ? OK : fail(err, ERR_MEMORY, "no memory to check %d blocks", plan->blocks);
    for (int b = 0; b < plan->blocks && !e; b++) {
        const struct context_block *k = &plan->block[b];
        for (int i = 0; i < 2; i++)
            if (k->tokens[i].count > 0) all[n++] = k->tokens[i];
        /* A block must have a home, a first interval, and one sample from its first token to its last. */
        if (k->home < 0 || k->home >= plan->devices || k->tokens[0].count < 1 || k->tokens[1].count < 0 ||
            sample_of(load, k->tokens[0].first) != sample_of(load, context_block_end(k) - 1))
            e = fail(err, ERR_PLAN, "block %d of the plan is on no device, empty or of two samples", b);
        else if (b > 0 && k[-1].home == k->home &&
                 context_block_end(&k[-1]) > k->tokens[0].first)
            e = fail(err, ERR_PLAN, "blocks %d and %d of the plan interleave on device %d", b - 1, b, k->home);
    }
    /* A gap is allowed where whole samples lie in another microbatch; an overlap never is. */
    if (!e) qsort(all, (size_t)n, sizeof *all, compare_starts);
    for (int i = 0; i < n && !e; next = interval_end(all[i++]))
        if (all[i].first < next || (all[i].first > next && !elsewhere(load, next, all[i].first)))
            e = fail(err, ERR_PLAN, "token %lld of the plan is in %s",
                     (long long)(all[i].first > next ? next : all[i].first),
                     all[i].first > next ? "no block" : "two blocks");
    if (!e && next != load->tokens && !elsewhere(load, next, load->tokens))
        e = fail(err, ERR_PLAN, "token %lld of the plan is in no block", (long long)next);
    free(all);
    return e;
}

/* Count the tokens of a range that are in blocks. */
static int64_t in_blocks(const struct context_plan *plan, struct interval tokens)
{
    int64_t sum = 0;
    for (int b = 0; b < plan->blocks; b++)
        for (int i = 0; i < 2; i++) sum += interval_meet(tokens, plan->block[b].tokens[i]).count;
    return sum;
}

/* Outside attention each token of the blocks has one row. */
static enum error_code check_rows(const struct context_plan *plan, struct error *err)
{
    int64_t left = in_blocks(plan, (struct interval){ 0, plan->tokens });
    for (int r = 0; r < plan->rows; left -= plan->row[r++].tokens.count) {
        const struct context_rows *x = &plan->row[r];
        int64_t twice = 0;
        for (int k = 0; k < r; k++) twice += interval_meet(plan->row[k].tokens, x->tokens).count;
        if (x->device < 0 || x->device >= plan->devices || twice > 0 || in_blocks(plan, x->tokens) != x->tokens.count)
            return fail(err, ERR_PLAN, "rows of token %lld of the plan are on device %d of %d, twice or in no block",
                        (long long)x->tokens.first, x->device, plan->devices);
    }
    return plan->rows > 0 && left != 0
        ? fail(err, ERR_PLAN, "%lld tokens of the plan have no row outside attention", (long long)left) : OK;
}

/* An entry is the division from which on a device has a block's queries or keys; INT_MAX: the device never has them. */
struct presence { int *from; int devices; };

static int *presence_of(const struct presence *presence, enum context_data data, int block, int device)
{
    return &presence->from[(2 * block + (int)data) * presence->devices + device];
}

/* Moves are sorted by division, so each sender must have received the data in an earlier division. */
static enum error_code check_moves(const struct context_plan *plan, const struct presence *presence, struct error *err)
{
    for (int i = 0; i < plan->moves; i++) {
        const struct context_move m = plan->move[i];
        /* Numbers are checked first, because they index the table below. */
        const bool known = m.to >= 0 && m.to < plan->devices && m.from >= 0 && m.from < plan->devices
            && m.division >= 0 && m.division < plan->divisions && m.block >= 0 && m.block < plan->blocks
            && (m.data == CONTEXT_QUERIES || m.data == CONTEXT_KEYS);
        if (!known || *presence_of(presence, m.data, m.block, m.from) > m.division ||
            *presence_of(presence, m.data, m.block, m.to) != INT_MAX)
            return fail(err, ERR_PLAN, "the plan sends block %d from device %d, which does not have it, or to device "
                        "%d, which does, in division %d", m.block, m.from, m.to, m.division);
        /* The data arrives while its division's works run, so the next division may use them. */
        *presence_of(presence, m.data, m.block, m.to) = m.division + 1;
    }
    return OK;
}

/* Each pair of blocks that see each other is one work, where the device has both blocks in time. */
static enum error_code check_works(const struct context_plan *plan, const struct context_load *load,
                                   const int64_t sample[], const struct presence *presence, struct error *err)
{
    int needed = 0, before = 0;
    char *done = calloc((size_t)plan->blocks * (size_t)plan->blocks + 1, 1);
    if (done == NULL) return fail(err, ERR_MEMORY, "no memory to check the work of %d blocks", plan->blocks);
    enum error_code e = OK;
    for (int q = 0; q < plan->blocks && !e; q++) {
        for (int k = 0; k < plan->blocks; k++) {
            /* A pair that sees nothing counts as done, so that a work on it is a mistake. */
            const bool sees = (sample[q] == sample[k] || load->sees)
                && context_pairs(load, &plan->block[q], &plan->block[k]) > 0;
            done[q * plan->blocks + k] = !sees, needed += sees;
        }
        /* A block that sees nothing would have no result to merge or send. */
        if (needed == before) e = fail(err, ERR_PLAN, "block %d of the plan sees nothing", q);
        before = needed;
    }
    for (int i = 0; i < plan->works && !e; i++) {
        const struct context_work w = plan->work[i];
        const bool known = w.device >= 0 && w.device < plan->devices && w.division >= 0 && w.division < plan->divisions
            && w.query >= 0 && w.query < plan->blocks && w.key >= 0 && w.key < plan->blocks;
        if (!known || *presence_of(presence, CONTEXT_QUERIES, w.query, w.device) > w.division ||
            *presence_of(presence, CONTEXT_KEYS, w.key, w.device) > w.division)
            e = fail(err, ERR_PLAN, "device %d of the plan does not have blocks %d and %d in division %d", w.device,
                     w.query, w.key, w.division);
        else if (done[w.query * plan->blocks + w.key]++)
            e = fail(err, ERR_PLAN, "the plan computes blocks %d and %d twice, or without a pair that sees each other",
                     w.query, w.key);
    }
    free(done);
    return !e && plan->works != needed ? fail(err, ERR_PLAN, "the plan has %d works of %d", plan->works, needed) : e;
}

/* Groups follow one another, and a sample is in one. */
static enum error_code check_groups(const struct context_plan *plan, const int64_t sample[], struct error *err)
{
    int next = 0;
    for (int i = 0; i < plan->groups; next += plan->group[i++].devices)
        if (plan->group[i].first != next || plan->group[i].devices < 1)
            return fail(err, ERR_PLAN, "group %d of the plan does not begin at device %d", i, next);
    /* A plan with groups exchanges tokens for heads, and has no works or moves. */
    if (next != plan->devices || plan->works + plan->moves > 0)
        return fail(err, ERR_PLAN, "the plan's groups have %d devices of %d, or work beside them", next, plan->devices);
    for (int b = 0; b < plan->blocks; b++)
        for (int k = 0; k < b; k++)
            if (sample[b] == sample[k] &&
                context_group_of(plan, plan->block[b].home) != context_group_of(plan, plan->block[k].home))
                return fail(err, ERR_PLAN, "blocks %d and %d of the plan are one sample's, in two groups", k, b);
    return OK;
}

enum error_code context_plan_check(const struct context_plan *plan, const struct context_load *load, struct error *err)
{
    /* Tables are made once: presence [2 blocks, devices], and the first token of each block's sample. */
    const size_t entries = 2 * (size_t)plan->blocks * (size_t)plan->devices;
    struct presence h = { malloc((entries + 1) * sizeof *h.from), plan->devices };
    int64_t *const sample = malloc(((size_t)plan->blocks + 1) * sizeof *sample);
    enum error_code e = h.from && sample ? check_tokens(plan, load, err)
        : fail(err, ERR_MEMORY, "no memory to check a plan");
    for (int b = 0; b < plan->blocks && !e; b++) sample[b] = sample_of(load, plan->block[b].tokens[0].first);
    for (size_t i = 0; i < entries && !e; i++) h.from[i] = INT_MAX;
    /* At first only the home has the block's data, from division 0 on. */
    for (int b = 0; b < plan->blocks && !e; b++)
        for (enum context_data d = CONTEXT_QUERIES; d <= CONTEXT_KEYS; d++)
            *presence_of(&h, d, b, plan->block[b].home) = 0;
    if (!e && plan->groups > 0) e = check_groups(plan, sample, err);
    if (!e && plan->groups == 0) e = check_moves(plan, &h, err);
    if (!e && plan->groups == 0) e = check_works(plan, load, sample, &h, err);
    if (!e) e = check_rows(plan, err);
    free(h.from), free(sample);
    return e;
}
