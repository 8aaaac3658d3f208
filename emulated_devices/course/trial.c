/* trial.c -- calls a student's function on emulated devices, and compares what came back.  Checks of lessons call
 * it; serve.c runs the devices in another process.  The memory is shared with that process, so results and counters
 * need no copies.  A wrong result fails the check, and the check goes on. */
#include "emulated_devices/course/trial.h"
#include "emulated_devices/course/alike.h"
#include "emulated_devices/course/cage/cage.h"
#include "emulated_devices/course/kept.h"
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/course/mistake.h"
#include "emulated_devices/course/python.h"
#include "emulated_devices/course/serve.h"
#include "emulated_devices/device/interval.h"
#include "ref/io/child.h"
#include "ref/io/figures.h"
#include "ref/machine/system.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHARED = 512 << 20 };            /* bytes of addresses; memory is taken when it is touched */
enum { TABLE_MOST = 8 };                /* numbers that a table shows: more do not fit a look */

/* The names of collective operations, as course.h has them. */
const char *const trial_collectives[] = { "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all" };

/* ---- a run ------------------------------------------------------------------------------------------------------- */

/* Make a run of one call.  The check fills buffers and arguments before trial_call. */
struct trial *trial_open(struct judge *judge, const char *function, int devices, const char *format, ...)
{
    struct trial *r = system_pages(SHARED, true);
    va_list list;
    if (r == NULL || devices < 1 || devices > WORKER_MOST_DEVICES) abort();
    r->judge = judge, r->function = function, r->devices = devices, r->mapped = SHARED, r->groups = 1;
    r->used = (sizeof *r + 63) / 64 * 64;
    r->group[0].size = devices;
    for (int d = 0; d < devices; d++) r->group[0].rank[d] = d;
    if (cluster_find(&r->cluster, "textbook", NULL) != OK) abort();
    char more[120];
    va_start(list, format);
    vsnprintf(more, sizeof more, format, list);
    va_end(list);
    /* A function that computes something about W devices runs on one, so the label does not name that one. */
    const bool alone = devices == 1 && strstr(more, "W = ");
    const int n = alone ? 0 : snprintf(r->label, sizeof r->label, "%d device%s%s", devices, devices == 1 ? "" : "s",
                                       more[0] ? ", " : "");
    snprintf(r->label + n, sizeof r->label - (size_t)n, "%s", more);
    return r;
}

/* Take a place for a buffer; the memory is unmapped with the run. */
void *trial_buffer(struct trial *trial, int device, int i, uint64_t bytes, enum buffer_way way)
{
    void *data = (char *)trial + trial->used;
    const size_t more = (bytes + 63) / 64 * 64;
    if (trial->used + more > trial->mapped) abort();
    trial->used += more;
    trial->device[device].buffer[i].data = data, trial->device[device].buffer[i].bytes = bytes;
    trial->device[device].buffer[i].way = way;
    return data;
}

void *trial_copy(struct trial *trial, int device, int i, const void *from, uint64_t bytes, enum buffer_way way)
{
    return memcpy(trial_buffer(trial, device, i, bytes, way), from, bytes);
}

void trial_in(struct trial *trial, int device, int i, const float *from, int64_t count)
{
    trial_copy(trial, device, i, from, sizeof *from * (uint64_t)count, BUFFER_IN);
}

void trial_out(struct trial *trial, int device, int i, int64_t count)
{
    trial_buffer(trial, device, i, sizeof(float) * (uint64_t)count, BUFFER_OUT);
}

void trial_both(struct trial *trial, int device, int i, const float *from, int64_t count)
{
    trial_copy(trial, device, i, from, sizeof *from * (uint64_t)count, BUFFER_BOTH);
}

void trial_meets(struct trial *trial)
{
    const size_t used = strlen(trial->label);
    trial->meets = true;
    snprintf(trial->label + used, sizeof trial->label - used, ", every message waits for its receiver");
}

uint64_t trial_bytes(const struct trial *trial)
{
    uint64_t sum = 0;
    for (int d = 0; d < trial->devices; d++) sum += trial->device[d].bytes;
    return sum;
}

void trial_close(struct trial *trial) { munmap(trial, trial->mapped); }

/* Say what each device waits for: "device 0 waits until device 1 has received 400 bytes". */
static void describe_deadlock(const struct trial *trial, char *to, size_t size)
{
    size_t used = 0;
    for (int d = 0; d < trial->devices && d < 8 && used < size; d++) {
        const struct trial_device *v = &trial->device[d];
        const unsigned long long bytes = v->waits_bytes;
        char what[160], call[100];
        switch ((enum waiting)v->doing) {
        case WAITS_TO_SEND:
            snprintf(what, sizeof what, "waits until device %d receives its %llu bytes", v->peer, bytes);
            break;
        case WAITS_TO_RECEIVE:
            snprintf(what, sizeof what, "waits for %llu bytes from device %d", bytes, v->peer);
            break;
        case WAITS_IN_COLLECTIVE:
            collective_text(&v->asked, call, sizeof call);
            snprintf(what, sizeof what, "waits for the others in %s", call);
            break;
        case HAS_RETURNED: snprintf(what, sizeof what, "has returned"); break;
        default: snprintf(what, sizeof what, "computes"); break;
        }
        const int n = snprintf(to + used, size - used, "%sdevice %d %s", d > 0 ? "; " : "", d, what);
        used += n > 0 ? (size_t)n : 0;
    }
}

/* Say why a run did not end as it should, in the student's words. */
static void trial_report(struct trial *trial, int how)
{
    char text[900];
    if (trial->ended == RUN_MISUSED || trial->ended == RUN_BROKEN) {
        if (strstr(trial->why, " not released when")) trial->judge->mistake = MISTAKE_LEAK;
        if (trial->culprit < 0) trial_fails(trial, "%s", trial->why);
        else trial_fails(trial, "device %d: %s", trial->culprit, trial->why);
        return;
    }
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM) {
        trial_fails(trial, "the run took too long");
        return;
    }
    if (WIFSIGNALED(how)) {
        trial_fails(trial, "the emulated devices ended by signal %d", WTERMSIG(how));
        return;
    }
    trial->deadlock = true;
    trial->judge->mistake = MISTAKE_DEADLOCK;
    describe_deadlock(trial, text, sizeof text);
    trial_fails(trial, "deadlock, no device can go on: %s", text);
}

/* Keep what the devices have before the call, which overwrites it. */
static void keep_inputs(struct trial *trial)
{
    for (int d = 0; d < trial->devices; d++)
        for (int i = 0; i < WORKER_BUFFERS; i++) {
            const uint64_t bytes = trial->device[d].buffer[i].bytes, room = (bytes + 63) / 64 * 64;
            if (trial->device[d].buffer[i].way != BUFFER_BOTH || trial->used + room > trial->mapped) continue;
            void *before = (char *)trial + trial->used;
            trial->used += room;
            memcpy(before, trial->device[d].buffer[i].data, bytes);
            trial->device[d].buffer[i].before = before;
        }
}

/* Add what a run has cost to what the check's runs have cost. */
static void count_cost(const struct trial *trial)
{
    struct cost *cost = &trial->judge->cost;
    cost->time += trial_time(trial);
    for (int d = 0; d < trial->devices; d++) {
        const struct trial_device *device = &trial->device[d];
        cost->messages += device->messages, cost->bytes += device->bytes;
        cost->peak = device->peak > cost->peak ? device->peak : cost->peak;
    }
}

/* Call the function on all devices.  @return whether it returned on all of them; the check has failed otherwise. */
bool trial_call(struct trial *trial)
{
    struct child_end end;
    if (judge_used_up(trial->judge)) return false;
    for (int d = 0; d < trial->devices; d++) trial->device[d].doing = NOT_WAITING;
    /* With `meets` every message waits for its receiver; else every message is eager. */
    for (int l = 0; l < trial->cluster.levels; l++) trial->cluster.link[l].eager = trial->meets ? 0 : ALWAYS_EAGER;
    keep_inputs(trial);
    char why[300];
    if (trial->judge->is_python && !python_open(trial->judge, why, sizeof why))
        return trial_fails(trial, "%s", why);
    fflush(NULL);
    const pid_t child = child_start();
    if (child < 0) abort();
    if (child == 0) serve_trial(trial);
    child_wait(child, 0, &end);
    if (trial->judge->is_python) python_end_run(trial->judge, trial->first);
    else cage_clear();                          /* workers; so their time is counted */
    snprintf(trial->judge->lines, sizeof trial->judge->lines, "%s", trial->lines);
    if (trial->ended == RUN_DONE) {
        count_cost(trial);
        kept_offer(trial->judge->kept, trial, NULL);
        return true;
    }
    trial_report(trial, end.how);
    return false;
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* Fail with the name of the run, and draw it, unless the check has failed before. */
bool trial_fails(struct trial *trial, const char *format, ...)
{
    char text[1300];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (trial->judge->failed) return false;
    const size_t used = (size_t)snprintf(trial->judge->drawing, sizeof trial->judge->drawing, "%s", trial->table);
    trial_draw(trial, trial->judge->drawing + used, sizeof trial->judge->drawing - used);
    judge_fails(trial->judge, "%s with %s: %s", trial->function, trial->label, text);
    kept_offer(trial->judge->kept, trial, trial->judge->said);
    return false;
}

/* Whether a number is memory that nobody has written (tutorials/worker/worker.c). */
static bool is_poison(const float *x)
{
    static const unsigned char poison[] = { 0x7f, 0x7f, 0x7f, 0x7f };
    return memcmp(x, poison, sizeof poison) == 0;
}

/* Say what a strange number may mean.  Poison is 3.396e38, and so is a sum of it and small numbers; a mean or a
 * product of it has another size. */
const char *trial_meaning(double got)
{
    if (isnan(got)) return " (not a number: 0/0, infinity minus infinity, or computed from one)";
    if (isinf(got)) return " (infinite: 1/0, log(0), the maximum of nothing, or a sum in memory that nobody has set)";
    if (fabs(got) < 1e30) return "";
    return " (such numbers come from memory that nobody has written, where each float is 3.4e+38: are all indices in "
           "bounds, all bytes written, and is there what you add or copy?)";
}

/* ---- what explains a wrong array --------------------------------------------------------------------------------- */

void trial_suspect(struct trial *trial, int i, const float *values, int64_t count, enum mistake mistake,
                   const char *text)
{
    if (trial->suspects == RUN_SUSPECTS) return;
    trial->suspect[trial->suspects++] = (struct trial_suspect){ mistake, text, values, count, i };
}

/* Print a short array whole, a line for each number. */
static void fill_table(struct trial *trial, const struct wrong *wrong, const char *what)
{
    const float *before = trial->device[wrong->device].buffer[wrong->buffer].before;
    char *to = trial->table, name[40];
    size_t used = 0;
    if (wrong->count > TABLE_MOST) return;
    snprintf(name, sizeof name, "%.10s, device %d", what, wrong->device);
    used = (size_t)snprintf(to, RUN_TABLE, "%-18s%s  %-15s  %s\n", name, before ? "  before         " : "", "is",
                            "should be");
    for (int64_t e = 0; e < wrong->count && used + 100 < RUN_TABLE; e++) {
        const float want = (float)wrong->want[e];
        char was[20] = "";
        if (before) snprintf(was, sizeof was, "  %-15.9g", (double)before[wrong->first + e]);
        snprintf(name, sizeof name, "%.10s[%lld]", what, (long long)(wrong->first + e));
        used += (size_t)snprintf(to + used, RUN_TABLE - used, "%-18s%s  %-15.9g  %.9g%s\n", name, was,
                                 (double)wrong->got[e], (double)want, wrong->got[e] == want ? "" : "   <-");
    }
    if (used + 1 < RUN_TABLE) strcpy(to + used, "\n");
}

void trial_explain(struct trial *trial, const struct wrong *wrong, const char *what, char *to, size_t size)
{
    to[0] = '\0';
    if (trial->judge->failed) return;
    trial->judge->mistake = mistake_explain(trial, wrong, to, size);
    fill_table(trial, wrong, what);
}

/* Explain an array of which each element should be this float. */
static void explain_floats(struct trial *trial, int device, int i, const float *want, int64_t count, const char *what,
                           char *to, size_t size)
{
    double *wanted = calloc((size_t)count, sizeof *wanted);
    const struct wrong wrong = { .got = trial->device[device].buffer[i].data, .want = wanted, .count = count,
                                 .device = device, .buffer = i, .exact = true };
    to[0] = '\0';
    for (int64_t e = 0; wanted && e < count; e++) wanted[e] = (double)want[e];
    if (wanted) trial_explain(trial, &wrong, what, to, size);
    free(wanted);
}

/* Fail: nothing was written there.  An array that had numbers at first has poison only if the student's code put it
 * there. */
static bool expect_untouched(struct trial *trial, int device, int i, const char *what, int64_t at, double want,
                             const char *more)
{
    const bool empty = trial->device[device].buffer[i].way == BUFFER_OUT;
    return trial_fails(trial, "device %d: %s[%lld] is 3.4e+38, as in memory that nobody has written; it should be "
                       "%.9g%s: %s", device, what, (long long)at, want, more,
                       empty ? "was nothing written there, or something that never arrived?"
                             : "was something added or copied that never arrived?");
}

/* Compare bit by bit, and name the first wrong element. */
bool trial_expect_floats(struct trial *trial, int device, int i, const float *want, int64_t count, const char *what)
{
    const float *got = trial->device[device].buffer[i].data;
    int64_t wrong = 0, first = -1;
    for (int64_t e = 0; e < count; e++)
        if (memcmp(&got[e], &want[e], sizeof *got) != 0 && wrong++ == 0) first = e;
    if (wrong == 0) return true;
    char more[400], why[300];
    explain_floats(trial, device, i, want, count, what, why, sizeof why);
    snprintf(more, sizeof more, "; %lld of %lld elements are wrong%s", (long long)wrong, (long long)count, why);
    if (is_poison(&got[first])) return expect_untouched(trial, device, i, what, first, (double)want[first], more);
    return trial_fails(trial, "device %d: %s[%lld] is %.9g%s and should be %.9g%s", device, what, (long long)first,
                       (double)got[first], trial_meaning((double)got[first]), (double)want[first], more);
}

/* Compare within a bound for each element, and name the first that is off. */
bool trial_expect_near(struct trial *trial, int device, int i, const double *want, const double *bound, int64_t count,
                     const char *what)
{
    const float *got = trial->device[device].buffer[i].data;
    for (int64_t e = 0; e < count; e++) {
        if (fabs((double)got[e] - want[e]) <= bound[e]) continue;
        const struct wrong wrong = { .got = got, .want = want, .count = count, .device = device, .buffer = i };
        char off[400] = "", why[300];
        trial_explain(trial, &wrong, what, why, sizeof why);
        if (is_poison(&got[e])) return expect_untouched(trial, device, i, what, e, want[e], why);
        if (isfinite(got[e])) snprintf(off, sizeof off, "; the difference is %.3g%s", (double)got[e] - want[e], why);
        return trial_fails(trial, "device %d: %s[%lld] is %.9g%s and should be %.9g, within %.3g%s", device, what,
                           (long long)e, (double)got[e], trial_meaning((double)got[e]), want[e], bound[e], off);
    }
    return true;
}

/* A device sends as many messages and bytes as the algorithm needs, not fewer. */
bool trial_expect_sent(struct trial *trial, int device, uint64_t messages, uint64_t bytes, const char *formula)
{
    const struct trial_device *d = &trial->device[device];
    if (d->messages == messages && d->bytes == bytes) return true;
    return trial_fails(trial, "device %d sent %llu message%s with %llu bytes; it should be %llu with %llu (%s)", device,
                     (unsigned long long)d->messages, d->messages == 1 ? "" : "s", (unsigned long long)d->bytes,
                     (unsigned long long)messages, (unsigned long long)bytes, formula);
}

/* Collective operations must be called; a device must not send messages itself. */
bool trial_expect_collectives(struct trial *trial, int device, uint64_t calls, const char *where)
{
    const uint64_t called = trial->device[device].collectives;
    /* A message that a device sends by itself is an event of its own. */
    for (int i = 0; i < trial->events; i++) {
        const struct event *e = &trial->event[i];
        if (e->kind == EVENT_SEND && e->device == device)
            return trial_fails(trial,
                               "device %d sends a message of its own, to device %d; only collective operations are "
                               "to send here", device, e->peer);
    }
    return called == calls ||
           trial_fails(trial, "device %d calls collective operations %llu time%s; it should be %llu time%s%s", device,
                       (unsigned long long)called, called == 1 ? "" : "s", (unsigned long long)calls,
                       calls == 1 ? "" : "s", where);
}

/* At most so many bytes may be allocated at once. */
bool trial_expect_peak(struct trial *trial, int device, uint64_t most, const char *formula)
{
    const struct trial_device *d = &trial->device[device];
    if (d->peak <= most) return true;
    return trial_fails(trial, "device %d had %llu bytes allocated at once; at most %llu are needed (%s)", device,
                     (unsigned long long)d->peak, (unsigned long long)most, formula);
}

/* A run takes as long as its slowest device. */
picoseconds trial_time(const struct trial *trial)
{
    picoseconds last = 0;
    for (int d = 0; d < trial->devices; d++) last = trial->device[d].time > last ? trial->device[d].time : last;
    return last;
}

/* How long an all-reduce takes: two direct exchanges of blocks, W-1 after another on a device's link, and the
 * additions between (two_shot). */
picoseconds trial_all_reduce_time(const struct trial *trial, int64_t count)
{
    const struct cluster *c = &trial->cluster;
    const int W = trial->devices;
    const int64_t block = block_at(count, W, 0).count;
    const picoseconds message = c->link[0].latency + (W - 1) * time_at_rate(4 * (uint64_t)block, c->link[0].rate);
    return W == 1 ? 0 : 2 * message + (W - 1) * block;
}

/* Times are compared exactly, since the clock counts whole picoseconds. */
bool trial_expect_time(struct trial *trial, picoseconds want, const char *formula)
{
    const picoseconds got = trial_time(trial);
    if (got == want) return true;
    return trial_fails(trial, "it took %s of virtual time; it should take %s (%s)%s", picoseconds_exact(got).text,
                       picoseconds_exact(want).text, formula,
                       got < want ? ": less than this way can take; is there something without its cost?" : "");
}
