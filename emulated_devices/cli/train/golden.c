/* golden.c -- `orrery train --check GOLDEN`: trains a golden file's run on any mesh, and compares it with the file. */
#include "emulated_devices/cli/train/dump.h"
#include "emulated_devices/cli/train/dump_ranks.h"
#include "emulated_devices/cli/train/log.h"
#include "emulated_devices/verify/reference/golden_truth.h"
#include "emulated_devices/verify/reference/watch.h"
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
};

static enum error_code read_rates(const struct golden *g, const struct optimizer *o, double *rates, struct error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s/lr", o->name);
    return golden_read(g, name, F64, g->steps, rates, err);
}

static bool has_steps_of(const struct golden *g, const struct optimizer *o)
{
    char name[64];
    snprintf(name, sizeof name, "%s/lr", o->name);
    return safetensors_find(&g->file, name) != NULL;
}

static const struct optimizer *optimizer_of_file(const struct golden *g, const struct optimizer *usual)
{
    for (int i = 0; optimizers[i] && !has_steps_of(g, usual); i++)
        if (has_steps_of(g, optimizers[i])) return optimizers[i];
    return usual;
}

enum error_code train_take_golden(struct train_options *o, bool chosen, struct error *err)
{
    struct golden g;
    struct plan *p = &o->plan;
    enum error_code e = golden_open(&g, o->check, err);
    if (e) return fail_about(err, e, "--check");
    if (!chosen) p->optimizer = optimizer_of_file(&g, p->optimizer);
    double *rates = calloc((size_t)g.steps, sizeof *rates);
    e = rates ? fail_about(err, read_rates(&g, p->optimizer, rates, err), "--check")
              : fail(err, ERR_MEMORY, "no memory for %lld rates", (long long)g.steps);
    p->hyper = golden_hyperparameters(&g, p->optimizer->name);
    p->model = g.config;
    p->B = g.B, p->S = g.S, p->seed = g.seed;
    if (p->dtype == F16 && p->loss_scale == 0) p->loss_scale = REPLAY_LOSS_SCALE;
    o->steps = g.steps;
    o->golden_micros = golden_balance_micros(&g);
    free(rates);
    golden_close(&g);
    return e;
}

/* ---- where the run starts ---------------------------------------------------------------------------------------- */

static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within)
{
    (void)within;                       /* golden sequences are samples */
    const struct golden *g = context;
    const size_t bytes = (size_t)(count * g->S) * sizeof *ids;
    memcpy(ids, g->ids + (step * g->B + first) * g->S, bytes);
    memcpy(labels, g->labels + (step * g->B + first) * g->S, bytes);
}

static enum error_code load_one(struct session *s, const struct parameter *p, struct error *err)
{
    char name[RECORD_NAME];
    const enum dtype wide = dtype_wide(p->w.dtype);
    const int64_t n = p->spec.dim[0] * (p->spec.ndim == 2 ? p->spec.dim[1] : 1), own = layout_count(&p->layout);
    void *whole = malloc((size_t)n * dtype_size(wide));
    struct tensor piece = tensor_1d(malloc((size_t)own * dtype_size(wide) + 1), wide, own);
    snprintf(name, sizeof name, "start/%s", p->spec.name);
    enum error_code e = whole && piece.data ? OK : fail(err, ERR_MEMORY, "no memory to read %s", name);
    if (!e) e = golden_read(s->golden, name, wide, n, whole, err);
    if (!e) {
        layout_cut(&p->layout, whole, piece.data, dtype_size(wide));
        e = collect_keep_weights(&s->trainer, p, piece, err);
    }
    free(whole), free(piece.data);
    return e;
}

static enum error_code load_start(struct session *s, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < s->trainer.parameters.count && !e; i++) e = load_one(s, &s->trainer.parameters.all[i], err);
    if (!e && s->trainer.routers.bias) e = golden_read_biases(s->golden, s->trainer.routers.bias, err);
    return comm_agree(s->trainer.comm, e, err);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static enum error_code dump_own_gradients(struct session *s, const struct step_result *result, struct error *err)
{
    struct trainer *t = &s->trainer;
    const bool first = t->step == 0;
    char kind[64] = "grad";
    if (!first) snprintf(kind, sizeof kind, "%s/%lld/grad", t->plan.optimizer->name, (long long)t->step + 1);
    enum error_code e = dump_ranks_numbers(&s->ranks, result, err);
    if (!e && first) e = dump_ranks_activations(&s->ranks, &s->probes, result, err);
    if (!e && (first || s->golden->every_step)) e = dump_ranks_gradients(&s->ranks, t, kind, result, err);
    s->probes.keep = false;
    return comm_agree(t->comm, e, err);
}

/* Before the optimizer clears the gradients. */
static enum error_code dump_gradients(void *context, struct trainer *trainer, struct training_step *taken,
                                      struct error *err)
{
    struct session *const s = context;
    const struct step_result *const result = &taken->result;
    const int64_t step = trainer->step;
    if (!s->options->dump) return OK;
    if (s->ranks.folder) return dump_own_gradients(s, result, err);
    enum error_code e = comm_agree(s->trainer.comm, train_dump_step(&s->dump, result, step, err), err);
    if (!e && step == 0) e = train_dump_gradients(&s->dump, &s->probes, &s->reference.record, result, err);
    else if (!e && s->golden->every_step) e = train_dump_later_gradients(&s->dump, &s->trainer, result, err);
    s->probes.keep = false;
    return e;
}

/* For --log, --tensorboard and --json, on rank 0.  validation: NAN: none was computed. */
static enum error_code note_step(struct session *s, int64_t i, const struct training_step *step, double validation,
                                 struct error *err)
{
    struct train_record *r = &s->record;
    r->step[i] = step->result, r->seconds[i] = step->seconds;
    r->steps = i + 1;
    fprintf(r->out, "step %lld/%lld  loss %.12f  norm %.12f\n", (long long)i + 1, (long long)s->golden->steps,
            step->result.loss, step->result.norm);
    if (!isnan(validation)) report_evaluation(r, i + 1, validation);
    return run_log_step(&s->log, i, validation, err);
}

static enum error_code golden_step_begins(void *context, struct trainer *trainer, struct training_step *step,
                                          struct error *err)
{
    const struct session *const s = context;
    (void)step, (void)err;
    trainer->plan.hyper.lr = s->rates[trainer->step];
    return OK;
}

static enum error_code dump_weights(void *context, struct trainer *trainer, struct training_step *step,
                                    struct error *err)
{
    struct session *const s = context;
    const int64_t done = trainer->step;
    (void)step;
    if (!s->options->dump || !s->golden->every_step || done == s->golden->steps) return OK;
    return s->ranks.folder ? comm_agree(trainer->comm, dump_ranks_weights(&s->ranks, trainer, done, err), err)
                           : train_dump_weights(&s->dump, trainer, done, err);
}

static enum error_code golden_step_ended(void *context, struct trainer *trainer, struct training_step *step,
                                         struct error *err)
{
    struct session *const s = context;
    const int64_t every = s->options->eval_every;
    double validation = NAN;
    enum error_code e = OK;
    if (every && trainer->step % every == 0) e = print_sample(trainer, s->data, 0, s->record.out, &validation, err);
    return e || !s->here ? e : note_step(s, trainer->step - 1, step, validation, err);
}

static enum error_code golden_train(struct session *s, struct error *err)
{
    struct reference_watch beside = { &s->reference, &s->probes, &s->record.comparison, NULL, true };
    struct training_observer observers[3];
    int count = 0;
    if (s->options->paranoid) observers[count++] = replicas_observer(&s->record.copies);
    observers[count++] = reference_observer(&beside);
    observers[count++] = (struct training_observer){ .context = s, .at = { [STEP_BEGINS] = golden_step_begins,
                                                                  [GRADIENTS_REDUCED] = dump_gradients,
                                                                  [WEIGHTS_STEPPED] = dump_weights,
                                                                  [STEP_ENDED] = golden_step_ended } };
    return training_run(&s->trainer, s->golden->steps, observers, count, NULL, err);
}

static enum error_code write_own(struct session *s, struct error *err)
{
    const enum error_code e = dump_ranks_write(&s->ranks, &s->trainer, err);
    if (!e && s->here)
        fprintf(s->record.out, "dumped  %d files to %s\n", s->trainer.comm->size,
                printable_path(s->options->dump).text);
    return e;
}

static enum error_code write_dump(struct session *s, struct error *err)
{
    if (s->ranks.folder) return write_own(s, err);
    const struct train_dump *d = &s->dump;
    enum error_code e = train_dump_end(&s->dump, &s->trainer, s->golden->steps, err);
    const struct safetensors_pair about[] = { { "generator", "orrery train" }, { "model", s->golden->config.name } };
    if (!e && s->here)
        e = fail_about(err, records_write(d->all, d->count, about, 2, s->options->dump, err), "--dump");
    if (!e && s->here)
        fprintf(s->record.out, "dumped  %d tensors to %s\n", d->count, printable_path(s->options->dump).text);
    return comm_agree(s->trainer.comm, e, err);
}

/* Where the file could not be the truth. */
static void say_truth(const struct session *s)
{
    const struct golden_truth *g = &s->truth;
    if (g->others == 0) return;
    fprintf(s->record.out, "\n");
    if (g->apart >= 0)
        say(s->record.out, 8, "truth   the file up to the router of layer %d, where a token goes to another expert "
            "than in the file; then the one-device run", g->apart);
    else
        say(s->record.out, 8, "truth   the file, and the one-device run for %lld of its tensors: %s",
            (long long)g->others,
            dtype_is_narrow(s->options->plan.dtype) ? "the bounds of the file are wider" : "they are zero");
}

static enum error_code conclude(struct session *s, struct error *err)
{
    char text[sizeof err->text];
    if (!s->here) return OK;
    report_copies(&s->record);
    say_truth(s);
    report_check(&s->record);
    const char *const json = s->options->json;
    enum error_code e = run_log_end(&s->log, err);
    if (!e && json) e = fail_about(err, report_json(&s->record, "orrery train", json, err), "--json");
    if (e || comparison_holds(&s->record.comparison)) return e;
    return fail(err, ERR_CHECK, "%s",
                (s->record.comparison.failed ? comparison_describe : comparison_unjudged)(
                    text, sizeof text, &s->record.comparison, &s->options->plan));
}

/* Decided by the text alone, so that all devices decide alike. */
static bool is_folder(const char *path) { return path[0] != '\0' && path[strlen(path) - 1] == '/'; }

static enum error_code run(struct session *s, struct error *err)
{
    struct comm *comm = s->trainer.comm;
    enum error_code e = load_start(s, err);
    if (!e && s->here) {
        e = reference_open(&s->reference, &s->trainer.plan, s->trainer.source, err);
        if (!e) e = golden_truth_open(&s->truth, s->golden, &s->reference, err);
        if (!e) e = run_log_open(&s->log, &s->record, err);
    }
    e = comm_agree(comm, e, err);
    if (!e && s->options->dump && is_folder(s->options->dump))
        e = dump_ranks_open(&s->ranks, s->options->dump, &s->trainer, err);
    if (e) {
        dump_ranks_free(&s->ranks);
        if (s->here) golden_truth_close(&s->truth), reference_close(&s->reference);
        return e;
    }
    probes_open(&s->probes, &s->trainer, s->options->isolate);
    s->probes.keep = s->options->dump != NULL;
    reference_follow(&s->reference, &s->trainer);
    if (s->here)
        fprintf(s->record.out, "golden  %s\nmesh    %d device%s, %d thread%s each, %s, %s\n\n", s->options->check,
                comm->size, plural(comm->size), s->record.arithmetic.threads, plural(s->record.arithmetic.threads),
                dtype_name(s->options->plan.dtype), s->options->plan.optimizer->name);
    e = golden_train(s, err);
    if (!e && s->options->dump) e = write_dump(s, err);
    if (!e) e = comm_agree(comm, conclude(s, err), err);
    probes_close(&s->probes);
    train_dump_free(&s->dump);
    dump_ranks_free(&s->ranks);
    if (s->here) golden_truth_close(&s->truth), reference_close(&s->reference);
    return e;
}

static enum error_code make_room(struct session *s, int devices, struct error *err)
{
    const size_t steps = (size_t)s->golden->steps;
    struct train_record *r = &s->record;
    s->rates = calloc(steps, sizeof *s->rates);
    r->device = calloc((size_t)devices, sizeof *r->device);
    r->step = calloc(steps, sizeof *r->step), r->seconds = calloc(steps, sizeof *r->seconds);
    return s->rates && r->device && r->step && r->seconds ? OK : fail(err, ERR_MEMORY, "no memory for a run");
}

enum error_code train_golden(struct comm *comm, const struct train_options *o, const struct train_data *data,
                             struct error *err)
{
    struct golden g;
    struct session s = { .options = o, .golden = &g, .data = data, .here = comm->rank == 0,
                         .log = { .fd = -1, .events = { .fd = -1 } },
                         .record = { .options = o, .arithmetic = arithmetic_now(), .out = report_stream(o),
                                     .truth = o->check } };
    enum error_code e = golden_open(&g, o->check, err);
    const bool opened = !e;
    if (!e) e = make_room(&s, comm->size, err);
    if (!e) e = read_rates(&g, o->plan.optimizer, s.rates, err);
    e = comm_agree(comm, e, err);
    if (!e) {
        e = trainer_open(&s.trainer, &o->plan, comm, (struct batch_source){ fill, &g }, err);
        if (!e) {
            e = run(&s, err);
            trainer_close(&s.trainer);
        }
    }
    run_log_close(&s.log);
    free(s.rates), free(s.record.device), free(s.record.step), free(s.record.seconds);
    if (opened) golden_close(&g);
    return e;
}
