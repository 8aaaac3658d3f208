/* grade.c -- grades a submission: finds the file of each lesson, judges it, and writes reports for other programs.
 * cli/course/grade.c reads words and prints.  Errors: ERR_USAGE without a cage or a lesson's name, ERR_FILE of the
 * submission or a report, ERR_MEMORY. */
#include "emulated_devices/course/grade.h"
#include "emulated_devices/course/build.h"
#include "emulated_devices/course/cage.h"
#include "emulated_devices/course/folder.h"
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

/* The file of a lesson in a submission: in the lesson's folder, beside the others, or the submission itself. */
static void find_file(const char *submission, const struct lesson *lesson, char *to, size_t size)
{
    struct stat st;
    if (stat(submission, &st) == 0 && S_ISREG(st.st_mode)) {
        snprintf(to, size, "%s", submission);
        return;
    }
    char folder[PATH_MAX], other[PATH_MAX];
    path_of(folder, sizeof folder, submission, lesson->folder);
    path_of(to, size, folder, lesson->file);
    path_of(other, sizeof other, submission, lesson->file);
    if (!is_own_folder(folder) || (lstat(to, &st) != 0 && lstat(other, &st) == 0)) snprintf(to, size, "%s", other);
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

/* Before there is a report: a compiler that cannot be used gives nobody 0 points. */
enum error_code grade_compilers(const struct judging *how, const bool *chosen, struct error *err)
{
    bool c = false, kernels = false;
    enum error_code e = OK;
    for (int i = 0; lessons[i]; i++) {
        c |= chosen[i] && lessons[i]->functions != NULL;
        kernels |= chosen[i] && lesson_has_kernels(lessons[i]);
    }
    if (c) e = check_compiler(false, how, err);
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
        find_file(grading->submission, grading->score[i].lesson, path, sizeof path);
        grading->found += lstat(path, &st) == 0;
        e = judge_file(&grading->score[i], grading->score[i].lesson, path, how, err);
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
    if (!e) e = grade_compilers(&how, chosen, err);
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
