/* stale.c -- compares a wrong gradient with what another step, weights, batch or copy of the model would give.
 * emulated_devices/cli/check.c calls stale_describe for each wrong gradient from step 2 on.  A tensor that cannot
 * be read, or a model that cannot be run, gives no words and no error. */
#include "emulated_devices/check/mistakes/stale.h"
#include "ref/model/operands.h"
#include "ref/model/transformer.h"
#include "emulated_devices/check/recompute/turns.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Write the name that the gradient has in the step before, as "grad/wte.weight" for step 1.  @return the step
 * before; 0 if there is none. */
static int stale_before(const char *name, char *out, size_t size)
{
    const char *slash = strchr(name, '/'), *grad = strstr(name, "/grad/");
    const int step = slash && grad && grad != slash ? atoi(slash + 1) : 0;
    if (step < 2) return 0;
    /* The first step's tensors have no prefix. */
    if (step == 2) snprintf(out, size, "%s", grad + 1);
    else snprintf(out, size, "%.*s/%d%s", (int)(slash - name), name, step - 1, grad);
    return step - 1;
}

/* Whether ACTUAL has all of the tensor; then x has its numbers. */
static bool is_there(const struct actual *actual, const char *name, const int64_t dim[2], double *x)
{
    struct assembly all;
    struct error ignored;
    return assembly_make(&all, actual, name, dim, x, NULL, &ignored) == OK && all.any && all.missing == 0;
}

/* Compare with the old gradient: equal numbers are stale, a sum of both was not cleared.  @return NULL: neither. */
static const char *words(const double *have, const double *old, const double *right, int64_t n, double bound)
{
    double off = 0, size = 0;
    bool same = true;
    for (int64_t i = 0; i < n; i++) {
        const double d = have[i] - old[i] - right[i];
        same = same && have[i] == old[i];
        off += d * d, size += right[i] * right[i];
    }
    if (same) return "stale: it is that of step %d";
    return sqrt(off) <= bound * sqrt(size) ? "that of step %d has been added to it: it is not cleared" : NULL;
}

/* ---- another pass ------------------------------------------------------------------------------------------------ */

/* A pass may have the weights or the batch of the step before in place of its own.  In another hypothesis each copy
 * of the model has the tokens of the copy `turn` further.  If labels turn, too, the masks of dropout change places:
 * then `turn` is the other way.  The number in the words is that of the step before, or of the step where copies take
 * turns. */
struct other { const char *words; bool weights, batch; int turn; bool labels; };

static const struct other others[] = {
    { "stale weights: it is what the weights that step %d began with give", .weights = true },
    { "stale: it is what the batch of step %d gives", .batch = true },
    { "copies take turns: in step %d each of them has the inputs of the next", .turn = 1 },
    { "copies take turns: in step %d each of them has the inputs of the one before", .turn = -1 },
    { "copies take turns: in step %d each of them has the masks of the next", .turn = -1, .labels = true },
    { "copies take turns: in step %d each of them has the masks of the one before", .turn = 1, .labels = true },
};

/* Read the weights that step k, from 1, began with. */
static enum error_code weights_before(struct transformer *model, const struct golden *golden,
                                      const char *optimizer, int k, struct error *err)
{
    char name[160];
    enum error_code e = OK;
    for (int i = 0; i < model->params && !e; i++) {
        if (k == 1) snprintf(name, sizeof name, "start/%s", model->spec[i].name);
        else snprintf(name, sizeof name, "%.31s/%d/weight/%.*s", optimizer, k - 1, PARAM_NAME, model->spec[i].name);
        e = golden_read(golden, name, F64, tensor_count(model->w[i]), model->w[i].data, err);
    }
    return e;
}

/* The tokens of a pass; positions: NULL: they are not packed. */
struct stale_batch { const int32_t *ids, *labels, *positions; };

/* Run the model on a batch with the masks of dropout that this step draws. */
static enum error_code stale_forward(struct transformer *model, const struct golden *golden,
                                     const struct stale_batch *batch, int step, struct error *err)
{
    double loss;
    model->seed = dropout_seed(golden->seed, step), model->packed = batch->positions;
    const enum error_code e = transformer_forward(model, batch->ids, batch->labels, golden->B, golden->S, &loss, err);
    model->packed = NULL;
    return e;
}

/* Set the corrections of routers after so many steps.  Files have those of the start; the rest follows from the
 * experts that each step's tokens chose.  So all steps are run again. */
static enum error_code biases_after(struct transformer *model, const struct golden *golden,
                                    const char *optimizer, int steps, struct error *err)
{
    const int64_t n = golden->B * golden->S;
    const bool moves = model->config.mlp == MLP_MIXTURE && model->config.mixture.router.biased;
    enum error_code e = golden_read_biases(golden, model->router_bias, err);
    for (int k = 0; k < steps && moves && !e; k++) {
        e = weights_before(model, golden, optimizer, k + 1, err);
        const struct stale_batch own = { golden->ids + k * n, golden->labels + k * n, golden_positions(golden, k, 0) };
        if (!e) e = stale_forward(model, golden, &own, k, err);
        if (!e) transformer_move_biases(model);
    }
    return e;
}

/* Fill the tokens of a step as the hypothesis has them: [3 n] ids, labels, then positions of packed documents. */
static void stale_fill(const struct golden *golden, const struct other *other, int copies, int step, int32_t *to)
{
    const int64_t n = golden->B * golden->S, at = step * n;
    for (int64_t i = 0; i < n; i++) {
        const int64_t turned = other->turn
            ? part_turned(golden->B, copies, other->turn, i / golden->S) * golden->S + i % golden->S : i;
        to[i] = golden->ids[at + turned], to[n + i] = golden->labels[at + (other->labels ? turned : i)];
        if (golden->positions) to[2 * n + i] = golden->positions[at + turned];
    }
}

/* Compute all gradients of step + 1 with the hypothesis in place of what is right. */
static enum error_code stale_run(struct transformer *model, const struct golden *golden,
                                 const struct other *other, int copies,
                                 const char *optimizer, int step, struct error *err)
{
    const int64_t n = golden->B * golden->S;
    int32_t *tokens = malloc(3 * (size_t)n * sizeof *tokens + 1);
    if (tokens == NULL) return fail(err, ERR_MEMORY, "no memory for a batch");
    stale_fill(golden, other, copies, other->batch ? step - 1 : step, tokens);
    enum error_code e = biases_after(model, golden, optimizer, step, err);
    if (!e) e = weights_before(model, golden, optimizer, other->weights ? step : step + 1, err);
    const struct stale_batch batch = { tokens, tokens + n, golden->positions ? tokens + 2 * n : NULL };
    if (!e) e = stale_forward(model, golden, &batch, step, err);
    if (!e) transformer_backward(model);
    free(tokens);
    return e;
}

/* Whether the hypothesis cannot apply: too few copies or sequences, or no dropout whose masks could turn. */
static bool stale_cannot(const struct golden *golden, const struct other *other, int copies)
{
    const struct model_config *c = &golden->config;
    const bool drops = c->dropout_embedding > 0 || c->dropout_residual > 0 || c->dropout_attention > 0;
    return other->turn && (copies < ((other->turn > 0) == other->labels ? 3 : 2) || copies > golden->B
                           || (other->labels && !drops));
}

/* Whether the program's gradient is that of the hypothesis.  In 16 bits bounds are wide, so the gradient must also
 * be twice nearer than to what is right. */
static bool is_near(const double *have, struct tensor y, const double *right, double bound)
{
    double off = 0, size = 0, otherwise = 0;
    for (int64_t i = 0; i < tensor_count(y); i++) {
        const double want = tensor_get(y, i), d = have[i] - want, e = have[i] - right[i];
        off += d * d, size += want * want, otherwise += e * e;
    }
    return sqrt(off) <= bound * sqrt(size) && sqrt(off) <= sqrt(otherwise) / 2;
}

/* Run the model for one hypothesis and compare the gradient of one parameter.  name: "adamw/2/grad/wte.weight". */
static bool is_of(const struct golden *golden, const struct other *other, int copies, const char *name, int step,
                  const double *have, const double *right, double bound)
{
    struct transformer m;
    struct error ignored;
    char optimizer[32];
    bool same = false;
    const char *param = strstr(name, "/grad/") + strlen("/grad/");
    snprintf(optimizer, sizeof optimizer, "%.*s", (int)strcspn(name, "/"), name);
    if (stale_cannot(golden, other, copies) || transformer_open(&m, &golden->config, F64, golden->seed, &ignored) != OK)
        return false;
    const bool done = stale_run(&m, golden, other, copies, optimizer, step, &ignored) == OK;
    /* stale_run has left all gradients of step + 1 in m.g. */
    for (int i = 0; i < m.params && done; i++)
        if (strcmp(m.spec[i].name, param) == 0) same = is_near(have, m.g[i], right, bound);
    transformer_close(&m);
    return same;
}

/* The first hypothesis that fits; step + 1 must be in the golden file. */
static const struct other *other_pass(const struct golden *golden, int copies, const char *name, int step,
                                      const double *have, const double *right, double bound)
{
    for (size_t k = 0; k < sizeof others / sizeof *others && step < golden->steps; k++)
        if (is_of(golden, &others[k], copies, name, step, have, right, bound)) return &others[k];
    return NULL;
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

const char *stale_describe(char *out, size_t size, const struct golden *golden, const struct actual *actual,
                           const char *name, double bound)
{
    char old_name[160];
    struct error ignored;
    const struct safetensors_entry *entry = safetensors_find(&golden->file, name);
    const int step = stale_before(name, old_name, sizeof old_name);
    out[0] = 0;
    if (step == 0 || entry == NULL || entry->ndim < 1) return out;
    const int64_t dim[2] = { entry->dim[0], entry->ndim > 1 ? entry->dim[1] : 1 }, n = dim[0] * dim[1];
    /* These are three tensors of n numbers: the program's, that of the step before, and the right one. */
    double *have = calloc(3 * (size_t)n + 1, sizeof *have);
    if (have && is_there(actual, name, dim, have) && is_there(actual, old_name, dim, have + n) &&
        golden_read(golden, name, F64, n, have + 2 * n, &ignored) == OK) {
        const char *format = words(have, have + n, have + 2 * n, n, bound);
        /* Running the model is slow, so passes are tried only if the old gradient explains nothing. */
        const struct other *o =
            format ? NULL : other_pass(golden, actual->mesh.size[DP], name, step, have, have + 2 * n, bound);
        if (format || o) snprintf(out, size, format ? format : o->words, o && o->turn ? step + 1 : step);
    }
    free(have);
    return out;
}
