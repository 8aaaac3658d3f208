/* collective.h -- operations among the devices of a group, and the algorithms for them.
 *
 * One algorithm is one file, named operation_algorithm.c, whose header is the lecture: source, needs, steps, cost, a
 * drawing.  One line in the registry (registry.c) makes it listed, chosen by name, verified on every group size, held
 * to its cost function and timed.  Algorithms talk through comm.h only.
 */
#ifndef ORRERY_COLLECTIVE_H
#define ORRERY_COLLECTIVE_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/interval.h"

/* Which members of a group share a node.  Nodes are the largest units of the cluster (pair, node) that do not hold the
 * whole group: so many ranks each, from rank 0 on.  devices 0: the group is not on several nodes; algorithms that are
 * shaped by nodes then take P = nodes * q, q the largest divisor of P not above its root (1 for primes), or refuse. */
struct nodes {
    const int *member;                  /* [P] ranks of the members; NULL: 0 .. P-1 */
    int devices;
};

/** The nodes of some devices on a cluster.  @param member  [P] their ranks, kept; NULL: the first P. */
struct nodes nodes_on(const struct cluster *, const int *member, int P);

/** The nodes of a group on the cluster that its devices' clocks know.  Local. */
struct nodes group_nodes(const struct group *);

/* The arguments of any collective; those an operation does not use are 0.  P = size of the group, r = rank within it.
 *
 *   operation        in                    out                 count means
 *   broadcast        root: [count]         [count]             elements of the vector; root may have in == out
 *   reduce           [count]               root: [count]       elements of the vector
 *   allreduce        [count]               [count]             elements of the vector
 *   reduce-scatter   [sum of counts]       [counts[r]]         counts[P] blocks, or NULL: count elements cut into P
 *   nearly equal blocks allgather        [counts[r]]           [sum of counts]     as above
 *   alltoall         [sum of sendcounts]   [sum of recvcounts] counts[P] to send, recvcounts[P] to receive; NULL: count
 *   to and from each gather           [counts[r]]           root: [sum]         as reduce-scatter
 *   scatter          root: [sum]           [counts[r]]         as reduce-scatter
 *   barrier          -                     -                   -
 *   scan             [count]               [count]             inclusive, or exclusive (rank 0's out is left as it was)
 *
 * In place: in == out where the shapes are equal, which for an all-to-all means counts[i] == recvcounts[i] for every i;
 * for reduce-scatter, allgather, gather and scatter in or out is this device's block inside the other one.  Each member
 * is free to be in place or not.  Any other overlap is refused.  What of `in` is not covered by `out` stays as it was.
 *
 * Scratch that an algorithm takes in place and else does not: an all-to-all keeps blocks that are overwritten before
 * they are sent, the longest one (pairwise_shift, pairwise_xor) or all of `in` (linear).  Nothing in all other cases.
 */
struct collective {
    const void *in;
    void *out;
    int64_t count;
    const int64_t *counts, *recvcounts;
    enum dtype dtype;
    enum reduction reduction;
    int root;
    bool exclusive;
    struct nodes nodes;                 /* collective_run sets it; cost functions read it: group_nodes */
};

/* What one device spends on one collective, exactly. */
struct collective_cost {
    uint64_t messages, bytes;           /* sent */
    uint64_t additions;
    uint64_t steps; /* of the whole group: rounds in which a device sends and receives at most one message each;
                                           an upper bound where P or count leave a remainder; 0: not stated */
    uint64_t depth; /* of the whole group: the longest chain of messages of which each waits for the one before,
                                           an upper bound likewise; 0: as many as steps */
    uint64_t met;   /* the same, where every message waits for its receiver (rendezvous): then segments that follow one
                                           another do so a latency apart; an upper bound likewise; 0: as depth */
    uint64_t path;  /* bytes that pass this member's ports one after another, waiting for others included;
                                           0: as if it sent its average message in each of the steps */
    uint64_t steps_inside, path_inside; /* of these, those inside nodes; 0 for algorithms that know no nodes */
};

/* In which order an algorithm adds up what the members have of an element. */
enum adding_order {
    ADDS_NOTHING, /* it only moves elements */
    BY_RANK,      /* ((x0 + x1) + x2) + ..: the same bits as every other algorithm of this order */
    BY_TREE,      /* another order, but the same for all elements */
    BY_POSITION,  /* depends on where an element lies in the vector: a vector that is cut or packed in another way
                                           has other bits */
};

/* In words, for the list. */
const char *adding_order_name(enum adding_order);

struct algorithm {
    enum operation operation;
    const char *name;                   /* as typed */
    const char *description;            /* one line */
    const char *needs;                  /* one line: of the group or the call; NULL: nothing, it takes everything */
    const char *source;                 /* paper and DOI, or the system that has it */
    const char *cost_formula;           /* symbolic: a (latencies), b (bytes), for the list */
    enum adding_order order;
    bool by_nodes;                      /* its shape follows the nodes that the group is on */
    /* NULL: takes everything.  Otherwise: NULL if it takes a group of P and this call, or what it
     * needs, in words ("P even"). */
    const char *(*refuses)(int P, const struct collective *);
    /* Called through collective_run only, which has checked the arguments, dealt with P = 1 and with nothing to do,
     * and, where the algorithm works in out (broadcast, allreduce), copied in to out. */
    enum error_code (*run)(struct group *, const struct collective *, struct error *);
    /* Called through collective_cost only: P > 1 and there is something to do. */
    struct collective_cost (*cost)(int rank, int P, const struct collective *);
};

extern const struct algorithm *const algorithms[];      /* ends with NULL; the first of an operation is its default */

/** The algorithm of this name for an operation, or NULL; name NULL: the default. */
const struct algorithm *algorithm_find(enum operation, const char *name);

/** Elements that member `rank` of P has in `in` and in `out`, by the table above. */
void collective_extents(enum operation, const struct collective *, int rank, int P, int64_t *in, int64_t *out);

/** What an algorithm needs that this call on a group of P does not have, in words; NULL if it takes the call. */
const char *algorithm_refuses(const struct algorithm *, int P, const struct collective *);

/* ---- auto.c: choosing by predicted time -------------------------------------------------------------------------- */

#define ALGORITHM_AUTO "auto"                           /* the name that stands for algorithm_choose */

/** Time that a collective is predicted to take on the members of c->nodes, or the first P devices, of a cluster:
 *  latencies, ports and additions of the slowest member (auto.c). */
picoseconds collective_time(const struct algorithm *, int P, const struct collective *, const struct cluster *);

/**
 * The algorithm with the least predicted time among those that take this call.
 * Pure: every member finds the same.  Of equals, the first in the registry.
 * @param c  in and out are not read; counts, if the operation has them, are.
 * @return never NULL for an operation with an algorithm that takes everything, which all have.
 */
const struct algorithm *algorithm_choose(enum operation, int P, const struct collective *c, const struct cluster *);

/** The algorithm that collective_run uses under this name for this call: one of the registry, its default for NULL, or
 *  the choice for "auto" by the links between the members.  @return NULL if there is no such name. */
const struct algorithm *algorithm_for(const struct group *, enum operation, const char *name,
                                      const struct collective *);

/** Whether a name is one: registered, "auto" or NULL.  @param flag  what gave it: "--allreduce".
 *  @return OK, or ERR_USAGE naming the nearest. */
enum error_code algorithm_check(enum operation, const char *flag, const char *name, struct error *);

/** What member `rank` of P spends on this collective; all zero where nothing need be sent.
 * c->in and c->out are not read. */
struct collective_cost collective_cost(const struct algorithm *, int rank, int P, const struct collective *);

/**
 * What this device sends and adds in a collective that collective_run would run under this name.  Local.
 * Totals are the algorithm's cost function.  So are levels where all members are equally near; elsewhere they are those
 * of a rehearsal: the algorithm runs, and what it would send is written down instead.
 */
struct account group_cost(const struct group *, enum operation, const char *name, const struct collective *);

/** The same of one algorithm, for a call whose nodes are set. */
struct traffic collective_traffic(const struct algorithm *, const struct group *, const struct collective *);

/** Enter it as expected: for a scheme that does what an algorithm does, but does it itself.
 * collective_run enters its own calls. */
void collective_expect(const struct group *, enum operation, const char *name, const struct collective *);

/** The time that this collective is predicted to take on the group's cluster, when its members begin together.
 * Local. */
picoseconds group_time(const struct group *, enum operation, const char *name, const struct collective *);

/**
 * Run one collective with a named algorithm, the default for NULL, or for "auto" the one with the least predicted time.
 *
 * Collective over the group: all members call it with the same operation, counts, dtype and reduction.  A member that
 * gets a message of one that was called otherwise ends the job, with one line, and takes nothing for its own that is
 * not.
 * @return OK, or on every member the same: ERR_USAGE for an unknown name, a refused group or bad arguments (data
 *         untouched); ERR_MEMORY if a member has no room for its scratch (data untouched).  A message that cannot be
 *         sent or that has another length than its receiver expects ends the job, with one line: others are waiting
 *         already.  So does what only this member can know to be wrong (a buffer that is NULL, buffers that overlap,
 *         counts of an all-to-all), unless calls are checked (ORRERY_CHECK_CALLS): then it is ERR_USAGE on every
 *         member.
 * Rounding: the order of additions is the algorithm's (enum adding_order) and never depends on timing; all members of
 * an allreduce end
 *         with the same bits.  The defaults of allreduce and reduce-scatter add in the order of ranks.
 */
enum error_code collective_run(struct group *, enum operation, const char *algorithm, const struct collective *,
                               struct error *);

/* The common cases, in place. */
enum error_code allreduce(struct group *, void *x, int64_t count, enum dtype, enum reduction, const char *algorithm,
                          struct error *);
enum error_code broadcast(struct group *, void *x, int64_t count, enum dtype, int root, struct error *);

#endif
