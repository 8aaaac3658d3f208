/* memory.cpp -- the runtime's calls: device memory is the host's, with a list of what is allocated. */
#include <cuda_runtime_api.h>
#include "emulated_devices/device/cuda/emulated/machine.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unistd.h>

using namespace emulated;

static struct { std::mutex lock; std::map<const char *, size_t> at; size_t bytes; int error; } all;

struct emulated_calls emulated_calls;

static char failed_launch[300] = "invalid configuration argument";

void emulated::launch_failed(const char *kernel, const char *why)
{
    all.error = cudaErrorInvalidConfiguration;
    snprintf(failed_launch, sizeof failed_launch, "invalid configuration argument: kernel %s: %s", kernel, why);
    if (watcher) watcher->bad_call(kernel, why);
}

size_t emulated::shared_allowed = SHARED_USUAL;

void emulated::copy_variable(void *to, const void *from, size_t bytes, const type_of_numbers &type)
{
    if (watcher) watcher->copied(to, from, bytes, type);
    memcpy(to, from, bytes);
}

/* What ORRERY_CUDA_EMULATED says after "name="; NULL: nothing. */
static const char *pretended(const char *name)
{
    const char *text = getenv("ORRERY_CUDA_EMULATED");
    const size_t n = strlen(name);
    for (; text != nullptr; text = strchr(text, ',') ? strchr(text, ',') + 1 : nullptr)
        if (strncmp(text, name, n) == 0 && text[n] == '=') return text + n + 1;
    return nullptr;
}

static bool pretends(const char *name, const char *value)
{
    const char *said = pretended(name);
    return said != nullptr && strncmp(said, value, strlen(value)) == 0;
}

static size_t memory_of_gpu() { return pretended("memory") ? strtoull(pretended("memory"), nullptr, 10) : SIZE_MAX; }

static cudaError_t failed(cudaError_t e)
{
    all.error = e;
    return e;
}

static cudaError_t wrong(const char *why)
{
    if (watcher) watcher->bad_call(nullptr, why);
    return failed(cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = pretended("gpus") ? atoi(pretended("gpus")) : 1;
    if (pretends("driver", "old")) return failed(cudaErrorInsufficientDriver);
    return *count > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}

static int chosen_device;

cudaError_t cudaSetDevice(int i)
{
    int count;
    const cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess) return e;
    if (i < 0 || i >= count) return failed(cudaErrorInvalidDevice);
    chosen_device = i;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *i)
{
    *i = chosen_device;
    return cudaSuccess;
}

/* Few, so that kernels that fill a GPU do not have more blocks here than they need. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr, int)
{
    *value = 2;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    *p = cudaDeviceProp{};
    snprintf(p->name, sizeof p->name, "emulated on the CPU");
    p->totalGlobalMem = memory_of_gpu(), p->major = 7, p->minor = 5;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = nullptr;
    emulated_calls.allocations++;
    if (bytes == 0) return cudaSuccess;
    const std::lock_guard<std::mutex> held(all.lock);
    if (bytes > memory_of_gpu() - all.bytes || bytes > SIZE_MAX / 2) return failed(cudaErrorMemoryAllocation);
    const size_t room = (bytes + 2 * red_zone + 255) / 256 * 256;
    char *at = static_cast<char *>(aligned_alloc(256, room));
    if (at == nullptr) return failed(cudaErrorMemoryAllocation);
    at += red_zone;
    all.at[at] = bytes;
    all.bytes += bytes;
    if (watcher) watcher->allocated(at, bytes);
    *p = at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (p == nullptr) return cudaSuccess;
    emulated_calls.allocations++, emulated_calls.waits++;
    const std::lock_guard<std::mutex> held(all.lock);
    const auto found = all.at.find(static_cast<char *>(p));
    if (found == all.at.end()) return wrong("cudaFree of what was not allocated, or has been freed");
    all.bytes -= found->second;
    all.at.erase(found);
    if (watcher) watcher->freed(p);             /* which keeps the addresses, to know who uses them afterwards */
    else free(p);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *bytes)
{
    const std::lock_guard<std::mutex> held(all.lock);
    *bytes = pretended("memory") ? memory_of_gpu() : (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    *free_bytes = *bytes > all.bytes ? *bytes - all.bytes : 0;
    return cudaSuccess;
}

/* From an address to the end of the allocation that it is in; 0: it is not the device's. */
static size_t bytes_from(const void *p)
{
    const std::lock_guard<std::mutex> held(all.lock);
    auto next = all.at.upper_bound(static_cast<const char *>(p));
    if (next == all.at.begin()) return 0;
    --next;
    const size_t offset = (size_t)(static_cast<const char *>(p) - next->first);
    return offset < next->second ? next->second - offset : 0;
}

/* to_bytes, from_bytes: from the first byte to the last, with what lies between rows. */
static const char *wrong_copy(const void *to, size_t to_bytes, const void *from, size_t from_bytes, enum cudaMemcpyKind kind)
{
    const size_t there = bytes_from(to), here = bytes_from(from);
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    emulated_calls.copies++;
    if (there == 0 || here == 0) emulated_calls.waits++;
    if (there > 0 && to_bytes > there) return "cudaMemcpy to behind the end of an allocation";
    if (here > 0 && from_bytes > here) return "cudaMemcpy from behind the end of an allocation";
    if (kind == cudaMemcpyDefault) return nullptr;
    if (to_device != (there > 0))
        return to_device ? "cudaMemcpy to memory of the host, as if it were the device's"
                         : "cudaMemcpy to memory of the device, as if it were the host's";
    if (from_device != (here > 0))
        return from_device ? "cudaMemcpy from memory of the host, as if it were the device's"
                           : "cudaMemcpy from memory of the device, as if it were the host's";
    return nullptr;
}

static void copy(void *to, const void *from, size_t bytes, const type_of_numbers &type)
{
    memmove(to, from, bytes);
    if (watcher) watcher->copied(to, from, bytes, type);
}

cudaError_t emulated::copy_numbers(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                   const type_of_numbers &type)
{
    if (bytes == 0) return cudaSuccess;
    if (const char *why = wrong_copy(to, bytes, from, bytes, kind)) return wrong(why);
    copy(to, from, bytes, type);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return copy_numbers(to, from, bytes, kind, type_of_numbers{});
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                         enum cudaMemcpyKind kind)
{
    if (width == 0 || rows == 0) return cudaSuccess;
    if (to_pitch < width || from_pitch < width) {
        static char text[100];
        snprintf(text, sizeof text, "cudaMemcpy2D with rows of %zu bytes that are %zu bytes apart", width,
                 to_pitch < from_pitch ? to_pitch : from_pitch);
        return wrong(text);
    }
    if (const char *why = wrong_copy(to, (rows - 1) * to_pitch + width, from, (rows - 1) * from_pitch + width, kind))
        return wrong(why);
    for (size_t r = 0; r < rows; r++)
        copy(static_cast<char *>(to) + r * to_pitch, static_cast<const char *>(from) + r * from_pitch, width,
             type_of_numbers{});
    return cudaSuccess;
}

cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
    if (bytes == 0) return cudaSuccess;
    const size_t there = bytes_from(p);
    emulated_calls.copies++;
    if (there == 0) return wrong("cudaMemset of memory that is not the device's");
    if (bytes > there) return wrong("cudaMemset behind the end of an allocation");
    memset(p, value, bytes);
    if (watcher) watcher->set(p, bytes);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    emulated_calls.lookups++;
    *a = cudaPointerAttributes{ cudaMemoryTypeUnregistered, -1, nullptr, nullptr };
    if (bytes_from(p) == 0) return cudaSuccess;
    a->type = cudaMemoryTypeDevice, a->device = 0, a->devicePointer = const_cast<void *>(p);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    emulated_calls.waits++;
    return pretends("arch", "none") ? cudaErrorNoKernelImageForDevice : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }

cudaError_t cudaGetLastError(void)
{
    const int e = all.error;
    all.error = cudaSuccess;
    return pretends("arch", "none") ? cudaErrorNoKernelImageForDevice : static_cast<cudaError_t>(e);
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return failed_launch;
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    default: return "invalid argument";
    }
}

/* A file of kernels that is tried alone has none of its own. */
extern "C" __attribute__((weak)) void cuda_probe(void) { }

/* Whether somebody looks at each access: then memory that is kept for later would hide mistakes. */
extern "C" int emulated_is_watched(void) { return watcher != nullptr; }

/* A copy for a view of the host, which shows memory before it is written, and where nobody looks at it. */
extern "C" cudaError_t emulated_show(void *to, const void *from, size_t bytes)
{
    if (const char *why = wrong_copy(to, bytes, from, bytes, cudaMemcpyDeviceToHost)) return wrong(why);
    memcpy(to, from, bytes);
    return cudaSuccess;
}

/* cublas.c is not instrumented: it says what it writes. */
extern "C" void emulated_product_writes(void *C, size_t pitch, size_t width, size_t rows)
{
    for (size_t r = 0; watcher && r < rows; r++) watcher->set(static_cast<char *>(C) + r * pitch, width);
}

extern "C" void emulated_product_reads(const char *matrix, const void *X, size_t pitch, size_t width, size_t rows)
{
    for (size_t r = 0; watcher && r < rows; r++)
        watcher->product_reads(matrix, static_cast<const char *>(X) + r * pitch, width);
}

/* Nor does a product run off the end of what it is given.  Without columns nothing is used. */
extern "C" int emulated_product_reaches(const char *matrix, const void *data, size_t pitch, size_t width,
                                        size_t columns)
{
    static thread_local char text[160];
    const size_t there = bytes_from(data), bytes = columns > 0 && width > 0 ? (columns - 1) * pitch + width : 0;
    if (bytes == 0 || bytes <= there) return 1;
    if (there == 0)
        snprintf(text, sizeof text, "cublasGemmEx with a matrix %s that is not the device's memory", matrix);
    else
        snprintf(text, sizeof text, "cublasGemmEx with a matrix %s of %zu bytes, by its leading dimension, where the "
                 "allocation has %zu", matrix, bytes, there);
    wrong(text);
    return 0;
}

extern "C" void emulated_product_refused(const char *why) { wrong(why); }
