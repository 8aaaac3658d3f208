/* class.c -- grades a class: judges files in processes of their own, some at a time, and keeps their results.
 *
 * A result is a file, named by what it depends on: the student's file, the lesson, the variant, the secret, the user
 * and this program.  So a second call judges only what is new, and two equal files are judged once.  A process that
 * fails costs its file, not the class.  After SIGINT the reports have what is done.
 * cli/course/grade.c calls class_grade.  Errors: ERR_USAGE, ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
#define _DEFAULT_SOURCE                 /* mkdtemp, setenv */
#include "emulated_devices/course/class/class.h"
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/cage/cage.h"
#include "emulated_devices/course/grade.h"
#include "ref/io/child.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/machine/system.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILE_SECONDS = 1800, MOST_JOBS = 64 };   /* a file by the clock, if all of the judge's own limits fail */

/* A file that is being judged. */
struct job { pid_t process; int student, lesson; double seconds; };

struct work {
    struct class_grading *class;
    struct judging how;
    char program[65], results[PATH_MAX / 2];    /* digest of this program; the folder */
    struct build room;                          /* the folder in which all files of the class are built */
    struct job job[MOST_JOBS];
    int running;
};

/* The signal that ends a class.  child.h calls this when no process of ours is left. */
static volatile sig_atomic_t class_signal;
static void class_stopped(int number) { class_signal = number; }

struct file_result *class_file(const struct class_grading *class, int student, int lesson)
{
    return &class->file[(size_t)student * MOST_LESSONS + (size_t)lesson];
}

bool class_points(const struct class_grading *class, int student, int *tenths, int *of)
{
    bool all = true;
    *tenths = *of = 0;
    for (int l = 0; lessons[l]; l++) {
        if (!class->chosen[l]) continue;
        const struct file_result *file = class_file(class, student, l);
        *tenths += file->tenths, *of += file->of;
        all = all && (file->state == FILE_GRADED || file->state == FILE_MISSING);
    }
    return all;
}

/* ---- a result ---------------------------------------------------------------------------------------------------- */

static void result_path(const struct work *work, const struct file_result *file, const char *end, char *to, size_t size)
{
    snprintf(to, size, "%s/%s%s", work->results, file->key.text, end);
}

/* Keep of a score all that reports need. */
static cJSON *result_of(const struct score *score)
{
    static const char *const verdicts[] = { "not tried", "passed", "failed", "no points", "skipped" };
    cJSON *root = cJSON_CreateObject();
    json_add(root, "lesson %s tenths %d of %d compiled %hhd why_not %s", score->lesson->folder, score->tenths,
             score->of, score->compiled, score->why_not);
    cJSON *checks = cJSON_AddArrayToObject(root, "checks");
    for (int i = 0; i < score->count; i++) {
        const struct outcome *o = &score->outcome[i];
        json_add(json_row(checks), "name %s hidden %hhd tenths %d of %d verdict %s mistake %s said %s", o->check->name,
                 o->hidden, o->tenths, o->of, verdicts[o->verdict], mistake_name(o->mistake), o->said);
    }
    return root;
}

/* Read a result that was kept.  @return false: there is none, or it cannot be read, and the file is judged. */
static bool read_result(const struct work *work, struct file_result *file)
{
    char path[PATH_MAX];
    struct error none = { OK, "" };
    int64_t tenths, of;
    cJSON *root = NULL;
    result_path(work, file, ".json", path, sizeof path);
    if (access(path, R_OK) != 0 || json_read(path, &root, &none) != OK) return false;
    if (json_int(root, path, "tenths", 0, 100000, &tenths, NULL) != OK ||
        json_int(root, path, "of", 0, 100000, &of, NULL) != OK || tenths > of ||
        !cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(root, "checks"))) {
        cJSON_Delete(root);
        return false;
    }
    cJSON_Delete(file->result);
    file->result = root, file->tenths = (int)tenths, file->of = (int)of, file->state = FILE_GRADED;
    return true;
}

/* In a process of its own: judge the file, and keep the result, or why there is none. */
static void be_a_job(const struct work *work, const char *from, const struct lesson *lesson, uint64_t variant,
                     struct file_result *file)
{
    struct error err = { OK, "" };
    char path[PATH_MAX];
    struct score *score = malloc(sizeof *score);
    struct judging how = work->how;
    how.variant = variant;
    enum error_code e = score ? judge_file(score, lesson, from, &how, &err) : fail(&err, ERR_MEMORY, "no memory");
    result_path(work, file, ".json", path, sizeof path);
    if (!e) e = json_finish(path, result_of(score), &err);
    if (!e) exit(0);                            /* what was compiled for all files of this process is removed */
    result_path(work, file, ".error", path, sizeof path);
    file_write_all(path, err.text, strlen(err.text), NULL);
    exit(1);
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

/* A result's name.  The secret is in it only as a seed's digest. */
static enum error_code name_result(const struct work *work, const struct submission *student, int lesson,
                                   struct file_result *file, struct error *err)
{
    struct sha256_text of_file = { "" };
    struct stat st;
    char words[600];
    if (lstat(student->file[lesson], &st) != 0 || !S_ISREG(st.st_mode)) snprintf(of_file.text, 65, "no file");
    else if (sha256_file(student->file[lesson], &of_file, err) != OK) return err->code;
    snprintf(words, sizeof words, "%s %s %s %llu %llu %llu %.100s %d", work->program, of_file.text,
             lessons[lesson]->folder, (unsigned long long)student->variant, (unsigned long long)work->how.seed,
             (unsigned long long)work->how.secret, work->how.user ? work->how.user : "", work->how.sanitize);
    file->key = sha256_of(words, strlen(words));
    return OK;
}

/* Whether a file with the same result is being judged now. */
static bool is_running(const struct work *work, const struct file_result *file)
{
    for (int i = 0; i < work->running; i++) {
        const struct job *job = &work->job[i];
        if (strcmp(class_file(work->class, job->student, job->lesson)->key.text, file->key.text) == 0) return true;
    }
    return false;
}

static bool wants_again(const struct class_grading *class, const struct submission *student)
{
    return class->regrade && (strcmp(class->regrade, "all") == 0 || strcmp(class->regrade, student->name) == 0);
}

static enum error_code start_job(struct work *work, int student, int lesson, struct error *err)
{
    const struct submission *s = &work->class->all.of[student];
    struct file_result *file = class_file(work->class, student, lesson);
    char path[PATH_MAX];
    result_path(work, file, ".error", path, sizeof path);
    unlink(path);
    fflush(NULL);
    const pid_t process = child_start();
    if (process == 0) be_a_job(work, s->file[lesson], lessons[lesson], s->variant, file);
    if (process < 0) return fail(err, ERR_MEMORY, "a file cannot be judged: %s", strerror(errno));
    work->job[work->running++] = (struct job){ process, student, lesson, 0 };
    file->state = FILE_RUNS;
    work->class->judged++;
    return OK;
}

/* Say whose points are complete, and write the table again: whatever happens, it has what is done. */
static enum error_code student_is_done(struct work *work, int student, struct error *err)
{
    int tenths, of;
    if (!class_points(work->class, student, &tenths, &of)) return OK;
    if (work->class->graded) work->class->graded(work->class, &work->class->all.of[student], tenths, of);
    return work->class->csv ? class_write_csv(work->class, err) : OK;
}

/* Note how a job has ended: with a result, with an error's text, or without either. */
static enum error_code end_job(struct work *work, int index, const struct child_end *end, struct error *err)
{
    const struct job job = work->job[index];
    struct submission *student = &work->class->all.of[job.student];
    struct file_result *file = class_file(work->class, job.student, job.lesson);
    char path[PATH_MAX], *text = NULL;
    size_t size;
    struct error none = { OK, "" };
    work->job[index] = work->job[--work->running];
    if (class_signal) return file->state = FILE_WAITS, OK;
    const bool well = WIFEXITED(end->how) && WEXITSTATUS(end->how) == 0 && read_result(work, file);
    if (well) return student_is_done(work, job.student, err);
    file->state = FILE_BROKEN, work->class->broken++;
    result_path(work, file, ".error", path, sizeof path);
    const bool said = file_read_all(path, 4096, &text, &size, &none) == OK && size > 0;
    snprintf(student->note, sizeof student->note, "%s: %.120s", lessons[job.lesson]->folder,
             said ? printable(text).text : "its judge ended early");
    free(text);
    return OK;
}

/* Wait until one of the jobs has ended, or a signal has come. */
static enum error_code wait_for_one(struct work *work, struct error *err)
{
    const double turn = 0.01;                   /* seconds */
    struct child_end end;
    for (;;)
        for (int i = 0; i < work->running; i++) {
            struct job *job = &work->job[i];
            if (child_wait(job->process, turn, &end)) return end_job(work, i, &end, err);
            job->seconds += turn * work->running;
            if (job->seconds <= FILE_SECONDS) continue;
            child_stop(job->process, &end);
            return end_job(work, i, &end, err);
        }
}

/* Find the next file that can be started.  Files whose result is known, or is being made, are none. */
static bool next_file(struct work *work, int *student, int *lesson)
{
    for (int s = 0; s < work->class->all.count; s++)
        for (int l = 0; lessons[l]; l++) {
            const struct file_result *file = class_file(work->class, s, l);
            if (file->state != FILE_WAITS || is_running(work, file)) continue;
            *student = s, *lesson = l;
            return true;
        }
    return false;
}

/* Judge all files that have no result, and those that are to be judged again. */
static enum error_code run_jobs(struct work *work, struct error *err)
{
    struct class_grading *class = work->class;
    enum error_code e = OK;
    int student, lesson;
    while (!e && !class_signal) {
        const bool found = next_file(work, &student, &lesson);
        if (!found && work->running == 0) break;
        if (!found || work->running == class->jobs) {
            e = wait_for_one(work, err);
            continue;
        }
        struct file_result *file = class_file(class, student, lesson);
        if (!file->again && read_result(work, file)) {
            class->kept++;
            e = student_is_done(work, student, err);
        } else e = start_job(work, student, lesson, err);
        file->again = false;
    }
    struct child_end end;
    while (work->running > 0) {
        if (!class_signal) child_stop(work->job[0].process, &end);
        else child_wait(work->job[0].process, 0, &end);
        class_file(class, work->job[0].student, work->job[0].lesson)->state = FILE_WAITS;
        work->job[0] = work->job[--work->running];
    }
    return e;
}

/* ---- a class ----------------------------------------------------------------------------------------------------- */

/* Results are kept beside the submissions, in a folder whose name is not a student's. */
static enum error_code open_results(struct work *work, struct error *err)
{
    const char *asked = work->class->results;
    if (asked) snprintf(work->results, sizeof work->results, "%s", asked);
    else path_of(work->results, sizeof work->results, work->class->folder, ".orrery-results");
    if (mkdir(work->results, 0700) != 0 && errno != EEXIST)
        return fail(err, ERR_FILE, "%s: %s; --results names another folder", printable_path(work->results).text,
                    strerror(errno));
    struct sha256_text digest;
    char self[PATH_MAX];
    if (!system_program(self, sizeof self)) return fail(err, ERR_FILE, "this program's own file is not known");
    enum error_code e = sha256_file(self, &digest, err);
    if (!e) snprintf(work->program, sizeof work->program, "%s", digest.text);
    return e;
}

/* Builds of jobs that a signal ends would stay: all are in one folder, which the class removes.  The user who runs the
 * code goes through it, and cannot list it. */
static enum error_code open_room(struct work *work, struct error *err)
{
    char *folder = work->room.folder;
    snprintf(folder, sizeof work->room.folder, "%s/orrery-class-XXXXXX", temporary_folder());
    if (mkdtemp(folder) == NULL) {
        const enum error_code e = fail(err, ERR_FILE, "%s: %s; TMPDIR names another folder", folder, strerror(errno));
        return folder[0] = '\0', e;
    }
    if (chmod(folder, 0711) != 0 || setenv("TMPDIR", folder, 1) != 0)
        return fail(err, ERR_FILE, "%s: %s", folder, strerror(errno));
    return OK;
}

/* Whether --regrade names a student of this class. */
static enum error_code check_regrade(const struct class_grading *class, struct error *err)
{
    bool known = class->regrade == NULL || strcmp(class->regrade, "all") == 0;
    for (int s = 0; s < class->all.count; s++) known = known || strcmp(class->regrade, class->all.of[s].name) == 0;
    return known ? OK : fail(err, ERR_USAGE, "--regrade %s: no submission is this student's; \"all\" means everybody",
                             printable(class->regrade).text);
}

/* Note for each file whether it is there, what it can give, and its result's name. */
static enum error_code prepare_files(struct work *work, struct error *err)
{
    struct class_grading *class = work->class;
    enum error_code e = OK;
    for (int s = 0; s < class->all.count && !e; s++)
        for (int l = 0; lessons[l] && !e; l++) {
            struct file_result *file = class_file(class, s, l);
            if (!class->chosen[l]) continue;
            file->of = 10 * lesson_points(lessons[l]);
            if (class->all.of[s].file[l] == NULL) continue;
            file->state = FILE_WAITS;
            file->again = wants_again(class, &class->all.of[s]);
            e = name_result(work, &class->all.of[s], l, file, err);
        }
    return e;
}

static enum error_code write_reports(const struct class_grading *class, struct error *err)
{
    enum error_code e = class->csv ? class_write_csv(class, err) : OK;
    if (!e && class->json) e = class_write_json(class, err);
    if (!e && class->similar) e = class_write_similar(class, err);
    return e;
}

enum error_code class_grade(struct class_grading *class, struct error *err)
{
    struct work work = { .class = class, .how = { .seed = PUBLIC_SEED, .user = class->user,
                                                  .sanitize = class->sanitize } };
    enum error_code e = lessons_chosen(class->lessons, class->chosen, err);
    if (!e) e = submissions_find(&class->all, class->folder, class->chosen, class->roster, class->variant, err);
    if (!e) e = check_regrade(class, err);
    if (!e && !class->own_code && cage_kind() == CAGE_NONE)
        e = fail(err, ERR_USAGE, "grade: this system allows neither namespaces nor Landlock, so a submission could "
                 "read files; --own-code grades code that you trust");
    if (!e && class->secret) e = grade_secret(class->secret, &work.how.secret, err);
    if (!e) e = grade_compilers(NULL, &work.how, class->chosen, err);
    if (!e) e = open_results(&work, err);
    if (!e) e = open_room(&work, err);
    if (e) return build_remove(&work.room), e;
    const size_t files = (size_t)class->all.count * MOST_LESSONS;
    class->file = calloc(files, sizeof *class->file);
    if (class->file == NULL) e = fail(err, ERR_MEMORY, "no memory for a class");
    if (class->jobs > MOST_JOBS) class->jobs = MOST_JOBS;
    if (!e) e = prepare_files(&work, err);
    class_signal = 0;
    child_take_signals(class_stopped);
    if (!e) e = run_jobs(&work, err);
    child_take_signals(NULL);
    class->stopped = class_signal;
    build_remove(&work.room);
    /* After an error of one report the others are not tried; grading itself is done and kept. */
    return e ? e : write_reports(class, err);
}

void class_free(struct class_grading *class)
{
    for (size_t i = 0; class->file && i < (size_t)class->all.count * MOST_LESSONS; i++)
        cJSON_Delete(class->file[i].result);
    free(class->file);
    class->file = NULL;
    submissions_free(&class->all);
}
