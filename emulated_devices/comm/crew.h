/* crew.h -- many devices in one process: no MPI, no processes, one core.
 *
 * Each device is a fiber, a function with a stack of its own.  It runs until it has to wait for a message; then another
 * one runs whose message has come.  So thousands of devices fit into a process, a run is the same every time, and a
 * deadlock is seen at once, when no device can go on.
 *
 * A device of a crew computes what its backend computes.  With the backend `count` a crew is a plan that is run without
 * its numbers: messages, bytes, memory and virtual time are those of real devices.
 */
#ifndef ORRERY_CREW_H
#define ORRERY_CREW_H

#include "emulated_devices/comm/comm.h"

struct crew;

/* The work of one device.  It opens its device, joins, and calls comm_close before it returns. */
typedef enum error_code crew_fn(struct crew *, int rank, const void *asked, struct error *);

enum { CREW_MOST_DEVICES = 16384 };

/**
 * Run a function as each of `devices` devices, until all have returned.
 * @param asked  passed on to each.
 * @return OK, or the error of the lowest rank that has one; ERR_MEMORY.  If the devices wait for each other the process
 *         ends with status 1, and says who waits for whom.
 */
enum error_code crew_run(int devices, crew_fn *run, const void *asked, struct error *);

/** In a crew what comm_open is between processes: connect this device with all others.
 *  @return OK, or ERR_MEMORY with nothing to close. */
enum error_code crew_join(struct comm *, struct crew *, int rank, struct device *, struct error *);

/** How many times a device of the crew has waited so far: what a run of many devices costs. */
uint64_t crew_switches(const struct crew *);

#endif
