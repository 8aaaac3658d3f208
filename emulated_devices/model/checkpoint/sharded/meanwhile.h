/* meanwhile.h -- a checkpoint that is copied while the next step's passes run, and written while training goes on.
 *
 *     meanwhile_begin()     after a step: what is saved is known; a thread of each device begins to copy its boxes
 *     meanwhile_copied()    before the next update, which changes them: waits until they are copied
 *     meanwhile_settle()    between later steps: votes on whether all files are there, then rank 0 commits
 *
 * Passes change no weights and no states, so the copy is of the step that has ended: the folder has the bytes of
 * sharded_save at that step.  The thread writes the file, flushes it, and computes its checksum.  It sends no message:
 * devices learn of each other between steps, by the votes of votes.h.  When every device's file is on the disk, the
 * thread of rank 0 writes the manifest and makes the checkpoint count; until then the checkpoint before counts.
 *
 * The thread reads the device's memory while the device computes.  Where the host cannot read that memory, or somebody
 * watches who reads it, meanwhile_begin copies at once.
 *
 * Source   A. Maurya et al., "DataStates-LLM: lazy asynchronous checkpointing for large language models", HPDC 2024,
 *          doi:10.1145/3625549.3658685
 *
 * run/saving.c calls these functions.
 */
#ifndef ORRERY_MEANWHILE_H
#define ORRERY_MEANWHILE_H

#include "emulated_devices/model/checkpoint/sharded/votes.h"
#include "emulated_devices/model/trainer.h"
#include "ref/io/bundle.h"
#include "ref/io/json.h"

struct meanwhile;

/* A save has come so far, on every device alike. */
enum outcome { SAVE_RUNS, SAVE_PREPARED, SAVE_COMMITTED, SAVE_FAILED };

/* Seconds of the wall clock on one device. */
struct meanwhile_seconds {
    double begun, copied, written;      /* that meanwhile_begin took; the copy; writing, flushing and the checksum */
    double waited;                      /* that the device waited for the copy before an update */
};

/**
 * Begin a save of the trainer's state as it is now.  No other save of this trainer may run.
 * Collective over all devices.
 * @param votes        stays open until meanwhile_close.
 * @param run, origin  as for sharded_save; read on rank 0.
 * @return OK, or the same error on every device, with *save NULL.
 */
enum error_code meanwhile_begin(struct meanwhile **save, struct votes *votes, struct trainer *, const char *dir,
                                const cJSON *run, const char *origin, struct error *);

/** Wait until the copy is complete: before the state changes.  Local; errors come with meanwhile_settle. */
void meanwhile_copied(struct meanwhile *);

/** Bytes that this device writes: a function of the plan. */
uint64_t meanwhile_bytes(const struct meanwhile *);

/** Wall-clock seconds so far.  Local, after meanwhile_copied; of writing, once the save is prepared. */
struct meanwhile_seconds meanwhile_seconds(struct meanwhile *);

/**
 * Learn what has become of the save, and go on with it.
 * Collective over all devices.
 * @param waits        until it is committed or has failed; else only look.
 * @param[out] outcome of all devices.
 * @return OK, or on every device the error of the first that failed: ERR_FILE, ERR_MEMORY, ERR_CHECK if a device has
 *         copied other bytes than the plan says; then no file of the save is left, unless it counts already.
 */
enum error_code meanwhile_settle(struct meanwhile *, bool waits, enum outcome *outcome, struct error *);

/** End a save: waits for the thread.  Local; NULL does nothing. */
void meanwhile_close(struct meanwhile *);

#endif
