/* op.h -- the operations that a node of a model (node.h) can be.  node.h includes this list. */
#ifndef ORRERY_OP_H
#define ORRERY_OP_H

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

enum { NODE_INPUTS = 3 };                       /* slots that a node reads at most */

#endif
