/* allreduce, Swing: halving and doubling among partners that lie close together on a ring or torus.
 *
 * Source    D. De Sensi, T. Bonato, D. Saam, T. Hoefler, "Swing: short-cutting rings for higher bandwidth allreduce",
 *           NSDI 2024, arXiv:2401.09356
 * Needs     any P (for other P members are folded), any count.
 * Idea      recursive doubling sends at distance 1, 2, 4, ..; on a ring of links those messages share links.  Swing
 *           sends at distance 1, 1, 3, 5, 11, ..: rho(s) = (1 - (-2)^(s+1))/3, even devices to one side and odd ones to
 *           the other, so that data still reaches all devices in log2 P steps.
 *           In step s a device sends the blocks of its partner and of all devices that the partner exchanges with after
 *           step s.  Afterwards device r has the finished block r.  The allgather is the same in reverse.
 * Cost      steps  2 log2 P; 2 more if P is not a power of two
 *           bytes  2n - 2|b(r)| for a power of two: as few as the ring;  adds  the sum of the kept blocks in every step
 * Memory    n elements of scratch.
 * Rounding  each block is finished on one device: the same bits on all.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 8: partners of device 0: 1 (rho 1), then 7 (rho -1), then 3 (rho 3);  of device 1: 0, then 2, then 6.
 */
#include "emulated_devices/collectives/algorithm.h"

/* The partner of device i in step s. */
static int partner(int i, int s, int P)
{
    int rho = 0;
    for (int k = 0, power = 1; k <= s; k++, power *= -2) rho += power;
    return imod(i % 2 == 0 ? i + rho : i - rho, P);
}

/* Call visit for every block that device i collects from step s on: its own, and those of all its later partners. */
struct visitor {
    struct exchange *x;
    const struct collective *c;
    char *packed;
    int64_t at;
    int core;
    enum { COUNT, PACK, UNPACK, ADD } what;
};

static void visit_block(struct visitor *visitor, int b)
{
    const struct collective *c = visitor->c;
    const int64_t n = part_length(c->count, visitor->core, b), start = block_start(c->count, visitor->core, b);
    if (visitor->what == PACK)
        copy_elements(visitor->x, c, element(c, visitor->packed, visitor->at), element(c, c->out, start), n);
    if (visitor->what == UNPACK)
        copy_elements(visitor->x, c, element(c, c->out, start), element(c, visitor->packed, visitor->at), n);
    if (visitor->what == ADD)
        reduce_local(visitor->x, c->reduction, c->dtype, element(c, c->out, start),
                     element(c, visitor->packed, visitor->at), n);
    visitor->at += n;
}

static void visit_from(struct visitor *visitor, int i, int s)
{
    visit_block(visitor, i);
    for (int later = s; 1 << later < visitor->core; later++)
        visit_from(visitor, partner(i, later, visitor->core), later + 1);
}

static int64_t length_from(const struct collective *collective, int core, int i, int s)
{
    struct visitor v = { .c = collective, .core = core, .what = COUNT };
    visit_from(&v, i, s);
    return v.at;
}

/* One step of the reduce-scatter (send the partner's blocks, add the received ones); back: of the allgather. */
static enum error_code swing(struct exchange *exchange, const struct collective *collective, struct fold fold,
                             int s, bool back, char *scratch, struct error *err)
{
    /* The partner gets the blocks that it and its later partners collect; the all-gather gives the own side's. */
    const int peer = partner(fold.me, s, fold.core), give = back ? fold.me : peer, take = back ? peer : fold.me;
    const int64_t giving = length_from(collective, fold.core, give, s + 1),
        taking = length_from(collective, fold.core, take, s + 1);
    char *in = element(collective, scratch, giving);
    struct visitor v = { .x = exchange, .c = collective, .packed = scratch, .core = fold.core, .what = PACK };
    visit_from(&v, give, s + 1);
    const enum error_code code = exchange_both(exchange, fold_member(fold, peer), scratch, bytes_of(collective, giving),
                                               fold_member(fold, peer), in, bytes_of(collective, taking), err);
    v = (struct visitor){ .x = exchange, .c = collective, .packed = in, .core = fold.core,
                         .what = back ? UNPACK : ADD };
    /* Received blocks are in the order in which the sender has visited them. */
    if (code == OK) visit_from(&v, take, s + 1);
    return code;
}

/* out [count] = sum over members: the steps of the reduce-scatter, then the same steps backwards. */
static enum error_code swing_run(struct group *group, const struct collective *collective, struct error *err)
{
    const struct fold f = fold_of(group->rank, group->size);
    const int steps = ceil_log2(f.core);
    struct exchange x = exchange_begin(group, ALLREDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, f.me < 0 ? 0 : collective->count, &scratch, err);
    if (code == OK) code = fold_in(&x, collective, f, collective->out, scratch, err);
    if (f.me >= 0) {
        /* The reduce-scatter goes from near to far partners; the all-gather goes the same way back. */
        for (int s = 0; s < steps && code == OK; s++) code = swing(&x, collective, f, s, false, scratch, err);
        if (code == OK)
            reduce_finish(&x, collective->reduction, collective->dtype,
                          element(collective, collective->out, block_start(collective->count, f.core, f.me)),
                          part_length(collective->count, f.core, f.me));
        for (int s = steps - 1; s >= 0 && code == OK; s--) code = swing(&x, collective, f, s, true, scratch, err);
    }
    if (code == OK) code = fold_out(&x, collective, f, collective->out, err);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost swing_cost(int r, int P, const struct collective *collective)
{
    const struct fold f = fold_of(r, P);
    struct collective_cost cost = { 0 };
    fold_cost(&cost, collective, f, collective->count);
    for (int s = 0; 1 << s < f.core; s++) {
        cost.steps += 2;
        if (f.me < 0) continue;
        const int64_t mine = length_from(collective, f.core, f.me, s + 1);
        cost_send(&cost, collective, length_from(collective, f.core, partner(f.me, s, f.core), s + 1));
        cost_send(&cost, collective, mine);
        cost.additions += (uint64_t)mine;
    }
    fold_path(&cost, collective, f, collective->count);
    return cost;
}

const struct algorithm allreduce_swing = {
    .operation = ALLREDUCE, .name = "swing",
    .description = "halving and doubling among near partners: short ways on a torus",
    .order = BY_POSITION, .source = "De Sensi et al. 2024, arXiv:2401.09356",
    .cost_formula = "2 log2 P a + 2n(P-1)/P b", .run = swing_run, .cost = swing_cost,
};
