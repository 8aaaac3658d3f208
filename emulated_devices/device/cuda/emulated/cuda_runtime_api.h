/* cuda_runtime_api.h -- the few calls of the CUDA runtime that the backend makes, on a CPU; C and C++.
 *
 * "Device memory" is the host's.  One stream: every call has ended when it returns.  ORRERY_CUDA_EMULATED describes the
 * machine that is pretended, to try errors: "gpus=0", "gpus=2", "memory=1000000", "driver=old", "arch=none"; several
 * with commas.  device/cuda/operands.h and machine.h include this file, and nccl.h does for collectives/nccl.c.
 */
#ifndef ORRERY_EMULATED_CUDA_RUNTIME_API_H
#define ORRERY_EMULATED_CUDA_RUNTIME_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorNotReady = 600,
} cudaError_t;

enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice,
                      cudaMemcpyDefault };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };

struct cudaPointerAttributes { enum cudaMemoryType type; int device; void *devicePointer, *hostPointer; };
struct cudaDeviceProp { char name[256]; size_t totalGlobalMem; int major, minor; };

typedef struct emulated_stream *cudaStream_t;

/* How often this process has called it: launches and products; copies and fills; cudaMalloc and cudaFree; what makes
 * the host wait: a copy from or to its memory, cudaFree, cudaDeviceSynchronize; cudaPointerGetAttributes. */
struct emulated_calls { unsigned long long launches, products, copies, allocations, waits, lookups; };
extern struct emulated_calls emulated_calls;

int emulated_is_watched(void);

cudaError_t cudaGetDeviceCount(int *);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDevice(int *);
cudaError_t cudaDeviceGetAttribute(int *, enum cudaDeviceAttr, int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *, int device);
cudaError_t cudaMalloc(void **, size_t bytes);
cudaError_t cudaFree(void *);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *bytes);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind);
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                         enum cudaMemcpyKind);
/* This is cudaMemcpy to the host, whether or not anybody has written there.  CUDA has no such function. */
cudaError_t emulated_show(void *to, const void *from, size_t bytes);
cudaError_t cudaMemset(void *, int value, size_t bytes);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *, const void *);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t);

#ifdef __cplusplus
}
#endif
#endif
