/* gpt2.c -- GPT-2: layernorms, learned positions, gelu; matrices of blocks are [in, out] in files.
 *
 * Source  A. Radford et al., "Language models are unsupervised multitask learners", 2019
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.  gptj.c and
 *         nanogpt.c use tables of this file.  Errors: ERR_FORMAT with the key.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* GPT2Config's */
    .c = { .biases = BIASES_BLOCK, .tied = true, .eps = 1e-5, .init_std = 0.02,
           .dropout_embedding = 0.1, .dropout_residual = 0.1, .dropout_attention = 0.1 },
};

static const struct config_key keys[] = {
    KEY_BOTH_AS("activation_function", "\"gelu_new\"", "\"gelu_pytorch_tanh\""),    /* one function */
    CONFIG_BOTH("n_positions", KEY_SIZE, c.S),
    CONFIG_BOTH("n_ctx", KEY_SIZE_OR_NULL, n_ctx),
    CONFIG_BOTH("n_embd", KEY_SIZE, c.D),
    CONFIG_BOTH("n_head", KEY_SIZE, c.H),
    CONFIG_BOTH("n_layer", KEY_SIZE, c.L),
    CONFIG_BOTH("n_inner", KEY_SIZE_OR_NULL, c.F),
    CONFIG_BOTH("vocab_size", KEY_SIZE, c.V),
    CONFIG_BOTH("layer_norm_epsilon", KEY_NUMBER, c.eps),
    CONFIG_BOTH("initializer_range", KEY_NUMBER, c.init_std),
    CONFIG_BOTH("embd_pdrop", KEY_NUMBER, c.dropout_embedding),
    CONFIG_BOTH("resid_pdrop", KEY_NUMBER, c.dropout_residual),
    CONFIG_BOTH("attn_pdrop", KEY_NUMBER, c.dropout_attention),
    KEY_LEFT("pad_token_id"),                           /* its embedding has no row for padding */
    KEY_LEFT("n_special"), KEY_LEFT("predict_special_tokens"),     /* of the first files; no class reads them */
    KEY_ONLY_AS("scale_attn_weights", "true"),
    KEY_ONLY_AS("scale_attn_by_inverse_layer_idx", "false"),
    KEY_ONLY_AS("reorder_and_upcast_attn", "false"),
    { .name = NULL },
};

enum error_code gpt2_finish(struct config_reading *reading, const cJSON *root, const char *path, struct error *err)
{
    struct model_config *c = &reading->c;
    (void)root;
    if (reading->n_ctx && reading->n_ctx != c->S)
        return fail(err, ERR_FORMAT, "%s: n_ctx is %lld, n_positions is %lld; they must be the same", path,
                    (long long)reading->n_ctx, (long long)c->S);
    c->K = c->H;
    c->A = c->D / c->H;
    if (c->F == 0) c->F = 4 * c->D;
    return OK;
}

static const struct naming naming = {
    .in_files = "transformer.", .block = "h.%d.", .transposed = true, .tokens = "wte", .positions = "wpe",
    .norm = "ln_f",
    .of_block = { GPT2_NAMES },
};

const struct node gpt2_embedding[] = {
    { OP_EMBED,     .out = "tokens",       .in = { "ids" },        .param = TOKENS_W, .unseen = true },
    { OP_POSITIONS, .out = "placed",       .in = { "tokens" },     .param = POSITIONS_W, .unseen = true },
    { OP_DROPOUT,   .out = "embedding",    .in = { "placed" },     .place = "embedding" },
    { .op = OP_END }
}, gpt2_block[] = {
    NODES_QKV,
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.qkv" } },
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" }, .param = PROJ_W },
    NODES_JOIN_ATTENTION("attn.out"),
    NODE_SECOND_NORM,
    NODES_FEED(OP_GELU, "ln_2"),
    NODES_JOIN_FEED("mlp.out")
};

const struct family family_gpt2 = {
    .name = "gpt2", .title = "a GPT-2", .architecture = "GPT2LMHeadModel", .without_head = "GPT2Model",
    .defaults = &defaults, .keys = keys, .finish = gpt2_finish, .naming = &naming,
    .program = { { gpt2_embedding, gpt2_block, llama_loss } },
};
