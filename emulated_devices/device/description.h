/* description.h -- how fields of the JSON files that describe machines are read, with one line for each mistake.
 *
 * cluster.c, cluster_shared.c, kernel_table.c and kernel_set.c call these functions.  `where` names the file and the
 * object in messages.
 */
#ifndef ORRERY_DESCRIPTION_H
#define ORRERY_DESCRIPTION_H

#include "ref/error.h"
#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

/** Check that an object has only known keys.  @param known  ends with NULL.  @return OK or ERR_FORMAT. */
enum error_code refuse_unknown(const cJSON *object, const char *where, const char *const *known, struct error *);

/** Copy a text that the key must have, of 1 to room - 1 bytes.  @return OK or ERR_FORMAT. */
enum error_code read_text(const cJSON *object, const char *where, const char *key, char *out, size_t room,
                          struct error *);

/** Copy a name, which reports and traces print as it is.  @return OK or ERR_FORMAT. */
enum error_code read_name(const cJSON *object, const char *where, const char *key, char *out, size_t room,
                          struct error *);

/** Read an optional whole number from 0 to `max`.  @return OK or ERR_FORMAT. */
enum error_code read_number(const cJSON *object, const char *where, const char *key, int64_t max, int64_t otherwise,
                            int64_t *out, struct error *);

#endif
