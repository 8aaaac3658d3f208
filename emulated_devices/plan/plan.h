/* plan.h -- a mesh, a scheme for each axis and a batch: everything that decides how a model is trained.
 *
 * Every refusal happens here, before anything is allocated, in one message.
 */
#ifndef ORRERY_PLAN_PLAN_H
#define ORRERY_PLAN_PLAN_H

#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/plan/batch_plan.h"
#include "emulated_devices/schemes/data/data.h"
#include "emulated_devices/schemes/pipeline/schedule.h"
#include "emulated_devices/schemes/seams.h"
#include "ref/optim/loss_scale.h"

enum { PLAN_MOST_STAGES = 1024 };

struct plan {
    struct model_config model;
    struct mesh mesh;
    int64_t B, S;                       /* global batch: sequences, and tokens of each; with batches: of this step */
    const struct batch_plan *batches;   /* sequences of each microbatch, by step and copy; NULL: equal parts of B */
    int64_t batch_step;                 /* the step that B and the microbatches are of, where there are batches */
    int micros;                         /* microbatches of each data-parallel copy, M */
    int chunks;                         /* stages on each device of a pipeline, v; plan_check makes it the schedule's */
    int stages;                         /* of the pipeline, as the schedule has them; set by plan_check */
    int speed[PLAN_MOST_STAGES];    /* of each place of the pipeline, for layers in proportion; all 0: in equal parts */
    int first_layer[PLAN_MOST_STAGES + 1];      /* of each stage, and L; set by plan_check */
    int skip;              /* stages that each microbatch of a partial pipeline leaves out; 0: as the schedule has it */
    int update_every;                   /* microbatches from one optimizer step to the next, for schedules that step in
                                           mid-stream; 0: as the schedule has it */
    int updates;                        /* optimizer steps in one training step; set by plan_check */
    enum dtype dtype;
    double loss_scale;                  /* the first, where the format needs one; 0: its usual (loss_scale.h) */
    uint64_t seed;
    const struct cluster *cluster;      /* that devices are part of, whose nodes decide which collectives fit; NULL: all
                                         * are equally far */
    struct data_request data;           /* the data-parallel scheme and its shards */
    const char *tensor, *attention, *dispatch, *schedule, *allreduce;   /* names in the registries; schedule: or a file
                                                                         * */
    const char *recompute;              /* which layers compute activations again: recompute.h; NULL: none */
    const struct optimizer *optimizer;
    struct hyperparameters hyper;
    int perturb; /* of an optimizer without a backward pass: 2 where half of the copies take the loss on either side
                                           of the weights (zeroth.h); 0 and 1: each takes both */
};

/** Check that everything fits, count the stages and cut the layers over them.  @return OK; ERR_USAGE for unknown names;
 * ERR_PLAN, naming flag, value and what would fit. */
enum error_code plan_check(struct plan *, struct error *);

/** The numbers of an optimizer that projects whole matrices; part of plan_check.
 * @return OK, as with any other, or ERR_PLAN. */
enum error_code plan_check_low_rank(const struct plan *, struct error *);

/** The numbers and groups of an optimizer that is forward_only; part of plan_check.
 * @return OK, as with any other, or ERR_PLAN. */
enum error_code plan_check_zeroth(struct plan *, struct error *);

/** Whether tp does not divide what it cuts, so that devices along tp have copies of a parameter in different places. */
bool plan_copies_lie_apart(const struct plan *);

/** How many replicas train apart, and the one that a device works on;
 * 1 and 0 where gradients are reduced in every step. */
int plan_replicas(const struct plan *);
int plan_replica_of(const struct plan *, int rank);

/** Who adds up losses with a device that makes forward passes alone: those of its side, or the one that stands where it
 *  does on the other.
 *  @param[out] member  ranks, at least one for each device of the mesh.  @return how many. */
int plan_loss_members(const struct plan *, int rank, bool other_side, int member[]);

/** The loss scale that training begins with. */
struct loss_scale plan_loss_scale(const struct plan *);

/** The plan's pipeline schedule, registered or from a file; for schedule_free.  @return as schedule_by_name. */
enum error_code plan_schedule(const struct plan *, struct schedule *, struct error *);

/* How the plan cuts the model and the batch. */
static inline int64_t plan_first_layer(const struct plan *p, int stage) { return p->first_layer[stage]; }

/* Parts that the batch is cut into over dp, and the side that a copy takes the loss on, or the first of both. */
static inline int plan_parts(const struct plan *p) { return p->mesh.size[DP] / (p->perturb == 2 ? 2 : 1); }
static inline int plan_side(const struct plan *p, int dp) { return dp / plan_parts(p); }

/* Passes through the pipeline in a step. */
static inline int plan_passes(const struct plan *p) { return p->optimizer->forward_only && p->perturb != 2 ? 2 : 1; }

/* Devices that have the same weights and other tokens, all of which share gradients:
 * along dp, and along cp, which is the faster. */
static inline int plan_copies(const struct plan *p) { return p->mesh.size[DP] * p->mesh.size[CP]; }
static inline int plan_copy_of(const struct plan *p, int rank)
{
    return mesh_coordinate(&p->mesh, rank, DP) * p->mesh.size[CP] + mesh_coordinate(&p->mesh, rank, CP);
}

/** Where batches differ from step to step: be the plan of this one, for what asks for B, microbatches and rows.
 * Pure. */
void plan_take_step(struct plan *, int64_t step);

/** How many sequences a step has, and the most that any has. */
static inline int64_t plan_sequences_of(const struct plan *p, int64_t step)
{
    return p->batches ? batch_plan_total(p->batches, step) : p->B;
}
static inline int64_t plan_most_sequences(const struct plan *p) { return p->batches ? p->batches->most : p->B; }

/** The sequences of one microbatch of the data-parallel copy at this dp coordinate. */
struct interval plan_microbatch(const struct plan *, int dp, int micro);

/** The dp coordinates of the copies that a replica is made of. */
struct interval plan_replica_copies(const struct plan *, int replica);

/** The tokens of a microbatch that are a device's, before tensor parallelism cuts them: rows of the global batch, which
 *  lies sequence by sequence.  For intervals_free. */
struct intervals plan_rows(const struct plan *, int rank, int micro);

/**
 * Which places of a pipeline hold a parameter: those of its stage, and for a tied embedding those of the last stage
 * too.
 * @param schedule    the plan's.
 * @param[out] place  at least pp of them, ascending; may be NULL.
 * @return how many there are.
 */
int plan_holders(const struct plan *, const struct schedule *schedule, const struct param_spec *, int place[]);

/** Whether a device holds a piece of a parameter.  @param[out] first  whether no place before its own does;
 * may be NULL. */
bool plan_holds(const struct plan *, const struct schedule *schedule, int rank, const struct param_spec *, bool *first);

/** A device's share of each layer: extents alone, without groups or a device.  Pure. */
struct tensor_parallel plan_tensor_share(const struct plan *, int rank);

/** A device's share of each sequence, likewise.  @param tp  kept: whose heads; NULL where only tokens are asked for. */
struct context_parallel plan_context_share(const struct plan *, const struct tensor_parallel *tp, int rank);

/** All of a device's shares that a part of the model is run with, likewise. */
struct seams plan_seams(const struct plan *, const struct tensor_parallel *tp, int rank);

/** A device's boxes of a parameter that it holds, and of one of its tiles; of what is not tiled tile 0 is all of it. */
struct layout plan_layout(const struct plan *, int rank, const struct param_spec *);
struct layout plan_tile_layout(const struct plan *, int rank, const struct param_spec *, int tile);

#endif
