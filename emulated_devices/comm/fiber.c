/* fiber.c -- switches between stacks in one thread, and keeps the memory of stacks.  The only caller is crew.c.
 * fiber_make and stacks_open return false where there is no memory. */
#include "emulated_devices/comm/fiber.h"
#include "ref/machine/system.h"
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- AddressSanitizer must know which stack is in use ------------------------------------------------------------ */

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(FIBER_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

static struct fiber *coming_from;

/* The first calls of a fiber never return, so they leave their guards; the memory may have been another fiber's. */
static void begins_on(void *stack, size_t size) { __asan_unpoison_memory_region(stack, size); }

static void leaves(struct fiber *from, const struct fiber *to, bool ends)
{
    coming_from = from;
    __sanitizer_start_switch_fiber(ends ? NULL : &from->fake, to->stack, to->size);
}

/* The thread's own stack is known only once it has been left. */
static void arrives(void *fake)
{
    const void *stack;
    size_t size;
    __sanitizer_finish_switch_fiber(fake, &stack, &size);
    if (coming_from->stack == NULL) coming_from->stack = (void *)(uintptr_t)stack, coming_from->size = size;
}
#else
static void leaves(struct fiber *from, const struct fiber *to, bool ends) { (void)from, (void)to, (void)ends; }
static void arrives(void *fake) { (void)fake; }
static void begins_on(void *stack, size_t size) { (void)stack, (void)size; }
#endif

/* ---- the switch -------------------------------------------------------------------------------------------------- */

#ifdef FIBER_BY_UCONTEXT

static fiber_fn *starting;
static void *its_argument;

static void fiber_begin(void)
{
    arrives(NULL);
    starting(its_argument);
}

/* makecontext hands over ints: the halves of two addresses. */
static void live(unsigned fn_high, unsigned fn_low, unsigned high, unsigned low)
{
    starting = (fiber_fn *)((uintptr_t)fn_high << 16 << 16 | fn_low);
    its_argument = (void *)((uintptr_t)high << 16 << 16 | low);
    fiber_begin();
}

bool fiber_make(struct fiber *fiber, void *stack, size_t size, fiber_fn *fn, void *argument)
{
    const uintptr_t code = (uintptr_t)fn, data = (uintptr_t)argument;
    begins_on(stack, size);
    *fiber = (struct fiber){ .stack = stack, .size = size };
    if (getcontext(&fiber->context) != 0) return false;
    fiber->context.uc_stack.ss_sp = stack, fiber->context.uc_stack.ss_size = size;
    makecontext(&fiber->context, (void (*)(void))live, 4, (unsigned)(code >> 16 >> 16), (unsigned)code,
                (unsigned)(data >> 16 >> 16), (unsigned)data);
    return true;
}

void fiber_switch(struct fiber *from, struct fiber *to, bool ends)
{
    leaves(from, to, ends);
    swapcontext(&from->context, &to->context);
    arrives(from->fake);
}

#else

/* Save the registers that a function must keep on this stack, note where in *from, and take those of the other. */
void fiber_jump(void **from, void *to);
/* Where a new fiber begins: its function and argument are in two of the kept registers. */
void fiber_enter(void);

/* How a function begins and ends in the assembler.  Mach-O, of macOS, has an underscore before each name, and no
 * sizes. */
#if defined(__ELF__)
#define BEGIN(name) ".text\n.p2align 4\n.globl " name "\n.type " name ", %function\n" name ":\n"
#define END(name) ".size " name ", .-" name "\n"
#else
#define BEGIN(name) ".text\n.p2align 4\n.globl _" name "\n_" name ":\n"
#define END(name) ""
#endif

#ifdef __x86_64__
__asm__(BEGIN("fiber_jump")
        "  endbr64\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  subq $8, %rsp\n  stmxcsr (%rsp)\n  fnstcw 4(%rsp)\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  ldmxcsr (%rsp)\n  fldcw 4(%rsp)\n  addq $8, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        END("fiber_jump")
        BEGIN("fiber_enter")
        "  movq %r12, %rdi\n"
        "  callq *%r13\n"
        "  ud2\n"
        END("fiber_enter"));

enum { SAVED = 8, AT_FN = 3, AT_ARGUMENT = 4, AT_ENTRY = 7 };   /* words: control words, r15 .. rbp, return address */
enum { BELOW_TOP = 2 };                 /* so that the stack is aligned as after a call */
static void first_words(void **w)
{
    uint32_t mxcsr;
    uint16_t x87;
    __asm__("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87));
    w[0] = (void *)((uintptr_t)mxcsr | (uintptr_t)x87 << 32);
}
#else
__asm__(BEGIN("fiber_jump")
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n"
        "  mov sp, x1\n"
        "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
        "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n"
        "  ret\n"
        END("fiber_jump")
        BEGIN("fiber_enter")
        "  mov x0, x19\n"
        "  blr x20\n"
        "  brk #0\n"
        END("fiber_enter"));

enum { SAVED = 20, AT_ARGUMENT = 0, AT_FN = 1, AT_ENTRY = 11, BELOW_TOP = 0 };  /* words: x19 .. x30, d8 .. d15 */
static void first_words(void **w) { (void)w; }
#endif

/* A new stack has these words: the function to run and its argument. */
struct start { fiber_fn *fn; void *argument; };

static void fiber_begin(void *start)
{
    const struct start s = *(struct start *)start;
    arrives(NULL);
    s.fn(s.argument);
}

bool fiber_make(struct fiber *fiber, void *stack, size_t size, fiber_fn *fn, void *argument)
{
    /* The 64 highest bytes of the stack hold the start; the words below are what the first jump takes. */
    struct start *s = (struct start *)(void *)((char *)stack + size - 64);
    void **w = (void **)(void *)s - BELOW_TOP - SAVED;
    begins_on(stack, size);
    *s = (struct start){ fn, argument };
    for (int i = 0; i < SAVED + BELOW_TOP; i++) w[i] = NULL;
    first_words(w);
    /* The first jump takes these words as saved registers and returns to fiber_enter. */
    w[AT_ARGUMENT] = s;
    w[AT_FN] = (void *)(uintptr_t)fiber_begin;
    w[AT_ENTRY] = (void *)(uintptr_t)fiber_enter;
    *fiber = (struct fiber){ .top = w, .stack = stack, .size = size };
    return true;
}

void fiber_switch(struct fiber *from, struct fiber *to, bool ends)
{
    leaves(from, to, ends);
    fiber_jump(&from->top, to->top);
    arrives(from->fake);
}

#endif

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Small crews come one after another (collectives/attempt.c): the stacks of the last one are kept for the next, with
 * the pages that have been touched. */
enum { KEPT_AT_MOST = 64 };
static struct stacks kept;

static void unmap(struct stacks *stacks)
{
    if (stacks->first) munmap(stacks->first, stacks->each * (size_t)stacks->count);
    *stacks = (struct stacks){ 0 };
}

bool stacks_open(struct stacks *stacks, int count, size_t size)
{
    /* Kept stacks may be more than asked for; their sizes must be equal. */
    if (kept.count >= count && kept.each == size + page()) {
        *stacks = kept;
        kept = (struct stacks){ 0 };
        return true;
    }
    *stacks = (struct stacks){ .each = size + page(), .count = count };
    void *all = system_pages(stacks->each * (size_t)count, false);
    if (all == NULL) return false;
    stacks->first = all;
    /* The lowest page of each stack cannot be touched, so an overflow faults at once. */
    for (int i = 0; i < count; i++)
        if (mprotect(stacks->first + (size_t)i * stacks->each, page(), PROT_NONE) != 0) return unmap(stacks), false;
    return true;
}

void *stacks_at(const struct stacks *stacks, int i) { return stacks->first + (size_t)i * stacks->each + page(); }

void stacks_close(struct stacks *stacks)
{
    /* The larger set of stacks is kept, up to KEPT_AT_MOST; the other is unmapped. */
    if (stacks->first && stacks->count > kept.count && stacks->count <= KEPT_AT_MOST) {
        unmap(&kept);
        kept = *stacks;
        *stacks = (struct stacks){ 0 };
    }
    unmap(stacks);
}
