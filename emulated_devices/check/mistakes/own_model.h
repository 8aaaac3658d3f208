/* own_model.h -- our model with the weights and routers' corrections that another program had before a step.
 * Inside check/ only.  stale.c and sequences.c run it on other batches than the step's.
 */
#ifndef ORRERY_OWN_MODEL_H
#define ORRERY_OWN_MODEL_H

#include "emulated_devices/check/dump/assembly.h"
#include "ref/golden/golden.h"
#include "ref/model/transformer.h"

/* A program, and one of its optimizers: "adamw". */
struct own_program { const struct golden *golden; const struct actual *actual; char optimizer[32]; };

/** Set the weights after so many steps.  @return OK; ERR_CHECK: ACTUAL has not all; as own_weights_read. */
enum error_code own_model_weights(const struct own_program *, struct transformer *, int steps, struct error *);

/** Set the corrections of routers after so many steps, which follow from the experts that each step's tokens chose: all
 *  these steps are run.  @return as own_model_weights and transformer_forward. */
enum error_code own_model_biases(const struct own_program *, struct transformer *, int steps, struct error *);

/* The tokens of a pass; positions: NULL: they are not packed. */
struct own_batch { const int32_t *ids, *labels, *positions; int64_t B; };

/** Run the model forward, with the masks of dropout that step + 1 draws.  @return as transformer_forward. */
enum error_code own_model_forward(const struct own_program *, struct transformer *, const struct own_batch *, int step,
                                  struct error *);

/** Whether a model has a parameter of this name. */
bool own_model_has(const struct golden *, const char *param);

/** Find a gradient by its parameter's name; NULL: the model has no such parameter. */
const struct tensor *own_model_gradient(const struct transformer *, const char *param);

#endif
