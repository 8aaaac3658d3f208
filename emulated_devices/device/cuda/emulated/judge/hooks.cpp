/* hooks.cpp -- what -fsanitize=thread calls, and what the machine tells (machine.h). */
#include "emulated_devices/device/cuda/emulated/judge/judge.h"
#include <cstdlib>
#include <cstring>

namespace emulated {

#define PC __builtin_extract_return_addr(__builtin_return_address(0))
#define HOOK(size)                                                                                                     \
    extern "C" void __tsan_read##size(void *p) { shadow_access(p, size, 0, PC); }                                      \
    extern "C" void __tsan_write##size(void *p) { shadow_access(p, size, WRITE, PC); }                                 \
    extern "C" void __tsan_unaligned_read##size(void *p) { shadow_access(p, size, 0, PC); }                            \
    extern "C" void __tsan_unaligned_write##size(void *p) { shadow_access(p, size, WRITE, PC); }                       \
    extern "C" void __tsan_volatile_read##size(void *p) { shadow_access(p, size, 0, PC); }                             \
    extern "C" void __tsan_volatile_write##size(void *p) { shadow_access(p, size, WRITE, PC); }
HOOK(1)
HOOK(2)
HOOK(4)
HOOK(8)
HOOK(16)
extern "C" void __tsan_read_range(void *p, size_t bytes) { shadow_access(p, bytes, 0, PC); }
extern "C" void __tsan_write_range(void *p, size_t bytes) { shadow_access(p, bytes, WRITE, PC); }
/* What kernels call for memcpy, memmove and memset (calls.txt). */
#define MOVES(name)                                                                                                    \
    extern "C" void *name(void *to, const void *from, size_t bytes)                                                    \
    {                                                                                                                  \
        shadow_access_any(to, bytes, WRITE, PC), shadow_access_any(from, bytes, 0, PC);                                \
        return memmove(to, from, bytes);                                                                               \
    }
MOVES(judge_memcpy)
MOVES(judge_memmove)
extern "C" void *judge_memset(void *to, int value, size_t bytes)
{
    shadow_access_any(to, bytes, WRITE, PC);
    return memset(to, value, bytes);
}

extern "C" void __tsan_vptr_update(void **, void *) { }
extern "C" void __tsan_func_entry(void *) { }
extern "C" void __tsan_func_exit(void) { }
extern "C" void __tsan_init(void) { }

/* What -fsanitize=alignment calls, before an access is made of several smaller ones. */
struct access_of_type { const char *file; uint32_t line, column; const void *type; uint8_t log_alignment, how; };

extern "C" void __ubsan_handle_type_mismatch_v1(const access_of_type *a, const void *)
{
    if (thread_now() < 0) return;
    report("misaligned", PC, nullptr, "an access by " + thread_name(now.block, thread_now()) + " at "
           + line_of(where{ a->file, (int)a->line }) + ": the address is not a multiple of "
           + std::to_string(1u << a->log_alignment));
    abandon_thread();
}

static std::string name_of(const std::string &kernel)
{
    return kernel[0] == '(' ? kernel.substr(1, kernel.size() - 2) : kernel;
}

static void launch_begins(const char *kernel, dim3 grid, dim3 block, size_t shared_bytes, const void *closure,
                          size_t closure_bytes, where at)
{
    now.kernel = name_of(kernel);
    now.grid = grid, now.block_size = block, now.shared_bytes = shared_bytes, now.at = at;
    now.closure = static_cast<const char *>(closure), now.closure_end = now.closure + closure_bytes;
    now.launch++;
    places_begin();
    order_begin_launch();
}

static void launch_ends() { now.closure = now.closure_end = nullptr; }

static void block_begins()
{
    now.block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    now.block_number++;
    order_begin_block((int)(blockDim.x * blockDim.y * blockDim.z));
    shadow_begin_block();
}

static void block_ends()
{
    if (counting) count_end_block();
}

static void thread_begins(int) { }

static void block_meets()
{
    shadow_block_meets();
    order_barrier();
}

static void block_diverges(where at, int thread, where other, int other_thread)
{
    const std::string first = thread_name(now.block, thread) + " waits at __syncthreads at " + line_of(at);
    report("divergent barrier", nullptr, nullptr,
           first + "; " + thread_name(now.block, other_thread) + " at " + line_of(other));
}

static void bad_mask(const char *why, const together &op, int thread)
{
    char mask[40];
    snprintf(mask, sizeof mask, " (0x%08x)", op.mask);
    report_once("bad mask", line_of(op.at) + why, thread_name(now.block, thread) + " at " + line_of(op.at) + ": " + why + mask);
}

static void fences(enum scope reach) { order_fence(thread_now(), reach); }

static void atomic(const void *p, size_t bytes, const void *pc, enum scope reach, bool compares)
{
    if (thread_now() < 0) return;
    shadow_access(p, bytes, WRITE | ATOMIC | (compares ? COMPARES : 0) | (reach == IN_BLOCK ? OF_BLOCK : 0), pc);
    order_atomic(thread_now(), p, reach);
}

static void thread_ends(int thread) { shadow_ends(thread), order_ends(thread); }

static void reads_for_good(const void *p, size_t bytes, size_t alignment, const void *pc)
{
    if ((uintptr_t)p % alignment == 0) return shadow_access_any(p, bytes, FOR_GOOD, pc);
    report("misaligned", pc, nullptr, "a read by " + thread_name(now.block, thread_now()) + " at " + line_of(pc)
           + ": the address is not a multiple of " + std::to_string(alignment));
    abandon_thread();
}

static void stuck()
{
    report("stuck", nullptr, nullptr, "no thread can go on: lanes or threads that others wait for never come");
    if (judge_gives_up) judge_gives_up();
    fflush(nullptr);
    _Exit(3);
}

static void set(void *p, size_t bytes) { shadow_wrote_by_host(p, nullptr, bytes, type_of_numbers{}); }

static void bad_call(const char *kernel, const char *why)
{
    if (kernel != nullptr) now.kernel = name_of(kernel);
    report("call", nullptr, nullptr, kernel != nullptr ? std::string("it is not launched: ") + why
                                     : now.kernel.empty() ? why : std::string("after it ") + why);
}

/* places.cpp fills in allocated and freed. */
struct watcher judge_watcher = { .sequential = true, .launch_begins = launch_begins, .launch_ends = launch_ends,
                                 .block_begins = block_begins, .block_ends = block_ends, .thread_begins = thread_begins,
                                 .thread_ends = thread_ends, .block_meets = block_meets, .block_diverges = block_diverges,
                                 .warp_meets = order_warp, .bad_mask = bad_mask, .fences = fences, .atomic = atomic,
                                 .reads_for_good = reads_for_good, .stuck = stuck, .allocated = nullptr, .freed = nullptr,
                                 .copied = shadow_wrote_by_host, .set = set, .product_reads = shadow_product_reads,
                                 .bad_call = bad_call };

static const struct begins {
    begins() { watcher = &judge_watcher, red_zone = 4096; }
} begun;

}
