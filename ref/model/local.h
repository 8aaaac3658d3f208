/* local.h -- replicas that train separately (ref/optim/outer.h), one after another on one device: the reference for the
 * schemes that run them on many devices.
 *
 * Each replica has its own weights, inner optimizer state and sequences.  Its loss is the mean over its own labels; its
 * gradients are clipped by their own norm.  All replicas have equal weight in the outer step, for any number of labels.
 * test_local.c and test_outer.c call these functions.
 */
#ifndef ORRERY_LOCAL_H
#define ORRERY_LOCAL_H

#include "ref/model/transformer.h"
#include "ref/optim/optimizer.h"
#include "ref/optim/outer.h"

struct replica {
    struct transformer model;           /* weights that the replica steps by itself between two outer steps */
    struct tensor *state;               /* [params * OPTIMIZER_MAX_STATES] */
    double loss, norm;                  /* of the last step: mean over its labels; of its gradients before clipping */
};

struct local_run {
    int replicas;                       /* copies that train apart, each on its share of the batch */
    struct replica *replica;            /* [replicas] */
    struct outer outer;                 /* when and how the replicas are combined */
    const struct optimizer *optimizer;  /* of the steps inside a round */
    struct hyperparameters hyper;       /* of the optimizer, with the schedule of the learning rate */
    struct tensor *anchor, *momentum;   /* [params] weights after the last outer step; momentum of the outer steps */
    struct tensor *theta;               /* [replicas] for the outer step, one parameter's weights */
    int64_t step;                       /* steps done */
};

/** Create replicas of one model in fp32 or fp64, with initial weights drawn from the seed.
 *  @return OK, ERR_PLAN or ERR_MEMORY; local_close is valid after each of them. */
enum error_code local_open(struct local_run *, int replicas, const struct model_config *, enum dtype, uint64_t seed,
                           const struct optimizer *, const struct hyperparameters *, struct outer, struct error *);
void local_close(struct local_run *);

/** Restart all replicas from the same weights.  @param w  [params] in the model's order and format. */
void local_start(struct local_run *, const struct tensor w[]);

/**
 * One step of every replica; after the last step of a round also the outer step.
 * @param ids, labels  int32 [B*S], the batch; replica r has its sequences first[r] .. first[r + 1] - 1.
 * @param seed         of dropout, in this step.
 * @return as transformer_forward.
 */
enum error_code local_step(struct local_run *, const int32_t *ids, const int32_t *labels, const int64_t first[],
                           int64_t S, uint64_t seed, struct error *);

#endif
