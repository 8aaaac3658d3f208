/* part.h -- the part of a matrix that a device holds: some of its rows, and some columns of each of them.
 *
 * Activations are cut like this: rows by microbatches and copies of the model (and by position, in a cut sequence),
 * columns by heads, by feed-forward columns or by the vocabulary.  Every row has the same columns, and the part is
 * stored row by row; a list of boxes (layout.h), which are stored one after another, could not describe this.
 *
 * check/dump/, schemes/tensor/ and model/probe.h use parts; the maker of a part frees its lists with part_free.  No
 * function returns an error code.
 */
#ifndef ORRERY_PART_H
#define ORRERY_PART_H

#include "emulated_devices/device/interval.h"
#include "emulated_devices/device/layout.h"

struct part {
    int64_t dim[2];                     /* rows and columns of the whole */
    struct intervals rows, cols;        /* ranges of the whole that the part has, ascending */
};

/** Free the lists. */
void part_free(struct part *);

/** Whether there was memory for the lists. */
static inline bool part_made(const struct part *part)
{
    return !intervals_lost(&part->rows) && !intervals_lost(&part->cols);
}

/** Elements of the part. */
int64_t part_count(const struct part *);

/** Call f for each run that is contiguous in both the whole and the part, in order of the part. */
void part_each_run(const struct part *, void (*f)(void *context, struct run), void *context);

/** Call f for the runs of these rows of the whole only; other rows cost no time. */
void part_each_run_in(const struct part *, struct interval rows, void (*f)(void *context, struct run), void *context);

/** piece = the part of whole.  Bits are kept. */
void part_cut(const struct part *, const void *whole, void *piece, size_t element_size);

#endif
