/* own_ports.h -- when devices would be done if each message had ports of its own: what neither a clock nor a replay can
 * be below.  From their events, without a clock or a replay; for clusters of one level.  test_contention.c calls
 * these functions.  No function returns an error code. */
#ifndef TESTS_OWN_PORTS_H
#define TESTS_OWN_PORTS_H

#include "emulated_devices/device/events.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

enum { MOST_PORTED = 64, MOST_SERIAL = 256 };
struct alone { uint64_t bytes; picoseconds sent, posted; bool there[2]; };

static picoseconds larger(picoseconds a, picoseconds b) { return a > b ? a : b; }

/* When the message has left, if that is known. */
static bool has_left(const struct cluster *c, const struct alone *m, bool rendezvous, picoseconds *left)
{
    const double on_port = (double)c->link[0].gap + floor((double)m->bytes * 1e6 / (double)c->link[0].rate);
    *left = larger(m->sent, rendezvous ? m->posted : 0) + (picoseconds)on_port;
    return m->there[0] && (m->there[1] || !rendezvous);
}

/* @return whether the actor's next event could be done; then its time is in the event. */
static bool could(const struct cluster *c, struct events *e, int device, int actor, uint32_t at, picoseconds *now,
                  const uint32_t done[EVENT_ACTORS], struct alone m[][MOST_SERIAL])
{
    struct event *v = &e[device].of[actor].event[at];
    struct alone *a = NULL;
    picoseconds left = 0;
    if (v->kind == EVENT_SEND || v->kind == EVENT_SENT) a = &m[device][v->serial];
    if (v->kind == EVENT_POST || v->kind == EVENT_RECEIVE) a = &m[v->peer][v->serial];
    if (v->kind == EVENT_AFTER && done[v->other] < v->place) return false;
    if ((v->kind == EVENT_SENT || v->kind == EVENT_RECEIVE) && !has_left(c, a, v->rendezvous, &left)) return false;
    if (v->kind == EVENT_WORK) *now += v->takes;
    if (v->kind == EVENT_AFTER) *now = larger(*now, e[device].of[v->other].event[v->place - 1].at);
    if (v->kind == EVENT_SEND) a->sent = *now, a->bytes = v->bytes, a->there[0] = true;
    if (v->kind == EVENT_POST) a->posted = *now, a->there[1] = true;
    if (v->kind == EVENT_SENT) *now = larger(*now, left);
    if (v->kind == EVENT_RECEIVE) *now = larger(*now, left + c->link[0].latency);
    v->at = *now;
    return true;
}

/* The longest chain of work, messages and latencies before each device's end. */
static void with_own_ports(const struct cluster *c, struct events *e, int P, picoseconds least[])
{
    static struct alone m[MOST_PORTED][MOST_SERIAL];
    static picoseconds now[MOST_PORTED][EVENT_ACTORS];
    static uint32_t done[MOST_PORTED][EVENT_ACTORS];
    memset(m, 0, sizeof m), memset(now, 0, sizeof now), memset(done, 0, sizeof done);
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (int d = 0; d < P; d++)
            for (int a = 0; a < EVENT_ACTORS; a++)
                for (; done[d][a] < e[d].of[a].count && could(c, e, d, a, done[d][a], &now[d][a], done[d], m);
                     done[d][a]++) goes_on = true;
    }
    for (int d = 0; d < P; d++) {
        for (int a = 0; a < EVENT_ACTORS; a++) assert_int_equal(done[d][a], e[d].of[a].count);
        least[d] = now[d][COMPUTE];
    }
}

#endif
