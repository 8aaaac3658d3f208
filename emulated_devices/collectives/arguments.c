/* arguments.c -- checks the arguments of a collective.
 *
 * collective_run calls this file before a message is sent.  A wrong argument is ERR_USAGE, which names the argument
 * and, for buffers, the device.
 */
#include "emulated_devices/collectives/sparse.h"
#include <limits.h>

static bool has_root(enum operation op)
{
    return op == BROADCAST || op == REDUCE || op == GATHER || op == SCATTER;
}

bool operation_has_blocks(enum operation op)
{
    return op == REDUCE_SCATTER || op == ALLGATHER || op == GATHER || op == SCATTER;
}

bool operation_is_sparse(enum operation op) { return op == SPARSE_ALLGATHER || op == SPARSE_REDUCE_SCATTER; }

/* At its end the walk has added up the elements of all own blocks and of all held blocks. */
static void sparse_extents(enum operation op, const struct collective *collective, int r, int P, int64_t *in,
                           int64_t *out)
{
    struct sparse_walk w = { .b = -1 };
    while (sparse_next(collective, P, r, &w)) ;
    *in = op == SPARSE_ALLGATHER ? w.owned_at : w.held_at;
    *out = op == SPARSE_ALLGATHER ? w.held_at : w.owned_at;
}

static int64_t sum(const int64_t *counts, int64_t each, int P)
{
    int64_t total = 0;
    for (int b = 0; b < P; b++) total += counts != NULL ? counts[b] : each;
    return total;
}

/* The table in collective.h says the same in words. */
void collective_extents(enum operation op, const struct collective *collective, int r, int P, int64_t *in, int64_t *out)
{
    const bool root = r == collective->root;
    *in = *out = collective->count;
    if (op == BARRIER) *in = *out = 0;
    if (op == BROADCAST && !root) *in = 0;
    if ((op == REDUCE && !root) || (op == SCAN && collective->exclusive && r == 0)) *out = 0;
    if (op == ALLTOALL) {
        *in = sum(collective->counts, collective->count, P);
        *out = sum(collective->recvcounts, collective->count, P);
    }
    if (operation_is_sparse(op)) sparse_extents(op, collective, r, P, in, out);
    if (!operation_has_blocks(op)) return;
    /* Operations with blocks spread a vector over the members, or collect one. */
    const int64_t mine = block_length(collective, P, r), all = block_total(collective, P);
    const bool spread = op == REDUCE_SCATTER || op == SCATTER;
    *in = spread ? (op == SCATTER && !root ? 0 : all) : mine;
    *out = spread ? mine : (op == GATHER && !root ? 0 : all);
}

/* ---- arguments that are equal on all members --------------------------------------------------------------------- */

/* A negative count would make extents and addresses wrong, so it is refused before they are computed. */
static enum error_code check_counts(const char *which, const int64_t *counts, int P, const char *op, struct error *err)
{
    for (int b = 0; counts != NULL && b < P; b++)
        if (counts[b] < 0)
            return fail(err, ERR_USAGE, "%s: %s[%d] = %lld is negative", op, which, b, (long long)counts[b]);
    return OK;
}

/* Each block has an owner inside the group, and their number fits an int. */
static enum error_code check_placement(const struct block_placement *placement, int P, const char *op,
                                       struct error *err)
{
    if (placement->blocks < 0 || placement->blocks > INT_MAX)
        return fail(err, ERR_USAGE, "%s: %lld blocks", op, (long long)placement->blocks);
    for (int64_t b = 0; b < placement->blocks; b++)
        if (placement->owner[b] < 0 || placement->owner[b] >= P)
            return fail(err, ERR_USAGE, "%s: owner %d of block %lld is not in a group of %d", op, placement->owner[b],
                        (long long)b, P);
    return OK;
}

/* All members see the same arguments here, so all return the same error without a message. */
enum error_code arguments_check(enum operation op, const struct collective *collective, int P, struct error *err)
{
    const char *name = operation_name(op);
    if (collective->count < 0)
        return fail(err, ERR_USAGE, "%s: count %lld is negative", name, (long long)collective->count);
    if ((unsigned)collective->dtype >= DTYPE_COUNT)
        return fail(err, ERR_USAGE, "%s: dtype %d does not exist", name, (int)collective->dtype);
    if ((unsigned)collective->reduction >= REDUCTION_COUNT)
        return fail(err, ERR_USAGE, "%s: reduction %d does not exist", name, (int)collective->reduction);
    if (has_root(op) && (collective->root < 0 || collective->root >= P))
        return fail(err, ERR_USAGE, "%s: root %d is not in a group of %d", name, collective->root, P);
    if (op == ALLTOALL && (collective->counts == NULL) != (collective->recvcounts == NULL))
        return fail(err, ERR_USAGE, "%s: counts and recvcounts go together", name);
    if (operation_is_sparse(op) && collective->placement != NULL) {
        const enum error_code code = check_placement(collective->placement, P, name, err);
        return code ? code : check_counts("counts", collective->counts, (int)collective->placement->blocks, name, err);
    }
    return op == ALLTOALL ? OK : check_counts("counts", collective->counts, P, name, err);
}

/* ---- arguments that only this member knows: its buffers, and the counts of an all-to-all ------------------------- */

static bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

/* Whether in and out overlap as collective.h defines "in place". */
static bool lies_in_place(enum operation op, const struct collective *collective, int r, int P)
{
    if (op == ALLGATHER || op == GATHER)
        return collective->in == const_element(collective, collective->out, block_first(collective, P, r));
    if (op == REDUCE_SCATTER || op == SCATTER)
        return collective->out == const_element(collective, collective->in, block_first(collective, P, r));
    if (op == SPARSE_ALLGATHER)
        return collective->in == const_element(collective, collective->out, sparse_first_owned(collective, P, r));
    if (op == SPARSE_REDUCE_SCATTER)
        return collective->out == const_element(collective, collective->in, sparse_first_owned(collective, P, r));
    return collective->in == collective->out;
}

static enum error_code bad_overlap(enum operation op, const struct group *group, struct error *err)
{
    const bool gathers = op == ALLGATHER || op == GATHER;
    if (operation_is_sparse(op))
        return fail(err, ERR_USAGE, "%s: in and out overlap on device %d; in place is %s at the first own block of %s",
                    operation_name(op), group->comm->rank, op == SPARSE_ALLGATHER ? "in" : "out",
                    op == SPARSE_ALLGATHER ? "out" : "in");
    if (!operation_has_blocks(op))
        return fail(err, ERR_USAGE, "%s: in and out overlap on device %d; in place is in == out", operation_name(op),
                    group->comm->rank);
    return fail(err, ERR_USAGE, "%s: in and out overlap on device %d; in place is %s as block %d of %s",
                operation_name(op), group->comm->rank, gathers ? "in" : "out", group->rank, gathers ? "out" : "in");
}

static bool lie_apart(enum operation op, const struct collective *collective, const struct group *group)
{
    int64_t in, out;
    collective_extents(op, collective, group->rank, group->size, &in, &out);
    return !overlap(collective->in, bytes_of(collective, in), collective->out, bytes_of(collective, out));
}

/* The count that this device sends to itself must equal the count that it receives from itself; in place the same holds
 * for every device, because the received block overwrites the sent one. */
static enum error_code check_own_counts(const struct collective *collective, const struct group *group,
                                        struct error *err)
{
    enum error_code code = check_counts("counts", collective->counts, group->size, "alltoall", err);
    if (code == OK) code = check_counts("recvcounts", collective->recvcounts, group->size, "alltoall", err);
    if (code != OK) return code;
    const bool in_place = collective->in == collective->out && !lie_apart(ALLTOALL, collective, group);
    for (int b = 0; b < group->size; b++)
        if (collective->counts[b] != collective->recvcounts[b] && (in_place || b == group->rank))
            return fail(err, ERR_USAGE, "alltoall%s: counts[%d] = %lld, but recvcounts[%d] = %lld on device %d%s",
                        in_place ? " in place" : "", b, (long long)collective->counts[b], b,
                        (long long)collective->recvcounts[b],
                        group->comm->rank, b == group->rank ? ", for itself" : "");
    return OK;
}

/* The order matters: counts of an all-to-all are checked before extents are computed from them. */
enum error_code own_arguments_check(enum operation op, const struct collective *collective, const struct group *group,
                                    struct error *err)
{
    const char *name = operation_name(op);
    const int device = group->comm->rank;
    int64_t in, out;
    const enum error_code code = op == ALLTOALL && collective->counts != NULL
        ? check_own_counts(collective, group, err) : OK;
    if (code != OK) return code;
    collective_extents(op, collective, group->rank, group->size, &in, &out);
    if (in > 0 && collective->in == NULL)
        return fail(err, ERR_USAGE, "%s: in is NULL for %lld elements on device %d", name, (long long)in, device);
    if (out > 0 && collective->out == NULL)
        return fail(err, ERR_USAGE, "%s: out is NULL for %lld elements on device %d", name, (long long)out, device);
    return lie_apart(op, collective, group) || lies_in_place(op, collective, group->rank, group->size) ? OK
           : bad_overlap(op, group, err);
}
