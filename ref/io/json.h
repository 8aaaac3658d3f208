/* json.h -- helpers for cJSON: strict reading, getters whose errors name the key, safe writing.
 *
 * cJSON accepts input that RFC 8259 forbids or leaves open: invalid UTF-8, NULs that cut strings short, duplicate keys,
 * garbage after the end.  json_parse refuses all of it, so that its callers need no checks.
 *
 * Readers of configs, goldens, clusters and results call this file.  Errors name the file and the key.  These are
 * files of ref/model/, ref/golden/, device/, cli/ and other rooms.
 */
#ifndef ORRERY_JSON_H
#define ORRERY_JSON_H

#include "ref/error.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_FILE_LIMIT = 64 << 20 };    /* bytes; our documents are far smaller */

/**
 * Read JSON from memory.
 * @param text    length bytes, and a NUL after them (cJSON may read it).
 * @param where   names the document in messages: usually the path.
 * @param[out] root  the document, for cJSON_Delete; NULL on failure.
 * @return OK, or ERR_FORMAT with the line and byte of the first fault; ERR_MEMORY.
 */
enum error_code json_parse(const char *text, size_t length, const char *where, cJSON **root, struct error *);

/** Read a file of JSON.  @return as json_parse, or ERR_FILE; ERR_FORMAT also above JSON_FILE_LIMIT. */
enum error_code json_read(const char *path, cJSON **root, struct error *);

/* Typed getters.  `where` names the document, and dots a place inside it ("m/config.json", "m/config.json: rope").
 * If the key is missing, or its value has another type or is out of range, they return ERR_FORMAT, report the value,
 * and leave *out unchanged.  The document owns the strings. */
enum error_code json_int(const cJSON *object, const char *where, const char *key, int64_t min, int64_t max,
                         int64_t *out, struct error *);
enum error_code json_double(const cJSON *object, const char *where, const char *key, double *out, struct error *);
enum error_code json_bool(const cJSON *object, const char *where, const char *key, bool *out, struct error *);
enum error_code json_string(const cJSON *object, const char *where, const char *key, const char **out, struct error *);
enum error_code json_object(const cJSON *object, const char *where, const char *key, const cJSON **out, struct error *);
enum error_code json_array(const cJSON *object, const char *where, const char *key, const cJSON **out, struct error *);

/** Whether an object has this key with a value other than null: `if (json_has(..)) e = json_int(..)`. */
bool json_has(const cJSON *object, const char *key);

/** Whether a value is an integer with |x| < 2^53, which a double holds exactly; *out receives it. */
bool json_whole(const cJSON *value, int64_t *out);

/**
 * Add members to an object: words of a format, each a key with the conversion of its value.  Keys have no blanks.
 *
 *     json_add(row, "device %d scheme %s seconds %g waits %hhd", d, scheme, seconds, waits);
 *
 * %s is a text, which is copied; %d, %u and %g are numbers, and %hhd is true or false.  Without memory, and without an
 * object, members are missing.
 * @return the object.
 */
cJSON *json_add(cJSON *object, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** A new object at the end of an array, which owns the object.  @return the object; NULL without memory. */
cJSON *json_row(cJSON *array);

/**
 * The text of a document.  Every number reads back as it is, to the last bit: cJSON's own functions write one in six
 * beside it.
 * @param formatted  with blanks and newlines, or without.
 * @return the text, for cJSON_free; NULL without memory, and of NULL.
 */
char *json_text(const cJSON *root, bool formatted);

/**
 * Write a document as json_text has it, formatted, with a newline at its end, atomically (see output.h); path "-" is
 * the standard output.
 * @return OK, ERR_FILE with the path and the system's reason, or ERR_MEMORY.  A failure leaves the previous file.
 */
enum error_code json_write(const char *path, const cJSON *root, struct error *);

/** Write a document as json_write does, and delete it, also after a failure.  @return as json_write. */
enum error_code json_finish(const char *path, cJSON *root, struct error *);

#endif
