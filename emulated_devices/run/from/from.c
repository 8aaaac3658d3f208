/* from.c -- reads the file of `orrery plan --from`, looks up its keys, and keeps what came of each.
 *
 * cli/train/options/options.c calls from_expand and from_free; the frameworks of this folder call the other functions.
 * Errors: ERR_USAGE names file, line and key; ERR_FILE and ERR_FORMAT of a reader; ERR_MEMORY.  Nothing of a file is
 * executed.
 */
#include "emulated_devices/run/from/from.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys and values --------------------------------------------------------------------------------------------- */

static const struct framework_key *from_key(const struct framework *framework, const char *key)
{
    for (const struct framework_key *k = framework->keys; k->key; k++)
        if (strcmp(k->key, key) == 0) return k;
    return NULL;
}

/* Whether a list of names with blanks between has a name, or the beginning of one before a "*". */
static bool from_list_has(const char *names, const char *name)
{
    const size_t length = strlen(name);
    if (length == 0 || strchr(name, ' ')) return false;
    for (const char *at = names; *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        if (n == length && strncmp(at, name, n) == 0) return true;
        if (at[n - 1] == '*' && n <= length && strncmp(at, name, n - 1) == 0) return true;
        at += n;
    }
    return false;
}

static const struct framework_group *from_group(const struct framework *framework, const char *key)
{
    for (const struct framework_group *g = framework->groups; g->keys; g++)
        if (from_list_has(g->keys, key)) return g;
    return NULL;
}

/* The words of several frameworks for no value. */
static bool from_is_null(const char *text)
{
    return strcmp(text, "null") == 0 || strcmp(text, "None") == 0 || strcmp(text, "~") == 0;
}

/* Whether a value is left to the program that calls the framework. */
static bool from_is_left(const struct from *from, const struct yaml *given)
{
    return from->framework->left && strcmp(given->text, from->framework->left) == 0;
}

bool from_has(struct from *from, const char *key)
{
    const struct yaml *const given = yml_find(from->root, key);
    return given && !from_is_left(from, given);
}

const char *from_value(struct from *from, const char *key)
{
    const struct yaml *const given = yml_find(from->root, key);
    const struct framework_key *const known = from_key(from->framework, key);
    const char *const text = given && !from_is_left(from, given) ? given->text : known ? known->usual : NULL;
    return text && !from_is_null(text) ? text : NULL;
}

bool from_is(struct from *from, const char *key, const char *word)
{
    const char *const value = from_value(from, key);
    return value && strcmp(value, word) == 0;
}

int64_t from_whole(struct from *from, const char *key, int64_t min, int64_t max)
{
    const char *const text = from_value(from, key);
    if (text == NULL || from->failed) return 0;
    char *end;
    errno = 0;
    const double x = strtod(text, &end);
    const bool whole = end != text && *end == '\0' && errno == 0 && isfinite(x) && x == floor(x)
                     && !isspace((unsigned char)*text);
    if (whole && x >= (double)min && x <= (double)max) return (int64_t)x;
    from_refuse(from, key, "must be a whole number from %lld to %lld", (long long)min, (long long)max);
    return 0;
}

double from_real(struct from *from, const char *key, double min, double max)
{
    const char *const text = from_value(from, key);
    if (text == NULL || from->failed) return 0;
    char *end;
    const double x = strtod(text, &end);
    if (end != text && *end == '\0' && isfinite(x) && x >= min && x <= max) return x;
    from_refuse(from, key, "must be a number from %g to %g", min, max);
    return 0;
}

bool from_truth(struct from *from, const char *key)
{
    static const char *const words[] = { "false", "true", "no", "yes", "0", "1", "off", "on" };
    const char *const text = from_value(from, key);
    if (text == NULL || from->failed) return false;
    char lower[8] = "";
    for (size_t i = 0; i + 1 < sizeof lower && text[i]; i++) lower[i] = (char)tolower((unsigned char)text[i]);
    /* Words stand in pairs: the first of each pair means no. */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(lower, words[i]) == 0) return i % 2 == 1;
    if (*text) from_refuse(from, key, "must be true or false");
    return *text == '\0';
}

const char *from_typed(const struct from *from, const char *flag)
{
    const size_t length = strlen(flag);
    for (int i = 0; i < from->own_argc; i++) {
        if (strncmp(from->own[i], flag, length) != 0) continue;
        if (from->own[i][length] == '=') return from->own[i] + length + 1;
        if (from->own[i][length] == '\0') return i + 1 < from->own_argc ? from->own[i + 1] : "";
    }
    return NULL;
}

int64_t from_typed_whole(struct from *from, const char *flag, int64_t otherwise)
{
    const char *const text = from_typed(from, flag);
    const long number = text ? strtol(text, NULL, 10) : 0;
    return number >= 1 && number <= INT32_MAX ? number : otherwise;     /* a wrong number is refused later, as typed */
}

/* ---- what came of a key ------------------------------------------------------------------------------------------ */

static void from_row_add(struct from *from, const char *key, enum fate fate, const char *format, va_list ap)
{
    if (from->failed) return;
    if (from->rows == FROM_ROWS) {
        from->failed = fail(from->err, ERR_USAGE, "%s: has more than %d keys", from->file, FROM_ROWS);
        return;
    }
    const char *const value = from_value(from, key);
    struct from_row *const r = &from->row[from->rows++];
    *r = (struct from_row){ .fate = fate, .usual = !from_has(from, key) };
    snprintf(r->key, sizeof r->key, "%.95s", printable(key).text);
    snprintf(r->value, sizeof r->value, "%.95s", value ? printable(value).text : "");
    vsnprintf(r->text, sizeof r->text, format, ap);
    for (char *c = r->text; *c; c++)
        if (iscntrl((unsigned char)*c)) *c = '?';
}

static void from_row_say(struct from *from, const char *key, enum fate fate, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void from_row_say(struct from *from, const char *key, enum fate fate, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    from_row_add(from, key, fate, format, ap);
    va_end(ap);
}

/* Flags that say the same thing: who types one means that the other is not wanted. */
static const char *from_typed_flag(const struct from *from, const char *flag)
{
    static const char *const same[][2] = { { "--zero", "--data-parallel" }, { "--bucket", "--data-parallel" },
                                           { "--batch", "--batches" }, { "--micro", "--batches" } };
    if (from_typed(from, flag)) return flag;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (strcmp(flag, same[i][0]) == 0 && from_typed(from, same[i][1])) return same[i][1];
        if (strcmp(flag, same[i][1]) == 0 && from_typed(from, same[i][0])) return same[i][0];
    }
    return NULL;
}

void from_say(struct from *from, const char *key, const char *flag, const char *format, ...)
{
    char value[FROM_TEXT] = "";
    if (format) {
        va_list ap;
        va_start(ap, format);
        vsnprintf(value, sizeof value, format, ap);
        va_end(ap);
    }
    if (from->failed) return;
    const char *const blank = format ? " " : "", *const typed = from_typed_flag(from, flag);
    if (typed) {
        const char *const own = from_typed(from, typed);
        from_row_say(from, key, FATE_SAID, "%s%s%s, but the command line says %s %s", flag, blank, value, typed,
                     own[0] == '-' ? "" : printable(own).text);
        return;
    }
    from_row_say(from, key, FATE_SAID, "%s%s%s", flag, blank, value);
    for (int i = 0; i < from->words; i++)
        if (strcmp(from->word[i].flag, flag) == 0) return;
    if (from->words == FROM_WORDS) return;
    struct from_word *const w = &from->word[from->words++];
    w->flag = flag;
    snprintf(w->text, sizeof w->text, "%s%s%s", flag, format ? "=" : "", value);
}

#define FROM_ROW(function, fate)                                                        \
    void function(struct from *from, const char *key, const char *format, ...)          \
    {                                                                                   \
        va_list ap;                                                                     \
        va_start(ap, format);                                                           \
        from_row_add(from, key, fate, format, ap);                                      \
        va_end(ap);                                                                     \
    }
FROM_ROW(from_with, FATE_SAID)
FROM_ROW(from_assume, FATE_ASSUMED)
FROM_ROW(from_outside, FATE_OUTSIDE)
FROM_ROW(from_nothing, FATE_NOTHING)

const char *from_dashes(const struct from *from, const char *key)
{
    const bool argument = strncmp(key, "launcher.", 9) != 0 && strncmp(key, "script.", 7) != 0
                          && strncmp(key, "field.", 6) != 0;
    return argument ? from->framework->dashes : "";
}

void from_refuse(struct from *from, const char *key, const char *format, ...)
{
    char why[400], line[32] = "";
    const struct yaml *const given = yml_find(from->root, key);
    const char *const value = from_value(from, key);
    va_list ap;
    if (from->failed) return;
    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    if (given && given->line > 0) snprintf(line, sizeof line, "line %d: ", given->line);
    from->failed = fail(from->err, ERR_USAGE, "%s: %s%s%s%s%s: %s", from->file, line, from_dashes(from, key),
                        printable(key).text, value && *value ? " " : "", value ? printable(value).text : "", why);
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

/* A value that is a sequence, as text: "[a, b]". */
static char *from_sequence_text(const struct yaml *sequence)
{
    char *text = NULL;
    size_t bytes;
    FILE *const f = open_memstream(&text, &bytes);
    if (f == NULL) return NULL;
    fputc('[', f);
    for (const struct yaml *y = sequence->child; y; y = y->next)
        fprintf(f, "%s%s", y == sequence->child ? "" : ", ", y->text ? y->text : "..");
    fputc(']', f);
    if (fclose(f) == 0) return text;
    free(text);
    return NULL;
}

/* Hang the texts of a tree under one mapping, with dots between the names of the way there. */
static enum error_code from_flatten(const struct yaml *tree, const char *way, struct yaml ***end, struct error *err)
{
    for (const struct yaml *y = tree->child; y; y = y->next) {
        char key[300];
        snprintf(key, sizeof key, "%s%s%s", way, *way ? "." : "", y->key ? y->key : "");
        if (y->kind == YAML_MAPPING) {
            const enum error_code e = from_flatten(y, key, end, err);   /* no deeper than its reader allows */
            if (e) return e;
            continue;
        }
        struct yaml *const flat = calloc(1, sizeof *flat);
        if (flat == NULL) return fail(err, ERR_MEMORY, "no memory for the keys of a file");
        *flat = (struct yaml){ .kind = YAML_TEXT, .line = y->line, .key = strdup(key),
                               .text = y->kind == YAML_TEXT ? strdup(y->text) : from_sequence_text(y) };
        **end = flat;
        *end = &flat->next;
        if (flat->key == NULL || flat->text == NULL) return fail(err, ERR_MEMORY, "no memory for the keys of a file");
    }
    return OK;
}

/* A key that the framework does not have gets the nearest one that it has. */
static void from_refuse_unknown(struct from *from, const char *key)
{
    const char *names[400];
    size_t n = 0;
    for (const struct framework_key *k = from->framework->keys; k->key && n < 400; k++) names[n++] = k->key;
    const char *const near = nearest_name(key, names, n);
    if (near)
        from_refuse(from, key, "is no key that is known of %s %s; did you mean %s%s?", from->framework->title,
                    from->framework->release, from->framework->dashes, near);
    else
        from_refuse(from, key, "is no key that is known of %s %s; what it does to a plan is not known either",
                    from->framework->title, from->framework->release);
}

static bool from_is_off(const char *text)
{
    static const char *const off[] = { "false", "False", "0", "0.0", "[]", "no", "none", "null", "None", "~", "{}" };
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (strcmp(text, off[i]) == 0) return true;
    return false;
}

/* Keys that no function reads end as their group says. */
static void from_look_up(struct from *from)
{
    for (const struct yaml *y = from->root->child; y && !from->failed; y = y->next) {
        const struct framework_group *const g = from_group(from->framework, y->key);
        const bool read = from_key(from->framework, y->key) != NULL;
        if (read && from_is_left(from, y))
            from_row_say(from, y->key, FATE_ASSUMED, "left to the calling program: taken as if it were not there");
        if (read) continue;
        if (g == NULL) from_refuse_unknown(from, y->key);
        else if (g->fate != FATE_NOTHING && from_is_off(y->text)) from_nothing(from, y->key, "off");
        else from_row_say(from, y->key, g->fate, "%s", g->why);
    }
}

/* Every key of the file must have ended in some way. */
static void from_check_all(struct from *from)
{
    for (const struct yaml *y = from->root->child; y && !from->failed; y = y->next) {
        bool ended = false;
        for (int i = 0; i < from->rows && !ended; i++) ended = strcmp(from->row[i].key, printable(y->key).text) == 0;
        if (!ended) from_refuse(from, y->key, "means something only beside other keys, which the file does not have");
    }
}

static enum error_code from_translate(struct from *from, const char *text, size_t length, struct error *err)
{
    struct yaml *tree = NULL;
    enum error_code e = from->framework->read(text, length, from->file, &tree, err);
    if (e) return e;
    from->root = calloc(1, sizeof *from->root);
    if (from->root == NULL) e = fail(err, ERR_MEMORY, "no memory for the keys of a file");
    else {
        from->root->kind = YAML_MAPPING;
        struct yaml **end = &from->root->child;
        e = from_flatten(tree, "", &end, err);
    }
    yml_free(tree);
    if (e) return e;
    from->err = err;
    from_look_up(from);
    if (!from->failed) from->framework->translate(from);
    from_check_all(from);
    return from->failed;
}

/* "megatron:FILE" names the framework; else the text decides. */
static enum error_code from_choose(struct from *from, const char *word, const char *text, struct error *err)
{
    char names[200] = "";
    for (int i = 0; frameworks[i]; i++) {
        const size_t length = strlen(frameworks[i]->name);
        const bool named = strncmp(word, frameworks[i]->name, length) == 0 && word[length] == ':';
        if (named) from->framework = frameworks[i];
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", frameworks[i]->name);
    }
    for (int i = 0; frameworks[i] && from->framework == NULL; i++)
        if (frameworks[i]->is(text)) from->framework = frameworks[i];
    if (from->framework) return OK;
    return fail(err, ERR_FORMAT, "%s: looks like no configuration of %s; --from NAME:FILE says whose it is", from->file,
                names);
}

/* The path behind "NAME:", if NAME is a framework's. */
static const char *from_path(const char *word)
{
    for (int i = 0; frameworks[i]; i++) {
        const size_t length = strlen(frameworks[i]->name);
        if (strncmp(word, frameworks[i]->name, length) == 0 && word[length] == ':') return word + length + 1;
    }
    return word;
}

/* Translate a text, whose framework the word names or the text shows. */
static enum error_code from_take_text(struct from *from, const char *word, const char *text, size_t length,
                                      struct error *err)
{
    snprintf(from->file, sizeof from->file, "%s", printable_path(from_path(word)).text);
    if (memchr(text, '\0', length)) return fail(err, ERR_FORMAT, "%s: has a byte 0, so it is no text", from->file);
    const enum error_code e = from_choose(from, word, text, err);
    return e ? e : from_translate(from, text, length, err);
}

static enum error_code from_read(struct from *from, const char *word, struct error *err)
{
    char *text;
    size_t length;
    enum error_code e = file_read_all(from_path(word), FROM_FILE_LIMIT, &text, &length, err);
    if (e) return fail_about(err, e, "--from");
    e = from_take_text(from, word, text, length, err);
    free(text);
    return fail_about(err, e, "--from");
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Keep the words that the user typed, without --from and its file.  @return the file; NULL: there is none. */
static const char *from_take_words(struct from *from, int argc, char *const argv[])
{
    static const char flag[] = "--from";
    const char *file = NULL;
    for (int i = 0; i < argc; i++) {
        const bool apart = strcmp(argv[i], flag) == 0;
        if (apart && i + 1 < argc) file = argv[++i];
        else if (strncmp(argv[i], flag, sizeof flag - 1) == 0 && argv[i][sizeof flag - 1] == '=')
            file = argv[i] + sizeof flag;
        else if (!apart) from->own[from->own_argc++] = argv[i];
    }
    return file;
}

/* Room for the words of a command line.  @param[out] file  that of --from; NULL: there is none. */
static enum error_code from_open(struct from **out, int argc, char *const argv[], const char **file, struct error *err)
{
    struct from *const from = *out = calloc(1, sizeof *from);
    *file = NULL;
    if (from == NULL) return fail(err, ERR_MEMORY, "no memory for --from");
    from->own = calloc((size_t)argc + 1, sizeof *from->own);
    from->argv = calloc((size_t)argc + FROM_WORDS + 1, sizeof *from->argv);
    if (from->own == NULL || from->argv == NULL) return fail(err, ERR_MEMORY, "no memory for the words of --from");
    *file = from_take_words(from, argc, argv);
    return OK;
}

/* Our words, then the user's; after a failure nothing is left. */
static enum error_code from_finish(struct from **from, enum error_code e)
{
    struct from *const f = *from;
    for (int i = 0; !e && i < f->words; i++) f->argv[f->argc++] = f->word[i].text;
    for (int i = 0; !e && i < f->own_argc; i++) f->argv[f->argc++] = f->own[i];
    if (e) from_free(f), *from = NULL;
    return e;
}

enum error_code from_text(struct from **from, const char *word, const char *text, size_t length, int argc,
                          char *const argv[], struct error *err)
{
    const char *file;
    enum error_code e = from_open(from, argc, argv, &file, err);
    if (!e) e = from_take_text(*from, word, text, length, err);
    return from_finish(from, e);
}

enum error_code from_expand(struct from **from, int argc, char *const argv[], struct error *err)
{
    const char *file;
    *from = NULL;
    if (!options_given(argc, argv, "--from")) return OK;
    enum error_code e = from_open(from, argc, argv, &file, err);
    if (!e && (file == NULL || *file == '\0')) e = fail(err, ERR_USAGE, "--from: needs a file");
    if (!e && options_given(argc, argv, "--config"))
        e = fail(err, ERR_USAGE, "--from %s: --config gives words, too; give one of them", printable_path(file).text);
    if (!e) e = from_read(*from, file, err);
    return from_finish(from, e);
}

void from_free(struct from *from)
{
    if (from == NULL) return;
    yml_free(from->root);
    free(from->own), free(from->argv), free(from);
}
