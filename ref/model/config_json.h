/* config_json.h -- what the families' readers of config.json share.  Inside ref/model only. */
#ifndef ORRERY_CONFIG_JSON_H
#define ORRERY_CONFIG_JSON_H

#include "ref/io/json.h"
#include "ref/model/config.h"

struct json_whole_key { const char *key; int64_t *to; };
struct json_real_key { const char *key; double *to; };

/* What we do in one way only: a file that asks for another way is refused, not misread.  A missing key is not asked. */
enum error_code json_only(const cJSON *root, const char *path, const char *key, const char *value, struct error *);
enum error_code json_only_bool(const cJSON *root, const char *path, const char *key, bool value, struct error *);

/* Sizes that must be there, from 1; numbers that may be left out. */
enum error_code json_sizes(const cJSON *root, const char *path, const struct json_whole_key *, int n, struct error *);
enum error_code json_reals(const cJSON *root, const char *path, const struct json_real_key *, int n, struct error *);

/* Of one family: fill a config from a document (path names it), and the other way; false if there is no memory. */
enum error_code gpt2_from_json(struct model_config *, const cJSON *root, const char *path, struct error *);
enum error_code llama_from_json(struct model_config *, const cJSON *root, const char *path, struct error *);
enum error_code mixtral_from_json(struct model_config *, const cJSON *root, const char *path, struct error *);
bool gpt2_to_json(const struct model_config *, cJSON *root);
bool llama_to_json(const struct model_config *, cJSON *root);       /* and mixtral */

#endif
