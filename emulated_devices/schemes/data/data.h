/* data.h -- the seam for data parallelism: which device keeps weights, gradients and optimizer state, and when they are
 * whole here.
 *
 * The model calls it by parts: part 0 is the embedding, 1 .. L the blocks, L + 1 the last norm and the loss.
 *
 *     data_expect_step(t)         which step of the optimizer comes
 *     data_acquire(part)          its weights are whole here, gathered if they are kept in shards
 *     data_release(part)          ... no longer needed; gathered copies go
 *     data_begin_gradient(part)   room for the gradients of its weights
 *     data_end_gradient(part)     one backward pass has added to them: they are reduced as soon as they can be
 *     data_finish_gradients()     after the last microbatch: what is still under way
 *     data_step()                 the optimizer steps what this device keeps, and weights are made whole again or kept
 *     in shards
 *
 * Where matrices are tiled (--tiles, tiles.h), what a part has besides them is acquired with the part, and a matrix
 * tile by tile in between: data_acquire_tile() and data_release_tile(), and for gradients data_begin_tile_gradient()
 * and data_end_tile_gradient().
 *
 * An optimizer that knows losses alone (ref/model/mezo.h) does not use the gradients' three: no device keeps any.
 * Before each pass over the parts data_set_direction() says where weights are wanted, and what is acquired are copies
 * of the kept ones, moved there: never more than one part of the model, or two where the next one is gathered
 * meanwhile.
 *
 * There is one engine.  A scheme is a choice of shards (shards.h), in a file of its own with its formulas; the
 * engine gathers and reduces unit by unit (unit.h).  Which part is used when is known before the step, as a list: from
 * it the next part is gathered while this one computes, and memory and traffic are predicted exactly.
 *
 * In mixed precision the model's format has 16 bits.  Weights are kept and gathered in it; gradients are kept and
 * reduced in fp32, or in 16 bits as well; the optimizer's state is fp32, and so is the master copy of the weights,
 * which belongs to it: the device that steps an element keeps its master.  Weights are the master rounded once, after
 * it was drawn, read or stepped.
 *
 * Quantised (--quantize-weights, --quantize-gradients; collectives/quantised.h): every gathering of weights carries
 * codes, and every reduce-scatter of gradients is one or two all-to-alls of codes; the all-reduce among copies is as it
 * was.  Weights that are gathered after the step are what the codes stand for, so the device that steps an element then
 * keeps its master here too, in any format; weights in shards that are gathered before use are kept as they are, and
 * only the gathered copies are quantised.  Blocks follow the row of a unit and go across its parameters; what devices
 * along tp have copies of is in units of its own, so that its blocks are the same everywhere (units.h).
 */
#ifndef ORRERY_DATA_SCHEME_H
#define ORRERY_DATA_SCHEME_H

#include "emulated_devices/collectives/quantised.h"
#include "emulated_devices/device/tier.h"
#include "emulated_devices/schemes/data/outward.h"
#include "emulated_devices/schemes/data/unit.h"
#include "emulated_devices/schemes/scheme.h"
#include "ref/optim/outer.h"

/* What the command line can add to a scheme's name. */
struct data_request {
    const char *scheme;
    int group;                           /* --shard-group: devices that share what the scheme shards; 0: the scheme's */
    int shards[3];                              /* --shards W,G,O; 0: not given */
    bool keep;                                  /* gathered weights stay after forward until their backward */
    bool no_prefetch;                           /* do not gather the next part while this one computes */
    int tiles;             /* --tiles: parts of each matrix that are gathered one after the other; 0, 1: whole layers */
    const char *reduce_scatter, *allgather;     /* algorithms; NULL: the default */
    int64_t bucket; /* bytes that are reduced, or gathered after the step, at a time, > 0, where weights are
                                                   kept whole: bucket.h */
    struct outer outer;              /* --local-steps, --outer-lr, --outer-momentum; a number that is 0: the scheme's */
    unsigned offload;                 /* --offload: 1 << PARAMETERS, GRADIENTS, OPTIMIZER: what lies on the slow tier */
    const char *offload_to;                     /* folder for a file; NULL: the host's memory */
    int64_t offload_slice;                      /* elements that the step moves and steps at a time, > 0 */
    int offload_stride;      /* K: the device steps every Kth slice, the host the others; 0, 1: the device steps all */
    bool narrow_gradients;   /* --grad-dtype: of 16-bit weights they are kept and reduced in 16 bits too, not in fp32 */
    struct block_format quantise_weights, quantise_gradients;      /* as they travel; bits 0: as they are */
};

struct data_scheme {
    struct scheme head;
    /* Set w | g | o, which are 1, for s->P devices.  @return NULL, or what the scheme asks for or
     * does not take, in words. */
    const char *(*share)(struct shards *s, const struct data_request *);
    bool rows;                                  /* each parameter cut by rows, instead of the unit as one flat row */
    const char *allgather;                      /* algorithm for weights, if the request has none; NULL: the default */
    /* If its copies train apart: the rule that brings them together, with its usual numbers, and the devices' form of
     * it.  rate: the optimizer's in the step that the outer step follows. */
    struct outer outer;
    struct outward (*outward)(const struct outer *, double rate);
};

static inline bool offloads(const struct data_request *q, enum arena_tag what) { return q->offload >> what & 1; }

/* For .share, of schemes whose copies train apart: replicas on one device each, on --shard-group
 * N of them, or as --shards has it. */
const char *share_replica(struct shards *, const struct data_request *);

/* How many devices share what a scheme shards: all, or as many as --shard-group says. */
static inline int shard_group(const struct shards *s, const struct data_request *q)
{
    return q->group > 0 ? q->group : s->P;
}

SCHEME_CASTS(DATA_SCHEME, data_scheme)                          /* data_scheme_at, data_scheme_find */

/** The shards of a request on P devices.  @return OK, ERR_USAGE, or ERR_PLAN naming flag and value. */
enum error_code data_shards(struct shards *, const struct data_request *, int P, int rank, struct error *);

/** Whether codes have a number of bits and a length of blocks that there are.
 * @return OK or ERR_PLAN, naming the flag. */
enum error_code data_check_codes(const struct data_request *, struct error *);

static inline bool data_quantises(const struct data_request *q)
{
    return q->quantise_weights.bits > 0 || q->quantise_gradients.bits > 0;
}

/* Whether weights are gathered after the step, and then are what codes stand for. */
static inline bool data_renews_quantised(const struct data_request *q, const struct shards *s)
{
    return q->quantise_weights.bits > 0 && s->weights < s->optimizer;
}

/* Whether the optimizer steps copies of weights in this format. */
static inline bool data_keeps_masters(enum dtype t, const struct data_request *q, const struct shards *s)
{
    return dtype_wide(t) != t || data_renews_quantised(q, s);
}
/** The algorithm by which a request's scheme gathers weights; NULL: the default. */
const char *data_allgather(const struct data_request *);

/** The outer steps of a request's scheme; .every is 0 where copies reduce gradients in every step. */
struct outer data_outer(const struct data_request *);

/* One pass over one part; PASS_UPDATE: over all of them, the optimizer's step in mid-stream; PASS_TURN: none, weights
 * are wanted elsewhere from there on. */
enum pass { PASS_FORWARD, PASS_BACKWARD_INPUT, PASS_BACKWARD_WEIGHT, PASS_UPDATE, PASS_TURN };
struct use {
    int part;
    enum pass pass;
    int tile;                                   /* its unit, where a part is used tile by tile; 0: none */
    bool older;                                 /* the weights' older version, where there are two */
};
struct stretch;

struct data_stage;
struct sharing;

/* One stage of the engine, and its state (stage.h). */
struct data_link { const struct data_stage *stage; void *state; };

struct data_parallel {
    const struct data_scheme *scheme;
    struct data_request request;
    const struct model_config *config;
    struct device *device;
    struct group *group;                        /* along dp: devices with the same pieces and other sequences */
    struct parameters *parameters;
    const struct optimizer *optimizer;
    const struct hyperparameters *hyper;
    const char *allreduce;                      /* algorithm; NULL: the default */
    int versions; /* of the weights: 2 where a schedule's microbatches still need those before the last
                                                   step (pipedream_2bw.c); then weights are not in shards */
    /* what data_open makes of them */
    struct shards shards;
    struct outer outer;                         /* of replicas that train apart */
    struct sharing *sharing;                    /* which devices share the units, and how numbers are sent */
    struct data_link *chain;                    /* ends with a stage that is NULL */
    int units;
    struct unit *unit;                          /* [units] */
    struct tensor gradients;   /* all units' g, where they are kept whole: last unit first, as backward finishes them */
    bool unit_by_unit;                          /* units are never packed into one exchange */
    void (*step_stretch)(const struct stretch *);       /* with its gradient, or along a direction */
    bool stepped, stepped_outward;              /* at least once: before that there are no buffers for the step, or for
                                                 * the outer step */
    int uses, at;                               /* passes of a step; the one that comes next */
    int updates;                                /* optimizer steps among them, the last one counted */
    struct use *use;                            /* [uses] */
};

/* ---- building ---------------------------------------------------------------------------------------------------- */

/**
 * Find groups and units: what this device keeps and sends, of which all formulas below are true, without memory for it.
 * Local.  scheme, request, config, device, group, parameters, optimizer, hyper, versions and allreduce are filled in.
 * @return OK, ERR_PLAN or ERR_MEMORY; data_close works after all of them.
 */
enum error_code data_outline(struct data_parallel *, struct error *);

/**
 * Make initial weights, gradients and optimizer state.
 * Local, after data_outline.  Weights are drawn from each element's place in the whole tensor: the same bits on every
 * mesh, on whichever device.
 * @return OK, ERR_MEMORY, or ERR_FILE of a slow tier; data_close works after all of them.
 */
enum error_code data_fill(struct data_parallel *, uint64_t seed, struct error *);

/** Both.  Local. */
enum error_code data_open(struct data_parallel *, uint64_t seed, struct error *);
void data_close(struct data_parallel *);

/** Say in which order the parts will be used in each step.  @param use  passes to the scheme, which frees it. */
void data_set_uses(struct data_parallel *, struct use *use, int uses);

/** The units by part that a part needs, at most 2 (units.h has the others).  @return how many. */
int data_units_of(const struct model_config *, int part, int unit[]);

/* ---- in a step --------------------------------------------------------------------------------------------------- */

/* Collective over the dp group, all members in the same order.  @return OK, ERR_MEMORY, ERR_COMM, ERR_FILE;
 * the step cannot go on. */
enum error_code data_acquire(struct data_parallel *, int part, struct error *);
void data_release(struct data_parallel *, int part);
enum error_code data_begin_gradient(struct data_parallel *, int part, struct error *);
enum error_code data_end_gradient(struct data_parallel *, int part, struct error *);
enum error_code data_finish_gradients(struct data_parallel *, struct error *);

/* The same of one tile of a matrix, between those of its part.  Its weights are whole, room is made for its gradient;
 * they are dropped, it is reduced. */
enum error_code data_acquire_tile(struct data_parallel *, const struct parameter *tile, struct error *);
void data_release_tile(struct data_parallel *, const struct parameter *tile);
enum error_code data_begin_tile_gradient(struct data_parallel *, const struct parameter *tile, struct error *);
enum error_code data_end_tile_gradient(struct data_parallel *, const struct parameter *tile, struct error *);

/** Where the weights of the passes that follow are wanted, for an optimizer that is forward_only: at w + along z.
 *  Begins the list of passes again, or goes on behind a PASS_TURN.  Local; no part is acquired. */
void data_set_direction(struct data_parallel *, uint64_t key, double along);

/** What this device steps of a unit's gradient, reduced over dp: a view, on the slow tier if that is where it lies. */
struct tensor data_own_gradient(const struct data_parallel *, const struct unit *);

/** The same on the device, to be changed there, between finish_gradients and step; and back to where it lies.
 *  @return OK, ERR_MEMORY or ERR_FILE. */
enum error_code data_take_gradient(struct data_parallel *, struct unit *, struct tensor *, struct error *);
enum error_code data_put_gradient(struct data_parallel *, struct unit *, struct error *);

/** This device's part of the squared global norm, exactly: over all devices, or those of a replica, the parts add up to
 *  it, and the sum has the same bits however gradients are cut into units, shards and pieces. */
void data_norm_part(struct data_parallel *, struct exact_sum *);

/** Step t of the weights, with every gradient multiplied by gradient_scale first; then gradients are zero again.  Of
 *  two versions the newest becomes the older one, and a copy of it is stepped.  Where gradients are not kept, they are
 *  the direction, drawn again, and the scale is the slope along it.  Where replicas train apart, the outer step follows
 *  at the end of a round.
 *  Collective over the dp group. */
enum error_code data_step(struct data_parallel *, int64_t t, double gradient_scale, struct error *);

/** Say which step of the optimizer, from 1, the next gradients are for; after data_step it is the one after. */
void data_expect_step(struct data_parallel *, int64_t t);

/** Leave a step out: gradients are zero again, and nothing else has changed. */
void data_skip_step(struct data_parallel *);

/** Make the older version the same as the newest, after weights were loaded.  Nothing where there is one. */
void data_same_versions(struct data_parallel *);

/** Make loaded or drawn weights what gathering them after a step would have made of them.  Nothing where they are not
 *  quantised then.  Local.  @return OK or ERR_MEMORY. */
enum error_code data_requantise(struct data_parallel *, struct error *);

/** What a level's gathering makes of the weights in a part of a unit's row that its pieces fill.  Local.
 * @return OK or ERR_MEMORY. */
enum error_code data_as_gathered(const struct data_request *, const struct shards *, enum shard_level,
                                 const struct unit *, struct tensor row, struct error *);

/** Whether gradients are tracked. */
static inline bool data_tracks(const struct data_parallel *dp)
{
    bool any = false;
    for (int u = 0; u < dp->units; u++) any = any || tracked(dp->unit[u].tracking);
    return any;
}

/** From now on track beside quantised gradients what they would be otherwise, and how far they may be off.  Nothing
 *  where they are not quantised.  Local; all devices do it.  @return OK or ERR_MEMORY. */
enum error_code data_track(struct data_parallel *, struct error *);

/** Gradients are finished: KIND_GRADIENT_EXCESS is there.  Local. */
void data_settle_tracking(struct data_parallel *);

/** What stands beside data_own_gradient(): a view. */
struct tracking data_own_tracking(const struct data_parallel *, const struct unit *);

/** Begin the first round of replicas that train apart from the weights as they are, after they were loaded.
 * Nothing where none do. */
void data_start_round(struct data_parallel *);

/* ---- what is kept, for comparison and checkpoints ---------------------------------------------------------------- */

/* KIND_EXACT_GRADIENT: as it would be without quantising; KIND_GRADIENT_EXCESS: |gradient - that| over its bound,
 * element by element; both in fp64, and there only while they are tracked (data_track).
 * KIND_MASTER: what the optimizer steps, fp32 copies of 16-bit weights, or of quantised ones, elsewhere the weights;
 * KIND_ANCHOR: the same as the last outer step left it, KIND_MOMENTUM: the outer steps'; KIND_STATE + s:
 * optimizer state s. */
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

/* Whether replicas that train apart have the same. */
static inline bool kind_is_common(enum tensor_kind kind) { return kind == KIND_ANCHOR || kind == KIND_MOMENTUM; }

/* Whether the optimizer steps copies of the weights. */
static inline bool data_has_masters(const struct data_parallel *dp)
{
    return data_keeps_masters(dp->device->dtype, &dp->request, &dp->shards);
}

/** The format of tensors of a kind. */
enum dtype data_format(const struct data_parallel *, enum tensor_kind);

/** The part of a unit's row whose numbers of a kind a device keeps, and whether the device is the first of those that
 *  keep the same: where replicas train apart, the first of its replica. */
struct interval data_kept(const struct shards *, const struct unit *, enum tensor_kind);
bool data_keeps_first(const struct shards *, enum tensor_kind);

/** The numbers kept: a view of that part. */
struct tensor data_kept_tensor(const struct data_parallel *, const struct unit *, enum tensor_kind);

/** What a parameter's numbers of a kind look like: as itself, but for states of a low-rank optimizer; ndim 0:
 * there are none. */
struct param_spec data_spec(const struct data_parallel *, const struct param_spec *, enum tensor_kind);

/* Whether numbers of a kind do not lie in the unit's row, but each parameter's by themselves, whole. */
static inline bool data_keeps_whole(const struct data_parallel *dp, enum tensor_kind kind)
{
    return dp->optimizer->low_rank && kind >= KIND_STATE;
}

/** Such numbers: a view. */
struct tensor data_whole_state(const struct data_parallel *, const struct parameter *, int state);

/* ---- what it costs ----------------------------------------------------------------------------------------------- */

/** Messages, bytes and additions of this device on the dp group in one step, exactly. */
struct account data_cost(const struct data_parallel *);

/** Of it, what a step that is skipped does not send: new weights, from the devices that stepped them. */
struct account data_renewal_cost(const struct data_parallel *);

/** What the steps that this device has done last have not sent because gradients were projected: `taken` steps of the
 *  optimizer up to now and `skipped` that were left out. */
struct account data_saved_by_projecting(const struct data_parallel *, int64_t taken, int64_t skipped);

/** data_cost on the group of one level only. */
struct account data_level_cost(const struct data_parallel *, enum shard_level);

/** What an outer step sends on the dp group besides, and what it moves to and from the slow tier. */
struct account data_outer_cost(const struct data_parallel *);
struct tier_traffic data_outer_moves(const struct data_parallel *);
/** The stride with which the update takes least, of many equal slices that take the host so long, and the device, or
 *  the slowest of the copies, so long: k slices take max((k-1) host, device). */
int data_balanced_stride(picoseconds host, picoseconds device);

/** Bytes that a device keeps from step to step, wherever they lie. */
struct model_state data_kept_bytes(const struct data_parallel *);

/** Peak bytes of PARAMETERS, GRADIENTS and OPTIMIZER, exactly. */
struct model_state data_peak(const struct data_parallel *);

/** How many slices the step goes through where the optimizer's state, or what else it steps, lies on the slow tier; 0:
 * it lies nowhere else. */
int data_slices(const struct data_parallel *);

/** What this device has read from the slow tier and written to it so far. */
struct tier_traffic data_tier_traffic_so_far(const struct data_parallel *);

/** Bytes of them that are on the device from the first moment to the last. */
struct model_state data_resident(const struct data_parallel *);

/** Bytes of all of them together that the optimizer's step moves through the device, where they lie
 * on the slow tier. */
uint64_t data_step_buffers(const struct data_parallel *);

/** Bytes of weights, or of gradients, that are made for one pass over a part, whatever else is here by then:
 * at least. */
uint64_t data_part_bytes(const struct data_parallel *, int part, enum pass);

/** Bytes that lie on the slow tier. */
struct model_state data_offloaded(const struct data_parallel *);

/** What this device reads from the slow tier and writes to it in one step, exactly; and of it, what a step that is
 *  skipped does not. */
struct tier_traffic data_tier_traffic(const struct data_parallel *);
struct tier_traffic data_tier_update_traffic(const struct data_parallel *);

#endif
