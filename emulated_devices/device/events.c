/* events.c -- lists of what a device's streams and engines do, for a replay in contention.c.
 *
 * clock.c adds events; orrery train, search/ and calibrate keep and free the lists.  Without memory `lost` is set,
 * and a replay refuses the lists.
 */
#include "emulated_devices/device/events.h"
#include <stdlib.h>
#include <string.h>

enum { KEPT = sizeof(((struct events *)0)->ended) / sizeof(struct ended) };

/* The lists of all devices may share a limit, `left`, counted in events. */
static bool events_grow(struct event_list *list, int64_t *left)
{
    const uint32_t room = list->room > 0 ? 2 * list->room : 64;
    /* `left` is the room that all lists together may still take. */
    if (left && *left < room - list->room) return false;
    struct event *more = room > list->room ? realloc(list->event, (size_t)room * sizeof *more) : NULL;
    if (more == NULL) return false;
    if (left) *left -= room - list->room;
    list->event = more, list->room = room;
    return true;
}

/* A list with a gap says nothing: its memory is given back, and the other lists get no more. */
static void events_lose(struct events *events)
{
    for (int i = 0; i < EVENT_ACTORS; i++) free(events->of[i].event), events->of[i] = (struct event_list){ 0 };
    events->lost = true;
    if (events->left) *events->left = 0;
}

uint32_t events_add(struct events *events, int actor, struct event what)
{
    struct event_list *l = &events->of[actor];
    /* Work that takes no time is no event: its place is that of the next event. */
    if (what.kind == EVENT_WORK && what.takes == 0) return l->count;
    if (!events->lost && l->count == l->room && !events_grow(l, events->left)) events_lose(events);
    if (events->lost) return 0;
    l->event[l->count] = what;
    return l->count++;
}

/* The actor goes on only after all that the other one has done so far. */
void events_after(struct events *events, int actor, int other, picoseconds at)
{
    if (actor == other || events->of[other].count == 0) return;
    events_add(events, actor,
               (struct event){ .kind = EVENT_AFTER, .other = (uint8_t)other,
                              .place = events->of[other].count, .at = at });
}

/* The last few jobs are remembered, because whoever waits for a job knows only its end. */
static const struct ended *ended_at(const struct events *events, picoseconds at)
{
    for (uint32_t i = 0; i < KEPT && i < events->jobs; i++) {
        const struct ended *j = &events->ended[(events->jobs - 1 - i) % KEPT];
        if (j->at == at) return j;
    }
    return NULL;
}

/* An engine that waits for its own job needs no event, since it works in order. */
static void after_job(struct events *events, int actor, const struct ended *ended, picoseconds at)
{
    if (ended->actor != actor)
        events_add(events, actor, (struct event){ .kind = EVENT_AFTER, .other = ended->actor,
                                                 .place = ended->place, .at = at });
}

void events_job(struct events *events, int stream, int engine, const char *what, picoseconds from, picoseconds takes,
                picoseconds end)
{
    const struct ended *input = ended_at(events, from);
    /* A job begins after the job that made its input, or else after what its stream has done so far. */
    if (input) after_job(events, engine, input, end - takes);
    else events_after(events, engine, stream, end - takes);
    events_add(events, engine, (struct event){ .kind = EVENT_WORK, .what = what, .takes = takes, .at = end });
    events->ended[events->jobs++ % KEPT] = (struct ended){ end, (uint8_t)engine, events->of[engine].count };
}

/* How many events an actor had done at this time of the clock, if one of them ended then; else 0. */
static uint32_t done_at(const struct event_list *list, picoseconds at)
{
    uint32_t first = 0, end = list->count;
    while (first < end) {
        const uint32_t middle = first + (end - first) / 2;
        if (list->event[middle].at <= at) first = middle + 1;
        else end = middle;
    }
    return first > 0 && list->event[first - 1].at == at ? first : 0;
}

/* A wait until a time is a wait for the job or event that ended then.  Without one, nothing is noted. */
void events_until(struct events *events, int stream, picoseconds now, picoseconds until)
{
    const struct ended *j = ended_at(events, until);
    if (j) after_job(events, stream, j, until > now ? until : now);
    for (int a = 0; a < EVENT_ACTORS && !j && until > now; a++) {
        const uint32_t place = a != stream ? done_at(&events->of[a], until) : 0;
        if (place == 0) continue;
        events_add(events, stream, (struct event){ .kind = EVENT_AFTER, .other = (uint8_t)a, .place = place,
                                                  .at = until });
        return;
    }
}

void events_clear(struct events *events)
{
    for (int i = 0; i < EVENT_ACTORS; i++) events->of[i].count = 0;
    events->jobs = 0;
}

void events_free(struct events *events)
{
    for (int i = 0; i < EVENT_ACTORS; i++) free(events->of[i].event);
    *events = (struct events){ .left = events->left };
}
