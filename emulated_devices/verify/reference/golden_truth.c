#include "emulated_devices/verify/reference/golden_truth.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAME = RECORD_NAME + 48 };

/* The bound of a tensor; 0 if it is too large to detect errors. */
static double bound_of(const struct golden_truth *g, const char *name)
{
    const double bound = golden_list_bound(&g->list, name);
    return bound_decides(bound) ? bound : 0;
}

/* Read a tensor times `scale`, a power of two, rounded once to the tensor's format. */
static enum error_code take(const struct golden_truth *g, const char *name, double scale, struct tensor t,
                            struct error *err)
{
    const int64_t n = tensor_count(t);
    double *exact = malloc((size_t)n * sizeof *exact + 1);
    enum error_code e =
        exact ? golden_read(g->golden, name, F64, n, exact, err) : fail(err, ERR_MEMORY, "no memory to read %s", name);
    for (int64_t i = 0; i < n && !e; i++) tensor_set(t, i, scale * exact[i]);
    free(exact);
    return e;
}

/* Read the loss or norm of the current step.  After the first step the stored bound is relative to the norm of all
 * steps' numbers. */
static enum error_code take_number(const struct golden_truth *g, const struct reference *r, const char *what,
                                   double *out, double *bound, struct error *err)
{
    double all[GOLDEN_MOST_STEPS], squares = 0;
    char name[NAME];
    const int64_t steps = g->golden->steps;
    snprintf(name, sizeof name, "%s/%s", r->plan->optimizer->name, what);
    enum error_code e = golden_read(g->golden, name, F64, steps, all, err);
    if (e) return e;
    for (int64_t i = 0; i < steps; i++) squares += all[i] * all[i];
    *out = all[r->step];
    *bound = r->step == 0 ? bound_of(g, what) : bound_of(g, name) * sqrt(squares) / fabs(*out);
    return OK;
}

static enum error_code take_activations(const struct golden_truth *g, struct reference *r, struct error *err)
{
    char name[NAME], full[NAME];
    enum error_code e = OK;
    for (int i = 0; i < r->record.count && !e; i++) {
        struct recorded *a = &r->record.all[i];
        a->known = 0;
        if (r->step > 0) continue;
        activation_name(name, sizeof name, a->name, a->layer, (int)g->golden->config.L);
        snprintf(full, sizeof full, "%s/%.100s", a->gradient ? "grad" : "act", name);
        e = take(g, full, a->gradient ? r->loss_scale.scale : 1, a->truth, err);
        a->norm = norm_of(r, a->truth);
        a->known = bound_of(g, full);
    }
    return e;
}

static enum error_code take_gradients(struct golden_truth *g, struct reference *r, struct error *err)
{
    char name[NAME];
    enum error_code e = OK;
    for (int i = 0; i < r->truth.model.params && !e; i++) {
        if (r->known) g->known.gradient[i] = 0;
        if (r->step > 0) continue;
        snprintf(name, sizeof name, "grad/%s", r->truth.model.spec[i].name);
        e = take(g, name, r->loss_scale.scale, r->truth.model.g[i], err);
        if (r->known) g->known.gradient[i] = bound_of(g, name);
    }
    return e;
}

/* Called before the devices get their parts. */
static enum error_code replace_step(void *context, struct reference *r, struct error *err)
{
    struct golden_truth *g = context;
    enum error_code e = take_number(g, r, "loss", &r->truth.loss, &g->known.loss, err);
    if (!e) e = take_number(g, r, "norm", &r->truth.norm, &g->known.norm, err);
    if (!e) e = take_activations(g, r, err);
    return e ? e : take_gradients(g, r, err);
}

enum error_code golden_truth_at_end(struct golden_truth *g, struct reference *r, struct error *err)
{
    const struct optimizer *o = r->plan->optimizer;
    struct serial_run *truth = &r->truth;
    char name[NAME];
    enum error_code e = OK;
    for (int i = 0; i < truth->model.params && !e; i++) {
        snprintf(name, sizeof name, "%s/weight/%s", o->name, truth->model.spec[i].name);
        e = take(g, name, 1, truth->model.w[i], err);
        if (!e) e = take(g, name, 1, truth->master[i], err);
        if (r->known) g->known.weight[i] = bound_of(g, name);
        for (int k = 0; k < o->states && !e; k++) {
            const int at = i * OPTIMIZER_MAX_STATES + k;
            snprintf(name, sizeof name, "%s/%s/%s", o->name, o->state_name[k], truth->model.spec[i].name);
            e = take(g, name, 1, truth->state[at], err);
            if (r->known) g->known.state[at] = bound_of(g, name);
        }
    }
    return e;
}

/* Collect the bounds for 16-bit formats. */
static enum error_code know_bounds(struct golden_truth *g, struct reference *r, struct error *err)
{
    const struct plan *p = r->plan;
    const size_t n = (size_t)r->truth.model.params;
    enum error_code e = golden_measure(g->golden, p->dtype, reference_parts(p),
                                       p->data.narrow_gradients ? reference_gradient_parts(p) : 1, &g->list, err);
    if (e) return e;
    for (int i = 0; i < g->list.count; i++) g->open += !bound_decides(g->list.all[i].bound);
    g->known = (struct known_bounds){ .gradient = calloc(n, sizeof(double)), .weight = calloc(n, sizeof(double)),
                                      .state = calloc(n * OPTIMIZER_MAX_STATES, sizeof(double)) };
    if (g->known.gradient == NULL || g->known.weight == NULL || g->known.state == NULL)
        return fail(err, ERR_MEMORY, "no memory for %d bounds", g->list.count);
    r->known = &g->known;
    r->record.bounds_known = true;
    return OK;
}

enum error_code golden_truth_open(struct golden_truth *g, const struct golden *golden, struct reference *r,
                                  struct error *err)
{
    *g = (struct golden_truth){ .golden = golden };
    if (r->rule.updates != 1 || r->rule.delayed || r->rule.passes_by)
        return fail(err, ERR_PLAN,
                    "--schedule %s: does not compute plain training, which is what golden files hold; --check ref "
                    "follows its rule",
                    r->plan->schedule);
    r->replace = replace_step;
    r->replace_context = g;
    const enum error_code e = dtype_wide(r->plan->dtype) == r->plan->dtype ? OK : know_bounds(g, r, err);
    if (e) golden_truth_close(g);
    return e;
}

void golden_truth_close(struct golden_truth *g)
{
    free(g->known.gradient), free(g->known.weight), free(g->known.state);
    golden_list_free(&g->list);
    *g = (struct golden_truth){ 0 };
}
