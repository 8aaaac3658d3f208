#define _DEFAULT_SOURCE
#include "emulated_devices/course/kernel.h"
#include "emulated_devices/course/cage.h"
#include "ref/io/child.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KERNEL_SECONDS = 20, WALL_SECONDS = 300, WORD = 16, MEMORY = 512 << 20, PROCESSES = 256 };

/* In the child: the program of the kernels, with little. */
static void become_kernels(const struct judge *j, const struct kernel_trial *t, int in, int out)
{
    char which[WORD], m[WORD], number[KERNEL_NUMBERS][WORD], order[64];
    const char *words[KERNEL_NUMBERS + 4] = { j->worker, which, m };
    char *environment[] = { (char *)"PATH=/usr/local/bin:/usr/bin:/bin", (char *)"OMP_NUM_THREADS=1", order, NULL };
    const struct cage_limits most = { KERNEL_SECONDS, MEMORY, 1, PROCESSES };
    const int nothing = open("/dev/null", O_WRONLY);
    snprintf(which, sizeof which, "%d", t->which), snprintf(m, sizeof m, "%d", t->m);
    snprintf(order, sizeof order, "ORRERY_CUDA_ORDER=%s", t->order ? t->order : "forward");
    for (int i = 0; i < KERNEL_NUMBERS; i++)
        snprintf(number[i], sizeof number[i], "%d", t->number[i]), words[3 + i] = number[i];
    if (nothing < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(nothing, 2) < 0) _exit(126);
    alarm(WALL_SECONDS);
    cage_close_at_exec();
    if (!cage_become(j->cage, &most)) _exit(126);
    execve(j->worker, (char *const *)(uintptr_t)words, environment);
    _exit(127);
}

static bool write_all(int to, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        const ssize_t n = write(to, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n, bytes -= (size_t)n;
    }
    return true;
}

/* The host's own accesses end a program on a GPU, whatever else is wrong. */
static const char deadly[] = "host access: ";
static bool is_deadly(const struct kernel_trial *t) { return strncmp(t->report, deadly, sizeof deadly - 1) == 0; }

/* Reports, a line each, of which one is kept; then the most accesses of a thread, and the numbers. */
static bool read_result(struct kernel_trial *t, FILE *from)
{
    char line[JUDGE_TEXT];
    if (fgets(line, sizeof line, from) == NULL) return false;
    t->reports = atoi(line), t->report[0] = 0;
    for (int i = 0; i < t->reports; i++) {
        if (fgets(line, sizeof line, from) == NULL) return false;
        line[strcspn(line, "\n")] = 0;
        /* kernels share its memory */
        for (char *at = line; *at; at++) *at = iscntrl((unsigned char)*at) ? '?' : *at;
        if (i == 0 || (!is_deadly(t) && strncmp(line, deadly, sizeof deadly - 1) == 0))
            memcpy(t->report, line, sizeof t->report);
    }
    if (fgets(line, sizeof line, from) == NULL) return false;
    t->accesses = atol(line);
    return fread(t->y, sizeof *t->y, (size_t)t->m, from) == (size_t)t->m;
}

bool kernel_fails(struct judge *j, const struct kernel_trial *t, const char *format, ...)
{
    char text[JUDGE_TEXT];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (t->reports == 0) return judge_fails(j, "%s", text);
    return judge_fails(j, "%s.  The judge has seen: %s%s", text, t->report, t->reports > 1 ? "; and more" : "");
}

static bool came_back(struct judge *j, const struct kernel_trial *t, int how, bool read)
{
    if (WIFSIGNALED(how) && (WTERMSIG(how) == SIGALRM || WTERMSIG(how) == SIGXCPU || WTERMSIG(how) == SIGKILL))
        return judge_fails(j, "the kernels have not ended in %d s", KERNEL_SECONDS);
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGSYS)
        return judge_fails(j, "the kernels ask the operating system for something");
    if (WIFSIGNALED(how)) return judge_fails(j, "the kernels end with signal %d", WTERMSIG(how));
    if (WEXITSTATUS(how) == 3)
        return kernel_fails(j, t, "no thread can go on: a barrier, or a mask, that not all of them reach");
    if (read && is_deadly(t)) return judge_fails(j, "%s", t->report);
    return read || judge_fails(j, "the kernels end early, with status %d", WEXITSTATUS(how));
}

const char *kernel_meaning(float y)
{
    return isnan(y) ? " (not a number: nobody has written it, or it was computed from one, or 0/0)" : "";
}

bool kernel_try(struct judge *j, struct kernel_trial *t)
{
    int in[2], out[2];
    struct child_end end = { 0 };
    signal(SIGPIPE, SIG_IGN);                   /* the check's own process */
    t->reports = 0, t->report[0] = 0;
    if (judge_used_up(j)) return false;
    if (t->m > KERNEL_MOST || pipe(in) != 0) return judge_fails(j, "no pipe for the kernels");
    if (pipe(out) != 0) return close(in[0]), close(in[1]), judge_fails(j, "no pipe for the kernels");
    const pid_t child = child_start();
    if (child == 0) {
        close(in[1]), close(out[0]);
        become_kernels(j, t, in[0], out[1]);
    }
    close(in[0]), close(out[1]);
    FILE *from = fdopen(out[0], "rb");
    if (child > 0) write_all(in[1], t->x, (size_t)t->n * sizeof *t->x);
    close(in[1]);
    const bool read = child > 0 && from && read_result(t, from);
    if (from) fclose(from);
    else close(out[0]);
    if (child > 0) child_wait(child, 0, &end), cage_clear();
    return child > 0 ? came_back(j, t, end.how, read) : judge_fails(j, "the kernels do not start");
}
