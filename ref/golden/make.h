/* make.h -- makes a golden file: what our one-device model computes in fp64 for somebody's model and batches.
 *
 * The file is like those of golden/README.md, and everything that reads these reads it.  Besides their tensors it has
 * gradients, weights and states of every step, the gradient that each microbatch adds, and masks of dropout.  Its
 * bounds are measured once and stored beside it (bounds.h).
 *
 * cli/golden/make.c and bench/check_speed.c call golden_make; masks.c adds the masks of dropout.
 */
#ifndef ORRERY_MAKE_H
#define ORRERY_MAKE_H

#include "ref/golden/replay.h"

enum { GOLDEN_MOST_OPTIMIZERS = 3 };

struct golden_request {
    const char *weights;                /* folder of the weights (weights.h); NULL: drawn from the seed */
    int optimizers;                     /**< Entries of `optimizer`. */
    const struct optimizer *optimizer[GOLDEN_MOST_OPTIMIZERS]; /**< Optimizers whose steps are recorded. */
    struct hyperparameters hyper[GOLDEN_MOST_OPTIMIZERS];       /* with the schedule of the rate (rates.h); steps = 0:
                                         * lr in all steps */
    const double *rates;                /* [steps] of every optimizer, in place of schedules; or NULL */
    const char *path;                   /* NAME.safetensors */
    double bound;                       /* of every tensor in every format, for a benchmark; 0: bounds are measured */
    /* Called before each part of the work, with a few words; when the results are computed; and after each twin
     * (bounds.h); may be NULL. */
    void (*progress)(void *context, const char *what); /**< Reports the next part of the work. */
    void (*computed)(void *context, const struct replay *run); /**< Called when the results are computed. */
    void (*twin)(void *context, enum dtype, int number);       /**< Called after each twin. */
    void *context;                                             /**< First argument of the functions. */
};

/**
 * Make the file and its bounds.
 * @param golden  config, seed, steps, B, S, ids, labels (checked: batch.h), micros and every_step are used.
 *      With dropout in the config, step t drops by dropout_seed(seed, t).
 * @param[out] tensors  computed ones in the file.
 * @return OK; ERR_PLAN if the file could not hold what the model does: microbatches of a mixture, dropout beside a
 *      shortcut; ERR_DIVERGED, naming the first tensor that is not finite; ERR_FILE,
 *      ERR_FORMAT, ERR_MEMORY.  A failure leaves no new file, and an older one as it was.
 */
enum error_code golden_make(const struct golden *golden, const struct golden_request *, int *tensors, struct error *);

/* A list of tensors to be written; data is owned. */
struct golden_tensors { struct record *all; int count; };

/** One more tensor, of zeros.  @param[out] tensor  the tensor, whose data the list owns.  @return OK or ERR_MEMORY. */
enum error_code golden_tensors_add(struct golden_tensors *, const char *name, struct tensor like, struct tensor *tensor,
                                   struct error *);
void golden_tensors_free(struct golden_tensors *);

/** Add the masks of dropout of every step, U8, 1 where an element is kept: mask/STEP/embedding and, for each layer,
 *  mask/STEP/h.L.attention, .mlp [N,D] and .probabilities [B H S,S]; STEP counts from 1.  None without dropout.
 *  @return OK or ERR_MEMORY. */
enum error_code golden_add_masks(struct golden_tensors *, const struct golden *, struct error *);

/** The text of the metadata "names": JSON with the tensors of each parameter in files of transformers, and the nodes
 *  that write the activations.
 *  @param[out] text  for free(); NULL on failure.
 *  @return OK or ERR_MEMORY. */
enum error_code golden_names_text(const struct model_config *, char **text, struct error *);

#endif
