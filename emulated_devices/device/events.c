#include "emulated_devices/device/events.h"
#include <stdlib.h>
#include <string.h>

enum { KEPT = sizeof(((struct events *)0)->ended) / sizeof(struct ended) };

static bool grow(struct event_list *l, int64_t *left)
{
    const uint32_t room = l->room > 0 ? 2 * l->room : 64;
    /* `left` is the room that all lists together may still take. */
    if (left && *left < room - l->room) return false;
    struct event *more = room > l->room ? realloc(l->event, (size_t)room * sizeof *more) : NULL;
    if (more == NULL) return false;
    if (left) *left -= room - l->room;
    l->event = more, l->room = room;
    return true;
}

uint32_t events_add(struct events *e, int actor, struct event what)
{
    struct event_list *l = &e->of[actor];
    /* Work that takes no time is no event: its place is that of the next event. */
    if (what.kind == EVENT_WORK && what.takes == 0) return l->count;
    if (e->lost || (l->count == l->room && !grow(l, e->left))) {
        e->lost = true;
        return 0;
    }
    l->event[l->count] = what;
    return l->count++;
}

void events_after(struct events *e, int actor, int other, picoseconds at)
{
    if (actor == other || e->of[other].count == 0) return;
    events_add(e, actor,
               (struct event){ .kind = EVENT_AFTER, .other = (uint8_t)other, .place = e->of[other].count, .at = at });
}

static const struct ended *ended_at(const struct events *e, picoseconds at)
{
    for (uint32_t i = 0; i < KEPT && i < e->jobs; i++) {
        const struct ended *j = &e->ended[(e->jobs - 1 - i) % KEPT];
        if (j->at == at) return j;
    }
    return NULL;
}

static void after_job(struct events *e, int actor, const struct ended *j, picoseconds at)
{
    if (j->actor != actor)
        events_add(e, actor, (struct event){ .kind = EVENT_AFTER, .other = j->actor, .place = j->place, .at = at });
}

void events_job(struct events *e, int stream, int engine, const char *what, picoseconds from, picoseconds takes,
                picoseconds end)
{
    const struct ended *input = ended_at(e, from);
    /* A job begins after the job that made its input, or else after what its stream has done so far. */
    if (input) after_job(e, engine, input, end - takes);
    else events_after(e, engine, stream, end - takes);
    events_add(e, engine, (struct event){ .kind = EVENT_WORK, .what = what, .takes = takes, .at = end });
    e->ended[e->jobs++ % KEPT] = (struct ended){ end, (uint8_t)engine, e->of[engine].count };
}

/* How many events an actor had done at this time of the clock, if one of them ended then; else 0. */
static uint32_t done_at(const struct event_list *l, picoseconds at)
{
    uint32_t first = 0, end = l->count;
    while (first < end) {
        const uint32_t middle = first + (end - first) / 2;
        if (l->event[middle].at <= at) first = middle + 1;
        else end = middle;
    }
    return first > 0 && l->event[first - 1].at == at ? first : 0;
}

void events_until(struct events *e, int stream, picoseconds now, picoseconds until)
{
    const struct ended *j = ended_at(e, until);
    if (j) after_job(e, stream, j, until > now ? until : now);
    for (int a = 0; a < EVENT_ACTORS && !j && until > now; a++) {
        const uint32_t place = a != stream ? done_at(&e->of[a], until) : 0;
        if (place == 0) continue;
        events_add(e, stream, (struct event){ .kind = EVENT_AFTER, .other = (uint8_t)a, .place = place, .at = until });
        return;
    }
}

void events_clear(struct events *e)
{
    for (int i = 0; i < EVENT_ACTORS; i++) e->of[i].count = 0;
    e->jobs = 0;
}

void events_free(struct events *e)
{
    for (int i = 0; i < EVENT_ACTORS; i++) free(e->of[i].event);
    *e = (struct events){ .left = e->left };
}
