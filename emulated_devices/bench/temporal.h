/* temporal.h -- memories of nodes of a graph whose events come one after another, in batches.
 *
 * Each node has a memory, a vector.  An event of two nodes moves both memories, by a gated unit that reads both and the
 * event.  In batches all events read the memories from before the batch, and only the last event of a node moves its
 * memory: what the node's other events of the batch did is lost.  With prediction, a node that has lost events is
 * moved on as it moved before, and the result is a mean of that and of what its last event gives.
 *
 * Source  J. Su et al., "PRES: toward scalable memory-based dynamic graph neural networks", arXiv:2402.04284: equations
 *         of prediction and correction, with its released weight 0.9.  Two things are ours: the weight of a prediction
 *         falls with the share of events that were not lost, so that batches of one event are exact; movements are
 *         averaged with a falling weight.  E. Rossi et al., "Temporal graph networks", arXiv:2006.10637: the memory and
 *         its last message.
 *
 * cli/bench/temporal.c and tests/devices/test_temporal.c call these functions.
 */
#ifndef ORRERY_BENCH_TEMPORAL_H
#define ORRERY_BENCH_TEMPORAL_H

#include "emulated_devices/comm/comm.h"

enum { TEMPORAL_WIDTH = 8, TEMPORAL_FEATURES = 4 };

/* Events, and how memories follow them.  Everything is drawn from the seed. */
struct temporal {
    int nodes, events;
    double drift;                       /* radians an event by which features of nodes turn */
    double gate;                        /* the larger, the less one event moves a memory */
    double weight;                      /* of a prediction: gamma; 0: nothing is predicted */
    uint64_t seed;                      /**< Seed of all drawn numbers. */
};

/* All memories, and how they have moved. */
struct temporal_state {
    double *memory, *moves;             /* [nodes][TEMPORAL_WIDTH]; moves: the mean movement for an event */
    int64_t lost;                       /* events that moved nothing, so far */
};

/** Memories of zeros.  @return OK or ERR_MEMORY; temporal_close in either case. */
enum error_code temporal_open(struct temporal_state *, const struct temporal *, struct error *);
void temporal_close(struct temporal_state *);

/**
 * Let the events first .. first + count - 1 move the memories, as one batch.
 * Collective over a group: node v's new memory is computed by member v mod P, and an all-reduce, in which one member
 * alone gives each number, brings it to all.
 * @param group  NULL: this device computes everything, and nothing is sent.
 * @return OK; ERR_MEMORY; ERR_COMM.
 */
enum error_code temporal_batch(struct temporal_state *, const struct temporal *, int first, int count,
                               struct group *group, struct error *);

/**
 * How far memories are from those of one event after another, at the ends of batches, norm over norm, on average.
 * Collective over the group, if there is one.
 * @param[out] error  of batches of this size.  @param[out] lost  share of a node's events that moved nothing.
 */
enum error_code temporal_error(const struct temporal *, int batch, struct group *group, double *error, double *lost,
                               struct error *);

#endif
