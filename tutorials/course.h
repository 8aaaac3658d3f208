/* course.h -- everything that your code may call.
 *
 * Your functions run on every device at the same time, each device in a
 * process of its own.  A device knows only what it was given, and what others
 * have sent to it.  It has memory, a clock, and links to the others.
 * Messages, bytes, memory and time are counted outside of your process.
 *
 * Besides this header: memcpy, memmove, memset, memcmp of <string.h>, and the
 * functions of <math.h>.  Functions that the lesson does not ask for are
 * `static`.  A student's file includes this header, and worker.c defines the
 * functions.
 */
#ifndef COURSE_H
#define COURSE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- who works together ------------------------------------------------- */

/* Some devices, numbered 0 .. size-1; this one is number `rank`. */
struct group {
    int rank, size;
    int number;                         /* of the group; not for you */
};

/** A group of some devices, by their numbers in the group of all.  All of them
 *  call it, with the same list, in the same order of calls; this device is one
 *  of them. */
struct group group_of(const int *ranks, int size);

/* ---- messages ----------------------------------------------------------- */

/* A message on its way. */
struct message { int number; };

/**
 * Start to send bytes to a member of the group / to receive exactly so many
 * bytes from one.  Returns at once.  The bytes to be sent must not change, and
 * those to be received are not there, before message_wait.  Between two
 * devices of a group, messages arrive in the order in which they were sent.
 */
struct message message_send(const struct group *, int to, const void *data,
                            size_t bytes);
struct message message_receive(const struct group *, int from, void *data,
                               size_t bytes);

/** Wait for a message.  Each one is waited for once.  A long message is only
 *  complete when its receiver has started to receive: until then its sender
 *  waits. */
void message_wait(struct message);

/** Send to one member while receiving from another, and wait for both.  A
 *  member of -1 leaves that half out. */
void exchange_both(const struct group *, int to, const void *out,
                   size_t out_bytes, int from, void *in, size_t in_bytes);

/* ---- collective operations ---------------------------------------------- */

/* Where a lesson allows them.  All members call them, in the same order. */


/** x[i] becomes the sum of all members' x[i]; added in the order of their
 *  numbers. */
void all_reduce(const struct group *, float *x, int64_t count);
/** out: this member's block of the sum of all `in`.  Blocks are those of
 *  block_of(count, size, rank). */
void reduce_scatter(const struct group *, const float *in, float *out,
                    int64_t count);
/** out: all members' blocks, `in` being this member's.  count: elements of
 *  `out`; blocks as above. */
void all_gather(const struct group *, const float *in, float *out,
                int64_t count);
/** x of member `root` is copied to all. */
void broadcast(const struct group *, int root, float *x, int64_t count);
/** give[i] elements of `in` go to member i; take[i] elements of `out` come
 *  from it.  Blocks lie one after another. */
void all_to_all(const struct group *, const float *in, const int64_t *give,
                float *out, const int64_t *take);

/* ---- computing, with what it costs on the clock ------------------------- */

/** into[i] += from[i]. */
void add_into(float *into, const float *from, int64_t count);

/** C[m,n] = A[m,k] B[k,n], row after row in memory; each element is added up
 *  from the first product to the last.  TRANSPOSE_A: A is stored as [k,m];
 *  TRANSPOSE_B: B as [n,k]; ADD: C += A B. */
enum { TRANSPOSE_A = 1, TRANSPOSE_B = 2, ADD = 4 };
void matrix_product(float *C, const float *A, const float *B, int64_t m,
                    int64_t k, int64_t n, int how);

/** Arithmetic of your own: this many operations, and bytes read or written. */
void work(double operations, double bytes);

/** What follows, until stream_end, takes place on a stream beside the
 *  computations.  It starts where the device now is, and after what the stream
 *  did before.  What it makes can be used only after stream_join, which waits
 *  for it. */
void stream_begin(void);
void stream_end(void);
void stream_join(void);

/** The time of this device, in picoseconds: computing and sending take time,
 *  waiting too. */
int64_t time_now(void);

/* ---- memory ------------------------------------------------------------- */

/** Memory of this device, counted; its content is undefined. */
void *allocate(size_t bytes);
void release(void *);

/* `orrery learn --sanitize` names the line of memory that is not released. */
#ifdef COURSE_NAMES_LINES
void allocate_at(int line);
#define allocate(bytes) (allocate_at(__LINE__), allocate(bytes))
#endif

/* ---- blocks of a vector ------------------------------------------------- */

/* Where a block begins, and its length, in elements. */
struct block { int64_t start, count; };

/** Block i of a vector of n elements in `parts` blocks: nearly equal, the
 *  first n % parts blocks one element longer. */
static inline struct block block_of(int64_t n, int parts, int i)
{
    const int64_t each = n / parts, longer = n % parts;
    return (struct block){ each * i + (i < longer ? i : longer),
                           each + (i < longer) };
}

/** i modulo P, in 0 .. P-1 also for negative i. */
static inline int mod(int i, int P) { return (i % P + P) % P; }

/* ---- for you ------------------------------------------------------------ */

/** Print a line, as printf.  `orrery learn NN` shows it with the device's
 *  number, below a check that fails.  A number of block_of is a long here:
 *  say("block at %ld", (long)b.start). */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
