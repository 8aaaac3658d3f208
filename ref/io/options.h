/* options.h -- the command line: one table a subcommand, from which it is parsed, checked and explained.
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
 * What a destination holds before parsing is the default; the help shows it, unless it has words of its own for it,
 * after "default:".  Values may follow their flag as the next word or after `=`.  The parser prints nothing; a mistake
 * is one line in struct error.
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
    OPTION_SIZE,                        /* uint64_t: bytes, with an optional suffix K, M, G or T of 1024 */
    OPTION_STRING,                      /* const char *: points into argv */
    OPTION_CHOICE,                      /* const char *: one of .choices; points into .choices */
};

struct option {
    const char *name;                   /* "--steps"; without dashes ("FILE") an argument told by its position */
    const char *argument;               /* word for the value in the help: "N"; NULL for a switch or a position */
    enum option_kind kind;
    void *to;                           /* where the value goes, of the type its kind says */
    double min, max;                    /* inclusive; hold when min < max; max may be INFINITY */
    const char *const *choices;         /* OPTION_CHOICE: names, NULL-terminated */
    bool required;                      /* leaving it out is an error */
    bool *given;                        /* set to whether it was on the command line; may be NULL */
    const char *help;                   /* what it does, in a few words */
};

/**
 * Read a command line into the destinations of a table.
 *
 * `--help` or `-h` anywhere wins over everything else: *help becomes true and no destination is touched.  `--` ends
 * the flags; what follows goes to the positions.
 * @param command    subcommand, as messages name it: "train".
 * @param argc,argv  the words after the subcommand.
 * @param table      ends with { 0 }.
 * @param[out] help  whether help was asked for.
 * @return OK, or ERR_USAGE: an unknown flag (the nearest one is named), a missing, malformed or unknown value, one out
 *         of range, a repeated flag, a word too many, a required one missing.  Then some destinations may be set.
 */
enum error_code options_parse(const char *command, int argc, char *const argv[], const struct option *table, bool *help,
                              struct error *err);

/** Whether a command line has this flag.  @param name  "--steps". */
bool options_given(int argc, char *const argv[], const char *name);

/**
 * Set one flag of a table as if it were on the command line: `value` must live as long as what is set.
 * @return OK, or ERR_USAGE as options_parse; also if there is no such flag.
 */
enum error_code options_set(const struct option *table, const char *name, const char *value, struct error *err);

/** Print a table as help: a line or more a flag, aligned, at most 100 columns.  Defaults are what is in place now. */
void options_print_help(FILE *to, const struct option *table);

/** Print words from column `left` on, where the line stands already, and end the line;
 * none is wider than 100 columns. */
void print_wrapped(FILE *to, int left, const char *text);

/**
 * The name most like a mistyped word, by edit distance (a swap of two neighbours counts as one edit).
 * @param names  n names; NULL entries are passed over.
 * @return one of names, or NULL if none is near enough to be meant.
 */
const char *nearest_name(const char *word, const char *const *names, size_t n);

/**
 * Refuse a name that is none of those known, naming the nearest, or all of them if none is near.
 * @param flag   the argument that has it: "--tensor".
 * @param names  n names.
 * @return ERR_USAGE.
 */
enum error_code fail_unknown_name(struct error *, const char *flag, const char *word, const char *const *names,
                                  size_t n);

/** Read bytes such as "4096", "64M", "1.5G".  @return whether the whole text was one, in the range of uint64_t. */
bool size_parse(const char *text, uint64_t *bytes);

struct size_text { char text[24]; };

/** Bytes for people, exact if it is a whole number of K, M, G or T: "64M"; otherwise with one decimal: "1.5G". */
struct size_text size_format(uint64_t bytes);

#endif
