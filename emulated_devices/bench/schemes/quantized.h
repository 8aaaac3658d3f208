/* quantized.h -- reduce-scatters of int8 or int4 codes: what they send, and how far their sums are off.
 * cli/bench/quantized.c calls these functions. */
#ifndef ORRERY_BENCH_QUANTIZED_H
#define ORRERY_BENCH_QUANTIZED_H

#include "emulated_devices/collectives/quantised.h"

/* Quantised once and exchanged all to all; in two steps, inside and between nodes; at every hop of a ring. */
enum quantized_way { ONCE, TWO_STEPS, EVERY_HOP, WAYS };

/* Numbers from -1 to 1, or from 1 to 2, are summed. */
enum quantized_numbers { RANDOM, ONE_SIGN, NUMBERS };

/* Sums and maxima over all devices. */
struct quantized_found {
    double squares, bounds;             /* sums over elements of error^2 and bound^2 */
    double worst;                       /* error/bound of an element */
    double messages, bytes, between, time;      /* of the device with most; bytes at the outermost link level */
};

struct quantized_bench {
    struct comm *world;                 /* all devices */
    int elements;                       /* of the sum that each device keeps */
    struct quantised_group by_nodes, flat;      /* for two steps; for one */
    struct tensor row;                  /* [P elements] */
    struct tracking tracking;           /* exact sums and bounds */
};

/** Open and close.  Collective; close also after a failure.  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code quantized_open(struct quantized_bench *, struct comm *world, int elements, struct error *);
void quantized_close(struct quantized_bench *);

/** Reduce once.  Collective.  @param[out] out  the same on every device. */
enum error_code quantized_measure(struct quantized_bench *, enum quantized_way, enum quantized_numbers,
                                  struct block_format, struct quantized_found *out, struct error *);

#endif
