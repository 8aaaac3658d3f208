/* deepseek_v3.c -- DeepSeek-V3 and R1: a DeepSeek-V2 whose routers choose by sigmoids and a bias.
 *
 * Source  DeepSeek-AI, "DeepSeek-V3 technical report", arXiv:2412.19437, as transformers has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* DeepseekV3Config's */
    .c = { RMS_DECODER, .mlp = MLP_MIXTURE, .eps = 1e-6, .rotary = { .neighbours = true },
           .latent = { .q = 1536, .kv = 512, .v = 128 },
           .mixture = { .E = 256,
                        .router = { .scores = SCORES_SIGMOID, .normalized = true, .scale = 2.5, .biased = true,
                                    .groups = 8, .kept = 4, .bias_update = BIAS_BY_SIGN } } },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .nope = 128, .turned = 64, .shared_experts = 1, .first_dense = 3,
    .sparse_step = 1,
    .scoring_func = "sigmoid", .topk_method = "noaux_tc",
};

/* The layers that predict further tokens are not in the class of transformers either: its files may have them. */
static const struct config_key keys[] = {
    DEEPSEEK_KEYS,
    CONFIG_TO("rope_interleave", KEY_FLAG, c.rotary.neighbours),
    KEY_LEFT("num_nextn_predict_layers"), KEY_LEFT("num_mtp_layers"),
    { .name = NULL },
};

const struct family family_deepseek_v3 = {
    .name = "deepseek_v3", .title = "a DeepSeek", .architecture = "DeepseekV3ForCausalLM",
    .without_head = "DeepseekV3Model",
    .defaults = &defaults, .keys = keys, .finish = deepseek_finish, .write = deepseek_to_json,
    .naming = &deepseek_v2_naming, .predicts = true, .must = { HAS_SHARED_EXPERTS },
    .may = { HAS_NEIGHBOURS, HAS_LATENT_QUERIES, HAS_LATENT_BIASES, HAS_DENSE_LAYERS },
    .program = { { llama_embedding, deepseek_v2_block, llama_loss, deepseek_v2_dense_block } },
};
