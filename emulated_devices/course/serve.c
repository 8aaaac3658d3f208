/* serve.c -- the devices of a run: a crew in a process of its own, whose devices do what the workers ask for.
 *
 *     judge          one process for a check: compares                      (judge.c)
 *       devices      one for a run: a crew, the clock, the counters         (this file)
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
#include "emulated_devices/course/alike.h"
#include "emulated_devices/course/build.h"
#include "emulated_devices/course/cage.h"
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/course/sanitized.h"
#include "emulated_devices/device/compute.h"
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
enum { GROUPS = 64, RUN_MILLISECONDS = 3000, LEAST_MILLISECONDS = 250, SANITIZED = 6, WALL_SECONDS = 300,
       PROCESSES = 256, RUN_MEGABYTES = 192,
       START_SECONDS = 60 };

static uint32_t milliseconds_each(const struct trial *r)
{
    const int each = RUN_MILLISECONDS / r->devices;
    return (uint32_t)(each > LEAST_MILLISECONDS ? each : LEAST_MILLISECONDS) * (r->judge->caged ? 1 : SANITIZED);
}

/* said: where a sanitizer's report comes out. */
static struct { pid_t process; int socket, said; } worker[WORKER_MOST_DEVICES];

/* What a device has for its worker. */
struct desk {
    struct trial *run;
    struct trial_device *own;
    struct device *device;
    struct comm *comm;
    int rank, socket, groups;
    struct group group[GROUPS];
    bool in[GROUPS];
    struct exchange exchange[GROUPS];           /* the messages of the group */
    struct { bool used, sending, both; struct message message; void *data; uint64_t bytes; int peer; }
        mail[WORKER_MESSAGES];                  /* both: exchange_both receives it */
    void *block[WORKER_MESSAGES];
    uint64_t block_bytes[WORKER_MESSAGES];
    unsigned char kept[4096];                   /* small pieces, so that the worker is woken once for an answer */
    uint64_t kept_bytes;
    bool apart, unjoined;       /* between stream_begin and stream_end; no stream_join since stream_begin */
};

/* ---- how a run ends before its end ------------------------------------------------------------------------------- */

static void end_trial(struct desk *k, enum trial_end how, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
static void end_trial(struct desk *k, enum trial_end how, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(k->run->why, sizeof k->run->why, format, list);
    va_end(list);
    k->run->ended = (int)how, k->run->culprit = k->rank;
    _exit(1);
}

/* No device alone is wrong. */
static void end_together(struct desk *k, const char *why) __attribute__((noreturn));
static void end_together(struct desk *k, const char *why)
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
        end_trial(k, RUN_BROKEN, "it computed for more than %g seconds: does a loop never end?",
                  milliseconds_each(k->run) / 1000.0);
    if (s == SIGSYS)
        end_trial(k, RUN_BROKEN,
                  "it asked the operating system for something; your code may only call what course.h has");
    if (s == SIGSEGV || s == SIGBUS)
        end_trial(k, RUN_BROKEN, "it crashed: it read or wrote where it has no memory (an index, or a pointer that is "
                                 "not set), or a function called itself without end");
    if (s == SIGFPE) end_trial(k, RUN_BROKEN, "it crashed: a division by zero");
    if (s) end_trial(k, RUN_BROKEN, "it crashed: signal %d, %s", s, strsignal(s));
    if (sanitizer_found(k, found, sizeof found)) end_trial(k, RUN_BROKEN, "%s", found);
    end_trial(k, RUN_BROKEN, "its process ended with status %d, before the function returned",
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

static void tell(struct desk *k, const void *from, uint64_t bytes)
{
    if (k->kept_bytes + bytes > sizeof k->kept) flush(k);
    if (bytes > sizeof k->kept) write_all(k, from, bytes);
    else if (bytes > 0) memcpy(k->kept + k->kept_bytes, from, bytes), k->kept_bytes += bytes;
}

static void hear(struct desk *k, void *to, uint64_t bytes)
{
    flush(k);
    for (char *at = to; bytes > 0;) {
        const ssize_t n = read(k->socket, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) worker_ended(k);
        at += n, bytes -= (uint64_t)n;
    }
}

static void answer(struct desk *k, int64_t value, const void *payload, uint64_t bytes)
{
    const struct answer a = { value, bytes };
    tell(k, &a, sizeof a);
    tell(k, payload, bytes);
}

static void forged(struct desk *k) { end_trial(k, RUN_BROKEN, "it sent a request that course.h cannot have made"); }

/* Bytes that all devices of the run hold here for their workers: messages on their way, blocks, operands. */
static uint64_t held;

static void hold(struct desk *k, uint64_t bytes)
{
    held += bytes;
    if (held > (uint64_t)RUN_MEGABYTES << 20)
        end_trial(k, RUN_BROKEN, "there is no memory for %llu bytes: all devices of a run have %d MiB for messages "
                  "that nobody has received, and for allocate()", (unsigned long long)bytes, RUN_MEGABYTES);
}

static void *memory(struct desk *k, uint64_t bytes)
{
    hold(k, bytes);
    void *p = bytes <= WORKER_POOL ? calloc(1, bytes + 1) : NULL;
    if (p == NULL) end_trial(k, RUN_BROKEN, "there is no memory for %llu bytes", (unsigned long long)bytes);
    return p;
}

static void give_memory(void *p, uint64_t bytes)
{
    free(p);
    held -= bytes;
}

static void must(struct desk *k, enum error_code e, const struct error *err)
{
    if (e) end_trial(k, RUN_MISUSED, "%s", err->text);
}

/* ---- what happened ----------------------------------------------------------------------------------------------- */

static void note(struct desk *k, enum event_kind kind, int peer, uint64_t bytes, picoseconds from)
{
    struct trial *r = k->run;
    if (r->events == RUN_EVENTS) return;
    r->event[r->events++] = (struct event){ (int32_t)kind, k->rank, peer, bytes, from, k->device->clock.now };
}

static void doing(struct desk *k, enum waiting what, int peer, uint64_t bytes)
{
    k->own->doing = (int32_t)what, k->own->peer = peer, k->own->waits_bytes = bytes;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static struct group *group_asked(struct desk *k, const struct request *q, bool with_peer)
{
    if (q->group < 0 || q->group >= k->groups || !k->in[q->group]) forged(k);
    struct group *g = &k->group[q->group];
    if (with_peer && (q->peer < 0 || q->peer >= g->size || q->peer == g->rank)) forged(k);
    return g;
}

static void start_message(struct desk *k, const struct request *q)
{
    struct group *g = group_asked(k, q, true);
    struct exchange *x = &k->exchange[q->group];
    const bool sending = q->kind == ASK_SEND;
    if (q->number < 0 || q->number >= WORKER_MESSAGES || k->mail[q->number].used || (sending && q->payload != q->bytes))
        forged(k);
    void *data = memory(k, q->bytes);
    if (sending) hear(k, data, q->bytes);
    k->mail[q->number].used = true, k->mail[q->number].sending = sending, k->mail[q->number].data = data;
    k->mail[q->number].bytes = q->bytes, k->mail[q->number].peer = g->member[q->peer];
    k->mail[q->number].both = q->a != 0;
    if (sending) note(k, EVENT_SEND, g->member[q->peer], q->bytes, k->device->clock.now);
    k->mail[q->number].message = sending ? message_send(x, q->peer, data, q->bytes)
                                         : message_receive(x, q->peer, data, q->bytes);
}

/* "send over all devices: device 1 expected 8 bytes from device 0, which sent 4", as the student's call. */
static void wrong_message(struct desk *k, const struct request *q, const struct error *err)
{
    const char *size = strstr(err->text, "expected ");
    if (size == NULL) end_trial(k, RUN_MISUSED, "%s", err->text);
    end_trial(k, RUN_MISUSED, "%s %s bytes", k->mail[q->number].both ? "exchange_both" : "message_receive", size);
}

static void wait_message(struct desk *k, const struct request *q)
{
    struct error err = { OK, "" };
    if (q->number < 0 || q->number >= WORKER_MESSAGES || !k->mail[q->number].used) forged(k);
    const bool sending = k->mail[q->number].sending;
    const uint64_t bytes = k->mail[q->number].bytes;
    const int peer = k->mail[q->number].peer;
    const picoseconds from = k->device->clock.now;
    doing(k, sending ? WAITS_TO_SEND : WAITS_TO_RECEIVE, peer, bytes);
    if (message_wait(k->comm, k->mail[q->number].message, &err) != OK) wrong_message(k, q, &err);
    doing(k, NOT_WAITING, 0, 0);
    if (!sending) note(k, EVENT_RECEIVE, peer, bytes, from);
    answer(k, 0, k->mail[q->number].data, sending ? 0 : bytes);
    give_memory(k->mail[q->number].data, bytes);
    k->mail[q->number].used = false;
}

static void take_block(struct desk *k, const struct request *q)
{
    if (q->number < 0 || q->number >= WORKER_MESSAGES || k->block[q->number] || q->bytes > WORKER_POOL) forged(k);
    hold(k, q->bytes);
    k->block[q->number] = arena_alloc(&k->device->arena, ACTIVATIONS, q->bytes), k->block_bytes[q->number] = q->bytes;
    if (k->block[q->number] == NULL) end_trial(k, RUN_BROKEN, "there is no memory for the devices");
}

static void give_block(struct desk *k, const struct request *q)
{
    if (q->number < 0 || q->number >= WORKER_MESSAGES || k->block[q->number] == NULL) forged(k);
    arena_free(&k->device->arena, k->block[q->number]), held -= k->block_bytes[q->number];
    k->block[q->number] = NULL;
}

/* The worker has added; here is what it takes. */
static void add(struct desk *k, const struct request *q)
{
    if (q->a < 0 || q->a > WORKER_POOL / 4) forged(k);
    const picoseconds from = k->device->clock.now;
    void *zeros = memory(k, 4 * (uint64_t)q->a), *more = memory(k, 4 * (uint64_t)q->a);
    reduce_local(&k->exchange[0], SUM, F32, zeros, more, q->a);
    k->own->additions += (uint64_t)q->a;
    give_memory(zeros, 4 * (uint64_t)q->a), give_memory(more, 4 * (uint64_t)q->a);
    note(k, EVENT_COMPUTE, 0, 4 * (uint64_t)q->a, from);
}

static void compute(struct desk *k, const struct request *q)
{
    const picoseconds from = k->device->clock.now;
    for (int i = 0; i < 2; i++)
        if (!(q->real[i] >= 0 && q->real[i] < 1e15)) end_trial(k, RUN_MISUSED, "work: %g is no number of operations or "
                                                             "bytes", q->real[i]);
    device_charge(k->device, "work", (struct op_cost){ .flops = q->real[0], .bytes = q->real[1] });
    note(k, EVENT_COMPUTE, 0, 0, from);
}

static void make_group(struct desk *k, const struct request *q)
{
    int32_t list[WORKER_MOST_DEVICES];
    int ranks[WORKER_MOST_DEVICES], size = (int)(q->payload / sizeof *list);
    struct error err = { OK, "" };
    if (q->payload > sizeof list || size < 1) forged(k);
    if (k->groups == GROUPS) end_trial(k, RUN_MISUSED, "group_of: more than %d groups", GROUPS);
    hear(k, list, q->payload);
    for (int i = 0; i < size; i++) {
        ranks[i] = list[i];
        if (ranks[i] < 0 || ranks[i] >= k->run->devices)
            end_trial(k, RUN_MISUSED, "group_of: there is no device %d among %d", ranks[i], k->run->devices);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i]) end_trial(k, RUN_MISUSED, "group_of: device %d is in it twice", ranks[i]);
    }
    const int i = k->groups;
    must(k, group_of(&k->group[i], k->comm, ranks, size, TRAFFIC_OTHER, 0, &err), &err);
    k->exchange[i] = exchange_begin(&k->group[i], POINT_TO_POINT);
    k->in[i] = true, k->groups++;
    answer(k, i, NULL, 0);
}

static const enum operation operations[] = { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, ALLTOALL };

/* Once all members have said what they ask for, member 0 compares, and lets the others go on. */
static void meet(struct desk *k, struct group *g)
{
    struct exchange x = exchange_begin(g, CONTROL);
    struct error err = { OK, "" };
    char why[RUN_TEXT], go = 0;
    for (int m = 1; m < g->size && g->rank == 0; m++) must(k, exchange_both(&x, -1, NULL, 0, m, &go, 1, &err), &err);
    if (g->rank == 0 && !collectives_alike(k->run, g->member, g->size, why, sizeof why)) end_together(k, why);
    for (int m = 1; m < g->size && g->rank == 0; m++) must(k, exchange_both(&x, m, &go, 1, -1, NULL, 0, &err), &err);
    if (g->rank == 0) return;
    must(k, exchange_both(&x, 0, &go, 1, -1, NULL, 0, &err), &err);
    must(k, exchange_both(&x, -1, NULL, 0, 0, &go, 1, &err), &err);
}

static void remember(struct desk *k, const struct request *q, const int64_t *counts, int size)
{
    struct asked_collective *a = &k->own->asked;
    *a = (struct asked_collective){ .kind = q->number, .root = q->peer, .count = q->a };
    for (int m = 0; m < size && counts; m++) a->give[m] = counts[m], a->take[m] = counts[size + m];
}

static void do_collective(struct desk *k, const struct request *q)
{
    struct group *g = group_asked(k, q, false);
    struct error err = { OK, "" };
    struct collective c = { .count = q->a, .dtype = F32, .reduction = SUM, .root = q->peer };
    int64_t ins, outs;
    if (q->number < 0 || q->number > DO_ALL_TO_ALL || q->peer < 0 || q->peer >= g->size || q->a < 0 ||
        q->a > WORKER_POOL / 4) forged(k);
    const enum operation op = operations[q->number];
    const uint64_t head = op == ALLTOALL ? 16 * (uint64_t)g->size : 0;
    if (q->payload < head || q->payload > WORKER_POOL) forged(k);
    int64_t *counts = memory(k, head);
    hear(k, counts, head);
    if (head > 0) c.counts = counts, c.recvcounts = counts + g->size;
    for (int i = 0; head > 0 && i < 2 * g->size; i++) if (counts[i] < 0 || counts[i] > WORKER_POOL / 4) forged(k);
    collective_extents(op, &c, g->rank, g->size, &ins, &outs);
    if (op == BROADCAST && g->rank != q->peer) ins = 0;
    if (q->payload != head + 4 * (uint64_t)ins) forged(k);
    void *in = memory(k, q->payload - head), *out = memory(k, 4 * (uint64_t)outs);
    hear(k, in, q->payload - head);
    c.in = in, c.out = out;
    if (op == BROADCAST || op == ALLREDUCE) memcpy(out, in, (size_t)(q->payload - head)), c.in = out;
    const picoseconds from = k->device->clock.now;
    remember(k, q, c.counts, g->size);
    doing(k, WAITS_IN_COLLECTIVE, q->number, 4 * (uint64_t)q->a);
    meet(k, g);
    must(k, collective_run(g, op, NULL, &c, &err), &err);
    doing(k, NOT_WAITING, 0, 0);
    k->own->collectives++;
    note(k, EVENT_COLLECTIVE, q->number, 4 * (uint64_t)q->a, from);
    answer(k, 0, out, 4 * (uint64_t)outs);
    give_memory(in, q->payload - head), give_memory(out, 4 * (uint64_t)outs), give_memory(counts, head);
}

static void use_stream(struct desk *k, const struct request *q)
{
    struct clock *c = &k->device->clock;
    if (q->number == 2 && k->apart) end_trial(k, RUN_MISUSED, "stream_join before stream_end");
    k->unjoined = q->number != 2;
    if (q->number == 2) clock_join(c, COMMUNICATION);
    else if (q->number == (k->apart ? 1 : 0)) {
        k->apart = q->number == 0;
        if (k->apart) clock_begin(c, COMMUNICATION);
        else clock_end(c);
    } else end_trial(k, RUN_MISUSED, k->apart ? "stream_begin after stream_begin" : "stream_end without stream_begin");
}

static void take_line(struct desk *k, const struct request *q)
{
    char text[201] = "";
    if (q->payload > 200) forged(k);
    hear(k, text, q->payload);
    const size_t used = strlen(k->run->lines);
    if (used < sizeof k->run->lines - 1)
        snprintf(k->run->lines + used, sizeof k->run->lines - used, "device %d says: %s\n", k->rank, text);
}

static void take_misuse(struct desk *k, const struct request *q)
{
    char text[301] = "";
    if (q->payload > 300) forged(k);
    hear(k, text, q->payload);
    end_trial(k, RUN_MISUSED, "%s", text);
}

static void take_results(struct desk *k, const struct request *q)
{
    uint64_t sum = 0;
    if (k->apart) end_trial(k, RUN_MISUSED, "the function returned after stream_begin: stream_end() is missing");
    if (k->unjoined)
        end_trial(k, RUN_MISUSED, "the function returned while a stream was still working: stream_join() is missing");
    for (int i = 0; i < WORKER_BUFFERS; i++) sum += k->own->buffer[i].way & BUFFER_OUT ? k->own->buffer[i].bytes : 0;
    if (q->payload != sum) forged(k);
    for (int i = 0; i < WORKER_BUFFERS; i++)
        if (k->own->buffer[i].way & BUFFER_OUT) hear(k, k->own->buffer[i].data, k->own->buffer[i].bytes);
    k->own->result = q->a, k->own->real = q->real[0];
}

static void serve(struct desk *k)
{
    for (struct request q;;) {
        hear(k, &q, sizeof q);
        switch ((enum request_kind)q.kind) {
        case ASK_SEND: case ASK_RECEIVE: start_message(k, &q); break;
        case ASK_WAIT: wait_message(k, &q); break;
        case ASK_ALLOCATE: take_block(k, &q); break;
        case ASK_RELEASE: give_block(k, &q); break;
        case ASK_ADD: add(k, &q); break;
        case ASK_WORK: compute(k, &q); break;
        case ASK_TIME: answer(k, k->device->clock.now, NULL, 0); break;
        case ASK_GROUP: make_group(k, &q); break;
        case ASK_COLLECTIVE: do_collective(k, &q); break;
        case ASK_STREAM: use_stream(k, &q); break;
        case ASK_SAY: take_line(k, &q); break;
        case ASK_MISUSE: take_misuse(k, &q); break;
        case ASK_DONE: take_results(k, &q); return;
        default: forged(k);
        }
    }
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
        must(k, group_of(&k->group[k->groups], k->comm, list->rank, list->size, TRAFFIC_OTHER, 0, &err), &err);
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
    tell(k, &s, sizeof s);
    for (int i = 0; i < WORKER_BUFFERS; i++)
        if (s.way[i] & BUFFER_IN) tell(k, k->own->buffer[i].data, s.bytes[i]);
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
    serve(k);
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
