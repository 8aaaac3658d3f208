/* from_print.c -- prints what `orrery plan --from` has made of another framework's file: a table, the same as one
 * command line, and as JSON.  cli/train/train.c and run/report/report_json.c call these functions. */
#include "emulated_devices/run/from/from.h"
#include "emulated_devices/device/cluster.h"
#include "ref/io/terminal.h"
#include <string.h>

enum { FROM_LEFT = 40, FROM_COLUMNS = 80 };

static const char *const fate_titles[FATES] = {
    "said in other words", "assumed", "not in this plan, and what it would change", "without effect on a plan",
};
static const char *const fate_names[FATES] = { "said", "assumed", "not in this plan", "no effect" };

/* A key with its value, or with the note that it is the framework's default. */
static void from_print_key(char *text, size_t size, const struct from *from, const struct from_row *row)
{
    snprintf(text, size, "%s%s%s%s%s", from_dashes(from, row->key), row->key, row->value[0] ? " " : "", row->value,
             row->usual ? " (default)" : "");
}

/* A reason that has just been printed is not repeated. */
static void from_print_row(FILE *out, const struct from *from, const struct from_row *row, const char *before)
{
    char theirs[300];
    from_print_key(theirs, sizeof theirs, from, row);
    const int used = fprintf(out, "  %s", theirs);
    if (used > FROM_LEFT - 2) fprintf(out, "\n%*s", FROM_LEFT, "");
    else fprintf(out, "%*s", FROM_LEFT - used, "");
    print_wrapped_at(out, FROM_LEFT, FROM_COLUMNS, strcmp(row->text, before) == 0 ? "likewise" : row->text);
}

/* Keys without effect with the same reason stand on the same lines. */
static void from_print_nothing(FILE *out, const struct from *from, int first)
{
    char line[FROM_ROWS * 20];
    size_t used = (size_t)snprintf(line, sizeof line, "%s:", from->row[first].text);
    for (int i = first; i < from->rows && used < sizeof line; i++)
        if (from->row[i].fate == FATE_NOTHING && strcmp(from->row[i].text, from->row[first].text) == 0)
            used += (size_t)snprintf(line + used, sizeof line - used, " %s%s",
                                     from_dashes(from, from->row[i].key), from->row[i].key);
    fputs("  ", out);
    print_wrapped_at(out, 4, FROM_COLUMNS, line);
}

/* Whether a row without effect is the first with its reason. */
static bool from_is_first(const struct from *from, int at)
{
    for (int i = 0; i < at; i++)
        if (from->row[i].fate == FATE_NOTHING && strcmp(from->row[i].text, from->row[at].text) == 0) return false;
    return true;
}

static void from_print_fate(FILE *out, const struct from *from, enum fate fate)
{
    const char *before = "";
    bool any = false;
    for (int i = 0; i < from->rows; i++) {
        const struct from_row *const r = &from->row[i];
        if (r->fate != fate) continue;
        if (!any) fprintf(out, "%s%s\n", fate == FATE_SAID ? "" : "\n", fate_titles[fate]);
        any = true;
        if (fate != FATE_NOTHING) from_print_row(out, from, r, fate == FATE_SAID ? "" : before);
        else if (from_is_first(from, i)) from_print_nothing(out, from, i);
        before = r->text;
    }
}

/* Whether a shell takes a word as it is. */
static bool from_is_plain(const char *word)
{
    for (const char *c = word; *c; c++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,@%", *c) == NULL)
            return false;
    return *word != '\0';
}

/* A word as a shell reads it, in quotes if it needs them. */
static void from_quote(char *text, size_t size, const char *word)
{
    if (from_is_plain(word)) {
        snprintf(text, size, "%s", word);
        return;
    }
    size_t used = (size_t)snprintf(text, size, "'");
    for (const char *c = word; *c && used + 6 < size; c++)
        used += (size_t)snprintf(text + used, size - used, *c == '\'' ? "'\\''" : "%c", *c);
    snprintf(text + used, size - used, "'");
}

/* Print a flag with its value, on a line of its own if the line is full. */
static int from_print_word(FILE *out, int column, const char *flag, const char *value)
{
    char words[2000], quoted[1000];
    from_quote(quoted, sizeof quoted, flag);
    int length = snprintf(words, sizeof words, "%s", quoted);
    if (value) from_quote(quoted, sizeof quoted, value);
    if (value) length += snprintf(words + length, sizeof words - (size_t)length, " %s", quoted);
    if (column + 1 + length > FROM_COLUMNS - 2) {
        fputs(" \\\n   ", out);
        column = 3;
    }
    return column + fprintf(out, " %s", words);
}

/* One command, which a reader can paste: a line that is full ends with a backslash. */
static void from_print_command(FILE *out, const struct from *from)
{
    int column = fprintf(out, "orrery plan");
    for (int i = 0; i < from->words; i++) {
        const char *const value = strchr(from->word[i].text, '=');
        column = from_print_word(out, column, from->word[i].flag, value ? value + 1 : NULL);
    }
    for (int i = 0; i < from->own_argc; i++) {
        const bool pair = from->own[i][0] == '-' && i + 1 < from->own_argc && from->own[i + 1][0] != '-';
        column = from_print_word(out, column, from->own[i], pair ? from->own[i + 1] : NULL);
        i += pair;
    }
    fputc('\n', out);
    if (from_typed(from, "--cluster") == NULL)
        fprintf(out, "\nThe file does not name the machine: without --cluster NAME it is %s.\n", CLUSTER_USUAL);
}

void from_print(FILE *out, const struct from *from)
{
    fprintf(out, "from    %s, read as %s %s\n\n", from->file, from->framework->title, from->framework->release);
    for (enum fate fate = 0; fate < FATES; fate++) from_print_fate(out, from, fate);
    fputs("\nthe same as\n", out);
    from_print_command(out, from);
    fputc('\n', out);
}

cJSON *from_json(const struct from *from)
{
    cJSON *const all = cJSON_CreateObject();
    json_add(all, "file %s framework %s release %s", from->file, from->framework->name, from->framework->release);
    cJSON *const rows = cJSON_AddArrayToObject(all, "keys");
    for (int i = 0; i < from->rows; i++)
        json_add(json_row(rows), "key %s value %s default %hhd becomes %s text %s", from->row[i].key,
                 from->row[i].value, from->row[i].usual, fate_names[from->row[i].fate], from->row[i].text);
    cJSON *const words = cJSON_AddArrayToObject(all, "words");
    for (int i = 0; i < from->argc; i++) cJSON_AddItemToArray(words, cJSON_CreateString(from->argv[i]));
    return all;
}
