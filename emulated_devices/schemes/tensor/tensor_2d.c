/* tensor parallelism, 2d: q x q devices hold one block of every activation and every matrix; products by SUMMA.
 *
 * Source   Q. Xu et al., "An efficient 2D method for training super-large deep learning models" (Optimus),
 *          arXiv:2104.05343
 * Group    P = q^2 devices; (i,j) is row i, column j of the grid
 * Layout                          whole         on device (i,j)
 *   X, Y, dX, dY (width D)        [N,D]         [n,D/q]: sequences i of q, columns j
 *   heads, F, logits              [N,..]        sequences i; heads, columns, tokens j
 *   matrices                      [O,I]         [O/q,I/q]: outputs j, inputs i
 *   biases, norms                 [O]           1/q of part j, the i-th; positions [S,D]: rows i, columns j
 *   q need not divide anything: parts differ by at most one unit (sequence, head, column).
 * Sends    for a product of [N,I] and [O,I] (see summa.h) q steps, each with two broadcasts or reductions: of a block
 *          of X or Y along a row, of a block of W along a column.  On a binomial tree each block crosses q-1 links, so
 *          all devices together send (q-1) (N I + O I) elements forward, and twice as many backward.
 *          per layer and microbatch, all devices together, F = 4 D: (q-1) (21 N D + 36 D^2), and for norms and vectors
 *          (q-1) (16 N + 28 D); on average 1/P of it each: roots of trees send more than leaves, but all devices take
 *          turns as root
 * Memory   weights 1/P; per layer and microbatch (8 D + 2 F + H) N/P + 4 N/q elements
 * Equals   reassociates: inner dimensions are summed in q parts: forward locally in order of l, backward in the order
 *          of the reduction; norms as q partial sums; gradients of vectors in the order of the reduce-scatter.
 * Called   schemes/registry.c lists the scheme; model/run/matrix.c calls its products, and tensor.c checks that its
 *          mesh fits.  Errors: ERR_MEMORY and ERR_COMM of a product; ERR_PLAN if the mesh does not fit.
 */
#include "emulated_devices/schemes/tensor/summa.h"

static const char *tensor_2d_mesh(int P, int size[TENSOR_AXES])
{
    int q = 1;
    while ((q + 1) * (q + 1) <= P) q++;
    size[0] = 1;
    size[1] = size[2] = q;
    return q * q == P ? NULL : "a square: 1, 4, 9, 16, 25, ..";
}

const struct tensor_scheme tensor_scheme_2d = {
    .head = { .kind = TENSOR_SCHEME, .equality = REASSOCIATES,
              .name = "2d",
              .description = "blocks of activations and matrices on a square of devices, multiplied by SUMMA",
              .source = "Optimus, arXiv:2104.05343",
              .volume = "(q-1)/P (21 N D + 36 D^2 + 16 N + 28 D) elements a layer and microbatch, on average, with F "
                        "= 4 D and P = q^2",
              .memory = "weights 1/P; a layer keeps (8 D + 2 F + H) N/P + 4 N/q" },
    .mesh = tensor_2d_mesh, .exact = true, SUMMA_SCHEME
};
