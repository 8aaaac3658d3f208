/* rules.h -- the rules of a memory profile: the tensors of an operation, in the order in which a program makes them.
 *
 * Files of profiles (torch.c and so on) have tables of rules; part_memory.c reads them.  No function is declared here.
 */
#ifndef ORRERY_MEMORY_RULES_H
#define ORRERY_MEMORY_RULES_H

#include "emulated_devices/train/memory_of/profile.h"
#include "ref/model/op.h"

/* A tensor of an operation has as many elements as: */
enum memory_size {
    AS_INPUT,                           /* its first input: tokens of this device times columns */
    AS_OUTPUT,                          /* its output; of the loss, which has none, its input */
    PER_TOKEN,                          /* tokens of this device */
    PER_HEAD,                           /* tokens times the device's query heads */
    AS_KEYS,                            /* keys and values */
    AS_REPEATED                         /* keys and values, repeated for all query heads; none if each has its own */
};

enum memory_action { MEMORY_END, MEMORY_MAKE, MEMORY_DROP };

/* The operation's own tensors are 'a' to 'h'.  'y' is its output, 'd' stands for the gradients of its inputs; both have
 * the model's format.  DROP('x') frees its input before the operation ends.  A tensor made forward and not dropped
 * there is saved for backward. */
struct memory_step {
    enum memory_action action;          /**< Make or drop the tensor, or end the list. */
    char tensor;                        /**< Letter of the tensor, as said above. */
    enum memory_size size;              /* of own tensors */
    int bytes;                          /* of an element of own tensors */
};

#define MAKE(tensor_, size_, bytes_) { MEMORY_MAKE, tensor_, size_, bytes_ }
#define DROP(tensor_) { MEMORY_DROP, tensor_, AS_INPUT, 0 }

enum { MEMORY_STEPS = 10 };

/* `saves_input` and `saves_output` keep a reference on tensors that exist anyway. */
struct memory_rule {
    enum op op;                         /* OP_END ends a table */
    bool saves_input, saves_output;
    bool again;                         /* compiled: readers of the output do not save it, but compute it again */
    bool passes;                        /* the gradient of the output is that of each input */
    struct memory_step forward[MEMORY_STEPS + 1], backward[MEMORY_STEPS + 1];   /* then the end; empty: make 'y', 'd' */
};

#endif
