/* kernel.h -- how long a kernel takes that does not reach the rates of a data sheet.
 *
 * A cluster file may say how kernels fall short ("kernels", docs/plans/virtual_clock.md).  With a table of measured
 * kernels (kernel_table.h) and a set that says which of them programs run (kernel_set.h), an operation takes its start
 * and the longer of arithmetic and memory traffic at measured rates.  Else a matrix product is cut into
 * tiles of its result, and the device's units compute one tile each at a time: a last wave with few tiles takes as long
 * as a full one.  A tile of depth k takes as long as k + half_depth at the best rate, so that a product of depth
 * half_depth reaches half of it.  What is not one product, such as attention, reaches a share of the rate of
 * operations, the less the fewer terms its sums have; what reads and writes memory reaches a share of its rate, some
 * operations one of their own; every kernel takes a while to start.  Without more than that, and without "kernels", an
 * operation takes the longer of arithmetic and memory traffic at the stated rates.  What a collective adds and copies
 * is part of its kernel, and starts nothing.
 *
 * clock.c asks for the time of each operation, bench/calibrate/ for products.  Times are
 * picoseconds; no function here can fail.
 */
#ifndef ORRERY_KERNEL_H
#define ORRERY_KERNEL_H

#include "emulated_devices/device/cluster.h"
#include "ref/ops/ops.h"

/** The time of an operation as one kernel: of a matrix product with its shape, if it has one; of an exact product
 *  (op_cost) at the rate of fp64.
 *  @param what  its name in traces. */
picoseconds kernel_time(const struct cluster *, enum dtype, const char *what, struct op_cost);

/** How many kernels the host starts for an operation, by the cluster's set; 0 without a set, and for what is part of a
 *  running kernel.  @param what  as above. */
int64_t kernel_starts(const struct cluster *, const char *what, struct op_cost);

/* `count` products of [rows, depth] by [depth, columns]. */
struct product { int64_t rows, columns, depth, count; };

/** The time of one kernel for these products, in a format of the cluster. */
picoseconds kernel_product(const struct cluster *, enum dtype, struct product);

/** Counts of operations and bytes are doubles: integers, except for some factors of one half.  Rounded up. */
uint64_t whole_units(double);

/** The time of one kernel that reads and writes this many bytes and computes next to nothing. */
picoseconds kernel_bytes(const struct cluster *, double bytes);

#endif
