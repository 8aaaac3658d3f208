/* serve.c -- the devices of a run: a crew in a process of its own, whose devices do what the workers ask for.
 *
 *     judge          one process for a check: compares                      (judge.c)
 *       devices      one for a run: a crew, the clock, the counters         (this file, serve_requests.c)
 *         workers    one for each device: the student's code                (tutorials/worker/worker.c)
 *
 * A device reads the requests of its worker one after another.  It waits for messages as every device of a crew does;
 * so runs are the same every time, and a deadlock is seen at once.  Whatever a worker asks for is checked here again,
 * because its own checks are in the student's process.
 */
#define _GNU_SOURCE                     /* SOCK_CLOEXEC */
#include "emulated_devices/course/serve.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/course/build.h"
#include "emulated_devices/course/cage.h"
#include "emulated_devices/course/desk.h"
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/course/sanitized.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The processor time that all devices of a run may take together: so an endless loop on eight of them is seen as soon
 * as one on one.  Under sanitizers everything takes longer. */
enum { RUN_MILLISECONDS = 3000, LEAST_MILLISECONDS = 250, SANITIZED = 6, WALL_SECONDS = 300,
       PROCESSES = 256, START_SECONDS = 60 };

static uint32_t milliseconds_each(const struct trial *r)
{
    const int each = RUN_MILLISECONDS / r->devices;
    return (uint32_t)(each > LEAST_MILLISECONDS ? each : LEAST_MILLISECONDS) * (r->judge->caged ? 1 : SANITIZED);
}

/* said: where a sanitizer's report comes out. */
static struct { pid_t process; int socket, said; } worker[WORKER_MOST_DEVICES];

/* ---- how a run ends before its end ------------------------------------------------------------------------------- */

void desk_end(struct desk *k, enum trial_end how, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(k->run->why, sizeof k->run->why, format, list);
    va_end(list);
    k->run->ended = (int)how, k->run->culprit = k->rank;
    _exit(1);
}

void desk_end_together(struct desk *k, const char *why)
{
    snprintf(k->run->why, sizeof k->run->why, "%s", why);
    k->run->ended = RUN_MISUSED, k->run->culprit = -1;
    _exit(1);
}

/* A worker that has ended has closed its end of the pipe. */
static bool sanitizer_found(const struct desk *k, char *to, size_t size)
{
    char report[16384];
    size_t used = 0;
    for (ssize_t n; used < sizeof report - 1 && !k->run->judge->caged; used += (size_t)n) {
        n = read(worker[k->rank].said, report + used, sizeof report - 1 - used);
        if (n <= 0) break;
    }
    report[used] = '\0';
    return sanitizer_text(report, k->run->judge->lesson->file, to, size);
}

/* The worker is gone without a word. */
static void worker_ended(struct desk *k)
{
    char found[RUN_TEXT];
    int how = 0;
    while (waitpid(worker[k->rank].process, &how, 0) < 0 && errno == EINTR) continue;
    const int s = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    if (s == SIGPROF || s == SIGXCPU || s == SIGKILL)
        desk_end(k, RUN_BROKEN, "it computed for more than %g seconds: does a loop never end?",
                  milliseconds_each(k->run) / 1000.0);
    if (s == SIGSYS)
        desk_end(k, RUN_BROKEN,
                  "it asked the operating system for something; your code may only call what course.h has");
    if (s == SIGSEGV || s == SIGBUS)
        desk_end(k, RUN_BROKEN, "it crashed: it read or wrote where it has no memory (an index, or a pointer that is "
                                 "not set), or a function called itself without end");
    if (s == SIGFPE) desk_end(k, RUN_BROKEN, "it crashed: a division by zero");
    if (s) desk_end(k, RUN_BROKEN, "it crashed: signal %d, %s", s, strsignal(s));
    if (sanitizer_found(k, found, sizeof found)) desk_end(k, RUN_BROKEN, "%s", found);
    desk_end(k, RUN_BROKEN, "its process ended with status %d, before the function returned",
            WIFEXITED(how) ? WEXITSTATUS(how) : -1);
}

static void write_all(struct desk *k, const void *from, uint64_t bytes)
{
    for (const char *at = from; bytes > 0;) {
        const ssize_t n = write(k->socket, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) worker_ended(k);
        at += n, bytes -= (uint64_t)n;
    }
}

static void flush(struct desk *k)
{
    write_all(k, k->kept, k->kept_bytes);
    k->kept_bytes = 0;
}

void desk_tell(struct desk *k, const void *from, uint64_t bytes)
{
    if (k->kept_bytes + bytes > sizeof k->kept) flush(k);
    if (bytes > sizeof k->kept) write_all(k, from, bytes);
    else if (bytes > 0) memcpy(k->kept + k->kept_bytes, from, bytes), k->kept_bytes += bytes;
}

void desk_hear(struct desk *k, void *to, uint64_t bytes)
{
    flush(k);
    for (char *at = to; bytes > 0;) {
        const ssize_t n = read(k->socket, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) worker_ended(k);
        at += n, bytes -= (uint64_t)n;
    }
}

void desk_answer(struct desk *k, int64_t value, const void *payload, uint64_t bytes)
{
    const struct answer a = { value, bytes };
    desk_tell(k, &a, sizeof a);
    desk_tell(k, payload, bytes);
}

void desk_forged(struct desk *k) { desk_end(k, RUN_BROKEN, "it sent a request that course.h cannot have made"); }

void desk_must(struct desk *k, enum error_code e, const struct error *err)
{
    if (e) desk_end(k, RUN_MISUSED, "%s", err->text);
}

/* ---- a device ---------------------------------------------------------------------------------------------------- */

static void open_groups(struct desk *k, struct start *s)
{
    struct error err = { OK, "" };
    for (k->groups = 0; k->groups < k->run->groups; k->groups++) {
        const struct trial_group *list = &k->run->group[k->groups];
        for (int i = 0; i < list->size; i++)
            if (list->rank[i] == k->rank) k->in[k->groups] = true, s->group_rank[k->groups] = i;
        if (!k->in[k->groups]) continue;
        s->group_size[k->groups] = list->size;
        desk_must(k, group_of(&k->group[k->groups], k->comm, list->rank, list->size, TRAFFIC_OTHER, 0, &err), &err);
        k->exchange[k->groups] = exchange_begin(&k->group[k->groups], POINT_TO_POINT);
    }
}

static void send_call(struct desk *k)
{
    struct start s = { .rank = k->rank, .size = k->run->devices, .groups = k->run->groups,
                       .milliseconds = milliseconds_each(k->run), .caged = k->run->judge->caged };
    snprintf(s.function, sizeof s.function, "%s", k->run->function);
    open_groups(k, &s);
    memcpy(s.number, k->own->number, sizeof s.number);
    memcpy(s.given, k->own->given, sizeof s.given);
    for (int i = 0; i < WORKER_BUFFERS; i++) {
        s.bytes[i] = k->own->buffer[i].bytes, s.way[i] = k->own->buffer[i].way, s.skew[i] = k->own->buffer[i].skew;
    }
    desk_tell(k, &s, sizeof s);
    for (int i = 0; i < WORKER_BUFFERS; i++)
        if (s.way[i] & BUFFER_IN) desk_tell(k, k->own->buffer[i].data, s.bytes[i]);
}

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
    const struct traffic all = ledger_kind(&c.counted, TRAFFIC_OTHER);
    k->own->messages = all.messages_sent, k->own->bytes = all.bytes_sent;
    k->own->peak = d.arena.peak.tag[ACTIVATIONS];
    k->own->time = d.clock.now;
    k->own->doing = HAS_RETURNED;
    return OK;                                  /* the process ends soon; nothing is worth being freed */
}

/* ---- the processes ----------------------------------------------------------------------------------------------- */

static void no_start(struct trial *r, int rank, const char *why) __attribute__((noreturn));
static void no_start(struct trial *r, int rank, const char *why)
{
    snprintf(r->why, sizeof r->why, "its process does not start: %s", why);
    r->ended = RUN_BROKEN, r->culprit = rank;
    _exit(1);
}

/* The devices' ends of their sockets, then of the pipes for what sanitizers say: at[].  @return the largest. */
static int open_ends(const struct trial *r, bool heard, int *at)
{
    int most = 0, ends[2];
    for (int d = 0; d < r->devices; d++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
        worker[d].socket = ends[0], worker[d].said = -1, at[d] = ends[1];
        most = ends[1] > most ? ends[1] : most;
        if (!heard) continue;
        if (pipe(ends) != 0) return -1;
        for (int i = 0; i < 2; i++)             /* a report that is too long must not stop who writes it */
            fcntl(ends[i], F_SETFD, FD_CLOEXEC), fcntl(ends[i], F_SETFL, O_NONBLOCK);
        worker[d].said = ends[0], at[r->devices + d] = ends[1];
        most = ends[1] > most ? ends[1] : most;
    }
    return most;
}

/* In the child: the program, which has no rights. */
static void become_program(const struct trial *r, bool heard, const int *at, int first)
{
    char path[PATH_MAX], words[3][16];
    char *const none[] = { NULL }, *const sane[] = { (char *)SANITIZERS, path, NULL };  /* clang's calls a program */
    char *const word[WORKER_WORDS + 1] = { (char *)"worker", words[0], words[1], words[2], NULL };
    /* Of memory and time the worker takes less later (worker.c). */
    const struct cage_limits no_more = { .seconds = START_SECONDS, .file = 1, .processes = PROCESSES };
    snprintf(path, sizeof path, "PATH=/usr/local/bin:/usr/bin:/bin");
    snprintf(words[0], sizeof words[0], "%d", first), snprintf(words[1], sizeof words[1], "%d", r->devices);
    snprintf(words[2], sizeof words[2], "%d", heard);
    const int nothing = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++) if (nothing < 0 || dup2(nothing, fd) < 0) _exit(126);
    cage_close_at_exec();
    for (int i = 0; i < (heard ? 2 : 1) * r->devices; i++) if (dup2(at[i], first + i) < 0) _exit(126);
    if (!cage_become(r->judge->cage, &no_more)) _exit(126);
    execve(r->judge->worker, word, heard ? sane : none);
    _exit(127);
}

/* A program that makes a process of itself for each device, and ends: what it has made is then waited for here. */
static int start_program(const struct trial *r, bool heard, const int *at, int first)
{
    int how = 0;
    const pid_t program = fork();
    if (program < 0) return errno;
    if (program == 0) become_program(r, heard, at, first);
    while (waitpid(program, &how, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(how) && WEXITSTATUS(how) == 0 ? 0 : EAGAIN;
}

static void start_workers(struct trial *r)
{
    const bool heard = !r->judge->caged;
    int at[2 * WORKER_MOST_DEVICES];
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) no_start(r, 0, strerror(errno));
    const int most = open_ends(r, heard, at);
    if (most < 0) no_start(r, 0, strerror(errno));
    const int e = start_program(r, heard, at, most + 1);
    if (e) no_start(r, 0, strerror(e));
    for (int d = 0; d < r->devices; d++) {
        int32_t process;
        if (read(worker[d].socket, &process, sizeof process) != sizeof process) no_start(r, d, "it has no number");
        worker[d].process = process;
        close(at[d]);
        if (heard) close(at[r->devices + d]);
    }
}

void serve_trial(struct trial *r)
{
    struct error err = { OK, "" };
    signal(SIGPIPE, SIG_IGN);
    signal(SIGALRM, SIG_DFL);
    alarm(WALL_SECONDS);
    const int nowhere = open("/dev/null", O_WRONLY);        /* a crew says by itself what it thinks of a deadlock */
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    cage_close_at_exec();
    start_workers(r);
    if (crew_run(r->devices, be_a_device, &r, &err) == OK) r->ended = RUN_DONE;
    else snprintf(r->why, sizeof r->why, "%s", err.text), r->ended = RUN_BROKEN;
    _exit(0);
}
