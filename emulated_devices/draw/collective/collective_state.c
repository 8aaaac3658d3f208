/* collective_state.c -- what every device has of a collective's vector, event by event; names of blocks and messages.
 *
 * collective.c, collective_svg.c and collective_film.c replay the events of a run with these functions, so a text, a
 * drawing and a film of one run agree.  The only error is ERR_MEMORY, from collective_state_open.
 */
#include "emulated_devices/draw/collective/collective_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LONGEST is the most characters of a message. */
enum { LONGEST = 98 };

/* This counts the devices of a set. */
int collective_members(unsigned set)
{
    int n = 0;
    for (; set; set &= set - 1) n++;
    return n;
}

/* A set of devices: "0123"; the devices above 9 are a, b, .. */
static char *collective_set_text(unsigned set, char *to)
{
    for (int d = 0; d < SHOW_MOST_DEVICES; d++)
        if (set >> d & 1) *to++ = "0123456789abcdef"[d];
    *to = '\0';
    return to;
}

/* ---- blocks: the columns of the picture -------------------------------------------------------------------------- */

/* Block b begins at this place.  An all-to-all has a block of `count` elements for each device. */
int64_t collective_block_first(const struct collective_state *state, int b)
{
    return state->t->algorithm->operation == ALLTOALL ? b * state->t->call.count
           : block_start(state->places, state->t->P, b);
}

int64_t collective_block_size(const struct collective_state *state, int b)
{
    return collective_block_first(state, b + 1) - collective_block_first(state, b);
}

/* This finds the block of a place in the vector. */
int collective_block_of(const struct collective_state *state, int64_t place)
{
    int b = 0;
    while (b < state->t->P - 1 && place >= collective_block_first(state, b + 1)) b++;
    return b;
}

bool collective_gathers(enum operation op) { return op == ALLGATHER || op == GATHER || op == SPARSE_ALLGATHER; }

bool collective_reduces(enum operation op)
{
    return op == REDUCE || op == ALLREDUCE || op == REDUCE_SCATTER || op == SPARSE_REDUCE_SCATTER;
}

/* The set of a finished block; 0: none. */
unsigned collective_finished(const struct collective_state *state, int b)
{
    const enum operation op = state->t->algorithm->operation;
    /* A sum over all devices is finished, and so is an all-to-all's block with elements of all. */
    if (collective_reduces(op) || op == ALLTOALL) return (1u << state->t->P) - 1;
    if (collective_gathers(op)) return 1u << b;
    return op == BROADCAST || op == SCATTER ? 1u << state->t->call.root : 0;
}

/* ---- what happens in a step -------------------------------------------------------------------------------------- */

/* Whether a device has numbers of block b before the first step. */
static bool starts_with(const struct collective_state *state, int device, int b)
{
    const enum operation op = state->t->algorithm->operation;
    if (op == BROADCAST || op == SCATTER) return device == state->t->call.root;
    return collective_gathers(op) ? device == b : true;
}

/* Update the state by an event.  An all-to-all adds nothing: elements from different devices are side by side. */
void collective_take_in(struct collective_state *state, const struct show_event *event)
{
    const enum operation op = state->t->algorithm->operation;
    const bool waits = state->sums_only && event->from >= 0 && (collective_reduces(op) || op == SCAN);
    for (int64_t i = 0; i < event->count; i++) {
        const unsigned set = symbol_devices(event->symbols[i]);
        const int64_t place = symbol_place(event->symbols[i]);
        if (place < 0 || place >= state->places) continue;          /* an error of the algorithm */
        unsigned *has = &collective_has(state, event->device)[place];
        if (waits && (set >> event->device & 1) == 0) continue;
        if (op == ALLTOALL) *has |= set;
        else if (collective_members(set) > collective_members(*has)) *has = set;
    }
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The number of elements of block b with this set of devices. */
static int64_t elements_of(const struct collective_state *state, const struct show_event *event, int b, unsigned set)
{
    int64_t n = 0;
    for (int64_t i = 0; i < event->count; i++)
        n += symbol_devices(event->symbols[i]) == set
            && collective_block_of(state, symbol_place(event->symbols[i])) == b;
    return n;
}

/* The next set, after `after`, that an element of block b has. */
static unsigned next_set(const struct collective_state *state, const struct show_event *event, int b, unsigned after)
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
static bool collective_whole(const struct collective_state *state, const struct show_event *event, int b, unsigned set)
{
    return set && next_set(state, event, b, 0) == set
           && elements_of(state, event, b, set) == collective_block_size(state, b);
}

/* Whether the operation adds nothing: then the column of a block shows its origin. */
bool collective_only_moves(const struct collective_state *state)
{
    const enum operation op = state->t->algorithm->operation;
    return op == BROADCAST || op == SCATTER || collective_gathers(op);
}

/* "b2(01)": block 2, with the numbers of devices 0 and 1 in it.  Consecutive blocks with equal sets are joined. */
void collective_describe_message(const struct collective_state *state, const struct show_event *event,
                                 char text[COLLECTIVE_TEXT])
{
    char set_of[SHOW_MOST_DEVICES + 1], line[2 * COLLECTIVE_TEXT];
    int used = snprintf(line, sizeof line, state->places > 0 ? "%d -> %d " : "%d -> %d", event->from, event->device);
    for (int b = 0; b < state->t->P && used < COLLECTIVE_TEXT; b++)
        for (unsigned set = next_set(state, event, b, 0); set && used < COLLECTIVE_TEXT;
             set = next_set(state, event, b, set)) {
            const int64_t n = elements_of(state, event, b, set),
                all = collective_block_first(state, b + 1) - collective_block_first(state, b);
            /* Whole blocks in a row that have the same set are written as "b1-3". */
            int last = b;
            while (collective_whole(state, event, b, set) && last + 1 < state->t->P &&
                   collective_whole(state, event, last + 1,
                                    collective_only_moves(state) ? collective_finished(state, last + 1) : set))
                last++;
            used += snprintf(line + used, sizeof line - (size_t)used, " b%d", b);
            if (last > b) used += snprintf(line + used, sizeof line - (size_t)used, "-%d", last);
            if (n < all)
                used += snprintf(line + used, sizeof line - (size_t)used, "[%lld/%lld]", (long long)n, (long long)all);
            if (set == collective_finished(state, b)) strcpy(set_of, "*");
            else collective_set_text(set, set_of);
            if (!collective_only_moves(state))
                used += snprintf(line + used, sizeof line - (size_t)used, "(%s)", set_of);
            b = last;
        }
    if (event->count == 0 && state->places > 0) used += snprintf(line + used, sizeof line - (size_t)used, " empty");
    snprintf(text, COLLECTIVE_TEXT, "%.*s", LONGEST, line);
    /* A longer text is cut, and its last three characters say so. */
    if (used > LONGEST) strcpy(text + LONGEST - 3, "...");
}


/* ---- the state --------------------------------------------------------------------------------------------------- */

/* Each device has its own number before the first step, where it has one. */
enum error_code collective_state_open(struct collective_state *state, const struct show_trace *trace,
                                      struct error *err)
{
    *state = (struct collective_state){ .t = trace, .places = show_places(trace) };
    const size_t cells = (size_t)trace->P * (size_t)state->places + 1;
    state->has = calloc(cells, sizeof *state->has);
    if (state->has == NULL) return fail(err, ERR_MEMORY, "no memory to draw %zu cells", cells);
    for (int d = 0; d < trace->P; d++)
        for (int64_t i = 0; i < state->places; i++)
            if (starts_with(state, d, collective_block_of(state, i))) collective_has(state, d)[i] = 1u << d;
    return OK;
}

void collective_state_free(struct collective_state *state)
{
    free(state->has);
    state->has = NULL;
}

int64_t collective_steps(const struct show_trace *trace)
{
    int64_t steps = 0;
    for (int64_t i = 0; i < trace->events; i++)
        if (trace->event[i].step > steps) steps = trace->event[i].step;
    return steps;
}

bool collective_event_has(const struct collective_state *state, const struct show_event *event, int b)
{
    return next_set(state, event, b, 0) != 0;
}

enum collective_fill collective_cell_fill(const struct collective_state *state, int device, int b)
{
    const unsigned *has = collective_has(state, device), want = collective_finished(state, b);
    const int64_t first = collective_block_first(state, b), end = collective_block_first(state, b + 1);
    int64_t whole_ones = 0, some = 0;
    for (int64_t i = first; i < end; i++) whole_ones += want != 0 && has[i] == want, some += has[i] != 0;
    /* A scan's sum is whole with the device and all before it. */
    if (state->t->algorithm->operation == SCAN) {
        whole_ones = 0;
        for (int64_t i = first; i < end; i++) whole_ones += has[i] == (2u << device) - 1;
    }
    if (first == end || some == 0) return COLLECTIVE_EMPTY;
    return whole_ones == end - first ? COLLECTIVE_WHOLE : COLLECTIVE_PARTIAL;
}

double collective_cell_share(const struct collective_state *state, int device, int b, int of)
{
    const int64_t first = collective_block_first(state, b), end = collective_block_first(state, b + 1);
    int64_t n = 0;
    for (int64_t i = first; i < end; i++) n += collective_has(state, device)[i] >> of & 1;
    return end > first ? (double)n / (double)(end - first) : 0;
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

/* One cell: its set of devices, * if finished, . if empty; two of these if the block's elements differ. */
void collective_describe_cell(const struct collective_state *state, int device, int b, char text[COLLECTIVE_TEXT])
{
    const unsigned *has = collective_has(state, device);
    char *to = text;
    int different = 0;
    unsigned last = 0;
    text[0] = '\0';
    for (int64_t i = collective_block_first(state, b); i < collective_block_first(state, b + 1); i++) {
        if (i > collective_block_first(state, b) && has[i] == last) continue;
        last = has[i];
        if (different++ > 0) *to++ = '|';
        /* Two different sets fit into a cell; more are written as "..". */
        if (different > 2) {
            snprintf(to, 3, "..");
            return;
        }
        if (last == 0) *to++ = '.', *to = '\0';
        else if (last == collective_finished(state, b)) *to++ = '*', *to = '\0';
        else to = collective_set_text(last, to);
    }
}

/* ---- words about all of it --------------------------------------------------------------------------------------- */

struct collective_arrivals collective_arrivals(const struct show_trace *trace, int64_t step)
{
    struct collective_arrivals at = { INT64_MAX, 0 };
    for (int64_t i = 0; i < trace->events; i++) {
        const struct show_event *e = &trace->event[i];
        if (e->step != step || e->from < 0) continue;
        if (e->time < at.first) at.first = e->time;
        if (e->time > at.last) at.last = e->time;
    }
    return at;
}

struct figure collective_describe_arrivals(struct collective_arrivals at)
{
    const struct figure_scale scale = time_scale(1e-12 * (double)at.last);
    const struct figure first = scale_format(&scale, 1e-12 * (double)at.first),
                        last = scale_format(&scale, 1e-12 * (double)at.last);
    struct figure both;
    if (at.first == at.last) snprintf(both.text, sizeof both.text, "%.15s %s", first.text, scale.name);
    else snprintf(both.text, sizeof both.text, "%.15s to %.15s %s", first.text, last.text, scale.name);
    return both;
}

struct collective_totals collective_totals(const struct show_trace *trace)
{
    struct collective_totals all = { 0 };
    for (int r = 0; r < trace->P; r++) {
        const struct traffic *c = &trace->end[r].traffic;
        if (trace->end[r].time > all.end) all.end = trace->end[r].time;
        if (c->bytes_sent > all.most) all.most = c->bytes_sent;
        all.messages += c->messages_sent, all.bytes += c->bytes_sent, all.additions += c->additions;
    }
    return all;
}

void collective_describe_blocks(const struct collective_state *state, char *text, size_t size)
{
    const enum operation op = state->t->algorithm->operation;
    const long long places = (long long)state->places;
    const int P = state->t->P;
    if (op == BARRIER) snprintf(text, size, "A barrier has no vector: its messages are empty.");
    else if (op == ALLTOALL)
        snprintf(text, size, "Column b2 is what goes to device 2; a digit is the device it comes from; *: from all "
                 "devices.");
    else if (collective_reduces(op) || op == SCAN)
        snprintf(text, size, "A vector of %lld in %d blocks, b0 to b%d. Digits: the devices whose numbers are in the "
                 "sum%s.", places, P, P - 1, op == SCAN ? "" : "; *: all");
    else snprintf(text, size, "A vector of %lld in %d blocks, b0 to b%d. *: has the block, .: not yet.", places, P,
                  P - 1);
}
