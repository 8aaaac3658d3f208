/* json.c -- strict reading of JSON by cJSON, getters with errors that name the key, exact writing.
 *
 * Readers of goldens, configs, clusters and results call this file.  Errors are ERR_FORMAT with line and column,
 * ERR_FILE and ERR_MEMORY.  A tree belongs to the caller, who frees it with cJSON_Delete.
 */
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what cJSON does not check ----------------------------------------------------------------------------------- */

/* Length of the UTF-8 character at s, of n readable bytes; 0 if invalid (RFC 3629: no overlong forms, no surrogates,
 * nothing above U+10FFFF). */
static size_t utf8_length(const unsigned char *s, size_t n)
{
    const unsigned char c = s[0];
    const size_t length = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (length == 0 || length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f)) return 0;
    if ((c == 0xf0 && s[1] < 0x90) || (c == 0xf4 && s[1] > 0x8f)) return 0;
    return length;
}

/* Find the first byte that is invalid in JSON.  Returns the reason, or NULL if there is none. */
static const char *bad_byte(const char *text, size_t length, size_t *at)
{
    bool in_string = false;
    for (size_t i = 0, step; i < length; i += step) {
        const unsigned char c = (unsigned char)text[i];
        *at = i;
        step = utf8_length((const unsigned char *)text + i, length - i);
        if (step == 0) return "is not UTF-8";
        if (c < ' ' && (in_string || (c != '\t' && c != '\n' && c != '\r'))) return "has a control character";
        if (c == '"') in_string = !in_string;
        if (c != '\\' || !in_string) continue;
        if (length - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0) return "has a NUL inside a string";
        step = i + 1 < length && (unsigned char)text[i + 1] < 0x80 && (unsigned char)text[i + 1] >= ' ' ? 2 : 1;
    }
    return NULL;
}

/* Lines and columns count from 1, bytes from 0. */
static enum error_code fail_at(struct error *err, const char *where, const char *text, size_t at, const char *what)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        column = text[i] == '\n' ? 1 : column + 1;
        line += text[i] == '\n';
    }
    return fail(err, ERR_FORMAT, "%s: %s at line %zu, column %zu (byte %zu)", where, what, line, column, at);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Refuse duplicate keys in an object or in anything inside it.  Sorting makes a million keys cheap to check. */
static enum error_code refuse_duplicates(const cJSON *value, const char *where, struct error *err)
{
    size_t n = 0;
    enum error_code e = OK;
    for (const cJSON *c = value->child; c != NULL && e == OK; c = c->next, n++)
        if (c->child != NULL) e = refuse_duplicates(c, where, err);     /* depth: cJSON's CJSON_NESTING_LIMIT */
    if (e != OK || n < 2 || !cJSON_IsObject(value)) return e;
    const char **key = malloc(n * sizeof *key);
    if (key == NULL) return fail(err, ERR_MEMORY, "%s: no memory for its %zu keys", where, n);
    n = 0;
    for (const cJSON *c = value->child; c != NULL; c = c->next) key[n++] = c->string;
    qsort(key, n, sizeof *key, by_text);
    for (size_t i = 1; i < n && e == OK; i++)
        if (strcmp(key[i - 1], key[i]) == 0)
            e = fail(err, ERR_FORMAT, "%s: \"%s\" is there twice", where, printable(key[i]).text);
    free(key);
    return e;
}

/* Why cJSON stopped there. */
static const char *why_not(const char *text, size_t length, size_t at)
{
    /* Python writes these words for numbers; cJSON stops at the word or behind a minus before it. */
    static const char *const words[] = { "Infinity", "NaN" };
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < at; i++) {
        if (text[i] == '\\' && in_string) i++;
        else if (text[i] == '"') in_string = !in_string;
        else if (!in_string && (text[i] == '[' || text[i] == '{')) depth++;
        else if (!in_string && (text[i] == ']' || text[i] == '}')) depth -= depth > 0;
    }
    if (at < length && text[at] == '-') at++;
    for (size_t w = 0; w < sizeof words / sizeof *words; w++)
        if (length - at >= strlen(words[w]) && memcmp(text + at, words[w], strlen(words[w])) == 0)
            return "has Infinity or NaN, which Python writes and JSON does not have,";
    return depth >= CJSON_NESTING_LIMIT ? "is nested too deeply" : "is not JSON";
}

/* The checks come in this order: bytes, cJSON's grammar, the end, duplicate keys. */
enum error_code json_parse(const char *text, size_t length, const char *where, cJSON **root, struct error *err)
{
    size_t at;
    const char *end = NULL, *fault = bad_byte(text, length, &at);
    *root = NULL;
    if (fault != NULL) return fail_at(err, where, text, at, fault);
    *root = cJSON_ParseWithLengthOpts(text, length, &end, 0);
    /* cJSON says where it stopped, which is the place of the error. */
    at = end == NULL ? 0 : (size_t)(end - text);
    if (at > length) at = length;
    if (*root == NULL) return fail_at(err, where, text, at, why_not(text, length, at));
    while (at < length && strchr(" \t\r\n", text[at]) != NULL) at++;
    const enum error_code e = at < length ? fail_at(err, where, text, at, "has something after its end")
                                          : refuse_duplicates(*root, where, err);
    if (e != OK) {
        cJSON_Delete(*root);
        *root = NULL;
    }
    return e;
}

enum error_code json_read(const char *path, cJSON **root, struct error *err)
{
    char *text;
    size_t length;
    *root = NULL;
    enum error_code e = file_read_all(path, JSON_FILE_LIMIT, &text, &length, err);
    if (e != OK) return e;
    e = length == 0 ? fail(err, ERR_FORMAT, "%s: is empty", printable_path(path).text)
                    : json_parse(text, length, printable_path(path).text, root, err);
    free(text);
    return e;
}

/* ---- getters ----------------------------------------------------------------------------------------------------- */

bool json_whole(const cJSON *value, int64_t *out)
{
    /* From 2^53 on doubles leave out whole numbers, so a file's number could have become another. */
    const double limit = 0x1p53;
    if (!cJSON_IsNumber(value)) return false;
    const double x = value->valuedouble;
    if (!(x > -limit && x < limit) || x != floor(x)) return false;
    *out = (int64_t)x;
    return true;
}

/* A key with null counts as absent. */
bool json_has(const cJSON *object, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    return v != NULL && !cJSON_IsNull(v);
}

/* Describe a value of the wrong type, for messages. */
static struct printable found(const cJSON *v)
{
    struct printable s = { "missing" };
    if (cJSON_IsString(v)) snprintf(s.text, sizeof s.text, "\"%.60s\"", printable(v->valuestring).text);
    else if (cJSON_IsNumber(v)) snprintf(s.text, sizeof s.text, "%.17g", v->valuedouble);
    else if (cJSON_IsBool(v)) snprintf(s.text, sizeof s.text, "%s", cJSON_IsTrue(v) ? "true" : "false");
    else if (cJSON_IsNull(v)) snprintf(s.text, sizeof s.text, "null");
    else if (cJSON_IsArray(v)) snprintf(s.text, sizeof s.text, "a list");
    else if (cJSON_IsObject(v)) snprintf(s.text, sizeof s.text, "an object");
    return s;
}

static enum error_code fail_type(struct error *err, const char *where, const char *key, const cJSON *v,
                                 const char *want)
{
    return fail(err, ERR_FORMAT, "%s: \"%s\" is %s; it must be %s", where, printable(key).text, found(v).text, want);
}

/* The getters below leave *out as it was where the value is missing or has another type. */
enum error_code json_int(const cJSON *object, const char *where, const char *key, int64_t min, int64_t max,
                         int64_t *out, struct error *err)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    int64_t x;
    /* The value is stored only if it is in range. */
    if (json_whole(v, &x) && x >= min && x <= max) {
        *out = x;
        return OK;
    }
    char want[100];
    snprintf(want, sizeof want, "a whole number from %lld to %lld", (long long)min, (long long)max);
    return fail_type(err, where, key, v, want);
}

enum error_code json_double(const cJSON *object, const char *where, const char *key, double *out, struct error *err)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(v) || !isfinite(v->valuedouble)) return fail_type(err, where, key, v, "a finite number");
    *out = v->valuedouble;
    return OK;
}

enum error_code json_bool(const cJSON *object, const char *where, const char *key, bool *out, struct error *err)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsBool(v)) return fail_type(err, where, key, v, "true or false");
    *out = cJSON_IsTrue(v);
    return OK;
}

enum error_code json_string(const cJSON *object, const char *where, const char *key, const char **out,
                            struct error *err)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsString(v)) return fail_type(err, where, key, v, "a string");
    *out = v->valuestring;
    return OK;
}

enum error_code json_object(const cJSON *object, const char *where, const char *key, const cJSON **out,
                            struct error *err)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsObject(v)) return fail_type(err, where, key, v, "an object");
    *out = v;
    return OK;
}

enum error_code json_array(const cJSON *object, const char *where, const char *key, const cJSON **out,
                           struct error *err)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsArray(v)) return fail_type(err, where, key, v, "a list");
    *out = v;
    return OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The value of a member, by its conversion, from the arguments. */
static cJSON *next_value(const char *conversion, va_list *args)
{
    if (strncmp(conversion, "%s", 2) == 0) return cJSON_CreateString(va_arg(*args, const char *));
    if (strncmp(conversion, "%hhd", 4) == 0) return cJSON_CreateBool(va_arg(*args, int));
    if (strncmp(conversion, "%d", 2) == 0) return cJSON_CreateNumber(va_arg(*args, int));
    if (strncmp(conversion, "%u", 2) == 0) return cJSON_CreateNumber(va_arg(*args, unsigned));
    assert(strncmp(conversion, "%g", 2) == 0);
    return cJSON_CreateNumber(va_arg(*args, double));
}

cJSON *json_add(cJSON *object, const char *format, ...)
{
    va_list args;
    char key[80];
    va_start(args, format);
    for (const char *at = format; *at;) {
        const int length = (int)strcspn(at, " ");
        const char *const conversion = at + length + 1;
        assert(at[length] == ' ' && length < (int)sizeof key);
        snprintf(key, sizeof key, "%.*s", length, at);
        cJSON *value = next_value(conversion, &args);
        if (!cJSON_AddItemToObject(object, key, value)) cJSON_Delete(value);
        at = conversion + strcspn(conversion, " ");
        at += *at == ' ';
    }
    va_end(args);
    return object;
}

cJSON *json_row(cJSON *array)
{
    cJSON *object = cJSON_CreateObject();
    if (cJSON_AddItemToArray(array, object)) return object;
    cJSON_Delete(object);
    return NULL;
}

/* cJSON writes 15 digits where they give nearly the same number. */
static bool is_exact(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.15g", x);
    return !isfinite(x) || strtod(text, NULL) == x;
}

/* Most trees need no copy, because 15 digits say their numbers exactly. */
static bool all_exact(const cJSON *value)
{
    if (cJSON_IsNumber(value)) return is_exact(value->valuedouble);
    for (const cJSON *v = value->child; v; v = v->next)
        if (!all_exact(v)) return false;
    return true;
}

/* Replace numbers by their digits.  @return false without memory. */
static bool spell_out(cJSON *value)
{
    bool ok = true;
    for (cJSON *v = value->child; v; v = v->next) ok = spell_out(v) && ok;
    if (!cJSON_IsNumber(value) || is_exact(value->valuedouble)) return ok;
    enum { DIGITS = 32 };
    char *text = cJSON_malloc(DIGITS);
    if (text == NULL) return false;
    snprintf(text, DIGITS, "%.16g", value->valuedouble);
    if (strtod(text, NULL) != value->valuedouble) snprintf(text, DIGITS, "%.17g", value->valuedouble);
    value->type = cJSON_Raw | (value->type & ~0xFF);    /* the flags of memory that is not the value's own */
    value->valuestring = text;
    return true;
}

/* @return text for cJSON_free, or NULL without memory.  Only a copy of the tree is changed. */
char *json_text(const cJSON *root, bool formatted)
{
    char *(*const print)(const cJSON *) = formatted ? cJSON_Print : cJSON_PrintUnformatted;
    if (root == NULL || all_exact(root)) return print(root);
    cJSON *copy = cJSON_Duplicate(root, true);
    char *text = copy && spell_out(copy) ? print(copy) : NULL;
    cJSON_Delete(copy);
    return text;
}

/* The file ends with a line end, and replaces an older one as a whole. */
enum error_code json_write(const char *path, const cJSON *root, struct error *err)
{
    struct output file;
    char *text = json_text(root, true);
    if (text == NULL) return fail(err, ERR_MEMORY, "%s: no memory to write it", printable_path(path).text);
    if (strcmp(path, "-") == 0) fflush(stdout);         /* keeps the order with earlier prints */
    enum error_code e = output_create(&file, path, err);
    const size_t n = strlen(text);
    if (e == OK) e = output_write(&file, text, n, 0, err);
    if (e == OK) e = output_write(&file, "\n", 1, (int64_t)n, err);
    if (e == OK) e = output_commit(&file, err);
    cJSON_free(text);
    return e;
}

enum error_code json_finish(const char *path, cJSON *root, struct error *err)
{
    const enum error_code e = json_write(path, root, err);
    cJSON_Delete(root);
    return e;
}
