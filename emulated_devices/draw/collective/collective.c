/* collective.c -- draws a collective: each step's messages, and what every device has after the step.
 *
 * collective_show.c calls show_draw on rank 0 with the events of all devices.  The picture follows the events: an
 * algorithm that goes wrong is drawn as it went.  The only error is ERR_MEMORY.
 */
#include "emulated_devices/draw/collective/collective_state.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LABEL is the width of "device n", GAP the blanks between two messages. */
enum { LABEL = 14, GAP = 3 };

/* Add one message to the table "messages", if the command has a document. */
static void collective_add_to_document(const struct show_event *event, const char *text)
{
    if (!document_table("messages")) return;
    json_add(document_row(), "step %g from %d to %d elements %g arrives_us %g what %s", (double)event->step,
             event->from, event->device, (double)event->count, (double)event->time * 1e-6, text);
}

/* Print the step's messages by sender, in columns of the longest one's width; width 0: only measure.  @return the
 * width. */
static int print_messages_of(const struct collective_state *state, int64_t step, int width)
{
    char text[COLLECTIVE_TEXT];
    int longest = 0, at = 0, behind = 0;
    for (int from = 0; from < state->t->P; from++)
        for (int64_t i = 0; i < state->t->events; i++) {
            const struct show_event *e = &state->t->event[i];
            if (e->from != from || e->step != step) continue;
            collective_describe_message(state, e, text);
            const int length = (int)strlen(text);
            if (length > longest) longest = length;
            if (width == 0) continue;
            /* A message goes beside the last one where the terminal has room, else on a new line. */
            const bool fits = at > 0 && at + GAP + width <= picture_columns(stdout);
            printf("%s%*s%s", fits || at == 0 ? "" : "\n", fits ? behind + GAP : 2, "", text);
            collective_add_to_document(e, text);
            at = (fits ? at + GAP : 2) + width;
            behind = width - length;
        }
    return longest;
}

/* Measure first, then print in columns of the longest message's width. */
static void print_messages(const struct collective_state *state, int64_t step)
{
    print_messages_of(state, step, print_messages_of(state, step, 0));
    printf("\n");
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* Whether a cell differs from the state before the step, so that it is printed bold. */
static bool cell_changed(const struct collective_state *state, const unsigned *before, int device, int b)
{
    const int64_t first = collective_block_first(state, b), n = collective_block_first(state, b + 1) - first;
    return before && memcmp(&collective_has(state, device)[first], &before[device * state->places + first],
                  sizeof *before * (size_t)n) != 0;
}

/* The blocks from first to end, of every device. */
static void print_blocks(const struct collective_state *state, const unsigned *before, int first, int end, int width,
                         bool colours)
{
    char text[COLLECTIVE_TEXT];
    printf("%*s", LABEL, "");
    for (int b = first; b < end; b++) printf("b%-*d", b < end - 1 ? width - 1 : 1, b);
    printf("\n");
    for (int d = 0; d < state->t->P; d++) {
        printf("    device %-2d ", d);
        for (int b = first; b < end; b++) {
            const bool bold = colours && cell_changed(state, before, d, b);
            collective_describe_cell(state, d, b, text);
            const int behind = width - (int)strlen(text);
            printf("%s%s%s%*s", bold ? "\033[1;32m" : "", text, bold ? "\033[0m" : "",
                   b < end - 1 && behind > 0 ? behind : 0, "");
        }
        printf("\n");
    }
}

/* All blocks, in parts below each other if the terminal is too narrow. */
static void print_state(const struct collective_state *state, const unsigned *before, bool colours)
{
    /* A cell is wide enough for the set of all devices and two blanks. */
    const int P = state->t->P, width = P > 4 ? P + 2 : 7, fit = (picture_columns(stdout) - LABEL + 2) / width,
              each = fit < 1 ? 1 : fit;
    if (state->places == 0) return;
    for (int b = 0; b < P; b += each) print_blocks(state, before, b, b + each < P ? b + each : P, width, colours);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Print the algorithm's own words, its cost, and how to read the table. */
static void collective_print_head(const struct collective_state *state)
{
    /* A barrier has no vector, so its table is left out. */
    const struct algorithm *a = state->t->algorithm;
    const enum operation op = a->operation;
    char blocks[COLLECTIVE_TEXT];
    say(stdout, 2, "%s, %s: %s", operation_name(op), a->name, a->description);
    say(stdout, 8, "  cost  %s", a->cost_formula);
    say(stdout, 8, "  from  %s", a->source);
    if (op != BARRIER) say(stdout, 8, "  size  a number has %zu bytes", sizeof(int64_t));
    printf("\n");
    if (op == BARRIER) return;
    collective_describe_blocks(state, blocks, sizeof blocks);
    say(stdout, 0, "%s\n", blocks);
}

/* Print when the step's messages arrive, from the first to the last, then the messages.  A step of sums alone prints
 * nothing. */
static void print_step(const struct collective_state *state, int64_t step)
{
    const struct collective_arrivals at = collective_arrivals(state->t, step);
    if (at.last == 0) return;
    printf("\nstep %lld   arrives at %s\n", (long long)step, collective_describe_arrivals(at).text);
    print_messages(state, step);
}

/* Print time and traffic of the whole collective. */
static void print_end(const struct show_trace *trace, int64_t steps)
{
    const struct collective_totals all = collective_totals(trace);
    printf("\n%lld steps, %s on %s\n", (long long)steps, picoseconds_format((double)all.end).text,
           trace->cluster->name);
    say(stdout, 0, "%llu messages, %llu bytes and %llu additions in all; at most %llu bytes from one device",
        (unsigned long long)all.messages, (unsigned long long)all.bytes, (unsigned long long)all.additions,
        (unsigned long long)all.most);
}

enum error_code show_draw(const struct show_trace *trace, bool colours, struct error *err)
{
    struct collective_state s;
    const int64_t steps = collective_steps(trace);
    enum error_code e = collective_state_open(&s, trace, err);
    if (e) return e;
    /* before [P, places]: the state before the current step. */
    const size_t cells = (size_t)trace->P * (size_t)s.places + 1;
    unsigned *before = calloc(cells, sizeof *before);
    if (before == NULL) {
        collective_state_free(&s);
        return fail(err, ERR_MEMORY, "no memory to draw %zu cells", cells);
    }
    collective_print_head(&s);
    if (s.places > 0) printf("start\n");
    print_state(&s, NULL, colours);
    /* All events of a step are taken in before the state is printed. */
    for (int64_t step = 1; step <= steps; step++) {
        memcpy(before, s.has, cells * sizeof *before);
        for (int64_t i = 0; i < trace->events; i++)
            if (trace->event[i].step == step) collective_take_in(&s, &trace->event[i]);
        print_step(&s, step);
        print_state(&s, before, colours);
    }
    print_end(trace, steps);
    free(before);
    collective_state_free(&s);
    return OK;
}
