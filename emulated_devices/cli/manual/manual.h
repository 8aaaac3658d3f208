/* manual.h -- every command with its options, as the tables of the commands have them: for the man page and the shells'
 * completion.  completion.c calls these functions.  No function returns an error code. */
#ifndef ORRERY_CLI_MANUAL_H
#define ORRERY_CLI_MANUAL_H

#include "emulated_devices/cli/cli.h"
#include <stdio.h>

struct manual_option {
    char *name, *argument, *text;       /* text: the help with its default; argument: NULL for switches */
    enum option_kind kind;              /* as in its table of options; OPTION_HEADING: a heading between flags */
    char **choices;                     /* ends with NULL; NULL: none */
};

struct manual_command {
    char *name, *line, *usage, *what;   /* "show schedule"; line: its description in the list of commands */
    struct manual_option *option;       /* [options] */
    int options;                        /* entries of `option` */
    int topics;                         /* of the commands that follow, those that are topics of this one */
};

struct manual {
    struct manual_command *command;     /* [commands], topics behind their command */
    int commands;                       /* entries of `command` */
    bool failed;                        /* no memory */
};

/** Print the man page, in the macros of man(7). */
void manual_print_page(FILE *, const struct manual *);
void manual_print_bash(FILE *, const struct manual *);
void manual_print_zsh(FILE *, const struct manual *);
void manual_print_fish(FILE *, const struct manual *);

/** Print text of at most so many bytes without what ends a string of a shell or begins an expansion. */
void manual_print_plain(FILE *, const char *text, int most);

#endif
