/* algorithm.h -- shared by the files of this folder.  Private; users include collective.h.
 *
 * A new algorithm includes this header, and calls the steps that several algorithms share.  Functions that send
 * return ERR_COMM; scratch_agreed returns ERR_MEMORY on every member.  Files of collectives/ and the plug-ins of
 * tutorials/plugins/ call these functions.
 */
#ifndef ORRERY_ALGORITHM_H
#define ORRERY_ALGORITHM_H

#include "emulated_devices/collectives/collective.h"

/* ---- elements and bytes ------------------------------------------------------------------------------------------ */

static inline uint64_t bytes_of(const struct collective *collective, int64_t elements)
{
    return (uint64_t)elements * dtype_size(collective->dtype);
}

/* Element i of an array in the collective's format. */
static inline void *element(const struct collective *collective, void *array, int64_t i)
{
    return (char *)array + bytes_of(collective, i);
}

static inline const void *const_element(const struct collective *collective, const void *array, int64_t i)
{
    return (const char *)array + bytes_of(collective, i);
}

/* dst = src, if they differ; charged to the device's memory. */
void copy_elements(struct exchange *, const struct collective *, void *dst, const void *src, int64_t elements);

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static inline int imod(int i, int P) { return (i % P + P) % P; }

/* Start and length of block b (mod P), in elements: from counts[] if given, else count cut into nearly equal parts.
 * For operations with blocks: see the table in collective.h. */
int64_t block_first(const struct collective *, int P, int b);
int64_t block_length(const struct collective *, int P, int b);
int64_t block_longest(const struct collective *, int P);
/* Elements of all blocks: count, or the sum of counts. */
int64_t block_total(const struct collective *, int P);

/* Length of block b when the vector of an operation without counts (broadcast, allreduce) is cut into P blocks. */
static inline int64_t part_length(int64_t count, int P, int b)
{
    b = imod(b, P);
    return block_at(count, P, b).count;
}

/* Every stride-th block: first, first + stride, .. (mod P), count of them.  A message with several blocks has them in
 * this order. */
struct comb { int first, stride, count; };

int64_t comb_length(const struct collective *, int P, struct comb);
/* Copy between an array of all blocks and a packed array. */
void comb_pack(struct exchange *, const struct collective *, struct comb, void *packed, const void *blocks);
void comb_unpack(struct exchange *, const struct collective *, struct comb, void *blocks, const void *packed);
/* blocks (op)= packed */
void comb_reduce(struct exchange *, const struct collective *, struct comb, void *blocks, const void *packed);

/* Block b within an array of all blocks. */
static inline void *block(const struct collective *collective, void *blocks, int P, int b)
{
    return element(collective, blocks, block_first(collective, P, b));
}
static inline const void *const_block(const struct collective *collective, const void *blocks, int P, int b)
{
    return const_element(collective, blocks, block_first(collective, P, b));
}

/* For .turns: whatever the call; if all blocks are equal; if the vector is cut into equal parts. */
bool turns_always(int P, const struct collective *);
bool turns_with_equal_blocks(int P, const struct collective *);
bool turns_with_equal_parts(int P, const struct collective *);

/* All-to-all: say whether each member sends as much to each, by what this one sends and gets. */
bool turns_with_equal_counts(int P, const struct collective *);

/* Send some elements to one member, and add others from another member to `into`, where that lies apart from what is
 * sent.  to: -1: nothing is sent.  scratch: for n elements. */
static inline enum error_code send_and_add(struct exchange *exchange, const struct collective *collective, int to,
                                           const void *give,
                                           int64_t giving, int from, void *scratch, void *into, int64_t n,
                                           struct error *err)
{
    return exchange_reduce(exchange, to, give, bytes_of(collective, giving), from, scratch, collective->reduction,
                           collective->dtype, into, n, err);
}
static inline enum error_code add_from(struct exchange *exchange, const struct collective *collective, int from,
                                       void *scratch, void *into, int64_t n, struct error *err)
{
    return send_and_add(exchange, collective, -1, NULL, 0, from, scratch, into, n, err);
}

/* For member `me` of P, whose messages are m[2k-2], to be looked at, from k members before it, and m[2k-1] to others,
 * for k = 1 .. P-1: wait for all, and add the n elements from each, and its own, in the order of members.
 * blocks: for P times n elements, as received; to: the sum, which nobody reads before, unless it is `own`. */
enum error_code add_in_order(struct exchange *, const struct collective *, int me, int P, struct message *message,
                             const void *own, void *blocks, void *to, int64_t n, struct error *);

/* Wait for all messages; returns the first error. */
enum error_code wait_all(struct exchange *, struct message *, int number, struct error *);

/* ---- scratch ----------------------------------------------------------------------------------------------------- */

/**
 * Scratch for an algorithm on every member, or ERR_MEMORY on every member (for small calls, the job ends).
 * Collective over the group: every member calls it with the number of elements that it needs, also if that is 0.
 */
enum error_code scratch_agreed(struct exchange *, const struct collective *, int64_t elements, void **scratch,
                               struct error *);

/* A few bytes of host memory, counted as scratch.  Never NULL: without memory the job ends. */
void *exchange_small(struct exchange *, uint64_t bytes);
void exchange_small_end(struct exchange *, void *);
static inline struct message *message_list(struct exchange *exchange, int number)
{
    return exchange_small(exchange, sizeof(struct message) * (uint64_t)number);
}

/* ---- arguments (arguments.c) ------------------------------------------------------------------------------------- */

/* Whether count, or counts, mean blocks of one vector, one a member; or blocks of a placement. */
bool operation_has_blocks(enum operation);
bool operation_is_sparse(enum operation);

/* Check the arguments that are equal on all members; check those that only this member knows: its buffers and the
 * counts of an all-to-all.  OK or ERR_USAGE. */
enum error_code arguments_check(enum operation, const struct collective *, int P, struct error *);
enum error_code own_arguments_check(enum operation, const struct collective *, const struct group *, struct error *);

/* A hash of the arguments that must be equal on all members. */
uint64_t contract_number(enum operation, const struct algorithm *, const struct collective *, int P);

/* Check that all members make the same call.  Every member returns the same error, which names what differs and on
 * which devices.  Collective; counted as CONTROL. */
enum error_code contract_check(struct group *, enum operation, const struct algorithm *, const struct collective *,
                               struct error *);

/* ---- choosing (auto.c) ------------------------------------------------------------------------------------------- */

/* The cluster as all members see it, whatever part of its rates they have themselves. */
struct cluster cluster_for_all(const struct cluster *);

/* A hash of all that a choice depends on: the call and the costs of the cluster.  c: with the nodes of the group. */
uint64_t call_key(enum operation, int P, const struct collective *collective, const struct cluster *);

/* ---- alltoall ---------------------------------------------------------------------------------------------------- */

/* Elements for device d and from device s, and their addresses. */
static inline int64_t given_to(const struct collective *collective, int d)
{
    return collective->counts != NULL ? collective->counts[d] : collective->count;
}
static inline int64_t taken_from(const struct collective *collective, int s)
{
    return collective->recvcounts != NULL ? collective->recvcounts[s] : collective->count;
}
const void *algorithm_given(const struct collective *, int d);
void *algorithm_taken(const struct collective *, int s);
void keep_own(struct exchange *, const struct collective *);           /* copies this device's block from in to out */
/* In place, the block from a device overwrites the block for it: the latter must be sent or saved before the former is
 * received.  Returns the longest block that may have to be saved; 0 if in and out are separate. */
int64_t longest_to_keep(const struct collective *, int rank, int P);
/* The block for device d, which will be sent after its place is overwritten: in place a copy in `keep`, else itself. */
const void *algorithm_kept(struct exchange *, const struct collective *, int d, void *keep);
/* For algorithms that forward blocks whose lengths only other devices know. */
const char *needs_equal_counts(int P, const struct collective *);

/* ---- costs ------------------------------------------------------------------------------------------------------- */

static inline void cost_send(struct collective_cost *cost, const struct collective *collective, int64_t elements)
{
    cost->messages++;
    cost->bytes += bytes_of(collective, elements);
}

static inline int ceil_log2(int P)
{
    int bits = 0;
    while (1 << bits < P) bits++;
    return bits;
}

/* ---- folding onto a power of two (powers.c) ----------------------------------------------------------------------
 *
 * Folding makes algorithms for powers of two work for any P.  Of the first 2*rest members, each even one sends its
 * vector to the odd one after it, which works for both.  The odd ones and all other members are the core.
 *
 *   P = 6: core of 4, rest 2      member  0 -> 1   2 -> 3   4   5
 *                                 core         0        1   2   3
 */
struct fold { int core, rest, me; };            /* core: its size; me: this member's number in the core, or -1 */

struct fold fold_of(int rank, int P);
/* The member that is number i of the core. */
static inline int fold_member(struct fold fold, int i) { return i < fold.rest ? 2 * i + 1 : i + fold.rest; }
/* fold_in: even members send their vectors, odd members add them.  fold_out: even members get the finished vector. */
enum error_code fold_in(struct exchange *, const struct collective *, struct fold, void *x, void *scratch,
                        struct error *);
enum error_code fold_out(struct exchange *, const struct collective *, struct fold, void *x, struct error *);
void fold_cost(struct collective_cost *, const struct collective *, struct fold, int64_t n);
/* Set the path at the end of a cost function: all bytes sent; for a member that works for two, also the n elements that
 * it receives first. */
void fold_path(struct collective_cost *, const struct collective *, struct fold, int64_t n);

/* A vector cut into one part per core member: equal parts (P = 0), or the blocks of the members that it works for. */
struct cut { int P; struct fold f; };

int64_t cut_edge(const struct collective *, struct cut, int part);         /* start of a part; part = core: the end */
/* Recursive halving: afterwards part i of x on core member i is the sum.  scratch: half of x plus one part. */
enum error_code halving_reduce_scatter(struct exchange *, const struct collective *, struct cut, void *x, void *scratch,
                                       struct error *);
/* Recursive doubling: core member i starts with part i; afterwards all core members have all parts. */
enum error_code doubling_allgather(struct exchange *, const struct collective *, struct cut, void *x, struct error *);
void halving_cost(struct collective_cost *, const struct collective *, struct cut, bool reduces);
int64_t halving_scratch(const struct collective *, struct cut);

/* ---- circulant graphs: in round k a device exchanges messages at distance skip[k] (circulant.c) --------------------
 *
 * skip[rounds] = P, and each skip is half of the next one, rounded up, down to skip[0] = 1.
 * Source: J. L. Traeff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv:2410.14234.
 */
/* Distances of the rounds, ascending: skip[0] = 1, skip[rounds] = P. */
struct skips { int rounds, skip[32]; };

struct skips circulant_skips(int P);

/* ---- rows: some members at equal distances (rows.c) -------------------------------------------------------------- */

/* Member i of the row is member first + i*stride of the group, or member[i] if there is a list. */
struct row { int size, me, first, stride; const int *member; };

static inline int row_member(struct row row, int i)
{
    i = imod(i, row.size);
    return row.member != NULL ? row.member[i] : row.first + i * row.stride;
}

/* Rings over a row, on n elements of x cut into w.size blocks.  Reduce-scatter: afterwards member i has the finished
 * block i+1.  Allgather: starts from that; afterwards all members have all blocks. */
enum error_code ring_reduce_scatter(struct exchange *, const struct collective *, struct row, void *x, int64_t n,
                                    void *scratch, struct error *);
enum error_code ring_allgather(struct exchange *, const struct collective *, struct row, void *x, int64_t n,
                               struct error *);
void ring_cost(struct collective_cost *, const struct collective *, struct row, int64_t n, bool reduces);

/* Every member sends its whole x to the others of the row; all add in the row order.  scratch: w.size * n elements. */
enum error_code everybody_adds(struct exchange *, const struct collective *, struct row, void *x, int64_t n,
                               void *scratch, struct error *);
void everybody_cost(struct collective_cost *, const struct collective *, struct row, int64_t n);

/* ---- nodes (nodes.c) ---------------------------------------------------------------------------------------------
 *
 * The nodes of c->nodes; if the group is not on several nodes, it is divided as if it were.  Members of a node have
 * consecutive ranks: needs_nodes and needs_even_nodes check that.
 */

/* The lowest level of the cluster that contains all members, and the nodes below it. */
struct span { int outer; struct nodes nodes; };
struct span span_on(const struct cluster *, const int *member, int P);

/* Member m's node: its first member, and the one after its last.  Number of nodes; members of the largest node. */
int node_first(const struct collective *, int P, int m);
int node_end(const struct collective *, int P, int m);
int node_count(const struct collective *, int P);
int largest_node(const struct collective *, int P);
/* First members of all nodes, then P; for exchange_release. */
int *node_edges(struct exchange *, const struct collective *);

/* The members of this member's node. */
struct row row_in_node(const struct collective *, int rank, int P);
/* The members with the same place in every node; all nodes must have equally many members. */
struct row row_of_nodes(const struct collective *, int rank, int P);
/* The first member of every node; .me: this member's node.  edge: node_edges, or NULL if only size and me are used. */
struct row row_of_leaders(const struct collective *, int rank, int P, const int *edge);

/* For .refuses: requires several nodes; requires equally many members per node, if there are several nodes. */
#define NODES_NEEDED "a group on several nodes of the cluster"
#define EVEN_NODES_NEEDED "as many members on every node of the cluster"
const char *needs_nodes(int P, const struct collective *);
const char *needs_even_nodes(int P, const struct collective *);

/* ---- trees (trees.c) --------------------------------------------------------------------------------------------- */

enum { SEGMENT_BYTES = 32768 };                 /* of a cost that is asked for without a cluster, so without a choice */

struct tree { int parent, children, child[2]; };    /* members of the group; parent -1: the root */

struct tree tree_chain(int rank, int P, int root);
/* Two binary trees on members 0..P-1: (nearly) every leaf of one is an inner member of the other.  which: 0 or 1. */
struct tree tree_double(int rank, int P, int which);
int tree_double_root(int P, int which);
int tree_double_depth(int rank, int P, int which);      /* steps from the root */
int tree_double_levels(int P);                          /* the largest depth */

/* A vector, or part of one, sent along a tree in segments.  Sends overlap with the receive of the next segment. */
struct flow {
    struct tree tree;                           /* this member's parent and children */
    char *data;                                 /* the part of the vector, in place */
    int64_t n;                                  /* elements */
    struct message up, down[2];                 /* the last sends; slot -2: none */
    int up_segment;                             /* segment of `up` */
};
struct flow flow_open(struct tree, void *data, int64_t n);
int flow_segments(const struct collective *, int64_t n);
int64_t flow_of_vector(int P, const struct collective *);       /* for .pipelined: all of it; half of it */
int64_t flow_of_half(int P, const struct collective *);
enum error_code flow_up(struct exchange *, const struct collective *, struct flow *, int segment, void *scratch,
                        struct error *);
enum error_code flow_down(struct exchange *, const struct collective *, struct flow *, int segment, struct error *);
enum error_code flow_close(struct exchange *, struct flow *, struct error *);
void flow_cost(struct collective_cost *, const struct collective *, struct tree, int64_t n, bool up, bool down);
int64_t flow_scratch(const struct collective *, int64_t n);

/* Binomial tree over members counted from root: v = rank - root mod P.  The bit that joins v to its parent. */
int binomial_bit(int v, int P);
enum error_code binomial_broadcast(struct exchange *, const struct collective *, int root, void *x, int64_t n,
                                   struct error *);
/* The root ends with the sum in x; the others' x is used up.  scratch: n elements. */
enum error_code binomial_reduce(struct exchange *, const struct collective *, int root, void *x, int64_t n,
                                void *scratch, struct error *);
void binomial_cost(struct collective_cost *, const struct collective *, int rank, int P, int root, int64_t n,
                   bool reduces);

/* Parts 0 .. P-1, part v for the member v after the root; each member of the tree handles those of the subtree below
 * it.  by_device: the parts are the blocks of the members; else the vector cut into equal parts. */
struct parts { int P, root; bool by_device; };

int64_t part_edge(const struct collective *, struct parts, int v);      /* elements before part v */
int subtree_end(int v, int P);                                          /* parts of v's subtree: v .. subtree_end - 1 */
/* data: part v of this member and those after it of its subtree; all of them at the root. */
enum error_code binomial_scatter(struct exchange *, const struct collective *, struct parts, void *data,
                                 struct error *);
enum error_code binomial_gather(struct exchange *, const struct collective *, struct parts, void *data, struct error *);
void binomial_parts_cost(struct collective_cost *, const struct collective *, struct parts, int rank, bool scatters);

#endif
