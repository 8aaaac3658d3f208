/* plan.c -- a training step of any mesh without its numbers, in this process: runs every device dry, replays what
 * devices share, and reports.  `orrery plan` and --dry-run call on rank 0.  ERR_CHECK means that a device needs more
 * than --memory, ERR_USAGE that the plan's messages depend on numbers; ERR_MEMORY. */
#include "emulated_devices/device/contention.h"
#include "emulated_devices/draw/timeline.h"
#include "emulated_devices/run/page.h"
#include "emulated_devices/run/plan.h"
#include "emulated_devices/run/report/memory_report.h"
#include "emulated_devices/run/report/plan_report.h"
#include "emulated_devices/train/dry_run/alone.h"
#include "ref/io/terminal.h"
#include "ref/machine/measure.h"
#include <stdlib.h>
#include <string.h>

FILE *run_stream(const struct train_options *options)
{
    return options->json && strcmp(options->json, "-") == 0 ? stderr : stdout;
}

/* ---- all devices ------------------------------------------------------------------------------------------------- */

static struct plan_peak plan_peak_of(const struct trainer *trainer)
{
    const struct arena *a = &trainer->device->arena;
    struct plan_peak p = { .use = a->at_peak, .doing = a->doing_at_peak };
    memcpy(p.blocks, a->blocks_at_peak, sizeof p.blocks);
    return p;
}

/* A record has one report for each class of devices.  Less folding makes more classes. */
static enum error_code plan_make_room(struct train_record *record, struct error *err)
{
    const int lives = folding_lives(&record->folded.folding);
    if (record->plan->room >= lives) return OK;
    struct device_report *const device = realloc(record->device, sizeof *device * (size_t)lives);
    if (device) record->device = device;
    struct plan_peak *const peak = realloc(record->plan->peak, sizeof *peak * (size_t)lives);
    if (peak) record->plan->peak = peak;
    struct memory_of *memory = NULL;
    if (record->plan->profile) memory = realloc(record->plan->memory, sizeof *memory * (size_t)lives);
    if (memory) record->plan->memory = memory;
    if (!device || !peak || (record->plan->profile && !memory))
        return fail(err, ERR_MEMORY, "no memory for the reports of %d devices", lives);
    record->plan->room = lives;
    return OK;
}

/* A device's microbatches with samples are those of its copy. */
static void note_microbatches(struct plan_findings *findings, const struct trainer *trainer)
{
    int used = 0;
    if (trainer->section) return;               /* no scheme chooses microbatches of sections */
    for (int i = 0; i < trainer->plan.micros; i++) used += trainer->stage[0].micro[i].plan.tokens > 0;
    if (findings->most_micros == 0 || used < findings->fewest_micros) findings->fewest_micros = used;
    if (used > findings->most_micros) findings->most_micros = used;
}

static enum error_code take_report(struct trainer *trainer, void *context, struct error *err)
{
    struct train_record *r = context;
    const struct train_options *o = r->options;
    const int n = folding_class(&r->folded.folding, trainer->comm->rank);
    enum error_code e = plan_make_room(r, err);
    if (e) return e;
    r->device[n] = report_of_device(trainer, o->steps);
    r->plan->peak[n] = plan_peak_of(trainer);
    note_microbatches(r->plan, trainer);
    if (r->plan->profile) e = memory_of(trainer, r->plan->profile, &r->plan->memory[n], err);
    if (e) return e;
    return o->timeline ? fail_about(err, timeline_write(trainer, o->timeline, r->out, err), "--timeline") : OK;
}

/* The first device of those that need most. */
static int plan_fullest_of(const struct train_record *record)
{
    int fullest = 0;
    for (int n = 1; n < folding_lives(&record->folded.folding); n++)
        if (record->device[n].peak.total > record->device[fullest].peak.total) fullest = n;
    return fullest;
}

/* The fullest as a framework has it: 0 without --memory-of. */
static int plan_fullest_of_profile(const struct train_record *record)
{
    const struct memory_of *const memory = record->plan->memory;
    int fullest = 0;
    for (int n = 1; memory && n < folding_lives(&record->folded.folding); n++)
        if (memory_of_total(&memory[n]) > memory_of_total(&memory[fullest])) fullest = n;
    return fullest;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static enum error_code replay_on(const struct cluster *cluster, struct events **events, int devices, picoseconds *most,
                                 struct error *err)
{
    picoseconds *end = calloc((size_t)devices, sizeof *end);
    const enum error_code e = end ? contention_replay(cluster, events, devices, end, err)
                                  : fail(err, ERR_MEMORY, "no memory to replay %d devices", devices);
    *most = 0;
    for (int d = 0; d < devices && !e; d++) *most = end[d] > *most ? end[d] : *most;
    free(end);
    return e;
}

/* The step once more, now that all messages of all devices are known.  Where messages and computing hinder each other,
 * first as if they did not: such a replay leaves the times of work as they are. */
static enum error_code replay(struct train_record *record, struct events **events, struct error *err)
{
    const int devices = record->options->plan.mesh.devices;
    struct cluster eased = record->options->cluster;
    const bool hindered = eased.contention.compute_percent > 0 || eased.no_progress;
    eased.contention = (struct contention){ 0 }, eased.no_progress = false;
    const enum error_code e = hindered ? replay_on(&eased, events, devices, &record->unhindered, err) : OK;
    return e ? e : replay_on(&record->options->cluster, events, devices, &record->replayed, err);
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static const struct device_report *plan_fullest(const struct train_record *record)
{
    return &record->device[record->plan->fullest];
}

/* The memory that is missing, or what of it is used. */
static void report_fit(const struct train_record *record)
{
    const struct train_options *o = record->options;
    const struct device_report *d = plan_fullest(record);
    const uint64_t has = report_budget(o), needs = d->peak.total;
    char place[64], how[80];
    if (has == 0) return;
    if (needs > has) snprintf(how, sizeof how, "%s too much", size_format(needs - has).text);
    else snprintf(how, sizeof how, "%.1f %%", 100 * (double)needs / (double)has);
    say(record->out, 8, "fits    %s: device %d (%s) needs %s of %s, %s", needs <= has ? "yes" : "NO", d->rank,
        mesh_describe(&o->plan.mesh, d->rank, place, sizeof place), size_format(needs).text, memory_format(has).text,
        how);
}

static void report_folding(const struct train_record *record)
{
    const struct dry_run *f = &record->folded;
    char text[80];
    if (record->options->plan.mesh.devices == 1) return;
    say(record->out, 8, "folded  %s: %d of %d devices ran%s%s%s",
            folding_describe(&f->folding, text, sizeof text), f->crew.lives, record->options->plan.mesh.devices,
            f->why[0] ? " (" : "", f->why, f->why[0] ? ")" : "");
}

enum { CHANGES = 3 };                    /* that are named if a plan does not fit */

/* List the changes that would fit, a line each. */
static void report_changes(const struct train_record *record)
{
    const struct train_options *o = record->options;
    struct plan_space near = { .base = &o->plan, .devices = o->plan.mesh.devices };
    struct change change[CHANGES];
    struct error unread;
    near.only[BY_OFFLOAD] = "none,optimizer";
    if (plan_space_open(&near, &unread)) return;
    const int n = search_changes(&near, &o->plan, report_budget(o), change, CHANGES);
    plan_space_close(&near);
    report_changes_print(record->out, change, n);
}

static bool is_too_full(const struct train_record *record)
{
    const uint64_t has = report_budget(record->options);
    return has > 0 && plan_fullest(record)->peak.total > has;
}

/* How many microbatches an attention scheme has chosen. */
static void report_microbatches(const struct train_record *record)
{
    const struct plan_findings *const f = record->plan;
    const struct plan *const p = &record->options->plan;
    char copies[40] = "";
    if (p->micro_tokens == 0) return;
    if (f->most_micros > f->fewest_micros) snprintf(copies, sizeof copies, " to %d, copy by copy,", f->most_micros);
    say(record->out, 8, "micro   %d%s of up to %d microbatches have samples", f->fewest_micros, copies, p->micros);
}

static void plan_report(const struct train_record *record)
{
    const struct training training = report_training_of(record);
    const struct train_options *o = record->options;
    report_memory(record);
    report_traffic(record);
    fprintf(record->out, "\n");
    plan_report_peak(record);
    plan_report_path(record);
    report_microbatches(record);
    report_virtual_time(record);
    plan_report_waits(record);
    report_budget_print(record->out, &training);
    report_failures_print(record);
    report_folding(record);
    report_fit(record);
    if (record->plan->profile) memory_report(record, report_budget(o));
    if (is_too_full(record)) report_changes(record);
    fprintf(record->out, "planned in %s, without numbers\n", time_format(record->seconds[0]).text);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code exceeds(const struct train_record *record, struct error *err)
{
    const struct train_options *o = record->options;
    const struct device_report *d = plan_fullest(record);
    const uint64_t has = report_budget(o);
    char place[64];
    if (record->plan->profile) return memory_report_check(record, has, err);
    if (!is_too_full(record)) return OK;
    return fail(err, ERR_CHECK, "--memory %s: device %d (%s) needs %s, %s more", size_word(has).text, d->rank,
                mesh_describe(&o->plan.mesh, d->rank, place, sizeof place), size_format(d->peak.total).text,
                size_format(d->peak.total - has).text);
}

/* Run every device dry, replay what they share, and take what each reports.  path: follow the critical path, which
 * keeps events. */
static enum error_code plan_measure(struct train_record *record, bool path, struct error *err)
{
    const struct train_options *const options = record->options;
    const int devices = options->plan.mesh.devices;
    const bool replays = cluster_replays(&options->cluster);
    int64_t left = STEP_MOST_EVENTS;   /* for the path; a replay needs all */
    struct dry_events events = { NULL, NULL };
    struct plan p = options->plan;
    const double start = measure_now();
    enum error_code e = replays || path ? dry_events_open(&events, devices, replays ? NULL : &left, err) : OK;
    if (e) return e;
    train_set_rates(&p.hyper, options, 0);
    e = dry_run(&p, options->steps, options->unfolded, events.of ? &events : NULL, NULL, take_report, record,
                &record->folded, err);
    if (!e && replays) e = replay(record, events.of, err);
    if (!e && path) e = plan_path_of(&record->plan->path, &options->cluster, &record->folded.folding, events.of, err);
    if (events.of) dry_events_close(&events, devices);
    if (e) return e;
    record->plan->fullest = plan_fullest_of(record), record->plan->fullest_of = plan_fullest_of_profile(record);
    record->steps = options->steps, record->seconds[0] = measure_now() - start;
    return OK;
}

/* Begin the record of a plan, with the memory profile of --memory-of. */
static enum error_code planned_step_room(struct planned_step *planned, const struct train_options *options,
                                         struct error *err)
{
    const size_t steps = (size_t)options->steps + 1;
    struct train_record *const r = &planned->record;
    struct plan_findings *const f = &planned->findings;
    *f = (struct plan_findings){ .room = 0 };
    *r = (struct train_record){ .options = options, .out = run_stream(options), .overridden = "", .plan = f };
    r->step = calloc(steps, sizeof *r->step), r->seconds = calloc(steps, sizeof *r->seconds);
    enum error_code e = options->memory_of ? memory_profile_find(&f->profile, options->memory_of, err) : OK;
    if (!e && f->profile) e = memory_profile_check(f->profile, &options->plan, err);
    if (!e) e = report_failures_check(options, err);
    return e ? e : r->step && r->seconds ? OK : fail(err, ERR_MEMORY, "no memory for the record");
}

enum error_code planned_step_open(struct planned_step *planned, const struct train_options *options,
                                  struct error *err)
{
    const enum error_code e = planned_step_room(planned, options, err);
    return e ? e : plan_measure(&planned->record, true, err);
}

void planned_step_close(struct planned_step *planned)
{
    struct train_record *const r = &planned->record;
    free(r->step), free(r->seconds), free(r->device), free(planned->findings.peak), free(planned->findings.memory);
    cJSON_Delete(r->film);
}

static enum error_code plan_and_report(struct train_record *record, struct error *err)
{
    const struct train_options *const options = record->options;
    const struct plan_more *const more = record->plan->more;
    report_shape(record);
    if (options->plan.lengths) report_packing(record->out, options->plan.lengths);
    fflush(record->out);
    enum error_code e = plan_measure(record, true, err);
    if (e) return e;
    if (options->plan.mesh.devices == 1 || alone_step_time(&options->plan, &record->alone, &record->alone_kept, NULL))
        record->alone = 0;
    plan_report(record);
    if (more) more->print(record->out, more->context);
    if (page_is_asked(options)) e = page_of_plan(record, err);
    if (!e && options->json) e = fail_about(err, report_json(record, "orrery plan", options->json, err), "--json");
    return e ? e : exceeds(record, err);
}

enum error_code plan_step(const struct train_options *options, const struct plan_more *more, struct error *err)
{
    struct planned_step planned;
    enum error_code e = planned_step_room(&planned, options, err);
    planned.findings.more = more;
    if (!e) e = page_check_plan(options, err);
    if (!e) e = plan_and_report(&planned.record, err);
    planned_step_close(&planned);
    return e;
}

/* Bytes, or messages, of all kinds that one device sends, of the device with most. */
static uint64_t plan_most_sent(const struct train_record *record, bool messages)
{
    uint64_t most = 0;
    for (int n = 0; n < folding_lives(&record->folded.folding); n++) {
        uint64_t sent = 0;
        for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++) {
            const struct traffic one = ledger_kind(&record->device[n].counted, k);
            sent += messages ? one.messages_sent : one.bytes_sent;
        }
        most = sent > most ? sent : most;
    }
    return most;
}

/* The time of a step in which a device computes.  A device that did not run computes as the one that stands for it. */
static picoseconds plan_computing(const struct train_record *record)
{
    const struct mesh *const mesh = &record->options->plan.mesh;
    double all = 0;
    for (int r = 0; r < mesh->devices; r++)
        all += (double)record->device[folding_class(&record->folded.folding, r)].computing;
    return (picoseconds)(all / mesh->devices / (double)record->steps);
}

enum error_code plan_numbers_of(const struct train_options *options, struct plan_numbers *numbers, struct error *err)
{
    struct planned_step planned;
    const struct plan_findings *const f = &planned.findings;
    enum error_code e = planned_step_room(&planned, options, err);
    if (!e) e = plan_measure(&planned.record, false, err);
    if (!e)
        *numbers = (struct plan_numbers){ virtual_speed_of(&planned.record), plan_fullest(&planned.record)->peak.total,
                                          options->plan.mesh.devices, planned.record.folded.crew.lives,
                                          .memory = f->profile ? f->memory[f->fullest_of] : (struct memory_of){ 0 },
                                          .budget = report_budget(options),
                                          .sent = plan_most_sent(&planned.record, false),
                                          .messages = plan_most_sent(&planned.record, true),
                                          .computing = plan_computing(&planned.record),
                                          .goodput = report_goodput(&planned.record), .useful = 1, .alone = 1 };
    const struct packing *const packed = options->plan.lengths;
    if (!e && packed)
        numbers->useful = (double)packed->tokens / (double)(packed->sequences * packed->S),
        numbers->alone = (double)packed->tokens / (double)(packed->samples * packed->S);
    planned_step_close(&planned);
    return e;
}

enum error_code train_plan(const struct train_options *options, struct error *err)
{
    struct train_options once = *options;
    const char *const flag = options->plan.batches ? "--batches" : NULL;
    if (flag)
        return fail(err, ERR_USAGE, "--dry-run: with %s, what is sent and held is known only in a run", flag);
    once.steps = 1, once.plan.cluster = &once.cluster;
    return plan_step(&once, NULL, err);
}
