/* counts.c -- compares what one device has sent, moved and held with the predictions, number by number.  Numbers
 * must be equal: ERR_CHECK names device, kind and both numbers.  Each device checks itself, without messages.
 * run/reports.c and cases/case.c call these functions. */
#include "emulated_devices/verify/reference/counts.h"
#include "emulated_devices/verify/reference/ledgers.h"
#include "emulated_devices/train/dry_run/plan_memory.h"

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
