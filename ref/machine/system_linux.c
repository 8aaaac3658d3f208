/* system_linux.c -- Linux's way of what system.h promises: /proc, prctl, memfd_create and others.  Only system.h's
 * callers call this file.  A file of /proc that cannot be read means that the system does not tell. */
#define _GNU_SOURCE
#include "ref/machine/system.h"
#if defined(SYSTEM_LINUX)
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- this process ------------------------------------------------------------------------------------------------ */

bool system_end_with_parent(void) { return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0; }
bool system_adopt(void) { return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0; }

bool system_bind(int core)
{
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET((size_t)core, &own);
    return sched_setaffinity(0, sizeof own, &own) == 0;
}

bool system_bound(unsigned long *word, size_t bytes)
{
    memset(word, 0, bytes);
    return sched_getaffinity(0, bytes, (cpu_set_t *)(void *)word) == 0;
}

void system_started_as(const char *word) { (void)word; }

bool system_program(char *path, size_t size)
{
    const ssize_t n = readlink("/proc/self/exe", path, size - 1);
    path[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Pages of a process: all of its addresses, and those in memory. */
static bool pages_of(const char *path, uint64_t *addresses, uint64_t *resident)
{
    FILE *f = fopen(path, "re");
    const bool told = f != NULL && fscanf(f, "%" SCNu64 " %" SCNu64, addresses, resident) == 2;
    if (f != NULL) fclose(f);
    return told;
}

static uint64_t system_bytes_of(uint64_t pages) { return pages * (uint64_t)sysconf(_SC_PAGESIZE); }

uint64_t system_resident(void)
{
    uint64_t addresses, resident;
    return pages_of("/proc/self/statm", &addresses, &resident) ? system_bytes_of(resident) : 0;
}

uint64_t system_addresses(void)
{
    uint64_t addresses, resident;
    return pages_of("/proc/self/statm", &addresses, &resident) ? system_bytes_of(addresses) : 0;
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

/* The first line of a file, without its end. */
static bool first_line(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "re");
    line[0] = '\0';
    const bool told = f != NULL && fgets(line, (int)size, f) != NULL;
    if (f != NULL) fclose(f);
    line[strcspn(line, "\n")] = '\0';
    return told;
}

bool system_boot(char name[SYSTEM_NAME])
{
    return first_line("/proc/sys/kernel/random/boot_id", name, SYSTEM_NAME) && name[0] != '\0';
}

bool system_space(char name[SYSTEM_NAME])
{
    const ssize_t n = readlink("/proc/self/ns/pid", name, SYSTEM_NAME - 1);
    name[n > 0 ? n : 0] = '\0';
    return n > 0;
}

bool system_processor(char *name, size_t size)
{
    char line[256], all[128] = "";
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %127[^\n]", all) == 1) break;
    if (f) fclose(f);
    if (all[0] != '\0') snprintf(name, size, "%s", all);
    return all[0] != '\0';
}

/* The number at the beginning of a file, or after a word in it; UINT64_MAX if there is none. */
static uint64_t number_in(const char *path, const char *after)
{
    char line[256];
    uint64_t n = UINT64_MAX;
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        const char *at = after != NULL ? strstr(line, after) : line;
        if (at == NULL) continue;
        if (sscanf(at + (after != NULL ? strlen(after) : 0), "%" SCNu64, &n) != 1) n = UINT64_MAX;
        break;
    }
    if (f != NULL) fclose(f);
    return n;
}

uint64_t system_free_memory(void)
{
    const uint64_t kilobytes = number_in("/proc/meminfo", "MemAvailable:");
    return kilobytes == UINT64_MAX ? UINT64_MAX : kilobytes << 10;
}

uint64_t system_most_tasks(void)
{
    const uint64_t numbers = number_in("/proc/sys/kernel/pid_max", NULL);
    const uint64_t threads = number_in("/proc/sys/kernel/threads-max", NULL);
    return numbers < threads ? numbers : threads;
}

uint64_t system_tasks(bool own)
{
    uint64_t n = 0;
    char path[64];
    struct stat st;
    DIR *processes = opendir("/proc");
    for (struct dirent *d; processes != NULL && (d = readdir(processes)) != NULL;) {
        if (!isdigit((unsigned char)d->d_name[0])) continue;
        snprintf(path, sizeof path, "/proc/%.20s/status", d->d_name);
        const uint64_t threads =
            !own || (stat(path, &st) == 0 && st.st_uid == getuid()) ? number_in(path, "Threads:") : 0;
        n += threads == UINT64_MAX ? 0 : threads;
    }
    if (processes != NULL) closedir(processes);
    return n;
}

/* ---- other processes --------------------------------------------------------------------------------------------- */

bool system_tells_processes(void) { return access("/proc/self/stat", R_OK) == 0; }

/* A line is "pid (name) state parent ..."; the name may have brackets and blanks. */
bool system_process(long pid, struct system_process *process)
{
    char path[64], line[1024];
    unsigned long user, kernel;
    long waited[2];
    *process = (struct system_process){ .state = 'X' };
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "re");
    const size_t n = f != NULL ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f != NULL) fclose(f);
    line[n] = '\0';
    char *begins = strchr(line, '('), *ends = strrchr(line, ')');
    if (begins == NULL || ends == NULL ||
        sscanf(ends + 1, " %c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld %*d %*d %*d %*d %" SCNu64,
               &process->state, &process->parent, &user, &kernel, &waited[0], &waited[1], &process->started) != 7)
        return false;
    *ends = '\0';
    snprintf(process->name, sizeof process->name, "%s", begins + 1);
    process->seconds =
        ((double)(user + kernel) + (double)(waited[0] + waited[1])) / (double)sysconf(_SC_CLK_TCK);
    return true;
}

bool system_processor_time(long pid, uint64_t *time)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid((pid_t)pid, &clock) != 0 || clock_gettime(clock, &t) != 0) return false;
    *time = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    return true;
}

uint64_t system_process_memory(long pid)
{
    char path[64];
    uint64_t addresses, resident;
    snprintf(path, sizeof path, "/proc/%ld/statm", pid);
    return pages_of(path, &addresses, &resident) ? system_bytes_of(resident) : 0;
}

long *system_processes(int *count)
{
    int room = 256;
    long *pid = malloc((size_t)room * sizeof *pid), *more;
    DIR *processes = pid != NULL ? opendir("/proc") : NULL;
    *count = 0;
    for (struct dirent *d; processes != NULL && (d = readdir(processes)) != NULL;) {
        if (!isdigit((unsigned char)d->d_name[0])) continue;
        if (*count == room) {
            if ((more = realloc(pid, 2 * (size_t)room * sizeof *pid)) == NULL) break;
            pid = more, room *= 2;
        }
        pid[(*count)++] = atol(d->d_name);
    }
    if (processes != NULL) closedir(processes);
    return pid;
}

int system_children(long pid, long *child, int most)
{
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", pid, pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && n < most && fscanf(f, "%ld", &child[n]) == 1) n++;
    if (f != NULL) fclose(f);
    return n;
}

bool system_waits_in(long pid, char *name, size_t size)
{
    char path[64], where[64] = "";
    snprintf(path, sizeof path, "/proc/%ld/wchan", pid);
    FILE *f = fopen(path, "re");
    if (f != NULL && fscanf(f, "%63[a-zA-Z0-9_]", where) != 1) where[0] = '\0';
    if (f != NULL) fclose(f);
    snprintf(name, size, "%s", where);
    return where[0] != '\0' && strcmp(where, "0") != 0;
}

bool system_has_variable(long pid, const char *variable)
{
    char path[64], word[256];
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    FILE *f = fopen(path, "re");
    bool found = false;
    for (int c = 0; f != NULL && c != EOF && !found;) {
        size_t n = 0;
        while ((c = getc(f)) != EOF && c != '\0')
            if (n < sizeof word - 1) word[n++] = (char)c;
        word[n] = '\0';
        found = strcmp(word, variable) == 0;
    }
    if (f != NULL) fclose(f);
    return found;
}

long system_peer(int socket)
{
    struct ucred maker;
    socklen_t size = sizeof maker;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &maker, &size) == 0 ? (long)maker.pid : -1;
}

void system_each_unused_memory(void (*visit)(int id, long maker, void *argument), void *argument)
{
    char line[512];
    int id;
    long maker;
    unsigned long users;
    FILE *f = fopen("/proc/sysvipc/shm", "re");         /* key shmid perms size cpid lpid nattch ... */
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "%*d %d %*s %*u %ld %*d %lu", &id, &maker, &users) == 3 && users == 0)
            visit(id, maker, argument);
    if (f != NULL) fclose(f);
}

/* ---- memory and files that processes share ----------------------------------------------------------------------- */

/* The memory has no name: others open it through the maker's descriptor. */
int system_memory_make(char path[SYSTEM_PATH])
{
    const int file = memfd_create("orrery", MFD_CLOEXEC);
    snprintf(path, SYSTEM_PATH, "/proc/%ld/fd/%d", (long)getpid(), file);
    return file;
}

int system_memory_join(const char *path) { return open(path, O_RDWR | O_CLOEXEC); }
int system_memory_take(int file, uint64_t bytes) { return posix_fallocate(file, 0, (off_t)bytes); }
void system_memory_unname(const char *path) { (void)path; }
bool system_memory_vanishes(void) { return true; }

void *system_pages(size_t bytes, bool shared)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void system_own_pages(int bytes)
{
#if defined(M_MMAP_THRESHOLD)
    mallopt(M_MMAP_THRESHOLD, bytes);
#else
    (void)bytes;
#endif
}

void system_keep_pages(int bytes)
{
#if defined(M_MMAP_THRESHOLD) && defined(M_TRIM_THRESHOLD)
    enum { OWN_PAGES_FROM_AT_MOST = 32 << 20 };         /* the C library takes no more */
    mallopt(M_MMAP_THRESHOLD, OWN_PAGES_FROM_AT_MOST), mallopt(M_TRIM_THRESHOLD, bytes);
#else
    (void)bytes;
#endif
}

bool system_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC) == 0; }
bool system_sockets(int ends[2]) { return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0; }
int system_send_flags(int socket) { return (void)socket, MSG_NOSIGNAL; }
struct timespec system_changed(const struct stat *stat) { return stat->st_mtim; }

/* ---- waking another process -------------------------------------------------------------------------------------- */

bool system_wake_open(struct system_wake *wake) { return sem_init(&wake->count, 1, 0) == 0; }
void system_wake_post(struct system_wake *wake) { sem_post(&wake->count); }

bool system_wake_wait(struct system_wake *wake, int64_t nanoseconds)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);                  /* the clock of sem_timedwait */
    t.tv_sec += (time_t)((t.tv_nsec + nanoseconds) / 1000000000);
    t.tv_nsec = (long)((t.tv_nsec + nanoseconds) % 1000000000);
    return sem_timedwait(&wake->count, &t) == 0;
}
#endif
