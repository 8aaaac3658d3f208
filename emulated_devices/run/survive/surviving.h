/* surviving.h -- `--survive N`: a run whose processes may be killed goes on from snapshots in shared memory.
 *
 * MPI gives the others no way to go on when a process is killed (docs/using/jobs.md).  So the process that has started
 * the devices ends all that are left, and starts them again.  The new devices take their state from the memory in which
 * every device writes it at the beginning of each step (snapshot_memory.h), and do the step again.
 *
 *     again.c       the launcher: makes the memory, sees a kill, chooses the step, starts the devices again
 *     surviving.c   a device: writes its state at the beginning of a step, and begins with it
 *
 * The snapshots are of the emulator, not of the emulated devices, so they take no virtual time; those of --lose do.
 * cli/train/train.c, session_start.c, session.c and report/report_json.c call these functions.
 */
#ifndef ORRERY_SURVIVING_H
#define ORRERY_SURVIVING_H

#include "emulated_devices/model/collection/outlined.h"
#include "emulated_devices/run/run.h"
#include "emulated_devices/run/survive/snapshot_memory.h"
#include "emulated_devices/train/training.h"

/* This is one device's part of a run that survives kills. */
struct surviving {
    struct snapshot_memory memory;      /* of all devices */
    const struct collection *collection;        /* of the run's plan */
    bool tells;                         /* the first step after a kill has not ended yet */
};

/**
 * Start the devices of a run, and again as often as one of their processes is killed, up to --survive's number.
 * @return as launch_devices; ERR_MEMORY and ERR_USAGE also of the memory for snapshots, before a device starts.
 */
enum error_code surviving_launch(const struct train_options *, int argc, char **argv, int *status, struct error *);

/** Whether the devices of this run were started before, and one of them was killed.  Local. */
bool surviving_again(const struct train_options *);

/** Be one device of such a run.  Collective over all devices.
 *  @param[out] status  as for session_run.
 *  @return as session_run; ERR_COMM where the memory for snapshots cannot be reached. */
enum error_code surviving_run(struct comm *, const struct train_options *, const struct train_data *,
                              const char *overridden, int *status, struct error *);

/** Do what a moment of a step asks for: write the device's state, or note the loss and say what a kill has cost.
 *  Collective over all devices.  @param surviving  NULL: the run does not survive kills.
 *  @return OK, or the same error on every device. */
enum error_code surviving_at(struct surviving *surviving, enum moment, struct trainer *, const struct training_step *,
                             const struct train_options *, struct error *);

/** Add the kills so far and the losses of the steps before the last one to a report; nothing without --survive. */
void surviving_json(cJSON *root, const struct train_options *);

#endif
