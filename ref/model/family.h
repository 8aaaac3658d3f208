/* family.h -- a family of models: a class of Hugging Face transformers, as data.
 *
 * A family is one file of families/ and its line in families/families.def.  The file says how the family's config.json
 * is read and written, what its parameters are called, which options of a model_config its models may have, and which
 * nodes its parts have on devices.  model_config.family points to it; nobody else asks which family a model is of.
 *
 * config_json.c searches families[] and calls finish, which reports ERR_FORMAT for a wrong config.json.  model/probe.c,
 * model/link/link.c, check/recompute/replay.c and cli/show/sbp.c call model_program.
 */
#ifndef ORRERY_FAMILY_H
#define ORRERY_FAMILY_H

#include "ref/model/node.h"

struct config_reading;
struct config_key;
struct naming;
struct cJSON;

enum { FAMILY_PROGRAMS = 3, FAMILY_OPTIONS = 12 };

struct family {
    const char *name;                           /* model_type in config.json */
    const char *title;                          /* with its article, for messages: "an OLMo 2" */
    const char *architecture, *without_head;    /* its classes in transformers, with an output matrix and without */

    /* config.json: config_json.h.  The defaults' model_config has the options of the family. */
    const struct config_reading *defaults;      /* of its class */
    const struct config_key *keys;              /* those that files may have besides the keys of all families */
    enum error_code (*finish)(struct config_reading *, const struct cJSON *root, const char *path, struct error *);
    bool (*write)(const struct model_config *, struct cJSON *root);     /* NULL: the keys say all */

    const struct naming *naming;                /* the names of its parameters */
    bool predicts;                              /* files may have a layer behind the last that predicts a further token
                                                 * (predictor.h) */
    enum model_option must[FAMILY_OPTIONS], may[FAMILY_OPTIONS];        /* options that all its models have besides
                                                 * those of the defaults; that its models have or not */
    struct program program[FAMILY_PROGRAMS];    /* of a model the first whose option the model has */
    const struct family *streamed;              /* the family of such models with parallel streams, or of those with
                                                 * streams the one without; NULL: there is none */
};

extern const struct family *const families[];   /* ends with NULL; in the order of families.def */

/* All names of families, for messages: "gpt2, llama and mixtral". */
struct families_text { char text[512]; };
struct families_text families_text(void);

/** Give a model P parallel streams, and the family of such models.  @return false: its family has none. */
bool model_set_streams(struct model_config *, int64_t P);

/** The table of a model's parts. */
const struct program *model_program(const struct model_config *);

#endif
