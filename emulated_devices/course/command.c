/* command.c -- the flags of a text, and the check's side of a command: command_serve.c is the judge's.
 * A check of a text calls command_take and command_run; command_serve.c runs the command for it.  Words that a
 * student may use are listed by the lesson.  Without a request in the judge no command can be run.  No function
 * returns an error code. */
#include "emulated_devices/course/command.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- from a text ------------------------------------------------------------------------------------------------- */

/* line: a line of the text, and its number for messages. */
struct line { const char *at; int number; char text[400]; };

/* Go to the next line, without its comment.  @return false: there is none. */
static bool next_line(struct line *line)
{
    if (*line->at == '\0') return false;
    const size_t n = strcspn(line->at, "\n");
    snprintf(line->text, sizeof line->text, "%.*s", (int)(n < sizeof line->text ? n : sizeof line->text - 1), line->at);
    line->text[strcspn(line->text, "#\r")] = '\0';
    line->at += n + (line->at[n] == '\n');
    line->number++;
    return true;
}

/* Cut off the next word of a line. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " \t");
    if (*word == '\0') return NULL;
    *at = word + strcspn(word, " \t");
    if (**at) *(*at)++ = '\0';
    return word;
}

/* Whether a line begins with this word, and nothing behind it in the word. */
static bool line_begins(const struct line *line, const char *word)
{
    const char *at = line->text + strspn(line->text, " \t");
    const size_t n = strlen(word);
    return strncmp(at, word, n) == 0 && (at[n] == '\0' || at[n] == ' ' || at[n] == '\t');
}

/* Whether a line is "run mine": a head and a name, and no third word. */
static bool is_head(const struct line *line, const char *head, const char *name)
{
    char copy[sizeof line->text], *at = copy;
    snprintf(copy, sizeof copy, "%s", line->text);
    const char *first = next_word(&at), *second = first ? next_word(&at) : NULL;
    return second && strcmp(first, head) == 0 && strcmp(second, name) == 0 && next_word(&at) == NULL;
}

/* A word of a student's text goes to a command line, so only plain characters are allowed. */
static bool is_plain(const char *word)
{
    for (; *word; word++)
        if (!isalnum((unsigned char)*word) && !strchr("._:,+-", *word)) return false;
    return true;
}

/* Fail with the line's number and the word that is wrong. */
static bool command_refuse(struct judge *judge, const struct line *line, const char *word, const char *why)
{
    return judge_fails(judge, "%s:%d: %s: %s", judge->lesson->file, line->number, printable(word).text, why);
}

/* Fail with all flags that this lesson allows. */
static bool refuse_flag(struct judge *judge, const struct line *line, const char *word,
                        const struct allowed_flag *allowed)
{
    char why[700] = "is not one of";
    for (; allowed->flag; allowed++) {
        const size_t n = strlen(why);
        snprintf(why + n, sizeof why - n, " %s", allowed->flag);
    }
    return command_refuse(judge, line, word, why);
}

/* Find the flag with this name, or NULL: the lesson does not allow it. */
static const struct allowed_flag *course_command_find(const struct allowed_flag *allowed, const char *word)
{
    for (; allowed->flag; allowed++)
        if (strcmp(allowed->flag, word) == 0) return allowed;
    return NULL;
}

/* Add a word to the command; half of the words are left for the lesson's own. */
static bool command_put(struct judge *judge, const struct line *line, struct command *command, const char *word)
{
    if (strlen(word) >= COMMAND_WORD || !is_plain(word))
        return command_refuse(judge, line, word, "a word of letters, digits and ._:,+- is expected");
    if (command->count >= COMMAND_WORDS / 2) return command_refuse(judge, line, word, "there are too many words");
    snprintf(command->word[command->count++], COMMAND_WORD, "%s", word);
    return true;
}

/* Take the flags of a line; a flag that stands alone has no value behind it. */
static bool take_line(struct judge *judge, struct line *line, const struct allowed_flag *allowed,
                      struct command *command)
{
    char *at = line->text;
    for (char *word; (word = next_word(&at)) != NULL;) {
        const struct allowed_flag *f = course_command_find(allowed, word);
        if (f == NULL) return refuse_flag(judge, line, word, allowed);
        if (!command_put(judge, line, command, word)) return false;
        if (f->alone) continue;
        const char *value = next_word(&at);
        if (value == NULL || strncmp(value, "--", 2) == 0)
            return command_refuse(judge, line, word, "its value is expected after it");
        if (!command_put(judge, line, command, value)) return false;
    }
    return true;
}

/* Take the flags of a part of the text.  @return false: the check has failed. */
bool command_take(struct judge *judge, const char *head, const char *name, const struct allowed_flag *allowed,
                  struct command *command)
{
    struct line l = { .at = judge->text };
    bool inside = false;
    *command = (struct command){ .count = 0 };
    while (next_line(&l)) {
        if (is_head(&l, head, name) && inside)
            return command_refuse(judge, &l, name, "there is a part of this name already");
        /* Another part, or a line with a command of its own, ends this part. */
        if (line_begins(&l, head) || line_begins(&l, "orrery")) inside = is_head(&l, head, name);
        else if (inside && !take_line(judge, &l, allowed, command)) return false;
    }
    if (command->count > 0) return true;
    return judge_fails(judge, "%s: there are no flags under a line \"%s %s\"", judge->lesson->file, head, name);
}

/* Add the words that the lesson itself sets; they are not a student's and need no check. */
void command_add(struct command *command, const char *words)
{
    char copy[COMMAND_WORDS * COMMAND_WORD / 4], *at = copy;
    snprintf(copy, sizeof copy, "%s", words);
    for (const char *word; command->count < COMMAND_WORDS - 4 && (word = next_word(&at)) != NULL;)
        snprintf(command->word[command->count++], COMMAND_WORD, "%s", word);
}

/* ---- asking for it ----------------------------------------------------------------------------------------------- */

/* Ask the judge to run the command, and read its report.  @return false: it failed, or there is no report. */
bool command_run(struct judge *judge, const char *name, const struct command *command, struct command_report *report)
{
    struct command_request *q = judge->request;
    char word = 0;
    *report = (struct command_report){ .status = -1 };
    if (q == NULL) return judge_fails(judge, "there is no program that could run `orrery %s`", name);
    snprintf(q->name, sizeof q->name, "%s", name);
    q->command = *command;
    /* The judge and the check share the request's memory; a byte each way says that it is ready. */
    if (write(judge->asks, &word, 1) != 1 || read(judge->hears, &word, 1) != 1)
        return judge_fails(judge, "`orrery %s` cannot be asked for", name);
    report->status = q->status;
    snprintf(report->said, sizeof report->said, "%s", q->said);
    if (q->bytes > 0) json_parse(q->report, q->bytes, "the report", &report->json, NULL);
    if (report->json && (report->status == 0 || report->status == 3)) return true;
    if (q->over[0]) return judge_fails(judge, "`orrery %s` was stopped: %s", name, q->over);
    if (report->said[0]) return judge_fails(judge, "`orrery %s` says: %s", name, report->said);
    return judge_fails(judge, "`orrery %s` ended without a report", name);
}

void command_report_free(struct command_report *report)
{
    cJSON_Delete(report->json);
    report->json = NULL;
}
