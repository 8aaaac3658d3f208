/* family.c -- keeps track of all processes of a job, and ends those that are left.  Only launch/launch.c calls, in
 * the launching process.  No function reports errors; family_end returns how many processes are left. */
#if defined(__linux__)
#define _GNU_SOURCE                     /* prctl.h */
#include <sys/prctl.h>
#endif
#include "emulated_devices/launch/family.h"
#include "ref/machine/measure.h"
#include <ctype.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

void family_adopt(void)
{
#if defined(__linux__)
    prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
}

void family_mark(pid_t launcher)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", (long)launcher);
    setenv("ORRERY_LAUNCHED", text, 1);
}

void family_reap(struct family *family)
{
    int how;
    pid_t pid;
    while ((pid = waitpid(-1, &how, WNOHANG)) > 0)
        if (pid == family->job) family->job_ended = true, family->how = how;
}

/* ---- who is there ------------------------------------------------------------------------------------------------ */

#if defined(__linux__)
/* The parent, from "pid (name) state parent ..."; the name may contain brackets and spaces.  -1 for an ended
 * process. */
static long living_parent(long pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "r");
    const size_t n = f != NULL ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f != NULL) fclose(f);
    line[n] = '\0';
    const char *after = strrchr(line, ')');
    char state;
    long parent;
    if (after == NULL || sscanf(after + 1, " %c %ld", &state, &parent) != 2) return -1;
    return state == 'Z' || state == 'X' ? -1 : parent;
}

/* Whether a process has our mark.  We may have other children, of a shell that has replaced itself by this program. */
bool family_has(long pid)
{
    char path[64], want[48], word[sizeof want];
    snprintf(want, sizeof want, "ORRERY_LAUNCHED=%ld", (long)getpid());
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    FILE *f = fopen(path, "r");
    bool found = false;
    for (int c = 0; f != NULL && c != EOF && !found;) {
        size_t n = 0;
        while ((c = getc(f)) != EOF && c != '\0')
            if (n < sizeof word - 1) word[n++] = (char)c;
        word[n] = '\0';
        found = strcmp(word, want) == 0;
    }
    if (f != NULL) fclose(f);
    return found;
}

static bool has_ended(long pid) { return living_parent(pid) < 0; }

/* Signalling our children is sufficient: when they have ended, their children become ours. */
static int signal_all(const struct family *family, const struct watch *watch, int number)
{
    int there = 0;
    DIR *processes = opendir("/proc");
    (void)family, (void)watch;
    for (struct dirent *d; processes != NULL && (d = readdir(processes)) != NULL;) {
        const long pid = isdigit((unsigned char)d->d_name[0]) ? atol(d->d_name) : 0;
        if (pid == 0 || living_parent(pid) != (long)getpid() || (pid != family->job && !family_has(pid))) continue;
        there++;
        kill((pid_t)pid, number);
    }
    if (processes != NULL) closedir(processes);
    return there;
}
#else
bool family_has(long pid) { return pid > 0; }
static bool has_ended(long pid) { return kill((pid_t)pid, 0) != 0; }

/* Signal the processes that have announced themselves. */
static int signal_all(const struct family *family, const struct watch *watch, int number)
{
    int there = !family->job_ended && kill(family->job, number) == 0;
    for (int i = 0; i < watch->known; i++) there += kill((pid_t)watch->process[i].pid, number) == 0;
    return there;
}
#endif

bool family_is_gone(const struct watch *watch)
{
    char here[sizeof watch->process->host] = "";
    if (watch->known < watch->room || gethostname(here, sizeof here - 1) != 0) return false;
    for (int i = 0; i < watch->known; i++)
        if (strcmp(watch->process[i].host, here) != 0 || !has_ended(watch->process[i].pid)) return false;
    return true;
}

static bool has_announced(const struct watch *watch, long pid)
{
    for (int i = 0; i < watch->known; i++)
        if (watch->process[i].pid == pid) return true;
    return false;
}

void family_sweep(const struct watch *watch)
{
    char line[512];
    int id;
    long maker;
    unsigned long users;
    FILE *f = fopen("/proc/sysvipc/shm", "r");          /* key shmid perms size cpid lpid nattch ... */
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "%*d %d %*s %*u %ld %*d %lu", &id, &maker, &users) == 3 && users == 0 &&
            has_announced(watch, maker))
            shmctl(id, IPC_RMID, NULL);
    if (f != NULL) fclose(f);
}

int family_end(struct family *family, const struct watch *watch, double patience)
{
    const double start = measure_now();
    int left;
    for (;;) {
        family_reap(family);
        const double waited = measure_now() - start;
        left = signal_all(family, watch, waited < patience ? 0 : SIGKILL);
        if ((left == 0 && family->job_ended) || waited > patience + 5) return left;
        poll(NULL, 0, 10);
    }
}
