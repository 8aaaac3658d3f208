/* chat_calls.c -- filters, functions and tests of chat templates.  chat_values.c calls.  Errors: as there. */
#include "emulated_devices/serve/http/chat_parts.h"
#include "ref/io/json.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- filters, functions and tests -------------------------------------------------------------------------------- */

static bool is_of(char c, const char *set) { return set ? strchr(set, c) != NULL : isspace((unsigned char)c) != 0; }

static cJSON *strip(struct chat_run *run, const char *text, const char *set, bool left, bool right)
{
    size_t n = strlen(text);
    while (left && n > 0 && is_of(*text, set)) text++, n--;
    while (right && n > 0 && is_of(text[n - 1], set)) n--;
    return chat_text(run, text, n);
}

static cJSON *in_case(struct chat_run *run, const char *text, utf8proc_int32_t (*turn)(utf8proc_int32_t))
{
    const size_t bytes = strlen(text);
    char *const turned = malloc(4 * bytes + 1);
    size_t n = 0, at = 0;
    if (turned == NULL) return chat_no_memory(run);
    while (at < bytes) {
        utf8proc_int32_t letter;
        const utf8proc_ssize_t took = utf8proc_iterate((const utf8proc_uint8_t *)text + at, -1, &letter);
        if (took <= 0) break;
        n += (size_t)utf8proc_encode_char(turn(letter), (utf8proc_uint8_t *)turned + n);
        at += (size_t)took;
    }
    cJSON *const value = chat_text(run, turned, n);
    free(turned);
    return value;
}

static cJSON *split_text(struct chat_run *run, const char *text, const char *by)
{
    cJSON *const list = chat_made(run, cJSON_CreateArray());
    if (list == NULL || by == NULL || *by == '\0') return chat_fail(run, "split needs a text that is not empty");
    for (const char *next; ; text = next + strlen(by)) {
        next = strstr(text, by);
        char *const piece = strndup(text, next ? (size_t)(next - text) : strlen(text));
        cJSON_AddItemToArray(list, cJSON_CreateString(piece ? piece : ""));
        free(piece);
        if (++run->steps > CHAT_STEPS) return chat_fail(run, "the template takes too many steps");
        if (next == NULL) return list;
    }
}

/* json.dumps of Python, without escapes of letters. */
static void write_json(FILE *to, const cJSON *x)
{
    const cJSON *one;
    const bool list = cJSON_IsArray(x);
    if (!list && !cJSON_IsObject(x)) {
        char *const text = json_text(x, false);
        fputs(text ? text : "null", to);
        cJSON_free(text);
        return;
    }
    fputc(list ? '[' : '{', to);
    cJSON_ArrayForEach(one, x) {
        cJSON *const key = list ? NULL : cJSON_CreateString(one->string);
        if (one != x->child) fputs(", ", to);
        if (key) write_json(to, key), fputs(": ", to);
        cJSON_Delete(key);
        write_json(to, one);
    }
    fputc(list ? ']' : '}', to);
}

static cJSON *to_json(struct chat_run *run, const cJSON *x)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *const to = open_memstream(&text, &bytes);
    if (to == NULL) return chat_no_memory(run);
    write_json(to, x);
    cJSON *const value = fclose(to) == 0 ? chat_text(run, text, bytes) : chat_no_memory(run);
    free(text);
    return value;
}

static cJSON *join_list(struct chat_run *run, const cJSON *list, const char *by)
{
    char *text = NULL;
    size_t bytes = 0;
    const cJSON *one;
    FILE *const to = open_memstream(&text, &bytes);
    if (to == NULL) return chat_no_memory(run);
    cJSON_ArrayForEach(one, list) {
        if (one != list->child) fputs(by, to);
        if (cJSON_IsString(one)) fputs(one->valuestring, to);
        else chat_fail(run, "join is of texts");
    }
    cJSON *const value = fclose(to) == 0 ? chat_text(run, text, bytes) : chat_no_memory(run);
    free(text);
    return run->code ? NULL : value;
}

/* Characters of a text count, not bytes. */
static double length_of(const cJSON *x)
{
    double n = 0;
    if (!cJSON_IsString(x)) return cJSON_GetArraySize(x);
    for (const char *c = x->valuestring; *c; c++) n += ((unsigned char)*c & 0xC0) != 0x80;
    return n;
}

static const char *const filters[] = { "trim", "upper", "lower", "length", "count", "first", "last", "join", "default",
                                       "string", "tojson", NULL };
static const char *const methods[] = { "strip", "lstrip", "rstrip", "startswith", "endswith", "split", "upper", "lower",
                                       "get", NULL };

static bool is_listed(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0) list++;
    return *list != NULL;
}

static const char *text_of_value(const cJSON *x) { return cJSON_IsString(x) ? x->valuestring : NULL; }

cJSON *chat_filter(struct chat_run *run, const char *name, cJSON *x, const struct arguments *a)
{
    const char *const text = text_of_value(x), *const by = a->count > 0 ? text_of_value(a->at[0]) : "";
    if (!is_listed(filters, name)) return chat_fail(run, "the filter %s is not supported", name);
    if (run->dry) return NULL;
    if (strcmp(name, "default") == 0) return x == NULL || (a->count > 1 && !chat_is_true(x)) ? a->at[0] : x;
    if (strcmp(name, "tojson") == 0 && x) return to_json(run, x);
    if (strcmp(name, "string") == 0 && text) return x;
    if (strcmp(name, "length") == 0 || strcmp(name, "count") == 0)
        return x && (text || cJSON_IsArray(x) || cJSON_IsObject(x)) ? chat_number(run, length_of(x))
                                                                   : chat_fail(run, "%s of no text or list", name);
    if (strcmp(name, "first") == 0 && cJSON_IsArray(x)) return x->child;
    if (strcmp(name, "last") == 0 && cJSON_IsArray(x)) return cJSON_GetArrayItem(x, cJSON_GetArraySize(x) - 1);
    if (strcmp(name, "join") == 0 && cJSON_IsArray(x)) return join_list(run, x, by ? by : "");
    if (text == NULL) return chat_fail(run, "the filter %s gets no text", name);
    if (strcmp(name, "trim") == 0) return strip(run, text, a->count > 0 ? by : NULL, true, true);
    if (strcmp(name, "upper") == 0) return in_case(run, text, utf8proc_toupper);
    if (strcmp(name, "lower") == 0) return in_case(run, text, utf8proc_tolower);
    return chat_fail(run, "the filter %s gets a text", name);
}

cJSON *chat_method(struct chat_run *run, const char *name, cJSON *x, const struct arguments *a)
{
    const char *const text = text_of_value(x), *const by = a->count > 0 ? text_of_value(a->at[0]) : NULL;
    const size_t n = text ? strlen(text) : 0, k = by ? strlen(by) : 0;
    if (!is_listed(methods, name)) return chat_fail(run, "the function .%s() is not supported", name);
    if (run->dry) return NULL;
    if (strcmp(name, "get") == 0 && cJSON_IsObject(x) && by) {
        cJSON *const found = cJSON_GetObjectItemCaseSensitive(x, by);
        return found ? found : a->count > 1 ? a->at[1] : chat_made(run, cJSON_CreateNull());
    }
    if (text == NULL) return chat_fail(run, "%s() is of no text", name);
    if (strcmp(name, "strip") == 0) return strip(run, text, by, true, true);
    if (strcmp(name, "lstrip") == 0) return strip(run, text, by, true, false);
    if (strcmp(name, "rstrip") == 0) return strip(run, text, by, false, true);
    if (strcmp(name, "upper") == 0) return in_case(run, text, utf8proc_toupper);
    if (strcmp(name, "lower") == 0) return in_case(run, text, utf8proc_tolower);
    if (by == NULL) return chat_fail(run, "%s() needs a text", name);
    if (strcmp(name, "startswith") == 0) return chat_truth(run, strncmp(text, by, k) == 0);
    if (strcmp(name, "endswith") == 0) return chat_truth(run, n >= k && strcmp(text + n - k, by) == 0);
    return split_text(run, text, by);
}

static cJSON *make_range(struct chat_run *run, const struct arguments *a)
{
    const double from = a->count > 1 && a->at[0] ? a->at[0]->valuedouble : 0;
    const cJSON *const last = a->count > 0 ? a->at[a->count > 1] : NULL;
    cJSON *const list = chat_made(run, cJSON_CreateArray());
    if (!cJSON_IsNumber(last) || last->valuedouble - from > 65536) return chat_fail(run, "range() of too many numbers");
    for (double i = from; i < last->valuedouble && list; i++) cJSON_AddItemToArray(list, cJSON_CreateNumber(i));
    return list;
}

cJSON *chat_function(struct chat_run *run, const char *name, const struct arguments *a)
{
    if (strcmp(name, "range") == 0) return run->dry ? NULL : make_range(run, a);
    if (strcmp(name, "raise_exception") == 0)
        return run->dry ? NULL : chat_fail(run, "%s", a->count > 0 && text_of_value(a->at[0])
                                           ? a->at[0]->valuestring : "the template refuses these messages");
    if (strcmp(name, "namespace") != 0) return chat_fail(run, "the function %s is not supported", name);
    cJSON *const space = chat_made(run, cJSON_CreateObject());
    for (int i = 0; i < a->count && space; i++)
        cJSON_AddItemToObject(space, a->name[i], a->at[i] ? cJSON_Duplicate(a->at[i], true) : cJSON_CreateNull());
    return space;
}

cJSON *chat_test(struct chat_run *run, const char *name, const cJSON *x)
{
    const struct { const char *name; bool is; } tests[] = {
        { "defined", x != NULL }, { "undefined", x == NULL }, { "none", x && cJSON_IsNull(x) },
        { "string", x && cJSON_IsString(x) }, { "mapping", x && cJSON_IsObject(x) },
        { "iterable", x && (cJSON_IsString(x) || cJSON_IsArray(x) || cJSON_IsObject(x)) },
        { "sequence", x && (cJSON_IsString(x) || cJSON_IsArray(x) || cJSON_IsObject(x)) },
        { "number", x && cJSON_IsNumber(x) }, { "boolean", x && cJSON_IsBool(x) },
        { "true", x && cJSON_IsTrue(x) }, { "false", x && cJSON_IsFalse(x) },
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strcmp(name, tests[i].name) == 0) return chat_truth(run, tests[i].is);
    return chat_fail(run, "the test %s is not supported", name);
}
