/* config_keys.h -- a JSON object read by a list of the keys that it may have.  Inside ref/model only.
 *
 * A key that is not in the list is refused: it may change what a model computes.  So a new version of transformers that
 * says something in a new way is noticed, and not misread.
 */
#ifndef ORRERY_CONFIG_KEYS_H
#define ORRERY_CONFIG_KEYS_H

#include "ref/io/json.h"

enum config_key_kind {
    KEY_SIZE,               /* int64_t from 1; must be there */
    KEY_SIZE_OR_NULL,       /* int64_t from 1; null is 0; may be left out */
    KEY_REAL,               /* double; may be left out, as all that follow may */
    KEY_TOKEN,              /* int64_t from -1; null is NO_TOKEN */
    KEY_FLAG,               /* bool */
    KEY_STRING,             /* const char *, the document's */
    KEY_OBJECT,             /* const cJSON *, the document's; null is NULL */
    KEY_ONLY,               /* there is one way to compute, and one or two ways to write it: only[] */
    KEY_EVERY,              /* a list, or null, each of whose elements is only[0] */
    KEY_IGNORED,            /* changes no number of training */
};

enum { NO_TOKEN = -2 };     /* -1 is the last of the vocabulary, as in PyTorch */

/* Lists of keys end with a name of NULL. */
struct config_key {
    const char *name;
    enum config_key_kind kind;
    size_t at;              /* where the value goes: offset in the struct that is filled */
    const char *only[2];    /* JSON without blanks */
};

#define KEY_TO(name_, kind_, type, field) { .name = name_, .kind = kind_, .at = offsetof(type, field) }
#define KEY_ONLY_AS(name_, ...) { .name = name_, .kind = KEY_ONLY, .only = { __VA_ARGS__ } }
#define KEY_EACH(name_, value) { .name = name_, .kind = KEY_EVERY, .only = { value } }
#define KEY_LEFT(name_) { .name = name_, .kind = KEY_IGNORED }

/**
 * Read an object by its lists of keys.
 * @param lists   n lists; a name is in one of them only.
 * @param where   names the object in messages.
 * @param[out] to the struct that the lists' offsets are of; what the object leaves out stays as it was.
 * @return OK, or ERR_FORMAT naming the key: unknown (with the nearest that is known), missing, of the wrong type, or
 *         asking for what Orrery does not have.
 */
enum error_code config_keys_read(const struct config_key *const *lists, int n, const cJSON *object, const char *where,
                                 void *to, struct error *);

#endif
