/* weather.c -- starts the devices that train a model with fields on a globe, or is one.  train.c calls weather_train,
 * in each device's process too.  Errors: ERR_PLAN of a wrong number of devices; those of files and of the run. */
#include "emulated_devices/cli/train/weather.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/weather/saved.h"
#include "ref/io/output.h"
#include "ref/machine/threads.h"

static enum error_code weather_on(struct comm *comm, const struct weather_asked *asked, struct error *err)
{
    const struct weather_job *const job = asked->job;
    const struct cluster own = cluster_of_rank(asked->cluster, comm->rank);
    char place[80];
    clock_restart(&comm->device->clock, &own, F64);
    threads_use(comm->cores);
    announce_process(comm->rank, weather_place(job, comm->rank, place, sizeof place));
    if (comm->size != weather_devices(job))
        return fail(err, ERR_PLAN, "the launcher started %d process%s, but --dp %d --ensemble %d --polar %d "
                    "--azimuth %d is a mesh of %d", comm->size, comm->size == 1 ? "" : "es", job->size[SAMPLES],
                    job->size[ENSEMBLE], job->size[POLAR], job->size[AZIMUTH], weather_devices(job));
    return weather_run_job(comm, asked, err);
}

/* With --check data in flight arrive as late as they may, at random. */
static enum error_code weather_open_device(struct device *device, const struct weather_asked *asked, struct error *err)
{
    const enum error_code e = device_open(device, NULL, F64, asked->memory, err);
    if (e) return e;
    clock_open(&device->clock, asked->cluster, F64);
    if (asked->checks) device->streams = (struct flight_mode){ FLIGHT_RANDOM, asked->job->seed };
    return OK;
}

static enum error_code weather_device(const struct weather_asked *asked, struct error *err)
{
    struct device device;
    struct comm comm;
    enum error_code e = weather_open_device(&device, asked, err);
    if (e) return e;
    e = comm_open(&comm, &device, err);
    if (!e) e = weather_on(&comm, asked, err), comm_close(&comm);
    device_close(&device);
    return e;
}

static enum error_code be_device_of_weather(struct crew *crew, int rank, const void *asked, struct error *err)
{
    struct device device;
    struct comm comm;
    enum error_code e = weather_open_device(&device, asked, err);
    if (e) return e;
    e = crew_join(&comm, crew, rank, &device, err);
    if (!e) {
        crew_agree_by_messages(&comm);
        e = weather_on(&comm, asked, err);
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

static enum error_code probe_outputs(const struct weather_asked *asked, struct error *err)
{
    const enum error_code e = asked->save ? fail_about(err, weather_save_probe(asked->save, err), "--save") : OK;
    return e || !asked->json ? e : fail_about(err, output_probe(asked->json, err), "--json");
}

enum error_code weather_train(const struct weather_asked *asked, bool together, int argc, char **argv, int *status,
                              struct error *err)
{
    const int devices = weather_devices(asked->job);
    const bool alone = under_launcher() || devices == 1;
    /* A file that cannot be written is reported once, before the devices start. */
    const enum error_code e = under_launcher() ? OK : probe_outputs(asked, err);
    if (e) return e;
    if (!alone && together) return crew_run(devices, be_device_of_weather, asked, err);
    return alone ? weather_device(asked, err) : launch_devices(devices, argc, argv, status, err);
}
