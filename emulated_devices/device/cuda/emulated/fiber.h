/* fiber.h -- stacks, and switching between them: a few lines of assembler for x86-64 and aarch64, else ucontext.
 *
 * machine.cpp calls this file, for threads of a block that wait.  No function returns an error code.
 */
#ifndef ORRERY_EMULATED_FIBER_H
#define ORRERY_EMULATED_FIBER_H

#include <stddef.h>

namespace emulated {

struct fiber {
    struct fiber *next;                 /* in the list of those that are free */
    char *stack;                        /**< Lowest byte of the stack. */
    size_t bytes;                       /**< Size of the stack, in bytes. */
    void *context;                      /* where it stopped */
    void (*entry)(struct fiber *);      /**< Function that the fiber runs. */
};

/* A fiber that will call entry, which never returns.  The page below its stack cannot be touched. */
fiber *fiber_open(size_t bytes);
void fiber_close(fiber *);
void fiber_start(fiber *, void (*entry)(fiber *));

/* Stop here, and go on there.  For the first stack of a processor's thread `from` is an empty fiber. */
void fiber_switch(fiber *from, fiber *to);

}
#endif
