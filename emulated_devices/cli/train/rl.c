/* rl.c -- `orrery rl`: reinforcement learning on emulated devices.  main.c calls command_rl(), in each device's process
 * too.  Errors: ERR_USAGE and ERR_PLAN of the words; ERR_CHECK if something differs from one device; those of a run. */
#include "emulated_devices/cli/train/rl.h"
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/rl/report.h"
#include "emulated_devices/run/session.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include "ref/model/past.h"
#include "ref/machine/threads.h"
#include <stdio.h>
#include <string.h>

enum { USUAL_GROUP = 8, USUAL_DIGITS = 1, MOST_EPOCHS = 100, MOST_MINIBATCHES = 1000 };

/* 100 batches of 64 answers at this rate teach `tiny` 8 of 10 sums below 5 (docs/using/reinforcement.md). */
#define USUAL_WARM_RATE 3e-3

static struct rl_words {
    const char *rule, *rollout, *reference;
    int group, minibatches, epochs, staleness, digits, below, warm;
    double kl, warm_lr;
    bool apart, kl_given, group_given;
} words = { .rule = "verl-grpo", .group = USUAL_GROUP, .minibatches = 1, .epochs = 1, .digits = USUAL_DIGITS,
            .below = 5, .warm_lr = USUAL_WARM_RATE };

const struct option rl_options[] = {
    { .kind = OPTION_HEADING, .help = "Reinforcement learning (docs/using/reinforcement.md)" },
    { "--rule", "NAME", OPTION_STRING, &words.rule,
      .help = "whose losses and advantages: `orrery list policies` shows them" },
    { "--group", "N", OPTION_INT, &words.group, .min = 1, .max = RL_MOST_GROUP, .given = &words.group_given,
      .help = "answers to a prompt, whose rewards are compared; not with a critic" },
    { "--kl", "X", OPTION_DOUBLE, &words.kl, .min = 0, .max = 1e6, .given = &words.kl_given,
      .help = "coefficient of the distance from the first policy; default: the rule's" },
    { "--minibatches", "N", OPTION_INT, &words.minibatches, .min = 1, .max = MOST_MINIBATCHES,
      .help = "optimizer steps that the answers of an iteration are cut into; each has --batch answers" },
    { "--epochs", "N", OPTION_INT, &words.epochs, .min = 1, .max = MOST_EPOCHS,
      .help = "how often an iteration trains on its answers" },
    { "--staleness", "N", OPTION_INT, &words.staleness, .min = 0, .max = RL_MOST_STALENESS,
      .help = "answers are drawn with weights that are up to so many iterations old" },
    { "--apart", NULL, OPTION_SWITCH, &words.apart,
      .help = "training, drawing and scoring have devices of their own; else they take turns on the same" },
    { "--rollout-mesh", "AXES", OPTION_STRING, &words.rollout,
      .help = "devices that draw answers, such as dp=2,tp=2; default: as those that train" },
    { "--reference-mesh", "AXES", OPTION_STRING, &words.reference,
      .help = "devices that score answers by the first policy, or by a critic; default: likewise" },
    { "--warm", "N", OPTION_INT, &words.warm, .min = 0, .max = 1000000,
      .help = "batches of right answers that the policy learns by cross entropy before its first iteration" },
    { "--warm-lr", "X", OPTION_DOUBLE, &words.warm_lr, .min = 0, .max = 1e6, .help = "the learning rate of --warm" },
    { "--digits", "N", OPTION_INT, &words.digits, .min = 1, .max = TASK_MOST_DIGITS,
      .help = "digits of the numbers that are added" },
    { "--below", "N", OPTION_INT, &words.below, .min = 1, .max = 10000, .help = "they are less than this" },
    { 0 }
};

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* "dp=2,tp=2": sizes of axes; the others are 1. */
enum error_code rl_mesh_read(const char *flag, const char *text, int size[AXIS_COUNT], struct error *err)
{
    static const enum axis may[] = { DP, TP, PP };
    bool said[AXIS_COUNT] = { false };
    for (int a = 0; a < AXIS_COUNT; a++) size[a] = text ? 1 : 0;
    for (const char *at = text; at; at = *at == ',' ? at + 1 : NULL) {
        int used = 0, n = 0, axis = -1;
        for (size_t i = 0; i < sizeof may / sizeof *may; i++) {
            const size_t length = strlen(axis_name(may[i]));
            if (strncmp(at, axis_name(may[i]), length) != 0 || at[length] != '=') continue;
            if (sscanf(at + length, "=%5d%n", &n, &used) == 1) axis = (int)may[i], at += length + (size_t)used;
            break;
        }
        if (axis < 0 || n < 1 || (*at != ',' && *at != '\0'))
            return fail(err, ERR_USAGE, "%s %s: must be sizes of dp, tp and pp with commas between them, such as "
                        "dp=2,tp=2", flag, printable(text).text);
        if (said[axis])
            return fail(err, ERR_USAGE, "%s %s: has %s twice", flag, printable(text).text, axis_name((enum axis)axis));
        size[axis] = n, said[axis] = true;
    }
    return OK;
}

static enum error_code check_task(struct error *err)
{
    int64_t most = 1;
    for (int d = 0; d < words.digits; d++) most *= 10;
    if (words.below <= most) return OK;
    return fail(err, ERR_USAGE, "--below %d: numbers of --digits %d are less than %lld", words.below, words.digits,
                (long long)most);
}

static enum error_code check_options(const struct train_options *o, const struct rl_job *job, struct error *err)
{
    const int64_t samples = o->plan.B * job->minibatches;
    if (o->plan.model.V < TASK_TOKENS)
        return fail(err, ERR_USAGE, "--vocabulary %lld: the task has %d tokens", (long long)o->plan.model.V,
                    TASK_TOKENS);
    if (o->golden) return fail(err, ERR_USAGE, "--check %.60s: a run of rewards is held to one device: --check ref",
                               o->check);
    if (o->model_dir)
        return fail(err, ERR_USAGE, "--model %.60s: is a folder; the first policy is a preset's, drawn by --seed",
                    o->model_dir);
    if (dtype_is_narrow(o->plan.dtype))
        return fail(err, ERR_PLAN, "--dtype %s: weights that move to other devices have 32 bits or more",
                    dtype_name(o->plan.dtype));
    if (job->rule->values && words.group_given)
        return fail(err, ERR_USAGE, "--group: rule %s has a critic in place of groups", job->rule->name);
    if (!job->rule->values && samples % job->group != 0)
        return fail(err, ERR_USAGE, "--group %d: does not divide the %lld answers of an iteration (--batch times "
                    "--minibatches)", job->group, (long long)samples);
    if (o->plan.model.mixture.E > 0)
        return fail(err, ERR_PLAN, "--model %s: a mixture's losses of routers have no part in a reward",
                    o->plan.model.name);
    if (o->plan.optimizer->forward_only)
        return fail(err, ERR_PLAN, "--optimizer %s: takes losses of labels, not of rewards", o->plan.optimizer->name);
    return OK;
}

/* Each pass is one step of one model: plans that do more are refused. */
static enum error_code check_plan(const struct plan *plan, struct error *err)
{
    const struct transformer model = { .config = plan->model };
    const struct { bool asked; const char *flag, *why; } refused[] = {
        { plan_replicas(plan) > 1, "--data-parallel", "copies that train apart have no common policy" },
        { plan->updates > 1, "--schedule", "it steps the optimizer inside a step, with part of the answers" },
        { plan->data.offload != 0, "--offload", "weights are moved from devices' memory" },
        { data_quantises(&plan->data), "--quantize-weights", "weights are moved as they are" },
        { plan->batches != NULL, "--batches", "answers of a step are as many each time" },
        { !past_serves(&model, plan->S), "--model", "its tokens depend on more than those before them" },
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].asked) return fail(err, ERR_PLAN, "%s: not with rewards: %s", refused[i].flag, refused[i].why);
    return OK;
}

static enum error_code make_job(struct rl_job *job, struct train_options *o, struct error *err)
{
    *job = (struct rl_job){ .rule = policy_rule_find(words.rule), .apart = words.apart, .group = words.group,
                            .minibatches = words.minibatches, .epochs = words.epochs, .staleness = words.staleness,
                            .iterations = o->steps, .warm = words.warm, .warm_lr = words.warm_lr,
                            .check = o->check != NULL };
    if (job->rule == NULL)
        return fail(err, ERR_USAGE, "--rule %s: there is no such rule; `orrery list policies` shows them",
                    printable(words.rule).text);
    enum error_code e = check_task(err);
    if (!e) e = check_options(o, job, err);
    if (!e) e = rl_mesh_read("--rollout-mesh", words.rollout, job->rollout, err);
    if (!e) e = rl_mesh_read("--reference-mesh", words.reference, job->reference, err);
    if (e) return e;
    job->task = (struct task){ words.digits, words.below, o->plan.seed };
    job->kl = words.kl_given ? words.kl : job->rule->kl;
    job->reward_kl = words.kl_given && job->rule->values ? words.kl : job->rule->reward_kl;
    o->plan.S = rl_length(&job->task);
    if (o->plan.S > o->plan.model.S)
        return fail(err, ERR_PLAN, "--digits %d: a prompt with its answer has %lld tokens; %s takes %lld", words.digits,
                    (long long)o->plan.S, o->plan.model.name, (long long)o->plan.model.S);
    e = plan_check(&o->plan, err);
    if (!e) e = check_plan(&o->plan, err);
    /* Rates count the optimizer's steps. */
    struct train_options steps = *o;
    steps.steps = o->steps * words.minibatches * words.epochs + (int64_t)words.warm * words.minibatches;
    if (!e) train_set_rates(&o->plan.hyper, &steps, 0);
    job->plan = o->plan;
    return e;
}

/* ---- a device ---------------------------------------------------------------------------------------------------- */

/* All that a device needs. */
struct rl_asked { const struct train_options *options; const struct rl_job *job; };

static enum error_code rl_on(struct comm *comm, const struct rl_asked *asked, struct error *err)
{
    const struct train_options *const o = asked->options;
    const struct cluster own = cluster_of_rank(&o->cluster, comm->rank);
    struct rl_report report;
    struct rl_record record;
    char place[64];
    clock_restart(&comm->device->clock, &own, o->plan.dtype);
    threads_use(comm->cores);
    announce_process(comm->rank, comm->rank < o->plan.mesh.devices
                     ? mesh_describe(&o->plan.mesh, comm->rank, place, sizeof place) : "it draws or scores");
    rl_report_open(&report, asked->job);
    const struct rl_listener listener = { &report, rl_report_step };
    enum error_code e = comm_agree(comm, comm->rank == 0 ? rl_report_begin(&report, err) : OK, err);
    if (!e) e = rl_run(comm, asked->job, listener, &record, err);
    if (!e && comm->rank == 0) e = rl_report_end(&report, &record, err);
    rl_record_free(&record);
    return comm_agree(comm, e, err);
}

static enum error_code rl_device(const struct rl_asked *asked, struct error *err)
{
    struct device device;
    struct comm comm;
    enum error_code e = session_open_device(&device, asked->options, err);
    if (e) return e;
    e = comm_open(&comm, &device, err);
    if (!e) e = rl_on(&comm, asked, err), comm_close(&comm);
    device_close(&device);
    return e;
}

static enum error_code be_device_of_rl(struct crew *crew, int rank, const void *context, struct error *err)
{
    const struct rl_asked *const asked = context;
    struct device device;
    struct comm comm;
    enum error_code e = session_open_device(&device, asked->options, err);
    if (e) return e;
    e = crew_join(&comm, crew, rank, &device, err);
    if (!e) {
        crew_agree_by_messages(&comm);
        e = rl_on(&comm, asked, err);
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

enum error_code command_rl(int argc, char **argv, int *status, struct error *err)
{
    struct train_options o;
    struct rl_job job;
    int devices = 1;
    enum error_code e = train_parse(&o, &run_rl, argc - 2, argv + 2, err);
    const bool runs = !e && !o.help;
    if (runs) e = make_job(&job, &o, err);
    if (!e && runs) e = rl_devices(&job, &devices, err);
    const struct rl_asked asked = { &o, &job };
    const bool alone = under_launcher() || devices == 1;
    if (!e && runs && !alone && one_process()) e = crew_run(devices, be_device_of_rl, &asked, err);
    else if (!e && runs) e = alone ? rl_device(&asked, err) : launch_devices(devices, argc, argv, status, err);
    train_options_free(&o);
    return e;
}
