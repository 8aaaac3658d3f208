/* config_json.h -- shared by the families' readers of config.json.  Inside ref/model only. */
#ifndef ORRERY_CONFIG_JSON_H
#define ORRERY_CONFIG_JSON_H

#include "ref/model/config.h"
#include "ref/model/config_json/config_keys.h"

/* Which layers have the window that a file names: none may have one; all, unless it is null; late ones, if a flag says
 * so; all but the last of each so many.  "layer_types" may say it of each. */
enum window_rule { WINDOWS_NEVER, WINDOWS_ALL, WINDOWS_LATE, WINDOWS_BUT_EVERY };

/* The values read from a file, before they are checked together. */
struct config_reading {
    struct model_config c; /* the result; its family's defaults stand here before the file is read */
    int64_t head_dim, sliding_window, n_ctx;        /* 0: not in the file */
    int64_t max_window_layers, window_pattern;      /* WINDOWS_LATE: the first layer with a window; WINDOWS_BUT_EVERY:
                                                     * one layer in so many has none */
    int64_t original_positions;                     /* beside the rotary positions' own numbers; 0: not in the file */
    bool original_said;                             /* that is no default */
    enum window_rule window_rule;                   /* the family's way to say which layers have a window */
    int64_t pad_token;                              /* NO_TOKEN: none */
    int64_t shared_experts, experts;                /* 0: not in the file */
    int64_t sparse_step;                            /* a Qwen3-MoE's */
    int64_t nope, turned, first_dense;              /* a DeepSeek's */
    bool rope_interleave;                           /* its rotary pairs are neighbours */
    bool output_router_logits, attention_bias, mlp_bias, use_sliding_window;    /* the file's flags of these names */
    bool another_router;                            /* of a DeepSeek: not that of its class in transformers */
    const char *scoring_func, *topk_method, *bias_update, *drop_order, *zero_type;     /* NULL: not in
                                                                                         * the file */
    const char *drop_scope; /* of a capacity: which tokens compete for an expert; NULL: not in the file */
    double layers_balance;      /* the coefficient of a mean over layers */
    double rope_theta;                              /* base of rotary frequencies */
    double rope_part;                               /* of a head, which is turned; 0: not in the file */
    bool parts_turn;                                /* it may be below 1 */
    bool only_long;                                 /* rotary positions are plain, or LongRoPE by any name */
    double local_theta;                             /* of layers with a window; 0: as in the others */
    const cJSON *rope_scaling, *rope_parameters, *layer_types, *dense_layers;           /* NULL: not in the file */
};

#define CONFIG_TO(name, kind, field) KEY_TO(name, kind, struct config_reading, field)

/* Keys of all families with rmsnorms and rotary positions. */
#define ROTARY_DECODER_KEYS                                                                                            \
    CONFIG_TO("max_position_embeddings", KEY_SIZE, c.S),                                                               \
    CONFIG_TO("hidden_size", KEY_SIZE, c.D),                                                                           \
    CONFIG_TO("num_attention_heads", KEY_SIZE, c.H),                                                                   \
    CONFIG_TO("num_key_value_heads", KEY_SIZE_OR_NULL, c.K),                                                           \
    CONFIG_TO("num_hidden_layers", KEY_SIZE, c.L),                                                                     \
    CONFIG_TO("rms_norm_eps", KEY_REAL, c.eps),                                                                        \
    CONFIG_TO("attention_dropout", KEY_REAL, c.dropout_attention),                                                     \
    CONFIG_TO("pad_token_id", KEY_TOKEN, pad_token),                                                                   \
    CONFIG_TO("rope_theta", KEY_REAL, rope_theta),                                                                     \
    CONFIG_TO("rope_scaling", KEY_OBJECT, rope_scaling),                                                               \
    CONFIG_TO("rope_parameters", KEY_OBJECT, rope_parameters)

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

/* Reading a family: start with the defaults of its class in transformers, read its list of keys, then call its finish
 * function, which computes derived values and refuses contradictions.  Mistral, Phi-3, OLMo 2, Mixtral, Qwen2, Qwen3,
 * ParScale, Gemma and ScMoE use llama_finish, a Qwen3-MoE, a GPT-OSS and later Gemmas after their own;
 * a ScMoE has a Mixtral's keys. */
extern const struct config_key gpt2_keys[], llama_keys[], mixtral_keys[], gptj_keys[], qwen2_keys[],
    qwen3_keys[], qwen3_moe_keys[], parscale_keys[], mistral_keys[], phi3_keys[], gemma_keys[], olmo2_keys[],
    deepseek_v2_keys[], deepseek_v3_keys[], gpt_oss_keys[], gemma2_keys[], gemma3_keys[];
extern const struct config_reading gpt2_defaults, llama_defaults, mixtral_defaults, gptj_defaults, qwen2_defaults,
    qwen3_defaults, qwen3_moe_defaults, parscale_defaults, scmoe_defaults, mistral_defaults,
    phi3_defaults, gemma_defaults, olmo2_defaults, deepseek_v2_defaults, deepseek_v3_defaults, gpt_oss_defaults,
    gemma2_defaults, gemma3_defaults;
enum error_code gpt2_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);
enum error_code llama_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);
enum error_code qwen3_moe_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);
enum error_code gemma2_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);
enum error_code deepseek_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);
enum error_code gpt_oss_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);
enum error_code gptj_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);

/** The rule of a mixture's routers, from the words read.  @return OK, or ERR_FORMAT with the word that is unknown. */
enum error_code mixture_finish(struct config_reading *, const char *path, struct error *);

/** Read rotary positions in either form: "rope_theta" and "rope_scaling", or "rope_parameters" (transformers 5).
 *  @return OK, or ERR_FORMAT: an unsupported kind, or two values that differ. */
enum error_code rotary_from_json(struct config_reading *, const cJSON *root, const char *path, struct error *);

/** Read the windows of attention: their size, and the layers that have them.
 *  @return OK, or ERR_FORMAT: this family has none, or the file contradicts itself. */
enum error_code windows_from_json(struct config_reading *, const char *path, struct error *);

/* Write a config into a JSON document; false if there is no memory. */
bool gpt2_to_json(const struct model_config *, cJSON *root);
bool llama_to_json(const struct model_config *, cJSON *root);       /* and all that llama_finish reads */
bool gemma_to_json(const struct model_config *, cJSON *root);
bool gemma2_to_json(const struct model_config *, cJSON *root);                  /* and a Gemma 3 */
bool qwen3_moe_to_json(const struct model_config *, cJSON *root);
bool deepseek_to_json(const struct model_config *, cJSON *root);
bool gpt_oss_to_json(const struct model_config *, cJSON *root);
bool gptj_to_json(const struct model_config *, cJSON *root);
bool mixture_to_json(const struct mixture_config *, cJSON *root);
bool router_to_json(const struct router_rule *, cJSON *root);       /* all that ROUTER_RULE_KEYS read of one */
bool zero_experts_to_json(const struct mixture_config *, cJSON *root);
bool rotary_to_json(const struct model_config *, cJSON *root);
bool config_add_real(cJSON *, const char *key, double);     /* with a decimal point: transformers may refuse integers */
bool windows_to_json(const struct model_config *, cJSON *root);

#endif
