/* matrix.h -- the matrices of a stage, multiplied with as the tensor scheme does it, or tile by tile
 * (schemes/data/tiles.h).
 */
#ifndef ORRERY_MATRIX_H
#define ORRERY_MATRIX_H

#include "emulated_devices/model/stage.h"

/* One matrix and its bias, by their places in the model's list; bias -1: it has none. */
struct matrix { enum param_role role; int weight, bias; };

/* As in tensor.h, of a part that has been acquired, or whose gradients have been begun.  N:
 * tokens of the microbatch. */
enum error_code matrix_forward(struct stage *, struct matrix, int64_t N, struct tensor Y, struct tensor X,
                               struct error *);
enum error_code matrix_backward_input(struct stage *, struct matrix, int64_t N, struct tensor dX, struct tensor dY,
                                      struct error *);
enum error_code matrix_backward_weight(struct stage *, struct matrix, int64_t N, struct tensor dY, struct tensor X,
                                       struct error *);

/* The token embedding as a table of rows. */
enum error_code tokens_forward(struct stage *, struct matrix, struct tensor Y, struct tensor ids, struct error *);
enum error_code tokens_backward_weight(struct stage *, struct matrix, struct tensor dY, struct tensor ids,
                                       struct error *);

#endif
