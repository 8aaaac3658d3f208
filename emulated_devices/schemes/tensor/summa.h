/* summa.h -- matrix products on a grid of devices that each hold one block of every matrix, for 2d and 2.5d.
 *
 * Source   R. van de Geijn, J. Watts, "SUMMA: scalable universal matrix multiplication algorithm",
 *          doi:10.1002/(SICI)1096-9128(199704)9:4<255::AID-CPE250>3.0.CO;2-2; for transformers: Q. Xu et al., "An
 *          efficient 2D method for training super-large deep learning models" (Optimus), arXiv:2104.05343, algorithms 1
 *          to 3
 * Called   model/run/matrix.c calls these functions through the schemes.  Products report ERR_MEMORY or ERR_COMM; an
 *          unfinished result is then not defined.
 *
 * Device (k,i,j) of d x q x q has block (i,j) of X [N,I] and Y [N,O]: rows i, columns j (of layer k's rows).  Of W
 * [O,I] it has the block W[j,i]: outputs j, inputs i, which is block (i,j) of W^T, the right-hand factor.  Step l of q:
 *
 *   Y[i,j]  = sum_l X[i,l] W[j,l]^T     X[i,l] broadcast along row i, W[j,l] along column j; summed locally
 *   dX[i,l] = sum_j dY[i,j] W[j,l]      W[j,l] broadcast along column j; reduced along row i to device (i,l)
 *   dW[j,l] = sum_i dY[i,j]^T X[i,l]    X[i,l] broadcast along row i; reduced along column j to device (l,j)
 *
 * The embedding is the second product with the tokens' unit vectors as dY; its gradient is the third product with the
 * unit vectors as dY.  With d > 1, layers have different rows and the same weights, so dW is all-reduced over k.
 *
 * summa.c has the functions; tensor_2d.c and tensor_2_5d.c put SUMMA_SCHEME into their schemes and add only a mesh.
 */
#ifndef ORRERY_SUMMA_H
#define ORRERY_SUMMA_H

#include "emulated_devices/schemes/tensor/tensor.h"

#define GRID_LAYER  MESH_AXIS(0)
#define GRID_ROW    MESH_AXIS(1)        /* i is the row; its devices differ in j */
#define GRID_COLUMN MESH_AXIS(2)

struct weight_cut summa_weight(const struct tensor_scheme *, enum param_role);
enum error_code summa_linear_forward(struct tensor_parallel *, enum param_role, int64_t N, struct tensor Y,
                                     struct tensor X, struct tensor W, struct tensor b, struct error *);
enum error_code summa_linear_backward_input(struct tensor_parallel *, enum param_role, int64_t N, struct tensor dX,
                                            struct tensor dY, struct tensor W, struct error *);
enum error_code summa_linear_backward_weight(struct tensor_parallel *, enum param_role, int64_t N, struct tensor dW,
                                             struct tensor db, struct tensor dY, struct tensor X, struct error *);
enum error_code summa_embedding_forward(struct tensor_parallel *, struct tensor Y, struct tensor ids, struct tensor W,
                                        struct error *);
enum error_code summa_embedding_backward_weight(struct tensor_parallel *, struct tensor dW, struct tensor dY,
                                                struct tensor ids, struct error *);
void summa_cost(struct forecast *, enum param_role, enum tensor_pass, int64_t N, bool has_bias);

#define SUMMA_SCHEME                                                                                                   \
    .stream = { .rows = GRID_LAYER | GRID_ROW, .columns = GRID_COLUMN },                                               \
    INNER_CUT({ .rows = GRID_LAYER | GRID_ROW, .columns = GRID_COLUMN }), .weight = summa_weight, .cuts_vectors = true,\
    .linear_forward = summa_linear_forward, .linear_backward_input = summa_linear_backward_input,                      \
    .linear_backward_weight = summa_linear_backward_weight, .embedding_forward = summa_embedding_forward,              \
    .embedding_backward_weight = summa_embedding_backward_weight, .matrix_cost = summa_cost

#endif
