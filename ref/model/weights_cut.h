/* weights_cut.h -- one file of weights as several with an index, as Hugging Face transformers has large models.
 *
 *     DIR/model-00001-of-00003.safetensors, ..        whole tensors, each in one file
 *     DIR/model.safetensors.index.json                {"metadata": {"total_size": ..}, "weight_map": {NAME: FILE, ..}}
 *
 * Source   huggingface_hub, split_torch_state_dict_into_shards: tensors go into a file until the next one would make it
 *          larger than the limit; a tensor that is larger by itself has a file of its own
 *
 * cli/reshard.c calls this function; weights_open reads both forms.
 */
#ifndef ORRERY_WEIGHTS_CUT_H
#define ORRERY_WEIGHTS_CUT_H

#include "ref/error.h"
#include <stdint.h>

/**
 * Cut DIR/model.safetensors.  It is removed last, so the folder has a whole model at any time.
 * @param most        bytes of tensors in a file; a larger tensor is alone.
 * @param[out] files  that were written; 1: all fit into one, and nothing is changed.
 * @return OK; ERR_FILE; ERR_FORMAT of the file; ERR_MEMORY.  After a failure the file is still there, alone.
 */
enum error_code weights_cut(const char *dir, uint64_t most, int *files, struct error *);

#endif
