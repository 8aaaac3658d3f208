/* report.c -- sums up a simulation.  cli/cluster/, page.c and claims call.  Errors: ERR_MEMORY, those of prices. */
#include "emulated_devices/cluster/report.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include <stdlib.h>

static int by_seconds(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean time of the half of jobs with the least work, as they ask for devices. */
static enum error_code mean_of_small(double *small, const struct simulated *out, const struct cluster_jobs *jobs,
                                     struct pricing *pricing, double *work, struct error *err)
{
    double *const sorted = malloc((size_t)(jobs->count + 1) * sizeof *sorted), sum = 0;
    int n = 0;
    if (sorted == NULL) return fail(err, ERR_MEMORY, "no memory to sort %d jobs", jobs->count);
    for (int i = 0; i < jobs->count; i++) {
        const struct cluster_job *const j = &jobs->at[i];
        const struct job_price *price;
        const enum error_code e = pricing_step(pricing, j->kind, j->devices, pricing_top(pricing), &price, err);
        if (e) return free(sorted), e;
        sorted[i] = work[i] = (double)price_milliseconds(price, 1000000 * j->steps) * j->devices;
    }
    qsort(sorted, (size_t)jobs->count, sizeof *sorted, by_seconds);
    const double middle = sorted[(jobs->count - 1) / 2];
    for (int i = 0; i < jobs->count; i++)
        if (work[i] <= middle) sum += job_seconds(out, jobs, i), n++;
    *small = n > 0 ? sum / n : 0;
    free(sorted);
    return OK;
}

enum error_code cluster_sums_of(struct cluster_sums *sums, const struct simulated *out,
                                const struct cluster_jobs *jobs, struct pricing *pricing, struct error *err)
{
    const int n = jobs->count;
    double *const seconds = malloc((size_t)(n + 1) * sizeof *seconds), done = 0, redone = 0;
    *sums = (struct cluster_sums){ .end = 1e-3 * (double)out->end, .joules = 1e-3 * (double)out->energy,
                                   .bytes = out->bytes };
    if (seconds == NULL) return fail(err, ERR_MEMORY, "no memory to sum up %d jobs", n);
    const enum error_code e = mean_of_small(&sums->small, out, jobs, pricing, seconds, err);
    for (int i = 0; i < n && !e; i++) {
        const struct job_outcome *const o = &out->job[i];
        seconds[i] = job_seconds(out, jobs, i);
        sums->mean += seconds[i] / n, sums->waits += 1e-3 * (double)(o->began - jobs->at[i].arrival) / n;
        sums->changes += o->changes, sums->pauses += o->pauses, sums->failures += o->failures;
        done += (double)o->done, redone += (double)o->redone, sums->device_hours += (double)o->served / 3.6e6;
    }
    if (!e) {
        qsort(seconds, (size_t)n, sizeof *seconds, by_seconds);
        sums->median = seconds[(n - 1) / 2], sums->p99 = seconds[(int)(0.99 * (n - 1) + 0.5)];
        sums->redone = done > 0 ? redone / done : 0;
        sums->used = out->end > 0 ? 3.6e6 * sums->device_hours / ((double)out->end * out->devices) : 0;
    }
    free(seconds);
    return e;
}

void cluster_states_print(const struct simulated *out)
{
    say(stdout, 8, "energy  %s, state by state:", energy_format(1e-3 * (double)out->energy).text);
    for (int s = 0; s < DEVICE_STATES; s++)
        say(stdout, 12, "        %s: %.1f device hours, %s", device_state_names[s], (double)out->all.time[s] / 3.6e6,
            energy_format(1e-3 * (double)out->all.energy[s]).text);
}
