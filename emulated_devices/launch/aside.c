/* aside.c -- one command of this program that another one needs the results of.  bench/calibrate/steps.c and
 * bench/step_measure.c call run_aside().  ERR_USAGE is for a caller under a launcher; ERR_COMM means that the command
 * cannot start, has failed or has not ended in time. */
#include "emulated_devices/launch/launch.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include "ref/machine/system.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The last line that it had to say. */
static void last_line(const char *path, char *text, size_t room)
{
    char line[400];
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0]) snprintf(text, room, "%s", strncmp(line, "orrery: ", 8) == 0 ? line + 8 : line);
    }
    if (in) fclose(in);
}

/* Where in the kernel a process waits: " (futex_wait_queue)"; "" if it does not, or the kernel does not say. */
static const char *waits_in(long pid, char *text, size_t room)
{
    char name[64];
    const bool known = system_waits_in(pid, name, sizeof name);
    snprintf(text, room, "%s%s%s", known ? " (" : "", known ? name : "", known ? ")" : "");
    return text;
}

/* Whether a process has been started by another one, or by one that this has started. */
static bool is_below(const struct system_process *process, long root)
{
    struct system_process its = *process;
    while (its.parent > 1 && its.parent != root)
        if (!system_process(its.parent, &its)) return false;
    return its.parent == root;
}

/* The processes below one, in words: "orrery 812 waits (pipe_read), orrery 813 computes".  Nothing where the system
 * does not tell. */
static void describe_below(long root, char *text, size_t room)
{
    char where[80];
    struct system_process process;
    size_t used = 0;
    int count;
    long *pid = system_processes(&count);
    text[0] = '\0';
    for (int i = 0; i < count && used + 1 < room; i++)
        if (system_process(pid[i], &process) && is_below(&process, root))
            used += (size_t)snprintf(text + used, room - used, "%s%s %ld %s%s", used ? ", " : "", process.name, pid[i],
                                     process.state == 'R' ? "computes" : "waits",
                                     process.state == 'R' ? "" : waits_in(pid[i], where, sizeof where));
    free(pid);
}

/* Why it was stopped: how long it took, what its processes did, and what they had said by then. */
static enum error_code give_up(pid_t child, const char *const *words, double limit, const char *said, struct error *err)
{
    char who[500], what[200] = "", last[200] = "";
    struct child_end end;
    describe_below((long)child, who, sizeof who);
    last_line(said, last, sizeof last);
    child_stop(child, &end);
    for (size_t i = 1, used = 0; words[i] && used + 1 < sizeof what; i++)
        used += (size_t)snprintf(what + used, sizeof what - used, " %s", words[i]);
    return fail(err, ERR_COMM, "orrery%s: had not ended after %g s, and was stopped%s%s%s%s", what, limit,
                who[0] ? "; then " : "", who, last[0] ? "; it had said: " : "", printable(last).text);
}

enum error_code run_aside(const char *const *words, double limit, struct error *err)
{
    static const char *said;                            /* one file for all */
    if (said == NULL && (said = temporary_file(err)) == NULL) return err->code;
    struct child_end end;
    if (under_launcher())               /* its devices would take themselves for this launcher's */
        return fail(err, ERR_USAGE, "starts its runs of `orrery %s` itself; not under a launcher", words[1]);
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) {
        threads_pass_on();
        if (freopen("/dev/null", "r", stdin) == NULL || freopen("/dev/null", "w", stdout) == NULL ||
            freopen(said, "w", stderr) == NULL) _exit(1);
        execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    if (child < 0) return fail(err, ERR_COMM, "orrery %s: there is no room for another process", words[1]);
    if (!child_wait(child, limit, &end)) return give_up(child, words, limit, said, err);
    if (WIFEXITED(end.how) && WEXITSTATUS(end.how) == 0) return OK;
    char why[400] = "failed";
    if (WIFSIGNALED(end.how)) snprintf(why, sizeof why, "died: %s", strsignal(WTERMSIG(end.how)));
    last_line(said, why, sizeof why);
    return fail(err, ERR_COMM, "orrery %s: %s", words[1], printable(why).text);
}
