/* safetensors.h -- tensors in files: the format of Hugging Face, read by boxes and written whole or not at all.
 *
 * Source  https://github.com/huggingface/safetensors, section "Format".
 * File    8 bytes: length N of the header, little-endian
 *         N bytes: JSON, { "name": { "dtype": "F32", "shape": [V,D], "data_offsets": [begin,end] }, ...,
 *                          "__metadata__": { "key": "value", ... } }, padded with spaces
 *         the rest: the numbers, row-major, little-endian; offsets count from here
 *
 * A file is not trusted: opening it checks everything in the header, so that reading need not.  Every tensor must fit
 * its offsets, and all of them together must cover the data without a hole or an overlap.  Nothing is read until it is
 * asked for, and only the box that is asked for: this is how a device reads its piece of a large model.
 */
#ifndef ORRERY_SAFETENSORS_H
#define ORRERY_SAFETENSORS_H

#include "ref/error.h"
#include "ref/io/output.h"
#include "ref/numeric/dtype.h"
#include <stdbool.h>
#include <stdint.h>

enum { SAFETENSORS_MAX_DIMS = 8 };
enum { SAFETENSORS_HEADER_LIMIT = 100000000 };  /* bytes; the limit of the format's own library */

struct safetensors_pair { const char *key, *value; };

/* One tensor.  To write, fill the first four; the rest is found by the reader or the writer. */
struct safetensors_entry {
    const char *name;
    const char *dtype;                  /* as the file spells it: "F32", "BF16", ... */
    int ndim;                           /* 0: a scalar, of one element */
    int64_t dim[SAFETENSORS_MAX_DIMS];  /* slowest first */
    int64_t count;                      /* elements */
    int64_t offset, bytes;              /* where the data is, from the start of the file */
};

struct safetensors {
    char *path;
    int fd;
    int count;
    struct safetensors_entry *entry;    /* [count], in the order of their data */
    int metadata_count;
    struct safetensors_pair *metadata;  /* [metadata_count] */
    struct safetensors_entry **by_name; /* [count], sorted */
    struct cJSON *header;               /* owns names and metadata */
};

/**
 * Open a file and check its header.
 * @return OK; ERR_FILE if it cannot be read; ERR_FORMAT with the tensor and the fault; ERR_MEMORY.  On failure there is
 *         nothing to close.
 */
enum error_code safetensors_open(struct safetensors *, const char *path, struct error *);

void safetensors_close(struct safetensors *);

/** The tensor of this name, or NULL. */
const struct safetensors_entry *safetensors_find(const struct safetensors *, const char *name);

/** Metadata of this key, or NULL. */
const char *safetensors_metadata(const struct safetensors *, const char *key);

/**
 * Read a box of a tensor, and nothing else, converted to `want`.
 *
 * F64, F32, BF16 and F16 convert to each other, exactly or rounded once, to nearest.  I32, I16, I8, U16, U8 and BOOL
 * convert to I32; these, U32 and I64 to I64; U8 and BOOL to U8.
 * @param entry          of this file.
 * @param start, extent  [entry->ndim]; the box.  Both may be NULL for all of the tensor.
 * @param transposed     for a matrix: start, extent and out are of its transpose; the file is read as it lies.
 * @param[out] out       [extent...] of `want`, row-major.
 * @return OK; ERR_USAGE if the box is not inside the tensor or a transpose is asked of what is not a matrix;
 *         ERR_FORMAT if the numbers do not convert; ERR_FILE; ERR_MEMORY.  On failure out may be partly written.
 */
enum error_code safetensors_read_box(const struct safetensors *, const struct safetensors_entry *entry,
                                     const int64_t *start, const int64_t *extent, bool transposed, enum dtype want,
                                     void *out, struct error *);

/** Read all of a tensor, converted: safetensors_read_box without a box. */
enum error_code safetensors_read(const struct safetensors *, const struct safetensors_entry *, enum dtype want,
                                 void *out, struct error *);

/** Bits of one element of a dtype as the file spells it; 0 if there is no such dtype. */
int safetensors_dtype_bits(const char *dtype);

/* ---- writing ---------------------------------------------------------------------------------------------------- */

struct safetensors_writer {
    struct output file;
    int count;
    struct safetensors_entry *entry;    /* [count], in the order given; names are the caller's */
};

/**
 * Start a file: lay out its tensors and write the header beside the final name.  Tensors lie in order of decreasing
 * element size, then of name, so that all are aligned.  What is never written reads as zeros.
 * @param tensors   [n]; name, dtype, ndim and dim are read.  Names must outlive the writer.
 * @param metadata  [pairs]; may be NULL when pairs is 0.
 * @return OK; ERR_USAGE if two names are the same or empty, or a dtype or shape is impossible; ERR_FILE; ERR_MEMORY.
 *         On failure nothing is left behind.
 */
enum error_code safetensors_create(struct safetensors_writer *, const char *path,
                                   const struct safetensors_entry *tensors, int n,
                                   const struct safetensors_pair *metadata, int pairs, struct error *);

/**
 * Write into the file that another process has created.  Everybody calls safetensors_commit, the creator last, when the
 * others have returned.
 * @param temp     the temporary name: the creator's file.temp.
 * @param tensors  [n]; all or some of the creator's, found by name.
 * @return as safetensors_create; ERR_USAGE also if a tensor is not in the file with this dtype and shape.
 */
enum error_code safetensors_join(struct safetensors_writer *, const char *path, const char *temp,
                                 const struct safetensors_entry *tensors, int n, struct error *);

/**
 * Write a box of a tensor.
 * @param tensor         its place in the list given at the start.
 * @param start, extent  as for safetensors_read_box.
 * @param data           [extent...], row-major, in the tensor's own dtype.
 * @return OK; ERR_USAGE if the box is not inside the tensor; ERR_FILE with the system's reason; ERR_MEMORY.  On failure
 *         the writer is aborted: a later commit fails and a previous file stays.
 */
enum error_code safetensors_write_box(struct safetensors_writer *, int tensor, const int64_t *start,
                                      const int64_t *extent, bool transposed, const void *data, struct error *);

/** Write all of a tensor: safetensors_write_box without a box. */
enum error_code safetensors_write(struct safetensors_writer *, int tensor, const void *data, struct error *);

/** Flush to the disk and take the final name.  @return OK, or ERR_FILE, nothing being left behind. */
enum error_code safetensors_commit(struct safetensors_writer *, struct error *);

/** Give up: remove the temporary file.  Does nothing after a commit or an abort. */
void safetensors_abort(struct safetensors_writer *);

#endif
