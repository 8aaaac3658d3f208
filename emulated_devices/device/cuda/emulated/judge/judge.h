/* judge.h -- watches every access of a kernel to memory.
 *
 * Kernels are compiled with -fsanitize=thread, which calls a function before each access; and with alignment, which
 * calls one where an address is not aligned, even if the compiler reads only parts of what is there.  The functions
 * are ours (hooks.cpp), and the sanitizers' own libraries are not linked.  Blocks run one after the other.
 * hooks.cpp and shadow.cpp call the functions of the other files, in the order of the kernel's events.
 * course/compile/kernel_file.c, tutorials/worker/kernel.h and tests/devices/cuda/test_judge.c read the reports.
 * What is wrong in a kernel becomes a report; no function returns an error.
 *
 *   places.cpp   what an address is: an allocation, a shared array, a stack, nothing of the device's
 *   order.cpp    which accesses are ordered: by barriers, by warps that meet, by fences and atomics
 *   shadow.cpp   what each word was last used by, and whether it has been written: races, numbers that nobody wrote
 *   report.cpp   what is said, once for each pair of lines
 *   count.cpp    sectors and banks that a warp's accesses take, line by line
 */
#ifndef ORRERY_EMULATED_JUDGE_H
#define ORRERY_EMULATED_JUDGE_H

#include "emulated_devices/device/cuda/emulated/machine.h"
#include <cstdint>
#include <string>
#include <vector>

namespace emulated {

/* ---- what happens ------------------------------------------------------------------------------------------------ */

/* COMPARES: an atomic that stores only over a number that it was told.  OF_BLOCK: one for the block's threads alone.
 * FOR_GOOD: a read of what nobody may write while the kernel runs. */
enum { WRITE = 1, ATOMIC = 2, COMPARES = 4, OF_BLOCK = 8, FOR_GOOD = 16 };

/* Accesses to a word of 4 bytes: of lanes of a warp, at the same clock of each. */
struct access {
    uint32_t launch, block, phase, clock, lanes;
    const void *pc;                     /**< Address of the instruction. */
    uint16_t warp;                      /**< Number of the warp in its block. */
    uint8_t bytes, kind;                /* a bit for each byte; WRITE, ATOMIC, ... */
    uint8_t size;                       /* of an atomic, in bytes */
};

/* The launch that runs. */
struct running {
    std::string kernel;                 /**< Name of the kernel. */
    where at;                           /**< File and line of the launch. */
    uint32_t launch, block;
    dim3 grid, block_size;
    size_t shared_bytes;                /**< Dynamic shared memory of a block, in bytes. */
    const char *closure, *closure_end;  /* the kernel's arguments */
    uint64_t block_number;              /* of all launches */
};
extern running now;

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* Later accesses must be ordered behind these. */
struct accesses { access newest; std::vector<access> older; };
struct cell { accesses writes, reads; };

struct allocation {
    std::string name;                   /* of a variable of the .cu file; "": it was allocated */
    bool by_host, by_kernel;            /* a variable: who has used it */
    char *base;                         /**< First byte of the memory. */
    size_t bytes;                       /**< Size of the memory, in bytes. */
    bool live;                          /**< The memory is not freed. */
    std::vector<uint8_t> written;       /* by byte: whether somebody has */
    std::vector<cell> cells;            /* by word; made when first used */
    uint32_t launch;                    /* before which it was made, or freed */
};

enum kind_of_place { NOTHING, OWN, GLOBAL, SHARED };
struct place {
    enum kind_of_place kind;            /**< Memory that the address is in. */
    allocation *memory;                 /* GLOBAL: also one that it only comes near to, or that is freed */
    size_t offset;                      /* in it, or in the array: (size_t)-4 is 4 bytes before it */
    const char *array;                  /* SHARED: its name */
    size_t array_bytes, tls;            /* its size; where the byte is in the thread's own memory */
    bool is_dynamic;                    /* its size is the launch's */
};
place find_place(const void *);
place find_place_of_host(const void *); /* GLOBAL, or NOTHING that is watched */
size_t shared_room();                   /* bytes of the thread's own memory, in which the shared arrays lie */
std::vector<allocation *> live_allocations();
void places_begin();

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* Threads are numbered in their block.  hooks.cpp calls these functions when the event happens, and shadow.cpp calls
 * order_stamp and asks the three questions below. */

/* A launch begins: packages at words of memory are forgotten, because earlier launches are before all that follows. */
void order_begin_launch();
/* A block of so many threads begins, in phase 0. */
void order_begin_block(int threads);
/* All threads of the block that have not ended have met in __syncthreads: a new phase begins. */
void order_barrier();
/* The thread has returned from the kernel and takes part in no later barrier. */
void order_ends(int thread);
/* The lanes of `mask` have met in __syncwarp; `first` is the thread of the warp's lane 0. */
void order_warp(int first, unsigned mask);
/* The thread has passed a fence, for the threads of its block or of the device. */
void order_fence(int thread, enum scope);
/* The thread has used the word at this address by an atomic: it takes and leaves packages there. */
void order_atomic(int thread, const void *, enum scope);
/* Fill in who does an access, and when: launch, block, phase, warp, lane and clock of the thread. */
void order_stamp(access *, int thread);
uint32_t order_open_lanes(const access &, int thread);  /* those that are not before what the thread does now */
bool order_is_silent(uint32_t block);   /* an earlier block, of which no other one can know */
bool order_has_left(const access &, int lane);          /* whether its thread ended before a barrier of its block */

/* ---- the others -------------------------------------------------------------------------------------------------- */

void shadow_access(const void *, size_t bytes, int kind, const void *pc);
void shadow_access_any(const void *, size_t bytes, int kind, const void *pc);      /* at an address of any alignment */
void shadow_begin_block();
bool shadow_uses_array(size_t tls);     /* whether this launch has, of that begin */
void shadow_ends(int thread);
void shadow_block_meets();
/* from: NULL, or whose bits are taken over. */
void shadow_wrote_by_host(void *, const void *from, size_t bytes, const type_of_numbers &);
void shadow_product_reads(const char *matrix, const void *, size_t bytes);

/* kind: "race", "out of bounds", ...; once for each kind, pair of lines and shared array. */
void report(const char *kind, const void *pc, const void *other_pc, const std::string &text);
/* These are reports about the host's own code, without the name of a kernel. */
void report_host(const char *kind, const void *pc, const std::string &text);
/* Once for each kind and KEY, which says where and what. */
void report_once(const char *kind, const std::string &key, const std::string &text);
std::string thread_name(uint32_t block, int thread);
std::string line_of(const void *pc);
std::string line_of(where);

extern bool counting;
void count_access(const void *, size_t bytes, bool shared, const void *pc, int thread);
void count_end_block();

}

/* For tests and `orrery kernel`: what has been reported. */
extern "C" {
int judge_reports(void);
const char *judge_report(int);
void judge_forget(void);
void judge_look_for_leaks(void);
void judge_print(bool now);             /* whether reports are printed when they are made */
long judge_most_accesses(void);         /* that one thread has made in a launch, of memory that others can see */
bool judge_lines_apart(void);            /* from now on another process looks up lines: this one may start none soon */
extern void (*judge_gives_up)(void);    /* called when no thread can go on, before the program ends; may be NULL */
void judge_counts(void);                /* print what count.cpp counted */
}

#endif
