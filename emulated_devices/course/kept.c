/* kept.c -- keeps one run of a lesson, and films it.  judge.c, trial.c and cli/course/learn.c call.  The only error is
 * ERR_MEMORY of a film. */
#define _DEFAULT_SOURCE                 /* MAP_ANONYMOUS */
#include "emulated_devices/course/kept.h"
#include "emulated_devices/draw/page/film.h"
#include "ref/io/figures.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A run with more events than this explains no more. */
enum { EVENTS_ENOUGH = 400 };

struct trial_kept *kept_open(void)
{
    void *p = mmap(NULL, sizeof(struct trial_kept), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void kept_close(struct trial_kept *kept)
{
    if (kept != NULL) munmap(kept, sizeof *kept);
}

void kept_want(struct trial_kept *kept, const struct trial_kept *like)
{
    memset(kept, 0, sizeof *kept);
    kept->exact = true;
    memcpy(kept->function, like->function, sizeof kept->function);
    memcpy(kept->label, like->label, sizeof kept->label);
}

/* How much a run explains: four devices are best, since a ring of them shows where it begins and ends. */
static int kept_worth(int devices, int events)
{
    static const int by_devices[] = { 0, 0, 6, 8, 9, 7 };
    const int few = devices < 6 ? by_devices[devices] : 1;
    return events == 0 ? 0 : 1000 * few + (events < EVENTS_ENOUGH ? events : EVENTS_ENOUGH);
}

void kept_offer(struct trial_kept *kept, const struct trial *trial, const char *said)
{
    if (kept == NULL || kept->failed) return;
    if (kept->exact) {
        /* The run that is asked for may have been kept without its failure. */
        if (strcmp(kept->function, trial->function) != 0 || strcmp(kept->label, trial->label) != 0) return;
    } else if (said == NULL && kept_worth(trial->devices, trial->events) <= (kept->any ? kept_worth(kept->devices,
                                                                                                 kept->events) : 0))
        return;
    kept->any = true, kept->failed = said != NULL;
    snprintf(kept->function, sizeof kept->function, "%s", trial->function);
    snprintf(kept->label, sizeof kept->label, "%s", trial->label);
    snprintf(kept->said, sizeof kept->said, "%s", said ? said : "");
    trial_draw(trial, kept->drawing, sizeof kept->drawing);
    kept->devices = trial->devices, kept->events = trial->events, kept->deadlock = trial->deadlock;
    memcpy(kept->event, trial->event, sizeof kept->event);
    kept->end = 0;
    for (int i = 0; i < kept->events; i++)
        if (kept->event[i].until > kept->end) kept->end = kept->event[i].until;
    for (int d = 0; d < kept->devices; d++) {
        kept->waits[d].doing = trial->device[d].doing, kept->waits[d].peer = trial->device[d].peer;
        if (trial->device[d].time > kept->end) kept->end = trial->device[d].time;
    }
}

/* ---- differences ------------------------------------------------------------------------------------------------- */

/* The nth event of a device, or -1. */
static int kept_nth(const struct trial_kept *kept, int device, int n)
{
    for (int i = 0; i < kept->events; i++)
        if (kept->event[i].device == device && n-- == 0) return i;
    return -1;
}

int kept_first_difference(const struct trial_kept *kept, const struct trial_kept *right)
{
    int first = -1;
    for (int d = 0; d < kept->devices && d < right->devices; d++)
        for (int n = 0;; n++) {
            const int i = kept_nth(kept, d, n), k = kept_nth(right, d, n);
            if (i < 0) break;
            const struct event *a = &kept->event[i], *b = k < 0 ? NULL : &right->event[k];
            if (b && a->kind == b->kind && a->peer == b->peer && a->bytes == b->bytes) continue;
            /* The earliest of all devices: what comes later may follow from it. */
            if (first < 0 || a->from < kept->event[first].from) first = i;
            break;
        }
    return first;
}

/* ---- the film ---------------------------------------------------------------------------------------------------- */

struct kept_kinds { int computes, waits, message, collective, forever, lane; };

/* "sends 400 B to device 2". */
static void kept_describe(const struct event *event, char *to, size_t size)
{
    const unsigned long long bytes = event->bytes;
    if (event->kind == EVENT_SEND) snprintf(to, size, "sends %llu B to device %d", bytes, event->peer);
    else if (event->kind == EVENT_RECEIVE) snprintf(to, size, "receives %llu B from device %d", bytes, event->peer);
    else if (event->kind == EVENT_COLLECTIVE) snprintf(to, size, "calls %s", trial_collectives[event->peer]);
    else snprintf(to, size, "computes");
}

/* A message ends with the nth receive from its sender, if this is its sender's nth to that device. */
static void film_sent(struct film *film, const struct trial_kept *kept, int index, int kind)
{
    const struct event *s = &kept->event[index];
    int before = 0;
    for (int i = 0; i < index; i++) {
        const struct event *e = &kept->event[i];
        before += e->kind == EVENT_SEND && e->device == s->device && e->peer == s->peer;
    }
    picoseconds end = -1;
    for (int i = 0; i < kept->events && end < 0; i++) {
        const struct event *e = &kept->event[i];
        if (e->kind == EVENT_RECEIVE && e->device == s->peer && e->peer == s->device && before-- == 0) end = e->until;
    }
    if (end < 0)
        film_note(film, "device %d has sent %llu B to device %d at %s, and device %d has not received them", s->device,
                  (unsigned long long)s->bytes, s->peer, picoseconds_exact(s->from).text, s->peer);
    film_message(film, (struct film_message){ .from = s->device, .to = s->peer, .kind = kind, .start = s->from,
                                              .end = end < s->from ? kept->end : end, .bytes = (int64_t)s->bytes });
}

/* Film an event as a pass of its device.  A send takes a device no time. */
static void kept_film_event(struct film *film, const struct trial_kept *kept, int index, const struct kept_kinds *kinds)
{
    const struct event *e = &kept->event[index];
    char text[120];
    if (e->kind == EVENT_SEND) film_sent(film, kept, index, kinds->message);
    if (e->until <= e->from) return;
    kept_describe(e, text, sizeof text);
    const int kind = e->kind == EVENT_COMPUTE ? kinds->computes : e->kind == EVENT_COLLECTIVE ? kinds->collective
        : kinds->waits;
    film_pass(film, (struct film_pass){ .device = e->device, .lane = kinds->lane, .kind = kind, .start = e->from,
                                        .end = e->until, .micro = -1, .layer = -2,
                                        .detail = film_detail_same(film, film_detail(film, text)) });
}

/* Devices of a deadlock wait until the film's end, which is later than their last event. */
static void film_deadlock(struct film *film, const struct trial_kept *kept, const struct kept_kinds *kinds)
{
    const picoseconds until = kept->end + kept->end / 8 + 1;
    for (int d = 0; d < kept->devices; d++) {
        const int doing = kept->waits[d].doing;
        char text[120];
        if (doing == HAS_RETURNED || doing == NOT_WAITING) continue;
        if (doing == WAITS_IN_COLLECTIVE) snprintf(text, sizeof text, "waits for the others for ever");
        else
            snprintf(text, sizeof text, "waits for device %d for ever, to %s", kept->waits[d].peer,
                     doing == WAITS_TO_SEND ? "send" : "receive");
        picoseconds from = 0;
        for (int i = 0; i < kept->events; i++)
            if (kept->event[i].device == d && kept->event[i].until > from) from = kept->event[i].until;
        film_pass(film, (struct film_pass){ .device = d, .lane = kinds->lane, .kind = kinds->forever, .start = from,
                                            .end = until, .micro = -1, .layer = -2,
                                            .detail = film_detail(film, text) });
    }
}

/* Say why a run failed, at the device that the judge names, and its first event that a right run has not. */
static void film_failure(struct film *film, const struct trial_kept *kept, const struct trial_kept *right)
{
    char first[200] = "", what[120];
    const char *named = strstr(kept->said, "device "), *behind = strstr(kept->said, ": ");
    int device = -1;
    /* "ring_scatter with 3 devices, n = 7: device 1: .." */
    if (behind && (named = strstr(behind, "device ")) != NULL) device = atoi(named + strlen("device "));
    if (device < 0 || device >= kept->devices) device = -1;
    const int i = right ? kept_first_difference(kept, right) : -1;
    if (i >= 0) {
        kept_describe(&kept->event[i], what, sizeof what);
        snprintf(first, sizeof first, "device %d %s at %s", kept->event[i].device, what,
                 picoseconds_exact(kept->event[i].from).text);
        film_note(film, "The first event that a right run does not have: %s", first);
    } else if (right) film_note(film, "Each device sends and receives what a right run has: look at what is in them.");
    film_check(film, (struct film_check){ .tensor = kept->function, .device = device, .holds = false, .error = NAN,
                                          .bound = NAN, .evidence = first[0] ? first : NULL,
                                          .diagnosis = kept->said });
    film_note(film, "%s", kept->said);
}

enum error_code kept_film(struct film *film, const struct trial_kept *kept, const char *whose,
                          const struct trial_kept *right, struct error *err)
{
    char title[300];
    snprintf(title, sizeof title, "%s | %s with %s", whose, kept->function, kept->label);
    film_open(film, "lesson", "ps", title);
    film_ring(film, kept->devices);
    const struct kept_kinds kinds = {
        .computes = film_kind(film, "computes", "c", FILM_COMPUTE), .waits = film_kind(film, "waits", "", FILM_WAIT),
        .message = film_kind(film, "message", "", FILM_MESSAGE),
        .collective = film_kind(film, "collective", "", FILM_MESSAGE),
        .forever = film_kind(film, "waits for ever", "?", FILM_WAIT), .lane = film_lane(film, "device"),
    };
    film_end(film, kept->end);
    for (int i = 0; i < kept->events; i++) kept_film_event(film, kept, i, &kinds);
    if (kept->events == RUN_EVENTS) film_note(film, "events after the first %d are left out", RUN_EVENTS);
    if (kept->deadlock) film_deadlock(film, kept, &kinds);
    if (kept->failed) film_failure(film, kept, right);
    return film->failed ? fail(err, ERR_MEMORY, "no memory for the film of a run") : OK;
}
