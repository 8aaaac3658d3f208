/* seal.h -- a hash of each tensor of a golden file, kept with its bounds: what our model has once computed need not be
 * computed again to know that it is ours.
 *
 *     { "golden": "NAME.safetensors", "tensors": { "act/embedding": "9f86d081884c7d65", ... }, "fp32": ... }
 *
 * `orrery golden make` writes it.  Files of other programs have none: our model computes them again (replay.h).  The
 * hash notices damage and edits, not intent.
 *
 * golden.c checks what it reads, make.c adds hashes to the bounds.
 */
#ifndef ORRERY_SEAL_H
#define ORRERY_SEAL_H

#include "ref/golden/golden.h"
#include "ref/golden/replay.h"

struct cJSON;

/** The hash of some bytes. */
uint64_t seal_hash(const void *data, size_t bytes);

/** Do the same a part at a time: begin with the bytes in all, then whole words of 8, then the bytes that are left. */
uint64_t seal_begin(size_t bytes);
uint64_t seal_more(uint64_t hash, const void *data, size_t words);
uint64_t seal_end(uint64_t hash, const void *rest, size_t bytes);

/** Add the hashes of all tensors to the document of a file's bounds.  @return OK or ERR_MEMORY. */
enum error_code seal_add(struct cJSON *document, const struct record *, int count, struct error *);

/** The hashes beside a golden file, for cJSON_Delete; NULL: it has none. */
struct cJSON *seal_read(const char *golden_path);

/** Whether a tensor that has been read is the one that was sealed.
 *  @return OK, also without a seal; ERR_FORMAT, naming the tensor. */
enum error_code seal_check(const struct golden *, const char *name, const void *data, size_t bytes, struct error *);
enum error_code seal_check_hash(const struct golden *, const char *name, uint64_t hash, struct error *);

#endif
