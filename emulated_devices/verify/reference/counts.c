/* counts.c -- compares what one device has sent, moved and held with the predictions, number by number.  Numbers
 * must be equal: ERR_CHECK names device, kind and both numbers.  Each device checks itself, without messages.
 * run/reports.c and cases/case.c call these functions. */
#include "emulated_devices/verify/reference/counts.h"
#include "emulated_devices/train/dry_run/plan_memory.h"
#include <stdio.h>

enum { TEXT = 120 };

/* Describe the messages of one level of links.  A negative level stands for all levels, with the additions. */
static const char *counts_describe(char text[TEXT], const struct traffic *traffic, int level)
{
    const struct sent all = { traffic->messages_sent, traffic->bytes_sent }, s = level < 0 ? all
        : traffic->level[level];
    const int used =
        snprintf(text, TEXT, "%llu messages, %llu bytes", (unsigned long long)s.messages, (unsigned long long)s.bytes);
    if (level < 0) snprintf(text + used, (size_t)(TEXT - used), ", %llu additions",
                            (unsigned long long)traffic->additions);
    return text;
}

/* ---- messages and sums ------------------------------------------------------------------------------------------- */

/* These are a device's three accounts: messages that were sent, that calls expected, and that were predicted. */
struct ledgers { const struct ledger *counted, *expected, *predicted; };

/* Compare the three accounts for one kind of traffic, one operation and one level of links. */
static enum error_code check_one(const struct comm *comm, struct ledgers ledgers, enum traffic_kind kind,
                                 enum operation op, int level, struct error *err)
{
    const struct traffic *did = &ledgers.counted->of[kind].of[op], *expected = &ledgers.expected->of[kind].of[op];
    const struct traffic *predicted = &ledgers.predicted->of[kind].of[op];
    char one[TEXT], two[TEXT], three[TEXT];
    if (traffic_equal(did, expected, level) && traffic_equal(did, predicted, level)) return OK;
    return fail(err, ERR_CHECK, "device %d, %s %s%s%s: counted %s; its calls expected %s; predicted were %s",
                comm->rank, traffic_kind_name(kind), operation_name(op), level < 0 ? "" : " over links of level ",
                level < 0 ? "" : comm->device->clock.cluster.link[level].level, counts_describe(one, did, level),
                counts_describe(two, expected, level), counts_describe(three, predicted, level));
}

/* CONTROL messages belong to checks, not to the plan, so they are not compared. */
enum error_code ledgers_check(const struct comm *comm, const struct ledger *predicted, struct error *err)
{
    const struct ledgers all = { &comm->counted, &comm->expected, predicted };
    enum error_code e = OK;
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++)
        for (enum operation op = 0; op < CONTROL; op++)
            for (int level = -1; level < CLUSTER_LEVELS && !e; level++)
                e = check_one(comm, all, kind, op, level, err);
    return e;
}

/* ---- the slow tier ----------------------------------------------------------------------------------------------- */

/* Compare reads and writes of the slow tier, in calls and in bytes, with the formulas for so many steps. */
static enum error_code check_tier(const struct trainer *trainer, int64_t steps, struct error *err)
{
    const struct tier_traffic did = trainer_tier_traffic_counted(trainer),
        want = trainer_tier_traffic_so_far(trainer, steps);
    const bool reads = did.reads == want.reads && did.bytes_read == want.bytes_read;
    if (reads && did.writes == want.writes && did.bytes_written == want.bytes_written) return OK;
    return fail(err, ERR_CHECK,
                "device %d, slow tier: counted %llu bytes in %llu reads, %llu in %llu writes; "
                "the formulas say %llu in %llu, %llu in %llu",
                trainer->comm->rank, (unsigned long long)did.bytes_read, (unsigned long long)did.reads,
                (unsigned long long)did.bytes_written, (unsigned long long)did.writes,
                (unsigned long long)want.bytes_read, (unsigned long long)want.reads,
                (unsigned long long)want.bytes_written, (unsigned long long)want.writes);
}

enum error_code traffic_check(const struct trainer *trainer, int64_t steps, struct error *err)
{
    struct ledger predicted;
    trainer_predict(trainer, steps, &predicted);
    const enum error_code e = ledgers_check(trainer->comm, &predicted, err);
    return e ? e : check_tier(trainer, steps, err);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Compare with what was predicted before the devices started: at least one optimizer step.  If fp16 overflowed in each
 * step, there was none. */
static enum error_code check_prediction(const struct trainer *trainer, int64_t steps, struct error *err)
{
    if (trainer->skipped >= steps) return OK;
    const struct arena_use *counted = &trainer->device->arena.peak;
    struct plan_memory m;
    const enum error_code e = plan_memory(&trainer->plan, trainer->comm->rank, steps, &m, err);
    /* Activations of routed rows depend on the routers' choices, and those of encoders on a step's clips, which this
     * prediction does not know; the peak may then be larger. */
    const bool known = !plan_routes_rows(&trainer->plan) && trainer->plan.encoders.kinds == 0;
    for (int tag = 0; tag < BUFFERS && !e; tag++)
        if (counted->tag[tag] != m.peak.tag[tag] && !(tag == ACTIVATIONS && !known))
            return fail(err, ERR_CHECK, "device %d: the peak of %s is %llu bytes; before the start %llu were predicted",
                        trainer->comm->rank, arena_tag_name(tag), (unsigned long long)counted->tag[tag],
                        (unsigned long long)m.peak.tag[tag]);
    if (!e && counted->total < m.peak.total)
        return fail(err, ERR_CHECK, "device %d: the peak is %llu bytes; before the start at least %llu were predicted",
                    trainer->comm->rank, (unsigned long long)counted->total, (unsigned long long)m.peak.total);
    return e;
}

enum error_code memory_check(const struct trainer *trainer, int64_t steps, struct error *err)
{
    const struct arena *a = &trainer->device->arena;
    if (steps == 0) return OK;
    for (int tag = 0; tag < BUFFERS; tag++)
        if (a->peak.tag[tag] != trainer_peak(trainer, tag))
            return fail(err, ERR_CHECK, "device %d: the peak of %s is %llu bytes; its formula says %llu",
                        trainer->comm->rank, arena_tag_name(tag), (unsigned long long)a->peak.tag[tag],
                        (unsigned long long)trainer_peak(trainer, tag));
    /* Every activation has a backward pass or an end of its step that frees the memory. */
    if (a->now.tag[ACTIVATIONS] != 0)
        return fail(err, ERR_CHECK, "device %d: %llu bytes of activations are left after a step", trainer->comm->rank,
                    (unsigned long long)a->now.tag[ACTIVATIONS]);
    /* With a batch plan the peak is that of its largest step, which may still come. */
    const bool largest_done = trainer->plan.batches == NULL || steps >= trainer->plan.batches->steps;
    /* the prediction is for a run that starts at the first step */
    return trainer->step == steps && largest_done ? check_prediction(trainer, steps, err) : OK;
}
