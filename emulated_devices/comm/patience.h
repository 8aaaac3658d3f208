/* patience.h -- how to wait for another process on a machine with fewer cores than processes.
 *
 * First give the core away and look again, which answers fastest while everybody is only passing messages on: the core
 * comes back within microseconds.  When it stays away for LONG_YIELD somebody computes on it, and when nothing has come
 * after YIELD_FOR somebody computes elsewhere: then sleep, a little longer each time, so that they have the cores.
 */
#ifndef ORRERY_PATIENCE_H
#define ORRERY_PATIENCE_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { YIELD_FOR = 1000 * 1000, LONG_YIELD = 100 * 1000, FIRST_SLEEP = 20 * 1000, LONGEST_SLEEP = 200 * 1000 };       /* nanoseconds */

struct patience {
    double limit;                       /* seconds in all */
    int64_t since, last, sleep;         /* nanoseconds: first and last pause, the next sleep; 0 before there is one */
};

static inline int64_t patience_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Pause once. @return false when the limit has passed. */
static inline bool patience_pause(struct patience *p)
{
    if (p->sleep == 0) {
        const int64_t now = patience_now();
        if (p->since == 0) p->since = now;
        if (p->last == 0) p->last = now;
        if (now - p->since < YIELD_FOR && now - p->last < LONG_YIELD) {
            p->last = now;
            sched_yield();
            return true;
        }
        p->sleep = FIRST_SLEEP;
    }
    nanosleep(&(struct timespec){ .tv_nsec = (long)p->sleep }, NULL);
    p->sleep = p->sleep * 3 / 2 < LONGEST_SLEEP ? p->sleep * 3 / 2 : LONGEST_SLEEP;
    return (double)(patience_now() - p->since) < p->limit * 1e9;
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
