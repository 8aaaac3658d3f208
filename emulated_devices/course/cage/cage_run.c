/* cage_run.c -- a command in the cage, watched from outside: what all its processes take together has limits.
 * workshop.c runs compilers with it, command_serve.c the commands of a text.  A command that is over a limit is
 * ended, and end->over says which limit.  ERR_MEMORY and ERR_FILE mean that the command did not start. */
#define _DEFAULT_SOURCE                 /* DT_REG */
#include "emulated_devices/course/cage/cage.h"
#include "ref/io/child.h"
#include "ref/machine/system.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The processes are looked at every 20 ms.  The first look comes after three such times, so that short commands are
 * never looked at. */
enum { LOOK_MS = 20, FIRST_LOOKS = 3, DEPTH = 8 };
enum { NOT_STARTED = 125 };             /* exit status of the process between us and the command */

/* ---- what a tree of processes takes ------------------------------------------------------------------------------ */

/* A tree of processes takes this together: processor, memory, files, and how many processes are awake. */
struct taken { double seconds; uint64_t memory, disk; int processes, awake; };

/* Add one process; a process that has ended meanwhile counts as none. */
static void add_process(long pid, struct taken *taken)
{
    struct system_process process;
    if (!system_process(pid, &process)) return;
    taken->processes++;
    taken->awake += strchr("STtZX", process.state) == NULL;
    taken->seconds += process.seconds;
    taken->memory += system_process_memory(pid);
}

/* Add a process and all of its children, at most 8 levels and 4096 processes. */
static void add_tree(long pid, int depth, struct taken *taken)
{
    long child[64];
    add_process(pid, taken);
    const int n = depth < DEPTH ? system_children(pid, child, 64) : 0;
    for (int i = 0; i < n && taken->processes < 4096; i++) add_tree(child[i], depth + 1, taken);
}

/* Add the bytes of a folder.  Links are not followed: what lies elsewhere was not written here. */
static void add_folder(int in, const char *name, int depth, struct taken *taken)
{
    const int fd = openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    struct stat st;
    if (d == NULL) {
        if (fd >= 0) close(fd);
        return;
    }
    for (const struct dirent *one; (one = readdir(d)) != NULL;) {
        if (strcmp(one->d_name, ".") == 0 || strcmp(one->d_name, "..") == 0) continue;
        taken->disk += 4096;
        if (fstatat(fd, one->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (S_ISDIR(st.st_mode) && depth < DEPTH) add_folder(fd, one->d_name, depth + 1, taken);
        else taken->disk += (uint64_t)st.st_blocks * 512;
    }
    closedir(d);
}

static double cage_run_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* These say how long a command has been watched, how long all of it slept, and how much processor it took. */
struct watched { double begin, last, asleep, seconds; };

/* Look at the command once.  @return the limit that it is over, or NULL. */
static const char *cage_run_look(const struct cage_command *command, pid_t child, uint64_t said,
                                 struct watched *watched)
{
    char path[PATH_MAX];
    struct taken t = { 0 };
    const double when = cage_run_now(), since = when - watched->last, one = 2 * LOOK_MS / 1000.0;
    add_tree((long)child, 0, &t);
    /* A command that waits counts only what it waited between two looks. */
    if (t.awake == 0 && system_tells_processes())
        watched->asleep += since < one ? since : one;   /* this process may have waited, too */
    watched->last = when;
    if (t.seconds > watched->seconds) watched->seconds = t.seconds;
    if (command->view.writes) snprintf(path, sizeof path, "%s/%s", command->view.inside, command->view.writes);
    if (command->view.writes) add_folder(AT_FDCWD, path, 0, &t);
    if (command->all.memory && t.memory > command->all.memory) return "it needs too much memory";
    if (command->all.seconds && t.seconds > command->all.seconds) return "it takes too long";
    if (command->all.disk && t.disk > command->all.disk) return "it writes too many bytes";
    if (command->all.processes && t.processes > command->all.processes) return "it starts too many processes";
    if (command->all.said && said > command->all.said) return "it says too much";
    if (command->all.asleep && watched->asleep > command->all.asleep) return "it waits, and does not compute";
    return command->all.wall && when - watched->begin > command->all.wall ? "it takes too long by the clock" : NULL;
}

/* ---- in the child ------------------------------------------------------------------------------------------------ */

/* In the cage's process: go to the folder, give rights up, and become the command. */
static void become_command(const struct cage_command *command, const struct cage *cage)
{
    const char *in = command->starts_in ? command->starts_in : command->view.writes;
    if (chdir(command->view.inside) != 0 || (in && chdir(in) != 0)) {
        dprintf(STDERR_FILENO, "%s: %s\n", command->view.inside, strerror(errno));
        _exit(NOT_STARTED);
    }
    cage_close_at_exec();
    if (!cage_become(cage, &command->each)) {
        dprintf(STDERR_FILENO, "the rights cannot be given up: %s\n", strerror(errno));
        _exit(NOT_STARTED);
    }
    execve(command->word[0], (char *const *)(uintptr_t)command->word, (char *const *)(uintptr_t)command->environment);
    /* The command's limits of memory hold from here on, so nothing is formatted. */
    const char *const why = strerror(errno);
    const struct iovec line[] = { { (char *)(uintptr_t)why, strlen(why) }, { (char *)(uintptr_t)"\n", 1 } };
    if (writev(STDERR_FILENO, line, 2) < 0) _exit(NOT_STARTED);
    _exit(127);
}

static volatile sig_atomic_t told_to_end;

static void tell_to_end(int number) { (void)number, told_to_end = 1; }

/* Enter the cage, start the command there, end what it leaves behind, and end as the command has.  Without a
 * namespace of processes nobody else can end all of them, so SIGTERM asks this process to do so. */
static void keep_command(const struct cage_command *cage_command, int out)
{
    struct cage cage;
    struct error err = { OK, "" };
    int how = 0;
    const int nothing = open("/dev/null", O_RDWR);
    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(cage_command->errors_only ? nothing : out, 1) < 0
        || dup2(out, 2) < 0) _exit(NOT_STARTED);
    if (cage_enter(&cage, &cage_command->view, &err) != OK) {
        dprintf(STDERR_FILENO, "%s\n", err.text);
        _exit(NOT_STARTED);
    }
    if (cage.kind != CAGE_NAMESPACES) sigaction(SIGTERM, &(struct sigaction){ .sa_handler = tell_to_end }, NULL);
    const pid_t command = fork();
    if (command == 0) become_command(cage_command, &cage);
    if (command < 0) _exit(NOT_STARTED);
    /* Processes that the command leaves behind may end before it or after it: only the command's end counts. */
    for (pid_t one; !told_to_end && (one = waitpid(-1, &how, 0)) != command;)
        if (one < 0 && errno != EINTR) _exit(NOT_STARTED);
    cage_clear();
    if (told_to_end) _exit(128 + SIGKILL);
    if (WIFEXITED(how)) _exit(WEXITSTATUS(how));
    _exit(128 + WTERMSIG(how));         /* the first process of a namespace cannot end by a signal of its own */
}

/* ---- outside ----------------------------------------------------------------------------------------------------- */

/* Read all that the command says, and keep the beginning.  Reading goes on until the last process that could say
 * something has ended. */
static void listen_to(const struct cage_command *command, pid_t child, int from, struct cage_end *end)
{
    char part[4096];
    uint64_t said = 0;
    struct watched w = { .begin = cage_run_now(), .last = cage_run_now() };
    double next = w.begin + FIRST_LOOKS * LOOK_MS / 1000.0;
    for (;;) {
        struct pollfd p = { .fd = from, .events = POLLIN };
        const int ready = poll(&p, 1, LOOK_MS);
        const ssize_t n = ready > 0 ? read(from, part, sizeof part) : -1;
        if (ready > 0 && (n == 0 || (n < 0 && errno != EINTR))) return;
        if (n > 0) {
            const size_t used = strlen(end->said), room = sizeof end->said - 1 - used;
            const size_t take = (size_t)n < room ? (size_t)n : room;
            for (size_t i = 0; i < take; i++) end->said[used + i] = part[i] ? part[i] : '?';
            end->said[used + take] = '\0', said += (uint64_t)n;
        }
        const double when = cage_run_now();
        if (when < next) continue;
        next = when + LOOK_MS / 1000.0;
        if (!end->over) end->over = cage_run_look(command, child, said, &w);
        end->seconds = w.seconds;
        /* The first process of a namespace takes all others with it; else the process before the command ends them. */
        if (end->over && cage_kind() == CAGE_NAMESPACES) kill(-child, SIGKILL);
        else if (end->over) kill(child, SIGTERM);
    }
}

/* Run a command in the cage.  The caller tells from end->over, end->how and end->said what happened. */
enum error_code cage_run(const struct cage_command *command, struct cage_end *end, struct error *err)
{
    int ends[2];
    struct child_end child_end = { 0 };
    *end = (struct cage_end){ 0 };
    if (pipe(ends) != 0) return fail(err, ERR_MEMORY, "no pipe for the compiler: %s", strerror(errno));
    fcntl(ends[0], F_SETFD, FD_CLOEXEC), fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) keep_command(command, ends[1]);
    const int why = errno;
    close(ends[1]);
    if (child > 0) listen_to(command, child, ends[0], end), child_wait(child, 0, &child_end);
    close(ends[0]);
    if (child < 0) return fail(err, ERR_MEMORY, "the compiler does not start: %s", strerror(why));
    end->how = child_end.how;
    const struct rusage *used = &child_end.used;        /* without those whose parents were killed */
    const double ended = (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
                         1e-6 * (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
    if (ended > end->seconds) end->seconds = ended;
    if (WIFEXITED(end->how) && WEXITSTATUS(end->how) > 128) end->how = WEXITSTATUS(end->how) - 128;     /* a signal */
    end->unstarted = WIFEXITED(end->how) && WEXITSTATUS(end->how) == NOT_STARTED;
    return OK;
}
