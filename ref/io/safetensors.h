/* safetensors.h -- the tensor files of Hugging Face: reads boxes of tensors, writes files atomically.
 *
 * Source  https://github.com/huggingface/safetensors, section "Format".
 * File    8 bytes: length N of the header, little-endian
 *         N bytes: JSON, { "name": { "dtype": "F32", "shape": [V,D], "data_offsets": [begin,end] }, ...,
 *                          "__metadata__": { "key": "value", ... } }, padded with spaces
 *         the rest: the numbers, row-major, little-endian; offsets count from here
 *
 * A file is not trusted: opening it checks the whole header.  The size of every tensor must match its offsets, and
 * together the tensors must cover the data without a hole or an overlap.  Reading a box reads only its bytes: so a
 * device reads its shard of a large model.
 *
 * ref/model, ref/golden, check/dump/ and subcommands call this file.  Every error names the file and, if there is one,
 * the tensor.
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

/* One entry of the header's "__metadata__". */
struct safetensors_pair { const char *key, *value; };

/* One tensor.  To write, set the first four; the writer computes the rest. */
struct safetensors_entry {
    const char *name;                   /* unique in the file */
    const char *dtype;                  /* as spelled in the file: "F32", "BF16", ... */
    int ndim;                           /* 0: a scalar, of one element */
    int64_t dim[SAFETENSORS_MAX_DIMS];  /* slowest first */
    int64_t count;                      /* elements */
    int64_t offset, bytes;              /* of the data; the offset counts from the start of the file */
};

struct safetensors {
    char *path;                         /* for messages */
    int fd;                             /* open for reading until safetensors_close */
    int count;                          /* tensors */
    struct safetensors_entry *entry;    /* [count], in the order of their data */
    int metadata_count;                 /* pairs of "__metadata__" */
    struct safetensors_pair *metadata;  /* [metadata_count] */
    struct safetensors_entry **by_name; /* [count], sorted */
    struct cJSON *header;               /* owns names and metadata */
};

/**
 * Open a file and check its header.
 * @return OK; ERR_FILE if it cannot be read; ERR_FORMAT with the tensor and the fault; ERR_MEMORY.  After a failure
 *         there is nothing to close.
 */
enum error_code safetensors_open(struct safetensors *, const char *path, struct error *);

void safetensors_close(struct safetensors *);

/** Forget the tensors that are not wanted any more, as if the file did not have them.  Their names stay valid. */
void safetensors_keep(struct safetensors *, bool (*wants)(const void *context, const char *name), const void *context);

/** The tensor of this name, or NULL. */
const struct safetensors_entry *safetensors_find(const struct safetensors *, const char *name);

/** Metadata of this key, or NULL. */
const char *safetensors_metadata(const struct safetensors *, const char *key);

/**
 * Read a box of a tensor, converted to `want`.
 *
 * F64, F32, BF16 and F16 convert to each other, exactly or rounded once, to nearest.  I32, I16, I8, U16, U8 and BOOL
 * convert to I32; these, U32 and I64 to I64; U8 and BOOL to U8.
 * @param entry          of this file.
 * @param start, extent  [entry->ndim]; the box.  Both NULL: the whole tensor.
 * @param transposed     for a matrix: start, extent and out are those of its transpose.
 * @param[out] out       [extent...] of `want`, row-major.
 * @return OK; ERR_USAGE if the box is not inside the tensor, or `transposed` is set and it is not a matrix;
 *         ERR_FORMAT if the numbers do not convert; ERR_FILE; ERR_MEMORY.  On failure out may be partly written.
 */
enum error_code safetensors_read_box(const struct safetensors *, const struct safetensors_entry *entry,
                                     const int64_t *start, const int64_t *extent, bool transposed, enum dtype want,
                                     void *out, struct error *);

/** Read a whole tensor, converted: safetensors_read_box without a box. */
enum error_code safetensors_read(const struct safetensors *, const struct safetensors_entry *, enum dtype want,
                                 void *out, struct error *);

/** Bits of one element of a dtype, spelled as in files; 0 if there is no such dtype. */
int safetensors_dtype_bits(const char *dtype);

/* ---- writing ---------------------------------------------------------------------------------------------------- */

struct safetensors_writer {
    struct output file;                 /* temporary file that commit renames */
    int count;                          /* tensors */
    struct safetensors_entry *entry;    /* [count], in the caller's order; the caller owns the names */
};

/**
 * Start a file: lay out its tensors and write the header into the temporary file.  Tensors are sorted by decreasing
 * element size, then by name, so that all are aligned.  Data that is never written reads as zeros.
 * @param tensors   [n]; name, dtype, ndim and dim are read.  Names must outlive the writer.
 * @param metadata  [pairs]; may be NULL when pairs is 0.
 * @return OK; ERR_USAGE if two names are the same or empty, or a dtype or shape is impossible; ERR_FILE; ERR_MEMORY.
 *         A failure leaves no file.
 */
enum error_code safetensors_create(struct safetensors_writer *, const char *path,
                                   const struct safetensors_entry *tensors, int n,
                                   const struct safetensors_pair *metadata, int pairs, struct error *);

/**
 * Write into the file that another process has created.  Every process calls safetensors_commit; the creator calls it
 * last, after the others have returned from it.
 * @param temp     the temporary name: the creator's file.temp.
 * @param tensors  [n]; all or some of the creator's, found by name.
 * @return as safetensors_create; ERR_USAGE also if a tensor is not in the file with this dtype and shape.
 */
enum error_code safetensors_join(struct safetensors_writer *, const char *path, const char *temp,
                                 const struct safetensors_entry *tensors, int n, struct error *);

/**
 * Write a box of a tensor.
 * @param tensor         its index in the list given at the start.
 * @param start, extent  as for safetensors_read_box.
 * @param data           [extent...], row-major, in the tensor's own dtype.
 * @return OK; ERR_USAGE if the box is not inside the tensor; ERR_FILE with the system's reason; ERR_MEMORY.  On failure
 *         the writer is aborted: a later commit fails and a previous file stays.
 */
enum error_code safetensors_write_box(struct safetensors_writer *, int tensor, const int64_t *start,
                                      const int64_t *extent, bool transposed, const void *data, struct error *);

/** Write a whole tensor: safetensors_write_box without a box. */
enum error_code safetensors_write(struct safetensors_writer *, int tensor, const void *data, struct error *);

/** Flush to the disk and rename to the final name.  @return OK, or ERR_FILE; a failure leaves no file. */
enum error_code safetensors_commit(struct safetensors_writer *, struct error *);

/** Remove the temporary file.  Does nothing after a commit or an abort. */
void safetensors_abort(struct safetensors_writer *);

#endif
