/* golden_truth.c -- decides tensor by tensor whether a golden file's numbers or the one-device run's are the truth.
 * Rank 0 alone calls, from compare.c.  ERR_PLAN is a schedule that does not train plainly.  ERR_FORMAT and ERR_FILE
 * come from reading the file, ERR_MEMORY from room for its tensors. */
#include "emulated_devices/verify/reference/golden_truth.h"
#include "emulated_devices/verify/judgement.h"
#include "ref/golden/bounds.h"
#include "ref/model/kinds.h"
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
static enum error_code read_tensor(struct golden_truth *truth, const char *name, double scale, int64_t count,
                                   struct tensor *tensor, struct error *err)
{
    *tensor = tensor_1d(truth->room, F64, count);
    const enum error_code e = golden_read(truth->golden, name, F64, count, truth->room, err);
    for (int64_t i = 0; i < count && !e && scale != 1; i++) truth->room[i] *= scale;
    return e;
}

/* The norm of a tensor is its distance from zero. */
static double golden_truth_size_of(struct tensor t) { return sqrt(squared_distance(t, tensor_none)); }

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* Whether a tensor of the pass comes after the first choice that is not the file's. */
static bool is_behind(const struct golden_truth *truth, const struct recorded *recorded)
{
    if (truth->apart < 0) return false;
    if (recorded->gradient || recorded->layer > truth->apart) return true;
    return recorded->layer == truth->apart
           && (strncmp(recorded->name, "router.", 7) == 0 ? strcmp(recorded->name, "router.logits") != 0
               : strncmp(recorded->name, "routed.", 7) == 0 || strncmp(recorded->name, "mlp.", 4) == 0 ||
                                          strncmp(recorded->name, "shared.", 7) == 0
                                              || strcmp(recorded->name, "out") == 0);
}

/* Keep the file's tensor beside a recorded activation, whose own numbers are the devices' truth. */
static enum error_code keep_beside(struct recorded *recorded, struct tensor t, double bound, struct error *err)
{
    struct tensor copy = t;
    copy.data = malloc(tensor_bytes(t) + 1);
    if (copy.data == NULL) return fail(err, ERR_MEMORY, "no memory for a tensor of the golden file");
    memcpy(copy.data, t.data, tensor_bytes(t));
    free(recorded->file.data);
    recorded->file = copy, recorded->known = bound;
    return OK;
}

/* Put the file's numbers into one recorded activation, if they are the better truth; both outcomes are counted. */
static enum error_code record_one(struct golden_truth *truth, struct reference *reference, struct recorded *recorded,
                                  struct error *err)
{
    char name[NAME], full[NAME];
    struct tensor t;
    activation_name(name, sizeof name, recorded->name, recorded->layer, (int)truth->golden->config.L);
    snprintf(full, sizeof full, "%s/%.100s", recorded->gradient ? "grad" : "act", name);
    /* Gradients are stored without the loss scale, so the file's are multiplied when they are read. */
    const double bound = golden_list_bound(&truth->list, full);
    if (bound == 0) return OK;                          /* it is not in the file */
    const enum error_code e =
        read_tensor(truth, full, recorded->gradient ? reference->loss_scale.scale : 1,
                    tensor_count(recorded->truth), &t, err);
    if (e) return e;
    const double size = golden_truth_size_of(t);
    const bool better = !is_behind(truth, recorded)
        && is_better(bound, size, recorded_bound(&reference->record, recorded));
    truth->held += better, truth->others += !better;
    if (!better) return OK;
    if (reference->plan->model.exact) return keep_beside(recorded, t, bound, err);
    /* The devices compare in their own format: the file's fp64 numbers are rounded here. */
    for (int64_t i = 0; i < tensor_count(t); i++) tensor_set(recorded->truth, i, tensor_get(t, i));
    recorded->norm = size, recorded->known = bound;
    return OK;
}

enum error_code golden_truth_record(struct golden_truth *truth, struct reference *reference, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < reference->record.count && !e && reference->step == 0; i++)
        e = record_one(truth, reference, &reference->record.all[i], err);
    return e;
}

/* ---- choices of experts ------------------------------------------------------------------------------------------ */

/* experts [N, k] = the choices that the router makes from the file's logits [N, E], with the file's biases.  The
 * weights are computed along with them and thrown away. */
static enum error_code read_choices(struct golden_truth *truth, int layer, const double *bias, int32_t *experts,
                                    struct error *err)
{
    const struct mixture_config *x = &truth->golden->config.mixture;
    const int64_t N = truth->golden->B * truth->golden->S, E = mixture_columns(x);
    char name[NAME];
    struct tensor logits = tensor_none;
    snprintf(name, sizeof name, "act/h.%d.router.logits", layer);
    double *const weights = malloc((size_t)(N * x->k) * sizeof *weights + 1);
    enum error_code e = weights ? read_tensor(truth, name, 1, N * E, &logits, err)
                                : fail(err, ERR_MEMORY, "no memory for the choices of %s", name);
    if (!e)
        ops_for(F64)->route_forward(tensor_2d(weights, F64, N, x->k), tensor_2d(experts, I32, N, x->k),
                                    tensor_2d(logits.data, F64, N, E), &x->router, bias ? bias + layer * E : NULL);
    free(weights);
    return e;
}

/* Read the file's choices of the first step for all mixture layers: experts [L, N, k]. Models without a mixture have
 * no such choices. */
static enum error_code read_all_choices(struct golden_truth *truth, struct error *err)
{
    const struct model_config *c = &truth->golden->config;
    const int64_t each = truth->golden->B * truth->golden->S * c->mixture.k;
    if (c->mlp != MLP_MIXTURE) return OK;
    double *const bias = calloc((size_t)(c->L * mixture_columns(&c->mixture)), sizeof *bias);
    truth->experts = calloc((size_t)(c->L * each), sizeof *truth->experts);
    enum error_code e = bias && truth->experts ? golden_read_biases(truth->golden, bias, err)
                                           : fail(err, ERR_MEMORY, "no memory for the file's choices of experts");
    for (int l = 0; l < c->L && !e; l++)
        if (layer_mlp(c, l) == MLP_MIXTURE) e = read_choices(truth, l, bias, truth->experts + l * each, err);
    free(bias);
    return e;
}

bool golden_truth_leaves(struct golden_truth *truth, const struct reference *reference)
{
    const struct routing *own = &reference->routing;
    const int64_t each = own->N * own->k;
    if (truth->experts == NULL || truth->apart >= 0 || reference->step > 0) return false;
    /* The first layer with another choice is remembered.  From there on the file describes another function. */
    for (int l = 0; l < own->L && truth->apart < 0; l++)
        for (int64_t i = 0; i < each && layer_mlp(&truth->golden->config, l) == MLP_MIXTURE && truth->apart < 0; i++)
            if (choice_made(own->theirs[l * each + i]) != truth->experts[l * each + i]) truth->apart = l;
    return truth->apart >= 0;
}

/* ---- numbers and parameters -------------------------------------------------------------------------------------- */

/* After the first step the stored bound is relative to the norm of all steps' numbers. */
enum error_code golden_truth_number(struct golden_truth *golden_truth, const struct reference *reference,
                                    const char *what, double *truth, double *bound, bool *of_file, struct error *err)
{
    double all[GOLDEN_MOST_STEPS], squares = 0;
    char name[NAME];
    const int64_t steps = golden_truth->golden->steps;
    *of_file = false;
    if (golden_truth->apart >= 0) return OK;
    snprintf(name, sizeof name, "%s/%s", reference->plan->optimizer->name, what);
    const enum error_code e = golden_read(golden_truth->golden, name, F64, steps, all, err);
    if (e) return e;
    for (int64_t i = 0; i < steps; i++) squares += all[i] * all[i];
    const double size = fabs(all[reference->step]),
                 far = reference->step == 0 ? golden_list_bound(&golden_truth->list, what) * size
                                    : golden_list_bound(&golden_truth->list, name) * sqrt(squares);
    /* `far` is absolute; is_better compares relative bounds. */
    *of_file = is_better(far / size, size, *bound / size);
    if (*of_file) *truth = all[reference->step], *bound = far;
    return OK;
}

/* The name that a parameter's tensor has in the file; false: the file has it not. */
static bool golden_truth_name_of(const struct golden_truth *truth, const struct reference *reference, int i,
                                 enum tensor_kind kind, char name[NAME])
{
    const struct optimizer *o = reference->plan->optimizer;
    const char *const parameter = reference->truth.model.spec[i].name, *of = "weight";
    char step[24] = "";
    const bool gradient = kind == KIND_GRADIENT;
    /* The first step's gradients have no optimizer in their name, as they do not depend on it. */
    if (gradient && reference->step == 0) return snprintf(name, NAME, "grad/%s", parameter) > 0;
    /* Only a file that keeps every step has tensors between the first gradients and the last weights. */
    if (gradient || reference->step < truth->golden->steps) {
        if (!truth->golden->every_step) return false;
        snprintf(step, sizeof step, "%lld/", (long long)reference->step + gradient);
    }
    if (gradient) of = "grad";
    else if (kind >= KIND_STATE && (int)(kind - KIND_STATE) < o->states) of = o->state_name[kind - KIND_STATE];
    else if (kind != KIND_WEIGHT && kind != KIND_MASTER) return false;
    return snprintf(name, NAME, "%s/%s%s/%s", o->name, step, of, parameter) > 0;
}

enum error_code golden_truth_tensor(struct golden_truth *golden_truth, const struct reference *reference, int i,
                                    enum tensor_kind kind,
                                    struct tensor *truth, double *bound, bool *of_file, struct error *err)
{
    char name[NAME];
    struct tensor t;
    *of_file = false;
    if (!golden_truth_name_of(golden_truth, reference, i, kind, name)) return OK;
    const double stored = golden_list_bound(&golden_truth->list, name);
    if (stored == 0) return OK;                         /* the file lacks this one */
    const enum error_code e =
        read_tensor(golden_truth, name, kind == KIND_GRADIENT ? reference->loss_scale.scale : 1,
                    tensor_count(*truth), &t, err);
    if (e) return e;
    /* After another choice of experts the file's gradients are those of another function. */
    *of_file = golden_truth->apart < 0 && is_better(stored, golden_truth_size_of(t), *bound);
    golden_truth->held += *of_file, golden_truth->others += !*of_file;
    if (*of_file) *truth = t, *bound = stored;
    return OK;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* The file's largest tensor decides the size of the room, which serves all reads. */
static int64_t largest_tensor(const struct golden *golden)
{
    int64_t most = 1;
    for (int i = 0; i < golden->file.count; i++)
        if (golden->file.entry[i].count > most) most = golden->file.entry[i].count;
    return most;
}

/* In 16 bits our model must first reproduce the file: bounds hold for the model that they were measured with. */
static enum error_code find_bounds(struct golden_truth *truth, const struct plan *plan, struct error *err)
{
    /* Exact sums travel before they are rounded, so none is stored in parts. */
    const int parts = plan->model.exact ? 1 : reference_parts(plan),
              gradient_parts = plan->data.narrow_gradients ? reference_gradient_parts(plan) : 1;
    enum error_code e = ERR_FILE;
    if (!dtype_is_narrow(plan->dtype)) e = golden_stored(truth->golden, plan->dtype, &truth->list, err);
    if (e == ERR_FILE) e = golden_measure(truth->golden, plan->dtype, parts, gradient_parts, &truth->list, err);
    return e || !plan->model.exact ? e : golden_add_grids(truth->golden, plan->model.exact, &truth->list, err);
}

enum error_code golden_truth_open(struct golden_truth *truth, const struct golden *golden, struct reference *reference,
                                  struct error *err)
{
    const struct plan *p = reference->plan;
    *truth = (struct golden_truth){ .golden = golden, .apart = -1 };
    /* Delayed or partial pipelines train by another rule than the file's program. */
    if (reference->rule.updates != 1 || reference->rule.delayed || reference->rule.passes_by)
        return fail(err, ERR_PLAN,
                    "--schedule %s: does not compute plain training, which is what golden files hold; --check ref "
                    "follows its rule",
                    p->schedule);
    truth->room = malloc((size_t)largest_tensor(golden) * sizeof *truth->room);
    enum error_code e = truth->room ? OK : fail(err, ERR_MEMORY, "no memory for a tensor of the golden file");
    if (!e) e = find_bounds(truth, p, err);
    if (!e) e = read_all_choices(truth, err);
    if (e) golden_truth_close(truth);
    else reference->golden = truth;
    return e;
}

void golden_truth_close(struct golden_truth *truth)
{
    free(truth->experts), free(truth->room);
    golden_list_free(&truth->list);
    *truth = (struct golden_truth){ 0 };
}
