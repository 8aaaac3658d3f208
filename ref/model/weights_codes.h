/* weights_codes.h -- weights that files have as codes of 8 bits and a factor for each block.  weights.c calls these
 * functions. */
#ifndef ORRERY_WEIGHTS_CODES_H
#define ORRERY_WEIGHTS_CODES_H

#include "ref/io/safetensors.h"

/* Rows and columns of a block of NAME; its factors are NAME_scale_inv. */
enum { CODES_BLOCK = 128 };

/** Whether a tensor's numbers are such codes, e4m3. */
bool codes_are(const struct safetensors_entry *);

/**
 * Read a box of a matrix of codes, each times its block's factor, as DeepSeek's fp8 releases have them.
 * @param file, codes            the matrix [rows, cols].
 * @param scale_file, scale      its factors, [rows and cols over CODES_BLOCK, rounded up].
 * @param start, extent          [2] in the matrix.
 * @param want                   a real format; what fp32 cannot hold is rounded once.
 * @param[out] out               [extent...], row-major.
 * @param[out] err               why it failed.
 * @return OK; ERR_FORMAT if the factors have another shape or the tensor is no matrix; ERR_FILE; ERR_MEMORY.
 */
enum error_code codes_read_box(const struct safetensors *file, const struct safetensors_entry *codes,
                               const struct safetensors *scale_file, const struct safetensors_entry *scale,
                               const int64_t start[2], const int64_t extent[2], enum dtype want, void *out,
                               struct error *err);

#endif
