/* own_model.c -- puts the weights and corrections of another program into our model, and runs it.
 * mistakes/stale.c and mistakes/sequences.c call these functions.  What the program lacks is an error, ERR_CHECK, which
 * they take for the lack of an explanation. */
#include "emulated_devices/check/mistakes/own_model.h"
#include "emulated_devices/check/recompute/own_pass.h"
#include "ref/model/kinds.h"
#include "ref/model/operands.h"
#include "ref/model/params.h"
#include "ref/numeric/convert.h"
#include <string.h>

enum error_code own_model_weights(const struct own_program *program, struct transformer *model, int steps,
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

enum error_code own_model_forward(const struct own_program *program, struct transformer *model,
                                  const struct own_batch *batch, int step, struct error *err)
{
    double loss;
    model->seed = dropout_seed(program->golden->seed, step), model->packed = batch->positions;
    const enum error_code e = transformer_forward(model, batch->ids, batch->labels, batch->B, program->golden->S,
                                                  &loss, err);
    model->packed = NULL;
    return e;
}

enum error_code own_model_biases(const struct own_program *program, struct transformer *model, int steps,
                                 struct error *err)
{
    const struct golden *g = program->golden;
    const int64_t n = g->B * g->S;
    const bool moves = model->config.mlp == MLP_MIXTURE && model->config.mixture.router.biased;
    enum error_code e = golden_read_biases(g, model->router_bias, err);
    for (int k = 0; k < steps && moves && !e; k++) {
        const struct own_batch own = { g->ids + k * n, g->labels + k * n, golden_positions(g, k, 0), g->B };
        e = own_model_weights(program, model, k, err);
        if (!e) e = own_model_forward(program, model, &own, k, err);
        if (!e) transformer_move_biases(model);
    }
    return e;
}

bool own_model_has(const struct golden *golden, const char *param)
{
    for (int i = 0; i < model_param_count(&golden->config); i++) {
        const struct param_spec spec = model_param(&golden->config, i);
        if (strcmp(spec.name, param) == 0) return true;
    }
    return false;
}

const struct tensor *own_model_gradient(const struct transformer *model, const char *param)
{
    for (int i = 0; i < model->params; i++)
        if (strcmp(model->spec[i].name, param) == 0) return &model->g[i];
    return NULL;
}
