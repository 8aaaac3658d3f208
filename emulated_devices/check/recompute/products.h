/* products.h -- products with a matrix W [out,in] and their bounds: matrix.c.  Inside check/ only.
 * matrix.c implements them; experts.c multiplies each expert's rows with them. */
#ifndef ORRERY_SINGLE_PRODUCTS_H
#define ORRERY_SINGLE_PRODUCTS_H

#include "emulated_devices/check/recompute/parts.h"

/* X W^T + b, which may be none; dY W.  matrices: that other programs have in place of W. */
struct single_value product(struct single *, struct tensor X, struct tensor W, struct tensor b);
struct single_value product_input(struct single *, struct tensor dY, struct tensor W, int matrices);

struct adapter;
/* Compute what adapters add to the product of a node, or to the gradient of its input.  tensor_none: the node's weight
 * has none, or an input is missing.  of: the first of them. */
struct tensor single_adapter_part(struct single *, const struct single_node *, bool for_input,
                                  const struct adapter **of);

/* These are added up: the sum, the sums of absolute and squared terms, and what is stored on the way.  each: the sums
 * of the batch's parts, below each other.  The last three are tensor_none where no bound needs them. */
struct product_sum { struct tensor sum, absolute, square, stored, each; int64_t terms; };

/* Add up dY^T X [out, in] over rows: any rows, after any others.  tokens: [rows] of the tile; tensor_none: a row is the
 * next token, of each stream. */
struct product_sum product_weight_begin(struct single *, int64_t out, int64_t in);
void product_weight_add(struct single *, struct product_sum *, struct tensor dY, struct tensor X, struct tensor tokens);
struct single_value product_weight_end(struct single *, const struct product_sum *);

/* Add up dY [out] over rows; product_weight_end ends it. */
struct product_sum product_bias_begin(struct single *, int64_t out);
void product_bias_add(struct single *, struct product_sum *, struct tensor dY, struct tensor tokens);

#endif
