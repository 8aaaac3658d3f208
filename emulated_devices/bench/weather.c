/* weather.c -- runs a step of a weather model on a crew, and keeps the most of all devices.
 *
 * cli/bench/weather.c and tests call bench_weather_run.  Errors: ERR_PLAN, ERR_CHECK, ERR_MEMORY, those of messages.
 */
#include "emulated_devices/bench/weather.h"
#include "emulated_devices/comm/crew.h"

/* Devices of a crew run one after another, so each notes its own without a lock. */
struct bench_weather_asked {
    const struct weather_job *job;
    const struct cluster *cluster;
    struct bench_weather_found *found;
};

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static enum error_code step_on(struct comm *comm, const struct bench_weather_asked *asked, struct error *err)
{
    struct weather_learner learner;
    struct weather_step step;
    enum error_code e = weather_learner_open(&learner, asked->job, comm, err);
    if (e) return e;
    e = weather_gradients(&learner, &step, err);
    if (!e) e = weather_update(&learner, &step, err);
    struct bench_weather_found *const f = asked->found;
    const struct arena_use *const peak = &comm->device->arena.peak;
    if (!e && peak->tag[ACTIVATIONS] != weather_peak(&learner, ACTIVATIONS))
        e = fail(err, ERR_CHECK, "device %d keeps %llu bytes of activations; its formula says %llu", comm->rank,
                 (unsigned long long)peak->tag[ACTIVATIONS],
                 (unsigned long long)weather_peak(&learner, ACTIVATIONS));
    f->activations = most(f->activations, peak->tag[ACTIVATIONS]), f->peak = most(f->peak, peak->total);
    f->tiles = most(f->tiles, ledger_kind(&comm->counted, TRAFFIC_SPATIAL).bytes_sent);
    f->copies = most(f->copies, ledger_kind(&comm->counted, TRAFFIC_DATA).bytes_sent);
    if (comm->device->clock.now > f->time) f->time = comm->device->clock.now;
    e = comm_agree(comm, e, err);
    weather_learner_close(&learner);
    return e;
}

static enum error_code weather_device(struct crew *crew, int rank, const void *context, struct error *err)
{
    const struct bench_weather_asked *const asked = context;
    const struct cluster own = cluster_of_rank(asked->cluster, rank);
    struct device device;
    struct comm comm;
    enum error_code e = device_open(&device, NULL, F64, 0, err);
    if (e) return e;
    clock_open(&device.clock, &own, F64);
    e = crew_join(&comm, crew, rank, &device, err);
    if (!e) {
        crew_agree_by_messages(&comm);
        e = step_on(&comm, asked, err);
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

enum error_code bench_weather_run(const struct weather_job *job, const struct cluster *cluster,
                                  struct bench_weather_found *found, struct error *err)
{
    const struct bench_weather_asked asked = { job, cluster, found };
    *found = (struct bench_weather_found){ 0 };
    const enum error_code e = weather_check(job, err);
    return e ? e : crew_run(weather_devices(job), weather_device, &asked, err);
}
