/* fiber.c -- fibers in WebAssembly, which lets no program change its own stack of calls.
 *
 * wasm-opt --asyncify rewrites every function that may reach page_switch: it can leave with its place and variables
 * saved in a record, and later be entered again at that place.  The page (engine.js) leaves all functions of one fiber
 * so, and enters those of another.  What C keeps in memory, on its own stack, is switched by the stack pointer.
 *
 * comm/crew.c calls the functions of comm/fiber.h, the page those that are exported.  fiber_make and stacks_open return
 * false where there is no memory.  A stack that has grown into the record ends the program.
 */
#include "emulated_devices/comm/fiber.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT(name) __attribute__((export_name(#name), used))
#define IMPORT(name) __attribute__((import_module("env"), import_name(#name)))

/* A stack's lowest bytes are the record: two addresses, then what is saved, upwards.  A mark divides it from C's stack,
 * which grows downwards. */
enum { RECORD = 1 << 15, MARK = 16 };
struct record { uint32_t at, end; char saved[RECORD - 2 * sizeof(uint32_t) - MARK]; char mark[MARK]; };
static const char unbroken[MARK] = "orrery's stack!";

static struct record of_the_page;       /* where the calls of the page's own stack are saved */
static struct fiber *running;           /* whose stack is in use; NULL: the page's own */

IMPORT(page_switch) void page_switch(struct fiber *from, struct fiber *to);
uintptr_t stackSave(void);

static void record_begin(struct record *record)
{
    record->at = (uint32_t)(uintptr_t)record->saved;
    record->end = (uint32_t)(uintptr_t)record->mark;
    memcpy(record->mark, unbroken, MARK);
}

/* A crew inside a fiber of another crew begins on that fiber's stack: base is the fiber whose stack is meant. */
static struct fiber *base_of(struct fiber *fiber) { return fiber->stack ? fiber : fiber->base; }

static struct record *record_of(struct fiber *fiber)
{
    struct fiber *const base = base_of(fiber);
    return base ? base->stack : &of_the_page;
}

bool fiber_make(struct fiber *fiber, void *stack, size_t size, fiber_fn *fn, void *argument)
{
    *fiber = (struct fiber){ .stack = stack, .size = size, .top = (uintptr_t)stack + size, .fn = fn,
                             .argument = argument, .begins = true };
    record_begin(stack);
    return true;
}

void fiber_switch(struct fiber *from, struct fiber *to, bool ends)
{
    (void)ends;
    if (from->stack == NULL) from->base = running;
    struct record *const record = record_of(from);
    if (record == &of_the_page && record->end == 0) record_begin(record);
    if (memcmp(record->mark, unbroken, MARK) != 0) {
        fprintf(stderr, "orrery: a stack of %zu bytes is too small\n", from->size);
        abort();
    }
    from->top = stackSave();
    running = base_of(to);
    page_switch(from, to);
}

/* ---- for the page ------------------------------------------------------------------------------------------------ */

EXPORT(fiber_record) void *fiber_record(struct fiber *fiber) { return record_of(fiber); }
EXPORT(fiber_top) uintptr_t fiber_top(const struct fiber *fiber) { return fiber->top; }
EXPORT(fiber_base) struct fiber *fiber_base(struct fiber *fiber) { return base_of(fiber); }

/* Whether a fiber has not begun yet; it has then. */
EXPORT(fiber_begins) bool fiber_begins(struct fiber *fiber)
{
    const bool begins = fiber->begins;
    fiber->begins = false;
    return begins;
}

EXPORT(fiber_body) void fiber_body(struct fiber *fiber) { fiber->fn(fiber->argument); }

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

bool stacks_open(struct stacks *stacks, int count, size_t size)
{
    *stacks = (struct stacks){ .first = aligned_alloc(16, size * (size_t)count), .each = size, .count = count };
    return stacks->first != NULL;
}

void *stacks_at(const struct stacks *stacks, int i) { return stacks->first + (size_t)i * stacks->each; }

void stacks_close(struct stacks *stacks)
{
    free(stacks->first);
    *stacks = (struct stacks){ 0 };
}
