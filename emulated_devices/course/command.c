#define _DEFAULT_SOURCE                 /* mkdtemp */
#include "emulated_devices/course/command.h"
#include "emulated_devices/course/build.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COMMAND_SECONDS = 30, COMMAND_FILE = 1 << 26 };          /* of each process */
enum { WALL_SECONDS = 600, FILE_MOST = 1 << 20 };

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

/* ---- running it -------------------------------------------------------------------------------------------------- */

static const char COURSE[] = "course.h", REPORT[] = "report.json", OUT[] = "out", SAID[] = "said";

static bool write_file(struct judge *j, const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];
    path_of(path, sizeof path, folder, name);
    FILE *f = fopen(path, "w");
    const bool well = f && fputs(text, f) >= 0;
    if (f && fclose(f) == 0 && well) return true;
    return judge_fails(j, "the command's folder cannot be written: %s", strerror(errno));
}

/* A student's folder in small: the text, and course.h, which `orrery train` reads as text to train on. */
static bool open_folder(struct judge *j, char folder[PATH_MAX / 2])
{
    char tutorials[PATH_MAX / 2], path[PATH_MAX], *text = NULL;
    struct error err = { OK, "" };
    size_t bytes;
    snprintf(folder, PATH_MAX / 2, "%s/orrery-course-XXXXXX", temporary_folder());
    if (mkdtemp(folder) == NULL) return judge_fails(j, "no folder can be made for the command: %s", strerror(errno));
    if (course_folder(tutorials, sizeof tutorials, &err) == OK) {
        path_of(path, sizeof path, tutorials, COURSE);
        file_read_all(path, FILE_MOST, &text, &bytes, &err);
    }
    const bool well = text ? write_file(j, folder, COURSE, text) && write_file(j, folder, j->lesson->file, j->text)
                           : judge_fails(j, "%s", err.text);
    free(text);
    return well;
}

static void remove_folder(const struct judge *j, const char *folder)
{
    const char *const names[] = { j->lesson->file, COURSE, REPORT, OUT, SAID };
    char path[PATH_MAX];
    for (int i = 0; i < 5; i++) path_of(path, sizeof path, folder, names[i]), unlink(path);
    rmdir(folder);
}

static void become(const char *folder, const char *program, const char *name, const struct command *c)
{
    char *words[COMMAND_WORDS + 8], second[COMMAND_WORD], json[] = "--json", file[sizeof REPORT];
    int n = 0;
    snprintf(second, sizeof second, "%s", name), memcpy(file, REPORT, sizeof REPORT);
    words[n++] = (char *)(uintptr_t)program, words[n++] = second;      /* devices are started by the first word */
    for (int i = 0; i < c->count; i++) words[n++] = (char *)(uintptr_t)c->word[i];
    words[n++] = json, words[n++] = file, words[n] = NULL;
    signal(SIGALRM, SIG_DFL);
    setrlimit(RLIMIT_CPU, &(struct rlimit){ COMMAND_SECONDS, COMMAND_SECONDS + 1 });
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){ COMMAND_FILE, COMMAND_FILE });
    alarm(WALL_SECONDS);
    if (chdir(folder) != 0) _exit(126);
    const int in = open("/dev/null", O_RDONLY), out = open(OUT, O_WRONLY | O_CREAT | O_TRUNC, 0600),
              said = open(SAID, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (in < 0 || out < 0 || said < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(said, 2) < 0) _exit(126);
    execv(program, words);
    _exit(127);
}

/* The first line of its errors that is one of ours. */
static void read_said(const char *folder, char *to, size_t size)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes;
    path_of(path, sizeof path, folder, SAID);
    if (file_read_all(path, FILE_MOST, &text, &bytes, NULL) != OK) return;
    const char *at = strncmp(text, "orrery: ", 8) == 0 ? text : strstr(text, "\norrery: ");
    if (at) at = strstr(at, "orrery: ") + 8;
    if (at) snprintf(to, size, "%.*s", (int)strcspn(at, "\n"), at);
    free(text);
}

bool command_run(struct judge *j, const char *name, const struct command *c, struct command_report *r)
{
    char folder[PATH_MAX / 2], path[PATH_MAX];
    struct child_end end = { 0 };
    *r = (struct command_report){ .status = -1 };
    if (j->program == NULL) return judge_fails(j, "there is no program that could run `orrery %s`", name);
    if (!open_folder(j, folder)) {
        remove_folder(j, folder);
        return false;
    }
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) become(folder, j->program, name, c);
    if (child > 0) child_wait(child, 0, &end);          /* it has limits of its own */
    const int how = end.how;
    r->status = child > 0 && WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    path_of(path, sizeof path, folder, REPORT);
    if (access(path, R_OK) == 0) json_read(path, &r->json, NULL);
    read_said(folder, r->said, sizeof r->said);
    remove_folder(j, folder);
    if (r->json && (r->status == 0 || r->status == 3)) return true;
    if (r->said[0]) return judge_fails(j, "`orrery %s` says: %s", name, r->said);
    const int by = child > 0 && WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    const bool late = by == SIGALRM || by == SIGXCPU || by == SIGKILL;
    return judge_fails(j, "`orrery %s` ended without a report%s", name, late ? ": it computes for too long" : "");
}

void command_report_free(struct command_report *r)
{
    cJSON_Delete(r->json);
    r->json = NULL;
}
