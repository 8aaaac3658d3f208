/* dcp_divide.c -- walks the tree of dcp_divide.h, and makes the hypergraph of each branch.  dcp.c calls it; without
 * memory it reports ERR_MEMORY. */
#include "emulated_devices/schemes/attention/planned/dcp_divide.h"
#include "emulated_devices/schemes/attention/planned/hypergraph.h"
#include <stdlib.h>
#include <string.h>

/* The next branches of a branch, and those where nodes are left out; the vertices there, and the blocks of a next
 * branch where vertices are largest.  More of either take longer and change little: `orrery bench lengths --devices
 * 64`, with other numbers here. */
enum { OF_NODES = 16, MOST_BRANCHES = 64, MOST_VERTICES = 4096, LEAST_BLOCKS_OF_A_BRANCH = 2 };

enum { QUERIES, KEYS, EDGES };          /* each block has an edge of either kind */

/* The walk keeps lists of all blocks and works.  Those of a branch lie together in `block` and `work`, ascending. */
struct dcp_tree {
    const struct dcp_pieces *pieces;
    int *block, *work;                  /* [blocks], [works] numbers in the plan */
    int *vertex_of_block, *vertex_of_work;      /* [blocks], [works] of the entry at the same place */
    int *spare;                         /* [blocks + works] */
    int *seen, *edge;                   /* [blocks] of a group of blocks, named by the first: 1 + its vertex as keys of
                                         * the queries at hand; 1 + its number among edges.  0: none yet */
};

/* Devices, and places in the lists of blocks and works. */
struct dcp_branch { struct interval devices, blocks, works; };

/* A hypergraph that is being made: `stride` neighbours of a sample are one block. */
struct dcp_graph {
    struct hypergraph g;
    int (*edges_of)[EDGES];             /* [vertices] edges of the vertex's queries and of its keys */
    int stride, groups;                 /* groups: of blocks, that have edges */
    int *first;                         /* [groups] the first block of each */
};

/* ---- groups of blocks -------------------------------------------------------------------------------------------- */

static int group_with(const struct dcp_tree *tree, int stride, int block)
{
    const int first = tree->pieces->sample[block];
    return first + (block - first) / stride * stride;
}

static int64_t group_tokens(const struct dcp_tree *tree, int stride, int first)
{
    const struct context_plan *const p = tree->pieces->plan;
    int64_t sum = 0;
    for (int b = first; b < first + stride && b < p->blocks; b++)
        if (tree->pieces->sample[b] == tree->pieces->sample[first]) sum += context_block_tokens(&p->block[b]);
    return sum;
}

/* The number of a group among those that have edges. */
static int edge_with(struct dcp_tree *tree, struct dcp_graph *graph, int group)
{
    if (tree->edge[group] == 0) graph->first[graph->groups] = group, tree->edge[group] = ++graph->groups;
    return tree->edge[group] - 1;
}

/* ---- the hypergraph of a branch ---------------------------------------------------------------------------------- */

static int add_vertex(struct dcp_tree *tree, struct dcp_graph *graph, int queries, int keys)
{
    const int v = graph->g.vertices++;
    graph->edges_of[v][QUERIES] = EDGES * edge_with(tree, graph, queries) + QUERIES;
    graph->edges_of[v][KEYS] = EDGES * edge_with(tree, graph, keys) + KEYS;
    return v;
}

/* Add the blocks of a group that are here: their vertex weighs tokens.  @return the place after them. */
static int64_t add_blocks(struct dcp_tree *tree, struct dcp_graph *graph, int group, int64_t at, int64_t end)
{
    int v = -1;
    for (; at < end && group_with(tree, graph->stride, tree->block[at]) == group; at++) {
        if (v < 0) v = add_vertex(tree, graph, group, group);
        tree->vertex_of_block[at] = v;
        graph->g.weight[v][1] += context_block_tokens(&tree->pieces->plan->block[tree->block[at]]);
    }
    return at;
}

/* Add the works with the queries of a group, a vertex for each group of keys: it weighs pairs. */
static int64_t add_works(struct dcp_tree *tree, struct dcp_graph *graph, int group, int64_t at, int64_t end)
{
    const struct context_work *const work = tree->pieces->plan->work;
    const int64_t begin = at;
    for (; at < end && group_with(tree, graph->stride, work[tree->work[at]].query) == group; at++) {
        const int keys = group_with(tree, graph->stride, work[tree->work[at]].key);
        if (tree->seen[keys] == 0) tree->seen[keys] = 1 + add_vertex(tree, graph, group, keys);
        tree->vertex_of_work[at] = tree->seen[keys] - 1;
        graph->g.weight[tree->seen[keys] - 1][0] += tree->pieces->pairs[tree->work[at]];
    }
    for (int64_t i = begin; i < at; i++) tree->seen[group_with(tree, graph->stride, work[tree->work[i]].key)] = 0;
    return at;
}

/* Each group's vertices follow one another, its blocks first, as the greedy beginning of a division takes them. */
static void add_vertices(struct dcp_tree *tree, struct dcp_graph *graph, const struct dcp_branch *branch)
{
    const struct context_plan *const p = tree->pieces->plan;
    int64_t b = branch->blocks.first, w = branch->works.first;
    while (b < interval_end(branch->blocks) || w < interval_end(branch->works)) {
        const int none = p->blocks;
        const int of_block = b < interval_end(branch->blocks) ? group_with(tree, graph->stride, tree->block[b]) : none;
        const int of_work = w < interval_end(branch->works)
            ? group_with(tree, graph->stride, p->work[tree->work[w]].query) : none;
        const int group = of_block < of_work ? of_block : of_work;
        b = add_blocks(tree, graph, group, b, interval_end(branch->blocks));
        w = add_works(tree, graph, group, w, interval_end(branch->works));
    }
}

/* An edge costs what moving its data once sends: queries go, and as many results come back. */
static void add_edges(struct dcp_tree *tree, struct dcp_graph *graph)
{
    struct hypergraph *const g = &graph->g;
    g->edges = EDGES * graph->groups;
    for (int i = 0; i < graph->groups; i++) {
        const int64_t n = group_tokens(tree, graph->stride, graph->first[i]);
        g->cost[EDGES * i + QUERIES] = 2 * n * tree->pieces->load->query_width;
        g->cost[EDGES * i + KEYS] = n * tree->pieces->load->key_width;
        tree->edge[graph->first[i]] = 0;
    }
    /* Vertices are counted by edge, then listed: first[e + 1] is where the next vertex of edge e goes. */
    memset(g->first, 0, ((size_t)g->edges + 2) * sizeof *g->first);
    for (int v = 0; v < g->vertices; v++)
        for (int i = 0; i < EDGES; i++) g->first[graph->edges_of[v][i] + 2]++;
    for (int e = 0; e < g->edges; e++) g->first[e + 2] += g->first[e + 1];
    for (int v = 0; v < g->vertices; v++)
        for (int i = 0; i < EDGES; i++) g->pin[g->first[graph->edges_of[v][i] + 1]++] = v;
}

/* @return false if there is no memory; graph_close frees what there is. */
static bool graph_open(struct dcp_graph *graph, struct dcp_tree *tree, const struct dcp_branch *branch, int stride)
{
    const size_t most = (size_t)(branch->blocks.count + branch->works.count) + 1;
    /* A work alone at a branch brings two groups that have no block there. */
    const size_t groups = (size_t)(branch->blocks.count + 2 * branch->works.count) + 1;
    *graph = (struct dcp_graph){ .stride = stride, .edges_of = malloc(most * sizeof *graph->edges_of),
                                 .first = malloc(groups * sizeof *graph->first) };
    graph->g.weight = calloc(most, sizeof *graph->g.weight);
    graph->g.cost = malloc(EDGES * groups * sizeof *graph->g.cost);
    graph->g.first = malloc((EDGES * groups + 2) * sizeof *graph->g.first);
    graph->g.pin = malloc(EDGES * most * sizeof *graph->g.pin);
    const bool ok = graph->edges_of && graph->first && graph->g.weight && graph->g.cost && graph->g.first &&
                    graph->g.pin;
    if (ok) add_vertices(tree, graph, branch), add_edges(tree, graph);
    return ok;
}

static void graph_close(struct dcp_graph *graph)
{
    free(graph->edges_of), free(graph->first);
    hypergraph_free(&graph->g);
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

/* Into how many branches so many nodes, or devices of a node, are divided: all, if they are few.  More are divided in
 * as few levels as there can be, in equal parts if that can be. */
static int branches_of(int units, int most)
{
    int levels = 1, least = 2;
    if (units <= most) return units;
    for (int reach = most; reach < units; reach *= most) levels++;
    for (int reach = 1; least < most; least++, reach = 1) {
        for (int i = 0; i < levels && reach < units; i++) reach *= least;
        if (reach >= units) break;
    }
    for (int parts = least; parts <= most; parts++)
        if (units % parts == 0) return parts;
    return least;
}

/* The devices of the i-th branch of `parts`: whole nodes, or devices of one node. */
static struct interval branch_devices(struct interval devices, int node, int parts, int i)
{
    const int unit = devices.count > node ? node : 1;
    const struct interval units = block_at((devices.count + unit - 1) / unit, parts, i);
    const struct interval here = interval_moved((struct interval){ units.first * unit, units.count * unit },
                                                devices.first);
    return interval_meet(here, devices);
}

/* Sort the entries at some places of a list by their parts; within a part their order stays.
 * @param part_of  [at.count]
 * @param[out] of  [parts] the places of each */
static void sort_by_part(struct dcp_tree *tree, int list[], const int part_of[], struct interval at, int parts,
                         struct interval of[])
{
    int64_t next = 0;
    for (int k = 0; k < parts; k++) {
        of[k].first = at.first + next;
        for (int64_t i = 0; i < at.count; i++)
            if (part_of[i] == k) tree->spare[next++] = list[at.first + i];
        of[k].count = at.first + next - of[k].first;
    }
    if (at.count > 0) memcpy(list + at.first, tree->spare, (size_t)at.count * sizeof *list);
}

/* The parts of all entries of a branch, blocks first; not yet known before the first division.  `full`: with half as
 * many neighbours in a vertex there would be too many vertices. */
struct dcp_parts { struct hypergraph_parts parts; int *of; bool known, full; };

/* Set the part of each entry to that of its vertex, or of each vertex to that of its entries. */
static void copy_parts(const struct dcp_tree *tree, const struct dcp_branch *branch, int of[], int of_vertex[],
                       bool to_entries)
{
    for (int64_t i = 0; i < branch->blocks.count + branch->works.count; i++) {
        const int v = i < branch->blocks.count
            ? tree->vertex_of_block[branch->blocks.first + i]
            : tree->vertex_of_work[branch->works.first + i - branch->blocks.count];
        if (to_entries) of[i] = of_vertex[v];
        else of_vertex[v] = of[i];
    }
}

/* Divide with so many neighbours in one vertex, beginning with the parts that are known. */
static enum error_code divide_by(struct dcp_tree *tree, const struct dcp_branch *branch, int stride,
                                 struct dcp_parts *parts, struct error *err)
{
    struct dcp_graph graph;
    const bool ok = graph_open(&graph, tree, branch, stride);
    int *const part = ok ? malloc(2 * ((size_t)graph.g.vertices + 1) * sizeof *part) : NULL;
    int *const begin = part && parts->known ? part + graph.g.vertices : NULL;
    enum error_code e = part ? OK : fail(err, ERR_MEMORY, "no memory to divide %d blocks",
                                         (int)branch->blocks.count);
    parts->full = parts->known && graph.g.vertices > MOST_VERTICES;
    if (begin) copy_parts(tree, branch, parts->of, begin, false);
    if (!e && !parts->full) e = hypergraph_divide(part, &graph.g, parts->parts, begin, err);
    if (!e && !parts->full) copy_parts(tree, branch, parts->of, part, true);
    parts->known = true;
    free(part), graph_close(&graph);
    return e;
}

/* Divide what is at a branch: first with many neighbours in one vertex, then with half as many, and so on.  Each
 * division begins with the one before, as those of multilevel partitioners. */
static enum error_code divide_branch(struct dcp_tree *tree, const struct dcp_branch *branch, struct dcp_branch next[],
                                     int parts, struct error *err)
{
    int share[MOST_BRANCHES], stride = 1;
    struct interval blocks[MOST_BRANCHES], works[MOST_BRANCHES];
    struct dcp_parts all = { .parts = { parts, share } };
    all.of = malloc(((size_t)(branch->blocks.count + branch->works.count) + 1) * sizeof *all.of);
    enum error_code e = all.of ? OK : fail(err, ERR_MEMORY, "no memory for %d works", (int)branch->works.count);
    for (int i = 0; i < parts; i++) {
        next[i].devices = branch_devices(branch->devices, tree->pieces->node, parts, i);
        share[i] = (int)next[i].devices.count;
    }
    while (2 * stride * parts * LEAST_BLOCKS_OF_A_BRANCH <= branch->blocks.count) stride *= 2;
    for (; stride > 0 && !e && !all.full; stride /= 2) e = divide_by(tree, branch, stride, &all, err);
    if (!e) sort_by_part(tree, tree->block, all.of, branch->blocks, parts, blocks);
    if (!e) sort_by_part(tree, tree->work, all.of + branch->blocks.count, branch->works, parts, works);
    for (int i = 0; i < parts && !e; i++) next[i].blocks = blocks[i], next[i].works = works[i];
    free(all.of);
    return e;
}

/* Give all that is at a branch to its devices. */
static enum error_code walk(struct dcp_tree *tree, const struct dcp_branch *branch, struct error *err)
{
    struct context_plan *const p = tree->pieces->plan;
    const int count = (int)branch->devices.count, node = tree->pieces->node, unit = count > node ? node : 1;
    struct dcp_branch next[MOST_BRANCHES];
    enum error_code e = OK;
    if (count == 1) {
        const int device = (int)branch->devices.first;
        const int *const block = tree->block + branch->blocks.first, *const work = tree->work + branch->works.first;
        for (int64_t i = 0; i < branch->blocks.count; i++) p->block[block[i]].home = device;
        for (int64_t i = 0; i < branch->works.count; i++) p->work[work[i]].device = device;
        return OK;
    }
    const bool by_nodes = node < tree->pieces->load->devices || node <= OF_NODES;
    const int parts = branches_of((count + unit - 1) / unit, by_nodes ? OF_NODES : MOST_BRANCHES);
    e = divide_branch(tree, branch, next, parts, err);
    for (int i = 0; i < parts && !e; i++) e = walk(tree, &next[i], err);
    return e;
}

enum error_code dcp_divide(const struct dcp_pieces *pieces, struct error *err)
{
    const size_t blocks = (size_t)pieces->plan->blocks + 1, works = (size_t)pieces->plan->works + 1;
    struct dcp_tree t = { .pieces = pieces, .block = malloc(blocks * sizeof *t.block),
                          .work = malloc(works * sizeof *t.work),
                          .vertex_of_block = malloc(blocks * sizeof *t.vertex_of_block),
                          .vertex_of_work = malloc(works * sizeof *t.vertex_of_work),
                          .spare = malloc((blocks + works) * sizeof *t.spare),
                          .seen = calloc(blocks, sizeof *t.seen), .edge = calloc(blocks, sizeof *t.edge) };
    const struct dcp_branch all = { { 0, pieces->load->devices }, { 0, pieces->plan->blocks },
                                    { 0, pieces->plan->works } };
    enum error_code e = t.block && t.work && t.vertex_of_block && t.vertex_of_work && t.spare && t.seen && t.edge
        ? OK : fail(err, ERR_MEMORY, "no memory to plan for %d devices", pieces->load->devices);
    for (int b = 0; b < pieces->plan->blocks && !e; b++) t.block[b] = b;
    for (int w = 0; w < pieces->plan->works && !e; w++) t.work[w] = w;
    if (!e) e = walk(&t, &all, err);
    free(t.block), free(t.work), free(t.vertex_of_block), free(t.vertex_of_work), free(t.spare), free(t.seen);
    free(t.edge);
    return e;
}
