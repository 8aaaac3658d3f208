/* shadow.cpp -- what each word was last used by.
 *
 * A cell has the last two writes and the last two reads of a word of 4 bytes, each by another thread, or of other bytes.
 * What is ordered before a new access makes room first.
 */
#include "emulated_devices/device/cuda/emulated/judge/judge.h"
#include <algorithm>
#include <cstring>

namespace emulated {

static std::vector<cell> shared_cells;
static std::vector<uint32_t> shared_written;    /* by byte: the number of the block that wrote it */
static std::vector<uint8_t> shared_by;          /* by byte: bytes of the access that wrote it */
static std::vector<uint32_t> shared_used;       /* by an array's first byte: the last launch that used it */

/* Of memory that other threads see, by each thread of the block; and the most of all launches. */
static std::vector<long> accesses;
static long most_accesses;

void shadow_begin_block()
{
    accesses.clear();
    const size_t bytes = shared_room();
    if (shared_written.size() >= bytes) return;
    shared_written.assign(bytes, 0), shared_by.assign(bytes, 0), shared_used.assign(bytes, 0);
    shared_cells.assign(bytes / 4 + 2, cell{});
}

/* Races of a plain read with atomics, which are none if the thread only hands the number to a compare-and-swap of the same
 * word next: should it have been torn or old, nothing is stored.  So loops of them begin in NVIDIA's guide. */
struct unsure { int thread; const void *word, *pc, *other_pc; std::string text; };
static std::vector<unsure> open_races;

static void decide(int thread)
{
    for (size_t i = 0; i < open_races.size();) {
        const unsure u = open_races[i];
        if (thread >= 0 && u.thread != thread) { i++; continue; }
        open_races.erase(open_races.begin() + (ptrdiff_t)i);
        report("race", u.pc, u.other_pc, u.text);
    }
}

void shadow_ends(int thread) { decide(thread); }
void shadow_block_meets() { decide(-1); }

static void forgive(int thread, const void *word)
{
    for (size_t i = 0; i < open_races.size();)
        if (open_races[i].thread == thread && open_races[i].word == word) open_races.erase(open_races.begin() + (ptrdiff_t)i);
        else i++;
}

static bool used(const access &a) { return a.bytes != 0; }

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

static void look_for_race(const access &before, const access &a, const void *word, const place &at)
{
    if (!used(before) || !(before.bytes & a.bytes)) return;
    const bool atomics = before.kind & a.kind & ATOMIC;
    if (!((before.kind | a.kind) & WRITE) || (atomics && before.size == a.size)) return;
    if (order_before(before, a.thread)) return;
    const bool sure = a.kind != 0 || !(before.kind & ATOMIC);
    for (const unsure &u : open_races)
        if (!sure && u.thread == a.thread && u.word == word && u.pc == a.pc && u.other_pc == before.pc) return;
    const std::string text = word_of(a, atomics) + " by " + thread_name(a.block, a.thread) + " at " + line_of(a.pc)
                             + " and " + word_of(before, atomics) + " by " + thread_name(before.block, before.thread) + " at "
                             + line_of(before.pc) + " are not ordered: " + what_it_is(at);
    if (sure) report("race", a.pc, before.pc, text);
    else open_races.push_back({ a.thread, word, a.pc, before.pc, text });
}

/* The place of a new access among two. */
static access *room_in(access two[2], const access &a)
{
    for (int i = 0; i < 2; i++)
        if (!used(two[i]) || (two[i].launch == a.launch && two[i].block == a.block && two[i].thread == a.thread
                              && !(two[i].bytes & ~a.bytes)))
            return &two[i];
    for (int i = 0; i < 2; i++)
        if (two[i].launch != a.launch || (order_before(two[i], a.thread) && !(two[i].bytes & ~a.bytes))) return &two[i];
    for (int i = 0; i < 2; i++)
        if (order_before(two[i], a.thread)) return &two[i];
    return &two[1];
}

/* Another block's shared memory is other memory, though it lies at the same place. */
static void forget_other_blocks(access two[2], const access &a)
{
    for (int i = 0; i < 2; i++)
        if (two[i].launch != a.launch || two[i].block != a.block) two[i] = access{};
}

static void see(cell *c, const access &a, const place &at)
{
    if (at.kind == SHARED) forget_other_blocks(c->write, a), forget_other_blocks(c->read, a);
    for (int i = 0; i < 2; i++) {
        look_for_race(c->write[i], a, c, at);
        if (a.kind & WRITE) look_for_race(c->read[i], a, c, at);
    }
    if (a.kind & COMPARES) {
        forgive(a.thread, c);
        for (access &r : c->read)
            if (r.launch == a.launch && r.block == a.block && r.thread == a.thread) r.kind = ATOMIC, r.size = a.size;
    }
    *room_in(a.kind & WRITE ? c->write : c->read, a) = a;
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
               + " memory of " + many(m.bytes));
        return false;
    }
    return true;
}

/* Bytes of the access that wrote the i-th byte behind a place; 0: nobody has. */
static size_t written_by(const place &at, size_t i)
{
    if (at.kind == GLOBAL) return at.memory->written[at.offset + i];
    return shared_written[at.tls + i] == (uint32_t)now.block_number ? shared_by[at.tls + i] : 0;
}

/* Whether bytes that nobody has written may lie between the members of a struct, or behind them: they end where a number
 * of A bytes may begin, a smaller one stands before them, and beside them somebody has written A bytes at once. */
static bool is_padding(const place &at, const char *p, size_t begin, size_t end, size_t bytes)
{
    enum { BESIDE = 64 };
    size_t widest = 0;
    for (size_t i = begin > BESIDE ? begin - BESIDE : 0; i < std::min(bytes, end + BESIDE); i++)
        widest = std::max(widest, written_by(at, i));
    for (size_t A = 2; A <= std::min(widest, (size_t)8); A *= 2)
        if (begin > 0 && (uintptr_t)(p + end) % A == 0 && end - begin < A) return true;
    return false;
}

/* How many bytes of some that are read nobody has written, without padding. */
static size_t not_written(const place &at, const char *p, size_t bytes, size_t *first)
{
    size_t count = 0;
    for (size_t i = 0, end; i < bytes; i = end + 1) {
        for (end = i; end < bytes && written_by(at, end) == 0;) end++;
        if (end == i || is_padding(at, p, i, end, bytes)) continue;
        if (count == 0) *first = i;
        count += end - i;
    }
    return count;
}

static void check_written(const place &at, const void *p, size_t bytes, const void *pc, int thread)
{
    size_t first;
    if (not_written(at, static_cast<const char *>(p), bytes, &first) == 0) return;
    report("not written", pc, nullptr, "a read by " + thread_name(now.block, thread) + " at " + line_of(pc)
           + " of what nobody has written: " + what_it_is(at));
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

static void mark_written(const place &at, size_t bytes)
{
    const uint8_t by = (uint8_t)std::min(bytes, (size_t)255);
    for (size_t i = 0; i < bytes; i++)
        if (at.kind == SHARED) shared_written[at.tls + i] = (uint32_t)now.block_number, shared_by[at.tls + i] = by;
        else at.memory->written[at.offset + i] = by;
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
    if ((size_t)thread >= accesses.size()) accesses.resize((size_t)thread + 1);
    most_accesses = std::max(most_accesses, ++accesses[(size_t)thread]);
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
    const bool fine = at.kind == SHARED ? at.offset < at.array_bytes && at.offset + bytes <= at.array_bytes
                                        : at.kind == GLOBAL && at.memory->live
                                              && static_cast<const char *>(p) >= at.memory->base
                                              && at.offset + bytes <= at.memory->bytes;
    if (misaligned || (!fine && !check_place(at, p, bytes, kind, pc, thread) && at.kind == NOTHING)) abandon_thread();
    if (!fine) return;
    if (at.kind == SHARED) sum_arrays(at);
    if (counting) count_access(p, bytes, at.kind == SHARED, pc, thread);
    if (!(kind & WRITE) || kind & ATOMIC) check_written(at, p, bytes, pc, thread);
    if (kind & WRITE) mark_written(at, bytes);
    if (kind == WRITE) order_wrote(thread);
    if (at.kind == GLOBAL && at.memory->cells.empty()) at.memory->cells.resize(at.memory->bytes / 4 + 2);
    access a = {};
    order_stamp(&a, thread);
    a.pc = pc, a.kind = (uint8_t)kind, a.size = (uint8_t)(kind & ATOMIC ? bytes : 0);
    const size_t first = at.kind == SHARED ? at.tls : at.offset;
    for (size_t i = 0; i < bytes;) {
        const size_t byte = (first + i) % 4, n = std::min(bytes - i, 4 - byte);
        a.bytes = (uint8_t)(((1u << n) - 1) << byte);
        see(at.kind == SHARED ? &shared_cells[(first + i) / 4] : &at.memory->cells[(first + i) / 4], a, at);
        i += n;
    }
}

void shadow_access(const void *p, size_t bytes, int kind, const void *pc) { access_at(p, bytes, kind, pc, false); }

void shadow_access_any(const void *p, size_t bytes, int kind, const void *pc)
{
    if (bytes > 0) access_at(p, bytes, kind, pc, true);
}

/* What the host gets and nobody has written: bits that were there before. */
static void check_copied(const void *from, size_t bytes)
{
    const place here = find_place(from);
    size_t first;
    if (here.kind != GLOBAL || !here.memory->live || here.offset + bytes > here.memory->bytes) return;
    const size_t missing = not_written(here, static_cast<const char *>(from), bytes, &first);
    if (missing == 0) return;
    report("not written", nullptr, nullptr, (now.kernel.empty() ? "" : "after it ") + ("a copy of " + many(bytes))
           + " to the host takes " + many(missing) + " that nobody has written, first byte "
           + std::to_string(here.offset + first) + " of " + std::to_string(here.memory->bytes));
}

/* A copy between memories of the device takes over what is not written. */
void shadow_wrote_by_host(void *to, const void *from, size_t bytes)
{
    const place there = find_place(to);
    if (there.kind != GLOBAL && from != nullptr) check_copied(from, bytes);
    if (there.kind != GLOBAL || there.offset + bytes > there.memory->bytes) return;
    const place here = from != nullptr ? find_place(from) : place{};
    const bool takes = here.kind == GLOBAL && here.memory->live && here.offset + bytes <= here.memory->bytes;
    for (size_t i = 0; i < bytes; i++)
        there.memory->written[there.offset + i] = takes ? here.memory->written[here.offset + i] : 1;
}

}

long judge_most_accesses(void) { return emulated::most_accesses; }
