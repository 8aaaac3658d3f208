/* progress.c -- keeps what each device waits for in shared memory, and finds and describes deadlocks.  transport.c
 * calls while a device waits.  Without shared memory a device judges by itself, with a longer limit.  No function
 * returns an error code. */
#include "emulated_devices/comm/progress.h"
#include "emulated_devices/comm/patience.h"
#include "emulated_devices/comm/shared.h"
#include "ref/machine/system.h"
#include <stdatomic.h>
#include <stdio.h>
#include <signal.h>
#include <unistd.h>

/* Each device has a line of the shared memory, which that device alone writes. */
struct place {
    _Alignas(128) atomic_long process;  /* 0: this device has no such memory */
    atomic_uint ended;                  /* number of finished waits */
    atomic_bool waits;                  /* whether `wait` is valid */
    atomic_bool spoken;                 /* the report was made; all devices use device 0's */
    struct waiting wait;
};

enum { LOOKS_IN_A_LIMIT = 10 };

static size_t bytes(const struct progress *progress) { return sizeof *progress->place * (size_t)progress->size; }

void progress_open(struct progress *progress, MPI_Comm comm, double limit)
{
    *progress = (struct progress){ .limit = limit };
    MPI_Comm_rank(comm, &progress->rank);
    MPI_Comm_size(comm, &progress->size);
    if (progress->size > 1) progress->place = shared_open(comm, bytes(progress));
    if (progress->place != NULL) atomic_store(&progress->place[progress->rank].process, (long)getpid());
}

void progress_close(struct progress *progress)
{
    shared_close(progress->place, bytes(progress));
    progress->place = NULL;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

/* The result is the CPU time of a process on all cores.  If the system does not report it, the process counts as
 * computing. */
static uint64_t time_used(long process)
{
    uint64_t time;
    if (system_processor_time(process, &time)) return time;
    return kill((pid_t)process, 0) == 0 ? (uint64_t)patience_now() : 0;
}

static uint64_t progress_mix(uint64_t digest, uint64_t x) { return (digest ^ x) * 0x100000001b3u; }

/* The result is a number that changes while there is any progress.  @param[out] blind whether a device cannot be
 * observed. */
static uint64_t progress_look(const struct progress *progress, bool *blind)
{
    uint64_t digest = 0xcbf29ce484222325u;
    for (int d = 0; d < progress->size; d++) {
        struct place *at = &progress->place[d];
        const long process = atomic_load(&at->process);
        const bool waits = atomic_load(&at->waits);
        *blind = *blind || process == 0;
        digest = progress_mix(digest, atomic_load(&at->ended));
        digest = progress_mix(digest, waits || process == 0 ? waits : time_used(process));
    }
    return digest;
}

/* The words come first, then the flag that they are valid: others read only then. */
static void say_what_is_waited_for(struct progress *progress, const struct waiting *wait)
{
    struct place *own = &progress->place[progress->rank];
    own->wait = *wait;
    atomic_store(&own->waits, true);
}

bool progress_has_ended(struct progress *progress, struct vigil *vigil, const struct waiting *wait)
{
    const int64_t now = patience_now();
    if (now < vigil->next) return false;
    bool blind = progress->place == NULL;
    const double every = progress->limit / LOOKS_IN_A_LIMIT, since = (double)(now - vigil->last) * 1e-9;
    const bool first = vigil->next == 0, second = vigil->last == 0;
    vigil->next = now + (int64_t)(every * 1e9);
    if (first) return false;                            /* most waits end before the next check */
    /* A wait that lasts for two looks is written down, shorter waits are not. */
    if (second && !blind) say_what_is_waited_for(progress, wait);
    const uint64_t seen = blind ? 0 : progress_look(progress, &blind);
    if (second || seen != vigil->seen) vigil->quiet = 0;
    else vigil->quiet += since < 2 * every ? since : 2 * every;
    vigil->last = now, vigil->seen = seen;
    return vigil->quiet >= (blind && progress->limit < BLIND_LIMIT ? BLIND_LIMIT : progress->limit);
}

void progress_goes_on(struct progress *progress, const struct vigil *vigil)
{
    if (vigil->last == 0 || progress->place == NULL) return;
    struct place *own = &progress->place[progress->rank];
    atomic_fetch_add(&own->ended, 1);
    atomic_store(&own->waits, false);
}

/* ---- speaking ---------------------------------------------------------------------------------------------------- */

bool progress_may_speak(struct progress *progress)
{
    return progress->place == NULL || !atomic_exchange(&progress->place[0].spoken, true);
}

static int progress_describe(char *to, size_t size, int device, const struct waiting *wait)
{
    char axes[64];
    return snprintf(to, size, "device %d waits for device %d to %s: %s over %s, %s %u", device, wait->device,
                    wait->sending ? "receive" : "send", operation_name(wait->operation),
                    axes_describe(wait->axes, axes, sizeof axes), wait->named ? "named" : "exchange",
                    (unsigned)wait->number);
}

/* Follow the waits from this device: the first device of the ring in which they end, or a device that does not wait. */
static int progress_follow(const struct progress *progress)
{
    int at = progress->rank;
    for (int i = 0; i < progress->size && atomic_load(&progress->place[at].waits); i++)
        at = progress->place[at].wait.device;
    return at;
}

enum { SHOWN = 6 };                     /* the most devices of a ring that the last line names */

/* Describe the ring of waits that begins at `start`; at most SHOWN devices are named. */
static void explain_ring(const struct progress *progress, int start, char *text, size_t size)
{
    size_t used = 0;
    int at = start, n = 0;
    do {
        const int length = n < SHOWN ? progress_describe(text + used, size - used, at, &progress->place[at].wait) : 0;
        used += (size_t)length;
        at = progress->place[at].wait.device;
        if (n++ < SHOWN) used += (size_t)snprintf(text + used, size - used, "; ");
    } while (at != start && n < progress->size);
    snprintf(text + used, size - used,
             n > SHOWN ? "and so on, %d devices in a ring" : "a ring of %d, in which none can go on", n);
}

/* Describe why nothing moves: a ring of waits, or a device that does not run. */
static void explain(const struct progress *progress, char *text, size_t size)
{
    const int at = progress_follow(progress);
    if (atomic_load(&progress->place[at].waits)) {
        explain_ring(progress, at, text, size);
        return;
    }
    const int used = progress_describe(text, size, progress->rank, &progress->place[progress->rank].wait);
    snprintf(text + used, size - (size_t)used, "; %sdevice %d, process %ld, does not run",
             progress->place[progress->rank].wait.device == at ? "" : "in the end it is ", at,
             atomic_load(&progress->place[at].process));
}

void progress_explain(const struct progress *progress, const struct waiting *own)
{
    char text[2000];
    bool blind = progress->place == NULL;
    if (!blind) progress_look(progress, &blind);
    for (int d = 0; d < progress->size && !blind; d++) {
        if (!atomic_load(&progress->place[d].waits)) continue;
        progress_describe(text, sizeof text, d, &progress->place[d].wait);
        fprintf(stderr, "%s\n", text);
    }
    if (blind) progress_describe(text, sizeof text, progress->rank, own);
    else explain(progress, text, sizeof text);
    fprintf(stderr, "orrery: nothing has moved for %g s (--wait-limit): %s\n",
            blind && progress->limit < BLIND_LIMIT ? BLIND_LIMIT : progress->limit, text);
}
