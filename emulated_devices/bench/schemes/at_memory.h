/* at_memory.h -- what a product and the ring that sums it move at the memories of P devices: with additions by the
 * devices, or at the memory (S. Pati et al., T3, arXiv:2401.16677).
 *
 * Devices have parts of the depth: Y = sum over devices of X W, and device c keeps chunk c of the rows of Y.
 *
 *   apart      each device writes its whole product.  Then the ring: a device reads its chunk and what has come, adds
 *              both and writes the sum to the next device's memory
 *   at memory  device r multiplies chunks r-1, r-2, .., r in this order.  Its stores add to what lies in the memory.
 *              The stores of the first chunk go to the next device's memory at once.  A tracker counts the stores to
 *              each tile; when its own product and what comes from the left are there, a chunk is read and sent on
 *
 * An element that is read, written, or added to at the memory counts once.  Caches are ideal: a product reads each
 * element of X and W once.  claims/tensor.c and tests call these functions.
 */
#ifndef ORRERY_BENCH_AT_MEMORY_H
#define ORRERY_BENCH_AT_MEMORY_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

enum { AT_MEMORY_DEVICES = 64 };

/* Sizes of the product on each device: X [rows, depth], W [depth, columns]; rows in chunks, one for each device. */
struct at_memory { int devices; int64_t rows, depth, columns; };

/* Elements at the memory of one device. */
struct memory_moves {
    uint64_t inputs;                    /* that the product reads */
    uint64_t results;                   /* that it stores in the device's own memory */
    uint64_t sum_reads, sum_writes;     /* of the ring; a write that comes from another device counts where it lands */
};

/** Multiply and sum real numbers, and count.  Local: it emulates all devices' memories.
 *  @param X, W  [devices][rows * depth] and [devices][depth * columns]; devices divides the rows.
 *  @param[out] Y  [rows * columns] of all chunks.  @param[out] moves  [devices].
 *  @return OK or ERR_MEMORY; ERR_CHECK: a chunk was never complete. */
enum error_code at_memory_run(const struct at_memory *, bool at_memory, const double *const *X, const double *const *W,
                              double *Y, struct memory_moves *moves, struct error *);

/** The moves of each device by formula.  Pure. */
struct memory_moves at_memory_moves(const struct at_memory *, bool at_memory);

/** Per cent of all moves that additions at the memory save, with those of the all-gather that follows.  Pure. */
double at_memory_saved(const struct at_memory *);

#endif
