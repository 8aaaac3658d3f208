/* simulators.h -- what devices did, as input of simulators of networks: who computes for how long, who sends how much
 * to whom, and what waits for what.
 *
 *   chakra  MLCommons Chakra's execution traces, which ASTRA-sim reads: PATH.0.et, PATH.1.et, .., a file for each
 *           device: a GlobalMetadata and then Nodes (et_def.proto), each behind its length as a varint
 *   goal    the language of LogGOPSim (T. Hoefler, T. Schneider, A. Lumsdaine, HPDC 2010): one text for all
 *
 * A node is a computation, a send, a receive, or a point at which a stream waits.  Sends and receives wait only for
 * what came before them in their stream; what comes after them does not wait for them, but for the point where the
 * program does.  Every message of the run is there with its bytes, none is added; computations have the virtual time
 * that they took, rounded to the format's unit so that their sum is right.
 *
 * run/session.c calls after a run that kept its events.
 */
#ifndef ORRERY_DRAW_SIMULATORS_H
#define ORRERY_DRAW_SIMULATORS_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/events.h"

enum simulator { SIMULATOR_CHAKRA, SIMULATOR_GOAL };

/**
 * Write what all devices did.
 * Collective over all devices; rank 0 writes.
 * @param events  of this device's clock, from its beginning to a moment at which no message was on its way.
 * @return OK, or the same error on every device: ERR_FILE, ERR_MEMORY, ERR_COMM.
 */
enum error_code simulator_write(struct comm *, const struct events *events, enum simulator, const char *path,
                                struct error *);

#endif
