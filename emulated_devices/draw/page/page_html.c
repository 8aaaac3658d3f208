/* page_html.c -- writes films as one file of HTML: page.css, the scripts and the data.  run/page.c, cli/page.c and
 * commands that draw call.  Errors: ERR_FILE, ERR_MEMORY; after an error the file is as it was.  No text of a film can
 * end the element of the data, for the data have no '<'. */
#include "emulated_devices/draw/page/page_html.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- data -------------------------------------------------------------------------------------------------------- */

/* Write JSON so that no HTML is in it: inside its texts '<' may also be written by its number. */
static void put_escaped(FILE *to, const char *json)
{
    for (; *json; json++) {
        if (*json == '<') fputs("\\u003c", to);
        else fputc(*json, to);
    }
}

static void put_json(FILE *to, cJSON *json, bool *good)
{
    char *const text = json ? json_text(json, false) : NULL;
    *good = *good && text;
    if (text) put_escaped(to, text);
    cJSON_free(text);
    cJSON_Delete(json);
}

/* Each film behind the first one is compared with the first. */
static void put_words(FILE *to, struct film *const films[], int count, bool *good)
{
    cJSON *const words = cJSON_CreateArray();
    for (int i = 1; i < count; i++) {
        char *const text = film_differ(films[0], films[i]);
        *good = *good && text;
        if (text) cJSON_AddItemToArray(words, cJSON_CreateString(text));
        free(text);
    }
    put_json(to, words, good);
}

static bool put_data(FILE *to, struct film *const films[], int count)
{
    bool good = true;
    fputs("{\"films\":[", to);
    for (int i = 0; i < count; i++) {
        if (i > 0) fputs(",\n", to);
        put_json(to, film_json(films[i]), &good);
    }
    fputs("],\"words\":", to);
    put_words(to, films, count, &good);
    fputs("}", to);
    return good;
}

/* End a text in memory.  @return the text, for free(); NULL if something of it is missing. */
static char *memory_text(FILE *file, char **text, bool good)
{
    good = !ferror(file) && good;
    if (fclose(file) == 0 && good) return *text;
    free(*text);
    return *text = NULL;
}

char *page_data(struct film *const films[], int count)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *const f = open_memstream(&text, &bytes);
    return f ? memory_text(f, &text, put_data(f, films, count)) : NULL;
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static bool is_style(const char *name)
{
    const size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".css") == 0;
}

static void put_texts(FILE *to, bool style)
{
    for (int i = 0; page_texts[i]; i += 2)
        if (is_style(page_texts[i]) == style) fputs(page_texts[i + 1], to);
}

static bool put_page(FILE *to, struct film *const films[], int count)
{
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
          "script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'\">\n"
          "<title>Orrery</title>\n<style>\n", to);
    put_texts(to, true);
    fputs("</style>\n</head>\n<body>\n<main id=\"page\"><noscript>This page needs JavaScript: its script is inside the "
          "file, and the page asks nothing of any network.</noscript></main>\n<script type=\"application/json\" "
          "id=\"data\">", to);
    const bool good = put_data(to, films, count);
    fputs("</script>\n<script>\n", to);
    put_texts(to, false);
    fputs("</script>\n</body>\n</html>\n", to);
    return good;
}

enum error_code page_html_text(char **text, size_t *bytes, struct film *const films[], int count, struct error *err)
{
    *text = NULL;
    FILE *const f = open_memstream(text, bytes);
    if (f && memory_text(f, text, put_page(f, films, count))) return OK;
    return fail(err, ERR_MEMORY, "no memory for a page");
}

enum error_code page_html_write(const char *path, struct film *const films[], int count, struct error *err)
{
    char *text;
    size_t bytes = 0;
    enum error_code e = page_html_text(&text, &bytes, films, count, err);
    if (!e) e = file_write_all(path, text, bytes, err);
    free(text);
    return e;
}
