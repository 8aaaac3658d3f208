/* warps.h -- what warps.cu must have: two functions, and whatever kernels they
 * launch.
 *
 * All memory is the device's, fp32; x is a matrix of `rows` rows of `cols`
 * numbers, 0 <= rows <= 100, 1 <= cols <= 300.  A row is one warp's: WARPS
 * warps of 32 lanes in a block.  Lane l takes columns l, l + 32, l + 64, .. in
 * this order; then the lanes are put together by shuffles:
 * by {TREE: 16, 8, 4, 2, 1|1, 2, 4, 8, 16}.  So the bits are fixed.  calls.cu
 * calls the functions for the judge (`orrery learn`).
 */
#ifndef WARPS_H
#define WARPS_H

#include "emulated_devices/device/cuda/kernels/launch.cuh"

enum { WARPS = 4 };

/* Part 1.  y [rows]: the sum of each row, with these bits. */
void row_sums(float *y, const float *x, int rows, int cols);

/* Part 2.  y [rows, cols]: exp(x) / (the sum of exp(x) over the row), for
 * numbers of any size. */
void softmax(float *y, const float *x, int rows, int cols);

#endif
