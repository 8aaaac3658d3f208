/* cluster.c -- `orrery cluster`: many jobs on one cluster, by virtual time.  cli/main.c calls command_cluster().
 * Errors: ERR_USAGE of the words; ERR_FILE and ERR_FORMAT of the jobs; ERR_PLAN of jobs that the cluster cannot train;
 * ERR_INTERNAL of books that do not close. */
#include "emulated_devices/cli/cluster/cluster.h"
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/cluster/draw.h"
#include "emulated_devices/cluster/page.h"
#include "emulated_devices/cluster/report.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/machine/measure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_JOBS = 20, SCHEDULERS_MOST = 16 };

struct cluster_options {
    const char *file, *scheduler, *cluster, *clocks, *law, *out, *page, *svg;
    int draw, users, devices, steady, idle;
    double load, scale, quantum, change, between, repair, restart, save;
    struct simulation_setting setting;
};

enum error_code cluster_parse_plan(struct train_options *options, int words, const char *const word[],
                                   struct error *err)
{
    return train_parse(options, &run_plan, words, (char **)(uintptr_t)word, err);
}

struct device_power cluster_power(const struct cluster *cluster, int steady_percent, int idle_percent)
{
    const int64_t watts = cluster->costs.watts, steady = watts * steady_percent / 100;
    return (struct device_power){ watts * idle_percent / 100, steady, watts - steady };
}

struct simulation_setting cluster_usual_setting(void)
{
    return (struct simulation_setting){ .how = { .quantum = 360000, .budget = 1, .change = 10000 }, .devices = 64,
                                        .repair = 4 * 3600000, .restart = 300000, .save = 1800000, .seed = 1 };
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static enum error_code parse(struct cluster_options *o, int argc, char **argv, bool *help, struct error *err)
{
    struct simulation_setting *const s = &o->setting;
    const struct option table[] = {
        { "JOBS.csv", NULL, OPTION_STRING, &o->file,
          .help = "the jobs: columns job, user, arrival, steps, devices, plan, and perhaps least and most; without it, "
                  "--draw draws them" },
        { .kind = OPTION_HEADING, .help = "The cluster" },
        CLUSTER_OPTION(o->cluster, "the machine"),
        { "--devices", "N", OPTION_INT, &s->devices, .min = 1, .max = JOB_DEVICES_MOST,
          .help = "its devices, a power of two" },
        { "--clocks", "LIST", OPTION_STRING, &o->clocks,
          .help = "clock rates that a scheduler may choose, in percent of the highest, which is 100" },
        { "--steady", "PERCENT", OPTION_INT, &o->steady, .min = 0, .max = 100,
          .help = "of its watts that a device with a job always draws; the rest goes by the cube of the clock rate" },
        { "--idle", "PERCENT", OPTION_INT, &o->idle, .min = 0, .max = 100,
          .help = "of its watts that a device without a job draws" },
        { .kind = OPTION_HEADING, .help = "The scheduler" },
        { "--scheduler", "NAME", OPTION_STRING, &o->scheduler,
          .help = "one of fifo, shortest, backfill, fair, tiresias, uwfq, powerflow, several with commas between, "
                  "or all of them: side by side" },
        { "--quantum", "SECONDS", OPTION_DOUBLE, &o->quantum, .min = 0.001, .max = 1e9,
          .help = "that a job keeps its devices where jobs take turns" },
        { "--budget", "X", OPTION_DOUBLE, &s->how.budget, .min = 0, .max = 1000,
          .help = "of powerflow: energy, as times what the jobs take that run as they ask" },
        { "--change", "SECONDS", OPTION_DOUBLE, &o->change, .min = 0, .max = 1e6,
          .help = "that a change of a job's devices takes, besides the time in which its state moves" },
        { .kind = OPTION_HEADING, .help = "Failures" },
        { "--device-mtbf", "HOURS", OPTION_DOUBLE, &o->between, .min = 0, .max = 1e9,
          .help = "between failures of one device; 0: nothing fails" },
        { "--repair", "SECONDS", OPTION_DOUBLE, &o->repair, .min = 0, .max = 1e8,
          .help = "until a device is repaired" },
        { "--restart", "SECONDS", OPTION_DOUBLE, &o->restart, .min = 0, .max = 1e8,
          .help = "until a job that failed trains again, when it has devices" },
        { "--save-every", "SECONDS", OPTION_DOUBLE, &o->save, .min = 0, .max = 1e8,
          .help = "between saves of a job, beside its steps; 0: only changes of its devices save" },
        { .kind = OPTION_HEADING, .help = "Drawn jobs" },
        { "--draw", "N", OPTION_INT, &o->draw, .min = 1, .max = JOBS_MOST, .help = "draw N jobs" },
        { "--law", "NAME", OPTION_STRING, &o->law, .help = "sizes and lengths: gavel, gavel-single" },
        { "--load", "X", OPTION_DOUBLE, &o->load, .min = 0.01, .max = 1000,
          .help = "work that comes, as a part of what all devices can do" },
        { "--users", "N", OPTION_INT, &o->users, .min = 1, .max = 10000, .help = "whose jobs they are" },
        { "--scale", "X", OPTION_DOUBLE, &o->scale, .min = 1e-6, .max = 1000, .help = "of all lengths" },
        { "--seed", "N", OPTION_UINT64, &s->seed, .help = "of drawn jobs, and of failures" },
        { .kind = OPTION_HEADING, .help = "Output" },
        { "--out", "FILE", OPTION_STRING, &o->out, .help = "write the jobs as a file that this command reads" },
        { "--page", "FILE", OPTION_STRING, &o->page,
          .help = "draw what every device did when, and the sums, as one page" },
        { "--svg", "FILE", OPTION_STRING, &o->svg, .help = "draw what every device did when, as SVG" },
        { 0 }
    };
    enum error_code e = parse_command("cluster", "[JOBS.csv | --draw N] [options]",
                                      "Train many jobs on one cluster, by events of virtual time: arrivals, devices "
                                      "given and taken,\nstate that moves, failures. A job is a plan of this program; "
                                      "its steps take the time, memory and\nenergy that `orrery plan` says. Nothing is "
                                      "computed in numbers.", argc - 2, argv + 2, table, help, err);
    s->how.quantum = llrint(1e3 * o->quantum), s->how.change = llrint(1e3 * o->change);
    s->between = 3.6e6 * o->between, s->repair = llrint(1e3 * o->repair), s->restart = llrint(1e3 * o->restart);
    s->save = llrint(1e3 * o->save);
    return e;
}

static enum error_code check(const struct cluster_options *o, struct error *err)
{
    if ((o->file != NULL) == (o->draw > 0))
        return fail(err, ERR_USAGE, "%s", o->file ? "--draw: jobs are read from a file or drawn, not both"
                                                  : "JOBS.csv: no jobs; --draw N draws some");
    if (!job_size_is_whole(o->setting.devices))
        return fail(err, ERR_USAGE, "--devices %d: must be a power of two, because blocks of devices are halved",
                    o->setting.devices);
    return OK;
}

/* Rates rise, and the last is 100. */
static enum error_code read_clocks(const char *list, int *clock, int *clocks, struct error *err)
{
    const char *rest = list;
    for (*clocks = 0; *clocks < CLOCKS_MOST;) {
        char *end;
        const long percent = strtol(rest, &end, 10);
        if (end == rest || percent < 10 || percent > 100 || (*clocks > 0 && percent <= clock[*clocks - 1])) break;
        clock[(*clocks)++] = (int)percent;
        if (*end == '\0' && percent == 100) return OK;
        if (*end != ',') break;
        rest = end + 1;
    }
    return fail(err, ERR_USAGE, "--clocks %s: must be at most %d rising numbers from 10 to 100, the last 100, such as "
                "60,80,100", printable(list).text, CLOCKS_MOST);
}

/* ---- what is printed --------------------------------------------------------------------------------------------- */

static void row_of(struct table *table, const struct scheduler *scheduler, const struct cluster_sums *s, bool energy)
{
    table_row(table, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%s\t%d\t%d\t%.1f", scheduler->name, 1e3 * s->mean,
              1e3 * s->small, 1e3 * s->p99, 1e3 * s->waits, 1e3 * s->end, 100 * s->used,
              energy ? real_format(floor(1e3 * s->joules / 3.6e6 + 0.5) / 1e3).text : "-", s->changes, s->pauses,
              (double)s->bytes / 0x1p30);
}

static void print_jobs(const struct simulated *out, const struct cluster_jobs *jobs)
{
    struct table t = table_start("jobs", 1, "job\tuser\tdevices\tarrival ms\tfirst ms\tend ms\ttook ms\tenergy Wh\t"
                                            "changes\tpauses\tfailures");
    struct table shown = table_start(NULL, 1, "job\tuser\tdevices\tarrival ms\tfirst ms\tend ms\ttook ms\tenergy Wh\t"
                                              "changes\tpauses\tfailures");
    for (int i = 0; i < jobs->count; i++) {
        const struct cluster_job *const j = &jobs->at[i];
        const struct job_outcome *const o = &out->job[i];
        struct table *const to[] = { &t, &shown };
        for (int k = 0; k < 2; k++)
            if (k == 0 || i < SHOWN_JOBS)
                table_row(to[k], "%s\t%s\t%d\t%lld\t%lld\t%lld\t%lld\t%.1f\t%d\t%d\t%d", j->name, jobs->user[j->user],
                          j->devices, (long long)j->arrival, (long long)o->began, (long long)o->ended,
                          (long long)(o->ended - j->arrival), (double)o->energy / 3.6e6, o->changes, o->pauses,
                          o->failures);
    }
    if (jobs->count <= SHOWN_JOBS) {
        table_drop(&shown);
        table_end(&t);
        return;
    }
    table_end(&shown);
    say(stdout, 8, "        and %d jobs more, which --json and --page have", jobs->count - SHOWN_JOBS);
    cJSON *const data = document_data();
    cJSON *const rows = data ? cJSON_AddArrayToObject(data, "all_jobs") : NULL;
    for (int i = 0; i < jobs->count && rows; i++)
        json_add(json_row(rows), "job %s user %s arrival_ms %g first_ms %g end_ms %g millijoules %g",
                 jobs->at[i].name, jobs->user[jobs->at[i].user], (double)jobs->at[i].arrival,
                 (double)out->job[i].began, (double)out->job[i].ended, (double)out->job[i].energy);
    table_drop(&t);
}

static void print_sums(const struct simulated *out, const struct cluster_sums *s, const struct pricing *pricing)
{
    say(stdout, 8, "jobs    took %s on average, half of them at most %s, 99 %% at most %s",
        time_format(s->mean).text, time_format(s->median).text, time_format(s->p99).text);
    say(stdout, 8, "small   the half with the least work took %s on average", time_format(s->small).text);
    say(stdout, 8, "waits   %s on average until a job has devices", time_format(s->waits).text);
    say(stdout, 8, "end     after %s; %.1f %% of device time had a job", time_format(s->end).text, 100 * s->used);
    say(stdout, 8, "moves   %d change%s of devices moved %s; jobs were without devices %d time%s", s->changes,
        plural(s->changes), size_format(s->bytes).text, s->pauses, plural(s->pauses));
    if (out->failures > 0)
        say(stdout, 8, "failed  %d failure%s ended %d run%s of jobs; %.2f %% of all steps were done again",
            out->failures, plural(out->failures), s->failures, plural(s->failures), 100 * s->redone);
    if (pricing->power.steady > 0) cluster_states_print(out);
    cJSON *const data = document_data();
    json_add(data, "mean_s %g median_s %g p99_s %g small_mean_s %g waits_s %g end_s %g used %g moved_bytes %g changes "
             "%d pauses %d failures %d failed_runs %d redone %g millijoules %g decisions %d plans %g", s->mean,
             s->median, s->p99, s->small, s->waits, s->end, s->used, (double)s->bytes, s->changes, s->pauses,
             out->failures, s->failures, s->redone, (double)out->energy, out->decisions, (double)pricing->asked);
    cJSON *const states = data ? cJSON_AddArrayToObject(data, "states") : NULL;
    for (int i = 0; i < DEVICE_STATES && states; i++)
        json_add(json_row(states), "state %s milliseconds %g millijoules %g", device_state_names[i],
                 (double)out->all.time[i], (double)out->all.energy[i]);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* The jobs under one scheduler or several. */
static enum error_code run_schedulers(const struct cluster_options *o, const struct cluster_jobs *jobs,
                               struct pricing *pricing, const struct scheduler *const *scheduler, int count,
                               struct error *err)
{
    struct cluster_run run[SCHEDULERS_MOST] = { { .scheduler = NULL } };
    enum error_code e = OK;
    int done = 0;
    for (; done < count && !e; done++) {
        struct simulation_setting setting = o->setting;
        setting.scheduler = run[done].scheduler = scheduler[done];
        e = simulate(&run[done].out, jobs, pricing, &setting, err);
        if (!e) e = cluster_sums_of(&run[done].sums, &run[done].out, jobs, pricing, err);
    }
    if (!e && count == 1) print_jobs(&run[0].out, jobs), print_sums(&run[0].out, &run[0].sums, pricing);
    if (!e && count > 1) {
        struct table t = table_start("schedulers", 1, "scheduler\tmean ms\tsmall ms\tp99 ms\twaits ms\tend ms\tused %\t"
                                                      "energy kWh\tchanges\tpauses\tmoved GiB");
        for (int i = 0; i < count; i++) row_of(&t, run[i].scheduler, &run[i].sums, pricing->power.steady > 0);
        table_end(&t);
    }
    if (!e && o->page) e = fail_about(err, cluster_page(run, count, jobs, pricing, o->page, err), "--page");
    if (!e && o->svg) e = fail_about(err, cluster_picture(run, count, jobs, pricing, o->svg, err), "--svg");
    if (!e && o->page) say(stdout, 8, "page    %s", printable_path(o->page).text);
    for (int i = 0; i < done; i++) simulated_free(&run[i].out);
    return e;
}

static enum error_code choose_schedulers(const struct cluster_options *o, bool energy,
                                         const struct scheduler *scheduler[SCHEDULERS_MOST], int *count,
                                         struct error *err)
{
    enum error_code e = OK;
    *count = 0;
    if (strcmp(o->scheduler, "all") == 0) {
        for (int i = 0; schedulers[i]; i++)
            if (energy || strcmp(schedulers[i]->name, "powerflow") != 0) scheduler[(*count)++] = schedulers[i];
        return OK;
    }
    for (const char *rest = o->scheduler; rest && !e && *count < SCHEDULERS_MOST; (*count)++) {
        char name[32];
        const char *const comma = strchr(rest, ',');
        const size_t n = comma ? (size_t)(comma - rest) : strlen(rest);
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), rest);
        e = scheduler_find(&scheduler[*count], name, err);
        if (!e && !energy && strcmp(name, "powerflow") == 0)
            e = fail(err, ERR_USAGE, "--scheduler powerflow: --cluster %s does not say what its devices draw",
                     printable(o->cluster).text);
        rest = comma ? comma + 1 : NULL;
    }
    return e;
}

static enum error_code take_jobs(struct cluster_jobs *jobs, const struct cluster_options *o,
                                 const struct price_source *source, struct error *err)
{
    struct drawn_jobs drawn = { .jobs = o->draw, .users = o->users, .devices = o->setting.devices, .load = o->load,
                                .scale = o->scale, .seed = o->setting.seed };
    if (o->file) return cluster_jobs_read(jobs, o->file, err);
    const enum error_code e = job_law_find(&drawn.law, o->law, err);
    return e ? e : cluster_jobs_draw(jobs, &drawn, source, 100, err);
}

static enum error_code cluster_run(struct cluster_options *o, struct error *err)
{
    struct planned_source planned;
    struct cluster_jobs jobs = { .count = 0 };
    struct pricing pricing = { .price = NULL };
    const struct scheduler *scheduler[SCHEDULERS_MOST];
    int clock[CLOCKS_MOST], clocks, count;
    const double began = measure_now();
    enum error_code e = read_clocks(o->clocks, clock, &clocks, err);
    if (!e) e = planned_open(&planned, o->cluster, cluster_parse_plan, train_options_free, err);
    if (!e) e = choose_schedulers(o, planned.description.costs.watts > 0, scheduler, &count, err);
    if (!e && o->page) e = fail_about(err, output_probe(o->page, err), "--page");
    if (e) return e;
    const struct price_source source = planned_prices(&planned);
    const struct device_power power = cluster_power(&planned.description, o->steady, o->idle);
    o->setting.node = planned_node(&planned, o->setting.devices);
    if (o->setting.node > o->setting.devices) o->setting.node = o->setting.devices;
    o->setting.copy_rate = planned.description.copy_rate;
    e = take_jobs(&jobs, o, &source, err);
    if (!e && o->out) e = fail_about(err, cluster_jobs_write(&jobs, o->out, err), "--out");
    if (!e) e = pricing_open(&pricing, &jobs, &source, clock, clocks, &power, o->setting.node, err);
    if (!e) {
        say(stdout, 8, "jobs    %d of %d user%s, %d plan%s, on %d device%s of %s", jobs.count, jobs.users,
            plural(jobs.users), jobs.kinds, plural(jobs.kinds), o->setting.devices, plural(o->setting.devices),
            planned.description.name);
        e = run_schedulers(o, &jobs, &pricing, scheduler, count, err);
    }
    if (!e)
        say(stdout, 8, "in simulation: %lld step%s planned, in %s", (long long)pricing.asked,
            pricing.asked == 1 ? " was" : "s were", time_format(measure_now() - began).text);
    pricing_close(&pricing);
    cluster_jobs_free(&jobs);
    return e;
}

enum error_code command_cluster(int argc, char **argv, int *status, struct error *err)
{
    const struct simulation_setting usual = cluster_usual_setting();
    struct cluster_options o = {
        .scheduler = "fifo", .cluster = "a100-infiniband", .clocks = "60,80,100", .law = "gavel", .users = 8,
        .steady = STEADY_PERCENT, .idle = IDLE_PERCENT, .load = 0.8, .scale = 1,
        .quantum = 1e-3 * (double)usual.how.quantum, .change = 1e-3 * (double)usual.how.change,
        .repair = 1e-3 * (double)usual.repair, .restart = 1e-3 * (double)usual.restart,
        .save = 1e-3 * (double)usual.save, .setting = usual,
    };
    bool help;
    (void)status;
    enum error_code e = parse(&o, argc, argv, &help, err);
    if (e || help || launcher_rank() != 0) return e;
    e = check(&o, err);
    return e ? e : cluster_run(&o, err);
}
