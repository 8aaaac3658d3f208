/* draw.c -- draws jobs by a law.  cli/cluster/ and bench/cluster.c call.  Errors: ERR_USAGE of a law's name;
 * ERR_MEMORY; those of prices. */
#include "emulated_devices/cluster/draw.h"
#include "ref/exact/scalars.h"
#include "ref/io/options.h"
#include "ref/numeric/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct job_law job_laws[] = {
    { "gavel", "D. Narayanan et al., OSDI 2020: as the generator of Gavel draws the Philly trace",
      { { .70, 1 }, { .10, 2 }, { .15, 4 }, { .05, 8 } }, { { .8, 1.5, 3 }, { .2, 3, 4 } } },
    { "gavel-single", "the same, of jobs on one device",
      { { 1, 1 } }, { { .8, 1.5, 3 }, { .2, 3, 4 } } },
    { .name = NULL },
};

/* Plans of drawn jobs: some scale well, some do not.  Batches divide by as many devices as a drawn job may have. */
static const char *const plans[] = {
    "--model gpt2 --seq 256 --batch 64 --dtype bf16",
    "--model gpt2 --seq 256 --batch 64 --zero 1",
    "--model 43m --batch 64 --dtype bf16",
    "--model 43m --batch 128",
    "--model 11m --batch 128",
};
enum { PLANS = sizeof plans / sizeof *plans, DRAWN_MOST = 16, MOST_TIMES = 4 };

enum error_code job_law_find(const struct job_law **law, const char *name, struct error *err)
{
    enum { MOST = 8 };
    const char *names[MOST];
    size_t n = 0;
    for (*law = job_laws; (*law)->name && n < MOST; (*law)++) {
        if (strcmp((*law)->name, name) == 0) return OK;
        names[n++] = (*law)->name;
    }
    return fail_unknown_name(err, "--law", name, names, n);
}

static double drawn_uniform(const struct drawn_jobs *drawn, const char *what, int number)
{
    return random_uniform(drawn->seed, random_stream(what), (uint64_t)number);
}

static int drawn_devices(const struct drawn_jobs *drawn, int number)
{
    double u = drawn_uniform(drawn, "job devices", number);
    const struct size_part *part = drawn->law->size;
    while (part < drawn->law->size + LAW_PARTS - 1 && part[1].part > 0 && u >= part->part) u -= (part++)->part;
    return part->devices;
}

/* Minutes. */
static double drawn_length(const struct drawn_jobs *drawn, int number)
{
    double u = drawn_uniform(drawn, "job part", number);
    const struct length_part *part = drawn->law->length;
    while (part < drawn->law->length + LAW_PARTS - 1 && part[1].part > 0 && u >= part->part) u -= (part++)->part;
    const double where = drawn_uniform(drawn, "job length", number);
    return scalar_power(10, part->from + where * (part->to - part->from));
}

static int drawn_user(const struct drawn_jobs *drawn, int number)
{
    double all = 0, u = drawn_uniform(drawn, "job user", number);
    for (int i = 0; i < drawn->users; i++) all += 1.0 / (i + 1);
    for (int i = 0; i < drawn->users; i++)
        if ((u -= 1.0 / (i + 1) / all) < 0) return i;
    return drawn->users - 1;
}

/* Device minutes of a job, on average: sizes and lengths do not depend on each other. */
static double mean_work(const struct job_law *law)
{
    double devices = 0, minutes = 0;
    for (int i = 0; i < LAW_PARTS; i++) {
        const struct length_part *const l = &law->length[i];
        devices += law->size[i].part * law->size[i].devices;
        if (l->part > 0)
            minutes += l->part * (scalar_power(10, l->to) - scalar_power(10, l->from))
                       / ((l->to - l->from) * scalar_log(10));
    }
    return devices * minutes;
}

/* Jobs whose steps are still milliseconds. */
static enum error_code add_jobs(struct cluster_jobs *jobs, const struct drawn_jobs *drawn, struct error *err)
{
    const double gap = 6e4 * drawn->scale * mean_work(drawn->law) / (drawn->load * drawn->devices);
    double arrival = 0;
    enum error_code e = OK;
    for (int i = 0; i < drawn->jobs && !e; i++) {
        char user[JOB_TEXT];
        struct cluster_job job = { .devices = drawn_devices(drawn, i), .least = 1 };
        if (job.devices > drawn->devices) job.devices = drawn->devices;
        job.most = MOST_TIMES * job.devices < DRAWN_MOST ? MOST_TIMES * job.devices : DRAWN_MOST;
        job.arrival = (int64_t)arrival;
        job.steps = (int64_t)(6e4 * drawn->scale * drawn_length(drawn, i));
        snprintf(job.name, sizeof job.name, "job%d", i + 1);
        snprintf(user, sizeof user, "user%d", drawn_user(drawn, i) + 1);
        arrival += -scalar_log(1 - drawn_uniform(drawn, "job gap", i)) * gap;
        e = cluster_jobs_add(jobs, job, plans[(int)(drawn_uniform(drawn, "job plan", i) * PLANS)], user, err);
    }
    return e;
}

/* As many steps as take a job's milliseconds. */
static enum error_code count_steps(struct cluster_jobs *jobs, const struct price_source *source, int clock,
                                   struct error *err)
{
    struct pricing pricing;
    const struct device_power none = { 0, 0, 0 };
    enum error_code e = pricing_open(&pricing, jobs, source, &clock, 1, &none, 1, err);
    for (int i = 0; i < jobs->count && !e; i++) {
        struct cluster_job *const j = &jobs->at[i];
        const struct job_price *price;
        e = pricing_step(&pricing, j->kind, j->devices, 0, &price, err);
        if (!e && !price->fits)
            e = fail(err, ERR_PLAN, "%s does not fit %d devices: %s", jobs->plan[j->kind], j->devices, price->why);
        if (e) break;
        const int64_t steps = price_millionths(price, j->steps) / 1000000;
        j->steps = steps < 1 ? 1 : steps > 1000000000 ? 1000000000 : steps;
    }
    pricing_close(&pricing);
    return e;
}

enum error_code cluster_jobs_draw(struct cluster_jobs *jobs, const struct drawn_jobs *drawn,
                                  const struct price_source *source, int clock, struct error *err)
{
    *jobs = (struct cluster_jobs){ .count = 0 };
    enum error_code e = add_jobs(jobs, drawn, err);
    if (!e) e = count_steps(jobs, source, clock, err);
    if (e) cluster_jobs_free(jobs);
    return e;
}
