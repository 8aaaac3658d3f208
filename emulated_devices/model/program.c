/* program.c -- the program of each family of models, and the parameters that a node names. */
#include "emulated_devices/model/program.h"
#include <stdio.h>
#include <string.h>

extern const struct program program_gpt2, program_llama, program_mixtral, program_mixtral_shared,
                            program_mixtral_gated, program_gptj, program_scmoe, program_parscale, program_qwen3,
                            program_qwen3_moe, program_gemma, program_olmo2, program_gpt_oss, program_deepseek,
                            program_deepseek_plain, program_gemma2, program_gemma2_capped, program_gemma3,
                            program_gemma3_capped;

static const struct program *const programs[FAMILY_COUNT] = {
    [FAMILY_GPT2] = &program_gpt2, [FAMILY_LLAMA] = &program_llama, [FAMILY_MIXTRAL] = &program_mixtral,
    [FAMILY_GPTJ] = &program_gptj, [FAMILY_QWEN2] = &program_llama, [FAMILY_SCMOE] = &program_scmoe,
    [FAMILY_PARSCALE] = &program_parscale, [FAMILY_QWEN3] = &program_qwen3,
    [FAMILY_MISTRAL] = &program_llama, [FAMILY_PHI3] = &program_llama, [FAMILY_OLMO2] = &program_olmo2,
    [FAMILY_GPT_OSS] = &program_gpt_oss,
    [FAMILY_QWEN3_MOE] = &program_qwen3_moe, [FAMILY_GEMMA] = &program_gemma,
};

const struct program *program_of(const struct model_config *config)
{
    if (LATENT(config)) return config->latent.q ? &program_deepseek : &program_deepseek_plain;
    if (config->mixture.shared > 0)
        return config->mixture.shared_gate ? &program_mixtral_gated : &program_mixtral_shared;
    const enum model_family f = model_family(config);
    if (f == FAMILY_GEMMA2) return config->logit_cap > 0 ? &program_gemma2_capped : &program_gemma2;
    if (f == FAMILY_GEMMA3) return config->logit_cap > 0 ? &program_gemma3_capped : &program_gemma3;
    return programs[f];
}

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
    if (node->role == ROLE_HEAD) return "the output matrix";
    if (node->op == OP_NORM && config->norm == NORM_RMS) return "the rmsnorm %s";
    return node->op == OP_GELU ? activation[config->activation] : operation_info(node->op)->words;
}

/* Experts' matrices, the last of a block, belong to no node. */
struct layer_names program_names(const struct model_config *config, int layer)
{
    struct layer_names names = { .first = param_of_layer(config, layer) };
    const int end = param_of_layer(config, layer + 1);
    if (layer >= 0 && layer < config->L)
        snprintf(names.prefix, sizeof names.prefix, program_of(config)->block_prefix, layer);
    while (names.count < BLOCK_PARAMS && names.first + names.count < end) {
        const struct param_spec s = model_param(config, names.first + names.count);
        if (s.expert >= 0) break;
        memcpy(names.name[names.count++], s.name, sizeof s.name);
    }
    return names;
}

static int program_find(const struct layer_names *names, const struct node *node, const char *suffix)
{
    char name[PARAM_NAME];
    if (node->param == NULL) return -1;
    snprintf(name, sizeof name, "%s%s.%s", names->prefix, node->param, suffix);
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0) return names->first + i;
    return -1;
}

int program_weight(const struct model_config *config, const struct node *node, const struct layer_names *names)
{
    return node->role == ROLE_HEAD && node->param ? param_head(config) : program_find(names, node, "weight");
}

int program_bias(const struct node *node, const struct layer_names *names) { return program_find(names, node, "bias"); }
