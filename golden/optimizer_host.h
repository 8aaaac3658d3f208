// optimizer_host.h -- what the fused optimizers of Apex and DeepSpeed need of CUDA and PyTorch, for one thread on a processor.
// See optimizer_host.cpp.
#pragma once
#include <climits>
#include <cmath>
#include <cstdint>
#include <vector>

#define __device__
#define __forceinline__ inline
#define AT_CUDA_CHECK(call)
#define TORCH_CHECK(...)
#define AT_ERROR(...)
#define DISPATCH_DOUBLE_FLOAT_AND_HALF(type, level, name, ...) { using scalar_t_0 = float; __VA_ARGS__ }
#define DISPATCH_DOUBLE_FLOAT_HALF_AND_BFLOAT(type, level, name, ...) { using scalar_t_0 = float; __VA_ARGS__ }

struct place { int x; };
static const place threadIdx = { 0 }, blockIdx = { 0 }, blockDim = { 1 };      // a block of one thread, and one block

namespace at {
enum class ScalarType { Half, Float };

struct Half {                           // never used: all tensors are fp32
    float x;
    Half(float y = 0) : x(y) {}
    operator float() const { return x; }
    Half& operator+=(float y) { x += y; return *this; }
};

struct Tensor {
    float* numbers;
    size_t count;
    size_t numel() const { return count; }
    ScalarType scalar_type() const { return ScalarType::Float; }
    int device() const { return 0; }
    template <typename T> T* data_ptr() const { return reinterpret_cast<T*>(numbers); }
};
}

template <int depth>
struct TensorListMetadata {
    void* addresses[depth][1];
    int64_t sizes[1];
    unsigned char block_to_tensor[1];
    int block_to_chunk[1];
};

// One tensor of each list, in one chunk.
template <int depth, typename size, typename functor, typename... arguments>
void multi_tensor_apply(size, size chunk, at::Tensor&, const std::vector<std::vector<at::Tensor>>& lists, functor compute,
                        arguments... more)
{
    int noop = 0;
    TensorListMetadata<depth> tl = {};
    for (int d = 0; d < depth; d++) tl.addresses[d][0] = lists[d][0].numbers;
    tl.sizes[0] = int64_t(lists[0][0].count);
    compute(chunk, &noop, tl, more...);
}
