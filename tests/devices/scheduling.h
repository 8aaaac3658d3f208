/* scheduling.h -- a schedule that is made, proven and timed, for the tests of schedules.  test_schedule.c,
 * test_schedule_claims.c and test_schedule_faults.c call these functions. */
#ifndef TESTS_SCHEDULING_H
#define TESTS_SCHEDULING_H

#include "emulated_devices/schemes/pipeline/timing.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct times { int64_t f, i, w; };

static inline int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

/* A schedule made and proven, or the test fails with its error. */
static inline struct schedule made(const char *name, struct schedule_request q)
{
    struct schedule s;
    struct error err;
    if (schedule_make(&s, name, &q, &err) != OK)
        fail_msg("%s P=%d M=%d v=%d: %s", name, q.devices, q.micros, q.chunks, err.text);
    if (schedule_validate(&s, &err) != OK)
        fail_msg("%s P=%d M=%d v=%d: %s", name, q.devices, q.micros, q.chunks, err.text);
    return s;
}

static inline struct timing timed(const struct schedule *s, struct times t, int64_t communication)
{
    struct error err;
    struct timing out;
    int64_t *room = malloc(3 * (size_t)s->stages * sizeof *room);
    assert_non_null(room);
    const struct schedule_times times = uniform_times(s->stages, t.f, t.i, t.w, communication, room);
    if (schedule_time(&out, s, &times, &err) != OK) fail_msg("%s: %s", s->name, err.text);
    free(room);
    return out;
}

static inline int64_t idle_of(const struct timing *t)
{
    int64_t most = 0;
    for (int d = 0; d < t->devices; d++) most = largest(most, t->busy[d]);
    return t->span - most;
}

#endif
