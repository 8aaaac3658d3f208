/* param.h -- one parameter of a model: its role, its name and shape, its parts in files.
 *
 * params.h lists the parameters of a model.  Whoever moves, shards or steps parameters needs this header alone.  No
 * function returns an error code.
 */
#ifndef ORRERY_PARAM_H
#define ORRERY_PARAM_H

#include "ref/numeric/tensor.h"
#include <stdbool.h>
#include <stdint.h>

/* Purpose of a parameter; tensor-parallel schemes shard by role.  A bias has the role of its weight. */
enum param_role {
    ROLE_TOKENS,
    ROLE_POSITIONS,
    ROLE_NORM,
    ROLE_QKV,
    ROLE_ATTENTION_OUT,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_HEAD,
    ROLE_ROUTER,
    ROLE_SHARED_UP, ROLE_SHARED_DOWN,   /* of a mixture's shared experts */
    ROLE_DENSE_UP, ROLE_DENSE_DOWN,     /* of its dense layers */
    ROLE_LATENT, ROLE_LATENT_NORM,      /* from the stream to latents of queries, or of keys and values; their norms */
    ROLE_QUERIES, ROLE_KEYS_VALUES,     /* from the latents, or from the stream, to heads */
    ROLE_SHARED_GATE,
    ROLE_SINKS,                         /* a logit of each query head */
    ROLE_HEAD_NORM,                     /* of queries, then of keys: A numbers each, the same for all heads */
    ROLE_PREFIX,                        /* keys and values of each stream before its first token */
    ROLE_STREAMS_UP, ROLE_STREAMS_DOWN, /* what weighs the streams */
    ROLE_LOW_IN, ROLE_LOW_OUT           /* of a low-rank adapter: A, which reads what its matrix reads; and B */
};

enum { PARAM_NAME = 96, PARAM_MOST_PARTS = 3 };

/* Rows of a parameter that are a separate tensor in the files of transformers, or are in one with others. */
struct param_part {
    char name[PARAM_NAME + 16];     /* with "transformer." */
    int64_t rows;                   /* rows of the parameter that this part has; parts follow one another */
    int64_t items, item;            /* the tensor has so many of these in its first dimension; 0: it is one alone */
    int rows_apart, first;          /* in the file, groups of rows of `rows_apart` parts take turns; this part's is
                                     * number `first` of a turn */
    int64_t together;               /* rows of a group; 0: 1 */
};

static inline int64_t part_group(const struct param_part *part) { return part->together > 0 ? part->together : 1; }

/** The row of the file that is row i of the part. */
static inline int64_t part_row(const struct param_part *part, int64_t i)
{
    const int64_t group = part_group(part);
    return (i / group * part->rows_apart + part->first) * group + i % group;
}

/**
 * One logical parameter of the whole model, independent of sharding.  Matrices are [out, in].
 *
 * Matrices with the same input are one parameter: QKV [(H+2K)A, D] has the rows of all queries, all keys, all values;
 * UP of a swiglu or a geglu [2F, D] has the rows of the gate, then of the gated half.  Files may store them as separate
 * `part`s.
 */
struct param_spec {
    char name[PARAM_NAME];      /* as in transformers; GPT-2 without the leading "transformer."; QKV of a Llama:
                                 * "...self_attn.qkv_proj.weight", UP: "...gate_up_proj.weight", of an expert
                                 * "...w13.weight" */
    enum param_role role;       /* decides how tensor parallelism cuts the parameter */
    int layer;                  /* -1: before the first block; L: after the last */
    int expert;                 /* -1: not of an expert */
    int ndim;                   /* 1: a vector; 2: a matrix */
    int64_t dim[2];             /* [out, in] of a matrix; [n, 0] of a vector */
    double mean, std;           /* of its initial values */
    bool uniform;               /* they are uniform in +-std, not normal */
    bool decay;                 /* weight decay applies: matrices yes, biases and norms no */
    bool file_transposed;       /* files store [in, out]: GPT-2's Conv1D */
    int parts;                  /* entries of `part`, at least 1 */
    struct param_part part[PARAM_MOST_PARTS]; /* tensors of the file that make up the parameter, in order of its rows */
};

/* Whether it is the matrix of a linear layer inside a block, except the router's and the shared experts' gate. */
static inline bool param_is_linear(const struct param_spec *spec)
{
    return spec->ndim == 2 &&
           (spec->role == ROLE_QKV || spec->role == ROLE_ATTENTION_OUT || spec->role == ROLE_UP
            || spec->role == ROLE_DOWN ||
            spec->role == ROLE_SHARED_UP || spec->role == ROLE_SHARED_DOWN || spec->role == ROLE_DENSE_UP ||
            spec->role == ROLE_DENSE_DOWN || spec->role == ROLE_LATENT || spec->role == ROLE_QUERIES ||
            spec->role == ROLE_KEYS_VALUES);
}

/* Whether a parameter is small and every device along tp has all of it. */
static inline bool role_is_whole(enum param_role role)
{
    return role == ROLE_ROUTER || role == ROLE_SHARED_GATE || role == ROLE_STREAMS_UP || role == ROLE_STREAMS_DOWN ||
           role == ROLE_HEAD_NORM || role == ROLE_LATENT || role == ROLE_LATENT_NORM || role == ROLE_LOW_IN ||
           role == ROLE_LOW_OUT;
}

/** Whether a tensor's name ends with this text.  Pure. */
bool name_ends(const char *name, const char *end);

/** Whether a tensor's name ends as a parameter's, in ".weight" or ".bias": also that of a gradient or state.  Pure. */
bool param_is_name(const char *name);

/** Initial values of elements [first, first + n) of a parameter: a pure function of (seed, name, element). */
void param_init(const struct param_spec *, uint64_t seed, enum dtype, int64_t first, int64_t n, void *out);

#endif
