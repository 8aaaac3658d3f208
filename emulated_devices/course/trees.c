/* trees.c -- the texts of tutorials/, and the folder in which a student works.  cli/course/learn.c,
 * cli/teacher/course.c, course/teacher/prove.c and course/teacher/trees.c call these functions.  Errors: ERR_FILE of
 * the folder, ERR_USAGE for a number of variants that is too large, ERR_MEMORY. */
#include "emulated_devices/course/folder.h"
#include "emulated_devices/course/annotated.h"
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/python.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MOST = 4 << 20 };

/* ---- texts of tutorials/ ----------------------------------------------------------------------------------------- */

char *tutorial_text(const char *inside, struct error *err)
{
    char tutorials[PATH_MAX / 2], path[PATH_MAX], *text = NULL;
    size_t bytes;
    if (course_folder(tutorials, sizeof tutorials, err) != OK) return NULL;
    path_of(path, sizeof path, tutorials, inside);
    return file_read_all(path, FILE_MOST, &text, &bytes, err) == OK ? text : NULL;
}

char *lesson_text(const struct lesson *lesson, const char *file, bool solution, uint64_t variant, struct error *err)
{
    char inside[PATH_MAX];
    path_of(inside, sizeof inside, lesson->folder, file);
    char *text = tutorial_text(inside, err);
    char *out = text ? annotated_cut(text, solution ? CUT_SOLUTION : CUT_SKELETON, lesson, variant, err) : NULL;
    if (text && out == NULL) fail_about(err, err->code, inside);
    free(text);
    return out;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

enum error_code tree_make_folder(const char *folder, const char *inside, struct error *err)
{
    char path[PATH_MAX];
    if (inside[0]) path_of(path, sizeof path, folder, inside);
    else snprintf(path, sizeof path, "%s", folder);
    if (mkdir(path, 0777) == 0) return OK;
    return fail(err, ERR_FILE, "%s: %s", printable_path(path).text, strerror(errno));
}

enum error_code tree_write_file(const char *folder, const char *inside, const char *text, struct error *err)
{
    char path[PATH_MAX];
    path_of(path, sizeof path, folder, inside);
    return file_write_all(path, text, strlen(text), err);
}

enum error_code tree_copy_text(const char *folder, const char *from, const char *to, struct error *err)
{
    char *text = tutorial_text(from, err);
    enum error_code e = text ? tree_write_file(folder, to, text, err) : err->code;
    free(text);
    return e;
}

/* Whether a lesson's folder in tutorials/ has this file. */
static bool lesson_has(const struct lesson *lesson, const char *name)
{
    char tutorials[PATH_MAX / 2], folder[PATH_MAX], path[PATH_MAX];
    if (course_folder(tutorials, sizeof tutorials, NULL) != OK) return false;
    path_of(folder, sizeof folder, tutorials, lesson->folder), path_of(path, sizeof path, folder, name);
    return access(path, R_OK) == 0;
}

bool lesson_in_python(const struct lesson *lesson)
{
    char name[100];
    return python_file(lesson, name, sizeof name) && lesson_has(lesson, "calls.py");
}

int lesson_files(const struct lesson *lesson, bool python, const char *names[LESSON_GIVEN + 3])
{
    static char file[100], contract[120], bridge[120];  /* ring.h; ring_given.py and ring_on_torch.py */
    int n = 0;
    const bool has = python && lesson_in_python(lesson);
    lesson_file(lesson, python, file, sizeof file);
    names[n++] = "README.md", names[n++] = file;
    if (has) snprintf(contract, sizeof contract, "%.*s_given.py", (int)strlen(file) - 3, file);
    else snprintf(contract, sizeof contract, "%.*sh", (int)strlen(file) - 1, file);
    if (has ? lesson_has(lesson, contract) : lesson->functions != NULL) names[n++] = contract;
    if (has) snprintf(bridge, sizeof bridge, "%.*s_on_torch.py", (int)strlen(file) - 3, file);
    if (has && lesson_has(lesson, bridge)) names[n++] = bridge;
    for (int i = 0; i < LESSON_GIVEN && n < LESSON_GIVEN + 3 && lesson->given[i]; i++) names[n++] = lesson->given[i];
    return n;
}

/* Write a page with the names of files in Python: "ring.c" and "ring.h" are ring.py, "course.h" is course.py. */
static void write_names(FILE *to, const char *page, const char *file)
{
    const size_t n = strlen(file) - 3;                                  /* without ".py" */
    for (const char *at = page; *at;) {
        const bool own = strncmp(at, file, n) == 0 && at[n] == '.', all = strncmp(at, "course.h", 8) == 0;
        if (own && (at[n + 1] == 'c' || at[n + 1] == 'h') && !isalnum((unsigned char)at[n + 2])) {
            fputs(file, to);
            at += n + 2;
        } else if (all) fputs("course.py", to), at += 8;
        else putc(*at++, to);
    }
}

/* Write the heads of functions in Python, as they stand in the student's file: "def ring_all_reduce(g, x):". */
static void write_heads(FILE *to, const char *text, const struct lesson *lesson)
{
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        if (strncmp(at, "def ", 4) != 0) continue;
        const size_t n = strcspn(at + 4, "(");
        for (int i = 0; lesson->functions[i]; i++)
            if (strlen(lesson->functions[i]) == n && memcmp(at + 4, lesson->functions[i], n) == 0)
                fprintf(to, "    %.*s\n", (int)strcspn(at, ":\n") - 4, at + 4);
    }
}

/* A lesson's page for who writes in Python: the file's names, and at its end the heads of the functions.
 * @return for free(), or NULL. */
static char *python_page(const struct lesson *lesson, const char *page, const char *file, uint64_t variant,
                         struct error *err)
{
    char *out = NULL, *text = lesson_text(lesson, file, false, variant, err);
    size_t size;
    FILE *f = text ? open_memstream(&out, &size) : NULL;
    if (f) {
        write_names(f, page, file);
        fprintf(f, "\n## In Python\n\nThis page is for both languages, and shows C where it shows code. `%s`\n"
                "has these functions; the text below each says exactly what it must do. Arrays\nare numpy's, and know "
                "their length. What may be called is in `course.py`.\n\n", file);
        write_heads(f, text, lesson);
    }
    const bool well = f && fclose(f) == 0;
    if (text && !well) fail(err, ERR_MEMORY, "no memory for a page");
    free(text);
    if (well) return out;
    free(out);
    return NULL;
}

enum error_code tree_write_lesson(const char *folder, const struct lesson *lesson, bool python, bool solution,
                                  uint64_t variant, struct error *err)
{
    const char *names[LESSON_GIVEN + 3];
    const int n = lesson_files(lesson, python, names);
    enum error_code e = tree_make_folder(folder, lesson->folder, err);
    for (int i = 0; i < n && !e; i++) {
        char inside[PATH_MAX], *text = lesson_text(lesson, names[i], solution, variant, err);
        if (i == 0 && text && python && lesson_in_python(lesson)) {
            char *page = python_page(lesson, text, names[1], variant, err);
            free(text);
            text = page;
        }
        path_of(inside, sizeof inside, lesson->folder, names[i]);
        e = text ? tree_write_file(folder, inside, text, err) : err->code;
        free(text);
    }
    return e;
}

enum error_code tree_write_mark(const char *folder, bool python, uint64_t variant, struct error *err)
{
    char text[120];
    snprintf(text, sizeof text, "{ \"orrery course\": 1, \"variant\": %llu%s }\n", (unsigned long long)variant,
             python ? ", \"language\": \"python\"" : "");
    return tree_write_file(folder, COURSE_FILE, text, err);
}

/* ---- pages for who is new to the words --------------------------------------------------------------------------- */

/* Beside tutorials/, in the sources and where they are installed. */
#define CONCEPTS "../docs/concepts"

/* A page as students get it: [memory.md](../memory.md), which they do not have, becomes `docs/memory.md` of Orrery. */
static void write_page(FILE *to, const char *text)
{
    for (const char *at = text; *at;) {
        const char *link = strstr(at, "](../"), *end = link ? strchr(link, ')') : NULL, *from = link;
        while (from && from > at && *from != '[') from--;
        if (end == NULL || *from != '[') {
            fputs(at, to);
            return;
        }
        const char *name = link + 5;
        fprintf(to, "%.*s`docs/%.*s` of Orrery", (int)(from - at), at, (int)(end - name), name);
        at = end + 1;
    }
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static enum error_code copy_concept(const char *folder, const char *name, struct error *err)
{
    char from[PATH_MAX], to[PATH_MAX], *out = NULL;
    size_t size;
    path_of(from, sizeof from, CONCEPTS, name), path_of(to, sizeof to, "concepts", name);
    if (ends_with(name, ".svg")) return tree_copy_text(folder, from, to, err);
    char *text = tutorial_text(from, err);
    FILE *f = text ? open_memstream(&out, &size) : NULL;
    enum error_code e = text ? ERR_MEMORY : err->code;
    if (f) write_page(f, text);
    if (f && fclose(f) == 0) e = tree_write_file(folder, to, out, err);
    else if (text) fail(err, ERR_MEMORY, "no memory for %s", name);
    free(out), free(text);
    return e;
}

static enum error_code write_concepts(const char *folder, struct error *err)
{
    char tutorials[PATH_MAX / 2], path[PATH_MAX];
    enum error_code e = course_folder(tutorials, sizeof tutorials, err);
    if (e) return e;
    path_of(path, sizeof path, tutorials, CONCEPTS);
    DIR *d = opendir(path);
    if (d == NULL) return OK;                   /* ORRERY_TUTORIALS may name a folder with nothing beside it */
    e = tree_make_folder(folder, "concepts", err);
    for (const struct dirent *one; !e && (one = readdir(d)) != NULL;)
        if (ends_with(one->d_name, ".md") || ends_with(one->d_name, ".svg")) e = copy_concept(folder, one->d_name, err);
    closedir(d);
    return e;
}

enum error_code write_student_tree(const char *folder, bool python, uint64_t variant, struct error *err)
{
    if (variant > INT32_MAX) return fail(err, ERR_USAGE, "--variant: at most %d", INT32_MAX);
    enum error_code e = tree_make_folder(folder, "", err);
    if (!e) e = tree_copy_text(folder, "student/README.md", "README.md", err);
    if (!e) e = tree_copy_text(folder, "student/AGENTS.md", "AGENTS.md", err);
    if (!e) e = tree_copy_text(folder, "course.h", "course.h", err);
    if (!e && python) e = tree_copy_text(folder, "course.py", "course.py", err);
    if (!e) e = write_concepts(folder, err);
    for (int i = 0; lessons[i] && !e; i++) e = tree_write_lesson(folder, lessons[i], python, false, variant, err);
    return e ? e : tree_write_mark(folder, python, variant, err);
}
