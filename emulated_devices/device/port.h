/* port.h -- the time of one port of a device: which streams' messages it moves when.
 *
 * Messages of one stream are moved one after the other, in the program's order.  Those of several streams share the
 * port in equal parts, as flows of several communicators share a network card.  A clock cannot take back an end that
 * it has told: so a message that comes later in the program takes its part of the time of earlier ones, and the port
 * owes them as much.  It pays from its next free time, which it shares with the message while that is on its way.
 *
 * However messages share it, a port is never idle while one waits, and it moves each byte once.  clock.c calls
 * port_take; tests/devices/test_port.c has times by hand, and a port that is simulated unit by unit.  No function
 * here can fail.
 */
#ifndef ORRERY_PORT_H
#define ORRERY_PORT_H

#include "emulated_devices/device/cluster.h"

struct trace;

/* When a port is busy: disjoint intervals in ascending order.  The oldest are dropped when it is full. */
enum { PORT_MEMORY = 64, PORT_LANES = 6 };
struct port {
    int count;                          /* intervals in `busy` */
    struct port_interval {
        picoseconds start, end;         /* [start, end), in which messages used the port */
        uint8_t lanes;                  /* of these streams: a bit for each */
    } busy[PORT_MEMORY];
};

/* A message on a port. */
struct port_message {
    int lane;                           /* its stream: 0 to PORT_LANES - 1 */
    picoseconds from, takes;            /* it comes at `from`, and needs the port for so long if it is alone */
    struct trace *trace;                /* or NULL */
    int row, shared_row;                /* of the trace: alone on the port, and beside others */
};

/* How a message passed: its last byte at `end`, and so much later than alone because others had parts of its time. */
struct port_passed { picoseconds end, slowed; };

/** Move a message through a port.
 *  @param[in,out] paid  [PORT_LANES] raised to when the port has paid what it owes each stream because of this message
 */
struct port_passed port_take(struct port *, const struct port_message *, picoseconds paid[PORT_LANES]);

#endif
