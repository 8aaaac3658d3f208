/* worker.c -- a device's process on the student's side: reads the call, locks itself in, runs it, sends results back.
 *
 * It is compiled together with the student's file and the lesson's calls.c, with nothing of Orrery in it.  Before the
 * student's code runs, the process gives up all rights: it can compute, and read and write one socket.  protocol.h.
 * emulated_devices/course/serve.c starts the program once for a run, and the program makes a process of itself for
 * each device: that is quicker.
 * A mistake of the student's code is sent as ASK_MISUSE with one line of text, and the process ends with status 0.  A
 * broken socket or wrong words end the process with status 1, without a message.  serve.c reports both to the judge.
 * No function returns an error code.
 */
#define _GNU_SOURCE
#include "worker/cage.h"
#include "worker/calls.h"
#include "worker/protocol.h"
#include "worker/streams.h"
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

enum { GUARD = 64, BLOCKS = 512, POISON = 0x7f };       /* four bytes of poison are a float of 3e38 */

static unsigned char pool[WORKER_POOL] __attribute__((aligned(64)));
static struct start begun;

/* ---- the socket -------------------------------------------------------------------------------------------------- */

static unsigned char kept[4096];                /* small pieces, so that the other side is woken once for a request */
static uint64_t kept_bytes;

static void leave(int status)
{
    cage_exit(status);
}

static void write_all(const void *data, uint64_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        const ssize_t n = write(WORKER_SOCKET, at, bytes);
        if (n <= 0 && errno != EINTR) leave(1);
        if (n > 0) at += n, bytes -= (uint64_t)n;
    }
}

static void flush(void) { write_all(kept, kept_bytes), kept_bytes = 0; }

static void put(const void *data, uint64_t bytes)
{
    if (kept_bytes + bytes > sizeof kept) flush();
    if (bytes > sizeof kept) write_all(data, bytes);
    else if (bytes > 0) memcpy(kept + kept_bytes, data, bytes), kept_bytes += bytes;
}

static void misuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static const char *receiver;                    /* the function of course.h that now waits for bytes */

static void get(void *data, uint64_t bytes)
{
    char *at = data;
    while (bytes > 0) {
        const ssize_t n = read(WORKER_SOCKET, at, bytes);
        if (n < 0 && errno == EFAULT && receiver)
            misuse("%s: the memory for what is received is not this device's: was it allocated?", receiver);
        if (n == 0 || (n < 0 && errno != EINTR)) leave(1);
        if (n > 0) at += n, bytes -= (uint64_t)n;
    }
}

static void ask(struct request r, const void *payload)
{
    put(&r, sizeof r);
    put(payload, r.payload);
    flush();
}

/* @param most  bytes that fit into `to`. */
static int64_t hear(void *to, uint64_t most)
{
    struct answer a;
    get(&a, sizeof a);
    if (a.payload > most) leave(1);
    get(to, a.payload);
    return a.value;
}

static void misuse(const char *format, ...)
{
    char text[300];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    ask((struct request){ .kind = ASK_MISUSE, .payload = strlen(text) }, text);
    leave(0);
    for (;;) continue;
}

void say(const char *format, ...)
{
    char text[200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    ask((struct request){ .kind = ASK_SAY, .payload = strlen(text) }, text);
}

/* ---- memory: blocks with poison around them ---------------------------------------------------------------------- */

/* Under AddressSanitizer what is not in a block may not be touched either, so that it names the line. */
#if defined __has_feature
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
void __asan_poison_memory_region(const volatile void *, size_t);
void __asan_unpoison_memory_region(const volatile void *, size_t);
#define NOT_LOOKED_AT __attribute__((no_sanitize("address")))
static void forbid(const void *at, uint64_t bytes) { __asan_poison_memory_region(at, bytes); }
static void permit(const void *at, uint64_t bytes) { __asan_unpoison_memory_region(at, bytes); }
#else
#define NOT_LOOKED_AT
static void forbid(const void *at, uint64_t bytes) { (void)at, (void)bytes; }
static void permit(const void *at, uint64_t bytes) { (void)at, (void)bytes; }
#endif

static struct space { uint64_t at, bytes; bool used, given; int line; } spaces[BLOCKS];
static int space_count;
static uint64_t pool_top;                       /* where memory begins that no block has had */

/* A place for so many bytes: between two blocks, or after the last.  -1: there is none. */
static int64_t find_place(uint64_t bytes, uint64_t skew)
{
    uint64_t at = GUARD;
    for (bool moved = true; moved;) {
        moved = false;
        at = (at + 63) / 64 * 64 + skew;
        for (int i = 0; i < space_count; i++) {
            const struct space *s = &spaces[i];
            if (!s->used || at >= s->at + s->bytes + GUARD || s->at >= at + bytes + GUARD) continue;
            at = s->at + s->bytes + GUARD, moved = true;
            break;
        }
    }
    return at + bytes + GUARD <= sizeof pool ? (int64_t)at : -1;
}

/* The pool is poisoned where nothing is: at the start up to the top, later what is released. */
static int take_space(uint64_t bytes, uint64_t skew, bool given)
{
    const int64_t at = find_place(bytes, skew);
    int i = 0;
    while (i < space_count && spaces[i].used) i++;
    if (at < 0 || i == BLOCKS) misuse("there is no memory for %llu more bytes", (unsigned long long)bytes);
    if (i == space_count) space_count++;
    spaces[i] = (struct space){ (uint64_t)at, bytes, true, given, 0 };
    const uint64_t top = (uint64_t)at + bytes + GUARD;
    if (pool_top < top) {
        permit(pool + pool_top, top - pool_top);
        memset(pool + pool_top, POISON, top - pool_top);
        forbid(pool + pool_top, top - pool_top);
        pool_top = top;
    }
    permit(pool + at, bytes);
    return i;
}

/* Whether poison between blocks was overwritten: says where. */
NOT_LOOKED_AT static void look_around(void)
{
    static struct space sorted[BLOCKS];
    int n = 0;
    for (int i = 0; i < space_count; i++) {
        if (!spaces[i].used) continue;
        int k = n++;
        for (; k > 0 && sorted[k - 1].at > spaces[i].at; k--) sorted[k] = sorted[k - 1];
        sorted[k] = spaces[i];
    }
    uint64_t at = 0;
    for (int i = 0; i <= n; i++) {
        const uint64_t end = i < n ? sorted[i].at : pool_top;
        for (; at < end; at++)
            if (pool[at] != POISON) {
                if (i > 0 && at < sorted[i - 1].at + sorted[i - 1].bytes + GUARD)
                    misuse("something was written behind the end of %s of %llu bytes, at byte %llu",
                           sorted[i - 1].given ? "an array" : "allocated memory",
                           (unsigned long long)sorted[i - 1].bytes, (unsigned long long)(at - sorted[i - 1].at));
                misuse("something was written %s",
                       i < n ? "in front of an array" : "into memory that is not allocated");
            }
        if (i < n) at = end + sorted[i].bytes;
    }
}

/* Behind the last block nothing is poisoned, because that would take memory: there is none until somebody touches it,
 * which the system knows by pages. */
static uint64_t page;                           /* bytes; 0: the system does not say */

/* The first page at `from` or behind it that was touched, as a place in the pool; WORKER_POOL: none. */
static uint64_t touched_page(uint64_t from)
{
    static unsigned char touched[WORKER_POOL / 4096 + 1];
    const uint64_t base = (uint64_t)(uintptr_t)pool, first = (base + from + page - 1) / page * page;
    const uint64_t pages = (base + sizeof pool - first) / page;
    if (mincore((void *)(uintptr_t)first, pages * page, (void *)touched) != 0) return WORKER_POOL;
    for (uint64_t i = 0; i < pages; i++)
        if (touched[i] & 1) return first - base + i * page;
    return WORKER_POOL;
}

/* Before the pool is used.  Some systems (gVisor) say that all pages are there. */
static void begin_pages(void)
{
    page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (cage_small_pages() != 0 || touched_page(page) != WORKER_POOL) page = 0;
}

static void look_behind(void)
{
    if (page == 0 || !begun.caged) return;
    const uint64_t at = touched_page(pool_top);
    if (at < WORKER_POOL) misuse("memory was used that is not allocated, about %llu bytes behind all arrays",
                                 (unsigned long long)(at - pool_top));
}

/* The line of the student's file that calls allocate next; 0: it was not compiled so. */
static int asking_line;

void allocate_at(int line);                     /* course.h declares it for files that are compiled so */
void allocate_at(int line) { asking_line = line; }

void *allocate(size_t bytes)
{
    const int i = take_space(bytes, 0, false);
    spaces[i].line = asking_line, asking_line = 0;
    ask((struct request){ .kind = ASK_ALLOCATE, .number = i, .bytes = bytes }, NULL);
    return pool + spaces[i].at;
}

void release(void *p)
{
    if (p == NULL) return;
    for (int i = 0; i < space_count; i++) {
        if (!spaces[i].used || spaces[i].given || pool + spaces[i].at != (unsigned char *)p) continue;
        look_around();
        stream_loses(p, spaces[i].bytes);
        memset(p, POISON, spaces[i].bytes);
        forbid(p, spaces[i].bytes);
        spaces[i].used = false;
        ask((struct request){ .kind = ASK_RELEASE, .number = i }, NULL);
        return;
    }
    misuse("release() of memory that was not allocated, or was already released");
}

/* What course.h is asked to read or write must lie within one array.  Memory outside the pool, such as the stack, has
 * no ends that are known here. */
static void must_hold(const char *by, const char *what, const void *data, uint64_t bytes, uint64_t unit)
{
    const char *const units = unit == 1 ? "bytes" : "numbers";
    const uint64_t place = (uint64_t)((uintptr_t)data - (uintptr_t)pool);
    if (bytes == 0 || place >= sizeof pool) return;
    for (int i = 0; i < space_count; i++) {
        const struct space *s = &spaces[i];
        const uint64_t end = s->at + s->bytes;
        if (!s->used || place < s->at || place > end) continue;
        if (bytes <= end - place) return;
        misuse("%s: %llu %s of `%s` are asked for, and its memory ends after %llu", by,
               (unsigned long long)(bytes / unit), units, what, (unsigned long long)((end - place) / unit));
    }
    misuse("%s: `%s` is in no array: was its memory released, or is an index wrong?", by, what);
}

static void must_have(const char *by, const char *what, const float *data, int64_t count)
{
    if (count > 0) must_hold(by, what, data, 4 * (uint64_t)count, 4);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static struct flying {
    bool used, sending;
    void *data;
    uint64_t bytes, sum;
    int peer;
    const char *by;                             /* the function that the student's code called */
} flying[WORKER_MESSAGES];

static uint64_t sum_of(const void *data, uint64_t bytes)
{
    const unsigned char *at = data;
    uint64_t h = 1469598103934665603u;
    for (uint64_t i = 0; i < bytes; i++) h = (h ^ at[i]) * 1099511628211u;
    return h;
}

static int take_message(const struct group *g, int peer, void *data, uint64_t bytes, bool sending, const char *by)
{
    int i = 0;
    if (peer < 0 || peer >= g->size) misuse("%s: there is no device %d in a group of %d", by, peer, g->size);
    if (peer == g->rank) misuse("%s: device %d %s itself; what it has needs no message", by, peer,
                                   sending ? "sends to" : "receives from");
    if (bytes > WORKER_POOL) misuse("%s: %llu bytes are too many", by, (unsigned long long)bytes);
    must_hold(by, strcmp(by, "exchange_both") != 0 ? "data" : sending ? "out" : "in", data, bytes, 1);
    while (i < WORKER_MESSAGES && flying[i].used) i++;
    if (i == WORKER_MESSAGES) misuse("%s: %d messages are not waited for", by, WORKER_MESSAGES);
    flying[i] = (struct flying){ true, sending, data, bytes, sending ? sum_of(data, bytes) : 0, peer, by };
    return i;
}

static struct message start_send(const struct group *g, int to, const void *data, size_t bytes, const char *by)
{
    const int i = take_message(g, to, (void *)(uintptr_t)data, bytes, true, by);
    ask((struct request){ .kind = ASK_SEND, .group = g->number, .peer = to, .number = i, .bytes = bytes,
                          .payload = bytes }, data);
    return (struct message){ i };
}

static struct message start_receive(const struct group *g, int from, void *data, size_t bytes, bool both)
{
    const int i = take_message(g, from, data, bytes, false, both ? "exchange_both" : "message_receive");
    ask((struct request){ .kind = ASK_RECEIVE, .group = g->number, .peer = from, .number = i, .bytes = bytes,
                          .a = both }, NULL);
    return (struct message){ i };
}

struct message message_send(const struct group *g, int to, const void *data, size_t bytes)
{
    return start_send(g, to, data, bytes, "message_send");
}

struct message message_receive(const struct group *g, int from, void *data, size_t bytes)
{
    return start_receive(g, from, data, bytes, false);
}

void message_wait(struct message m)
{
    if (m.number < 0 || m.number >= WORKER_MESSAGES || !flying[m.number].used)
        misuse("message_wait: this message was waited for before, or never started");
    struct flying *f = &flying[m.number];
    ask((struct request){ .kind = ASK_WAIT, .number = m.number }, NULL);
    receiver = f->by;
    hear(f->data, f->sending ? 0 : f->bytes);
    if (!f->sending) stream_arrives(f->data, f->bytes);
    if (f->sending && sum_of(f->data, f->bytes) != f->sum)
        misuse("a message to device %d was changed between message_send and message_wait", f->peer);
    f->used = false;
}

void exchange_both(const struct group *g, int to, const void *out, size_t out_bytes, int from, void *in,
                   size_t in_bytes)
{
    struct message receive = { -1 }, send = { -1 };
    if (from >= 0) receive = start_receive(g, from, in, in_bytes, true);
    if (to >= 0) send = start_send(g, to, out, out_bytes, "exchange_both");
    if (from >= 0) message_wait(receive);
    if (to >= 0) message_wait(send);
}

struct group group_of(const int *ranks, int size)
{
    int32_t list[WORKER_MOST_DEVICES];
    int me = -1;
    if (size < 1 || size > begun.size) misuse("group_of: a group of %d, of %d devices", size, begun.size);
    for (int i = 0; i < size; i++) {
        list[i] = ranks[i];
        if (ranks[i] == begun.rank) me = i;
    }
    if (me < 0) misuse("group_of: device %d is not in its own group", begun.rank);
    ask((struct request){ .kind = ASK_GROUP, .payload = sizeof *list * (uint64_t)size }, list);
    return (struct group){ .rank = me, .size = size, .number = (int)hear(NULL, 0) };
}

/* ---- collective operations --------------------------------------------------------------------------------------- */

static const char *const collectives[] = { "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all" };

/* What cannot be read crashes here, in the student's call, and not while it is sent. */
static void read_all(const float *in, int64_t count)
{
    for (int64_t i = 0; i < count; i++) (void)*(const volatile float *)&in[i];
}

static void collective(const struct group *g, enum collective_kind kind, int root, int64_t count, const float *in,
                       int64_t ins, float *out, int64_t outs)
{
    const bool one = kind == DO_ALL_REDUCE || kind == DO_BROADCAST;
    receiver = collectives[kind];
    if (count < 0 || ins < 0 || outs < 0) misuse("%s: a negative number of elements", receiver);
    must_have(receiver, one ? "x" : "in", in, ins);
    must_have(receiver, one ? "x" : "out", out, outs);
    read_all(in, ins);
    ask((struct request){ .kind = ASK_COLLECTIVE, .group = g->number, .number = kind, .peer = root, .a = count,
                          .payload = 4 * (uint64_t)ins }, in);
    hear(out, 4 * (uint64_t)outs);
    stream_arrives(out, 4 * (uint64_t)outs);
}

void all_reduce(const struct group *g, float *x, int64_t count)
{
    collective(g, DO_ALL_REDUCE, 0, count, x, count, x, count);
}

void reduce_scatter(const struct group *g, const float *in, float *out, int64_t count)
{
    collective(g, DO_REDUCE_SCATTER, 0, count, in, count, out, block_of(count, g->size, g->rank).count);
}

void all_gather(const struct group *g, const float *in, float *out, int64_t count)
{
    collective(g, DO_ALL_GATHER, 0, count, in, block_of(count, g->size, g->rank).count, out, count);
}

void broadcast(const struct group *g, int root, float *x, int64_t count)
{
    if (root < 0 || root >= g->size) misuse("broadcast: there is no device %d in a group of %d", root, g->size);
    collective(g, DO_BROADCAST, root, count, x, g->rank == root ? count : 0, x, count);
}

void all_to_all(const struct group *g, const float *in, const int64_t *give, float *out, const int64_t *take)
{
    int64_t ins = 0, outs = 0;
    for (int i = 0; i < g->size; i++) {
        if (give[i] < 0 || take[i] < 0) misuse("all_to_all: a negative number of elements");
        ins += give[i], outs += take[i];
    }
    struct request r = { .kind = ASK_COLLECTIVE, .group = g->number, .number = DO_ALL_TO_ALL,
                         .payload = 16 * (uint64_t)g->size + 4 * (uint64_t)ins };
    receiver = collectives[DO_ALL_TO_ALL];
    must_have(receiver, "in", in, ins);
    must_have(receiver, "out", out, outs);
    read_all(in, ins);
    put(&r, sizeof r);
    put(give, 8 * (uint64_t)g->size);
    put(take, 8 * (uint64_t)g->size);
    put(in, 4 * (uint64_t)ins);
    flush();
    hear(out, 4 * (uint64_t)outs);
    stream_arrives(out, 4 * (uint64_t)outs);
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

void work(double operations, double bytes)
{
    ask((struct request){ .kind = ASK_WORK, .real = { operations, bytes } }, NULL);
}

void add_into(float *into, const float *from, int64_t count)
{
    must_have("add_into", "into", into, count);
    must_have("add_into", "from", from, count);
    for (int64_t i = 0; i < count; i++) into[i] += from[i];
    ask((struct request){ .kind = ASK_ADD, .a = count }, NULL);
}

void matrix_product(float *C, const float *A, const float *B, int64_t m, int64_t k, int64_t n, int how)
{
    if (m > 0 && n > 0) {
        must_have("matrix_product", "C", C, m * n);
        must_have("matrix_product", "A", A, m * k);
        must_have("matrix_product", "B", B, k * n);
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = how & ADD ? C[i * n + j] : 0;
            for (int64_t l = 0; l < k; l++)
                sum += A[how & TRANSPOSE_A ? l * m + i : i * k + l] * B[how & TRANSPOSE_B ? j * k + l : l * n + j];
            C[i * n + j] = sum;
        }
    work(2.0 * (double)m * (double)k * (double)n,
         4.0 * ((double)m * (double)k + (double)k * (double)n + (how & ADD ? 2 : 1) * (double)m * (double)n));
}

int64_t time_now(void)
{
    ask((struct request){ .kind = ASK_TIME }, NULL);
    return hear(NULL, 0);
}

/* ---- the cage ---------------------------------------------------------------------------------------------------- */

static void limit(int what, rlim_t most) { setrlimit(what, &(struct rlimit){ most, most }); }

/* From here on only read, write, exit, and asking which of its own pages are there. */
static void lock_in(void)
{
    static const int calls[] = { CAGE_WORKER_CALLS };
    if (cage_lock(calls, sizeof calls / sizeof *calls) == 0) return;
    page = 0;
    if (cage_lock_strictly() != 0) misuse("this system cannot lock a process in (seccomp)");
}

static void give_up_rights(void)
{
    limit(RLIMIT_CORE, 0), limit(RLIMIT_FSIZE, 0);
    if (begun.caged) limit(RLIMIT_NOFILE, 4);   /* a sanitizer reads the program to find the line */
    limit(RLIMIT_CPU, begun.milliseconds / 1000 + 2);
    const struct itimerval most = { .it_value = { begun.milliseconds / 1000, begun.milliseconds % 1000 * 1000 } };
    if (setitimer(ITIMER_PROF, &most, NULL) != 0) misuse("cannot limit the time of a processor");
    if (!begun.caged) return;
    limit(RLIMIT_STACK, 1 << 20), limit(RLIMIT_NPROC, 0), limit(RLIMIT_AS, WORKER_POOL + (32 << 20));
    lock_in();
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

static int buffer_space[WORKER_BUFFERS];

static void read_call(struct call *c)
{
    get(&begun, sizeof begun);
    for (int i = 0; i < WORKER_GROUPS; i++)
        c->group[i] = (struct group){ begun.group_rank[i], begun.group_size[i], i };
    for (int i = 0; i < WORKER_NUMBERS; i++) c->number[i] = begun.number[i], c->given[i] = begun.given[i];
    for (int i = 0; i < WORKER_BUFFERS; i++) {
        if (begun.way[i] == 0) continue;
        buffer_space[i] = take_space(begun.bytes[i], begun.skew[i], true);
        c->buffer[i] = pool + spaces[buffer_space[i]].at, c->bytes[i] = begun.bytes[i];
        if (begun.way[i] & BUFFER_IN) get(c->buffer[i], begun.bytes[i]);
    }
}

static void look_at_end(const struct call *c, const uint64_t *sums)
{
    int left = 0, held = 0, line = 0;
    uint64_t bytes = 0;
    char where[60] = "";
    look_around();
    look_behind();
    for (int i = 0; i < WORKER_MESSAGES; i++) left += flying[i].used;
    if (left > 0) misuse("%d message%s not waited for when the function returned", left, left == 1 ? " was" : "s were");
    for (int i = 0; i < space_count; i++)
        if (spaces[i].used && !spaces[i].given) held++, bytes += spaces[i].bytes;
    for (int i = 0; i < space_count && line == 0; i++)
        if (spaces[i].used && !spaces[i].given) line = spaces[i].line;
    if (line > 0) snprintf(where, sizeof where, "; the first is allocated in line %d", line);
    if (held > 0)
        misuse("%d block%s not released when the function returned: %llu byte%s%s", held,
               held == 1 ? " was" : "s were", (unsigned long long)bytes, bytes == 1 ? "" : "s", where);
    for (int i = 0; i < WORKER_BUFFERS; i++)
        if (begun.way[i] == BUFFER_IN && sum_of(c->buffer[i], c->bytes[i]) != sums[i])
            misuse("an array that is only to be read was changed (%llu bytes)", (unsigned long long)c->bytes[i]);
}

static void send_results(const struct call *c)
{
    struct request r = { .kind = ASK_DONE, .a = c->result, .real = { c->real } };
    for (int i = 0; i < WORKER_BUFFERS; i++)
        if (begun.way[i] & BUFFER_OUT) r.payload += begun.bytes[i];
    put(&r, sizeof r);
    for (int i = 0; i < WORKER_BUFFERS; i++)
        if (begun.way[i] & BUFFER_OUT) put(c->buffer[i], begun.bytes[i]);
    flush();
}

/* In a new process: only this device's socket stays open, so that nobody else reads it, and its end is seen. */
static void become_device(int device, int first, int devices, bool heard)
{
    if (dup2(first + device, WORKER_SOCKET) < 0 ||
        (heard && dup2(first + devices + device, STDERR_FILENO) < 0)) leave(1);
    for (int i = 0; i < (heard ? 2 : 1) * devices; i++) close(first + i);
}

/* Returns in each device's process.  The other side learns its number over its socket, and waits for it. */
static void divide(int first, int devices, bool heard)
{
    for (int d = 0; d < devices; d++) {
        const int32_t child = (int32_t)fork();
        if (child < 0) leave(1);
        if (child == 0) {
            become_device(d, first, devices, heard);
            return;
        }
        if (write(first + d, &child, sizeof child) != sizeof child) leave(1);
    }
    leave(0);
}

int main(int count, char **word)
{
    static struct call call;
    uint64_t sums[WORKER_BUFFERS] = { 0 };
    const struct callable *f = callables;
    if (count != WORKER_WORDS) leave(1);
    begin_pages();
    forbid(pool, sizeof pool);
    divide(atoi(word[1]), atoi(word[2]), atoi(word[3]) != 0);
    read_call(&call);
    for (int i = 0; i < WORKER_BUFFERS; i++)
        if (begun.way[i] == BUFFER_IN) sums[i] = sum_of(call.buffer[i], call.bytes[i]);
    while (f->name && strcmp(f->name, begun.function) != 0) f++;
    give_up_rights();
    if (f->name == NULL) misuse("calls.c has no line for %s", begun.function);
    f->run(&call);
    look_at_end(&call, sums);
    send_results(&call);
    leave(0);
}
