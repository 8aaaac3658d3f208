/* shadow.cpp -- what each word was last used by.
 *
 * A cell has the writes and the reads of a word of 4 bytes that a later access must be ordered behind: of atomics and
 * reads all that are not ordered among each other.
 */
#include "emulated_devices/device/cuda/emulated/judge/judge.h"
#include <algorithm>
#include <cstring>

namespace emulated {

static std::vector<cell> shared_cells;
static std::vector<uint32_t> shared_written;    /* by byte: the number of the block that wrote it */
static std::vector<uint32_t> shared_used;       /* by an array's first byte: the last launch that used it */

/* Of memory that other threads see, by each thread of the block; and the most of all launches. */
static std::vector<long> of_threads;
static long most_accesses;

void shadow_begin_block()
{
    of_threads.clear();
    const size_t bytes = shared_room();
    if (shared_written.size() >= bytes) return;
    shared_written.assign(bytes, 0), shared_used.assign(bytes, 0);
    shared_cells.assign(bytes / 4 + 2, cell{});
}

/* Races of a plain read with atomics, which are none if the thread only hands the number to a compare-and-swap of the same
 * word next: should it have been torn or old, nothing is stored.  So loops of them begin in NVIDIA's guide. */
struct unsure { int thread; const void *word, *pc, *other_pc; std::string text; };
static std::vector<unsure> open_races;

static void decide(int thread)
{
    std::vector<unsure> others;
    for (const unsure &u : open_races)
        if (thread >= 0 && u.thread != thread) others.push_back(u);
        else report("race", u.pc, u.other_pc, u.text);
    open_races.swap(others);
}

void shadow_ends(int thread) { decide(thread); }
void shadow_block_meets() { decide(-1); }

static void forgive(int thread, const void *word)
{
    for (size_t i = 0; i < open_races.size();)
        if (open_races[i].thread == thread && open_races[i].word == word) open_races.erase(open_races.begin() + (ptrdiff_t)i);
        else i++;
}

static const char *word_for(int kind)
{
    return kind & ATOMIC ? "an atomic" : kind & WRITE ? "a write" : "a read";
}

static std::string what_it_is(const place &at)
{
    if (at.kind == SHARED) return "shared array " + std::string(at.array) + ", byte " + std::to_string(at.offset);
    return (at.memory->name.empty() ? "global memory" : "variable " + at.memory->name) + ", byte "
           + std::to_string(at.offset) + " of " + std::to_string(at.memory->bytes);
}

static std::string word_of(const access &a, bool sizes)
{
    return word_for(a.kind) + (sizes ? " of " + std::to_string(a.size) + " bytes" : "");
}

static std::string whose(const access &a, int lane, bool sizes)
{
    return word_of(a, sizes) + " by " + thread_name(a.block, a.warp * WARP + lane) + " at " + line_of(a.pc);
}

/* Whether two atomics are so for each other. */
static bool go_together(const access &a, const access &b)
{
    return a.kind & b.kind & ATOMIC && a.size == b.size && (a.block == b.block || !((a.kind | b.kind) & OF_BLOCK));
}

static void look_for_race(const access &before, const access &a, int thread, const void *word, const place &at)
{
    const int both = before.kind | a.kind;
    if (!(before.bytes & a.bytes) || !(both & WRITE) || before.launch != a.launch || go_together(before, a)) return;
    const uint32_t open = order_open_lanes(before, thread);
    const bool for_good = both & FOR_GOOD;
    if (open == 0 && !for_good) return;
    const bool sizes = before.kind & a.kind & ATOMIC && before.size != a.size, of_block = both & OF_BLOCK && both & ATOMIC;
    const int lane = __builtin_ctz(open != 0 ? open : before.lanes);
    const std::string pair = whose(a, thread % WARP, sizes) + " and " + whose(before, lane, sizes);
    if (for_good)
        return report("read-only", a.pc, before.pc, pair + ": what __ldg reads, nobody may write while the kernel runs: "
                      + what_it_is(at));
    const bool sure = a.kind != 0 || !(before.kind & ATOMIC);
    for (const unsure &u : open_races)
        if (!sure && u.thread == thread && u.word == word && u.pc == a.pc && u.other_pc == before.pc) return;
    const std::string text = pair + " are not ordered: " + what_it_is(at)
                             + (order_has_left(before, lane) ? "; the latter thread ended before a barrier of its block" : "")
                             + (of_block ? "; an atomic of a block is none for other blocks" : "");
    if (sure) report("race", a.pc, before.pc, text);
    else open_races.push_back({ thread, word, a.pc, before.pc, text });
}

static bool is_one_epoch(const access &a, const access &b)
{
    return a.launch == b.launch && a.block == b.block && a.phase == b.phase && a.clock == b.clock && a.warp == b.warp
           && a.bytes == b.bytes && a.kind == b.kind && a.size == b.size && a.lanes != 0;
}

/* Whether all that conflicts with an older access does so with a newer one, too. */
static bool stands_for(const access &a, const access &older)
{
    return !(older.bytes & ~a.bytes) && older.kind == a.kind && older.size == a.size;
}

template <typename F> static void drop(accesses *all, F is_old)
{
    if (is_old(all->newest)) all->newest = access{};
    if (all->older.empty()) return;
    all->older.erase(std::remove_if(all->older.begin(), all->older.end(), is_old), all->older.end());
}

/* A plain write stands for all before it: what comes behind it is ordered, or has been reported. */
static void add_write(cell *c, const access &a)
{
    const auto is_old = [&](const access &o) { return o.launch != a.launch || !(o.bytes & ~a.bytes); };
    drop(&c->reads, is_old), drop(&c->writes, is_old);
    if (c->writes.newest.lanes != 0) c->writes.older.push_back(c->writes.newest);
    c->writes.newest = a;
}

/* Reads and atomics are many at once.  One that is known stands for those before it; of blocks that nobody can know any
 * one is enough. */
static void add_shared(accesses *all, const access &a, int thread)
{
    if (is_one_epoch(all->newest, a)) {
        if (all->newest.lanes == a.lanes) all->newest.pc = a.pc;
        all->newest.lanes |= a.lanes;
        return;
    }
    for (access &o : all->older) {
        if (!is_one_epoch(o, a)) continue;
        o.lanes |= a.lanes;
        return std::swap(o, all->newest);
    }
    access silent = {};
    const auto is_old = [&](const access &o) {
        if (o.launch != a.launch || o.lanes == 0) return true;
        if (o.block == a.block) return stands_for(a, o) && order_open_lanes(o, thread) == 0;
        if (!order_is_silent(o.block)) return false;
        if (stands_for(silent, o)) return true;
        silent = o;
        return false;
    };
    if (!all->older.empty() || !is_old(all->newest)) {
        silent = access{};
        all->older.push_back(all->newest);
        all->older.erase(std::remove_if(all->older.begin(), all->older.end(), is_old), all->older.end());
    }
    all->newest = a;
}

/* Another block's shared memory is other memory, though it lies at the same place. */
static void forget_other_blocks(accesses *all, const access &a)
{
    drop(all, [&](const access &o) { return o.launch != a.launch || o.block != a.block; });
}

static void see(cell *c, const access &a, int thread, const place &at)
{
    if (at.kind == SHARED) forget_other_blocks(&c->writes, a), forget_other_blocks(&c->reads, a);
    look_for_race(c->writes.newest, a, thread, c, at);
    for (const access &w : c->writes.older) look_for_race(w, a, thread, c, at);
    if (a.kind & WRITE) {
        look_for_race(c->reads.newest, a, thread, c, at);
        for (const access &r : c->reads.older) look_for_race(r, a, thread, c, at);
    }
    if (a.kind & COMPARES) {                    /* which stands for the read that has told the number */
        forgive(thread, c);
        const auto forget = [&](access *r) {
            if (r->launch == a.launch && r->block == a.block && r->warp == a.warp && !(r->kind & FOR_GOOD)) r->lanes &= ~a.lanes;
        };
        forget(&c->reads.newest);
        for (access &r : c->reads.older) forget(&r);
    }
    if (a.kind == WRITE) add_write(c, a);
    else add_shared(a.kind & WRITE ? &c->writes : &c->reads, a, thread);
}

static std::string shared_with_host(const allocation &m, const std::string &what)
{
    return what + ": variable " + m.name + " is used by the host and by kernels; on a GPU one of them has another copy, or "
           "none (__device__, cudaMemcpyToSymbol)";
}

static std::string many(size_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

/* Whether the access may be made; else it has been reported. */
static bool check_place(const place &at, const void *p, size_t bytes, int kind, const void *pc, int thread)
{
    const std::string who = std::string(word_for(kind)) + " of " + many(bytes) + " by "
                            + thread_name(now.block, thread) + " at " + line_of(pc);
    if (at.kind == NOTHING) {
        report(p < (const void *)4096 ? "null pointer" : "host pointer", pc, nullptr,
               who + (p < (const void *)4096 ? ": a null pointer" : ": no memory of the device is there; is it the "
                      "host's, not allocated yet, or an index far too large or below 0?"));
        return false;
    }
    if (at.kind == SHARED && (at.offset >= at.array_bytes || at.offset + bytes > at.array_bytes)) {
        const std::string where = (ptrdiff_t)at.offset < 0 ? many(0 - at.offset) + " before it"
                                                           : "byte " + std::to_string(at.offset);
        report("out of bounds", pc, nullptr, who + ": shared array " + at.array + " has " + many(at.array_bytes)
               + ", and this is " + where);
        return false;
    }
    if (at.kind != GLOBAL) return true;
    const allocation &m = *at.memory;
    const char *c = static_cast<const char *>(p);
    if (!m.live) {
        report("after free", pc, nullptr, who + ": memory of " + many(m.bytes) + " that has been freed");
        return false;
    }
    if (c < m.base || c + bytes > m.base + m.bytes) {
        report("out of bounds", pc, nullptr, who + ": "
               + (c < m.base ? many((size_t)(m.base - c)) + " before" : many((size_t)(c + bytes - m.base - m.bytes)) + " behind")
               + (m.name.empty() ? " memory of " : " variable " + m.name + " of ") + many(m.bytes));
        return false;
    }
    return true;
}

static bool is_written(const place &at, size_t i)
{
    if (at.kind == GLOBAL) return at.memory->written[at.offset + i] != 0;
    return shared_written[at.tls + i] == (uint32_t)now.block_number;
}

/* How many bytes of some that are read nobody has written, and the first; numbers: NULL, or by byte of a type
 * whether a number lies there, and not only room between numbers. */
static size_t not_written(const place &at, size_t bytes, const unsigned char *numbers, size_t type_bytes, size_t *first)
{
    size_t count = 0;
    *first = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (is_written(at, i) || (numbers != nullptr && numbers[i % type_bytes] == 0)) continue;
        if (count++ == 0) *first = i;
    }
    return count;
}

static void mark(const place &at, size_t i, bool written)
{
    if (at.kind == SHARED) shared_written[at.tls + i] = written ? (uint32_t)now.block_number : 0;
    else at.memory->written[at.offset + i] = written;
}

static bool is_inside(const place &at, size_t bytes)
{
    return at.kind == SHARED ? at.offset < at.array_bytes && at.offset + bytes <= at.array_bytes
                             : at.kind == GLOBAL && at.memory->live && at.offset < at.memory->bytes
                                   && at.offset + bytes <= at.memory->bytes;
}

/* A copy of something larger than a number is a write, and then a read, of as many bytes by one line; of the latter the
 * compiler tells later.  What is copied and nobody has written stays unwritten, as the room between a struct's members. */
static struct { const void *p, *pc; size_t bytes; int thread; } last_write;

static bool is_copied(const place &from, size_t bytes, const void *pc, int thread)
{
    if (last_write.p == nullptr || last_write.bytes != bytes || last_write.thread != thread) return false;
    const place to = find_place(last_write.p);
    if (!is_inside(to, bytes) || line_of(pc) != line_of(last_write.pc)) return false;
    for (size_t i = 0; i < bytes; i++)
        if (!is_written(from, i)) mark(to, i, false);
    return true;
}

static void check_written(const place &at, size_t bytes, int kind, const void *pc, int thread)
{
    size_t first;
    const size_t missing = not_written(at, bytes, nullptr, 0, &first);
    if (missing == 0 || (missing < bytes && !(kind & ATOMIC) && is_copied(at, bytes, pc, thread))) return;
    place there = at;
    there.offset += first;
    report("not written", pc, nullptr, "a read by " + thread_name(now.block, thread) + " at " + line_of(pc)
           + " of what nobody has written: " + what_it_is(there));
}

/* The shared arrays that a launch has used: what nvcc adds up for a kernel, which uses no others. */
static struct { uint32_t launch; size_t bytes; std::string names; } arrays;

bool shadow_uses_array(size_t tls) { return shared_used[tls] == now.launch; }

static void sum_arrays(const place &at)
{
    uint32_t &used_in = shared_used[at.tls - at.offset];
    if (used_in == now.launch || at.is_dynamic) return;
    used_in = now.launch;
    if (arrays.launch != now.launch) arrays.launch = now.launch, arrays.bytes = 0, arrays.names.clear();
    arrays.bytes += at.array_bytes;
    arrays.names += (arrays.names.empty() ? "" : ", ") + std::string(at.array) + " (" + many(at.array_bytes) + ")";
    if (arrays.bytes > SHARED_USUAL)
        report_once("shared memory", now.kernel, "its arrays have more than 48 KiB, which nvcc refuses: "
                    + arrays.names);
    else if (arrays.bytes + now.shared_bytes > (shared_allowed > SHARED_USUAL ? SHARED_MOST : SHARED_USUAL))
        report_once("shared memory", now.kernel, "it cannot be launched: its arrays and " + many(now.shared_bytes)
                    + " of dynamic shared memory are more than a block may have: " + arrays.names);
}

/* The host cannot use the device's memory, and a variable of a .cu file is the host's or the device's. */
static void host_access(const void *p, size_t bytes, int kind, const void *pc)
{
    const place at = find_place_of_host(p);
    if (at.kind != GLOBAL || !at.memory->live || at.offset >= at.memory->bytes) return;
    const std::string what = std::string(word_for(kind)) + " of " + many(bytes) + " by the host at " + line_of(pc);
    if (at.memory->name.empty())
        report_host("host access", pc, what + ": the memory is the device's; on a GPU the program ends here.  A kernel can "
                    "compute with it, and cudaMemcpy copies it");
    else if (at.memory->by_kernel) report_host("host access", pc, shared_with_host(*at.memory, what));
    at.memory->by_host = true;
}

static void count_thread(int thread)
{
    if ((size_t)thread >= of_threads.size()) of_threads.resize((size_t)thread + 1);
    most_accesses = std::max(most_accesses, ++of_threads[(size_t)thread]);
}

static void access_at(const void *p, size_t bytes, int kind, const void *pc, bool any_alignment)
{
    const int thread = thread_now();
    if (thread < 0) return host_access(p, bytes, kind, pc);
    place at = find_place(p);
    if (at.kind == OWN) return;
    count_thread(thread);
    if (at.kind == GLOBAL && !at.memory->name.empty()) {
        at.memory->by_kernel = true;
        if (at.memory->by_host)
            report("host access", pc, nullptr, shared_with_host(*at.memory, std::string(word_for(kind)) + " of " + many(bytes)
                   + " by " + thread_name(now.block, thread) + " at " + line_of(pc)));
    }
    const size_t side = bytes > 8 ? 8 : bytes;                  /* 16: of a struct, or of a vector, of which hooks.cpp hears */
    const bool misaligned = !any_alignment && (bytes & (bytes - 1)) == 0 && (uintptr_t)p % side != 0;
    if (misaligned)
        report("misaligned", pc, nullptr, std::string(word_for(kind)) + " of " + many(bytes) + " by "
               + thread_name(now.block, thread) + " at " + line_of(pc) + ": the address is not a multiple of "
               + std::to_string(side));
    /* Texts are made for reports only. */
    const bool fine = is_inside(at, bytes);
    if (misaligned || (!fine && !check_place(at, p, bytes, kind, pc, thread) && at.kind == NOTHING)) abandon_thread();
    if (!fine) return;
    if (at.kind == SHARED) sum_arrays(at);
    if (counting) count_access(p, bytes, at.kind == SHARED, pc, thread);
    if (!(kind & WRITE) || kind & ATOMIC) check_written(at, bytes, kind, pc, thread);
    for (size_t i = 0; kind & WRITE && i < bytes; i++) mark(at, i, true);
    if (kind == WRITE) last_write = { p, pc, bytes, thread };
    else last_write.p = nullptr;
    if (at.kind == GLOBAL && at.memory->cells.empty()) at.memory->cells.resize(at.memory->bytes / 4 + 2);
    access a = {};
    order_stamp(&a, thread);
    a.pc = pc, a.kind = (uint8_t)kind, a.size = (uint8_t)(kind & ATOMIC ? bytes : 0);
    const size_t first = at.kind == SHARED ? at.tls : at.offset;
    for (size_t i = 0; i < bytes;) {
        const size_t byte = (first + i) % 4, n = std::min(bytes - i, 4 - byte);
        a.bytes = (uint8_t)(((1u << n) - 1) << byte);
        see(at.kind == SHARED ? &shared_cells[(first + i) / 4] : &at.memory->cells[(first + i) / 4], a, thread, at);
        i += n;
    }
}

void shadow_access(const void *p, size_t bytes, int kind, const void *pc) { access_at(p, bytes, kind, pc, false); }

void shadow_access_any(const void *p, size_t bytes, int kind, const void *pc)
{
    if (bytes > 0) access_at(p, bytes, kind, pc, true);
}

/* Report bytes that the host copies, as numbers of some type, and that nobody has written. */
static void check_copied(const void *from, size_t bytes, const type_of_numbers &type)
{
    const place here = find_place(from);
    size_t first;
    if (here.kind != GLOBAL || !here.memory->live || here.offset + bytes > here.memory->bytes) return;
    const size_t missing = not_written(here, bytes, type.numbers, type.bytes, &first);
    if (missing == 0) return;
    report("not written", nullptr, nullptr, (now.kernel.empty() ? "" : "after it ") + ("a copy of " + many(bytes))
           + " to the host takes " + many(missing) + " that nobody has written, first byte "
           + std::to_string(here.offset + first) + " of " + std::to_string(here.memory->bytes));
}

/* A copy between memories of the device takes over what is not written. */
void shadow_wrote_by_host(void *to, const void *from, size_t bytes, const type_of_numbers &type)
{
    const place there = find_place(to);
    if (there.kind != GLOBAL && from != nullptr) check_copied(from, bytes, type);
    if (there.kind != GLOBAL || there.offset + bytes > there.memory->bytes) return;
    const place here = from != nullptr ? find_place(from) : place{};
    const bool takes = here.kind == GLOBAL && here.memory->live && here.offset + bytes <= here.memory->bytes;
    for (size_t i = 0; i < bytes; i++)
        there.memory->written[there.offset + i] = takes ? here.memory->written[here.offset + i] : 1;
}

/* cuBLAS is not watched, so its products say here which operands they read. */
void shadow_product_reads(const char *matrix, const void *p, size_t bytes)
{
    const place at = find_place(p);
    size_t first;
    if (at.kind != GLOBAL || !at.memory->live || at.offset + bytes > at.memory->bytes) return;
    if (not_written(at, bytes, nullptr, 0, &first) == 0) return;
    report("not written", nullptr, nullptr, (now.kernel.empty() ? "" : "after it ") + std::string("cublasGemmEx reads of ")
           + matrix + " what nobody has written: " + what_it_is(place{ GLOBAL, at.memory, at.offset + first, nullptr, 0, 0, false }));
}

}

long judge_most_accesses(void) { return emulated::most_accesses; }
