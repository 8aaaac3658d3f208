/* local.h -- replicas that train apart (ref/optim/outer.h), one after the other on one device: the truth for schemes
 * that do it on many.
 *
 * Replica r has weights, a state of the inner optimizer and sequences of its own.  Its loss is the mean over its own
 * labels, its gradients are clipped by their own norm.  Replicas count alike in the outer step, however many labels
 * each has had.
 */
#ifndef ORRERY_LOCAL_H
#define ORRERY_LOCAL_H

#include "ref/model/transformer.h"
#include "ref/optim/optimizer.h"
#include "ref/optim/outer.h"

struct replica {
    struct transformer model;
    struct tensor *state;               /* [params * OPTIMIZER_MAX_STATES] */
    double loss, norm;                  /* of its last step: mean over its labels; of its gradients before clipping */
};

struct local_run {
    int replicas;
    struct replica *replica;            /* [replicas] */
    struct outer outer;
    const struct optimizer *optimizer;
    struct hyperparameters hyper;
    struct tensor *anchor, *momentum;   /* [params] the weights after the last outer step; of the outer steps */
    int64_t step;                       /* steps done */
};

/** Replicas of one model, its initial weights drawn from the seed.  fp32 or fp64.
 *  @return OK, ERR_PLAN or ERR_MEMORY; local_close works after all of them. */
enum error_code local_open(struct local_run *, int replicas, const struct model_config *, enum dtype, uint64_t seed,
                           const struct optimizer *, const struct hyperparameters *, struct outer, struct error *);
void local_close(struct local_run *);

/** Begin anew from other weights, the same for all replicas.  @param w  [params] in the model's order and format. */
void local_start(struct local_run *, const struct tensor w[]);

/**
 * A step of every replica, and where it is the last of a round, the outer step.
 * @param ids, labels  int32 [B*S], the batch; replica r has its sequences first[r] .. first[r + 1] - 1.
 * @param seed         of dropout, in this step.
 * @return as transformer_forward.
 */
enum error_code local_step(struct local_run *, const int32_t *ids, const int32_t *labels, const int64_t first[],
                           int64_t S, uint64_t seed, struct error *);

#endif
