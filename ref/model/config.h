/* config.h -- describes the shape of a model: sizes, kinds of parts, and presets.
 *
 * Each plan has a copy of the shape, so this header is in most objects.  kinds.h names the kinds of parts, and params.h
 * lists parameters.  A new kind or parameter is compiled only where names are used.
 */
#ifndef ORRERY_CONFIG_H
#define ORRERY_CONFIG_H

#include "ref/error.h"
#include "ref/ops/ops.h"
#include <stdbool.h>
#include <stdint.h>

struct family;                  /* family.h */

/* Rotary positions: pair i of the R/2 rotated pairs of a head turns by theta^(-2i/R) radians per token, scaled as in
 * rotary.h. */
enum { ROTARY_PAIRS = 128 };                    /* of which LongRoPE can turn each by a number of its own */
struct rotary {
    double theta; /* base of the frequencies: pair i turns by theta^(-2i/R) a position, before scaling */
    unsigned scaling;                           /* enum rotary_scaling: how a longer context changes frequencies */
    double factor;                              /* of all scalings but LongRoPE */
    double low_frequency, high_frequency;       /* of Llama-3 scaling and YaRN: turns in the original context */
    int64_t original_positions;                 /* of these and LongRoPE: length of the original context */
    double enlarged;                            /* of YaRN and LongRoPE: factor of cosines and sines */
    double shorter[ROTARY_PAIRS], longer[ROTARY_PAIRS];         /* of LongRoPE: what divides the frequency of a pair, in
                                                 * sequences up to the original length, and in longer ones */
    double all_dim;                             /* of YaRN with latent attention: mscale_all_dim; 0: none */
    bool between_pairs;                         /* of YaRN: its ramp may begin and end between two pairs */
    int64_t turned;                             /* R: the first R numbers of a head are rotated; 0: all A */
    bool neighbours;                            /* pair i is numbers 2i and 2i+1; else i and i + R/2 */
};

/* Sliding windows of attention.  In a layer that has one a query sees itself and the keys before it, `size` in all; in
 * the others all keys up to itself. */
enum { WINDOW_LAYERS = 1024 };                  /* layers that may have one: the first of a model */
struct windows {
    int64_t size;                               /* 0: no layer has one */
    uint64_t layers[WINDOW_LAYERS / 64];        /* a bit for each layer that has one */
};

/* How the balance loss of a mixture is taken: three conventions (conventions.h), not in files; balance.h computes. */
struct balance_rule { int over, layers, choices; };

/* How the loss of logits is taken (loss_rule.h computes): conventions, not in files.  All zeros: the mean over labels
 * of their cross entropy. */
struct loss_rule {
    double smoothing, z;                /* label smoothing; the factor of log(sum exp)^2 */
    int over, mean;                     /* SMOOTHING_ALL, ...; MEAN_OF_LABELS, ... */
    int64_t parts;                      /* of MEAN_OF_PARTS: parts of the batch */
    double divisor;                     /* of all; 0: 1 */
};

/* A mask says which tokens of its sample a token sees (attention_mask.h); no file has it.  All zeros: causal. */
struct attention_mask {
    unsigned kind;                      /* enum attention_mask_kind */
    double value[2];                    /* the mask's numbers, as typed */
};

/* A mixture of experts, which are swiglus, instead of one feed-forward layer. */
struct mixture_config {
    int64_t E, k;                               /* experts; experts per token */
    int64_t zero;                               /* experts without computation: columns of the router after the E */
    bool zero_is_null;                          /* they return 0, else what they get */
    struct router_rule router;                  /* how they are chosen and weighed */
    double balance_coefficient, z_coefficient;  /* of the auxiliary losses; 0: no such loss */
    struct balance_rule balance;                /* of which tokens and layers one balance loss is */
    double sequence_coefficient;                /* of the balance loss of each sequence */
    double capacity_factor;     /* of the mean load: how many choices an expert keeps in a sequence; 0: all */
    bool drops_by_weight;       /* those with the largest weights are kept, else those of the first tokens */
    int64_t shared;             /* width of the feed-forward that every token also goes through; 0: none */
    struct clamped clamped;     /* the experts are clamped swiglus; limit 0: plain ones */
    bool shared_gate;           /* its result is multiplied by the sigmoid of a number computed from the token */
};

/* The columns of its router. */
static inline int64_t mixture_columns(const struct mixture_config *config) { return config->E + config->zero; }

/* A set of layers; which layers can be in one is limited, so that a config is plain memory. */
enum { LAYER_SET_MOST = 1024 };
struct layer_set { uint64_t bits[LAYER_SET_MOST / 64]; };

static inline bool layer_set_has(const struct layer_set *layer_set, int64_t layer)
{
    return layer >= 0 && layer < LAYER_SET_MOST && (layer_set->bits[layer / 64] >> (layer % 64) & 1);
}
static inline void layer_set_add(struct layer_set *layer_set, int64_t layer)
{
    if (layer >= 0 && layer < LAYER_SET_MOST) layer_set->bits[layer / 64] |= (uint64_t)1 << (layer % 64);
}

/** How many of the layers before `end` are in a set. */
int64_t layer_set_count(const struct layer_set *, int64_t end);

/* Layers of a mixture that have a dense feed-forward of their own width F instead of a router and experts. */
struct dense_layers {
    int64_t F;                                  /* 0: there are no such layers */
    struct layer_set at;                        /* which layers are dense */
};

/* Latent attention (MLA, arXiv:2405.04434).  Keys without positions and values of all heads are computed from one
 * normed latent of each token, queries from another one or from the stream; a key with rotary positions is shared by
 * all heads.  The first rotary.turned numbers of a head's A are those with positions.  Values are v wide; in qkv they
 * have zeros up to A. */
struct latent_config {
    int64_t q, kv;              /* widths of the latents; q = 0: queries come from the stream; kv = 0: no latents */
    int64_t v;                  /* width of a head's values */
};
#define LATENT(c) ((c)->latent.kv > 0)
#define LATENT_EPS 1e-6         /* of the latents' norms, whatever rms_norm_eps is: as in transformers */

/* Numbers that tensors of a model are multiplied by; 0: by none. */
struct multipliers {
    double embedding;           /* of tokens */
    double residual;            /* what attention and the feed-forward add to the stream */
    double scores;              /* scores of attention, in place of 1/sqrt(score_width) */
    double logit_divisor;       /* what logits are divided by */
};

/* P parallel streams of one model (ParScale, arXiv:2505.10475): each runs on all tokens, with learned keys and values
 * of its own before the first token in every layer; a learned weighted mean of their results goes to the output
 * matrix. */
struct streams_config {
    int64_t P, prefix;          /* streams; tokens of a prefix.  P = 0: one stream, which has neither */
    double smoothing;           /* what all streams share evenly of the weights' sum, from 0 to 1 */
};

/** The streams of a model, at least 1. */
#define STREAMS(c) ((c)->streams.P > 1 ? (c)->streams.P : 1)

/* Low-rank adapters (LoRA, arXiv:2106.09685): a matrix W [out, in] is W + alpha / rank B A, with A [rank, in] and
 * B [out, rank].  adapters.h computes. */
struct adapters_config {
    int64_t rank;               /* 0: no matrix has an adapter */
    double alpha;               /* the factor of B A is alpha / rank */
    unsigned of;                /* which matrices: enum adapted_set of adapters.h, a bit each */
};

/* How many choices an expert keeps in a sequence of S tokens. */
int64_t mixture_capacity(const struct mixture_config *, int64_t S);

/* Pre-norm blocks of causal attention and feed-forward, in sequence or in parallel.  Letters: docs/words.md. */
struct model_config {
    char name[64];              /* for reports and messages */
    int64_t S;                  /* positions: the longest sequence */
    int64_t D, H, K, A, F, L, V;        /* width, query heads, key/value heads, head width (of a GPT-2 and a GPT-J D/H),
                                         * feed-forward width (of one expert), layers, vocabulary */
    const struct family *family;        /* decides the names of parameters, the keys of config.json and the nodes of
                                 * devices, and which of the options below there can be: family.h */
    struct loss_rule loss;      /* of logits: not in files; all zeros: the mean cross entropy */
    enum exact_rule exact;      /* whether sums round before they are finished (ref/exact/): not in files */
    struct attention_mask mask; /* of attention: not in files; all zeros: causal */
    struct adapters_config adapters;    /* not in files; rank 0: none */
    unsigned trains;            /* classes of parameters that train, a bit each (trained.h); 0: all.  Not in files */
    unsigned norm;              /* enum norm_kind: rmsnorm or layernorm, the same kind everywhere */
    unsigned positions;         /* enum position_kind: learned, added to the embedding; or rotary, in attention */
    unsigned mlp;               /* enum mlp_kind: of all layers, but of those that are dense: layer_mlp() */
    unsigned activation;        /* enum activation_kind: of MLP_GELU only, between its two matrices */
    struct rotary rotary;       /* of POSITIONS_ROTARY only */
    struct layer_set unturned;  /* layers whose queries and keys are not turned: attention without positions */
    struct windows windows;     /* layers whose attention sees only the last tokens */
    struct mixture_config mixture;      /* of MLP_MIXTURE only */
    struct dense_layers dense;  /* layers of a mixture without a router */
    struct streams_config streams;      /* parallel streams; P = 0: none */
    struct latent_config latent;        /* kv = 0: attention projects queries, keys and values from the stream */
    int64_t padding;            /* 1 + padding token, whose embedding gets no gradient in transformers; 0: none */
    double local_theta;         /* of rotary positions in layers with a window, which have no scaling then; 0: as in the
                                 * others */
    struct multipliers multipliers; /**< Factors of embeddings, branches and logits. */
    double score_width;         /* scores of attention are divided by its square root; 0: A */
    double score_cap, logit_cap;        /* what scores of attention, and logits, stay below (soft_cap.c); 0: none */
    bool scaled_embedding;      /* the embedding of a token is multiplied by sqrt(D) */
    bool norms_from_one;        /* a norm's factors are 1 + its weights, which start at 0 */
    bool norms_unbiased;        /* layernorms have no bias */
    bool head_norms;            /* each head of queries and keys passes an rmsnorm before its rotary positions */
    bool sinks;                 /* each query head has a sink: ops.h */
    bool normed_together;       /* such a norm is of all queries, and of all keys, not of each head */
    unsigned norms_at;          /* enum norm_places: which norms a block has */
    bool parallel;              /* attention and feed-forward read the block's input, and are added together */
    bool two_norms;             /* of a parallel block: each reads a norm of its own; else both read the same */
    bool shortcut;              /* a layer has two blocks with dense feed-forwards; its mixture reads what the first
                                 * one's feed-forward does, and is added at the end of the second */
    unsigned biases;            /* roles whose matrices have a bias: HAS_BIAS(role) | ...; for norms norms_unbiased */
    bool tied;                  /* the output matrix is the token embedding */
    double eps;                 /* of the norms */
    double dropout_embedding, dropout_residual, dropout_attention;      /* probabilities: of the embeddings, of what a
                                 * block adds to the stream, of attention's weights */
    double init_std;            /* of embeddings and weights; divided by sqrt(2 L) for projections to the residual */
    int initial;                /* INITIAL_SCALED, as above, or another rule of conventions.h; not in files */
};

/** The window of a layer's attention; 0: it has none. */
static inline int64_t model_window(const struct model_config *config, int64_t layer)
{
    const bool has = layer >= 0 && layer < WINDOW_LAYERS && (config->windows.layers[layer / 64] >> layer % 64 & 1);
    return has ? config->windows.size : 0;
}

/** Whether a layer has the rotary positions of layers with a window; those; and those of a layer. */
static inline bool model_is_local(const struct model_config *config, int64_t layer)
{
    return config->local_theta > 0 && model_window(config, layer) > 0;
}
struct rotary model_local_rotary(const struct model_config *);
struct rotary model_rotary(const struct model_config *, int64_t layer);

/** Give the layers from `first` to before `end` a window; none of those after WINDOW_LAYERS, so check L. */
static inline void windows_add(struct windows *windows, int64_t first, int64_t end)
{
    for (int64_t l = first; l < end && l < WINDOW_LAYERS; l++) windows->layers[l / 64] |= (uint64_t)1 << l % 64;
}

/** The number of layers that have a window. */
int64_t model_windowed_layers(const struct model_config *);

/* One number of a shape. */
struct model_number { const char *name; bool whole; double value; };
enum { MODEL_NUMBERS = 72 };

/** The numbers that distinguish two models of one family.  @return how many. */
int model_config_numbers(const struct model_config *, struct model_number out[MODEL_NUMBERS]);

/* A named shape and the batch it is usually trained with. */
struct model_preset {
    struct model_config config;         /* the shape; its name is the word for --model */
    const char *description;            /* one line for `orrery list models` */
    int64_t batch;                      /* B, unless --batch says otherwise */
};
extern const struct model_preset model_presets[];       /* ends with an empty name; [0] is the default */

/** Check that a shape is consistent.  @return OK, or ERR_PLAN with the first problem. */
enum error_code model_config_check(const struct model_config *, struct error *);

/** Find a preset by name, or by NAME:L=16,D=2048,.. with other sizes: model_config_resize.
 *  @return OK, or ERR_USAGE with the nearest name. */
enum error_code model_config_preset(struct model_config *, int64_t *batch, const char *name, struct error *);

/* The letters of docs/words.md that a word for --model can give a preset. */
#define MODEL_SIZE_LETTERS "LDHKAFVSEk"

/**
 * Give a model other sizes.
 * @param sizes  "L=16,D=2048": LETTER=NUMBER with commas between.  Without K and A, heads stay as they were in
 *               proportion: one key head a query head, D / H numbers a head.
 * @param word   all of it, for messages and as the model's new name.
 * @return OK; ERR_USAGE: a letter that is none, twice or of a mixture alone, a number out of range.
 */
enum error_code model_config_resize(struct model_config *, const char *sizes, const char *word, struct error *);

/**
 * Read a config.json of Hugging Face transformers for a model of one of the families.
 * @return OK; ERR_FILE; ERR_FORMAT, naming the key: missing, of the wrong type, or with a value that is not supported.
 */
enum error_code model_config_read(struct model_config *, const char *path, struct error *);

/** Read DIR/config.json.  @return as model_config_read; ERR_FORMAT, too, if the folder has another program's files. */
enum error_code model_config_read_folder(struct model_config *, const char *dir, struct error *);

/** Read a config from text in memory; `where` names the text in messages. */
enum error_code model_config_parse(struct model_config *, const char *text, const char *where, struct error *);

/** Write such a file atomically.  @return OK or ERR_FILE. */
enum error_code model_config_write(const struct model_config *, const char *path, struct error *);

/** Write such a file as text in memory, which model_config_parse reads.  @param[out] text  for free(); NULL on failure.
 *  @return OK, ERR_PLAN as model_config_check, or ERR_MEMORY. */
enum error_code model_config_text(const struct model_config *, char **text, struct error *);

/**
 * Refuse padding tokens as inputs: they have no gradient in transformers, but would have one here.
 * @param where  names the tokens in messages.
 * @return OK, or ERR_PLAN if there is one.
 */
enum error_code model_config_check_inputs(const struct model_config *, const int32_t *ids, int64_t n, const char *where,
                                          struct error *);

/* Where layers are numbered, the second block of one with a shortcut; L is what comes after the last layer. */
static inline int64_t second_block(const struct model_config *config, int64_t layer) { return config->L + 1 + layer; }

/* A number that is added to the weights of a norm: 1, or 0. */
static inline double norm_base(const struct model_config *config) { return config->norms_from_one; }

/* Widths of the fused layers, and of all heads' results side by side. */
static inline int64_t qkv_width(const struct model_config *config) { return (config->H + 2 * config->K) * config->A; }
static inline int64_t heads_width(const struct model_config *config) { return config->H * config->A; }

/* Widths without the zeros beside a latent's values: what the projection back multiplies. */
static inline int64_t value_width(const struct model_config *config)
{
    return LATENT(config) ? config->latent.v : config->A;
}
static inline int64_t values_width(const struct model_config *config) { return config->H * value_width(config); }

/* Latent attention has these widths: a head's queries and keys without positions; what the latent of keys and values
 * becomes in a head; the latent with the shared key. */
static inline int64_t nope_width(const struct model_config *config) { return config->A - config->rotary.turned; }
static inline int64_t expanded_width(const struct model_config *config)
{
    return nope_width(config) + config->latent.v;
}
static inline int64_t kv_latent_width(const struct model_config *config)
{
    return config->latent.kv + config->rotary.turned;
}
/** Floating-point operations of one training step (forward and backward) on B sequences of S tokens: matrix products
 *  and the causal half of attention.  A multiply-add counts as two; a mixture computes k experts per token. */
double model_step_flops(const struct model_config *, int64_t B, int64_t S);

/** Operations of the forward pass alone. */
double model_forward_flops(const struct model_config *, int64_t B, int64_t S);

/** Operations of the forward pass with attention of each token to all tokens of its sequence, as if there were no mask
 *  and no window.  Three times either number are the operations of a step by which utilizations are published:
 *  docs/words.md. */
double model_forward_flops_whole(const struct model_config *, int64_t B, int64_t S);

#endif
