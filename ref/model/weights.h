/* weights.h -- a model's parameters in safetensors files, with the names and tensors of Hugging Face transformers.
 *
 * The weights are in one file, or in several with an index (model.safetensors.index.json), in F64, F32, BF16 or F16.  A
 * logical parameter may be several tensors (param_spec.part), or a part of one; GPT-2's matrices are stored transposed.
 * Matrices of GPTQ and AWQ are read, too (weights_packed.h).
 * Other tensors in the files are ignored.  A suffix, such as ".exp_avg", names an optimizer's state of each tensor.
 * Files of model/, ref/golden/, cli/ and ref/model/ call these functions.
 */
#ifndef ORRERY_WEIGHTS_H
#define ORRERY_WEIGHTS_H

#include "ref/io/safetensors.h"
#include "ref/model/param.h"
#include "ref/model/transformer.h"
#include "ref/model/weights_packed.h"

/** The shape of the tensor in files that has a part.  @return the number of dimensions. */
int part_shape(const struct param_spec *, const struct param_part *, int64_t dim[3]);

struct weights {
    int files;                          /* open files of tensors */
    struct safetensors *file;           /* [files] */
    struct cJSON *index;                /* maps names to files; NULL if there is one file */
    char *dir;                          /* the folder, for messages */
    struct packed_form packed;          /* of matrices that are packed integers */
};

/** Open DIR/model.safetensors or, if it does not exist, the files of DIR/model.safetensors.index.json.
 *  @return OK; ERR_FILE; ERR_FORMAT, also for weights in another format or as codes that are not read; ERR_MEMORY.
 *          After a failure there is nothing to close. */
enum error_code weights_open(struct weights *, const char *dir, struct error *);

/** Open one file.  @return as weights_open. */
enum error_code weights_open_file(struct weights *, const char *path, struct error *);
void weights_close(struct weights *);

/** Whether files have a tensor of this name. */
bool weights_have(const struct weights *, const char *name);

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
 * Check files of a config that ties the output matrix to the embedding: if both are there, they must be equal.  If they
 * differ, transformers 5 unties the model; older versions drop one matrix.
 * @return OK, also if nothing is tied or only one is there; ERR_FORMAT with the first row that differs; or as
 *         weights_read_box.
 */
enum error_code weights_check_tied(const struct weights *, const struct model_config *, struct error *);

/** Read the correction biases of a model's routers, if files of its family have them.
 *  @param[out] bias  [L, columns of a router].  @return as weights_read_box. */
enum error_code weights_read_biases(const struct weights *, const struct model_config *, double *bias, struct error *);

/** Read all weights into a serial model.  @return as weights_read_box. */
enum error_code weights_read(struct transformer *, const struct weights *, struct error *);

/** Open a folder's weights, and read them.  @return as weights_open and weights_read_box. */
enum error_code weights_load(struct transformer *, const char *dir, struct error *);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

struct weights_writer {
    const struct param_spec *spec;      /* [n] parameters of the model; the caller's */
    struct safetensors_writer writer;   /* the file that is being written */
    int suffixes, entries;              /* tensors of a parameter in the file; tensors of the file */
    struct safetensors_entry *entry;    /* [entries] in the order in which `at` names them */
    int *at;                            /* [n * suffixes * PARAM_MOST_PARTS] entries of parameter i, suffix s, part p;
                                         * several parts can be in one */
    char (*name)[2 * PARAM_NAME];       /* [entries] memory for the names in `entry` */
    bool open;                          /* the file exists and must be committed or aborted */
};

/* A file has a tensor of this format for each parameter; the tensor's name ends with the text. */
struct weights_suffix { const char *text; enum dtype format; };

/**
 * Start a file with every parameter and each suffix.
 * @param spec      [n * suffixes] spec[i * suffixes + s] is parameter i under suffix s; one without parts is left out.
 *                  Must outlive the writer.
 * @param metadata  [pairs]
 * @return as safetensors_create; call weights_abort after a failure, too.
 */
enum error_code weights_create(struct weights_writer *, const struct param_spec *spec, int n, const char *path,
                               const struct weights_suffix suffix[], int suffixes,
                               const struct safetensors_pair *metadata, int pairs, struct error *);

/** Write a whole logical parameter, or its state of suffix s.  @return as safetensors_write_box. */
enum error_code weights_write(struct weights_writer *, int param, int s, const void *data, struct error *);

/** Write the correction bias of a router, as t, the format of the file.  @return as weights_write; ERR_MEMORY. */
enum error_code weights_write_bias(struct weights_writer *, int param, const double *bias, int64_t n, enum dtype dtype,
                                   struct error *);

/** Finish the file under its final name.  @return as safetensors_commit. */
enum error_code weights_commit(struct weights_writer *, struct error *);

/** Discard what was not committed, and free the writer.  Always the last call. */
void weights_abort(struct weights_writer *);

/** Write DIR/config.json and DIR/model.safetensors of a serial model; the folder must exist.
 *  @return OK or the first failure. */
enum error_code weights_save(const struct transformer *, const char *dir, struct error *);

#endif
