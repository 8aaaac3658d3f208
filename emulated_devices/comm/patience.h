/* patience.h -- how a process waits for another one on a machine with fewer cores than processes.
 *
 * First it yields its core and looks again.  This answers fastest while all processes only pass messages on: the core
 * comes back within microseconds.  If one yield takes LONG_YIELD, another process computes on this core.  If nothing
 * has arrived after the time for yielding, another process computes on another core.  In both cases it sleeps, so that
 * the cores are free, until its bell rings.  Without a bell the sleeps are short and grow.  A sleep with a bell has a
 * limit too, because some events ring no bell.
 *
 * Where devices have to share cores, it sleeps after a yield or two, and the longer the more devices share a core.
 * Launchers give each process a session, and Linux schedules a session as a group (sched(7), "The autogroup feature"):
 * a yield passes the core on only within the group, so the device that is waited for does not get it.
 *
 *   for (;;) {
 *       patience_listen(&p);
 *       if (it is there) break;
 *       patience_pause(&p);
 *   }
 *
 * Files of comm/ call these functions.  No function returns an error code.
 */
#ifndef ORRERY_PATIENCE_H
#define ORRERY_PATIENCE_H

#include "emulated_devices/comm/bell.h"
#include "ref/machine/cores.h"
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds: of yielding at most, of one yield at most, of the first and the longest sleep. */
struct tempo { int64_t yielding, yield, first, longest; };
static const struct tempo tempo_alone = { 1000 * 1000, 100 * 1000, 20 * 1000, 200 * 1000 };
static const struct tempo tempo_with_bell = { 200 * 1000, 100 * 1000, 200 * 1000, 1000 * 1000 };
static const struct tempo tempo_crowded = { 5 * 1000, 100 * 1000, 200 * 1000, 1000 * 1000 };

struct patience {
    const struct bells *bells;          /* NULL: there are none */
    int64_t since, last, sleep;         /* nanoseconds: first and last pause, the next sleep; 0 before there is one */
    int rings;                          /* that end a sleep; 0: one */
    int crowd;                          /* devices on a core, where there are no bells; 0: each has a core */
};

static inline int64_t patience_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Call this before each look: rings from now on end the sleep that may follow. */
static inline void patience_listen(const struct patience *patience)
{
    if (patience->bells != NULL && patience->sleep > 0)
        bells_listen(patience->bells, patience->rings > 0 ? patience->rings : 1);
}

/* Yield the core.  @return false: it is time to sleep instead. */
static inline bool patience_yield(struct patience *patience, const struct tempo *tempo)
{
    const int64_t now = patience_now();
    if (patience->since == 0) patience->since = patience->last = now;
    if (now - patience->since >= tempo->yielding || now - patience->last >= tempo->yield) return false;
    patience->last = now;
    sched_yield();
    return true;
}

/* Without a bell sleeps begin short; with a bell they may be long; crowded devices hardly yield. */
static inline const struct tempo *patience_tempo(const struct patience *patience)
{
    if (patience->bells == NULL) return &tempo_alone;
    return patience->bells->crowd > 1 ? &tempo_crowded : &tempo_with_bell;
}

/* Pause once: yield at first, later sleep.  Each sleep is half as long again as the last one, up to the longest. */
static inline void patience_pause(struct patience *patience)
{
    const struct tempo *tempo = patience_tempo(patience);
    if (patience->sleep == 0) {
        /* not before one more look, with an ear for the bell */
        if (!patience_yield(patience, tempo)) patience->sleep = tempo->first;
        return;
    }
    if (patience->bells != NULL) bells_wait(patience->bells, patience->sleep);
    else nanosleep(&(struct timespec){ .tv_nsec = (long)patience->sleep }, NULL);
    const int crowd = patience->bells != NULL ? patience->bells->crowd : patience->crowd;
    const int64_t longest = tempo->longest * (crowd > 1 ? crowd : 1);
    patience->sleep = patience->sleep * 3 / 2 < longest ? patience->sleep * 3 / 2 : longest;
}

/* A ring of letters that has room again rings no bell: who waits for that room looks again soon. */
static inline void patience_hurry(struct patience *patience)
{
    if (patience->sleep > tempo_crowded.first) patience->sleep = tempo_crowded.first;
}

/* Test a request and pause until it is complete.  @return false: MPI reports an error. */
static inline bool patience_test(MPI_Request *request, struct patience patience)
{
    for (int done = 0; MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS; patience_pause(&patience))
        if (done) return true;
    return false;
}

/* Wait for a collective of MPI, without a limit.  MPI's blocking calls would spin: devices that have arrived would take
 * the cores of those that have not.  @return whether it succeeded. */
static inline bool patience_settle(MPI_Request *request)
{
    return patience_test(request, (struct patience){ .bells = NULL });
}

/* This wait is asleep from the first look on: where devices start, most of them wait for a device that has had no
 * core yet.  The more devices there are for each core, the longer each sleeps: looks take the cores from those that
 * start. */
static inline bool patience_meet(MPI_Request *request)
{
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int cores = cores_usable(), crowd = (size + cores - 1) / cores;
    return patience_test(request, (struct patience){ .sleep = tempo_alone.first * crowd, .crowd = crowd });
}

/* Sleep for a pseudo-random time of at most `most` nanoseconds (xorshift64). */
static inline void patience_delay(uint64_t most, uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    const uint64_t ns = *state % (most + 1);
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) }, NULL);
}

#endif
