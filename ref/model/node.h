/* node.h -- a model as a table: nodes over named slots, for the embedding, a block and the loss.
 *
 * A node is one operation.  It reads slots, may have parameters, and writes one slot.  A slot is an activation; its
 * name is also the name by which the one-device model shows it.  Devices run these tables.  The one-device model does
 * not read them: it is written by hand, so that each is a check of the other.
 */
#ifndef ORRERY_NODE_H
#define ORRERY_NODE_H

#include "ref/model/operands.h"
#include "ref/model/options.h"

enum op {
    OP_END,                             /* ends a table */
    OP_EMBED,                           /* a row of a matrix for each of "ids" */
    OP_POSITIONS,                       /* in[0] plus a row of a matrix for each position */
    OP_NORM,                            /* the model's kind of norm */
    OP_MATRIX,                          /* in[0] times a matrix, plus its bias */
    OP_HEAD_NORM,                       /* in[0], each head of queries and keys normed */
    OP_LATENT_NORM,                     /* an rmsnorm of in[0], a latent: of as many columns as it has weights */
    OP_JOIN,                            /* queries of in[0], keys without positions and values of in[1], and the key
                                         * that all heads share, at the end of in[2]: as attention reads them */
    OP_NARROW,                          /* in[0], heads' results, without the zeros beside values */
    OP_ROTARY,                          /* queries and keys of in[0], rotated by their positions, in layers that do */
    OP_ATTENTION,                       /* of fused queries, keys and values */
    OP_SINK_ATTENTION,                  /* the same, and each query sees the sink of its head, a parameter */
    OP_PREFIXED_ATTENTION,              /* as OP_ATTENTION, and of the queries to the keys and values of their stream */
    OP_GELU,                            /* the model's activation of a feed-forward without a gate */
    OP_SILU,
    OP_SWIGLU,                          /* in[0]: the gate and the gated values, side by side */
    OP_GEGLU,                           /* the same */
    OP_SCALE,                           /* in[0] times a factor of the model, if the model has that factor */
    OP_CAP,                             /* in[0], the logits, capped */
    OP_DROPOUT,
    OP_ADD,                             /* in[0] + in[1]: the stream, then a branch that ends in a dropout */
    OP_ROUTE,                           /* in[0]: logits of experts; chooses the k largest of each row, and weights */
    OP_MIXTURE,                         /* the feed-forward of in[0]'s rows by the experts that in[1], the route's
                                         * output, has chosen, weighted by it */
    OP_GATE,                            /* in[0] times the sigmoid of in[1], a number for each row */
    OP_BESIDE,                          /* the streams of in[0], one beside the other in a row for each token */
    OP_MIX,                             /* the mean of the streams in in[0], weighted by the softmax of in[1] */
    OP_LOSS,                            /* cross-entropy of in[0], the logits, with "labels" */
    OP_COUNT
};

enum { NODE_INPUTS = 3 };

struct node {
    enum op op;                         /* the operation */
    const char *out;                    /* the slot that it writes; NULL: the result is a number, not a tensor */
    const char *in[NODE_INPUTS];        /* slots that it reads: of this table, or "in", the output of the part before */
    enum block_param param;             /* its weight; a bias belongs to it.  NO_PARAM: none; UP_W: also experts' */
    enum model_factor factor;           /* for a scale */
    const char *place;                  /* for a dropout: the name of its stream of random numbers */
    enum model_option when;             /* in models without this option the output is in[0] */
    bool dense;                         /* a matrix of a dense layer among those of a mixture */
    bool second;                        /* of the second block of a layer with a shortcut: other random numbers */
    const char *before;                 /* a mixture on a shortcut: it may compute just before the node with this
                                         * output, and exchange rows while the nodes beside it compute; NULL: not */
    bool unseen;                        /* the one-device model does not observe the slot, so no probe compares it */
};

/* A model: its parts, in order.  A part is the unit of acquiring weights, of recomputation and of pipeline stages. */
struct program {
    const struct node *embedding, *block, *loss;        /* each ends with OP_END */
    const struct node *dense_block;     /* of a mixture's dense layers; NULL: it can have none */
    enum model_option with;             /* of models that have this option */
};

/** How tensor parallelism cuts a node's matrix. */
static inline enum param_role node_role(const struct node *node) { return param_role_of(node->param, node->dense); }

#endif
