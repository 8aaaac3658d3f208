/* params.h -- the parameters of a model, in the order of its list.  Files of verify/, model/, ref/model/, check/ and
 * other rooms call these functions.  No function returns an error code. */
#ifndef ORRERY_PARAMS_H
#define ORRERY_PARAMS_H

#include "ref/model/param.h"
#include <stdbool.h>
#include <stdint.h>

struct model_config;            /* config.h */

/* The parameters of a block in list order.  A family has some of them; a mixture has UP_W to DOWN_B for each expert,
 * at the end of the block; its dense layers have them once.  Those of a layer with a shortcut are DENSE_UP_W to
 * SECOND_DOWN_W; the last six are of its second block.  AFTER1_W and AFTER2_W are of norms after attention and the
 * feed-forward, beside those before them; with norms after alone these are LN1_W and LN2_W.  A bias follows its weight.
 * The matrices of an adapter are LOW_A and LOW_B of its matrix.  What stands behind BLOCK_PARAMS is outside of
 * blocks. */
enum block_param {
    NO_PARAM,
    LN1_W, LN1_B, Q_LATENT_W, Q_LATENT_B, Q_NORM_W, QUERIES_W, KV_LATENT_W, KV_LATENT_B, KV_NORM_W, KEYS_VALUES_W,
    QKV_W, QKV_B, HEAD_NORM_W, PREFIX, SINKS, PROJ_W, PROJ_B, QKV_LOW_A, QKV_LOW_B, PROJ_LOW_A, PROJ_LOW_B,
    AFTER1_W, LN2_W, LN2_B, AFTER2_W, DENSE_UP_W, DENSE_DOWN_W,
    SECOND_LN1_W, SECOND_QKV_W, SECOND_PROJ_W, SECOND_LN2_W, SECOND_UP_W, SECOND_DOWN_W, ROUTER_W, ROUTER_B,
    SHARED_UP_W, SHARED_DOWN_W, SHARED_GATE_W, UP_W, UP_B, DOWN_W, DOWN_B, UP_LOW_A, UP_LOW_B, DOWN_LOW_A, DOWN_LOW_B,
    BLOCK_PARAMS,
    TOKENS_W, POSITIONS_W, FINAL_NORM_W, FINAL_NORM_B, HEAD_W, HEAD_B, STREAMS_UP_W, STREAMS_UP_B, STREAMS_DOWN_W,
    STREAMS_DOWN_B, MODEL_PARAMS
};

/** The role of a weight; `dense`: in a dense layer among those of a mixture. */
enum param_role param_role_of(enum block_param, bool dense);

/** Number of parameters (tensors) of the model; tied ones count once. */
int model_param_count(const struct model_config *);

/** Parameter i, 0 <= i < model_param_count().  Order: token embedding, learned positions, the blocks, the final norm's
 *  weight and bias, the output matrix unless it is tied, its bias; without those that the model does not have. */
struct param_spec model_param(const struct model_config *, int i);

/* A name without ".weight". */
struct param_text { char text[PARAM_NAME]; };

/** The name of a weight without the prefix of its block and ".weight"; of UP_W in `experts`, that of all experts. */
struct param_text param_text_of(const struct model_config *, enum block_param, bool experts);

/** The correction bias of a layer's router as files have it, F64 in memory and no parameter: no optimizer steps it.
 *  ndim 0: the layer has none, or files of the family have not. */
struct param_spec model_router_bias(const struct model_config *, int64_t layer);

/* Indices in that list; -1 if the model has no such parameter. */
enum { PARAM_WTE = 0 };
int param_positions(const struct model_config *);
int param_of_layer(const struct model_config *, int64_t layer);         /* its first; -1: the embedding, L: what comes
                                                                         * after the last layer, L+1: the end */
/* UP_W to DOWN_B: of expert 0.  The layer may be the number of a second block. */
int param_of_block(const struct model_config *, int64_t layer, enum block_param);
int param_of_expert(const struct model_config *, int64_t layer, int64_t expert, enum block_param);    /* UP_W to
                                                                                                        * DOWN_B */
int param_of_model(const struct model_config *, int64_t layer, enum block_param);      /* also outside of blocks */
int param_bias(const struct model_config *, int64_t layer, enum block_param);           /* of a weight */
int param_final_norm(const struct model_config *);
int param_final_bias(const struct model_config *);
/* The matrix whose adapter has this parameter, an A or a B; -1: it is of no adapter.  B follows A in the list. */
int param_adapted(const struct model_config *, int index);
int param_of_mean(const struct model_config *, int i);          /* what weighs the streams: W1, b1, W2, b2 */
int param_head(const struct model_config *);
int param_head_bias(const struct model_config *);

/** Elements of all parameters. */
int64_t model_elements(const struct model_config *);

#endif
