/* count.cpp -- sectors of 32 bytes that a warp's accesses to global memory take, and banks of shared memory.
 *
 * The n-th access of a line by each lane of a warp is one request.  Of global memory it takes as many transactions as
 * sectors; of shared memory as many as different words lie in one bank of 4 bytes.  ORRERY_JUDGE_COUNT=1 counts.
 */
#include "emulated_devices/device/cuda/emulated/judge/judge.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

namespace emulated {

bool counting = getenv("ORRERY_JUDGE_COUNT") != nullptr;

struct request { std::set<uintptr_t> sectors; std::map<unsigned, std::set<uintptr_t>> banks; size_t bytes; bool shared; };
struct key {
    const void *pc;
    int warp;
    unsigned nth;
    bool operator<(const key &o) const
    {
        return pc != o.pc ? pc < o.pc : warp != o.warp ? warp < o.warp : nth < o.nth;
    }
};
struct counted { uint64_t requests, transactions, least; bool shared; };

/* The program's end prints these, after its other objects have been destroyed: they never are. */
static auto &open = *new std::map<key, request>;
static auto &nth = *new std::map<std::pair<const void *, int>, unsigned>;
static auto &total = *new std::map<std::pair<std::string, const void *>, counted>;

void count_access(const void *p, size_t bytes, bool shared, const void *pc, int thread)
{
    request &r = open[{ pc, thread / WARP, nth[{ pc, thread }]++ }];
    const uintptr_t at = (uintptr_t)p;
    r.shared = shared, r.bytes += bytes;
    for (uintptr_t s = at / 32; s <= (at + bytes - 1) / 32; s++) r.sectors.insert(s);
    for (uintptr_t w = at / 4; w <= (at + bytes - 1) / 4; w++) r.banks[(unsigned)(w % 32)].insert(w);
}

void count_end_block()
{
    for (const auto &o : open) {
        counted &c = total[{ now.kernel, o.first.pc }];
        size_t most = 0;
        for (const auto &b : o.second.banks) most = std::max(most, b.second.size());
        c.requests++, c.shared = o.second.shared;
        c.transactions += c.shared ? most : o.second.sectors.size();
        c.least += c.shared ? 1 : (o.second.bytes + 31) / 32;
    }
    open.clear(), nth.clear();
}

}

using namespace emulated;

void judge_counts(void)
{
    if (total.empty()) return;                  /* a process that has run no kernel */
    fprintf(stderr, "%-28s %-26s %-7s %10s %14s %10s\n", "kernel", "line", "memory", "requests", "transactions", "at least");
    for (const auto &t : total)
        fprintf(stderr, "%-28s %-26s %-7s %10llu %14llu %10llu\n", t.first.first.c_str(), line_of(t.first.second).c_str(),
                t.second.shared ? "shared" : "global", (unsigned long long)t.second.requests,
                (unsigned long long)t.second.transactions, (unsigned long long)t.second.least);
}
