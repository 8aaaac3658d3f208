/* kinds.h -- the kinds of a model's parts, and what follows from them alone.
 *
 * struct model_config has a kind as a number.  So only files that name kinds include this header, and a new kind is a
 * short build.  Files of ref/model/, model/, verify/, ref/golden/ and other rooms call these functions.  No function
 * returns an error code.
 */
#ifndef ORRERY_KINDS_H
#define ORRERY_KINDS_H

#include "ref/model/config.h"
#include "ref/model/param.h"

/* The parts of a model: one of each kind. */
enum norm_kind { NORM_LAYER, NORM_RMS };
enum norm_places { NORMS_BEFORE, NORMS_AFTER, NORMS_AROUND };   /* of what attention and the feed-forward read; of what
                                                                 * they give; of both */
enum position_kind { POSITIONS_LEARNED, POSITIONS_ROTARY };
enum mlp_kind { MLP_GELU, MLP_SWIGLU, MLP_GEGLU, MLP_MIXTURE };
enum activation_kind { ACTIVATION_GELU, ACTIVATION_EXACT_GELU, ACTIVATION_SQUARED_RELU };       /* of MLP_GELU */
enum rotary_scaling { SCALING_NONE, SCALING_LINEAR, SCALING_LLAMA3, SCALING_DYNAMIC, SCALING_YARN, SCALING_LONG };

/** Whether the angles of a token depend on how long its sequence may be, beyond S tokens. */
static inline bool rotary_by_length(const struct rotary *rotary, int64_t S)
{
    return rotary->scaling == SCALING_LONG && S > rotary->original_positions;
}

/** Whether queries and keys of a layer are turned by their positions. */
static inline bool model_turns(const struct model_config *config, int64_t layer)
{
    return config->positions == POSITIONS_ROTARY && !layer_set_has(&config->unturned, layer);
}

/** The feed-forward of a layer: layers of one model may differ. */
static inline enum mlp_kind layer_mlp(const struct model_config *config, int64_t layer)
{
    return layer_set_has(&config->dense.at, layer) ? MLP_SWIGLU : config->mlp;
}

/** The layers that have a router and experts. */
static inline int64_t mixture_layers(const struct model_config *config)
{
    return config->mlp == MLP_MIXTURE ? config->L - layer_set_count(&config->dense.at, config->L) : 0;
}

static inline int64_t up_width(const struct model_config *config)
{
    return config->mlp == MLP_GELU ? config->F : 2 * config->F;
}

/* Sets of roles, for model_config.biases. */
#define HAS_BIAS(role) (1u << (role))
enum {
    BIASES_NONE = 0,
    BIASES_ATTENTION = HAS_BIAS(ROLE_QKV) | HAS_BIAS(ROLE_ATTENTION_OUT),
    BIASES_FEED = HAS_BIAS(ROLE_UP) | HAS_BIAS(ROLE_DOWN),
    BIASES_BLOCK = BIASES_ATTENTION | BIASES_FEED,
    BIASES_LATENT_ATTENTION = HAS_BIAS(ROLE_LATENT) | HAS_BIAS(ROLE_ATTENTION_OUT)     /* none from latents to heads */
};

/** Whether parameters of this role have a bias. */
static inline bool model_has_bias(const struct model_config *config, enum param_role role)
{
    if (role == ROLE_STREAMS_UP || role == ROLE_STREAMS_DOWN) return true;
    return role == ROLE_NORM ? config->norm == NORM_LAYER && !config->norms_unbiased
           : (config->biases & HAS_BIAS(role)) != 0;
}

#endif
