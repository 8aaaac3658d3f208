/* products.h -- products with a matrix W [out,in] and their bounds: matrix.c.  Inside ref/single only. */
#ifndef ORRERY_SINGLE_PRODUCTS_H
#define ORRERY_SINGLE_PRODUCTS_H

#include "ref/single/parts.h"

/* X W^T + b, which may be none; dY W; the sum over rows of dY^T X, and of dY.  matrices: that other programs have in
 * place of W. */
struct single_value product(struct single *, struct tensor X, struct tensor W, struct tensor b);
struct single_value product_input(struct single *, struct tensor dY, struct tensor W, int matrices);
struct single_value product_weight(struct single *, struct tensor dY, struct tensor X);
struct single_value product_bias(struct single *, struct tensor dY);

#endif
