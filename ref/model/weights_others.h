/* weights_others.h -- model folders that other programs wrote in other formats, and tensors that a wrapper has renamed:
 * what they are, and the command that makes a folder of them that is read.  ref/model/weights.c and
 * config_json/config_json.c call these functions. */
#ifndef ORRERY_WEIGHTS_OTHERS_H
#define ORRERY_WEIGHTS_OTHERS_H

#include "ref/error.h"
#include <stdbool.h>

/**
 * Say what a folder without the wanted file has in its place.
 * @param dir     the folder.
 * @param wanted  the file that is not there, for the message: "model.safetensors".
 * @return OK: nothing that is known; ERR_FORMAT, with the file or folder that was found and the command that converts
 *         it.
 */
enum error_code others_refuse(const char *dir, const char *wanted, struct error *);

struct packed_form;

/**
 * Refuse a folder whose config.json says that its weights are codes which weights_read_box does not read.
 * @param dir          the folder; without a config.json nothing is said.
 * @param[out] packed  how integers of GPTQ or AWQ are packed; as it was if there are none.
 * @return OK; ERR_FORMAT, with the method and how to make numbers of them; as json_read.
 */
enum error_code others_refuse_codes(const char *dir, struct packed_form *packed, struct error *);

/* A wrapper of models puts a part into the names of tensors. */
struct wrapper {
    const char *part;           /* what it puts there, such as "_orig_mod." */
    const char *what, *cure;    /* who adds the part; how a model is saved without it */
};

/** The wrapper that makes one name of another.
 *  @param entry  a tensor's name in a file.
 *  @param name   the name that the model's family gives the tensor.
 *  @return NULL: entry is not this tensor. */
const struct wrapper *others_wrapper(const char *entry, const char *name);

#endif
