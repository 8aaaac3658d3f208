/* system_portable.c -- what POSIX has of what system.h promises: the way of macOS and other systems.  Only system.h's
 * callers call this file.  Where POSIX has nothing, a function says that the system does not tell. */
#define _DEFAULT_SOURCE                 /* MAP_ANONYMOUS, realpath */
#include "ref/machine/system.h"
#if !defined(SYSTEM_LINUX)
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <libproc.h>
#endif

/* ---- this process ------------------------------------------------------------------------------------------------ */

bool system_end_with_parent(void) { return false; }
bool system_adopt(void) { return false; }
bool system_bind(int core) { return (void)core, false; }
bool system_bound(unsigned long *word, size_t bytes) { return memset(word, 0xff, bytes), false; }

static char program[PATH_MAX];

/* A word without a slash is a program of PATH. */
void system_started_as(const char *word)
{
    char file[PATH_MAX];
    const char *at = getenv("PATH");
    if (word == NULL || word[0] == '\0' || program[0] != '\0') return;
    if (strchr(word, '/') != NULL && realpath(word, program) == NULL) program[0] = '\0';
    if (strchr(word, '/') != NULL) return;
    while (at != NULL && *at != '\0') {
        const int n = (int)strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/%s", n, at, word);
        if (n > 0 && access(file, X_OK) == 0 && realpath(file, program) != NULL) return;
        at += n + (at[n] == ':');
    }
    program[0] = '\0';
}

bool system_program(char *path, size_t size)
{
    const int n = snprintf(path, size, "%s", program);
    if (n > 0 && (size_t)n < size) return true;
    path[0] = '\0';
    return false;
}

uint64_t system_resident(void) { return 0; }
uint64_t system_addresses(void) { return 0; }

/* ---- the machine ------------------------------------------------------------------------------------------------- */

bool system_boot(char name[SYSTEM_NAME]) { return name[0] = '\0', false; }
bool system_space(char name[SYSTEM_NAME]) { return name[0] = '\0', false; }
bool system_processor(char *name, size_t size) { return (void)name, (void)size, false; }
uint64_t system_free_memory(void) { return UINT64_MAX; }
uint64_t system_most_tasks(void) { return UINT64_MAX; }
uint64_t system_tasks(bool own) { return (void)own, 0; }

/* ---- other processes --------------------------------------------------------------------------------------------- */

bool system_tells_processes(void) { return false; }

bool system_process(long pid, struct system_process *process)
{
    *process = (struct system_process){ .state = 'X' };
    return (void)pid, false;
}

bool system_processor_time(long pid, uint64_t *time)
{
#if defined(__APPLE__)
    struct rusage_info_v0 used;
    if (proc_pid_rusage((int)pid, RUSAGE_INFO_V0, (rusage_info_t *)&used) != 0) return false;
    *time = used.ri_user_time + used.ri_system_time;
    return true;
#else
    return (void)pid, (void)time, false;
#endif
}

uint64_t system_process_memory(long pid) { return (void)pid, 0; }
long *system_processes(int *count) { return *count = 0, NULL; }
int system_children(long pid, long *child, int most) { return (void)pid, (void)child, (void)most, 0; }
bool system_waits_in(long pid, char *name, size_t size) { return (void)pid, (void)size, name[0] = '\0', false; }
bool system_has_variable(long pid, const char *variable) { return (void)pid, (void)variable, false; }
long system_peer(int socket) { return (void)socket, -1; }

void system_each_unused_memory(void (*visit)(int id, long maker, void *argument), void *argument)
{
    (void)visit, (void)argument;
}

/* ---- memory and files that processes share ----------------------------------------------------------------------- */

/* A name has at most 31 characters on macOS: 8 + 10 + 1 + 8 of them here.  A name that stands there since an earlier
 * process of this number was killed is passed over. */
int system_memory_make(char path[SYSTEM_PATH])
{
    enum { TRIES = 64 };
    static unsigned made;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    for (int i = 0; i < TRIES; i++) {
        snprintf(path, SYSTEM_PATH, "/orrery-%ld-%x", (long)getpid(), (unsigned)t.tv_nsec + ++made);
        const int file = shm_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (file >= 0 || errno != EEXIST) return file;
    }
    return -1;
}

int system_memory_join(const char *path) { return shm_open(path, O_RDWR, 0); }
int system_memory_take(int file, uint64_t bytes) { return ftruncate(file, (off_t)bytes) == 0 ? 0 : errno; }
void system_memory_unname(const char *path) { shm_unlink(path); }
bool system_memory_vanishes(void) { return false; }

void *system_pages(size_t bytes, bool shared)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void system_own_pages(int bytes) { (void)bytes; }
void system_keep_pages(int bytes) { (void)bytes; }

static void close_at_exec(const int ends[2])
{
    for (int i = 0; i < 2; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
}

bool system_pipe(int ends[2])
{
    if (pipe(ends) != 0) return false;
    close_at_exec(ends);
    return true;
}

int system_send_flags(int socket)
{
#if defined(SO_NOSIGPIPE)
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
    return 0;
#elif defined(MSG_NOSIGNAL)
    return (void)socket, MSG_NOSIGNAL;
#else
    return (void)socket, 0;
#endif
}

bool system_sockets(int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return false;
    close_at_exec(ends);
    return true;
}

struct timespec system_changed(const struct stat *stat)
{
#if defined(__APPLE__)
    return stat->st_mtimespec;
#else
    return stat->st_mtim;
#endif
}

/* ---- waking another process -------------------------------------------------------------------------------------- */

bool system_wake_open(struct system_wake *wake)
{
    pthread_mutexattr_t mutex;
    pthread_condattr_t grows;
    wake->count = 0;
    pthread_mutexattr_init(&mutex);
    pthread_condattr_init(&grows);
    const bool made = pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED) == 0 &&
                      pthread_condattr_setpshared(&grows, PTHREAD_PROCESS_SHARED) == 0 &&
                      pthread_mutex_init(&wake->mutex, &mutex) == 0 && pthread_cond_init(&wake->grows, &grows) == 0;
    pthread_mutexattr_destroy(&mutex);
    pthread_condattr_destroy(&grows);
    return made;
}

/* A process that is killed while it has the mutex would stop all others; launch/ ends them in that case anyway. */
void system_wake_post(struct system_wake *wake)
{
    pthread_mutex_lock(&wake->mutex);
    wake->count++;
    pthread_cond_signal(&wake->grows);
    pthread_mutex_unlock(&wake->mutex);
}

bool system_wake_wait(struct system_wake *wake, int64_t nanoseconds)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);                  /* the clock of pthread_cond_timedwait */
    t.tv_sec += (time_t)((t.tv_nsec + nanoseconds) / 1000000000);
    t.tv_nsec = (long)((t.tv_nsec + nanoseconds) % 1000000000);
    pthread_mutex_lock(&wake->mutex);
    while (wake->count == 0 && pthread_cond_timedwait(&wake->grows, &wake->mutex, &t) == 0) continue;
    const bool taken = wake->count > 0;
    if (taken) wake->count--;
    pthread_mutex_unlock(&wake->mutex);
    return taken;
}
#endif
