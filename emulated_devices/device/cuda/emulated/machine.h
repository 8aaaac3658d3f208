/* machine.h -- blocks of threads on a CPU: who runs, who waits for whom.
 *
 * A processor's thread runs a block.  The block's threads are plain calls on one stack, one after the other.  The first
 * that waits keeps its stack, and becomes a fiber (fiber.h); those after it get another one.  So a kernel without
 * barriers has no fibers, and one with them as many as threads wait at once.
 *
 * A thread that has to wait hands over to the next one that can go on, in the order of the block: forward, or as
 * ORRERY_CUDA_ORDER says: forward, reverse, or a number that seeds a random order.  cuda_runtime.h and
 * emulated/judge/judge.h call these functions.  No function returns an error code.
 */
#ifndef ORRERY_EMULATED_MACHINE_H
#define ORRERY_EMULATED_MACHINE_H

#include "emulated_devices/device/cuda/emulated/vector_types.h"
#include <cuda_runtime_api.h>
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

/* The lanes of a mask do one of these together. */
enum with { WARP_SYNC, SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, BALLOT, VOTE_ALL, VOTE_ANY, MATCH };
struct together {
    enum with how;                      /**< Operation of the lanes. */
    unsigned mask;                      /**< Bit mask of the lanes that take part. */
    uint64_t value;                     /* of this lane */
    int argument, width;                /* of a shuffle: lane or distance */
    where at;                           /**< Place of the call in the source. */
};
uint64_t with_warp(const together &);

unsigned active_lanes();

/* Whom a fence or an atomic reaches: the threads of the block, or all of the device. */
enum scope { IN_BLOCK, IN_DEVICE };
void fence(enum scope);
/* The bits at p; and next stored there, if they are still the same, else what they have become.  compares: whether it
 * stores only over a number that it was told. */
uint64_t atomic_begins(void *p, size_t bytes, const void *pc, enum scope, bool compares);
bool atomic_stores(void *p, size_t bytes, uint64_t *bits, uint64_t next);

/* ---- for launches ------------------------------------------------------------------------------------------------ */

struct launched { const char *kernel; dim3 grid, block; size_t bytes; where at; };

/* call(closure) runs the kernel for one thread. */
void launch_threads(const launched &, void (*call)(const void *), const void *closure, size_t closure_bytes);

/* This type stands for NULL where NULL stands for a pointer. */
struct null {
    long is;                            /**< 0 stands for a null pointer. */
    operator long() const { return is; }
    template <typename T> operator T *() const { return is == 0 ? nullptr : not_null(); }
    [[noreturn]] static std::nullptr_t not_null();
};
template <typename A> using or_null = std::conditional_t<std::is_same<A, long>::value, null, A>;
template <typename A> static inline decltype(auto) or_null_of(A &a)
{
    if constexpr (std::is_same<std::remove_const_t<A>, long>::value) return null{ a };
    else return (a);
}

template <typename Kernel, typename Held>
static inline void launch_with(const launched &l, const Kernel &kernel, Held &&held)
{
    const std::pair<Kernel, Held> all{ kernel, std::move(held) };
    launch_threads(l, [](const void *p) {
        const auto &all = *static_cast<const std::pair<Kernel, Held> *>(p);
        std::apply(all.first, all.second);
    }, &all, sizeof all);
}

/* The types of a kernel's parameters, if its name stands for one kernel. */
template <typename... P> std::tuple<std::decay_t<P>...> parameters_of(int, void (*)(P...));

template <typename Types, bool one_kernel = std::is_invocable<Types, int>::value> struct held_by {
    template <typename... A> struct from { enum { possible = false }; };
};
template <typename Types> struct held_by<Types, true> {
    typedef std::invoke_result_t<Types, int> type;
    template <typename... A> struct from { enum { possible = std::is_constructible<type, A...>::value }; };
};

/* Arguments are computed once, converted to the kernel's parameters once, and each thread gets a copy.  TAKES and TYPES
 * are never called: they only have types. */
template <typename Takes, typename Types, typename Kernel, typename... A>
static inline void launch(const launched &l, const Takes &, const Types &, const Kernel &kernel, A &&...arguments)
{
    if constexpr (held_by<Types>::template from<decltype(or_null_of(arguments))...>::possible)
        launch_with(l, kernel, typename held_by<Types>::type(or_null_of(arguments)...));
    else {
        constexpr bool as_they_are = std::is_invocable<Takes, const std::decay_t<A> &...>::value;
        constexpr bool with_null = !as_they_are && std::is_invocable<Takes, const or_null<std::decay_t<A>> &...>::value;
        typedef std::conditional_t<with_null, std::tuple<or_null<std::decay_t<A>>...>,
                                   std::tuple<std::decay_t<A>...>> held;
        launch_with(l, kernel, held{ { arguments }... });
    }
}

/* ---- for a judge, which sees all that happens (judge.h); NULL in fast mode --------------------------------------- */

/* By byte of a type: whether a number lies there, or only room between numbers.  NULL: everywhere a number. */
struct type_of_numbers { const unsigned char *numbers; size_t bytes; };

template <typename T> static inline type_of_numbers numbers_of()
{
#if defined __has_builtin
#if __has_builtin(__builtin_clear_padding)
    if constexpr (std::is_class<T>::value && std::is_trivially_copyable<T>::value) {
        alignas(T) static unsigned char numbers[sizeof(T)];
        if (numbers[0] == 0) {
            for (unsigned char &byte : numbers) byte = 0xff;
            __builtin_clear_padding(reinterpret_cast<T *>(numbers));
        }
        return { numbers, sizeof(T) };
    }
#endif
#endif
    return { nullptr, 0 };
}

struct thread;
struct watcher {
    bool sequential;                    /* one block after the other */
    void (*launch_begins)(const char *kernel, dim3 grid, dim3 block, size_t shared_bytes, const void *closure,
                          size_t closure_bytes, where); /**< Called before a launch. */
    void (*launch_ends)();                              /**< Called after a launch. */
    void (*block_begins)();                             /**< Called before a block runs. */
    void (*block_ends)();                               /**< Called after a block has run. */
    void (*thread_begins)(int thread);                  /**< Called before a thread runs. */
    void (*thread_ends)(int thread);                    /**< Called after a thread has run. */
    void (*block_meets)();                                      /* all of the block that have not ended */
    void (*block_diverges)(where, int thread, where other, int other_thread);  /* they wait at two barriers */
    void (*warp_meets)(int first_thread, unsigned mask);        /* in __syncwarp: other functions order no memory */
    void (*bad_mask)(const char *why, const together &, int thread); /**< A mask or lane is wrong. */
    void (*fences)(enum scope);                                 /**< Called at a memory fence. */
    void (*atomic)(const void *, size_t bytes, const void *pc, enum scope, bool compares);
    void (*reads_for_good)(const void *, size_t bytes, size_t alignment, const void *pc);       /* by __ldg */
    void (*stuck)();                                            /* nobody can go on; each that waits has been named */
    void (*allocated)(void *, size_t bytes);                    /**< Memory was allocated. */
    void (*freed)(void *);                                      /**< Memory was freed. */
    void (*copied)(void *to, const void *from, size_t bytes, const type_of_numbers &); /**< The host copied bytes. */
    void (*set)(void *, size_t bytes); /**< Bytes were set, as by a memset. */
    void (*product_reads)(const char *matrix, const void *, size_t bytes); /**< A matrix product reads these bytes. */
    void (*bad_call)(const char *kernel, const char *why);      /* by the host; kernel: NULL, or which is launched */
};
extern const struct watcher *watcher;

/* Both functions are about the calling processor's thread. */
int thread_now();                       /* number in its block; -1: none runs */
void stack_now(const char **low, const char **high);

/* Memory before and behind each allocation, for a judge. */
extern size_t red_zone;

/* The running thread ends here, as one does on a GPU whose access fails; the others go on. */
[[noreturn]] void abandon_thread();

/* A kernel was launched as it cannot be: what cudaGetLastError says. */
void launch_failed(const char *kernel, const char *why);

/* At the begin of a kernel with __launch_bounds__(threads, ...): a launch with more of them does nothing. */
void bounded_thread(int threads);
static inline void bounded(int threads, int = 0, int = 0) { bounded_thread(threads); }

/* To or from a variable of the device: by the runtime, not by the host's own code. */
void copy_variable(void *to, const void *from, size_t bytes, const type_of_numbers &);

/* The runtime's cudaMemcpy to an array of some type. */
cudaError_t copy_numbers(void *to, const void *from, size_t bytes, enum cudaMemcpyKind, const type_of_numbers &);

/* Bytes of dynamic shared memory that launches may ask for: more than usual after cudaFuncSetAttribute. */
extern size_t shared_allowed;

}
#endif
