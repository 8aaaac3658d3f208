/* log.c -- the log of a run's steps as JSON lines or CSV, and its events for TensorBoard.
 *
 * run/session.c, run/golden.c and run/between.c write a log with these functions; run/words/take.c checks its name.
 * Errors are ERR_USAGE, ERR_FILE, ERR_MEMORY, and ERR_FORMAT for an earlier log above 1 GiB.
 */
#include "emulated_devices/run/log.h"
#include "emulated_devices/run/origin.h"
#include "emulated_devices/launch/stopping.h"
#include "emulated_devices/run/report/report.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/version.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOG_LIMIT = 1 << 30 };           /* bytes of a log that is gone on with */

static bool ends_with(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

enum error_code run_log_check(const char *path, struct error *err)
{
    return ends_with(path, ".jsonl") || ends_with(path, ".csv")
               ? OK
               : fail(err, ERR_USAGE, "--log %s: must end with .jsonl or .csv", printable_path(path).text);
}

/* ---- going on ---------------------------------------------------------------------------------------------------- */

/* Whether a whole line belongs to the run up to a step.  What ends a run is no longer its end. */
static bool belongs(const char *line, size_t length, bool csv, int64_t first_step)
{
    cJSON *o;
    int64_t step = 0;
    if (csv) return strncmp(line, "step,", 5) == 0 || atoll(line) <= first_step;
    char *text = malloc(length + 1);
    if (text == NULL) return false;
    memcpy(text, line, length);
    text[length] = '\0';
    const bool read = json_parse(text, length, "log", &o, NULL) == OK;
    free(text);
    const char *type;
    bool keep = read && json_string(o, "log", "type", &type, NULL) == OK && strcmp(type, "end") != 0;
    if (keep && json_has(o, "step")) keep = json_int(o, "log", "step", 0, first_step, &step, NULL) == OK;
    if (read) cJSON_Delete(o);
    return keep;
}

/* Rewrite a file without the lines of steps that are to come again. */
static enum error_code log_cut(const char *path, bool csv, int64_t first_step, struct error *err)
{
    char *text;
    size_t length, kept = 0;
    if (access(path, F_OK) != 0) return OK;
    enum error_code e = file_read_all(path, LOG_LIMIT, &text, &length, err);
    if (e) return e;
    for (size_t at = 0; at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        if (end == NULL) break;
        const size_t n = (size_t)(end - (text + at)) + 1;
        if (belongs(text + at, n - 1, csv, first_step)) memmove(text + kept, text + at, n), kept += n;
        at += n;
    }
    e = file_write_all(path, text, kept, err);
    free(text);
    return e;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static enum error_code log_put(struct run_log *run_log, const char *text, struct error *err)
{
    const size_t length = strlen(text);
    for (size_t at = 0; at < length;) {
        const ssize_t n = write(run_log->fd, text + at, length - at);
        if (n > 0) at += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return fail(err, ERR_FILE, "--log %s: writing failed: %s",
                        printable_path(run_log->record->options->log).text, strerror(errno));
    }
    return OK;
}

/* A line of JSON; the object is used up.  Each says of which run it is: two logs may have been joined. */
static enum error_code put_json(struct run_log *run_log, cJSON *o, struct error *err)
{
    if (o && origin_run() != NULL) json_add(o, "run %s", origin_run());
    char *line = o ? json_text(o, false) : NULL;
    enum error_code e = line ? log_put(run_log, line, err) : fail(err, ERR_MEMORY, "no memory for a line of --log");
    if (!e) e = log_put(run_log, "\n", err);
    cJSON_free(line);
    cJSON_Delete(o);
    return e;
}

static cJSON *record_of(const char *type, int64_t step)
{
    cJSON *o = json_add(cJSON_CreateObject(), "type %s", type);
    if (step >= 0) json_add(o, "step %g", (double)step);
    return o;
}

static const char *norm_name(const struct run_log *run_log)
{
    return optimizer_draws(run_log->record->options->plan.optimizer) ? "slope" : "norm";
}

static enum error_code put_head(struct run_log *run_log, int64_t first_step, bool fresh, struct error *err)
{
    const struct train_options *o = run_log->record->options;
    char head[160];
    if (run_log->csv && !fresh) return OK;
    if (run_log->csv) {
        snprintf(head, sizeof head, "step,loss,%s,lr,loss_scale,skipped,seconds,tokens_per_second,validation_loss\n",
                 norm_name(run_log));
        return log_put(run_log, head, err);
    }
    cJSON *start = record_of("start", first_step);
    json_add(start, "schema %d last_step %g devices %d", JSON_SCHEMA, (double)(first_step + o->steps),
             o->plan.mesh.devices);
    if (origin_add_json(start, o)) return put_json(run_log, start, err);
    cJSON_Delete(start);
    return fail(err, ERR_MEMORY, "no memory for the head of --log");
}

static enum error_code open_lines(struct run_log *run_log, struct error *err)
{
    const struct train_record *r = run_log->record;
    const char *path = r->options->log;
    const int64_t first = r->first_step;
    run_log->csv = ends_with(path, ".csv");
    enum error_code e = first > 0 ? log_cut(path, run_log->csv, first, err) : OK;
    if (e) return fail_about(err, e, "--log");
    run_log->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (first > 0 ? 0 : O_TRUNC), 0666);
    if (run_log->fd < 0)
        return fail(err, ERR_FILE, "--log %s: cannot be written: %s", printable_path(path).text, strerror(errno));
    return put_head(run_log, first, lseek(run_log->fd, 0, SEEK_END) == 0, err);
}

enum error_code run_log_open(struct run_log *run_log, const struct train_record *record, struct error *err)
{
    const struct train_options *o = record->options;
    *run_log = (struct run_log){ .record = record, .fd = -1, .events = { .fd = -1 } };
    enum error_code e = o->log ? open_lines(run_log, err) : OK;
    if (!e && o->tensorboard)
        e = fail_about(err, tfevents_open(&run_log->events, o->tensorboard,
                                          record->first_step ? record->first_step + 1 : 0, err),
                       "--tensorboard");
    return e;
}

static double tokens_per_second(const struct train_record *record, int64_t i)
{
    const struct plan *p = &record->options->plan;
    return (double)(plan_sequences_of(p, record->first_step + i) * p->S) / record->seconds[i];
}

static enum error_code put_csv(struct run_log *run_log, int64_t i, double validation, struct error *err)
{
    const struct train_record *r = run_log->record;
    const struct step_result *s = &r->step[i];
    const bool slope = optimizer_draws(r->options->plan.optimizer);
    char line[400];
    snprintf(line, sizeof line, "%lld,%s,%s,%s,%s,%d,%.6f,%.1f,%s\n", (long long)(r->first_step + i + 1),
             real_format(s->loss).text, real_format(slope ? s->slope : s->norm).text, real_format(s->lr).text,
             real_format(s->loss_scale).text, s->skipped, r->seconds[i], tokens_per_second(r, i),
             isnan(validation) ? "" : real_format(validation).text);
    return log_put(run_log, line, err);
}

/* With every bit, of which cJSON may drop the last; null if it is not finite. */
static void add_real(cJSON *o, const char *key, double x)
{
    if (isfinite(x)) cJSON_AddRawToObject(o, key, real_format(x).text);
    else cJSON_AddNullToObject(o, key);
}

static enum error_code put_step(struct run_log *run_log, int64_t i, double validation, struct error *err)
{
    const struct train_record *r = run_log->record;
    const struct step_result *s = &r->step[i];
    cJSON *o = record_of("step", r->first_step + i + 1);
    add_real(o, "loss", s->loss);
    if (!r->options->infers)
        add_real(o, norm_name(run_log), optimizer_draws(r->options->plan.optimizer) ? s->slope : s->norm);
    add_real(o, "lr", s->lr);
    json_add(o, "loss_scale %g skipped %hhd seconds %g tokens_per_second %g", s->loss_scale, s->skipped, r->seconds[i],
             tokens_per_second(r, i));
    if (!isnan(validation)) add_real(o, "validation_loss", validation);
    return put_json(run_log, o, err);
}

static enum error_code put_events(struct run_log *run_log, int64_t i, double validation, struct error *err)
{
    const struct train_record *r = run_log->record;
    const struct step_result *s = &r->step[i];
    const bool slope = optimizer_draws(r->options->plan.optimizer);
    const struct tfscalar scalar[] = {
        { "train/loss", s->loss }, { slope ? "train/slope" : "train/norm", slope ? s->slope : s->norm },
        { "train/lr", s->lr }, { "train/loss_scale", s->loss_scale },
        { "speed/tokens_per_second", tokens_per_second(r, i) }, { "validation/loss", validation },
    };
    return fail_about(err, tfevents_write(&run_log->events, r->first_step + i + 1, scalar,
                                          isnan(validation) ? 5 : 6, err),
                      "--tensorboard");
}

enum error_code run_log_step(struct run_log *run_log, int64_t i, double validation, struct error *err)
{
    const struct train_options *o = run_log->record->options;
    const bool due = (run_log->record->first_step + i + 1) % o->log_every == 0 || i + 1 == o->steps
        || !isnan(validation);
    enum error_code e = OK;
    if (due && run_log->fd >= 0)
        e = run_log->csv ? put_csv(run_log, i, validation, err) : put_step(run_log, i, validation, err);
    if (due && !e && run_log->events.fd >= 0) e = put_events(run_log, i, validation, err);
    return e;
}

enum error_code run_log_saved(struct run_log *run_log, int64_t step, const char *path, struct error *err)
{
    if (run_log->fd < 0 || run_log->csv) return OK;
    cJSON *o = record_of("save", step);
    json_add(o, "path %s", path);
    return put_json(run_log, o, err);
}

enum error_code run_log_end(struct run_log *run_log, struct error *err)
{
    const struct train_record *r = run_log->record;
    if (run_log->fd < 0 || run_log->csv) return OK;
    cJSON *o = record_of("end", r->first_step + r->steps);
    json_add(o, "status %s", r->divergence.what ? "diverged" : r->stopped ? "stopped" : "done");
    if (r->stopped) json_add(o, "signal %s", stopping_name(r->stopped));
    if (r->options->check) json_add(o, "equal %hhd", !r->comparison.failed);
    if (r->has_numbers && !r->options->infers && !r->divergence.what) json_add(o, "validation_loss %g", r->validation);
    cJSON *report = report_object(r, r->options->infers ? "orrery infer" : "orrery train", false, err);
    if (report) cJSON_AddItemToObject(o, "report", report);
    else {
        cJSON_Delete(o);
        return ERR_MEMORY;
    }
    return put_json(run_log, o, err);
}

void run_log_close(struct run_log *run_log)
{
    if (run_log->fd >= 0) close(run_log->fd);
    tfevents_close(&run_log->events);
    run_log->fd = -1;
}
