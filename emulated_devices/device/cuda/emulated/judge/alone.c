/* alone.c -- what a file of kernels that is tried alone gets of another file.
 *
 * The backend converts formats around an operation whose result has another one; the kernel that does it is in
 * elementwise.cu.  A file without it, such as sums.cu, gets this one, which the host computes.
 */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "ref/numeric/convert.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

void alone_convert(enum dtype to, void *y, enum dtype from, const void *x, int64_t n);

/* By copies, so that the judge knows what is read and written. */
void alone_convert(enum dtype to, void *y, enum dtype from, const void *x, int64_t n)
{
    const size_t out = (size_t)n * dtype_size(to), in = (size_t)n * dtype_size(from);
    void *read = malloc(in + 1), *made = malloc(out + 1);
    if (read == NULL || made == NULL)
        fprintf(stderr, "orrery: no memory to convert %lld numbers\n", (long long)n), abort();
    cudaMemcpy(read, x, in, cudaMemcpyDeviceToHost);
    convert_numbers(made, to, read, from, n);
    cudaMemcpy(y, made, out, cudaMemcpyHostToDevice);
    free(read), free(made);
}

/* A file's own is taken instead.  `orrery kernel` sees by its address whose it is. */
__attribute__((weak, alias("alone_convert"))) void cuda_convert(enum dtype to, void *y, enum dtype from, const void *x,
                                                                int64_t n);
