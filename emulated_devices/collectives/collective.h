/* collective.h -- collective operations of a group of devices, and the algorithms for them.
 *
 * Each algorithm is one file, OPERATION/ALGORITHM.c; its head comment gives source, needs, steps, cost and a
 * drawing.  With one line in the registry (registry.c) it is listed, chosen by name, tested on every group size,
 * compared with its cost function and timed.  Algorithms send messages only through comm.h.  Files of schemes/,
 * model/, bench/ and other rooms call these functions.
 */
#ifndef ORRERY_COLLECTIVE_H
#define ORRERY_COLLECTIVE_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/interval.h"

/* The nodes of a group.  Nodes are the largest units of the cluster (pair, node) that do not contain the whole group:
 * `devices` consecutive places each, from place 0 on.  devices 0: the group is not on several nodes; algorithms that
 * use nodes then assume P = nodes * q, q the largest divisor of P not above its root (1 for primes), or refuse. */
struct nodes {
    const int *member;                  /* [P] ranks of the members in the whole job; NULL: 0 .. P-1 */
    const int *slot;                    /* of the cluster: the places of all ranks; NULL: rank r is at r */
    int devices;                        /* places of a unit; 0: the group is not on several */
    bool reduces;                       /* all members are at the same level, whose switches add (struct link) */
};

/** The nodes of some devices on a cluster.  @param member  [P] their ranks, not copied; NULL: the first P. */
struct nodes nodes_on(const struct cluster *, const int *member, int P);

/** How many of P members are on each node; not on several nodes: as algorithms assume it then.
 *  @return 0 if members of a node are not side by side, or not as many on each. */
int nodes_even(struct nodes, int P);

/** The nodes of a group on the cluster of its devices' clocks.  Local. */
struct nodes group_nodes(const struct group *);

/* Who has which blocks of a sparse collective.  A block has one owner; the members that hold it are its owner and its
 * targets.  A sparse all-gather sends each block to its targets; a sparse reduce-scatter sums the values of all that
 * hold it at its owner.  So a placement of owners becomes one of holders, and back. */
struct block_placement {
    int64_t blocks;                     /* of the whole vector */
    const int32_t *owner;               /* [blocks] members */
    const bool *held;                   /* [blocks, P] the targets; an owner holds its blocks, whatever this says */
};

/* The arguments of all collectives; unused ones are 0.  P = size of the group, r = rank in it.
 *
 *   operation        in                    out                 count means
 *   broadcast        root: [count]         [count]             elements of the vector; root may have in == out
 *   reduce           [count]               root: [count]       elements of the vector
 *   allreduce        [count]               [count]             elements of the vector
 *   reduce-scatter   [sum of counts]       [counts[r]]         counts[P] blocks, or NULL: count elements cut into P
 *                                                              nearly equal blocks
 *   allgather        [counts[r]]           [sum of counts]     as reduce-scatter
 *   alltoall         [sum of counts]       [sum of recvcounts] counts[P] to send, recvcounts[P] to receive; NULL: count
 *                                                              to and from each
 *   gather           [counts[r]]           root: [sum]         as reduce-scatter
 *   scatter          root: [sum]           [counts[r]]         as reduce-scatter
 *   barrier          -                     -                   -
 *   scan             [count]               [count]             inclusive, or exclusive (rank 0's out does not change)
 *   sparse-allgather [own blocks]          [held blocks]       counts[blocks] of the placement, or NULL: count cut
 *                                                              into as many nearly equal blocks
 *   sparse-reduce-scatter [held blocks]    [own blocks]        likewise
 *
 * In place: in == out where the shapes are equal; for an all-to-all that means counts[i] == recvcounts[i] for every i.
 * For reduce-scatter, allgather, gather and scatter the smaller buffer is this device's block inside the larger one.
 * For the sparse ones the smaller buffer begins at the place of the first own block inside the larger one, and each own
 * block is at its place there.  Each member may choose to be in place or not.  Any other overlap is refused.  The part
 * of `in` outside `out` does not change.
 *
 * Additional scratch in place: only an all-to-all needs some, to save blocks that are overwritten before they are sent:
 * the longest block (pairwise_shift, pairwise_xor) or all of `in` (linear).
 */
struct collective {
    const void *in;                     /* as in the table; only read, unless in place */
    void *out;                          /* as in the table */
    int64_t count;                      /* elements; the table says of what */
    const int64_t *counts, *recvcounts; /* elements of each block; NULL: `count` says them all */
    const struct block_placement *placement;            /* of a sparse collective; NULL: P blocks, a member owns that of
                                         * its number, and all hold all: what allgather and reduce-scatter do */
    enum dtype dtype;                   /* format of the elements */
    enum reduction reduction;           /* of an operation that reduces: sum, product, maximum, minimum */
    int root;                           /* rank in the group, for operations with a root */
    bool exclusive;                     /* of a scan: a member's own vector is left out */
    struct nodes nodes;                 /* collective_run sets it; cost functions read it: group_nodes */
    uint64_t segment;                   /* of pipelined algorithms: bytes of a segment at most; 0: collective_run
                                         * chooses (segment_choose); cost functions read it: group_segment */
};

/* The exact cost of one collective for one device. */
struct collective_cost {
    uint64_t messages, bytes;           /* sent */
    uint64_t additions;                 /* element-wise reductions by this device */
    uint64_t steps;                     /* of the group: rounds in which a device sends and receives at most one
                                         * message; an upper bound if P or count leaves a remainder; 0: not stated */
    uint64_t depth;                     /* of the group: longest chain of messages that depend on the previous one;
                                         * an upper bound likewise; 0: as steps */
    uint64_t met;                       /* the same if every send waits for its receiver (rendezvous), so that
                                         * consecutive segments are a latency apart; an upper bound; 0: as depth */
    uint64_t path;                      /* bytes through this member's ports one after another, including waits for
                                         * others; 0: its average message in each of the steps */
    uint64_t steps_inside, path_inside; /* the parts of steps and path inside nodes; 0: the algorithm ignores nodes */
};

/* The order in which an algorithm adds the members' values of an element. */
enum adding_order {
    ADDS_NOTHING, /* only moves elements */
    BY_RANK,      /* ((x0 + x1) + x2) + ..: the same bits as every other algorithm with this order */
    BY_TREE,      /* another order, the same for all elements */
    BY_POSITION,  /* depends on the element's position: if the vector is cut or packed differently, the bits differ */
};

/* In words, for `orrery list`. */
const char *adding_order_name(enum adding_order);

enum { A_VECTOR_EACH = -1 };

struct algorithm {
    enum operation operation;           /* under whose names it is listed */
    const char *name;                   /* as on the command line */
    const char *description;            /* one line */
    const char *needs;                  /* one line: requirements on group or call; NULL: none */
    const char *source;                 /* paper and DOI, or the system that uses it */
    const char *cost_formula;           /* of a (latencies), b (bytes); "": not known, so auto never takes it */
    enum adding_order order;            /* in what order the members' values are added: decides the rounding */
    int vectors;                        /* scratch that a member takes at most, in vectors: the longest input or output
                                         * of any member; 0: 1; A_VECTOR_EACH: as many as members */
    bool by_nodes;                      /* depends on the nodes of the group */
    bool reads_in;                      /* of an allreduce: it begins from `in`, which need not be copied to `out` */
    /* If it sends a vector in segments (collective.segment): elements of the longest part that it cuts into them.
     * NULL: it sends none. */
    int64_t (*pipelined)(int P, const struct collective *);
    /* NULL: supports every call.  Otherwise it returns NULL if the algorithm supports this call on a group of P, else
     * its requirement ("P even"). */
    const char *(*refuses)(int P, const struct collective *);
    /* Whether in this call, on equally near members that begin at the same time, member r does to member q what member
     * r + 1 does to q + 1 (modulo P), byte by byte: then one of them can stand for all (comm/folding.h).  NULL: no. */
    bool (*turns)(int P, const struct collective *);
    /* Called only by collective_run, which has checked the arguments, handled P = 1 and empty calls, and copied in to
     * out for algorithms that work in out (broadcast; allreduce, unless reads_in). */
    enum error_code (*run)(struct group *, const struct collective *, struct error *);
    /* Called only by collective_cost: P > 1 and the call is not empty. */
    struct collective_cost (*cost)(int rank, int P, const struct collective *);
};

/* Ends with NULL; those of an operation stand together, and the first is its default. */
enum { ALGORITHMS_MOST = 128 };
extern const struct algorithm *algorithms[ALGORITHMS_MOST];

/** Add one to the list, as the last of its operation: before any group runs a collective, and in the same order on
 *  every device.  It must live as long as the program.
 *  @return OK; ERR_FORMAT: it lacks something, or the name is taken; ERR_MEMORY: the list is full. */
enum error_code algorithm_add(const struct algorithm *, struct error *);

/** The algorithm with this name for an operation, or NULL; name NULL: the default. */
const struct algorithm *algorithm_find(enum operation, const char *name);

/** Elements of `in` and of `out` on member `rank` of P, by the table above. */
void collective_extents(enum operation, const struct collective *, int rank, int P, int64_t *in, int64_t *out);

/** The requirement of an algorithm that this call on a group of P does not meet, in words; NULL: call supported. */
const char *algorithm_refuses(const struct algorithm *, int P, const struct collective *);

/* ---- attempt.c: calls without numbers ---------------------------------------------------------------------------- */

enum { ATTEMPT_MOST_DEVICES = 64, ATTEMPT_MOST_MESSAGES = 100000 };

/** Whether a call can be tried: it has few enough devices, and the algorithm sends few enough messages. */
bool attempt_is_cheap(const struct algorithm *, int P, const struct collective *);

/**
 * The time of a call by running it, in this process and without numbers, on P devices that start together.
 * @param collective  with the nodes of the group, and the segment of a pipelined algorithm (segment_choose); in and
 *           out are not read.
 * @param cluster  a cluster that is the same for all members.
 * @return when the last device is done, by the clock; negative if it could not be run.
 */
picoseconds attempt_time(const struct algorithm *, int P, const struct collective *collective,
                         const struct cluster *cluster);

/* ---- segments.c: how finely a pipeline is cut -------------------------------------------------------------------- */

/**
 * Bytes of the segments of a pipelined algorithm: of all lengths, the longest whose time on this cluster is within
 * about a hundredth of the least.  Up to 64 devices calls without numbers decide, as in algorithm_choose; beyond, and
 * for very many messages, collective_time.  Every member gets the same result.
 * @param collective  as of algorithm_choose; if it has a segment already, that is the result.
 * @return 0 for an algorithm that sends no segments.
 */
uint64_t segment_choose(const struct algorithm *, int P, const struct collective *collective, const struct cluster *);

/** The segment that collective_run uses for this call on this group. */
uint64_t group_segment(const struct group *, const struct algorithm *, const struct collective *);

/* ---- auto.c: choosing by virtual time ---------------------------------------------------------------------------- */

#define ALGORITHM_AUTO "auto"                           /* the name that stands for algorithm_choose */

/** The predicted time of a collective on the members of c->nodes, or the first P devices, of a cluster: latencies,
 *  ports and additions of the slowest member (auto.c). */
picoseconds collective_time(const struct algorithm *, int P, const struct collective *, const struct cluster *);

/**
 * The algorithm with the least time among those that support this call; of equals the first in the registry.  Up to 64
 * devices each is run once without numbers; beyond, and for very many messages, collective_time predicts.
 * Every member gets the same result.
 * @param collective  in and out are not read; counts are, if the operation has them.
 * @return never NULL: every operation has an algorithm that supports every call.
 */
const struct algorithm *algorithm_choose(enum operation, int P, const struct collective *collective,
                                         const struct cluster *);

/** The algorithm that collective_run uses for this name and call: one of the registry; NULL: the default; "auto":
 *  chosen by the links between the members.  @return NULL if there is no such name. */
const struct algorithm *algorithm_for(const struct group *, enum operation, const char *name,
                                      const struct collective *);

/** Check that a name is registered, "auto" or NULL; `flag`, such as "--allreduce", names its origin in the message.
 *  @return OK, or ERR_USAGE with the nearest name. */
enum error_code algorithm_check(enum operation, const char *flag, const char *name, struct error *);

/** The cost of this collective for member `rank` of P; all zero if nothing has to be sent.  c->in and c->out are not
 *  read. */
struct collective_cost collective_cost(const struct algorithm *, int rank, int P, const struct collective *);

/**
 * What this device sends and adds in a collective that collective_run would run under this name.  Local.
 * Totals come from the algorithm's cost function, and so do levels if all members are equally near.  Otherwise levels
 * come from a rehearsal: the algorithm runs, and its messages are recorded instead of sent.
 */
struct account group_cost(const struct group *, enum operation, const char *name, const struct collective *);

/** The traffic of a given algorithm for a call whose nodes are set. */
struct traffic collective_traffic(const struct algorithm *, const struct group *, const struct collective *);

/** Add the cost to the expected ledger: for a scheme that implements a collective itself.  collective_run does this for
 *  its own calls. */
void collective_expect(const struct group *, enum operation, const char *name, const struct collective *);

/** The predicted time of this collective on the group's cluster if all members start together.  Local. */
picoseconds group_time(const struct group *, enum operation, const char *name, const struct collective *);

/**
 * Run one collective with a named algorithm; NULL: the default; "auto": the one with the least time.
 *
 * Collective over the group: all members call it with the same operation, counts, dtype and reduction.  A member that
 * receives a message of a different call does not use its data; it ends the job with one line.
 * @return OK, or the same error on every member, with the data unchanged: ERR_USAGE for an unknown name, a refused
 *         group or bad arguments; ERR_MEMORY if a member has no memory for its scratch.  A message that cannot be sent,
 *         or has another length than expected, ends the job with one line, because other members already wait.  So do
 *         errors that only this member can see (a NULL buffer, overlapping buffers, counts of an all-to-all), unless
 *         calls are checked (ORRERY_CHECK_CALLS): then every member returns ERR_USAGE.
 * Rounding: the order of additions is the algorithm's (enum adding_order) and never depends on timing.  All members of
 *         an allreduce get the same bits.  The defaults of allreduce and reduce-scatter add in the order of ranks.
 */
enum error_code collective_run(struct group *, enum operation, const char *algorithm, const struct collective *,
                               struct error *);

/* The common cases, in place. */
enum error_code allreduce(struct group *, void *x, int64_t count, enum dtype, enum reduction, const char *algorithm,
                          struct error *);
enum error_code broadcast(struct group *, void *x, int64_t count, enum dtype, int root, struct error *);

#endif
