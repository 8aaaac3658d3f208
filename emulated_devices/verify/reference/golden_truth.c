#include "emulated_devices/verify/reference/golden_truth.h"
#include "emulated_devices/verify/judgement.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = RECORD_NAME + 48 };

/* Whether the file's tensor, with this bound and norm, is a better truth than the one-device run's with its own. */
static bool is_better(double bound, double size, double own)
{
    return bound > 0 && bound_decides(bound) && size > 0 && (bound <= WIDE_BOUND || bound <= own);
}

/* Read a tensor of the file, in fp64, times `scale`, a power of two; the room is large enough for any. */
static enum error_code read_tensor(struct golden_truth *g, const char *name, double scale, int64_t count,
                                   struct tensor *t, struct error *err)
{
    *t = tensor_1d(g->room, F64, count);
    const enum error_code e = golden_read(g->golden, name, F64, count, g->room, err);
    for (int64_t i = 0; i < count && !e && scale != 1; i++) g->room[i] *= scale;
    return e;
}

static double size_of(struct tensor t) { return sqrt(squared_distance(t, tensor_none)); }

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* Whether a tensor of the pass comes after the first choice that is not the file's. */
static bool is_behind(const struct golden_truth *g, const struct recorded *a)
{
    if (g->apart < 0) return false;
    if (a->gradient || a->layer > g->apart) return true;
    return a->layer == g->apart && (strncmp(a->name, "router.", 7) == 0 ? strcmp(a->name, "router.logits") != 0
                                    : strncmp(a->name, "routed.", 7) == 0 || strncmp(a->name, "mlp.", 4) == 0 ||
                                          strncmp(a->name, "shared.", 7) == 0 || strcmp(a->name, "out") == 0);
}

static enum error_code record_one(struct golden_truth *g, struct reference *r, struct recorded *a, struct error *err)
{
    char name[NAME], full[NAME];
    struct tensor t;
    activation_name(name, sizeof name, a->name, a->layer, (int)g->golden->config.L);
    snprintf(full, sizeof full, "%s/%.100s", a->gradient ? "grad" : "act", name);
    const double bound = golden_list_bound(&g->list, full);
    if (bound == 0) return OK;                          /* it is not in the file */
    const enum error_code e =
        read_tensor(g, full, a->gradient ? r->loss_scale.scale : 1, tensor_count(a->truth), &t, err);
    if (e) return e;
    const double size = size_of(t);
    const bool better = !is_behind(g, a) && is_better(bound, size, recorded_bound(&r->record, a));
    g->held += better, g->others += !better;
    if (!better) return OK;
    for (int64_t i = 0; i < tensor_count(t); i++) tensor_set(a->truth, i, tensor_get(t, i));
    a->norm = size, a->known = bound;
    return OK;
}

enum error_code golden_truth_record(struct golden_truth *g, struct reference *r, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < r->record.count && !e && r->step == 0; i++) e = record_one(g, r, &r->record.all[i], err);
    return e;
}

/* ---- choices of experts ------------------------------------------------------------------------------------------ */

static enum error_code read_choices(struct golden_truth *g, int layer, const double *bias, int32_t *experts,
                                    struct error *err)
{
    const struct mixture_config *x = &g->golden->config.mixture;
    const int64_t N = g->golden->B * g->golden->S, E = mixture_columns(x);
    char name[NAME];
    struct tensor logits = tensor_none;
    snprintf(name, sizeof name, "act/h.%d.router.logits", layer);
    double *const weights = malloc((size_t)(N * x->k) * sizeof *weights + 1);
    enum error_code e = weights ? read_tensor(g, name, 1, N * E, &logits, err)
                                : fail(err, ERR_MEMORY, "no memory for the choices of %s", name);
    if (!e)
        ops_for(F64)->route_forward(tensor_2d(weights, F64, N, x->k), tensor_2d(experts, I32, N, x->k),
                                    tensor_2d(logits.data, F64, N, E), &x->router, bias ? bias + layer * E : NULL);
    free(weights);
    return e;
}

static enum error_code read_all_choices(struct golden_truth *g, struct error *err)
{
    const struct model_config *c = &g->golden->config;
    const int64_t each = g->golden->B * g->golden->S * c->mixture.k;
    if (c->mlp != MLP_MIXTURE) return OK;
    double *const bias = calloc((size_t)(c->L * mixture_columns(&c->mixture)), sizeof *bias);
    g->experts = calloc((size_t)(c->L * each), sizeof *g->experts);
    enum error_code e = bias && g->experts ? golden_read_biases(g->golden, bias, err)
                                           : fail(err, ERR_MEMORY, "no memory for the file's choices of experts");
    for (int l = 0; l < c->L && !e; l++)
        if (layer_mlp(c, l) == MLP_MIXTURE) e = read_choices(g, l, bias, g->experts + l * each, err);
    free(bias);
    return e;
}

bool golden_truth_leaves(struct golden_truth *g, const struct reference *r)
{
    const struct routing *own = &r->routing;
    const int64_t each = own->N * own->k;
    if (g->experts == NULL || g->apart >= 0 || r->step > 0) return false;
    for (int l = 0; l < own->L && g->apart < 0; l++)
        for (int64_t i = 0; i < each && layer_mlp(&g->golden->config, l) == MLP_MIXTURE && g->apart < 0; i++)
            if (choice_made(own->theirs[l * each + i]) != g->experts[l * each + i]) g->apart = l;
    return g->apart >= 0;
}

/* ---- numbers and parameters -------------------------------------------------------------------------------------- */

/* After the first step the stored bound is relative to the norm of all steps' numbers. */
enum error_code golden_truth_number(struct golden_truth *g, const struct reference *r, const char *what, double *truth,
                                    double *bound, bool *of_file, struct error *err)
{
    double all[GOLDEN_MOST_STEPS], squares = 0;
    char name[NAME];
    const int64_t steps = g->golden->steps;
    *of_file = false;
    if (g->apart >= 0) return OK;
    snprintf(name, sizeof name, "%s/%s", r->plan->optimizer->name, what);
    const enum error_code e = golden_read(g->golden, name, F64, steps, all, err);
    if (e) return e;
    for (int64_t i = 0; i < steps; i++) squares += all[i] * all[i];
    const double size = fabs(all[r->step]),
                 far = r->step == 0 ? golden_list_bound(&g->list, what) * size
                                    : golden_list_bound(&g->list, name) * sqrt(squares);
    *of_file = is_better(far / size, size, *bound / size);
    if (*of_file) *truth = all[r->step], *bound = far;
    return OK;
}

/* The name that a parameter's tensor has in the file; false: the file has it not. */
static bool name_of(const struct golden_truth *g, const struct reference *r, int i, enum tensor_kind kind,
                    char name[NAME])
{
    const struct optimizer *o = r->plan->optimizer;
    const char *const parameter = r->truth.model.spec[i].name, *of = "weight";
    char step[24] = "";
    const bool gradient = kind == KIND_GRADIENT;
    if (gradient && r->step == 0) return snprintf(name, NAME, "grad/%s", parameter) > 0;
    if (gradient || r->step < g->golden->steps) {
        if (!g->golden->every_step) return false;
        snprintf(step, sizeof step, "%lld/", (long long)r->step + gradient);
    }
    if (gradient) of = "grad";
    else if (kind >= KIND_STATE && (int)(kind - KIND_STATE) < o->states) of = o->state_name[kind - KIND_STATE];
    else if (kind != KIND_WEIGHT && kind != KIND_MASTER) return false;
    return snprintf(name, NAME, "%s/%s%s/%s", o->name, step, of, parameter) > 0;
}

enum error_code golden_truth_tensor(struct golden_truth *g, const struct reference *r, int i, enum tensor_kind kind,
                                    struct tensor *truth, double *bound, bool *of_file, struct error *err)
{
    char name[NAME];
    struct tensor t;
    *of_file = false;
    if (!name_of(g, r, i, kind, name)) return OK;
    const double stored = golden_list_bound(&g->list, name);
    if (stored == 0) return OK;                         /* the file lacks this one */
    const enum error_code e =
        read_tensor(g, name, kind == KIND_GRADIENT ? r->loss_scale.scale : 1, tensor_count(*truth), &t, err);
    if (e) return e;
    *of_file = g->apart < 0 && is_better(stored, size_of(t), *bound);
    g->held += *of_file, g->others += !*of_file;
    if (*of_file) *truth = t, *bound = stored;
    return OK;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int64_t largest_tensor(const struct golden *g)
{
    int64_t most = 1;
    for (int i = 0; i < g->file.count; i++)
        if (g->file.entry[i].count > most) most = g->file.entry[i].count;
    return most;
}

/* In 16 bits our model must first reproduce the file: bounds hold for the model that they were measured with. */
static enum error_code find_bounds(struct golden_truth *g, const struct plan *p, struct error *err)
{
    enum error_code e = ERR_FILE;
    if (!dtype_is_narrow(p->dtype)) e = golden_stored(g->golden, p->dtype, &g->list, err);
    return e != ERR_FILE ? e
                         : golden_measure(g->golden, p->dtype, reference_parts(p),
                                          p->data.narrow_gradients ? reference_gradient_parts(p) : 1, &g->list, err);
}

enum error_code golden_truth_open(struct golden_truth *g, const struct golden *golden, struct reference *r,
                                  struct error *err)
{
    const struct plan *p = r->plan;
    *g = (struct golden_truth){ .golden = golden, .apart = -1 };
    if (r->rule.updates != 1 || r->rule.delayed || r->rule.passes_by)
        return fail(err, ERR_PLAN,
                    "--schedule %s: does not compute plain training, which is what golden files hold; --check ref "
                    "follows its rule",
                    p->schedule);
    g->room = malloc((size_t)largest_tensor(golden) * sizeof *g->room);
    enum error_code e = g->room ? OK : fail(err, ERR_MEMORY, "no memory for a tensor of the golden file");
    if (!e) e = find_bounds(g, p, err);
    if (!e) e = read_all_choices(g, err);
    if (e) golden_truth_close(g);
    else r->golden = g;
    return e;
}

void golden_truth_close(struct golden_truth *g)
{
    free(g->experts), free(g->room);
    golden_list_free(&g->list);
    *g = (struct golden_truth){ 0 };
}
