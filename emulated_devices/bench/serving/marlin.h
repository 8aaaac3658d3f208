/* marlin.h -- matrices of 4-bit weights and 16-bit activations, in MARLIN's layout, and their product by workers.
 *
 * A weight [K, N] is (q - 8) s: q has 4 bits, and s is the fp16 factor of its column in its group of rows.  It is fp16,
 * rounded once.  Words of 8 weights lie as a warp of a GPU reads them:
 *
 *     word W of row kt of B [K/16, 2N]:  block = W/128, lane = W%128 / 4, j = W%4
 *     its 4-bit place b has fragment p = 0 2 4 6 1 3 5 7 [b]:
 *         n = 64 block + 16 j + lane/4 + 8 (p/4)       k = 16 kt + 2 (lane%4) + 0 1 8 9 [p%4]
 *
 * Tiles of 128 x 128 are listed column by column.  Each worker has a run of this list, and no worker has two tiles more
 * than another one.  A run may begin and end inside a column: then workers add their parts of this column to the output
 * one after another, from above.  The product has the bits of "dequantise, then multiply" with sums that are cut at the
 * same places, each in the order of k, in fp32.
 *
 * The released kernel cuts runs of equal length, the last one being shorter; here lengths differ by one at most.
 *
 * Source  E. Frantar et al., "MARLIN: mixed-precision auto-regressive parallel inference on large language models",
 *         arXiv:2408.11743; IST-DASLab/marlin, marlin/__init__.py (pack) and marlin_cuda_kernel.cu.
 *
 * marlin_claims.c and tests call these functions.  Nothing here knows of devices.
 */
#ifndef ORRERY_MARLIN_H
#define ORRERY_MARLIN_H

#include "ref/error.h"
#include <stdint.h>

/* Rows and columns of a tile; rows of a group; K and N are multiples of the last two. */
enum { MARLIN_TILE = 128, MARLIN_GROUP = 128, MARLIN_K = 128, MARLIN_N = 256 };

struct marlin {
    int64_t K, N, group;                /* rows, columns; rows of a group: MARLIN_GROUP, or K */
    uint32_t *B;                        /* [K/16, 2N] */
    uint16_t *scale;                    /* [K/group, N] fp16, permuted as the kernel reads them */
};

/**
 * Quantise and pack.  q = round(w / s) + 8, from 0 to 15.
 * @param w      [K, N]
 * @param scale  [K/group, N]; rounded to fp16 first.
 * @return OK; ERR_USAGE for a shape that the layout has not; ERR_MEMORY.  On failure there is nothing to free.
 */
enum error_code marlin_pack(struct marlin *, const float *w, const float *scale, int64_t K, int64_t N, int64_t group,
                            struct error *);
void marlin_free(struct marlin *);

/** The integer and the factor of a weight, from their places in the layout. */
int marlin_code(const struct marlin *, int64_t k, int64_t n);
float marlin_scale(const struct marlin *, int64_t k, int64_t n);

/** The weight as fp16 has it. */
float marlin_weight(const struct marlin *, int64_t k, int64_t n);

/** Bytes that are stored: integers and factors. */
int64_t marlin_bytes(const struct marlin *);

/* Consecutive tiles of the list: tile t is row t % (K/128), column t / (K/128). */
struct marlin_run { int64_t first, count; };

/** The tiles of a worker. */
struct marlin_run marlin_run_of(const struct marlin *, int64_t workers, int64_t worker);

/* Counts of a product. */
struct marlin_counts {
    int64_t bytes;                      /* of integers and factors that were read */
    int64_t most, least;                /* tiles of a worker */
    int64_t additions;                  /* parts of columns that were added to another worker's */
};

/**
 * out = x W by workers.
 * @param x           [M, K], numbers of fp16.
 * @param[out] out    [M, N] in fp32.
 * @return OK or ERR_MEMORY.
 */
enum error_code marlin_multiply(const struct marlin *, const float *x, int64_t M, int64_t workers, float *out,
                                struct marlin_counts *, struct error *);

#endif
