/* safetensors_box.h -- cuts a box of a tensor into runs of consecutive elements of its file.  Inside ref/io only.
 *
 * safetensors_write.c and safetensors_box.c use this file; a fuzz test tries the conversions.
 */
#ifndef ORRERY_SAFETENSORS_BOX_H
#define ORRERY_SAFETENSORS_BOX_H

#include "ref/io/safetensors.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian, and so must be the machine"
#endif

/* Elements that are consecutive in the file; in memory they are `stride` elements apart. */
struct run { int64_t file_at, memory_at, count, stride; };

struct box {
    int outer;                          /* leading dimensions to iterate over; the others are inside a run */
    int ndim;                           /* dimensions of the tensor in the file */
    int64_t dim[SAFETENSORS_MAX_DIMS];  /* dim, start, extent: in the file's order, also if transposed */
    int64_t start[SAFETENSORS_MAX_DIMS], extent[SAFETENSORS_MAX_DIMS];  /* first index and length in each dimension */
    int64_t at[SAFETENSORS_MAX_DIMS];   /* position of the next run */
    struct run run;                     /* the run that box_next found */
    bool done;                          /* no run is left */
};

/** Check a box and start before its first run.  @return OK, or ERR_USAGE. */
enum error_code box_open(struct box *, const char *path, const struct safetensors_entry *, const int64_t *start,
                         const int64_t *extent, bool transposed, struct error *);

/** Put the next run into box->run.  @return false after the last. */
bool box_next(struct box *);

/** Compute count and bytes from dtype and shape.  @return NULL, or what is wrong with them. */
const char *entry_measure(struct safetensors_entry *);

#endif
