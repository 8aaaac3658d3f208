/* draw.c -- what the devices of a run did, as text: a column for each device, a line for each time.
 * trial.c draws the run that failed, for the student.  At most 5 devices and 24 lines are shown; what does not fit is
 * counted at the end. */
#include "emulated_devices/course/trial.h"
#include "ref/io/figures.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWN_DEVICES = 5, DRAWN_LINES = 24, COLUMN = 17, LINE = 128 };

/* A receive is shown when it ends, everything else when it begins. */
static picoseconds shown_at(const struct event *event)
{
    return event->kind == EVENT_RECEIVE ? event->until : event->from;
}

/* Events of one time stand in order of devices. */
static int draw_by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    const picoseconds s = shown_at(x), t = shown_at(y);
    if (s != t) return s < t ? -1 : 1;
    return x->device - y->device;
}

/* The words of an event, as the student calls it. */
static void name_event(const struct event *event, char *to, size_t size)
{
    const unsigned long long bytes = event->bytes;
    if (event->kind == EVENT_SEND) snprintf(to, size, "-> %d  %llu B", event->peer, bytes);
    else if (event->kind == EVENT_RECEIVE) snprintf(to, size, "<- %d  %llu B", event->peer, bytes);
    else if (event->kind == EVENT_COLLECTIVE) snprintf(to, size, "%s", trial_collectives[event->peer]);
    else snprintf(to, size, "computes");
}

/* This appends to the drawing; a text that does not fit is cut. */
static void put_text(char *to, size_t size, size_t *used, const char *text)
{
    const int n = snprintf(to + *used, size - *used, "%s", text);
    *used += n > 0 ? (size_t)n : 0;
    if (*used >= size) *used = size - 1;
}

/* Draw one line: what happens at this time, at most one event for each device.  Events that are shown are marked. */
static void draw_line(const struct event *event, bool *shown, int events, int devices, picoseconds at,
                      const struct figure_scale *scale, char *line)
{
    memset(line, ' ', LINE - 1);
    line[LINE - 1] = 0;
    char text[40];
    int n = snprintf(text, sizeof text, "%11s", scale_format(scale, 1e-12 * (double)at).text);
    memcpy(line, text, (size_t)n);
    for (int d = 0; d < devices; d++)
        for (int i = 0; i < events; i++) {
            if (shown[i] || event[i].device != d || shown_at(&event[i]) != at) continue;
            name_event(&event[i], text, sizeof text);
            n = (int)strlen(text);
            memcpy(line + 13 + d * COLUMN, text, (size_t)(n < COLUMN - 1 ? n : COLUMN - 1));
            shown[i] = true;
            break;
        }
    for (n = LINE - 2; n > 0 && line[n] == ' '; n--) continue;
    line[n + 1] = '\n', line[n + 2] = 0;
}

/* Draw what the devices of a deadlock wait for; no event tells this. */
static void draw_waiting(const struct trial *trial, int devices, char *line)
{
    memset(line, ' ', LINE - 1);
    memcpy(line, "   deadlock", 11);
    for (int d = 0; d < devices; d++) {
        const struct trial_device *v = &trial->device[d];
        struct event e = { .kind = EVENT_COMPUTE, .peer = v->peer, .bytes = v->waits_bytes };
        char text[40] = "has returned";
        if (v->doing == WAITS_TO_SEND) e.kind = EVENT_SEND;
        if (v->doing == WAITS_TO_RECEIVE) e.kind = EVENT_RECEIVE;
        if (v->doing == WAITS_IN_COLLECTIVE) e.kind = EVENT_COLLECTIVE;
        if (v->doing != HAS_RETURNED) name_event(&e, text, sizeof text - 2);
        if (v->doing != HAS_RETURNED && v->doing != NOT_WAITING) strcat(text, " ?");
        const size_t n = strlen(text);
        memcpy(line + 13 + d * COLUMN, text, n < COLUMN - 1 ? n : COLUMN - 1);
    }
    int n = LINE - 2;
    while (n > 0 && line[n] == ' ') n--;
    line[n + 1] = '\n', line[n + 2] = 0;
}

/* Sort the events by time, and draw a line for each time. */
void trial_draw(const struct trial *trial, char *to, size_t size)
{
    struct event *e = malloc(sizeof trial->event);
    bool *shown = calloc(RUN_EVENTS, sizeof *shown);
    const int devices = trial->devices < DRAWN_DEVICES ? trial->devices : DRAWN_DEVICES;
    size_t used = 0;
    char line[LINE + 2];
    to[0] = 0;
    if (e && shown && (trial->events > 0 || trial->deadlock)) {
        memcpy(e, trial->event, sizeof trial->event);
        qsort(e, (size_t)trial->events, sizeof *e, draw_by_time);
        /* All times have the scale of the last event. */
        const struct figure_scale scale = time_scale(1e-12
                                                     * (double)shown_at(&e[trial->events > 0 ? trial->events - 1 : 0]));
        snprintf(line, sizeof line, "%11s", scale.name);
        put_text(to, size, &used, line);
        for (int d = 0; d < devices; d++) {
            snprintf(line, sizeof line, "  %-*s", COLUMN - 2, d == DRAWN_DEVICES - 1 && trial->devices > devices
                     ? "device 4  (...)" : (char[16]){ 'd', 'e', 'v', 'i', 'c', 'e', ' ', (char)('0' + d), 0 });
            put_text(to, size, &used, line);
        }
        while (used > 0 && to[used - 1] == ' ') to[--used] = 0;
        put_text(to, size, &used, "\n");
        int lines = 0;
        for (int i = 0; i < trial->events && lines < DRAWN_LINES; i++) {
            if (shown[i] || e[i].device >= devices) continue;
            draw_line(e, shown, trial->events, devices, shown_at(&e[i]), &scale, line);
            put_text(to, size, &used, line);
            /* An event of the same time and device gets the next line. */
            if (!shown[i]) i--;
            lines++;
        }
        /* Events that got no line are counted. */
        int left = 0;
        for (int i = 0; i < trial->events; i++) left += !shown[i];
        if (left > 0) {
            snprintf(line, sizeof line, "            .. and %d more\n", left);
            put_text(to, size, &used, line);
        }
        if (trial->deadlock) draw_waiting(trial, devices, line), put_text(to, size, &used, line);
    }
    free(e), free(shown);
}
