/* slow_say.c -- says a finding in one sentence, with its evidence.  cli/diagnose.c and run/session.c call.  No function
 * fails. */
#include "emulated_devices/check/slow/slow.h"
#include "ref/io/figures.h"
#include <inttypes.h>
#include <stdio.h>

/* Percent as times: "4.0". */
static double times(int64_t percent) { return (double)percent / 100; }

static const char *steps_say(char text[80], const struct slow *slow, const struct slow_finding *f)
{
    if (f->steps == 1) snprintf(text, 80, "in step %" PRId64 " alone, of %d", f->first, slow->steps);
    else snprintf(text, 80, "in %" PRId64 " of %d steps, first in step %" PRId64, f->steps, slow->steps, f->first);
    return text;
}

static void say_communication(char text[SLOW_SENTENCE], const struct slow *slow, const struct slow_finding *f)
{
    char steps[80], what[240];
    switch (f->part) {
    case PART_SENDER:
        snprintf(what, sizeof what, "the card of device %d is slow in sending: messages to each of %d devices take",
                 f->device, f->peers);
        break;
    case PART_RECEIVER:
        snprintf(what, sizeof what, "the card of device %d is slow in receiving: messages from each of %d devices take",
                 f->device, f->peers);
        break;
    case PART_LINK:
        snprintf(what, sizeof what, "the link from device %d to device %d is slow, and no other of theirs: messages "
                 "take", f->device, f->other);
        break;
    default:
        snprintf(what, sizeof what, "the link from device %d to device %d is slow, or a card at its ends, for one of "
                 "them sends or receives nothing else: messages take", f->device, f->other);
    }
    snprintf(text, SLOW_SENTENCE, "%s %.1f times what the cluster's rates say, others %.1f; %s", what,
             times(f->percent), times(f->others), steps_say(steps, slow, f));
}

static void say_outside(char text[SLOW_SENTENCE], const struct slow *slow, const struct slow_finding *f)
{
    char steps[80], waits[240] = "";
    if (f->waits < f->least)
        snprintf(waits, sizeof waits, ", and device %d waits least: %s a step in collectives, the others %s to %s",
                 f->device, picoseconds_format((double)f->waits).text, picoseconds_format((double)f->least).text,
                 picoseconds_format((double)f->most).text);
    snprintf(text, SLOW_SENTENCE, "device %d is slow outside communication: its operations take %.1f times what its "
             "rates say, others %.1f%s; %s", f->device, times(f->percent), times(f->others), waits,
             steps_say(steps, slow, f));
}

/* The text says what a device waits for: "allreduce over dp". */
static const char *wait_say(char text[120], const struct record_head *h)
{
    char axes[64];
    snprintf(text, 120, "%s over %s", operation_name((enum operation)h->waits_operation),
             axes_describe(h->waits_axes, axes, sizeof axes));
    return text;
}

static void say_hang(char text[SLOW_SENTENCE], const struct slow_finding *f, const struct records *records)
{
    char wait[120], call[120], axes[64];
    const struct recorder *const r = &records->of[f->device];
    const struct record_head *const w = records->of[f->waiting >= 0 ? f->waiting : f->device].head;
    if (f->part == PART_LINK) {
        snprintf(text, SLOW_SENTENCE, "a message from device %d to device %d is lost: device %d has sent %" PRIu64
                 " to it, and device %d has received %" PRIu64 " and waits for the next, %s", f->device, f->other,
                 f->device, r->pair[f->other].sent, f->other, records->of[f->other].pair[f->device].received,
                 wait_say(wait, w));
        return;
    }
    if (f->part == PART_UNKNOWN) {
        snprintf(text, SLOW_SENTENCE, "devices wait for each other in a ring, and no message is lost: device %d waits "
                 "for device %d, %s; the program's order of messages is wrong", f->device, w->waits_for,
                 wait_say(wait, w));
        return;
    }
    const struct call_record *const open = &r->call[r->head->calls % r->head->calls_room];
    snprintf(call, sizeof call, "%s over %s", operation_name((enum operation)open->operation),
             axes_describe(open->axes, axes, sizeof axes));
    if (f->class == HANG_COMMUNICATION)
        snprintf(text, SLOW_SENTENCE, "device %d hangs in communication: in step %" PRId64 " it has begun its call %"
                 PRIu64 ", %s, and sends nothing; %d device%s for it, device %d directly", f->device, f->first,
                 r->head->calls + 1, call, f->peers, f->peers == 1 ? " waits" : "s wait", f->waiting);
    else
        snprintf(text, SLOW_SENTENCE, "device %d hangs outside communication: in step %" PRId64 ", after %" PRIu64
                 " calls, it does not come to the %s for which device %d waits; %d device%s for it", f->device,
                 f->first, r->head->calls, wait_say(wait, w), f->waiting, f->peers,
                 f->peers == 1 ? " waits" : "s wait");
}

const char *slow_sentence(char text[SLOW_SENTENCE], const struct slow *slow, const struct slow_finding *finding,
                          const struct records *records)
{
    switch (finding->class) {
    case SLOW_COMMUNICATION: say_communication(text, slow, finding); break;
    case SLOW_OUTSIDE:       say_outside(text, slow, finding); break;
    default:                 say_hang(text, finding, records);
    }
    return text;
}
