/* tensor parallelism, 2.5d: d layers of q x q devices, each with its share of the sequences, a copy of the weights, and
 * SUMMA.
 *
 * Source   B. Wang et al., "Tesseract: parallelize the tensor parallelism efficiently", arXiv:2105.14500
 * Group    P = d q^2 devices with 1 <= d <= q, with the smallest possible d; (k,i,j) is layer k, row i, column j
 * Layout   as 2d on each layer; sequences are cut into d q parts, and device (k,i,j) has part k q + i.  Matrices are
 *          the same on all layers; vectors are cut over the d q devices of a column, so each element is stored once
 * Sends    within a layer as 2d, with N/d for N; and gradients of matrices are all-reduced over the layers:
 *          2 (d-1)/d O I/q^2 elements each.  Per layer of the model, all devices together, F = 4 D:
 *          (q-1) (21 N D + 36 d D^2) + 24 (d-1) D^2, and for norms and vectors 16 N (q-1) + 28 D (d q - 1)
 * Memory   weights 1/q^2; per layer and microbatch (8 D + 2 F + H) N/P + 4 N/(d q) elements
 * Equals   reassociates as 2d; gradients of matrices are also sums of d parts.  With d = 1 the bits equal those of 2d.
 * Called   schemes/registry.c lists the scheme; model/run/matrix.c calls its products, and tensor.c checks that its
 *          mesh fits.  Errors: ERR_MEMORY and ERR_COMM of a product; ERR_PLAN if the mesh does not fit.
 */
#include "emulated_devices/schemes/tensor/summa.h"

static const char *tensor_2_5d_mesh(int P, int size[TENSOR_AXES])
{
    int q = P;
    while (q > 1 && (P % (q * q) != 0 || P / (q * q) > q)) q--;
    size[0] = P / (q * q);
    size[1] = size[2] = q;
    return size[0] <= q ? NULL : "d x q x q with d at most q: 1, 4, 8, 9, 16, 18, 25, 27, ..";
}

const struct tensor_scheme tensor_scheme_2_5d = {
    .head = { .kind = TENSOR_SCHEME, .equality = REASSOCIATES,
              .name = "2.5d",
              .description = "layers of squares: each has a share of the sequences and all the weights, and "
                             "multiplies by SUMMA",
              .source = "Tesseract, arXiv:2105.14500",
              .volume = "1/P of (q-1) (21 N D + 36 d D^2 + 16 N) + 24 (d-1) D^2 + 28 D (d q - 1) elements a layer and "
                        "microbatch, on average, with F = 4 D and P = d q^2",
              .memory = "weights 1/q^2; a layer keeps (8 D + 2 F + H) N/P + 4 N/(d q)" },
    .mesh = tensor_2_5d_mesh, .exact = true, SUMMA_SCHEME
};
