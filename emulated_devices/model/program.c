/* program.c -- the nodes of a model's parts, and the parameters that a node has.  Files of model/ and check/ call
 * these functions.  No function returns an error code. */
#include "emulated_devices/model/program.h"
#include "ref/model/adapters.h"
#include "ref/model/kinds.h"
#include "ref/model/node.h"
#include "ref/model/params.h"
#include "ref/model/trained.h"
#include <string.h>

const struct node *program_part(const struct program *program, const struct model_config *config, int layer)
{
    if (layer < 0) return program->embedding;
    if (layer == config->L) return program->loss;
    return layer_mlp(config, layer) == config->mlp ? program->block : program->dense_block;
}

double node_drops(const struct model_config *config, const struct node *node)
{
    if (node->op != OP_DROPOUT) return 0;
    return strcmp(node->place, "embedding") == 0 ? config->dropout_embedding : config->dropout_residual;
}

bool node_does_nothing(const struct model_config *config, const struct node *node, int layer)
{
    if (!model_has(config, node->when)) return true;
    switch (node->op) {
    case OP_DROPOUT: return node_drops(config, node) == 0;
    case OP_SCALE:   return !model_has_factor(config, node->factor);
    case OP_ROTARY:  return !model_turns(config, layer);
    default:         return false;
    }
}

const char *node_words(const struct model_config *config, const struct node *node)
{
    static const char *const activation[] = { [ACTIVATION_GELU] = "gelu in %s",
                                              [ACTIVATION_EXACT_GELU] = "the exact gelu in %s",
                                              [ACTIVATION_SQUARED_RELU] = "the squared relu in %s" };
    if (node->param == HEAD_W) return "the output matrix";
    if (node->op == OP_NORM && config->norm == NORM_RMS) return "the rmsnorm %s";
    return node->op == OP_GELU ? activation[config->activation] : operation_info(node->op)->words;
}

/* Experts' matrices belong to no node: the experts of a device are known only when it runs. */
int program_weight(const struct model_config *config, const struct node *node, int layer)
{
    return node->op == OP_MIXTURE ? -1 : param_of_model(config, layer, node->param);
}

int program_bias(const struct model_config *config, const struct node *node, int layer)
{
    return node->op == OP_MIXTURE ? -1 : param_bias(config, layer, node->param);
}

bool program_stands_still(const struct model_config *config, const struct node *node, int layer)
{
    const int weight = config->trains == 0 ? -1 : param_of_model(config, layer, node->param);
    if (weight < 0) return false;
    const struct param_spec spec = model_param(config, weight);
    return !param_trains(config, &spec) && !param_is_adapted(config, &spec);
}
