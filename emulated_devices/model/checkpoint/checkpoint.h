/* checkpoint.h -- a model in files of Hugging Face transformers' format, with all that is needed to continue training.
 *
 *   DIR/config.json             the shape
 *   DIR/model.safetensors       the weights (see ref/model/weights.h); of 16-bit models the fp32 masters.  Folders from
 *                               elsewhere may have several such files with an index
 *   DIR/optimizer.safetensors   the optimizer's state, "NAME.exp_avg" and so on
 *   DIR/training.json           steps done and skipped, loss scale, what bits depend on (ref/machine/threads.h), and
 *                               the settings of the run that must not change: flags and text
 *   DIR/run.yaml                what wrote it: program, command, machine and settings, as the caller says
 *   DIR/checkpoint.sha256       the checksums of these five
 *
 * All files are replaced together (ref/io/bundle.h): at any time during a save, either the old checkpoint or the new
 * one is complete.  A file whose checksum has changed is refused by name.
 *
 * With replicas that train apart, the model is the result of the last outer step.  The files also
 * have every replica's weights and states ("NAME.replica0", "NAME.replica0.exp_avg" and so on) and
 * "NAME.outer_momentum"; training.json has the number of replicas.  So a run can continue in the middle of a round,
 * with the same number of replicas, each on any mesh.  A checkpoint without replicas can be continued with any number
 * of them.
 *
 * Files hold whole tensors, so a checkpoint does not depend on the mesh that wrote it.  In a sharded checkpoint
 * (sharded/sharded.h) each device's file holds boxes, and shards.json says which.  Of both kinds a device of any mesh
 * reads only what it keeps.  Files of run/, model/, cli/ and draw/ call these functions.
 */
#ifndef ORRERY_CHECKPOINT_H
#define ORRERY_CHECKPOINT_H

#include "emulated_devices/model/collect.h"
#include "ref/io/bundle.h"
#include "ref/io/json.h"

struct transformer;

#define CONFIG_FILE     "config.json"
#define WEIGHTS_FILE    "model.safetensors"
#define STATES_FILE     "optimizer.safetensors"
#define TRAINING_FILE   "training.json"
#define ORIGIN_FILE     "run.yaml"
#define SHARDS_FILE     "shards.json"
#define CHECKPOINT_LIST "checkpoint.sha256"

extern const struct bundle_kind checkpoint_files, sharded_files;

/* A folder with a model, read before a trainer exists. */
struct checkpoint {
    const char *dir;                    /* the caller's */
    bool there;                         /* saved by this program; else another program's model, without the rest */
    bool sharded;                       /* each device has written its own boxes */
    struct bundle files;                /* checksums of the folder's files */
    int64_t step;                       /* steps done */
    cJSON *root;                        /* training.json */
    const cJSON *run;                   /* its part with the settings of the run: names and texts, as saved */
};

/** Read a folder's small files.  Local.  @return OK; ERR_FORMAT naming the file that is damaged; ERR_FILE; ERR_MEMORY.
 *  On failure there is nothing to close. */
enum error_code checkpoint_open(struct checkpoint *, const char *dir, struct error *);
void checkpoint_close(struct checkpoint *);

/**
 * Compare the arithmetic of this process with that of the run that saved a checkpoint: with others its bits may differ.
 * @param[out] text  "threads 2, not 1; kernel Haswell, not Zen"; empty: there is no difference, or the checkpoint does
 *                   not tell.
 */
void checkpoint_compare_arithmetic(const struct checkpoint *, char *text, size_t size);

/** The shape of its model.  @return OK, or the error in config.json. */
enum error_code checkpoint_config(const struct checkpoint *, struct model_config *, struct error *);

/**
 * Read weights into this device's boxes.
 * Collective over all devices.
 * @return OK, or the same error everywhere: ERR_FILE, or ERR_FORMAT naming the file that is damaged, or the tensor that
 *         is missing or has another shape.
 */
enum error_code checkpoint_load_weights(struct trainer *, const struct checkpoint *, struct error *);

/** Read weights into a one-device model of its shape.  Local.  @return as checkpoint_load_weights. */
enum error_code checkpoint_load_serial(struct transformer *, const struct checkpoint *, struct error *);

/* Bytes that all devices have read of a checkpoint together. */
struct checkpoint_reading {
    int files;                          /* that devices wrote; 0: it has whole tensors, and nothing is counted */
    uint64_t wanted, read;              /* of the boxes that the devices keep: by formula; counted */
    uint64_t checked;                   /* of whole files, for their checksums: each by one device */
};

/** Read weights, optimizer state and the number of steps done from a checkpoint that this program saved.
 *  @param[out] reading  on rank 0; may be NULL.
 *  @return as checkpoint_load_weights; ERR_FORMAT also if the number of replicas differs; ERR_CHECK if devices have
 *          read other bytes than they keep. */
enum error_code checkpoint_resume(struct trainer *, const struct checkpoint *, struct checkpoint_reading *reading,
                                  struct error *);

/**
 * Write a checkpoint; the folder is made if it is not there.
 * Collective over all devices; rank 0 writes, one tensor at a time.
 * @param run     an object of texts: the settings of the run; read on rank 0 only.
 * @param origin  the text of run.yaml; read on rank 0 only.
 * @return OK, or the same error everywhere; an earlier checkpoint then stays as it was.
 */
enum error_code checkpoint_save(struct trainer *, const char *dir, const cJSON *run, const char *origin,
                                struct error *);

/** Check that a checkpoint can be written to this folder.  Changes nothing, but removes files that a killed writer
 *  left. Local.  @return OK or ERR_FILE. */
enum error_code checkpoint_probe(const char *dir, struct error *);

#endif
