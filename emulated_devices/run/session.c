/* session.c -- one device's part of a run: trains a model on a mesh with a text, and can compare it with one device.
 * cli/train/train.c and one_process.c open a device and run it; run/golden.c and run/plan.c ask for run_stream.
 * ERR_PLAN means that another number of devices was started, ERR_DIVERGED that training diverged, and ERR_CHECK that
 * a comparison or a count failed.  Trainer, reference and logs are closed in any case. */
#include "emulated_devices/draw/page/page_html.h"
#include "emulated_devices/draw/profile.h"
#include "emulated_devices/run/elastic/phase.h"
#include "emulated_devices/run/page.h"
#include "emulated_devices/run/report/report.h"
#include "emulated_devices/run/session.h"
#include "emulated_devices/run/survive/surviving.h"
#include "emulated_devices/launch/stopping.h"
#include "emulated_devices/run/run.h"
#include "emulated_devices/train/dry_run/alone.h"
#include "emulated_devices/draw/simulators.h"
#include "emulated_devices/draw/timeline.h"
#include "emulated_devices/draw/trace_file.h"
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/train/dry_run/plan_memory.h"
#include "emulated_devices/verify/reference/watch.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include "ref/machine/threads.h"
#include <stdlib.h>
#include <string.h>

struct source { const struct train_data *data; bool held; };

static void session_fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                         int32_t *within)
{
    const struct source *s = context;
    if (s->held) train_data_fill_held(s->data, step, first, count, ids, labels);
    else train_data_fill(s->data, step, first, count, ids, labels, within);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static struct backend_calls calls_so_far(const struct session *session)
{
    const struct device *d = session->trainer.comm->device;
    return d->backend->calls ? d->backend->calls(d) : (struct backend_calls){ 0 };
}

static struct backend_calls calls_since(const struct session *session, struct backend_calls calls)
{
    const struct backend_calls a = calls_so_far(session);
    return (struct backend_calls){ a.launches - calls.launches, a.products - calls.products, a.copies - calls.copies,
                                   a.allocations - calls.allocations, a.waits - calls.waits,
                                       a.lookups - calls.lookups };
}

static enum error_code load_weights(struct session *session, struct error *err)
{
    const struct train_options *o = session->options;
    enum error_code e = OK;
    if (phase_continues(session->phase)) e = phase_put(session->phase, &session->trainer, err);
    else if (o->resume)
        e = fail_about(err, checkpoint_resume(&session->trainer, &o->saved, &session->record.reading, err), "--resume");
    else if (o->model_dir) e = fail_about(err, checkpoint_load_weights(&session->trainer, &o->saved, err), "--model");
    if (!phase_continues(session->phase) && o->resume && train_changes_loss_scale(o))
        session->trainer.loss_scale = plan_loss_scale(&o->plan);
    train_set_rates(&session->trainer.plan.hyper, o, session->trainer.step);
    return e;
}

static enum error_code start_reference(struct session *session, struct batch_source source, struct error *err)
{
    enum error_code e = OK;
    if (session->speaks) e = reference_open(&session->reference, &session->trainer.plan, source, err);
    e = comm_agree(session->trainer.comm, e, err);
    if (!e) e = comm_agree(session->trainer.comm, trainer_track(&session->trainer, err), err);
    if (!e) probes_open(&session->probes, &session->trainer, session->options->isolate);
    if (!e && (session->options->resume || session->options->model_dir || phase_continues(session->phase)))
        reference_follow(&session->reference, &session->trainer);
    return e;
}

/* Every run compares counts with predictions: verify/reference/counts.h; and what is charged with what is computed. */
static enum error_code check_counts(const struct train_record *record, struct error *err)
{
    double flops = 0;
    for (int d = 0; d < record->options->plan.mesh.devices; d++) {
        const struct device_report *one = &record->device[d];
        const struct error *wrong = one->wrong_traffic.code ? &one->wrong_traffic : &one->wrong_memory;
        if (wrong->code) return fail(err, wrong->code, "%s", wrong->text);
        flops += one->flops;
    }
    return charged_check(&record->options->plan, record->steps, flops, err);
}

/* If the budget was exceeded, print each device's memory and what would help. */
static enum error_code say_memory(const struct train_record *record, enum error_code e, struct error *err)
{
    const struct mesh *m = &record->options->plan.mesh;
    const uint64_t budget = record->options->memory;
    char place[64];
    int most = 0;
    for (int d = 1; d < m->devices; d++)
        if (record->device[d].peak.total > record->device[most].peak.total) most = d;
    const uint64_t need = record->device[most].peak.total;
    if (budget == 0 || need <= budget) return e;
    report_memory(record);
    return fail(err, ERR_MEMORY, "--memory %s: device %d (%s) needs %s; --memory %s would be enough for every device",
                size_word(budget).text, most, mesh_describe(m, most, place, sizeof place), size_format(need).text,
                size_enough(need).text);
}

/* Collect every device's report on rank 0; also after a run that ran out of memory. */
static enum error_code collect_record(struct session *session, enum error_code e, struct error *err)
{
    const enum error_code told = collect_reports(&session->trainer, session->trainer.step - session->record.first_step,
                                                 session->record.processor, session->record.device, err);
    if (told) return told;
    return comm_agree(session->trainer.comm, session->speaks ? say_memory(&session->record, e, err) : e, err);
}

/* Evaluate the model, unless it has diverged.  At the end all devices know whether it has. */
static enum error_code session_judge(struct session *session, const struct train_data *data, struct error *err)
{
    const struct train_options *o = session->options;
    enum error_code e = OK;
    session->record.divergence = session->divergence;
    if (!session->divergence.what && session->record.has_numbers && !o->infers)
        e = print_sample(&session->trainer, data, o->sample, session->record.out, &session->record.validation, err);
    if (e) return e;
    if (session->speaks) find_divergence(&session->record);
    struct error unread;
    if (group_agree(session->trainer.comm->everyone,
                    session->speaks && session->record.divergence.what ? fail(&unread, ERR_DIVERGED, "it has")
                        : OK, &unread) && !session->divergence.what)
        session->divergence.what = "model";
    return OK;
}

static enum error_code write_owners(struct session *session, struct error *err)
{
    struct expert_owners owners;
    enum error_code e = experts_place(&session->trainer, &owners, err);
    if (!e && session->speaks) e = expert_owners_write(&owners, session->options->owners_out, err);
    expert_owners_free(&owners);
    return comm_agree(session->trainer.comm, e, err);
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static int64_t choices_of_step(const struct plan *plan)
{
    return plan->model.L * plan_stream_rows(plan) * plan->model.mixture.k;
}

static enum error_code watch_choices(struct session *session, struct error *err)
{
    const struct train_options *o = session->options;
    if (o->save_load == NULL) return OK;
    enum error_code e = routers_watch(&session->trainer, err);
    if (!e && session->speaks)
        session->chosen = calloc((size_t)(o->steps * choices_of_step(&o->plan)) + 1, sizeof *session->chosen);
    if (!e && session->speaks && session->chosen == NULL)
        e = fail(err, ERR_MEMORY, "no memory for the choices of %lld steps", (long long)o->steps);
    return comm_agree(session->trainer.comm, e, err);
}

static enum error_code bring_choices(struct session *session, int64_t i, struct error *err)
{
    if (session->options->save_load == NULL) return OK;
    int32_t *const to = session->speaks ? session->chosen + i * choices_of_step(&session->options->plan) : NULL;
    return comm_agree(session->trainer.comm, routers_bring(&session->trainer, to, err), err);
}

static enum error_code write_choices(struct session *session, struct error *err)
{
    const struct plan *p = &session->options->plan;
    const enum error_code e = session->speaks
        ? load_write(session->options->save_load, &p->model, session->chosen, session->record.steps,
                     plan_stream_rows(p), err) : OK;
    return comm_agree(session->trainer.comm, e, err);
}

/* The error with which a reported run ends. */
static enum error_code session_verdict(const struct session *session, struct error *err)
{
    char text[sizeof err->text];
    if (session->record.encoders.code) return fail(err, ERR_CHECK, "%s", session->record.encoders.text);
    if (session->record.comparison.failed)
        return fail(err, ERR_CHECK, "%s",
                    comparison_describe(text, sizeof text, &session->record.comparison, &session->options->plan));
    if (session->record.divergence.what) return fail_diverged(&session->record, err);
    if (!comparison_holds(&session->record.comparison))
        return fail(err, ERR_CHECK, "%s",
                    comparison_unjudged(text, sizeof text, &session->record.comparison, &session->options->plan));
    return check_counts(&session->record, err);
}

/* A figure beside the run's own: without it the report is complete. */
static void time_alone(struct train_record *record, const struct train_data *data)
{
    struct plan p = record->options->plan;
    p.cluster = &record->options->cluster, p.lengths = p.packed ? &data->text.packing : NULL;
    if (p.mesh.devices == 1 || alone_step_time(&p, &record->alone, &record->alone_kept, NULL)) record->alone = 0;
}

/* ---- traces ----------------------------------------------------------------------------------------------------- */

static bool for_simulator(const struct train_options *options) { return strcmp(options->trace_format, "chrome") != 0; }

static bool has_profile(const struct train_options *options) { return options->json || options->log; }

static void begin_trace(struct session *session)
{
    const struct train_options *o = session->options;
    const struct plan *p = &o->plan;
    struct clock *c = &session->trainer.device->clock;
    session->trace.layers = (int)p->model.L;
    session->trace.scheme[TRAFFIC_PIPELINE] = p->schedule, session->trace.scheme[TRAFFIC_DATA] = p->data.scheme;
    session->trace.scheme[TRAFFIC_TENSOR] = p->tensor, session->trace.scheme[TRAFFIC_ATTENTION] = p->attention;
    session->trace.scheme[TRAFFIC_EXPERTS] = p->dispatch;
    if (o->trace && for_simulator(o)) c->events = &session->events;
    if (has_profile(o) || page_is_asked(o) || (o->trace && !for_simulator(o))) c->trace = &session->trace;
}

/* After so many steps of this run. */
static void end_trace(struct session *session, int64_t steps)
{
    const struct train_options *o = session->options;
    struct clock *c = &session->trainer.device->clock;
    const bool traces = o->trace && !for_simulator(o) && steps < o->trace_steps;
    const bool films = page_is_asked(o) && steps < o->page_steps;
    if (steps <= o->trace_steps)
        session->traced = session->trace.count, session->traced_memories = session->trace.memories;
    if (!traces && !films) c->trace = NULL;
    if (steps >= o->trace_steps) c->events = NULL;
}

static enum error_code write_trace(struct session *session, struct error *err)
{
    const struct train_options *o = session->options;
    if (!for_simulator(o)) {
        /* The film may have more steps. */
        session->trace.count = session->traced, session->trace.memories = session->traced_memories;
        return trace_write(session->trainer.comm, &session->trainer.plan.mesh, &session->trace, o->cluster.name,
                           o->trace, err);
    }
    return simulator_write(session->trainer.comm, &session->events,
                           strcmp(o->trace_format, "goal") == 0 ? SIMULATOR_GOAL : SIMULATOR_CHAKRA, o->trace, err);
}

/* As main says an error: launch_devices passes on one line of this kind. */
static void say_stopped(const struct session *session)
{
    const struct train_options *o = session->options;
    char saved[300] = "nothing was saved, for there is no --save";
    if (o->save) snprintf(saved, sizeof saved, "saved in %s", printable_path(o->save).text);
    say(stderr, 8, "orrery: stopped: %s after step %lld; %s", stopping_name(session->stopped),
        (long long)session->trainer.step, saved);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* This holds what a session notes of each step. */
struct session_watch {
    struct session *session;
    const struct train_data *data;
    struct backend_calls before;        /* calls of the backend before the step */
};

static struct losing *losing_of(const struct session *session)
{
    return session->phase ? session->phase->losing : NULL;
}

static struct surviving *surviving_of(const struct session *session)
{
    return session->phase ? session->phase->surviving : NULL;
}

static enum error_code session_step_begins(void *context, struct trainer *trainer, struct training_step *step,
                                           struct error *err)
{
    struct session_watch *const watch = context;
    watch->before = calls_so_far(watch->session);
    const enum error_code e = surviving_at(surviving_of(watch->session), STEP_BEGINS, trainer, step,
                                           watch->session->options, err);
    return e ? e : losing_at(losing_of(watch->session), STEP_BEGINS, trainer, step, err);
}

/* The update changes what --save-async copies. */
static enum error_code session_gradients_reduced(void *context, struct trainer *trainer, struct training_step *step,
                                                 struct error *err)
{
    struct session_watch *const watch = context;
    saving_before_update(watch->session);
    return losing_at(losing_of(watch->session), GRADIENTS_REDUCED, trainer, step, err);
}

/* A comparison calls the backend, too: then calls are not counted. */
static enum error_code session_weights_stepped(void *context, struct trainer *trainer, struct training_step *step,
                                               struct error *err)
{
    struct session_watch *const watch = context;
    struct session *const r = watch->session;
    if (r->speaks && !r->checking) r->record.calls = calls_since(r, watch->before);
    return losing_at(losing_of(r), WEIGHTS_STEPPED, trainer, step, err);
}

/* Note the end of a step, and make this device's part of the film after the last of its steps; with --live after each
 * of them, so that who looks sees it grow.  Then collective. */
static enum error_code film_step(struct session *session, int64_t i, struct error *err)
{
    const struct train_options *const o = session->options;
    const bool live = o->live != LIVE_OFF;
    if (session->live) live_loss(session->live, session->record.step[i].loss);
    if (session->mark == NULL || i >= o->page_steps) return OK;
    session->mark[session->marks++] = session->trainer.device->clock.now;
    if (i + 1 < o->page_steps && !live) return OK;
    cJSON_Delete(session->part);
    session->part = film_part(&session->trainer, &session->trace, session->mark, session->marks);
    return live ? page_finish(session->trainer.comm, session->part, &session->record, session->live, false, err) : OK;
}

/* The page has no data yet: the browser asks for them. */
static enum error_code open_live(struct session *session, struct error *err)
{
    const int port = session->options->live;
    char *page = NULL;
    size_t bytes = 0;
    if (port == LIVE_OFF) return OK;
    enum error_code e = session->speaks ? page_html_text(&page, &bytes, NULL, 0, err) : OK;
    if (!e && session->speaks) e = live_open(&session->live, port, page, err);
    if (!e && session->speaks && document_is_quiet()) document_verdict(live_url(session->live));
    else if (!e && session->speaks) say(session->record.out, 8, "live    %s", live_url(session->live));
    if (session->speaks) fflush(session->record.out);
    free(page);
    return comm_agree(session->trainer.comm, e, err);
}

/* A run that ended before has the steps that it has. */
static enum error_code film_finish(struct session *session, struct error *err)
{
    if (session->part == NULL)
        session->part = film_part(&session->trainer, &session->trace, session->mark, session->marks);
    return page_finish(session->trainer.comm, session->part, &session->record, session->live, true, err);
}

static enum error_code session_step_ended(void *context, struct trainer *trainer, struct training_step *step,
                                          struct error *err)
{
    struct session_watch *const watch = context;
    struct session *const r = watch->session;
    const int64_t i = step->index;
    /* A device that is lost while a checkpoint is saved leaves a save that never counts, and a step to do again. */
    if (losing_is_due(losing_of(r), step)) {
        enum error_code e = between_save_begins(r, watch->data, err);
        return e ? e : losing_at(losing_of(r), STEP_ENDED, trainer, step, err);
    }
    step_diverges(trainer->plan.optimizer, trainer->step, &step->result, &r->divergence);
    r->record.processor[i] = step->processor;
    if (r->speaks) {
        r->record.step[i] = step->result;
        r->record.seconds[i] = step->seconds;
        r->record.steps = i + 1;
        report_step(&r->record, i);
    }
    if (i == 0 && has_profile(r->options)) r->profile = profile_describe(&r->trace, trainer->comm->size);
    enum error_code e = surviving_at(surviving_of(r), STEP_ENDED, trainer, step, r->options, err);
    if (!e) e = film_step(r, i, err);
    if (!e) e = bring_choices(r, i, err);
    if (!e) e = between_steps(r, watch->data, i, err);
    end_trace(r, i + 1);
    return e;
}

/* A signal and a divergence are known to all devices. */
static bool session_ends(const void *context)
{
    const struct session_watch *const watch = context;
    return watch->session->divergence.what || watch->session->stopped;
}

static enum error_code session_train(struct session *session, const struct train_data *data, struct error *err)
{
    struct session_watch watch = { .session = session, .data = data };
    struct reference_watch beside = { &session->reference, &session->probes, &session->record.comparison,
                                     &session->record.encoders, true };
    struct training_observer observers[3] = {
        { .context = &watch, .ends = session_ends,
          .at = { [STEP_BEGINS] = session_step_begins, [GRADIENTS_REDUCED] = session_gradients_reduced,
                  [WEIGHTS_STEPPED] = session_weights_stepped, [STEP_ENDED] = session_step_ended } },
    };
    int count = 1;
    if (session->options->paranoid) observers[count++] = replicas_observer(&session->record.copies);
    if (session->checking) observers[count++] = reference_observer(&beside);
    return training_run(&session->trainer, session->options->steps, observers, count, NULL, err);
}

static enum error_code train_steps(struct session *session, const struct train_data *data, struct error *err)
{
    const struct train_options *o = session->options;
    enum error_code e = OK;
    session->record.first_step = session->trainer.step;
    if (session->speaks) e = run_log_open(&session->log, &session->record, err);
    e = comm_agree(session->trainer.comm, e, err);
    stopping_listen(session->speaks);
    if (!e) e = session_train(session, data, err);
    if (!e && phase_has_lost(session->phase)) return losing_gather(session->phase->losing, session->trainer.comm, err);
    if (!e) e = fail_about(err, saving_look(session, true, err), "--save");
    if (!e && losing_of(session)) e = losing_gather(losing_of(session), session->trainer.comm, err);
    session->record.stopped = session->stopped;
    end_trace(session, INT64_MAX);
    if (e == OK || e == ERR_MEMORY) e = collect_record(session, e, err);
    if (!e && phase_ends_early(session->phase) && session->speaks) report_saves(&session->record);
    /* The steps of every mesh are checked; the run is judged at its end. */
    if (!e && phase_ends_early(session->phase) && !session->stopped && !session->divergence.what)
        return comm_agree(session->trainer.comm, session->speaks ? session_verdict(session, err) : OK, err);
    if (!e) e = session_judge(session, data, err);
    if (!e && session->speaks) time_alone(&session->record, data);
    if (!e && o->timeline)
        e = fail_about(err, timeline_write(&session->trainer, o->timeline, session->record.out, err), "--timeline");
    if (!e && session->speaks) report_end(&session->record);
    if (!e && o->trace) e = fail_about(err, write_trace(session, err), "--trace");
    if (!e && o->save && !session->divergence.what) e = fail_about(err, session_save(session, data, err), "--save");
    if (!e && has_profile(o) && o->steps > 0)
        e = profile_gather(session->trainer.comm, session->profile, &session->record.profile, err);
    if (!e && page_is_asked(o)) e = film_finish(session, err);
    if (!e && session->speaks) e = run_log_end(&session->log, err);
    if (!e && o->owners_out) e = fail_about(err, write_owners(session, err), "--owners-out");
    if (!e && o->save_load) e = fail_about(err, write_choices(session, err), "--save-load");
    const char *const format = o->infers ? "orrery infer" : "orrery train";
    if (!e && session->speaks && o->json)
        e = fail_about(err, report_json(&session->record, format, o->json, err), "--json");
    if (!e && session->speaks) e = session_verdict(session, err);
    if (!e && session->speaks && session->stopped) say_stopped(session);
    return comm_agree(session->trainer.comm, e, err);
}

/* Every device records; with --record into files, of which none is an earlier run's. */
static enum error_code begin_record(struct session *session, struct comm *comm, struct error *err)
{
    const struct train_options *const o = session->options;
    struct disturbed *const disturbed = &comm->device->clock.disturbed;
    enum error_code e = o->record && session->speaks ? recorder_clear(o->record, err) : OK;
    e = comm_agree(comm, e, err);
    if (!e) e = comm_agree(comm, recorder_open(&session->recorder, o->record, comm->rank, comm->size, 0, err), err);
    if (e) return fail_about(err, e, "--record");
    if (comm->size <= RECORD_MOST_DEVICES) comm->recorder = &session->recorder;
    *disturbed = (struct disturbed){ .all = o->disturbances.count + o->disturbances.noise > 0 ? &o->disturbances : NULL,
                                     .rank = comm->rank };
    return OK;
}

static void end_record(struct session *session, struct comm *comm)
{
    comm->recorder = NULL, comm->device->clock.disturbed = (struct disturbed){ .all = NULL };
    recorder_close(&session->recorder);
}

enum error_code session_on_device(struct comm *comm, const struct train_options *options,
                                  const struct train_data *data, const char *overridden, struct phase *phase,
                                  int *status, struct error *err)
{
    struct session r = { .options = options, .phase = phase, .checking = options->check != NULL,
                         .speaks = comm->rank == 0, .saved = -1,
                         .log = { .fd = -1, .events = { .fd = -1 } } };
    const struct source tokens = { data, options->infers };
    const struct batch_source source = { session_fill, &tokens };
    enum error_code e = trainer_open(&r.trainer, &options->plan, comm, source, err);
    if (e) return e;
    r.record = (struct train_record){ .options = options, .arithmetic = arithmetic_now(), .out = run_stream(options),
                                      .has_numbers = comm->device->backend->has_numbers, .truth = "the one-device run",
                                      .overridden = overridden,
                                      .folded.folding = folding_none(&options->plan.mesh) };
    r.record.step = calloc((size_t)options->steps + 1, sizeof *r.record.step);
    r.record.seconds = calloc((size_t)options->steps + 1, sizeof *r.record.seconds);
    r.record.processor = calloc((size_t)options->steps + 1, sizeof *r.record.processor);
    r.record.device = calloc((size_t)comm->size, sizeof *r.record.device);
    if (page_is_asked(options)) r.mark = calloc((size_t)options->page_steps, sizeof *r.mark);
    if (!r.record.step || !r.record.seconds || !r.record.processor || !r.record.device ||
        (page_is_asked(options) && r.mark == NULL))
        e = fail(err, ERR_MEMORY, "no memory for the record of %lld steps", (long long)options->steps);
    e = comm_agree(comm, e, err);
    if (!e) e = begin_record(&r, comm, err);
    begin_trace(&r);
    if (!e) e = load_weights(&r, err);
    if (!e && r.checking) e = start_reference(&r, source, err);
    if (!e) e = watch_choices(&r, err);
    if (!e) e = open_live(&r, err);
    if (!e && r.speaks && phase_continues(phase)) report_mesh(&r.record);
    else if (!e && r.speaks) report_start(&r.record, data);
    if (!e) e = train_steps(&r, data, err);
    if (!e && r.stopped) *status = 128 + r.stopped;
    if (!e && phase) e = phase_take(phase, &r.trainer, &r.record, r.stopped != 0 || r.divergence.what != NULL, err);
    saving_close(&r);
    end_record(&r, comm);
    live_close(r.live);
    run_log_close(&r.log);
    if (r.checking && r.speaks) reference_close(&r.reference);
    end_trace(&r, INT64_MAX);
    cJSON_Delete(r.record.profile), cJSON_Delete(r.record.film), cJSON_Delete(r.part);
    free(r.profile), free(r.chosen), free(r.mark);
    trace_free(&r.trace);
    events_free(&r.events);
    free(r.record.step), free(r.record.seconds), free(r.record.processor), free(r.record.device);
    probes_close(&r.probes);
    trainer_close(&r.trainer);
    return e;
}
