/* stale.c -- compares a wrong gradient with what another step, weights, batch or copy of the model would give.
 * emulated_devices/cli/check.c calls stale_describe for each wrong gradient from step 2 on.  A tensor that cannot
 * be read, or a model that cannot be run, gives no words and no error. */
#include "emulated_devices/check/mistakes/stale.h"
#include "ref/model/kinds.h"
#include "ref/model/operands.h"
#include "ref/model/transformer.h"
#include "emulated_devices/check/recompute/own_pass.h"
#include "emulated_devices/check/recompute/turns.h"
#include "ref/numeric/convert.h"
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
    struct error ignored;
    bool there;
    return own_tensor_read(actual, name, dim, x, &there, &ignored) == OK && there;
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

/* A pass may have the weights or the batch of the step before in place of its own.  A resumed program may begin its
 * data again.  In another hypothesis each copy
 * of the model has the tokens of the copy `turn` further.  If labels turn, too, the masks of dropout change places:
 * then `turn` is the other way.  The number in the words is that of the step before, or of the step where copies take
 * turns. */
struct other { const char *words; bool weights, batch; int turn; bool labels, again; };

static const struct other others[] = {
    { "stale weights: it is what the weights that step %d began with give", .weights = true },
    { "stale: it is what the batch of step %d gives", .batch = true },
    { "it is what the batch of step %d gives: the data have started again", .again = true },
    { "copies take turns: in step %d each of them has the inputs of the next", .turn = 1 },
    { "copies take turns: in step %d each of them has the inputs of the one before", .turn = -1 },
    { "copies take turns: in step %d each of them has the masks of the next", .turn = -1, .labels = true },
    { "copies take turns: in step %d each of them has the masks of the one before", .turn = 1, .labels = true },
};

/* A program whose gradient is explained: its own weights are those that passes begin with. */
struct stale { const struct golden *golden; const struct actual *actual; char optimizer[32]; int copies; };

/* Read the weights that step k, from 1, began with. */
static enum error_code weights_before(const struct stale *stale, struct transformer *model, int k, struct error *err)
{
    struct own_weights own;
    const enum error_code e = own_weights_read(&own, stale->golden, stale->actual, stale->optimizer, k - 1, err);
    if (e) return e;
    for (int i = 0; i < model->params && own.complete; i++) tensor_convert(model->w[i], own.all[i]);
    const bool complete = own.complete;
    own_weights_free(&own);
    return complete ? OK : fail(err, ERR_CHECK, "ACTUAL has not all weights before step %d", k);
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
static enum error_code biases_after(const struct stale *stale, struct transformer *model, int steps, struct error *err)
{
    const struct golden *g = stale->golden;
    const int64_t n = g->B * g->S;
    const bool moves = model->config.mlp == MLP_MIXTURE && model->config.mixture.router.biased;
    bool there;
    enum error_code e = golden_read_biases(g, model->router_bias, err);
    if (!e && moves) e = own_biases_read(g, stale->actual, stale->optimizer, steps, model->router_bias, &there, err);
    if (e || !moves || there) return e;
    for (int k = 0; k < steps && moves && !e; k++) {
        const struct stale_batch own = { g->ids + k * n, g->labels + k * n, golden_positions(g, k, 0) };
        e = weights_before(stale, model, k + 1, err);
        if (!e) e = stale_forward(model, g, &own, k, err);
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
static enum error_code stale_run(const struct stale *stale, struct transformer *model, const struct other *other,
                                 int step, struct error *err)
{
    const struct golden *g = stale->golden;
    const int64_t n = g->B * g->S;
    int32_t *tokens = malloc(3 * (size_t)n * sizeof *tokens + 1);
    if (tokens == NULL) return fail(err, ERR_MEMORY, "no memory for a batch");
    const int begins = (int)stale->actual->begins;
    stale_fill(g, other, stale->copies, other->batch ? step - 1 : other->again ? step - begins : step, tokens);
    const struct stale_batch batch = { tokens, tokens + n, g->positions ? tokens + 2 * n : NULL };
    enum error_code e = biases_after(stale, model, step, err);
    if (!e) e = weights_before(stale, model, other->weights ? step : step + 1, err);
    if (!e) e = stale_forward(model, g, &batch, step, err);
    if (!e) transformer_backward(model);
    free(tokens);
    return e;
}

/* Run the model for one hypothesis and copy the gradient of one parameter.  @return whether that was possible. */
static bool stale_gradient(const struct stale *stale, const struct other *other, const char *param, int step,
                           double *out)
{
    struct transformer m;
    struct error ignored;
    bool found = false;
    if (transformer_open(&m, &stale->golden->config, F64, stale->golden->seed, &ignored) != OK) return false;
    const bool done = stale_run(stale, &m, other, step, &ignored) == OK;
    /* stale_run has left all gradients of step + 1 in m.g. */
    for (int i = 0; i < m.params && done; i++)
        if (strcmp(m.spec[i].name, param) == 0) memcpy(out, m.g[i].data, tensor_bytes(m.g[i])), found = true;
    transformer_close(&m);
    return found;
}

/* Whether the hypothesis cannot apply: too few copies or sequences, or no dropout whose masks could turn. */
static bool stale_cannot(const struct golden *golden, const struct other *other, int copies, int64_t begins)
{
    /* After one step the data of step 1 are those of the step before. */
    if (other->again) return begins < 2;
    const struct model_config *c = &golden->config;
    const bool drops = c->dropout_embedding > 0 || c->dropout_residual > 0 || c->dropout_attention > 0;
    return other->turn && (copies < ((other->turn > 0) == other->labels ? 3 : 2) || copies > golden->B
                           || (other->labels && !drops));
}

/* Whether the program's gradient is that of the hypothesis.  In 16 bits bounds are wide, so the gradient must also
 * be twice nearer than to what is right. */
static bool is_near(const double *have, const double *other, const double *right, int64_t n, double bound)
{
    double off = 0, size = 0, otherwise = 0;
    for (int64_t i = 0; i < n; i++) {
        const double want = other[i], d = have[i] - want, e = have[i] - right[i];
        off += d * d, size += want * want, otherwise += e * e;
    }
    return sqrt(off) <= bound * sqrt(size) && sqrt(off) <= sqrt(otherwise) / 2;
}

/* The first hypothesis that fits; step + 1 must be in the golden file.  given: the program's gradient, then room for
 * a hypothesis's, then the right one. */
static const struct other *other_pass(const struct stale *stale, const char *param, int step, double *given, int64_t n,
                                      double bound)
{
    for (size_t k = 0; k < sizeof others / sizeof *others && step < stale->golden->steps; k++)
        if (!stale_cannot(stale->golden, &others[k], stale->copies, stale->actual->begins)
            && stale_gradient(stale, &others[k], param, step, given + n)
            && is_near(given, given + n, given + 2 * n, n, bound))
            return &others[k];
    return NULL;
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

const char *stale_describe(char *out, size_t size, const struct golden *golden, const struct actual *actual,
                           const char *name, double bound)
{
    char old_name[160];
    const struct safetensors_entry *entry = safetensors_find(&golden->file, name);
    const int step = stale_before(name, old_name, sizeof old_name);
    out[0] = 0;
    if (step == 0 || entry == NULL || entry->ndim < 1) return out;
    const int64_t dim[2] = { entry->dim[0], entry->ndim > 1 ? entry->dim[1] : 1 }, n = dim[0] * dim[1];
    struct stale stale = { .golden = golden, .actual = actual, .copies = actual->mesh.size[DP] };
    const char *const param = strstr(name, "/grad/") + strlen("/grad/");
    snprintf(stale.optimizer, sizeof stale.optimizer, "%.*s", (int)strcspn(name, "/"), name);
    /* These are three tensors of n numbers: the program's, that of the step before, and the right one. */
    double *have = calloc(3 * (size_t)n + 1, sizeof *have);
    const bool has_old = have && is_there(actual, old_name, dim, have + n);
    /* A resumed program does not show the gradient of the step before it begins. */
    if (have && (has_old || step == actual->begins) && is_there(actual, name, dim, have) &&
        stale_gradient(&stale, &(struct other){ 0 }, param, step, have + 2 * n)) {
        const char *format = !has_old ? NULL : words(have, have + n, have + 2 * n, n, bound);
        /* Running the model is slow, so passes are tried only if the old gradient explains nothing. */
        const struct other *o = format ? NULL : other_pass(&stale, param, step, have, n, bound);
        const int number = o && o->turn ? step + 1 : o && o->again ? step - (int)actual->begins + 1 : step;
        if (format || o) snprintf(out, size, format ? format : o->words, number);
    }
    free(have);
    return out;
}
