/* grade.c -- grades a submission: finds the file of each lesson, judges it, and writes reports for other programs.
 * cli/course/grade.c reads words and prints.  Errors: ERR_USAGE without a cage or a lesson's name, ERR_FILE of the
 * submission or a report, ERR_MEMORY. */
#include "emulated_devices/course/grade.h"
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/cage/cage.h"
#include "emulated_devices/course/folder.h"
#include "emulated_devices/course/python.h"
#include "ref/io/output.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reports are there from the beginning, and again after each check: whatever happens, there is one. */
static void write_reports(void *context, const struct score *score)
{
    struct grading *g = context;
    (void)score;
    if (g->broken) return;
    if (g->json) g->broken = write_gradescope(g->json, g->score, g->scores, g->err);
    if (g->junit && !g->broken) g->broken = write_junit(g->junit, g->score, g->scores, g->err);
}

/* Whether it is a folder, and not a link to one: a submission has nothing that lies elsewhere. */
static bool is_own_folder(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The file of a lesson in one language: in the lesson's folder, or beside the others.  @return whether it is there. */
static bool find_of(const char *submission, const struct lesson *lesson, bool python, char *to, size_t size)
{
    struct stat st;
    char folder[PATH_MAX], other[PATH_MAX], name[100];
    lesson_file(lesson, python, name, sizeof name);
    path_of(folder, sizeof folder, submission, lesson->folder);
    path_of(to, size, folder, name);
    path_of(other, sizeof other, submission, name);
    if (!is_own_folder(folder) || (lstat(to, &st) != 0 && lstat(other, &st) == 0)) snprintf(to, size, "%s", other);
    return lstat(to, &st) == 0;
}

/* Whether files in Python count where both are there: --language says so, or the submission's course.json. */
static bool prefers_python(const struct grading *grading)
{
    struct folder f;
    if (grading->language) return strcmp(grading->language, "python") == 0;
    if (!is_own_folder(grading->submission) || folder_open(&f, grading->submission, NULL) != OK) return false;
    folder_close(&f);
    return f.python;
}

/* The file of a lesson in a submission, or the submission itself.  both: there is another one in the other language. */
static void find_file(const struct grading *grading, const struct lesson *lesson, char *to, size_t size, bool *both)
{
    struct stat st;
    char other[PATH_MAX];
    *both = false;
    if (stat(grading->submission, &st) == 0 && S_ISREG(st.st_mode)) {
        snprintf(to, size, "%s", grading->submission);
        return;
    }
    const bool python = prefers_python(grading), here = find_of(grading->submission, lesson, python, to, size);
    if (!lesson_in_python(lesson) || !find_of(grading->submission, lesson, !python, other, sizeof other)) return;
    if (here) *both = true;
    else snprintf(to, size, "%s", other);
}

/* Say that one of two files was judged, before whatever else is said about it. */
static void tell_both(struct score *score, const char *path)
{
    char text[sizeof score->why_not];
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    snprintf(text, sizeof text, "%.3000s%.100s is judged; a file in the other language is there, too (--language)\n",
             score->why_not, name);
    snprintf(score->why_not, sizeof score->why_not, "%s", text);
}

/* The seed of hidden inputs: the first 8 bytes of a file's digest, so that any text can be the secret. */
enum error_code grade_secret(const char *path, uint64_t *seed, struct error *err)
{
    char *bytes;
    size_t count;
    enum error_code e = file_read_all(path, 1 << 16, &bytes, &count, err);
    if (e) return fail_about(err, e, "--secret");
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < count; i++) h = (h ^ (unsigned char)bytes[i]) * 1099511628211u;
    *seed = h ? h : 1;
    free(bytes);
    return OK;
}

/* Before there is a report: a compiler or python3 that cannot be used gives nobody 0 points. */
enum error_code grade_compilers(const struct grading *grading, const struct judging *how, const bool *chosen,
                                struct error *err)
{
    bool c = false, kernels = false, python = false, both;
    enum error_code e = OK;
    for (int i = 0; lessons[i]; i++) {
        char path[PATH_MAX];
        if (!chosen[i]) continue;
        snprintf(path, sizeof path, "%s", lessons[i]->file);
        if (grading) find_file(grading, lessons[i], path, sizeof path, &both);
        python |= lessons[i]->functions != NULL && is_python(path);
        c |= lessons[i]->functions != NULL && !is_python(path);
        kernels |= lesson_has_kernels(lessons[i]);
    }
    if (python) e = python_find(err);
    if (c && !e) e = check_compiler(false, how, err);
    if (!e && kernels) e = check_compiler(true, how, err);
    return e;
}

static enum error_code grade_all(struct grading *grading, const struct judging *how, const bool *chosen,
                                 struct error *err)
{
    enum error_code e = OK;
    int n = 0;
    for (int i = 0; lessons[i]; i++)
        if (chosen[i]) score_begin(&grading->score[n++], lessons[i], how);
    grading->scores = n;
    write_reports(grading, NULL);
    for (int i = 0; i < n && !e && !grading->broken; i++) {
        char path[PATH_MAX];
        struct stat st;
        bool both;
        find_file(grading, grading->score[i].lesson, path, sizeof path, &both);
        grading->found += lstat(path, &st) == 0;
        e = judge_file(&grading->score[i], grading->score[i].lesson, path, how, err);
        if (!e && both) tell_both(&grading->score[i], path), write_reports(grading, NULL);
        if (!e && grading->graded) grading->graded(&grading->score[i]);
    }
    return e ? e : grading->broken;
}

enum error_code grade(struct grading *grading, struct error *err)
{
    bool chosen[MOST_LESSONS];
    struct judging how = { .seed = PUBLIC_SEED, .variant = grading->variant, .sanitize = grading->sanitize,
                          .user = grading->user,
                           .after = write_reports, .context = grading };
    enum error_code e = lessons_chosen(grading->lessons, chosen, err);
    struct stat st;
    if (!e && stat(grading->submission, &st) != 0)
        e = fail(err, ERR_FILE, "%s: %s", printable_path(grading->submission).text, strerror(errno));
    int n = 0;
    for (int i = 0; !e && lessons[i]; i++) n += chosen[i];
    if (!e && S_ISREG(st.st_mode) && n != 1)
        e = fail(err, ERR_USAGE, "grade %s: a single file needs --lessons with its lesson",
                 printable_path(grading->submission).text);
    if (!e && !grading->own_code && cage_kind() == CAGE_NONE)
        e = fail(err, ERR_USAGE, "grade: this system allows neither namespaces nor Landlock, so a submission could "
                 "read files; --own-code grades code that you trust");
    if (!e && grading->secret) e = grade_secret(grading->secret, &how.secret, err);
    if (!e) e = grade_compilers(grading, &how, chosen, err);
    if (e) return e;
    grading->score = calloc(MOST_LESSONS, sizeof *grading->score);
    grading->err = err;
    if (grading->score == NULL) return fail(err, ERR_MEMORY, "no memory for scores");
    e = grade_all(grading, &how, chosen, err);
    for (int i = 0; i < grading->scores; i++)
        grading->tenths += grading->score[i].tenths, grading->of += grading->score[i].of;
    free(grading->score);
    return e;
}
