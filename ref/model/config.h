/* config.h -- the shape of a model, and the list of its parameters. */
#ifndef ORRERY_CONFIG_H
#define ORRERY_CONFIG_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

/* GPT-2: pre-norm blocks, learned positions, gelu.  The letters are those of docs/words.md. */
struct model_config {
    char name[64];
    int64_t S;                  /* positions the model has: the longest sequence */
    int64_t D, H, A, F, L, V;   /* width, heads, head width (H A == D), feed-forward width, layers, vocabulary */
    bool tied;                  /* the output matrix is the token embedding */
    double eps;                 /* of layernorm */
    double dropout_embedding, dropout_residual, dropout_attention;
    double init_std;            /* of embeddings and weights; projections into the residual stream: / sqrt(2 L) */
};

/* A named shape and the batch it is usually trained with. */
struct model_preset {
    struct model_config config;
    const char *description;
    int64_t batch;
};
extern const struct model_preset model_presets[];       /* ends with an empty name; [0] is the default */

/** Check a shape for itself.  @return OK, or ERR_PLAN with the first thing that cannot be. */
enum error_code model_config_check(const struct model_config *, struct error *);

/** A preset by its name.  @return OK, or ERR_USAGE naming the nearest. */
enum error_code model_config_preset(struct model_config *, int64_t *batch, const char *name, struct error *);

/**
 * Read the config.json that Hugging Face transformers writes for a GPT-2.
 * @return OK; ERR_FILE; ERR_FORMAT, naming the key: missing, of the wrong type, or asking for what Orrery does not have.
 */
enum error_code model_config_read(struct model_config *, const char *path, struct error *);

/** Write such a file: beside it and renamed, so never half of one.  @return OK or ERR_FILE. */
enum error_code model_config_write(const struct model_config *, const char *path, struct error *);

/* ---- parameters ---------------------------------------------------------------------------------------------- */

/* What a parameter is for; tensor-parallel schemes cut by this.  A bias has the role of its weight and one dimension. */
enum param_role { ROLE_TOKENS, ROLE_POSITIONS, ROLE_NORM, ROLE_QKV, ROLE_ATTENTION_OUT, ROLE_UP, ROLE_DOWN, ROLE_HEAD };

/* Position of each parameter within its block. */
enum block_param {
    LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, UP_W, UP_B, DOWN_W, DOWN_B, BLOCK_PARAMS
};

/* One logical parameter of the whole model, wherever its pieces are.  Matrices are [out, in]. */
struct param_spec {
    char name[64];              /* as in a GPT-2 of transformers, without the leading "transformer." */
    enum param_role role;
    int layer;                  /* -1: before the first block; L: after the last */
    int ndim;
    int64_t dim[2];
    double mean, std;           /* of its initial values */
    bool decay;                 /* weight decay applies: matrices yes, biases and norms no */
    bool file_transposed;       /* stored [in, out] in files: GPT-2's Conv1D */
};

/** How many parameters the model has, tied ones once. */
int model_param_count(const struct model_config *);

/** Parameter i, 0 <= i < model_param_count(): wte, wpe, the blocks' BLOCK_PARAMS each, ln_f.weight, ln_f.bias, then
 *  lm_head.weight unless it is tied. */
struct param_spec model_param(const struct model_config *, int i);

/* Indices of single parameters. */
enum { PARAM_WTE = 0, PARAM_WPE = 1, PARAM_BLOCKS = 2 };
static inline int param_of_block(int64_t layer, enum block_param p) { return PARAM_BLOCKS + (int)layer * BLOCK_PARAMS + (int)p; }
static inline int param_final_norm(const struct model_config *c) { return PARAM_BLOCKS + (int)c->L * BLOCK_PARAMS; }
static inline int param_head(const struct model_config *c) { return c->tied ? PARAM_WTE : param_final_norm(c) + 2; }

/** Elements in all parameters together. */
int64_t model_elements(const struct model_config *);

/** Floating-point operations of one training step (forward and backward) on B sequences of S tokens: matrix products and
 *  the causal half of attention, a multiply-add counting two. */
double model_step_flops(const struct model_config *, int64_t B, int64_t S);

#endif
