/* chain.h -- the best strategies of a run of layers in one stage, for each memory: a frontier, layer by layer.
 *
 * A list of points goes with each layer and each layout of the residual stream: what the layers so far take, if the
 * last of them has this layout.  A point that another one beats is dropped, so what is left is the whole frontier, and
 * the exact answer of the integer program that chooses strategies under a memory limit.
 *
 * Callers: stages.c, tensoropt.c, mindspore.c and graph.c of this folder.  The functions are local.
 */
#ifndef ORRERY_SEARCH_CHAIN_H
#define ORRERY_SEARCH_CHAIN_H

#include "emulated_devices/search/layers/table.h"

/* When a point is dropped: another is no worse in both. */
enum chain_rule { BY_TIME_AND_MEMORY,
                  BY_COMPUTING_AND_COMMUNICATION,       /* memory is carried along, and not compared */
                  BY_TIME, BY_MEMORY };                 /* one point of each list stays, the least */

struct chain_point {
    picoseconds time, computing;        /* of the layers so far; computing is a part of time */
    uint64_t memory;
    int strategy, before;               /* of the last layer; the place of the point that it continues, -1: none */
};

struct chain {
    const struct layer_table *table;    /* what layers take */
    int first, length;                  /* layers: from `first` on, forwards or backwards */
    bool backwards;                     /* the chain begins at its last layer */
    int devices, flight;                /* of the stage; microbatches in flight */
    uint64_t cap;                       /* bytes that the layers may have; UINT64_MAX: any */
    bool (*takes)(const struct strategy *);     /* which strategies; NULL: all on as many devices */
    enum chain_rule rule;               /* when a point is dropped */
    int most;                           /* points of a list; more are thinned */
    bool thinned;                       /* a list had more */
    struct chain_point *of;             /* [count] of all lists */
    int count, room;                    /* entries of `of`, and for how many there is memory */
    struct chain_list { int first, count; } *list;      /* [length * layouts] of each layer */
};

/** Points of a list: all of a small table, which is exact; few of a large one. */
int chain_usual_most(const struct layer_table *);

/** Drop what another point beats, and thin what is left to `most`, evenly in memory.  @return how many are left, in
 *  the order of memory, or of computing. */
int chain_reduce(struct chain_point *, int count, enum chain_rule, int most, bool *thinned);

/** Make the lists of all layers of a chain whose fields down to `most` are set.  @return OK, for chain_close; or
 *  ERR_MEMORY with nothing to close. */
enum error_code chain_open(struct chain *, struct error *);
void chain_close(struct chain *);

/** The fastest point of the first `length` layers of the chain, of equal ones the one with least memory; -1: none. */
int chain_fastest(const struct chain *, int length);

/** Write the strategies of a point's layers, which end with the layer at `length`. */
void chain_trace(const struct chain *, int point, int length, int strategy[]);

#endif
