/* hypergraph.h -- divide the vertices of a hypergraph into parts of about equal weight, so that few edges are cut.
 *
 * Each vertex has two weights.  The volume of an edge that has vertices in n parts is its cost times n-1: what must be
 * sent if each part but one gets the edge's data once.
 *
 *     cost 5:  a b | c      2 parts: 5
 *     cost 2:  a | c | d    3 parts: 4
 *
 * dcp_divide.c divides blocks and works by it.  The result is a pure function of its arguments: every device gets the
 * same parts.
 */
#ifndef ORRERY_ATTENTION_HYPERGRAPH_H
#define ORRERY_ATTENTION_HYPERGRAPH_H

#include "ref/error.h"
#include <stdint.h>

struct hypergraph {
    int vertices, edges;                /* counts of both */
    int64_t (*weight)[2];               /* [vertices] */
    int64_t *cost;                      /* [edges] */
    int *first;                         /* [edges + 1] where each edge's vertices begin in pin */
    int *pin;                           /* [first[edges]] vertices of all edges, edge after edge */
};

/* Parts to divide into. */
struct hypergraph_parts {
    int count;                          /* parts */
    const int *share;                   /* [count] the relative weight that each may have, at least 1 */
};

/**
 * Divide: two greedy beginnings and, if there is one, a given beginning; each is refined as by Fiduccia and Mattheyses,
 * and the best is taken.  A part gets of both weights at most its share, and 1/20 of that or the heaviest vertex more.
 * The same result everywhere.
 * Local, pure.
 * @param begin      [vertices] the part of each vertex in a beginning, which may have too much in a part; NULL: none.
 * @param[out] part  [vertices]
 * @return OK, or ERR_MEMORY; then part is not set.
 */
enum error_code hypergraph_divide(int part[], const struct hypergraph *, struct hypergraph_parts, const int begin[],
                                  struct error *);

void hypergraph_free(struct hypergraph *);

#endif
