/* simulate.c -- goes from event to event of a cluster's virtual time until all jobs are done.  cli/cluster/, claims and
 * tests call.  Errors: ERR_PLAN of a job that never starts; ERR_INTERNAL of books that do not close; ERR_MEMORY; those
 * of prices. */
#include "emulated_devices/cluster/engine.h"
#include "ref/io/figures.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the next event ---------------------------------------------------------------------------------------------- */

/* When a job's steps end on the devices that it has. */
static int64_t job_end(const struct engine_job *job)
{
    return job->piece.starts + price_milliseconds(job->price, job->left);
}

static int64_t next_event(const struct engine *engine)
{
    const struct scheduling *const s = &engine->scheduling;
    int64_t next = engine->wake;
    if (engine->coming < engine->jobs->count && engine->jobs->at[engine->coming].arrival < next)
        next = engine->jobs->at[engine->coming].arrival;
    for (int i = 0; i < s->count; i++) {
        const struct engine_job *const j = engine_job_of(s->at[i]);
        if (j->active.now.devices > 0 && job_end(j) < next) next = job_end(j);
    }
    for (int i = 0; i < engine->repairs; i++) next = engine->repair[i].at < next ? engine->repair[i].at : next;
    /* Failures go on for ever: they are events only as long as something else may come. */
    if (engine->setting->between > 0 && engine->failure.at < next && next < INT64_MAX) next = engine->failure.at;
    return next;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void forget_job(struct scheduling *scheduling, int place)
{
    memmove(scheduling->at + place, scheduling->at + place + 1,
            (size_t)(--scheduling->count - place) * sizeof *scheduling->at);
}

static enum error_code end_jobs(struct engine *engine, struct error *err)
{
    struct scheduling *const s = &engine->scheduling;
    for (int i = s->count - 1; i >= 0; i--) {
        struct engine_job *const j = engine_job_of(s->at[i]);
        if (j->active.now.devices == 0 || job_end(j) > s->now) continue;
        const enum error_code e = books_close_piece(engine, j, err);
        if (e) return e;
        buddy_give(&engine->buddy, j->active.now.devices, j->active.now.place);
        j->active.now.devices = 0;
        engine->out->job[j->active.number].ended = s->now, engine->done++;
        forget_job(s, i);
    }
    return OK;
}

static void repair_devices(struct engine *engine)
{
    for (int i = engine->repairs - 1; i >= 0; i--) {
        const int device = engine->repair[i].device;
        if (engine->repair[i].at > engine->scheduling.now) continue;
        books_flush_device(engine, device);
        engine->owner[device] = OWNER_NONE;
        buddy_give(&engine->buddy, 1, device);
        engine->scheduling.devices++;
        engine->repair[i] = engine->repair[--engine->repairs];
    }
}

/* A job goes back to its last save, and waits. */
static enum error_code fail_job(struct engine *engine, struct engine_job *job, struct error *err)
{
    struct job_outcome *const o = &engine->out->job[job->active.number];
    const struct allocation had = job->active.now;
    books_note_saves(engine, job);
    const enum error_code e = books_close_piece(engine, job, err);
    buddy_give(&engine->buddy, had.devices, had.place);
    o->redone += job->saved - job->active.left, o->failures++;
    job->active.left = job->saved, job->active.since = engine->scheduling.now;
    job->active.now = (struct allocation){ 0, 0, -1 }, job->state = STATE_SAVED;
    return e;
}

static void break_device(struct engine *engine, int device)
{
    if (engine->owner[device] == OWNER_BROKEN) return;
    books_flush_device(engine, device);
    engine->owner[device] = OWNER_BROKEN;
    buddy_take_at(&engine->buddy, 1, device);
    engine->scheduling.devices--;
    engine->repair[engine->repairs++] = (struct repair){ engine->scheduling.now + engine->setting->repair, device };
}

static void draw_failure(struct engine *engine)
{
    const struct simulation_setting *const s = engine->setting;
    engine->failure = failure_draw(s->seed, engine->failures++, engine->failure.at, s->between, s->devices, s->node);
}

enum { FAILURES_MOST = 1000000 };       /* of a simulation: more would take minutes */

static enum error_code fail_devices(struct engine *engine, struct error *err)
{
    while (engine->setting->between > 0 && engine->failure.at <= engine->scheduling.now) {
        const struct failure f = engine->failure;
        for (int d = f.first; d < f.first + f.devices; d++) {
            const int owner = engine->owner[d];
            const enum error_code e = owner >= 0 ? fail_job(engine, &engine->job[owner], err) : OK;
            if (e) return e;
            if (f.breaks) break_device(engine, d);
        }
        if (++engine->out->failures == FAILURES_MOST)
            return fail(err, ERR_PLAN, "after %d failures %d of %d jobs are done: failures are too frequent, or jobs "
                        "save too seldom", FAILURES_MOST, engine->done, engine->jobs->count);
        draw_failure(engine);
    }
    return OK;
}

static void take_arrivals(struct engine *engine)
{
    struct scheduling *const s = &engine->scheduling;
    for (; engine->coming < engine->jobs->count; engine->coming++) {
        const struct cluster_job *const job = &engine->jobs->at[engine->coming];
        struct engine_job *const j = &engine->job[engine->coming];
        if (job->arrival > s->now) return;
        j->active = (struct active_job){ .job = job, .number = engine->coming, .left = 1000000 * job->steps,
                                         .since = s->now, .now = { 0, 0, -1 } };
        s->at[s->count++] = &j->active;
    }
}

/* ---- decisions --------------------------------------------------------------------------------------------------- */

static enum error_code decide(struct engine *engine, struct error *err)
{
    struct scheduling *const s = &engine->scheduling;
    for (int i = 0; i < s->count; i++) {
        books_update(engine, engine_job_of(s->at[i]));
        s->at[i]->next = s->at[i]->now;
    }
    s->wake = INT64_MAX;
    engine->out->decisions++;
    enum error_code e = engine->setting->scheduler->decide(s, err);
    engine->wake = s->wake > s->now ? s->wake : s->now + 1;
    return e ? e : place_jobs(engine, err);
}

/* Nothing will happen any more, and a job waits. */
static enum error_code say_stuck(const struct engine *engine, struct error *err)
{
    const struct active_job *const a = engine->scheduling.count > 0 ? engine->scheduling.at[0] : NULL;
    return fail(err, ERR_PLAN, "job %s of %d device%s never starts with --scheduler %s on %d devices",
                a ? a->job->name : "", a ? a->job->devices : 0, plural(a ? a->job->devices : 0),
                engine->setting->scheduler->name, engine->setting->devices);
}

/* Ends of three centuries: a job that fails more often than it saves never ends. */
static const int64_t latest = INT64_C(1000) * 86400 * 365 * 300;

static enum error_code run_events(struct engine *engine, struct error *err)
{
    enum error_code e = OK;
    while (engine->done < engine->jobs->count && !e) {
        const int64_t next = next_event(engine);
        if (next == INT64_MAX) return say_stuck(engine, err);
        if (next > latest)
            return fail(err, ERR_PLAN, "the jobs do not end within 300 years: with so many failures they save too "
                        "seldom, or they have too many steps");
        engine->scheduling.now = next > engine->scheduling.now ? next : engine->scheduling.now;
        e = end_jobs(engine, err);
        if (!e) repair_devices(engine);
        if (!e) e = fail_devices(engine, err);
        take_arrivals(engine);
        if (!e && engine->done < engine->jobs->count) e = decide(engine, err);
    }
    return e;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static enum error_code engine_open(struct engine *engine, struct error *err)
{
    const size_t devices = (size_t)engine->setting->devices, jobs = (size_t)engine->jobs->count + 1;
    struct simulated *const out = engine->out;
    engine->job = calloc(jobs, sizeof *engine->job), engine->owner = malloc(devices * sizeof *engine->owner);
    engine->since = calloc(devices, sizeof *engine->since), engine->placing = calloc(jobs, sizeof *engine->placing);
    engine->repair = calloc(devices, sizeof *engine->repair);
    engine->scheduling.at = calloc(jobs, sizeof *engine->scheduling.at);
    out->job = calloc(jobs, sizeof *out->job), out->device = calloc(devices, sizeof *out->device);
    const bool ok = engine->job && engine->owner && engine->since && engine->placing && engine->repair
                    && engine->scheduling.at && out->job && out->device;
    enum error_code e = ok ? OK : fail(err, ERR_MEMORY, "no memory for %d jobs", engine->jobs->count);
    for (size_t d = 0; d < devices && !e; d++) engine->owner[d] = OWNER_NONE;
    if (!e) e = buddy_open(&engine->buddy, engine->setting->devices, err);
    engine->scheduling.devices = out->devices = engine->setting->devices;
    engine->scheduling.room = &engine->buddy, engine->scheduling.pricing = engine->pricing;
    engine->scheduling.setting = &engine->setting->how;
    engine->wake = INT64_MAX;
    if (!e && engine->setting->between > 0) draw_failure(engine);
    if (!e && engine->setting->scheduler->open) e = engine->setting->scheduler->open(&engine->scheduling, err);
    return e;
}

static void engine_close(struct engine *engine)
{
    if (engine->setting->scheduler->close && engine->scheduling.own)
        engine->setting->scheduler->close(&engine->scheduling);
    buddy_close(&engine->buddy);
    free(engine->job), free(engine->owner), free(engine->since), free(engine->placing), free(engine->repair);
    free(engine->scheduling.at);
}

/* A job must fit the memory of as many devices as it asks for. */
static enum error_code check_asked(struct engine *engine, struct error *err)
{
    for (int i = 0; i < engine->jobs->count; i++) {
        const struct cluster_job *const job = &engine->jobs->at[i];
        const struct job_price *price;
        if (job->devices > engine->setting->devices)
            return fail(err, ERR_PLAN, "job %s asks for %d devices, and the cluster has %d: --devices", job->name,
                        job->devices, engine->setting->devices);
        const enum error_code e = pricing_step(engine->pricing, job->kind, job->devices, pricing_top(engine->pricing),
                                               &price, err);
        char about[JOB_TEXT + 8];
        snprintf(about, sizeof about, "job %s:", job->name);
        if (e) return fail_about(err, e, about);
        if (!price->fits)
            return fail(err, ERR_PLAN, "job %s does not fit %d device%s: %s", job->name, job->devices,
                        plural(job->devices), price->why);
    }
    return OK;
}

enum error_code simulate(struct simulated *out, const struct cluster_jobs *jobs, struct pricing *pricing,
                         const struct simulation_setting *setting, struct error *err)
{
    struct engine engine = { .jobs = jobs, .pricing = pricing, .setting = setting, .out = out };
    *out = (struct simulated){ .devices = setting->devices };
    enum error_code e = check_asked(&engine, err);
    if (!e) e = engine_open(&engine, err);
    if (!e) e = run_events(&engine, err);
    if (!e) e = books_close(&engine, err);
    engine_close(&engine);
    if (e) simulated_free(out);
    return e;
}

void simulated_free(struct simulated *out)
{
    free(out->job), free(out->device), free(out->piece);
    *out = (struct simulated){ .devices = 0 };
}
