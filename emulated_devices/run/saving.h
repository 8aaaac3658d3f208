/* saving.h -- `--save-async`: checkpoints that are copied and written while the run goes on, and what that costs.
 *
 * In virtual time a save of n bytes on a device is a job of the engine that copies to the host, and then one of the
 * host's drive:
 *
 *     T_copy = n / copy rate, T_write = n / drive rate
 *     held   = max(0, T_copy - T_passes)       before the update that follows; T_passes: forward, backward, reduction
 *     waited = max(0, committed - now)         before the next save: there is one buffer, which is free when all
 *                                              devices have written; committed = the last begin + T_copy + T_write
 *
 * Both are predicted by these formulas and counted by the clock, and must be equal on every device, or the run fails.
 * Seconds of the wall clock are measured beside them.
 *
 * Source   A. Maurya et al., "DataStates-LLM: lazy asynchronous checkpointing for large language models", HPDC 2024,
 *          doi:10.1145/3625549.3658685
 *
 * run/session.c and run/between.c call these functions; report/report_saves.c shows the saves.
 */
#ifndef ORRERY_RUN_SAVING_H
#define ORRERY_RUN_SAVING_H

#include "emulated_devices/model/checkpoint/sharded/meanwhile.h"

struct session;

/* One save holds a device so long: as the clock has counted it, and as the formulas say. */
struct stall { picoseconds held, waited; };

/* One save, on rank 0: of each time that of the device with the longest. */
struct save_record {
    int64_t step;                       /* whose state it has */
    int64_t known;                      /* the step after which all devices knew that it counts */
    uint64_t bytes, most;               /* of all devices; of the largest buffer */
    picoseconds copy, write;            /* T_copy and T_write */
    struct stall counted, foreseen;     /* equal, or the run has failed */
    struct meanwhile_seconds wall;      /* measured */
};

struct saves { int count, room; struct save_record *at; };

/* This is one device's saves.  All zero: none was begun. */
struct saving {
    struct meanwhile *now;              /* the save that runs; NULL: none */
    struct votes votes;                 /* open after the first save */
    bool open, due;                     /* votes are open; the copy has not been waited for */
    int64_t step;                       /* whose state is saved */
    char dir[BUNDLE_PATH];              /* where */
    picoseconds begun, copied, written; /* of the save that runs, by the clock: when it begins, when jobs end */
    picoseconds copy, write;            /* T_copy, T_write */
    struct stall counted, foreseen;     /* of the save that runs */
    picoseconds committed, foreseen_committed;  /* of the save before, on all devices */
};

/** Begin a save, after the one before is committed.  Collective over all devices.
 *  @param run, origin  read on rank 0.  @return OK, or the same error everywhere. */
enum error_code saving_begin(struct session *, const char *dir, const cJSON *run, const char *origin, struct error *);

/** Before an update: wait for the copy, in virtual time and by the wall clock.  Local. */
void saving_before_update(struct session *);

/** Between steps: learn what has become of the save that runs.  Collective over all devices.
 *  @param waits  until it counts.
 *  @return OK, or the same error everywhere: as meanwhile_settle; ERR_CHECK if a device was held for another time than
 *          foreseen; ERR_FILE of checkpoints that should be removed. */
enum error_code saving_look(struct session *, bool waits, struct error *);

/** End saving, also after an error.  Local. */
void saving_close(struct session *);

#endif
