/* toml.c -- reads a small part of TOML into the tree of yaml.h.
 *
 * emulated_devices/run/from/torchtitan.c calls toml_parse.  Errors are ERR_FORMAT with the line, and ERR_MEMORY.  The
 * caller frees the tree with yml_free.
 */
#include "ref/io/toml.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { TOML_DEPTH = 4, TOML_KEY = 64 };         /* lists inside each other; bytes of a key */

struct toml {
    const char *at, *end, *where;
    int line;
    struct yaml *root, *table;          /* the mapping of the present [table] */
};

static enum error_code toml_refuse(const struct toml *toml, const char *what, struct error *err)
{
    return fail(err, ERR_FORMAT, "%s: line %d: %s", printable_path(toml->where).text, toml->line, what);
}

static enum error_code toml_no_memory(const struct toml *toml, struct error *err)
{
    return fail(err, ERR_MEMORY, "%s: no memory to read it", printable_path(toml->where).text);
}

/* The next byte; a byte 0 at the end. */
static char toml_next(const struct toml *toml) { return toml->at < toml->end ? *toml->at : '\0'; }

static void toml_blanks(struct toml *toml)
{
    while (toml_next(toml) == ' ' || toml_next(toml) == '\t' || toml_next(toml) == '\r') toml->at++;
}

static void toml_comment(struct toml *toml)
{
    if (toml_next(toml) != '#') return;
    while (toml->at < toml->end && *toml->at != '\n') toml->at++;
}

/* Blanks, comments and line ends. */
static void toml_lines(struct toml *toml)
{
    for (;;) {
        toml_blanks(toml);
        toml_comment(toml);
        if (toml_next(toml) != '\n') return;
        toml->line++, toml->at++;
    }
}

/* After a value or a table nothing but a comment may stand on the line. */
static enum error_code toml_line_end(struct toml *toml, struct error *err)
{
    toml_blanks(toml);
    toml_comment(toml);
    return toml->at == toml->end || *toml->at == '\n' ? OK : toml_refuse(toml, "the line goes on after its end", err);
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

/* A new node at the end of its parent's.  @return NULL if there is no memory; then the text is freed. */
static struct yaml *toml_add(struct yaml *parent, enum yaml_kind kind, const char *key, char *text, int line)
{
    struct yaml *const y = calloc(1, sizeof *y);
    char *const name = key ? strdup(key) : NULL;
    if (y == NULL || (key && name == NULL)) {
        free(y), free(name), free(text);
        return NULL;
    }
    *y = (struct yaml){ .kind = kind, .line = line, .key = name, .text = text };
    struct yaml **end = &parent->child;
    while (*end) end = &(*end)->next;
    *end = y;
    return y;
}

static enum error_code toml_read_key(struct toml *toml, char key[TOML_KEY], struct error *err)
{
    size_t n = 0;
    for (char c = toml_next(toml); isalnum((unsigned char)c) || c == '_' || c == '-'; c = toml_next(toml)) {
        if (n + 1 == TOML_KEY) return toml_refuse(toml, "a key is too long", err);
        key[n++] = c;
        toml->at++;
    }
    key[n] = '\0';
    return n ? OK : toml_refuse(toml, "a key must be a plain word, without quotes", err);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A text in quotes, on one line. */
static enum error_code toml_quoted(struct toml *toml, char **text, struct error *err)
{
    static const char from[] = "\"\\nt/", to[] = "\"\\\n\t/";
    const char quote = *toml->at++;
    const size_t left = (size_t)(toml->end - toml->at);
    if (left >= 2 && toml->at[0] == quote && toml->at[1] == quote)
        return toml_refuse(toml, "a text of several lines is not read", err);
    const char *const line = memchr(toml->at, '\n', left);
    char *const out = malloc((line ? (size_t)(line - toml->at) : left) + 1);
    size_t n = 0;
    if (out == NULL) return toml_no_memory(toml, err);
    while (toml->at < toml->end && *toml->at != quote && *toml->at != '\n') {
        char c = *toml->at++;
        const char next = toml_next(toml);
        if (quote == '"' && c == '\\') {
            const char *const known = next ? strchr(from, next) : NULL;
            if (known == NULL) {
                free(out);
                return toml_refuse(toml, "a text has an escape that is not read", err);
            }
            c = to[known - from], toml->at++;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    if (toml_next(toml) == quote) {
        toml->at++, *text = out;
        return OK;
    }
    free(out);
    return toml_refuse(toml, "a quote is not closed on its line", err);
}

/* A number, true or false: its text without the underscores between digits. */
static enum error_code toml_plain(struct toml *toml, char **text, struct error *err)
{
    char word[TOML_KEY];
    size_t n = 0;
    for (char c = toml_next(toml); isalnum((unsigned char)c) || (c && strchr("+-._", c)); c = toml_next(toml)) {
        if (n + 1 == sizeof word) return toml_refuse(toml, "a number is too long", err);
        if (c != '_') word[n++] = c;
        toml->at++;
    }
    word[n] = '\0';
    char *end = word;
    const bool truth = strcmp(word, "true") == 0 || strcmp(word, "false") == 0;
    if (!truth && n > 0) (void)strtod(word, &end);
    if (n == 0 || (!truth && *end != '\0'))
        return toml_refuse(toml, "a value must be a text in quotes, a number, true, false, or a list of them", err);
    *text = strdup(word);
    return *text ? OK : toml_no_memory(toml, err);
}

static enum error_code toml_value(struct toml *toml, struct yaml *parent, const char *key, int depth,
                                  struct error *err);

/* A list; line ends and comments may stand between its elements. */
static enum error_code toml_list(struct toml *toml, struct yaml *parent, const char *key, int depth, struct error *err)
{
    if (depth == TOML_DEPTH) return toml_refuse(toml, "lists are nested too deeply", err);
    struct yaml *const list = toml_add(parent, YAML_SEQUENCE, key, NULL, toml->line);
    if (list == NULL) return toml_no_memory(toml, err);
    toml->at++;
    for (toml_lines(toml); toml_next(toml) != ']'; toml_lines(toml)) {
        if (toml->at == toml->end) return toml_refuse(toml, "a list is not closed", err);
        const enum error_code e = toml_value(toml, list, NULL, depth + 1, err);
        if (e) return e;
        toml_lines(toml);
        if (toml_next(toml) == ',') toml->at++;
        else if (toml_next(toml) != ']') return toml_refuse(toml, "a list has no comma between its values", err);
    }
    toml->at++;
    return OK;
}

static enum error_code toml_value(struct toml *toml, struct yaml *parent, const char *key, int depth, struct error *err)
{
    char *text = NULL;
    const char c = toml_next(toml);
    if (c == '[') return toml_list(toml, parent, key, depth, err);
    const int line = toml->line;
    const enum error_code e = c == '"' || c == '\'' ? toml_quoted(toml, &text, err) : toml_plain(toml, &text, err);
    if (e) return e;
    return toml_add(parent, YAML_TEXT, key, text, line) ? OK : toml_no_memory(toml, err);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* [table] or [table.in.it]: the mapping for the lines that follow. */
static enum error_code toml_table(struct toml *toml, struct error *err)
{
    char key[TOML_KEY];
    struct yaml *table = toml->root;
    bool made = false;
    toml->at++;
    if (toml_next(toml) == '[') return toml_refuse(toml, "a list of tables is not read", err);
    for (int depth = 0;; depth++) {
        toml_blanks(toml);
        const enum error_code e = toml_read_key(toml, key, err);
        if (e) return e;
        if (depth == TOML_DEPTH) return toml_refuse(toml, "tables are nested too deeply", err);
        struct yaml *next = (struct yaml *)yml_find(table, key);
        if (next && next->kind != YAML_MAPPING) return toml_refuse(toml, "a table has the name of a value", err);
        made = next == NULL || next->child == NULL;
        if (next == NULL) next = toml_add(table, YAML_MAPPING, key, NULL, toml->line);
        if (next == NULL) return toml_no_memory(toml, err);
        table = next;
        toml_blanks(toml);
        if (toml_next(toml) != '.') break;
        toml->at++;
    }
    if (toml_next(toml) != ']') return toml_refuse(toml, "a table's name is not closed: ]", err);
    toml->at++;
    /* A table may follow the tables in it, but may not stand there twice with values. */
    for (const struct yaml *y = table->child; y && !made; y = y->next)
        if (y->kind != YAML_MAPPING) return toml_refuse(toml, "a table stands there twice", err);
    toml->table = table;
    return toml_line_end(toml, err);
}

static enum error_code toml_assign(struct toml *toml, struct error *err)
{
    char key[TOML_KEY];
    enum error_code e = toml_read_key(toml, key, err);
    if (e) return e;
    toml_blanks(toml);
    if (toml_next(toml) == '.') return toml_refuse(toml, "a key with dots is not read; a [table] says the same", err);
    if (toml_next(toml) != '=') return toml_refuse(toml, "there must be lines of the form key = value", err);
    toml->at++;
    toml_blanks(toml);
    if (toml_next(toml) == '{') return toml_refuse(toml, "a table inside a line is not read; a [table] says the same",
                                                   err);
    if (yml_find(toml->table, key))
        return fail(err, ERR_FORMAT, "%s: line %d: %s stands there twice", printable_path(toml->where).text, toml->line,
                    key);
    e = toml_value(toml, toml->table, key, 0, err);
    return e ? e : toml_line_end(toml, err);
}

enum error_code toml_parse(const char *text, size_t length, const char *where, struct yaml **root, struct error *err)
{
    struct toml t = { .at = text, .end = text + length, .where = where, .line = 1 };
    enum error_code e = OK;
    *root = NULL;
    t.root = t.table = calloc(1, sizeof *t.root);
    if (t.root == NULL) return toml_no_memory(&t, err);
    t.root->kind = YAML_MAPPING;
    for (toml_lines(&t); !e && t.at < t.end; toml_lines(&t))
        e = *t.at == '[' ? toml_table(&t, err) : toml_assign(&t, err);
    if (e) yml_free(t.root);
    else *root = t.root;
    return e;
}
