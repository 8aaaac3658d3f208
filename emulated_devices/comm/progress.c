#include "emulated_devices/comm/progress.h"
#include "emulated_devices/comm/patience.h"
#include "emulated_devices/comm/shared.h"
#include <stdatomic.h>
#include <stdio.h>
#include <signal.h>
#include <unistd.h>

/* One device's line of the shared memory, written by that device alone. */
struct place {
    _Alignas(128) atomic_long process;  /* 0: this device has no such memory */
    atomic_uint ended;                  /* number of finished waits */
    atomic_bool waits;                  /* whether `wait` is valid */
    atomic_bool spoken;                 /* the report was made; all devices use device 0's */
    struct wait wait;
};

enum { LOOKS_IN_A_LIMIT = 10 };

static size_t bytes(const struct progress *p) { return sizeof *p->place * (size_t)p->size; }

void progress_open(struct progress *p, MPI_Comm comm, double limit)
{
    *p = (struct progress){ .limit = limit };
    MPI_Comm_rank(comm, &p->rank);
    MPI_Comm_size(comm, &p->size);
    if (p->size > 1) p->place = shared_open(comm, bytes(p));
    if (p->place != NULL) atomic_store(&p->place[p->rank].process, (long)getpid());
}

void progress_close(struct progress *p)
{
    shared_close(p->place, bytes(p));
    p->place = NULL;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

/* The CPU time of a process on all cores.  If the system does not report it, the process counts as computing. */
static uint64_t time_used(long process)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid((pid_t)process, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return kill((pid_t)process, 0) == 0 ? (uint64_t)patience_now() : 0;
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t mix(uint64_t digest, uint64_t x) { return (digest ^ x) * 0x100000001b3u; }

/* A number that changes while there is any progress.  @param[out] blind  whether a device cannot be observed. */
static uint64_t look(const struct progress *p, bool *blind)
{
    uint64_t digest = 0xcbf29ce484222325u;
    for (int d = 0; d < p->size; d++) {
        struct place *at = &p->place[d];
        const long process = atomic_load(&at->process);
        const bool waits = atomic_load(&at->waits);
        *blind = *blind || process == 0;
        digest = mix(digest, atomic_load(&at->ended));
        digest = mix(digest, waits || process == 0 ? waits : time_used(process));
    }
    return digest;
}

static void say_what_is_waited_for(struct progress *p, const struct wait *wait)
{
    struct place *own = &p->place[p->rank];
    own->wait = *wait;
    atomic_store(&own->waits, true);
}

bool progress_has_ended(struct progress *p, struct vigil *v, const struct wait *wait)
{
    const int64_t now = patience_now();
    if (now < v->next) return false;
    bool blind = p->place == NULL;
    const double every = p->limit / LOOKS_IN_A_LIMIT, since = (double)(now - v->last) * 1e-9;
    const bool first = v->next == 0, second = v->last == 0;
    v->next = now + (int64_t)(every * 1e9);
    if (first) return false;                            /* most waits end before the next check */
    if (second && !blind) say_what_is_waited_for(p, wait);
    const uint64_t seen = blind ? 0 : look(p, &blind);
    if (second || seen != v->seen) v->quiet = 0;
    else v->quiet += since < 2 * every ? since : 2 * every;
    v->last = now, v->seen = seen;
    return v->quiet >= (blind && p->limit < BLIND_LIMIT ? BLIND_LIMIT : p->limit);
}

void progress_goes_on(struct progress *p, const struct vigil *v)
{
    if (v->last == 0 || p->place == NULL) return;
    struct place *own = &p->place[p->rank];
    atomic_fetch_add(&own->ended, 1);
    atomic_store(&own->waits, false);
}

/* ---- speaking ---------------------------------------------------------------------------------------------------- */

bool progress_may_speak(struct progress *p)
{
    return p->place == NULL || !atomic_exchange(&p->place[0].spoken, true);
}

static int describe(char *to, size_t size, int device, const struct wait *w)
{
    char axes[64];
    return snprintf(to, size, "device %d waits for device %d to %s: %s over %s, %s %u", device, w->device,
                    w->sending ? "receive" : "send", operation_name(w->operation),
                    axes_describe(w->axes, axes, sizeof axes), w->named ? "named" : "exchange", (unsigned)w->number);
}

/* Follow the waits from this device: the first device of the ring in which they end, or a device that does not wait. */
static int follow(const struct progress *p)
{
    int at = p->rank;
    for (int i = 0; i < p->size && atomic_load(&p->place[at].waits); i++) at = p->place[at].wait.device;
    return at;
}

enum { SHOWN = 6 };                     /* the most devices of a ring that the last line names */

static void explain_ring(const struct progress *p, int start, char *text, size_t size)
{
    size_t used = 0;
    int at = start, n = 0;
    do {
        const int length = n < SHOWN ? describe(text + used, size - used, at, &p->place[at].wait) : 0;
        used += (size_t)length;
        at = p->place[at].wait.device;
        if (n++ < SHOWN) used += (size_t)snprintf(text + used, size - used, "; ");
    } while (at != start && n < p->size);
    snprintf(text + used, size - used,
             n > SHOWN ? "and so on, %d devices in a ring" : "a ring of %d, in which none can go on", n);
}

static void explain(const struct progress *p, char *text, size_t size)
{
    const int at = follow(p);
    if (atomic_load(&p->place[at].waits)) {
        explain_ring(p, at, text, size);
        return;
    }
    const int used = describe(text, size, p->rank, &p->place[p->rank].wait);
    snprintf(text + used, size - (size_t)used, "; %sdevice %d, process %ld, does not run",
             p->place[p->rank].wait.device == at ? "" : "in the end it is ", at, atomic_load(&p->place[at].process));
}

void progress_explain(const struct progress *p, const struct wait *own)
{
    char text[2000];
    bool blind = p->place == NULL;
    if (!blind) look(p, &blind);
    for (int d = 0; d < p->size && !blind; d++) {
        if (!atomic_load(&p->place[d].waits)) continue;
        describe(text, sizeof text, d, &p->place[d].wait);
        fprintf(stderr, "%s\n", text);
    }
    if (blind) describe(text, sizeof text, p->rank, own);
    else explain(p, text, sizeof text);
    fprintf(stderr, "orrery: nothing has moved for %g s (--wait-limit): %s\n",
            blind && p->limit < BLIND_LIMIT ? BLIND_LIMIT : p->limit, text);
}
