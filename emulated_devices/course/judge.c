#define _DEFAULT_SOURCE                 /* MAP_ANONYMOUS */
#include "emulated_devices/course/judge.h"
#include "emulated_devices/course/build.h"
#include "emulated_devices/course/cage.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include <errno.h>
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
enum { FILE_MOST = 1 << 20, HIDDEN_TENTHS = 3 };        /* of a point: what hidden inputs are worth */

struct points_text points_text(int tenths)
{
    struct points_text t;
    if (tenths % 10 == 0) snprintf(t.text, sizeof t.text, "%d", tenths / 10);
    else snprintf(t.text, sizeof t.text, "%d.%d", tenths / 10, tenths % 10);
    return t;
}

/* The open checks first, then their twins with hidden inputs. */
void score_begin(struct score *s, const struct lesson *l, const struct judging *how)
{
    memset(s, 0, sizeof *s);
    s->lesson = l;
    for (int hidden = 0; hidden <= (how->secret != 0); hidden++)
        for (const struct check *c = l->check; c->run; c++) {
            const int secret = how->secret ? HIDDEN_TENTHS * c->points : 0;
            s->outcome[s->count++] = (struct outcome){ .check = c, .hidden = hidden,
                                                       .of = hidden ? secret : 10 * c->points - secret };
        }
    for (int i = 0; i < s->count; i++) s->of += s->outcome[i].of;
}

/* Seconds of processor that the processes have taken which this check has started and waited for. */
static double computed_here(void)
{
    struct rusage all;
    if (getrusage(RUSAGE_CHILDREN, &all) != 0) return 0;
    return (double)(all.ru_utime.tv_sec + all.ru_stime.tv_sec) +
           1e-6 * (double)(all.ru_utime.tv_usec + all.ru_stime.tv_usec);
}

bool judge_used_up(struct judge *j)
{
    const int most = LESSON_SECONDS * (j->caged ? 1 : SANITIZED);
    if (j->computed + computed_here() <= most) return false;
    judge_fails(j, "all runs together have computed for more than %d seconds: what takes so long?", most);
    return true;
}

/* Lessons with a program: in the cage, so that nothing is left behind, and the program sees what there is. */
static void be_the_check(struct judge *j)
{
    struct cage cage;
    struct error err = { OK, "" };
    signal(SIGALRM, SIG_DFL);
    alarm(CHECK_SECONDS);
    if (j->view && cage_enter(&cage, j->view, &err) != OK) {
        snprintf(j->broken, sizeof j->broken, "%s", err.text);
        _exit(0);
    }
    j->cage = &cage;
    j->check->run(j);
    j->computed += computed_here();
    _exit(0);
}

/* One check, in a process of its own: what goes wrong in it costs this check, not the score. */
static void run_check(struct judge *j)
{
    struct child_end end;
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) be_the_check(j);
    if (child < 0) {
        judge_fails(j, "the check cannot start: %s", strerror(errno));
        return;
    }
    child_wait(child, 0, &end);
    const int how = end.how;
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM) judge_fails(j, "the check took longer than %d s", CHECK_SECONDS);
    else if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        judge_fails(j, "the check itself ended early (%s %d): please tell who runs the course",
                    WIFSIGNALED(how) ? "signal" : "status", WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
}

/* Whether the values of its part are wrong: those of the open inputs, or of its own. */
static bool values_are_wrong(const struct score *s, const struct outcome *o)
{
    for (int i = 0; i < s->count && &s->outcome[i] != o; i++) {
        const struct outcome *p = &s->outcome[i];
        const bool gate = p->check == s->lesson->check || p->check[-1].part != p->check->part;
        if (gate && p->check->part == o->check->part && p->verdict != PASSED) return true;
    }
    return false;
}

static void judge_one(struct score *s, struct outcome *o, struct judge *j)
{
    if (o->hidden)
        for (int i = 0; i < s->count; i++)
            if (s->outcome[i].check == o->check && !s->outcome[i].hidden && s->outcome[i].verdict != PASSED) {
                o->verdict = GATED;
                snprintf(o->said, sizeof o->said, "not tried: it fails on open inputs");
                return;
            }
    if (values_are_wrong(s, o)) {
        o->verdict = GATED;
        snprintf(o->said, sizeof o->said, "no points before the results of part %d are right", o->check->part);
        return;
    }
    run_check(j);
    o->verdict = j->failed ? FAILED : PASSED;
    o->tenths = j->failed ? 0 : o->of;
    memcpy(o->said, j->said, sizeof o->said);
    memcpy(o->lines, j->lines, sizeof o->lines);
    if (!o->hidden) memcpy(o->drawing, j->drawing, sizeof o->drawing);
}

static enum error_code judge_all(struct score *s, const struct judging *how, const struct build *b, const char *text,
                                 struct error *err)
{
    const struct cage_view view = b ? build_view(b) : (struct cage_view){ 0 };
    enum error_code e = OK;
    char program[PATH_MAX];
    const ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    program[bytes > 0 ? bytes : 0] = '\0';
    struct judge *j = mmap(NULL, sizeof *j, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool stop = false;
    if (j == MAP_FAILED) abort();
    for (int i = 0; i < s->count && !e; i++) {
        struct outcome *o = &s->outcome[i];
        if (stop) {
            o->verdict = SKIPPED;
            continue;
        }
        const double computed = j->computed;
        memset(j, 0, sizeof *j);
        j->computed = computed, j->lesson = s->lesson, j->check = o->check;
        j->worker = b ? b->worker : NULL, j->view = b ? &view : NULL, j->text = text, j->hidden = o->hidden;
        j->seed = o->hidden ? how->secret : how->seed, j->variant = how->variant;
        j->caged = !how->sanitize, j->program = program;
        judge_one(s, o, j);
        if (j->broken[0]) e = fail(err, ERR_FILE, "%s", j->broken);
        s->tenths += o->tenths;
        stop = how->first_failure && o->verdict == FAILED;
        if (how->after) how->after(how->context, s);
    }
    munmap(j, sizeof *j);
    return e;
}

/* No points at all: every check says why. */
static void fail_all(struct score *s, const struct judging *how)
{
    for (int i = 0; i < s->count; i++) {
        s->outcome[i].verdict = GATED;
        snprintf(s->outcome[i].said, sizeof s->outcome[i].said, "not tried");
    }
    if (how->after) how->after(how->context, s);
}

enum error_code judge_file(struct score *s, const struct lesson *l, const char *path, const struct judging *how,
                           struct error *err)
{
    struct build b;
    char *text = NULL;
    size_t bytes;
    score_begin(s, l, how);
    int32_t user, group;
    if (!cage_user(how->user, &user, &group))
        return fail(err, ERR_USAGE, "--user %s: there is no such user", printable(how->user).text);
    struct error why = { OK, "" };
    struct stat st;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {        /* a link may lead to what only the grader can read */
        snprintf(s->why_not, sizeof s->why_not, "it must be a file, no link, folder or pipe\n");
        fail_all(s, how);
        return OK;
    }
    if (file_read_all(path, FILE_MOST, &text, &bytes, &why) != OK) {
        snprintf(s->why_not, sizeof s->why_not, "%s\n", why.text);
        fail_all(s, how);
        return OK;
    }
    enum error_code e = OK;
    const bool kernels = lesson_has_kernels(l);
    if (l->functions == NULL && !kernels) {
        s->compiled = strlen(text) == bytes;
        if (s->compiled) e = judge_all(s, how, NULL, text, err);
        else snprintf(s->why_not, sizeof s->why_not, "it has a NUL character, and must be text\n"), fail_all(s, how);
    } else {
        e = (kernels ? build_kernels : build_worker)(&b, l, text, bytes, how, s->why_not, sizeof s->why_not, err);
        s->compiled = !e && b.worker[0] != 0;
        if (s->compiled) e = judge_all(s, how, &b, text, err);
        else if (!e) fail_all(s, how);
        build_remove(&b);
    }
    free(text);
    return e;
}
