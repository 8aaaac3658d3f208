/* plan.h -- a mesh, a scheme for each axis and a batch: everything that defines how a model is trained.
 *
 * An invalid plan is refused here, in one message, before anything is allocated.
 *
 * Callers: everything above: model/, search/, verify/, draw/, cli/. The functions are local and send nothing; a
 * plan and a rank suffice.
 */
#ifndef ORRERY_PLAN_PLAN_H
#define ORRERY_PLAN_PLAN_H

#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/plan/batch_plan.h"
#include "emulated_devices/schemes/data/data.h"
#include "emulated_devices/schemes/experts/affinity.h"
#include "emulated_devices/schemes/modality/placement.h"
#include "emulated_devices/schemes/experts/owners.h"
#include "emulated_devices/schemes/pipeline/schedule.h"
#include "emulated_devices/schemes/seams.h"
#include "ref/model/config.h"
#include "ref/model/load.h"
#include "ref/optim/loss_scale.h"

enum { PLAN_MOST_STAGES = 1024 };

/* The samples of a step's batch, sequence by sequence; what is padding is one more sample. */
struct step_samples {
    int64_t *first;                     /* [B + 1] where each sequence's begin in `length` */
    int64_t *length;                    /* [first[B]] tokens */
    int64_t *labels;                    /* [B] of each sequence, that count */
};

struct sections;

struct plan {
    struct model_config model;          /* the whole model */
    struct mesh mesh;                   /* devices along each axis */
    struct sections *sections;          /* runs of layers with a plan each (sections.h); NULL: this is the plan of all
                                         * layers */
    struct interval layers;             /* of a section: its layers; count 0: all of the model's */
    const int *rows;                    /* [dp] of a section: its copies share the sequences of a microbatch in these
                                         * proportions; NULL: equally */
    bool rows_by_speed;                 /* which sections_check sets to the speeds of the copies' devices */
    int64_t B, S;                       /* sequences of the global batch (a batch plan: of this step), tokens of each */
    const struct batch_plan *batches;   /* sequences of each microbatch, by step and copy; NULL: equal parts of B */
    int64_t batch_step;                 /* with a batch plan: the step whose B and microbatches these are */
    bool packed;                        /* sequences hold several samples, which do not see each other */
    const struct packing *lengths;      /* of a plan without numbers: packed samples of which dry runs make the steps'
                                         * batches (dry_run.h); NULL: of a run, which has a text */
    const int32_t *within;              /* [B*S] of packed samples in this step: the position of each token in its
                                         * sample, and what is padding (sample_mask.h).  NULL: not known yet, and taken
                                         * as one sample a sequence */
    const struct step_samples *samples; /* the same as lists of lengths, where devices share a batch; NULL: not there */
    int micros;                         /* microbatches of each data-parallel copy, M */
    uint64_t micro_tokens;              /* a device holds so many tokens of a microbatch, and the attention scheme
                                         * chooses how many of the microbatches have samples; 0: all do */
    int chunks;                         /* stages on each device of a pipeline, v; plan_check sets the schedule's */
    int stages;                         /* of the pipeline; set by plan_check from the schedule */
    int speed[PLAN_MOST_STAGES];        /* of each place of the pipeline: faster ones get more layers; all 0: equal */
    const char *stage_layers;           /* how many layers each stage has: stage_layers.h; NULL: equally many, or by
                                         * speed */
    int first_layer[PLAN_MOST_STAGES + 1];      /* of each stage, then L; set by plan_check */
    int skip;                           /* stages that each microbatch of a partial pipeline skips; 0: the schedule's */
    int update_every;                   /* microbatches between optimizer steps, for schedules that step inside a
                                         * training step; 0: the schedule's */
    int receives_ahead;                 /* that a device of the pipeline posts before it comes to them (schedule.h) */
    bool pairs;                         /* a forward and a backward of the pipeline side by side, where the schedule
                                         * pairs them (schedule.h) */
    int comm_streams;                   /* of a device's clock (streams.h); 0: as many as it has */
    int updates;                        /* optimizer steps in one training step; set by plan_check */
    bool skips;                         /* microbatches of the schedule skip stages; set by plan_check */
    enum dtype dtype;                   /* format of weights and activations */
    double loss_scale;                  /* initial, where the format needs one; 0: the default (loss_scale.h) */
    uint64_t seed;                      /* of the initial weights, dropout, drawn tokens and directions */
    const struct cluster *cluster;      /* whose nodes decide which collectives fit; NULL: all distances are equal */
    struct data_request data;           /* the data-parallel scheme and its shards */
    int ep, etp;                        /* parts of each layer's experts, and of F of each expert, over neighbours of a
                                         * stage; 0: 1, whole */
    int degree;                         /* of --dispatch tutel; -1: it chooses */
    int row_parts;                      /* likewise; 0: one part */
    struct expert_copying copying;      /* of --dispatch fssdp */
    struct encoder_request encoders;    /* of what is not text */
    const struct load *load;            /* to which experts tokens go (load.h).  NULL: where their routers send them;
                                         * without numbers evenly to all */
    bool experts_wait;                  /* a mixture on a shortcut does not exchange rows beside other blocks */
    const struct expert_owners *owners; /* of the same; NULL: the nth device has the nth range of each layer */
    const struct affinity *affinity;    /* of --dispatch speculative; NULL: nothing is known of any token */
    const int32_t *ids;                 /* [B*S] the tokens of this step; NULL: not known yet */
    const char *tensor, *attention, *dispatch, *schedule, *allreduce;   /* names in the registries; schedule may be a
                                                                         * file's name */
    const char *attention_without;      /* names of the attention scheme's parts that are left out, with commas between
                                         * them; NULL: none */
    struct context_split split;         /* of cp, for attention schemes of two dimensions; 0: the defaults */
    bool offload_activations;           /* to the slow tier of `data`, between forward and backward: away.h */
    const char *recompute;              /* which layers recompute activations: recompute.h; NULL: none */
    const struct optimizer *optimizer;  /* from the registry */
    struct hyperparameters hyper;       /* of the optimizer and the schedule of its rate */
    int perturb;                        /* for an optimizer without a backward pass: 2: each half of the copies computes
                                         * the loss on one side of the weights (zeroth.h); 0, 1: each computes both */
};

/** Check that the plan is valid, count the stages and cut the layers over them.  @return OK; ERR_USAGE for unknown
 *  names; ERR_PLAN, naming flag, value and what would fit. */
enum error_code plan_check(struct plan *, struct error *);

/** Check the parts of experts and the scheme that moves rows; part of plan_check.  @return OK or ERR_PLAN. */
enum error_code plan_check_experts(const struct plan *, struct error *);

/** Check the table of a scheme that predicts experts; part of it.  @return OK or ERR_PLAN. */
enum error_code plan_check_affinity(const struct plan *, struct error *);
enum error_code plan_check_encoders(const struct plan *, struct error *);

/** The request for the data parallelism of each encoder: the plan's, without what is for large models. */
struct data_request plan_encoder_data(const struct plan *);

/** Check rank, refresh and history of an optimizer that projects whole matrices; part of plan_check.
 *  @return OK, also for any other optimizer, or ERR_PLAN. */
enum error_code plan_check_low_rank(const struct plan *, struct error *);

/** Check the settings and groups of an optimizer that is forward_only; part of plan_check.
 *  @return OK, also for any other optimizer, or ERR_PLAN. */
enum error_code plan_check_zeroth(struct plan *, struct error *);

/** Whether devices along tp have copies of a parameter in different places of their memory, because tp does not divide
 *  the dimensions that it cuts. */
bool plan_copies_lie_apart(const struct plan *);

/** Who shares a device's weights, gradients and optimizer state; experts: those of its experts, if only some devices
 *  have them.  @return as data_shards. */
enum error_code plan_shards(struct shards *, const struct plan *, int rank, bool experts, struct error *);

/** The number of replicas that train apart, and a device's replica; 1 and 0 where every step reduces gradients. */
int plan_replicas(const struct plan *);
int plan_replica_of(const struct plan *, int rank);

/** Without a backward pass: the devices that sum losses with this one.  Either all devices of its side of the weights,
 *  or the devices at its place on each side.
 *  @param[out] member  ranks; room for all devices of the mesh.  @return how many. */
int plan_loss_members(const struct plan *, int rank, bool other_side, int member[]);

/** The loss scale that training begins with. */
struct loss_scale plan_loss_scale(const struct plan *);

/** The plan's pipeline schedule, registered or from a file; for schedule_free.  @return as schedule_by_name. */
enum error_code plan_schedule(const struct plan *, struct schedule *, struct error *);

/* How the plan divides the model and the batch. */

/** The layers that the plan has: all, but in a section. */
static inline struct interval plan_layers(const struct plan *plan)
{
    return plan->layers.count > 0 ? plan->layers : (struct interval){ 0, plan->model.L };
}

/* Whether the embedding, and the loss, are the plan's: not those of a section inside the model. */
static inline bool plan_has_embedding(const struct plan *plan) { return plan_layers(plan).first == 0; }
static inline bool plan_has_loss(const struct plan *plan)
{
    return interval_end(plan_layers(plan)) == plan->model.L;
}

/* Whether the parameters of a layer are the plan's.  -1: the embedding; L: the loss. */
static inline bool plan_has_layer(const struct plan *plan, int layer)
{
    if (layer < 0) return plan_has_embedding(plan);
    return layer >= plan_layers(plan).first && layer < interval_end(plan_layers(plan)) + plan_has_loss(plan);
}

static inline int64_t plan_first_layer(const struct plan *plan, int stage) { return plan->first_layer[stage]; }

/* The batch is cut into so many parts over dp; a copy computes this side of the weights first. */
static inline int plan_parts(const struct plan *plan) { return plan->mesh.size[DP] / (plan->perturb == 2 ? 2 : 1); }
static inline int plan_side(const struct plan *plan, int dp) { return dp / plan_parts(plan); }

/* Passes through the pipeline in a step. */
static inline int plan_passes(const struct plan *plan)
{
    return optimizer_draws(plan->optimizer) && plan->perturb != 2 ? 2 : 1;
}

/* Copies are devices with the same weights and different tokens, which sum their gradients: along dp and cp (cp
 * varies fastest). */
static inline int plan_copies(const struct plan *plan) { return plan->mesh.size[DP] * plan->mesh.size[CP]; }
static inline int plan_copy_of(const struct plan *plan, int rank)
{
    return mesh_coordinate(&plan->mesh, rank, DP) * plan->mesh.size[CP] + mesh_coordinate(&plan->mesh, rank, CP);
}

/* The devices of a stage in the order of their ranks are arranged as copies x ep x etp: neighbours share each expert,
 * and then the experts of each layer, whatever they are along dp, cp and tp. */
static inline int plan_ep(const struct plan *plan) { return plan->ep > 1 ? plan->ep : 1; }
static inline int plan_etp(const struct plan *plan) { return plan->etp > 1 ? plan->etp : 1; }
static inline int plan_stage_devices(const struct plan *plan) { return plan->mesh.devices / plan->mesh.size[PP]; }

enum expert_axis { EXPERT_SLICES, EXPERT_PARTS, EXPERT_COPIES };     /* along etp, along ep, and the rest */

/** How many devices there are along an axis of the experts; a device's place on it. */
int plan_expert_size(const struct plan *, enum expert_axis);
int plan_expert_place(const struct plan *, int rank, enum expert_axis);
static inline int plan_expert_copies(const struct plan *plan) { return plan_expert_size(plan, EXPERT_COPIES); }
static inline int plan_expert_copy_of(const struct plan *plan, int rank)
{
    return plan_expert_place(plan, rank, EXPERT_COPIES);
}

/** Whether a device has only some experts, whole.  Then the routing decides how many rows and messages it has. */
bool plan_cuts_experts(const struct plan *);

/** Whether a parameter is of no expert, or of one that a device has. */
bool plan_has_expert(const struct plan *, int rank, const struct param_spec *);

/** The devices that differ from this one only along an axis of the experts.
 *  @param[out] member  their ranks, ascending.  @return how many. */
int plan_expert_members(const struct plan *, int rank, enum expert_axis, int member[]);

/** With a batch plan: set B and the microbatches to those of this step.  Changes nothing but the plan. */
void plan_take_step(struct plan *, int64_t step);

/** The number of sequences of a step, and of the largest step. */
static inline int64_t plan_sequences_of(const struct plan *plan, int64_t step)
{
    return plan->batches ? batch_plan_total(plan->batches, step) : plan->B;
}
static inline int64_t plan_most_sequences(const struct plan *plan)
{
    return plan->batches ? plan->batches->most : plan->B;
}

/** The sequences of one microbatch of the data-parallel copy at this dp coordinate. */
struct interval plan_microbatch(const struct plan *, int dp, int micro);

/** The sequences that the tokens of a microbatch are from: its own, or, if the attention scheme plans whole steps,
 *  those of all microbatches of the copy. */
struct interval plan_sequences(const struct plan *, int dp, int micro);

/** Whether the attention scheme plans whole steps: which tokens each microbatch of a copy has. */
bool plan_plans_steps(const struct plan *);

/** The parts of the attention scheme that the plan leaves out.
 *  @param[out] bits  as struct context_load has them.  @return OK; ERR_PLAN naming the parts that there are. */
enum error_code plan_attention_without(const struct plan *, unsigned *bits, struct error *);

/** The microbatch that each token of a step's batch is in, numbered over all copies.  Pure, of the plan's samples.
 *  @param[out] micro_of  [B*S], dp coordinate * microbatches + microbatch.  @return OK or ERR_MEMORY. */
enum error_code plan_name_microbatches(const struct plan *, int32_t *micro_of, struct error *);

/** The dp coordinates of a replica's copies. */
struct interval plan_replica_copies(const struct plan *, int replica);

/** The rows of a batch of S tokens in each of B sequences, in each parallel stream. */
static inline int64_t plan_stream_rows(const struct plan *plan) { return STREAMS(&plan->model) * plan->B * plan->S; }

/** Whether the samples of a step's batch decide which tokens each device has. */
bool plan_follows_data(const struct plan *);

/** Whether rows of activations, and so their memory, are known only in a step. */
bool plan_routes_rows(const struct plan *);

/** Whether outside attention the rows of a microbatch are ordered by a prediction of their experts. */
bool plan_shuffles(const struct plan *);

/** Whether batches are made of lengths, and this step's samples are not known yet: then there are no context plans. */
static inline bool plan_waits_for_samples(const struct plan *plan)
{
    return plan->lengths != NULL && plan->within == NULL;
}

/** Order a device's rows of a microbatch so, as far as this step's tokens are known; lost without memory. */
void plan_shuffle(const struct plan *, int rank, struct intervals *rows);

/** Whether something is on the devices' slow tiers. */
static inline bool plan_has_tier(const struct plan *plan)
{
    return plan->data.offload != 0 || plan->offload_activations;
}

/** Whether devices' tokens may differ from step to step; with sections, those of any section. */
bool plan_changes(const struct plan *);

/** The facts from which an attention scheme plans a microbatch with at least one sequence, causal samples.
 *  @return OK, for context_load_free; or ERR_MEMORY, with nothing to free. */
enum error_code plan_context_load(const struct plan *, int dp, int micro, struct context_load *, struct error *);

/**
 * The plan of a microbatch, from an attention scheme that makes plans; empty from one that cuts every sequence alike,
 * and of a microbatch without sequences.  Pure.
 * @param mask  what the microbatch's tokens see, as in struct attention, all of them one sequence, in the host's
 *              memory; none: its sample, up to itself.
 * @return OK, with a plan for context_plan_free; ERR_PLAN or ERR_MEMORY with an empty one.
 */
enum error_code plan_context(const struct plan *, int dp, int micro, struct tensor mask, struct context_plan *,
                             struct error *);

/** A device's tokens of a microbatch, before tensor parallelism cuts them: rows of the global batch, ordered sequence
 *  by sequence, or shuffled.  Of parallel streams: of each, row r of stream i as i B S + r.  For intervals_free. */
struct intervals plan_rows(const struct plan *, int rank, int micro);

/** The tokens of plan_rows, given the microbatch's plan. */
struct intervals plan_rows_by(const struct plan *, int rank, int micro, const struct context_plan *);

/** The rows of the global batch whose losses a device computes: its tokens, or, if the devices along cp have different
 *  streams, its part of their tokens. */
struct intervals plan_loss_rows(const struct plan *, int rank, int micro);
struct intervals plan_loss_rows_by(const struct plan *, int rank, int micro, const struct context_plan *);

/**
 * The places of a pipeline that hold a parameter: those of its stage, and for a tied embedding also those of the last
 * stage.
 * @param schedule    the plan's.
 * @param[out] place  at least pp of them, ascending; may be NULL.
 * @return how many.
 */
int plan_holders(const struct plan *, const struct schedule *schedule, const struct param_spec *, int place[]);

/** Whether a device holds a piece of a parameter.
 *  @param[out] first  whether its place is the first that does; may be NULL. */
bool plan_holds(const struct plan *, const struct schedule *schedule, int rank, const struct param_spec *, bool *first);

/** A device's share of each layer: only extents; groups and device are not set.  Pure. */
struct tensor_parallel plan_tensor_share(const struct plan *, int rank);

/** A device's share as what cuts a parameter gives it: an expert's may be cut by etp. */
struct tensor_parallel plan_share_of(const struct plan *, int rank, const struct param_spec *);

/** The attention scheme of a plan that names none. */
const char *plan_usual_attention(const struct plan *);

/** A device's share of each sequence, likewise.
 *  @param tp  whose heads; the result keeps the pointer.  NULL if only tokens are needed. */
struct context_parallel plan_context_share(const struct plan *, const struct tensor_parallel *tp, int rank);

/** A device's share of the experts, likewise.  @param tp  as above. */
struct expert_parallel plan_expert_share(const struct plan *, const struct tensor_parallel *tp, int rank);

/** All shares that a device needs to run a part of the model, likewise. */
struct seams plan_seams(const struct plan *, const struct tensor_parallel *tp, int rank);

/** A device's boxes of a parameter that it holds, and of one of its tiles.  Tile 0 of an untiled parameter is all of
 *  it. */
struct layout plan_layout(const struct plan *, int rank, const struct param_spec *);
struct layout plan_tile_layout(const struct plan *, int rank, const struct param_spec *, int tile);

/** A rank's piece of a parameter, or of a tile of it, without values.
 * @param index  its place in the model's list. */
struct parameter plan_piece(const struct plan *, int rank, int index, const struct param_spec *, int tile);

#endif
