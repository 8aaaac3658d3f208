/* data.h -- the seam for data parallelism: which device keeps which weights, gradients and optimizer state, and when a
 * device has them whole.
 *
 * The model calls it by parts: part 0 is the embedding, 1 .. L the blocks, L + 1 the last norm and the loss.
 *
 *     data_expect_step(t)         sets the number of the optimizer's next step
 *     data_acquire(part)          makes its weights whole: gathers them if they are kept in shards
 *     data_release(part)          its weights are no longer needed; frees gathered copies
 *     data_begin_gradient(part)   allocates the gradients of its weights
 *     data_end_gradient(part)     one backward pass has added to them; reduces them as soon as possible
 *     data_finish_gradients()     after the last microbatch: completes all reductions
 *     data_step()                 the optimizer steps what this device keeps; then weights are shared again as before
 *
 * With tiled matrices (--tiles, tiles.h), data_acquire gets only a part's other parameters.  In between, matrices are
 * acquired tile by tile: data_acquire_tile() and data_release_tile(), and for gradients data_begin_tile_gradient() and
 * data_end_tile_gradient().
 *
 * An optimizer that uses only losses (ref/model/mezo.h) does not call the three functions for gradients: no device
 * keeps gradients.  Before each pass over the parts data_set_direction() sets the point at which weights are needed.
 * Acquired weights are copies of the kept ones, moved to that point: of one part of the model, or of two while the next
 * one is gathered.
 *
 * All schemes use one engine.  A scheme is a choice of shards (shards.h), in its own file with its formulas; the engine
 * gathers and reduces unit by unit (unit.h).  The order in which parts are used is known before the step, as a list.
 * With it the next part is gathered while this one computes, and memory and traffic are predicted exactly.
 *
 * In mixed precision the model's format has 16 bits.  Weights are kept and gathered in it; gradients are kept and
 * reduced in fp32, or also in 16 bits; the optimizer's state is fp32.  It includes the fp32 master copy of the weights:
 * the device that steps an element keeps its master.  Weights are the master rounded once, after it was drawn, read or
 * stepped.
 *
 * Quantised (--quantize-weights, --quantize-gradients; collectives/quantised.h): every all-gather of weights sends
 * codes, and every reduce-scatter of gradients is one or two all-to-alls of codes; the all-reduce among copies does not
 * change.  Weights that are gathered after the step have the dequantised values, so the device that steps an element
 * then keeps a master of it in any format.  Weights in shards that are gathered before use are kept unquantised; only
 * the gathered copies are quantised.  Blocks of codes follow the row of a unit, across its parameters.  Parameters of
 * which devices along tp have copies are in their own units, so that their blocks are the same everywhere (units.h).
 * model/stage.c, model/trainer.c and model/run/matrix.c make these calls.
 */
#ifndef ORRERY_DATA_SCHEME_H
#define ORRERY_DATA_SCHEME_H

#include "emulated_devices/collectives/quantised.h"
#include "emulated_devices/device/outward.h"
#include "emulated_devices/device/tier.h"
#include "emulated_devices/schemes/data/unit.h"
#include "emulated_devices/schemes/scheme.h"
#include "ref/optim/outer.h"

/* The options of a scheme on the command line. */
struct data_request {
    const char *scheme;                         /* name in the registry, as --data-parallel takes it */
    int group;                                  /* --shard-group: devices that share one copy; 0: the scheme's */
    int shards[3];                              /* --shards W,G,O; 0: not given */
    int context;                                /* --cp, for schemes whose default it is; set by plan_check */
    bool keep;                                  /* keep gathered weights after forward until their backward */
    bool infers;                                /* forward passes only, and no step; set by plan_check */
    int ring;                                   /* --ring: parts whose weights are on the device, of those on the slow
                                                 * tier; 0: 3 */
    bool no_prefetch;                           /* do not gather the next part while this one computes */
    int tiles;                                  /* --tiles: of each matrix, gathered one by one; 0, 1: whole layers */
    const char *reduce_scatter, *allgather;     /* algorithms; NULL: the default */
    int64_t bucket;                             /* if weights are kept whole: bytes that are reduced, or gathered after
                                                 * the step, at a time, > 0: bucket.h */
    struct outer outer;                         /* --local-steps, --outer-lr, --outer-momentum; 0: the scheme's */
    unsigned offload;                           /* --offload: 1 << PARAMETERS, GRADIENTS, OPTIMIZER: on the slow tier */
    bool offload_experts;                       /* of these classes only those of a mixture's experts */
    bool chosen;                                /* --chosen-experts: they are read by a router's choice */
    const char *offload_to;                     /* folder for a file; NULL: the host's memory */
    uint64_t host_cache;                        /* --host-cache: bytes of that file that the host keeps in memory */
    int64_t offload_slice;                      /* elements that the step moves and steps at a time, > 0 */
    int offload_stride;                         /* K: the device steps every Kth slice, the host the others; 0, 1: the
                                                 * device steps all */
    bool narrow_gradients;                      /* --grad-dtype: gradients of 16-bit weights have 16 bits, not fp32 */
    struct block_format quantise_weights, quantise_gradients;      /* codes in messages; bits 0: not quantised */
};

/* registered/ has a file for each scheme; the registry lists the schemes.  data_shards calls share for the plan's P. */
struct data_scheme {
    struct scheme head;                         /* name, description, source; first, for casts */
    /* Set w | g | o, which are 1 before the call, for s->P devices.  @return NULL, or what the scheme requires or does
     * not accept, as text. */
    const char *(*share)(struct shards *s, const struct data_request *);
    bool any_shards;                            /* --shards W,G,O may be any numbers, each of which divides the next */
    bool rows;                                  /* cut each parameter by rows, not the unit as one flat row */
    bool late;                                  /* new weights are sent in the next step, before their first use */
    bool once;                                  /* weights in shards are gathered once a step; their gradients are
                                                 * whole until the last microbatch, and reduced once */
    const char *allgather;                      /* algorithm for weights, if the request has none; NULL: the default */
    struct outer outer;                         /* if its copies train apart: the default rule and numbers */
    /* The devices' form of that rule.  rate: the optimizer's in the step before the outer step. */
    struct outward (*outward)(const struct outer *, double rate);
};

static inline bool offloads(const struct data_request *request, enum arena_tag what)
{
    return request->offload >> what & 1;
}

/* The .share of schemes whose copies train apart: replicas of one device, of --shard-group N devices, or as given by
 * --shards. */
const char *share_replica(struct shards *, const struct data_request *);

/* The number of devices that share one copy: --shard-group, or all. */
static inline int shard_group(const struct shards *shards, const struct data_request *request)
{
    return request->group > 0 ? request->group : shards->P;
}

SCHEME_CASTS(DATA_SCHEME, data_scheme)                          /* data_scheme_at, data_scheme_find */

/** The shards of a request on P devices.  @return OK, ERR_USAGE, or ERR_PLAN naming flag and value. */
enum error_code data_shards(struct shards *, const struct data_request *, int P, int rank, struct error *);

/** The shards of experts that only some devices have, given those of all else: P devices have the same experts.  Where
 *  replicas train apart, those of experts are the same replicas. */
enum error_code data_expert_shards(struct shards *, const struct data_request *, const struct shards *all, int P,
                                   int rank, struct error *);

/** Check the number of bits and the block length of codes.  @return OK or ERR_PLAN, naming the flag. */
enum error_code data_check_codes(const struct data_request *, struct error *);

static inline bool data_quantises(const struct data_request *request)
{
    return request->quantise_weights.bits > 0 || request->quantise_gradients.bits > 0;
}

/* Whether weights are gathered after the step as codes, and so have dequantised values. */
static inline bool data_renews_quantised(const struct data_request *request, const struct shards *shards)
{
    return request->quantise_weights.bits > 0 && shards->weights < shards->optimizer;
}

/* Whether the optimizer steps copies of weights in this format. */
static inline bool data_keeps_masters(enum dtype dtype, const struct data_request *request, const struct shards *shards)
{
    return !request->infers && (dtype_is_narrow(dtype) || data_renews_quantised(request, shards));
}
/** The algorithm by which a request's scheme gathers weights; NULL: the default. */
const char *data_allgather(const struct data_request *);

/** The outer steps of a request's scheme; .every is 0 if copies reduce gradients in every step. */
struct outer data_outer(const struct data_request *);

/* A pass over one part.  PASS_UPDATE: over all parts, the optimizer's step inside the list; PASS_TURN: no pass; from
 * here on weights are needed at another point (data_set_direction). */
enum pass { PASS_FORWARD, PASS_BACKWARD_INPUT, PASS_BACKWARD_WEIGHT, PASS_UPDATE, PASS_TURN };
/* Elements that exist for a while besides what is kept: the most during a use, and those that are left after it. */
struct passing { int64_t during, after; };

struct use {
    int part;                                   /* 0: the embedding; 1 + layer; 1 + L: the loss */
    enum pass pass;                             /* what is computed with the part */
    int tile;                                   /* if a part is used tile by tile: the tile's unit; 0: none */
    bool older;                                 /* with two versions of the weights: uses the older one */
    struct passing weights, gradients;          /* whole weights and gradients; data_set_uses predicts them */
};
struct stretch;

/* Told of each call of the seam, after it: for drawings. */
enum data_call { DATA_ACQUIRED, DATA_RELEASED, DATA_GRADIENT_BEGUN, DATA_GRADIENT_ENDED, DATA_GRADIENTS_FINISHED,
                 DATA_STEPPED };
struct data_parallel;
struct data_watch { void (*saw)(struct data_watch *, const struct data_parallel *, enum data_call, int part); };

struct data_stage;
struct sharing;

/* A link has a stage of the engine and its state (stage.h). */
struct data_link { const struct data_stage *stage; void *state; };

struct data_parallel {
    const struct data_scheme *scheme;           /* of the plan */
    struct data_request request;                /* of the plan, with the scheme's defaults */
    const struct model_config *config;          /* of the whole model */
    struct device *device;                      /* whose shards these are */
    struct group *group;                        /* along dp: devices with the same pieces and other sequences */
    struct group *experts;                      /* devices with the same experts and other tokens; NULL: experts are
                                                 * shared as everything else */
    struct group *along_tp, *along_etp;         /* devices with other pieces of the same matrices, and of experts: they
                                                 * sum the gradients of adapters; NULL: there are none */
    struct parameters *parameters;              /* this device's pieces, which units group */
    const struct optimizer *optimizer;          /* of the plan; its functions step shards */
    const struct hyperparameters *hyper;        /* of the plan */
    const char *allreduce;                      /* algorithm; NULL: the default */
    int versions;                               /* of the weights: 2 if microbatches still need those before the last
                                                 * step (pipedream_2bw.c); then weights are not in shards */
    /* data_outline and data_fill set what follows. */
    struct shards shards, expert_shards;        /* with experts NULL the second is of one device */
    struct outer outer;                         /* of replicas that train apart */
    struct sharing *sharing;                    /* [2] which devices share the units, and how numbers are sent: those of
                                                 * experts apart are shared by others */
    struct data_link *chain;                    /* ends with a stage that is NULL */
    int units;                                  /**< Entries of `unit`. */
    struct unit *unit;                          /* [units] */
    struct tensor gradients;                    /* if they are kept whole: all units' g, last unit first, the order in
                                                 * which backward completes them */
    bool unit_by_unit;                          /* units are never packed into one exchange */
    void (*step_stretch)(const struct stretch *);       /* with its gradient, or along a direction */
    bool stops_half;                            /* the next step ends when half of the units are stepped: a device is
                                                 * lost then, and nothing goes on from there */
    bool stepped, stepped_outward;              /* there was a step, an outer step: before the first one its buffers do
                                                 * not exist */
    int uses, at;                               /* number of passes in a step; index of the next one */
    int updates;                                /* optimizer steps in a training step, including the last */
    struct use *use;                            /* [uses] */
    struct data_watch *watch;                   /* NULL: nobody looks */
};

/* ---- building ---------------------------------------------------------------------------------------------------- */

/**
 * Create groups and units without their memory; all formulas below can then be evaluated.
 * Local.  scheme, request, config, device, group, parameters, optimizer, hyper, versions and allreduce must be set.
 * @return OK, ERR_PLAN or ERR_MEMORY; data_close works after all of them.
 */
enum error_code data_outline(struct data_parallel *, struct error *);

/**
 * Allocate and initialise weights, gradients and optimizer state.
 * Local, after data_outline.  An initial weight depends on the element's place in the whole tensor: it has the same
 * bits on every mesh and device.
 * @return OK, ERR_MEMORY, or ERR_FILE of a slow tier; data_close works after all of them.
 */
enum error_code data_fill(struct data_parallel *, uint64_t seed, struct error *);

/** data_outline, then data_fill.  Local. */
enum error_code data_open(struct data_parallel *, uint64_t seed, struct error *);
void data_close(struct data_parallel *);

/** Set the order in which the parts will be used in each step.  @param use  is owned and freed by the engine. */
void data_set_uses(struct data_parallel *, struct use *use, int uses);

/** The units by part that a part needs, at most 2 (for others see units.h).  @return how many. */
int data_units_of(const struct model_config *, int part, int unit[]);

/* ---- in a step --------------------------------------------------------------------------------------------------- */

/* Collective over the dp group, all members in the same order.  @return OK; after ERR_MEMORY, ERR_COMM or ERR_FILE the
 * step cannot go on. */
enum error_code data_acquire(struct data_parallel *, int part, struct error *);
void data_release(struct data_parallel *, int part);

/** Between acquire and release: read the experts of a part that have rows (counts: [E]) from the slow tier, if they are
 *  read by choice.  Local.  @return OK or ERR_FILE. */
enum error_code data_read_experts(struct data_parallel *, int part, const int32_t *counts, struct error *);

enum error_code data_begin_gradient(struct data_parallel *, int part, struct error *);
enum error_code data_end_gradient(struct data_parallel *, int part, struct error *);
enum error_code data_finish_gradients(struct data_parallel *, struct error *);

/* Do so for one tile of a matrix, between the calls for its part. */
enum error_code data_acquire_tile(struct data_parallel *, const struct parameter *tile, struct error *);
void data_release_tile(struct data_parallel *, const struct parameter *tile);
enum error_code data_begin_tile_gradient(struct data_parallel *, const struct parameter *tile, struct error *);
enum error_code data_end_tile_gradient(struct data_parallel *, const struct parameter *tile, struct error *);

/** Inference sends this, and moves this from the slow tier, once besides what each of its passes does: before the first
 *  pass the parts that every pass gets ready for the next one.  Zeros in training. */
struct account data_first_cost(const struct data_parallel *);
struct tier_traffic data_first_moves(const struct data_parallel *);

/** For an optimizer that is forward_only: the following passes get weights w + along z.  Starts the list of passes
 *  again, or continues after a PASS_TURN.  Local; no part may be acquired. */
void data_set_direction(struct data_parallel *, uint64_t key, double along);

/** The part of a unit's reduced gradient that this device steps: a view, on the slow tier if it is kept there. */
struct tensor data_own_gradient(const struct unit *);

/** Between finish_gradients and step: get the same on the device, to change it; then put it back where it is kept.
 *  @return OK, ERR_MEMORY or ERR_FILE. */
enum error_code data_take_gradient(struct data_parallel *, struct unit *, struct tensor *, struct error *);
enum error_code data_put_gradient(struct data_parallel *, struct unit *, struct error *);

/** This device's part of the squared global norm, as an exact sum.  Over all devices (or those of a replica) the parts
 *  add up to it; the sum has the same bits for every division into units, shards and pieces. */
void data_norm_part(struct data_parallel *, struct exact_sum *);

/** This device's part of the fingerprint of the weights: over all devices (or those of a replica) the parts add up,
 *  modulo 2^64, to a number that only the bits of the weights decide, not who has which of them.  Local. */
uint64_t data_fingerprint_part(struct data_parallel *);

/** Step t of the weights, with every gradient multiplied by gradient_scale; then gradients are zero.  With two versions
 *  the newest becomes the older one, and a copy of it is stepped.  Without gradients, the direction is drawn again in
 *  their place, and the scale is the slope along it.  With replicas that train apart, the outer step follows at the end
 *  of a round.  Collective over the dp group. */
enum error_code data_step(struct data_parallel *, int64_t t, double gradient_scale, struct error *);

/** Set the optimizer step, from 1, for which the next gradients are; data_step advances it by one. */
void data_expect_step(struct data_parallel *, int64_t t);

/** Skip a step: gradients become zero, nothing else changes. */
void data_skip_step(struct data_parallel *);

/** After weights were loaded: copy the newest version to the older one.  Does nothing with one version. */
void data_same_versions(struct data_parallel *);

/** Replace loaded or drawn weights by the values that gathering after a step would give.  Does nothing if they are not
 *  quantised then.  Local.  @return OK or ERR_MEMORY. */
enum error_code data_requantise(struct data_parallel *, struct error *);

/** Replace weights by the values that a level's gathering would give, in a part of a unit's row that consists of whole
 *  pieces.  Local.  If the device is NULL, the row must be the host's.  @return OK or ERR_MEMORY. */
enum error_code data_as_gathered(struct device *, const struct data_request *, const struct shards *,
                                 enum shard_level, const struct unit *, struct tensor row, struct error *);

/** Whether gradients are tracked. */
static inline bool data_tracks(const struct data_parallel *dp)
{
    bool any = false;
    for (int u = 0; u < dp->units; u++) any = any || tracked(dp->unit[u].tracking);
    return any;
}

/** From now on track the exact values of quantised gradients and the bounds of their errors.  Does nothing if gradients
 *  are not quantised.  Local; all devices must call it.  @return OK or ERR_MEMORY. */
enum error_code data_track(struct data_parallel *, struct error *);

/** After gradients are finished: compute KIND_GRADIENT_EXCESS.  Local. */
void data_settle_tracking(struct data_parallel *);

/** The tracking of data_own_gradient(): a view. */
struct tracking data_own_tracking(const struct unit *);

/** After weights were loaded: start the first round of replicas that train apart.  Does nothing if none do. */
void data_start_round(struct data_parallel *);

/* ---- what is kept, for comparison and checkpoints ---------------------------------------------------------------- */

/* KIND_EXACT_GRADIENT: the gradient without quantising; KIND_GRADIENT_EXCESS: |gradient - exact gradient| over its
 * bound, for each element; both in fp64, and only while they are tracked (data_track).
 * KIND_MASTER: what the optimizer steps: fp32 copies of 16-bit weights, copies of quantised ones, or the weights;
 * KIND_ANCHOR: the masters after the last outer step; KIND_MOMENTUM: the outer steps' momentum;
 * KIND_STATE + s: optimizer state s. */
enum tensor_kind {
    KIND_WEIGHT,
    KIND_OLDER_WEIGHT,
    KIND_GRADIENT,
    KIND_EXACT_GRADIENT,
    KIND_GRADIENT_EXCESS,
    KIND_MASTER,
    KIND_ANCHOR,
    KIND_MOMENTUM,
    KIND_STATE
};

/* Whether replicas that train apart have this kind in common. */
static inline bool kind_is_common(enum tensor_kind kind) { return kind == KIND_ANCHOR || kind == KIND_MOMENTUM; }

/* Whether a kind is weights, or what they are rounded from: all else only parameters that train have. */
static inline bool kind_is_of_weights(enum tensor_kind kind)
{
    return kind == KIND_WEIGHT || kind == KIND_OLDER_WEIGHT || kind == KIND_MASTER || kind == KIND_ANCHOR;
}

/* Whether the optimizer steps copies of the weights. */
static inline bool data_has_masters(const struct data_parallel *dp)
{
    return data_keeps_masters(dp->device->dtype, &dp->request, &dp->shards);
}

/** The format of tensors of a kind. */
enum dtype data_format(const struct data_parallel *, enum tensor_kind);

/** The part of a unit's row of which a device keeps numbers of a kind; whether the device is the first of those that
 *  keep the same part (with replicas that train apart: the first of its replica). */
struct interval data_kept(const struct shards *, const struct unit *, enum tensor_kind);
bool data_keeps_first(const struct shards *, enum tensor_kind);

/** The numbers of that part: a view. */
struct tensor data_kept_tensor(const struct data_parallel *, const struct unit *, enum tensor_kind);

/** The shape of a parameter's numbers of a kind: the parameter's own, except for states of a low-rank optimizer.  ndim
 *  0: there are none. */
struct param_spec data_spec(const struct data_parallel *, const struct param_spec *, enum tensor_kind);

/* Whether numbers of a kind are kept whole, parameter by parameter, not as part of the unit's row. */
static inline bool data_keeps_whole(const struct data_parallel *dp, enum tensor_kind kind)
{
    return dp->optimizer->low_rank && kind >= KIND_STATE;
}

/** A parameter's numbers that are kept so: a view. */
struct tensor data_whole_state(const struct data_parallel *, const struct parameter *, int state);

/* ---- predicted messages and memory ------------------------------------------------------------------------------- */

/** Exact messages, bytes and additions of this device on the dp group in one step. */
struct account data_cost(const struct data_parallel *);

/** Likewise of the sums of adapters' gradients over devices with other pieces: of experts apart, or of all else. */
struct account data_adapters_cost(const struct data_parallel *, bool experts);

/** The part of it that a skipped step does not send: new weights from the devices that stepped them. */
struct account data_renewal_cost(const struct data_parallel *);

/** The traffic that the last steps of this device have not sent because gradients were projected: `taken` steps of the
 *  optimizer up to now, and `skipped` steps. */
struct account data_saved_by_projecting(const struct data_parallel *, int64_t taken, int64_t skipped);

/** data_cost on the group of one level only. */
struct account data_level_cost(const struct data_parallel *, enum shard_level);

/** The outer step's own traffic on the dp group; its moves to and from the slow tier. */
struct account data_outer_cost(const struct data_parallel *);
struct tier_traffic data_outer_moves(const struct data_parallel *);
/** The stride with the shortest update, for many equal slices.  host: time of a slice on the host; device: on the
 *  device, or the slowest copy to or from it.  k slices take max((k-1) host, device). */
int data_balanced_stride(picoseconds host, picoseconds device);

/** Bytes that a device keeps from step to step, on the device or on the slow tier. */
struct model_state data_kept_bytes(const struct data_parallel *);

/** Exact peak bytes of PARAMETERS, GRADIENTS and OPTIMIZER. */
struct model_state data_peak(const struct data_parallel *);

/** The number of slices of a step, if anything that it uses is on the slow tier; otherwise 0. */
int data_slices(const struct data_parallel *);

/** Bytes that this device has read from the slow tier and written to it so far. */
struct tier_traffic data_tier_traffic_so_far(const struct data_parallel *);

/* How the drive is used: requests of blocks by the device, and how many of these the host has in its memory. */
struct drive_use { struct tier_traffic moved; uint64_t requests, hits; };

/** Bytes that this device's host has read from its drive and written to it so far. */
struct drive_use data_drive_use(const struct data_parallel *);

/** The bytes of PARAMETERS, GRADIENTS and OPTIMIZER that are always on the device. */
struct model_state data_resident(const struct data_parallel *);

/** Bytes of the buffers through which the optimizer's step moves what is on the slow tier. */
uint64_t data_step_buffers(const struct data_parallel *);

/** Whether a part's weights are here, whole, at all times: nothing gathers or fetches them.  All devices get the same
 *  answer. */
bool data_keeps_weights(const struct data_parallel *, int part);

/** A lower bound of the bytes of weights, or of gradients, that are allocated for one pass over a part. */
uint64_t data_part_bytes(const struct data_parallel *, int part, enum pass);

/** Bytes on the slow tier. */
struct model_state data_offloaded(const struct data_parallel *);

/** Exactly what this device reads from the slow tier and writes to it in one step; and the part of it that a skipped
 *  step does not move. */
struct tier_traffic data_tier_traffic(const struct data_parallel *);
struct tier_traffic data_tier_update_traffic(const struct data_parallel *);

#endif
