/* parts.h -- the parts of the backend: the GPU, its memory, its operations.
 *
 * Files of this folder include this header.  gpu_start reports ERR_DEVICE; what fails later ends the program, but
 * for memory_take, which returns NULL.  Files of device/cuda/ call these functions.
 */
#ifndef ORRERY_CUDA_PARTS_H
#define ORRERY_CUDA_PARTS_H

#include "emulated_devices/device/backend.h"
#include <cublas_v2.h>

#ifdef NAME                             /* kernels that are tried alone */
#elif defined CUDA_EMULATED
#define NAME "cuda-emulated"
#else
#define NAME "cuda"
#endif

/* ---- the GPU (gpu.c): one for all devices of a process ----------------------------------------------------------- */

struct gpu {
    int number;                         /* CUDA's index of the device that this process uses */
    bool shared;                        /* other processes of this machine may have it, too */
    char name[256];                     /* as the driver says it */
    cublasHandle_t blas;                /* library handle for products, made by gpu_start */
};
extern struct gpu gpu;

/** Take the GPU that is this process's.  @return OK, or ERR_DEVICE, which says why no kernel would run. */
enum error_code gpu_start(struct error *);

/** Give it back. */
void gpu_end(void);

/* ---- memory (memory.c): what backend.h says of these entries ----------------------------------------------------- */

struct view;
struct cuda { struct view *views; };    /* of a device: its open host views */

/** Memory of the GPU.  What was given back is kept for the next one who asks for as many bytes, because cudaMalloc and
 *  cudaFree wait for the GPU; operations follow each other in one stream, so nobody still uses it.
 *  @return NULL: there is none. */
void *memory_take(size_t bytes);
void memory_give(void *, size_t bytes);

/** Whether memory is kept: not where each access is watched, because mistakes would be hidden, nor if
 *  ORRERY_GPU_KEEPS=0. */
bool gpu_keeps_memory(void);

/** Free what is kept. */
void memory_end(void);

void *gpu_allocate(struct device *, size_t bytes);
void gpu_release(struct device *, void *, size_t bytes);
void gpu_copy(struct device *, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
              size_t rows);
const void *gpu_read(struct device *, const void *, size_t bytes);
void *gpu_write(struct device *, void *, size_t bytes);
void gpu_view_done(struct device *, const void *view);
void *gpu_direct(struct device *, void *, size_t bytes, bool writes);

/* ---- operations (operations.c) ----------------------------------------------------------------------------------- */

const struct ops *gpu_operations(enum dtype);

#endif
