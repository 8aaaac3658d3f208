/* batch.h -- samples as the batches of trainers: which token a row is, and what it is scored or trained for.
 *
 * A sequence of a batch is a sample; row s of it says token s + 1.  Rows whose next token is not of the answer have no
 * label.  A critic's value before a token is the logit of token CRITIC_LABEL in the same row: a linear head whose other
 * columns nobody reads.
 *
 * loop.c, learner.c and serial.c call these functions.
 */
#ifndef ORRERY_RL_BATCH_H
#define ORRERY_RL_BATCH_H

#include "emulated_devices/model/trainer.h"
#include "emulated_devices/rl/samples.h"

enum { CRITIC_LABEL = 0 };

/* The samples of a trainer's next steps. */
struct batch_view {
    const struct samples *samples;      /* of the iteration */
    int64_t B;                          /* samples of a step; they divide the count */
    int64_t begin;                      /* the trainer's step that has the first of them */
    bool critic;                        /* labels are CRITIC_LABEL */
};

/** A source of the batches of a view, which must outlive the trainer. */
struct batch_source batch_source_of(const struct batch_view *);

/** The tokens of a batch of samples from `first` on.  @param ids, labels  [count*S] */
void batch_fill(const struct batch_view *, int64_t first, int64_t count, int32_t *ids, int32_t *labels);

/** The sample and the place in its answer of a row that has a label.
 *  @param step  of the trainer.  @return sample * most + place. */
int64_t batch_place(const struct batch_view *, int64_t step, int64_t row);

/* Scores rows: the number of each goes to a list. */
struct scorer {
    struct batch_view view;             /* of the samples that are scored */
    const struct trainer *trainer;      /* that computes, for its step */
    double *to;                         /* [count, most] NaN: not here */
    struct row_loss loss;               /* what its stage asks */
};

/** Score all samples on the trainer of a role.  Collective over the role's devices.
 *  @param to  [count, most] written where this device computes a row; NaN elsewhere.
 *  @param of_logit  values of a critic; else log-probabilities.
 *  @return OK or the same error on all of them. */
enum error_code scorer_run(struct scorer *, struct trainer *, const struct samples *, double *to, bool of_logit,
                           struct error *);

#endif
