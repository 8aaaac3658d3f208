#include "emulated_devices/device/cuda/emulated/machine.h"
#include <cuda_runtime_api.h>
#include "emulated_devices/device/cuda/emulated/fiber.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

__thread struct indices emulated_indices;

/* What `extern __shared__ unsigned char dynamic_shared[]` is. */
alignas(128) thread_local unsigned char dynamic_shared[emulated::SHARED_MOST];

namespace emulated {

const struct watcher *watcher;
size_t red_zone;

enum state { NEW, RUNNING, READY, AT_BARRIER, IN_WARP, ENDED };

struct thread {
    enum state state;
    uint3 index;                        /* its threadIdx */
    fiber *stack;                       /* while it waits */
    together op;                        /* while IN_WARP */
    uint64_t result;
    where at;                           /* while AT_BARRIER */
    enum sync sync;
    int predicate;
};

/* What a processor's thread has: one block at a time. */
struct machine {
    std::vector<thread> threads;
    std::vector<int> order;             /* in which threads start, and are looked for */
    std::vector<int> place;             /* of a thread in it */
    dim3 shape;                         /* of a block */
    int count, next_new, waiting, in_warps, ended, now;
    int met;                            /* result of the last barrier with a predicate */
    fiber home, *here, *free_list;
    void (*call)(const void *);
    const void *closure;
    const char *kernel;

    void run_block();
    void wait();
    fiber *someone();
    void release_if_all_wait();
    void meet(int first, unsigned mask);
    void release_lanes_that_wait_for(int gone);
    void end_thread();
    [[noreturn]] void stuck();
    fiber *take_stack();
    void enter(int t);
    ~machine();
};

static thread_local machine mine;

machine::~machine()
{
    for (fiber *f = free_list, *next; f != nullptr; f = next) next = f->next, fiber_close(f);
}

int thread_now() { return mine.here != nullptr ? mine.now : -1; }

void stack_now(const char **low, const char **high)
{
    *low = mine.here != nullptr ? mine.here->stack : nullptr;
    *high = mine.here != nullptr ? mine.here->stack + mine.here->bytes : nullptr;
}

/* ---- who runs ---------------------------------------------------------------------------------------------------- */

void machine::enter(int t)
{
    now = t;
    threadIdx = threads[(size_t)t].index;
}

/* A stack runs threads that have not begun, until one of them waits; then it is that one's. */
static void run_threads(fiber *)
{
    machine *m = &mine;
    for (;;) {
        while (m->next_new < m->count) {
            const int t = m->order[(size_t)m->next_new++];
            m->enter(t);
            m->threads[(size_t)t].state = RUNNING;
            if (watcher) watcher->thread_begins(t);
            m->call(m->closure);
            m->end_thread();
        }
        fiber *self = m->here;
        self->next = m->free_list, m->free_list = self;
        fiber *to = m->someone();
        m->here = to;
        fiber_switch(self, to);
    }
}

fiber *machine::take_stack()
{
    fiber *f = free_list;
    if (f != nullptr) free_list = f->next;
    else f = fiber_open(STACK);
    fiber_start(f, run_threads);
    return f;
}

void machine::end_thread()
{
    if (watcher) watcher->thread_ends(now);
    threads[(size_t)now].state = ENDED;
    ended++;
    release_if_all_wait();
    release_lanes_that_wait_for(now);
}

/* Its stack begins anew, with the next thread. */
void abandon_thread()
{
    fiber *self = mine.here, nowhere = {};
    mine.end_thread();
    fiber_start(self, run_threads);
    fiber_switch(&nowhere, self);
    abort();
}

/* The next stack to run: of a thread that can go on, or a new one for threads that have not begun; home if all have
 * ended. */
fiber *machine::someone()
{
    for (int i = 1, at = place[(size_t)now] + 1; i <= count; i++, at++) {
        if (at == count) at = 0;
        const int t = order[(size_t)at];
        if (threads[(size_t)t].state != READY) continue;
        enter(t);
        threads[(size_t)t].state = RUNNING;
        return threads[(size_t)t].stack;
    }
    if (next_new < count) return take_stack();
    if (ended < count) stuck();
    return &home;
}

void machine::wait()
{
    thread &t = threads[(size_t)now];
    if (t.state == READY) {                     /* it was the last to come */
        t.state = RUNNING;
        return;
    }
    fiber *self = here;
    t.stack = self;
    fiber *to = next_new < count ? take_stack() : someone();
    if (to == self) return;
    here = to;
    fiber_switch(self, to);
}

void machine::run_block()
{
    for (thread &t : threads) t.state = NEW;
    next_new = waiting = in_warps = ended = 0;
    fiber *to = take_stack();
    here = to;
    fiber_switch(&home, to);
    here = nullptr;
}

/* ---- barriers of the block --------------------------------------------------------------------------------------- */

static bool same(where a, where b) { return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0); }

/* All that have not ended must wait at one place: "all non-exited threads", CUDA C++ Programming Guide. */
static void look_for_divergence(const std::vector<thread> &threads)
{
    int first = -1;
    for (int t = 0; t < (int)threads.size() && first < 0; t++)
        if (threads[(size_t)t].state == AT_BARRIER) first = t;
    for (int t = 0; t < (int)threads.size(); t++) {
        const thread &other = threads[(size_t)t];
        if (other.state == ENDED || same(other.at, threads[(size_t)first].at)) continue;
        return watcher->block_diverges(threads[(size_t)first].at, first, other.at, t);
    }
}

void machine::release_if_all_wait()
{
    if (waiting == 0 || waiting + ended < count) return;
    if (watcher) look_for_divergence(threads);
    int sum = 0;
    for (thread &t : threads)
        if (t.state == AT_BARRIER) sum += t.predicate, t.state = READY;
    for (thread &t : threads)
        if (t.state == READY)
            t.result = (uint64_t)(t.sync == SYNC_COUNT ? sum : t.sync == SYNC_OR ? sum > 0 : sum == waiting);
    waiting = 0;
    if (watcher) watcher->block_meets();
}

int sync_block(enum sync how, int predicate, where at)
{
    machine *m = &mine;
    thread &t = m->threads[(size_t)m->now];
    t.state = AT_BARRIER, t.at = at, t.sync = how, t.predicate = predicate;
    m->waiting++;
    m->release_if_all_wait();
    m->wait();
    return (int)t.result;
}

/* ---- warps ------------------------------------------------------------------------------------------------------- */

static uint64_t gives(const machine *m, int first, int lane, const together &op)
{
    const thread *warp = &m->threads[(size_t)first];
    const int base = lane & ~(op.width - 1), end = base + op.width;
    int from = lane;
    uint64_t bits = 0;
    switch (op.how) {
    case SHUFFLE:      from = base + (op.argument & (op.width - 1)); break;
    case SHUFFLE_UP:   from = lane - op.argument >= base ? lane - op.argument : lane; break;
    case SHUFFLE_DOWN: from = lane + op.argument < end ? lane + op.argument : lane; break;
    case SHUFFLE_XOR:  from = (lane ^ op.argument) < end ? lane ^ op.argument : lane; break;
    case WARP_SYNC:    return 0;
    case BALLOT: case VOTE_ALL: case VOTE_ANY: case MATCH:
        for (int i = 0; i < WARP; i++) {
            if (!(op.mask >> i & 1) || first + i >= m->count || warp[i].state != IN_WARP) continue;
            const bool yes = op.how == MATCH ? warp[i].op.value == op.value : warp[i].op.value != 0;
            bits |= (uint64_t)yes << i;
        }
        if (op.how == VOTE_ALL) {
            for (int i = 0; i < WARP; i++)
                if (op.mask >> i & 1 && first + i < m->count && warp[i].state == IN_WARP && !(bits >> i & 1)) return 0;
            return 1;
        }
        return op.how == VOTE_ANY ? bits != 0 : bits;
    }
    if (!(op.mask >> from & 1) || first + from >= m->count || warp[from].state != IN_WARP) {
        if (watcher) watcher->bad_mask("takes the number of a lane that does not give one", op, first + lane);
        return op.value;
    }
    return warp[from].op.value;
}

/* Whether the lanes that have come are in __syncwarp. */
static bool in_syncwarp(const machine *m, int first, unsigned mask)
{
    for (int i = 0; i < WARP; i++)
        if (mask >> i & 1 && first + i < m->count && m->threads[(size_t)(first + i)].state == IN_WARP
            && m->threads[(size_t)(first + i)].op.how != WARP_SYNC)
            return false;
    return true;
}

/* All lanes of the mask have come: each gets its result. */
void machine::meet(int first, unsigned mask)
{
    unsigned here = 0;
    for (int i = 0; i < WARP; i++)
        if (mask >> i & 1 && first + i < count && threads[(size_t)(first + i)].state == IN_WARP) here |= 1u << i;
    if (watcher && in_syncwarp(this, first, mask)) watcher->warp_meets(first, here);
    for (int i = 0; i < WARP; i++)
        if (mask >> i & 1 && first + i < count && threads[(size_t)(first + i)].state == IN_WARP)
            threads[(size_t)(first + i)].result = gives(this, first, i, threads[(size_t)(first + i)].op);
    for (int i = 0; i < WARP; i++)
        if (mask >> i & 1 && first + i < count && threads[(size_t)(first + i)].state == IN_WARP)
            threads[(size_t)(first + i)].state = READY, in_warps--;
}

/* Whether all lanes of a mask are here, with the same mask; lanes that have ended, or never were, are not waited for. */
static bool all_here(const machine *m, int first, unsigned mask)
{
    for (int i = 0; i < WARP; i++) {
        if (!(mask >> i & 1) || first + i >= m->count) continue;
        const thread &t = m->threads[(size_t)(first + i)];
        if (t.state != ENDED && !(t.state == IN_WARP && t.op.mask == mask)) return false;
    }
    return true;
}

static const char *wrong_mask(const machine *m, int first, const together &op)
{
    const int lane = m->now - first;
    if (!(op.mask >> lane & 1)) return "a lane names a mask without itself";
    if (op.width <= 0 || op.width > WARP || (op.width & (op.width - 1))) return "its width is no power of two up to 32";
    for (int i = 0; i < WARP; i++) {
        if (!(op.mask >> i & 1)) continue;
        if (first + i >= m->count) return "the mask names a lane that the block does not have";
        const thread &t = m->threads[(size_t)(first + i)];
        if (t.state == IN_WARP && t.op.mask == op.mask && first + i != m->now && t.op.how != op.how)
            return "lanes of one mask call different functions";
    }
    return nullptr;
}

/* A mask may name a lane that has ended: only "non-exited threads named in mask" are waited for (the same guide). */
void machine::release_lanes_that_wait_for(int gone)
{
    const int first = gone / WARP * WARP;
    for (int t = first; in_warps > 0 && t < first + WARP && t < count; t++) {
        if (threads[(size_t)t].state != IN_WARP) continue;
        const together op = threads[(size_t)t].op;
        if (!(op.mask >> (gone - first) & 1)) continue;
        if (all_here(this, first, op.mask)) meet(first, op.mask);
    }
}

uint64_t with_warp(const together &op)
{
    machine *m = &mine;
    const int first = m->now / WARP * WARP;
    thread &t = m->threads[(size_t)m->now];
    if (watcher) {
        const char *why = wrong_mask(m, first, op);
        if (why) watcher->bad_mask(why, op, m->now);
    }
    t.op = op;
    if (!(op.mask >> (m->now - first) & 1)) return op.value;    /* nobody waits for it; it goes on with its own number */
    t.state = IN_WARP, m->in_warps++;
    if (all_here(m, first, op.mask)) m->meet(first, op.mask);
    m->wait();
    return t.result;
}

unsigned active_lanes()
{
    return 1u << mine.now % WARP;
}

void fence(enum scope reach)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (watcher) watcher->fences(reach);
}

uint64_t atomic_begins(void *p, size_t bytes, const void *pc, enum scope reach, bool compares)
{
    if (watcher) watcher->atomic(p, bytes, pc, reach, compares);
    if (bytes == 8) return __atomic_load_n(static_cast<uint64_t *>(p), __ATOMIC_RELAXED);
    if (bytes == 4) return __atomic_load_n(static_cast<uint32_t *>(p), __ATOMIC_RELAXED);
    return __atomic_load_n(static_cast<uint16_t *>(p), __ATOMIC_RELAXED);
}

template <typename T> static bool stores(void *p, uint64_t *bits, uint64_t next)
{
    T old = (T)*bits;
    const bool done = __atomic_compare_exchange_n(static_cast<T *>(p), &old, (T)next, false, __ATOMIC_SEQ_CST,
                                                  __ATOMIC_RELAXED);
    *bits = old;
    return done;
}

bool atomic_stores(void *p, size_t bytes, uint64_t *bits, uint64_t next)
{
    return bytes == 8 ? stores<uint64_t>(p, bits, next) : bytes == 4 ? stores<uint32_t>(p, bits, next)
                                                                     : stores<uint16_t>(p, bits, next);
}

/* ---- nobody can go on -------------------------------------------------------------------------------------------- */

static const char *const what_with[] = { "__syncwarp", "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                         "__shfl_xor_sync", "__ballot_sync", "__all_sync", "__any_sync",
                                         "__match_any_sync" };

void machine::stuck()
{
    fprintf(stderr, "orrery: kernel %s, block (%u,%u,%u): no thread can go on\n", kernel, blockIdx.x, blockIdx.y,
            blockIdx.z);
    int named = 0;
    for (int t = 0; t < count; t++) {
        const thread &w = threads[(size_t)t];
        if (w.state != AT_BARRIER && w.state != IN_WARP) continue;
        if (named++ == 8) {
            fprintf(stderr, "  ...\n");
            break;
        }
        if (w.state == AT_BARRIER)
            fprintf(stderr, "  thread %d waits at __syncthreads, %s:%d\n", t, w.at.file, w.at.line);
        else
            fprintf(stderr, "  thread %d (lane %d) waits in %s(0x%08x), %s:%d\n", t, t % WARP, what_with[w.op.how],
                    w.op.mask, w.op.at.file, w.op.at.line);
    }
    if (watcher) watcher->stuck();
    abort();
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* The order of threads in a block, as ORRERY_CUDA_ORDER says. */
static void set_order(std::vector<int> &order)
{
    static const char *how = getenv("ORRERY_CUDA_ORDER");
    const int n = (int)order.size();
    for (int i = 0; i < n; i++) order[(size_t)i] = i;
    if (how == nullptr || strcmp(how, "forward") == 0) return;
    if (strcmp(how, "reverse") == 0) return std::reverse(order.begin(), order.end());
    uint64_t x = strtoull(how, nullptr, 10) * 2 + 1;
    for (int i = n - 1; i > 0; i--) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        std::swap(order[(size_t)i], order[(size_t)(x >> 33) % (size_t)(i + 1)]);
    }
}

static void open_machine(machine *m, dim3 grid, dim3 block, const char *kernel, void (*call)(const void *),
                         const void *closure)
{
    const int n = (int)(block.x * block.y * block.z);
    gridDim = { grid.x, grid.y, grid.z }, blockDim = { block.x, block.y, block.z };
    m->kernel = kernel, m->call = call, m->closure = closure;
    if (m->count == n && m->shape.x == block.x && m->shape.y == block.y) return;
    m->shape = block, m->count = n;
    m->threads.assign((size_t)n, thread{});
    for (unsigned t = 0; t < (unsigned)n; t++)
        m->threads[t].index = { t % block.x, t / block.x % block.y, t / (block.x * block.y) };
    m->order.resize((size_t)n), m->place.resize((size_t)n);
    set_order(m->order);
    for (int i = 0; i < n; i++) m->place[(size_t)m->order[(size_t)i]] = i;
}

static void run_block(int64_t b, dim3 grid)
{
    blockIdx = { (unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y), (unsigned)(b / ((int64_t)grid.x * grid.y)) };
    if (watcher) watcher->block_begins();
    mine.now = 0;
    mine.run_block();
    if (watcher) watcher->block_ends();
}

static const char *cannot_be(dim3 grid, dim3 block, int64_t threads, int64_t blocks, size_t bytes)
{
    if (threads == 0) return "its blocks have no threads";
    if (threads > THREADS_MOST) return "its blocks have more than 1024 threads";
    if (block.z > 64) return "its blocks have more than 64 threads along z";
    if (blocks == 0) return "its grid has no blocks";
    if (grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535) return "its grid has more than 65535 blocks along y or z";
    if (bytes > SHARED_MOST) return "it asks for more than 227 KiB of dynamic shared memory";
    if (bytes > shared_allowed)
        return "it asks for more dynamic shared memory than 48 KiB, or than cudaFuncSetAttribute has allowed";
    return nullptr;
}

void bounded_thread(int threads)
{
    if (mine.count <= threads) return;
    char why[100];
    snprintf(why, sizeof why, "its blocks have %d threads, and its __launch_bounds__ allow %d", mine.count, threads);
    launch_failed(mine.kernel, why);
    abandon_thread();
}

std::nullptr_t null::not_null()
{
    fprintf(stderr, "orrery: a kernel is launched with a number where it takes a pointer\n");
    abort();
}

void launch_threads(const launched &l, void (*call)(const void *), const void *closure, size_t closure_bytes)
{
    ::emulated_calls.launches++;
    const dim3 grid = l.grid, block = l.block;
    const int64_t n = (int64_t)block.x * block.y * block.z, blocks = (int64_t)grid.x * grid.y * grid.z;
    if (const char *why = cannot_be(grid, block, n, blocks, l.bytes)) return launch_failed(l.kernel, why);
    if (watcher) watcher->launch_begins(l.kernel, grid, block, l.bytes, closure, closure_bytes, l.at);
    const bool alone = (watcher && watcher->sequential) || blocks == 1 || n * blocks < 2048;
    #pragma omp parallel if (!alone)
    {
        open_machine(&mine, grid, block, l.kernel, call, closure);
        #pragma omp for schedule(dynamic)
        for (int64_t b = 0; b < blocks; b++) run_block(b, grid);
    }
    if (watcher) watcher->launch_ends();
}

}
