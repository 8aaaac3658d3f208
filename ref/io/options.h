/* options.h -- the command line: one table per subcommand, used to parse it, to check it and to print the help.
 *
 *     static const struct option train[] = {
 *         { .kind = OPTION_HEADING, .help = "Mesh" },
 *         { "--dp",     "N",    OPTION_INT,    &dp,     .min = 1, .max = 4096, .help = "copies of the model" },
 *         { "--lr",     "RATE", OPTION_DOUBLE, &lr,     .min = 0, .max = 1,    .help = "learning rate" },
 *         { "--dtype",  "NAME", OPTION_CHOICE, &dtype,  .choices = dtypes,     .help = "number format" },
 *         { "--memory", "SIZE", OPTION_SIZE,   &budget, .help = "memory of a device, such as 64M" },
 *         { "--quiet",  NULL,   OPTION_SWITCH, &quiet,  .help = "print only the result" },
 *         { "FILE",     NULL,   OPTION_STRING, &file,   .required = true,      .help = "the file to check" },
 *         { 0 }
 *     };
 *
 * The default of an option is the value of its destination before parsing.  The help shows it, unless the help text has
 * its own "default:".  A value follows its flag as the next word or after `=`.  The parser prints nothing; an error is
 * one line in struct error.  Files of cli/, run/, draw/, verify/ and other rooms call these functions.
 */
#ifndef ORRERY_OPTIONS_H
#define ORRERY_OPTIONS_H

#include "ref/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Each kind, and the type of the destination it writes. */
enum option_kind {
    OPTION_END,                         /* the last line of a table */
    OPTION_HEADING,                     /* not a flag: a line of help that starts a section */
    OPTION_SWITCH,                      /* bool: true if the flag is there; takes no value */
    OPTION_BOOL,                        /* bool: yes, no, on, off, true, false, 1, 0 */
    OPTION_INT,                         /* int: a whole number */
    OPTION_UINT64,                      /* uint64_t: a whole number, such as a seed */
    OPTION_DOUBLE,                      /* double: a finite number */
    OPTION_SIZE,                        /* uint64_t: bytes, as size_parse (figures.h) reads them */
    OPTION_COUNT,                       /* uint64_t: a count such as 300B, as count_parse reads it */
    OPTION_STRING,                      /* const char *: points into argv */
    OPTION_CHOICE,                      /* const char *: one of .choices; points into .choices */
};

enum { OPTIONS_MOST = 192 };            /* lines of a table */

struct option {
    const char *name;                   /* "--steps"; without dashes ("FILE"): a positional argument */
    const char *argument;               /* word for the value in the help: "N"; NULL: a switch or positional argument */
    enum option_kind kind;              /* how the word is read, and into which type `to` points */
    void *to;                           /* destination; `kind` says its type */
    double min, max;                    /* inclusive range; checked if min < max; max may be INFINITY */
    const char *const *choices;         /* OPTION_CHOICE: names, NULL-terminated */
    bool required;                      /* leaving it out is an error */
    bool *given;                        /* receives whether it was on the command line; may be NULL */
    const char *help;                   /* description in a few words; NULL: not shown, one more of those before it */
};

/**
 * Read a command line into the destinations of a table.
 *
 * `--help` or `-h` anywhere has priority: *help becomes true and no destination changes.  `--` ends the flags; the
 * words after it are positional arguments.
 * @param command    subcommand, as messages name it: "train".
 * @param argc,argv  the words after the subcommand.
 * @param table      ends with { 0 }.
 * @param[out] help  whether help was asked for.
 * @return OK, or ERR_USAGE: an unknown flag (the message suggests the nearest), a missing, malformed, unknown or
 *         out-of-range value, a repeated flag, an extra word, a missing required option.  Some destinations may be set.
 */
enum error_code options_parse(const char *command, int argc, char *const argv[], const struct option *table, bool *help,
                              struct error *err);

/** Whether a command line has --help or -h. */
bool options_ask_for_help(int argc, char *const argv[]);

/** Whether a command line has this flag.  @param name  "--steps". */
bool options_given(int argc, char *const argv[], const char *name);

/**
 * Set one flag of a table as if it were on the command line.  `value` must live as long as the destination.
 * @return OK, or ERR_USAGE as options_parse; also if there is no such flag.
 */
enum error_code options_set(const struct option *table, const char *name, const char *value, struct error *err);

/** The purpose of an option and its choices, without its default: for help and for files of settings. */
void options_explain(const struct option *, char *text, size_t size);

/**
 * The value of an option's destination as text that sets it again, bit for bit.
 * @return whether it has one: a text that is set, or a number in the option's range.
 */
bool options_value(const struct option *, char *text, size_t size);

enum { OPTION_TEXT = 1000 };

/** The help of an option: its text, its choices and its default. */
void option_describe(const struct option *, char text[OPTION_TEXT]);

/** Print a table as help: aligned, at most 100 columns, and no wider than the terminal.  Defaults are the current
 *  values of the destinations. */
void options_print_help(FILE *to, const struct option *table);

/** Print text from column `left` on, wrapped at 100 columns or those of a narrower terminal, and end the line.  The
 *  cursor must be at `left`. */
void print_wrapped(FILE *to, int left, const char *text);
/** Print text wrapped at `columns`. */
void print_wrapped_at(FILE *to, int left, int columns, const char *text);

/**
 * The name nearest to a mistyped word, by edit distance (a swap of two neighbours counts as one edit).
 * @param names  n names; NULL entries are skipped.
 * @return one of names, or NULL if none is near enough.
 */
const char *nearest_name(const char *word, const char *const *names, size_t n);

/**
 * Refuse an unknown name; the message has the nearest known name, or all of them if none is near.
 * @param flag   the argument that has it: "--tensor".
 * @param names  n names.
 * @return ERR_USAGE.
 */
enum error_code fail_unknown_name(struct error *, const char *flag, const char *word, const char *const *names,
                                  size_t n);

/* The shortest text that reads back as the same number. */
struct real_text { char text[32]; };

/** The shortest decimal number that is read as this one, bit for bit. */
struct real_text real_format(double);

#endif
