/* holders.h -- which ranks and microbatches have some elements of another program's tensor.
 * singles.c calls it for wrong results and for copies that differ.  A tensor that cannot be read has no holders. */
#ifndef ORRERY_HOLDERS_H
#define ORRERY_HOLDERS_H

#include "emulated_devices/check/dump/actual.h"

/**
 * Describe the holders of a rectangle: "tp=1, any dp; microbatch 2".  Ranks and microbatches are left out if all that
 * have a part of the tensor have one of the rectangle.
 * @param dim   rows and columns of the tensor.
 * @return out; empty if there is nothing to say.
 */
const char *holders_describe(const struct actual *, const char *name, const int64_t dim[2], struct interval rows,
                             struct interval cols, char *out, size_t size);

/** All ranks that have a part of the tensor. */
struct devices holders_all(const struct actual *, const char *name, const int64_t dim[2]);

/** Choose from these ranks as many as have no element in common, in order, and stand at one place along an axis. */
struct devices holders_apart(const struct actual *, const char *name, const int64_t dim[2], const struct devices *,
                             enum axis);

#endif
