/* options.c -- parses a command line by a table of options, and prints the help from that table.
 *
 * Every subcommand in cli/ calls this file, and settings.c for files of settings; options.h has an example.  The
 * outputs are the destinations of the table.  Errors are ERR_USAGE; destinations before the wrong word are set by
 * then.
 */
#include "ref/io/options.h"
#include "ref/io/figures.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool has_range(const struct option *option) { return option->min < option->max; }

static bool in_range(const struct option *option, double x)
{
    return !has_range(option) || (x >= option->min && x <= option->max);
}

/* Describe the valid values, for messages. */
static struct printable options_wanted(const struct option *option)
{
    struct printable s;
    const char *what = option->kind == OPTION_INT || option->kind == OPTION_UINT64 ? "a whole number"
                     : option->kind == OPTION_SIZE
                         ? "a size such as 512, 64K, 1.5GiB or 80GB"
                     : option->kind == OPTION_COUNT                           ? "a count such as 4096, 300B or 15T"
                     : option->kind == OPTION_BOOL                            ? "yes or no"
                                                                         : "a number";
    if (option->kind == OPTION_INT)
        snprintf(s.text, sizeof s.text, "%s from %.0f to %.0f", what, has_range(option) ? option->min : INT_MIN,
                 has_range(option) && option->max < INT_MAX ? option->max : INT_MAX);
    else if (option->kind == OPTION_UINT64 && !has_range(option))
        snprintf(s.text, sizeof s.text, "%s from 0 to %" PRIu64, what, UINT64_MAX);
    else if (!has_range(option)) snprintf(s.text, sizeof s.text, "%s", what);
    else if (option->kind == OPTION_SIZE && option->max < 0x1p64)
        snprintf(s.text, sizeof s.text, "%.40s from %.20s to %.20s", what, size_word((uint64_t)option->min).text,
                 size_word((uint64_t)option->max).text);
    else if (option->kind == OPTION_SIZE)
        snprintf(s.text, sizeof s.text, "%.40s, at least %.20s", what, size_word((uint64_t)option->min).text);
    else if (isinf(option->max)) snprintf(s.text, sizeof s.text, "%s of at least %.10g", what, option->min);
    else snprintf(s.text, sizeof s.text, "%s from %.10g to %.10g", what, option->min, option->max);
    return s;
}

/* A whole number without blanks before or letters behind; strtol alone would take both. */
static bool set_int(const struct option *option, const char *value)
{
    char *end;
    errno = 0;
    /* strtol skips blanks and stops at letters, so both ends are checked. */
    const long x = strtol(value, &end, 10);
    if (isspace((unsigned char)*value) || end == value || *end != '\0' || errno != 0) return false;
    if (x < INT_MIN || x > INT_MAX || !in_range(option, (double)x)) return false;
    *(int *)option->to = (int)x;
    return true;
}

static bool set_uint64(const struct option *option, const char *value)
{
    char *end;
    errno = 0;
    const unsigned long long x = strtoull(value, &end, 10);     /* would take "-1" for 2^64 - 1 */
    if (!isdigit((unsigned char)*value) || *end != '\0' || errno != 0 || !in_range(option, (double)x)) return false;
    *(uint64_t *)option->to = x;
    return true;
}

/* A finite number: "inf" and "nan" are refused here. */
static bool set_double(const struct option *option, const char *value)
{
    char *end;
    const double x = strtod(value, &end);
    if (isspace((unsigned char)*value) || end == value || *end != '\0' || !isfinite(x) || !in_range(option, x))
        return false;
    *(double *)option->to = x;
    return true;
}

static bool set_size(const struct option *option, const char *value)
{
    uint64_t x;
    if (!size_parse(value, &x) || !in_range(option, (double)x)) return false;
    *(uint64_t *)option->to = x;
    return true;
}

static bool set_count(const struct option *option, const char *value)
{
    uint64_t x;
    if (!count_parse(value, &x) || !in_range(option, (double)x)) return false;
    *(uint64_t *)option->to = x;
    return true;
}

static bool set_bool(const struct option *option, const char *value)
{
    static const char *const words[] = { "no", "yes", "off", "on", "false", "true", "0", "1" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(value, words[i]) == 0) {
            /* Words stand in pairs: the first of each pair means no. */
            *(bool *)option->to = i % 2 == 1;
            return true;
        }
    return false;
}

/* The destination gets the table's own word, which lives as long as the table. */
static enum error_code set_choice(const struct option *option, const char *value, struct error *err)
{
    size_t n = 0;
    for (; option->choices[n] != NULL; n++)
        if (strcmp(option->choices[n], value) == 0) {
            *(const char **)option->to = option->choices[n];
            return OK;
        }
    return fail_unknown_name(err, option->name, value, option->choices, n);
}

/* Set the destination of an option by its kind.  A value that does not fit leaves the destination as it was. */
static enum error_code set_value(const struct option *option, const char *value, struct error *err)
{
    bool good = true;
    switch (option->kind) {
    case OPTION_INT:    good = set_int(option, value); break;
    case OPTION_UINT64: good = set_uint64(option, value); break;
    case OPTION_DOUBLE: good = set_double(option, value); break;
    case OPTION_SIZE:   good = set_size(option, value); break;
    case OPTION_COUNT:  good = set_count(option, value); break;
    case OPTION_BOOL:   good = set_bool(option, value); break;
    case OPTION_CHOICE: return set_choice(option, value, err);
    case OPTION_STRING:
        if (*value == '\0') return fail(err, ERR_USAGE, "%s: must not be empty", option->name);
        *(const char **)option->to = value;
        break;
    case OPTION_SWITCH: *(bool *)option->to = true; break;
    case OPTION_HEADING: case OPTION_END: assert(!"not a flag"); break;
    }
    return good ? OK : fail(err, ERR_USAGE, "%s %s: must be %s", option->name, printable(value).text,
                            options_wanted(option).text);
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

static bool is_flag(const struct option *option) { return option->kind > OPTION_HEADING && option->name[0] == '-'; }
static bool is_position(const struct option *option) { return option->kind > OPTION_HEADING && option->name[0] != '-'; }

static size_t table_count(const struct option *table)
{
    size_t n = 0;
    while (table[n].kind != OPTION_END) n++;
    assert(n <= OPTIONS_MOST);
    return n;
}

/* The flag of a word, and its value if the word has one after `=`. */
static const struct option *find_flag(const struct option *table, const char *word, const char **value)
{
    const size_t n = strcspn(word, "=");
    *value = word[n] == '=' ? word + n + 1 : NULL;
    for (; table->kind != OPTION_END; table++)
        if (is_flag(table) && strncmp(table->name, word, n) == 0 && table->name[n] == '\0') return table;
    return NULL;
}

/* The message names the nearest flag, or else the help of the command. */
static enum error_code fail_unknown(const char *command, const struct option *table, const char *word,
                                    struct error *err)
{
    const char *names[OPTIONS_MOST];
    size_t n = 0;
    for (const struct option *o = table; o->kind != OPTION_END; o++)
        if (is_flag(o)) names[n++] = o->name;
    struct printable flag = printable(word);
    /* The message has the flag alone, without its value. */
    flag.text[strcspn(flag.text, "=")] = '\0';
    const char *near = nearest_name(flag.text, names, n);
    if (near != NULL) return fail(err, ERR_USAGE, "%s is not a flag of %s; did you mean %s?", flag.text, command, near);
    return fail(err, ERR_USAGE, "%s is not a flag of %s; see orrery %s --help", flag.text, command, command);
}

/* Whether a word must be a flag; a negative number is a value, and so are several words in quotes. */
static bool looks_like_flag(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && !isdigit((unsigned char)word[1]) && word[1] != '.'
           && (strchr(word, ' ') == NULL || strcspn(word, "=") < strcspn(word, " "));
}

/* Parse the flag at argv[*i] and its value; *i becomes the last word used. */
static enum error_code take_flag(const char *command, int argc, char *const argv[], int *i, const struct option *table,
                                 bool *seen, struct error *err)
{
    const char *value;
    const struct option *o = find_flag(table, argv[*i], &value);
    if (o == NULL) return fail_unknown(command, table, argv[*i], err);
    /* A second value would silently replace the first. */
    if (seen[o - table]) return fail(err, ERR_USAGE, "%s is given twice", o->name);
    seen[o - table] = true;
    /* A switch is set by its name alone. */
    if (o->kind == OPTION_SWITCH) {
        if (value != NULL) return fail(err, ERR_USAGE, "%s takes no value, not %s", o->name, printable(value).text);
        return set_value(o, "", err);
    }
    if (value == NULL && *i + 1 < argc && !looks_like_flag(argv[*i + 1])) value = argv[++*i];
    if (value == NULL) return fail(err, ERR_USAGE, "%s needs a value: %s %s", o->name, o->name, o->argument);
    return set_value(o, value, err);
}

/* A word that is no flag goes to the first position of the table that has none yet. */
static enum error_code take_position(const char *command, const char *word, const struct option *table, bool *seen,
                                     struct error *err)
{
    for (size_t k = 0; table[k].kind != OPTION_END; k++)
        if (is_position(&table[k]) && !seen[k]) {
            seen[k] = true;
            return set_value(&table[k], word, err);
        }
    return fail(err, ERR_USAGE, "%s: %s takes no such argument; see orrery %s --help", printable(word).text, command,
                command);
}

/* Help is asked for anywhere before "--", also where other words are wrong. */
bool options_ask_for_help(int argc, char *const argv[])
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

/* Words go one by one to their option; required options are looked for at the end, and `given` is told for all. */
enum error_code options_parse(const char *command, int argc, char *const argv[], const struct option *table, bool *help,
                              struct error *err)
{
    bool seen[OPTIONS_MOST] = { false }, only_positions = false;
    const size_t n = table_count(table);
    enum error_code e = OK;
    /* With --help nothing else is read, so mistakes beside it do not matter. */
    *help = options_ask_for_help(argc, argv);
    if (*help) return OK;
    for (int i = 0; i < argc && e == OK; i++) {
        /* After "--" every word is a position, also one that begins with a dash. */
        if (!only_positions && strcmp(argv[i], "--") == 0) only_positions = true;
        else if (!only_positions && looks_like_flag(argv[i])) e = take_flag(command, argc, argv, &i, table, seen, err);
        else e = take_position(command, argv[i], table, seen, err);
    }
    for (size_t k = 0; k < n; k++) {
        if (e == OK && table[k].required && !seen[k])
            e = fail(err, ERR_USAGE, "%s needs %s%s%s: %s", command, table[k].name, table[k].argument ? " " : "",
                     table[k].argument ? table[k].argument : "", table[k].help);
        if (table[k].given != NULL) *table[k].given = seen[k];
    }
    return e;
}

/* A word is compared with the name up to its end or to "=". */
bool options_given(int argc, char *const argv[], const char *name)
{
    const size_t n = strlen(name);
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], name, n) == 0 && (argv[i][n] == '\0' || argv[i][n] == '=')) return true;
    return false;
}

enum error_code options_set(const struct option *table, const char *name, const char *value, struct error *err)
{
    for (; table->kind != OPTION_END; table++)
        if (is_flag(table) && strcmp(table->name, name) == 0) return set_value(table, value, err);
    return fail(err, ERR_USAGE, "%s is not a flag", printable(name).text);
}

/* The value as a file of settings has it.  @return false for a value outside the range, which means "not set". */
bool options_value(const struct option *option, char *text, size_t size)
{
    const char *word;
    text[0] = '\0';
    switch (option->kind) {
    case OPTION_SWITCH: case OPTION_BOOL: snprintf(text, size, "%s", *(const bool *)option->to ? "true" : "false");
    break;
    case OPTION_INT:
        if (!in_range(option, *(const int *)option->to)) return false;
        snprintf(text, size, "%d", *(const int *)option->to);
        break;
    case OPTION_UINT64: case OPTION_SIZE: case OPTION_COUNT:
        if (!in_range(option, (double)*(const uint64_t *)option->to)) return false;
        snprintf(text, size, "%" PRIu64, *(const uint64_t *)option->to);
        break;
    case OPTION_DOUBLE:
        if (!in_range(option, *(const double *)option->to)) return false;
        snprintf(text, size, "%s", real_format(*(const double *)option->to).text);
        break;
    case OPTION_STRING: case OPTION_CHOICE:
        word = *(const char *const *)option->to;
        if (word == NULL) return false;
        snprintf(text, size, "%s", word);
        break;
    case OPTION_HEADING: case OPTION_END: return false;
    }
    return true;
}

/* ---- help -------------------------------------------------------------------------------------------------------- */

enum { HELP_COLUMNS = 100, HELP_LEFT = 30 };

/* The value of the destination as text: the default, before parsing.  Empty if it should not be shown. */
static struct printable standing(const struct option *option)
{
    struct printable s = { "" };
    const char *word = option->kind == OPTION_STRING || option->kind == OPTION_CHOICE
        ? *(const char *const *)option->to : NULL;
    if (option->required) snprintf(s.text, sizeof s.text, " (required)");
    else if (word != NULL) snprintf(s.text, sizeof s.text, " [%.60s]", printable(word).text);
    else if (option->kind == OPTION_INT) snprintf(s.text, sizeof s.text, " [%d]", *(const int *)option->to);
    else if (option->kind == OPTION_UINT64)
        snprintf(s.text, sizeof s.text, " [%" PRIu64 "]", *(const uint64_t *)option->to);
    else if (option->kind == OPTION_DOUBLE) snprintf(s.text, sizeof s.text, " [%.10g]", *(const double *)option->to);
    else if (option->kind == OPTION_BOOL)
        snprintf(s.text, sizeof s.text, " [%s]", *(const bool *)option->to ? "yes" : "no");
    else if (option->kind == OPTION_SIZE && *(const uint64_t *)option->to > 0)
        snprintf(s.text, sizeof s.text, " [%s]", size_word(*(const uint64_t *)option->to).text);
    return s;
}

/* Choices stand before the default in the help text. */
void options_explain(const struct option *option, char *text, size_t size)
{
    const char *help = option->help != NULL ? option->help : "", *last = strstr(help, "; default:");
    size_t n = (size_t)snprintf(text, size, "%.*s", (int)(last ? last - help : (ptrdiff_t)strlen(help)), help);
    for (size_t i = 0; option->kind == OPTION_CHOICE && option->choices[i] != NULL && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i == 0 ? "; one of " : ", ", option->choices[i]);
    if (last && n < size) snprintf(text + n, size - n, "%s", last);
}

void option_describe(const struct option *option, char text[OPTION_TEXT])
{
    options_explain(option, text, OPTION_TEXT);
    const size_t n = strlen(text);
    if (n < OPTION_TEXT && strstr(text, "default:") == NULL)
        snprintf(text + n, OPTION_TEXT - n, "%s", standing(option).text);
}

/* Lines break at blanks, and a longer word is cut. */
void print_wrapped_at(FILE *to, int left, int columns, const char *text)
{
    const int room = columns - left;
    while ((int)strlen(text) > room) {
        int n = room;
        while (n > 0 && text[n] != ' ') n--;
        if (n == 0) n = room;                           /* a word longer than a line is cut */
        fprintf(to, "%.*s\n%*s", n, text, left, "");
        text += n + (text[n] == ' ');
    }
    fprintf(to, "%s\n", text);
}

void print_wrapped(FILE *to, int left, const char *text)
{
    const int columns = terminal_columns(to);
    print_wrapped_at(to, left, columns > left && columns < HELP_COLUMNS ? columns : HELP_COLUMNS, text);
}

/* The help has a heading for each group, and for each option its name, its value and its text. */
void options_print_help(FILE *to, const struct option *table)
{
    for (const struct option *o = table; o->kind != OPTION_END; o++) {
        char left[64], text[OPTION_TEXT];
        if (o->kind == OPTION_HEADING) {
            if (o != table) fprintf(to, "\n");
            say(to, 2, "%s:", o->help);
            continue;
        }
        if (o->help == NULL) continue;
        const int n = snprintf(left, sizeof left, "  %s%s%s", o->name, o->argument ? " " : "",
                               o->argument ? o->argument : "");
        option_describe(o, text);
        /* A flag that is too long for its column gets its own line. */
        if (n < HELP_LEFT) fprintf(to, "%-*s", HELP_LEFT, left);
        else fprintf(to, "%s\n%*s", left, HELP_LEFT, "");
        print_wrapped(to, HELP_LEFT, text);
    }
}
