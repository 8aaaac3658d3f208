/* scheduler.h -- the seam of schedulers: who gets how many devices at which clock rate, from now on.
 *
 * The simulation (simulate.c) asks at every event: a job comes or ends, a device breaks or is repaired, a change is
 * done, or the time comes that the scheduler asked for.  A scheduler sees jobs that have come and have not ended, and
 * says of each what it gets next; it starts from what each has now.
 *
 * A new scheduler is a file that defines a struct scheduler, and its line in schedulers.c.  Schedulers are local and
 * look at no real time, so the same jobs always give the same schedule.
 */
#ifndef ORRERY_CLUSTER_SCHEDULER_H
#define ORRERY_CLUSTER_SCHEDULER_H

#include "emulated_devices/cluster/buddy.h"
#include "emulated_devices/cluster/price.h"

/* Devices of a job: a block, and its clock rate. */
struct allocation { int devices, clock, place; };       /* 0 devices: it waits.  place -1: wherever there is room */

/* A job that has come and has not ended. */
struct active_job {
    const struct cluster_job *job;                      /**< Job of the list. */
    int number;                         /* of the list of jobs */
    int64_t left;                       /* millionths of steps that are not done */
    int64_t served;                     /* device milliseconds that it has had */
    int64_t since;                      /* when its steps begin on the devices that it has, or it began to wait */
    struct allocation now, next;        /* what it has; what the scheduler gives it */
    double key;                         /* the scheduler's, kept between its decisions: an order, a time */
    int level;                          /* likewise: a queue */
};

struct scheduling_setting {
    int64_t quantum;                    /* milliseconds that a job keeps its devices, where turns are taken */
    double budget;                      /* of energy: this many times what all jobs take as they ask */
    int64_t change;                     /* milliseconds that a change of a job's devices takes besides its moves */
};

struct scheduling {
    int64_t now;                        /* virtual milliseconds */
    int devices;                        /* of the cluster that are not broken */
    const struct buddy *room;           /* what is free now */
    struct active_job **at;             /* [count] in the order of arrival */
    int count;                          /**< Jobs that wait or run. */
    struct pricing *pricing;            /**< Times and energies of steps. */
    const struct scheduling_setting *setting; /**< Settings of the user. */
    int64_t wake;                       /* out: when to ask again at the latest; INT64_MAX: at the next event */
    void *own;                          /* the scheduler's, from its open() */
};

struct scheduler {
    const char *name, *what, *source;   /* as --scheduler names it; what it does; who published it, or NULL */
    bool moves;                         /* it may move and resize jobs that run: then devices that are free suffice */
    bool conserves;                     /* no device is idle as long as a job that waits fits */
    /* Both may be NULL: the scheduler keeps nothing of its own.  close is called also after open fails. */
    enum error_code (*open)(struct scheduling *, struct error *); /**< Creates the scheduler's own state. */
    void (*close)(struct scheduling *);                           /**< Frees the scheduler's own state. */
    enum error_code (*decide)(struct scheduling *, struct error *); /**< Decides about devices. */
};

/** The registry; ends with NULL. */
extern const struct scheduler *const schedulers[];

/** Find a scheduler.  @return OK or ERR_USAGE, which names the nearest. */
enum error_code scheduler_find(const struct scheduler **, const char *name, struct error *);

/* ---- what schedulers share (schedulers.c) ------------------------------------------------------------------------ */

/** The milliseconds that a job still takes on so many devices.  @param[out] time  INT64_MAX: it does not fit there.
 *  @return OK or an error of its price. */
enum error_code scheduling_time(const struct scheduling *, const struct active_job *, int devices, int clock,
                                int64_t *time, struct error *);

/** Order jobs by their keys; equal ones stay in the order of arrival. */
void scheduling_sort(struct active_job **, int count);

/** Give jobs that wait what they ask for, one after another, where there is a block.
 *  @param skips  go on with the next after a job that finds none; false: end there.  @return OK or ERR_MEMORY. */
enum error_code scheduling_start(struct scheduling *, struct active_job **, int count, bool skips, struct error *);

/** Give all jobs what they ask for as long as devices are left, in this order; the others wait. */
void scheduling_share(struct scheduling *, struct active_job **, int count);

#endif
