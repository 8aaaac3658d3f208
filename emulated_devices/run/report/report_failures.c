/* report_failures.c -- what failures cost a training, from the virtual time of one step and the bytes of its state.
 *
 * `orrery plan --mtbf HOURS` asks for it (run/plan.c, report_json.c).  An update is taken as long as if a device
 * stepped all parameters that it holds, so that the time in which a copy is hidden is not too long.
 * Only report_failures_check can fail, with ERR_USAGE.
 */
#include "emulated_devices/run/report/report_failures.h"
#include "emulated_devices/device/kernel.h"
#include "emulated_devices/run/report/goodput.h"
#include "emulated_devices/run/report/report_speed.h"
#include "emulated_devices/schemes/data/stages/stage.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include "ref/model/params.h"
#include <math.h>
#include <string.h>

enum { SECONDS_AN_HOUR = 3600, SEEDS = 5, FAILURES_OF_A_SEED = 1000, CHECKPOINTS_OF_A_SEED = 1000 * 1000 };

/* Bytes and times of which the cost of failures is made. */
struct failure_costs {
    double bytes;                       /* of a checkpoint */
    double copy, write, load, update;   /* seconds of one device; it loads as fast as it writes and copies */
    struct failing_job job;
    int64_t best, every;                /* steps between saves: the best, and those that are used */
};

static bool saves_meanwhile(const struct failures_asked *asked) { return strcmp(asked->checkpoint, "async") == 0; }

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

/* Options that say nothing without --mtbf. */
static enum error_code failures_check_alone(const struct failures_asked *asked, struct error *err)
{
    const char *const flag = asked->restart >= 0 ? "--restart" : asked->storage > 0 ? "--storage"
                             : asked->every > 0 ? "--checkpoint-every" : saves_meanwhile(asked) ? "--checkpoint" : NULL;
    return flag ? fail(err, ERR_USAGE, "%s: says something only of a job that fails: add --mtbf or --device-mtbf", flag)
                : OK;
}

enum error_code report_failures_check(const struct train_options *options, struct error *err)
{
    const struct failures_asked *const asked = &options->failures;
    const struct cluster *const c = &options->cluster;
    if (asked->checkpoint == NULL) return OK;   /* whoever made this plan has no such options */
    if (!failures_are_asked(asked)) return failures_check_alone(asked, err);
    if (asked->between > 0 && asked->device_between > 0)
        return fail(err, ERR_USAGE, "--mtbf and --device-mtbf: give one, the time between failures of the job or that "
                    "of one device");
    if (options->plan.optimizer->low_rank)
        return fail(err, ERR_USAGE, "--mtbf: the bytes of a checkpoint of %s are not those of its weights",
                    options->plan.optimizer->name);
    if (asked->storage == 0 && c->host.drive_rate == 0)
        return fail(err, ERR_USAGE, "--mtbf: cluster %s has no drive (\"drive_MB_per_second\"): say with --storage how "
                    "many bytes all devices write in a second", c->name);
    return OK;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Seconds between failures of the whole job: every device can end it. */
static double failures_between(const struct train_options *options)
{
    const struct failures_asked *const asked = &options->failures;
    return asked->between > 0 ? asked->between * SECONDS_AN_HOUR
                              : asked->device_between * SECONDS_AN_HOUR / options->plan.mesh.devices;
}

/* Weights and states in the master's format. */
static double checkpoint_bytes(const struct plan *plan)
{
    const double each = plan->dtype == F64 ? 8 : 4;
    return (double)model_elements(&plan->model) * each * (1 + plan->optimizer->states);
}

static double update_seconds(const struct train_record *record)
{
    const struct plan *const plan = &record->options->plan;
    const enum dtype master = plan->dtype == F64 ? F64 : F32;
    uint64_t most = 0;
    for (int n = 0; n < folding_lives(&record->folded.folding); n++)
        if (record->device[n].parameters > most) most = record->device[n].parameters;
    return 1e-12 * (double)kernel_time(&record->options->cluster, master, plan->optimizer->name,
                                       optimizer_cost(plan->optimizer, master, dtype_size(master), (int64_t)most));
}

/* stall of a synchronous save = copy + write; of an asynchronous one max(0, copy - (step - update)). */
static struct failure_costs failure_costs_of(const struct train_record *record)
{
    const struct train_options *const o = record->options;
    const double devices = o->plan.mesh.devices, restart = o->failures.restart;
    struct failure_costs f = { .bytes = checkpoint_bytes(&o->plan), .update = update_seconds(record) };
    const double each = f.bytes / devices;
    const double write_rate = o->failures.storage > 0 ? (double)o->failures.storage / devices
                                                      : 1e6 * (double)o->cluster.host.drive_rate;
    f.copy = o->cluster.copy_rate > 0 ? each / (1e6 * (double)o->cluster.copy_rate) : 0, f.write = each / write_rate;
    f.load = f.copy + f.write;
    f.job.step = virtual_speed_of(record).seconds, f.job.between = failures_between(o);
    f.job.restart = (restart >= 0 ? restart : RESTART_ASSUMED) + f.load;
    f.job.held = saves_meanwhile(&o->failures) ? fmax(0, f.copy - fmax(0, f.job.step - f.update)) : f.copy + f.write;
    f.job.committed = f.copy + f.write - f.job.held;
    if (!(f.job.step > 0)) return f;
    f.best = goodput_best(&f.job);
    f.every = o->failures.every > 0 ? (int64_t)o->failures.every : f.best;
    return f;
}

double report_goodput(const struct train_record *record)
{
    if (!failures_are_asked(&record->options->failures)) return 0;
    const struct failure_costs f = failure_costs_of(record);
    return f.job.step > 0 ? goodput_of(&f.job, f.every).useful : 0;
}

/* Trainings that are long enough for so many failures each, if they make progress. */
struct simulated { double least, most; int64_t failures; };

static struct simulated failures_simulated(const struct failure_costs *costs)
{
    const double work = costs->job.step * (double)costs->every;
    const double saves = fmin(CHECKPOINTS_OF_A_SEED, ceil(FAILURES_OF_A_SEED * costs->job.between / work));
    struct simulated all = { .least = 1 };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        int64_t failures;
        const double useful = goodput_simulate(&costs->job, costs->every, costs->every * (int64_t)saves, seed,
                                               &failures).useful;
        all.least = fmin(all.least, useful), all.most = fmax(all.most, useful), all.failures += failures;
    }
    return all;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void failures_saves_print(const struct train_record *record, const struct failure_costs *costs)
{
    const struct train_options *const o = record->options;
    const struct plan *const plan = &o->plan;
    say(record->out, 8, "        a checkpoint is %s: %s parameters with %d state%s, %s of each device",
        size_format((uint64_t)costs->bytes).text, count_format((double)model_elements(&plan->model)).text,
        plan->optimizer->states, plan->optimizer->states == 1 ? "" : "s",
        size_format((uint64_t)(costs->bytes / plan->mesh.devices)).text);
    say(record->out, 8, "        %s to copy to the host, %s to write at %s together%s", time_format(costs->copy).text,
        time_format(costs->write).text, byte_rate_format(costs->bytes / costs->write).text,
        o->failures.storage > 0 ? "" : " (drives)");
    say(record->out, 8, "        %s: a save holds the devices %s, %s later it is committed", o->failures.checkpoint,
        time_format(costs->job.held).text, time_format(costs->job.committed).text);
    say(record->out, 8, "        a restart takes %s%s, %s of it to read", time_format(costs->job.restart).text,
        o->failures.restart >= 0 ? "" : " (assumed: --restart)", time_format(costs->load).text);
}

/* Where no interval makes progress, neither does a simulation. */
static void failures_goodput_print(const struct train_record *record, const struct failure_costs *costs)
{
    const struct goodput g = goodput_of(&costs->job, costs->every), best = goodput_of(&costs->job, costs->best);
    say(record->out, 8, "goodput %.1f %% with a checkpoint every %s step%s, %s%s", 100 * g.useful,
        count_format((double)costs->every).text, costs->every == 1 ? "" : "s",
        time_format((double)costs->every * costs->job.step).text,
        costs->every == costs->best ? ", which is best" : "");
    say(record->out, 8, "        lost: saving %.1f %%, computing again %.1f %%, restarting %.1f %%", 100 * g.saving,
        100 * g.again, 100 * g.restarting);
    if (costs->every != costs->best)
        say(record->out, 8, "        best is every %s step%s, %s: %.1f %%", count_format((double)costs->best).text,
            costs->best == 1 ? "" : "s", time_format((double)costs->best * costs->job.step).text, 100 * best.useful);
    if (costs->job.held > 0)
        say(record->out, 8, "        Young's rule says %s, Daly's %s",
            time_format(goodput_young(&costs->job)).text, time_format(goodput_daly(&costs->job)).text);
    const struct simulated s = failures_simulated(costs);
    say(record->out, 8, "        simulated, %d seeds with %s failures: %.1f to %.1f %%", SEEDS,
        count_format((double)s.failures).text, 100 * s.least, 100 * s.most);
}

void report_failures_print(const struct train_record *record)
{
    const struct train_options *const o = record->options;
    if (!failures_are_asked(&o->failures)) return;
    const struct failure_costs f = failure_costs_of(record);
    if (!(f.job.step > 0)) {
        say(record->out, 8, "failing nothing takes time on cluster %s, so failures cost nothing", o->cluster.name);
        return;
    }
    say(record->out, 8, "failing every %s on average, each device every %s", time_format(f.job.between).text,
        time_format(f.job.between * o->plan.mesh.devices).text);
    failures_saves_print(record, &f);
    failures_goodput_print(record, &f);
    const struct training t = report_training_of(record);
    const double useful = goodput_of(&f.job, f.every).useful;
    if (t.tokens == 0) return;
    const double seconds = ceil((double)t.tokens / t.step_tokens) * t.step_seconds;
    if (useful > 0) say(record->out, 8, "        %s with failures, %s without", time_format(seconds / useful).text,
                        time_format(seconds).text);
    else say(record->out, 8, "        the training practically never ends");
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

void report_failures_json(cJSON *root, const struct train_record *record)
{
    const struct train_options *const o = record->options;
    if (!failures_are_asked(&o->failures)) return;
    const struct failure_costs f = failure_costs_of(record);
    if (!(f.job.step > 0)) return;
    const struct goodput g = goodput_of(&f.job, f.every);
    const struct simulated s = failures_simulated(&f);
    cJSON *const to = json_add(cJSON_AddObjectToObject(root, "failures"),
                               "checkpoint %s checkpoint_bytes %g seconds_between %g restart_seconds %g",
                               o->failures.checkpoint, f.bytes, f.job.between, f.job.restart);
    json_add(to, "copy_seconds %g write_seconds %g held_seconds %g committed_seconds %g", f.copy, f.write, f.job.held,
             f.job.committed);
    json_add(to, "every %g best_every %g goodput %g saving %g again %g restarting %g", (double)f.every, (double)f.best,
             g.useful, g.saving, g.again, g.restarting);
    json_add(to, "simulated_least %g simulated_most %g simulated_failures %g", s.least, s.most, (double)s.failures);
}
