/* fiber.h -- functions with stacks of their own, in one thread, that pass the processor to each other.
 *
 * On x86-64 and aarch64 a switch is a dozen instructions; elsewhere it is swapcontext, which asks the kernel each time.
 * In a browser it is browser/fiber.c.
 * crew.c calls these functions.  No function returns an error code.  False means that there is no memory for a stack.
 */
#ifndef ORRERY_FIBER_H
#define ORRERY_FIBER_H

#include <stdbool.h>
#include <stddef.h>

#if defined(__wasm__)
#include <stdint.h>
#elif defined(ORRERY_PORTABLE) || (!defined(__ELF__) && !defined(__MACH__)) || \
    (!defined(__x86_64__) && !defined(__aarch64__))
#include <ucontext.h>
#define FIBER_BY_UCONTEXT
#endif

struct fiber {
#if defined(__wasm__)
    uintptr_t top;                      /* the stack pointer while the fiber does not run */
    struct fiber *base;                 /* of a fiber without a stack: whose stack it uses; NULL: the page's own */
    void (*fn)(void *);                 /* its function */
    void *argument;                     /* of the function */
    bool begins;                        /* it has not run yet */
#elif defined(FIBER_BY_UCONTEXT)
    ucontext_t context;                 /* registers while the fiber does not run */
#else
    void *top;                          /* where its registers are saved while it does not run */
#endif
    void *stack;                        /* its lowest byte; NULL: the thread's own */
    size_t size;                        /* bytes of the stack */
    void *fake;                         /* of AddressSanitizer */
};

typedef void fiber_fn(void *argument);

/* Bytes of a stack.  Few are touched: only pages that are take memory, but for browsers, which have no pages. */
#if defined(__wasm__)
enum { FIBER_STACK = 1 << 20 };
#else
enum { FIBER_STACK = 1 << 21 };
#endif

/** Prepare a fiber that begins with fn(argument) when it is first switched to.  fn must not return. */
bool fiber_make(struct fiber *, void *stack, size_t size, fiber_fn *, void *argument);

/** Go on in another fiber; returns when somebody switches back.
 *  @param from  this one.  @param ends  it will never be gone on with. */
void fiber_switch(struct fiber *from, struct fiber *to, bool ends);

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

/* Stacks of one size, each above a page that ends the program when it is touched.  They take no memory before they are
 * used. */
struct stacks { char *first; size_t each; int count; };

bool stacks_open(struct stacks *, int count, size_t size);
void *stacks_at(const struct stacks *, int i);
void stacks_close(struct stacks *);

#endif
