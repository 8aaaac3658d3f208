/* launch.cuh -- a launch, the same text for nvcc and for the emulator.  Include it first.
 *
 *   LAUNCH(kernel, grid, block, bytes of dynamic shared memory, arguments...)
 *   DYNAMIC_SHARED(T, name)     in a kernel: T *name, its dynamic shared memory
 *   UNROLL                      before a loop over numbers that are to stay in registers: registers have no addresses
 */
#ifndef ORRERY_CUDA_LAUNCH_CUH
#define ORRERY_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* In two steps, so that a macro may stand for grid and block. */
#define LAUNCH(...) LAUNCH_NOW(__VA_ARGS__)
#ifdef __CUDACC__
#define LAUNCH_NOW(kernel, grid, block, bytes, ...) (kernel)<<<grid, block, bytes>>>(__VA_ARGS__)
#else
/* Three times: the first lambdas only say whether the kernel takes such arguments, and which parameters it has. */
#define LAUNCH_NOW(kernel, grid, block, bytes, ...)                                                                    \
    emulated::launch(emulated::launched{ #kernel, grid, block, bytes, { __FILE__, __LINE__ } },                        \
                     [=](const auto &...a) -> decltype((kernel)(a...)) { return (kernel)(a...); },                     \
                     [=](auto one) -> decltype(emulated::parameters_of(one, kernel)) { return {}; },                   \
                     [=](const auto &...a) { (kernel)(a...); }, ##__VA_ARGS__)
#endif

#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

#define DYNAMIC_SHARED(T, name)                                                                                        \
    extern __shared__ __align__(16) unsigned char dynamic_shared[];                                                    \
    T *name = reinterpret_cast<T *>(dynamic_shared)

#endif
