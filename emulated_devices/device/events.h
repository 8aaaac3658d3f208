/* events.h -- what a device's clock was told, in order: the list from which a run is replayed on shared links.
 *
 * A clock knows only its own device, so it cannot know that messages of other devices are on the same cable.  With a
 * list of events of all devices, contention.h runs the same step again, in order of time.
 *
 * Every stream and engine is an actor with events of its own.  Where one begins with, or waits for, what another has
 * done, the event names a place in the other's list.
 *
 * clock.c writes the lists; cli/train/, search/ and cli/calibrate/ own them and hand them to contention_replay.  No
 * function returns an error code.
 */
#ifndef ORRERY_EVENTS_H
#define ORRERY_EVENTS_H

#include "emulated_devices/device/cluster.h"
#include <stdbool.h>

enum event_kind {
    EVENT_WORK,                         /* busy for `takes` */
    EVENT_SHARED,                       /* by the clock, its ports moved other streams' messages for `takes`; a replay
                                         * shares links by itself */
    EVENT_AFTER,                        /* not before the actor `other` has done its first `place` events */
    EVENT_SEND,                         /* the message `serial` of `bytes` to `peer` */
    EVENT_SENT,                         /* rendezvous: its last byte has left */
    EVENT_POST,                         /* its receive is posted: of message `serial` of `peer`; UINT32_MAX: until it
                                         * has arrived */
    EVENT_RECEIVE,                      /* it has arrived; `other` and `place` are those of its posting */
    EVENT_MEET,                         /* not before `place` devices have come, all before message `serial` of `peer`;
                                         * `other` 1: after it */
};

struct event {
    uint8_t kind, other;                /* other: a stream or engine of this device */
    uint8_t label;                      /* of a message: the clock's label */
    bool rendezvous;                    /* the message waits for its receiver */
    int peer;                           /* rank of the other side of a message */
    uint32_t serial, place;             /* number of the message among its sender's; length of the other actor's list
                                         * that this event waits for */
    union { uint64_t bytes; const char *what; };        /* of a message; the name of work */
    picoseconds takes;                  /* EVENT_WORK: how long the actor is busy */
    picoseconds at;                     /* the actor's time after it: by the clock, or by a replay */
};

enum { EVENT_ACTORS = 11 };             /* at least the streams and engines of a clock */

/* Events of one actor in its own order. */
struct event_list { struct event *event; uint32_t count, room; };

struct events {
    struct event_list of[EVENT_ACTORS]; /* a list for each stream and engine */
    bool lost;                          /* one was left out: no memory, or none left */
    int64_t *left;                      /* how many more the lists of all devices may have room for; NULL: no limit */
    /* When the last jobs of engines end, by the clock: a later job begins `from` such a time. */
    struct ended { picoseconds at; uint8_t actor; uint32_t place; } ended[64];
    uint32_t jobs;                      /**< Jobs that have ended, in all. */
};

/** Add an event to an actor's list.  @return its place. */
uint32_t events_add(struct events *, int actor, struct event);

/** The actor waits for all that the other one has been given so far, until a time of the clock. */
void events_after(struct events *, int actor, int other, picoseconds at);

/** A job of an engine, which the current stream gives it and which begins at the time `from` of the clock, the end of
 *  an earlier job or now.  @param end  when it is done, by the clock. */
void events_job(struct events *, int stream, int engine, const char *what, picoseconds from, picoseconds takes,
                picoseconds end);

/** The stream, at the time `now` of the clock, waits until another, at which a job, or what another stream did,
 *  was done. */
void events_until(struct events *, int stream, picoseconds now, picoseconds until);

/** Forget everything: the clock begins again. */
void events_clear(struct events *);
void events_free(struct events *);

#endif
