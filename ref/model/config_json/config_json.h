/* config_json.h -- shared by the families' readers of config.json.  Inside ref/model only.  Files of
 * ref/model/families/ and ref/model/config_json/ call these functions.  Errors: ERR_FORMAT with the key. */
#ifndef ORRERY_CONFIG_JSON_H
#define ORRERY_CONFIG_JSON_H

#include "ref/model/config.h"
#include "ref/model/config_json/config_keys.h"
#include "ref/model/family.h"

/* This says which layers have the window that a file names: none may have one; all, unless it is null; late ones, if
 * a flag says
 * so; all but the last of each so many; those without rotary positions, if so.  "layer_types" may say it of each. */
enum window_rule { WINDOWS_NEVER, WINDOWS_ALL, WINDOWS_LATE, WINDOWS_BUT_EVERY, WINDOWS_UNTURNED };

/* The values read from a file, before they are checked together. */
struct config_reading {
    struct model_config c; /* the result; its family's defaults stand here before the file is read */
    int64_t head_dim, sliding_window, n_ctx;        /* 0: not in the file */
    int64_t max_window_layers, window_pattern;      /* WINDOWS_LATE: the first layer with a window; WINDOWS_BUT_EVERY:
                                                     * one layer in so many has none */
    int64_t original_positions;                     /* beside the rotary positions' own numbers; 0: not in the file */
    bool original_said;                             /* that is no default */
    enum window_rule window_rule;                   /* the family's way to say which layers have a window */
    bool window_needed;                             /* its files have a window also where no layer has it */
    int64_t pad_token;                              /* NO_TOKEN: none */
    int64_t shared_experts, experts;                /* 0: not in the file */
    int64_t sparse_step;                            /* each so many layers have experts; 0: null */
    int64_t nope, turned;                           /* of latent attention */
    int64_t unturned_interval;                      /* one layer in so many has no rotary positions; 0: null */
    int64_t first_dense;                            /* layers before the first with experts */
    bool output_router_logits, attention_bias, mlp_bias, use_sliding_window;    /* the file's flags of these names */
    bool qkv_bias;                                  /* of queries, keys and values alone */
    bool another_router;                            /* of a DeepSeek: not that of its class in transformers */
    const char *scoring_func, *topk_method, *bias_update, *drop_order, *zero_type;     /* NULL: not in
                                                                                         * the file */
    const char *drop_scope; /* of a capacity: which tokens compete for an expert; NULL: not in the file */
    double layers_balance;      /* the coefficient of a mean over layers */
    double rope_theta;                              /* base of rotary frequencies */
    double rope_part;                               /* of a head, which is turned; 0: not in the file */
    double usual_part;                              /* where a file does not say it; 0: all, and no file says less */
    bool only_long;                                 /* rotary positions are plain, or LongRoPE by any name */
    const cJSON *rope_scaling, *rope_parameters, *layer_types, *dense_layers,
        *turned_layers;                             /* NULL: not in the file */
};

#define CONFIG_TO(name, kind, field) KEY_TO(name, kind, struct config_reading, field)
#define CONFIG_BOTH(name, kind, field) KEY_BOTH(name, kind, struct config_reading, field)       /* also written */

/* Keys of all families with rotary positions; of those with grouped heads; of those with rmsnorms. */
#define ROTARY_KEYS                                                                                                    \
    CONFIG_TO("max_position_embeddings", KEY_SIZE, c.S),                                                               \
    CONFIG_TO("hidden_size", KEY_SIZE, c.D),                                                                           \
    CONFIG_TO("num_attention_heads", KEY_SIZE, c.H),                                                                   \
    CONFIG_TO("num_hidden_layers", KEY_SIZE, c.L),                                                                     \
    CONFIG_TO("attention_dropout", KEY_REAL, c.dropout_attention),                                                     \
    CONFIG_TO("pad_token_id", KEY_TOKEN, pad_token),                                                                   \
    CONFIG_TO("rope_scaling", KEY_OBJECT, rope_scaling),                                                               \
    CONFIG_TO("rope_parameters", KEY_OBJECT, rope_parameters)

#define GROUPED_KEYS                                                                                                   \
    ROTARY_KEYS,                                                                                                       \
    CONFIG_TO("num_key_value_heads", KEY_SIZE_OR_NULL, c.K),                                                           \
    CONFIG_TO("rope_theta", KEY_REAL, rope_theta)

#define ROTARY_DECODER_KEYS GROUPED_KEYS, CONFIG_TO("rms_norm_eps", KEY_REAL, c.eps)

/* This row is for a feed-forward without a gate, beside a Llama's attention. */
#define FEED_KEYS                                                                                                      \
    CONFIG_TO("head_dim", KEY_SIZE_OR_NULL, head_dim),                                                                 \
    CONFIG_TO("intermediate_size", KEY_SIZE, c.F)

/* Keys of any mixture: how its routers choose, and from what. */
#define ROUTER_RULE_KEYS                                                                                               \
    CONFIG_TO("norm_topk_prob", KEY_FLAG, c.mixture.router.normalized),                                                \
    CONFIG_TO("scoring_func", KEY_STRING, scoring_func),                                                               \
    CONFIG_TO("topk_method", KEY_STRING, topk_method),                                                                 \
    CONFIG_TO("n_group", KEY_SIZE_OR_NULL, c.mixture.router.groups),                                                   \
    CONFIG_TO("topk_group", KEY_SIZE_OR_NULL, c.mixture.router.kept),                                                  \
    CONFIG_TO("routed_scaling_factor", KEY_REAL, c.mixture.router.scale),                                              \
    CONFIG_TO("router_bias_update", KEY_STRING, bias_update),                                                          \
    CONFIG_TO("router_bias_speed", KEY_REAL, c.mixture.router.bias_speed),                                             \
    CONFIG_TO("router_active_experts", KEY_REAL, c.mixture.router.active),                                             \
    CONFIG_TO("mlp_dynamic_top_p", KEY_REAL, c.mixture.router.top_p),                                                  \
    CONFIG_TO("router_jitter_noise", KEY_REAL, c.mixture.router.near),                                                 \
    CONFIG_TO("zero_expert_num", KEY_SIZE_OR_NULL, c.mixture.zero),                                                    \
    CONFIG_TO("zero_expert_type", KEY_STRING, zero_type)

/* And what its losses and capacities are, with Mixtral's names. */
#define ROUTER_KEYS                                                                                                    \
    ROUTER_RULE_KEYS,                                                                                                  \
    CONFIG_TO("num_experts_per_tok", KEY_SIZE_OR_NULL, c.mixture.k),                                                   \
    CONFIG_TO("l_aux_weight", KEY_REAL, layers_balance),                                                               \
    CONFIG_TO("aux_loss_alpha", KEY_REAL, c.mixture.sequence_coefficient),                                             \
    KEY_ONLY_AS("seq_aux", "true"),                                                                                    \
    CONFIG_TO("expert_capacity_factor", KEY_REAL, c.mixture.capacity_factor),                                          \
    CONFIG_TO("expert_capacity_scope", KEY_STRING, drop_scope),                                                        \
    CONFIG_TO("expert_drop_order", KEY_STRING, drop_order),                                                            \
    CONFIG_TO("router_aux_loss_coef", KEY_REAL, c.mixture.balance_coefficient),                                        \
    CONFIG_TO("router_z_loss_coef", KEY_REAL, c.mixture.z_coefficient),                                                \
    CONFIG_TO("output_router_logits", KEY_FLAG, output_router_logits)

/* Keys of a Llama and its descendants. */
#define SHAPE_KEYS                                                                                                     \
    ROTARY_DECODER_KEYS,                                                                                               \
    CONFIG_TO("head_dim", KEY_SIZE_OR_NULL, head_dim),                                                                 \
    KEY_ONLY_AS("hidden_act", "\"silu\"", "\"swish\""),   /* two names of one function */                          \
    CONFIG_TO("partial_rotary_factor", KEY_REAL_OR_NULL, rope_part),                                                   \
    CONFIG_TO("layer_types", KEY_LIST, layer_types)

#define DECODER_KEYS SHAPE_KEYS, CONFIG_TO("intermediate_size", KEY_SIZE, c.F)

#define LLAMA_KEYS                                                                                                     \
    DECODER_KEYS,                                                                                                      \
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window)

#define QWEN2_KEYS                                                                                                     \
    DECODER_KEYS,                                                                                                      \
    KEY_ONLY_AS("use_mrope", "false"),                                                                                 \
    CONFIG_TO("use_sliding_window", KEY_FLAG, use_sliding_window),                                                     \
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),                                                     \
    CONFIG_TO("max_window_layers", KEY_COUNT, max_window_layers)

/* Keys of mixtures whose layers may be dense; the last six are written, in this order.  transformers 5 writes
 * num_local_experts, versions before num_experts; norm_topk_prob is always there, because its default is not a
 * Mixtral's. */
#define SPARSE_KEYS                                                                                                    \
    CONFIG_TO("num_local_experts", KEY_SIZE_OR_NULL, c.mixture.E),                                                     \
    CONFIG_TO("intermediate_size", KEY_SIZE, c.dense.F),                                                               \
    CONFIG_BOTH("tie_word_embeddings", KEY_FLAG, c.tied),                                                              \
    CONFIG_BOTH("moe_intermediate_size", KEY_SIZE, c.F),                                                               \
    CONFIG_BOTH("num_experts", KEY_SIZE_OR_NULL, experts),                                                             \
    CONFIG_BOTH("norm_topk_prob", KEY_FLAG, c.mixture.router.normalized),                                              \
    CONFIG_BOTH("decoder_sparse_step", KEY_SIZE_OR_NULL, sparse_step),                                                 \
    CONFIG_BOTH("mlp_only_layers", KEY_LIST, dense_layers)

/* Keys of a Gemma.  A missing pad_token_id would be read as token 0. */
#define GEMMA_KEYS                                                                                                     \
    ROTARY_DECODER_KEYS,                                                                                               \
    CONFIG_TO("intermediate_size", KEY_SIZE, c.F),                                                                     \
    CONFIG_TO("head_dim", KEY_SIZE_OR_NULL, head_dim),                                                                 \
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),                                                             \
    KEY_ONLY_AS("hidden_act", "\"gelu_pytorch_tanh\"", "\"gelu\""),                                                    \
    KEY_ONLY_AS("hidden_activation", "\"gelu_pytorch_tanh\"", "null"),                                                 \
    KEY_ONLY_AS("use_bidirectional_attention", "false", "null"),                                                       \
    CONFIG_BOTH("tie_word_embeddings", KEY_FLAG, c.tied),                                                              \
    CONFIG_BOTH("pad_token_id", KEY_TOKEN, pad_token)

/* And of later ones; score_cap is the key of the cap of scores. */
#define LATER_GEMMA_KEYS(score_cap)                                                                                    \
    GEMMA_KEYS,                                                                                                        \
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),                                                     \
    CONFIG_TO("layer_types", KEY_LIST, layer_types),                                                                   \
    CONFIG_BOTH("query_pre_attn_scalar", KEY_POSITIVE_NUMBER, c.score_width),                                          \
    score_cap,                                                                                                         \
    CONFIG_BOTH("final_logit_softcapping", KEY_POSITIVE_OR_NONE, c.logit_cap)

/* Keys of DeepSeeks: head_dim and qk_head_dim are sums of others. */
#define DEEPSEEK_KEYS                                                                                                  \
    ROTARY_DECODER_KEYS,                                                                                               \
    CONFIG_TO("intermediate_size", KEY_SIZE, c.dense.F),                                                               \
    CONFIG_TO("moe_intermediate_size", KEY_SIZE, c.F),                                                                 \
    CONFIG_TO("first_k_dense_replace", KEY_COUNT, first_dense),                                                        \
    CONFIG_TO("q_lora_rank", KEY_SIZE_OR_NULL, c.latent.q),                                                            \
    CONFIG_TO("kv_lora_rank", KEY_SIZE_OR_NULL, c.latent.kv),                                                          \
    CONFIG_TO("qk_nope_head_dim", KEY_SIZE_OR_NULL, nope),                                                             \
    CONFIG_TO("qk_rope_head_dim", KEY_SIZE_OR_NULL, turned),                                                           \
    CONFIG_TO("v_head_dim", KEY_SIZE_OR_NULL, c.latent.v),                                                             \
    CONFIG_TO("n_routed_experts", KEY_SIZE_OR_NULL, c.mixture.E),                                                      \
    CONFIG_TO("num_experts_per_tok", KEY_SIZE, c.mixture.k),                                                           \
    CONFIG_TO("n_shared_experts", KEY_SIZE_OR_NULL, shared_experts),                                                   \
    ROUTER_RULE_KEYS,                                                                                                  \
    CONFIG_TO("orrery_router", KEY_FLAG, another_router),                                                              \
    CONFIG_TO("aux_loss_alpha", KEY_REAL, c.mixture.sequence_coefficient),                                             \
    KEY_ONLY_AS("seq_aux", "true"),                                                                                    \
    KEY_ONLY_AS("moe_layer_freq", "1"),                                                                                \
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),                                                             \
    KEY_ONLY_AS("hidden_act", "\"silu\""),                                                                             \
    KEY_LEFT("head_dim"), KEY_LEFT("qk_head_dim"),                                                                     \
    KEY_LEFT("ep_size"), KEY_LEFT("output_router_logits")

/* Reading a family: start with the defaults of its class in transformers, read its list of keys, then call its finish
 * function, which computes derived values and refuses contradictions.  Writing: its write function, then the keys of
 * its list that are written. */

/** Finish, and write, a Llama or a descendant: all that decoders with rmsnorms derive from the keys above. */
enum error_code decoder_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);
bool decoder_to_json(const struct model_config *, cJSON *root);

/** Write all of such a decoder but its mixture. */
bool decoder_sizes_to_json(const struct model_config *, cJSON *root);

/** The layers that are dense among those of a mixture: the first, those between, those of a list. */
enum error_code dense_layers_finish(struct config_reading *, const char *path, struct error *);

/** The padding token as a model_config has it. */
int64_t padding_of(const struct config_reading *);

/** The rule of a mixture's routers, from the words read.  @return OK, or ERR_FORMAT with the word that is unknown. */
enum error_code mixture_finish(struct config_reading *, const char *path, struct error *);

/** Read rotary positions in either form: "rope_theta" and "rope_scaling", or "rope_parameters" (transformers 5).
 *  @return OK, or ERR_FORMAT: an unsupported kind, or two values that differ. */
enum error_code rotary_from_json(struct config_reading *, const cJSON *root, const char *path, struct error *);

/** Read the windows of attention: their size, and the layers that have them.
 *  @return OK, or ERR_FORMAT: this family has none, or the file contradicts itself. */
enum error_code windows_from_json(struct config_reading *, const char *path, struct error *);

/* Write a part of a config into a JSON document; false if there is no memory. */
bool mixture_to_json(const struct mixture_config *, cJSON *root);
bool router_to_json(const struct router_rule *, cJSON *root);       /* all that ROUTER_RULE_KEYS read of one */
bool zero_experts_to_json(const struct mixture_config *, cJSON *root);
bool rotary_to_json(const struct model_config *, cJSON *root);
bool windows_to_json(const struct model_config *, cJSON *root);

#endif
