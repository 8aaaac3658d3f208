/* gather.h -- which units' weights are whole here, pass by pass.  Private to this folder. */
#ifndef ORRERY_GATHER_H
#define ORRERY_GATHER_H

#include "emulated_devices/schemes/data/data.h"

/* Whether gradients are kept at all. */
static inline bool has_gradients(const struct data_parallel *dp) { return !dp->optimizer->forward_only; }

/* Whether weights travel before they are whole: they are kept in shards, or on the slow tier. */
static inline bool weights_travel(const struct data_parallel *dp) { return dp->shards.weights > 1 || offloads(&dp->request, PARAMETERS); }

/* Whether whole weights are made when a part is acquired, and dropped after it: they travel, or are wanted elsewhere than kept. */
static inline bool makes_weights(const struct data_parallel *dp) { return weights_travel(dp) || !has_gradients(dp); }

/* Whether the next part's are made meanwhile: where they travel. */
static inline bool makes_ahead(const struct data_parallel *dp) { return weights_travel(dp) && !dp->request.no_prefetch; }

/* Whether weights from before this pass are of no use behind it. */
static inline bool renews_weights(enum pass p) { return p == PASS_UPDATE || p == PASS_TURN; }

/* The pass after this one that needs weights, or -1 if there is none before the next update. */
int next_weight_use(const struct data_parallel *, int use);

/* Whether a unit's gathered weights stay after a pass: the next one needs them too, or they are kept until backward. */
bool stays_after(const struct data_parallel *, int use, int unit);

/* From the list of passes: how often each unit is gathered and reduced, what that sends, and how much is whole here at most. */
void foresee(struct data_parallel *);
void foresee_gradients(struct data_parallel *);

/* Backward passes, up to the next update, that add to each unit's gradient: units' due. */
void count_due(struct data_parallel *, int from_use);

/* Whether a unit's whole gradient stays here after a pass, which the list has at `use`, because the pass that ends the same backward
 * sweep adds to it as well: that of a tied embedding's tokens after the loss.  Not of tiles, which are there so as never to have it whole. */
bool gradient_stays_after(const struct data_parallel *, int use, int unit);

/* After an update begin the list of passes again, or go on behind it: until the next update each unit's gradient is due as often as there are backward passes for it. */
void expect_uses(struct data_parallel *);

/* Elements that are all-reduced at a time, where gradients are kept whole. */
static inline int64_t bucket_elements(const struct data_parallel *dp)
{
    const int64_t n = dp->request.bucket / (int64_t)dtype_size(data_format(dp, KIND_GRADIENT));
    return n > 0 ? n : 1;
}

/* Whether gradients go to where they are kept after each pass. */
static inline bool data_scatters(const struct data_parallel *dp)
{
    return has_gradients(dp) && (dp->shards.gradients > 1 || offloads(&dp->request, GRADIENTS));
}

/* Whether gradients are one block, whole on every device, that is all-reduced in pieces: ddp. */
static inline bool gradients_in_one_block(const struct data_parallel *dp) { return dp->shards.optimizer == 1 && !data_scatters(dp); }

/* Elements of a unit that this device keeps the weights, or the gradients, of. */
static inline int64_t kept_elements(const struct data_parallel *dp, const struct unit *u, enum shard_level level)
{
    return shards_range(&dp->shards, level, u->padded).count;
}

/* Of the gradients that this device keeps, those that it steps. */
struct interval stepped_gradients(const struct data_parallel *, const struct unit *);

/* Elements of a unit's weights (or gradients) when they are whole here. */
static inline int64_t whole_elements(const struct unit *u) { return u->rows > 0 ? u->elements : u->padded; }

/* A collective of a level on a row cut into equal blocks: gradients, in place; weights, from this device's block, which may lie in its
 * place in the row.  tracking: beside the row, or none. */
enum error_code level_reduce_scatter(struct data_parallel *, enum shard_level, struct tensor row, struct tracking, struct error *);
enum error_code level_allgather(struct data_parallel *, enum shard_level, struct tensor own, struct tensor row, struct error *);

/* What they cost, on a row of n elements. */
struct account level_reduce_scatter_cost(const struct data_parallel *, enum shard_level, int64_t n);
struct account level_allreduce_cost(const struct data_parallel *, enum shard_level, int64_t n);
struct account level_allgather_cost(const struct data_parallel *, enum shard_level, int64_t n);

/* Elements first .. of a row as a tensor of their own. */
static inline struct tensor slice(struct tensor row, struct interval r)
{
    char *data = row.data;
    return tensor_1d(data ? data + (size_t)r.first * dtype_size(row.dtype) : NULL, row.dtype, r.count);
}

/* sum += times c. */
void cost_add(struct account *sum, struct account c, int64_t times);

/* direction.c: a unit's weights, whole here, to where they are wanted; and one step of a stretch of the weights w, without gradients. */
void move_weights(const struct data_parallel *, struct unit *);
void step_along(const struct data_parallel *, struct portion, struct tensor w, struct step);
/* From the masters that this device steps to its weights; those then wait for others, to be sent with them to all that keep them; and the
 * last ones go. */
enum error_code renew_weights(struct data_parallel *, struct unit *, struct error *);
enum error_code share_waiting(struct data_parallel *, struct error *);

/* The end of a round: outer.c. */
enum error_code step_outer(struct data_parallel *, struct error *);

/* For .share, of schemes whose copies train apart: replicas on one device each, on --shard-group N of them, or as --shards has it. */
const char *share_replica(struct shards *, const struct data_request *);

/* Point the parameters' w or g into the unit's whole block, or nowhere. */
void show_weights(struct unit *);
void show_gradients(struct unit *);

#endif
