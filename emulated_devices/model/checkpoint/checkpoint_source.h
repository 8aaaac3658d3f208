/* checkpoint_source.h -- where the numbers of a checkpoint are read from: whole tensors in two files, or the boxes of
 * every device in a file of its own.
 *
 * Readers ask for a box of a parameter and do not know which it is.  checkpoint.c calls these functions.
 */
#ifndef ORRERY_CHECKPOINT_SOURCE_H
#define ORRERY_CHECKPOINT_SOURCE_H

#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "emulated_devices/model/checkpoint/sharded/shards.h"
#include "ref/model/weights.h"

struct checkpoint_source {
    const struct checkpoint *checkpoint;        /* the caller's */
    bool has_weights, has_states;       /* the files of whole tensors that are open */
    struct weights weights, states;     /* whole tensors: weights, and the optimizer's states */
    struct sharded shards;              /* of a sharded checkpoint */
};

/** Open a checkpoint's files, or the weights of a folder from elsewhere.  Local.
 *  @param states  the optimizer's, too.
 *  @return OK, or as weights_open and sharded_open; source_close works after all. */
enum error_code source_open(struct checkpoint_source *, const struct checkpoint *, bool states, struct error *);
void source_close(struct checkpoint_source *);

/** Whether there is a tensor with this name among the weights. */
bool source_has(const struct checkpoint_source *, const char *name);

/** Read a box of a parameter's weights (suffix "") or state.
 *  @param[out] out  the box, row-major, of `want`.  @return as weights_read_box and sharded_read. */
enum error_code source_read(struct checkpoint_source *, const struct param_spec *, const char *suffix,
                            const struct box *, enum dtype want, void *out, struct error *);

#endif
