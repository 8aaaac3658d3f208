/* operands.h -- where the operands of one operation are: on the device, or copied there from the host for it.
 *
 * operations.c and memory.c call this file, and collectives/nccl.c asks on_gpu.  An error of CUDA ends the program
 * with one line.
 */
#ifndef ORRERY_CUDA_OPERANDS_H
#define ORRERY_CUDA_OPERANDS_H

#include "ref/numeric/tensor.h"
#include <cuda_runtime_api.h>

enum { OPERANDS_MOST = 12 };
struct operands {
    int count;                          /* operands in `of` */
    struct { void *host, *device; size_t bytes; bool back; } of[OPERANDS_MOST]; /* copies of host memory; back: done()
                                         * copies the bytes to the host */
};

/** The address that a kernel reads, or NULL for a tensor that is left out or empty. */
void *input(struct operands *, struct tensor);

/** The address that a kernel writes; the host's memory has the result after done. */
void *out(struct operands *, struct tensor);

/** Results are where they belong.  Ends the program if a kernel could not be launched. */
void done(struct operands *, const char *operation);

/** Whether an address is of the device's memory (memory.c). */
bool on_gpu(const void *);

/** Whether other devices may have this process's GPU, too (gpu.c). */
bool gpu_is_shared(void);

/** Memory of the device until the next call, for numbers between two kernels. */
void *scratch(size_t bytes);

/** Free it. */
void operands_end(void);

/** End the program, with one line, unless a call has succeeded. */
void must(cudaError_t, const char *what);

#endif
