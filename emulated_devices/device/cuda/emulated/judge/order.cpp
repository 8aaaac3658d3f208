/* order.cpp -- which accesses are ordered.
 *
 * A thread has a clock for each lane of its warp: how much it knows of it.  Its own goes on whenever it tells others:
 * when lanes of a mask meet in __syncwarp (shuffles and votes "do not imply a memory barrier", CUDA C++ Programming
 * Guide, Warp Vote Functions), and when it stores by an atomic after a fence.  Barriers of the block count phases.  An
 * access is before another if
 *   - it is the same thread's, or of an earlier launch;
 *   - the block has met since;
 *   - the lanes of a mask have met in __syncwarp since, both among them;
 *   - the other has got to know of it: it read, by an atomic, a word into which somebody stored, by an atomic and after
 *     a fence, who knew it.  So a counter of finished blocks orders them, if no fence is missing.
 */
#include "emulated_devices/device/cuda/emulated/judge/judge.h"
#include <algorithm>
#include <array>
#include <map>
#include <memory>

namespace emulated {

/* What is known of other blocks: all before a phase; of single threads: all before a clock. */
struct knowledge {
    std::map<uint32_t, uint32_t> block;
    std::map<std::pair<uint32_t, int>, uint32_t> thread;
};
typedef std::shared_ptr<const knowledge> known;

struct thread_order {
    std::array<uint32_t, WARP> clock;
    known others;
    bool fenced;                        /* since it last wrote */
};

static std::vector<thread_order> threads;
static uint32_t phase;
static std::map<const void *, known> told;      /* by atomics */

static known together_of(const known &a, const known &b)
{
    if (!a || a == b) return b;
    if (!b) return a;
    auto sum = std::make_shared<knowledge>(*a);
    for (const auto &k : b->block) sum->block[k.first] = std::max(sum->block[k.first], k.second);
    for (const auto &k : b->thread) sum->thread[k.first] = std::max(sum->thread[k.first], k.second);
    return sum;
}

void order_begin_launch() { told.clear(); }

void order_begin_block(int count)
{
    threads.assign((size_t)count, thread_order{});
    phase = 0;
}

void order_barrier()
{
    known all;
    phase++;
    for (const thread_order &t : threads) all = together_of(all, t.others);
    if (all)
        for (thread_order &t : threads) t.others = all;
}

void order_warp(int first, unsigned mask)
{
    std::array<uint32_t, WARP> most = {};
    known all;
    for (int i = 0; i < WARP && first + i < (int)threads.size(); i++) {
        if (!(mask >> i & 1)) continue;
        thread_order &t = threads[(size_t)(first + i)];
        t.clock[(size_t)i]++;
        for (size_t l = 0; l < WARP; l++) most[l] = std::max(most[l], t.clock[l]);
        all = together_of(all, t.others);
    }
    for (int i = 0; i < WARP && first + i < (int)threads.size(); i++)
        if (mask >> i & 1) threads[(size_t)(first + i)].clock = most, threads[(size_t)(first + i)].others = all;
}

void order_fence(int thread) { threads[(size_t)thread].fenced = true; }

void order_wrote(int thread) { threads[(size_t)thread].fenced = false; }

void order_atomic(int thread, const void *p)
{
    thread_order &t = threads[(size_t)thread];
    known &there = told[p];
    t.others = together_of(t.others, there);
    if (!t.fenced) return;
    const int first = thread / WARP * WARP;
    t.clock[(size_t)(thread - first)]++;
    auto mine = std::make_shared<knowledge>();
    mine->block[now.block] = phase;
    for (int l = 0; l < WARP; l++)
        if (t.clock[(size_t)l] > 0) mine->thread[{ now.block, first + l }] = t.clock[(size_t)l];
    there = together_of(t.others, mine);
}

void order_stamp(access *a, int thread)
{
    a->launch = now.launch, a->block = now.block, a->phase = phase, a->thread = (uint16_t)thread;
    a->clock = threads[(size_t)thread].clock[(size_t)(thread % WARP)];
}

bool order_before(const access &a, int thread)
{
    const thread_order &t = threads[(size_t)thread];
    if (a.launch != now.launch) return true;
    if (a.block == now.block) {
        if (a.thread == thread || a.phase < phase) return true;
        if (a.thread / WARP == thread / WARP && t.clock[a.thread % WARP] > a.clock) return true;
    }
    if (!t.others) return false;
    const auto b = t.others->block.find(a.block);
    if (b != t.others->block.end() && b->second > a.phase) return true;
    const auto k = t.others->thread.find({ a.block, a.thread });
    return k != t.others->thread.end() && k->second > a.clock;
}

}
