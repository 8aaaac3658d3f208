/* train_golden.c -- `orrery train --check GOLDEN`: the run that a golden file is of, on any mesh, held to what the file says. */
#include "emulated_devices/cli/train.h"
#include "emulated_devices/verify/golden_bounds.h"
#include "emulated_devices/verify/replicas.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct session {
    const struct train_options *options;
    const struct golden *golden;
    struct trainer trainer;
    struct reference reference;         /* rank 0 */
    struct probes probes;
    struct train_record record;
    double *rates;                      /* [steps] */
    bool here;
};

static enum error_code read_rates(const struct golden *g, const struct optimizer *o, double *rates, struct error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s/lr", o->name);
    return golden_read(g, name, F64, g->steps, rates, err);
}

enum error_code train_take_golden(struct train_options *o, struct error *err)
{
    struct golden g;
    struct plan *p = &o->plan;
    enum error_code e = golden_open(&g, o->check, err);
    if (e) return fail_about(err, e, "--check");
    double *rates = calloc((size_t)g.steps, sizeof *rates);
    e = rates ? fail_about(err, read_rates(&g, p->optimizer, rates, err), "--check") : fail(err, ERR_MEMORY, "no memory for %lld rates", (long long)g.steps);
    p->hyper = golden_hyperparameters(&g, p->optimizer->name);
    p->model = g.config;
    p->B = g.B, p->S = g.S, p->seed = g.seed;
    o->steps = g.steps;
    free(rates);
    golden_close(&g);
    return e;
}

/* ---- where the run starts ---------------------------------------------------------------------------------------------------- */

static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels)
{
    const struct golden *g = context;
    const size_t bytes = (size_t)(count * g->S) * sizeof *ids;
    memcpy(ids, g->ids + (step * g->B + first) * g->S, bytes);
    memcpy(labels, g->labels + (step * g->B + first) * g->S, bytes);
}

static enum error_code load_start(struct session *s, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < s->trainer.parameters.count && !e; i++) {
        struct parameter *p = &s->trainer.parameters.all[i];
        char name[RECORD_NAME];
        const int64_t n = p->spec.dim[0] * (p->spec.ndim == 2 ? p->spec.dim[1] : 1);
        struct tensor whole = tensor_1d(malloc((size_t)n * dtype_size(p->w.dtype)), p->w.dtype, n);
        snprintf(name, sizeof name, "start/%s", p->spec.name);
        e = whole.data ? golden_read(s->golden, name, p->w.dtype, n, whole.data, err) : fail(err, ERR_MEMORY, "no memory to read %s", name);
        struct tensor piece = tensor_1d(malloc((size_t)layout_count(&p->layout) * dtype_size(p->w.dtype) + 1), p->w.dtype, layout_count(&p->layout));
        if (!e && piece.data == NULL) e = fail(err, ERR_MEMORY, "no memory to read %s", name);
        if (!e) layout_cut(&p->layout, whole.data, piece.data, dtype_size(p->w.dtype));
        if (!e) collect_keep(&s->trainer, p, KIND_WEIGHT, piece);
        free(whole.data), free(piece.data);
    }
    return comm_agree(s->trainer.comm, e, err);
}

/* ---- the file's truth in place of the one-device run's --------------------------------------------------------------------------- */

static enum error_code replace(const struct session *s, const char *kind, const char *name, struct tensor t, struct error *err)
{
    char full[RECORD_NAME + 32];
    snprintf(full, sizeof full, "%s%s", kind, name);
    return golden_read(s->golden, full, t.dtype, tensor_count(t), t.data, err);
}

static enum error_code replace_number(const struct session *s, const char *what, int64_t step, double *out, struct error *err)
{
    double all[64];
    char name[64];
    snprintf(name, sizeof name, "%s/%s", s->options->plan.optimizer->name, what);
    if (s->golden->steps > 64) return fail(err, ERR_FORMAT, "%s: more than 64 steps", s->golden->file.path);
    enum error_code e = golden_read(s->golden, name, F64, s->golden->steps, all, err);
    if (!e) *out = all[step];
    return e;
}

/* Before the devices get their parts: losses and norms of every step, activations and gradients of the first. */
static enum error_code truth_of_step(void *context, struct reference *r, struct error *err)
{
    const struct session *s = context;
    char name[RECORD_NAME];
    enum error_code e = replace_number(s, "loss", r->step, &r->truth.loss, err);
    if (!e) e = replace_number(s, "norm", r->step, &r->truth.norm, err);
    for (int i = 0; i < r->record.count && r->step == 0 && !e; i++) {
        struct recorded *a = &r->record.all[i];
        activation_name(name, sizeof name, a->name, a->layer, (int)s->golden->config.L);
        e = replace(s, a->gradient ? "grad/" : "act/", name, a->truth, err);
    }
    for (int i = 0; i < r->truth.model.params && r->step == 0 && !e; i++)
        e = replace(s, "grad/", r->truth.model.spec[i].name, r->truth.model.g[i], err);
    return e;
}

/* After the last step: weights and the optimizer's state. */
static enum error_code truth_at_end(const struct session *s, struct reference *r, struct error *err)
{
    const struct optimizer *o = s->options->plan.optimizer;
    char kind[64];
    enum error_code e = OK;
    for (int i = 0; i < r->truth.model.params && !e; i++) {
        snprintf(kind, sizeof kind, "%s/weight/", o->name);
        e = replace(s, kind, r->truth.model.spec[i].name, r->truth.model.w[i], err);
        for (int k = 0; k < o->states && !e; k++) {
            snprintf(kind, sizeof kind, "%s/%s/", o->name, o->state_name[k]);
            e = replace(s, kind, r->truth.model.spec[i].name, r->truth.state[i * OPTIMIZER_MAX_STATES + k], err);
        }
    }
    return e;
}

/* ---- the run -------------------------------------------------------------------------------------------------------------------- */

static enum error_code one_step(struct session *s, struct error *err)
{
    struct trainer *t = &s->trainer;
    struct comm *comm = t->comm;
    struct step_result result = { 0 };
    const bool paranoid = s->options->paranoid, last = t->step + 1 == s->golden->steps;
    t->plan.hyper.lr = s->rates[t->step];
    enum error_code e = compare_begin(&s->probes, &s->reference, err);
    if (!e) e = trainer_gradients(t, &result, err);
    if (!e && paranoid) e = replicas_check(t, BEFORE_OPTIMIZER, err);
    if (!e) e = compare_gradients(&s->probes, &s->reference, &result, &s->record.comparison, err);
    if (!e) e = trainer_update(t, &result, err);
    if (!e && paranoid) e = replicas_check(t, AFTER_OPTIMIZER, err);
    if (!e && s->here) e = reference_update(&s->reference, err);
    if (!e && s->here && last) e = truth_at_end(s, &s->reference, err);
    e = comm_agree(comm, e, err);
    if (!e) e = compare_weights(t, &s->reference, &s->record.comparison, err);
    if (!e && s->here) fprintf(s->record.out, "step %lld/%lld  loss %.12f  norm %.12f\n", (long long)t->step, (long long)s->golden->steps, result.loss, result.norm);
    return e;
}

static enum error_code conclude(struct session *s, struct error *err)
{
    char text[sizeof err->text];
    if (!s->here) return OK;
    report_check(&s->record);
    enum error_code e = s->options->json ? fail_about(err, report_json(&s->record, s->options->json, err), "--json") : OK;
    if (e || !s->record.comparison.failed) return e;
    return fail(err, ERR_CHECK, "%s", comparison_describe(text, sizeof text, &s->record.comparison, &s->options->plan));
}

static enum error_code run(struct session *s, struct error *err)
{
    struct comm *comm = s->trainer.comm;
    enum error_code e = load_start(s, err);
    if (!e && s->here) {
        e = reference_open(&s->reference, &s->trainer.plan, s->trainer.source, err);
        s->reference.replace = truth_of_step;
        s->reference.replace_context = s;
    }
    e = comm_agree(comm, e, err);
    if (e) return e;
    probes_open(&s->probes, &s->trainer, s->options->isolate);
    e = reference_follow(&s->reference, &s->trainer, err);
    if (s->here) fprintf(s->record.out, "golden  %s\nmesh    %d devices, %s, %s\n\n", s->options->check, comm->size, dtype_name(s->options->plan.dtype), s->options->plan.optimizer->name);
    while (s->trainer.step < s->golden->steps && !e) e = one_step(s, err);
    if (!e) e = comm_agree(comm, conclude(s, err), err);
    probes_close(&s->probes);
    if (s->here) reference_close(&s->reference);
    return e;
}

enum error_code train_golden(struct comm *comm, const struct train_options *o, struct error *err)
{
    struct golden g;
    struct session s = { .options = o, .golden = &g, .here = comm->rank == 0, .record = { .options = o, .out = report_stream(o), .truth = o->check } };
    enum error_code e = golden_open(&g, o->check, err);
    const bool opened = !e;
    s.rates = opened ? calloc((size_t)g.steps, sizeof *s.rates) : NULL;
    s.record.device = calloc((size_t)comm->size, sizeof *s.record.device);
    if (!e) e = s.rates && s.record.device ? read_rates(&g, o->plan.optimizer, s.rates, err) : fail(err, ERR_MEMORY, "no memory for a run");
    e = comm_agree(comm, e, err);
    if (!e) {
        e = trainer_open(&s.trainer, &o->plan, comm, (struct batch_source){ fill, &g }, err);
        if (!e) {
            e = run(&s, err);
            trainer_close(&s.trainer);
        }
    }
    free(s.rates), free(s.record.device);
    if (opened) golden_close(&g);
    return e;
}
