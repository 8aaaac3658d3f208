/* system.h -- what each operating system does in its own way: the only room whose sources ask which system it is.
 *
 * system_linux.c has Linux's way, system_portable.c what POSIX has.  The second is for macOS and others; it can do
 * less, and each function says what a caller then gets.  `make PORTABLE=1` takes it on Linux, too, so that tests can
 * try it.  Cages of lessons are the other room of Linux (emulated_devices/course/cage/cage.h).
 *
 * ref/io, launch/, comm/, device/ and course/ call these functions.  No function returns an error code.
 */
#ifndef ORRERY_SYSTEM_H
#define ORRERY_SYSTEM_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#if defined(__linux__) && !defined(ORRERY_PORTABLE)
#define SYSTEM_LINUX
#endif

/* ---- this process ------------------------------------------------------------------------------------------------ */

/** From now on the system kills this process when the thread ends that has forked it.
 *  @return false: the system does not do that. */
bool system_end_with_parent(void);

/** From now on descendants whose parent ends become children of this process.
 *  @return false: the system does not do that. */
bool system_adopt(void);

/** Run on this core only.  @return false: it cannot be done. */
bool system_bind(int core);

/** The cores that this process is bound to, a bit for each.  @return false: the system does not tell. */
bool system_bound(unsigned long *word, size_t bytes);

/** Remember how this process was called, before it changes its folder: main's first word. */
void system_started_as(const char *word);

/** The path of this process's program.  @return false: it is not known, and the path is empty. */
bool system_program(char *path, size_t size);

/** Bytes of this process that lie in memory, and bytes of its addresses.  @return 0: the system does not tell. */
uint64_t system_resident(void);
uint64_t system_addresses(void);

/* ---- the machine ------------------------------------------------------------------------------------------------- */

enum { SYSTEM_NAME = 80 };

/** A name that the machine draws when it starts; its containers see it, too.
 *  @return false: the system does not tell. */
bool system_boot(char name[SYSTEM_NAME]);

/** In which numbers of processes this process lives: a container has its own.  @return false: there is one of them. */
bool system_space(char name[SYSTEM_NAME]);

/** The processor's name.  @return false: the system does not tell. */
bool system_processor(char *name, size_t size);

/** Bytes of memory that are free, without limits of control groups.  @return UINT64_MAX: the system does not tell. */
uint64_t system_free_memory(void);

/** How many processes and threads there may be.  @return UINT64_MAX: the system does not tell. */
uint64_t system_most_tasks(void);

/** How many processes and threads there are.  @param own  only this user's.  @return 0: the system does not tell. */
uint64_t system_tasks(bool own);

/* ---- other processes --------------------------------------------------------------------------------------------- */

/** Whether the system tells of other processes; if not, the functions below find nothing. */
bool system_tells_processes(void);

struct system_process {
    char name[32];                      /**< Name of the program, perhaps cut. */
    char state;                         /* R: computes, S: waits, T and t: is stopped, Z and X: has ended */
    long parent;                        /**< Number of the parent process. */
    uint64_t started;                   /* when, in a unit of the system's; tells two processes of one number apart */
    double seconds;                     /* of a processor, its own and of children that it has waited for */
};

/** Look at a process.  @return false: it has ended, or the system does not tell. */
bool system_process(long pid, struct system_process *);

/** The time on a processor of all threads of a process, in a unit of the system's.  @return false: it has ended, or the
 *  system does not tell. */
bool system_processor_time(long pid, uint64_t *time);

/** Bytes of a process that lie in memory; 0: it has ended, or the system does not tell. */
uint64_t system_process_memory(long pid);

/** The numbers of all processes.  @return [*count], which the caller frees; NULL: no memory, or the system does not
 *  tell. */
long *system_processes(int *count);

/** The children of a process that it has not waited for.  @return how many were put into child[]. */
int system_children(long pid, long *child, int most);

/** Where in the kernel a process waits: "pipe_read".  @return false: it does not, or the kernel does not say. */
bool system_waits_in(long pid, char *name, size_t size);

/** Whether a process has this in its environment, "NAME=VALUE"; false if the system does not tell. */
bool system_has_variable(long pid, const char *variable);

/** The process at the other end of a local socket when the socket was made; -1: the system does not tell. */
long system_peer(int socket);

/** Visit System V's shared memory that no process has any more.  `visit` gets its number and the process that has made
 *  it. */
void system_each_unused_memory(void (*visit)(int id, long maker, void *argument), void *argument);

/* ---- memory and files that processes share ----------------------------------------------------------------------- */

enum { SYSTEM_PATH = 64 };

/** A new file in memory, open for reading and writing.  @param[out] path  by which system_memory_join opens it.
 *  @return its descriptor, which closes at exec; -1: there is none. */
int system_memory_make(char path[SYSTEM_PATH]);

/** Open such a file of another process.  @return its descriptor, or -1. */
int system_memory_join(const char *path);

/** Take the memory of all bytes of such a file now, from its beginning.  @return 0, or errno: there is not so much. */
int system_memory_take(int file, uint64_t bytes);

/** The processes that need it have opened it: its name can go.  Without this call a name may stay for ever. */
void system_memory_unname(const char *path);

/** Whether such a file vanishes with the last process that has it, without a call: a name is never left behind. */
bool system_memory_vanishes(void);

/** Memory of zeros, without a file.  @param shared  with processes that are forked later.  @return NULL: none. */
void *system_pages(size_t bytes, bool shared);

/** Blocks of at least so many bytes become pages of their own, which take no memory until they are touched.  Otherwise
 *  the C library would move its own limit up as soon as one is freed.  Where it has no such limit, nothing happens. */
void system_own_pages(int bytes);

/** Memory that is freed stays with the program, up to so many bytes, and is taken again with its pages touched.
 *  Otherwise the C library gives it back at once, and every block that is taken anew costs a page fault for each page.
 *  Blocks of 32 MiB and more still are pages of their own.  Where the C library has no such limit, nothing happens. */
void system_keep_pages(int bytes);

/** pipe(2), or a pair of connected sockets, whose ends close at exec.  @return false: errno says why. */
bool system_pipe(int ends[2]);
bool system_sockets(int ends[2]);

/** Prepare a socket so that sending does not end this process when the other end is gone.
 *  @return the flags of each send(2) and sendmsg(2). */
int system_send_flags(int socket);

/** When a file was changed. */
struct timespec system_changed(const struct stat *);

/* ---- waking another process -------------------------------------------------------------------------------------- */

/* In memory that processes share: a count, for which one of them sleeps. */
struct system_wake {
#if defined(SYSTEM_LINUX)
    sem_t count;                        /**< Count of the semaphore. */
#else
    pthread_mutex_t mutex;              /**< Lock of `count`. */
    pthread_cond_t grows;               /**< Signal that `count` has grown. */
    int count;                          /**< Wake-ups that nobody has taken yet. */
#endif
};

/** Prepare it, with a count of 0.  @return false: the system has no such thing among processes. */
bool system_wake_open(struct system_wake *);

/** Add one to the count, and wake who sleeps for it. */
void system_wake_post(struct system_wake *);

/** Take one from the count, and sleep while it is 0, at most so long.  @return false: it was 0 all the time. */
bool system_wake_wait(struct system_wake *, int64_t nanoseconds);

#endif
