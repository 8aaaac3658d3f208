/* match.c -- runs the traces of all devices together, as far as each can go, and says what does not match (match.h).
 * lint.c calls match_traces().  A device whose trace has ended because nothing is known excuses those who wait for it.
 * Errors: none but missing memory. */
#include "emulated_devices/course/lint/match.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One half of a message, or one device's part in a collective that does not wait. */
struct half { const struct event *event; int device, other; bool is_matched, is_waited; };

/* One collective of a group: who has come, and who came first. */
struct meeting { int group, ordinal, arrived, first; const struct event *event; };

struct match {
    const struct lint_case *of;
    struct half *half;
    int halves, half_room, open;        /* open: before it all are matched */
    struct meeting *meeting;
    int meetings, meeting_room;
    int *number[DEVICES_MOST];          /* [messages] the half of each message of a device; -1: none yet */
    int at[DEVICES_MOST];               /* the event at which a device is */
    bool has_come[DEVICES_MOST];        /* to that event: it is there, and waits */
    int come[DEVICES_MOST][GROUPS_MOST];        /* collectives of each group so far */
    int waits_in[DEVICES_MOST];         /* the meeting in which a device waits; -1: none */
    struct mismatch *found;
    bool full;
};

static const char *event_name(const struct match *match, const struct event *event)
{
    return names_text(&match->of->program->names, event->call);
}

__attribute__((format(printf, 6, 7)))
static void mismatch_is(struct match *match, const char *kind, const struct event *event, int device,
                        const struct event *other, const char *format, ...)
{
    struct mismatch *const found = match->found;
    if (found->kind) return;
    va_list ap;
    va_start(ap, format);
    vsnprintf(found->text, sizeof found->text, format, ap);
    va_end(ap);
    found->kind = kind, found->line = event->line, found->other_line = other ? other->line : -1;
    found->device = device, found->other = -1;
}

static bool match_grow(void **list, int *room, int count, size_t size)
{
    if (count < *room) return true;
    const int more = *room ? 2 * *room : 256;
    void *grown = realloc(*list, (size_t)more * size);
    if (grown == NULL) return false;
    *list = grown, *room = more;
    return true;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* A message that is longer than what is received, or, for messages of devices, that has another length at all. */
static void compare_sizes(struct match *match, const struct half *sends, const struct half *takes)
{
    const struct event *const out = sends->event, *const in = takes->event;
    const char *const out_type = names_text(&match->of->program->names, out->type);
    const char *const in_type = names_text(&match->of->program->names, in->type);
    const bool typed = *out_type && *in_type && strcmp(out_type, "MPI_BYTE") != 0 && strcmp(in_type, "MPI_BYTE") != 0;
    if (typed && out->type != in->type)
        mismatch_is(match, "type", in, takes->device, out, "device %d receives %s from device %d, which sends %s in "
                    "line %d", takes->device, in_type, sends->device, out_type, out->line);
    if (out->bytes < 0 || in->bytes < 0) return;
    if (in->bytes < out->bytes || (in->is_strict && in->bytes != out->bytes))
        mismatch_is(match, "count", in, takes->device, out, "device %d receives %" PRId64 " bytes from device %d, "
                    "which sends %" PRId64 " in line %d", takes->device, in->bytes, sends->device, out->bytes,
                    out->line);
}

static bool halves_fit(const struct half *half, const struct half *other)
{
    const enum event_kind kind = half->event->kind;
    if (half->is_matched || kind == other->event->kind || kind == EVENT_COLLECTIVE) return false;
    const struct half *const out = kind == EVENT_SEND ? half : other, *const in = out == half ? other : half;
    if (out->event->group != in->event->group || out->event->peer != in->device) return false;
    if (in->event->peer != PEER_ANY && in->event->peer != out->device) return false;
    const int sent = out->event->tag, asked = in->event->tag;
    return sent == asked || asked == TAG_ANY || sent == UNKNOWN || asked == UNKNOWN;
}

static struct half *add_half(struct match *match, int device, const struct event *event)
{
    if (!match_grow((void **)&match->half, &match->half_room, match->halves, sizeof *match->half))
        return match->full = true, NULL;
    match->half[match->halves] = (struct half){ .event = event, .device = device, .other = -1 };
    match->number[device][event->message] = match->halves;
    return &match->half[match->halves++];
}

static void start_half(struct match *match, int device, const struct event *event)
{
    struct half *const half = add_half(match, device, event);
    while (match->open < match->halves && match->half[match->open].is_matched) match->open++;
    for (int i = match->open; half && i < match->halves - 1; i++) {
        struct half *const other = &match->half[i];
        if (!halves_fit(other, half)) continue;
        other->is_matched = half->is_matched = true;
        other->other = match->halves - 1, half->other = i;
        compare_sizes(match, event->kind == EVENT_SEND ? half : other, event->kind == EVENT_SEND ? other : half);
        return;
    }
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */

static void compare_numbers(struct match *match, const char *what, int64_t mine, int64_t first, int device,
                            const struct event *event, const struct meeting *meeting)
{
    if (mine < 0 || first < 0 || mine == first) return;
    mismatch_is(match, what, event, device, meeting->event, "%s has %s %" PRId64 " on device %d and %" PRId64
                " on device %d, in line %d", event_name(match, event), what, mine, device, first, meeting->first,
                meeting->event->line);
}

static void compare_names(struct match *match, const char *what, int mine, int first, int device,
                          const struct event *event, const struct meeting *meeting)
{
    const struct names *const names = &match->of->program->names;
    if (mine < 0 || first < 0 || mine == first) return;
    mismatch_is(match, what, event, device, meeting->event, "%s has %s %s on device %d and %s on device %d, in line %d",
                event_name(match, event), what, names_text(names, mine), device, names_text(names, first),
                meeting->first, meeting->event->line);
}

static void compare_calls(struct match *match, int device, const struct event *event, const struct meeting *meeting)
{
    const struct event *const first = meeting->event;
    if (event->call != first->call)
        mismatch_is(match, "order", event, device, first, "device %d calls %s where device %d calls %s, in line %d",
                    device, event_name(match, event), meeting->first, event_name(match, first), first->line);
    compare_numbers(match, "root", event->root, first->root, device, event, meeting);
    compare_names(match, "type", event->type, first->type, device, event, meeting);
    compare_numbers(match, "count", event->count, first->count, device, event, meeting);
    compare_names(match, "reduction", event->reduction, first->reduction, device, event, meeting);
}

static int all_members(const struct lint_group *group)
{
    int all = 0;
    for (int i = 0; i < group->size; i++) all |= 1 << group->member[i];
    return all;
}

/* @return the meeting; -1 without memory. */
static int come_to(struct match *match, int device, const struct event *event)
{
    const int ordinal = match->come[device][event->group]++;
    int at = match->meetings - 1;
    while (at >= 0 && (match->meeting[at].group != event->group || match->meeting[at].ordinal != ordinal)) at--;
    if (at < 0) {
        at = match->meetings;
        if (!match_grow((void **)&match->meeting, &match->meeting_room, at, sizeof *match->meeting))
            return match->full = true, -1;
        match->meeting[match->meetings++] = (struct meeting){ event->group, ordinal, 1 << device, device, event };
        return at;
    }
    compare_calls(match, device, event, &match->meeting[at]);
    match->meeting[at].arrived |= 1 << device;
    return at;
}

static bool is_complete(const struct match *match, int meeting)
{
    const struct meeting *const of = &match->meeting[meeting];
    return (of->arrived & all_members(&match->of->group[of->group])) == all_members(&match->of->group[of->group]);
}

/* ---- going on ---------------------------------------------------------------------------------------------------- */

/* Do the next event of a device.  @return whether it goes on. */
static bool match_step(struct match *match, int device)
{
    const struct trace *const trace = &match->of->trace[device];
    if (match->at[device] >= trace->count || match->found->kind || match->full) return false;
    const struct event *const event = &trace->event[match->at[device]];
    const bool has_come = match->has_come[device];
    bool done = true;
    match->has_come[device] = true;
    if (event->kind == EVENT_SEND || event->kind == EVENT_RECEIVE) start_half(match, device, event);
    else if (event->kind == EVENT_COLLECTIVE) {
        if (!has_come) match->waits_in[device] = come_to(match, device, event);
        if (event->message >= 0) {
            struct half *const half = add_half(match, device, event);
            if (half) half->other = match->waits_in[device];
        } else done = match->waits_in[device] < 0 || is_complete(match, match->waits_in[device]);
    } else {
        const int number = match->number[device][event->message];
        struct half *const half = number >= 0 ? &match->half[number] : NULL;
        if (half && half->event->kind == EVENT_COLLECTIVE) done = half->other < 0 || is_complete(match, half->other);
        else if (half) done = half->is_matched;
        if (half && done) half->is_waited = true;
    }
    if (!done) return false;
    match->at[device]++, match->has_come[device] = false, match->waits_in[device] = -1;
    return true;
}

/* ---- who waits for whom ------------------------------------------------------------------------------------------ */

static bool has_ended(const struct match *match, int device)
{
    return match->at[device] >= match->of->trace[device].count;
}

/* Where a device is; NULL: it has ended. */
static const struct event *event_of(const struct match *match, int device)
{
    return has_ended(match, device) ? NULL : &match->of->trace[device].event[match->at[device]];
}

/* The devices for which one waits, as bits. */
static int waits_for(const struct match *match, int device)
{
    if (has_ended(match, device)) return 0;
    const struct event *const event = &match->of->trace[device].event[match->at[device]];
    int meeting = match->waits_in[device];
    if (event->kind == EVENT_WAIT) {
        const struct half *const half = &match->half[match->number[device][event->message]];
        if (half->event->kind != EVENT_COLLECTIVE)
            return half->event->peer == PEER_ANY ? (1 << match->of->size) - 1 - (1 << device) : 1 << half->event->peer;
        meeting = half->other;
    }
    const struct meeting *const of = &match->meeting[meeting];
    return all_members(&match->of->group[of->group]) & ~of->arrived;
}

/* Devices that may go on after all, as bits: nothing is known of what follows, or of what follows in whom they wait
 * for. */
static int excused(const struct match *match)
{
    int all = 0;
    for (int d = 0; d < match->of->size; d++)
        if (has_ended(match, d) && (match->of->trace[d].is_lost || match->of->trace[d].at_split)) all |= 1 << d;
    for (bool grows = true; grows;) {
        grows = false;
        for (int d = 0; d < match->of->size; d++)
            if (!(all & 1 << d) && (waits_for(match, d) & all)) all |= 1 << d, grows = true;
    }
    return all;
}

static const char *does(const struct match *match, int device, char *text, size_t size)
{
    if (has_ended(match, device)) snprintf(text, size, "has ended");
    else {
        const struct event *const event = &match->of->trace[device].event[match->at[device]];
        snprintf(text, size, "waits in %s of line %d", event_name(match, event), event->line);
    }
    return text;
}

static int lowest_device(int devices)
{
    int d = 0;
    while (d < DEVICES_MOST && !(devices & 1 << d)) d++;
    return d;
}

/* Say why a device waits for ever. */
static void explain_wait(struct match *match, int device)
{
    const struct event *const event = event_of(match, device);
    const int other = lowest_device(waits_for(match, device));
    char text[160];
    if (other >= match->of->size) return;
    does(match, other, text, sizeof text);
    const struct event *const theirs = event_of(match, other);
    const int number = event->kind == EVENT_WAIT ? match->number[device][event->message] : -1;
    const struct half *const half = number >= 0 ? &match->half[number] : NULL;
    if (half == NULL || half->event->kind == EVENT_COLLECTIVE) {
        const bool meets = theirs && theirs->kind == EVENT_COLLECTIVE;
        mismatch_is(match, meets ? "order" : "member", half ? half->event : event, device, theirs,
                    "device %d calls %s, and device %d of its group %s%s", device,
                    event_name(match, half ? half->event : event), other, theirs ? "" : "never does: it ",
                    text);
    } else if (theirs == NULL)
        mismatch_is(match, "message", half->event, device, NULL, half->event->kind == EVENT_SEND
                    ? "device %d sends to device %d, which never receives it: it %s"
                    : "device %d receives from device %d, which never sends: it %s", device, other, text);
    else
        mismatch_is(match, "deadlock", half->event, device, theirs, half->event->kind == EVENT_SEND
                    ? "device %d waits until device %d receives, and device %d %s"
                    : "device %d waits until device %d sends, and device %d %s", device, other, other, text);
    if (match->found->kind && match->found->other < 0) match->found->other = other;
}

/* All devices have gone as far as they can. */
static void judge_end(struct match *match)
{
    const int free = excused(match);
    /* A device that waits for one that has ended explains more than one that waits for a waiting one. */
    for (int wanted = 1; wanted >= 0; wanted--)
        for (int d = 0; d < match->of->size && !match->found->kind; d++) {
            const int for_whom = waits_for(match, d);
            bool ended = false;
            for (int o = 0; o < match->of->size; o++) ended |= (for_whom & 1 << o) && has_ended(match, o);
            if (!has_ended(match, d) && !(free & 1 << d) && ended == wanted) explain_wait(match, d);
        }
    for (int i = 0; i < match->halves && !match->found->kind; i++) {
        const struct half *const half = &match->half[i];
        const struct trace *const trace = &match->of->trace[half->device];
        const int peer = half->event->peer;
        const bool sends = half->event->kind == EVENT_SEND;
        if (half->event->kind != EVENT_COLLECTIVE && !half->is_matched && peer >= 0 && !(free & 1 << peer))
            mismatch_is(match, "message", half->event, half->device, NULL, sends
                        ? "device %d sends to device %d, which never receives it"
                        : "device %d receives from device %d, which never sends", half->device, peer);
        else if (!half->is_waited && !trace->is_lenient && !(free & 1 << half->device))
            mismatch_is(match, "wait", half->event, half->device, NULL, "device %d starts %s and never waits for it",
                        half->device, event_name(match, half->event));
    }
}

bool match_traces(const struct lint_case *of, struct mismatch *found)
{
    struct match *match = calloc(1, sizeof *match);
    found->kind = NULL;
    if (match == NULL) return false;
    match->of = of, match->found = found;
    for (int d = 0; d < of->size; d++) {
        match->waits_in[d] = -1;
        match->number[d] = malloc((size_t)(of->trace[d].messages + 1) * sizeof *match->number[d]);
        match->full |= match->number[d] == NULL;
        for (int i = 0; i < of->trace[d].messages && match->number[d]; i++) match->number[d][i] = -1;
    }
    for (bool goes_on = !match->full; goes_on;) {
        goes_on = false;
        for (int d = 0; d < of->size; d++)
            while (match_step(match, d)) goes_on = true;
    }
    if (!match->full && !found->kind) judge_end(match);
    const bool full = match->full;
    for (int d = 0; d < of->size; d++) free(match->number[d]);
    free(match->half), free(match->meeting), free(match);
    return !full;
}
