/* patience.h -- how to wait for another process on a machine with fewer cores than processes.
 *
 * First give the core away and look again, which answers fastest while everybody is only passing messages on: the core
 * comes back within microseconds.  When it stays away for LONG_YIELD somebody computes on it, and when nothing has come
 * after the time for yielding somebody computes elsewhere: then sleep, so that they have the cores, until the bell
 * rings; without a bell for a short time, a little longer each time.  With one, too, each sleep has an end, for what
 * nobody rings about.
 *
 *   for (;;) {
 *       patience_listen(&p);
 *       if (it is there) break;
 *       patience_pause(&p);
 *   }
 */
#ifndef ORRERY_PATIENCE_H
#define ORRERY_PATIENCE_H

#include "emulated_devices/comm/bell.h"
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds: of yielding at most, of one yield at most, of the first and the longest sleep. */
struct tempo { int64_t yielding, yield, first, longest; };
static const struct tempo tempo_alone = { 1000 * 1000, 100 * 1000, 20 * 1000, 200 * 1000 };
static const struct tempo tempo_with_bell = { 200 * 1000, 100 * 1000, 200 * 1000, 1000 * 1000 };

struct patience {
    const struct bells *bells;          /* NULL: nobody rings */
    int64_t since, last, sleep;         /* nanoseconds: first and last pause, the next sleep; 0 before there is one */
};

static inline int64_t patience_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Before each look: from here on a ring ends the sleep that may follow. */
static inline void patience_listen(const struct patience *p)
{
    if (p->bells != NULL && p->sleep > 0) bells_listen(p->bells);
}

/* Yield, while that is the way. */
static inline bool patience_yield(struct patience *p, const struct tempo *tempo)
{
    const int64_t now = patience_now();
    if (p->since == 0) p->since = p->last = now;
    if (now - p->since >= tempo->yielding || now - p->last >= tempo->yield) return false;
    p->last = now;
    sched_yield();
    return true;
}

/* Pause once. */
static inline void patience_pause(struct patience *p)
{
    const struct tempo *tempo = p->bells != NULL ? &tempo_with_bell : &tempo_alone;
    if (p->sleep == 0) {
        /* not before one more look, with an ear for the bell */
        if (!patience_yield(p, tempo)) p->sleep = tempo->first;
        return;
    }
    if (p->bells != NULL) bells_wait(p->bells, p->sleep);
    else nanosleep(&(struct timespec){ .tv_nsec = (long)p->sleep }, NULL);
    p->sleep = p->sleep * 3 / 2 < tempo->longest ? p->sleep * 3 / 2 : tempo->longest;
}

/* Wait for what MPI itself does between all devices, however long.  Its own calls for that block: those who have come
 * keep the cores from those who have not. @return whether it went well. */
static inline bool patience_settle(MPI_Request *request)
{
    struct patience p = { .bells = NULL };
    for (int done = 0; MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS; patience_pause(&p))
        if (done) return true;
    return false;
}

/* Sleep for a pseudo-random time up to so many nanoseconds (xorshift64). */
static inline void patience_delay(uint64_t most, uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    const uint64_t ns = *state % (most + 1);
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) }, NULL);
}

#endif
