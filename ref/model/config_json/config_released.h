/* config_released.h -- releases whose config.json has another model_type than the family that their models are of.
 * Inside ref/model only; config_json.c calls these functions. */
#ifndef ORRERY_CONFIG_RELEASED_H
#define ORRERY_CONFIG_RELEASED_H

#include "ref/io/json.h"

struct release {
    const char *type;                           /* model_type in its config.json */
    const char *architecture, *without_head;    /* its classes, with an output matrix and without */
    const char *family;                         /* whose models its models are: that family's model_type */
    enum error_code (*rewrite)(cJSON *root, const char *path, struct error *);  /* gives keys the family's names; NULL:
                                                 * they have these */
};

/** The release with a model_type.  @return NULL: there is none. */
const struct release *release_find(const char *type);

/** Say what models of a model_type have and no family here, as the end of a sentence.
 *  @return NULL: the type is unknown. */
const char *release_unread(const char *type);

#endif
