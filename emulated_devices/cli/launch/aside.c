/* aside.c -- one command of this program that another one needs the results of. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/measure.h"
#include "ref/io/output.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
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
static bool look_at(long pid, char *name, size_t room, char *state, long *parent)
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

/* The processes below one, in words: "orrery 812 waits, orrery 813 computes".  Nothing where there is no /proc. */
static void describe_below(long root, char *text, size_t room)
{
    char name[32], state;
    long parent;
    size_t used = 0;
    struct dirent *entry;
    DIR *all = opendir("/proc");
    text[0] = '\0';
    while (all && used + 1 < room && (entry = readdir(all)) != NULL) {
        const long pid = strtol(entry->d_name, NULL, 10);
        if (pid <= 0 || !look_at(pid, name, sizeof name, &state, &parent)) continue;
        long above = parent;
        char ignored[32], its;
        while (above > 1 && above != root && look_at(above, ignored, sizeof ignored, &its, &parent)) above = parent;
        if (above == root)
            used += (size_t)snprintf(text + used, room - used, "%s%s %ld %s", used ? ", " : "", name, pid,
                                     state == 'R' ? "computes" : "waits");
    }
    if (all) closedir(all);
}

static const struct timespec moment = { .tv_nsec = 5000000 };

/* @return whether it has ended within so many seconds. */
static bool ends_within(pid_t child, double seconds, int *how)
{
    const double start = measure_now();
    pid_t ended;
    while ((ended = waitpid(child, how, WNOHANG)) == 0 && measure_now() - start < seconds) nanosleep(&moment, NULL);
    return ended != 0;
}

/* Told to stop, a launcher stops its devices, which takes it some seconds. */
static enum error_code stop(pid_t child, const char *const *words, double limit, struct error *err)
{
    char who[300], what[200] = "";
    int how;
    describe_below((long)child, who, sizeof who);
    kill(child, SIGTERM);
    if (!ends_within(child, 20, &how)) kill(child, SIGKILL), waitpid(child, &how, 0);
    for (size_t i = 1, used = 0; words[i] && used + 1 < sizeof what; i++)
        used += (size_t)snprintf(what + used, sizeof what - used, " %s", words[i]);
    return fail(err, ERR_COMM, "orrery%s: had not ended after %g s, and was stopped%s%s", what, limit,
                who[0] ? "; then " : "", who);
}

enum error_code run_aside(const char *const *words, double limit, struct error *err)
{
    static const char *said;                            /* one file for all */
    if (said == NULL && (said = temporary_file(err)) == NULL) return err->code;
    const pid_t child = fork();
    int how = 0;
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL || freopen(said, "w", stderr) == NULL) _exit(1);
        execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    if (child > 0 && limit > 0 && !ends_within(child, limit, &how)) return stop(child, words, limit, err);
    if (child < 0 || (limit <= 0 && waitpid(child, &how, 0) != child) || !WIFEXITED(how) || WEXITSTATUS(how) != 0) {
        char why[400] = "failed";
        last_line(said, why, sizeof why);
        return fail(err, ERR_COMM, "orrery %s: %s", words[1], printable(why).text);
    }
    return OK;
}
