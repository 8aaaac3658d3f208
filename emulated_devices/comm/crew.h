/* crew.h -- many devices in one process: no MPI, no processes, one core.
 *
 * Each device is a fiber (fiber.h), a function with a stack of its own.  It runs until it has to wait for a message;
 * then another one runs whose message has come.  So thousands of devices fit into a process, a run is the same every
 * time, and a deadlock is seen at once, when no device can go on.
 *
 * A device of a crew computes what its backend computes.  With the backend `count` a crew is a plan that is run without
 * its numbers: messages, bytes, memory and virtual time are those of real devices.  Without numbers devices that do the
 * same can be folded (folding.h): one of each class runs, and gets from itself what its likes would send it.
 *
 * Folding is exact or refused.  That the devices of a class compute the same is for the caller to know.  What they send
 * is checked as they send it: in a group with several devices of a class only collectives whose algorithm says that all
 * members do the same (`turns` in collective.h) may run.  Otherwise all devices run to their ends without waiting for
 * anything, and the outcome says why it means nothing.  Files of collectives/, course/, run/, schemes/ and other
 * rooms call these functions.
 */
#ifndef ORRERY_CREW_H
#define ORRERY_CREW_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/comm/folding.h"

struct crew;

/* The work of one device.  It opens its device, joins, and calls comm_close before it returns. */
typedef enum error_code crew_fn(struct crew *, int rank, const void *asked, struct error *);

enum { CREW_MOST_DEVICES = MESH_MOST_DEVICES };

/* Whether a run shall end before its time: asked every few messages.  NULL: it shall not. */
struct crew_stop { bool (*asked)(void *context); void *context; };

/* A run took this. */
struct crew_outcome {
    int lives;                          /* devices that ran */
    uint64_t events, switches;          /* sends and receives; how often one device was left for another */
    char inexact[200];                  /* why the devices cannot be folded so, and nothing of this run is true; empty:
                                         * they can */
    bool stopped;                       /* inexact, since the run was asked to end */
    unsigned axes;                      /* of the group that found out; 0: none did */
    int apart;                          /* if the group does what no folding along dp allows: the least number of
                                         * devices along dp that must run, so that no two of its members are of a
                                         * class; else 0 */
};

/**
 * Run a function as each of `devices` devices, until all have returned.
 * @param asked  passed on to each.
 * @return OK, or the error of the lowest rank that has one; ERR_MEMORY.  If the devices wait for each other the process
 *         ends with status 1, and says who waits for whom.
 */
enum error_code crew_run(int devices, crew_fn *run, const void *asked, struct error *);

/** Do the same of the devices of a mesh, of which those run that stand for all.  If they wait for each other, the
 *  run is `inexact`.
 *  @param stop  when it shall end early: all devices then come to their ends without messages; may be NULL.
 *  @return as crew_run. */
enum error_code crew_run_folded(const struct folding *, const struct crew_stop *stop, crew_fn *run, const void *asked,
                                struct crew_outcome *, struct error *);

/** In a crew what comm_open is between processes: connect this device with all others.
 *  @return OK, or ERR_MEMORY with nothing to close. */
enum error_code crew_join(struct comm *, struct crew *, int rank, struct device *, struct error *);

/** Devices with numbers whose run goes on after one has failed: from now on they agree on outcomes with messages, as
 *  processes do, and all learn of an error.  Called on each device after crew_join; not in a folded crew. */
void crew_agree_by_messages(struct comm *);

/** Whether the run means nothing already (crew_outcome.inexact): work that is left need not be done. */
bool crew_is_inexact(const struct crew *);

/** The same, asked by a device: what it would send need not be sent.  False for any device that is not in a crew. */
bool comm_is_idle(const struct comm *);

/** Into how many equal parts the stages of a folded crew are cut (comm/folding.h); 1: they are not. */
int comm_folded_parts(const struct comm *);

/** Say that the devices of a folded crew do not do the same: the run means nothing.  Others may ignore the call. */
void comm_uneven(struct comm *, const char *why);

#endif
