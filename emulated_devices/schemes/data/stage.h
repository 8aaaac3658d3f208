/* stage.h -- the engine as a chain of stages.  Private to this folder.
 *
 * A stage is one thing that is done with weights, gradients or the optimizer's state: gather them, keep them on the
 * slow tier, reduce them, project them.  It has a file, with its state, and one line in stages.c, where its place in
 * the chain is.  A plan's chain has the stages that take part in it; every call of the seam (data.h) goes to each of
 * them in order, as do predicted traffic and memory, which are sums over the chain.  No stage asks whether another one
 * is there: what they share is in the units (unit.h).
 *
 * How numbers travel between devices is no stage but a wire (wire.h): any stage's messages go over it.
 */
#ifndef ORRERY_DATA_STAGE_H
#define ORRERY_DATA_STAGE_H

#include "emulated_devices/schemes/data/data.h"
#include "emulated_devices/schemes/data/sharing.h"
#include <stddef.h>

/* A tensor of each unit that a stage keeps from step to step: it is made, zero, given back and counted for it.
 * elements: how many, -1: none; NULL: this device's part of the unit's row, as its kind is shared. */
struct keeping {
    size_t at;                                  /* its place in struct unit */
    enum arena_tag tag;
    enum tensor_kind kind;
    int64_t (*elements)(const struct data_parallel *, const struct unit *, enum tensor_kind);
};

enum { STAGE_KEEPS = OPTIMIZER_MAX_STATES };

/* Its functions are NULL where a stage has no use for them; its own state is chain_state().  Errors: ERR_MEMORY,
 * ERR_COMM or ERR_FILE; the step cannot go on. */
struct data_stage {
    const char *name;
    bool (*takes_part)(const struct data_parallel *);
    size_t state;                               /* bytes of its state, zero at first */

    struct keeping keeps[STAGE_KEEPS];
    int kept;                                   /* of keeps[] */

    /* Building: groups, lists and sizes, of which all predictions are true; memory that is no unit's; what else a unit
     * has, once it has what stages keep; the same back. */
    enum error_code (*outline)(struct data_parallel *, struct error *);
    enum error_code (*fill)(struct data_parallel *, struct error *);
    void (*make)(struct data_parallel *, struct unit *);
    void (*unmake)(struct data_parallel *, struct unit *);
    void (*close)(struct data_parallel *);
    /* Where n elements of a class of state lie: a tensor, or tensor_none where this stage has no place for them. */
    struct tensor (*place)(struct data_parallel *, enum arena_tag, enum dtype, int64_t n);

    /* Weights of a use: made whole here, and as far ahead as the stage looks;
     * a unit's, after the list's pass `use`, no longer. */
    enum error_code (*acquire)(struct data_parallel *, struct use, bool ahead, struct error *);
    void (*release)(struct data_parallel *, int use, int unit);
    /* A unit's own_w to the device, as u->shard, if it lies elsewhere; and away. */
    enum error_code (*fetch)(struct data_parallel *, struct unit *, struct error *);
    void (*drop)(struct data_parallel *, struct unit *);

    /* Gradients of a unit: room for them; of a use: a pass has added to them; of all: no pass will;
     * they are where they will be stepped. */
    enum error_code (*begin)(struct data_parallel *, struct unit *, struct error *);
    enum error_code (*end)(struct data_parallel *, struct use, struct error *);
    enum error_code (*finish)(struct data_parallel *, struct error *);
    void (*settle)(struct data_parallel *);
    /* A unit's own_g to the device, as u->sum, if it lies elsewhere;
     * and back, all of it, or if it is finished what is stepped here. */
    enum error_code (*take_sum)(struct data_parallel *, struct unit *, struct error *);
    enum error_code (*put_sum)(struct data_parallel *, struct unit *, bool finished, struct error *);

    /* The step: the one that comes; before it; all units; new weights of a unit to the devices that keep them (unit
     * NULL: those that still wait); after it; zero gradients; leave it out.  share: whether new weights are sent. */
    void (*expect)(struct data_parallel *, int64_t t);
    void (*before)(struct data_parallel *);
    enum error_code (*step)(struct data_parallel *, struct step, bool share, struct error *);
    enum error_code (*share)(struct data_parallel *, struct unit *, struct error *);
    enum error_code (*after)(struct data_parallel *, int64_t t, struct error *);
    void (*clear)(struct data_parallel *, struct unit *);
    void (*skip)(struct data_parallel *);

    /* Prediction.  From the list of passes; traffic of a step on one level; and of memory what is on the device besides
     * what is kept there, at most: added to sum, or where it is not there together with what
     * others have added, at least that. */
    void (*foresee)(struct data_parallel *);
    void (*cost)(const struct data_parallel *, enum shard_level, struct account *sum);
    void (*passing)(const struct data_parallel *, struct model_state *sum);
    /* What a step moves to and from the slow tier, and of that what a step that is left out does not. */
    void (*moves)(const struct data_parallel *, struct tier_traffic *sum);
    void (*update_moves)(const struct data_parallel *, struct tier_traffic *sum);
};

extern const struct data_stage stage_versions, stage_gathering, stage_tier, stage_direction, stage_gradient_block,
    stage_allreduce, stage_projection, stage_scattering, stage_masters, stage_states, stage_step, stage_slices,
    stage_renewal, stage_outer;

/* For each link of the plan's chain, in order.  TELL calls one of the stages' functions, CALL one
 * that can fail, until one has. */
#define EACH_LINK(dp, l) (const struct data_link *l = (dp)->chain; l->stage != NULL; l++)
#define TELL(dp, function, ...)                                                                                 \
    for EACH_LINK(dp, link_) if (link_->stage->function) link_->stage->function(dp, ## __VA_ARGS__)
#define CALL(e, dp, function, ...)                                                                              \
    for EACH_LINK(dp, link_) if (link_->stage->function && !(e)) (e) = link_->stage->function(dp, __VA_ARGS__)

/** Choose the stages that take part.  @return OK or ERR_MEMORY; chain_close works after both. */
enum error_code chain_make(struct data_parallel *, struct error *);
void chain_free(struct data_parallel *);

/** The state of a stage; NULL where it is not in the chain. */
void *chain_state(const struct data_parallel *, const struct data_stage *);

/* Calls to all stages that others make: stages.c. */
enum error_code fetch_weights(struct data_parallel *, struct unit *, struct error *);
enum error_code take_sum(struct data_parallel *, struct unit *, struct error *);
enum error_code put_sum(struct data_parallel *, struct unit *, bool finished, struct error *);
enum error_code share_weights(struct data_parallel *, struct unit *, struct error *);

/* ---- what a plan has --------------------------------------------------------------------------------------------- */

/* Whether gradients are kept at all. */
static inline bool has_gradients(const struct data_parallel *dp) { return !dp->optimizer->forward_only; }

/* Whether weights travel before they are whole: they are kept in shards, or on the slow tier. */
static inline bool weights_travel(const struct data_parallel *dp)
{
    return dp->shards.weights > 1 || offloads(&dp->request, PARAMETERS);
}

/* Whether whole weights are made when a part is acquired, and dropped after it:
 * they travel, or are wanted elsewhere than kept. */
static inline bool makes_weights(const struct data_parallel *dp) { return weights_travel(dp) || !has_gradients(dp); }

/* Whether gradients go to where they are kept after each pass. */
static inline bool data_scatters(const struct data_parallel *dp)
{
    return has_gradients(dp) && (dp->shards.gradients > 1 || offloads(&dp->request, GRADIENTS));
}

/* Whether gradients are one block, whole on every device, that is all-reduced in pieces: ddp. */
static inline bool gradients_in_one_block(const struct data_parallel *dp)
{
    return has_gradients(dp) && dp->shards.optimizer == 1 && !data_scatters(dp);
}

/* ---- the list of passes ------------------------------------------------------------------------------------------ */

/* Whether weights from before this pass are of no use behind it. */
static inline bool renews_weights(enum pass p) { return p == PASS_UPDATE || p == PASS_TURN; }

/* The pass after this one that needs weights, or -1 if there is none before the next update. */
int next_weight_use(const struct data_parallel *, int use);

/* Units that a use needs, at most 2, and those whose gradients a backward pass for the weights adds to.
 * @return how many. */
int units_at(const struct data_parallel *, struct use, int unit[PART_UNITS]);
int gradients_at(const struct data_parallel *, struct use, int unit[PART_UNITS]);

/* Backward passes, up to the next update, that add to each unit's gradient: units' due. */
void count_due(struct data_parallel *, int from_use);

#define KEEPS_STATES(elements)                                                                                  \
    { { offsetof(struct unit, state[0]), OPTIMIZER, KIND_STATE, elements },                                     \
      { offsetof(struct unit, state[1]), OPTIMIZER, KIND_STATE + 1, elements },                                 \
      { offsetof(struct unit, state[2]), OPTIMIZER, KIND_STATE + 2, elements },                                 \
      { offsetof(struct unit, state[3]), OPTIMIZER, KIND_STATE + 3, elements } }

/* ---- units ------------------------------------------------------------------------------------------------------- */

/* How many elements of a unit a stage keeps; -1: none. */
int64_t keeping_elements(const struct data_parallel *, const struct unit *, const struct keeping *);

/* n elements of a class, zero: on the device or where a stage places them; and back. */
struct tensor data_zeros(struct data_parallel *, enum arena_tag, enum tensor_kind, int64_t n, bool *failed);
void data_give_back(struct data_parallel *, struct tensor);

/* Whether it lies on the slow tier. */
bool on_tier(const struct data_parallel *, struct tensor);

/* Elements of a unit that this device keeps the weights, or the gradients, of, or that it steps. */
static inline int64_t kept_elements(const struct unit *u, enum shard_level level)
{
    return shards_range(&u->over->shards, level, u->padded).count;
}

/* Of the gradients that this device keeps, those that it steps; of the weights the same. */
struct interval stepped_gradients(const struct unit *);
struct tensor stepped_weights(const struct unit *);

/* Elements of a unit's weights (or gradients) when they are whole here. */
static inline int64_t whole_elements(const struct unit *u) { return u->rows > 0 ? u->elements : u->padded; }

/* Point the parameters' w or g into the unit's whole block, or nowhere. */
void show_weights(struct unit *);
void show_gradients(struct unit *);

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* One stretch of what is stepped: with its gradient, or, where there are none, along the
 * direction that is drawn (direction.c). */
struct stretch {
    const struct data_parallel *dp;
    struct portion at;
    struct tensor master, gradient, state[OPTIMIZER_MAX_STATES];
    struct step step;
};

void step_by_gradient(const struct stretch *);

/* What is stepped of a unit, or of a part of it: where it lies, or copies of it.  weight:
 * what the master is rounded to, if there is one. */
struct operands { struct tensor gradient, master, weight, state[OPTIMIZER_MAX_STATES]; };

struct operands unit_operands(const struct data_parallel *, const struct unit *, struct interval own);

/* The arithmetic of a step of them, on the device or the host. */
void step_operands(const struct data_parallel *, const struct unit *, struct interval own, const struct operands *,
                   struct step);

/* What stepping so many elements takes: the master and the states are read and written, the gradient read;
 * and the master rounded. */
struct op_cost step_cost(const struct data_parallel *, int64_t elements);
struct op_cost round_cost(const struct data_parallel *, int64_t elements);

/* From the masters that this device steps to its weights, which are then shared. */
enum error_code renew_weights(struct data_parallel *, struct unit *, struct error *);

/* sum += this device's part of a unit's squared norm; g: what it steps of the gradient. */
void unit_add_squares(struct data_parallel *, const struct unit *, struct tensor g, struct exact_sum *sum);

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Elements first .. of a row as a tensor of their own. */
static inline struct tensor slice(struct tensor row, struct interval r)
{
    char *data = row.data;
    return tensor_1d(data ? data + (size_t)r.first * dtype_size(row.dtype) : NULL, row.dtype, r.count);
}

/* Bytes of a class. */
static inline uint64_t *model_state_of(struct model_state *s, enum arena_tag tag)
{
    return tag == PARAMETERS ? &s->weights : tag == GRADIENTS ? &s->gradients : &s->optimizer;
}

/* Times reads, or writes, of so many elements, of which none are no operation. */
void add_reads(struct tier_traffic *, int64_t times, int64_t elements, enum dtype);
void add_writes(struct tier_traffic *, int64_t times, int64_t elements, enum dtype);

#endif
