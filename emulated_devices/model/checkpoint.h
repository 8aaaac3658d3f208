/* checkpoint.h -- a model in files, as Hugging Face transformers has it, and what is needed to go on training.
 *
 *   DIR/config.json             the shape
 *   DIR/model.safetensors       the weights, of 16-bit models their fp32 masters, as ref/model/weights.h has them; of
 *   other folders read
 *                               also from several files with an index
 *   DIR/optimizer.safetensors   the optimizer's state, "NAME.exp_avg" and so on
 *   DIR/training.json           steps done and skipped, loss scale; and what the run was: the flags and the text that
 *   it must have again DIR/checkpoint.sha256       the checksums of these four
 *
 * They are replaced together (ref/io/bundle.h): at every moment of saving, the old checkpoint or the new one is whole.
 * A file that has another checksum than it was saved with is refused by name.
 *
 * Of replicas that train apart (local-sgd, diloco) the model is what the last outer step made.  Beside it are every
 * replica's weights and states, "NAME.replica0", "NAME.replica0.exp_avg" and so on, and "NAME.outer_momentum";
 * training.json: how many replicas.  So they go on in mid-round, as many as before, each on any mesh.  From a
 * checkpoint of copies that were not apart any number may part.
 *
 * Files hold whole tensors, so a checkpoint does not depend on the mesh that wrote it.  Each device reads only its
 * boxes.
 */
#ifndef ORRERY_CHECKPOINT_H
#define ORRERY_CHECKPOINT_H

#include "emulated_devices/model/collect.h"
#include "ref/io/bundle.h"
#include "ref/io/json.h"

#define CONFIG_FILE     "config.json"
#define WEIGHTS_FILE    "model.safetensors"
#define STATES_FILE     "optimizer.safetensors"
#define TRAINING_FILE   "training.json"
#define CHECKPOINT_LIST "checkpoint.sha256"

extern const struct bundle_kind checkpoint_files;

/* A folder with a model, as found before anything is built. */
struct checkpoint {
    const char *dir;                    /* the caller's */
    bool there;                    /* it was saved here; else it is a model from somewhere else, without what follows */
    struct bundle files;
    int64_t step;                       /* steps done */
    cJSON *root;                        /* training.json */
    const cJSON *run;                   /* ... of which what the run was: names and texts, as saved */
};

/** Read a folder's small files.  Local.  @return OK; ERR_FORMAT naming the file that is damaged; ERR_FILE; ERR_MEMORY.
 *  On failure there is nothing to close. */
enum error_code checkpoint_open(struct checkpoint *, const char *dir, struct error *);
void checkpoint_close(struct checkpoint *);

/** The shape of its model.  @return OK or the fault of config.json. */
enum error_code checkpoint_config(const struct checkpoint *, struct model_config *, struct error *);

/**
 * Read weights into this device's boxes.
 * Collective over all devices.
 * @return OK, or the same error everywhere: ERR_FILE, or ERR_FORMAT naming the file that is damaged or the tensor that
 *     is missing or has
 *         another shape.
 */
enum error_code checkpoint_load_weights(struct trainer *, const struct checkpoint *, struct error *);

/** Read weights, optimizer state and the number of steps done, of a checkpoint that was saved here.  As
 *  checkpoint_load_weights; ERR_FORMAT also if the number of replicas is another. */
enum error_code checkpoint_resume(struct trainer *, const struct checkpoint *, struct error *);

/**
 * Write a checkpoint; the folder is made if it is not there.
 * Collective over all devices; rank 0 writes, one tensor at a time.
 * @param run  an object of texts: what the run was; read on rank 0 only.
 * @return OK, or the same error everywhere; an earlier checkpoint then stays as it was.
 */
enum error_code checkpoint_save(struct trainer *, const char *dir, const cJSON *run, struct error *);

/** Whether a checkpoint could be written to this folder, which is left as it is, but for what a killed writer had left.
 *  Local.
 *  @return OK or ERR_FILE. */
enum error_code checkpoint_probe(const char *dir, struct error *);

#endif
