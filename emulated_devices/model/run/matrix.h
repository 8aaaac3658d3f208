/* matrix.h -- products with the matrices of a stage, by the tensor scheme, whole or tile by tile
 * (schemes/data/tiles.h).  run_node.c calls these functions.  Errors are those of the tensor scheme and of the data
 * scheme: ERR_MEMORY, ERR_COMM. */
#ifndef ORRERY_MATRIX_H
#define ORRERY_MATRIX_H

#include "emulated_devices/model/stage.h"

/* One matrix and its bias, as indices into the model's list of parameters; bias -1: none. */
struct matrix { enum param_role role; int weight, bias; };

/* The products of tensor.h.  The part's weights must have been acquired, or its gradients begun.  N: tokens of the
 * microbatch. */
enum error_code matrix_forward(struct stage *, struct matrix, int64_t N, struct tensor Y, struct tensor X,
                               struct error *);
enum error_code matrix_backward_input(struct stage *, struct matrix, int64_t N, struct tensor dX, struct tensor dY,
                                      struct error *);
enum error_code matrix_backward_weight(struct stage *, struct matrix, int64_t N, struct tensor dY, struct tensor X,
                                       struct error *);

/* The token embedding: a lookup of rows. */
enum error_code tokens_forward(struct stage *, struct matrix, struct tensor Y, struct tensor ids, struct error *);
enum error_code tokens_backward_weight(struct stage *, struct matrix, struct tensor dY, struct tensor ids,
                                       struct error *);

#endif
