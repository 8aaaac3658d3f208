#define _DEFAULT_SOURCE                 /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "emulated_devices/course/trial.h"
#include "emulated_devices/course/alike.h"
#include "emulated_devices/course/cage.h"
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/course/serve.h"
#include "emulated_devices/device/interval.h"
#include "ref/io/child.h"
#include "ref/io/figures.h"
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

const char *const trial_collectives[] = { "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all" };

/* ---- a run ------------------------------------------------------------------------------------------------------- */

struct trial *trial_open(struct judge *j, const char *function, int devices, const char *format, ...)
{
    struct trial *r = mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    va_list list;
    if (r == MAP_FAILED || devices < 1 || devices > WORKER_MOST_DEVICES) abort();
    r->judge = j, r->function = function, r->devices = devices, r->mapped = SHARED, r->groups = 1;
    r->used = (sizeof *r + 63) / 64 * 64;
    r->group[0].size = devices;
    for (int d = 0; d < devices; d++) r->group[0].rank[d] = d;
    if (cluster_find(&r->cluster, "textbook", NULL) != OK) abort();
    char more[120];
    va_start(list, format);
    vsnprintf(more, sizeof more, format, list);
    va_end(list);
    /* What is computed about W devices is computed on one, of which nobody wants to read. */
    const bool alone = devices == 1 && strstr(more, "W = ");
    const int n = alone ? 0 : snprintf(r->label, sizeof r->label, "%d device%s%s", devices, devices == 1 ? "" : "s",
                                       more[0] ? ", " : "");
    snprintf(r->label + n, sizeof r->label - (size_t)n, "%s", more);
    return r;
}

void *trial_buffer(struct trial *r, int device, int i, uint64_t bytes, enum buffer_way way)
{
    void *data = (char *)r + r->used;
    const size_t more = (bytes + 63) / 64 * 64;
    if (r->used + more > r->mapped) abort();
    r->used += more;
    r->device[device].buffer[i].data = data, r->device[device].buffer[i].bytes = bytes;
    r->device[device].buffer[i].way = way;
    return data;
}

void trial_close(struct trial *r) { munmap(r, r->mapped); }

/* "device 0 waits until device 1 has received 400 bytes, device 1 waits for .." */
static void describe_deadlock(const struct trial *r, char *to, size_t size)
{
    size_t used = 0;
    for (int d = 0; d < r->devices && d < 8 && used < size; d++) {
        const struct trial_device *v = &r->device[d];
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

static void report(struct trial *r, int how)
{
    char text[900];
    if (r->ended == RUN_MISUSED || r->ended == RUN_BROKEN) {
        if (r->culprit < 0) trial_fails(r, "%s", r->why);
        else trial_fails(r, "device %d: %s", r->culprit, r->why);
        return;
    }
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM) {
        trial_fails(r, "the run took too long");
        return;
    }
    if (WIFSIGNALED(how)) {
        trial_fails(r, "the emulated devices ended by signal %d", WTERMSIG(how));
        return;
    }
    r->deadlock = true;
    describe_deadlock(r, text, sizeof text);
    trial_fails(r, "deadlock, no device can go on: %s", text);
}

bool trial_call(struct trial *r)
{
    struct child_end end;
    if (judge_used_up(r->judge)) return false;
    for (int d = 0; d < r->devices; d++) r->device[d].doing = NOT_WAITING;
    for (int l = 0; l < r->cluster.levels; l++) r->cluster.link[l].eager = r->meets ? 0 : ALWAYS_EAGER;
    fflush(NULL);
    const pid_t child = child_start();
    if (child < 0) abort();
    if (child == 0) serve_trial(r);
    child_wait(child, 0, &end);
    cage_clear();                               /* workers; so their time is counted */
    snprintf(r->judge->lines, sizeof r->judge->lines, "%s", r->lines);
    if (r->ended == RUN_DONE) return true;
    report(r, end.how);
    return false;
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

bool trial_fails(struct trial *r, const char *format, ...)
{
    char text[1300];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (r->judge->failed) return false;
    trial_draw(r, r->judge->drawing, sizeof r->judge->drawing);
    return judge_fails(r->judge, "%s with %s: %s", r->function, r->label, text);
}

/* Memory that the student's code has not touched (tutorials/worker/worker.c). */
static bool is_poison(const float *x)
{
    static const unsigned char poison[] = { 0x7f, 0x7f, 0x7f, 0x7f };
    return memcmp(x, poison, sizeof poison) == 0;
}

/* Poison is 3.396e38, and so is a sum of it and small numbers; a mean or a product with it has another size. */
const char *trial_meaning(double got)
{
    if (isnan(got)) return " (not a number: 0/0, infinity minus infinity, or computed from one)";
    if (isinf(got)) return " (infinite: 1/0, log(0), the maximum of nothing, or a sum in memory that nobody has set)";
    if (fabs(got) < 1e30) return "";
    return " (such numbers come from memory that nobody has written, where each float is 3.4e+38: are all indices in "
           "bounds, all bytes written, and is there what you add or copy?)";
}

/* An array that had numbers at first has poison only if the student's code put it there. */
static bool expect_untouched(struct trial *r, int device, int i, const char *what, int64_t at, double want,
                             const char *more)
{
    const bool empty = r->device[device].buffer[i].way == BUFFER_OUT;
    return trial_fails(r, "device %d: %s[%lld] is 3.4e+38, as in memory that nobody has written; it should be "
                       "%.9g%s: %s", device, what, (long long)at, want, more,
                       empty ? "was nothing written there, or something that never arrived?"
                             : "was something added or copied that never arrived?");
}

bool trial_expect_floats(struct trial *r, int device, int i, const float *want, int64_t count, const char *what)
{
    const float *got = r->device[device].buffer[i].data;
    int64_t wrong = 0, first = -1;
    for (int64_t e = 0; e < count; e++)
        if (memcmp(&got[e], &want[e], sizeof *got) != 0 && wrong++ == 0) first = e;
    if (wrong == 0) return true;
    char more[80];
    snprintf(more, sizeof more, "; %lld of %lld elements are wrong", (long long)wrong, (long long)count);
    if (is_poison(&got[first])) return expect_untouched(r, device, i, what, first, (double)want[first], more);
    return trial_fails(r, "device %d: %s[%lld] is %.9g%s and should be %.9g%s", device, what, (long long)first,
                       (double)got[first], trial_meaning((double)got[first]), (double)want[first], more);
}

bool trial_expect_near(struct trial *r, int device, int i, const double *want, const double *bound, int64_t count,
                     const char *what)
{
    const float *got = r->device[device].buffer[i].data;
    for (int64_t e = 0; e < count; e++) {
        if (fabs((double)got[e] - want[e]) <= bound[e]) continue;
        if (is_poison(&got[e])) return expect_untouched(r, device, i, what, e, want[e], "");
        char off[48] = "";
        if (isfinite(got[e])) snprintf(off, sizeof off, "; the difference is %.3g", (double)got[e] - want[e]);
        return trial_fails(r, "device %d: %s[%lld] is %.9g%s and should be %.9g, within %.3g%s", device, what,
                           (long long)e, (double)got[e], trial_meaning((double)got[e]), want[e], bound[e], off);
    }
    return true;
}

bool trial_expect_sent(struct trial *r, int device, uint64_t messages, uint64_t bytes, const char *formula)
{
    const struct trial_device *d = &r->device[device];
    if (d->messages == messages && d->bytes == bytes) return true;
    return trial_fails(r, "device %d sent %llu message%s with %llu bytes; it should be %llu with %llu (%s)", device,
                     (unsigned long long)d->messages, d->messages == 1 ? "" : "s", (unsigned long long)d->bytes,
                     (unsigned long long)messages, (unsigned long long)bytes, formula);
}

bool trial_expect_collectives(struct trial *r, int device, uint64_t calls, const char *where)
{
    const uint64_t called = r->device[device].collectives;
    for (int i = 0; i < r->events; i++) {
        const struct event *e = &r->event[i];
        if (e->kind == EVENT_SEND && e->device == device)
            return trial_fails(r, "device %d sends a message of its own, to device %d; only collective operations are "
                               "to send here", device, e->peer);
    }
    return called == calls ||
           trial_fails(r, "device %d calls collective operations %llu time%s; it should be %llu time%s%s", device,
                       (unsigned long long)called, called == 1 ? "" : "s", (unsigned long long)calls,
                       calls == 1 ? "" : "s", where);
}

bool trial_expect_peak(struct trial *r, int device, uint64_t most, const char *formula)
{
    const struct trial_device *d = &r->device[device];
    if (d->peak <= most) return true;
    return trial_fails(r, "device %d had %llu bytes allocated at once; at most %llu are needed (%s)", device,
                     (unsigned long long)d->peak, (unsigned long long)most, formula);
}

picoseconds trial_time(const struct trial *r)
{
    picoseconds last = 0;
    for (int d = 0; d < r->devices; d++) last = r->device[d].time > last ? r->device[d].time : last;
    return last;
}

/* Two direct exchanges of blocks, W-1 after another on a device's link, and the additions between them (two_shot). */
picoseconds trial_all_reduce_time(const struct trial *r, int64_t count)
{
    const struct cluster *c = &r->cluster;
    const int W = r->devices;
    const int64_t block = block_at(count, W, 0).count;
    const picoseconds message = c->link[0].latency + (W - 1) * time_at_rate(4 * (uint64_t)block, c->link[0].rate);
    return W == 1 ? 0 : 2 * message + (W - 1) * block;
}

bool trial_expect_time(struct trial *r, picoseconds want, const char *formula)
{
    const picoseconds got = trial_time(r);
    if (got == want) return true;
    return trial_fails(r, "it took %s of virtual time; it should take %s (%s)%s", picoseconds_exact(got).text,
                       picoseconds_exact(want).text, formula,
                       got < want ? ": less than this way can take; is there something without its cost?" : "");
}
