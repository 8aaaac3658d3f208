/* session.h -- one device's part of a run, and what happens between its steps.  cli/train/train.c and one_process.c
 * call these functions. */
#ifndef ORRERY_TRAIN_SESSION_H
#define ORRERY_TRAIN_SESSION_H

#include "emulated_devices/run/log.h"
#include "emulated_devices/comm/recorder.h"
#include "emulated_devices/device/events.h"
#include "emulated_devices/device/trace.h"
#include "emulated_devices/run/live.h"
#include "emulated_devices/run/saving.h"

struct phase;

/* One device's part of a run; the reference is on rank 0 only. */
struct session {
    const struct train_options *options;        /* the caller's */
    struct phase *phase;                /* of a run whose mesh changes: which part of it this is; NULL: it does not */
    struct trainer trainer;             /* this device's part of the run */
    struct reference reference;         /* the one-device run that `checking` compares with; rank 0 */
    struct probes probes;               /* compare activations while they are computed */
    struct train_record record;         /* results so far, on rank 0 */
    struct trace trace;                 /* of --trace, the profile and the film */
    char *profile;                      /* this device's first step (profile.h), for free(); NULL: none has ended */
    cJSON *part;                        /* this device's part of the film (draw/page/film_run.h); NULL: not yet made */
    struct live *live;                  /* of --live, on rank 0; NULL: nobody looks */
    int64_t *mark;                      /* [page_steps] virtual times at which steps ended */
    int marks;                          /* steps in `mark` */
    size_t traced, traced_memories;     /* spans and samples of the steps of --trace */
    struct recorder recorder;           /* this device's, always on */
    struct events events;               /* for --trace-format chakra and goal */
    int32_t *chosen;                    /* [steps, L, rows, k] for --save-load, on rank 0 */
    struct run_log log;                 /* on rank 0 */
    bool checking, speaks;              /* every step is compared with the reference; this is rank 0 */
    int stopped;                        /* the signal that ends the run; 0: none; the same on every device */
    int64_t saved;                      /* the step of the last checkpoint; -1: none */
    struct saving saving;               /* of --save-async */
    struct divergence divergence;       /* the same on every device */
};

/**
 * After a step: evaluate, write it to the logs, save a checkpoint, as options say; and hear whether a signal asks for
 * the end, which sets session->stopped.
 * Collective over all devices.
 * @param i  the step's number in this run, from 0.
 */
enum error_code between_steps(struct session *session, const struct train_data *, int64_t i, struct error *);

/** Begin the checkpoint that is due after this step, if it is one of --save-async.  Collective over all devices. */
enum error_code between_save_begins(struct session *session, const struct train_data *, struct error *);

/** Save the checkpoint of --save, after the last step.  Collective over all devices. */
enum error_code session_save(struct session *session, const struct train_data *, struct error *);

/** Check that output files can be written.  @return OK, or the error with the flag of the file. */
enum error_code session_probe_outputs(const struct train_options *, struct error *);

/** Check the memory budget of a device, and that this machine has the memory of all.  @return OK or ERR_MEMORY. */
enum error_code session_check_memory(const struct train_options *, struct error *);

/** Read the texts of a run.  @return as train_data_load. */
enum error_code session_load_data(struct train_data *, const struct train_options *, struct error *);

/** Open a device for a run, with its clock.  @return as device_open. */
enum error_code session_open_device(struct device *, const struct train_options *, struct error *);

/**
 * Be one device of a run, from reading the text to the last report.
 * Collective over all devices.
 * @param comm  connected; all its devices are those of the run's mesh, or each says that they are not.
 * @param[out] status  set if a signal has stopped the run.
 * @return on every device the same; rank 0 has reported what there is.
 */
enum error_code session_run(struct comm *comm, const struct train_options *, int *status, struct error *);

/** Be one device of a run, or of its steps on one mesh.  Collective over the devices of the comm.
 *  @param phase  where the mesh changes; NULL: it does not.
 *  @param[out] status  as for session_run.  @return as session_run. */
enum error_code session_on_device(struct comm *, const struct train_options *, const struct train_data *,
                                  const char *overridden, struct phase *phase, int *status, struct error *);

/* ---- one_process.c ----------------------------------------------------------------------------------------------- */

/** Whether ORRERY_ONE_PROCESS=1 asks for all devices in this process. */
bool one_process(void);

/** Run with all devices in this process, as a crew (crew.h): without MPI, without other processes, on one core.
 *  Numbers, counters and virtual time are those of devices with a process each.  @return as session_run. */
enum error_code train_in_one_process(const struct train_options *, int *status, struct error *);

#endif
