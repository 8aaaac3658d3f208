/* contract.c -- checks that all members call the same collective with the same arguments.
 *
 * Every message carries a hash of its sender's arguments.  A receiver with another hash does not use the data and ends
 * the job with one line, but that line cannot say what differs.  If the job checks calls (ORRERY_CHECK_CALLS, comm.h),
 * every member first sends its arguments to member 0, which compares them with its own and sends the result to all.
 *
 * collective_run (registry.c) calls contract_check if calls are checked, and contract_number for each call.  A
 * difference is ERR_USAGE on every member.
 */
#include "emulated_devices/collectives/algorithm.h"
#include <stdio.h>
#include <stdlib.h>

/* The values that must be equal, each with a name.  The counts of an all-to-all may differ. */
enum {
    OPERATION_OF,
    ALGORITHM_OF,
    COUNT_OF,
    DTYPE_OF,
    REDUCTION_OF,
    ROOT_OF,
    EXCLUSIVE_OF,
    SEGMENT_OF,
    HAS_COUNTS,
    COUNTS_SUM,
    COUNTS_HASH,
    PLACEMENT_HASH,
    TERMS
};
static const char *const term_name[TERMS] = { "operation",
                                              "algorithm",
                                              "count",
                                              "dtype",
                                              "reduction",
                                              "root",
                                              "exclusive",
                                              "the longest segment",
                                              "whether there are counts",
                                              "the sum of counts",
                                              "counts (by hash)",
                                              "placement (by hash)" };
struct terms { int64_t of[TERMS]; };

/* Algorithms are compared by their place in the list, which is the same on every device. */
static int64_t algorithm_number(const struct algorithm *algorithm)
{
    for (int i = 0; algorithms[i] != NULL; i++)
        if (algorithms[i] == algorithm) return i;
    return -1;                          /* auto, or an unknown name */
}

/* FNV-1a over the owner and the holders of each block.  The shift keeps the number positive. */
static int64_t placement_hash(const struct block_placement *placement, int P)
{
    uint64_t hash = 1469598103934665603u;
    for (int64_t b = 0; b < placement->blocks; b++)
        for (int m = -1; m < P; m++)
            hash = (hash ^ (m < 0 ? (uint64_t)placement->owner[b] : (uint64_t)placement->held[b * P + m]))
                * 1099511628211u;
    return (int64_t)(hash >> 1);
}

/* All values of one call.  Counts enter as a sum, which people can read, and as a hash, which tells their order. */
static struct terms terms_of(enum operation op, const struct algorithm *algorithm,
                             const struct collective *collective, int P)
{
    struct terms t = { { op, algorithm_number(algorithm), collective->count, collective->dtype, collective->reduction,
                        collective->root, collective->exclusive,
                         (int64_t)collective->segment, collective->counts != NULL } };
    uint64_t hash = 1469598103934665603u;
    const int64_t blocks = collective->placement ? collective->placement->blocks : P;
    /* Counts of an all-to-all differ between members, so they are not compared. */
    for (int64_t b = 0; b < blocks && collective->counts != NULL && op != ALLTOALL; b++) {
        t.of[COUNTS_SUM] += collective->counts[b];
        hash = (hash ^ (uint64_t)collective->counts[b]) * 1099511628211u;
    }
    t.of[COUNTS_HASH] = (int64_t)(hash >> 1);
    if (collective->placement) t.of[PLACEMENT_HASH] = placement_hash(collective->placement, P);
    return t;
}

uint64_t contract_number(enum operation op, const struct algorithm *algorithm,
                         const struct collective *collective, int P)
{
    const struct terms t = terms_of(op, algorithm, collective, P);
    uint64_t hash = 1469598103934665603u;
    for (int term = 0; term < TERMS; term++) hash = (hash ^ (uint64_t)t.of[term]) * 1099511628211u;
    return hash | 1;                    /* 0: no call */
}

/* A value as people read it; values without a name are printed as numbers. */
static const char *term_text(int term, int64_t x, char text[32])
{
    if (term == OPERATION_OF) return operation_name((enum operation)x);
    if (term == ALGORITHM_OF) return x >= 0 ? algorithms[x]->name : "auto or unknown";
    if (term == DTYPE_OF && x >= 0 && x < DTYPE_COUNT) return dtype_name((enum dtype)x);
    if (term == REDUCTION_OF && x >= 0 && x < REDUCTION_COUNT) return reduction_name((enum reduction)x);
    snprintf(text, 32, "%lld", (long long)x);
    return text;
}

/* Find the first term that differs from member 0's, and the devices on which it differs. */
static enum error_code contract_compare(const struct group *group, enum operation op, const struct terms *all,
                                        struct error *err)
{
    char axes[64], here[32], there[32], others[160] = "";
    for (int term = 0; term < TERMS; term++) {
        int first = -1, used = 0;
        for (int m = 1; m < group->size; m++) {
            if (all[m].of[term] == all[0].of[term]) continue;
            if (first < 0) first = m;
            else if (used < (int)sizeof others - 12)
                used += snprintf(others + used, sizeof others - (size_t)used, ", %d", group->member[m]);
        }
        if (first < 0) continue;
        return fail(err, ERR_USAGE, "%s over %s: %s is %s on device %d, but %s on device %d%s%s", operation_name(op),
                    axes_describe(group->axes, axes, sizeof axes), term_name[term],
                    term_text(term, all[0].of[term], here),
                    group->member[0], term_text(term, all[first].of[term], there), group->member[first],
                    used > 0 ? "; it also differs on devices" : "", used > 0 ? others + 1 : "");
    }
    return OK;
}

/* Member 0 receives the values of all others, in the order of members. */
static enum error_code contract_collect_pieces(struct exchange *exchange, struct terms *all, struct error *err)
{
    enum error_code code = OK;
    for (int m = 1; m < exchange->group->size && code == OK; m++)
        code = exchange_both(exchange, -1, NULL, 0, m, &all[m], sizeof all[m], err);
    return code;
}

/* Member 0 compares and the others send; then all agree on the outcome.  Without memory member 0 ends the job. */
enum error_code contract_check(struct group *group, enum operation op, const struct algorithm *algorithm,
                               const struct collective *collective, struct error *err)
{
    struct exchange x = exchange_begin(group, CONTROL);
    const struct terms mine = terms_of(op, algorithm, collective, group->size);
    enum error_code code = OK;
    if (group->rank == 0) {
        struct terms *all = malloc(sizeof *all * (size_t)group->size);
        if (all == NULL) {
            fprintf(stderr, "orrery: out of memory on device %d\n", group->comm->rank);
            comm_abort(group->comm, error_exit_status(ERR_MEMORY));
        }
        all[0] = mine;
        code = contract_collect_pieces(&x, all, err);
        if (code == OK) code = contract_compare(group, op, all, err);
        free(all);
    } else code = exchange_both(&x, 0, &mine, sizeof mine, -1, NULL, 0, err);
    return group_agree(group, code, err);
}
