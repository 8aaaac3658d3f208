/* config_gptj.c -- the config.json of a GPT-J.
 *
 * A rotary_dim of null is refused: transformers then computes angles for the model's whole width, which is correct for
 * one head only.
 */
#include "ref/model/config_json/config_json.h"

enum { THETA = 10000 };                                 /* fixed in the class, not in its config */

const struct config_reading gptj_defaults = {           /* GPTJConfig's own */
    .c = { .positions = POSITIONS_ROTARY, .rotary = { .theta = THETA, .neighbours = true }, .parallel = true,
           .biases = BIASES_GPTJ, .eps = 1e-5, .init_std = 0.02 },
};

const struct config_key gptj_keys[] = {
    CONFIG_TO("n_positions", KEY_SIZE, c.S),
    CONFIG_TO("n_embd", KEY_SIZE, c.D),
    CONFIG_TO("n_head", KEY_SIZE, c.H),
    CONFIG_TO("n_layer", KEY_SIZE, c.L),
    CONFIG_TO("n_inner", KEY_SIZE_OR_NULL, c.F),
    CONFIG_TO("rotary_dim", KEY_SIZE, c.rotary.turned),
    CONFIG_TO("layer_norm_epsilon", KEY_REAL, c.eps),
    CONFIG_TO("embd_pdrop", KEY_REAL, c.dropout_embedding),
    CONFIG_TO("resid_pdrop", KEY_REAL, c.dropout_residual),
    CONFIG_TO("attn_pdrop", KEY_REAL, c.dropout_attention),
    KEY_LEFT("pad_token_id"),                           /* its embedding has no row for padding */
    KEY_ONLY_AS("rotary", "true"),                      /* in the file of the published model */
    KEY_ONLY_AS("activation_function", "\"gelu_new\"", "\"gelu_pytorch_tanh\""),      /* one function */
    KEY_ONLY_AS("scale_attn_weights", "true"),
    { .name = NULL },
};

enum error_code gptj_finish(struct config_reading *reading, const cJSON *root, const char *path, struct error *err)
{
    struct model_config *c = &reading->c;
    (void)root, (void)path, (void)err;
    c->K = c->H;
    c->A = c->D / c->H;
    if (c->F == 0) c->F = 4 * c->D;
    return OK;
}

bool gptj_to_json(const struct model_config *config, cJSON *root)
{
    const struct { const char *key; double value; } number[] = {
        { "n_positions", (double)config->S }, { "n_embd", (double)config->D }, { "n_head", (double)config->H },
        { "n_layer", (double)config->L }, { "n_inner", (double)config->F }, { "vocab_size", (double)config->V },
        { "rotary_dim", (double)config->rotary.turned }, { "layer_norm_epsilon", config->eps },
        { "initializer_range", config->init_std }, { "embd_pdrop", config->dropout_embedding },
        { "resid_pdrop", config->dropout_residual }, { "attn_pdrop", config->dropout_attention },
    };
    bool ok = cJSON_AddStringToObject(root, "activation_function", "gelu_new") != NULL;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        ok = cJSON_AddNumberToObject(root, number[i].key, number[i].value) && ok;
    return cJSON_AddBoolToObject(root, "tie_word_embeddings", config->tied) && ok;
}
