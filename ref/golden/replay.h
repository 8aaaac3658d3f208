/* replay.h -- our model's run of a golden file: every tensor the file has of the computation, from the file's start. */
#ifndef ORRERY_REPLAY_H
#define ORRERY_REPLAY_H

#include "ref/golden/golden.h"
#include "ref/model/perturb.h"

enum { RECORD_NAME = PARAM_NAME + 32 };
#define REPLAY_LOSS_SCALE 1024.0        /* 2^16, the usual first one, is too much where the whole batch is one token */

struct record {
    char name[RECORD_NAME];
    struct tensor values;
    uint64_t route; /* a hash of which experts all tokens went to on the way here: two runs with different ones
                                           have not computed the same function; always the same without a mixture */
};

struct replay {
    const struct golden *golden;
    struct transformer model;
    struct tensor *master;           /* [params] what the optimizer steps: the weights, or fp32 copies of 16-bit ones */
    struct tensor *state;               /* [params * OPTIMIZER_MAX_STATES] */
    struct record *record;              /* [records] in order of execution, named as in the file */
    int records;
    struct perturbation disturbance;
    struct observer disturb;            /* see == NULL: an undisturbed run */
    bool keeping;                       /* of this pass every tensor is recorded */
    uint64_t route;                     /* so far */
    int32_t *choice;                    /* [choices] experts of each layer's tokens in the pass that is recorded */
    int64_t choices;
    const struct replay *follow;        /* its choices are made in that pass; NULL: one's own */
    enum error_code failed;             /* to remember a tensor */
};

/**
 * One pass over the first batch, then all steps of each optimizer, everything from the file's starting weights.
 * A model in 16 bits has gradients and masters in fp32; in fp16 the loss is multiplied by REPLAY_LOSS_SCALE, which the
 * records are without.
 * @param disturb  NULL, or how to disturb every tensor, the weights that the model computes with as well; copied.
 * @return OK; ERR_FORMAT if the file lacks what to start from; ERR_MEMORY.  On failure there is nothing to free.
 */
enum error_code replay_run(struct replay *, const struct golden *, enum dtype, const struct perturbation *disturb,
                           struct error *);

/**
 * One pass over the batch of a golden file that has no file: config, seed and the first step's ids and labels are read.
 * @param dir  where the weights are: see weights.h; NULL: drawn from the seed.
 * @return as replay_run and weights_load; ERR_USAGE if a token is not in the vocabulary.
 */
enum error_code replay_batch(struct replay *, const struct golden *, enum dtype, const char *dir, struct error *);

/**
 * The same as replay_run, but in the pass that is recorded tokens go to the experts to which they go in another run of
 * the file: where the disturbance would send one elsewhere, the logits that it has exchanged are exchanged back.
 */
enum error_code replay_following(struct replay *, const struct replay *other, enum dtype,
                                 const struct perturbation *disturb, struct error *);

void replay_free(struct replay *);

/** Write tensors into a safetensors file.  @return OK; ERR_FILE; ERR_MEMORY.  On failure nothing is left behind. */
enum error_code records_write(const struct record *, int count, const char *generator, const char *model,
                              const char *path, struct error *);

/* norm of the difference over norm of want; the element furthest off */
struct apart { double relative; int64_t worst; };

/** How far two tensors of the same size are apart; NaN if there is one in either. */
struct apart tensor_apart(struct tensor got, struct tensor want);

/** How far a record is from the file.  want: room for the file's tensor, which its data becomes; for free(). */
enum error_code replay_compare(const struct replay *, int record, struct apart *, struct tensor *want, struct error *);

/** Whether everything computed in the file was computed here, once.
 * @return OK, or ERR_CHECK with the first that was not. */
enum error_code replay_covers(const struct replay *, struct error *);

#endif
