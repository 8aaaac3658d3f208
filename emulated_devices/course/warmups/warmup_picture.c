/* warmup_picture.c -- what a command of this program prints, as a figure of a warm-up, with a word hidden or changed.
 * warmup_pose.c calls warmup_draw_picture.  The command is the lesson's, not a student's, so it needs no cage.
 * ERR_FILE: it cannot run; ERR_FORMAT: its output has not what the warm-up names; ERR_MEMORY. */
#include "emulated_devices/course/warmups/warmup.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include "ref/machine/system.h"
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUN_SECONDS = 120, RUN_WORDS = 60, OUTPUT_MOST = 4 << 20, SLOT = 3 };    /* SLOT: columns of a unit of time */

/* ---- a command --------------------------------------------------------------------------------------------------- */

/* Become this program with other words; its output goes to a file. */
static void become_command(char *words, int out)
{
    char self[PATH_MAX], *word[RUN_WORDS + 2] = { self };
    int n = 1;
    (void)system_program(self, sizeof self);            /* what starts devices needs it */
    for (char *rest = NULL, *one = strtok_r(words, " ", &rest); one && n <= RUN_WORDS; one = strtok_r(NULL, " ", &rest))
        word[n++] = one;
    const int nothing = open("/dev/null", O_RDWR);
    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(out, 1) < 0 || dup2(nothing, 2) < 0) _exit(126);
    setenv("ORRERY_ONE_PROCESS", "1", 1), setenv("NO_COLOR", "1", 1);
    unsetenv("ORRERY_TERMINAL");
    execv(self, word);
    _exit(127);
}

char *warmup_run(const char *words, struct error *err)
{
    struct child_end end = { 0 };
    char copy[600], *text = NULL;
    FILE *out = tmpfile();
    if (out == NULL) return fail(err, ERR_FILE, "%s: no file can be made there", temporary_folder()), NULL;
    snprintf(copy, sizeof copy, "%s", words);
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) become_command(copy, fileno(out));
    if (child > 0 && !child_wait(child, RUN_SECONDS, &end)) child_stop(child, &end);
    const long bytes = fseek(out, 0, SEEK_END) == 0 ? ftell(out) : -1;
    if (child < 0 || !WIFEXITED(end.how) || WEXITSTATUS(end.how) != 0 || bytes < 0 || bytes > OUTPUT_MOST)
        fail(err, ERR_FILE, "a warm-up's picture cannot be drawn: orrery %s", printable_path(words).text);
    else {
        rewind(out);
        text = calloc(1, (size_t)bytes + 1);
        if (text == NULL) fail(err, ERR_MEMORY, "no memory for a picture");
        else text[fread(text, 1, (size_t)bytes, out)] = '\0';
    }
    fclose(out);
    return text;
}

/* ---- lines of its output ----------------------------------------------------------------------------------------- */

/* The first line from `at` on that begins with this word, but for blanks; a blank, or nothing, must follow it. */
static char *find_line(char *at, const char *word)
{
    const size_t n = strlen(word);
    while (*at) {
        char *from = at + strspn(at, " ");
        if (strncmp(from, word, n) == 0 && (from[n] == ' ' || from[n] == '\n' || from[n] == '\0')) return at;
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    return NULL;
}

static enum error_code not_there(const struct question *question, const char *what, struct error *err)
{
    return fail(err, ERR_FORMAT, "warm-up %s of %s: its picture has no \"%s\"", question->warmup->name,
                question->warmup->lesson->folder, printable(what).text);
}

/* Keep the lines of the picture from one that begins with `from` up to one that begins with `until`. */
static enum error_code keep_lines(struct question *question, struct error *err)
{
    const struct warmup *w = question->warmup;
    char *from = w->from ? warmup_text(question, w->from, err) : NULL;
    char *until = w->until ? warmup_text(question, w->until, err) : NULL;
    enum error_code e = (w->from && !from) || (w->until && !until) ? err->code : OK;
    char *first = from && !e ? find_line(question->picture, from) : question->picture;
    if (!e && first == NULL) e = not_there(question, from, err);
    char *next = e ? NULL : first + strcspn(first, "\n"), *last = next && until ? find_line(next, until) : NULL;
    if (!e && until && last == NULL) e = not_there(question, until, err);
    if (last) *last = '\0';
    if (!e) {
        size_t n = strlen(first);
        while (n > 0 && isspace((unsigned char)first[n - 1])) n--;
        memmove(question->picture, first, n);
        question->picture[n] = '\0';
    }
    free(from), free(until);
    return e;
}

/* ---- a word in them ---------------------------------------------------------------------------------------------- */

/* The word number `column` of a line, behind its name; "@4": what stands there at time 4 of a schedule. */
static char *find_word(const struct question *question, char *line, const char *name, const char *column, size_t *bytes)
{
    struct formula_number k = { -1, true };
    const bool slot = column[0] == '@';
    char *at = line + strspn(line, " ") + strlen(name);
    const char *end = line + strcspn(line, "\n");
    if (formula_compute(&question->scope, column + slot, &k, NULL) != OK || k.value < 0) return NULL;
    at += strspn(at, " ");
    if (slot) {
        at += SLOT * (int)k.value;
        *bytes = at < end ? strspn(at, "FBIW0123456789") : 0;
        return *bytes ? at : NULL;
    }
    for (int i = 0; i < (int)k.value; i++) at += strcspn(at, " \n"), at += strspn(at, " ");
    *bytes = at < end ? strcspn(at, " \n") : 0;
    return *bytes ? at : NULL;
}

/* Put another word in the place of one; blanks behind it give room. */
static void put_word(char *at, size_t bytes, const char *word)
{
    size_t room = bytes + strspn(at + bytes, " ");
    const size_t n = strlen(word);
    if (at[room] == '\n' || at[room] == '\0') room = bytes;
    memset(at, ' ', bytes);
    memcpy(at, word, n < room ? n : room);
}

/* "step 2 | device 1 | 0": a line of the section that begins so, and a word in that line. */
static enum error_code change_cell(struct question *question, struct error *err)
{
    const struct warmup *w = question->warmup;
    char *text = warmup_text(question, w->cell, err), *row = text ? strstr(text, " | ") : NULL,
         *column = row ? strstr(row + 3, " | ") : NULL, *line = question->picture;
    size_t bytes = 0;
    if (column == NULL) return free(text), not_there(question, w->cell, err);
    *row = *column = '\0', row += 3, column += 3;
    const bool section = strcmp(text, "top") != 0;
    if (section) line = find_line(line, text);
    if (line && section) line += strcspn(line, "\n");
    if (line) line = find_line(line, row);
    char *at = line ? find_word(question, line, row, column, &bytes) : NULL;
    enum error_code e = at ? OK : not_there(question, row, err);
    if (at) {
        snprintf(question->word, sizeof question->word, "%.*s", (int)bytes, at);
        char *other = w->spoil ? warmup_text(question, w->spoil, err) : NULL;
        if (w->spoil && other == NULL) e = err->code;
        snprintf(question->spoilt, sizeof question->spoilt, "%s", other ? other : column[0] == '@' ? "??" : "?");
        if (!e) put_word(at, bytes, question->spoilt);
        free(other);
    }
    free(text);
    return e;
}

enum error_code warmup_draw_picture(struct question *question, struct error *err)
{
    char *words = warmup_text(question, question->warmup->run, err);
    if (words == NULL) return err->code;
    question->picture = warmup_run(words, err);
    free(words);
    enum error_code e = question->picture ? keep_lines(question, err) : err->code;
    return !e && question->warmup->cell ? change_cell(question, err) : e;
}
