/* description.c -- fields of the JSON files that describe machines: texts, names, whole numbers, and no unknown key.
 *
 * cluster.c, cluster_shared.c, kernel_table.c and kernel_set.c read their files by these functions.  What is wrong
 * with a file is ERR_FORMAT, with a line that names the file and the key.
 */
#include "emulated_devices/device/description.h"
#include "ref/io/json.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <string.h>

/* Otherwise a misspelt optional key would be ignored. */
enum error_code refuse_unknown(const cJSON *object, const char *where, const char *const *known, struct error *err)
{
    for (const cJSON *c = object->child; c != NULL; c = c->next) {
        size_t n = 0, i = 0;
        /* Keys are few, so each is looked for in the whole list. */
        while (known[n] != NULL) n++;
        while (i < n && strcmp(known[i], c->string) != 0) i++;
        if (i < n) continue;
        const char *meant = nearest_name(c->string, known, n);
        return fail(err, ERR_FORMAT, "%s: \"%s\" is not a key%s%s%s", where, printable(c->string).text,
                    meant ? "; did you mean \"" : "", meant ? meant : "", meant ? "\"?" : "");
    }
    return OK;
}

/* Copy a text that the key must have, of 1 to room - 1 bytes. */
enum error_code read_text(const cJSON *object, const char *where, const char *key, char *out, size_t room,
                          struct error *err)
{
    const char *text;
    const enum error_code e = json_string(object, where, key, &text, err);
    if (e) return e;
    if (*text == '\0' || strlen(text) >= room)
        return fail(err, ERR_FORMAT, "%s: \"%s\" has %zu bytes; it must have 1 to %zu", where, key, strlen(text),
                    room - 1);
    snprintf(out, room, "%s", text);
    return OK;
}

/* Read a name that is written to reports and traces without escaping. */
enum error_code read_name(const cJSON *object, const char *where, const char *key, char *out, size_t room,
                          struct error *err)
{
    const enum error_code e = read_text(object, where, key, out, room, err);
    if (!e && strpbrk(out, "\"\\\n\r\t") != NULL)
        return fail(err, ERR_FORMAT, "%s: \"%s\" is '%s'; it must have no quotes, backslashes or line ends", where, key,
                    printable(out).text);
    return e;
}

/* Read an optional integer. */
enum error_code read_number(const cJSON *object, const char *where, const char *key, int64_t max, int64_t otherwise,
                            int64_t *out, struct error *err)
{
    *out = otherwise;
    return json_has(object, key) ? json_int(object, where, key, 0, max, out, err) : OK;
}
