#include "emulated_devices/device/cuda/emulated/fiber.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace emulated {

#if !defined ORRERY_UCONTEXT && (defined __x86_64__ || defined __aarch64__)

/* emulated_switch(&where_this_one_stopped, where_the_other_stopped): what a called function must preserve is pushed,
 * the stack pointer is exchanged, and the other's registers are popped. */
extern "C" void emulated_switch(void **save, void *to);
#ifdef __x86_64__
asm(R"(
    .text
    .globl emulated_switch
    .type emulated_switch, @function
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulated_switch, .-emulated_switch
)");
/* Registers; the place to return to; a word, so that the stack is aligned as after a call. */
enum { SAVED = 6, WORDS = 8, RETURN_AT = SAVED };
#else
asm(R"(
    .text
    .globl emulated_switch
    .type emulated_switch, %function
emulated_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size emulated_switch, .-emulated_switch
)");
enum { WORDS = 20, RETURN_AT = 11 };
#endif

static thread_local fiber *starting;

static void begin() { starting->entry(starting); }

void fiber_start(fiber *f, void (*entry)(fiber *))
{
    void **top = reinterpret_cast<void **>(f->stack + f->bytes) - WORDS;
    memset(top, 0, WORDS * sizeof *top);
    top[RETURN_AT] = reinterpret_cast<void *>(begin);
    f->context = top, f->entry = entry;
}

void fiber_switch(fiber *from, fiber *to)
{
    starting = to;
    emulated_switch(&from->context, to->context);
}

static void forget(fiber *) { }

#else
}
#include <ucontext.h>
namespace emulated {

static thread_local fiber *starting;

static void begin() { starting->entry(starting); }

static ucontext_t *context_of(fiber *f)
{
    if (f->context == nullptr) f->context = calloc(1, sizeof(ucontext_t));
    return static_cast<ucontext_t *>(f->context);
}

void fiber_start(fiber *f, void (*entry)(fiber *))
{
    ucontext_t *c = context_of(f);
    getcontext(c);
    c->uc_stack.ss_sp = f->stack, c->uc_stack.ss_size = f->bytes, c->uc_link = nullptr;
    f->entry = entry;
    makecontext(c, begin, 0);
}

void fiber_switch(fiber *from, fiber *to)
{
    starting = to;
    swapcontext(context_of(from), context_of(to));
}

static void forget(fiber *f) { free(f->context); }
#endif

fiber *fiber_open(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *low = static_cast<char *>(mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    fiber *f = static_cast<fiber *>(calloc(1, sizeof *f));
    if (low == MAP_FAILED || f == nullptr) fprintf(stderr, "orrery: no memory for the stack of a thread\n"), abort();
    mprotect(low, page, PROT_NONE);
    f->stack = low + page, f->bytes = bytes;
    return f;
}

void fiber_close(fiber *f)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap(f->stack - page, f->bytes + page);
    forget(f);
    free(f);
}

}
