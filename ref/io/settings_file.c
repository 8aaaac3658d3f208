/* settings_file.c -- settings out of a file: one of settings, or what a run has written: its JSON, its log, or a page
 * that has its settings.
 *
 * settings.c calls settings_read.  Errors are ERR_FORMAT, ERR_FILE and ERR_MEMORY; the caller frees the tree.
 */
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/settings.h"
#include <stdlib.h>
#include <string.h>

/* The strings of "settings" as a file of settings.  @return NULL if there is no memory, or one of them is no string. */
static char *settings_file_text_of(const cJSON *settings)
{
    char *text = NULL;
    size_t bytes;
    bool strings = true;
    const cJSON *x;
    FILE *f = open_memstream(&text, &bytes);
    if (f == NULL) return NULL;
    cJSON_ArrayForEach(x, settings) {
        strings = strings && cJSON_IsString(x);
        if (!strings) break;
        yml_print_text(f, x->string);
        fputs(": ", f);
        yml_print_text(f, x->valuestring);
        fputc('\n', f);
    }
    if (fclose(f) == 0 && strings) return text;
    free(text);
    return NULL;
}

/* A log has a document on each line; its first has the settings.  @return NULL if it is no document. */
static cJSON *document_of(char *text, size_t length)
{
    cJSON *root = NULL;
    char *end = memchr(text, '\n', length);
    if (end) {
        *end = '\0';
        const enum error_code e = json_parse(text, (size_t)(end - text), "a log", &root, NULL);
        *end = '\n';
        if (e == OK) return root;
    }
    return json_parse(text, length, "a result", &root, NULL) == OK ? root : NULL;
}

/* @param[out] found  whether it is the result of a run; then *root, or an error. */
static enum error_code from_result(char *text, size_t length, const char *path, bool *found, struct yaml **root,
                                   struct error *err)
{
    cJSON *result = document_of(text, length);
    const cJSON *settings = cJSON_GetObjectItemCaseSensitive(result, "settings");
    enum error_code e = OK;
    *found = cJSON_IsObject(settings);
    if (*found) {
        char *words = settings_file_text_of(settings);
        e = words ? yml_parse(words, strlen(words), path, root, err)
                  : fail(err, ERR_FORMAT, "%s: its settings cannot be read", printable_path(path).text);
        free(words);
    }
    cJSON_Delete(result);
    return e;
}

/* HTML's names of signs become the signs, in place. */
static void unescape(char *text)
{
    static const char *const name[] = { "&lt;", "&gt;", "&quot;", "&amp;" };
    char *to = text;
    for (const char *c = text; *c;) {
        int i = 0;
        while (i < 4 && strncmp(c, name[i], strlen(name[i])) != 0) i++;
        *to++ = i < 4 ? "<>\"&"[i] : *c;
        c += i < 4 ? strlen(name[i]) : 1;
    }
    *to = '\0';
}

/* A page of a run has its settings in a <pre> with a known name; a page about several runs is refused. */
static enum error_code from_page(char *text, const char *path, struct yaml **root, struct error *err)
{
    const struct printable where = printable_path(path);
    char *begin = strstr(text, SETTINGS_ON_PAGE), *end = begin ? strstr(begin, "</pre>") : NULL;
    if (end == NULL) return fail(err, ERR_FORMAT, "%s: is a page without the settings of a run", where.text);
    if (strstr(end, SETTINGS_ON_PAGE))
        return fail(err, ERR_FORMAT, "%s: is a page about several runs; take the JSON or the log of one", where.text);
    begin += strlen(SETTINGS_ON_PAGE);
    *end = '\0';
    unescape(begin);
    return yml_parse(begin, strlen(begin), path, root, err);
}

/* The first sign of the file tells what the file is: { a result or a log, < a page, any other settings. */
enum error_code settings_read(const char *path, struct yaml **root, struct error *err)
{
    char *text;
    size_t length;
    bool found = false;
    *root = NULL;
    enum error_code e = file_read_all(path, JSON_FILE_LIMIT, &text, &length, err);
    if (e) return e;
    if (strspn(text, " \t\r\n") == length) {
        free(text);
        return fail(err, ERR_FORMAT, "%s: is empty", printable_path(path).text);
    }
    if (text[0] == '{') e = from_result(text, length, path, &found, root, err);
    else if (text[0] == '<') found = true, e = from_page(text, path, root, err);
    if (!found && length > YAML_FILE_LIMIT)
        e = fail(err, ERR_FORMAT, "%s: has %zu bytes; a file of settings has at most %d", printable_path(path).text,
                 length, YAML_FILE_LIMIT);
    else if (!found) e = yml_parse(text, length, path, root, err);
    free(text);
    return e;
}
