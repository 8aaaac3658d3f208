/* phi3.c -- Phi-3: a Llama with fused matrices in files, parts of heads that are turned, and LongRoPE.
 *
 * Source  M. Abdin et al., "Phi-3 technical report", arXiv:2404.14219, as transformers has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* Phi3Config's */
    .c = { RMS_DECODER, .mlp = MLP_SWIGLU, .eps = 1e-5 },
    .rope_theta = 10000, .pad_token = 32000, .window_rule = WINDOWS_ALL, .original_positions = 4096,
    .usual_part = 1, .only_long = true,
};

/* Released files also have a dropout that no version applies. */
static const struct config_key keys[] = {
    DECODER_KEYS,
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),
    CONFIG_TO("original_max_position_embeddings", KEY_SIZE_OR_NULL, original_positions),
    CONFIG_BOTH("resid_pdrop", KEY_NUMBER, c.dropout_residual),
    CONFIG_BOTH("pad_token_id", KEY_TOKEN, pad_token),
    KEY_ONLY_AS("embd_pdrop", "0"), KEY_ONLY_AS("attention_bias", "false"), KEY_ONLY_AS("mlp_bias", "false"),
    KEY_ONLY_AS("lm_head_bias", "false"), KEY_ONLY_AS("full_attn_mod", "1"), KEY_ONLY_AS("interpolate_factor", "1"),
    { .name = NULL },
};

static const struct naming naming = {
    DECODER_NAMES,
    .of_block = {
        [LN1_W] = { .whole = "input_layernorm.weight" }, [LN2_W] = { .whole = "post_attention_layernorm.weight" },
        [QKV_W] = { .whole = "self_attn.qkv_proj.weight" }, [PROJ_W] = { .whole = "self_attn.o_proj.weight" },
        [UP_W] = { .whole = "mlp.gate_up_proj.weight" }, [DOWN_W] = { .whole = "mlp.down_proj.weight" },
    },
};

const struct family family_phi3 = {
    .name = "phi3", .title = "a Phi-3", .architecture = "Phi3ForCausalLM", .without_head = "Phi3Model",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &naming, .may = { HAS_FEWER_KEYS, HAS_WINDOWS },
    .program = { { llama_embedding, llama_block, llama_loss } },
};
