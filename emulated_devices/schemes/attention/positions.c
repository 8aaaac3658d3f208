#include "emulated_devices/schemes/attention/positions.h"
#include <stdlib.h>

int64_t context_count(const struct context_parallel *cp, int member)
{
    struct intervals tokens = context_tokens_of(cp, member);
    const int64_t n = intervals_total(&tokens);
    intervals_free(&tokens);
    return n;
}

int64_t context_sequences(const struct context_parallel *cp, int64_t rows)
{
    if (cp->plan) return cp->plan->tokens > 0;
    return rows > 0 ? rows / context_count(cp, cp->rank) : 0;
}

/* @return whether there was memory for the list. */
static bool list(struct positions *p, int member)
{
    struct intervals tokens = { 0 };
    int64_t at = p->start[member];
    if (p->cp->plan) context_plan_attended(&tokens, p->cp->plan, member);
    else tokens = context_tokens_of(p->cp, member);
    for (int i = 0; i < tokens.count; i++)
        for (int64_t k = 0; k < tokens.at[i].count; k++) p->host[at++] = (int32_t)(tokens.at[i].first + k);
    p->start[member + 1] = at;
    const bool lost = intervals_lost(&tokens);
    intervals_free(&tokens);
    return !lost;
}

enum error_code positions_open(struct positions *p, const struct context_parallel *cp, struct error *err)
{
    struct device *d = cp->tp->device;
    *p = (struct positions){ .cp = cp, .host = malloc((size_t)cp->S * sizeof *p->host),
                             .on_device = device_tensor_in(d, BUFFERS, I32, cp->S) };
    bool listed = p->host != NULL && p->on_device.data != NULL;
    for (int m = 0; m < cp->devices && listed; m++) listed = list(p, m);
    if (!listed) {
        positions_close(p);
        return fail(err, ERR_MEMORY, "no memory for the positions of %lld tokens", (long long)cp->S);
    }
    device_copy(d, p->on_device.data, p->host, tensor_bytes(p->on_device));
    return OK;
}

void positions_close(struct positions *p)
{
    device_free(p->cp->tp->device, p->on_device);
    free(p->host);
}

int64_t positions_count(const struct positions *p, int member) { return p->start[member + 1] - p->start[member]; }

struct tensor positions_of(const struct positions *p, int member)
{
    return tensor_1d((int32_t *)p->on_device.data + p->start[member], I32, positions_count(p, member));
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

/* How many of n ascending positions are below `end`. */
static int64_t below(const int32_t *at, int64_t n, int32_t end)
{
    int64_t first = 0;
    while (n > 0) {
        const int64_t half = n / 2;
        if (at[first + half] < end) first += half + 1, n -= half + 1;
        else n = half;
    }
    return first;
}

/* The first position that a window has. */
static int32_t window_start(struct attention a, int32_t query)
{
    return a.window > 0 && a.window <= query ? (int32_t)(query + 1 - a.window) : 0;
}

/* Of some ranges, from a position on. */
static int64_t keys_seen(const int32_t *range, int64_t ranges, int32_t from, const int32_t *keys, int64_t n)
{
    int64_t seen = 0;
    for (int64_t i = 0; i < ranges; i++) {
        const int32_t end = range[2 * i + 1], first = range[2 * i] > from ? range[2 * i] : from;
        if (first < end) seen += below(keys, n, end) - below(keys, n, first);
    }
    return seen;
}

static int64_t pairs_causal(struct attention a, const int32_t *queries, int64_t nq, const int32_t *keys, int64_t nk)
{
    int64_t pairs = 0;
    for (int64_t i = 0; i < nq; i++)
        pairs += keys_seen((const int32_t[]){ 0, queries[i] + 1 }, 1, window_start(a, queries[i]), keys, nk);
    return pairs;
}

double positions_pairs(const struct positions *p, struct attention a, int64_t B, int queries, int keys)
{
    const int32_t *q = p->host + p->start[queries], *k = p->host + p->start[keys];
    const int64_t nq = positions_count(p, queries), nk = positions_count(p, keys), ranges = tensor_cols(a.mask) / 2;
    int64_t pairs = 0;
    if (!tensor_present(a.mask)) return (double)(B * pairs_causal(a, q, nq, k, nk));
    struct views v = views_of(p->cp->tp->device);
    const int32_t *mask = view_read(&v, a.mask).data;
    const bool shared = tensor_rows(a.mask) == a.S;
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0; i < nq; i++)
            pairs += keys_seen(mask + 2 * ranges * ((shared ? 0 : b * a.S) + q[i]), ranges, window_start(a, q[i]), k,
                               nk);
    views_end(&v);
    return (double)pairs;
}
