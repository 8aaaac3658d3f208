/* manifest.h -- DIR/shards.json: which box of which tensor is in which device's file, and each file's checksum.
 *
 *     { "format": "orrery shards 1", "mesh": "--dp 2 --tp 2",
 *       "files":   [ { "name": "device-00000.0.safetensors", "bytes": 52344, "sha256": "..." }, .. ],
 *       "tensors": [ { "name": "wte.weight", "dtype": "F32", "shape": [256, 32],
 *                      "boxes": [ { "file": 0, "start": [0, 0], "extent": [128, 32] }, .. ] }, .. ] }
 *
 * Names and coordinates are those of the collection (model/collection/collection.h).  A device's file is a safetensors
 * file with a tensor for each of its boxes, "wte.weight[0:128,0:32]".  A manifest is not trusted: a tensor's boxes must
 * be all its elements, each once.
 *
 * sharded_write.c, shards.c and reshard.c call these functions.
 */
#ifndef ORRERY_MANIFEST_H
#define ORRERY_MANIFEST_H

#include "emulated_devices/model/collection/collection.h"
#include "ref/io/bundle.h"

enum { SHARD_NAME = 64, SHARD_TENSOR = TENSOR_NAME + 4 * 48, MESH_WORDS_LINE = 1000 };

struct shard_file { char name[SHARD_NAME]; int64_t bytes; struct sha256_text sum; };
struct shard_box { int file; struct box box; };

struct shard_tensor {
    char name[TENSOR_NAME];             /* as in the collection */
    enum dtype format;                  /* of its numbers in the files */
    int ndim;                           /* dimensions in use */
    int64_t dim[TENSOR_MAX_DIMS];       /* of the whole tensor */
    int boxes;                          /* entries of `box` */
    struct shard_box *box;              /* [boxes] by file, in the order of the device's memory */
};

struct manifest {
    char mesh[MESH_WORDS_LINE];         /* words of the mesh that wrote it */
    int files, tensors;                 /* entries of the two lists */
    struct shard_file *file;            /* [files] one of each device, in order */
    struct shard_tensor *tensor;        /* [tensors] as in the collection */
    struct shard_tensor **by_name;      /* [tensors] sorted */
};

/** Say which boxes each device of a plan writes.  Local and pure; lengths and checksums of files are not set.
 *  @param generation  part of the files' names: a folder may still have those of an earlier save.
 *  @return OK, ERR_CHECK or ERR_MEMORY; manifest_close works after all. */
enum error_code manifest_make(struct manifest *, const struct collection *, int generation, struct error *);

/** Write it.  @return as json_write. */
enum error_code manifest_write(const struct manifest *, const char *path, struct error *);

/** Read and check the manifest of a checkpoint's folder.
 *  @return OK; ERR_FORMAT naming the tensor whose boxes overlap, leave holes or lie outside; ERR_FILE; ERR_MEMORY.
 *          manifest_close works after all. */
enum error_code manifest_read(struct manifest *, const struct bundle *, const char *name, struct error *);
void manifest_close(struct manifest *);

/** A tensor by its name; NULL: there is none. */
const struct shard_tensor *manifest_find(const struct manifest *, const char *name);

/** The name of a box in its device's file.  @return text. */
const char *shard_name(const struct shard_tensor *, const struct box *, char text[SHARD_TENSOR]);

/** The words of a plan's mesh, such as "--dp 2 --tp 2"; of sections --plan and their text; "one device".
 *  @return text. */
const char *mesh_words(const struct plan *, char *text, size_t size);

#endif
