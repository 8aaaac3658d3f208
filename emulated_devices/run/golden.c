/* golden.c -- `orrery train --check GOLDEN`: trains a golden file's run on any mesh, and compares it with the file.
 * run/words/take.c calls train_take_golden(), and session.c calls train_golden().  ERR_CHECK names the first
 * difference, after the run and its report; ERR_MEMORY; other errors end the run. */
#include "emulated_devices/model/checkpoint/series.h"
#include "emulated_devices/model/checkpoint/sharded/sharded.h"
#include "emulated_devices/run/keeping.h"
#include "emulated_devices/run/origin.h"
#include "emulated_devices/run/report/report.h"
#include "emulated_devices/verify/dump/dump.h"
#include "emulated_devices/verify/dump/dump_ranks.h"
#include "emulated_devices/run/log.h"
#include "emulated_devices/verify/reference/golden_truth.h"
#include "emulated_devices/verify/reference/watch.h"
#include "ref/golden/bounds.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct session {
    const struct train_options *options;
    const struct golden *golden;
    const struct train_data *data;      /* its held-out text, for --eval-every */
    struct trainer trainer;
    struct reference reference;         /* rank 0 */
    struct golden_truth truth;          /* rank 0 */
    struct probes probes;
    struct train_record record;
    struct run_log log;                 /* rank 0 */
    struct train_dump dump;             /* whole tensors, or: */
    struct dump_ranks ranks;            /* what each device has */
    double *rates;                      /* [steps] */
    bool here;
    bool dumps_end;                     /* a dump has what is there after the last step */
};

static enum error_code read_rates(const struct golden *golden, const struct optimizer *optimizer, double *rates,
                                  struct error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s/lr", optimizer->name);
    return golden_read(golden, name, F64, golden->steps, rates, err);
}

static bool has_steps_of(const struct golden *golden, const struct optimizer *optimizer)
{
    char name[64];
    snprintf(name, sizeof name, "%s/lr", optimizer->name);
    return safetensors_find(&golden->file, name) != NULL;
}

static const struct optimizer *optimizer_of_file(const struct golden *golden, const struct optimizer *usual)
{
    for (int i = 0; optimizers[i] && !has_steps_of(golden, usual); i++)
        if (has_steps_of(golden, optimizers[i])) return optimizers[i];
    return usual;
}

enum error_code train_take_golden(struct train_options *options, bool chosen, struct error *err)
{
    struct golden g;
    struct plan *p = &options->plan;
    enum error_code e = golden_open(&g, options->check, err);
    if (e) return fail_about(err, e, "--check");
    if (!chosen) p->optimizer = optimizer_of_file(&g, p->optimizer);
    double *rates = calloc((size_t)g.steps, sizeof *rates);
    e = rates ? fail_about(err, read_rates(&g, p->optimizer, rates, err), "--check")
              : fail(err, ERR_MEMORY, "no memory for %lld rates", (long long)g.steps);
    p->hyper = golden_hyperparameters(&g, p->optimizer->name);
    const enum exact_rule exact = p->model.exact;
    p->model = g.config;
    p->model.exact = exact;             /* asked for by this run; no file has the word */
    p->B = g.B, p->S = g.S, p->seed = g.seed, p->packed = g.positions != NULL;
    if (p->dtype == F16 && p->loss_scale == 0) p->loss_scale = REPLAY_LOSS_SCALE;
    options->steps = g.steps - (options->resume ? options->saved.step : 0);
    if (!e && options->resume && options->steps < 1)
        e = fail(err, ERR_USAGE, "--resume %s: all of the golden file's %lld steps are done",
                 printable_path(options->resume).text, (long long)g.steps);
    if (!e && options->resume && options->dump && !g.every_step)
        e = fail(err, ERR_USAGE, "--dump %s: of a resumed run needs a golden file that has what is there after each "
                 "step, as with --keep all", printable_path(options->dump).text);
    if (!e && options->dump_passes && g.steps > 1 && !g.every_step)
        e = fail(err, ERR_USAGE, "--dump-passes: passes after the first need a golden file that has what is there "
                 "after each step, as with --keep all");
    options->golden_micros = golden_balance_micros(&g);
    free(rates);
    golden_close(&g);
    return e;
}

/* ---- where the run starts ---------------------------------------------------------------------------------------- */

static void golden_fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                        int32_t *within)
{
    const struct golden *g = context;
    const size_t bytes = (size_t)(count * g->S) * sizeof *ids;
    memcpy(ids, g->ids + (step * g->B + first) * g->S, bytes);
    memcpy(labels, g->labels + (step * g->B + first) * g->S, bytes);
    if (within) memcpy(within, golden_positions(g, step, first), bytes);
}

static enum error_code load_one(struct session *session, struct trainer *section, const struct parameter *parameter,
                                struct error *err)
{
    char name[RECORD_NAME];
    const enum dtype wide = dtype_wide(parameter->w.dtype);
    const int64_t n = parameter->spec.dim[0] * (parameter->spec.ndim == 2 ? parameter->spec.dim[1] : 1),
        own = layout_count(&parameter->layout);
    void *whole = malloc((size_t)n * dtype_size(wide));
    struct tensor piece = tensor_1d(malloc((size_t)own * dtype_size(wide) + 1), wide, own);
    snprintf(name, sizeof name, "start/%s", parameter->spec.name);
    enum error_code e = whole && piece.data ? OK : fail(err, ERR_MEMORY, "no memory to read %s", name);
    if (!e) e = golden_read(session->golden, name, wide, n, whole, err);
    if (!e) {
        layout_cut(&parameter->layout, whole, piece.data, dtype_size(wide));
        e = collect_keep_weights(section, parameter, piece, err);
    }
    free(whole), free(piece.data);
    return e;
}

static enum error_code load_start(struct session *session, struct error *err)
{
    const struct train_options *const o = session->options;
    enum error_code e = OK;
    if (o->resume) {
        e = fail_about(err, checkpoint_resume(&session->trainer, &o->saved, NULL, err), "--resume");
        if (!e && train_changes_loss_scale(o)) session->trainer.loss_scale = plan_loss_scale(&o->plan);
        session->record.first_step = session->trainer.step;
        return e;
    }
    struct trainer *part;
    for (int n = 0; (part = trainer_section(&session->trainer, n)) != NULL; n++)
        for (int i = 0; i < part->parameters.count && !e; i++)
            e = load_one(session, part, &part->parameters.all[i], err);
    if (!e && session->trainer.routers.bias)
        e = golden_read_biases(session->golden, session->trainer.routers.bias, err);
    return comm_agree(session->trainer.comm, e, err);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* Whether the file has neither weights nor gradients of the steps before the last. */
static bool lacks_steps(const struct golden *golden) { return !golden->every_step && golden->steps > 1; }

/* Tensors of later steps have the optimizer and the number of the step before their names. */
struct step_prefix { char text[48]; };

static struct step_prefix golden_prefix(const struct session *session)
{
    struct step_prefix prefix = { "" };
    const struct trainer *t = &session->trainer;
    if (t->step > 0)
        snprintf(prefix.text, sizeof prefix.text, "%s/%lld/", t->plan.optimizer->name, (long long)t->step + 1);
    return prefix;
}

/* Whether the activations of this pass are dumped: always those of the first that is run. */
static bool golden_dumps_pass(const struct session *session)
{
    return session->trainer.step == session->record.first_step ||
           (session->options->dump_passes && session->golden->every_step);
}

/* Have the next pass keep what the devices compute, with rows of experts if each device writes its own. */
static void golden_keep(struct session *session, bool keeps)
{
    session->probes.keep = keeps;
    session->probes.probe.sorted = keeps && session->ranks.folder && !session->options->isolate;
}

/* The activations of a pass that are dumped: of a mixture in 16 bits also in later passes the routers' logits, since
 * rounding alone may send a token to another expert there.  @return NULL: all, if dumps; else the only name. */
static const char *golden_only(const struct session *session, bool *dumps)
{
    const bool all = golden_dumps_pass(session), routes = session->probes.routers > 0;
    *dumps = all || (session->golden->every_step && routes && dtype_is_narrow(session->options->plan.dtype));
    return all ? NULL : "router.logits";
}

static enum error_code dump_own_gradients(struct session *session, const struct step_result *result, struct error *err)
{
    struct trainer *t = &session->trainer;
    const bool first = t->step == 0;
    const struct step_prefix prefix = golden_prefix(session);
    char kind[64];
    snprintf(kind, sizeof kind, "%sgrad", prefix.text);
    bool dumps;
    const char *const only = golden_only(session, &dumps);
    enum error_code e = comm_agree(t->comm, dump_ranks_numbers(&session->ranks, result, err), err);
    if (!e && dumps)
        e = dump_ranks_activations(&session->ranks, &session->probes, prefix.text, only, result, err);
    if (!e && (first || session->golden->every_step)) e = dump_ranks_gradients(&session->ranks, t, kind, result, err);
    golden_keep(session, session->options->dump_passes);
    return comm_agree(t->comm, e, err);
}

/* Before the optimizer clears the gradients. */
static enum error_code dump_gradients(void *context, struct trainer *trainer, struct training_step *taken,
                                      struct error *err)
{
    struct session *const s = context;
    const struct step_result *const result = &taken->result;
    const int64_t step = trainer->step;
    bool dumps;
    if (!s->options->dump) return OK;
    const char *const only = golden_only(s, &dumps);
    if (s->ranks.folder) return dump_own_gradients(s, result, err);
    enum error_code e = comm_agree(s->trainer.comm, train_dump_step(&s->dump, result, step, err), err);
    if (!e && dumps)
        e = train_dump_activations(&s->dump, &s->probes, golden_prefix(s).text, only, &s->reference.record, result,
                                   err);
    if (!e && step == 0) e = train_dump_gradients(&s->dump, &s->trainer, result, err);
    else if (!e && s->golden->every_step) e = train_dump_later_gradients(&s->dump, &s->trainer, result, err);
    golden_keep(s, s->options->dump_passes);
    return e;
}

/* For --log, --tensorboard and --json, on rank 0.  validation: NAN: none was computed. */
static enum error_code note_step(struct session *session, int64_t i, const struct training_step *step,
                                 double validation, struct error *err)
{
    struct train_record *r = &session->record;
    r->step[i] = step->result, r->seconds[i] = step->seconds;
    r->steps = i + 1;
    fprintf(r->out, "step %lld/%lld  loss %.12f  norm %.12f\n", (long long)(r->first_step + i + 1),
            (long long)session->golden->steps, step->result.loss, step->result.norm);
    if (!isnan(validation)) report_evaluation(r, r->first_step + i + 1, validation);
    return run_log_step(&session->log, i, validation, err);
}

static enum error_code golden_step_begins(void *context, struct trainer *trainer, struct training_step *step,
                                          struct error *err)
{
    const struct session *const s = context;
    (void)step, (void)err;
    trainer->plan.hyper.lr = s->rates[trainer->step];
    return OK;
}

/* Write the files of a step.  After the last step weights have no number. */
static enum error_code dump_step(struct session *session, struct trainer *trainer, int64_t done, struct error *err)
{
    const int64_t number = done == session->golden->steps ? 0 : done;
    const enum error_code e =
        comm_agree(trainer->comm, dump_ranks_weights(&session->ranks, trainer, number, err), err);
    return e ? e : dump_ranks_write_step(&session->ranks, trainer, done, err);
}

static enum error_code dump_weights(void *context, struct trainer *trainer, struct training_step *step,
                                    struct error *err)
{
    struct session *const s = context;
    const int64_t done = trainer->step;
    (void)step;
    if (s->options->dump_steps) return dump_step(s, trainer, done, err);
    if (!s->options->dump || !s->golden->every_step || done == s->golden->steps) return OK;
    return s->ranks.folder ? comm_agree(trainer->comm, dump_ranks_weights(&s->ranks, trainer, done, err), err)
                           : train_dump_weights(&s->dump, trainer, done, err);
}

/* Write a checkpoint, of which --resume goes on with the same golden file. */
static enum error_code golden_save(struct session *session, struct error *err)
{
    const struct train_options *const o = session->options;
    struct trainer *const t = &session->trainer;
    char path[BUNDLE_PATH];
    if (o->save_every) series_path(path, sizeof path, o->save, t->step);
    cJSON *run = session->here ? train_run(o, session->data, t->step, err) : NULL;
    char *origin = run ? origin_text(o, err) : NULL;
    enum error_code e = !session->here ? OK : origin == NULL ? err->code : keeping_stands(err);
    e = comm_agree(t->comm, e, err);
    if (!e && o->save_every) e = comm_agree(t->comm, session->here ? series_make(o->save, err) : OK, err);
    if (!e) e = (o->sharded ? sharded_save : checkpoint_save)(t, o->save_every ? path : o->save, run, origin, err);
    if (!e && session->here && o->save_every && o->keep) e = series_prune(o->save, o->keep, err);
    cJSON_Delete(run);
    free(origin);
    return comm_agree(t->comm, e, err);
}

static enum error_code golden_step_ended(void *context, struct trainer *trainer, struct training_step *step,
                                         struct error *err)
{
    struct session *const s = context;
    const int64_t every = s->options->eval_every;
    double validation = NAN;
    enum error_code e = OK;
    if (every && trainer->step % every == 0) e = print_sample(trainer, s->data, 0, s->record.out, &validation, err);
    if (!e && s->here) e = note_step(s, step->index, step, validation, err);
    e = comm_agree(trainer->comm, e, err);
    const int save_every = s->options->save_every;
    const bool is_due = save_every ? trainer->step % save_every == 0 : trainer->step == s->golden->steps;
    return e || s->options->save == NULL || !is_due ? e : fail_about(err, golden_save(s, err), "--save");
}

static enum error_code golden_train(struct session *session, struct error *err)
{
    struct reference_watch beside = { &session->reference, &session->probes, &session->record.comparison, NULL, true };
    struct training_observer observers[3];
    int count = 0;
    if (session->options->paranoid) observers[count++] = replicas_observer(&session->record.copies);
    observers[count++] = reference_observer(&beside);
    observers[count++] = (struct training_observer){ .context = session, .at = { [STEP_BEGINS] = golden_step_begins,
                                                                  [GRADIENTS_REDUCED] = dump_gradients,
                                                                  [WEIGHTS_STEPPED] = dump_weights,
                                                                  [STEP_ENDED] = golden_step_ended } };
    return training_run(&session->trainer, session->golden->steps - session->trainer.step, observers, count, NULL, err);
}

/* Whether weights after the last step can be judged.  Without the steps between they have the bounds of the whole run;
 * if rounding has sent a token to another expert there, nothing decides. */
static enum error_code golden_find_end(struct session *session, struct error *err)
{
    const struct golden *const g = session->golden;
    char name[64];
    int decides = true;
    snprintf(name, sizeof name, "%s/loss", session->options->plan.optimizer->name);
    if (session->here && lacks_steps(g)) decides = bound_decides(golden_list_bound(&session->truth.list, name));
    const enum error_code e = comm_tell(session->trainer.comm, &decides, sizeof decides, err);
    session->dumps_end = decides;
    return e;
}

/* Say what a dump has not, because the golden file has not what is between its steps. */
static void say_dumped(const struct session *session, const char *what, int count)
{
    FILE *const out = session->record.out;
    if (!session->here) return;
    fprintf(out, "dumped  %d %s to %s\n", count, what, printable_path(session->options->dump).text);
    if (!lacks_steps(session->golden)) return;
    if (session->dumps_end)
        say(out, 8, "        the first pass and the last step: the golden file has no steps between (orrery golden "
                    "make has them, with --keep all)");
    else
        say(out, 8, "        the first pass alone: the golden file has no steps between (orrery golden make has them, "
                    "with --keep all), and in %s rounding explains anything after the last",
            dtype_name(session->options->plan.dtype));
}

static enum error_code write_own(struct session *session, struct error *err)
{
    const enum error_code e = session->options->dump_steps ? OK
        : dump_ranks_write(&session->ranks, &session->trainer, session->dumps_end, err);
    if (!e) say_dumped(session, "files", session->ranks.files);
    return e;
}

static enum error_code write_dump(struct session *session, struct error *err)
{
    if (session->ranks.folder) return write_own(session, err);
    const struct train_dump *d = &session->dump;
    enum error_code e = session->dumps_end
        ? train_dump_end(&session->dump, &session->trainer, session->golden->steps, err) : OK;
    const struct plan *const p = &session->options->plan;
    char scale[40];
    snprintf(scale, sizeof scale, "%.17g", p->loss_scale > 0 ? p->loss_scale : 1);
    const struct safetensors_pair about[] = { { "generator", "orrery train" },
                                             { "model", session->golden->config.name },
                                             /* Only a run with exact sums has the last ones. */
                                             { "arithmetic", exact_rule_names[p->model.exact] },
                                             { "dtype", dtype_name(p->dtype) },
                                             { "loss_scale", scale } };
    const int pairs = p->model.exact ? 5 : 2;
    if (!e && session->here)
        e = fail_about(err, records_write(d->all, d->count, about, pairs, session->options->dump, err), "--dump");
    if (!e) say_dumped(session, "tensors", d->count);
    return comm_agree(session->trainer.comm, e, err);
}

/* Where the file could not be the truth. */
static void say_truth(const struct session *session)
{
    const struct golden_truth *g = &session->truth;
    const bool exact = session->options->plan.model.exact;
    if (g->others == 0 && !exact) return;
    fprintf(session->record.out, "\n");
    if (exact)
        say(session->record.out, 8, "truth   the one-device run, bit by bit; beside the file stand %lld of its "
            "tensors, and %lld do not: they are zero, or their bounds in the file are wide", (long long)g->held,
            (long long)g->others);
    else if (g->apart >= 0)
        say(session->record.out, 8,
            "truth   the file up to the router of layer %d, where a token goes to another expert "
            "than in the file; then the one-device run", g->apart);
    else
        say(session->record.out, 8, "truth   the file, and the one-device run for %lld of its tensors: %s",
            (long long)g->others,
            dtype_is_narrow(session->options->plan.dtype) ? "the bounds of the file are wider" : "they are zero");
}

static enum error_code conclude(struct session *session, struct error *err)
{
    char text[sizeof err->text];
    if (!session->here) return OK;
    report_copies(&session->record);
    say_truth(session);
    report_check(&session->record);
    const char *const json = session->options->json;
    enum error_code e = run_log_end(&session->log, err);
    if (!e && json) e = fail_about(err, report_json(&session->record, "orrery train", json, err), "--json");
    if (e || comparison_holds(&session->record.comparison)) return e;
    return fail(err, ERR_CHECK, "%s", (session->record.comparison.failed ? comparison_describe : comparison_unjudged)(
                    text, sizeof text, &session->record.comparison, &session->options->plan));
}

/* Decided by the text alone, so that all devices decide alike. */
static bool is_folder(const char *path) { return path[0] != '\0' && path[strlen(path) - 1] == '/'; }

static enum error_code golden_run(struct session *session, struct error *err)
{
    struct comm *comm = session->trainer.comm;
    enum error_code e = load_start(session, err);
    if (!e && session->here) {
        e = reference_open(&session->reference, &session->trainer.plan, session->trainer.source, err);
        if (!e) e = golden_truth_open(&session->truth, session->golden, &session->reference, err);
        if (!e) e = run_log_open(&session->log, &session->record, err);
    }
    e = comm_agree(comm, e, err);
    if (!e && session->options->dump) e = golden_find_end(session, err);
    if (!e && session->options->dump_steps && lacks_steps(session->golden))
        e = fail(err, ERR_PLAN, "--dump-steps: the golden file has what is there after the last step only");
    if (!e && session->options->dump && is_folder(session->options->dump))
        e = dump_ranks_open(&session->ranks, session->options->dump, &session->trainer, err);
    if (e) {
        dump_ranks_free(&session->ranks);
        if (session->here) golden_truth_close(&session->truth), reference_close(&session->reference);
        return e;
    }
    probes_open(&session->probes, &session->trainer, session->options->isolate);
    golden_keep(session, session->options->dump != NULL);
    reference_follow(&session->reference, &session->trainer);
    if (session->here)
        fprintf(session->record.out, "golden  %s\nmesh    %d device%s, %d thread%s each, %s, %s\n\n",
                session->options->check, comm->size, plural(comm->size), session->record.arithmetic.threads,
                plural(session->record.arithmetic.threads),
                dtype_name(session->options->plan.dtype), session->options->plan.optimizer->name);
    e = golden_train(session, err);
    if (!e && session->options->dump) e = write_dump(session, err);
    if (!e) e = comm_agree(comm, conclude(session, err), err);
    probes_close(&session->probes);
    train_dump_free(&session->dump);
    dump_ranks_free(&session->ranks);
    if (session->here) golden_truth_close(&session->truth), reference_close(&session->reference);
    return e;
}

static enum error_code golden_make_room(struct session *session, int devices, struct error *err)
{
    const size_t steps = (size_t)session->golden->steps;
    struct train_record *r = &session->record;
    session->rates = calloc(steps, sizeof *session->rates);
    r->device = calloc((size_t)devices, sizeof *r->device);
    r->step = calloc(steps, sizeof *r->step), r->seconds = calloc(steps, sizeof *r->seconds);
    return session->rates && r->device && r->step && r->seconds ? OK : fail(err, ERR_MEMORY, "no memory for a run");
}

enum error_code train_golden(struct comm *comm, const struct train_options *options, const struct train_data *data,
                             struct error *err)
{
    struct golden g;
    struct session s = { .options = options, .golden = &g, .data = data, .here = comm->rank == 0,
                         .log = { .fd = -1, .events = { .fd = -1 } },
                         .record = { .options = options, .arithmetic = arithmetic_now(), .out = run_stream(options),
                                     .truth = options->check,
                                     .folded.folding = folding_none(&options->plan.mesh) } };
    enum error_code e = golden_open(&g, options->check, err);
    const bool opened = !e;
    if (!e) e = golden_make_room(&s, comm->size, err);
    if (!e) e = read_rates(&g, options->plan.optimizer, s.rates, err);
    e = comm_agree(comm, e, err);
    if (!e) {
        e = trainer_open(&s.trainer, &options->plan, comm, (struct batch_source){ golden_fill, &g }, err);
        if (!e) {
            e = golden_run(&s, err);
            trainer_close(&s.trainer);
        }
    }
    run_log_close(&s.log);
    free(s.rates), free(s.record.device), free(s.record.step), free(s.record.seconds);
    if (opened) golden_close(&g);
    return e;
}
