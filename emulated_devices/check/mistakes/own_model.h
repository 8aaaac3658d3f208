/* own_model.h -- our model with the weights and routers' corrections that another program had before a step.
 * Inside check/ only.  stale.c and sequences.c run it on other batches than the step's, and
 * model_copies.c runs a model of its own with own_model_batch.
 */
#ifndef ORRERY_OWN_MODEL_H
#define ORRERY_OWN_MODEL_H

#include "emulated_devices/check/dump/assembly.h"
#include "ref/golden/golden.h"

/* A program, and one of its optimizers: "adamw". */
struct own_program { const struct golden *golden; const struct actual *actual; char optimizer[32]; };

struct transformer;

/** Open our model with the corrections of routers before a step, from 0, which follow from the experts that each step's
 *  tokens chose, and with the weights after `weights` steps.
 *  @param balanced  false: without the losses of routers.
 *  @return NULL: ACTUAL has not all weights, or there is no memory. */
struct transformer *own_model_open(const struct own_program *, int step, int weights, bool balanced);
void own_model_close(struct transformer *);

/* The tokens of a pass, and the number of its first sequence; positions: NULL: they are not packed. */
struct own_batch { const int32_t *ids, *labels, *positions; int64_t B, first; };

/** Run a model forward and backward over a batch.  Its gradients are then those of the batch.  One sequence after the
 *  other is run, so memory follows the longest sequence, not the batch; with losses of routers, which are of the batch,
 *  all at once.
 *  @param S  tokens of a sequence.
 *  @return as transformer_forward; ERR_MEMORY: the gradients are not complete. */
enum error_code own_model_batch(struct transformer *, const struct own_batch *, int64_t S, struct error *);

/** Run the model forward and backward, with the masks of dropout of a step, from 0.
 *  @return whether it could be run. */
bool own_model_run(const struct own_program *, struct transformer *, const struct own_batch *, int step);

/** Whether a model has losses of routers. */
bool own_model_is_balanced(const struct golden *);

/** Whether a model has a parameter of this name. */
bool own_model_has(const struct golden *, const char *param);

/** Find a gradient by its parameter's name; NULL: the model has no such parameter. */
const struct tensor *own_model_gradient(const struct transformer *, const char *param);

#endif
