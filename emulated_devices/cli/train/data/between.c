/* between.c -- what happens between two steps of a run: evaluation, logs, checkpoints, a signal that asks to stop. */
#include "emulated_devices/cli/train/origin.h"
#include "emulated_devices/cli/train/series.h"
#include "emulated_devices/cli/train/session.h"
#include "emulated_devices/cli/train/stopping.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static enum error_code save_in(struct session *r, const struct train_data *data, const char *dir, struct error *err)
{
    cJSON *run = r->speaks ? train_run(r->options, data, r->trainer.step, err) : NULL;
    char *origin = run ? origin_text(r->options, err) : NULL;
    enum error_code e = comm_agree(r->trainer.comm, r->speaks && origin == NULL ? err->code : OK, err);
    if (!e) e = checkpoint_save(&r->trainer, dir, run, origin, err);
    cJSON_Delete(run);
    free(origin);
    if (e) return e;
    r->saved = r->trainer.step;
    return r->speaks ? run_log_saved(&r->log, r->saved, dir, err) : OK;
}

enum error_code session_save(struct session *r, const struct train_data *data, struct error *err)
{
    const struct train_options *o = r->options;
    char path[BUNDLE_PATH];
    if (o->save_every == 0) return comm_agree(r->trainer.comm, save_in(r, data, o->save, err), err);
    if (r->saved == r->trainer.step) return OK;
    series_path(path, sizeof path, o->save, r->trainer.step);
    enum error_code e = comm_agree(r->trainer.comm, r->speaks ? series_make(o->save, err) : OK, err);
    if (!e) e = save_in(r, data, path, err);
    if (!e && r->speaks && o->keep) e = series_prune(o->save, o->keep, err);
    return comm_agree(r->trainer.comm, e, err);
}

/* ---- between steps ----------------------------------------------------------------------------------------------- */

static bool is_due(int64_t step, int every) { return every > 0 && step % every == 0; }

/* The signal that has asked any device; one and the same number on all.  Codes of errors are what devices agree on. */
static int asked_somewhere(struct session *r)
{
    struct error unread;
    const int asked = stopping_asked();
    const enum error_code mine = asked == SIGINT ? ERR_CHECK : asked ? ERR_COMM : OK;
    const enum error_code all =
        group_agree(r->trainer.comm->everyone, mine ? fail(&unread, mine, "stop") : OK, &unread);
    return all == OK ? 0 : all == ERR_CHECK ? SIGINT : SIGTERM;
}

enum error_code between_steps(struct session *r, const struct train_data *data, int64_t i, struct error *err)
{
    const struct train_options *o = r->options;
    const int64_t step = r->trainer.step;
    const bool sound = !r->divergence.what && r->record.has_numbers;
    double validation = NAN;
    enum error_code e = OK;
    if (sound && is_due(step, o->eval_every)) {
        e = print_sample(&r->trainer, data, 0, r->record.out, &validation, err);
        if (!e && r->speaks) report_evaluation(&r->record, step, validation);
    }
    if (!e && r->speaks) e = run_log_step(&r->log, i, validation, err);
    e = comm_agree(r->trainer.comm, e, err);
    if (!e && sound && is_due(step, o->save_every)) e = fail_about(err, session_save(r, data, err), "--save");
    if (!e) r->stopped = asked_somewhere(r);
    return e;
}
