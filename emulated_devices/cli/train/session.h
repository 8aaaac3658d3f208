/* session.h -- one device's part of a run, and what happens between its steps; shared by train.c and between.c. */
#ifndef ORRERY_TRAIN_SESSION_H
#define ORRERY_TRAIN_SESSION_H

#include "emulated_devices/cli/train/log.h"
#include "emulated_devices/device/events.h"
#include "emulated_devices/device/trace.h"

/* What one device needs for a run; the reference on rank 0 only. */
struct session {
    const struct train_options *options;
    struct trainer trainer;
    struct reference reference;
    struct probes probes;
    struct train_record record;
    struct trace trace;
    char *profile;                      /* this device's first step (profile.h), for free(); NULL: none has ended */
    struct events events;               /* for --trace-format chakra and goal */
    int32_t *chosen;                    /* [steps, L, rows, k] for --save-load, on rank 0 */
    struct run_log log;                 /* on rank 0 */
    bool checking, speaks;
    int stopped;                        /* the signal that ends the run; 0: none; the same on every device */
    int64_t saved;                      /* the step of the last checkpoint; -1: none */
    struct divergence divergence;       /* the same on every device */
};

/**
 * After a step: evaluate, write it to the logs, save a checkpoint, as options say; and hear whether a signal asks for
 * the end, which sets r->stopped.
 * Collective over all devices.
 * @param i  the step's number in this run, from 0.
 */
enum error_code between_steps(struct session *r, const struct train_data *, int64_t i, struct error *);

/** Save the checkpoint of --save, after the last step.  Collective over all devices. */
enum error_code session_save(struct session *r, const struct train_data *, struct error *);

#endif
