/* config_json.h -- what the families' readers of config.json share.  Inside ref/model only. */
#ifndef ORRERY_CONFIG_JSON_H
#define ORRERY_CONFIG_JSON_H

#include "ref/model/config.h"
#include "ref/model/config_keys.h"

/* What a file says, before it is a model. */
struct config_reading {
    struct model_config c;
    int64_t head_dim, sliding_window, n_ctx;        /* 0: not said */
    int64_t pad_token;                              /* NO_TOKEN: none */
    bool output_router_logits;
    double rope_theta;
    const cJSON *rope_scaling, *rope_parameters;    /* NULL: not said */
};

#define CONFIG_TO(name, kind, field) KEY_TO(name, kind, struct config_reading, field)

/* The reading of a family begins with the defaults of its class in transformers, is filled by its list of keys, and is
 * then finished: what other values make of it is worked out, what they contradict is refused.
 * Mixtral ends as Llama. */
extern const struct config_key gpt2_keys[], llama_keys[], mixtral_keys[], gptj_keys[];
extern const struct config_reading gpt2_defaults, llama_defaults, mixtral_defaults, gptj_defaults;
enum error_code gpt2_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);
enum error_code llama_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);
enum error_code gptj_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);

/** Rotary positions as either form says them: "rope_theta" and "rope_scaling", or "rope_parameters" (transformers 5).
 *  @return OK, or ERR_FORMAT: a kind that Orrery does not have, or one thing said twice and differently. */
enum error_code rotary_from_json(struct config_reading *, const cJSON *root, const char *path, struct error *);

/* A config as a document; false if there is no memory. */
bool gpt2_to_json(const struct model_config *, cJSON *root);
bool llama_to_json(const struct model_config *, cJSON *root);       /* and mixtral */
bool gptj_to_json(const struct model_config *, cJSON *root);
bool rotary_to_json(const struct rotary *, cJSON *root);

#endif
