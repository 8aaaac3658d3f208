/* plan.c -- `orrery plan`: a training step of any mesh without its numbers, in this process.
 *
 * Every device runs as in `orrery train`, with the backend `count` and in a crew (comm/crew.h): messages, bytes, memory
 * and virtual time are the same, to the byte and the picosecond.
 */
#include "emulated_devices/cli/train/report/plan_report.h"
#include "emulated_devices/cli/train/report/report_changes.h"
#include "emulated_devices/device/contention.h"
#include "emulated_devices/draw/timeline.h"
#include "emulated_devices/model/dry_run/alone.h"
#include "emulated_devices/search/search.h"
#include "ref/machine/measure.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include <stdlib.h>
#include <string.h>

/* Options of a run that has numbers, text and processes. */
#define OF_NUMBERS                                                                                  \
    "--data", "--eval-data", "--pack", "--sample", "--check", "--dump", "--isolate", "--paranoid",  \
    "--backend", "--direct", "--wait-limit", "--threads", "--save", "--save-every", "--keep",       \
    "--log", "--log-every", "--tensorboard", "--eval-every", "--owners-out", "--save-load",         \
    "--resume", "--override",                                                                       \
    "--lr", "--min-lr", "--warmup", "--lr-steps", "--lr-schedule", "--lr-decay",                    \
    "--weight-decay", "--seed", "--trace", "--trace-steps", "--trace-format", "--modalities",       \
    "--encoders", "--bridge-chunks", "--encoder-slack", "--dry-run"

static const char *const of_numbers[] = { OF_NUMBERS, NULL };

/* A drawing is no report of a run: its JSON is that of every command. */
static const char *const of_reports[] = { OF_NUMBERS, "--json", NULL };

static enum error_code take(struct train_options *o, struct error *err)
{
    (void)err;
    o->plans = true;
    return OK;
}

const struct run_kind run_plan = {
    .command = "plan", .without = of_numbers, .steps = 1, .take = take,
    .what = "What a training step would take on a mesh of up to 16384 devices, without running it: memory,\n"
            "messages and virtual time of every device, and whether it fits.\n"
            "Takes the options of `orrery train` that say what is trained where. The numbers are those of a run,\n"
            "to the byte and the picosecond. Tokens of a mixture go to the experts that --load says, by default to\n"
            "all evenly; a run with the same --load sends them there, too.\n"
            "The exit status is 3 if a device needs more memory than --memory, or else its cluster's, allows.",
};

/* `orrery show data`, `memory` and `plan`: a plan that is drawn. */
#define SHOWS(topic, about)                                                                         \
    { .command = "show " topic, .without = of_reports, .steps = 1, .take = take,                    \
      .what = about "\nTakes the options of `orrery plan`, and --svg FILE.  Without any of a mesh it " \
                    "is --dp 4,\nwithout a model tiny." }

const struct run_kind run_show_data = SHOWS("data", "Draw who holds and sends what of weights, gradients and optimizer "
                                                    "state, pass by pass.\nA first word NAME is short for "
                                                    "--data-parallel NAME.");
const struct run_kind run_show_memory = SHOWS("memory", "Draw what the fullest device holds, pass by pass.");
const struct run_kind run_show_plan = SHOWS("plan", "Draw which device has which layers, heads, sequences, tokens and "
                                                    "experts.");

/* ---- all devices ------------------------------------------------------------------------------------------------- */

static enum error_code take_report(struct trainer *t, void *context, struct error *err)
{
    struct train_record *r = context;
    const struct train_options *o = r->options;
    r->device[t->comm->rank] = report_of_device(t, o->steps);
    r->plan->peak[t->comm->rank] = plan_peak_of(t);
    return o->timeline ? fail_about(err, timeline_write(t, o->timeline, r->out, err), "--timeline") : OK;
}

/* What is said of the device that ran is true of those that it stands for. */
static void spread(const struct train_record *r, const struct folding *f)
{
    for (int rank = 0; rank < f->mesh.devices; rank++) {
        const int stands = folding_stands_for(f, rank);
        if (stands != rank) r->device[rank] = r->device[stands], r->device[rank].rank = rank;
        if (r->device[rank].peak.total > r->device[r->plan->fullest].peak.total) r->plan->fullest = rank;
    }
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void close_events(struct events **events, int devices)
{
    for (int d = 0; d < devices && events; d++) {
        if (events[d]) events_free(events[d]);
        free(events[d]);
    }
    free(events);
}

static struct events **open_events(int devices, int64_t *left, struct error *err)
{
    struct events **events = calloc((size_t)devices, sizeof *events);
    bool opened = events != NULL;
    for (int d = 0; d < devices && opened; d++) {
        opened = (events[d] = calloc(1, sizeof **events)) != NULL;
        if (opened) events[d]->left = left;
    }
    if (opened) return events;
    close_events(events, devices);
    fail(err, ERR_MEMORY, "no memory for the events of %d devices", devices);
    return NULL;
}

static enum error_code replay_on(const struct cluster *c, struct events **events, int devices, picoseconds *most,
                                 struct error *err)
{
    picoseconds *end = calloc((size_t)devices, sizeof *end);
    const enum error_code e = end ? contention_replay(c, events, devices, end, err)
                                  : fail(err, ERR_MEMORY, "no memory to replay %d devices", devices);
    *most = 0;
    for (int d = 0; d < devices && !e; d++) *most = end[d] > *most ? end[d] : *most;
    free(end);
    return e;
}

/* The step once more, now that all messages of all devices are known.  Where messages and computing hinder each other,
 * first as if they did not: such a replay leaves the times of work as they are. */
static enum error_code replay(struct train_record *r, struct events **events, struct error *err)
{
    const int devices = r->options->plan.mesh.devices;
    struct cluster eased = r->options->cluster;
    const bool hindered = eased.contention.compute_percent > 0 || eased.no_progress;
    eased.contention = (struct contention){ 0 }, eased.no_progress = false;
    const enum error_code e = hindered ? replay_on(&eased, events, devices, &r->unhindered, err) : OK;
    return e ? e : replay_on(&r->options->cluster, events, devices, &r->replayed, err);
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static const struct device_report *fullest(const struct train_record *r) { return &r->device[r->plan->fullest]; }

/* The memory that is missing, or what of it is used. */
static void report_fit(const struct train_record *r)
{
    const struct train_options *o = r->options;
    const struct device_report *d = fullest(r);
    const uint64_t has = report_budget(o), needs = d->peak.total;
    char place[64], how[80];
    if (has == 0) return;
    if (needs > has) snprintf(how, sizeof how, "%s too much", size_format(needs - has).text);
    else snprintf(how, sizeof how, "%.1f %%", 100 * (double)needs / (double)has);
    say(r->out, 8, "fits    %s: device %d (%s) needs %s of %s, %s", needs <= has ? "yes" : "NO", d->rank,
        mesh_describe(&o->plan.mesh, d->rank, place, sizeof place), size_format(needs).text, memory_format(has).text,
        how);
}

static void report_folding(const struct train_record *r)
{
    const struct dry_run *f = &r->folded;
    char text[80];
    if (r->options->plan.mesh.devices == 1) return;
    say(r->out, 8, "folded  %s: %d of %d devices ran%s%s%s",
            folding_describe(&f->folding, text, sizeof text), f->crew.lives, r->options->plan.mesh.devices,
            f->why[0] ? " (" : "", f->why, f->why[0] ? ")" : "");
}

enum { CHANGES = 3 };                    /* that are named if a plan does not fit */

/* List the changes that would fit, a line each. */
static void report_changes(const struct train_record *r)
{
    const struct train_options *o = r->options;
    struct plan_space near = { .base = &o->plan, .devices = o->plan.mesh.devices };
    struct change change[CHANGES];
    struct error unread;
    near.only[BY_OFFLOAD] = "none,optimizer";
    if (plan_space_open(&near, &unread)) return;
    const int n = search_changes(&near, &o->plan, report_budget(o), change, CHANGES);
    plan_space_close(&near);
    report_changes_print(r->out, change, n);
}

static bool is_too_full(const struct train_record *r)
{
    const uint64_t has = report_budget(r->options);
    return has > 0 && fullest(r)->peak.total > has;
}

static void report(const struct train_record *r)
{
    report_memory(r);
    report_traffic(r);
    fprintf(r->out, "\n");
    plan_report_peak(r);
    plan_report_path(r);
    report_virtual_time(r);
    plan_report_waits(r);
    report_folding(r);
    report_fit(r);
    if (is_too_full(r)) report_changes(r);
    fprintf(r->out, "planned in %s, without numbers\n", time_format(r->seconds[0]).text);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code exceeds(const struct train_record *r, struct error *err)
{
    const struct train_options *o = r->options;
    const struct device_report *d = fullest(r);
    const uint64_t has = report_budget(o);
    char place[64];
    if (!is_too_full(r)) return OK;
    return fail(err, ERR_CHECK, "--memory %s: device %d (%s) needs %s, %s more", size_word(has).text, d->rank,
                mesh_describe(&o->plan.mesh, d->rank, place, sizeof place), size_format(d->peak.total).text,
                size_format(d->peak.total - has).text);
}

static enum error_code run(const struct train_options *o, struct train_record *r, struct error *err)
{
    const int devices = o->plan.mesh.devices;
    const bool replays = cluster_replays(&o->cluster);
    int64_t left = STEP_MOST_EVENTS;   /* for the path; a replay needs all */
    struct events **events = open_events(devices, replays ? NULL : &left, err);
    struct plan p = o->plan;
    const double start = measure_now();
    if (events == NULL) return ERR_MEMORY;
    report_shape(r);
    fflush(r->out);
    train_set_rates(&p.hyper, o, 0);
    enum error_code e = dry_run(&p, o->steps, o->unfolded, events, NULL, take_report, r, &r->folded, err);
    if (!e && replays) e = replay(r, events, err);
    if (!e) e = plan_path_of(&r->plan->path, &o->cluster, &r->folded.folding, events, err);
    close_events(events, devices);
    if (e) return e;
    spread(r, &r->folded.folding);
    r->steps = o->steps, r->seconds[0] = measure_now() - start;
    if (o->plan.mesh.devices == 1 || alone_step_time(&o->plan, &r->alone, &r->alone_kept, NULL)) r->alone = 0;
    report(r);
    if (o->json) e = fail_about(err, report_json(r, "orrery plan", o->json, err), "--json");
    return e ? e : exceeds(r, err);
}

static enum error_code plan_with(const struct train_options *o, struct error *err)
{
    const size_t devices = (size_t)o->plan.mesh.devices;
    struct plan_findings findings = { .peak = calloc(devices, sizeof *findings.peak) };
    struct train_record r = { .options = o, .out = report_stream(o), .overridden = "", .plan = &findings };
    r.step = calloc((size_t)o->steps + 1, sizeof *r.step);
    r.seconds = calloc((size_t)o->steps + 1, sizeof *r.seconds);
    r.device = calloc(devices, sizeof *r.device);
    const enum error_code e = r.step && r.seconds && r.device && findings.peak
                                  ? run(o, &r, err) : fail(err, ERR_MEMORY, "no memory for the record");
    free(r.step), free(r.seconds), free(r.device), free(findings.peak);
    return e;
}

enum error_code train_plan(const struct train_options *o, struct error *err)
{
    struct train_options once = *o;
    const char *const flag = o->plan.batches ? "--batches" : o->pack ? "--pack"
                           : o->plan.encoders.kinds > 0 ? "--modalities" : NULL;
    if (flag)
        return fail(err, ERR_USAGE, "--dry-run: with %s, what is sent and held is known only in a run", flag);
    once.plans = true, once.steps = 1, once.plan.cluster = &once.cluster;
    return plan_with(&once, err);
}

enum error_code command_plan(int argc, char **argv, int *status, struct error *err)
{
    struct train_options o;
    (void)status;
    enum error_code e = train_parse(&o, &run_plan, argc - 2, argv + 2, err);
    if (!e && !o.help && o.steps < 1) e = fail(err, ERR_USAGE, "--steps 0: a plan is of at least one step");
    if (!e && !o.help && launcher_rank() == 0) e = plan_with(&o, err);
    train_options_free(&o);
    return e;
}
