/* trees.c -- chains, binary and binomial trees; sends vectors along them in segments. */
#include "emulated_devices/collectives/algorithm.h"

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
    while (below > 0 && v + below >= P) below >>= 1;
    if (below > 0) t.child[t.children++] = v + below;
    return t;
}

/* The second tree is the first one mirrored for even P, shifted by one for odd P: both swap even and odd members. */
static int renumber(int rank, int P, int which)
{
    return which == 0 ? rank : P % 2 == 0 ? P - 1 - rank : imod(rank - 1, P);
}
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

struct flow flow_open(struct tree t, void *data, int64_t n)
{
    return (struct flow){ .tree = t, .data = data, .n = n, .up = nothing, .down = { nothing, nothing } };
}

int flow_segments(const struct collective *c, int64_t n)
{
    const uint64_t bytes = bytes_of(c, n), segment = c->segment > 0 ? c->segment : SEGMENT_BYTES;
    return bytes == 0 ? 1 : (int)((bytes + segment - 1) / segment);
}

int64_t flow_of_vector(int P, const struct collective *c)
{
    (void)P;
    return c->count;
}

int64_t flow_of_half(int P, const struct collective *c)
{
    (void)P;
    return (c->count + 1) / 2;
}

int64_t flow_scratch(const struct collective *c, int64_t n) { return part_length(n, flow_segments(c, n), 0); }

/* Send after the previous message on this edge is complete. */
static enum error_code pass(struct exchange *x, struct message *last, int to, const void *data, uint64_t bytes,
                            struct error *err)
{
    const enum error_code code = last->slot == nothing.slot ? OK : message_wait(x->group->comm, *last, err);
    *last = nothing;
    if (code == OK) *last = message_send(x, to, data, bytes);
    return code;
}

static void *segment_at(const struct collective *c, const struct flow *f, int segment, int64_t *length)
{
    const int S = flow_segments(c, f->n);
    *length = part_length(f->n, S, segment);
    return element(c, f->data, block_start(f->n, S, segment));
}

enum error_code flow_up(struct exchange *x, const struct collective *c, struct flow *f, int segment, void *scratch,
                        struct error *err)
{
    int64_t n;
    void *mine = segment_at(c, f, segment, &n);
    enum error_code code = OK;
    for (int i = 0; i < f->tree.children && code == OK; i++)
        code = add_from(x, c, f->tree.child[i], scratch, mine, n, err);
    if (code == OK && f->tree.parent >= 0) code = pass(x, &f->up, f->tree.parent, mine, bytes_of(c, n), err);
    f->up_segment = segment;
    return code;
}

enum error_code flow_down(struct exchange *x, const struct collective *c, struct flow *f, int segment,
                          struct error *err)
{
    int64_t n;
    void *mine = segment_at(c, f, segment, &n);
    enum error_code code = OK;
    if (f->tree.parent >= 0) {
        if (f->up.slot != nothing.slot && f->up_segment == segment) {       /* MPI may still look at what comes now */
            code = message_wait(x->group->comm, f->up, err);
            f->up = nothing;
        }
        if (code == OK) code = exchange_both(x, -1, NULL, 0, f->tree.parent, mine, bytes_of(c, n), err);
    }
    for (int i = 0; i < f->tree.children && code == OK; i++)
        code = pass(x, &f->down[i], f->tree.child[i], mine, bytes_of(c, n), err);
    return code;
}

enum error_code flow_close(struct exchange *x, struct flow *f, struct error *err)
{
    enum error_code code = OK;
    struct message *const last[] = { &f->up, &f->down[0], &f->down[1] };
    for (int i = 0; i < 3; i++)
        if (last[i]->slot != nothing.slot) {
            const enum error_code one = message_wait(x->group->comm, *last[i], code == OK ? err : NULL);
            if (code == OK) code = one;
        }
    return code;
}

void flow_cost(struct collective_cost *cost, const struct collective *c, struct tree t, int64_t n, bool up, bool down)
{
    const uint64_t S = (uint64_t)flow_segments(c, n),
                   edges = (uint64_t)(up && t.parent >= 0) + (down ? (uint64_t)t.children : 0);
    cost->messages += S * edges;
    cost->bytes += edges * bytes_of(c, n);
    if (up) cost->additions += (uint64_t)t.children * (uint64_t)n;
}

/* ---- binomial ---------------------------------------------------------------------------------------------------- */

int binomial_bit(int v, int P)
{
    int bit = 1;
    while (bit < P && !(v & bit)) bit <<= 1;
    return bit;
}

enum error_code binomial_broadcast(struct exchange *x, const struct collective *c, int root, void *data, int64_t n,
                                   struct error *err)
{
    const int P = x->group->size, v = imod(x->group->rank - root, P), up = binomial_bit(v, P);
    const uint64_t bytes = bytes_of(c, n);
    enum error_code code = OK;
    if (v != 0) code = exchange_both(x, -1, NULL, 0, imod(v - up + root, P), data, bytes, err);
    /* The child with the largest subtree is served first, since its way is longest. */
    for (int bit = up >> 1; bit > 0 && code == OK; bit >>= 1)
        if (v + bit < P) code = exchange_both(x, imod(v + bit + root, P), data, bytes, -1, NULL, 0, err);
    return code;
}

enum error_code binomial_reduce(struct exchange *x, const struct collective *c, int root, void *data, int64_t n,
                                void *scratch, struct error *err)
{
    const int P = x->group->size, v = imod(x->group->rank - root, P), up = binomial_bit(v, P);
    enum error_code code = OK;
    /* The child with the smallest subtree has its sum first. */
    for (int bit = 1; bit < up && v + bit < P && code == OK; bit <<= 1)
        code = add_from(x, c, imod(v + bit + root, P), scratch, data, n, err);
    if (v != 0 && code == OK)
        code = exchange_both(x, imod(v - up + root, P), data, bytes_of(c, n), -1, NULL, 0, err);
    return code;
}

void binomial_cost(struct collective_cost *cost, const struct collective *c, int rank, int P, int root, int64_t n,
                   bool reduces)
{
    const int v = imod(rank - root, P);
    int64_t children = 0;
    for (int bit = binomial_bit(v, P) >> 1; bit > 0; bit >>= 1) children += v + bit < P;
    const int64_t sends = reduces ? v != 0 : children;
    cost->messages += (uint64_t)sends;
    cost->bytes += bytes_of(c, sends * n);
    if (reduces) cost->additions += (uint64_t)(children * n);
    cost->steps += (uint64_t)ceil_log2(P);
}

/* ---- scatter and gather on a binomial tree ----------------------------------------------------------------------- */

int64_t part_edge(const struct collective *c, struct parts p, int v)
{
    return p.by_device ? comb_length(c, p.P, (struct comb){ p.root, 1, v }) : block_start(c->count, p.P, v);
}

int subtree_end(int v, int P)
{
    const int end = v + binomial_bit(v, P);
    return v == 0 || end > P ? P : end;
}

/* Elements of the subtree of v; start of a child's part in it. */
static int64_t subtree_length(const struct collective *c, struct parts p, int v)
{
    return part_edge(c, p, subtree_end(v, p.P)) - part_edge(c, p, v);
}
static void *part_of(const struct collective *c, struct parts p, void *data, int v, int child)
{
    return element(c, data, part_edge(c, p, child) - part_edge(c, p, v));
}

enum error_code binomial_scatter(struct exchange *x, const struct collective *c, struct parts p, void *data,
                                 struct error *err)
{
    const int P = p.P, v = imod(x->group->rank - p.root, P), up = binomial_bit(v, P);
    enum error_code code = OK;
    if (v != 0)
        code = exchange_both(x, -1, NULL, 0, imod(v - up + p.root, P), data, bytes_of(c, subtree_length(c, p, v)), err);
    for (int bit = up >> 1; bit > 0 && code == OK; bit >>= 1)
        if (v + bit < P)
            code = exchange_both(x, imod(v + bit + p.root, P), part_of(c, p, data, v, v + bit),
                                 bytes_of(c, subtree_length(c, p, v + bit)), -1, NULL, 0, err);
    return code;
}

enum error_code binomial_gather(struct exchange *x, const struct collective *c, struct parts p, void *data,
                                struct error *err)
{
    const int P = p.P, v = imod(x->group->rank - p.root, P), up = binomial_bit(v, P);
    enum error_code code = OK;
    for (int bit = 1; bit < up && v + bit < P && code == OK; bit <<= 1)
        code = exchange_both(x, -1, NULL, 0, imod(v + bit + p.root, P), part_of(c, p, data, v, v + bit),
                             bytes_of(c, subtree_length(c, p, v + bit)), err);
    if (v != 0 && code == OK)
        code = exchange_both(x, imod(v - up + p.root, P), data, bytes_of(c, subtree_length(c, p, v)), -1, NULL, 0, err);
    return code;
}

void binomial_parts_cost(struct collective_cost *cost, const struct collective *c, struct parts p, int rank,
                         bool scatters)
{
    const int v = imod(rank - p.root, p.P);
    cost->steps += (uint64_t)ceil_log2(p.P);
    if (!scatters) {
        const int64_t below = part_edge(c, p, subtree_end(v, p.P)) - part_edge(c, p, v + 1),
                      own = subtree_length(c, p, v);
        if (v != 0) cost_send(cost, c, own);
        cost->path = bytes_of(c, v == 0 ? below : own);  /* while sending up, the parent receives others */
    }
    for (int bit = binomial_bit(v, p.P) >> 1; bit > 0 && scatters; bit >>= 1)
        if (v + bit < p.P) cost_send(cost, c, subtree_length(c, p, v + bit));
}
