/* stage.h -- the engine as a chain of stages.  Private to this folder.
 *
 * A stage does one thing with weights, gradients or the optimizer's state: it gathers them, keeps them on the slow
 * tier, reduces them, or projects them.  It has its own file, with its state, and one line in stages.c, which defines
 * its place in the chain.  A plan's chain has the stages that take part in it.  Every call of the seam (data.h) goes to
 * each of them in order; predicted traffic and memory are sums over the chain.  No stage depends on whether another one
 * is in the chain: what they share is in the units (unit.h).
 *
 * How numbers are sent between devices is not a stage but a wire (sharing.h), which any stage's messages use.
 * schemes/data/data.c calls the stages of a chain, and open.c opens them.
 */
#ifndef ORRERY_DATA_STAGE_H
#define ORRERY_DATA_STAGE_H

#include "emulated_devices/schemes/data/data.h"
#include "emulated_devices/schemes/data/stages/sharing.h"
#include "emulated_devices/device/streams.h"
#include <stddef.h>

/** Messages from here until clock_end go on the stream that sends this. */
static inline void data_begin_sending(const struct data_parallel *dp, enum sending what)
{
    clock_begin(&dp->device->clock, sending_stream(&dp->device->clock, what));
}

/** Wait for all that data parallelism has sent. */
static inline void data_wait_for_streams(const struct data_parallel *dp)
{
    struct clock *c = &dp->device->clock;
    const enum stream weights = sending_stream(c, SENDS_WEIGHTS), gradients = sending_stream(c, SENDS_GRADIENTS);
    clock_join(c, weights);
    if (gradients != weights) clock_join(c, gradients);
}

/* A keeping is a tensor of each unit that a stage keeps from step to step.  The engine allocates the tensor with
 * zeros, frees and counts the tensor.  `elements` says how many there are, -1 for none.  NULL means this device's
 * part of the unit's row, by the sharding of its kind. */
struct keeping {
    size_t at;                                  /* its offset in struct unit */
    enum arena_tag tag;                         /* under which the bytes are counted */
    enum tensor_kind kind;                      /* decides format and sharding */
    int64_t (*elements)(const struct data_parallel *, const struct unit *, enum tensor_kind);   /* As said above the
                                                 * struct. */
};

enum { STAGE_KEEPS = OPTIMIZER_MAX_STATES };

/* Functions that a stage does not need are NULL; its own state is chain_state().  Errors: ERR_MEMORY, ERR_COMM or
 * ERR_FILE; the step cannot go on. */
struct data_stage {
    const char *name;                           /* for messages and traces */
    bool (*takes_part)(const struct data_parallel *);   /* Whether this run's request needs the stage; without it the
                                                 * stage is left out of the chain. */
    bool of_the_step;                           /* takes no part in inference, which has none */
    size_t state;                               /* bytes of its state, zero at first */

    struct keeping keeps[STAGE_KEEPS];          /* tensors of each unit that the stage adds */
    int kept;                                   /* number of keeps[] */

    /* Building: `outline` makes groups, lists and sizes, which is sufficient for all predictions.  `fill` allocates
     * memory that belongs to no unit.  `make` allocates more memory of a unit, after its kept tensors, and `unmake`
     * frees this memory. */
    enum error_code (*outline)(struct data_parallel *, struct error *); /**< Makes groups, lists and sizes. */
    enum error_code (*fill)(struct data_parallel *, struct error *); /**< Allocates memory that belongs to no unit. */
    void (*make)(struct data_parallel *, struct unit *); /**< Allocates more memory of a unit, after kept tensors. */
    void (*unmake)(struct data_parallel *, struct unit *); /**< Frees the memory that `make` allocated. */
    void (*close)(struct data_parallel *);      /**< Frees the stage's own state. */
    /* Allocate n elements of a class of a unit's state; tensor_none if this stage has no place for them. */
    struct tensor (*place)(struct data_parallel *, const struct unit *, enum arena_tag, enum dtype, int64_t n);

    /* Weights: `acquire` makes the weights of a use whole, and of later uses as far as the stage looks ahead.
     * `release` says that a unit's weights are no longer needed after the list's pass `use`. */
    enum error_code (*acquire)(struct data_parallel *, struct use, bool ahead, struct error *); /**< Gathers weights. */
    void (*release)(struct data_parallel *, int use, int unit); /**< Ends the use of a unit's weights. */
    /* `fetch` copies a unit's own_w to the device, as u->shard, if own_w is elsewhere.  `drop` frees the copy. */
    enum error_code (*fetch)(struct data_parallel *, struct unit *, struct error *); /**< Copies own_w to the device. */
    void (*drop)(struct data_parallel *, struct unit *); /**< Frees the copy of the weights that `fetch` made. */

    /* Gradients: `begin` allocates a unit's gradient.  `end` says that a pass has added to those of a use.  `finish`
     * says that no pass will add to a gradient any more.  `settle` comes after the reductions, when all gradients are
     * where they will be stepped. */
    enum error_code (*begin)(struct data_parallel *, struct unit *, struct error *); /**< Allocates the gradient. */
    enum error_code (*end)(struct data_parallel *, struct use, struct error *); /**< Ends a use's gradients. */
    enum error_code (*finish)(struct data_parallel *, struct error *); /**< No pass adds gradients after this. */
    void (*settle)(struct data_parallel *);     /**< Called when all gradients are where they will be stepped. */
    /* `take_sum` copies a unit's own_g to the device, as u->sum, if own_g is elsewhere.  `put_sum` copies the sum
     * back, and of a finished sum only the part that this device steps. */
    enum error_code (*take_sum)(struct data_parallel *, struct unit *, struct error *); /**< Reads a unit's sum. */
    enum error_code (*put_sum)(struct data_parallel *, struct unit *, bool finished, struct error *);

    /* The step: `expect` gives the number of the next step.  `before` comes before a step, `after` after a step.
     * `step` steps all units; `share` in its arguments says whether new weights are sent.  The function `share` sends
     * a unit's new weights to the devices that keep these (unit NULL: all that still wait).  `clear` zeroes
     * gradients.  `skip`: there is no step. */
    void (*expect)(struct data_parallel *, int64_t t); /**< Gets the number of the next step, t. */
    void (*before)(struct data_parallel *);     /**< Called before a step. */
    enum error_code (*step)(struct data_parallel *, struct step, bool share, struct error *); /**< Steps all units. */
    enum error_code (*share)(struct data_parallel *, struct unit *, struct error *); /**< Sends new weights. */
    enum error_code (*after)(struct data_parallel *, int64_t t, struct error *); /**< Called after step t. */
    void (*clear)(struct data_parallel *, struct unit *); /**< Sets a unit's gradients to zero. */
    void (*skip)(struct data_parallel *);       /**< Called in place of a step that is left out. */

    /* Prediction follows from the list of passes.  `cost` is the traffic of a step on one level.  `passing` is the
     * most memory on the device besides what is kept there.  A stage adds this memory to sum.  If its memory never
     * exists together with that of other stages, the stage only raises sum to at least its own. */
    void (*foresee)(struct data_parallel *);    /**< Prepares the prediction from the list of passes. */
    void (*cost)(const struct data_parallel *, enum shard_level, struct account *sum); /**< Adds a step's traffic. */
    void (*passing)(const struct data_parallel *, struct model_state *sum); /**< Adds memory that is not kept. */
    /* A step moves this to and from the slow tier; update_moves is the part that a skipped step does not move. */
    void (*moves)(const struct data_parallel *, struct tier_traffic *sum); /**< Adds the tier traffic of a step. */
    /* Inference sends and moves this once more, before all its passes: parts of the pass after the last. */
    void (*first_cost)(const struct data_parallel *, struct account *sum); /**< Adds what inference sends first. */
    void (*first_moves)(const struct data_parallel *, struct tier_traffic *sum); /**< Adds inference's first moves. */
    void (*update_moves)(const struct data_parallel *, struct tier_traffic *sum); /**< Adds the moves of an update. */
};

extern const struct data_stage stage_versions, stage_late, stage_chosen, stage_gathering, stage_tier, stage_direction,
    stage_adapters, stage_adapter_sums, stage_gradient_block, stage_allreduce, stage_projection, stage_scattering,
    stage_masters, stage_states, stage_step, stage_slices, stage_renewal, stage_outer;

/* For each link of the plan's chain, in order.  TELL calls a function of all stages; CALL calls one that can fail, and
 * stops after an error. */
#define EACH_LINK(dp, l) (const struct data_link *l = (dp)->chain; l->stage != NULL; l++)
#define TELL(dp, function, ...)                                                                                 \
    for EACH_LINK(dp, link_) if (link_->stage->function) link_->stage->function(dp, ## __VA_ARGS__)
#define CALL(e, dp, function, ...)                                                                              \
    for EACH_LINK(dp, link_) if (link_->stage->function && !(e)) (e) = link_->stage->function(dp, __VA_ARGS__)

/** Choose the stages that take part.  @return OK or ERR_MEMORY; chain_free works after both. */
enum error_code chain_make(struct data_parallel *, struct error *);
void chain_free(struct data_parallel *);

/** The state of a stage; NULL if it is not in the chain. */
void *chain_state(const struct data_parallel *, const struct data_stage *);

/* Calls to all stages, from stages: stages.c. */
enum error_code fetch_weights(struct data_parallel *, struct unit *, struct error *);
enum error_code take_sum(struct data_parallel *, struct unit *, struct error *);
enum error_code put_sum(struct data_parallel *, struct unit *, bool finished, struct error *);
enum error_code share_weights(struct data_parallel *, struct unit *, struct error *);

/* ---- properties of a plan ---------------------------------------------------------------------------------------- */

/* Whether gradients are kept at all. */
static inline bool has_gradients(const struct data_parallel *dp) { return !dp->optimizer->forward_only; }

/* Whether anything of a unit is on the slow tier; whether a class of it is. */
static inline bool unit_is_away(const struct data_parallel *dp, const struct unit *unit)
{
    return dp->request.offload != 0 && (unit->experts || !dp->request.offload_experts);
}
static inline bool unit_offloads(const struct data_parallel *dp, const struct unit *unit, enum arena_tag what)
{
    return unit_is_away(dp, unit) && offloads(&dp->request, what);
}

/* Whether a unit's experts are read when they are chosen (chosen.c). */
bool unit_is_chosen(const struct data_parallel *, const struct unit *);

/* Whether any weights must be moved before use: they are kept in shards, or on the slow tier. */
static inline bool weights_travel(const struct data_parallel *dp)
{
    return dp->shards.weights > 1 || dp->expert_shards.weights > 1 || offloads(&dp->request, PARAMETERS);
}

/* Whether matrices have adapters, with which their weights are merged (adapters.c). */
bool merges_adapters(const struct data_parallel *);

/* Whether acquiring a part allocates whole weights, which are dropped after it: they must be moved, or are needed at
 * another point than kept, or merged with adapters. */
static inline bool makes_weights(const struct data_parallel *dp)
{
    return weights_travel(dp) || optimizer_draws(dp->optimizer) || merges_adapters(dp);
}

/* Whether devices keep weights that others step, so that new ones are sent to them. */
static inline bool weights_are_renewed(const struct data_parallel *dp)
{
    return dp->shards.optimizer > dp->shards.weights || dp->expert_shards.optimizer > dp->expert_shards.weights;
}

/* Whether gradients are moved after each pass to the device or tier that keeps them. */
static inline bool data_scatters(const struct data_parallel *dp)
{
    return has_gradients(dp) && (dp->shards.gradients > 1 || dp->expert_shards.gradients > 1 ||
                                 offloads(&dp->request, GRADIENTS));
}

/* Whether gradients are one block, whole on every device, which is all-reduced in pieces: ddp. */
static inline bool gradients_in_one_block(const struct data_parallel *dp)
{
    return has_gradients(dp) && dp->shards.optimizer == 1 && dp->expert_shards.optimizer == 1 && !data_scatters(dp);
}

/* The ring has the parts of the model whose weights are on the device, of those on the slow tier.  These are the part
 * that computes, the next part, and copies of the parts after both. */
static inline int ring_parts(const struct data_parallel *dp) { return dp->request.ring > 0 ? dp->request.ring : 3; }

/* ---- the list of passes ------------------------------------------------------------------------------------------ */

/* Whether weights from before this pass cannot be used after it. */
static inline bool renews_weights(enum pass pass) { return pass == PASS_UPDATE || pass == PASS_TURN; }

/* The pass after this one that needs weights, or -1 if there is none before the next update.  In inference the first
 * comes again after the last. */
int next_weight_use(const struct data_parallel *, int use);

/* The units that a use needs; those to whose gradients a backward pass for the weights adds.  @return how many. */
int units_at(const struct data_parallel *, struct use, int unit[PART_UNITS]);
int gradients_at(const struct data_parallel *, struct use, int unit[PART_UNITS]);

/* Set each unit's `due`: the backward passes, up to the next update, that add to its gradient. */
void count_due(struct data_parallel *, int from_use);

#define KEEPS_STATES(elements)                                                                                  \
    { { offsetof(struct unit, state[0]), OPTIMIZER, KIND_STATE, elements },                                     \
      { offsetof(struct unit, state[1]), OPTIMIZER, KIND_STATE + 1, elements },                                 \
      { offsetof(struct unit, state[2]), OPTIMIZER, KIND_STATE + 2, elements },                                 \
      { offsetof(struct unit, state[3]), OPTIMIZER, KIND_STATE + 3, elements } }

/* ---- units ------------------------------------------------------------------------------------------------------- */

/* The number of elements of a unit that a stage keeps; -1: none. */
int64_t keeping_elements(const struct data_parallel *, const struct unit *, const struct keeping *);

/* Allocate n zeros of a class, on the device or where a stage places those of a unit (NULL: of all); free them. */
struct tensor data_zeros(struct data_parallel *, const struct unit *, enum arena_tag, enum tensor_kind, int64_t n,
                         bool *failed);
void data_give_back(struct data_parallel *, struct tensor);

/* The bytes of a unit that a device keeps from step to step. */
struct model_state unit_kept_bytes(const struct data_parallel *, const struct unit *);

/* Whether a tensor is on the slow tier. */
bool on_tier(const struct data_parallel *, struct tensor);

/* The number of elements of a unit of which this device keeps the weights or the gradients, or which it steps, by
 * level. */
static inline int64_t kept_elements(const struct unit *unit, enum shard_level level)
{
    return shards_range(&unit->over->shards, level, unit->padded).count;
}

/* Those of the gradients kept by this device that it steps; the same for the weights. */
struct interval stepped_gradients(const struct unit *);
struct tensor stepped_weights(const struct unit *);

/* The number of elements of a unit's weights (or gradients) when they are whole on this device. */
static inline int64_t whole_elements(const struct unit *unit) { return unit->rows > 0 ? unit->elements : unit->padded; }

/* Set the parameters' w or g to their places in the unit's whole block, or to NULL. */
void show_weights(struct unit *);
void show_gradients(struct unit *);

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* A contiguous range of what is stepped: with its gradient, or without gradients along the direction (direction.c). */
struct stretch {
    const struct data_parallel *dp;     /* of this device */
    struct portion at;                  /* which elements: of what parameter, where in the row */
    struct tensor master, gradient, state[OPTIMIZER_MAX_STATES];        /* views of these elements; master: the weights
                                         * themselves if there are no masters */
    struct step step;                   /* number, rates and scale of the step */
};

void step_by_gradient(const struct stretch *);

/* Operands are the tensors with which a unit, or a part of a unit, is stepped.  These are the kept tensors, or
 * copies.  `weight` is the rounded master, if there is a master. */
struct operands { struct tensor gradient, master, weight, state[OPTIMIZER_MAX_STATES]; };

struct operands unit_operands(const struct data_parallel *, const struct unit *, struct interval own);

/* Compute a step, on the device or the host. */
void step_operands(const struct data_parallel *, const struct unit *, struct interval own, const struct operands *,
                   struct step);

/* The cost of stepping elements: master and states are read and written, the gradient is read; the cost of rounding
 * masters. */
struct op_cost step_cost(const struct data_parallel *, int64_t elements);
/* gradient_bytes: of an element; 0 if it is not stored. */
struct op_cost optimizer_cost(const struct optimizer *, enum dtype master, uint64_t gradient_bytes, int64_t elements);
struct op_cost round_cost(const struct data_parallel *, int64_t elements);

/* Round the masters that this device has stepped to its weights, and share these. */
enum error_code renew_weights(struct data_parallel *, struct unit *, struct error *);

/* sum += this device's part of a unit's squared norm; g: the part of the gradient that it steps. */
void unit_add_squares(struct data_parallel *, const struct unit *, struct tensor g, struct exact_sum *sum);

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* A range of a row as a tensor. */
static inline struct tensor slice(struct tensor row, struct interval interval)
{
    char *data = row.data;
    return tensor_1d(data ? data + (size_t)interval.first * dtype_size(row.dtype) : NULL, row.dtype, interval.count);
}

/* The bytes of a class. */
static inline uint64_t *model_state_of(struct model_state *state, enum arena_tag tag)
{
    return tag == PARAMETERS ? &state->weights : tag == GRADIENTS ? &state->gradients : &state->optimizer;
}

/* Add `times` reads, or writes, of `elements` elements each; none if elements is 0. */
void add_reads(struct tier_traffic *, int64_t times, int64_t elements, enum dtype);
void add_writes(struct tier_traffic *, int64_t times, int64_t elements, enum dtype);

#endif
