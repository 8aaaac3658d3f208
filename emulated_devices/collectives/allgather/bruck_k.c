/* allgather, Bruck's with several partners per step: the number of blocks on a device grows fourfold in every step.
 *
 * Source    J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient algorithms for all-to-all communications
 *           in multiport message-passing systems", IEEE TPDS 8(11), 1997, doi:10.1109/71.642949 (k = RADIX - 1 ports)
 * Needs     any P, any counts.
 * Idea      a device with w(0) .. w(h-1) sends them to the devices r-h, r-2h, .. r-(RADIX-1)h at once.
 * Cost      rounds  ceil(log4 P) where a device can send to three at once; bytes  n(P-1)/P
 * Memory    the vector once more, since blocks are gathered in rotated order.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 8:    w0 -> r-1, r-2, r-3      w0 .. w3 -> r-4
 */
#include "emulated_devices/collectives/algorithm.h"

enum { RADIX = 4 };

/* Elements of w(first) .. w(last-1), as seen from a device: w0 = b(r), w1 = b(r+1), .. */
static int64_t bruck_k_span(const struct collective *collective, int P, int r, int first, int last)
{
    return comb_length(collective, P, (struct comb){ r + first, 1, last - first });
}

/* How many blocks go to the j-th partner of a round that starts with `have` of P. */
static int bruck_k_share(int have, int j, int P)
{
    const int missing = P - j * have;
    return missing < 0 ? 0 : missing < have ? missing : have;
}

/* A round with up to RADIX - 1 partners: what this device has goes to all of them. */
static enum error_code bruck_k_extend(struct exchange *exchange, const struct collective *collective, void *w, int have,
                                      struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    struct message m[2 * (RADIX - 1)];
    int started = 0;
    for (int j = 1; j < RADIX && bruck_k_share(have, j, P) > 0; j++) {
        const int far = j * have, many = bruck_k_share(have, j, P);
        /* The j-th partner behind has w(j have ..), the j-th before gets w(0 ..): at most RADIX - 1 messages each
         * way at once. */
        m[started++] = message_receive(exchange, imod(r + far, P),
                                       element(collective, w, bruck_k_span(collective, P, r, 0, far)),
                                       bytes_of(collective, bruck_k_span(collective, P, r, far, far + many)));
        m[started++] = message_send(exchange, imod(r - far, P), w,
                                    bytes_of(collective, bruck_k_span(collective, P, r, 0, many)));
    }
    return wait_all(exchange, m, started, err);
}

static enum error_code bruck_k_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    struct exchange x = exchange_begin(group, ALLGATHER);
    void *w;
    enum error_code code = scratch_agreed(&x, collective, block_total(collective, P), &w, err);
    if (code == OK) copy_elements(&x, collective, w, collective->in, block_length(collective, P, r));
    /* Blocks grow fourfold a round. */
    for (int have = 1; have < P && code == OK; have *= RADIX) code = bruck_k_extend(&x, collective, w, have, err);
    if (code == OK) comb_unpack(&x, collective, (struct comb){ r, 1, P }, collective->out, w);
    exchange_release(&x, w);
    return code;
}

static struct collective_cost bruck_k_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { 0 };
    for (int have = 1; have < P; have *= RADIX) {
        /* The messages of a round do not wait for each other: one latency; each occupies the ports for a step. */
        cost.depth++;
        for (int j = 1; j < RADIX && bruck_k_share(have, j, P) > 0; j++) {
            cost_send(&cost, collective, bruck_k_span(collective, P, r, 0, bruck_k_share(have, j, P)));
            cost.steps++;
        }
    }
    return cost;
}

const struct algorithm allgather_bruck_k = {
    .operation = ALLGATHER, .name = "bruck_k", .description = "what one has grows fourfold in every step, for any P",
    .source = "Bruck et al. 1997, doi:10.1109/71.642949",
    .cost_formula = "ceil(log4 P) a + n(P-1)/P b", .run = bruck_k_run, .cost = bruck_k_cost,
};
