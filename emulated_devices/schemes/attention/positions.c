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

/* How many of n ascending positions are below `end`.  It starts from the last answer: of ascending queries, all of them
 * together take a walk along the positions. */
static int64_t below(const int32_t *at, int64_t n, int32_t end, int64_t *last)
{
    while (*last < n && at[*last] < end) ++*last;
    /* A query's range may also begin before that of the query before, so the walk goes both ways. */
    while (*last > 0 && at[*last - 1] >= end) --*last;
    return *last;
}

/* The first position that a window has. */
static int32_t window_start(struct attention attention, int32_t query)
{
    return attention.window > 0 && attention.window <= query ? (int32_t)(query + 1 - attention.window) : 0;
}

struct ascending { const int32_t *at; int64_t count; };

/* The keys in a range of each query.  `range` has `apart` numbers for each position; NULL: what came before it. */
static int64_t pairs_of_range(struct attention attention, const int32_t *range, int64_t apart, struct ascending queries,
                              struct ascending keys)
{
    int64_t pairs = 0, last_first = 0, last_end = 0;
    for (int64_t i = 0; i < queries.count; i++) {
        /* The range [r[0], r[1]) of a query is cut at the start of its window. */
        const int32_t q = queries.at[i], *r = range ? range + apart * q : (const int32_t[]){ 0, q + 1 },
                      from = window_start(attention, q), first = r[0] > from ? r[0] : from;
        /* The keys in [first, r[1]) are those below the end without those below the start. */
        if (first < r[1])
            pairs += below(keys.at, keys.count, r[1], &last_end) - below(keys.at, keys.count, first, &last_first);
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
    if (!tensor_present(attention.mask)) return (double)(B * pairs_of_range(attention, NULL, 0, q, k));
    struct views v = views_of(positions->cp->tp->device);
    const int32_t *mask = view_read(&v, attention.mask).data;
    /* A single mask [S, apart] may hold for all B sequences. */
    const bool shared = tensor_rows(attention.mask) == attention.S;
    for (int64_t b = 0; b < B; b++)
        /* Each pair of columns of the mask is one range that a query sees. */
        for (int64_t r = 0; r < apart; r += 2)
            pairs += pairs_of_range(attention, mask + apart * (shared ? 0 : b * attention.S) + r, apart, q, k);
    views_end(&v);
    return (double)pairs;
}
