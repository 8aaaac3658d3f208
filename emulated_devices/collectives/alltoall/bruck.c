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
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
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
static void bruck_pack(struct exchange *exchange, const struct collective *collective, int bit, void *packed,
                       void *blocks, bool out)
{
    int64_t at = 0;
    for (int i = 0; i < exchange->group->size; i++) {
        if (!(i & bit)) continue;
        void *one = element(collective, blocks, i * collective->count), *place = element(collective, packed, at);
        copy_elements(exchange, collective, out ? place : one, out ? one : place, collective->count);
        at += collective->count;
    }
}

/* out [block s] = the block of device s for this device.  Each block moves by the binary digits of its distance. */
static enum error_code alltoall_bruck_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    /* No bit moves more blocks than bit 1, for whose blocks both buffers have room. */
    const int64_t n = P * collective->count, half = moving(1, P) * collective->count;
    struct exchange x = exchange_begin(group, ALLTOALL);
    void *blocks;
    enum error_code code = scratch_agreed(&x, collective, n + 2 * half, &blocks, err);
    if (code != OK) return code;
    void *out = element(collective, blocks, n), *in = element(collective, blocks, n + half);

    /* Block i, counted from this device, has to go i devices further. */
    for (int i = 0; i < P; i++)
        copy_elements(&x, collective, element(collective, blocks, i * collective->count),
                      algorithm_given(collective, imod(r + i, P)), collective->count);
    for (int bit = 1; bit < P && code == OK; bit *= 2) {
        /* Blocks whose way has this binary digit move `bit` devices on, packed in one message. */
        const uint64_t bytes = bytes_of(collective, moving(bit, P) * collective->count);
        bruck_pack(&x, collective, bit, out, blocks, true);
        code = exchange_both(&x, imod(r + bit, P), out, bytes, imod(r - bit, P), in, bytes, err);
        if (code == OK) bruck_pack(&x, collective, bit, in, blocks, false);
    }
    /* Block i has now come from the device i before. */
    for (int i = 0; i < P && code == OK; i++)
        copy_elements(&x, collective, algorithm_taken(collective, imod(r - i, P)),
                      element(collective, blocks, i * collective->count), collective->count);
    exchange_release(&x, blocks);
    return code;
}

static struct collective_cost alltoall_bruck_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)ceil_log2(P) };
    (void)r;
    for (int bit = 1; bit < P; bit *= 2) cost_send(&cost, collective, moving(bit, P) * collective->count);
    return cost;
}

const struct algorithm alltoall_bruck = {
    .operation = ALLTOALL, .name = "bruck",
    .description = "by the binary digits of the way: few messages for short blocks",
    .source = "Bruck et al. 1997, doi:10.1109/71.642949", .cost_formula = "ceil(log2 P) a + n/2 log2 P b",
    .needs = "equal counts", .refuses = needs_equal_counts, .vectors = 2,
    .run = alltoall_bruck_run, .cost = alltoall_bruck_cost,
};
