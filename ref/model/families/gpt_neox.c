/* gpt_neox.c -- GPT-NeoX, and Pythia: attention and the feed-forward side by side, each of a layernorm of its own, or
 * in sequence; rotary positions of a part of each head.
 *
 * Source  S. Black et al., "GPT-NeoX-20B", arXiv:2204.06745; S. Biderman et al., "Pythia", arXiv:2304.01373; as
 *         transformers has them
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.  Errors:
 *         ERR_FORMAT with the key.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* GPTNeoXConfig's */
    .c = { .positions = POSITIONS_ROTARY, .parallel = true, .two_norms = true, .activation = ACTIVATION_EXACT_GELU,
           .biases = BIASES_BLOCK, .eps = 1e-5, .init_std = 0.02 },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .usual_part = 0.25, .attention_bias = true,
};

static const struct config_key keys[] = {
    KEY_LEFT("pad_token_id"),                           /* its embedding has no row for padding */
    ROTARY_KEYS, CONFIG_TO("intermediate_size", KEY_SIZE, c.F),
    KEY_BOTH_AS("hidden_act", "\"gelu\""),
    CONFIG_BOTH("layer_norm_eps", KEY_REAL, c.eps),
    CONFIG_BOTH("hidden_dropout", KEY_REAL, c.dropout_residual),
    CONFIG_BOTH("use_parallel_residual", KEY_FLAG, c.parallel),
    CONFIG_BOTH("attention_bias", KEY_FLAG, attention_bias),
    CONFIG_TO("rotary_emb_base", KEY_REAL, rope_theta),
    CONFIG_TO("rotary_pct", KEY_REAL, rope_part),
    CONFIG_TO("rope_theta", KEY_REAL, rope_theta), CONFIG_TO("partial_rotary_factor", KEY_REAL, rope_part),
    { .name = NULL },
};

/* transformers 4.57 also writes the names that other classes have, and reads only its own. */
static enum error_code check_name(const cJSON *root, const char *others, const char *own, const char *path,
                                  struct error *err)
{
    double x, y;
    if (!json_has(root, others)) return OK;
    enum error_code e = json_double(root, path, others, &x, err);
    if (!e) e = json_double(root, path, own, &y, err);
    if (!e && x != y)
        return fail(err, ERR_FORMAT, "%s: %s is %g, %s is %g; they must be the same", path, others, x, own, y);
    return e;
}

/* One number is the dropout of the embedding, and of what branches give. */
static enum error_code gpt_neox_finish(struct config_reading *reading, const cJSON *root, const char *path,
                                       struct error *err)
{
    struct model_config *c = &reading->c;
    enum error_code e = check_name(root, "rope_theta", "rotary_emb_base", path, err);
    if (!e) e = check_name(root, "partial_rotary_factor", "rotary_pct", path, err);
    c->biases = BIASES_FEED, c->two_norms = c->parallel, c->dropout_embedding = c->dropout_residual;
    return e ? e : decoder_finish(reading, root, path, err);
}

static const struct naming naming = {
    .in_files = "gpt_neox.", .block = "layers.%d.", .tokens = "embed_in", .norm = "final_layer_norm",
    .head_in_files = "embed_out", .heads_together = true,
    .of_block = {
        [LN1_W] = { .whole = "input_layernorm.weight" },
        [LN1_B] = { .whole = "input_layernorm.bias" },
        [QKV_W] = { .whole = "attention.query_key_value.weight" },
        [QKV_B] = { .whole = "attention.query_key_value.bias" },
        [PROJ_W] = { .whole = "attention.dense.weight" },
        [PROJ_B] = { .whole = "attention.dense.bias" },
        [LN2_W] = { .whole = "post_attention_layernorm.weight" },
        [LN2_B] = { .whole = "post_attention_layernorm.bias" },
        [UP_W] = { .whole = "mlp.dense_h_to_4h.weight" },   [UP_B] = { .whole = "mlp.dense_h_to_4h.bias" },
        [DOWN_W] = { .whole = "mlp.dense_4h_to_h.weight" }, [DOWN_B] = { .whole = "mlp.dense_4h_to_h.bias" },
    },
};

/* Both norms stand first: backward adds their gradients of the stream at the end. */
static const struct node parallel[] = {
    { OP_NORM,      .out = "ln_2",         .in = { "in" },         .param = LN2_W },
    NODES_QKV,
    NODES_PLAIN_ATTENTION,
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.out" },   .place = "attention", .unseen = true },
    NODES_FEED(OP_GELU, "ln_2"),
    NODES_JOIN_BOTH
};

const struct family family_gpt_neox = {
    .name = "gpt_neox", .title = "a GPT-NeoX", .architecture = "GPTNeoXForCausalLM", .without_head = "GPTNeoXModel",
    .defaults = &defaults, .keys = keys, .finish = gpt_neox_finish, .write = decoder_to_json, .naming = &naming,
    .may = { HAS_PARALLEL, HAS_TWO_NORMS, HAS_ATTENTION_BIASES },
    .program = { { llama_embedding, parallel, llama_loss, .with = HAS_PARALLEL },
                 { llama_embedding, starcoder2_block, llama_loss } },
};
