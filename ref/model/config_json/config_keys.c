/* config_keys.c -- reads the keys of a JSON object into a struct, and writes them back.
 * ref/model/config_json/config_json.c and config_rotary.c beside it call.  An unknown key, or a value that Orrery
 * does not have, is ERR_FORMAT.  The writers return false without memory. */
#include "ref/model/config_json/config_keys.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Whether a value equals this JSON text. */
static bool is_value(const cJSON *value, const char *text)
{
    cJSON *wanted = cJSON_Parse(text);
    const bool same = wanted && cJSON_Compare(value, wanted, true);
    cJSON_Delete(wanted);
    return same;
}

static enum error_code fail_value(const struct config_key *key, const cJSON *value, const char *where,
                                  struct error *err)
{
    char *text = cJSON_PrintUnformatted(value);
    fail(err, ERR_FORMAT, "%s: %s is %.80s; Orrery has only %s%s%s", where, key->name,
         text ? printable(text).text : "something else", key->only[0], key->only[1] ? " or " : "",
         key->only[1] ? key->only[1] : "");
    cJSON_free(text);
    return ERR_FORMAT;
}

static enum error_code check_only(const struct config_key *key, const cJSON *value, const char *where,
                                  struct error *err)
{
    for (int i = 0; i < 2; i++)
        if (key->only[i] && is_value(value, key->only[i])) return OK;
    return fail_value(key, value, where, err);
}

static enum error_code read_positive(const struct config_key *key, const cJSON *object, const char *where, double *to,
                                     struct error *err)
{
    const enum error_code e = json_double(object, where, key->name, to, err);
    if (e || *to > 0) return e;
    return fail(err, ERR_FORMAT, "%s: %s is %g; it must be above 0", where, key->name, *to);
}

static enum error_code read_value(const struct config_key *key, const cJSON *object, const cJSON *value,
                                  const char *where, void *to, struct error *err)
{
    void *field = (char *)to + key->at;
    const bool null = cJSON_IsNull(value);
    switch (key->kind) {
    case KEY_SIZE_OR_NULL:
        if (null) return *(int64_t *)field = 0, OK;
        /* fall through */
    case KEY_SIZE: return json_int(object, where, key->name, 1, INT32_MAX, field, err);
    case KEY_COUNT: return json_int(object, where, key->name, 0, INT32_MAX, field, err);
    case KEY_TOKEN:
        if (null) return *(int64_t *)field = NO_TOKEN, OK;
        return json_int(object, where, key->name, -1, INT32_MAX, field, err);
    case KEY_REAL_OR_NULL:
        if (null) return OK;
        /* fall through */
    case KEY_REAL: case KEY_NUMBER: return json_double(object, where, key->name, field, err);
    case KEY_POSITIVE_OR_NONE:
        if (null) return *(double *)field = 0, OK;
        /* fall through */
    case KEY_POSITIVE: case KEY_POSITIVE_NUMBER: return read_positive(key, object, where, field, err);
    case KEY_FLAG: return json_bool(object, where, key->name, field, err);
    case KEY_STRING: return json_string(object, where, key->name, (const char **)field, err);
    case KEY_OBJECT:
        if (null) return *(const cJSON **)field = NULL, OK;
        return json_object(object, where, key->name, (const cJSON **)field, err);
    case KEY_LIST:
        if (null) return *(const cJSON **)field = NULL, OK;
        return json_array(object, where, key->name, (const cJSON **)field, err);
    case KEY_ONLY: return check_only(key, value, where, err);
    case KEY_IGNORED: return OK;
    }
    return OK;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static const struct config_key *config_keys_find(const struct config_key *const *lists, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        for (const struct config_key *k = lists[i]; k->name; k++)
            if (strcmp(k->name, name) == 0) return k;
    return NULL;
}

bool config_keys_have(const struct config_key *list,
                      const char *name) { return config_keys_find(&list, 1, name) != NULL; }

static enum error_code fail_unknown(const struct config_key *const *lists, int n, const char *name, const char *where,
                                    struct error *err)
{
    enum { MOST = 160 };
    const char *names[MOST];
    size_t count = 0;
    for (int i = 0; i < n; i++)
        for (const struct config_key *k = lists[i]; k->name && count < MOST; k++) names[count++] = k->name;
    const char *near = nearest_name(name, names, count);
    return fail(err, ERR_FORMAT, "%s: Orrery does not know the key \"%.60s\", which may change what the model computes"
                "%s%s%s If it does not, take it out", where, printable(name).text, near ? "; did you mean \"" : ".",
                near ? near : "", near ? "\"?" : "");
}

enum error_code config_keys_read(const struct config_key *const *lists, int n, const cJSON *object, const char *where,
                                 void *to, struct error *err)
{
    enum error_code e = OK;
    if (!cJSON_IsObject(object)) return fail(err, ERR_FORMAT, "%s: this is no JSON object", where);
    for (const cJSON *value = object->child; value && !e; value = value->next) {
        const struct config_key *k = config_keys_find(lists, n, value->string);
        e = k ? read_value(k, object, value, where, to, err) : fail_unknown(lists, n, value->string, where, err);
    }
    for (int i = 0; i < n && !e; i++)
        for (const struct config_key *k = lists[i]; k->name && !e; k++)
            if (k->kind == KEY_SIZE && !json_has(object, k->name)) e = read_value(k, object, NULL, where, to, err);
    return e;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

bool config_add_real(cJSON *object, const char *key, double x)
{
    char text[32];
    if (x != floor(x) || fabs(x) >= 1e15) return cJSON_AddNumberToObject(object, key, x) != NULL;
    snprintf(text, sizeof text, "%.1f", x);
    return cJSON_AddRawToObject(object, key, text) != NULL;
}

/* Whether a value is the one that null stands for. */
static bool is_none(const struct config_key *key, const void *field)
{
    if (key->kind == KEY_POSITIVE_OR_NONE) return *(const double *)field == 0;
    if (key->kind == KEY_TOKEN) return *(const int64_t *)field == NO_TOKEN;
    return key->kind == KEY_SIZE_OR_NULL && *(const int64_t *)field == 0;
}

static bool write_value(const struct config_key *key, const void *field, cJSON *object)
{
    if (is_none(key, field)) return cJSON_AddNullToObject(object, key->name) != NULL;
    switch (key->kind) {
    case KEY_SIZE: case KEY_SIZE_OR_NULL: case KEY_COUNT: case KEY_TOKEN:
        return cJSON_AddNumberToObject(object, key->name, (double)*(const int64_t *)field) != NULL;
    case KEY_NUMBER: case KEY_POSITIVE_NUMBER:
        return cJSON_AddNumberToObject(object, key->name, *(const double *)field) != NULL;
    case KEY_REAL: case KEY_REAL_OR_NULL: case KEY_POSITIVE: case KEY_POSITIVE_OR_NONE:
        return config_add_real(object, key->name, *(const double *)field);
    case KEY_FLAG: return cJSON_AddBoolToObject(object, key->name, *(const bool *)field) != NULL;
    case KEY_ONLY: return cJSON_AddRawToObject(object, key->name, key->only[0]) != NULL;
    case KEY_LIST: return cJSON_AddItemToObject(object, key->name, cJSON_Duplicate(*(cJSON *const *)field, true));
    case KEY_STRING: case KEY_OBJECT: case KEY_IGNORED: break;
    }
    return false;
}

bool config_keys_write(const struct config_key *list, const void *from, cJSON *object)
{
    bool ok = true;
    for (const struct config_key *k = list; k->name && ok; k++)
        if (k->written && !json_has(object, k->name)) ok = write_value(k, (const char *)from + k->at, object);
    return ok;
}
