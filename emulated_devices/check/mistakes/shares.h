/* shares.h -- which of P ranks has an element of a parameter, by the usual cuts.  Inside check/ only.
 * clipping.c and gradient_norm.c ask it what each rank had when it took a norm. */
#ifndef ORRERY_SINGLE_SHARES_H
#define ORRERY_SINGLE_SHARES_H

#include "ref/model/params.h"

struct model_config;

/* Flat shards: the parameters of a unit are laid end to end, element by element; each rank has a P-th, rounded up. */
enum share_cut {
    SHARE_ALONG_TP,                     /* heads, and columns of the feed-forward; the rest is whole on all ranks */
    SHARE_ROWS,                         /* of each parameter, as by FSDP2; of a vector elements */
    SHARE_FLAT_EACH,                    /* a unit is a parameter, as by ZeRO-3 */
    SHARE_FLAT_LAYER,                   /* a layer, or all that is in none, as by FSDP1 */
    SHARE_FLAT_LAYER_NORMS,             /* the same, where norms are a layer's last, as in transformers' Llama */
    SHARE_FLAT_GROUP,                   /* all that decay, or all that do not, as by ZeRO-1 and 2 */
    SHARE_FLAT_ALL,                     /* the model */
    SHARE_FLAT_ALL_NORMS,
    SHARE_CUTS
};

/* A parameter in a cut. */
struct share {
    const struct model_config *config;
    enum share_cut cut;
    int param;
    struct param_spec spec;
    enum block_param block;             /* along tp: the matrix or bias of a block that it is; BLOCK_PARAMS: not cut */
    int64_t before, unit;               /* of flat shards: elements of its unit, before it and in all */
};

/** Those of all parameters, in a cut.  @return [model_param_count()] for free(); NULL: no memory. */
struct share *shares_of(const struct model_config *, enum share_cut);

/** The rank that has row r, column c; -1: all have it. */
int share_owner(const struct share *, int64_t r, int64_t c, int parts);

/** Elements from one on, row by row, that the rank has which has this one: the index after them. */
int64_t share_end(const struct share *, int64_t at, int parts);

#endif
