/* Wrong collectives that only move: an all-gather and a broadcast, each with one message for each pair.
 * tests/cli/test_verify_plugin.sh compiles the file with -DWRONG=N, and wants the law beside N to be broken.
 *
 *  1 blocks       takes unequal blocks for equal ones
 *  2 values       forgets its own block
 *  3 values       puts blocks at the places of the next member
 *  4 values       takes member 0 for the root
 *  5 costs        states one message for all
 *  6 formats      moves four bytes of each element
 *  7 nans         takes a NaN for 1
 *  8 guards       receives a byte more than there is
 *  9 repeats      counts its calls
 * 10 sizes        cuts long vectors
 * 11 values       changes the root's vector
 * 12 ends         recurses for ever
 */
#include "emulated_devices/schemes/plugin.h"
#include <math.h>
#include <string.h>
#ifndef WRONG
#define WRONG 0
#endif

/* Change numbers as the mistake does. */
static void spoil(const struct collective *c, void *x, int64_t n)
{
    static int calls;
    if (c->dtype != F32 || n == 0) return;
    float *const at = x;
    if (WRONG == 7)
        for (int64_t i = 0; i < n; i++) at[i] = isnan(at[i]) ? 1 : at[i];
    if (WRONG == 9 && ++calls == 50) at[n - 1] += 1;
    if (WRONG == 10 && n > 50000) at[n - 1] = 0;
}

/* The compiler must not see that this has no end. */
static int deeper(volatile int n) { return n == -1 ? 0 : deeper(n + 1) + n; }

static int64_t length(const struct collective *c, int P, int b)
{
    return WRONG == 1 && c->counts ? block_total(c, P) / P : block_length(c, P, b);
}

static enum error_code gather(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank;
    struct exchange x = exchange_begin(g, ALLGATHER);
    enum error_code e = OK;
    if (WRONG == 12) return deeper(1) ? ERR_COMM : OK;
    if (WRONG != 2) copy_elements(&x, c, block(c, c->out, P, r), c->in, block_length(c, P, r));
    for (int k = 1; k < P && !e; k++) {
        const int to = imod(r + k, P), from = imod(r - k, P), at = WRONG == 3 ? imod(from + 1, P) : from;
        const uint64_t give = bytes_of(c, length(c, P, r)), take = bytes_of(c, length(c, P, from));
        e = exchange_both(&x, to, c->in, give, from, block(c, c->out, P, at), take, err);
    }
    spoil(c, c->out, block_total(c, P));
    if (WRONG == 8 && block_total(c, P) > 0) ((char *)c->out)[bytes_of(c, block_total(c, P))] = 1;
    return e;
}

static struct collective_cost gather_cost(int r, int P, const struct collective *c)
{
    const uint64_t m = WRONG == 5 ? 1 : (uint64_t)(P - 1);
    return (struct collective_cost){ .messages = m, .bytes = m * bytes_of(c, block_length(c, P, r)) };
}

static enum error_code spread(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank, root = WRONG == 4 ? 0 : c->root;
    struct exchange x = exchange_begin(g, BROADCAST);
    uint64_t bytes = bytes_of(c, c->count);
    enum error_code e = OK;
    for (int to = 0; to < P && r == root && !e; to++)
        if (to != root) e = exchange_both(&x, to, c->out, bytes, -1, NULL, 0, err);
    if (r != root) e = exchange_both(&x, -1, NULL, 0, root, c->out, bytes, err);
    if (WRONG == 6 && c->dtype == F64 && r != root) memset((char *)c->out + bytes / 2, 0, bytes - bytes / 2);
    spoil(c, c->out, c->count);
    return e;
}

/* `in` of the root lies before its `out` where both are apart. */
static enum error_code spread_from_in(struct group *g, const struct collective *c, struct error *err)
{
    const enum error_code e = spread(g, c, err);
    if (g->rank == c->root && c->count > 2) ((char *)c->out)[1] ^= 1;
    return e;
}

static struct collective_cost spread_cost(int r, int P, const struct collective *c)
{
    const uint64_t m = r == (WRONG == 4 ? 0 : c->root) ? (uint64_t)(P - 1) : 0;
    return (struct collective_cost){ .messages = m, .bytes = m * bytes_of(c, c->count) };
}

static const struct algorithm allgather_mine = {
    .operation = ALLGATHER, .name = "mine", .description = "each block to each member", .order = ADDS_NOTHING,
    .source = "own", .cost_formula = "(P-1) a + n(P-1)/P b", .run = gather, .cost = gather_cost,
};
static const struct algorithm broadcast_mine = {
    .operation = BROADCAST, .name = "mine", .description = "the vector to each member", .order = ADDS_NOTHING,
    .source = "own", .cost_formula = "(P-1) (a + n b)", .run = WRONG == 11 ? spread_from_in : spread,
    .cost = spread_cost,
};

PLUGIN(PLUGIN_ALGORITHM(allgather_mine), PLUGIN_ALGORITHM(broadcast_mine));
