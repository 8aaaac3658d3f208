/* shares.h -- which of P ranks has an element of a parameter, by the usual cuts.  Inside check/ only.
 * norms.c and clipping.c ask it what each rank had when it took a norm. */
#ifndef ORRERY_SINGLE_SHARES_H
#define ORRERY_SINGLE_SHARES_H

#include "emulated_devices/check/recompute/parts.h"
#include "ref/model/config.h"
#include "ref/model/params.h"

/* Flat shards: the parameters of a unit are laid end to end, element by element; each rank has a P-th, rounded up. */
enum share_cut {
    SHARE_ALONG_TP,                     /* heads, and columns of the feed-forward; the rest is whole on all ranks */
    SHARE_EXPERTS,                      /* ranks along ep have experts that follow one another; the rest is whole */
    SHARE_EXPERTS_IN_TURN,              /* rank r has experts r, r + P, ... */
    SHARE_STAGES,                       /* layers, as of a pipeline; the embedding is the first stage's */
    SHARE_ROWS,                         /* of each parameter, as by FSDP2; of a vector elements */
    SHARE_FLAT_EACH,                    /* a unit is a parameter, as by ZeRO-3 */
    SHARE_FLAT_LAYER,                   /* a layer, or all that is in none, as by FSDP1 */
    SHARE_FLAT_LAYER_NORMS,             /* the same, where norms are a layer's last, as in transformers' Llama */
    SHARE_FLAT_GROUP,                   /* all that decay, or all that do not, as by ZeRO-1 and 2 */
    SHARE_FLAT_ALL,                     /* the model */
    SHARE_FLAT_ALL_NORMS,
    SHARE_CUTS
};

/* How tp cuts a parameter: rows of queries, keys and values; rows of the first matrix of a feed-forward, gates and
 * what they gate apart; columns of heads; columns of the hidden width. */
enum share_along { ALONG_NONE, ALONG_QKV, ALONG_UP, ALONG_HEADS, ALONG_DOWN };

/* A parameter in a cut. */
struct share {
    const struct model_config *config;  /**< Configuration of the model. */
    enum share_cut cut;                 /**< Cut of the parameters. */
    bool vector;                        /**< The parameter is a vector. */
    int64_t rows, cols;                 /* of a vector: its elements, and 1 */
    enum share_along along;             /* of the cut along tp */
    int layer, expert;                  /* expert: -1: it is none's */
    int64_t before, unit;               /* of flat shards: elements of its unit, before it and in all */
};

/** Those of all parameters, in a cut.  @return [single_spec_count()] for free(); NULL: no memory. */
struct share *shares_of(const struct single *, enum share_cut);

/** Whether a model has parameters that ranks can cut so. */
bool share_can(const struct model_config *, enum share_cut, int parts);

/** The rank that has row r, column c; -1: all have it. */
int share_owner(const struct share *, int64_t r, int64_t c, int parts);

/** Elements from one on, row by row, that the rank has which has this one: the index after them. */
int64_t share_end(const struct share *, int64_t at, int parts);

#endif
