/* replay.h -- runs our model from the inputs of a golden file and records every tensor that the file has.
 *
 * bounds.c, make.c, golden_list.c, cli/golden/ and cli/dump.c call this file, on one device.
 */
#ifndef ORRERY_REPLAY_H
#define ORRERY_REPLAY_H

#include "ref/golden/golden.h"
#include "ref/golden/golden_list.h"
#include "ref/model/perturb.h"

#define REPLAY_LOSS_SCALE 1024.0        /* the usual 2^16 overflows when the whole batch is one token */

struct record {
    char name[RECORD_NAME];             /**< Name of the tensor, as in the golden file. */
    struct tensor values;               /**< Numbers of the tensor. */
    uint64_t route;                     /* hash of all choices of experts so far: runs with different hashes have not
                                         * computed the same function; constant without a mixture */
};

/* A single pass that does not begin with the file's weights, but with those that another program had before a step. */
struct replay_pass {
    int64_t step;                       /* from 0: whose batch and masks of dropout it has */
    const struct tensor *weights;       /* [params] F64 */
    const double *bias;                 /* [L, columns of a router] corrections of routers; NULL: zeros */
    const int32_t *route;               /* [L, N, k] the experts of each token; NULL: the routers' own choice */
    double loss_scale;                  /* of a run in fp16; 0: REPLAY_LOSS_SCALE */
    bool (*wanted)(const void *context, const char *name);      /* which tensors are recorded */
    const void *context;                /**< First argument of `wanted`. */
};

/* Who is shown every tensor, and may replace its numbers: what follows is computed from the tensor as it is then. */
struct replay_judge {
    /* @param scale  the number that the tensor has been multiplied by: of gradients the loss scale. */
    void (*see)(void *context, const char *name, struct tensor, double scale);
    bool (*wants)(void *context, const char *optimizer);        /* whether steps of this optimizer are run */
    void *context;                      /**< First argument of both functions. */
};

struct replay {
    const struct golden *golden;        /**< Golden file whose inputs are used. */
    const struct replay_pass *pass;     /* NULL: all passes and steps of the file */
    struct transformer model;           /**< Model that is run. */
    struct tensor *master;              /* [params] what the optimizer steps: the weights, or fp32 masters of 16 bits */
    struct tensor *state;               /* [params * OPTIMIZER_MAX_STATES] */
    struct record *record;              /* [records] in execution order; names as in the file */
    int records;                        /**< Entries of `record`. */
    struct perturbation disturbance;    /**< Rule by which every tensor is disturbed. */
    struct observer disturb;            /* see == NULL: an undisturbed run */
    int32_t *micro_of;                  /* [B*S] the microbatch of each token, if balance losses are of microbatches */
    bool keeping;                       /* record every tensor of this pass */
    uint64_t route;                     /* hash of the choices so far */
    int32_t *choice;                    /* [choices] experts of each layer's tokens in the recorded pass */
    int64_t choices;                    /**< Entries of `choice`. */
    int64_t idle;                       /* experts of a layer that no token of a whole batch chose, in all passes */
    const struct replay_judge *judge;   /* is shown all tensors, also those of later passes, and none is recorded; NULL:
                                         * nobody */
    char before[24];                    /* with a judge: before the names of this pass, "adamw/2/", or empty */
    const struct replay *follow;        /* run whose choices the recorded pass uses; NULL: its own */
    double *apart;                      /* not NULL: of each record only its distance from that of `follow` is kept */
    double *size;                       /* with `apart`: and its squared norm; NULL: that is not asked for */
    enum error_code failed;             /* first failure to record a tensor */
};

/**
 * Run one pass over the first batch, its microbatches if the file has them, then all steps of each optimizer, each
 * from the file's starting weights.
 * A model in 16 bits has gradients and masters in fp32.  In fp16 the loss is multiplied by REPLAY_LOSS_SCALE; the
 * records are divided by it.
 * @param disturb  how to disturb every tensor, including the weights that the model computes with; copied; or NULL.
 * @return OK; ERR_FORMAT if an input is missing; ERR_MEMORY.  After a failure there is nothing to free.
 */
enum error_code replay_run(struct replay *, const struct golden *, enum dtype, const struct perturbation *disturb,
                           struct error *);

/**
 * Run one pass over a batch that was not read from a file: only config, seed and the first step's ids and labels of the
 * struct golden are used.
 * @param dir  folder of the weights (weights.h); NULL: drawn from the seed.
 * @return as replay_run and weights_load; ERR_USAGE if a token is not in the vocabulary.
 */
enum error_code replay_batch(struct replay *, const struct golden *, enum dtype, const char *dir, struct error *);

/**
 * Run one pass from weights that are not the file's.  Those of its tensors, loss and norm that are wanted are recorded,
 * under the names that a pass over the first batch has.
 * @param pass  it must live as long as the replay.
 * @return as replay_run.
 */
enum error_code replay_pass_run(struct replay *, const struct golden *, enum dtype, const struct replay_pass *pass,
                                const struct perturbation *disturb, struct error *);

/**
 * Run all passes and steps of the file, and show every tensor to a judge, in order of execution.  Activations of a
 * later step's pass have that step before their names: "adamw/2/act/h.0.ln_1".  Nothing is recorded.
 * @param exact  compute with sums that do not round (ref/exact/).
 * @param scale  the loss scale.
 * @return as replay_run.
 */
enum error_code replay_judged(const struct golden *, enum dtype, enum exact_rule exact, double scale,
                              const struct replay_judge *, struct error *);

/**
 * Like replay_run, but in the recorded pass each token goes to the same experts as in another run of the file.  Where
 * the disturbance would change the choice, the exchanged logits are exchanged back.
 */
enum error_code replay_following(struct replay *, const struct replay *other, enum dtype,
                                 const struct perturbation *disturb, struct error *);

/**
 * Prepare a run like replay_following's that keeps no tensors and can be repeated with other disturbances.  If the
 * other run is a single pass, this one is, too.
 * @return OK or ERR_MEMORY.  After a failure there is nothing to free.
 */
enum error_code replay_twin_open(struct replay *, const struct replay *other, enum dtype, struct error *);

/**
 * Run it from the start.
 * @param[out] apart  [other->records] the squared distance of each record from the other run's; infinite if the tokens
 *                    went to other experts.
 * @param[out] size   [other->records] the squared norm of each record; or NULL.
 * @return as replay_run; after a failure replay_free is still due.
 */
enum error_code replay_twin_run(struct replay *, const struct perturbation *, double apart[], double size[],
                                struct error *);

void replay_free(struct replay *);

/** Write tensors into a safetensors file.  @return OK; ERR_FILE; ERR_MEMORY.  A failure leaves no file. */
enum error_code records_write(const struct record *, int count, const struct safetensors_pair *metadata, int pairs,
                              const char *path, struct error *);

/** Do the same up to safetensors_commit, which the caller calls, or safetensors_abort.  The records' names must live
 *  until then.  @return as records_write; after a failure there is nothing to abort. */
enum error_code records_start(struct safetensors_writer *, const struct record *, int count,
                              const struct safetensors_pair *metadata, int pairs, const char *path, struct error *);

/* Norm of the difference / norm of want; index of the element with the largest difference. */
struct apart { double relative; int64_t worst; };

/** The distance of two tensors of the same size; NaN if either holds one. */
struct apart tensor_apart(struct tensor got, struct tensor want);

/** The distance of a record from the file.  `want` receives the file's tensor; its data is for free(). */
enum error_code replay_compare(const struct replay *, int record, struct apart *, struct tensor *want, struct error *);

/** Check that every computed tensor of the file was recorded exactly once.
 *  @return OK, or ERR_CHECK naming the first that was not. */
enum error_code replay_covers(const struct replay *, struct error *);

#endif
