/* recorder_cost.c -- times the functions of comm/recorder.h, and a step that records.
 * cli/bench/recorder.c calls.  Errors are those of opening a device and of the steps. */
#include "emulated_devices/bench/recorder_cost.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/comm/recorder.h"
#include "emulated_devices/train/training.h"
#include "ref/machine/measure.h"
#include <stdlib.h>

enum { ROUNDS = 200000, MESSAGES = 4, SIZE = 8 };

static double nanoseconds_of(const struct comm *comm, const struct group *group, int messages)
{
    struct exchange x = { .group = (struct group *)(uintptr_t)group, .operation = ALLREDUCE };
    const struct passage passage = { .bytes = 4096, .carried = 1000 };
    const double begin = measure_processor();
    for (int i = 0; i < ROUNDS; i++) {
        recorder_begins(comm, group, ALLREDUCE);
        for (int m = 0; m < messages; m++) {
            recorder_sends(comm, m);
            recorder_waits(comm, &x, m, false);
            recorder_goes_on(comm);
            recorder_arrived(comm, &x, m, &passage, 0);
        }
        recorder_ends(comm);
    }
    return 1e9 * (measure_processor() - begin) / ROUNDS;
}

static enum error_code time_functions(struct recorder_cost *cost, const struct plan *plan, struct error *err)
{
    struct device device;
    struct comm comm;
    struct recorder recorder;
    enum error_code e = device_open(&device, NULL, plan->dtype, 0, err);
    if (e) return e;
    clock_restart(&device.clock, plan->cluster, plan->dtype);
    e = comm_alone(&comm, &device, err);
    if (!e) {
        e = recorder_open(&recorder, NULL, 0, SIZE, 0, err);
        if (!e) {
            comm.recorder = &recorder;
            recorder_step(&comm, 1);
            cost->call = nanoseconds_of(&comm, comm.everyone, 0);
            cost->message = (nanoseconds_of(&comm, comm.everyone, MESSAGES) - cost->call) / MESSAGES;
            comm.recorder = NULL;
            recorder_close(&recorder);
        }
        comm_alone_close(&comm);
    }
    device_close(&device);
    return e;
}

/* A crew of devices with numbers trains, each with a recorder. */
struct recorded_run { const struct plan *plan; struct batch_source source; int steps; uint64_t *calls, *messages; };

static void recorder_cost_fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids,
                               int32_t *labels, int32_t *within)
{
    const struct plan *const plan = context;
    (void)within;
    for (int64_t i = 0; i < count * plan->S; i++) {
        ids[i] = (int32_t)((step + (first * plan->S + i) * 7) % plan->model.V);
        labels[i] = (ids[i] + 7) % (int32_t)plan->model.V;
    }
}

static enum error_code train_recorded(struct comm *comm, const struct recorded_run *run, struct error *err)
{
    struct trainer trainer;
    struct recorder recorder;
    enum error_code e = trainer_open(&trainer, run->plan, comm, run->source, err);
    if (e) return e;
    e = recorder_open(&recorder, NULL, comm->rank, comm->size, 0, err);
    if (!e) {
        comm->recorder = &recorder;
        e = training_run(&trainer, run->steps, NULL, 0, NULL, err);
        run->calls[comm->rank] = recorder.head->calls;
        for (int d = 0; d < comm->size; d++) run->messages[comm->rank] += recorder.pair[d].received;
        comm->recorder = NULL;
        recorder_close(&recorder);
    }
    trainer_close(&trainer);
    return e;
}

static enum error_code recorder_cost_device(struct crew *crew, int rank, const void *asked, struct error *err)
{
    const struct recorded_run *const run = asked;
    struct device device;
    struct comm comm;
    enum error_code e = device_open(&device, backend_find("cpu"), run->plan->dtype, 0, err);
    if (e) return e;
    const struct cluster own = cluster_of_rank(run->plan->cluster, rank);
    clock_restart(&device.clock, &own, run->plan->dtype);
    e = crew_join(&comm, crew, rank, &device, err);
    if (!e) e = train_recorded(&comm, run, err), comm_close(&comm);
    device_close(&device);
    return e;
}

enum error_code recorder_cost(struct recorder_cost *cost, const struct plan *plan, int steps, struct error *err)
{
    const int devices = plan->mesh.devices;
    struct recorded_run run = { .plan = plan, .source = { recorder_cost_fill, plan }, .steps = steps };
    *cost = (struct recorder_cost){ .call = 0 };
    run.calls = calloc((size_t)devices * 2, sizeof *run.calls);
    if (run.calls == NULL) return fail(err, ERR_MEMORY, "no memory for the counts of %d devices", devices);
    run.messages = run.calls + devices;
    enum error_code e = time_functions(cost, plan, err);
    const double begin = measure_processor();
    if (!e) e = crew_run(devices, recorder_cost_device, &run, err);
    cost->step = 1e9 * (measure_processor() - begin) / steps / devices;
    for (int d = 0; d < devices; d++) {
        cost->calls += (double)run.calls[d] / steps / devices;
        cost->messages += (double)run.messages[d] / steps / devices;
    }
    if (!e) cost->share = 100 * (cost->calls * cost->call + cost->messages * cost->message) / cost->step;
    free(run.calls);
    return e;
}
