/* node.h -- a model as a table: nodes over named slots, for the embedding, a block and the loss.
 *
 * A node is one operation.  It reads slots, may have parameters, and writes one slot.  A slot is an activation; its
 * name is also the name by which the one-device model shows it.  Devices run these tables.  The one-device model does
 * not read them: it is written by hand, so that each is a check of the other.  Files of model/link/, model/run/,
 * check/recompute/ and model/sbp/ call these functions.  No function returns an error code.
 */
#ifndef ORRERY_NODE_H
#define ORRERY_NODE_H

#include "ref/model/op.h"
#include "ref/model/operands.h"
#include "ref/model/options.h"
#include "ref/model/params.h"

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
