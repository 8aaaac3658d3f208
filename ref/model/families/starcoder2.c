/* starcoder2.c -- StarCoder2: layernorms, rotary positions, grouped-query attention and a gelu; a window in all layers,
 * or in none.
 *
 * Source  A. Lozhkov et al., "StarCoder 2 and The Stack v2", arXiv:2402.19173, as transformers has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.  gpt_neox.c and
 *         nemotron.c use tables of this file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* Starcoder2Config's */
    .c = { .positions = POSITIONS_ROTARY, .biases = BIASES_BLOCK, .tied = true, .eps = 1e-5, .init_std = 0.018042,
           .K = 2 },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .window_rule = WINDOWS_ALL, .attention_bias = true,
};

/* Released files also have how their norms and feed-forwards are called, of which the class has one each, and keys of
 * a GPT-BigCode, which it does not read. */
static const struct config_key keys[] = {
    GROUPED_KEYS, FEED_KEYS,
    KEY_BOTH_AS("hidden_act", "\"gelu_pytorch_tanh\""),
    CONFIG_BOTH("norm_epsilon", KEY_REAL, c.eps),
    CONFIG_BOTH("use_bias", KEY_FLAG, attention_bias),
    CONFIG_BOTH("residual_dropout", KEY_REAL, c.dropout_residual),
    CONFIG_BOTH("embedding_dropout", KEY_REAL, c.dropout_embedding),
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),
    KEY_ONLY_AS("norm_type", "\"layer_norm\""), KEY_ONLY_AS("mlp_type", "\"default\""),
    KEY_LEFT("activation_function"), KEY_LEFT("layer_norm_epsilon"), KEY_LEFT("scale_attn_weights"),
    KEY_LEFT("attention_softmax_in_fp32"), KEY_LEFT("scale_attention_softmax_in_fp32"),
    { .name = NULL },
};

static enum error_code starcoder2_finish(struct config_reading *reading, const cJSON *root, const char *path,
                                         struct error *err)
{
    reading->c.biases = reading->attention_bias ? BIASES_BLOCK : BIASES_NONE;
    return decoder_finish(reading, root, path, err);
}

static const struct naming naming = {
    DECODER_NAMES,
    .of_block = {
        LAYERNORM_NAMES,
        [UP_W] = { .whole = "mlp.c_fc.weight" },        [UP_B] = { .whole = "mlp.c_fc.bias" },
        [DOWN_W] = { .whole = "mlp.c_proj.weight" },    [DOWN_B] = { .whole = "mlp.c_proj.bias" },
    },
};

const struct node starcoder2_block[] = {
    NODES_QKV,
    NODES_PLAIN_ATTENTION,
    NODES_JOIN_ATTENTION("attn.out"),
    NODE_SECOND_NORM,
    NODES_FEED(OP_GELU, "ln_2"),
    NODES_JOIN_FEED("mlp.out")
};

const struct family family_starcoder2 = {
    .name = "starcoder2", .title = "a StarCoder2", .architecture = "Starcoder2ForCausalLM",
    .without_head = "Starcoder2Model", .defaults = &defaults, .keys = keys, .finish = starcoder2_finish,
    .write = decoder_to_json, .naming = &naming,
    .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES, HAS_FEED_BIASES, HAS_WINDOWS },
    .program = { { llama_embedding, starcoder2_block, llama_loss } },
};
