/* serve.c -- the devices of a run: a crew in a process of its own, whose devices do what the workers ask for.
 *
 *     judge          one process for a check: compares                      (judge.c)
 *       devices      one for a run: a crew, the clock, the counters         (this file, serve_requests.c)
 *         workers    one for each device: the student's code                (tutorials/worker/worker.c)
 *
 * A device reads the requests of its worker one after another.  It waits for messages as every device of a crew does;
 * so runs are the same every time, and a deadlock is seen at once.  Whatever a worker asks for is checked here again,
 * because its own checks are in the student's process.
 * trial.c forks this process for one run, and reads the results from the memory that both share.  Every way to end
 * but the last writes `why` and `culprit` there; serve_trial never returns.
 */
#include "emulated_devices/course/serve.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/cage/cage.h"
#include "emulated_devices/course/desk.h"
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/course/python.h"
#include "emulated_devices/course/compile/sanitized.h"
#include "ref/machine/system.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* This is the processor time that all devices of a run may take together.  An endless loop on eight of them is seen
 * as soon as one on one. */
enum { RUN_MILLISECONDS = 3000, LEAST_MILLISECONDS = 250, SANITIZED = 6, WALL_SECONDS = 300,
       PROCESSES = 256, START_SECONDS = 60 };

/* The time is shared by the devices, and at least a little for each. */
static uint32_t milliseconds_each(const struct trial *trial)
{
    const int each = RUN_MILLISECONDS / trial->devices;
    return (uint32_t)(each > LEAST_MILLISECONDS ? each : LEAST_MILLISECONDS) *
           (trial->judge->is_python ? PYTHON_TIMES : trial->judge->caged ? 1 : SANITIZED);
}

/* These are a worker's process, and where a sanitizer's report comes out. */
static struct { pid_t process; int socket, said; } worker[WORKER_MOST_DEVICES];

/* ---- how a run ends before its end ------------------------------------------------------------------------------- */

/* End the run with a reason, and say which device is at fault. */
void desk_end(struct desk *desk, enum trial_end how, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(desk->run->why, sizeof desk->run->why, format, list);
    va_end(list);
    desk->run->ended = (int)how, desk->run->culprit = desk->rank;
    _exit(1);
}

/* End the run for all devices together: a collective operation was called differently. */
void desk_end_together(struct desk *desk, const char *why)
{
    snprintf(desk->run->why, sizeof desk->run->why, "%s", why);
    desk->run->ended = RUN_MISUSED, desk->run->culprit = -1;
    _exit(1);
}

/* Read the report of a worker that has ended: it has closed its end of the pipe. */
static bool sanitizer_found(const struct desk *desk, char *to, size_t size)
{
    char report[16384];
    size_t used = 0;
    for (ssize_t n; used < sizeof report - 1 && !desk->run->judge->caged; used += (size_t)n) {
        n = read(worker[desk->rank].said, report + used, sizeof report - 1 - used);
        if (n <= 0) break;
    }
    report[used] = '\0';
    return sanitizer_text(report, desk->run->judge->lesson->file, to, size);
}

/* End the run: a worker is gone without a word.  Its signal says what it did. */
static void worker_ended(struct desk *desk)
{
    char found[RUN_TEXT];
    int how = 0;
    if (desk->run->judge->is_python) how = python_status(desk->run, worker[desk->rank].process);
    else while (waitpid(worker[desk->rank].process, &how, 0) < 0 && errno == EINTR) continue;
    const int s = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    if (s == SIGPROF || s == SIGXCPU || s == SIGKILL)
        desk_end(desk, RUN_BROKEN, "it computed for more than %g seconds: does a loop never end?",
                  milliseconds_each(desk->run) / 1000.0);
    if (s == SIGSYS)
        desk_end(desk, RUN_BROKEN,
                  "it asked the operating system for something; your code may only call what course%s has",
                 desk->run->judge->is_python ? "" : ".h");
    if (s == SIGSEGV || s == SIGBUS)
        desk_end(desk, RUN_BROKEN,
                 "it crashed: it read or wrote where it has no memory (an index, or a pointer that is "
                                 "not set), or a function called itself without end");
    if (s == SIGFPE) desk_end(desk, RUN_BROKEN, "it crashed: a division by zero");
    if (s) desk_end(desk, RUN_BROKEN, "it crashed: signal %d, %s", s, strsignal(s));
    if (sanitizer_found(desk, found, sizeof found)) desk_end(desk, RUN_BROKEN, "%s", found);
    desk_end(desk, RUN_BROKEN, "its process ended with status %d, before the function returned",
            WIFEXITED(how) ? WEXITSTATUS(how) : -1);
}

/* Write to a worker; whoever does not read has ended. */
static void serve_write_all(struct desk *desk, const void *from, uint64_t bytes)
{
    for (const char *at = from; bytes > 0;) {
        const ssize_t n = write(desk->socket, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) worker_ended(desk);
        at += n, bytes -= (uint64_t)n;
    }
}

/* Answers are kept until this device reads again, so that many go out in one write. */
static void flush(struct desk *desk)
{
    serve_write_all(desk, desk->kept, desk->kept_bytes);
    desk->kept_bytes = 0;
}

/* Keep bytes for the worker; what does not fit is written at once. */
void desk_tell(struct desk *desk, const void *from, uint64_t bytes)
{
    if (desk->kept_bytes + bytes > sizeof desk->kept) flush(desk);
    if (bytes > sizeof desk->kept) serve_write_all(desk, from, bytes);
    else if (bytes > 0) memcpy(desk->kept + desk->kept_bytes, from, bytes), desk->kept_bytes += bytes;
}

/* Read from a worker; everything that was kept is written first. */
void desk_hear(struct desk *desk, void *to, uint64_t bytes)
{
    flush(desk);
    for (char *at = to; bytes > 0;) {
        const ssize_t n = read(desk->socket, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) worker_ended(desk);
        at += n, bytes -= (uint64_t)n;
    }
}

/* Answer a request with a value and, if asked for, bytes. */
void desk_answer(struct desk *desk, int64_t value, const void *payload, uint64_t bytes)
{
    const struct answer a = { value, bytes };
    desk_tell(desk, &a, sizeof a);
    desk_tell(desk, payload, bytes);
}

/* A request that course.h cannot have made ends the run at once. */
void desk_forged(struct desk *desk) { desk_end(desk, RUN_BROKEN, "it sent a request that course.h cannot have made"); }

/* End the run if an emulated device failed. */
void desk_must(struct desk *desk, enum error_code e, const struct error *err)
{
    if (e) desk_end(desk, RUN_MISUSED, "%s", err->text);
}

/* ---- a device ---------------------------------------------------------------------------------------------------- */

/* Make the groups of a device, which the check has chosen. */
static void serve_open_groups(struct desk *desk, struct start *start)
{
    struct error err = { OK, "" };
    for (desk->groups = 0; desk->groups < desk->run->groups; desk->groups++) {
        const struct trial_group *list = &desk->run->group[desk->groups];
        for (int i = 0; i < list->size; i++)
            if (list->rank[i] == desk->rank) desk->in[desk->groups] = true, start->group_rank[desk->groups] = i;
        if (!desk->in[desk->groups]) continue;
        start->group_size[desk->groups] = list->size;
        desk_must(desk, group_of(&desk->group[desk->groups], desk->comm, list->rank, list->size, TRAFFIC_OTHER, 0,
                                 &err), &err);
        desk->exchange[desk->groups] = exchange_begin(&desk->group[desk->groups], POINT_TO_POINT);
    }
}

/* Send the worker its call: the arguments, the buffers, and its time. */
static void send_call(struct desk *desk)
{
    struct start s = { .rank = desk->rank, .size = desk->run->devices, .groups = desk->run->groups,
                       .milliseconds = milliseconds_each(desk->run), .caged = desk->run->judge->caged };
    snprintf(s.function, sizeof s.function, "%s", desk->run->function);
    serve_open_groups(desk, &s);
    memcpy(s.number, desk->own->number, sizeof s.number);
    memcpy(s.given, desk->own->given, sizeof s.given);
    for (int i = 0; i < WORKER_BUFFERS; i++) {
        s.bytes[i] = desk->own->buffer[i].bytes, s.way[i] = desk->own->buffer[i].way,
            s.skew[i] = desk->own->buffer[i].skew;
    }
    desk_tell(desk, &s, sizeof s);
    for (int i = 0; i < WORKER_BUFFERS; i++)
        if (s.way[i] & BUFFER_IN) desk_tell(desk, desk->own->buffer[i].data, s.bytes[i]);
}

/* One device of the crew: its own clock and memory, and the requests of its worker until it returns. */
static enum error_code be_a_device(struct crew *crew, int rank, const void *asked, struct error *err)
{
    struct trial *run = *(struct trial *const *)asked;
    struct desk *k = calloc(1, sizeof *k);
    struct device d;
    struct comm c;
    if (k == NULL) return fail(err, ERR_MEMORY, "no memory for device %d", rank);
    enum error_code e = device_open(&d, backend_find("cpu"), F32, 0, err);
    if (e) return e;
    clock_restart(&d.clock, &run->cluster, F32);
    e = crew_join(&c, crew, rank, &d, err);
    if (e) return e;
    c.checks_calls = true;
    *k = (struct desk){ .run = run, .own = &run->device[rank], .device = &d, .comm = &c, .rank = rank,
                        .socket = worker[rank].socket };
    send_call(k);
    desk_serve(k);
    /* The judge reads what the device counted from the memory that both share. */
    const struct traffic all = ledger_kind(&c.counted, TRAFFIC_OTHER);
    k->own->messages = all.messages_sent, k->own->bytes = all.bytes_sent;
    k->own->peak = d.arena.peak.tag[ACTIVATIONS];
    k->own->time = d.clock.now;
    k->own->doing = HAS_RETURNED;
    return OK;                                  /* the process ends soon; nothing is worth being freed */
}

/* ---- the processes ----------------------------------------------------------------------------------------------- */

/* End the run before anything has started. */
static void no_start(struct trial *r, int rank, const char *why) __attribute__((noreturn));
static void no_start(struct trial *trial, int rank, const char *why)
{
    snprintf(trial->why, sizeof trial->why, "its process does not start: %s", why);
    trial->ended = RUN_BROKEN, trial->culprit = rank;
    _exit(1);
}

/* Open the sockets of the devices, then the pipes for what sanitizers say: at[].  @return the largest number, -1:
 * none could be opened. */
static int open_ends(const struct trial *trial, bool heard, int *at)
{
    int most = 0, ends[2];
    for (int d = 0; d < trial->devices; d++) {
        if (!system_sockets(ends)) return -1;
        worker[d].socket = ends[0], worker[d].said = -1, at[d] = ends[1];
        most = ends[1] > most ? ends[1] : most;
        if (!heard) continue;
        if (pipe(ends) != 0) return -1;
        for (int i = 0; i < 2; i++)             /* a report that is too long must not stop who writes it */
            fcntl(ends[i], F_SETFD, FD_CLOEXEC), fcntl(ends[i], F_SETFL, O_NONBLOCK);
        worker[d].said = ends[0], at[trial->devices + d] = ends[1];
        most = ends[1] > most ? ends[1] : most;
    }
    return most;
}

/* Become the worker's program, in the child, without rights. */
static void become_program(const struct trial *trial, bool heard, const int *at, int first)
{
    char path[PATH_MAX], words[3][16];
    char *const none[] = { NULL }, *const sane[] = { (char *)SANITIZERS, path, NULL };  /* clang's calls a program */
    char *const word[WORKER_WORDS + 1] = { (char *)"worker", words[0], words[1], words[2], NULL };
    /* These limits hold only until the worker itself takes less memory and time (worker.c). */
    const struct cage_limits no_more = { .seconds = START_SECONDS, .file = 1, .processes = PROCESSES };
    snprintf(path, sizeof path, "PATH=/usr/local/bin:/usr/bin:/bin");
    snprintf(words[0], sizeof words[0], "%d", first), snprintf(words[1], sizeof words[1], "%d", trial->devices);
    snprintf(words[2], sizeof words[2], "%d", heard);
    const int nothing = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++) if (nothing < 0 || dup2(nothing, fd) < 0) _exit(126);
    cage_close_at_exec();
    for (int i = 0; i < (heard ? 2 : 1) * trial->devices; i++) if (dup2(at[i], first + i) < 0) _exit(126);
    if (!cage_become(trial->judge->cage, &no_more)) _exit(126);
    execve(trial->judge->worker, word, heard ? sane : none);
    _exit(127);
}

/* Start the program that makes a process of itself for each device.  What it has made is waited for here. */
static int start_program(const struct trial *trial, bool heard, const int *at, int first)
{
    int how = 0;
    const pid_t program = fork();
    if (program < 0) return errno;
    if (program == 0) become_program(trial, heard, at, first);
    while (waitpid(program, &how, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(how) && WEXITSTATUS(how) == 0 ? 0 : EAGAIN;
}

/* Start a worker for each device, and read their processes' numbers. */
static void start_workers(struct trial *trial)
{
    const bool heard = !trial->judge->caged;
    int at[2 * WORKER_MOST_DEVICES];
    system_adopt();                             /* elsewhere the first process of the system waits for them */
    const int most = open_ends(trial, heard, at);
    if (most < 0) no_start(trial, 0, strerror(errno));
    const int e = trial->judge->is_python ? python_start_devices(trial, at)
        : start_program(trial, heard, at, most + 1);
    if (e) no_start(trial, 0, strerror(e));
    for (int d = 0; d < trial->devices; d++) {
        int32_t process;
        if (read(worker[d].socket, &process, sizeof process) != sizeof process) no_start(trial, d, "it has no number");
        worker[d].process = process;
        if (d == 0) trial->first = process;
        close(at[d]);
        if (heard) close(at[trial->devices + d]);
    }
}

/* Run one trial in this process.  It ends by itself, whatever the workers do. */
void serve_trial(struct trial *trial)
{
    struct error err = { OK, "" };
    signal(SIGPIPE, SIG_IGN);
    signal(SIGALRM, SIG_DFL);
    alarm(WALL_SECONDS);
    const int nowhere = open("/dev/null", O_WRONLY);        /* a crew says by itself what it thinks of a deadlock */
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    cage_close_at_exec();
    start_workers(trial);
    if (crew_run(trial->devices, be_a_device, &trial, &err) == OK) trial->ended = RUN_DONE;
    else snprintf(trial->why, sizeof trial->why, "%s", err.text), trial->ended = RUN_BROKEN;
    _exit(0);
}
