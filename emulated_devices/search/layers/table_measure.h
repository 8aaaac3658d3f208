/* table_measure.h -- what a layer takes with a strategy, from planned steps of few layers; what an edge takes, and a
 * hop.  table_make.c calls.  The functions are local. */
#ifndef ORRERY_SEARCH_TABLE_MEASURE_H
#define ORRERY_SEARCH_TABLE_MEASURE_H

#include "emulated_devices/search/layers/table.h"

struct crew_stop;
struct plan;

struct measured_layer {
    struct layer_cost layer, first, last;       /* a layer; what the embedding and the loss take besides */
    uint64_t passing, passing_last;     /* bytes that are there for a while: in a first stage; in one with the loss */
};

/** Plan steps of one and two layers, one and two microbatches, in one stage, and of two layers in two stages.
 *  @return OK; ERR_PLAN or ERR_USAGE: there is no such plan; ERR_STOPPED; ERR_MEMORY. */
enum error_code measure_layer(const struct plan *base, const struct strategy *, int micros, const struct crew_stop *,
                              struct measured_layer *, struct error *);

/** The time of boxing a microbatch's stream from one strategy's layout to another's on the same devices, and its
 *  gradient back.  @return OK, ERR_PLAN or ERR_MEMORY. */
enum error_code measure_edge(const struct plan *base, const struct strategy *from, const struct strategy *to,
                             int micros, picoseconds *time, struct error *);

/** The time of a microbatch's stream from a stage of so many devices to the next, and of its gradient back: latency,
 *  and the larger of both stages' parts over the link between them. */
picoseconds measure_hop(const struct plan *base, int from, int to, int micros);

#endif
