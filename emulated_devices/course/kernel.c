/* kernel.c -- calls the kernels of a student on this machine's cores.  Checks of CUDA lessons call kernel_try and
 * kernel_fails.  A program that crashes, hangs or asks the system for something fails the check. */
#define _DEFAULT_SOURCE
#include "emulated_devices/course/kernel.h"
#include "emulated_devices/course/cage/cage.h"
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

/* Become the program of the kernels, in the child, with little: seconds, memory, and no rights. */
static void become_kernels(const struct judge *judge, const struct kernel_trial *trial, int in, int out)
{
    char which[WORD], m[WORD], number[KERNEL_NUMBERS][WORD], order[64];
    const char *words[KERNEL_NUMBERS + 4] = { judge->worker, which, m };
    char *environment[] = { (char *)"PATH=/usr/local/bin:/usr/bin:/bin", (char *)"OMP_NUM_THREADS=1", order, NULL };
    const struct cage_limits most = { KERNEL_SECONDS, MEMORY, 1, PROCESSES };
    const int nothing = open("/dev/null", O_WRONLY);
    snprintf(which, sizeof which, "%d", trial->which), snprintf(m, sizeof m, "%d", trial->m);
    snprintf(order, sizeof order, "ORRERY_CUDA_ORDER=%s", trial->order ? trial->order : "forward");
    for (int i = 0; i < KERNEL_NUMBERS; i++)
        snprintf(number[i], sizeof number[i], "%d", trial->number[i]), words[3 + i] = number[i];
    if (nothing < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(nothing, 2) < 0) _exit(126);
    alarm(WALL_SECONDS);
    cage_close_at_exec();
    if (!cage_become(judge->cage, &most)) _exit(126);
    execve(judge->worker, (char *const *)(uintptr_t)words, environment);
    _exit(127);
}

/* Write all bytes, whatever signals come between. */
static bool kernel_write_all(int to, const void *data, size_t bytes)
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

/* Whether the report is of an access of the host itself: on a GPU such an access ends the program. */
static const char deadly[] = "host access: ";
static bool is_deadly(const struct kernel_trial *trial)
{
    return strncmp(trial->report, deadly, sizeof deadly - 1) == 0;
}

/* Read the reports of one run, a line each, of which one is kept; then the most accesses of a thread, and the
 * numbers. */
static bool read_result(struct kernel_trial *trial, FILE *from)
{
    char line[JUDGE_TEXT];
    if (fgets(line, sizeof line, from) == NULL) return false;
    trial->reports = atoi(line), trial->report[0] = 0;
    for (int i = 0; i < trial->reports; i++) {
        if (fgets(line, sizeof line, from) == NULL) return false;
        line[strcspn(line, "\n")] = 0;
        /* kernels share its memory */
        for (char *at = line; *at; at++) *at = iscntrl((unsigned char)*at) ? '?' : *at;
        if (i == 0 || (!is_deadly(trial) && strncmp(line, deadly, sizeof deadly - 1) == 0))
            memcpy(trial->report, line, sizeof trial->report);
    }
    if (fgets(line, sizeof line, from) == NULL) return false;
    trial->accesses = atol(line);
    return fread(trial->y, sizeof *trial->y, (size_t)trial->m, from) == (size_t)trial->m;
}

/* A wrong number is a mistake of the student, and the reports may say where it comes from. */
bool kernel_fails(struct judge *judge, const struct kernel_trial *trial, const char *format, ...)
{
    char text[JUDGE_TEXT];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (trial->reports == 0) return judge_fails(judge, "%s", text);
    return judge_fails(judge, "%s.  The judge has seen: %s%s", text, trial->report,
                       trial->reports > 1 ? "; and more" : "");
}

/* How the program ended, and whether it came back with numbers. */
static bool came_back(struct judge *judge, const struct kernel_trial *trial, int how, bool read)
{
    if (WIFSIGNALED(how) && (WTERMSIG(how) == SIGALRM || WTERMSIG(how) == SIGXCPU || WTERMSIG(how) == SIGKILL))
        return judge_fails(judge, "the kernels have not ended in %d s", KERNEL_SECONDS);
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGSYS)
        return judge_fails(judge, "the kernels ask the operating system for something");
    if (WIFSIGNALED(how)) return judge_fails(judge, "the kernels end with signal %d", WTERMSIG(how));
    if (WEXITSTATUS(how) == 3)
        return kernel_fails(judge, trial, "no thread can go on: a barrier, or a mask, that not all of them reach");
    if (read && is_deadly(trial)) return judge_fails(judge, "%s", trial->report);
    return read || judge_fails(judge, "the kernels end early, with status %d", WEXITSTATUS(how));
}

/* A number that is not a number has words of its own. */
const char *kernel_meaning(float y)
{
    return isnan(y) ? " (not a number: nobody has written it, or it was computed from one, or 0/0)" : "";
}

/* Run the kernels once.  @return whether they came back with numbers; the check has failed otherwise. */
bool kernel_try(struct judge *judge, struct kernel_trial *trial)
{
    int in[2], out[2];
    struct child_end end = { 0 };
    signal(SIGPIPE, SIG_IGN);                   /* the check's own process */
    trial->reports = 0, trial->report[0] = 0;
    if (judge_used_up(judge)) return false;
    if (trial->m > KERNEL_MOST || pipe(in) != 0) return judge_fails(judge, "no pipe for the kernels");
    if (pipe(out) != 0) return close(in[0]), close(in[1]), judge_fails(judge, "no pipe for the kernels");
    const pid_t child = child_start();
    if (child == 0) {
        close(in[1]), close(out[0]);
        become_kernels(judge, trial, in[0], out[1]);
    }
    close(in[0]), close(out[1]);
    FILE *from = fdopen(out[0], "rb");
    if (child > 0) kernel_write_all(in[1], trial->x, (size_t)trial->n * sizeof *trial->x);
    close(in[1]);
    const bool read = child > 0 && from && read_result(trial, from);
    if (from) fclose(from);
    else close(out[0]);
    /* Processes that the kernels left behind end, and their time is counted. */
    if (child > 0) child_wait(child, 0, &end), cage_clear();
    return child > 0 ? came_back(judge, trial, end.how, read) : judge_fails(judge, "the kernels do not start");
}
