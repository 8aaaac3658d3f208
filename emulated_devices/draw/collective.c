/* collective.c -- draws a collective: each step's messages, and what every device has after the step.
 *
 * collective_show.c calls show_draw on rank 0 with the events of all devices.  The picture follows the events: an
 * algorithm that goes wrong is drawn as it went.  The only error is ERR_MEMORY.
 */
#include "emulated_devices/draw/collective.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LABEL is the width of "device n", LONGEST the most characters of a message, GAP the blanks between two. */
enum { LABEL = 14, LONGEST = 98, GAP = 3, TEXT = 200 };

/* For each device and place: the set of devices whose numbers are in the largest sum that the device has had. */
struct state {
    const struct show_trace *t;
    int64_t places;
    unsigned *has;                      /* [P][places] */
    bool colours;
};

/* The result is a device's row of has [P, places]. */
static unsigned *has_of(const struct state *state, int device) { return &state->has[device * state->places]; }

/* This counts the devices of a set. */
static int collective_members(unsigned set)
{
    int n = 0;
    for (; set; set &= set - 1) n++;
    return n;
}

/* A set of devices: "0123"; the devices above 9 are a, b, .. */
static char *set_text(unsigned set, char *to)
{
    for (int d = 0; d < SHOW_MOST_DEVICES; d++)
        if (set >> d & 1) *to++ = "0123456789abcdef"[d];
    *to = '\0';
    return to;
}

/* ---- blocks: the columns of the picture -------------------------------------------------------------------------- */

/* Block b begins at this place.  An all-to-all has a block of `count` elements for each device. */
static int64_t block_first(const struct state *state, int b)
{
    return state->t->algorithm->operation == ALLTOALL ? b * state->t->call.count
           : block_start(state->places, state->t->P, b);
}

/* This finds the block of a place in the vector. */
static int collective_block_of(const struct state *state, int64_t place)
{
    int b = 0;
    while (b < state->t->P - 1 && place >= block_first(state, b + 1)) b++;
    return b;
}

static bool gathers(enum operation op) { return op == ALLGATHER || op == GATHER || op == SPARSE_ALLGATHER; }

static bool reduces(enum operation op)
{
    return op == REDUCE || op == ALLREDUCE || op == REDUCE_SCATTER || op == SPARSE_REDUCE_SCATTER;
}

/* The set of a finished block; 0: none. */
static unsigned finished(const struct state *state, int b)
{
    const enum operation op = state->t->algorithm->operation;
    /* A sum over all devices is finished, and so is an all-to-all's block with elements of all. */
    if (reduces(op) || op == ALLTOALL) return (1u << state->t->P) - 1;
    if (gathers(op)) return 1u << b;
    return op == BROADCAST || op == SCATTER ? 1u << state->t->call.root : 0;
}

/* ---- what happens in a step -------------------------------------------------------------------------------------- */

/* Whether a device has numbers of block b before the first step. */
static bool starts_with(const struct state *state, int device, int b)
{
    const enum operation op = state->t->algorithm->operation;
    if (op == BROADCAST || op == SCATTER) return device == state->t->call.root;
    return gathers(op) ? device == b : true;
}

/* Set what each device has before the first step: its own number, where it has one. */
static void collective_start(struct state *state)
{
    for (int d = 0; d < state->t->P; d++)
        for (int64_t i = 0; i < state->places; i++)
            if (starts_with(state, d, collective_block_of(state, i))) has_of(state, d)[i] = 1u << d;
}

/* Update the state by an event.  An all-to-all adds nothing: elements from different devices are side by side. */
static void take_in(struct state *state, const struct show_event *event)
{
    for (int64_t i = 0; i < event->count; i++) {
        const unsigned set = symbol_devices(event->symbols[i]);
        const int64_t place = symbol_place(event->symbols[i]);
        if (place < 0 || place >= state->places) continue;          /* an error of the algorithm */
        unsigned *has = &has_of(state, event->device)[place];
        if (state->t->algorithm->operation == ALLTOALL) *has |= set;
        else if (collective_members(set) > collective_members(*has)) *has = set;
    }
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The number of elements of block b with this set of devices. */
static int64_t elements_of(const struct state *state, const struct show_event *event, int b, unsigned set)
{
    int64_t n = 0;
    for (int64_t i = 0; i < event->count; i++)
        n += symbol_devices(event->symbols[i]) == set
            && collective_block_of(state, symbol_place(event->symbols[i])) == b;
    return n;
}

/* The next set, after `after`, that an element of block b has. */
static unsigned next_set(const struct state *state, const struct show_event *event, int b, unsigned after)
{
    unsigned least = 0;
    for (int64_t i = 0; i < event->count; i++) {
        const unsigned set = symbol_devices(event->symbols[i]);
        if (set > after && (least == 0 || set < least)
            && collective_block_of(state, symbol_place(event->symbols[i])) == b) least = set;
    }
    return least;
}

/* Whether a message has all elements of block b, and all with this set of devices. */
static bool collective_whole(const struct state *state, const struct show_event *event, int b, unsigned set)
{
    return set && next_set(state, event, b, 0) == set
           && elements_of(state, event, b, set) == block_first(state, b + 1) - block_first(state, b);
}

/* Whether the operation adds nothing: then the column of a block shows its origin. */
static bool only_moves(const struct state *state)
{
    const enum operation op = state->t->algorithm->operation;
    return op == BROADCAST || op == SCATTER || gathers(op);
}

/* "b2(01)": block 2, with the numbers of devices 0 and 1 in it.  Consecutive blocks with equal sets are joined. */
static void describe_message(const struct state *state, const struct show_event *event, char text[TEXT])
{
    char set_of[SHOW_MOST_DEVICES + 1], line[2 * TEXT];
    int used = snprintf(line, sizeof line, state->places > 0 ? "%d -> %d " : "%d -> %d", event->from, event->device);
    for (int b = 0; b < state->t->P && used < TEXT; b++)
        for (unsigned set = next_set(state, event, b, 0); set && used < TEXT; set = next_set(state, event, b, set)) {
            const int64_t n = elements_of(state, event, b, set),
                all = block_first(state, b + 1) - block_first(state, b);
            /* Whole blocks in a row that have the same set are written as "b1-3". */
            int last = b;
            while (collective_whole(state, event, b, set) && last + 1 < state->t->P &&
                   collective_whole(state, event, last + 1, only_moves(state) ? finished(state, last + 1) : set))
                last++;
            used += snprintf(line + used, sizeof line - (size_t)used, " b%d", b);
            if (last > b) used += snprintf(line + used, sizeof line - (size_t)used, "-%d", last);
            if (n < all)
                used += snprintf(line + used, sizeof line - (size_t)used, "[%lld/%lld]", (long long)n, (long long)all);
            if (set == finished(state, b)) strcpy(set_of, "*");
            else set_text(set, set_of);
            if (!only_moves(state)) used += snprintf(line + used, sizeof line - (size_t)used, "(%s)", set_of);
            b = last;
        }
    if (event->count == 0 && state->places > 0) used += snprintf(line + used, sizeof line - (size_t)used, " empty");
    snprintf(text, TEXT, "%.*s", LONGEST, line);
    /* A longer text is cut, and its last three characters say so. */
    if (used > LONGEST) strcpy(text + LONGEST - 3, "...");
}

/* Add one message to the table "messages", if the command has a document. */
static void collective_add_to_document(const struct show_event *event, const char *text)
{
    if (!document_table("messages")) return;
    json_add(document_row(), "step %g from %d to %d elements %g arrives_us %g what %s", (double)event->step,
             event->from, event->device, (double)event->count, (double)event->time * 1e-6, text);
}

/* Print the step's messages by sender, in columns of the longest one's width; width 0: only measure.  @return the
 * width. */
static int print_messages_of(const struct state *state, int64_t step, int width)
{
    char text[TEXT];
    int longest = 0, at = 0, behind = 0;
    for (int from = 0; from < state->t->P; from++)
        for (int64_t i = 0; i < state->t->events; i++) {
            const struct show_event *e = &state->t->event[i];
            if (e->from != from || e->step != step) continue;
            describe_message(state, e, text);
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
static void print_messages(const struct state *state, int64_t step)
{
    print_messages_of(state, step, print_messages_of(state, step, 0));
    printf("\n");
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* One cell: its set of devices, * if finished, . if empty; two of these if the block's elements differ. */
static void describe_cell(const struct state *state, int device, int b, char text[TEXT])
{
    const unsigned *has = has_of(state, device);
    char *to = text;
    int different = 0;
    unsigned last = 0;
    text[0] = '\0';
    for (int64_t i = block_first(state, b); i < block_first(state, b + 1); i++) {
        if (i > block_first(state, b) && has[i] == last) continue;
        last = has[i];
        if (different++ > 0) *to++ = '|';
        /* Two different sets fit into a cell; more are written as "..". */
        if (different > 2) {
            snprintf(to, 3, "..");
            return;
        }
        if (last == 0) *to++ = '.', *to = '\0';
        else if (last == finished(state, b)) *to++ = '*', *to = '\0';
        else to = set_text(last, to);
    }
}

/* Whether a cell differs from the state before the step, so that it is printed bold. */
static bool cell_changed(const struct state *state, const unsigned *before, int device, int b)
{
    const int64_t first = block_first(state, b), n = block_first(state, b + 1) - first;
    return before && memcmp(&has_of(state, device)[first], &before[device * state->places + first],
                  sizeof *before * (size_t)n) != 0;
}

/* The blocks from first to end, of every device. */
static void print_blocks(const struct state *state, const unsigned *before, int first, int end, int width)
{
    char text[TEXT];
    printf("%*s", LABEL, "");
    for (int b = first; b < end; b++) printf("b%-*d", b < end - 1 ? width - 1 : 1, b);
    printf("\n");
    for (int d = 0; d < state->t->P; d++) {
        printf("    device %-2d ", d);
        for (int b = first; b < end; b++) {
            const bool bold = state->colours && cell_changed(state, before, d, b);
            describe_cell(state, d, b, text);
            const int behind = width - (int)strlen(text);
            printf("%s%s%s%*s", bold ? "\033[1;32m" : "", text, bold ? "\033[0m" : "",
                   b < end - 1 && behind > 0 ? behind : 0, "");
        }
        printf("\n");
    }
}

/* All blocks, in parts below each other if the terminal is too narrow. */
static void print_state(const struct state *state, const unsigned *before)
{
    /* A cell is wide enough for the set of all devices and two blanks. */
    const int P = state->t->P, width = P > 4 ? P + 2 : 7, fit = (picture_columns(stdout) - LABEL + 2) / width,
              each = fit < 1 ? 1 : fit;
    if (state->places == 0) return;
    for (int b = 0; b < P; b += each) print_blocks(state, before, b, b + each < P ? b + each : P, width);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Print the algorithm's own words, its cost, and how to read the table. */
static void collective_print_head(const struct state *state)
{
    /* A barrier has no vector, so its table is left out. */
    const struct algorithm *a = state->t->algorithm;
    const enum operation op = a->operation;
    say(stdout, 2, "%s, %s: %s", operation_name(op), a->name, a->description);
    say(stdout, 8, "  cost  %s", a->cost_formula);
    say(stdout, 8, "  from  %s", a->source);
    if (op != BARRIER) say(stdout, 8, "  size  a number has %zu bytes", sizeof(int64_t));
    printf("\n");
    if (op == BARRIER) return;
    if (op == ALLTOALL)
        say(stdout, 0, "Column b2 is what goes to device 2; a digit is the device it comes from; *: from all devices.");
    else if (reduces(op) || op == SCAN)
        say(stdout, 0, "A vector of %lld in %d blocks, b0 to b%d. Digits: the devices whose numbers are in the sum%s.",
               (long long)state->places, state->t->P, state->t->P - 1, op == SCAN ? "" : "; *: all");
    else
        say(stdout, 0, "A vector of %lld in %d blocks, b0 to b%d. *: has the block, .: not yet.",
            (long long)state->places, state->t->P, state->t->P - 1);
    printf("\n");
}

/* Print when the step's messages arrive, from the first to the last, then the messages.  A step of sums alone prints
 * nothing. */
static void print_step(const struct state *state, int64_t step)
{
    picoseconds first = INT64_MAX, last = 0;
    for (int64_t i = 0; i < state->t->events; i++) {
        const struct show_event *e = &state->t->event[i];
        if (e->step != step || e->from < 0) continue;
        if (e->time < first) first = e->time;
        if (e->time > last) last = e->time;
    }
    if (last == 0) return;
    const struct figure_scale scale = time_scale(1e-12 * (double)last);
    printf("\nstep %lld   arrives at %s", (long long)step, scale_format(&scale, 1e-12 * (double)first).text);
    if (last != first) printf(" to %s", scale_format(&scale, 1e-12 * (double)last).text);
    printf(" %s", scale.name);
    printf("\n");
    print_messages(state, step);
}

/* Print time and traffic of the whole collective. */
static void print_end(const struct state *state, int64_t steps)
{
    const struct show_trace *t = state->t;
    picoseconds end = 0;
    uint64_t messages = 0, bytes = 0, additions = 0, most = 0;
    for (int r = 0; r < t->P; r++) {
        const struct traffic *c = &t->end[r].traffic;
        if (t->end[r].time > end) end = t->end[r].time;
        if (c->bytes_sent > most) most = c->bytes_sent;
        messages += c->messages_sent, bytes += c->bytes_sent, additions += c->additions;
    }
    printf("\n%lld steps, %s on %s\n", (long long)steps, picoseconds_format((double)end).text, t->cluster->name);
    say(stdout, 0, "%llu messages, %llu bytes and %llu additions in all; at most %llu bytes from one device",
           (unsigned long long)messages,
           (unsigned long long)bytes, (unsigned long long)additions, (unsigned long long)most);
}

enum error_code show_draw(const struct show_trace *trace, bool colours, struct error *err)
{
    struct state s = { .t = trace, .places = show_places(trace), .colours = colours };
    /* has and before [P, places]: the state now, and the state before the current step. */
    const size_t cells = (size_t)trace->P * (size_t)s.places + 1;
    int64_t steps = 0;
    unsigned *before = calloc(cells, sizeof *before);
    s.has = calloc(cells, sizeof *s.has);
    if (!before || !s.has) {
        free(before), free(s.has);
        return fail(err, ERR_MEMORY, "no memory to draw %zu cells", cells);
    }
    for (int64_t i = 0; i < trace->events; i++)
        if (trace->event[i].step > steps) steps = trace->event[i].step;
    collective_print_head(&s);
    collective_start(&s);
    if (s.places > 0) printf("start\n");
    print_state(&s, NULL);
    /* All events of a step are taken in before the state is printed. */
    for (int64_t step = 1; step <= steps; step++) {
        memcpy(before, s.has, cells * sizeof *before);
        for (int64_t i = 0; i < trace->events; i++)
            if (trace->event[i].step == step) take_in(&s, &trace->event[i]);
        print_step(&s, step);
        print_state(&s, before);
    }
    print_end(&s, steps);
    free(before), free(s.has);
    return OK;
}
