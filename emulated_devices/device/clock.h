/* clock.h -- the virtual time of one device, in integer picoseconds.
 *
 * Time advances by what is computed and sent, at the rates of a described machine, never by the wall clock: the same
 * plan takes the same time on every laptop.  Per device there is one compute stream, one send port and one receive
 * port; a message carries the time at which it left.
 */
#ifndef ORRERY_CLOCK_H
#define ORRERY_CLOCK_H

#include "ref/ops/ops.h"

typedef int64_t picoseconds;

/* What a device and its links can do. */
struct machine {
    const char *name, *source;
    double flops_per_second;
    double memory_bytes_per_second;
    picoseconds latency;                /* of a message */
    picoseconds gap;                    /* a port is busy this long for each message, besides its bytes */
    double link_bytes_per_second;
};

struct clock {
    const struct machine *machine;
    picoseconds now;                    /* the compute stream's */
    picoseconds send_free, receive_free;/* when each port has finished its last message */
    double flops;                       /* done so far */
};

/** The machine used unless another is named. */
extern const struct machine machine_default;

/** A clock at zero. */
void clock_open(struct clock *, const struct machine *);

/** Compute: the stream is busy for the longer of arithmetic and memory traffic, rounded up once. */
void clock_compute(struct clock *, struct op_cost);

/** A message of this many bytes leaves now, or when the send port is free.  @return when its last byte can arrive at the earliest. */
picoseconds clock_send(struct clock *, uint64_t bytes);

/** Wait for a message with this stamp: the receive port takes it in, then the stream goes on. */
void clock_receive(struct clock *, picoseconds stamp, uint64_t bytes);

#endif
