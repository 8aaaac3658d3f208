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

void shadow_begin_block()
{
    const size_t bytes = shared_room();
    if (shared_written.size() < bytes) shared_written.assign(bytes, 0), shared_cells.assign(bytes / 4 + 2, cell{});
}

static bool used(const access &a) { return a.bytes != 0; }

static const char *word_for(int kind)
{
    return kind & ATOMIC ? "an atomic" : kind & WRITE ? "a write" : "a read";
}

static std::string what_it_is(const place &at)
{
    if (at.kind == SHARED) return "shared array " + std::string(at.array) + ", byte " + std::to_string(at.offset);
    return "global memory, byte " + std::to_string(at.offset) + " of " + std::to_string(at.memory->bytes);
}

static void look_for_race(const access &before, const access &a, const place &at)
{
    if (!used(before) || !(before.bytes & a.bytes)) return;
    if (!((before.kind | a.kind) & WRITE) || (before.kind & a.kind & ATOMIC)) return;
    if (order_before(before, a.thread)) return;
    report("race", a.pc, before.pc,
           std::string(word_for(a.kind)) + " by " + thread_name(a.block, a.thread) + " at " + line_of(a.pc)
               + " and " + word_for(before.kind) + " by " + thread_name(before.block, before.thread) + " at "
               + line_of(before.pc) + " are not ordered: " + what_it_is(at));
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
        look_for_race(c->write[i], a, at);
        if (a.kind & WRITE) look_for_race(c->read[i], a, at);
    }
    *room_in(a.kind & WRITE ? c->write : c->read, a) = a;
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
                      "host's, or not allocated yet?"));
        return false;
    }
    if (at.kind == SHARED && at.offset + bytes > at.array_bytes) {
        report("out of bounds", pc, nullptr, who + ": shared array " + at.array + " has " + many(at.array_bytes)
               + ", and this is byte " + std::to_string(at.offset));
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

static void check_written(const place &at, size_t bytes, const void *pc, int thread)
{
    for (size_t i = 0; i < bytes; i++) {
        const bool is = at.kind == SHARED ? shared_written[at.tls + i] == (uint32_t)now.block_number
                                          : at.memory->written[at.offset + i];
        if (is) continue;
        report("not written", pc, nullptr, "a read by " + thread_name(now.block, thread) + " at " + line_of(pc)
               + " of what nobody has written: " + what_it_is(at));
        return;
    }
}

static void mark_written(const place &at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (at.kind == SHARED) shared_written[at.tls + i] = (uint32_t)now.block_number;
        else at.memory->written[at.offset + i] = true;
}

void shadow_access(const void *p, size_t bytes, int kind, const void *pc)
{
    const int thread = thread_now();
    if (thread < 0) return;                                     /* the host's own code */
    place at = find_place(p);
    if (at.kind == OWN) return;
    const size_t side = bytes > 8 ? 16 : bytes;
    const bool misaligned = (bytes & (bytes - 1)) == 0 && (uintptr_t)p % side != 0;
    if (misaligned)
        report("misaligned", pc, nullptr, std::string(word_for(kind)) + " of " + many(bytes) + " by "
               + thread_name(now.block, thread) + " at " + line_of(pc) + ": the address is not a multiple of "
               + std::to_string(side));
    /* Texts are made for reports only. */
    const bool fine = at.kind == SHARED ? at.offset + bytes <= at.array_bytes
                                        : at.kind == GLOBAL && at.memory->live
                                              && static_cast<const char *>(p) >= at.memory->base
                                              && at.offset + bytes <= at.memory->bytes;
    if (misaligned || (!fine && !check_place(at, p, bytes, kind, pc, thread) && at.kind == NOTHING)) abandon_thread();
    if (!fine) return;
    if (counting) count_access(p, bytes, at.kind == SHARED, pc, thread);
    if (!(kind & WRITE) || kind & ATOMIC) check_written(at, bytes, pc, thread);
    if (kind & WRITE) mark_written(at, bytes);
    if (kind == WRITE) order_wrote(thread);
    if (at.kind == GLOBAL && at.memory->cells.empty()) at.memory->cells.resize(at.memory->bytes / 4 + 2);
    access a = {};
    order_stamp(&a, thread);
    a.pc = pc, a.kind = (uint8_t)kind;
    const size_t first = at.kind == SHARED ? at.tls : at.offset;
    for (size_t i = 0; i < bytes;) {
        const size_t byte = (first + i) % 4, n = std::min(bytes - i, 4 - byte);
        a.bytes = (uint8_t)(((1u << n) - 1) << byte);
        see(at.kind == SHARED ? &shared_cells[(first + i) / 4] : &at.memory->cells[(first + i) / 4], a, at);
        i += n;
    }
}

/* A copy between memories of the device takes over what is not written. */
void shadow_wrote_by_host(void *to, const void *from, size_t bytes)
{
    const place there = find_place(to);
    if (there.kind != GLOBAL || there.offset + bytes > there.memory->bytes) return;
    const place here = from != nullptr ? find_place(from) : place{};
    const bool takes = here.kind == GLOBAL && here.memory->live && here.offset + bytes <= here.memory->bytes;
    for (size_t i = 0; i < bytes; i++)
        there.memory->written[there.offset + i] = takes ? here.memory->written[here.offset + i] : true;
}

}
