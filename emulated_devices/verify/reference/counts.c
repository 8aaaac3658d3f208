#include "emulated_devices/verify/reference/counts.h"
#include "emulated_devices/model/dry_run/plan_memory.h"
#include <stdio.h>

enum { TEXT = 120 };

/* Of one level, or of all: level < 0. */
static const char *describe(char text[TEXT], const struct traffic *t, int level)
{
    const struct sent all = { t->messages_sent, t->bytes_sent }, s = level < 0 ? all : t->level[level];
    const int used =
        snprintf(text, TEXT, "%llu messages, %llu bytes", (unsigned long long)s.messages, (unsigned long long)s.bytes);
    if (level < 0) snprintf(text + used, (size_t)(TEXT - used), ", %llu additions", (unsigned long long)t->additions);
    return text;
}

/* ---- messages and sums ------------------------------------------------------------------------------------------- */

struct ledgers { const struct ledger *counted, *expected, *predicted; };

static enum error_code check_one(const struct comm *c, struct ledgers l, enum traffic_kind kind, enum operation op,
                                 int level, struct error *err)
{
    const struct traffic *did = &l.counted->of[kind].of[op], *expected = &l.expected->of[kind].of[op];
    const struct traffic *predicted = &l.predicted->of[kind].of[op];
    char one[TEXT], two[TEXT], three[TEXT];
    if (traffic_equal(did, expected, level) && traffic_equal(did, predicted, level)) return OK;
    return fail(err, ERR_CHECK, "device %d, %s %s%s%s: counted %s; its calls expected %s; predicted were %s", c->rank,
                traffic_kind_name(kind), operation_name(op), level < 0 ? "" : " over links of level ",
                level < 0 ? "" : c->device->clock.cluster.link[level].level, describe(one, did, level),
                describe(two, expected, level), describe(three, predicted, level));
}

/* ---- the slow tier ----------------------------------------------------------------------------------------------- */

static enum error_code check_tier(const struct trainer *t, int64_t steps, struct error *err)
{
    const struct tier_traffic did = trainer_tier_traffic_counted(t), want = trainer_tier_traffic_so_far(t, steps);
    const bool reads = did.reads == want.reads && did.bytes_read == want.bytes_read;
    if (reads && did.writes == want.writes && did.bytes_written == want.bytes_written) return OK;
    return fail(err, ERR_CHECK,
                "device %d, slow tier: counted %llu bytes in %llu reads, %llu in %llu writes; "
                "the formulas say %llu in %llu, %llu in %llu",
                t->comm->rank, (unsigned long long)did.bytes_read, (unsigned long long)did.reads,
                (unsigned long long)did.bytes_written, (unsigned long long)did.writes,
                (unsigned long long)want.bytes_read, (unsigned long long)want.reads,
                (unsigned long long)want.bytes_written, (unsigned long long)want.writes);
}

enum error_code traffic_check(const struct trainer *t, int64_t steps, struct error *err)
{
    struct ledger predicted;
    const struct ledgers all = { &t->comm->counted, &t->comm->expected, &predicted };
    enum error_code e = OK;
    trainer_predict(t, steps, &predicted);
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++)
        for (enum operation op = 0; op < CONTROL; op++)
            for (int level = -1; level < CLUSTER_LEVELS && !e; level++)
                e = check_one(t->comm, all, kind, op, level, err);
    return e ? e : check_tier(t, steps, err);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Compare with what was predicted before the devices started: at least one optimizer step.  If fp16 overflowed in each
 * step, there was none. */
static enum error_code check_prediction(const struct trainer *t, int64_t steps, struct error *err)
{
    if (t->skipped >= steps) return OK;
    const struct arena_use *counted = &t->device->arena.peak;
    struct plan_memory m;
    const enum error_code e = plan_memory(&t->plan, t->comm->rank, steps, &m, err);
    for (int tag = 0; tag < BUFFERS && !e; tag++)
        if (counted->tag[tag] != m.peak.tag[tag] && !(tag == ACTIVATIONS && plan_routes_rows(&t->plan)))
            return fail(err, ERR_CHECK, "device %d: the peak of %s is %llu bytes; before the start %llu were predicted",
                        t->comm->rank, arena_tag_name(tag), (unsigned long long)counted->tag[tag],
                        (unsigned long long)m.peak.tag[tag]);
    if (!e && counted->total < m.peak.total)
        return fail(err, ERR_CHECK, "device %d: the peak is %llu bytes; before the start at least %llu were predicted",
                    t->comm->rank, (unsigned long long)counted->total, (unsigned long long)m.peak.total);
    return e;
}

enum error_code memory_check(const struct trainer *t, int64_t steps, struct error *err)
{
    const struct arena *a = &t->device->arena;
    if (steps == 0) return OK;
    for (int tag = 0; tag < BUFFERS; tag++)
        if (a->peak.tag[tag] != trainer_peak(t, tag))
            return fail(err, ERR_CHECK, "device %d: the peak of %s is %llu bytes; its formula says %llu", t->comm->rank,
                        arena_tag_name(tag), (unsigned long long)a->peak.tag[tag],
                        (unsigned long long)trainer_peak(t, tag));
    if (a->now.tag[ACTIVATIONS] != 0)
        return fail(err, ERR_CHECK, "device %d: %llu bytes of activations are left after a step", t->comm->rank,
                    (unsigned long long)a->now.tag[ACTIVATIONS]);
    const bool largest_done = t->plan.batches == NULL || steps >= t->plan.batches->steps;
    /* the prediction is for a run that starts at the first step */
    return t->step == steps && largest_done ? check_prediction(t, steps, err) : OK;
}
