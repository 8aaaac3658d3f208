// optimizer_host.cpp -- a fused optimizer of Apex or DeepSpeed on a processor without CUDA.  Compiled by make_profiles.py, once with each
// file, and kept nowhere.
//
// KERNEL is the released file, unchanged: its kernel with all arithmetic, and the function that computes bias corrections and launches it.
// In optimizer_host.h is what stands in for CUDA and PyTorch: a block of one thread, and tensors that are arrays of floats.
#include "optimizer_host.h"
#include KERNEL

static std::vector<std::vector<at::Tensor>> lists(std::vector<float*> all, int n)
{
    std::vector<std::vector<at::Tensor>> each;
    for (float* x : all) each.push_back({ at::Tensor{ x, size_t(n) } });
    return each;
}

static at::Tensor no_flag = { nullptr, 0 };
static const int ONE_CHUNK = 1 << 20;

#ifdef ADAM
extern "C" void adam(float* g, float* w, float* m, float* v, int n, int step, float lr, float beta1, float beta2, float eps, float decay)
{
    multi_tensor_adam_cuda(ONE_CHUNK, no_flag, lists({ g, w, m, v }, n), lr, beta1, beta2, eps, step, ADAM_MODE_1, 1, decay);
}
#else
extern "C" void sgd(float* g, float* w, float* b, int n, int step, float lr, float momentum, float decay)
{
    multi_tensor_sgd_cuda(ONE_CHUNK, no_flag, lists({ g, w, b }, n), decay, momentum, 0, lr, false, step == 1, false, 1);
}
#endif
