/* registry.c -- the list of algorithms, and the functions that run them.
 *
 * schemes/, model/, verify/, course/ and cli/ call collective_run; plug-ins and nccl.c call algorithm_add.  Errors
 * are ERR_USAGE for a bad call, ERR_FORMAT and ERR_MEMORY for a bad plug-in, and those of the algorithm.
 */
#include "emulated_devices/collectives/algorithm.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/comm/recorder.h"
#include "emulated_devices/device/streams.h"
#include <string.h>

/* One line per algorithm; the first of an operation is its default.  The defaults of allreduce and reduce-scatter add
 * in the order of ranks, so that a sum's bits do not depend on how a vector is cut into buckets, shards or pieces. */
#define ALGORITHMS(X)       \
    X(broadcast_binomial) X(broadcast_flat) X(broadcast_chain) X(broadcast_scatter_ring) X(broadcast_scatter_doubling) \
    X(broadcast_double_tree) X(broadcast_circulant) \
    X(allreduce_two_shot)   \
    X(allreduce_ring) X(allreduce_bidirectional_ring) X(allreduce_segmented_ring) X(allreduce_doubling) \
    X(allreduce_multiplying) \
    X(allreduce_rabenseifner) X(allreduce_swing) X(allreduce_tree) X(allreduce_double_tree) X(allreduce_star) \
    X(allreduce_one_shot) X(allreduce_two_level) X(allreduce_in_network) X(allreduce_torus_2d) \
    X(reduce_scatter_direct) X(reduce_scatter_ring) X(reduce_scatter_halving) X(reduce_scatter_pairwise) \
    X(reduce_scatter_pat) X(reduce_scatter_circulant) X(reduce_scatter_two_level) \
    X(allgather_ring) X(allgather_doubling) X(allgather_bruck) X(allgather_bruck_k) X(allgather_circulant) \
    X(allgather_neighbour_exchange) X(allgather_direct) X(allgather_pat) X(allgather_sparbit) X(allgather_two_level) \
    X(reduce_binomial) X(reduce_flat) X(reduce_chain) X(reduce_scatter_gather) \
    X(alltoall_pairwise_shift) X(alltoall_pairwise_xor) X(alltoall_linear) X(alltoall_bruck) \
    X(alltoall_2dh) X(alltoall_two_level) \
    X(gather_binomial) X(gather_linear) X(scatter_binomial) X(scatter_linear) \
    X(barrier_dissemination) X(barrier_tree) X(scan_doubling) X(scan_linear) \
    X(sparse_allgather_flat) X(sparse_allgather_binomial) \
    X(sparse_reduce_scatter_flat) X(sparse_reduce_scatter_binomial)

#define X(name) extern const struct algorithm name;
ALGORITHMS(X)
#undef X

const struct algorithm *algorithms[ALGORITHMS_MOST] = {
#define X(name) &name,
    ALGORITHMS(X)
#undef X
};

/* The first thing that a new algorithm lacks, in words, or NULL.  `orrery list` and `auto` need all of them. */
static const char *registry_lacks(const struct algorithm *algorithm)
{
    if (!algorithm->name || !algorithm->name[0]) return "a name";
    if (strcmp(algorithm->name, ALGORITHM_AUTO) == 0) return "a name other than " ALGORITHM_AUTO;
    if (!algorithm->description || !algorithm->source || !algorithm->cost_formula)
        return "a description, a source and a cost_formula";
    return !algorithm->run ? "a function run" : !algorithm->cost ? "a function cost" : NULL;
}

/* Algorithms of an operation stay together, so a new one goes behind the last of its operation. */
enum error_code algorithm_add(const struct algorithm *algorithm, struct error *err)
{
    const char *missing = algorithm->operation < OPERATION_COUNT ? registry_lacks(algorithm) : "an operation";
    int count = 0, after = 0;
    if (missing) return fail(err, ERR_FORMAT, "an algorithm %s: needs %s",
                             algorithm->name ? algorithm->name : "", missing);
    if (algorithm_find(algorithm->operation, algorithm->name))
        return fail(err, ERR_FORMAT, "%s %s: there is an algorithm of this name", operation_name(algorithm->operation),
                    algorithm->name);
    /* Find the end of the list, and the place behind the operation's last algorithm. */
    for (; algorithms[count]; count++)
        if (algorithms[count]->operation == algorithm->operation) after = count + 1;
    if (count + 1 >= ALGORITHMS_MOST)
        return fail(err, ERR_MEMORY, "%s %s: there are %d algorithms, the most that there can be",
                    operation_name(algorithm->operation), algorithm->name, count);
    memmove(&algorithms[after + 1], &algorithms[after], (size_t)(count - after) * sizeof *algorithms);
    algorithms[after] = algorithm;
    return OK;
}

const struct algorithm *algorithm_find(enum operation op, const char *name)
{
    for (int i = 0; algorithms[i] != NULL; i++)
        if (algorithms[i]->operation == op && (name == NULL || strcmp(algorithms[i]->name, name) == 0))
            return algorithms[i];
    return NULL;
}

const char *adding_order_name(enum adding_order order)
{
    static const char *const name[] = { "nothing", "in the order of ranks, every element alike",
                                        "in the order of a tree, every element alike",
                                        "in an order that depends on an element's place" };
    return name[order];
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Whether no member has anything to send; the same result on every member. */
static bool nothing_to_do(enum operation op, const struct collective *collective, int P)
{
    if (P == 1) return true;
    if (op == BARRIER || (op == ALLTOALL && collective->counts != NULL)) return false;
    if (operation_is_sparse(op)) return collective->counts == NULL && collective->count == 0;
    return operation_has_blocks(op) ? block_total(collective, P) == 0 : collective->count == 0;
}

/* Broadcast, and most all-reduces, begin from the vector in `out`, so collective_run copies `in` there first. */
static bool works_in_out(const struct algorithm *algorithm)
{
    return algorithm->operation == BROADCAST || (algorithm->operation == ALLREDUCE && !algorithm->reads_in);
}

/* Copy elements that need no message: all in a group of one, and in to out for algorithms that work in out. */
static void copy_in(struct exchange *exchange, const struct collective *collective, int P)
{
    int64_t in, out;
    const int r = exchange->group->rank;
    if (exchange->operation == BROADCAST && r != collective->root) return;
    collective_extents(exchange->operation, collective, r, P, &in, &out);
    copy_elements(exchange, collective, collective->out, collective->in, in < out ? in : out);
}

/* In a group of one no message is sent, so no algorithm refuses. */
const char *algorithm_refuses(const struct algorithm *algorithm, int P, const struct collective *collective)
{
    return P > 1 && algorithm->refuses != NULL ? algorithm->refuses(P, collective) : NULL;
}

/* Check what only this member knows.  Unless members check calls together, an error ends the job, because the others
 * will wait for this member. */
static enum error_code check_alone(struct group *group, enum operation op,
                                   const struct collective *collective, bool alone, struct error *err)
{
    const enum error_code code = own_arguments_check(op, collective, group, err);
    if (group->comm->checks_calls && group->size > 1) return group_agree(group, code, err);
    if (code != OK && !alone) comm_give_up(group->comm, err);
    return code;
}

/* Run one collective on this member; collective.h states errors and who calls.  Members check the call together,
 * choose the algorithm, expect its cost, and run it. */
enum error_code collective_run(struct group *group, enum operation op, const char *algorithm,
                               const struct collective *asked, struct error *err)
{
    enum error_code code = OK;
    struct collective call = *asked, *const c = &call;
    if (comm_is_idle(group->comm)) return OK;
    call.nodes = group_nodes(group);
    if (group->comm->checks_calls && group->size > 1)
        code = contract_check(group, op, algorithm_find(op, algorithm), c, err);
    if (code == OK) code = algorithm_check(op, operation_name(op), algorithm, err);
    if (code == OK) code = arguments_check(op, c, group->size, err);
    if (code != OK) return code;
    const struct algorithm *a = algorithm_for(group, op, algorithm, c);
    if (a == NULL) return fail(err, ERR_USAGE, "%s has no algorithm", operation_name(op));
    const char *needs = algorithm_refuses(a, group->size, c);
    if (needs != NULL)
        return fail(err, ERR_USAGE, "%s %s needs %s; this group has P=%d", operation_name(op), a->name, needs,
                    group->size);

    struct exchange here = { .group = group, .operation = op };             /* for copies; sends nothing */
    const bool trivial = nothing_to_do(op, c, group->size);
    code = check_alone(group, op, c, trivial, err);
    if (code != OK) return code;
    struct clock *const clock = &group->comm->device->clock;
    const bool in_line = !trivial && sending_in_line(clock);
    if (!trivial) clock_start_collective(clock);
    const picoseconds began = clock->now;
    if (!trivial) recorder_begins(group->comm, group, op);
    if (!trivial && disturbed_hangs(&clock->disturbed, DISTURB_HANG_INSIDE)) comm_hang(group->comm);
    if (trivial || works_in_out(a)) copy_in(&here, c, group->size);
    /* The algorithm must not read `in` any more, since the sum begins from the copy. */
    if (works_in_out(a)) call.in = call.out;
    if (!trivial) call.segment = group_segment(group, a, c);
    /* The expected ledger is entered before the run; a check compares it with the counted one. */
    const struct traffic expected = collective_traffic(a, group, c);
    traffic_add(&group->comm->expected.of[group->kind].of[op], &expected);
    /* Every message now carries a number for the call, so that a member with other arguments is noticed. */
    group->call = contract_number(op, a, c, group->size);
    group->turns = a->turns && a->turns(group->size, c);
    /* Lists have numbers on every backend, so their scratch must have numbers, too. */
    group->lists = !device_holds_zeros(group->comm->device, c->in ? c->in : c->out);
    code = trivial ? OK : a->run(group, c, err);
    if (!trivial) recorder_ends(group->comm);
    group->call = 0, group->turns = group->lists = false;
    if (!trivial) clock_talked(clock, began, cluster_overlap(&clock->cluster, operation_name(op)));
    if (in_line) sending_done(clock);
    /* Other members wait for messages that will not come, so the job has to end. */
    if (code == ERR_COMM) comm_give_up(group->comm, err);
    return code;
}

struct collective_cost collective_cost(const struct algorithm *algorithm, int rank, int P,
                                       const struct collective *collective)
{
    if (nothing_to_do(algorithm->operation, collective, P)) return (struct collective_cost){ 0 };
    return algorithm->cost(rank, P, collective);
}

picoseconds group_time(const struct group *group, enum operation op, const char *name,
                       const struct collective *collective)
{
    struct collective call = *collective;
    if (group->size == 1) return 0;
    call.nodes = group_nodes(group);
    return collective_time(algorithm_for(group, op, name, &call), group->size, &call,
                           &group->comm->device->clock.cluster);
}

enum error_code allreduce(struct group *group, void *x, int64_t count, enum dtype dtype, enum reduction how,
                          const char *algorithm, struct error *err)
{
    const struct collective c = { .in = x, .out = x, .count = count, .dtype = dtype, .reduction = how };
    return collective_run(group, ALLREDUCE, algorithm, &c, err);
}

enum error_code broadcast(struct group *group, void *x, int64_t count, enum dtype dtype, int root, struct error *err)
{
    const struct collective c = { .in = x, .out = x, .count = count, .dtype = dtype, .root = root };
    return collective_run(group, BROADCAST, NULL, &c, err);
}
