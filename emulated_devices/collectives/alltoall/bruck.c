/* alltoall, Bruck's: every block moves by the binary digits of its distance, so that few messages carry many blocks.
 *
 * Source    J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient algorithms for all-to-all communications
 *           in multiport message-passing systems", IEEE TPDS 8(11), 1997, doi:10.1109/71.642949
 * Needs     any P; equal counts.
 * Idea      block i is the one for device r+i.  In the step with bit 1, 2, 4, .. all blocks whose number has that bit
 *           move by that distance.  After all steps block i has moved by i.
 * Cost      steps  ceil(log2 P);  bytes  about (n/2) log2 P: each block is sent once for each bit set.  For short
 *           blocks.
 * Memory    the vector, and half of it twice.
 * Rounding  permutes: bits are equal.
 *
 * P = 5, numbers 0 1 2 3 4:    bit 1: 1 3 to r+1      bit 2: 2 3 to r+2      bit 4: 4 to r+4
 */
#include "emulated_devices/collectives/algorithm.h"

static int moving(int bit, int P)
{
    int many = 0;
    for (int i = 0; i < P; i++) many += (i & bit) != 0;
    return many;
}

/* Copy the blocks that move in this step to or from a packed array. */
static void pack(struct exchange *x, const struct collective *c, int bit, void *packed, void *blocks, bool out)
{
    int64_t at = 0;
    for (int i = 0; i < x->group->size; i++) {
        if (!(i & bit)) continue;
        void *one = element(c, blocks, i * c->count), *place = element(c, packed, at);
        copy_elements(x, c, out ? place : one, out ? one : place, c->count);
        at += c->count;
    }
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank;
    const int64_t n = P * c->count, half = moving(1, P) * c->count;             /* no bit moves more */
    struct exchange x = exchange_begin(g, ALLTOALL);
    void *blocks;
    enum error_code code = scratch_agreed(&x, c, n + 2 * half, &blocks, err);
    if (code != OK) return code;
    void *out = element(c, blocks, n), *in = element(c, blocks, n + half);

    /* Block i, counted from this device, has to go i devices further. */
    for (int i = 0; i < P; i++)
        copy_elements(&x, c, element(c, blocks, i * c->count), algorithm_given(c, imod(r + i, P)), c->count);
    for (int bit = 1; bit < P && code == OK; bit *= 2) {
        /* Blocks whose way has this binary digit move `bit` devices on, packed in one message. */
        const uint64_t bytes = bytes_of(c, moving(bit, P) * c->count);
        pack(&x, c, bit, out, blocks, true);
        code = exchange_both(&x, imod(r + bit, P), out, bytes, imod(r - bit, P), in, bytes, err);
        if (code == OK) pack(&x, c, bit, in, blocks, false);
    }
    /* Block i has now come from the device i before. */
    for (int i = 0; i < P && code == OK; i++)
        copy_elements(&x, c, algorithm_taken(c, imod(r - i, P)), element(c, blocks, i * c->count), c->count);
    exchange_release(&x, blocks);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .steps = (uint64_t)ceil_log2(P) };
    (void)r;
    for (int bit = 1; bit < P; bit *= 2) cost_send(&cost, c, moving(bit, P) * c->count);
    return cost;
}

const struct algorithm alltoall_bruck = {
    .operation = ALLTOALL, .name = "bruck",
    .description = "by the binary digits of the way: few messages for short blocks",
    .source = "Bruck et al. 1997, doi:10.1109/71.642949", .cost_formula = "ceil(log2 P) a + n/2 log2 P b",
    .needs = "equal counts", .refuses = needs_equal_counts, .run = run, .cost = cost,
};
