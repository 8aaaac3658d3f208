/* scan.h -- what scan.cu must have: two functions, and whatever kernels they
 * launch.
 *
 * All memory is the device's, fp32.  A launch is LAUNCH(kernel, dim3(blocks),
 * dim3(threads), 0, arguments..), which nvcc reads as kernel<<<blocks,
 * threads>>>(arguments..); one launch has ended before the next begins.
 *
 * A prefix sum: y[i] is the sum of x from the {END: first|last} number to
 * number i, {OWN: itself included|without itself}.  calls.cu calls the
 * functions for the judge (`orrery learn`).
 */
#ifndef SCAN_H
#define SCAN_H

#include "emulated_devices/device/cuda/kernels/launch.cuh"

enum { THREADS = 128 };

/* Part 1.  One block of THREADS threads; x, y [n], 1 <= n <= THREADS. */
void scan_block(float *y, const float *x, int n);

/* Part 2.  x, y [n], 1 <= n <= THREADS * THREADS, in blocks of THREADS
 * threads.  room: THREADS numbers, for what one launch leaves to the next;
 * nobody has written them. */
void scan_all(float *y, const float *x, int n, float *room);

#endif
