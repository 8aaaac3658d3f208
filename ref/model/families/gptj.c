/* gptj.c -- GPT-J: attention and the feed-forward side by side, both from one layernorm; rotary positions; a biased
 * output.
 *
 * A rotary_dim of null is refused: transformers then computes angles for the model's whole width, which is correct for
 * one head only.
 *
 * Source  B. Wang, A. Komatsuzaki, "GPT-J-6B: a 6 billion parameter autoregressive language model", 2021; as
 *         transformers has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

enum { THETA = 10000 };                                 /* fixed in the class, not in its config */

static const struct config_reading defaults = {         /* GPTJConfig's */
    .c = { .positions = POSITIONS_ROTARY, .rotary = { .theta = THETA, .neighbours = true }, .parallel = true,
           .biases = BIASES_FEED | HAS_BIAS(ROLE_HEAD), .eps = 1e-5, .init_std = 0.02 },
};

static const struct config_key keys[] = {
    KEY_BOTH_AS("activation_function", "\"gelu_new\"", "\"gelu_pytorch_tanh\""),    /* one function */
    CONFIG_BOTH("n_positions", KEY_SIZE, c.S),
    CONFIG_BOTH("n_embd", KEY_SIZE, c.D),
    CONFIG_BOTH("n_head", KEY_SIZE, c.H),
    CONFIG_BOTH("n_layer", KEY_SIZE, c.L),
    CONFIG_BOTH("n_inner", KEY_SIZE_OR_NULL, c.F),
    CONFIG_BOTH("vocab_size", KEY_SIZE, c.V),
    CONFIG_BOTH("rotary_dim", KEY_SIZE, c.rotary.turned),
    CONFIG_BOTH("layer_norm_epsilon", KEY_NUMBER, c.eps),
    CONFIG_BOTH("initializer_range", KEY_NUMBER, c.init_std),
    CONFIG_BOTH("embd_pdrop", KEY_NUMBER, c.dropout_embedding),
    CONFIG_BOTH("resid_pdrop", KEY_NUMBER, c.dropout_residual),
    CONFIG_BOTH("attn_pdrop", KEY_NUMBER, c.dropout_attention),
    KEY_LEFT("pad_token_id"),                           /* its embedding has no row for padding */
    KEY_ONLY_AS("rotary", "true"),                      /* in the file of the published model */
    KEY_ONLY_AS("scale_attn_weights", "true"),
    { .name = NULL },
};

static const struct naming naming = {
    .in_files = "transformer.", .block = "h.%d.", .tokens = "wte", .norm = "ln_f",
    .of_block = {
        [LN1_W] = { .whole = "ln_1.weight" },           [LN1_B] = { .whole = "ln_1.bias" },
        [QKV_W] = { "attn.qkv_proj.weight", { "attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight" } },
        [PROJ_W] = { .whole = "attn.out_proj.weight" },
        [UP_W] = { .whole = "mlp.fc_in.weight" },       [UP_B] = { .whole = "mlp.fc_in.bias" },
        [DOWN_W] = { .whole = "mlp.fc_out.weight" },    [DOWN_B] = { .whole = "mlp.fc_out.bias" },
    },
};

static const struct node block[] = {
    NODES_QKV,
    NODES_PLAIN_ATTENTION,
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.out" },   .place = "attention", .unseen = true },
    NODES_FEED(OP_GELU, "ln_1"),
    NODES_JOIN_BOTH
};

const struct family family_gptj = {
    .name = "gptj", .title = "a GPT-J", .architecture = "GPTJForCausalLM", .without_head = "GPTJModel",
    .defaults = &defaults, .keys = keys, .finish = gpt2_finish, .naming = &naming,
    .program = { { llama_embedding, block, llama_loss } },
};
