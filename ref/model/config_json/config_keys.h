/* config_keys.h -- reads and writes a JSON object with a list of the allowed keys.  Inside ref/model only.
 *
 * A key that is not in the list is refused, because it may change what a model computes.  So a new key of a new version
 * of transformers gives an error and not a wrong model.  Files of ref/model/families/ and ref/model/config_json/ call
 * these functions.
 */
#ifndef ORRERY_CONFIG_KEYS_H
#define ORRERY_CONFIG_KEYS_H

#include "ref/io/json.h"

enum config_key_kind {
    KEY_SIZE,               /* int64_t from 1; required */
    KEY_SIZE_OR_NULL,       /* int64_t from 1; null is 0; optional, as all that follow */
    KEY_COUNT,              /* int64_t from 0 */
    KEY_REAL,               /* double */
    KEY_REAL_OR_NULL,       /* null: as if it were not there */
    KEY_NUMBER,             /* double, written without a decimal point if it is whole */
    KEY_POSITIVE,           /* double above 0 */
    KEY_POSITIVE_NUMBER,    /* both */
    KEY_POSITIVE_OR_NONE,   /* double above 0; null is 0 */
    KEY_TOKEN,              /* int64_t from -1; null is NO_TOKEN */
    KEY_FLAG,               /* bool */
    KEY_STRING,             /* const char *, owned by the document */
    KEY_OBJECT,             /* const cJSON *, owned by the document; null is NULL */
    KEY_LIST,               /* const cJSON *, an array owned by the document; null is NULL */
    KEY_ONLY,               /* must have one of the one or two values only[] */
    KEY_IGNORED,            /* does not change any number of training */
};

enum { NO_TOKEN = -2 };     /* -1 is the last token of the vocabulary, as in PyTorch */

/* Lists of keys end with name NULL. */
struct config_key {
    const char *name;       /* the key in the file */
    enum config_key_kind kind;  /* the type of the value, and whether the key may be missing */
    size_t at;              /* offset of the value in the destination struct */
    const char *only[2];    /* JSON without blanks */
    bool written;           /* config_keys_write writes it */
};

#define KEY_TO(name_, kind_, type, field) { .name = name_, .kind = kind_, .at = offsetof(type, field) }
#define KEY_ONLY_AS(name_, ...) { .name = name_, .kind = KEY_ONLY, .only = { __VA_ARGS__ } }
#define KEY_BOTH(name_, kind_, type, field) \
    { .name = name_, .kind = kind_, .at = offsetof(type, field), .written = true }
#define KEY_BOTH_AS(name_, ...) { .name = name_, .kind = KEY_ONLY, .only = { __VA_ARGS__ }, .written = true }
#define KEY_LEFT(name_) { .name = name_, .kind = KEY_IGNORED }

/**
 * Read an object with lists of keys.
 * @param lists   n lists; the first that has a name decides.
 * @param where   names the object in messages.
 * @param[out] to the struct that the lists' offsets refer to; fields of missing keys do not change.
 * @return OK, or ERR_FORMAT naming the key: unknown (with the nearest known one), missing, of the wrong type, or with a
 *         value that is not supported.
 */
enum error_code config_keys_read(const struct config_key *const *lists, int n, const cJSON *object, const char *where,
                                 void *to, struct error *);

/** Whether a list has a key. */
bool config_keys_have(const struct config_key *list, const char *name);

/** Write the keys of a list that are `written` and not in the object yet, in the list's order: the first of the values
 *  of a KEY_ONLY, else the value in `from`.  @return false if there is no memory. */
bool config_keys_write(const struct config_key *list, const void *from, cJSON *object);

/** Write a number with a decimal point: transformers may refuse integers. */
bool config_add_real(cJSON *, const char *key, double);

#endif
