/* golden.h -- a golden file: what an independent implementation computed for a small model, and what it started from.
 *
 * golden/README.md says which tensors a file has and what they are called.
 */
#ifndef ORRERY_GOLDEN_H
#define ORRERY_GOLDEN_H

#include "ref/io/safetensors.h"
#include "ref/model/config.h"
#include "ref/numeric/tensor.h"
#include "ref/optim/optimizer.h"

struct golden {
    struct safetensors file;
    struct model_config config;
    uint64_t seed;                      /* of its initial weights */
    int64_t steps, B, S;
    int32_t *ids, *labels;              /* [steps,B,S] */
};

/** Open a golden file.  @return OK; ERR_FILE; ERR_FORMAT, naming what is missing; ERR_MEMORY.
 * On failure there is nothing to close. */
enum error_code golden_open(struct golden *, const char *path, struct error *);
void golden_close(struct golden *);

/** Read a tensor of so many elements, converted.  @return OK;
 * ERR_FORMAT if there is none or it has another size; ERR_FILE. */
enum error_code golden_read(const struct golden *, const char *name, enum dtype, int64_t count, void *out,
                            struct error *);

/** Whether a tensor was given to whoever computed the rest: tokens, initial and starting weights, learning rates. */
bool golden_is_input(const char *name);

/** The numbers of the optimizer of this name in the file's metadata; those it does not have are 0. */
struct hyperparameters golden_hyperparameters(const struct golden *, const char *optimizer);

/** The next of the optimizers that the file has steps of: `list` is where to go on, NULL at first.
 * @return where to go on, or NULL. */
const char *golden_next_optimizer(const struct golden *, const char *list, char name[32]);

#endif
