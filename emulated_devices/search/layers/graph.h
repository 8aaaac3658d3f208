/* graph.h -- the frontier of a graph of operators: operators and edges are removed one by one, until none is left.
 *
 * Each operator has a list of points for each strategy, each edge one for each pair.  Three eliminations keep all that
 * any plan can be: an operator between two others becomes an edge, two edges between the same operators become one, and
 * an operator with one neighbour becomes a part of it.  If none applies, the operator with most neighbours gets each
 * of its strategies in turn, and what is left is solved anew: exact, and exponential in how often that happens.
 *
 * Callers: frontier.c for tensoropt.c and mindspore.c, with the graphs of tables that have links.
 *
 * Source   TensorOpt, arXiv:2004.10856, section 4; MindSpore, auto_parallel/dp_algo_costmodel.h, of whose eliminations
 *          operator, edge, merge, contract and source are these; its triangle and star are here the strategy in turn
 */
#ifndef ORRERY_SEARCH_GRAPH_H
#define ORRERY_SEARCH_GRAPH_H

#include "emulated_devices/search/layers/chain.h"

struct graph_point {
    picoseconds time, computing;
    uint64_t memory;                    /**< Memory of the strategies, in bytes. */
    int tree;                           /* the strategies that it is made of: a place in the tree; -1: none */
};

/* A leaf has an operator and its strategy; other places of the tree have two parts. */
struct graph_tree { int operator, strategy, left, right; };

struct graph_frontier {
    struct graph_point *point;          /* [points] of the whole graph, in the order of the rule; owned */
    int points;                         /* entries of `point` */
    struct graph_tree *tree;            /* owned */
    int trees;                          /* entries of `tree` */
    int64_t looked;                     /* points that were made */
    bool thinned;                       /* a list had more points than it may have */
};

/** Solve the graph of a table's links, on all its devices.  @return OK, for graph_free; ERR_MEMORY; ERR_PLAN: too many
 *  operators would have to get each of their strategies. */
enum error_code graph_solve(struct graph_frontier *, const struct layer_table *, enum chain_rule, struct error *);
void graph_free(struct graph_frontier *);

/** Write the strategies of a point. */
void graph_trace(const struct graph_frontier *, int tree, int strategy[]);

#endif
