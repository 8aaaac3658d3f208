/* search_invariants.c -- compares a searched schedule with all schedules of the registry that could take its place.
 * verify/cases/drawn.c calls through the list.  A broken promise is ERR_CHECK; other errors are those of timing. */
#include "emulated_devices/schemes/pipeline/search_invariants.h"
#include "emulated_devices/schemes/pipeline/timing.h"

/* The longest time of a device from its first pass to its last one, by the times of the request. */
static enum error_code span_of(const struct schedule *schedule, const struct schedule_request *request, int64_t *span,
                               struct error *err)
{
    struct timing t;
    const struct even_times times = { request->forward, request->backward_input, request->backward_weight,
                                      request->communication, 0 };
    const enum error_code e = schedule_time_evenly(&t, schedule, times, err);
    if (e) return e;
    *span = t.span;
    timing_free(&t);
    return OK;
}

/* A schedule's memory shows where there are many microbatches. */
enum { MANY_TIMES_OF_DEVICES = 4 };

/* The most microbatches of many whose activations some device holds; 0: there is no such schedule. */
static int limit_of(const char *name, const struct schedule_request *request)
{
    struct schedule_request many = *request;
    struct schedule schedule;
    struct error refused;
    int most = 0;
    many.micros = MANY_TIMES_OF_DEVICES * many.devices;
    if (schedule_make(&schedule, name, &many, &refused) != OK) return 0;
    for (int d = 0; d < schedule.devices; d++)
        if (schedule_peak(&schedule, d) > most) most = schedule_peak(&schedule, d);
    schedule_free(&schedule);
    return most;
}

/* Whether a schedule trains as the searched one does: each device has one stage, and its weights once. */
static bool takes_its_place(const struct schedule *other, const struct schedule *searched)
{
    return other->chunks == 1 && other->weight_versions == 1 && other->update_every == other->micros &&
           other->stages == searched->stages && !schedule_is_partial(other);
}

/* No other schedule that holds as little is shorter. */
static enum error_code none_is_shorter(const void *seen, int64_t *checked, struct error *err)
{
    const struct schedule_seen *const s = seen;
    const struct schedule_generator *g;
    const int own_limit = limit_of(s->schedule->name, s->request);
    int64_t own = 0, span = 0;
    enum error_code e = span_of(s->schedule, s->request, &own, err);
    for (int i = 0; (g = schedule_generator_at(i)) != NULL && !e; i++) {
        struct schedule other;
        struct error refused;
        /* A generator that refuses these sizes has no schedule to compare. */
        if (g->searches || schedule_make(&other, g->head.name, s->request, &refused) != OK) continue;
        const int limit = limit_of(g->head.name, s->request);
        if (takes_its_place(&other, s->schedule) && limit > 0 && limit <= own_limit) {
            e = span_of(&other, s->request, &span, err);
            if (!e && span < own)
                e = fail(err, ERR_CHECK, "%d microbatches on %d devices take %lld, with %s %lld", other.micros,
                         other.devices, (long long)own, g->head.name, (long long)span);
            *checked += 1;
        }
        schedule_free(&other);
    }
    return e;
}

const struct invariant searched_invariants[] = {
    { "span", "from 2P microbatches on no schedule of one stage a device with as little memory is shorter",
      none_is_shorter },
    { NULL },
};
