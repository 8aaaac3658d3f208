/* warmup_read.c -- reads warmups.txt.
 *
 * A line begins with a word, such as `ask`; its text goes on in the lines that begin with blanks.  Of these, a line
 * that begins with `|` is kept as it is: a figure.  `#` begins a comment.  warmup_pose.c takes what was read.
 * ERR_FORMAT names the file and the line; ERR_FILE: the file cannot be read; ERR_MEMORY. */
#include "emulated_devices/course/warmups/warmup.h"
#include "emulated_devices/course/compile/build.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char FILE_NAME[] = "warmups.txt";

/* A line with its number; to: where its text is kept. */
struct warmup_reader { const struct lesson *lesson; const char *at; int line; char *to; struct error *err; };

static enum error_code warmup_refuse(const struct warmup_reader *reader, const char *why)
{
    return fail(reader->err, ERR_FORMAT, "%s/%s:%d: %s", reader->lesson->folder, FILE_NAME, reader->line, why);
}

static const char *line_end(const char *at) { return at + strcspn(at, "\n"); }

static void next_line(struct warmup_reader *reader)
{
    reader->at = line_end(reader->at);
    reader->at += *reader->at == '\n';
    reader->line++;
}

/* Copy the text of a line without blanks around it.  A figure's line is kept up to its end. */
static void keep_text(struct warmup_reader *reader, const char *from, const char *end)
{
    while (from < end && *from == ' ') from++;
    while (end > from && isspace((unsigned char)end[-1])) end--;
    memcpy(reader->to, from, (size_t)(end - from));
    reader->to += end - from;
}

/* Read the rest of a line, and the lines that go on with it. */
static const char *warmup_rest(struct warmup_reader *reader)
{
    const char *kept = reader->to;
    bool figure = false;
    keep_text(reader, reader->at, line_end(reader->at));
    next_line(reader);
    while (*reader->at == ' ') {
        const char *from = reader->at + strspn(reader->at, " ");
        if (from == line_end(reader->at)) break;
        const bool now = *from == '|';
        if (reader->to > kept) *reader->to++ = now || figure ? '\n' : ' ';
        keep_text(reader, from, line_end(from));
        figure = now;
        next_line(reader);
    }
    *reader->to++ = '\0';
    return kept;
}

/* Put a text at the end of a list that ends with NULL. */
static bool list_add(const char **list, int most, const char *text)
{
    int n = 0;
    while (n < most && list[n]) n++;
    if (n < most) list[n] = text;
    return n < most;
}

/* "W-1 | You have counted ..": an answer, and what it means. */
static enum error_code read_wrong(struct warmup_reader *reader, struct warmup *warmup)
{
    int n = 0;
    while (n < WARMUP_WRONG - 1 && warmup->wrong[n].answer) n++;
    if (n == WARMUP_WRONG - 1) return warmup_refuse(reader, "there are too many wrong answers");
    char *text = (char *)warmup_rest(reader), *bar = strstr(text, " | ");
    if (bar == NULL) return warmup_refuse(reader, "` | ` is expected, and behind it what the answer means");
    *bar = '\0';
    warmup->wrong[n] = (struct warmup_wrong){ text, bar + 3 };
    return OK;
}

/* Take a line that has one place in a warm-up. */
static const char **warmup_place(struct warmup *warmup, const char *word)
{
    const struct { const char *word, **place; } of[] = {
        { "title", &warmup->title }, { "ask", &warmup->ask }, { "why", &warmup->why }, { "run", &warmup->run },
        { "from", &warmup->from }, { "until", &warmup->until }, { "cell", &warmup->cell },
        { "spoil", &warmup->spoil }, { "answer", &warmup->answer }, { "unit", &warmup->unit },
        { "function", &warmup->function },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) if (strcmp(of[i].word, word) == 0) return of[i].place;
    return NULL;
}

static enum error_code read_line(struct warmup_reader *reader, struct warmup *warmup, const char *word)
{
    const char **place = warmup_place(warmup, word);
    if (strcmp(word, "wrong") == 0) return read_wrong(reader, warmup);
    if (strcmp(word, "hint") == 0)
        return list_add(warmup->hint, WARMUP_HINTS, warmup_rest(reader)) ? OK : warmup_refuse(reader, "too many hints");
    if (strcmp(word, "each") == 0)
        return list_add(warmup->each, WARMUP_SIZES - 1, warmup_rest(reader)) ? OK
            : warmup_refuse(reader, "there are too many arguments");
    if (strcmp(word, "draw") == 0 || strcmp(word, "let") == 0 || strcmp(word, "need") == 0 ||
        strcmp(word, "take") == 0) {
        /* The word itself is kept in front of its text. */
        const char *kept = reader->to;
        reader->to += snprintf(reader->to, 8, "%s ", word);
        warmup_rest(reader);
        return list_add(warmup->size, WARMUP_SIZES - 1, kept) ? OK : warmup_refuse(reader, "there are too many sizes");
    }
    if (place == NULL) return warmup_refuse(reader, "it begins with no word that a warm-up has");
    if (*place) return warmup_refuse(reader, "this word stands in the warm-up already");
    *place = warmup_rest(reader);
    return OK;
}

/* Every warm-up must have these lines. */
static enum error_code warmup_complete(const struct warmup_reader *reader, struct warmup *warmup)
{
    char why[120];
    const char *missing = !warmup->title ? "title" : !warmup->ask ? "ask" : !warmup->why ? "why"
        : !warmup->hint[0] ? "hint" : !warmup->wrong[0].answer ? "wrong" : NULL;
    if (warmup->function == NULL && warmup->answer == NULL && warmup->cell == NULL) missing = "answer";
    if ((warmup->function || warmup->spoil) && warmup->answer == NULL) missing = "answer";
    if (warmup->function && warmup->each[0] == NULL) missing = "each";
    if (warmup->cell && warmup->run == NULL) missing = "run";
    snprintf(why, sizeof why, "the warm-up before has no line `%s`", missing ? missing : "");
    if (missing) return warmup_refuse(reader, why);
    warmup->kind = warmup->function ? ASKS_LINE : warmup->answer ? ASKS_NUMBER : ASKS_WORD;
    return OK;
}

static enum error_code read_all(struct warmups *warmups, const char *text, const struct lesson *lesson,
                                struct error *err)
{
    struct warmup_reader r = { lesson, text, 1, warmups->text, err };
    struct warmup *w = NULL;
    enum error_code e = OK;
    while (!e && *r.at) {
        char word[20];
        const size_t n = strcspn(r.at, " \n");
        if (*r.at == '#' || *r.at == '\n' || *r.at == '\r') {
            next_line(&r);
            continue;
        }
        snprintf(word, sizeof word, "%.*s", (int)(n < 19 ? n : 19), r.at);
        r.at += n;
        if (strcmp(word, "warmup") == 0) {
            if (w) e = warmup_complete(&r, w);
            if (!e && warmups->count == WARMUPS) e = warmup_refuse(&r, "a lesson has fewer warm-ups");
            if (e) break;
            w = &warmups->warmup[warmups->count++];
            *w = (struct warmup){ .lesson = lesson, .number = warmups->count };
            w->name = warmup_rest(&r);
            for (const char *at = w->name; *at; at++)
                if (!islower((unsigned char)*at) && *at != '-') e = warmup_refuse(&r, "a name has a to z and `-`");
        } else if (w == NULL) e = warmup_refuse(&r, "a line `warmup NAME` is expected");
        else e = read_line(&r, w, word);
    }
    return e || w == NULL ? e : warmup_complete(&r, w);
}

enum error_code warmups_read(struct warmups *warmups, const struct lesson *lesson, uint64_t variant, struct error *err)
{
    char tutorials[PATH_MAX / 2], inside[PATH_MAX], path[PATH_MAX];
    *warmups = (struct warmups){ .count = 0 };
    enum error_code e = course_folder(tutorials, sizeof tutorials, err);
    if (e) return e;
    path_of(inside, sizeof inside, lesson->folder, FILE_NAME), path_of(path, sizeof path, tutorials, inside);
    if (access(path, F_OK) != 0) return OK;
    char *text = lesson_text(lesson, FILE_NAME, false, variant, err);
    if (text == NULL) return err->code;
    warmups->text = malloc(2 * strlen(text) + 100);     /* a size keeps its word, and each text its NUL */
    e = warmups->text ? read_all(warmups, text, lesson, err) : fail(err, ERR_MEMORY, "no memory for warm-ups");
    free(text);
    return e;
}

void warmups_free(struct warmups *warmups)
{
    free(warmups->text);
    warmups->text = NULL, warmups->count = 0;
}
