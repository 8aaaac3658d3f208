/* command.c -- the flags of a text, and the check's side of a command: command_serve.c is the judge's. */
#include "emulated_devices/course/command.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- from a text ------------------------------------------------------------------------------------------------- */

struct line { const char *at; int number; char text[400]; };

/* The next line, without its comment.  @return false: there is none. */
static bool next_line(struct line *l)
{
    if (*l->at == '\0') return false;
    const size_t n = strcspn(l->at, "\n");
    snprintf(l->text, sizeof l->text, "%.*s", (int)(n < sizeof l->text ? n : sizeof l->text - 1), l->at);
    l->text[strcspn(l->text, "#\r")] = '\0';
    l->at += n + (l->at[n] == '\n');
    l->number++;
    return true;
}

/* The next word of a line, cut off. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " \t");
    if (*word == '\0') return NULL;
    *at = word + strcspn(word, " \t");
    if (**at) *(*at)++ = '\0';
    return word;
}

static bool line_begins(const struct line *l, const char *word)
{
    const char *at = l->text + strspn(l->text, " \t");
    const size_t n = strlen(word);
    return strncmp(at, word, n) == 0 && (at[n] == '\0' || at[n] == ' ' || at[n] == '\t');
}

static bool is_head(const struct line *l, const char *head, const char *name)
{
    char copy[sizeof l->text], *at = copy;
    snprintf(copy, sizeof copy, "%s", l->text);
    const char *first = next_word(&at), *second = first ? next_word(&at) : NULL;
    return second && strcmp(first, head) == 0 && strcmp(second, name) == 0 && next_word(&at) == NULL;
}

static bool is_plain(const char *word)
{
    for (; *word; word++)
        if (!isalnum((unsigned char)*word) && !strchr("._:,+-", *word)) return false;
    return true;
}

static bool refuse(struct judge *j, const struct line *l, const char *word, const char *why)
{
    return judge_fails(j, "%s:%d: %s: %s", j->lesson->file, l->number, printable(word).text, why);
}

static bool refuse_flag(struct judge *j, const struct line *l, const char *word, const struct allowed_flag *allowed)
{
    char why[700] = "is not one of";
    for (; allowed->flag; allowed++) {
        const size_t n = strlen(why);
        snprintf(why + n, sizeof why - n, " %s", allowed->flag);
    }
    return refuse(j, l, word, why);
}

static const struct allowed_flag *find(const struct allowed_flag *allowed, const char *word)
{
    for (; allowed->flag; allowed++)
        if (strcmp(allowed->flag, word) == 0) return allowed;
    return NULL;
}

static bool put(struct judge *j, const struct line *l, struct command *c, const char *word)
{
    if (strlen(word) >= COMMAND_WORD || !is_plain(word))
        return refuse(j, l, word, "a word of letters, digits and ._:,+- is expected");
    if (c->count >= COMMAND_WORDS / 2) return refuse(j, l, word, "there are too many words");
    snprintf(c->word[c->count++], COMMAND_WORD, "%s", word);
    return true;
}

static bool take_line(struct judge *j, struct line *l, const struct allowed_flag *allowed, struct command *c)
{
    char *at = l->text;
    for (char *word; (word = next_word(&at)) != NULL;) {
        const struct allowed_flag *f = find(allowed, word);
        if (f == NULL) return refuse_flag(j, l, word, allowed);
        if (!put(j, l, c, word)) return false;
        if (f->alone) continue;
        const char *value = next_word(&at);
        if (value == NULL || strncmp(value, "--", 2) == 0) return refuse(j, l, word, "its value is expected after it");
        if (!put(j, l, c, value)) return false;
    }
    return true;
}

bool command_take(struct judge *j, const char *head, const char *name, const struct allowed_flag *allowed,
                  struct command *c)
{
    struct line l = { .at = j->text };
    bool inside = false;
    *c = (struct command){ .count = 0 };
    while (next_line(&l)) {
        if (is_head(&l, head, name) && inside) return refuse(j, &l, name, "there is a part of this name already");
        if (line_begins(&l, head) || line_begins(&l, "orrery")) inside = is_head(&l, head, name);
        else if (inside && !take_line(j, &l, allowed, c)) return false;
    }
    if (c->count > 0) return true;
    return judge_fails(j, "%s: there are no flags under a line \"%s %s\"", j->lesson->file, head, name);
}

void command_add(struct command *c, const char *words)
{
    char copy[COMMAND_WORDS * COMMAND_WORD / 4], *at = copy;
    snprintf(copy, sizeof copy, "%s", words);
    for (const char *word; c->count < COMMAND_WORDS - 4 && (word = next_word(&at)) != NULL;)
        snprintf(c->word[c->count++], COMMAND_WORD, "%s", word);
}

/* ---- asking for it ----------------------------------------------------------------------------------------------- */

bool command_run(struct judge *j, const char *name, const struct command *c, struct command_report *r)
{
    struct command_request *q = j->request;
    char word = 0;
    *r = (struct command_report){ .status = -1 };
    if (q == NULL) return judge_fails(j, "there is no program that could run `orrery %s`", name);
    snprintf(q->name, sizeof q->name, "%s", name);
    q->command = *c;
    if (write(j->asks, &word, 1) != 1 || read(j->hears, &word, 1) != 1)
        return judge_fails(j, "`orrery %s` cannot be asked for", name);
    r->status = q->status;
    snprintf(r->said, sizeof r->said, "%s", q->said);
    if (q->bytes > 0) json_parse(q->report, q->bytes, "the report", &r->json, NULL);
    if (r->json && (r->status == 0 || r->status == 3)) return true;
    if (q->over[0]) return judge_fails(j, "`orrery %s` was stopped: %s", name, q->over);
    if (r->said[0]) return judge_fails(j, "`orrery %s` says: %s", name, r->said);
    return judge_fails(j, "`orrery %s` ended without a report", name);
}

void command_report_free(struct command_report *r)
{
    cJSON_Delete(r->json);
    r->json = NULL;
}
