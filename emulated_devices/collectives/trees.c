/* trees.c -- chains, binary and binomial trees; sends vectors along them in segments.
 *
 * A double tree is two binary trees on the same members.  Nearly every leaf of one tree is an inner member of the
 * other tree.  Each tree carries half of the vector, so all members send about equally much.
 *
 * Source  P. Sanders, J. Speck, J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
 *         Parallel Computing 35(12), 2009, doi:10.1016/j.parco.2009.09.001, for the double tree
 *
 * Algorithms of broadcast, reduce, allreduce, scatter, gather and barrier call this file; algorithm.h declares its
 * functions.  Functions that send return ERR_COMM if a message failed; the caller then closes its flows.
 */
#include "emulated_devices/collectives/algorithm.h"

/* Member v of the chain sends to v + 1; v counts from the root. */
struct tree tree_chain(int rank, int P, int root)
{
    const int v = imod(rank - root, P);
    return (struct tree){ .parent = v == 0 ? -1 : imod(rank - 1, P),
                          .children = v < P - 1,
                          .child = { imod(rank + 1, P) } };
}

/* A binary tree on 0 .. P-1 whose odd members are leaves.  v and its parent differ by v's lowest set bit; 0 is the root
 * and has one child.  P = 8:   0 -> 4;  4 -> 2, 6;  2 -> 1, 3;  6 -> 5, 7 */
static struct tree tree_in_order(int v, int P)
{
    struct tree t = { .parent = -1 };
    int bit = 1;
    while (bit < P && !(v & bit)) bit <<= 1;
    /* The parent is v + bit or v - bit, so that its lowest bit is 2 bit.  If v + bit does not exist, v - bit is the
     * parent. */
    if (v != 0) {
        t.parent = (v ^ bit) | (bit << 1);
        if (t.parent >= P) t.parent = v ^ bit;
    }
    int below = bit >> 1;
    if (v == 0) {
        if (below > 0) t.child[t.children++] = below;
        return t;
    }
    if (below > 0) t.child[t.children++] = v - below;
    /* The upper child may not exist; then the largest smaller distance whose member exists takes its place. */
    while (below > 0 && v + below >= P) below >>= 1;
    if (below > 0) t.child[t.children++] = v + below;
    return t;
}

/* The second tree is the first one mirrored for even P, shifted by one for odd P: both swap even and odd members. */
static int renumber(int rank, int P, int which)
{
    return which == 0 ? rank : P % 2 == 0 ? P - 1 - rank : imod(rank - 1, P);
}
/* This is the inverse of renumber: from a place in a tree to a member. */
static int original(int v, int P, int which) { return which == 0 ? v : P % 2 == 0 ? P - 1 - v : imod(v + 1, P); }

struct tree tree_double(int rank, int P, int which)
{
    struct tree t = tree_in_order(renumber(rank, P, which), P);
    if (t.parent >= 0) t.parent = original(t.parent, P, which);
    for (int i = 0; i < t.children; i++) t.child[i] = original(t.child[i], P, which);
    return t;
}

int tree_double_root(int P, int which) { return original(0, P, which); }

int tree_double_depth(int rank, int P, int which)
{
    int depth = 0;
    for (int parent; (parent = tree_double(rank, P, which).parent) >= 0; rank = parent) depth++;
    return depth;
}

int tree_double_levels(int P)
{
    static struct { int P, levels; } last;              /* costs of all members are asked for one after another */
    if (last.P == P) return last.levels;
    int levels = 0;
    for (int r = 0; r < P; r++)
        if (tree_double_depth(r, P, 0) > levels) levels = tree_double_depth(r, P, 0);
    last.P = P, last.levels = levels;
    return levels;
}

/* ---- flows ------------------------------------------------------------------------------------------------------- */

static const struct message nothing = { -2 };

struct flow flow_open(struct tree tree, void *data, int64_t n)
{
    return (struct flow){ .tree = tree, .data = data, .n = n, .up = nothing, .down = { nothing, nothing } };
}

/* A vector of n elements has so many segments.  An empty vector still goes as a segment without bytes. */
int flow_segments(const struct collective *collective, int64_t n)
{
    const uint64_t bytes = bytes_of(collective, n), segment = collective->segment > 0 ? collective->segment
        : SEGMENT_BYTES;
    return bytes == 0 ? 1 : (int)((bytes + segment - 1) / segment);
}

int64_t flow_of_vector(int P, const struct collective *collective)
{
    (void)P;
    return collective->count;
}

int64_t flow_of_half(int P, const struct collective *collective)
{
    (void)P;
    return (collective->count + 1) / 2;
}

/* The scratch is for the longest segment, which is the first. */
int64_t flow_scratch(const struct collective *collective,
                     int64_t n) { return part_length(n, flow_segments(collective, n), 0); }

/* Send after the previous message on this edge is complete.  So each edge has at most a segment under way. */
static enum error_code trees_pass(struct exchange *exchange, struct message *last, int to, const void *data,
                                  uint64_t bytes, struct error *err)
{
    const enum error_code code = last->slot == nothing.slot ? OK : message_wait(exchange->group->comm, *last, err);
    *last = nothing;
    if (code == OK) *last = message_send(exchange, to, data, bytes);
    return code;
}

/* Segment s of S covers elements block_start(n, S, s) .. block_start(n, S, s + 1) - 1 of the flow's part. */
static void *segment_at(const struct collective *collective, const struct flow *flow, int segment, int64_t *length)
{
    const int S = flow_segments(collective, flow->n);
    *length = part_length(flow->n, S, segment);
    return element(collective, flow->data, block_start(flow->n, S, segment));
}

/* A segment goes up: x = x + x(child 0) + x(child 1), then the sum is sent to the parent. */
enum error_code flow_up(struct exchange *exchange, const struct collective *collective, struct flow *flow, int segment,
                        void *scratch, struct error *err)
{
    int64_t n;
    void *mine = segment_at(collective, flow, segment, &n);
    enum error_code code = OK;
    for (int i = 0; i < flow->tree.children && code == OK; i++)
        code = add_from(exchange, collective, flow->tree.child[i], scratch, mine, n, err);
    if (code == OK && flow->tree.parent >= 0)
        code = trees_pass(exchange, &flow->up, flow->tree.parent, mine, bytes_of(collective, n), err);
    flow->up_segment = segment;
    return code;
}

/* A segment comes down: the parent's copy overwrites this member's, and is sent on to both children.  The send
 * of this segment upwards has to end first, because it reads the place that is overwritten. */
enum error_code flow_down(struct exchange *exchange, const struct collective *collective,
                          struct flow *flow, int segment, struct error *err)
{
    int64_t n;
    void *mine = segment_at(collective, flow, segment, &n);
    enum error_code code = OK;
    if (flow->tree.parent >= 0) {
        /* MPI may still look at what comes now */
        if (flow->up.slot != nothing.slot && flow->up_segment == segment) {
            code = message_wait(exchange->group->comm, flow->up, err);
            flow->up = nothing;
        }
        if (code == OK) code = exchange_both(exchange, -1, NULL, 0, flow->tree.parent, mine,
                                             bytes_of(collective, n), err);
    }
    for (int i = 0; i < flow->tree.children && code == OK; i++)
        code = trees_pass(exchange, &flow->down[i], flow->tree.child[i], mine, bytes_of(collective, n), err);
    return code;
}

/* Wait for the flow's last sends.  Algorithms call this before they free scratch, also after an error. */
enum error_code flow_close(struct exchange *exchange, struct flow *flow, struct error *err)
{
    enum error_code code = OK;
    struct message *const last[] = { &flow->up, &flow->down[0], &flow->down[1] };
    for (int i = 0; i < 3; i++)
        if (last[i]->slot != nothing.slot) {
            const enum error_code one = message_wait(exchange->group->comm, *last[i], code == OK ? err : NULL);
            if (code == OK) code = one;
        }
    return code;
}

/* Messages, bytes and additions of this member in one tree: S segments over each of its edges. */
void flow_cost(struct collective_cost *cost, const struct collective *collective, struct tree tree, int64_t n,
               bool up, bool down)
{
    const uint64_t S = (uint64_t)flow_segments(collective, n),
                   edges = (uint64_t)(up && tree.parent >= 0) + (down ? (uint64_t)tree.children : 0);
    cost->messages += S * edges;
    cost->bytes += edges * bytes_of(collective, n);
    if (up) cost->additions += (uint64_t)tree.children * (uint64_t)n;
}

/* ---- binomial ---------------------------------------------------------------------------------------------------- */

/* The lowest bit set in v; for v = 0 the smallest power of two that is not below P. */
int binomial_bit(int v, int P)
{
    int bit = 1;
    while (bit < P && !(v & bit)) bit <<= 1;
    return bit;
}

/* v is this member's number from the root.  Its parent is v without its lowest bit; its children are v + smaller
 * bits. */
enum error_code binomial_broadcast(struct exchange *exchange, const struct collective *collective, int root,
                                   void *data, int64_t n, struct error *err)
{
    const int P = exchange->group->size, v = imod(exchange->group->rank - root, P), up = binomial_bit(v, P);
    const uint64_t bytes = bytes_of(collective, n);
    enum error_code code = OK;
    if (v != 0) code = exchange_both(exchange, -1, NULL, 0, imod(v - up + root, P), data, bytes, err);
    /* The child with the largest subtree is served first, since its way is longest. */
    for (int bit = up >> 1; bit > 0 && code == OK; bit >>= 1)
        if (v + bit < P) code = exchange_both(exchange, imod(v + bit + root, P), data, bytes, -1, NULL, 0, err);
    return code;
}

/* The sum climbs the same tree: a member adds its children's vectors, then sends one message to its parent. */
enum error_code binomial_reduce(struct exchange *exchange, const struct collective *collective, int root,
                                void *data, int64_t n, void *scratch, struct error *err)
{
    const int P = exchange->group->size, v = imod(exchange->group->rank - root, P), up = binomial_bit(v, P);
    enum error_code code = OK;
    /* The child with the smallest subtree has its sum first. */
    for (int bit = 1; bit < up && v + bit < P && code == OK; bit <<= 1)
        code = add_from(exchange, collective, imod(v + bit + root, P), scratch, data, n, err);
    if (v != 0 && code == OK)
        code = exchange_both(exchange, imod(v - up + root, P), data, bytes_of(collective, n), -1, NULL, 0, err);
    return code;
}

/* Messages and bytes are those of this member; steps are those of the group, the depth of the tree. */
void binomial_cost(struct collective_cost *cost, const struct collective *collective, int rank, int P,
                   int root, int64_t n, bool reduces)
{
    const int v = imod(rank - root, P);
    int64_t children = 0;
    for (int bit = binomial_bit(v, P) >> 1; bit > 0; bit >>= 1) children += v + bit < P;
    const int64_t sends = reduces ? v != 0 : children;
    cost->messages += (uint64_t)sends;
    cost->bytes += bytes_of(collective, sends * n);
    if (reduces) cost->additions += (uint64_t)(children * n);
    cost->steps += (uint64_t)ceil_log2(P);
}

/* ---- scatter and gather on a binomial tree ----------------------------------------------------------------------- */

/* Parts lie in the order of the tree, from the root on, so those of a subtree are side by side. */
int64_t part_edge(const struct collective *collective, struct parts parts, int v)
{
    return parts.by_device ? comb_length(collective, parts.P, (struct comb){ parts.root, 1, v })
           : block_start(collective->count, parts.P, v);
}

/* The subtree of v has parts v .. v + bit - 1, bit the lowest one set in v, as far as there are members. */
int subtree_end(int v, int P)
{
    const int end = v + binomial_bit(v, P);
    return v == 0 || end > P ? P : end;
}

/* The elements of the subtree of v, and the start of a child's part among them. */
static int64_t subtree_length(const struct collective *collective, struct parts parts, int v)
{
    return part_edge(collective, parts, subtree_end(v, parts.P)) - part_edge(collective, parts, v);
}
static void *trees_part_of(const struct collective *collective, struct parts parts, void *data, int v, int child)
{
    return element(collective, data, part_edge(collective, parts, child) - part_edge(collective, parts, v));
}

/* A member gets the parts of its subtree in one message, and sends each child those of the child's subtree. */
enum error_code binomial_scatter(struct exchange *exchange, const struct collective *collective,
                                 struct parts parts, void *data, struct error *err)
{
    const int P = parts.P, v = imod(exchange->group->rank - parts.root, P), up = binomial_bit(v, P);
    enum error_code code = OK;
    if (v != 0)
        code = exchange_both(exchange, -1, NULL, 0, imod(v - up + parts.root, P), data,
                             bytes_of(collective, subtree_length(collective, parts, v)), err);
    for (int bit = up >> 1; bit > 0 && code == OK; bit >>= 1)
        if (v + bit < P)
            code = exchange_both(exchange, imod(v + bit + parts.root, P),
                                 trees_part_of(collective, parts, data, v, v + bit),
                                 bytes_of(collective, subtree_length(collective, parts, v + bit)), -1, NULL, 0, err);
    return code;
}

/* Children with small subtrees are done first, so their parts are received first. */
enum error_code binomial_gather(struct exchange *exchange, const struct collective *collective,
                                struct parts parts, void *data, struct error *err)
{
    const int P = parts.P, v = imod(exchange->group->rank - parts.root, P), up = binomial_bit(v, P);
    enum error_code code = OK;
    for (int bit = 1; bit < up && v + bit < P && code == OK; bit <<= 1)
        code = exchange_both(exchange, -1, NULL, 0, imod(v + bit + parts.root, P),
                             trees_part_of(collective, parts, data, v, v + bit),
                             bytes_of(collective, subtree_length(collective, parts, v + bit)), err);
    if (v != 0 && code == OK)
        code = exchange_both(exchange, imod(v - up + parts.root, P), data,
                             bytes_of(collective, subtree_length(collective, parts, v)), -1, NULL, 0, err);
    return code;
}

/* A scatter sends a member's subtree to its children; a gather sends the whole subtree up in one message. */
void binomial_parts_cost(struct collective_cost *cost, const struct collective *collective,
                         struct parts parts, int rank, bool scatters)
{
    const int v = imod(rank - parts.root, parts.P);
    cost->steps += (uint64_t)ceil_log2(parts.P);
    /* The root of a gather receives all parts but its own; any other member's port is as long busy with sending. */
    if (!scatters) {
        const int64_t below = part_edge(collective, parts, subtree_end(v, parts.P)) - part_edge(collective,
                                                                                                parts, v + 1),
                      own = subtree_length(collective, parts, v);
        if (v != 0) cost_send(cost, collective, own);
        cost->path = bytes_of(collective, v == 0 ? below : own);  /* while sending up, the parent receives others */
    }
    for (int bit = binomial_bit(v, parts.P) >> 1; bit > 0 && scatters; bit >>= 1)
        if (v + bit < parts.P) cost_send(cost, collective, subtree_length(collective, parts, v + bit));
}
