/* run.c -- the loop over steps of a weather model, its report and its verdict.
 *
 * cli/train/weather.c calls weather_run_job.  Errors: ERR_CHECK, ERR_DIVERGED, ERR_MEMORY, those of messages and files.
 */
#include "emulated_devices/weather/run.h"
#include "emulated_devices/weather/saved.h"
#include "emulated_devices/verify/reference/ledgers.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A run of one device; the last three are on rank 0. */
struct weather_session {
    const struct weather_asked *asked;
    struct weather_learner learner;
    struct weather_reference reference;
    struct weather_step *step;          /* [steps] */
    picoseconds *ended;                 /* [steps] virtual time of this device at the end of each */
    struct weather_device *device;      /* [devices] */
    int64_t first;                      /* steps that were done before */
    bool has_numbers;                   /* of the backend */
    FILE *out;                          /* for lines of text */
};

enum { LINES = 20 };                    /* of steps, at most */

const char *weather_place(const struct weather_job *job, int rank, char *out, size_t size)
{
    int at[TILE_AXES];
    for (int a = TILE_AXES - 1; a >= 0; a--) at[a] = rank % job->size[a], rank /= job->size[a];
    snprintf(out, size, "samples %d, ensemble %d, tile %d %d", at[SAMPLES], at[ENSEMBLE], at[POLAR], at[AZIMUTH]);
    return out;
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

static void say_start(const struct weather_session *session)
{
    const struct weather_job *const job = session->asked->job;
    const struct weather_shape *const s = job->shape;
    char score[40] = "fair score";
    if (job->alpha == 0) snprintf(score, sizeof score, "score of the distribution");
    else if (job->alpha < 1) snprintf(score, sizeof score, "score of fairness %g", job->alpha);
    say(session->out, 8, "model   %s: %lld x %lld points, %lld degrees, %lld channels, %lld blocks, %s parameters, "
        "fp64", s->name, (long long)s->nlat, (long long)s->nlon, (long long)s->degrees, (long long)weather_channels(s),
        (long long)s->layers, count_format((double)session->learner.network.share_at[WEATHER_SHARES]).text);
    say(session->out, 8, "mesh    samples %d x ensemble %d x polar %d x azimuth %d, %d device%s", job->size[SAMPLES],
        job->size[ENSEMBLE], job->size[POLAR], job->size[AZIMUTH], weather_devices(job), plural(weather_devices(job)));
    say(session->out, 8, "batch   %lld samples, each with %lld members; %s; convolutions %s", (long long)job->samples,
        (long long)job->members, score, job->form == HALO ? "get the rows within reach" : "scatter their sums");
    say(session->out, 8, "data    Rossby-Haurwitz waves, a quarter of a day ahead: drawn, and known exactly");
    if (session->asked->resume)
        say(session->out, 8, "resumed %s, after step %lld", printable_path(session->asked->resume).text,
            (long long)session->first);
    say(session->out, 8, "steps   %s: weight decay %g, clip %g, learning rate %g", job->optimizer->name,
        job->hyper.weight_decay, job->hyper.clip, job->hyper.lr);
    say(session->out, 8, "time    virtual, on cluster %s%s", session->asked->cluster->name,
        session->asked->plans ? "; a plan: there are no numbers"
        : session->has_numbers ? "" : "; the backend only counts: there are no losses");
    if (!session->asked->plans) fprintf(session->out, "\n%6s %12s %12s %10s\n", "step", "loss", "norm", "lr");
    fflush(session->out);
}

static void say_step(const struct weather_session *session, int64_t i)
{
    const int64_t steps = session->asked->steps, every = (steps + LINES - 1) / LINES;
    const struct weather_step *const s = &session->step[i];
    if (session->asked->plans) return;
    if (i != 0 && (i + 1) % every != 0 && i + 1 != steps) return;
    if (session->has_numbers)
        fprintf(session->out, "%6lld %12.6f %12.6f %10.3g\n", (long long)(session->first + i) + 1, s->loss, s->norm,
                s->lr);
    else fprintf(session->out, "%6lld %12s %12s %10.3g\n", (long long)(session->first + i) + 1, "-", "-", s->lr);
    fflush(session->out);
}

/* The slowest device, and the fullest. */
struct extremes { picoseconds time; uint64_t peak; int fullest; int64_t messages, bytes, tiles, copies; };

static struct extremes extremes_of(const struct weather_session *session)
{
    struct extremes x = { 0 };
    for (int r = 0; r < session->learner.comm->size; r++) {
        const struct weather_device *const d = &session->device[r];
        if (d->time > x.time) x.time = d->time;
        if (d->peak[4] > x.peak) x.peak = d->peak[4], x.fullest = r;
        for (int k = 0; k < 3; k++) {
            x.messages += (int64_t)d->sent[k].messages_sent;
            x.bytes += (int64_t)d->sent[k].bytes_sent;
        }
        x.tiles += (int64_t)d->sent[0].bytes_sent, x.copies += (int64_t)d->sent[1].bytes_sent;
    }
    return x;
}

/* Whether the fullest device has room, in a plan. */
static void say_fit(const struct weather_session *session, const struct extremes *most)
{
    const uint64_t has = session->asked->memory;
    char place[80];
    if (has == 0) return;
    say(session->out, 8, "fits    %s: device %d (%s) needs %s of %s", most->peak <= has ? "yes" : "NO", most->fullest,
        weather_place(session->asked->job, most->fullest, place, sizeof place), size_format(most->peak).text,
        memory_format(has).text);
}

static enum error_code check_fit(const struct weather_session *session, struct error *err)
{
    const struct extremes x = extremes_of(session);
    const uint64_t has = session->asked->memory;
    char place[80];
    if (!session->asked->plans || has == 0 || x.peak <= has) return OK;
    return fail(err, ERR_CHECK, "--memory %s: device %d (%s) needs %s, %s more", size_word(has).text, x.fullest,
                weather_place(session->asked->job, x.fullest, place, sizeof place), size_format(x.peak).text,
                size_format(x.peak - has).text);
}

static void say_end(const struct weather_session *session)
{
    const struct extremes x = extremes_of(session);
    const struct weather_device *const d = &session->device[0];
    const int64_t steps = session->asked->steps > 0 ? session->asked->steps : 1;
    fprintf(session->out, "\n");
    say(session->out, 8, "memory  at most %s on a device; device 0: weights %s, gradients %s, optimizer %s, "
        "activations %s", size_format(x.peak).text, size_format(d->peak[PARAMETERS]).text,
        size_format(d->peak[GRADIENTS]).text, size_format(d->peak[OPTIMIZER]).text,
        size_format(d->peak[ACTIVATIONS]).text);
    say(session->out, 8, "sent    by all devices in a step: %lld messages, %s; of tiles %s, of gradients between "
        "copies %s", (long long)(x.messages / steps), size_format((uint64_t)(x.bytes / steps)).text,
        size_format((uint64_t)(x.tiles / steps)).text, size_format((uint64_t)(x.copies / steps)).text);
    say(session->out, 8, "time    %s a step, virtual; device 0 computes %s of it",
        picoseconds_format((double)(x.time / steps)).text, picoseconds_format((double)(d->computing / steps)).text);
    if (session->asked->plans) say_fit(session, &x);
    if (!session->asked->checks) return;
    say(session->out, 8, "check   %lld tensors compared with the one-device run; the farthest differs by %.2g: %s",
        (long long)session->reference.compared, session->reference.farthest,
        session->reference.what[0] ? session->reference.what : "none");
}

static enum error_code write_json(const struct weather_session *session, struct error *err)
{
    const struct weather_job *const job = session->asked->job;
    const struct extremes x = extremes_of(session);
    static const char *const kind[] = { "tiles", "copies", "result" };
    cJSON *const root = document_start("orrery train fields"), *list;
    if (root == NULL) return fail(err, ERR_MEMORY, "no memory for the document of --json");
    json_add(root, "model %s numbers %hhd devices %d samples %g members %g fairness %g convolution %s parameters %g",
             job->shape->name, session->has_numbers, weather_devices(job), (double)job->samples, (double)job->members,
             job->alpha, job->form == HALO ? "halo" : "scattered",
             (double)session->learner.network.share_at[WEATHER_SHARES]);
    json_add(cJSON_AddObjectToObject(root, "mesh"), "samples %d ensemble %d polar %d azimuth %d", job->size[SAMPLES],
             job->size[ENSEMBLE], job->size[POLAR], job->size[AZIMUTH]);
    json_add(root, "optimizer %s cluster %s virtual_ps %g memory_bytes %g bytes_sent %g messages_sent %g",
             job->optimizer->name, session->asked->cluster->name, (double)x.time, (double)x.peak, (double)x.bytes,
             (double)x.messages);
    list = cJSON_AddArrayToObject(root, "steps");
    for (int64_t i = 0; i < session->asked->steps; i++)
        json_add(json_row(list), "step %g loss %g norm %g lr %g virtual_ps %g", (double)(session->first + i) + 1,
                 session->step[i].loss, session->step[i].norm, session->step[i].lr,
                 (double)(session->ended[i] - (i ? session->ended[i - 1] : 0)));
    list = cJSON_AddArrayToObject(root, "device");
    for (int r = 0; r < session->learner.comm->size; r++) {
        const struct weather_device *const d = &session->device[r];
        cJSON *const row = json_add(json_row(list), "device %d virtual_ps %g computing_ps %g parameters_bytes %g "
                                    "gradients_bytes %g optimizer_bytes %g activations_bytes %g peak_bytes %g", r,
                                    (double)d->time, (double)d->computing, (double)d->peak[PARAMETERS],
                                    (double)d->peak[GRADIENTS], (double)d->peak[OPTIMIZER],
                                    (double)d->peak[ACTIVATIONS], (double)d->peak[4]);
        for (int k = 0; k < 3; k++)
            json_add(cJSON_AddObjectToObject(row, kind[k]), "messages %g bytes %g",
                     (double)d->sent[k].messages_sent, (double)d->sent[k].bytes_sent);
    }
    if (session->asked->checks)
        json_add(cJSON_AddObjectToObject(root, "check"), "tensors %g farthest %g what %s bound %g",
                 (double)session->reference.compared, session->reference.farthest, session->reference.what,
                 WEATHER_BOUND);
    return json_finish(session->asked->json, root, err);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* Counts and formulas of this device must be equal. */
static enum error_code check_device(struct weather_session *session, struct error *err)
{
    struct weather_learner *const l = &session->learner;
    const struct arena *const a = &l->comm->device->arena;
    struct ledger predicted;
    const int64_t steps = l->step - session->first;
    enum error_code e = weather_predict(l, steps, &predicted, err);
    if (!e) e = ledgers_check(l->comm, &predicted, err);
    for (enum arena_tag tag = 0; tag < BUFFERS && !e && steps > 0; tag++)
        if (a->peak.tag[tag] != weather_peak(l, tag))
            e = fail(err, ERR_CHECK, "device %d: the peak of %s is %llu bytes; its formula says %llu", l->comm->rank,
                     arena_tag_name(tag), (unsigned long long)a->peak.tag[tag],
                     (unsigned long long)weather_peak(l, tag));
    if (!e && arena_over(a))
        e = fail(err, ERR_MEMORY, "--memory %s: device %d needs %s", size_word(a->budget).text, l->comm->rank,
                 size_format(a->peak.total).text);
    return e;
}

static enum error_code weather_session_collect(struct weather_session *session, struct error *err)
{
    struct comm *const comm = session->learner.comm;
    const struct arena *const a = &comm->device->arena;
    struct weather_device own = { .time = comm->device->clock.now, .computing = comm->device->clock.computing };
    const enum traffic_kind kind[] = { TRAFFIC_SPATIAL, TRAFFIC_DATA, TRAFFIC_RESULT };
    for (int k = 0; k < 3; k++) own.sent[k] = ledger_kind(&comm->counted, kind[k]);
    for (enum arena_tag tag = 0; tag < BUFFERS; tag++) own.peak[tag] = a->peak.tag[tag];
    own.peak[4] = a->peak.total;
    check_device(session, &own.wrong);
    return comm_bring(comm, &own, sizeof own, session->device, err);
}

static enum error_code weather_session_step(struct weather_session *session, int64_t i, struct error *err)
{
    struct weather_learner *const l = &session->learner;
    struct weather_step *const s = &session->step[i];
    const bool checks = session->asked->checks;
    enum error_code e = weather_gradients(l, s, err);
    if (!e && checks) e = weather_reference_gradients(&session->reference, l, s, err);
    /* Every device has the same loss and norm. */
    if (!e && !(isfinite(s->loss) && isfinite(s->norm)))
        e = fail(err, ERR_DIVERGED, "step %lld: the %s is not finite: training has diverged",
                 (long long)(session->first + i) + 1, isfinite(s->loss) ? "norm" : "loss");
    if (!e) e = weather_update(l, s, err);
    if (!e && checks) e = weather_reference_weights(&session->reference, l, s, err);
    session->ended[i] = l->comm->device->clock.now;
    if (!e && l->comm->rank == 0) say_step(session, i);
    return e;
}

static enum error_code verdict(const struct weather_session *session, struct error *err)
{
    if (session->asked->checks && session->reference.verdict.code)
        return fail(err, ERR_CHECK, "%s", session->reference.verdict.text);
    for (int r = 0; r < session->learner.comm->size; r++)
        if (session->device[r].wrong.code)
            return fail(err, session->device[r].wrong.code, "%s", session->device[r].wrong.text);
    /* Without a step there is nothing that could have been wrong. */
    if (session->asked->checks && session->reference.compared > 0)
        say_verdict(session->out, GOOD_NEWS, "OK: losses, gradients and weights are those of one device.");
    return check_fit(session, err);
}

/* Go on from a folder: the devices, and the one-device run beside them. */
static enum error_code weather_session_resume(struct weather_session *session, struct error *err)
{
    struct weather_learner *const l = &session->learner;
    struct weather_saved saved;
    enum error_code e = weather_saved_open(&saved, session->asked->resume, err);
    const bool opened = !e;
    if (!e) e = weather_saved_check(&saved, l->job, session->asked->resume, err);
    e = comm_agree(l->comm, e, err);
    if (!e) e = weather_saved_read(&saved, l, err);
    if (!e && session->asked->checks) e = weather_reference_resume(&session->reference, l, &saved, err);
    if (opened) weather_saved_close(&saved);
    session->first = l->step;
    return e;
}

static enum error_code weather_session_steps(struct weather_session *session, struct error *err)
{
    struct comm *const comm = session->learner.comm;
    enum error_code e = OK;
    if (session->asked->checks) e = weather_reference_open(&session->reference, &session->learner, err);
    if (!e && session->asked->resume) e = weather_session_resume(session, err);
    if (!e && comm->rank == 0) say_start(session);
    for (int64_t i = 0; i < session->asked->steps && !e; i++) e = weather_session_step(session, i, err);
    if (!e) e = weather_session_collect(session, err);
    /* A run that is wrong is not saved, and keeps the folder as it was. */
    if (!e && comm->rank == 0) say_end(session);
    if (!e && comm->rank == 0 && session->asked->json) e = fail_about(err, write_json(session, err), "--json");
    if (!e && comm->rank == 0) e = verdict(session, err);
    e = comm_agree(comm, e, err);
    if (e || session->asked->save == NULL) return e;
    e = weather_save(&session->learner, session->asked->save, err);
    if (!e && comm->rank == 0)
        say(session->out, 8, "saved   %s, after step %lld", printable_path(session->asked->save).text,
            (long long)session->learner.step);
    return e;
}

enum error_code weather_run_job(struct comm *comm, const struct weather_asked *asked, struct error *err)
{
    struct weather_session s = { .asked = asked, .has_numbers = comm->device->backend->has_numbers,
                                 .out = asked->json && asked->json[0] == '-' ? stderr : stdout };
    s.step = calloc((size_t)asked->steps + 1, sizeof *s.step);
    s.ended = calloc((size_t)asked->steps + 1, sizeof *s.ended);
    s.device = calloc((size_t)comm->size, sizeof *s.device);
    enum error_code e = s.step && s.ended && s.device ? OK
        : fail(err, ERR_MEMORY, "no memory for the record of %lld steps", (long long)asked->steps);
    e = comm_agree(comm, e, err);
    if (!e) {
        e = weather_learner_open(&s.learner, asked->job, comm, err);
        if (!e) e = weather_session_steps(&s, err), weather_learner_close(&s.learner);
        weather_reference_close(&s.reference);
    }
    free(s.step), free(s.ended), free(s.device);
    return e;
}
