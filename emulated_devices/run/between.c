/* between.c -- what happens between two steps of a run: evaluation, logs, checkpoints, a signal that asks to stop.
 * run/session.c calls these functions.  Errors: ERR_FILE of a checkpoint, ERR_MEMORY, and those of evaluating; each
 * ends the run. */
#include "emulated_devices/run/keeping.h"
#include "emulated_devices/run/origin.h"
#include "emulated_devices/model/checkpoint/series.h"
#include "emulated_devices/model/checkpoint/sharded/sharded.h"
#include "emulated_devices/run/report/report.h"
#include "emulated_devices/run/session.h"
#include "emulated_devices/launch/stopping.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* @param meanwhile  only begin: the checkpoint counts, and is in the log, when all devices have written. */
static enum error_code save_in(struct session *session, const struct train_data *data, const char *dir, bool meanwhile,
                               struct error *err)
{
    cJSON *run = session->speaks ? train_run(session->options, data, session->trainer.step, err) : NULL;
    char *origin = run ? origin_text(session->options, err) : NULL;
    enum error_code e = !session->speaks ? OK : origin == NULL ? err->code : keeping_stands(err);
    e = comm_agree(session->trainer.comm, e, err);
    if (!e && meanwhile) e = saving_begin(session, dir, run, origin, err);
    else if (!e)
        e = (session->options->sharded ? sharded_save : checkpoint_save)(&session->trainer, dir, run, origin, err);
    cJSON_Delete(run);
    free(origin);
    if (e) return e;
    session->saved = session->trainer.step;
    return session->speaks && !meanwhile ? run_log_saved(&session->log, session->saved, dir, err) : OK;
}

/* Save in the folder of a series. */
static enum error_code save_next(struct session *session, const struct train_data *data, bool meanwhile,
                                 struct error *err)
{
    const struct train_options *o = session->options;
    char path[BUNDLE_PATH];
    series_path(path, sizeof path, o->save, session->trainer.step);
    enum error_code e = comm_agree(session->trainer.comm, session->speaks ? series_make(o->save, err) : OK, err);
    if (!e) e = save_in(session, data, path, meanwhile, err);
    if (!e && session->speaks && o->keep && !meanwhile) e = series_prune(o->save, o->keep, err);
    return comm_agree(session->trainer.comm, e, err);
}

enum error_code session_save(struct session *session, const struct train_data *data, struct error *err)
{
    const struct train_options *o = session->options;
    if (o->save_every == 0) return comm_agree(session->trainer.comm, save_in(session, data, o->save, false, err), err);
    return session->saved == session->trainer.step ? OK : save_next(session, data, false, err);
}

/* ---- between steps ----------------------------------------------------------------------------------------------- */

static bool is_due(int64_t step, int every) { return every > 0 && step % every == 0; }

enum error_code between_save_begins(struct session *session, const struct train_data *data, struct error *err)
{
    const struct train_options *o = session->options;
    const bool due = o->save_async && is_due(session->trainer.step, o->save_every);
    return due ? fail_about(err, save_next(session, data, true, err), "--save") : OK;
}

/* The signal that has asked any device; one and the same number on all.  Codes of errors are what devices agree on. */
static int asked_somewhere(struct session *session)
{
    struct error unread;
    const int asked = stopping_asked();
    const enum error_code mine = asked == SIGINT ? ERR_CHECK : asked ? ERR_COMM : OK;
    const enum error_code all =
        group_agree(session->trainer.comm->everyone, mine ? fail(&unread, mine, "stop") : OK, &unread);
    return all == OK ? 0 : all == ERR_CHECK ? SIGINT : SIGTERM;
}

enum error_code between_steps(struct session *session, const struct train_data *data, int64_t i, struct error *err)
{
    const struct train_options *o = session->options;
    const int64_t step = session->trainer.step;
    const bool sound = !session->divergence.what && session->record.has_numbers;
    double validation = NAN;
    enum error_code e = OK;
    if (sound && is_due(step, o->eval_every)) {
        e = print_sample(&session->trainer, data, 0, session->record.out, &validation, err);
        if (!e && session->speaks) report_evaluation(&session->record, step, validation);
    }
    if (!e && session->speaks) e = run_log_step(&session->log, i, validation, err);
    e = comm_agree(session->trainer.comm, e, err);
    if (!e) e = fail_about(err, saving_look(session, false, err), "--save");
    if (!e && sound && is_due(step, o->save_every))
        e = fail_about(err, save_next(session, data, o->save_async, err), "--save");
    if (!e) session->stopped = asked_somewhere(session);
    return e;
}
