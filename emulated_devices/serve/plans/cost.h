/* cost.h -- how long an iteration takes on a plan, and what it draws, by tables of measured times.
 *
 * A plan has replicas, of stages, of cells.  In a layer's attention cell and in its feed-forward cell the devices of a
 * stage are `cells` groups of `devices`: groups have different rows, the devices of a group parts of the matrices.
 * Between cells rows are resharded:
 *
 *   as many groups   all-reduce(n)
 *   k times as many  reduce-scatter(n), all-gather(n / k)
 *   a k-th of them   reduce-scatter(n), all-gather(n k)
 *
 * Groups of attention have requests and a cache of their own, but go together.  One of the two cells has one group:
 * more in both would be more replicas.  Stages work one after another, as in the engine.
 *
 * The tables lack what is neither a product nor attention, and the host.  So the time of an iteration is
 * max(floor, factor x tables + rest), with three numbers that are fitted to the engine (search.h).
 *
 * Source  Y. Lin et al., APEX, arXiv:2411.17651; reshard.py and engine.py of microsoft/apex_plus at 8769096.
 *
 * The code is pure.  search.c calls it.
 */
#ifndef ORRERY_SERVING_COST_H
#define ORRERY_SERVING_COST_H

#include "emulated_devices/serve/plans/profile.h"
#include "emulated_devices/serve/scheduler.h"

struct cluster;
struct model_config;

struct serving_cell { int cells, devices; };    /* groups in a stage; devices of each */
struct serving_plan {
    int replicas, stages;               /* of the plan; of a replica */
    struct serving_cell attention, feedforward; /* of a stage */
};

/* Fitted to the engine for groups of so many devices. */
struct calibration { double factor, rest, floor; };    /* of tables; in seconds; in seconds */

static inline int plan_stage_size(const struct serving_plan *plan)
{
    return plan->attention.cells * plan->attention.devices;
}

/* A matrix of a layer, whole: outputs are cut, or inputs if it ends its cell, or neither. */
struct layer_matrix {
    int64_t out, in;                    /* its sizes, before it is cut */
    bool attention, ends, whole;        /* it is of attention; its inputs are cut; nothing is */
};
enum { LAYER_MATRICES = 16 };

struct plan_costs {
    struct layer_matrix matrix[LAYER_MATRICES];         /* [matrices] of the first layer, and so of all */
    int matrices;                       /* how many */
    struct time_profile *profile;            /* the caller's */
    const struct model_config *model;   /* likewise */
    const struct cluster *cluster;      /* likewise: its nodes, its memory */
    enum dtype dtype;                   /* of weights and activations */
    struct calibration calibration;     /* of the plan */
    char missing[120];                  /* what no table has; empty: nothing yet */
};

/* An iteration takes this, in seconds. */
struct step_cost {
    double tables;                      /* of the longest way, by tables alone */
    double seconds;                     /* calibrated */
    double busy;                        /* of all devices of the replica together, while they compute */
};

/** Costs of a model without a calibration.  The arguments outlive them. */
struct plan_costs plan_costs_of(struct time_profile *, const struct model_config *, const struct cluster *, enum dtype);

/** A matrix on one of so many devices. */
void layer_matrix_part(const struct layer_matrix *, int devices, int64_t *out, int64_t *in);

/** The cost of iterations that go together.  @param part  [cells of attention]; NULL: an idle one. */
struct step_cost step_cost_of(struct plan_costs *, const struct serving_plan *, const struct iteration *const *part);

/** Bytes of weights that the fullest device has.  Pure. */
double plan_weight_bytes(const struct plan_costs *, const struct serving_plan *);

/** Bytes of a block of the cache on a device.  Pure. */
double plan_block_bytes(const struct plan_costs *, const struct serving_plan *, int64_t block_tokens);

/** Columns of profile tables for a group: nodes and devices in each. */
void group_columns(const struct cluster *, int devices, double key[2]);

#endif
