/* weights_codes.c -- reads a box of an fp8 matrix, and multiplies codes by the factors of their blocks.
 * ref/model/weights.c calls for tensors with the type F8_E4M3.  The output is a matrix of the extent in the wanted
 * format.  A tensor or its factors with a wrong shape are ERR_FORMAT; without memory the code is ERR_MEMORY. */
#include "ref/model/weights_codes.h"
#include "ref/numeric/tensor.h"
#include <stdlib.h>
#include <string.h>

bool codes_are(const struct safetensors_entry *entry) { return strcmp(entry->dtype, "F8_E4M3") == 0; }

static int64_t blocks(int64_t n) { return (n + CODES_BLOCK - 1) / CODES_BLOCK; }

static enum error_code check_scale(const struct safetensors_entry *codes, const struct safetensors *scale_file,
                                   const struct safetensors_entry *scale, struct error *err)
{
    if (codes->ndim != 2)
        return fail(err, ERR_FORMAT, "%s: %s has fp8 codes, but is no matrix", printable_path(scale_file->path).text,
                    printable(codes->name).text);
    const int64_t rows = blocks(codes->dim[0]), cols = blocks(codes->dim[1]);
    if (scale->ndim == 2 && scale->dim[0] == rows && scale->dim[1] == cols) return OK;
    return fail(err, ERR_FORMAT, "%s: %s must be %lld x %lld, a factor for each block of %d x %d",
                printable_path(scale_file->path).text, printable(scale->name).text, (long long)rows, (long long)cols,
                CODES_BLOCK, CODES_BLOCK);
}

enum error_code codes_read_box(const struct safetensors *file, const struct safetensors_entry *codes,
                               const struct safetensors *scale_file, const struct safetensors_entry *scale,
                               const int64_t start[2], const int64_t extent[2], enum dtype want, void *out,
                               struct error *err)
{
    enum error_code e = check_scale(codes, scale_file, scale, err);
    if (e) return e;
    double *factor = malloc((size_t)scale->count * sizeof *factor + 1),
           *x = malloc((size_t)(extent[0] * extent[1]) * sizeof *x + 1);
    if (factor == NULL || x == NULL) e = fail(err, ERR_MEMORY, "no memory to read %s", printable(codes->name).text);
    if (!e) e = safetensors_read(scale_file, scale, F64, factor, err);
    if (!e) e = safetensors_read_box(file, codes, start, extent, false, F64, x, err);
    const struct tensor to = tensor_2d(out, want, extent[0], extent[1]);
    for (int64_t i = 0; i < extent[0] * extent[1] && !e; i++) {
        /* x = code times the factor of its 128 x 128 block. */
        const int64_t r = (start[0] + i / extent[1]) / CODES_BLOCK, c = (start[1] + i % extent[1]) / CODES_BLOCK;
        tensor_set(to, i, x[i] * factor[r * scale->dim[1] + c]);
    }
    free(factor), free(x);
    return e;
}
