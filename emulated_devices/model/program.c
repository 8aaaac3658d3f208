/* program.c -- the nodes of a model's parts, and the parameters that a node has. */
#include "emulated_devices/model/program.h"
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

bool node_does_nothing(const struct model_config *config, const struct node *node)
{
    return (node->op == OP_DROPOUT && node_drops(config, node) == 0) || !model_has(config, node->when);
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
