/* cluster.c -- simulates the jobs that claims of schedulers are about.  cli/bench/cluster.c calls.  Errors are those of
 * plans and simulations. */
#include "emulated_devices/bench/cluster.h"
#include "emulated_devices/cluster/draw.h"
#include "emulated_devices/cluster/fit.h"
#include "emulated_devices/cluster/powerflow.h"
#include "emulated_devices/cluster/report.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int clocks[] = { 60, 80, 100 };
enum { CLOCKS = sizeof clocks / sizeof *clocks };

/* One list of jobs, which several schedulers get. */
struct bench_jobs { struct cluster_jobs jobs; struct pricing pricing; struct price_source source; };

static enum error_code bench_price(struct bench_jobs *to, const struct cluster_bench *bench, struct error *err)
{
    return pricing_open(&to->pricing, &to->jobs, &to->source, clocks, CLOCKS, &bench->power, bench->usual.node, err);
}

static enum error_code bench_draw(struct bench_jobs *to, const struct cluster_bench *bench, double load,
                                  struct error *err)
{
    struct drawn_jobs drawn = { .jobs = 80, .users = 8, .devices = bench->usual.devices, .load = load, .scale = 1,
                                .seed = 1 };
    *to = (struct bench_jobs){ .source = planned_prices(bench->planned) };
    enum error_code e = job_law_find(&drawn.law, "gavel", err);
    if (!e) e = cluster_jobs_draw(&to->jobs, &drawn, &to->source, 100, err);
    return e ? e : bench_price(to, bench, err);
}

static void bench_free(struct bench_jobs *to)
{
    pricing_close(&to->pricing);
    cluster_jobs_free(&to->jobs);
}

static enum error_code bench_run(struct bench_jobs *of, const struct cluster_bench *bench, const char *scheduler,
                                 struct cluster_sums *sums, struct simulated *kept, struct error *err)
{
    struct simulation_setting setting = bench->usual;
    struct simulated out;
    enum error_code e = scheduler_find(&setting.scheduler, scheduler, err);
    if (!e) e = simulate(&out, &of->jobs, &of->pricing, &setting, err);
    if (e) return e;
    e = cluster_sums_of(sums, &out, &of->jobs, &of->pricing, err);
    if (kept && !e) *kept = out;
    else simulated_free(&out);
    return e;
}

/* ---- PowerFlow --------------------------------------------------------------------------------------------------- */

static enum error_code fit_errors(struct bench_jobs *of, double *mean, double *worst, struct error *err)
{
    *mean = *worst = 0;
    for (int kind = 0; kind < of->jobs.kinds; kind++) {
        struct job_fit fit;
        double mean_of, worst_of;
        enum error_code e = job_fit_make(&fit, &of->pricing, kind, 1, 16, err);
        if (!e) e = job_fit_error(&fit, &of->pricing, kind, 1, 32, &mean_of, &worst_of, err);
        if (e) return e;
        *mean += mean_of / of->jobs.kinds, *worst = fmax(*worst, worst_of);
    }
    return OK;
}

static enum error_code claim_powerflow(const struct serving_claims *claims, const struct cluster_bench *bench,
                                       struct error *err)
{
    struct bench_jobs drawn;
    struct cluster_sums first, grown;
    double mean = 0, worst = 0;
    enum error_code e = bench_draw(&drawn, bench, 0.8, err);
    if (!e) e = bench_run(&drawn, bench, "fifo", &first, NULL, err);
    if (!e) e = bench_run(&drawn, bench, "powerflow", &grown, NULL, err);
    if (!e) e = fit_errors(&drawn, &mean, &worst, err);
    bench_free(&drawn);
    if (e) return e;
    serving_claim(claims, "PowerFlow", "time of a job, first come first served beside it", "1.57 to 3.39 times",
                  first.mean > grown.mean, "%.2f times", first.mean / grown.mean);
    serving_claim(claims, "PowerFlow", "with no more energy", "the same", grown.joules <= 1.02 * first.joules,
                  "%.3f times", grown.joules / first.joules);
    serving_claim(claims, "PowerFlow", "a fitted model foresees a step", "well", mean < 0.1,
                  "%.1f %% off, %.1f %% at most", 100 * mean, 100 * worst);
    return OK;
}

/* Jobs of some scaling, which all choices are tried for. */
static void growth_claim(const struct serving_claims *claims, const struct cluster_bench *bench)
{
    enum { CASES = 100, JOBS = 3 };
    double ratios = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct growth_table table[JOBS];
        struct growth_job job[JOBS], best[JOBS];
        double least = 0;
        const uint64_t stream = random_stream("growth");
        for (int i = 0; i < JOBS; i++) {
            const double k = 0.3 * random_uniform(seed, stream, 2 * (uint64_t)i),
                         ms = 10 + 90 * random_uniform(seed, stream, 2 * (uint64_t)i + 1);
            for (int size = 0; size < 6; size++)
                for (int c = 0; c < CLOCKS; c++) {
                    const int n = 1 << size;
                    const double f = 0.01 * clocks[c];
                    table[i].seconds[size][c] = 1e-3 * ms * (1 + k * (n - 1)) / n / f;
                    const double watts = (double)bench->power.steady + (double)bench->power.dynamic * f * f * f;
                    table[i].joules[size][c] = n * table[i].seconds[size][c] * watts;
                }
            job[i] = (struct growth_job){ &table[i], 1000, 0, 5, -1, 0 };
            least += 1000 * table[i].joules[0][0];
        }
        memcpy(best, job, sizeof job);
        const double budget = least * (1 + 2 * random_uniform(seed, stream, 99));
        if (growth_run(job, JOBS, 16, CLOCKS, budget, NULL)) return;
        ratios += growth_time(job, JOBS) / growth_best(best, JOBS, 16, CLOCKS, budget) / CASES;
    }
    serving_claim(claims, "PowerFlow", "greedy growth of 3 jobs, beside the best of all choices", "-", ratios < 1.1,
                  "%.3f times the time", ratios);
}

/* ---- UWFQ -------------------------------------------------------------------------------------------------------- */

/* Two users train long jobs, two users short ones that come every few minutes. */
static enum error_code add_users(struct bench_jobs *to, struct error *err)
{
    enum { LONG = 12, SHORT = 30 };
    static const char plan[] = "--model 43m --batch 128";
    static const char *const long_users[] = { "power1", "power2" }, *const short_users[] = { "small1", "small2" };
    enum error_code e = OK;
    for (int i = 0; i < LONG + SHORT && !e; i++) {
        const bool is_long = i < LONG;
        struct cluster_job job = { .arrival = is_long ? 1000 * i : 150000 * (i - LONG), .steps = is_long ? 20000 : 600,
                                   .devices = 8, .least = 8, .most = 8 };
        snprintf(job.name, sizeof job.name, "%s%d", is_long ? "long" : "short", i);
        e = cluster_jobs_add(&to->jobs, job, plan, (is_long ? long_users : short_users)[i % 2], err);
    }
    return e ? e : cluster_jobs_sort(&to->jobs, err);
}

/* The mean time of short jobs. */
static double mean_of_short(const struct simulated *out, const struct cluster_jobs *jobs)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < jobs->count; i++)
        if (strncmp(jobs->at[i].name, "short", 5) == 0) sum += job_seconds(out, jobs, i), n++;
    return sum / n;
}

static enum error_code claim_uwfq(const struct serving_claims *claims, const struct cluster_bench *bench,
                                  struct error *err)
{
    static const char *const names[] = { "fifo", "fair", "uwfq" };
    struct bench_jobs users = { .source = planned_prices(bench->planned) };
    struct cluster_bench small = *bench;
    double mean[3] = { 0 }, all[3] = { 0 };
    small.usual.devices = 16, small.usual.how.quantum = 60000, small.usual.how.change = 1000;
    enum error_code e = add_users(&users, err);
    if (!e) e = bench_price(&users, &small, err);
    for (int i = 0; i < 3 && !e; i++) {
        struct cluster_sums sums;
        struct simulated out;
        e = bench_run(&users, &small, names[i], &sums, &out, err);
        if (e) break;
        mean[i] = mean_of_short(&out, &users.jobs), all[i] = sums.mean;
        simulated_free(&out);
    }
    bench_free(&users);
    if (e) return e;
    serving_claim(claims, "UWFQ", "time of small users' jobs, beside first come first served", "up to 74 % less",
                  mean[2] < mean[0], "%.0f %% less", 100 * (1 - mean[2] / mean[0]));
    serving_claim(claims, "UWFQ", "the same beside turns of jobs (fair)", "up to 74 % less", mean[2] <= mean[1] * 1.02,
                  "%.0f %% less", 100 * (1 - mean[2] / mean[1]));
    serving_claim(claims, "UWFQ", "all jobs, beside first come first served", "-", all[2] < 1.1 * all[0],
                  "%.2f times the time", all[2] / all[0]);
    return OK;
}

/* ---- Tiresias, EASY ---------------------------------------------------------------------------------------------- */

static enum error_code claim_queues(const struct serving_claims *claims, const struct cluster_bench *bench,
                                    struct error *err)
{
    static const char *const names[] = { "fifo", "backfill", "tiresias" };
    struct bench_jobs drawn;
    struct cluster_sums sums[3];
    struct cluster_bench full = *bench;
    full.usual.devices = 16;
    enum error_code e = bench_draw(&drawn, &full, 1.5, err);
    for (int i = 0; i < 3 && !e; i++) e = bench_run(&drawn, &full, names[i], &sums[i], NULL, err);
    bench_free(&drawn);
    if (e) return e;
    serving_claim(claims, "Tiresias", "time of a job, first come first served beside it", "up to 5.5 times",
                  sums[0].mean > sums[2].mean, "%.2f times", sums[0].mean / sums[2].mean);
    serving_claim(claims, "EASY", "first come first served with gaps filled", "-", sums[1].mean <= sums[0].mean,
                  "%.2f times as fast", sums[0].mean / sums[1].mean);
    return OK;
}

enum error_code cluster_claims_add(const struct serving_claims *claims, const struct cluster_bench *bench,
                                   struct error *err)
{
    enum error_code e = claim_powerflow(claims, bench, err);
    if (!e) growth_claim(claims, bench);
    if (!e) e = claim_uwfq(claims, bench, err);
    return e ? e : claim_queues(claims, bench, err);
}
