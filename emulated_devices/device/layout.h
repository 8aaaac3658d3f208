/* layout.h -- which part of a logical tensor a device holds: a list of boxes.
 *
 * A box is a start and an extent in each dimension of the whole tensor.  The boxes' elements are stored one box after
 * another, each row-major.  Contiguous and uneven splits, fused projections cut by heads, padded vocabularies,
 * sequences in zigzag order: all are lists of boxes.  Initial values, comparison, checkpoints and resharding work on
 * boxes: all functions here walk over the runs of elements that are contiguous both in the piece and in the whole.
 *
 * model/collect.c, schemes/tensor/, cli/train and verify/ use this file.  A layout is a value without memory of its
 * own.  No function returns an error code.
 */
#ifndef ORRERY_LAYOUT_H
#define ORRERY_LAYOUT_H

#include "ref/error.h"
#include "ref/numeric/tensor.h"

enum { LAYOUT_MAX_BOXES = 16 };

struct box {
    int64_t start[TENSOR_MAX_DIMS], extent[TENSOR_MAX_DIMS];
};

struct layout {
    int ndim;                           /* dimensions in use, of dim and of every box */
    int64_t dim[TENSOR_MAX_DIMS];       /* of the whole tensor */
    int boxes;                          /* entries of `box` */
    struct box box[LAYOUT_MAX_BOXES];   /* the piece, in the order of its memory */
};

/** All of a tensor, in one box. */
struct layout layout_whole(int ndim, const int64_t dim[]);

/** Nothing of a tensor yet: a start for layout_add. */
struct layout layout_none(int ndim, const int64_t dim[]);

/** Add the box that is [start, start + extent) in one dimension and everything in the others. */
void layout_add(struct layout *, int dimension, int64_t start, int64_t extent);

/** Add any box. */
void layout_add_box(struct layout *, const int64_t start[], const int64_t extent[]);

/** Elements in all boxes together. */
int64_t layout_count(const struct layout *);

/** Rows and columns of the piece seen as one matrix: boxes that share their columns stack.
 * For matrices and vectors. */
int64_t layout_rows(const struct layout *);
int64_t layout_cols(const struct layout *);

/* A run of elements contiguous in both: from `whole` on in the logical tensor, from `piece` on in the
 * device's memory. */
struct run { int64_t whole, piece, length; };

/** Call f for each run, in order of the piece. */
void layout_each_run(const struct layout *, void (*f)(void *context, struct run), void *context);

/** Call f for elements first .. first + count - 1 of the piece only; run.piece counts from the first of them. */
void layout_each_run_within(const struct layout *, int64_t first, int64_t count, void (*f)(void *context, struct run),
                            void *context);

/** piece = the boxes of whole.  Bits are kept. */
void layout_cut(const struct layout *, const void *whole, void *piece, size_t element_size);

/** The boxes of whole = elements first .. first + count - 1 of the piece, all that `part` has;
 * the rest of whole stays. */
void layout_paste_within(const struct layout *, int64_t first, int64_t count, void *whole, const void *part,
                         size_t element_size);

#endif
