/* json.h -- small helpers round cJSON: strict reading, getters whose errors name the key, safe writing.
 *
 * cJSON on its own lets through what RFC 8259 forbids or leaves open: bytes that are not UTF-8, NULs that cut strings
 * short, keys given twice, garbage after the end.  json_parse refuses all of it, so that what follows need not ask.
 */
#ifndef ORRERY_JSON_H
#define ORRERY_JSON_H

#include "ref/error.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_FILE_LIMIT = 64 << 20 };    /* bytes; no document of ours comes near */

/**
 * Read JSON from memory.
 * @param text    length bytes, and a NUL after them (cJSON may look at it).
 * @param where   names the document in messages: usually the path.
 * @param[out] root  the document, for cJSON_Delete; NULL on failure.
 * @return OK, or ERR_FORMAT with the line and byte of the first fault; ERR_MEMORY.
 */
enum error_code json_parse(const char *text, size_t length, const char *where, cJSON **root, struct error *);

/** Read a file of JSON.  @return as json_parse, or ERR_FILE; ERR_FORMAT also above JSON_FILE_LIMIT. */
enum error_code json_read(const char *path, cJSON **root, struct error *);

/* Typed getters.  `where` names the document, and dots a place inside it ("m/config.json", "m/config.json: rope").
 * If the key is missing or its value of another type or out of range they return ERR_FORMAT, say what was found, and
 * leave *out as it was.  Strings belong to the document. */
enum error_code json_int(const cJSON *object, const char *where, const char *key, int64_t min, int64_t max,
                         int64_t *out, struct error *);
enum error_code json_double(const cJSON *object, const char *where, const char *key, double *out, struct error *);
enum error_code json_bool(const cJSON *object, const char *where, const char *key, bool *out, struct error *);
enum error_code json_string(const cJSON *object, const char *where, const char *key, const char **out, struct error *);
enum error_code json_object(const cJSON *object, const char *where, const char *key, const cJSON **out, struct error *);
enum error_code json_array(const cJSON *object, const char *where, const char *key, const cJSON **out, struct error *);

/** Whether an object has this key with a value other than null: `if (json_has(..)) e = json_int(..)`. */
bool json_has(const cJSON *object, const char *key);

/** Whether a value is a whole number that a double holds exactly, |x| < 2^53, and which. */
bool json_whole(const cJSON *value, int64_t *out);

/**
 * Write a document, formatted and with a newline at its end, safely (see output.h); path "-" is the standard output.
 * @return OK, ERR_FILE with the path and the system's reason, or ERR_MEMORY.  On failure a previous file stays.
 */
enum error_code json_write(const char *path, const cJSON *root, struct error *);

#endif
