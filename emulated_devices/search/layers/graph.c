/* graph.c -- solves a graph of operators by eliminations.  tensoropt.c and mindspore.c call.  Lists of points are kept
 * until the end, so that a graph can be copied for each strategy of an operator.  Errors: ERR_MEMORY, ERR_PLAN. */
#include "emulated_devices/search/layers/graph.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_TURNS = 4 };                /* operators inside each other that get each strategy */

/* A list in the pool. */
struct list { int first, count; };

struct graph_edge { int from, to; struct list *of; };     /* [K * K] */

struct graph {
    int operators, edges;
    bool *gone;                         /* [operators] */
    struct list **at;                   /* [operators] of [K] */
    struct graph_edge *edge;
};

/* Memory that lives until the graph is solved. */
struct pool {
    const struct layer_table *table;
    enum chain_rule rule;
    int most, K, *strategy;             /* strategies on all devices: [K] their places in the table */
    struct graph_point *point;
    int points, room;
    struct graph_frontier *out;         /* its tree grows */
    int tree_room;
    void **block;                       /* [blocks] arrays to free */
    int blocks, block_room;
    bool failed, stuck;                 /* there was no memory; too many strategies in turn */
};

static void *pool_array(struct pool *pool, size_t count, size_t size)
{
    if (pool->blocks == pool->block_room) {
        void **more = realloc(pool->block, (size_t)(pool->block_room = 2 * pool->block_room + 64) * sizeof *more);
        if (more == NULL) return pool->failed = true, NULL;
        pool->block = more;
    }
    void *const array = calloc(count + 1, size);
    pool->block[pool->blocks] = array;
    pool->blocks += array != NULL, pool->failed = pool->failed || array == NULL;
    return array;
}

static void add_point(struct pool *pool, struct graph_point point)
{
    if (pool->points == pool->room) {
        struct graph_point *more = realloc(pool->point, (size_t)(2 * pool->room + 1024) * sizeof *more);
        if (more == NULL) { pool->failed = true; return; }
        pool->point = more, pool->room = 2 * pool->room + 1024;
    }
    pool->point[pool->points++] = point;
}

static int add_tree(struct pool *pool, struct graph_tree tree)
{
    struct graph_frontier *const out = pool->out;
    if (out->trees == pool->tree_room) {
        struct graph_tree *more = realloc(out->tree, (size_t)(2 * pool->tree_room + 1024) * sizeof *more);
        if (more == NULL) return pool->failed = true, -1;
        out->tree = more, pool->tree_room = 2 * pool->tree_room + 1024;
    }
    out->tree[out->trees] = tree;
    return out->trees++;
}

/* ---- product, union, reduce -------------------------------------------------------------------------------------- */

/* Sorts and drops as chains do; `strategy` of a point of a chain is where the point was. */
static struct list end_list(struct pool *pool, int first)
{
    const int count = pool->points - first;
    struct chain_point *point = calloc((size_t)count + 1, sizeof *point);
    struct graph_point *was = calloc((size_t)count + 1, sizeof *was);
    int kept = 0;
    if (point == NULL || was == NULL) pool->failed = true;
    else if (count > 0) {
        memcpy(was, &pool->point[first], (size_t)count * sizeof *was);
        for (int i = 0; i < count; i++)
            point[i] = (struct chain_point){ was[i].time, was[i].computing, was[i].memory, i, 0 };
        kept = chain_reduce(point, count, pool->rule, pool->most, &pool->out->thinned);
        for (int i = 0; i < kept; i++) pool->point[first + i] = was[point[i].strategy];
    }
    free(point), free(was);
    pool->out->looked += count, pool->points = first + kept;
    return (struct list){ first, kept };
}

static int join_trees(struct pool *pool, int left, int right)
{
    return left < 0 ? right : right < 0 ? left : add_tree(pool, (struct graph_tree){ -1, -1, left, right });
}

static struct graph_point point_sum(struct pool *pool, struct graph_point a, struct graph_point b)
{
    return (struct graph_point){ a.time + b.time, a.computing + b.computing, a.memory + b.memory,
                                 join_trees(pool, a.tree, b.tree) };
}

/* Every point of one list with every point of the other, at the end of the pool. */
static void pool_product(struct pool *pool, struct list a, struct list b)
{
    for (int i = 0; i < a.count && !pool->failed; i++)
        for (int j = 0; j < b.count && !pool->failed; j++)
            add_point(pool, point_sum(pool, pool->point[a.first + i], pool->point[b.first + j]));
}

static struct list product(struct pool *pool, struct list a, struct list b)
{
    const int first = pool->points;
    pool_product(pool, a, b);
    return end_list(pool, first);
}

/* ---- eliminations ------------------------------------------------------------------------------------------------ */

static int degree(const struct graph *graph, int operator)
{
    int n = 0;
    for (int e = 0; e < graph->edges; e++)
        n += graph->edge[e].from == operator || graph->edge[e].to == operator;
    return n;
}

/* The list of an edge from one end's side: of the strategy s there, and t at the other end. */
static struct list edge_list(const struct pool *pool, const struct graph_edge *edge, int operator, int s, int t)
{
    return edge->from == operator ? edge->of[s * pool->K + t] : edge->of[t * pool->K + s];
}

static void drop_edge(struct graph *graph, int e) { graph->edge[e] = graph->edge[--graph->edges]; }

/* Two edges between the same operators become one.  @return whether there were such. */
static bool eliminate_edges(struct pool *pool, struct graph *graph)
{
    for (int a = 0; a < graph->edges; a++)
        for (int b = a + 1; b < graph->edges; b++) {
            struct graph_edge *const x = &graph->edge[a], *const y = &graph->edge[b];
            if (x->from != y->from || x->to != y->to) continue;
            struct list *const of = pool_array(pool, (size_t)(pool->K * pool->K), sizeof *of);
            for (int i = 0; i < pool->K * pool->K && of && !pool->failed; i++)
                of[i] = product(pool, x->of[i], y->of[i]);
            x->of = of;
            drop_edge(graph, b);
            return true;
        }
    return false;
}

/* An operator with one neighbour becomes a part of it. */
static void eliminate_end(struct pool *pool, struct graph *graph, int operator)
{
    int e = 0;
    while (graph->edge[e].from != operator && graph->edge[e].to != operator) e++;
    const struct graph_edge edge = graph->edge[e];
    const int other = edge.from == operator ? edge.to : edge.from;
    struct list *const of = pool_array(pool, (size_t)pool->K, sizeof *of);
    for (int t = 0; t < pool->K && of && !pool->failed; t++) {
        const int first = pool->points;
        for (int s = 0; s < pool->K; s++)
            pool_product(pool, graph->at[operator][s], edge_list(pool, &edge, operator, s, t));
        of[t] = product(pool, graph->at[other][t], end_list(pool, first));
    }
    graph->at[other] = of, graph->gone[operator] = true;
    drop_edge(graph, e);
}

/* An operator between two others becomes an edge. */
static void eliminate_between(struct pool *pool, struct graph *graph, int operator)
{
    struct graph_edge side[2];
    int n = 0;
    for (int e = graph->edges - 1; e >= 0; e--)
        if (graph->edge[e].from == operator || graph->edge[e].to == operator)
            side[n++] = graph->edge[e], drop_edge(graph, e);
    const int a = side[0].from == operator ? side[0].to : side[0].from,
              b = side[1].from == operator ? side[1].to : side[1].from;
    struct list *const of = pool_array(pool, (size_t)(pool->K * pool->K), sizeof *of);
    for (int s = 0; s < pool->K && of; s++)
        for (int t = 0; t < pool->K && !pool->failed; t++) {
            struct list with[STRATEGIES_MOST];
            for (int k = 0; k < pool->K; k++)
                with[k] = product(pool, edge_list(pool, &side[0], operator, k, s), graph->at[operator][k]);
            const int first = pool->points;
            for (int k = 0; k < pool->K; k++)
                pool_product(pool, with[k], edge_list(pool, &side[1], operator, k, t));
            of[a < b ? s * pool->K + t : t * pool->K + s] = end_list(pool, first);
        }
    graph->gone[operator] = true;
    graph->edge[graph->edges++] = (struct graph_edge){ a < b ? a : b, a < b ? b : a, of };
}

/* @return whether something was eliminated. */
static bool eliminate(struct pool *pool, struct graph *graph)
{
    if (eliminate_edges(pool, graph)) return true;
    for (int wanted = 1; wanted <= 2; wanted++)
        for (int o = 0; o < graph->operators; o++) {
            if (graph->gone[o] || degree(graph, o) != wanted) continue;
            if (wanted == 1) eliminate_end(pool, graph, o);
            else eliminate_between(pool, graph, o);
            return true;
        }
    return false;
}

/* ---- a strategy in turn ------------------------------------------------------------------------------------------ */

static struct graph graph_copy(struct pool *pool, const struct graph *graph)
{
    struct graph copy = *graph;
    copy.gone = pool_array(pool, (size_t)graph->operators, sizeof *copy.gone);
    copy.at = pool_array(pool, (size_t)graph->operators, sizeof *copy.at);
    copy.edge = pool_array(pool, (size_t)graph->edges, sizeof *copy.edge);
    if (pool->failed) return copy;
    memcpy(copy.gone, graph->gone, (size_t)graph->operators * sizeof *copy.gone);
    memcpy(copy.at, graph->at, (size_t)graph->operators * sizeof *copy.at);
    memcpy(copy.edge, graph->edge, (size_t)graph->edges * sizeof *copy.edge);
    return copy;
}

/* The operator has this strategy: its edges become parts of its neighbours. */
static void fix_strategy(struct pool *pool, struct graph *graph, int operator, int strategy)
{
    struct list *const own = pool_array(pool, (size_t)pool->K, sizeof *own);
    if (own) own[strategy] = graph->at[operator][strategy], graph->at[operator] = own;
    for (int e = graph->edges - 1; e >= 0 && !pool->failed; e--) {
        const struct graph_edge edge = graph->edge[e];
        if (edge.from != operator && edge.to != operator) continue;
        const int other = edge.from == operator ? edge.to : edge.from;
        struct list *const of = pool_array(pool, (size_t)pool->K, sizeof *of);
        for (int t = 0; t < pool->K && of; t++)
            of[t] = product(pool, graph->at[other][t], edge_list(pool, &edge, operator, strategy, t));
        graph->at[other] = of;
        drop_edge(graph, e);
    }
}

static struct list solve_graph(struct pool *pool, struct graph *graph, int turns);

static struct list solve_in_turn(struct pool *pool, const struct graph *graph, int turns)
{
    int most = -1;
    struct list of[STRATEGIES_MOST];
    for (int o = 0; o < graph->operators; o++)
        if (!graph->gone[o] && (most < 0 || degree(graph, o) > degree(graph, most))) most = o;
    for (int s = 0; s < pool->K && !pool->failed; s++) {
        struct graph copy = graph_copy(pool, graph);
        if (!pool->failed) fix_strategy(pool, &copy, most, s);
        of[s] = pool->failed ? (struct list){ 0, 0 } : solve_graph(pool, &copy, turns + 1);
    }
    const int first = pool->points;
    for (int s = 0; s < pool->K && !pool->failed; s++)
        for (int i = 0; i < of[s].count; i++) add_point(pool, pool->point[of[s].first + i]);
    return end_list(pool, first);
}

static struct list solve_graph(struct pool *pool, struct graph *graph, int turns)
{
    struct list all;
    while (!pool->failed && eliminate(pool, graph)) { }
    if (graph->edges > 0 && turns == MOST_TURNS) pool->stuck = true;
    if (pool->failed || pool->stuck) return (struct list){ 0, 0 };
    if (graph->edges > 0) return solve_in_turn(pool, graph, turns);
    /* Operators without neighbours do not depend on each other. */
    all = (struct list){ pool->points, 1 };
    add_point(pool, (struct graph_point){ 0, 0, 0, -1 });
    for (int o = 0; o < graph->operators && !pool->failed; o++) {
        if (graph->gone[o]) continue;
        const int first = pool->points;
        for (int s = 0; s < pool->K; s++)
            for (int i = 0; i < graph->at[o][s].count; i++)
                add_point(pool, pool->point[graph->at[o][s].first + i]);
        all = product(pool, all, end_list(pool, first));
    }
    return all;
}

/* ---- from a table ------------------------------------------------------------------------------------------------ */

static struct list leaf(struct pool *pool, int layer, int strategy)
{
    const struct layer_table *const table = pool->table;
    const struct layer_cost *const cost = layer_cost_of(table, layer, strategy);
    const int first = pool->points;
    if (cost->there)
        add_point(pool, (struct graph_point){ layer_time(table, layer, strategy), cost->computing,
                                              layer_memory(table, layer, strategy, layer_flight(table, 1)),
                                              add_tree(pool, (struct graph_tree){ layer, strategy, -1, -1 }) });
    return (struct list){ first, pool->points - first };
}

static struct graph graph_of(struct pool *pool)
{
    const struct layer_table *const table = pool->table;
    const int K = pool->K;
    struct graph g = { table->layers, table->links, pool_array(pool, (size_t)table->layers, sizeof *g.gone),
                       pool_array(pool, (size_t)table->layers, sizeof *g.at),
                       pool_array(pool, (size_t)table->links + 1, sizeof *g.edge) };
    for (int o = 0; o < table->layers && !pool->failed; o++) {
        g.at[o] = pool_array(pool, (size_t)K, sizeof *g.at[o]);
        for (int s = 0; s < K && !pool->failed; s++) g.at[o][s] = leaf(pool, o, pool->strategy[s]);
    }
    for (int e = 0; e < table->links && !pool->failed; e++) {
        g.edge[e] = (struct graph_edge){ table->link[e].from, table->link[e].to,
                                         pool_array(pool, (size_t)(K * K), sizeof *g.edge[e].of) };
        for (int i = 0; i < K * K && !pool->failed; i++) {
            g.edge[e].of[i] = (struct list){ pool->points, 1 };
            add_point(pool, (struct graph_point){ layer_edge(table, pool->strategy[i / K], pool->strategy[i % K]), 0,
                                                  0, -1 });
        }
    }
    return g;
}

enum error_code graph_solve(struct graph_frontier *out, const struct layer_table *table, enum chain_rule rule,
                            struct error *err)
{
    int strategy[STRATEGIES_MOST];
    struct pool pool = { .table = table, .rule = rule, .most = chain_usual_most(table), .strategy = strategy,
                         .out = out };
    *out = (struct graph_frontier){ .points = 0 };
    for (int s = 0; s < table->strategies; s++)
        if (table->strategy[s].devices == table->devices) strategy[pool.K++] = s;
    struct graph graph = graph_of(&pool);
    const struct list all = pool.failed ? (struct list){ 0, 0 } : solve_graph(&pool, &graph, 0);
    if (!pool.failed && !pool.stuck) {
        out->point = calloc((size_t)all.count + 1, sizeof *out->point);
        pool.failed = out->point == NULL;
        for (int i = 0; i < all.count && out->point; i++) out->point[out->points++] = pool.point[all.first + i];
    }
    for (int i = 0; i < pool.blocks; i++) free(pool.block[i]);
    free(pool.block), free(pool.point);
    if (!pool.failed && !pool.stuck) return OK;
    graph_free(out);
    return pool.failed ? fail(err, ERR_MEMORY, "no memory for a graph of %d operators", table->layers)
        : fail(err, ERR_PLAN, "the graph of %d operators has too many edges: after all eliminations more than %d "
               "operators would have to get each strategy in turn", table->layers, MOST_TURNS);
}

void graph_free(struct graph_frontier *frontier)
{
    free(frontier->point), free(frontier->tree);
    frontier->point = NULL, frontier->tree = NULL;
}

void graph_trace(const struct graph_frontier *frontier, int tree, int strategy[])
{
    if (tree < 0) return;
    const struct graph_tree *const t = &frontier->tree[tree];
    if (t->operator >= 0) strategy[t->operator] = t->strategy;
    else graph_trace(frontier, t->left, strategy), graph_trace(frontier, t->right, strategy);
}
