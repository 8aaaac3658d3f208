/* price.h -- what a step of a job takes on so many devices at a clock rate, and what a change of devices moves; each is
 * asked for once.
 *
 *     a device               draws
 *     computes               steady + dynamic f^3, f the clock rate as a part of the highest
 *     waits for messages     steady
 *     moves a job's state    steady
 *     has no job, is broken  idle
 *
 * A source says what steps take: planned.c asks this program's plans, tests have formulas.  simulate.c and schedulers
 * ask; powerflow.c fits a model to some of the answers.
 */
#ifndef ORRERY_CLUSTER_PRICE_H
#define ORRERY_CLUSTER_PRICE_H

#include "emulated_devices/cluster/jobs.h"
#include "emulated_devices/device/cluster.h"
#include <stdbool.h>

enum { CLOCKS_MOST = 8, PRICE_WHY = 200 };

/* A step on so many devices. */
struct job_price {
    picoseconds step, computing;        /* all of it; the time in which its devices compute, on average */
    uint64_t peak;                      /* bytes of the fullest device */
    bool fits;                          /* the devices have this memory, and the plan can be made */
    char why[PRICE_WHY];                /* why it does not fit */
};

/* A job's state moves so much when its devices change. */
struct job_move {
    uint64_t bytes;                     /* of all devices, each element that a device lacks once */
    uint64_t most;                      /* that one device sends or receives */
    picoseconds time;                   /* that the busiest device needs */
};


struct price_source {
    void *context;                      /* first argument of both */
    enum error_code (*step)(void *context, const char *plan, int devices, int percent, struct job_price *,
                            struct error *);
    /* From some devices to others.  apart: no device stays; else the smaller block is part of the larger one, and the
     * job numbers its ranks so that the devices that stay come first in both. */
    enum error_code (*move)(void *context, const char *plan, int from, int to, bool apart, struct job_move *,
                            struct error *);
};

/* A device draws so many whole watts, so that watts times milliseconds add up exactly. */
struct device_power { int64_t idle, steady, dynamic; };

struct kept_price;
struct kept_move;

struct pricing {
    struct price_source source;         /**< Source of all prices. */
    const struct cluster_jobs *jobs;    /* the caller's */
    int clock[CLOCKS_MOST], clocks;     /* percent of the highest rate, rising */
    struct device_power power;          /**< Power of a device. */
    int node;                           /* devices of a node */
    struct kept_price *price;           /* [kinds][JOB_SIZES][clocks] */
    struct kept_move *move;             /* [moves] */
    int moves, room;
    int64_t asked;                      /* how often the source was asked for a step */
};

/** Begin with nothing known.  The jobs and the source's context stay until pricing_close.  @return OK or ERR_MEMORY. */
enum error_code pricing_open(struct pricing *, const struct cluster_jobs *, const struct price_source *source,
                             const int *clock, int clocks, const struct device_power *power, int node, struct error *);
void pricing_close(struct pricing *);

/** The price of a step.  @param[out] price  stays as long as the pricing.  @return OK or the source's error. */
enum error_code pricing_step(struct pricing *, int kind, int devices, int clock, const struct job_price **price,
                             struct error *);

/** Say what a change of devices moves.  @param at, place  the first device before and afterwards.
 *  @return OK or the source's error. */
enum error_code pricing_move(struct pricing *, int kind, int from, int at, int to, int place, struct job_move *,
                             struct error *);

/** The highest clock rate. */
static inline int pricing_top(const struct pricing *pricing) { return pricing->clocks - 1; }

/** Watts of a device that computes at a clock rate. */
int64_t pricing_watts(const struct pricing *, int clock);

/** Joules of a step of all its devices. */
double pricing_joules(const struct pricing *, const struct job_price *, int devices, int clock);

/** Milliseconds that so many millionths of steps take, rounded up; the opposite, rounded down. */
int64_t price_milliseconds(const struct job_price *, int64_t millionths);
int64_t price_millionths(const struct job_price *, int64_t milliseconds);

#endif
