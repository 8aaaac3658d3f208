/* naming.h -- how a family of models names its parameters, in files and here.  model/probe.c, ref/golden/names.c and
 * params.c call these functions.  No function returns an error code. */
#ifndef ORRERY_NAMING_H
#define ORRERY_NAMING_H

#include "ref/model/config.h"
#include "ref/model/family.h"
#include "ref/model/params.h"

/* A parameter's name, and the names of its parts if it has several. */
struct names { const char *whole, *part[PARAM_MOST_PARTS]; };

/* The names of a family. */
struct naming {
    const char *in_files;                       /* prefix of all names except the head's, only in files */
    const char *block;                          /* prefix of the names of a block's parameters; %d: the layer */
    bool transposed;                            /* matrices of blocks are [in, out] in files */
    struct names of_block[BLOCK_PARAMS];        /* name of each parameter of a block, behind the prefix `block` */
    struct names stream_queries;                /* QUERIES_W where queries come from the stream, not from a latent */
    const char *expert;                         /* prefix of the names of an expert's parameters; %d: the expert */
    struct names expert_up, expert_up_bias, expert_down, expert_down_bias;      /* behind the prefix `expert`, or
                                                 * `stack` in files */
    const char *stack;                          /* in files all experts' are one tensor with this prefix, matrices
                                                 * [in, out], rows of gate and gated half in turn; NULL: each its own */
    bool heads_together;                        /* in files QKV is one tensor, in which the queries, keys and values of
                                                 * a head are neighbours; K = H */
    const char *tokens, *positions, *norm;      /* without ".weight" and ".bias" */
    const char *head_in_files;                  /* as these, the output matrix in files; NULL: lm_head */
    const char *router_bias;                    /* NULL: files have none */
};

/** The names of a model's family. */
static inline const struct naming *naming_of(const struct model_config *config) { return config->family->naming; }

#endif
