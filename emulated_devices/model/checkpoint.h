/* checkpoint.h -- a model in files, as Hugging Face transformers has it, and what is needed to go on training.
 *
 *   DIR/config.json             the shape
 *   DIR/model.safetensors       the weights, of 16-bit models their fp32 masters, as ref/model/weights.h has them; read also
 *                               from several files with an index
 *   DIR/optimizer.safetensors   the optimizer's state, "NAME.exp_avg" and so on; metadata: step, seed,
 *                               optimizer, batch, loss scale, steps skipped
 *
 * Of replicas that train apart (local-sgd, diloco) the model is what the last outer step made.  Beside it are every replica's weights and
 * states, "NAME.replica0", "NAME.replica0.exp_avg" and so on, and "NAME.outer_momentum"; metadata: how many replicas.  So they go on
 * in mid-round, as many as before, each on any mesh.  From a checkpoint of copies that were not apart any number may part.
 *
 * Files hold whole tensors, so a checkpoint does not depend on the mesh that wrote it.  Each device reads only its boxes.
 */
#ifndef ORRERY_CHECKPOINT_H
#define ORRERY_CHECKPOINT_H

#include "emulated_devices/model/collect.h"

/**
 * Write a checkpoint; the folder is made if it is not there.
 * Collective over all devices; rank 0 writes, one tensor at a time.
 * @return OK, or the same error everywhere; files of an earlier checkpoint are replaced only when all new ones are complete.
 */
enum error_code checkpoint_save(struct trainer *, const char *dir, struct error *);

/** Whether a checkpoint could be written to this folder, which is left as it is.  Local.  @return OK or ERR_FILE. */
enum error_code checkpoint_probe(const char *dir, struct error *);

/** The batch that a checkpoint was trained with; *batch stays if the weights are not from here.  Local.
 *  @return OK, or the fault of model.safetensors. */
enum error_code checkpoint_batch(const char *dir, int64_t *batch, struct error *);

/**
 * Read weights into this device's boxes.
 * Collective over all devices.
 * @return OK, or the same error everywhere: ERR_FILE, or ERR_FORMAT naming the tensor that is missing or has another shape.
 */
enum error_code checkpoint_load_weights(struct trainer *, const char *dir, struct error *);

/** Read weights, optimizer state and the number of steps done.  As checkpoint_load_weights; ERR_FORMAT also if the two
 *  files are not of the same step, or the optimizer or seed is another. */
enum error_code checkpoint_resume(struct trainer *, const char *dir, struct error *);

#endif
