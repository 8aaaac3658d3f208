/* golden.h -- a golden file: inputs and results of an independent implementation of a small model.
 *
 * golden/README.md lists the tensors of a file and their names.
 *
 * replay.h runs a model from such a file; check/, verify/ and cli/ compare with these functions.
 */
#ifndef ORRERY_GOLDEN_H
#define ORRERY_GOLDEN_H

#include "ref/io/safetensors.h"
#include "ref/model/config.h"
#include "ref/numeric/tensor.h"
#include "ref/optim/optimizer.h"

enum { GOLDEN_MOST_STEPS = 64 };
#define GOLDEN_POSITIONS "positions"    /* the tensor of positions of packed documents */

struct golden {
    struct safetensors file;            /**< Opened golden file. */
    struct model_config config;         /**< Configuration of the model. */
    uint64_t seed;                      /* of the initial weights, and of dropout */
    int64_t steps, B, S;
    int32_t *ids, *labels;              /* [steps,B,S] */
    int32_t *positions;                 /* [steps,B,S] of packed documents: each token's place in its document, and what
                                         * is padding (ref/model/sample_mask.h); NULL: a sequence is one document */
    int64_t micros;                     /* microbatches whose gradients are in the file; 0: none are */
    bool every_step;                    /* gradients, weights and states of every step are in the file */
    struct cJSON *seal;                 /* hashes of its tensors, kept with its bounds (seal.h); NULL: none */
    struct conventions as;              /* whose steps they are */
};

/** Open a golden file.  @return OK; ERR_FILE; ERR_FORMAT, naming what is missing; ERR_MEMORY.
 *  After a failure there is nothing to close. */
enum error_code golden_open(struct golden *, const char *path, struct error *);
void golden_close(struct golden *);

/**
 * Take the conventions of a file's steps.  Unless they say otherwise, the balance loss of a mixture is of the whole
 * batch: programs that make golden files compute a batch at once.  Pure.
 * @param as  as typed; NULL: this program's own.
 * @return OK; ERR_USAGE, also if balance losses are of microbatches and the file has none.
 */
enum error_code golden_take_conventions(struct golden *, const char *as, struct error *);

/** Read a tensor of `count` elements, converted to a format.
 *  @return OK; ERR_FORMAT if it is missing, has another size or, read in its own format, is not what was sealed;
 *          ERR_FILE. */
enum error_code golden_read(const struct golden *, const char *name, enum dtype, int64_t count, void *out,
                            struct error *);

/** Read some elements of a tensor, counted row by row, in fp64, without holding them to a seal.
 *  @return as golden_read. */
enum error_code golden_read_some(const struct golden *, const char *name, int64_t first, int64_t count, double *out,
                                 struct error *);

/** Read a tensor in fp64 a part at a time, in order.  @return as golden_read; ERR_MEMORY. */
enum error_code golden_each(const struct golden *, const char *name,
                            void (*f)(void *context, const double *values, int64_t count), void *context,
                            struct error *);

/** Read the correction biases of routers that a run starts with, if files of the family have them.
 *  @param[out] bias  [L, columns of a router].  @return as golden_read. */
enum error_code golden_read_biases(const struct golden *, double *bias, struct error *);

/** Whether a tensor is an input of the computation: tokens, initial and starting weights, learning rates, masks. */
bool golden_is_input(const char *name);

#define GOLDEN_MAKER "orrery golden make"

/** Whether the file was made by our model (make.h), not by an independent program. */
bool golden_is_own(const struct golden *);

/** The sequences of microbatch k: the first, and on return `count`.  The first B % micros have one more. */
static inline int64_t golden_micro(const struct golden *golden, int64_t k, int64_t *count)
{
    const int64_t least = golden->B / golden->micros, more = golden->B % golden->micros;
    *count = least + (k < more);
    return k * least + (k < more ? k : more);
}

/** Check the positions of packed documents.  @param where  names them in messages.  @return OK, also without any;
 *  ERR_USAGE: a hole; ERR_PLAN: the model has parallel streams; ERR_MEMORY. */
enum error_code golden_check_positions(const struct golden *, const char *where, struct error *);

/** The positions of a step's packed documents from sequence `first` on; NULL: they are not packed. */
static inline const int32_t *golden_positions(const struct golden *golden, int64_t step, int64_t first)
{
    return golden->positions ? golden->positions + (step * golden->B + first) * golden->S : NULL;
}

/** The labels of some sequences of the first batch that are not ignored. */
int64_t golden_labels(const struct golden *, int64_t first, int64_t count);

/** The microbatches that balance losses are of; 0: they are not of microbatches, or there is none. */
int64_t golden_balance_micros(const struct golden *);

/** The hyperparameters of an optimizer in the file's metadata; missing ones are 0. */
struct hyperparameters golden_hyperparameters(const struct golden *, const char *optimizer);

/** Iterate over the optimizers whose steps are in the file: `list` is NULL in the first call, then the last result.
 *  @return the position for the next call; NULL at the end. */
const char *golden_next_optimizer(const struct golden *, const char *list, char name[32]);

#endif
