/* order.cpp -- which accesses are ordered: docs/authors/memory_model.md in code.
 *
 * A thread has a clock for each lane of its warp: how much it knows of it.  Its own goes on whenever it tells others: when
 * lanes meet in __syncwarp, and at a fence.  Barriers of the block count phases.  An access is before another if
 *   - it is the same thread's, or of an earlier launch;
 *   - the block has met since, and its thread took part;
 *   - its lane and the other's have met in __syncwarp since;
 *   - the other thread has got to know of it.  A fence packs all that its thread knows.  An atomic behind it leaves the
 *     package at its word, and who uses the word by an atomic takes it.  Barriers and __syncwarp hand packages on: fences
 *     are sequentially consistent, PTX ISA, "Fence-SC order".  A fence of the block packs for the threads of the block.
 */
#include "emulated_devices/device/cuda/emulated/judge/judge.h"
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>

namespace emulated {

/* What is known of other blocks: all before a phase; of single threads: all before a clock. */
struct knowledge {
    std::map<uint32_t, uint32_t> block;
    std::map<std::pair<uint32_t, int>, uint32_t> thread;
};
typedef std::shared_ptr<const knowledge> known;

typedef std::array<uint32_t, WARP> clocks;

struct thread_order {
    clocks clock;
    uint32_t joined;                    /* the phase that began with the last barrier of its own */
    bool ended;
    known others;
    known packed[IN_DEVICE + 1];        /* at fences; by whom they reach */
};

static std::vector<thread_order> threads;
static uint32_t phase;
static bool somebody_left;              /* before a barrier of its block */
static std::map<std::pair<uint32_t, int>, uint32_t> left;       /* thread of a block: its last phase */
static std::set<uint32_t> publishers;   /* blocks of which others may know */

/* An atomic leaves this at its word: for all threads, and for those of one block. */
struct message { known for_all; std::map<uint32_t, known> for_block; };
static std::map<const void *, message> told;

template <typename M> static bool is_news(const M &a, const M &b)
{
    for (const auto &k : b) {
        const auto found = a.find(k.first);
        if (found == a.end() || found->second < k.second) return true;
    }
    return false;
}

static void add(knowledge *sum, const knowledge &b)
{
    for (const auto &k : b.block) sum->block[k.first] = std::max(sum->block[k.first], k.second);
    for (const auto &k : b.thread) sum->thread[k.first] = std::max(sum->thread[k.first], k.second);
}

static known together_of(const known &a, const known &b)
{
    if (!a || a == b) return b;
    if (!b || (!is_news(a->block, b->block) && !is_news(a->thread, b->thread))) return a;
    auto sum = std::make_shared<knowledge>(*a);
    add(sum.get(), *b);
    return sum;
}

/* Threads that meet share one of the three kinds of knowledge: each then knows what all of them know. */
template <typename F> static void share(const std::vector<thread_order *> &those, F which)
{
    known first;
    std::shared_ptr<knowledge> sum;
    for (thread_order *t : those) {
        const known &k = which(t);
        if (!k || k == first) continue;
        if (!first) { first = k; continue; }
        if (!sum) sum = std::make_shared<knowledge>(*first);
        add(sum.get(), *k);
    }
    if (!first) return;
    const known all = sum ? known(sum) : first;
    for (thread_order *t : those) which(t) = all;
}

static void share_all(const std::vector<thread_order *> &those)
{
    share(those, [](thread_order *t) -> known & { return t->others; });
    share(those, [](thread_order *t) -> known & { return t->packed[IN_BLOCK]; });
    share(those, [](thread_order *t) -> known & { return t->packed[IN_DEVICE]; });
}

void order_begin_launch() { told.clear(), left.clear(), publishers.clear(); }

void order_begin_block(int count)
{
    threads.assign((size_t)count, thread_order{});
    phase = 0, somebody_left = false;
}

/* "All non-exited threads" meet, and their accesses are visible: not those of a thread that has ended. */
void order_barrier()
{
    std::vector<thread_order *> here;
    phase++;
    for (size_t t = 0; t < threads.size(); t++) {
        if (threads[t].ended) somebody_left = true, left.emplace(std::make_pair(now.block, (int)t), threads[t].joined);
        else here.push_back(&threads[t]), threads[t].joined = phase;
    }
    share_all(here);
}

void order_ends(int thread) { threads[(size_t)thread].ended = true; }

void order_warp(int first, unsigned mask)
{
    clocks most = {};
    std::vector<thread_order *> here;
    for (int i = 0; i < WARP && first + i < (int)threads.size(); i++) {
        if (!(mask >> i & 1)) continue;
        thread_order &t = threads[(size_t)(first + i)];
        t.clock[(size_t)i]++;
        for (size_t l = 0; l < WARP; l++) most[l] = std::max(most[l], t.clock[l]);
        here.push_back(&t);
    }
    for (thread_order *t : here) t->clock = most;
    share_all(here);
}

void order_fence(int thread, enum scope reach)
{
    thread_order &t = threads[(size_t)thread];
    const int first = thread / WARP * WARP;
    t.clock[(size_t)(thread - first)]++;
    auto all = t.others ? std::make_shared<knowledge>(*t.others) : std::make_shared<knowledge>();
    all->block[now.block] = phase;
    for (int l = 0; l < WARP; l++)
        if (t.clock[(size_t)l] > 0) all->thread[{ now.block, first + l }] = t.clock[(size_t)l];
    for (int s = IN_BLOCK; s <= reach; s++) t.packed[s] = together_of(t.packed[s], all);
}

void order_atomic(int thread, const void *p, enum scope reach)
{
    thread_order &t = threads[(size_t)thread];
    message &there = told[p];
    const auto here = there.for_block.find(now.block);
    if (reach == IN_DEVICE) t.others = together_of(t.others, there.for_all);
    if (here != there.for_block.end()) t.others = together_of(t.others, here->second);
    if (t.packed[IN_BLOCK]) there.for_block[now.block] = together_of(there.for_block[now.block], t.packed[IN_BLOCK]);
    if (reach == IN_BLOCK || !t.packed[IN_DEVICE]) return;
    there.for_all = together_of(there.for_all, t.packed[IN_DEVICE]);
    publishers.insert(now.block);
}

bool order_is_silent(uint32_t block) { return block != now.block && publishers.count(block) == 0; }

void order_stamp(access *a, int thread)
{
    a->launch = now.launch, a->block = now.block, a->phase = phase;
    a->warp = (uint16_t)(thread / WARP), a->lanes = 1u << thread % WARP;
    a->clock = threads[(size_t)thread].clock[(size_t)(thread % WARP)];
}

/* Those of some lanes whose clock is none that is known; CLOCK(l): what is known of lane l. */
template <typename F> static uint32_t beyond(uint32_t lanes, uint32_t at, F clock)
{
    uint32_t open = lanes;
    for (uint32_t some = lanes; some != 0; some &= some - 1) {
        const int l = __builtin_ctz(some);
        if (clock(l) > at) open &= ~(1u << l);
    }
    return open;
}

uint32_t order_open_lanes(const access &a, int thread)
{
    const thread_order &t = threads[(size_t)thread];
    const int first = a.warp * WARP;
    if (a.launch != now.launch) return 0;
    uint32_t open = a.lanes;
    if (a.block == now.block) {
        if (a.phase < phase && !somebody_left) return 0;
        if (a.phase < phase) open = beyond(open, a.phase, [=](int l) { return threads[(size_t)(first + l)].joined; });
        if (a.warp == thread / WARP)
            open = beyond(open & ~(1u << thread % WARP), a.clock, [&](int l) { return t.clock[(size_t)l]; });
    }
    if (open == 0 || !t.others) return open;
    const auto b = t.others->block.find(a.block);
    if (b != t.others->block.end() && b->second > a.phase)
        open = beyond(open, a.phase, [&](int l) {
            const auto gone = left.find({ a.block, first + l });
            return gone == left.end() ? b->second : std::min(b->second, gone->second);
        });
    return beyond(open, a.clock, [&](int l) {
        const auto k = t.others->thread.find({ a.block, first + l });
        return k == t.others->thread.end() ? 0 : k->second;
    });
}

bool order_has_left(const access &a, int lane)
{
    return a.launch == now.launch && left.count({ a.block, a.warp * WARP + lane }) > 0;
}

}
