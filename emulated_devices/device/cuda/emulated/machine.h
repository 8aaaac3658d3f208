/* machine.h -- blocks of threads on a CPU: who runs, who waits for whom.
 *
 * A processor's thread runs a block.  The block's threads are plain calls on one stack, one after the other.  The first
 * that waits keeps its stack, and becomes a fiber (fiber.h); those after it get another one.  So a kernel without
 * barriers has no fibers, and one with them as many as threads wait at once.
 *
 * A thread that has to wait hands over to the next one that can go on, in the order of the block: forward, or as
 * ORRERY_CUDA_ORDER says: forward, reverse, or a number that seeds a random order.
 */
#ifndef ORRERY_EMULATED_MACHINE_H
#define ORRERY_EMULATED_MACHINE_H

#include "emulated_devices/device/cuda/emulated/vector_types.h"
#include <stddef.h>
#include <stdint.h>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

/* __thread: known to be constant at first, so that an access is one instruction. */
extern __thread struct indices { struct uint3 thread, block, block_dim, grid_dim; } emulated_indices;
#define threadIdx emulated_indices.thread
#define blockIdx emulated_indices.block
#define blockDim emulated_indices.block_dim
#define gridDim emulated_indices.grid_dim
static const int warpSize = 32;

namespace emulated {

struct where { const char *file; int line; };

enum { WARP = 32, THREADS_MOST = 1024, SHARED_USUAL = 48 << 10, SHARED_MOST = 227 << 10, STACK = 128 << 10 };

/* ---- for kernels ------------------------------------------------------------------------------------------------- */

/* Barriers of the block. */
enum sync { SYNC, SYNC_COUNT, SYNC_AND, SYNC_OR };
int sync_block(enum sync, int predicate, where);

/* What the lanes of a mask do together. */
enum with { WARP_SYNC, SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, BALLOT, VOTE_ALL, VOTE_ANY, MATCH };
struct together {
    enum with how;
    unsigned mask;
    uint64_t value;                     /* of this lane */
    int argument, width;                /* of a shuffle: lane or distance */
    where at;
};
uint64_t with_warp(const together &);

unsigned active_lanes();
void fence(where);
/* The bits at p; and next stored there, if they are still the same, else what they have become.  compares: whether it
 * stores only over a number that it was told. */
uint64_t atomic_begins(void *p, size_t bytes, const void *pc, bool compares);
bool atomic_stores(void *p, size_t bytes, uint64_t *bits, uint64_t next);

/* ---- for launches ------------------------------------------------------------------------------------------------ */

struct launched { const char *kernel; dim3 grid, block; size_t bytes; where at; };

/* call(closure) runs the kernel for one thread. */
void launch_threads(const launched &, void (*call)(const void *), const void *closure, size_t closure_bytes);

/* What NULL is, where it stands for a pointer. */
struct null {
    long is;
    operator long() const { return is; }
    template <typename T> operator T *() const { return is == 0 ? nullptr : not_null(); }
    [[noreturn]] static std::nullptr_t not_null();
};
template <typename A> using or_null = std::conditional_t<std::is_same<A, long>::value, null, A>;

/* Arguments are computed once, and each thread gets a copy.  KERNEL_TAKES is never called: it only has a type. */
template <typename Takes, typename Kernel, typename... A>
static inline void launch(const launched &l, const Takes &, const Kernel &kernel, A... arguments)
{
    constexpr bool as_they_are = std::is_invocable<Takes, const A &...>::value;
    constexpr bool with_null = !as_they_are && std::is_invocable<Takes, const or_null<A> &...>::value;
    typedef std::conditional_t<with_null, std::tuple<or_null<A>...>, std::tuple<A...>> held;
    const std::pair<Kernel, held> all{ kernel, held{ { arguments }... } };
    launch_threads(l, [](const void *p) {
        const auto &all = *static_cast<const std::pair<Kernel, held> *>(p);
        std::apply(all.first, all.second);
    }, &all, sizeof all);
}

/* ---- for a judge, which sees all that happens (judge.h); NULL in fast mode --------------------------------------- */

struct thread;
struct watcher {
    bool sequential;                    /* one block after the other */
    void (*launch_begins)(const char *kernel, dim3 grid, dim3 block, size_t shared_bytes, const void *closure,
                          size_t closure_bytes, where);
    void (*launch_ends)();
    void (*block_begins)();
    void (*block_ends)();
    void (*thread_begins)(int thread);
    void (*thread_ends)(int thread);
    void (*block_meets)();                                      /* all of the block that have not ended */
    void (*block_diverges)(where, int thread, where other, int other_thread);  /* two barriers, or NULL: it has ended */
    void (*warp_meets)(int first_thread, unsigned mask);        /* in __syncwarp: other functions order no memory */
    void (*bad_mask)(const char *why, const together &, int thread);
    void (*fences)();
    void (*atomic)(const void *, size_t bytes, const void *pc, bool compares);
    void (*stuck)();                                            /* nobody can go on; each that waits has been named */
    void (*allocated)(void *, size_t bytes);
    void (*freed)(void *);
    void (*copied)(void *to, const void *from, size_t bytes);
    void (*set)(void *, size_t bytes);
    void (*bad_call)(const char *kernel, const char *why);      /* by the host; kernel: NULL, or which is launched */
};
extern const struct watcher *watcher;

/* Of the calling processor's thread. */
int thread_now();                       /* number in its block; -1: none runs */
void stack_now(const char **low, const char **high);

/* Memory before and behind each allocation, for a judge. */
extern size_t red_zone;

/* The running thread ends here, as one does on a GPU whose access fails; the others go on. */
[[noreturn]] void abandon_thread();

/* A kernel was launched as it cannot be: what cudaGetLastError says. */
void launch_failed(const char *kernel, const char *why);

/* To or from a variable of the device: by the runtime, not by the host's own code. */
void copy_variable(void *to, const void *from, size_t bytes);

/* Bytes of dynamic shared memory that launches may ask for: more than usual after cudaFuncSetAttribute. */
extern size_t shared_allowed;

}
#endif
