#include "emulated_devices/device/events.h"
#include <stdlib.h>
#include <string.h>

enum { KEPT = sizeof(((struct events *)0)->ended) / sizeof(struct ended) };

static bool grow(struct event_list *l)
{
    const uint32_t room = l->room > 0 ? 2 * l->room : 64;
    struct event *more = room > l->room ? realloc(l->event, (size_t)room * sizeof *more) : NULL;
    if (more == NULL) return false;
    l->event = more, l->room = room;
    return true;
}

uint32_t events_add(struct events *e, int actor, struct event what)
{
    struct event_list *l = &e->of[actor];
    if (what.kind == EVENT_WORK && what.takes == 0) return l->count;
    if (l->count == l->room && !grow(l)) {
        e->lost = true;
        return 0;
    }
    l->event[l->count] = what;
    return l->count++;
}

void events_after(struct events *e, int actor, int other)
{
    if (actor == other || e->of[other].count == 0) return;
    events_add(e, actor, (struct event){ .kind = EVENT_AFTER, .other = (uint8_t)other, .place = e->of[other].count });
}

static const struct ended *ended_at(const struct events *e, picoseconds at)
{
    for (uint32_t i = 0; i < KEPT && i < e->jobs; i++) {
        const struct ended *j = &e->ended[(e->jobs - 1 - i) % KEPT];
        if (j->at == at) return j;
    }
    return NULL;
}

static void after_job(struct events *e, int actor, const struct ended *j)
{
    if (j->actor != actor)
        events_add(e, actor, (struct event){ .kind = EVENT_AFTER, .other = j->actor, .place = j->place });
}

void events_job(struct events *e, int stream, int engine, picoseconds from, picoseconds takes, picoseconds end)
{
    const struct ended *input = ended_at(e, from);
    if (input) after_job(e, engine, input);
    else events_after(e, engine, stream);
    events_add(e, engine, (struct event){ .kind = EVENT_WORK, .takes = takes });
    e->ended[e->jobs++ % KEPT] = (struct ended){ end, (uint8_t)engine, e->of[engine].count };
}

void events_until(struct events *e, int stream, picoseconds until)
{
    const struct ended *j = ended_at(e, until);
    if (j) after_job(e, stream, j);
}

void events_clear(struct events *e)
{
    for (int i = 0; i < EVENT_ACTORS; i++) e->of[i].count = 0;
    e->jobs = 0;
}

void events_free(struct events *e)
{
    for (int i = 0; i < EVENT_ACTORS; i++) free(e->of[i].event);
    memset(e, 0, sizeof *e);
}
