/* glm4_moe.c -- GLM-4.5: a mixture with a DeepSeek-V3's router and shared experts, and dense layers first; positions
 * turn half of each head; some models have norms of queries and keys.
 *
 * Source  GLM-4.5 Team, "GLM-4.5: agentic, reasoning, and coding (ARC) foundation models", arXiv:2508.06471, as
 *         transformers has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"
#include "ref/routers/router.h"

static const struct config_reading defaults = {         /* Glm4MoeConfig's */
    .c = { RMS_DECODER, .mlp = MLP_MIXTURE, .eps = 1e-5, .K = 8,
           .mixture = { .E = 128, .k = 8,
                        .router = { .scores = SCORES_SIGMOID, .normalized = true, .scale = 1, .biased = true,
                                    .bias_update = BIAS_BY_SIGN } } },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .usual_part = 0.5, .shared_experts = 1, .first_dense = 1,
    .sparse_step = 1, .scoring_func = "sigmoid", .topk_method = "noaux_tc",
};

/* The layers that predict further tokens are not in the class of transformers: its files may have them.  The class has
 * no balance loss, computes its router in fp32, and has experts in every layer after the dense ones. */
static const struct config_key keys[] = {
    SHAPE_KEYS, ROUTER_RULE_KEYS,
    CONFIG_TO("intermediate_size", KEY_SIZE, c.dense.F),
    CONFIG_TO("num_local_experts", KEY_SIZE_OR_NULL, c.mixture.E),
    CONFIG_BOTH("moe_intermediate_size", KEY_SIZE, c.F),
    CONFIG_BOTH("n_routed_experts", KEY_SIZE_OR_NULL, c.mixture.E),
    CONFIG_BOTH("num_experts_per_tok", KEY_SIZE_OR_NULL, c.mixture.k),
    CONFIG_BOTH("n_shared_experts", KEY_SIZE_OR_NULL, shared_experts),
    CONFIG_BOTH("first_k_dense_replace", KEY_COUNT, first_dense),
    CONFIG_BOTH("use_qk_norm", KEY_FLAG, c.head_norms),
    CONFIG_BOTH("attention_bias", KEY_FLAG, qkv_bias),
    CONFIG_TO("orrery_router", KEY_FLAG, another_router),
    CONFIG_TO("aux_loss_alpha", KEY_REAL, c.mixture.sequence_coefficient),
    KEY_ONLY_AS("seq_aux", "true"), KEY_ONLY_AS("decoder_sparse_step", "1"),
    KEY_LEFT("router_aux_loss_coef"), KEY_LEFT("moe_router_dtype"),
    KEY_LEFT("output_router_logits"), KEY_LEFT("num_nextn_predict_layers"), KEY_LEFT("num_mtp_layers"),
    { .name = NULL },
};

static enum error_code glm4_moe_finish(struct config_reading *reading, const cJSON *root, const char *path,
                                       struct error *err)
{
    const enum error_code e = decoder_finish(reading, root, path, err);
    return e ? e : class_router_check(reading, path, err);
}

static bool write(const struct model_config *config, cJSON *root)
{
    return decoder_sizes_to_json(config, root) && class_router_to_json(config, root)
           && class_losses_to_json(config, root);
}

const struct family family_glm4_moe = {
    .name = "glm4_moe", .title = "a GLM-4.5", .architecture = "Glm4MoeForCausalLM", .without_head = "Glm4MoeModel",
    .defaults = &defaults, .keys = keys, .finish = glm4_moe_finish, .write = write,
    .naming = &deepseek_v2_naming, .must = { HAS_SHARED_EXPERTS },
    .may = { HAS_FEWER_KEYS, HAS_QKV_BIASES, HAS_HEAD_NORMS, HAS_DENSE_LAYERS },
    .program = { { llama_embedding, mixtral_shared_block, llama_loss, mixtral_dense_block } },
};
