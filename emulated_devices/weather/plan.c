/* plan.c -- steps of a weather model without their numbers: every device of the mesh, in this process.
 *
 * `orrery plan` and --dry-run call weather_plan on rank 0; a browser can, too, since nothing here starts a process.
 * The devices run the step of `orrery train` with the backend `count`: messages, bytes, memory and virtual time are
 * those of a run.  Errors: ERR_CHECK of a step that does not fit, ERR_USAGE, ERR_MEMORY.
 */
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/device/backend.h"
#include "emulated_devices/weather/run.h"

static enum error_code weather_plan_device(struct crew *crew, int rank, const void *context, struct error *err)
{
    const struct weather_asked *const asked = context;
    const struct cluster own = cluster_of_rank(asked->cluster, rank);
    struct device device;
    struct comm comm;
    /* A plan that does not fit is told to its end, so the device has no budget. */
    enum error_code e = device_open(&device, backend_find("count"), F64, 0, err);
    if (e) return e;
    clock_open(&device.clock, &own, F64);
    e = crew_join(&comm, crew, rank, &device, err);
    if (!e) {
        e = weather_run_job(&comm, asked, err);
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

/* The table is the same on all devices, and without tables of transforms. */
enum error_code weather_plan(const struct weather_asked *asked, struct error *err)
{
    struct weather_network network;
    struct weather_job job = *asked->job;
    struct weather_asked plan = *asked;
    enum error_code e = weather_open_without(&network, job.shape, err);
    if (e) return e;
    job.network = &network, plan.job = &job, plan.plans = true;
    e = crew_run(weather_devices(&job), weather_plan_device, &plan, err);
    weather_close(&network);
    return e;
}
