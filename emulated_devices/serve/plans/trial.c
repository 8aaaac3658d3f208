/* trial.c -- runs the engine without numbers, all devices in this process.  search.c calls.  Errors: ERR_MEMORY;
 * ERR_PLAN if the engine does not serve a plan. */
#include "emulated_devices/serve/plans/trial.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/device/backend.h"
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/serve/engine.h"
#include <stdlib.h>
#include <string.h>

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

static void keep_step(void *context, int64_t replica, const struct iteration *now, int64_t began, int64_t ended)
{
    struct trial *const trial = context;
    struct trial_steps *const of = &trial->of[replica];
    if (of->count == of->room) {
        const int64_t room = of->room > 0 ? 2 * of->room : 256;
        struct trial_step *const more = realloc(of->step, (size_t)room * sizeof *more);
        if (more == NULL) { trial->lost = true; return; }
        of->step = more, of->room = room;
    }
    const uint64_t before = of->count > 0 ? of->step[of->count - 1].composition : 0;
    of->step[of->count++] = (struct trial_step){ ended - began, iteration_composition(before, now),
                                                 step_cost_of(trial->costs, &trial->plan, &now).tables };
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

struct trial_crew { const struct serving_job *job; struct serving_record *record; };

static enum error_code trial_device(struct crew *crew, int rank, const void *asked, struct error *err)
{
    const struct trial_crew *const all = asked;
    const struct plan *const p = all->job->plan;
    struct serving_record record = { 0 };
    struct device device;
    struct comm comm;
    enum error_code e = device_open(&device, backend_find("count"), p->dtype, 0, err);
    if (e) return e;
    clock_restart(&device.clock, p->cluster, p->dtype);
    e = crew_join(&comm, crew, rank, &device, err);
    if (!e) {
        crew_agree_by_messages(&comm);
        e = serve_requests(&comm, all->job, rank == 0 ? all->record : &record, err);
        serving_record_free(&record);
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

static void take_times(struct trial *trial, const struct requests *requests, const struct serving_record *record)
{
    int64_t end = 0;
    double sum = 0;
    for (int64_t i = 0; i < record->requests; i++) {
        const int64_t last = record->time[record->first[i] + record->answer[i].tokens - 1];
        sum += (double)(last - requests->at[i].arrival) * 1e-12;
        end = last > end ? last : end;
    }
    trial->latency = record->requests > 0 ? sum / (double)record->requests : 0;
    trial->seconds = (double)end * 1e-12;
}

enum error_code trial_run(struct trial *trial, const struct plan *base, const struct requests *requests,
                          const struct serving_limits *limits, struct error *err)
{
    const struct serving_plan *const plan = &trial->plan;
    struct plan p = *base;
    struct serving_record record = { 0 };
    int size[AXIS_COUNT];
    for (int a = 0; a < AXIS_COUNT; a++) size[a] = 1;
    size[DP] = plan->replicas, size[TP] = plan->attention.devices, size[PP] = plan->stages;
    trial->of = calloc((size_t)plan->replicas, sizeof *trial->of);
    enum error_code e = trial->of ? mesh_make(&p.mesh, size, err) : fail(err, ERR_MEMORY, "no memory for a trial");
    p.B = plan->replicas, p.micros = 1, p.ep = 0;
    if (!e) e = plan_check(&p, err);
    if (!e) e = serving_takes(&p, limits, err);
    const struct serving_job job = { .plan = &p, .requests = requests, .limits = *limits,
                                     .watch = { trial, keep_step } };
    const struct trial_crew all = { &job, &record };
    if (!e) e = crew_run(p.mesh.devices, trial_device, &all, err);
    if (!e) take_times(trial, requests, &record);
    serving_record_free(&record);
    if (!e && trial->lost) e = fail(err, ERR_MEMORY, "no memory for the iterations of a trial");
    if (e) trial_free(trial);
    return e;
}

void trial_free(struct trial *trial)
{
    for (int r = 0; r < trial->plan.replicas && trial->of; r++) free(trial->of[r].step);
    free(trial->of);
    trial->of = NULL;
}
