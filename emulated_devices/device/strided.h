/* strided.h -- bytes that lie apart in memory at equal distances, in one canonical form, and the packer of all of them.
 *
 * Columns of a matrix, heads of a row, the halo of a tile and a box of a tensor are runs of bytes that repeat: so many
 * times at some distance, and all of that again at a larger or smaller one.
 *
 *     offset          of the first byte
 *     run             bytes that lie side by side
 *     dim[0..ndim-1]  count and distance of the repetitions, the outermost first
 *
 * The order of the runs is the order in which they were described, that of an MPI datatype's typemap.  Descriptions of
 * the same bytes in the same order have the same form: a repetition of one vanishes, repetitions that touch become a
 * longer run, and two that go on evenly become one.  Dimensions are never exchanged, since that would change the order.
 * The idea is TEMPI's (C. Pearson et al., HPDC 2021), which sorts them by distance.
 *
 * device/layout.c, device/backends/cpu.c, model/collection/boxes.c, comm/datatype.c and bench/ call these functions.
 * No function fails, but strided_repeat.
 */
#ifndef ORRERY_STRIDED_H
#define ORRERY_STRIDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STRIDED_DIMS = 12 };

struct strided {
    int64_t offset;                     /* bytes from the address that packing is given */
    int64_t run;                        /* bytes side by side; 0: there are none at all */
    int ndim;                           /* entries of `dim` */
    struct strided_dim { int64_t count, stride; } dim[STRIDED_DIMS];    /* repetitions, and bytes from each to the next;
                                         * the outermost first */
};

/** So many bytes side by side. */
struct strided strided_run(int64_t bytes);

/** All of it again and again: `count` times, each `stride` bytes after the one before.
 *  @return false: it would have more than STRIDED_DIMS dimensions, and is unchanged. */
bool strided_repeat(struct strided *, int64_t count, int64_t stride);

/** A box of a row-major array.  @param ndim  up to STRIDED_DIMS.  @param size  bytes of an element. */
struct strided strided_box(int ndim, const int64_t dim[], const int64_t start[], const int64_t extent[], int64_t size);

/** Whether two forms are the same. */
bool strided_equal(const struct strided *, const struct strided *);

/** Bytes, and runs, of all repetitions. */
int64_t strided_bytes(const struct strided *);
int64_t strided_runs(const struct strided *);

/** Copy rows of `run` bytes that lie at a distance on both sides: the innermost loop of every packer, also of columns,
 *  heads and halos (device_copy_rows). */
void strided_rows(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t count, int64_t run);

/** Copy all bytes, in order, to consecutive ones, or back from there.  Memory does not overlap. */
void strided_pack(void *packed, const void *from, const struct strided *);
void strided_unpack(void *into, const struct strided *, const void *packed);

/** Copy from one form to another of as many bytes, in the order of both. */
void strided_move(void *into, const struct strided *to, const void *from, const struct strided *of);

/* A cursor is a place in a form: the run that is at work, and how much of it is done. */
struct strided_cursor {
    const struct strided *form;         /* that it goes through */
    int64_t at;                         /* offset of the run */
    int64_t done;                       /* bytes of the run */
    int64_t index[STRIDED_DIMS];        /* of the run, in each dimension */
};

/** A cursor at the first run; the bytes that are left of its run; some of these are done. */
struct strided_cursor strided_cursor_begin(const struct strided *);
static inline int64_t strided_cursor_left(const struct strided_cursor *cursor)
{
    return cursor->form->run - cursor->done;
}
void strided_cursor_go(struct strided_cursor *, int64_t bytes);

#endif
