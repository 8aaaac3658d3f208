/* grade.c -- `orrery grade`: points for a submission, and reports for other programs. */
#include "emulated_devices/cli/course/course.h"
#include "emulated_devices/course/build.h"
#include "emulated_devices/course/cage.h"
#include "ref/io/output.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct grading {
    const char *submission, *lessons, *json, *junit, *secret, *user;
    bool sanitize, quiet, own_code;
    uint64_t variant;
    struct score *score;                /* of each chosen lesson */
    int scores;
    enum error_code broken;             /* a report could not be written */
    struct error *err;
};

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
static enum error_code read_secret(const char *path, uint64_t *seed, struct error *err)
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
static enum error_code check_compilers(const struct judging *how, const bool *chosen, struct error *err)
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
        find_file(grading->submission, grading->score[i].lesson, path, sizeof path);
        e = judge_file(&grading->score[i], grading->score[i].lesson, path, how, err);
        if (e || grading->quiet) continue;
        print_score(&grading->score[i], -1, false);
        printf("\n");
        fflush(stdout);
    }
    return e ? e : grading->broken;
}

static enum error_code grade(struct grading *grading, int *status, struct error *err)
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
    if (!e && grading->secret) e = read_secret(grading->secret, &how.secret, err);
    if (!e) e = check_compilers(&how, chosen, err);
    if (e) return e;
    grading->score = calloc(MOST_LESSONS, sizeof *grading->score);
    grading->err = err;
    if (grading->score == NULL) return fail(err, ERR_MEMORY, "no memory for scores");
    e = grade_all(grading, &how, chosen, err);
    int tenths = 0, of = 0;
    for (int i = 0; i < grading->scores; i++) tenths += grading->score[i].tenths, of += grading->score[i].of;
    if (!e) printf("%s of %s points\n", points_text(tenths).text, points_text(of).text);
    *status = tenths == of ? 0 : error_exit_status(ERR_CHECK);
    free(grading->score);
    return e;
}

enum error_code command_grade(int argc, char **argv, int *status, struct error *err)
{
    struct grading g = { 0 };
    bool help;
    const struct option table[] = {
        { "SUBMISSION", NULL, OPTION_STRING, &g.submission, .required = true,
          .help = "a folder with the student's files, or one file" },
        { "--lessons", "LIST", OPTION_STRING, &g.lessons, .help = "such as 1,3-5 or ring; default: all" },
        { "--json", "FILE", OPTION_STRING, &g.json,
          .help = "write Gradescope's results.json: first without points, again after each check" },
        { "--junit", "FILE", OPTION_STRING, &g.junit, .help = "write JUnit's XML, likewise" },
        { "--secret", "FILE", OPTION_STRING, &g.secret,
          .help = "three tenths of the points are for inputs that are drawn from this file's bytes" },
        { "--variant", "N", OPTION_UINT64, &g.variant, .help = "the variant of the course" },
        { "--user", "NAME", OPTION_STRING, &g.user,
          .help = "run the student's code, and compile it, as this user (as root; default: nobody)" },
        { "--own-code", NULL, OPTION_SWITCH, &g.own_code,
          .help = "grade code that you trust, also where the system cannot hide files from the submission" },
        { "--sanitize", NULL, OPTION_SWITCH, &g.sanitize,
          .help = "compile with sanitizers, without locking processes in" },
        { "--quiet", NULL, OPTION_SWITCH, &g.quiet, .help = "print only the sum" },
        { 0 }
    };
    enum error_code e = parse_command("grade", "SUBMISSION [options]",
                                      "Points for exercises. Status 0: all points, 3: not all, others: nothing was "
                                      "graded.", argc - 2, argv + 2, table, &help, err);
    return e || help ? e : grade(&g, status, err);
}
