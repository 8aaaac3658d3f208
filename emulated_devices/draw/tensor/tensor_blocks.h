/* tensor_blocks.h -- events of the products of a linear layer as blocks: which rows and columns of which matrix, and
 * which parts of the sums.
 *
 * tensor.c finds the blocks and prints them; tensor_svg.c draws them.  Only these files call.
 */
#ifndef ORRERY_DRAW_TENSOR_BLOCKS_H
#define ORRERY_DRAW_TENSOR_BLOCKS_H

#include "emulated_devices/draw/tensor/tensor.h"
#include <stdio.h>

enum { TENSOR_TEXT = 160, TENSOR_MOST_BLOCKS = 16 };

/* A block has elements of one matrix with the same parts. */
struct block {
    enum linear_matrix matrix;          /* whose elements these are */
    unsigned parts;                     /* a bit for each part of the inner dimension that is in the sums */
    uint64_t rows, cols;                /* a bit for each index */
    int64_t count;                      /* elements */
};

/** Find the blocks of an event.
 *  @param symbols         [count].
 *  @param[out] nameless   elements that belong to no block.  @return how many blocks. */
int tensor_blocks_of(const int64_t *symbols, int64_t count, struct block blocks[TENSOR_MOST_BLOCKS],
                     int64_t *nameless);

/** All blocks of an event as words, one after another: "dX[0:4,0:8](01)".
 *  @param whole  the parts of an element that is whole. */
void tensor_describe(const int64_t *symbols, int64_t count, unsigned whole, char text[TENSOR_TEXT]);

/** A set of indices as intervals: "0:4", "0:2+6:8".  @return the letters used. */
int tensor_print_indices(char *to, size_t room, uint64_t set);

/** Rows or columns of a device's part, a bit for each index. */
uint64_t tensor_index_set(const struct intervals *);

/** The name of a pass with its formula: "forward: Y = X W^T". */
const char *tensor_pass_title(int pass);

/* An event is a kind, a time, a count and the symbols.  A step is a round of time, to the nearest. */
static inline int64_t tensor_step_of(const int64_t *event) { return (event[1] + TENSOR_ROUND / 2) / TENSOR_ROUND; }
static inline const int64_t *tensor_after(const int64_t *event) { return event + 3 + event[2]; }
static inline const int64_t *tensor_end_of(const struct record *record) { return record->number + record->used; }

/** The last step of a pass, on any device. */
int64_t tensor_steps(const struct tensor_trace *, int pass);

/** All passes as SVG.  @param tensor_trace  a struct tensor_trace.  @return OK or ERR_FILE. */
enum error_code tensor_svg(FILE *, const void *tensor_trace, struct error *);

/** A page that shows all passes moving.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code tensor_page(const struct tensor_trace *, const char *path, struct error *);

#endif
