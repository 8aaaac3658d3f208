/* sbp_graph.h -- the graph of signatures (schemes/sbp/graph.h) of a table of nodes: forward and backward as one list.
 *
 * Tensors have the names of the table's slots: "attn.qkv" is what that node makes, "attn.qkv.product" the same before
 * its bias, "attn.qkv.w" and ".b" its parameters, "dattn.qkv" its gradient.  Of a norm, w and b are one tensor,
 * "ln_1.wb".  Where a slot has several readers, "dmid.ln_2" is what node ln_2 adds to "dmid".  Such terms may stay
 * partial sums until they are added; so may the branches of a parallel block.  Sums of the stream lie as the stream
 * does, and what leaves, and the gradients of both.  A gradient that a matrix reads has a copy, "dmid.whole", which
 * may lie otherwise: brought there once, it serves all three products.
 *
 * Dropouts are left out: the graph is that of p = 0.
 *
 * Layout  The fused matrix of queries, keys and values is [K, G, A, D], G = H/K + 2: one key/value head after another,
 *         each with the H/K query heads before it that use it, so that a cut along K never divides a group.  In the
 *         model, all queries come first, then all keys, all values: row a of member g of group k is its row
 *         (k (G - 2) + g) A + a if g < G - 2, (H + k) A + a if it is the key, (H + K + k) A + a if it is the value.
 *         Gate and gated half of a swiglu are [2, F, D], the rows of the model.
 * Called  cli/show/sbp.c calls these functions.
 */
#ifndef ORRERY_SBP_GRAPH_OF_TABLE_H
#define ORRERY_SBP_GRAPH_OF_TABLE_H

#include "emulated_devices/model/program.h"
#include "emulated_devices/schemes/sbp/graph.h"
#include "emulated_devices/schemes/tensor/tensor_sbp.h"
#include "ref/model/node.h"

/* Y = W2 gelu(W1 X), as a table. */
extern const struct node sbp_mlp[];

/**
 * The graph of a table, with its backward pass.  Pure.
 * @param table         reads "in", the stream, and ends with OP_END: a block's.
 * @param B, S          sequences, and tokens of each.
 * @param tokens_split  whether the stream may be cut within sequences; rotary positions and attention then have all
 *                      tokens or none.
 * @return OK; ERR_PLAN, naming the slot, if there is no operator for a node, such as a mixture of experts, or no room
 *     for the graph.
 */
enum error_code sbp_graph_of(struct sbp_graph *, const struct node *table, const struct model_config *, int64_t B,
                             int64_t S, bool tokens_split, struct error *);

/**
 * The layout of tensor parallelism (tensor_sbp.h) that signatures of a block's graph make: of the stream, of heads and
 * the feed-forward between their matrices, and of the four matrices.  The embedding and the output matrix, which a
 * block does not have, are cut by vocabulary.  Pure.
 * @param kept  [tensors] how each lies, on a mesh of one axis.
 * @return OK; ERR_PLAN: two axes, no block, or partial sums where training has none.
 */
enum error_code sbp_layout_of(struct sbp_layout *, const struct sbp_graph *, const struct sbp_mesh *,
                              const struct signature kept[], struct error *);

#endif
