/* judge.c -- judges a student's file: it compiles the file, runs every check in a process of its own, and adds
 * points up.  emulated_devices/cli/course/ and course/teacher/ call judge_file; the outcomes are in a struct score.  A
 * check that fails is an outcome; ERR_FILE and ERR_MEMORY mean that the machine cannot judge. */
#include "emulated_devices/course/judge.h"
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/cage/cage.h"
#include "emulated_devices/course/command_serve.h"
#include "emulated_devices/course/kept.h"
#include "emulated_devices/course/python.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include "ref/machine/system.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHECK_SECONDS = 900 };           /* on the wall, if all else fails: everything that runs has limits of its own */
enum { LESSON_SECONDS = 30, SANITIZED = 6 };    /* of processor, for all runs of a lesson; with sanitizers 6 times */
enum { TEXT_MEGABYTES = 256 };          /* for the check of a text */
enum { FILE_MOST = 1 << 20, HIDDEN_TENTHS = 3 };        /* of a point: what hidden inputs are worth */

/* Points have tenths, because hidden inputs are worth three tenths of a check. */
struct points_text points_text(int tenths)
{
    struct points_text t;
    if (tenths % 10 == 0) snprintf(t.text, sizeof t.text, "%d", tenths / 10);
    else snprintf(t.text, sizeof t.text, "%d.%d", tenths / 10, tenths % 10);
    return t;
}

/* List the open checks first, then their twins with hidden inputs, and add up what they are worth. */
void score_begin(struct score *score, const struct lesson *lesson, const struct judging *how)
{
    memset(score, 0, sizeof *score);
    score->lesson = lesson;
    for (int hidden = 0; hidden <= (how->secret != 0); hidden++)
        for (const struct check *c = lesson->check; c->run; c++) {
            const int secret = how->secret ? HIDDEN_TENTHS * c->points : 0;
            score->outcome[score->count++] = (struct outcome){ .check = c, .hidden = hidden,
                                                       .of = hidden ? secret : 10 * c->points - secret };
        }
    for (int i = 0; i < score->count; i++) score->of += score->outcome[i].of;
}

int outcome_hints(const struct outcome *outcome, const char *hint[])
{
    const struct check *c = outcome->check;
    const uint32_t found = outcome->mistake ? 1u << outcome->mistake : 0;
    int n = 0;
    for (int i = 0; i < CHECK_HINTS && c->hint[i]; i++)
        if (c->fits[i] & found) hint[n++] = c->hint[i];
    if (n == 0 && mistake_advice(outcome->mistake)) hint[n++] = mistake_advice(outcome->mistake);
    for (int i = 0; i < CHECK_HINTS && c->hint[i]; i++)
        if (!(c->fits[i] & found)) hint[n++] = c->hint[i];
    return n;
}

struct cost score_cost(const struct score *score)
{
    struct cost all = { 0 };
    for (int i = 0; i < score->count; i++) {
        const struct cost *one = &score->outcome[i].cost;
        if (score->outcome[i].hidden) continue;
        all.time += one->time, all.messages += one->messages, all.bytes += one->bytes;
        if (one->peak > all.peak) all.peak = one->peak;
    }
    return all;
}

/* These are seconds of a processor, user and system together. */
static double seconds_of(const struct rusage *used)
{
    return (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
           1e-6 * (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
}

/* Add up the seconds of a processor that the processes have taken which this check has started and waited for. */
static double computed_here(void)
{
    struct rusage all;
    return getrusage(RUSAGE_CHILDREN, &all) == 0 ? seconds_of(&all) : 0;
}

/* All runs of a lesson share one limit, so an endless loop cannot cost the whole course. */
bool judge_used_up(struct judge *judge)
{
    const int most = LESSON_SECONDS * (judge->is_python ? PYTHON_TIMES : judge->caged ? 1 : SANITIZED);
    if (judge->computed + judge->python_seconds + computed_here() <= most) return false;
    judge_fails(judge, "all runs together have computed for more than %d seconds: what takes so long?", most);
    return true;
}

/* Say that the machine, not the student, is at fault, and end this process. */
static void break_off(struct judge *judge, const char *why)
{
    snprintf(judge->broken, sizeof judge->broken, "%s", why);
    _exit(0);
}

/* These are the bytes of addresses that a text's check may have: more than this process has now. */
static uint64_t text_memory(void)
{
    const uint64_t now = system_addresses();
    return BUILT_WITH_SANITIZERS || now == 0 ? 0 : now + ((uint64_t)TEXT_MEGABYTES << 20);
}

/* Run one check, in its process.  A check of a lesson in C gets a cage for its workers; a check of a text gives its
 * own rights up, since it reads the text itself. */
static void be_the_check(struct judge *judge)
{
    struct cage cage;
    struct error err = { OK, "" };
    struct cage_limits text = { .seconds = LESSON_SECONDS, .memory = text_memory(), .file = 1 };
    signal(SIGALRM, SIG_DFL);
    alarm(CHECK_SECONDS);
    if (cage_enter(&cage, judge->view, &err) != OK) break_off(judge, err.text);
    judge->cage = &cage;
    text.processes = cage.others ? 0 : 1;       /* with those of its user that are there: no more of them */
    /* Only a check of a text gives its own rights up here. */
    if (judge->worker == NULL && !cage_become(&cage, &text)) break_off(judge, "the rights cannot be given up");
    judge->check->run(judge);
    if (judge->is_python) python_close(judge);  /* so that the time of all its processes is counted */
    judge->computed += computed_here();
    _exit(0);
}

/* ---- checks of a text -------------------------------------------------------------------------------------------- */

/* The judge keeps this for a text's check, and answers requests from it.  left: seconds of a processor for all
 * commands and checks of the lesson. */
struct text_desk { struct command_request *request; const struct build *build; char program[PATH_MAX]; double left; };

/* Replace control characters.  A process that was taken over by its text may have written anything. */
static void make_plain(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (; *text; text++)
        if (*text != '\n' && ((unsigned char)*text < ' ' || *text == 127)) *text = '?';
}

/* Answer requests until the check has ended: its ends of the pipes are closed then. */
static enum error_code answer_check(struct text_desk *text_desk, int asked, int answers, struct error *err)
{
    enum error_code e = OK;
    char word;
    for (ssize_t n; !e;) {
        n = read(asked, &word, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return OK;
        e = command_serve_check(text_desk->build, text_desk->program, text_desk->request, &text_desk->left, err);
        if (!e && write(answers, &word, 1) != 1) return OK;
    }
    return e;
}

static void close_ends(const int *ends) { close(ends[0]), close(ends[1]); }

/* A process that was killed by a limit. */
static bool too_much(int how)
{
    return WIFSIGNALED(how) && (WTERMSIG(how) == SIGXCPU || WTERMSIG(how) == SIGKILL);
}

/* Run a check of a text.  The text may have taken over the process and written to shared memory.  So the judge keeps
 * its own state in `text_desk`. */
static enum error_code run_text_check(struct judge *judge, struct text_desk *text_desk, struct error *err)
{
    struct child_end end = { 0 };
    int ask[2], hear[2];
    if (!system_pipe(ask)) return fail(err, ERR_MEMORY, "no pipe for a check: %s", strerror(errno));
    if (!system_pipe(hear)) return close_ends(ask), fail(err, ERR_MEMORY, "no pipe for a check");
    fflush(NULL);
    judge->request = text_desk->request, judge->asks = ask[1], judge->hears = hear[0];
    const pid_t child = child_start();
    if (child == 0) close(ask[0]), close(hear[1]), be_the_check(judge);
    close(ask[1]), close(hear[0]);
    enum error_code e = child < 0 ? fail(err, ERR_MEMORY, "a check cannot start: %s", strerror(errno)) : OK;
    if (!e) e = answer_check(text_desk, ask[0], hear[1], err);
    close(ask[0]), close(hear[1]);
    if (child > 0) child_wait(child, 0, &end);
    if (e) return e;
    /* The check's processor time counts against all commands and checks. */
    text_desk->left -= seconds_of(&end.used);
    make_plain(judge->said, sizeof judge->said), make_plain(judge->drawing, sizeof judge->drawing);
    make_plain(judge->lines, sizeof judge->lines), make_plain(judge->broken, sizeof judge->broken);
    if (too_much(end.how)) judge_fails(judge, "to read it takes too long, or too much memory");
    else if (!WIFEXITED(end.how) || WEXITSTATUS(end.how) != 0)
        judge_fails(judge, "it cannot be read: the check ended early");
    return judge->broken[0] ? fail(err, ERR_FILE, "%s", judge->broken) : OK;
}

/* ---- one check --------------------------------------------------------------------------------------------------- */

/* Run one check in a process of its own: what goes wrong in it costs this check, not the score. */
static enum error_code run_check(struct judge *judge, struct error *err)
{
    struct child_end end;
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) be_the_check(judge);
    if (child < 0) return judge_fails(judge, "the check cannot start: %s", strerror(errno)), OK;
    child_wait(child, 0, &end);
    const int how = end.how;
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM)
        judge_fails(judge, "the check took longer than %d s", CHECK_SECONDS);
    else if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        judge_fails(judge, "the check itself ended early (%s %d): please tell who runs the course",
                    WIFSIGNALED(how) ? "signal" : "status", WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
    return judge->broken[0] ? fail(err, ERR_FILE, "%s", judge->broken) : OK;
}

/* Whether the values of its part are wrong: those of the open inputs, or of its own. */
static bool values_are_wrong(const struct score *score, const struct outcome *outcome)
{
    for (int i = 0; i < score->count && &score->outcome[i] != outcome; i++) {
        const struct outcome *p = &score->outcome[i];
        const bool gate = p->check == score->lesson->check || p->check[-1].part != p->check->part;
        if (gate && p->check->part == outcome->check->part && p->verdict != PASSED) return true;
    }
    return false;
}

/* Judge one outcome: skip it, gate it, or run it. */
static enum error_code judge_one(struct score *score, struct outcome *outcome, struct judge *judge,
                                 struct text_desk *text_desk, struct error *err)
{
    /* A hidden check is tried only if the same check holds for open inputs. */
    if (outcome->hidden)
        for (int i = 0; i < score->count; i++)
            if (score->outcome[i].check == outcome->check && !score->outcome[i].hidden
                && score->outcome[i].verdict != PASSED) {
                outcome->verdict = GATED;
                snprintf(outcome->said, sizeof outcome->said, "not tried: it fails on open inputs");
                return OK;
            }
    if (values_are_wrong(score, outcome)) {
        outcome->verdict = GATED;
        snprintf(outcome->said, sizeof outcome->said, "no points before the results of part %d are right",
                 outcome->check->part);
        return OK;
    }
    const enum error_code e = text_desk->request ? run_text_check(judge, text_desk, err) : run_check(judge, err);
    outcome->verdict = judge->failed ? FAILED : PASSED;
    outcome->tenths = judge->failed ? 0 : outcome->of;
    memcpy(outcome->said, judge->said, sizeof outcome->said);
    memcpy(outcome->lines, judge->lines, sizeof outcome->lines);
    outcome->mistake = judge->mistake, outcome->cost = judge->cost;
    if (!outcome->hidden) memcpy(outcome->drawing, judge->drawing, sizeof outcome->drawing);
    return e;
}

/* Memory that the judge shares with the processes of a run. */
static void *judge_share(size_t bytes)
{
    void *p = system_pages(bytes, true);
    if (p == NULL) abort();
    return p;
}

/* Run all checks of a lesson.  `after` is called after each.  With how->first_failure the checks behind the first
 * failure are skipped. */
static enum error_code judge_all(struct score *score, const struct judging *how, const struct build *build,
                                 const char *text, struct error *err)
{
    const bool is_text = build->worker[0] == '\0';
    const struct cage_view view = is_text ? (struct cage_view){ .inside = build->folder, .user = build->user }
        : build->python ? python_view(build) : build_view(build);
    enum error_code e = OK;
    struct text_desk desk = { .build = build, .left = LESSON_SECONDS };
    system_program(desk.program, sizeof desk.program);
    /* The judge's memory is shared with each check's process. */
    struct judge *j = judge_share(sizeof *j);
    bool stop = false;
    if (is_text) desk.request = judge_share(sizeof *desk.request);
    for (int i = 0; i < score->count && !e; i++) {
        struct outcome *o = &score->outcome[i];
        if (stop) {
            o->verdict = SKIPPED;
            continue;
        }
        /* The seconds of the runs before are kept; everything else of a check begins new. */
        const double computed = j->computed;
        memset(j, 0, sizeof *j);
        j->computed = computed, j->lesson = score->lesson, j->check = o->check;
        j->worker = is_text ? NULL : build->worker, j->view = &view, j->text = text, j->hidden = o->hidden;
        j->seed = o->hidden ? how->secret : how->seed, j->variant = how->variant;
        j->caged = !how->sanitize || build->python, j->is_python = build->python, j->kept = how->kept;
        e = judge_one(score, o, j, &desk, err);
        score->tenths += o->tenths;
        stop = how->first_failure && o->verdict == FAILED;
        if (how->kept && how->kept->exact && how->kept->any) stop = true;       /* nothing else is asked for */
        if (how->after) how->after(how->context, score);
    }
    munmap(j, sizeof *j);
    if (is_text) munmap(desk.request, sizeof *desk.request);
    return e;
}

/* Give no points at all: every check says why. */
static void fail_all(struct score *score, const struct judging *how)
{
    for (int i = 0; i < score->count; i++) {
        score->outcome[i].verdict = GATED;
        snprintf(score->outcome[i].said, sizeof score->outcome[i].said, "not tried");
    }
    if (how->after) how->after(how->context, score);
}

/* Write a text into the folder of a build; lessons in C compile a program there instead. */
static enum error_code take_text(struct build *build, struct score *score, const char *text, size_t bytes,
                                 const struct judging *how, struct error *err)
{
    char name[PATH_MAX];
    path_of(name, sizeof name, "in", score->lesson->file);
    enum error_code e = build_open_text(build, how, err);
    if (!e) e = build_put(build, name, text, bytes, err);
    score->compiled = !e && strlen(text) == bytes;
    if (!e && !score->compiled)
        snprintf(score->why_not, sizeof score->why_not, "it has a NUL character, and must be text\n");
    return e;
}

enum error_code judge_source(struct score *score, const struct lesson *lesson, bool python, const char *text,
                             size_t bytes, const struct judging *how, struct error *err)
{
    struct build b = { 0 };
    int32_t user, group;
    score_begin(score, lesson, how);
    enum error_code e = cage_user(how->user, &user, &group, err);
    if (e) return e;
    const bool kernels = lesson_has_kernels(lesson);
    if (lesson->functions == NULL && !kernels) e = take_text(&b, score, text, bytes, how, err);
    else {
        e = (kernels ? build_kernels : python ? build_python : build_worker)
            (&b, lesson, text, bytes, how, score->why_not, sizeof score->why_not, err);
        score->compiled = !e && b.worker[0] != 0;
    }
    if (score->compiled) e = judge_all(score, how, &b, text, err);
    else if (!e) fail_all(score, how);
    build_remove(&b);
    return e;
}

/* Judge a file.  A file that is no plain file, or too large, gets no points and no error. */
enum error_code judge_file(struct score *score, const struct lesson *lesson, const char *path,
                           const struct judging *how, struct error *err)
{
    char *text = NULL;
    size_t bytes;
    score_begin(score, lesson, how);
    int32_t user, group;
    enum error_code e = cage_user(how->user, &user, &group, err);
    if (e) return e;
    struct error why = { OK, "" };
    struct stat st;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {        /* a link may lead to what only the grader can read */
        snprintf(score->why_not, sizeof score->why_not, "it must be a file, no link, folder or pipe\n");
        fail_all(score, how);
        return OK;
    }
    if (file_read_all(path, FILE_MOST, &text, &bytes, &why) != OK) {
        snprintf(score->why_not, sizeof score->why_not, "%s\n", why.text);
        fail_all(score, how);
        return OK;
    }
    e = judge_source(score, lesson, is_python(path), text, bytes, how, err);
    free(text);
    return e;
}
