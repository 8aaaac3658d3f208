/* weights.h -- a model's parameters in safetensors files as Hugging Face transformers names and cuts them.
 *
 * Reading takes one file, or several with an index (model.safetensors.index.json), in any of F64, F32, BF16 and F16; a
 * logical parameter may be several tensors (param_spec.part), a GPT-2's matrices lie transposed.  What else is in the
 * files is let be.  A suffix, ".exp_avg", names an optimizer's state beside each tensor.
 */
#ifndef ORRERY_WEIGHTS_H
#define ORRERY_WEIGHTS_H

#include "ref/io/safetensors.h"
#include "ref/model/transformer.h"

struct weights {
    int files;
    struct safetensors *file;           /* [files] */
    struct cJSON *index;                /* names to files; NULL if there is one file */
    char *dir;
};

/** Open DIR/model.safetensors or, if it is not there, the files of DIR/model.safetensors.index.json.
 *  @return OK; ERR_FILE; ERR_FORMAT; ERR_MEMORY.  On failure there is nothing to close. */
enum error_code weights_open(struct weights *, const char *dir, struct error *);

/** Open one file.  @return as weights_open. */
enum error_code weights_open_file(struct weights *, const char *path, struct error *);
void weights_close(struct weights *);

/**
 * Read a box of a logical parameter from its parts.
 * @param suffix         "" for the weights.
 * @param start, extent  [spec->ndim], in the logical parameter.
 * @param[out] out       [extent...] of `want`, row-major.
 * @return OK; ERR_FORMAT naming the tensor that is missing or has another shape; ERR_FILE; ERR_MEMORY.
 */
enum error_code weights_read_box(const struct weights *, const struct param_spec *, const char *suffix,
                                 const int64_t *start, const int64_t *extent, enum dtype want, void *out,
                                 struct error *);

/**
 * Check that files do not contradict a config that ties the output matrix to the embedding: a file may hold both, with
 * the same numbers.  transformers 5 unties a model whose files hold two matrices; older versions drop one.
 * @return OK, also if nothing is tied or there is one only; ERR_FORMAT with the first row that differs; as
 *     weights_read_box.
 */
enum error_code weights_check_tied(const struct weights *, const struct model_config *, struct error *);

/** Read all weights into a serial model.  @return as weights_open and weights_read_box. */
enum error_code weights_load(struct transformer *, const char *dir, struct error *);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

struct weights_writer {
    const struct param_spec *spec;
    struct safetensors_writer writer;
    int suffixes, entries;
    struct safetensors_entry *entry;    /* of parameter i, suffix s: from first[i * suffixes + s], one a part */
    int *first;
    char (*name)[2 * PARAM_NAME];
    bool open;
};

/**
 * Start a file of every parameter, with each suffix.
 * @param spec      [n * suffixes] what parameter i has under suffix s: from spec[i * suffixes + s]; must outlive the
 *     writer.  One
 *                  without parts has nothing.
 * @param metadata  [pairs]
 * @return as safetensors_create; weights_abort frees what there is.
 */
enum error_code weights_create(struct weights_writer *, const struct param_spec *spec, int n, enum dtype,
                               const char *path, const char *const suffix[], int suffixes,
                               const struct safetensors_pair *metadata, int pairs, struct error *);

/** Write a whole logical parameter, or its state of suffix s.  @return as safetensors_write_box. */
enum error_code weights_write(struct weights_writer *, int param, int s, const void *data, struct error *);

/** Give the file its name.  @return as safetensors_commit. */
enum error_code weights_commit(struct weights_writer *, struct error *);

/** Give up what was not committed, and free.  Always last. */
void weights_abort(struct weights_writer *);

/** Write DIR/config.json and DIR/model.safetensors of a serial model; the folder must be there.
 * @return OK or the first failure. */
enum error_code weights_save(const struct transformer *, const char *dir, struct error *);

#endif
