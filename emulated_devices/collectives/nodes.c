/* nodes.c -- finds the members of a group that share a node, for the algorithms that use nodes.
 *
 * Algorithms by nodes, auto.c and quantised.c call this file through algorithm.h and collective.h.  No function here
 * can fail; a group that does not fit is refused in words (needs_nodes, needs_even_nodes).
 */
#include "emulated_devices/collectives/algorithm.h"

/* Without a list, member m has rank m. */
static int world_rank(const int *member, int m) { return member != NULL ? member[m] : m; }

/* The farthest link from member 0 is that of the whole group, since levels of a cluster are nested. */
struct span span_on(const struct cluster *cluster, const int *member, int P)
{
    struct span s = { .outer = 0 };
    for (int i = 1; i < P; i++) {
        const int level = cluster_level(cluster, world_rank(member, 0), world_rank(member, i));
        if (level > s.outer) s.outer = level;
    }
    s.nodes = (struct nodes){ .member = member, .slot = cluster->slot,
                              .devices = s.outer > 0 ? cluster->link[s.outer - 1].devices : 0,
                              .reduces = cluster->link[s.outer].reduces };
    /* Two members of a node are side by side, and then their nearest link is not that of the group. */
    for (int i = 1; i < P; i++)
        if (cluster_level(cluster, world_rank(member, i - 1), world_rank(member, i)) < s.outer)
            s.nodes.reduces = false;
    return s;
}

struct nodes nodes_on(const struct cluster *cluster, const int *member, int P)
{
    return span_on(cluster, member, P).nodes;
}

struct nodes group_nodes(const struct group *group)
{
    return nodes_on(&group->comm->device->clock.cluster, group->process, group->size);
}

static int nodes_node_of(const struct collective *collective, int m)
{
    const int rank = world_rank(collective->nodes.member, m);
    return (collective->nodes.slot ? collective->nodes.slot[rank] : rank) / collective->nodes.devices;
}

/* The largest divisor of P not above its root. */
static int near_root(int P)
{
    int q = 1;
    for (int d = 2; d * d <= P; d++) if (P % d == 0) q = d;
    return q;
}

/* Members of a node are side by side, so the search ends at the first neighbour of another node. */
int node_first(const struct collective *collective, int P, int m)
{
    /* Where no nodes are known, groups of neighbours take their part. */
    if (collective->nodes.devices == 0) return m - m % near_root(P);
    while (m > 0 && nodes_node_of(collective, m - 1) == nodes_node_of(collective, m)) m--;
    return m;
}

int node_end(const struct collective *collective, int P, int m)
{
    const int first = node_first(collective, P, m);
    if (collective->nodes.devices == 0) return first + near_root(P);
    while (m < P && nodes_node_of(collective, m) == nodes_node_of(collective, first)) m++;
    return m;
}

int node_count(const struct collective *collective, int P)
{
    int nodes = 0;
    for (int m = 0; m < P; m = node_end(collective, P, m)) nodes++;
    return nodes;
}

int largest_node(const struct collective *collective, int P)
{
    int largest = 0;
    for (int first = 0, end; first < P; first = end) {
        end = node_end(collective, P, first);
        if (end - first > largest) largest = end - first;
    }
    return largest;
}

/* The caller releases the list with exchange_small_end. */
int *node_edges(struct exchange *exchange, const struct collective *collective)
{
    const int P = exchange->group->size;
    int n = 0, *edge = exchange_small(exchange, sizeof *edge * (uint64_t)(node_count(collective, P) + 1));
    for (int m = 0; m < P; m = node_end(collective, P, m)) edge[n++] = m;
    edge[n] = P;
    return edge;
}

/* This row is this member's node: consecutive members. */
struct row row_in_node(const struct collective *collective, int rank, int P)
{
    const int first = node_first(collective, P, rank);
    return (struct row){ .size = node_end(collective, P, rank) - first, .me = rank - first, .first = first,
                        .stride = 1 };
}

/* Member i of this row has this member's place in node i, so the stride is q, the members of a node. */
struct row row_of_nodes(const struct collective *collective, int rank, int P)
{
    const int q = node_end(collective, P, 0);
    return (struct row){ .size = P / q, .me = rank / q, .first = rank % q, .stride = q };
}

/* Leaders are the first members of nodes of any size, so the row needs a list. */
struct row row_of_leaders(const struct collective *collective, int rank, int P, const int *edge)
{
    int me = 0;
    for (int m = 0; node_end(collective, P, m) <= rank; m = node_end(collective, P, m)) me++;
    return (struct row){ .size = node_count(collective, P), .me = me, .member = edge };
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

/* Whether the members of each node are consecutive in the group: none of a node comes after those of another one.
 * Where nodes ascend, as in nearly all groups, one look at each is enough: groups may have thousands of nodes. */
static bool side_by_side(const struct collective *collective, int P)
{
    int highest = -1;
    for (int first = 0; first < P; first = node_end(collective, P, first)) {
        const int node = nodes_node_of(collective, first);
        for (int m = 0; m < first && node <= highest; m++)
            if (nodes_node_of(collective, m) == node) return false;
        highest = node > highest ? node : highest;
    }
    return true;
}

/* Whether all nodes have as many members as the first. */
static bool even(const struct collective *collective, int P)
{
    const int q = node_end(collective, P, 0);
    for (int first = 0; first < P; first += q)
        if (node_end(collective, P, first) != first + q) return false;
    return true;
}

/* Both functions return NULL for a group that fits, else a requirement in words for the error. */
const char *needs_nodes(int P, const struct collective *collective)
{
    if (collective->nodes.devices == 0) return NODES_NEEDED;
    return side_by_side(collective, P) ? NULL : "the members of a node side by side in the group";
}

const char *needs_even_nodes(int P, const struct collective *collective)
{
    if (collective->nodes.devices == 0) return NULL;
    if (!side_by_side(collective, P)) return needs_nodes(P, collective);
    return even(collective, P) ? NULL : EVEN_NODES_NEEDED;
}

int nodes_even(struct nodes nodes, int P)
{
    const struct collective c = { .nodes = nodes };
    return needs_even_nodes(P, &c) ? 0 : node_end(&c, P, 0);
}
