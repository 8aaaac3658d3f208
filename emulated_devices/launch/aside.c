/* aside.c -- one command of this program that another one needs the results of.  bench/calibrate/steps.c and
 * bench/step_measure.c call run_aside().  ERR_USAGE is for a caller under a launcher; ERR_COMM means that the command
 * cannot start, has failed or has not ended in time. */
#include "emulated_devices/launch/launch.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include <dirent.h>
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

/* Whose parent a process is, and what it does: R computes, S waits.  @return false: it has ended. */
static bool aside_look_at(long pid, char *name, size_t room, char *state, long *parent)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *in = fopen(path, "r");
    const size_t n = in ? fread(text, 1, sizeof text - 1, in) : 0;
    if (in) fclose(in);
    text[n] = '\0';
    char *begins = strchr(text, '('), *ends = strrchr(text, ')');
    if (!begins || !ends || sscanf(ends + 1, " %c %ld", state, parent) != 2) return false;
    *ends = '\0';
    snprintf(name, room, "%s", begins + 1);
    return true;
}

/* Where in the kernel a process waits: " (futex_wait_queue)"; "" if it does not, or the kernel does not say. */
static const char *waits_in(long pid, char *text, size_t room)
{
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/%ld/wchan", pid);
    FILE *in = fopen(path, "r");
    if (in && fscanf(in, "%63[a-zA-Z0-9_]", name) != 1) name[0] = '\0';
    if (in) fclose(in);
    const bool known = name[0] && strcmp(name, "0") != 0;
    snprintf(text, room, "%s%s%s", known ? " (" : "", known ? name : "", known ? ")" : "");
    return text;
}

/* The processes below one, in words: "orrery 812 waits (pipe_read), orrery 813 computes".  Nothing where there is no
 * /proc. */
static void describe_below(long root, char *text, size_t room)
{
    char name[32], where[80], state;
    long parent;
    size_t used = 0;
    struct dirent *entry;
    DIR *all = opendir("/proc");
    text[0] = '\0';
    while (all && used + 1 < room && (entry = readdir(all)) != NULL) {
        const long pid = strtol(entry->d_name, NULL, 10);
        if (pid <= 0 || !aside_look_at(pid, name, sizeof name, &state, &parent)) continue;
        long above = parent;
        char ignored[32], its;
        while (above > 1 && above != root && aside_look_at(above, ignored, sizeof ignored, &its, &parent))
            above = parent;
        if (above == root)
            used += (size_t)snprintf(text + used, room - used, "%s%s %ld %s%s", used ? ", " : "", name, pid,
                                     state == 'R' ? "computes" : "waits",
                                     state == 'R' ? "" : waits_in(pid, where, sizeof where));
    }
    if (all) closedir(all);
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
