/* settings.c -- turns a file of settings into words of the command line, and prints settings.
 *
 * cli/train/options/options.c and cli/train/train.c call this file.  Errors are ERR_USAGE with file and line, and
 * ERR_MEMORY.  Words of the file come first, so that the command line overrides them.
 */
#include "ref/io/settings.h"
#include "ref/io/output.h"
#include <stdlib.h>
#include <string.h>

/* Flags that say how the command line itself is read. */
static bool is_of_words(const char *key)
{
    return strcmp(key, "config") == 0 || strcmp(key, "print-config") == 0 || strcmp(key, "from") == 0;
}

static bool is_flag(const struct option *option) { return option->kind > OPTION_HEADING && option->name[0] == '-'; }

static const char *settings_key_of(const struct option *option) { return option->name + strspn(option->name, "-"); }

static bool is_truth(const struct option *option)
{
    return option->kind == OPTION_SWITCH || option->kind == OPTION_BOOL;
}

const struct option *settings_option(const struct option *table, const char *key)
{
    for (; table->kind != OPTION_END; table++)
        if (is_flag(table) && !is_of_words(settings_key_of(table)) && strcmp(settings_key_of(table), key) == 0)
            return table;
    return NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static enum error_code settings_refuse(const char *where, const struct yaml *yaml, struct error *err, const char *why)
{
    return fail(err, ERR_USAGE, "%s: line %d: %s: %s", printable_path(where).text, yaml->line,
                printable(yaml->key).text, why);
}

/* A key that is no setting gets the nearest one in the message. */
static enum error_code refuse_key(const char *command, const struct option *table, const struct yaml *yaml,
                                  const char *where, struct error *err)
{
    const char *names[OPTIONS_MOST], *near;
    char why[120];
    size_t n = 0;
    if (is_of_words(yaml->key)) return settings_refuse(where, yaml, err, "is for the command line alone");
    for (const struct option *o = table; o->kind != OPTION_END; o++)
        if (is_flag(o) && !is_of_words(settings_key_of(o))) names[n++] = settings_key_of(o);
    near = nearest_name(yaml->key, names, n);
    if (near) snprintf(why, sizeof why, "is no setting of %s; did you mean %s?", command, near);
    else snprintf(why, sizeof why, "is no setting of %s; see orrery %s --print-config", command, command);
    return settings_refuse(where, yaml, err, why);
}

/* Prefix what the flag says of its value. */
static enum error_code set_value(const struct option *option, const struct yaml *yaml, const char *where,
                                 struct error *err)
{
    struct error why = { OK, "" };
    if (options_set(option, option->name, yaml->text, &why) == OK) return OK;
    return fail(err, ERR_USAGE, "%s: line %d: %s", printable_path(where).text, yaml->line, why.text);
}

/* A setting that belongs to another command is passed over; a wrong value is an error of this file. */
enum error_code settings_check(const char *command, const struct option *table, const struct option *all,
                             const struct yaml *yaml, const char *where, bool *passed, struct error *err)
{
    const struct option *const o = settings_option(table, yaml->key);
    *passed = o == NULL && settings_option(all, yaml->key) != NULL;
    if (*passed) return OK;
    if (o == NULL) return refuse_key(command, table, yaml, where, err);
    if (yaml->kind != YAML_TEXT) return settings_refuse(where, yaml, err, "must be one value");
    if (!is_truth(o)) return set_value(o, yaml, where, err);
    return strcmp(yaml->text, "true") == 0 || strcmp(yaml->text, "false") == 0
               ? OK
               : fail(err, ERR_USAGE, "%s: line %d: %s: must be true or false, not %s", printable_path(where).text,
                      yaml->line, printable(yaml->key).text, printable(yaml->text).text);
}

/* A switch that is false gives an empty word, which the caller drops. */
char *settings_word(const struct option *option, const struct yaml *yaml)
{
    char *const word = calloc(1, strlen(option->name) + strlen(yaml->text) + 2);
    if (word == NULL) return NULL;
    if (option->kind != OPTION_SWITCH) sprintf(word, "%s=%s", option->name, yaml->text);
    else if (strcmp(yaml->text, "true") == 0) strcpy(word, option->name);
    return word;
}

static const char file_flag[] = "--config";

/* The value of --config, or NULL; what is wrong with the words, the parser says. */
static const char *file_of(int argc, char *const argv[])
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], file_flag, sizeof file_flag - 1) != 0) continue;
        if (argv[i][sizeof file_flag - 1] == '=') return argv[i] + sizeof file_flag;
        if (argv[i][sizeof file_flag - 1] == '\0') return i + 1 < argc && argv[i + 1][0] != '-' ? argv[i + 1] : NULL;
    }
    return NULL;
}

static int settings_count_of(const struct yaml *root)
{
    int n = 0;
    for (const struct yaml *y = root->child; y; y = y->next) n++;
    return n;
}

/* Take a setting of the file, unless the command line has the flag. */
static enum error_code settings_take(struct settings_words *words, const char *command, const struct option *table,
                                     const struct option *all, const struct yaml *yaml, const char *file, int argc,
                                     char *const argv[], struct error *err)
{
    bool passed;
    /* This key says who wrote the file, and sets nothing. */
    if (strcmp(yaml->key, SETTINGS_WRITTEN_BY) == 0) return OK;
    const enum error_code e = settings_check(command, table, all, yaml, file, &passed, err);
    if (e || passed) return e;
    const struct option *const o = settings_option(table, yaml->key);
    if (options_given(argc, argv, o->name)) return OK;
    char *const word = settings_word(o, yaml);
    if (word == NULL) return fail(err, ERR_MEMORY, "%s: no memory to read it", printable_path(file).text);
    if (word[0]) words->argv[words->own++] = word;
    else free(word);
    return OK;
}

/* The digest says whether two runs had the same words from their files. */
static enum error_code make_digest(struct settings_words *words, struct error *err)
{
    char *all = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&all, &bytes);
    for (int i = 0; i < words->own && f; i++) fprintf(f, "%s\n", words->argv[i]);
    const bool ok = f && fclose(f) == 0;
    if (ok) words->digest = sha256_of(all, bytes);
    free(all);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the words of --config");
}

/* All settings of the file become words before those of the command line; the caller frees them with settings_free. */
enum error_code settings_expand(struct settings_words *words, const char *command, const struct option *table,
                              const struct option *all, int argc, char *const argv[], struct error *err)
{
    const char *const file = file_of(argc, argv);
    struct yaml *root = NULL;
    *words = (struct settings_words){ .argc = 0 };
    enum error_code e = file ? settings_read(file, &root, err) : OK;
    /* A pipe can be read once; processes that start later cannot read it again. */
    words->once = file_pipe_taken(NULL, 0);
    const int most = argc + (root ? settings_count_of(root) : 0);
    if (!e && (words->argv = calloc((size_t)most + 1, sizeof *words->argv)) == NULL)
        e = fail(err, ERR_MEMORY, "no memory for %d words", most);
    for (const struct yaml *y = root ? root->child : NULL; y && !e; y = y->next)
        e = settings_take(words, command, table, all, y, file, argc, argv, err);
    yml_free(root);
    if (!e) e = make_digest(words, err);
    if (e) return fail_about(err, e == ERR_MEMORY ? e : ERR_USAGE, "--config");
    words->argc = words->own + argc;
    for (int i = 0; i < argc; i++) words->argv[words->own + i] = argv[i];
    return OK;
}

/* Ranks that are started later get the words, not the file, which may be a pipe. */
void settings_drop_file(struct settings_words *words)
{
    int kept = 0;
    bool flags = true;
    for (int i = 0; i < words->argc; i++) {
        const char *const word = words->argv[i];
        /* Behind "--" a word like the flag is a position. */
        if (strcmp(word, "--") == 0) flags = false;
        if (flags && strcmp(word, file_flag) == 0) i++;                         /* and its value */
        else if (!flags || strncmp(word, file_flag, sizeof file_flag - 1) != 0 || word[sizeof file_flag - 1] != '=')
            words->argv[kept++] = words->argv[i];
    }
    words->argc = kept;
    words->argv[kept] = NULL;
}

void settings_free(struct settings_words *words)
{
    for (int i = 0; i < words->own; i++) free(words->argv[i]);
    free(words->argv);
    *words = (struct settings_words){ .argc = 0 };
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

enum { COLUMNS = 80, TEXT_ROOM = 5000 };

/* A comment of several lines. */
static void print_comment(FILE *to, const char *text)
{
    while (*text) {
        size_t n = strlen(text);
        if (n > COLUMNS - 2) {
            n = COLUMNS - 2;
            while (n > 0 && text[n] != ' ') n--;
            if (n == 0) n = strcspn(text, " ");
        }
        fprintf(to, "# %.*s\n", (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
}

/* A setting that was not given is printed as a comment, with its default. */
static void print_setting(FILE *to, const struct option *option, bool given, bool comments)
{
    char text[TEXT_ROOM];
    if (!given && !comments) return;
    if (comments) {
        options_explain(option, text, sizeof text);
        print_comment(to, text);
    }
    const bool set = options_value(option, text, sizeof text);
    fprintf(to, "%s%s:", given ? "" : "#", settings_key_of(option));
    if (set) fputc(' ', to);
    if (set && is_truth(option)) fputs(text, to);
    else if (set) yml_print_text(to, text);
    fputs(comments ? "\n\n" : "\n", to);
}

void settings_print(FILE *to, const struct option *table, int argc, char *const argv[], bool comments)
{
    for (const struct option *o = table; o->kind != OPTION_END; o++) {
        if (o->kind == OPTION_HEADING && comments) fprintf(to, "# ---- %s\n\n", o->help);
        if (is_flag(o) && !is_of_words(settings_key_of(o)))
            print_setting(to, o, options_given(argc, argv, o->name), comments);
    }
}
