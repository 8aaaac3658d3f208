/* matrix.h -- the matrices of a stage, multiplied with as the tensor scheme does it, or tile by tile (schemes/data/tiles.h).
 *
 * Which matrix: a role, and of a block's the layer.  Biases go with their matrix.
 */
#ifndef ORRERY_MATRIX_H
#define ORRERY_MATRIX_H

#include "emulated_devices/model/stage.h"

/* As in tensor.h, of a part that has been acquired, or whose gradients have been begun.  N: tokens of the microbatch. */
enum error_code matrix_forward(struct stage *, enum param_role, int layer, int64_t N, struct tensor Y, struct tensor X, struct error *);
enum error_code matrix_backward_input(struct stage *, enum param_role, int layer, int64_t N, struct tensor dX, struct tensor dY, struct error *);
enum error_code matrix_backward_weight(struct stage *, enum param_role, int layer, int64_t N, struct tensor dY, struct tensor X, struct error *);

/* The token embedding as a table of rows. */
enum error_code tokens_forward(struct stage *, struct tensor Y, struct tensor ids, struct error *);
enum error_code tokens_backward_weight(struct stage *, struct tensor dY, struct tensor ids, struct error *);

/* Enter the uses of one pass through one part: of its tiles, if matrices are tiled, in the order in which the part multiplies with them.
 * again: backward begins by computing a block's activations once more.  @return how many. */
int part_uses(const struct stage *, int part, enum pass, bool again, struct use *use);

/** The most uses of one part in a forward and a backward pass. */
int part_uses_most(const struct plan *);

#endif
