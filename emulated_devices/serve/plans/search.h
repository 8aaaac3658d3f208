/* search.h -- tries plans of a model on so many devices with a trace, and says which is best: by tables of measured
 * times, with the engine's own scheduler.
 *
 * Plans are cost.h's: each number of replicas, stages and groups whose product is the number of devices.  Those with
 * one group in both cells are meshes of the engine, `--dp R --tp N --pp P`.  Each has as many blocks as its devices
 * have memory for, unless the caller says how many.
 *
 * Tables are fitted to the engine: for each number of devices of a group it answers the first requests without
 * numbers, and its times and those of the tables give three numbers.  The best plan that the engine can run is then
 * run by the engine, too.  Both differ by a stated error; and with the engine's times the simulation must have the same
 * requests and tokens in each iteration.
 *
 * Energy is that of a device's watts: all of them while it computes, and a part while it does not.
 *
 * cli/train/ calls these functions, on rank 0 alone.
 */
#ifndef ORRERY_SERVING_SEARCH_H
#define ORRERY_SERVING_SEARCH_H

#include "emulated_devices/serve/plans/cost.h"
#include "emulated_devices/serve/requests.h"

struct plan;

enum plan_goal { GOAL_LATENCY, GOAL_TIME, GOAL_ENERGY, GOALS };
extern const char *const plan_goal_words[GOALS + 1];    /* ends with NULL */

struct plan_question {
    const struct plan *base;            /* the model, its formats and its cluster; checked for any mesh */
    const struct requests *requests;    /* by arrival, without stop tokens */
    struct serving_limits limits;       /* of each scheduler; blocks 0: as many as there is memory for */
    int devices;                        /* of all replicas together */
    enum plan_goal goal;                /* what is least in the best plan */
    int waits_percent;                  /* of its watts that a device draws while it does not compute */
    struct time_profile *profile;            /* tables that were read; those that lack are measured */
};

/* A plan, and what a simulation of it gives. */
struct plan_outcome {
    struct serving_plan plan;
    int64_t blocks;                     /* of each scheduler */
    double weights, memory;             /* bytes of the fullest device: weights; with the cache */
    double first_token, latency, per_token;     /* means, in seconds */
    double seconds, tokens_per_second;  /* of all; of answers */
    double joules;                      /* 0: the cluster does not state watts */
    int64_t preemptions, steps;         /* over all replicas */
};

/* How tables and the engine compare for groups of so many devices: the fitted iterations' errors. */
struct plan_fit {
    int devices;                        /* of a group */
    struct calibration calibration;     /* that was fitted */
    int64_t steps;                      /* iterations that it was fitted to */
    double mean, most;                  /* errors, as parts of the engine's times */
};

/* The engine beside the simulation of one plan. */
struct plan_check {
    int64_t outcome;                    /* which; -1: none of the plans is a mesh */
    int64_t iterations, differ;         /* of the engine; with other requests or tokens, given the engine's times */
    double step_mean, step_most;        /* errors of iterations, of the engine's time */
    double engine_latency, engine_seconds;      /* as the outcome has them */
    int64_t engine_iterations, own_iterations;  /* with the engine's times, and with those of the tables */
};

enum { PLANS_MOST = 512, PLAN_DEGREES = 16 };

struct plan_answer {
    struct plan_outcome *outcome;       /* [outcomes] best first; owned */
    int64_t outcomes, without_room, too_long;   /* tried; without memory for weights; without blocks for a request */
    struct plan_fit fit[PLAN_DEGREES];  /* [fits] ascending by devices */
    int fits;                           /* how many */
    struct plan_check check;            /* of the best plan that is a mesh */
};

/** Try all plans.  @return OK, for plan_answer_free; ERR_USAGE: energy without watts, or no plan has room; ERR_PLAN:
 *  the model is a mixture; ERR_FORMAT names what a table lacks; ERR_CHECK: iterations differ; ERR_MEMORY. */
enum error_code plans_search(const struct plan_question *, struct plan_answer *, struct error *);
void plan_answer_free(struct plan_answer *);

#endif
