/* powerflow.c -- jobs grow, in devices or clock rates, under a budget of energy (powerflow.h), by models of steps that
 * are fitted to a few prices (fit.h).  Jobs with the least left get their fewest devices first.  A job that runs grows
 * only if that saves more time than the change takes.  schedulers.c lists it.  Errors: ERR_MEMORY, those of prices.
 *
 * The budget is a share of what all jobs that run would take as they ask, at the highest clock rate.
 */
#include "emulated_devices/cluster/fit.h"
#include "emulated_devices/cluster/powerflow.h"
#include "emulated_devices/cluster/scheduler.h"
#include <math.h>
#include <stdlib.h>

/* Seconds of a step and joules of all its devices by a kind's model. */
struct kind_model { bool known; struct growth_table table; };

static enum error_code powerflow_open(struct scheduling *scheduling, struct error *err)
{
    scheduling->own = calloc((size_t)scheduling->pricing->jobs->kinds + 1, sizeof(struct kind_model));
    return scheduling->own ? OK : fail(err, ERR_MEMORY, "no memory for the models of jobs");
}

static void powerflow_close(struct scheduling *scheduling) { free(scheduling->own); }

/* The devices that any job of a kind may have. */
static void kind_range(const struct cluster_jobs *jobs, int kind, int *least, int *most)
{
    *least = JOB_DEVICES_MOST, *most = 1;
    for (int i = 0; i < jobs->count; i++) {
        if (jobs->at[i].kind != kind) continue;
        *least = jobs->at[i].least < *least ? jobs->at[i].least : *least;
        *most = jobs->at[i].most > *most ? jobs->at[i].most : *most;
    }
}

/* Fit the model of a kind.  Whether its plan fits the memory is known of each number of devices. */
static enum error_code model_kind(struct scheduling *scheduling, int kind, struct error *err)
{
    struct pricing *const pricing = scheduling->pricing;
    struct kind_model *const model = &((struct kind_model *)scheduling->own)[kind];
    struct job_fit fit;
    int least, most;
    kind_range(pricing->jobs, kind, &least, &most);
    enum error_code e = job_fit_make(&fit, pricing, kind, least, most, err);
    for (int size = job_size_log(least); size <= job_size_log(most) && !e; size++) {
        const struct job_price *price;
        e = pricing_step(pricing, kind, 1 << size, pricing_top(pricing), &price, err);
        for (int c = 0; c < pricing->clocks && !e; c++) {
            const double f = 0.01 * pricing->clock[c], seconds = job_fit_seconds(&fit, 1 << size, f);
            model->table.seconds[size][c] = price->fits ? seconds : INFINITY;
            model->table.joules[size][c] = (1 << size) * seconds * job_fit_watts(&fit, f);
        }
    }
    model->known = !e;
    return e;
}

static double seconds_left(const struct scheduling *scheduling, const struct active_job *active, int devices)
{
    const struct kind_model *const model = &((struct kind_model *)scheduling->own)[active->job->kind];
    return 1e-6 * (double)active->left * model->table.seconds[job_size_log(devices)][pricing_top(scheduling->pricing)];
}

static void take_growth_job(struct growth_job *to, const struct scheduling *scheduling,
                            const struct active_job *active)
{
    const struct kind_model *const model = &((struct kind_model *)scheduling->own)[active->job->kind];
    *to = (struct growth_job){ &model->table, 1e-6 * (double)active->left, job_size_log(active->job->least),
                               job_size_log(active->job->most), -1, 0 };
}

/* Give a job what it has grown to.  Growth that saves less than a change takes is left. */
static void take_choice(struct scheduling *scheduling, struct active_job *active, const struct growth_job *grown)
{
    if (grown->size < 0) {
        active->next = (struct allocation){ 0, 0, -1 };
        return;
    }
    const int devices = 1 << grown->size, had = active->now.devices;
    active->next = (struct allocation){ devices, grown->clock, devices == had ? active->now.place : -1 };
    if (had == 0 || devices <= had || had < active->job->least) return;
    const double (*const seconds)[CLOCKS_MOST] = grown->of->seconds;
    const double saves = grown->steps * (seconds[job_size_log(had)][grown->clock] - seconds[grown->size][grown->clock]);
    if (saves < 2e-3 * (double)scheduling->setting->change)
        active->next = (struct allocation){ had, grown->clock, active->now.place };
}

static enum error_code powerflow_decide(struct scheduling *scheduling, struct error *err)
{
    const int n = scheduling->count, top = pricing_top(scheduling->pricing);
    struct active_job **const at = malloc((size_t)(n + 1) * sizeof *at);
    struct growth_job *const job = malloc((size_t)(n + 1) * sizeof *job);
    enum error_code e = at && job ? OK : fail(err, ERR_MEMORY, "no memory for the growth of %d jobs", n);
    for (int i = 0; i < n && !e; i++) {
        at[i] = scheduling->at[i];
        if (!((struct kind_model *)scheduling->own)[at[i]->job->kind].known)
            e = model_kind(scheduling, at[i]->job->kind, err);
        if (!e) at[i]->key = seconds_left(scheduling, at[i], at[i]->job->devices);
    }
    if (!e) scheduling_sort(at, n);
    double budget = 0;
    int taken = 0;
    for (int i = 0, left = scheduling->devices; i < n && !e; i++) {
        at[i]->next = (struct allocation){ 0, 0, -1 };
        if (at[i]->job->least > left) continue;         /* it waits, whatever the others choose */
        left -= at[i]->job->least;
        take_growth_job(&job[taken], scheduling, at[i]);
        budget += job[taken].steps * job[taken].of->joules[job_size_log(at[i]->job->devices)][top];
        at[taken++] = at[i];
    }
    if (!e) e = growth_run(job, taken, scheduling->devices, scheduling->pricing->clocks,
                           scheduling->setting->budget * budget, err);
    for (int i = 0; i < taken && !e; i++) take_choice(scheduling, at[i], &job[i]);
    free(at), free(job);
    return e;
}

const struct scheduler scheduler_powerflow = {
    .name = "powerflow", .what = "devices and clock rates grow where time is saved for the least energy",
    .source = "PowerFlow, arXiv:2304.06381", .moves = true, .open = powerflow_open, .close = powerflow_close,
    .decide = powerflow_decide,
};
