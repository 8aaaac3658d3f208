/* plan.c -- `orrery plan`: a training step of any mesh without its numbers, in this process.
 *
 * Every device runs as in `orrery train`, with the backend `count` and in a crew (comm/crew.h): messages, bytes, memory
 * and virtual time are the same, to the byte and the picosecond.
 */
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/device/contention.h"
#include "emulated_devices/draw/timeline.h"
#include "emulated_devices/model/alone.h"
#include "emulated_devices/model/plan_memory.h"
#include "emulated_devices/cli/measure.h"
#include "ref/io/terminal.h"
#include <stdlib.h>
#include <string.h>

/* Options of a run that has numbers, text and processes. */
static const char *const of_numbers[] = {
    "--data", "--pack", "--sample", "--check", "--dump", "--isolate", "--paranoid", "--backend", "--wait-limit",
    "--save", "--owners-out", "--resume", "--override", "--lr", "--min-lr", "--warmup", "--lr-steps", "--clip",
    "--weight-decay", "--seed", "--trace", "--trace-steps", "--modalities", "--encoders", "--bridge-chunks",
    "--encoder-slack", NULL
};

static enum error_code take(struct train_options *o, struct error *err)
{
    (void)err;
    o->plans = true;
    return OK;
}

const struct run_kind run_plan = {
    .command = "plan", .without = of_numbers, .steps = 1, .take = take,
    .what = "What a training step would take on a mesh of up to 4096 devices, without running it: memory,\n"
            "messages and virtual time of every device, and whether it fits.\n"
            "Takes the options of `orrery train` that say what is trained where. The numbers are those of a run,\n"
            "to the byte and the picosecond, but for experts, whose load depends on the text: here it is uneven.\n"
            "The exit status is 3 if a device needs more memory than --memory, or else its cluster's, allows.",
};

/* ---- one device -------------------------------------------------------------------------------------------------- */

struct planned {
    const struct train_options *options;
    struct train_record *record;
    struct events **events;             /* [devices] if the cluster has links that devices share; else NULL */
};

/* All tokens are 0, as the trainer has them already. */
static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within)
{
    (void)context, (void)step, (void)first, (void)count, (void)ids, (void)labels, (void)within;
}

static enum error_code steps(struct trainer *t, const struct planned *a, struct error *err)
{
    const struct train_options *o = a->options;
    struct step_result result = { 0 };
    enum error_code e = OK;
    for (int64_t i = 0; i < o->steps && !e; i++) {
        e = trainer_gradients(t, &result, err);
        if (!e) e = trainer_update(t, &result, err);
    }
    if (!e) e = collect_reports(t, o->steps, a->record->device, err);
    if (!e && o->timeline)
        e = fail_about(err, timeline_write(t, o->timeline, a->record->out, err), "--timeline");
    return e;
}

static enum error_code train_here(struct comm *c, const struct planned *a, struct error *err)
{
    const struct train_options *o = a->options;
    struct trainer t;
    const struct cluster own = cluster_of_rank(&o->cluster, c->rank);
    if (a->events) c->device->clock.events = a->events[c->rank];
    clock_restart(&c->device->clock, &own, o->plan.dtype);
    enum error_code e = trainer_open(&t, &o->plan, c, (struct batch_source){ fill, NULL }, err);
    if (e) return e;
    train_set_rates(&t.plan.hyper, o, 0);
    e = steps(&t, a, err);
    trainer_close(&t);
    return e;
}

static enum error_code be_planned(struct crew *crew, int rank, const void *asked, struct error *err)
{
    const struct planned *a = asked;
    struct device device;
    struct comm comm;
    enum error_code e = device_open(&device, backend_find("count"), a->options->plan.dtype, 0, err);
    if (e) return e;
    e = crew_join(&comm, crew, rank, &device, err);
    if (!e) {
        e = train_here(&comm, a, err);
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

/* ---- links that devices share ------------------------------------------------------------------------------------ */

static void close_events(struct planned *a, int devices)
{
    for (int d = 0; d < devices && a->events; d++) {
        if (a->events[d]) events_free(a->events[d]);
        free(a->events[d]);
    }
    free(a->events);
}

static enum error_code open_events(struct planned *a, int devices, struct error *err)
{
    bool opened = (a->events = calloc((size_t)devices, sizeof(struct events *))) != NULL;
    for (int d = 0; d < devices && opened; d++)
        opened = (a->events[d] = calloc(1, sizeof(struct events))) != NULL;
    return opened ? OK : fail(err, ERR_MEMORY, "no memory for the events of %d devices", devices);
}

/* The step once more, now that all messages of all devices are known. */
static enum error_code replay(const struct planned *a, struct error *err)
{
    struct train_record *r = a->record;
    const int devices = r->options->plan.mesh.devices;
    picoseconds *end = calloc((size_t)devices, sizeof *end), most = 0;
    enum error_code e = end ? contention_replay(&r->options->cluster, a->events, devices, end, err)
                            : fail(err, ERR_MEMORY, "no memory to replay %d devices", devices);
    for (int d = 0; d < devices && !e; d++) most = end[d] > most ? end[d] : most;
    r->shared = e ? 0 : most;
    free(end);
    return e;
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static const struct device_report *fullest(const struct train_record *r)
{
    int most = 0;
    for (int d = 1; d < r->options->plan.mesh.devices; d++)
        if (r->device[d].peak.total > r->device[most].peak.total) most = d;
    return &r->device[most];
}

/* What a device may hold; 0: nobody says. */
static uint64_t budget(const struct train_options *o) { return o->memory ? o->memory : o->cluster.memory; }

static void report_fit(const struct train_record *r)
{
    const struct train_options *o = r->options;
    const struct device_report *d = fullest(r);
    const uint64_t has = budget(o);
    char place[64];
    if (has == 0) return;
    say(r->out, 8, "fits    %s: device %d (%s) needs %s of %s, %s%.1f %%", d->peak.total <= has ? "yes" : "NO",
            d->rank, mesh_describe(&o->plan.mesh, d->rank, place, sizeof place), size_format(d->peak.total).text,
            size_format(has).text, d->peak.total <= has ? "" : "over by ",
            d->peak.total <= has ? 100 * (double)d->peak.total / (double)has
                                 : 100 * ((double)d->peak.total / (double)has - 1));
}

/* How much of the step a device computes: the rest it waits, for messages or for its turn in a pipeline. */
static void report_use(const struct train_record *r)
{
    const struct plan *p = &r->options->plan;
    const double step = report_virtual_step(r);
    double least = 1, most = 0, sum = 0;
    for (int d = 0; d < p->mesh.devices && step > 0; d++) {
        const double share = (double)r->device[d].computing / (step * (double)r->steps);
        if (share < least) least = share;
        if (share > most) most = share;
        sum += share;
    }
    say(r->out, 8, "compute %.1f %% of a step on average, %.1f to %.1f %% on each device; the rest is waiting",
        100 * sum / p->mesh.devices, 100 * least, 100 * most);
}

/* The model's operations over what the devices could do in that time. */
static void report_speed(const struct train_record *r)
{
    const struct train_options *o = r->options;
    const double seconds = 1e-12 * report_virtual_step(r), flops = report_step_flops(&o->plan);
    const double rate = 1e6 * (double)o->cluster.flop_rate[o->plan.dtype] * o->plan.mesh.devices;
    char use[120] = "";
    if (rate > 0)
        snprintf(use, sizeof use, "; %.1f %% model FLOP utilization (%.4g FLOP a step, attention counted by half)",
                 100 * flops / seconds / rate, flops);
    say(r->out, 8, "speed   %.4g tokens/s%s", (double)(o->plan.B * o->plan.S) / seconds, use);
}

static void report(const struct train_record *r)
{
    report_memory(r);
    report_traffic(r);
    fprintf(r->out, "\n");
    report_fit(r);
    report_virtual_time(r);
    report_speed(r);
    report_use(r);
    fprintf(r->out, "planned in %.1f s, without numbers\n", r->seconds[0]);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code exceeds(const struct train_record *r, struct error *err)
{
    const struct train_options *o = r->options;
    const struct device_report *d = fullest(r);
    const uint64_t has = budget(o);
    struct plan_memories need;
    struct error help = { 0 };
    if (has == 0 || d->peak.total <= has) return OK;
    if (!plan_memory_of_all(&o->plan, o->steps, &need, &help) &&
        plan_check_budget(&o->plan, has, o->steps, &need, &help))
        return fail(err, ERR_CHECK, "%s", help.text);
    return fail(err, ERR_CHECK, "the plan does not fit: device %d needs %s, and has %s", d->rank,
                size_format(d->peak.total).text, size_format(has).text);
}

static enum error_code run(const struct train_options *o, struct train_record *r, struct error *err)
{
    struct planned a = { .options = o, .record = r };
    const int devices = o->plan.mesh.devices;
    const double start = measure_now();
    report_shape(r);
    fflush(r->out);
    enum error_code e = o->cluster.shares > 0 ? open_events(&a, devices, err) : OK;
    if (!e) e = crew_run(devices, be_planned, &a, err);
    if (!e && a.events) e = replay(&a, err);
    close_events(&a, devices);
    if (e) return e;
    r->steps = o->steps, r->seconds[0] = measure_now() - start;
    if (o->plan.mesh.devices == 1 || alone_step_time(&o->plan, &r->alone, NULL)) r->alone = 0;
    report(r);
    if (o->json) e = fail_about(err, report_json(r, o->json, err), "--json");
    return e ? e : exceeds(r, err);
}

enum error_code command_plan(int argc, char **argv, int *status, struct error *err)
{
    struct train_options o;
    (void)status;
    enum error_code e = train_parse(&o, &run_plan, argc - 2, argv + 2, err);
    if (!e && !o.help && o.steps < 1) e = fail(err, ERR_USAGE, "--steps 0: a plan is of at least one step");
    if (!e && !o.help && launcher_rank() == 0) {
        struct train_record r = { .options = &o, .out = report_stream(&o), .overridden = "" };
        r.step = calloc((size_t)o.steps + 1, sizeof *r.step);
        r.seconds = calloc((size_t)o.steps + 1, sizeof *r.seconds);
        r.device = calloc((size_t)o.plan.mesh.devices, sizeof *r.device);
        e = r.step && r.seconds && r.device ? run(&o, &r, err) : fail(err, ERR_MEMORY, "no memory for the record");
        free(r.step), free(r.seconds), free(r.device);
    }
    train_options_free(&o);
    return e;
}
