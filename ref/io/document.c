/* document.c -- collects what a command prints, for --json: tables, data and lines of text.
 *
 * Subcommands call document_open at their start and document_close at their end; table.c adds rows.  Errors are
 * ERR_FILE and ERR_MEMORY.
 */
#define _DEFAULT_SOURCE
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include "ref/version.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    bool open, quiet;
    const char *path;                   /* NULL: nothing is written */
    char command[100];                  /* "show schedule" */
    int before;                         /* the standard output; -1: it was not replaced */
    FILE *kept;                         /* what was printed since */
    cJSON *root, *tables, *table, *row, *data;
} now = { .before = -1 };

cJSON *document_start(const char *format)
{
    cJSON *root = json_add(cJSON_CreateObject(), "format %s version %d orrery %s", format, JSON_SCHEMA, ORRERY_VERSION);
    return root;
}

static bool only_document(void) { return now.path && strcmp(now.path, "-") == 0; }

bool document_is_quiet(void) { return now.open && (now.quiet || only_document()); }

/* ---- the standard output ----------------------------------------------------------------------------------------- */

/* Text that is shown at the end still fits the terminal. */
static void remember_terminal(void)
{
    char columns[16];
    snprintf(columns, sizeof columns, "%d", document_is_quiet() ? 0 : terminal_columns(stdout));
    setenv(TERMINAL_VARIABLE, columns, 1);
}

/* The standard output goes into a file without a name until the document is closed. */
static enum error_code keep_output(struct error *err)
{
    remember_terminal();
    fflush(stdout);
    now.kept = tmpfile();
    now.before = now.kept ? dup(STDOUT_FILENO) : -1;
    if (now.before >= 0 && dup2(fileno(now.kept), STDOUT_FILENO) >= 0) return OK;
    return fail(err, ERR_FILE, "--json: a file in %s: cannot be made: %s", temporary_folder(), strerror(errno));
}

static void document_give_back(void)
{
    fflush(stdout);
    if (now.before < 0) return;
    dup2(now.before, STDOUT_FILENO);
    close(now.before);
    now.before = -1;
}

void document_verdict(const char *line)
{
    if (now.before >= 0 && !only_document()) dprintf(now.before, "%s\n", line);
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

/* The path is tried at once, so that a wrong one is found before the work. */
enum error_code document_open(const char *command, int argc, char *const argv[], const char *path, bool quiet,
                              struct error *err)
{
    /* A process has one document; without a path nothing is kept unless the command is quiet. */
    if (now.open || (path == NULL && !quiet)) return OK;
    char format[100];
    now.open = true, now.quiet = quiet, now.path = path;
    snprintf(now.command, sizeof now.command, "%s", command);
    if (path) {
        snprintf(format, sizeof format, "orrery %s", command);
        now.root = document_start(format);
        cJSON *words = cJSON_AddArrayToObject(now.root, "words");
        for (int i = 0; i < argc; i++) cJSON_AddItemToArray(words, cJSON_CreateString(printable_path(argv[i]).text));
        now.tables = cJSON_CreateObject(), now.data = cJSON_CreateObject();
    }
    const enum error_code e = keep_output(err);
    return !e && path && strcmp(path, "-") != 0 ? fail_about(err, output_probe(path, err), "--json") : e;
}

static void document_forget(void)
{
    if (now.kept) fclose(now.kept);
    cJSON_Delete(now.root), cJSON_Delete(now.tables), cJSON_Delete(now.data);
    memset(&now, 0, sizeof now);
    now.before = -1;
}

void document_leave(void)
{
    if (!now.open) return;
    document_give_back();
    unsetenv(TERMINAL_VARIABLE);
    document_forget();
}

void document_leave_to(const char *command)
{
    const size_t n = strcspn(now.command, " ");
    if (now.open && strlen(command) == n && strncmp(now.command, command, n) == 0) document_leave();
}

/* Cut colours out of a line: a document is for programs. */
static void remove_colours(char *line)
{
    char *to = line;
    for (const char *c = line; *c; c++) {
        if (*c == '\033' && c[1] == '[') {
            c += strcspn(c, "m");
            if (*c == '\0') break;
        } else *to++ = *c;
    }
    *to = '\0';
}

/* Each line that was printed becomes a string of the document, and is shown unless the document is all that is
 * wanted. */
static void show_kept(cJSON *text)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    rewind(now.kept);
    while ((n = getline(&line, &room, now.kept)) >= 0) {
        if (!document_is_quiet()) fwrite(line, 1, (size_t)n, stdout);
        if (n > 0 && line[n - 1] == '\n') line[n - 1] = '\0';
        remove_colours(line);
        if (text) cJSON_AddItemToArray(text, cJSON_CreateString(line));
    }
    free(line);
}

/* The document is written also after an error of the command; `status` says how the command ended. */
enum error_code document_close(int status, struct error *err)
{
    if (!now.open) return OK;
    enum error_code e = OK;
    cJSON *text = now.root ? cJSON_CreateArray() : NULL;
    document_give_back();
    if (now.kept) show_kept(text);
    if (now.root) {
        json_add(now.root, "status %d", status);
        cJSON_AddItemToObject(now.root, "tables", now.tables);
        cJSON_AddItemToObject(now.root, "data", now.data);
        cJSON_AddItemToObject(now.root, "text", text);
        /* The root owns both from here on. */
        now.tables = now.data = NULL;
        e = json_write(now.path, now.root, err);
    }
    document_forget();
    return e;
}

/* ---- what is in it ----------------------------------------------------------------------------------------------- */

cJSON *document_data(void) { return now.data; }

bool document_table(const char *name)
{
    if (now.root == NULL) return false;
    now.table = cJSON_GetObjectItemCaseSensitive(now.tables, name);
    if (now.table == NULL) now.table = cJSON_AddArrayToObject(now.tables, name);
    now.row = NULL;
    return now.table != NULL;
}

cJSON *document_row(void)
{
    now.row = cJSON_CreateObject();
    cJSON_AddItemToArray(now.table, now.row);
    return now.row;
}

/* The keys of a row differ: a title that comes again has the last title that did not before it. */
static const char *key_of_row(const char *title)
{
    static char first[100], key[200];
    if (cJSON_GetObjectItemCaseSensitive(now.row, title) == NULL)
        return snprintf(first, sizeof first, "%s", title), title;
    snprintf(key, sizeof key, "%s %s", first, title);
    return key;
}

/* A cell that is a plain number becomes a number, any other a string. */
void document_cell(const char *title, const char *value)
{
    char *end;
    const char *key = key_of_row(title);
    const double number = strtod(value, &end);
    const bool plain = value[strspn(value, "+-.0123456789e")] == '\0';     /* neither "inf" nor "0x10" */
    if (plain && end != value && *end == '\0' && isfinite(number)) cJSON_AddNumberToObject(now.row, key, number);
    else cJSON_AddStringToObject(now.row, key, value);
}
