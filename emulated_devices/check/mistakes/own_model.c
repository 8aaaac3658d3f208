/* own_model.c -- puts the weights and corrections of another program into our model, and runs it.
 * mistakes/stale.c and mistakes/sequences.c call these functions.  What the program lacks is an error, ERR_CHECK, which
 * they take for the lack of an explanation. */
#include "emulated_devices/check/mistakes/own_model.h"
#include "emulated_devices/check/recompute/own_pass.h"
#include "ref/model/kinds.h"
#include "ref/model/loss_rule.h"
#include "ref/model/operands.h"
#include "ref/model/transformer.h"
#include "ref/numeric/convert.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Losses of routers are of the batch: the gradient is then no sum over sequences. */
static bool has_balance(const struct model_config *config)
{
    const struct mixture_config *const m = &config->mixture;
    return config->mlp == MLP_MIXTURE
           && (m->balance_coefficient != 0 || m->z_coefficient != 0 || m->sequence_coefficient != 0);
}

/* Set the weights after so many steps. */
static enum error_code own_model_weights(const struct own_program *program, struct transformer *model, int steps,
                                         struct error *err)
{
    struct own_weights own;
    const enum error_code e = own_weights_read(&own, program->golden, program->actual, program->optimizer, steps, err);
    if (e) return e;
    for (int i = 0; i < model->params && own.complete; i++) tensor_convert(model->w[i], own.all[i]);
    const bool complete = own.complete;
    own_weights_free(&own);
    return complete ? OK : fail(err, ERR_CHECK, "ACTUAL has not all weights before step %d", steps + 1);
}

static enum error_code own_model_forward(const struct own_program *program, struct transformer *model,
                                         const struct own_batch *batch, int step, struct error *err)
{
    double loss;
    model->seed = dropout_seed(program->golden->seed, step), model->packed = batch->positions;
    model->first = batch->first;
    const enum error_code e = transformer_forward(model, batch->ids, batch->labels, batch->B, program->golden->S,
                                                  &loss, err);
    model->packed = NULL, model->first = 0;
    return e;
}

/* Set the corrections of routers after so many steps: those that ACTUAL has, else all these steps are run. */
static enum error_code own_model_biases(const struct own_program *program, struct transformer *model, int steps,
                                        struct error *err)
{
    const struct golden *g = program->golden;
    const int64_t n = g->B * g->S;
    const bool moves = model->config.mlp == MLP_MIXTURE && model->config.mixture.router.biased;
    bool there = false;
    enum error_code e = golden_read_biases(g, model->router_bias, err);
    if (!e && moves)
        e = own_biases_read(g, program->actual, program->optimizer, steps, model->router_bias, &there, err);
    if (e || there) return e;
    for (int k = 0; k < steps && moves && !e; k++) {
        const struct own_batch own = { g->ids + k * n, g->labels + k * n, golden_positions(g, k, 0), g->B, 0 };
        e = own_model_weights(program, model, k, err);
        if (!e) e = own_model_forward(program, model, &own, k, err);
        if (!e) transformer_move_biases(model);
    }
    return e;
}

struct transformer *own_model_open(const struct own_program *program, int step, int weights, bool balanced)
{
    struct model_config config = program->golden->config;
    struct transformer *const model = calloc(1, sizeof *model);
    struct error ignored;
    if (!balanced)
        config.mixture.balance_coefficient = config.mixture.z_coefficient = config.mixture.sequence_coefficient = 0;
    if (model == NULL || transformer_open(model, &config, F64, program->golden->seed, &ignored) != OK)
        return free(model), NULL;
    if (own_model_biases(program, model, step, &ignored) == OK &&
        own_model_weights(program, model, weights, &ignored) == OK)
        return model;
    return own_model_close(model), NULL;
}

void own_model_close(struct transformer *model)
{
    transformer_close(model);
    free(model);
}

/* ---- one sequence after the other -------------------------------------------------------------------------------- */

static int64_t count_labels(const int32_t *labels, int64_t n)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < n; i++) counted += labels[i] >= 0;
    return counted;
}

/* Run the sequences that have labels.  divisors: of the rows of the batch; NULL: each label counts as one of `labels`,
 * and the model divides by the sequence's own. */
static enum error_code run_sequences(struct transformer *model, const struct own_batch *batch, int64_t S,
                                     double *divisors, int64_t labels, struct error *err)
{
    enum error_code e = OK;
    for (int64_t s = 0; s < batch->B && !e; s++) {
        const int64_t own = count_labels(batch->labels + s * S, S);
        double loss;
        if (own == 0) continue;
        model->packed = batch->positions ? batch->positions + s * S : NULL, model->first = batch->first + s;
        model->divisors = divisors ? divisors + s * S : NULL;
        model->loss_scale = divisors ? 1 : (double)own / (double)labels;
        e = transformer_forward(model, batch->ids + s * S, batch->labels + s * S, 1, S, &loss, err);
        if (!e) transformer_backward(model);
    }
    model->packed = NULL, model->divisors = NULL, model->first = 0, model->loss_scale = 1;
    return e;
}

enum error_code own_model_batch(struct transformer *model, const struct own_batch *batch, int64_t S, struct error *err)
{
    const struct model_config *c = &model->config;
    double loss;
    transformer_zero_gradients(model);
    if (has_balance(c)) {
        model->packed = batch->positions, model->first = batch->first;
        const enum error_code e = transformer_forward(model, batch->ids, batch->labels, batch->B, S, &loss, err);
        if (!e) transformer_backward(model);
        model->packed = NULL, model->first = 0;
        return e;
    }
    double *divisors = NULL;
    if (!loss_rule_is_usual(&c->loss)) {
        divisors = malloc((size_t)(batch->B * S) * sizeof *divisors + 1);
        if (divisors == NULL) return fail(err, ERR_MEMORY, "no memory for the divisors of a batch");
        loss_divisors(&c->loss, batch->labels, batch->B, S, divisors);
    }
    const enum error_code e = run_sequences(model, batch, S, divisors, count_labels(batch->labels, batch->B * S), err);
    free(divisors);
    return e;
}

bool own_model_run(const struct own_program *program, struct transformer *model, const struct own_batch *batch,
                   int step)
{
    struct error ignored;
    model->seed = dropout_seed(program->golden->seed, step);
    return own_model_batch(model, batch, program->golden->S, &ignored) == OK;
}

bool own_model_is_balanced(const struct golden *golden) { return has_balance(&golden->config); }

bool own_model_has(const struct golden *golden, const char *param)
{
    char name[160];
    snprintf(name, sizeof name, "start/%.150s", param);
    return safetensors_find(&golden->file, name) != NULL;
}

const struct tensor *own_model_gradient(const struct transformer *model, const char *param)
{
    for (int i = 0; i < model->params; i++)
        if (strcmp(model->spec[i].name, param) == 0) return &model->g[i];
    return NULL;
}
