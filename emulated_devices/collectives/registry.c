/* registry.c -- the list of algorithms, and the functions that run them. */
#include "emulated_devices/collectives/algorithm.h"
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
    X(allreduce_one_shot) X(allreduce_two_level) X(allreduce_torus_2d) \
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

static const char *lacks(const struct algorithm *a)
{
    if (!a->name || !a->name[0]) return "a name";
    if (strcmp(a->name, ALGORITHM_AUTO) == 0) return "a name other than " ALGORITHM_AUTO;
    if (!a->description || !a->source || !a->cost_formula) return "a description, a source and a cost_formula";
    return !a->run ? "a function run" : !a->cost ? "a function cost" : NULL;
}

/* Those of an operation stand together. */
enum error_code algorithm_add(const struct algorithm *a, struct error *err)
{
    const char *missing = a->operation < OPERATION_COUNT ? lacks(a) : "an operation";
    int count = 0, after = 0;
    if (missing) return fail(err, ERR_FORMAT, "an algorithm %s: needs %s", a->name ? a->name : "", missing);
    if (algorithm_find(a->operation, a->name))
        return fail(err, ERR_FORMAT, "%s %s: there is an algorithm of this name", operation_name(a->operation),
                    a->name);
    for (; algorithms[count]; count++)
        if (algorithms[count]->operation == a->operation) after = count + 1;
    if (count + 1 >= ALGORITHMS_MOST)
        return fail(err, ERR_MEMORY, "%s %s: there are %d algorithms, the most that there can be",
                    operation_name(a->operation), a->name, count);
    memmove(&algorithms[after + 1], &algorithms[after], (size_t)(count - after) * sizeof *algorithms);
    algorithms[after] = a;
    return OK;
}

const struct algorithm *algorithm_find(enum operation op, const char *name)
{
    for (int i = 0; algorithms[i] != NULL; i++)
        if (algorithms[i]->operation == op && (name == NULL || strcmp(algorithms[i]->name, name) == 0))
            return algorithms[i];
    return NULL;
}

const char *adding_order_name(enum adding_order o)
{
    static const char *const name[] = { "nothing", "in the order of ranks, every element alike",
                                        "in the order of a tree, every element alike",
                                        "in an order that depends on an element's place" };
    return name[o];
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Whether no member has anything to send; the same result on every member. */
static bool nothing_to_do(enum operation op, const struct collective *c, int P)
{
    if (P == 1) return true;
    if (op == BARRIER || (op == ALLTOALL && c->counts != NULL)) return false;
    if (operation_is_sparse(op)) return c->counts == NULL && c->count == 0;
    return operation_has_blocks(op) ? block_total(c, P) == 0 : c->count == 0;
}

static bool works_in_out(const struct algorithm *a)
{
    return a->operation == BROADCAST || (a->operation == ALLREDUCE && !a->reads_in);
}

/* Copy elements that need no message: all in a group of one, and in to out for algorithms that work in out. */
static void copy_in(struct exchange *x, const struct collective *c, int P)
{
    int64_t in, out;
    const int r = x->group->rank;
    if (x->operation == BROADCAST && r != c->root) return;
    collective_extents(x->operation, c, r, P, &in, &out);
    copy_elements(x, c, c->out, c->in, in < out ? in : out);
}

const char *algorithm_refuses(const struct algorithm *a, int P, const struct collective *c)
{
    return P > 1 && a->refuses != NULL ? a->refuses(P, c) : NULL;
}

/* Check what only this member knows.  Unless members check calls together, an error ends the job, because the others
 * will wait for this member. */
static enum error_code check_alone(struct group *g, enum operation op, const struct collective *c, bool alone,
                                   struct error *err)
{
    const enum error_code code = own_arguments_check(op, c, g, err);
    if (g->comm->checks_calls && g->size > 1) return group_agree(g, code, err);
    if (code != OK && !alone) comm_give_up(g->comm, err);
    return code;
}

enum error_code collective_run(struct group *g, enum operation op, const char *algorithm,
                               const struct collective *asked, struct error *err)
{
    enum error_code code = OK;
    struct collective call = *asked, *const c = &call;
    call.nodes = group_nodes(g);
    if (g->comm->checks_calls && g->size > 1) code = contract_check(g, op, algorithm_find(op, algorithm), c, err);
    if (code == OK) code = algorithm_check(op, operation_name(op), algorithm, err);
    if (code == OK) code = arguments_check(op, c, g->size, err);
    if (code != OK) return code;
    const struct algorithm *a = algorithm_for(g, op, algorithm, c);
    if (a == NULL) return fail(err, ERR_USAGE, "%s has no algorithm", operation_name(op));
    const char *needs = algorithm_refuses(a, g->size, c);
    if (needs != NULL)
        return fail(err, ERR_USAGE, "%s %s needs %s; this group has P=%d", operation_name(op), a->name, needs, g->size);

    struct exchange here = { .group = g, .operation = op };             /* for copies; sends nothing */
    const bool trivial = nothing_to_do(op, c, g->size);
    code = check_alone(g, op, c, trivial, err);
    if (code != OK) return code;
    const bool in_line = !trivial && sending_in_line(&g->comm->device->clock);
    if (trivial || works_in_out(a)) copy_in(&here, c, g->size);
    if (works_in_out(a)) call.in = call.out;
    if (!trivial) call.segment = group_segment(g, a, c);
    const struct traffic expected = collective_traffic(a, g, c);
    traffic_add(&g->comm->expected.of[g->kind].of[op], &expected);
    g->call = contract_number(op, a, c, g->size);
    g->turns = a->turns && a->turns(g->size, c);
    g->lists = !device_holds_zeros(g->comm->device, c->in ? c->in : c->out);
    code = trivial ? OK : a->run(g, c, err);
    g->call = 0, g->turns = g->lists = false;
    if (in_line) sending_done(&g->comm->device->clock);
    if (code == ERR_COMM) comm_give_up(g->comm, err);
    return code;
}

struct collective_cost collective_cost(const struct algorithm *a, int rank, int P, const struct collective *c)
{
    if (nothing_to_do(a->operation, c, P)) return (struct collective_cost){ 0 };
    return a->cost(rank, P, c);
}

picoseconds group_time(const struct group *g, enum operation op, const char *name, const struct collective *c)
{
    struct collective call = *c;
    if (g->size == 1) return 0;
    call.nodes = group_nodes(g);
    return collective_time(algorithm_for(g, op, name, &call), g->size, &call, &g->comm->device->clock.cluster);
}

enum error_code allreduce(struct group *g, void *x, int64_t count, enum dtype t, enum reduction how,
                          const char *algorithm, struct error *err)
{
    const struct collective c = { .in = x, .out = x, .count = count, .dtype = t, .reduction = how };
    return collective_run(g, ALLREDUCE, algorithm, &c, err);
}

enum error_code broadcast(struct group *g, void *x, int64_t count, enum dtype t, int root, struct error *err)
{
    const struct collective c = { .in = x, .out = x, .count = count, .dtype = t, .root = root };
    return collective_run(g, BROADCAST, NULL, &c, err);
}
