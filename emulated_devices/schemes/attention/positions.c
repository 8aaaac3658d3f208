/* positions.c -- lists of positions, and pairs counted from them.  Callers are pass.c and the schemes that compute
 * attention in parts; model/whole_sequences.c uses the two counts.  Every function is local.  The only error is
 * ERR_MEMORY. */
#include "emulated_devices/schemes/attention/positions.h"
#include "emulated_devices/schemes/attention/planned/context_index.h"
#include <stdlib.h>
#include <string.h>

int64_t context_count(const struct context_parallel *cp, int member)
{
    struct intervals tokens = context_tokens_of(cp, member);
    const int64_t n = intervals_total(&tokens);
    intervals_free(&tokens);
    return n;
}

int64_t context_sequences(const struct context_parallel *cp, int64_t rows)
{
    /* A planned microbatch is one sequence of all its samples, or none if the microbatch is empty. */
    if (cp->plan) return cp->plan->tokens > 0;
    /* A cut gives this device equally many tokens of each sequence: rows are B times that count. */
    return rows > 0 ? rows / context_count(cp, cp->rank) : 0;
}

/* @return whether there was memory for the list. */
static bool list(struct positions *positions, int member)
{
    struct intervals tokens = { 0 };
    int64_t at = positions->start[member];
    tokens = context_tokens_of(positions->cp, member);
    /* A member's positions ascend and follow those of the member before it. */
    for (int i = 0; i < tokens.count; i++)
        for (int64_t k = 0; k < tokens.at[i].count; k++) positions->host[at++] = (int32_t)(tokens.at[i].first + k);
    positions->start[member + 1] = at;
    const bool lost = intervals_lost(&tokens);
    intervals_free(&tokens);
    return !lost;
}

enum error_code positions_open(struct positions *positions, const struct context_parallel *cp, struct error *err)
{
    struct device *d = cp->tp->device;
    /* With a plan, attention has the tokens of the blocks, which remap.h may place elsewhere outside attention. */
    const struct context_index *const index = cp->plan ? cp->plan->index : NULL;
    *positions = (struct positions){ .cp = cp, .shared = index != NULL,
                             .host = index ? index->position : malloc((size_t)cp->S * sizeof *positions->host),
                             .on_device = device_tensor_in(d, BUFFERS, I32, cp->S) };
    /* Members are listed in the order of ranks, because `start` grows from member to member. */
    bool listed = positions->host != NULL && positions->on_device.data != NULL;
    if (listed && index) memcpy(positions->start, index->start, ((size_t)cp->devices + 1) * sizeof *index->start);
    for (int m = 0; m < cp->devices && listed && !index; m++) listed = list(positions, m);
    if (!listed) {
        positions_close(positions);
        return fail(err, ERR_MEMORY, "no memory for the positions of %lld tokens", (long long)cp->S);
    }
    /* Kernels read the copy on the device; pairs are counted from the host's list. */
    device_copy(d, positions->on_device.data, positions->host, tensor_bytes(positions->on_device));
    return OK;
}

void positions_close(struct positions *positions)
{
    device_free(positions->cp->tp->device, positions->on_device);
    if (!positions->shared) free(positions->host);
}

int64_t positions_count(const struct positions *positions,
                        int member) { return positions->start[member + 1] - positions->start[member]; }

struct tensor positions_of(const struct positions *positions, int member)
{
    return tensor_1d((int32_t *)positions->on_device.data + positions->start[member], I32,
                     positions_count(positions, member));
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

struct ascending { const int32_t *at; int64_t count; };

/* How many of the ascending positions are below `end`. */
static int64_t below(struct ascending positions, int64_t end)
{
    int64_t least = 0, most = positions.count;
    while (least < most) {
        const int64_t middle = least + (most - least) / 2;
        if (positions.at[middle] < end) least = middle + 1;
        else most = middle;
    }
    return least;
}

/* How many positions from the `first`th on are adjacent.  No position is there twice, so n of them are adjacent if the
 * last is n - 1 more than the first. */
static int64_t adjacent(struct ascending positions, int64_t first)
{
    int64_t least = 1, most = positions.count - first;
    while (least < most) {
        const int64_t n = least + (most - least + 1) / 2;
        if (positions.at[first + n - 1] - positions.at[first] == n - 1) least = n;
        else most = n - 1;
    }
    return least;
}

/* The sum of below(keys, end + i) over i from 0 to n - 1. */
static int64_t sum_below(struct ascending keys, int64_t end, int64_t n)
{
    int64_t b = below(keys, end), sum = n * b;
    /* A key at or after `end` is below n - 1 - (key - end) of the ends, and each adjacent key below one end fewer. */
    for (int64_t c; b < keys.count && keys.at[b] < end + n - 1; b += c) {
        const int64_t ends = n - 1 - (keys.at[b] - end);
        c = adjacent(keys, b) < ends ? adjacent(keys, b) : ends;
        sum += c * ends - c * (c - 1) / 2;
    }
    return sum;
}

/* A mask's ranges of tokens, with `apart` numbers for each position; NULL: each query sees what came before it. */
struct seen_ranges { const int32_t *range; int64_t apart, window; };

/* The range of a query, cut at the start of its window. */
static struct interval range_of(const struct seen_ranges *seen, int32_t query)
{
    const int32_t *const r = seen->range ? seen->range + seen->apart * query : NULL;
    const int64_t from = seen->window > 0 && seen->window <= query ? query + 1 - seen->window : 0;
    const int64_t first = r && r[0] > from ? r[0] : from, end = r ? r[1] : query + 1;
    return (struct interval){ first, end - first };
}

/* Queries in a row whose ranges begin at the same token or each one token later, and end likewise. */
struct run_of_queries { struct interval range; int64_t count, begin_moves, end_moves; };

/* The run that begins with the `first`th query. */
static struct run_of_queries run_from(const struct seen_ranges *seen, struct ascending queries, int64_t first)
{
    const int32_t q = queries.at[first];
    struct run_of_queries run = { .range = range_of(seen, q), .count = 1 };
    for (int64_t most = adjacent(queries, first); run.count < most; run.count++) {
        const struct interval r = range_of(seen, q + (int32_t)run.count);
        const int64_t begin = r.first - run.range.first, end = interval_end(r) - interval_end(run.range);
        /* The second query says how the ranges move. */
        if (run.count == 1) run.begin_moves = begin, run.end_moves = end;
        if (run.begin_moves < 0 || run.begin_moves > 1 || run.end_moves < 0 || run.end_moves > 1) return run;
        if (begin != run.begin_moves * run.count || end != run.end_moves * run.count) return run;
        if ((r.count > 0) != (run.range.count > 0)) return run;
    }
    return run;
}

/* The keys in a range of each query, run by run: those below the ends of ranges without those below their begins. */
static int64_t pairs_of_range(const struct seen_ranges *seen, struct ascending queries, struct ascending keys)
{
    int64_t pairs = 0;
    for (int64_t i = 0, n; i < queries.count; i += n) {
        const struct run_of_queries run = run_from(seen, queries, i);
        const int64_t begin = run.range.first, end = interval_end(run.range);
        n = run.count;
        if (run.range.count <= 0) continue;
        pairs += n > 1 && run.end_moves == 1 ? sum_below(keys, end, n) : n * below(keys, end);
        pairs -= n > 1 && run.begin_moves == 1 ? sum_below(keys, begin, n) : n * below(keys, begin);
    }
    return pairs;
}

/* Return a member's positions as a pointer and a count, for the walks along them. */
static struct ascending positions_listed(const struct positions *positions, int member)
{
    return (struct ascending){ positions->host + positions->start[member], positions_count(positions, member) };
}

double positions_pairs(const struct positions *positions, struct attention attention, int64_t B, int queries, int keys)
{
    const struct ascending q = positions_listed(positions, queries), k = positions_listed(positions, keys);
    const int64_t apart = tensor_cols(attention.mask);
    int64_t pairs = 0;
    /* Without a mask all B sequences are causal and have the same positions, so one is counted. */
    if (!tensor_present(attention.mask))
        return (double)(B * pairs_of_range(&(struct seen_ranges){ NULL, 0, attention.window }, q, k));
    struct views v = views_of(positions->cp->tp->device);
    const int32_t *mask = view_read(&v, attention.mask).data;
    /* A single mask [S, apart] may hold for all B sequences. */
    const bool shared = tensor_rows(attention.mask) == attention.S;
    for (int64_t b = 0; b < B; b++)
        /* Each pair of columns of the mask is one range that a query sees. */
        for (int64_t r = 0; r < apart; r += 2)
            pairs += pairs_of_range(&(struct seen_ranges){ mask + apart * (shared ? 0 : b * attention.S) + r, apart,
                                                           attention.window }, q, k);
    views_end(&v);
    return (double)pairs;
}
