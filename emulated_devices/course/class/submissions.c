/* submissions.c -- finds the submissions of a class in a folder that Gradescope, Moodle, Canvas or a script has made.
 * class.c calls submissions_find.  Names and files come from students: links are not followed, folders are entered a
 * few levels deep, and numbers of entries have limits.  Errors: ERR_USAGE, ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
#define _DEFAULT_SOURCE                 /* scandir, strdup */
#include "emulated_devices/course/class/submissions.h"
#include "emulated_devices/course/python.h"
#include "emulated_devices/course/compile/build.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEEP = 4, MOST_STUDENTS = 5000, MOST_ENTRIES = 20000, ROSTER_BYTES = 4 << 20, METADATA_BYTES = 64 << 20 };

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Copy a name as it can be printed: control characters become '?', blanks at its ends are dropped. */
static void take_name(char *to, const char *from, size_t length)
{
    while (length > 0 && isspace((unsigned char)*from)) from++, length--;
    while (length > 0 && isspace((unsigned char)from[length - 1])) length--;
    size_t used = 0;
    for (size_t i = 0; i < length && used + 1 < STUDENT_NAME; i++)
        to[used++] = (unsigned char)from[i] < ' ' || from[i] == 127 ? '?' : from[i];
    to[used] = '\0';
}

/* The student of one of Moodle's folders: "Ann Lee_1234_assignsubmission_file" is Ann Lee's. */
static bool is_moodle(const char *folder, size_t *length)
{
    const char *mark = strstr(folder, "_assignsubmission");
    if (mark == NULL) return false;
    const char *at = mark;
    while (at > folder && isdigit((unsigned char)at[-1])) at--;
    *length = (size_t)(at - folder) - (at > folder && at[-1] == '_');
    return at < mark && *length > 0;
}

/* The student and the file of one of Canvas's files: "leeann_LATE_123_456_ring-1.c" is leeann's ring.c. */
static bool is_canvas(const char *entry, size_t *length, char *file, size_t size)
{
    const char *at = strchr(entry, '_');
    if (at == NULL || at == entry) return false;
    *length = (size_t)(at - entry);
    if (strncmp(at, "_LATE_", 6) == 0) at += 5;
    for (int number = 0; number < 2; number++) {
        const size_t digits = strspn(at + 1, "0123456789");
        if (digits == 0 || at[1 + digits] != '_') return false;
        at += 1 + digits;
    }
    snprintf(file, size, "%s", at + 1);
    /* A file that is handed in again gets a number before its ending. */
    char *dot = strrchr(file, '.'), *dash = dot;
    while (dash && dash > file && isdigit((unsigned char)dash[-1])) dash--;
    if (dot && dash < dot && dash > file && dash[-1] == '-') memmove(dash - 1, dot, strlen(dot) + 1);
    return true;
}

/* Find the first submitter of one of Gradescope's folders in submission_metadata.yml. */
static void name_by_metadata(const char *metadata, const char *folder, char *name)
{
    const size_t n = strlen(folder);
    for (const char *at = metadata; (at = strstr(at, folder)) != NULL; at += n) {
        if ((at > metadata && at[-1] != '\n') || at[n] != ':') continue;
        const char *end = at + n, *found = strstr(at, ":name:");
        /* The next folder's entry begins in column 0. */
        while ((end = strchr(end, '\n')) != NULL && (end[1] == ' ' || end[1] == '-')) end++;
        if (found == NULL || (end && found > end)) return;
        found += strlen(":name:");
        size_t length = strcspn(found, "\n");
        while (length > 0 && *found == ' ') found++, length--;
        if (length > 1 && (*found == '"' || *found == '\'') && found[length - 1] == *found) found++, length -= 2;
        if (length > 0) take_name(name, found, length);
        return;
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static struct submission *submission_of(struct submissions *all, const char *name)
{
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->of[i].name, name) == 0) return &all->of[i];
    if (all->count == MOST_STUDENTS) return NULL;
    if (all->count == all->room) {
        const int room = all->room ? 2 * all->room : 64;
        struct submission *more = realloc(all->of, sizeof *more * (size_t)room);
        if (more == NULL) return NULL;
        all->of = more, all->room = room;
    }
    struct submission *s = &all->of[all->count++];
    *s = (struct submission){ .on_roster = true };
    snprintf(s->name, sizeof s->name, "%s", name);
    return s;
}

/* Take a file that has a lesson's name, in C or in Python.  A file in the lesson's folder replaces one that lies
 * elsewhere, and one in C goes before one in Python. */
static bool take_file(struct submission *submission, const bool *chosen, const char *inside, const char *name,
                      const char *path, struct error *err)
{
    for (int i = 0; lessons[i]; i++) {
        char in_python[100];
        const bool python = python_file(lessons[i], in_python, sizeof in_python) && strcmp(name, in_python) == 0;
        if (!chosen[i] || (!python && strcmp(name, lessons[i]->file) != 0)) continue;
        const bool before_python = submission->file[i] && !python && is_python(submission->file[i]);
        if (submission->file[i] && !before_python && (python || strcmp(inside, lessons[i]->folder) != 0)) continue;
        free(submission->file[i]);
        submission->file[i] = strdup(path);
        if (submission->file[i] == NULL) return fail(err, ERR_MEMORY, "no memory for a class"), false;
    }
    return true;
}

/* This counts the entries that were looked at: a submission of endless folders ends the search, not the class. */
struct search { const bool *chosen; int entries; struct error *err; };

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strcmp(entry->d_name, "__MACOSX") != 0;
}

static void free_entries(struct dirent **list, int n)
{
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
}

/* Look for the files of lessons in a student's folder, a few levels deep. */
static void search_folder(struct search *search, struct submission *submission, const char *folder, const char *name,
                          int deep)
{
    struct dirent **list;
    const int n = scandir(folder, &list, visible, alphasort);
    if (n < 0) return;
    for (int folders = 0; folders < 2; folders++)       /* files of a folder come before those further down */
        for (int i = 0; i < n && search->entries < MOST_ENTRIES; i++) {
            struct stat st;
            char path[PATH_MAX];
            if (snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name) >= (int)sizeof path) continue;
            if (lstat(path, &st) != 0) continue;
            search->entries++;
            if (S_ISDIR(st.st_mode) && folders && deep > 0)
                search_folder(search, submission, path, list[i]->d_name, deep - 1);
            if (folders || S_ISDIR(st.st_mode)) continue;
            take_file(submission, search->chosen, name, list[i]->d_name, path, search->err);
            if (ends_in(list[i]->d_name, ".zip") && submission->note[0] == '\0')
                snprintf(submission->note, sizeof submission->note, "has %.100s, which is not unpacked",
                         printable(list[i]->d_name).text);
        }
    free_entries(list, n);
}

/* Take one entry of the class's folder.  Files that no export makes are left alone. */
static enum error_code take_entry(struct submissions *all, const char *folder, const char *entry, const bool *chosen,
                                  const char *metadata, struct error *err)
{
    struct search search = { .chosen = chosen, .err = err };
    struct stat st;
    char path[PATH_MAX], name[STUDENT_NAME] = "", file[NAME_MAX + 1];
    size_t length = strlen(entry);
    if (snprintf(path, sizeof path, "%s/%s", folder, entry) >= (int)sizeof path || lstat(path, &st) != 0) return OK;
    const bool canvas = S_ISREG(st.st_mode) && is_canvas(entry, &length, file, sizeof file);
    if (!canvas && !S_ISDIR(st.st_mode)) return OK;
    if (!canvas) is_moodle(entry, &length);
    take_name(name, entry, length);
    if (metadata && S_ISDIR(st.st_mode)) name_by_metadata(metadata, entry, name);
    struct submission *s = submission_of(all, name);
    if (s == NULL) return fail(err, ERR_MEMORY, "no memory for a class; there can be %d students", MOST_STUDENTS);
    if (canvas) return take_file(s, chosen, "", file, path, err) ? OK : err->code;
    search_folder(&search, s, path, entry, DEEP);
    return search.err && search.err->code == ERR_MEMORY ? ERR_MEMORY : OK;
}

/* ---- the roster -------------------------------------------------------------------------------------------------- */

/* Read a field of a line: up to a comma, or in quotes, where "" is a quote.  @return what follows the comma. */
static const char *read_field(const char *at, const char *end, char *to)
{
    char text[STUDENT_NAME];
    size_t used = 0;
    const bool quoted = at < end && *at == '"';
    for (at += quoted; at < end && (quoted || *at != ','); at++) {
        if (quoted && *at == '"' && (at + 1 == end || at[1] != '"')) break;
        at += quoted && *at == '"';
        if (used + 1 < sizeof text) text[used++] = *at;
    }
    while (at < end && *at != ',') at++;
    take_name(to, text, used);
    return at < end ? at + 1 : end;
}

static enum error_code read_roster(struct submissions *all, const char *path, struct error *err)
{
    char *text;
    size_t size;
    enum error_code e = file_read_all(path, ROSTER_BYTES, &text, &size, err);
    if (e) return fail_about(err, e, "--roster");
    for (int i = 0; i < all->count; i++) all->of[i].on_roster = false;
    int line = 0;
    for (const char *at = text; *at && !e;) {
        const char *end = at + strcspn(at, "\r\n"), *rest;
        char name[STUDENT_NAME], number[STUDENT_NAME], *stop;
        line++;
        rest = read_field(at, end, name);
        read_field(rest, end, number);
        at = end + strspn(end, "\r\n");
        if (name[0] == '\0') continue;
        const unsigned long long variant = strtoull(number, &stop, 10);
        /* The first line may name the columns. */
        if (number[0] && (*stop || !isdigit((unsigned char)number[0]) || variant > INT32_MAX)) {
            if (line > 1)
                e = fail(err, ERR_FORMAT, "%s: line %d: \"%s\" is no variant; a line is name,variant",
                         printable_path(path).text, line, printable(number).text);
            continue;
        }
        const int known = all->count;
        struct submission *s = submission_of(all, name);
        if (s == NULL) e = fail(err, ERR_MEMORY, "no memory for a roster; there can be %d students", MOST_STUDENTS);
        else if (number[0]) s->variant = variant;
        if (s) s->on_roster = true;
        if (s && all->count > known) snprintf(s->note, sizeof s->note, "no submission");
    }
    free(text);
    return e;
}

/* ---- a class ----------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct submission *)a)->name, ((const struct submission *)b)->name);
}

/* The text of Gradescope's list of submitters; NULL: it is another export. */
static char *read_metadata(const char *folder)
{
    struct error none = { OK, "" };
    char path[PATH_MAX], *text = NULL;
    size_t size;
    path_of(path, sizeof path, folder, "submission_metadata.yml");
    return file_read_all(path, METADATA_BYTES, &text, &size, &none) == OK ? text : NULL;
}

enum error_code submissions_find(struct submissions *all, const char *folder, const bool chosen[MOST_LESSONS],
                                 const char *roster, uint64_t variant, struct error *err)
{
    const struct printable shown = printable_path(folder);
    struct dirent **list;
    struct stat st;
    *all = (struct submissions){ 0 };
    if (stat(folder, &st) != 0) return fail(err, ERR_FILE, "%s: %s", shown.text, strerror(errno));
    if (!S_ISDIR(st.st_mode) && ends_in(folder, ".zip"))
        return fail(err, ERR_USAGE, "grade --class %s: unpack it first into a new folder, and give that: unzip -d NEW "
                    "FILE.zip", shown.text);
    if (!S_ISDIR(st.st_mode)) return fail(err, ERR_USAGE, "grade --class %s: it is no folder", shown.text);
    char own[PATH_MAX];
    path_of(own, sizeof own, folder, COURSE_FILE);
    if (stat(own, &st) == 0)
        return fail(err, ERR_USAGE, "grade --class %s: it is one student's folder, with a %s; without --class it is "
                    "graded", shown.text, COURSE_FILE);
    const int n = scandir(folder, &list, visible, alphasort);
    if (n < 0) return fail(err, ERR_FILE, "%s: %s", shown.text, strerror(errno));
    char *metadata = read_metadata(folder);
    enum error_code e = OK;
    for (int i = 0; i < n && !e; i++) e = take_entry(all, folder, list[i]->d_name, chosen, metadata, err);
    free_entries(list, n);
    free(metadata);
    for (int i = 0; i < all->count; i++) all->of[i].variant = variant;
    if (!e && roster) e = read_roster(all, roster, err);
    if (!e && all->count == 0)
        e = fail(err, ERR_USAGE, "grade --class %s: there is no student's folder in it, and no file of Canvas",
                 shown.text);
    for (int i = 0; i < all->count; i++) {
        struct submission *s = &all->of[i];
        bool any = false;
        for (int k = 0; lessons[k]; k++) any = any || s->file[k] != NULL;
        if (!s->on_roster && s->note[0] == '\0') snprintf(s->note, sizeof s->note, "not on the roster");
        if (!any && s->note[0] == '\0') snprintf(s->note, sizeof s->note, "no file of a lesson");
    }
    if (e) submissions_free(all);
    else qsort(all->of, (size_t)all->count, sizeof *all->of, by_name);
    return e;
}

void submissions_free(struct submissions *all)
{
    for (int i = 0; i < all->count; i++)
        for (int k = 0; lessons[k]; k++) free(all->of[i].file[k]);
    free(all->of);
    *all = (struct submissions){ 0 };
}
