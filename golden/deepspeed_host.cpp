// deepspeed_host.cpp -- DeepSpeed's quantisation kernels on a processor without CUDA.  Compiled by make_quantised.py and kept nowhere.
//
// The kernels and all arithmetic are DeepSpeed's own files, which make_quantised.py copies beside this one: quantization.h,
// quantization_utils.h, dequantization_utils.h, conversion_utils.h, ds_kernel_utils.h, and of quantize.cu, swizzled_quantize.cu and
// quant_reduce.cu everything before the code that launches kernels.  In deepspeed_host.h is what stands in for CUDA: __half and the conversions
// between numbers, rounding to nearest as CUDA's do; and a block of threads that has one thread, so that a maximum over threads
// is that thread's, and a kernel's loop goes over the whole group.
#include "deepspeed_host.h"
#include "quantization_utils.h"
#include "dequantization_utils.h"
#include "quantize.cu"
#include "swizzled_quantize.cu"
#include "quant_reduce.cu"

// Elements that share a scale: the kernels want to know how often one thread goes round.
constexpr int GROUP = 16, LOADS = GROUP / quantize::h_per_load;
constexpr auto SYMMETRIC = quantize::Type::Symmetric;

template <int bits>
static void quantize_groups(int8_t* codes, float* scales, const __half* x, int groups)
{
    for (int g = 0; g < groups; g++) {
        place = { unsigned(g), 0, 0 };
        cached_quantization<bits, SYMMETRIC, LOADS, 1, 1, 1>(codes, scales, x, groups, GROUP);
    }
}

template <int bits>
static void dequantize_groups(__half* y, const int8_t* codes, const float* scales, int groups)
{
    for (int at = 0; at < groups * GROUP / quantize::h_per_load; at++) {
        place = { unsigned(at), 0, 0 };
        dequantize::to_global<__half, bits, SYMMETRIC, 1, 1>(y, codes, scales, GROUP, groups * GROUP);
    }
}

template <int bits>
static void swizzle(int8_t* codes, float* scales, const __half* x, int groups, int nodes, int devices)
{
    const unsigned partitions = unsigned(nodes * devices), each = unsigned(groups) / partitions;
    grid = { each, 1, partitions };
    for (place.z = 0; place.z < partitions; place.z++)
        for (place.x = 0; place.x < each; place.x++) {
            place.y = 0;
            swizzled_quant_kernel<bits, LOADS, 1, SYMMETRIC>(codes, scales, x, GROUP, nodes, devices);
        }
}

template <int bits>
static void reduce_groups(int8_t* codes, float* scales, const int8_t* in, const float* in_scales, int tensors, int groups)
{
    constexpr int at_once = bits == 8 ? 8 : 4;         // bytes, of 8 bits or of twice 4
    for (int g = 0; g < groups; g++) {
        place = { unsigned(g), 0, 0 };
        const int bytes = GROUP * bits / 8;             // as launch_dequant_reduce has it: of packed codes, not of elements
        dequant_reduce<bits, -1, GROUP * bits / 8 / at_once, SYMMETRIC>(codes, scales, in, in_scales, bytes, bytes * groups, groups, bytes, tensors);
    }
}

#define EXPORT(bits)                                                                                                                    \
    extern "C" void quantize##bits(int8_t* q, float* s, const __half* x, int groups) { quantize_groups<bits>(q, s, x, groups); }        \
    extern "C" void dequantize##bits(__half* y, const int8_t* q, const float* s, int groups) { dequantize_groups<bits>(y, q, s, groups); } \
    extern "C" void swizzle##bits(int8_t* q, float* s, const __half* x, int groups, int nodes, int devices)                             \
    {                                                                                                                                   \
        swizzle<bits>(q, s, x, groups, nodes, devices);                                                                                 \
    }                                                                                                                                   \
    extern "C" void reduce##bits(int8_t* q, float* s, const int8_t* in, const float* scales, int tensors, int groups)                   \
    {                                                                                                                                   \
        reduce_groups<bits>(q, s, in, scales, tensors, groups);                                                                         \
    }
EXPORT(4)
EXPORT(8)
