/* slow.c -- joins the findings of all steps, and follows who waits for whom in a run that hangs.
 * cli/diagnose.c, run/session.c and tests call.  The only error is ERR_MEMORY. */
#include "emulated_devices/check/slow/slow.h"
#include <stdlib.h>
#include <string.h>

const char *slow_class_name(enum slow_class class)
{
    static const char *const name[SLOW_CLASSES] = { "slow in communication", "slow outside communication",
                                                    "hangs in communication", "hangs outside communication" };
    return name[class];
}

const char *slow_part_name(enum slow_part part)
{
    static const char *const name[SLOW_PARTS] = { "device", "link", "card that sends", "card that receives",
                                                  "link or a card" };
    return name[part];
}

/* ---- all steps --------------------------------------------------------------------------------------------------- */

static bool slow_is_same(const struct slow_finding *a, const struct slow_finding *b)
{
    return a->class == b->class && a->part == b->part && a->device == b->device && a->other == b->other;
}

/* Percentages and waits become sums, which slow_judge divides by the steps. */
static void slow_add(struct slow *slow, const struct slow_finding *found, int64_t step)
{
    int i = 0;
    while (i < slow->count && !slow_is_same(&slow->of[i], found)) i++;
    if (i == SLOW_FINDINGS) {
        slow->more++;
        return;
    }
    struct slow_finding *const f = &slow->of[i];
    if (i == slow->count) {
        slow->count++;
        *f = *found, f->steps = 1, f->first = step;
        return;
    }
    f->steps++, f->percent += found->percent, f->others += found->others, f->waits += found->waits;
    f->least += found->least, f->most += found->most;
    f->peers = found->peers < f->peers ? found->peers : f->peers;
}

static int by_steps(const void *a, const void *b)
{
    const struct slow_finding *const x = a, *const y = b;
    return x->steps != y->steps ? (x->steps < y->steps) - (x->steps > y->steps)
         : x->device != y->device ? (x->device > y->device) - (x->device < y->device)
         : (x->other > y->other) - (x->other < y->other);
}

enum error_code slow_judge(struct slow *slow, const struct records *records, bool hangs, struct error *err)
{
    uint64_t first, end;
    const size_t cells = (size_t)records->size * (size_t)records->size;
    struct slow_finding found[SLOW_FINDINGS], hang;
    *slow = (struct slow){ .steps = records_steps(records, &first, &end), .hangs = hangs };
    int64_t *const room = calloc(2 * cells + (size_t)records->size, sizeof *room);
    if (room == NULL) return fail(err, ERR_MEMORY, "no memory for a matrix of %d devices", records->size);
    for (uint64_t s = first; s < end; s++) {
        const int64_t step = records_step(&records->of[0], s)->step;
        const int n = slow_step(records, s, room, found, SLOW_FINDINGS);
        if (s == first) slow->first = step;
        slow->last = step;
        for (int i = 0; i < n; i++) slow_add(slow, &found[i], step);
    }
    free(room);
    for (int i = 0; i < slow->count; i++) {
        struct slow_finding *const f = &slow->of[i];
        f->percent /= f->steps, f->others /= f->steps, f->waits /= f->steps, f->least /= f->steps, f->most /= f->steps;
    }
    qsort(slow->of, (size_t)slow->count, sizeof *slow->of, by_steps);
    for (int d = 0; d < records->size; d++) slow->hangs = slow->hangs || records->of[d].head->state == RECORD_HANGS;
    if (!slow->hangs || !slow_hang(records, &hang)) return OK;
    /* A hang comes first: what was slow before may be why. */
    if (slow->count == SLOW_FINDINGS) slow->count--, slow->more++;
    memmove(&slow->of[1], &slow->of[0], sizeof *slow->of * (size_t)slow->count++);
    slow->of[0] = hang;
    return OK;
}

/* ---- a hang ------------------------------------------------------------------------------------------------------ */

static int waits_for(const struct records *records, int device) { return records->of[device].head->waits_for; }

/* Follow the waits from a device for as many links as there are devices: the end, or a device of a ring. */
static int slow_follow(const struct records *records, int device)
{
    for (int i = 0; i < records->size && waits_for(records, device) >= 0; i++) device = waits_for(records, device);
    return device;
}

/* Within a ring: the link whose sender has sent more than its receiver has got.  @return false: there is none. */
static bool lost_link(const struct records *records, int in_ring, struct slow_finding *finding)
{
    int to = in_ring;
    do {
        const int from = waits_for(records, to);
        const struct record_head *const h = records->of[to].head;
        if (!h->waits_sending && records->of[from].pair[to].sent > records->of[to].pair[from].received) {
            finding->part = PART_LINK, finding->device = from, finding->other = to, finding->waiting = to;
            return true;
        }
        to = from;
    } while (to != in_ring);
    return false;
}

bool slow_hang(const struct records *records, struct slow_finding *finding)
{
    int from = -1;
    for (int d = 0; d < records->size && from < 0; d++)
        if (waits_for(records, d) >= 0) from = d;
    if (from < 0) return false;
    const int end = slow_follow(records, from);
    const struct record_head *const h = records->of[end].head;
    *finding = (struct slow_finding){ .class = HANG_COMMUNICATION, .part = PART_DEVICE, .device = end, .other = -1,
                                      .steps = 1, .first = h->step, .waiting = -1 };
    for (int d = 0; d < records->size; d++)
        if (d != end && slow_follow(records, d) == end) {
            finding->peers++;
            if (waits_for(records, d) == end && finding->waiting < 0) finding->waiting = d;
        }
    if (waits_for(records, end) < 0) finding->class = h->open ? HANG_COMMUNICATION : HANG_OUTSIDE;
    else if (!lost_link(records, end, finding)) finding->part = PART_UNKNOWN;
    return true;
}
