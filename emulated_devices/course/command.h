/* command.h -- flags that a student writes in a text, and what this program says of them.
 *
 *     struct command c;
 *     struct command_report r;
 *     if (!command_take(j, "plan", "small", allowed, &c)) return;
 *     command_add(&c, "--model megatron-18b --memory 0");
 *     if (command_run(j, "plan", &c, &r)) ... json_int(r.json, ..)
 *     command_report_free(&r);
 *
 * The text has parts: a line `plan small`, and lines of flags under it, until the next line that begins with `plan`, or
 * with `orrery`, where a schedule begins (schedule_file.h).  `#` starts a comment.
 *
 * Nothing in the text is trusted.  Only flags that the lesson allows are taken, with words of letters, digits and
 * "._:,+-", which can name no file elsewhere.  A check of a text runs in the cage (cage.h), where there is no file and
 * no program; so it asks its judge for the command.  That runs in a cage of its own: it sees this program, its
 * libraries and a folder with the student's text under its own name, so that `--schedule FILE:NAME` finds a schedule.
 * Checks of lessons 17 and 18 call it.  A text that is wrong fails the check with a line's number.  A command that
 * fails does so with the command's own message.  tutorials/17_plan/check.c and tutorials/18_capstone/check.c call
 * these functions.
 */
#ifndef ORRERY_COURSE_COMMAND_H
#define ORRERY_COURSE_COMMAND_H

#include "emulated_devices/course/lesson.h"
#include "ref/io/json.h"

enum { COMMAND_WORDS = 80, COMMAND_WORD = 80 };

/* A flag that may be in a text: "--dp".  alone: it takes no value. */
struct allowed_flag { const char *flag; bool alone; };

/* A command line: [count] words, the first without "orrery". */
struct command { char word[COMMAND_WORDS][COMMAND_WORD]; int count; };

enum { COMMAND_SAID = 600, COMMAND_REPORT = 4 << 20 };

/* This is the outcome of a command. */
struct command_report {
    int status;                         /* of the process; see `orrery --help`: 0, or 3 if a check of its own failed */
    cJSON *json;                        /* of --json; NULL: it wrote none */
    char said[COMMAND_SAID];            /* its error, without "orrery: "; "" if there was none */
};

/* A check's wish, and the judge's answer to it, in memory that both share.  Neither trusts what the other has written:
 * texts end where their arrays end. */
struct command_request {
    char name[COMMAND_WORD];            /* of the command */
    struct command command;             /* what the check wants to run */
    int32_t status;                     /* exit status of the command */
    char over[80];                      /* which limit ended it; "": none */
    char said[COMMAND_SAID];            /* its line of error; "": none */
    uint64_t bytes;                     /* of its report; 0: there is none */
    char report[COMMAND_REPORT + 1];    /* the JSON that it wrote */
};

/**
 * Take the flags of one part of a lesson's text.
 * @param head,name  of the line above it, such as "plan" and "small".
 * @param allowed    ends with an empty one.
 * @return whether there are any and all are allowed; else the check has failed, with file and line.
 */
bool command_take(struct judge *, const char *head, const char *name, const struct allowed_flag *allowed,
                  struct command *);

/** Whether the flags keep the function that one device computes: some schedules do not, by design.
 * @param name  of the part of the text, for messages.  @return false: the check has failed. */
bool command_keeps_function(struct judge *, const char *name, const struct command *);

/** Add words of the lesson's own, separated by blanks. */
void command_add(struct command *, const char *words);

/**
 * Run a command of orrery with these words, and with a JSON report, within the limits of command_serve.c.
 * @param name  of the command.
 * @param[out] report  for command_report_free, also on failure.
 * @return whether it ended by itself with a report; else the check has failed, for the reason that the command says.
 */
bool command_run(struct judge *, const char *name, const struct command *, struct command_report *report);
void command_report_free(struct command_report *);

#endif
