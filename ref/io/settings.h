/* settings.h -- settings of a run in a file: `orrery train --config run.yaml`.
 *
 * A key is the name of a flag without its dashes, a value what the flag takes; switches and yes-or-no flags take true
 * or false.  Settings become words in front of those of the command line, which therefore override them, and are
 * checked by the same code.  The key `written-by` is not read: it says who wrote the file.
 *
 * cli/train/options/options.c and cli/train/train.c call this file.  Errors are ERR_USAGE, which names file, line and
 * key, and ERR_MEMORY.
 */
#ifndef ORRERY_SETTINGS_H
#define ORRERY_SETTINGS_H

#include "ref/io/options.h"
#include "ref/io/sha256.h"
#include "ref/io/yaml.h"

#define SETTINGS_WRITTEN_BY "written-by"
#define SETTINGS_ON_PAGE "<pre class=\"settings\">"          /* before the settings of a run on a page of HTML */

/**
 * Read the settings of a file: of settings, or of what a run has written: the object `settings` of its JSON, or of the
 * first line of its log; or the only settings of a page that `orrery report` has made.
 * @param[out] root  a mapping, for yml_free; NULL on failure.
 * @return as yml_read; ERR_FORMAT also for a page without the settings of a run, or with those of several.
 */
enum error_code settings_read(const char *path, struct yaml **root, struct error *);

/* The words of a command line, behind those of its --config. */
struct settings_words {
    int argc;                           /* words, the command's name among them */
    char **argv;                        /* [argc + 1] ends with NULL */
    int own;                            /* so many of the first words are in memory of their own */
    struct sha256_text digest;          /* of the words that come from the file */
    bool once;                          /* the file is a pipe: other processes cannot read it again */
};

/**
 * Put the settings of --config in front of a command line.  Settings that the command line has, too, are left out.
 * @param command  names it in messages.
 * @param table    its options; all: those of every command that shares them, which it passes over in a file.
 * @return OK, also without --config; ERR_USAGE with file and line: a key that is no flag (with the nearest), a value
 *         that its flag does not take; or as yml_read.  On failure, too, settings_free is needed.
 */
enum error_code settings_expand(struct settings_words *, const char *command, const struct option *table,
                              const struct option *all, int argc, char *const argv[], struct error *);
void settings_free(struct settings_words *);

/** Leave --config out of the words, which have its settings.  Other processes can then be given the words. */
void settings_drop_file(struct settings_words *);

/** Check one setting of a file as its flag would be, and set the flag's destination.
 *  @param where  the file, for messages.  @param passed  out: it is not one of this command's, but of another's. */
enum error_code settings_check(const char *command, const struct option *table, const struct option *all,
                             const struct yaml *setting, const char *where, bool *passed, struct error *);

/** A setting as a word of a command line, for free(): "--dp=2", or "--isolate"; "" for a switch that is off.
 *  @return NULL if there is no memory. */
char *settings_word(const struct option *, const struct yaml *setting);

/** The option of a table with this key; NULL if there is none. */
const struct option *settings_option(const struct option *table, const char *key);

/**
 * Print the settings that a command line gives, a line each, in the table's order.
 * @param comments  also the table's headings and explanations, and, commented out, each other setting with its default.
 */
void settings_print(FILE *to, const struct option *table, int argc, char *const argv[], bool comments);

#endif
