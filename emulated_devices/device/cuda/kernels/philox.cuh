/* philox.cuh -- the counter-based random numbers of ref/numeric/philox.h, bit for bit. */
#ifndef ORRERY_CUDA_PHILOX_CUH
#define ORRERY_CUDA_PHILOX_CUH

#include "emulated_devices/device/cuda/kernels/launch.cuh"

/* Word 0 of the block at (seed, stream, index), as a number in [0, 1) with 24 bits. */
__device__ __forceinline__ float random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (float)(int32_t)(c0 >> 8) * 5.9604644775390625e-8f;
}

#endif
