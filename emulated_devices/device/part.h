/* part.h -- the part of a matrix that a device holds: some of its rows, and of each of them some columns.
 *
 * What activations are cut like: rows by microbatches and copies of the model (and by position, in a sequence dealt out in
 * pieces), columns by heads, by feed-forward columns or by the vocabulary.  Every row has the same columns, and the part lies
 * in memory row by row; a list of boxes (layout.h), which lie one after another, could not say that.
 */
#ifndef ORRERY_PART_H
#define ORRERY_PART_H

#include "emulated_devices/device/layout.h"

enum { SPANS_MOST = 128 };

struct stretch { int64_t start, extent; };

/* Stretches of one dimension, in the order in which they lie in memory. */
struct spans { int count; struct stretch at[SPANS_MOST]; };

struct part {
    int64_t dim[2];                     /* rows and columns of the whole */
    struct spans rows, cols;
};

/** All of a dimension. */
struct spans spans_whole(int64_t n);

/** Add a stretch behind the others; one that follows the last without a gap makes it longer. */
void spans_add(struct spans *, int64_t start, int64_t extent);

int64_t spans_extent(const struct spans *);

/** Elements of the part. */
int64_t part_count(const struct part *);

/** Call f for each run that is contiguous in both the whole and the part, in order of the part. */
void part_each_run(const struct part *, void (*f)(void *context, struct run), void *context);

/** piece = the part of whole.  Bits are kept. */
void part_cut(const struct part *, const void *whole, void *piece, size_t element_size);

#endif
