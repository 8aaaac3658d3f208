/* collective_film.c -- a collective as a film: messages, sums, and what every device has of each block after each of
 * them.
 *
 * collective_show.c calls collective_film on rank 0.  Times are those of the run on the shown cluster: a message begins
 * where its sender's port begins with it, and ends at its arrival.  The only error is ERR_MEMORY.
 */
#include "emulated_devices/draw/collective/collective_state.h"
#include "emulated_devices/draw/page/film.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_TEXT = 80 };

/* All functions here write to this film. */
struct filming {
    struct film *film;
    struct collective_state state;      /* after the events so far */
    int sum, message, waits, compute, receive;   /* kinds and lanes of the film */
};

/* Events in order of time; those of one time as they happened. */
static int collective_film_by_time(const void *a, const void *b)
{
    const struct show_event *const *x = a, *const *y = b;
    if ((*x)->time != (*y)->time) return (*x)->time < (*y)->time ? -1 : 1;
    return *x < *y ? -1 : *x > *y;
}

/* Say what each device has of a block from a time on; wrong: the result there is not the right one. */
static void film_block(struct filming *filming, int device, int b, picoseconds at, bool wrong)
{
    static const enum film_state states[] = { FILM_PLAIN, FILM_PARTIAL, FILM_WHOLE };
    const enum collective_fill fill = collective_cell_fill(&filming->state, device, b);
    char text[COLLECTIVE_TEXT];
    collective_describe_cell(&filming->state, device, b, text);
    if (fill == COLLECTIVE_EMPTY) strcpy(text, "");
    film_cell(filming->film, device, b, at, text, wrong ? FILM_WRONG : states[fill]);
}

/* A pass of a lane with what its message or sum has. */
static void film_part(struct filming *filming, const struct show_event *event, int lane, int kind)
{
    char text[COLLECTIVE_TEXT], number[NUMBER_TEXT];
    const bool message = event->from >= 0;
    if (message) collective_describe_message(&filming->state, event, text);
    else snprintf(text, sizeof text, "device %d adds", event->device);
    const int detail = film_detail(filming->film, text);
    snprintf(number, sizeof number, "%lld, %lld bytes", (long long)event->count,
             (long long)(event->count * (int64_t)sizeof(int64_t)));
    film_detail_row(filming->film, detail, "numbers", number);
    snprintf(number, sizeof number, "%lld", (long long)event->step);
    film_detail_row(filming->film, detail, "round", number);
    film_pass(filming->film, (struct film_pass){ .device = event->device, .lane = lane, .kind = kind,
                                                 .start = event->start, .end = event->time, .micro = -1, .layer = -2,
                                                 .detail = detail });
}

/* A message is a pass of its receiver, which waits from its begin to its arrival; a sum is a pass of its device. */
static void film_event(struct filming *filming, const struct show_event *event)
{
    if (event->from < 0) {
        film_part(filming, event, filming->compute, filming->sum);
        return;
    }
    film_part(filming, event, filming->receive, filming->waits);
    film_message(filming->film, (struct film_message){ .from = event->from, .to = event->device,
                                                       .kind = filming->message, .start = event->start,
                                                       .end = event->time,
                                                       .bytes = event->count * (int64_t)sizeof(int64_t) });
}

/* Take in an event, and film the blocks of its device that it has changed. */
static bool film_changes(struct filming *filming, const struct show_event *event)
{
    struct collective_state *state = &filming->state;
    const size_t bytes = (size_t)state->places * sizeof *state->has;
    unsigned *before = malloc(bytes + 1);
    if (before == NULL) return false;
    memcpy(before, collective_has(state, event->device), bytes);
    collective_take_in(state, event);
    for (int b = 0; b < filming->film->columns; b++) {
        const int64_t first = collective_block_first(state, b), end = collective_block_first(state, b + 1);
        if (memcmp(&before[first], &collective_has(state, event->device)[first],
                   (size_t)(end - first) * sizeof *before) != 0)
            film_block(filming, event->device, b, event->time, false);
    }
    free(before);
    return true;
}

/* Note the algorithm's words, and the result of every device that is wrong. */
static void film_words(struct filming *filming)
{
    const struct show_trace *t = filming->state.t;
    char blocks[COLLECTIVE_TEXT];
    collective_describe_blocks(&filming->state, blocks, sizeof blocks);
    film_note(filming->film, "%s, %s: %s", operation_name(t->algorithm->operation), t->algorithm->name,
              t->algorithm->description);
    film_note(filming->film, "cost %s, from %s", t->algorithm->cost_formula, t->algorithm->source);
    film_note(filming->film, "%s", blocks);
    film_note(filming->film, "A block changes when its message has arrived, or when its sum is made.");
    for (int d = 0; d < t->P; d++)
        if (t->end[d].verdict.wrong > 0 && filming->film->columns > 0) {
            const int b = collective_block_of(&filming->state, symbol_place(t->end[d].verdict.want));
            film_block(filming, d, b, filming->film->end, true);
            film_note(filming->film, "RESULT WRONG on device %d: %lld of %lld elements, the first in block b%d", d,
                      (long long)t->end[d].verdict.wrong, (long long)t->end[d].verdict.elements, b);
        }
}

/* Open the film: devices, kinds, lanes, columns, and the blocks at the start. */
static void film_begin(struct filming *filming)
{
    const struct show_trace *t = filming->state.t;
    char title[NUMBER_TEXT];
    snprintf(title, sizeof title, "orrery show %s %s --devices %d", operation_name(t->algorithm->operation),
             t->algorithm->name, t->P);
    film_open(filming->film, "collective", "ps", title);
    film_ring(filming->film, t->P);
    filming->message = film_kind(filming->film, operation_name(t->algorithm->operation), "", FILM_MESSAGE);
    filming->waits = film_kind(filming->film, "waits for a message", "", FILM_WAIT);
    filming->sum = film_kind(filming->film, "sum", "+", FILM_COMPUTE);
    filming->compute = film_lane(filming->film, "compute");
    filming->receive = film_lane(filming->film, "receive");
    for (int b = 0; b < t->P && filming->state.places > 0; b++) {
        char name[NUMBER_TEXT];
        snprintf(name, sizeof name, "b%d", b);
        film_column(filming->film, name);
        for (int d = 0; d < t->P; d++) film_block(filming, d, b, 0, false);
    }
}

enum error_code collective_film(struct film *film, const struct show_trace *trace, struct error *err)
{
    struct filming f = { .film = film };
    const struct show_event **event = malloc(sizeof *event * (size_t)(trace->events + 1));
    enum error_code e = collective_state_open(&f.state, trace, err);
    film_begin(&f);
    film_end(film, collective_totals(trace).end);
    bool ok = event != NULL;
    for (int64_t i = 0; i < trace->events && ok; i++) event[i] = &trace->event[i];
    if (ok) qsort(event, (size_t)trace->events, sizeof *event, collective_film_by_time);
    f.state.sums_only = true;
    for (int64_t i = 0; i < trace->events && ok && !e; i++) {
        film_event(&f, event[i]);
        ok = film_changes(&f, event[i]);
    }
    if (ok && !e) film_words(&f);
    free(event);
    collective_state_free(&f.state);
    return e ? e : ok && !film->failed ? OK : fail(err, ERR_MEMORY, "no memory for the film of a collective");
}
