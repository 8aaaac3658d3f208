/* engine.h -- what the parts of a simulation share: simulate.c has the events, place.c the blocks, books.c time and
 * energy.  Only these include this file. */
#ifndef ORRERY_CLUSTER_ENGINE_H
#define ORRERY_CLUSTER_ENGINE_H

#include "emulated_devices/cluster/simulate.h"

/* Where a job's state is when it gets devices. */
enum job_state { STATE_NEW, STATE_ON_DEVICES, STATE_ON_HOSTS, STATE_SAVED };

struct engine_job {
    struct active_job active;           /* what the scheduler sees; first, so that one is the other */
    enum job_state state;               /**< Place of the job's state when the job gets devices. */
    const struct job_price *price;      /* of its piece */
    struct job_piece piece;             /* it has devices if active.now says so */
    int64_t left;                       /* active.left when the piece began */
    int64_t served;                     /* active.served likewise */
    int64_t saved, saved_at;            /* active.left at the last save, and when that was */
    struct allocation was;              /* while devices are given: what it had; devices 0: nothing, or it stays */
    enum job_state before;              /* while devices are given: its state before it got any */
    uint64_t moved;                     /* bytes of its last change */
};

/* OWNER_PROMISED: a block that a job gets as soon as those that left it have others. */
enum { OWNER_NONE = -1, OWNER_BROKEN = -2, OWNER_PROMISED = -3 };

struct repair { int64_t at; int device; };

struct engine {
    const struct cluster_jobs *jobs;    /**< Jobs of the simulation. */
    struct pricing *pricing;            /**< Prices of the jobs' steps and moves. */
    const struct simulation_setting *setting; /**< Setting of the simulation. */
    struct simulated *out;              /**< Results, which the simulation fills. */
    struct scheduling scheduling;       /**< State of the cluster that schedulers see. */
    struct buddy buddy;                 /**< Free blocks of devices. */
    struct engine_job *job;             /* [jobs] */
    int *owner;                         /* [devices] the job of each, or OWNER_NONE, OWNER_BROKEN */
    int64_t *since;                     /* [devices] without a job: since when it is in its state */
    struct active_job **placing;        /* [jobs] room for place.c */
    struct repair *repair;              /* [devices] */
    int repairs, coming, done;          /* devices in repair; the next job that comes; jobs that have ended */
    int64_t wake, failures;             /* of the scheduler; drawn so far */
    struct failure failure;             /* the next one */
};

static inline struct engine_job *engine_job_of(struct active_job *active) { return (struct engine_job *)active; }

/* ---- books.c ----------------------------------------------------------------------------------------------------- */

/** Bring what schedulers see of a job up to now. */
void books_update(struct engine *, struct engine_job *);

/** Begin a piece on the job's devices, or end the piece.
 *  @return OK; ERR_INTERNAL: a device has another job; ERR_MEMORY. */
enum error_code books_open_piece(struct engine *, struct engine_job *, int64_t moves, struct error *);
enum error_code books_close_piece(struct engine *, struct engine_job *, struct error *);

/** A device without a job changes its state. */
void books_flush_device(struct engine *, int device);

/** Saves that were made since the last time one was noted. */
void books_note_saves(struct engine *, struct engine_job *);

/** All sums, at the end.  @return OK or ERR_INTERNAL, which says what does not close. */
enum error_code books_close(struct engine *, struct error *);

/* ---- place.c ----------------------------------------------------------------------------------------------------- */

/** Put every job where the scheduler wants it, or as near as blocks allow.  @return OK or an error. */
enum error_code place_jobs(struct engine *, struct error *);

#endif
