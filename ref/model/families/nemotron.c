/* nemotron.c -- Nemotron: layernorms from 1, rotary positions of a part of each head, grouped-query attention and a
 * squared relu.
 *
 * Source  J. Parmar et al., "Nemotron-4 15B technical report", arXiv:2402.16819, as transformers has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* NemotronConfig's */
    .c = { .positions = POSITIONS_ROTARY, .activation = ACTIVATION_SQUARED_RELU, .norms_from_one = true, .eps = 1e-5,
           .init_std = 0.0134 },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .usual_part = 0.5,
};

static const struct config_key keys[] = {
    GROUPED_KEYS, FEED_KEYS,
    KEY_BOTH_AS("hidden_act", "\"relu2\""),
    CONFIG_BOTH("norm_eps", KEY_REAL, c.eps),
    CONFIG_TO("partial_rotary_factor", KEY_REAL_OR_NULL, rope_part),
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    CONFIG_TO("mlp_bias", KEY_FLAG, mlp_bias),
    { .name = NULL },
};

static const struct naming naming = {
    DECODER_NAMES,
    .of_block = {
        LAYERNORM_NAMES,
        [UP_W] = { .whole = "mlp.up_proj.weight" },     [UP_B] = { .whole = "mlp.up_proj.bias" },
        [DOWN_W] = { .whole = "mlp.down_proj.weight" }, [DOWN_B] = { .whole = "mlp.down_proj.bias" },
    },
};

const struct family family_nemotron = {
    .name = "nemotron", .title = "a Nemotron", .architecture = "NemotronForCausalLM", .without_head = "NemotronModel",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json, .naming = &naming,
    .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES, HAS_FEED_BIASES },
    .program = { { llama_embedding, starcoder2_block, llama_loss } },
};
