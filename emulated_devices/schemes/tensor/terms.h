/* terms.h -- the largest sizes on which devices agree before a product whose terms lie on several of them.
 *
 * terms.c multiplies with them in one piece, tensor_1d_sp_overlap.c chunk by chunk.  All calls are collective over the
 * devices along `axes`.  Errors: ERR_MEMORY, ERR_COMM.
 */
#ifndef ORRERY_TENSOR_TERMS_H
#define ORRERY_TENSOR_TERMS_H

#include "emulated_devices/schemes/tensor/tensor.h"

/* The tops of two operands lie side by side, so that one all-reduce agrees on both. */
struct tops { struct tensor both, rows, others; };

/** The tops of rows of X and of W; of rows of dY and columns of W.  For tops_drop, also after an error. */
enum error_code tops_of_forward(struct tensor_parallel *, unsigned axes, struct tops *, struct tensor X,
                                struct tensor W, struct error *);
enum error_code tops_of_input(struct tensor_parallel *, unsigned axes, struct tops *, struct tensor dY, struct tensor W,
                              struct error *);
void tops_drop(struct tensor_parallel *, struct tops *);

#endif
