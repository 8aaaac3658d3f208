/* safetensors_box.c -- walks over the runs of a box, and reads them with conversion.
 *
 * safetensors_read and safetensors_write.c call this file.  Errors are ERR_USAGE for a box outside the tensor,
 * ERR_FORMAT for a dtype that cannot be converted, and those of reading.
 */
#include "ref/io/safetensors_box.h"
#include "ref/numeric/float8.h"
#include "ref/numeric/tensor.h"
#include <string.h>

/* ---- formats ----------------------------------------------------------------------------------------------------- */

/* Every dtype of the file format; `least`: our smallest dtype that it converts to, DTYPE_COUNT if none. */
static const struct format { const char *name; int bits; enum dtype least; } formats[] = {
    /* Conversions to narrower formats round. */
    { "F64", 64, F32 }, { "F32", 32, F32 }, { "F16", 16, F32 }, { "BF16", 16, F32 },
    { "I64", 64, I64 }, { "I32", 32, I32 }, { "I16", 16, I32 }, { "I8", 8, I32 },
    { "U64", 64, DTYPE_COUNT }, { "U32", 32, I64 }, { "U16", 16, I32 }, { "U8", 8, U8 }, { "BOOL", 8, U8 },
    { "F8_E4M3", 8, F32 }, { "F8_E5M2", 8, DTYPE_COUNT }, { "F8_E8M0", 8, DTYPE_COUNT },
    { "F8_E4M3FNUZ", 8, DTYPE_COUNT }, { "F8_E5M2FNUZ", 8, DTYPE_COUNT },
    { "F6_E2M3", 6, DTYPE_COUNT }, { "F6_E3M2", 6, DTYPE_COUNT }, { "F4", 4, DTYPE_COUNT }, { "C64", 64, DTYPE_COUNT },
};

static const struct format *find_format(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}

int safetensors_dtype_bits(const char *dtype)
{
    const struct format *f = find_format(dtype);
    return f != NULL ? f->bits : 0;
}

/* Count elements and bytes of a shape; the result is what is wrong with it, or NULL. */
const char *entry_measure(struct safetensors_entry *entry)
{
    const int bits = safetensors_dtype_bits(entry->dtype);
    if (bits == 0) return "has a dtype that the format does not know";
    if (entry->ndim < 0 || entry->ndim > SAFETENSORS_MAX_DIMS) return "has more than 8 dimensions";
    entry->count = 1;
    for (int d = 0; d < entry->ndim; d++) {
        if (entry->dim[d] < 0) return "has a negative dimension";
        if (entry->dim[d] > 0 && entry->count > INT64_MAX / 64 / entry->dim[d])
            return "has a shape whose size overflows";
        entry->count *= entry->dim[d];
    }
    if (entry->count * bits % 8 != 0) return "does not fill whole bytes";
    entry->bytes = entry->count * bits / 8;
    return NULL;
}

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

/* start and extent are in the caller's order; for a transposed matrix they are exchanged first. */
enum error_code box_open(struct box *box, const char *path, const struct safetensors_entry *entry, const int64_t *start,
                         const int64_t *extent, bool transposed, struct error *err)
{
    *box = (struct box){ .ndim = entry->ndim };
    if (transposed && entry->ndim != 2)
        return fail(err, ERR_USAGE, "%s: tensor \"%s\" has %d dimensions; only a matrix can be transposed",
                    printable_path(path).text, printable(entry->name).text, entry->ndim);
    for (int d = 0; d < entry->ndim; d++) {
        const int asked = transposed ? 1 - d : d;
        box->dim[d] = entry->dim[d];
        box->start[d] = start != NULL ? start[asked] : 0;
        box->extent[d] = extent != NULL ? extent[asked] : entry->dim[d];
        if (box->start[d] < 0 || box->extent[d] < 0 || box->start[d] > box->dim[d]
            || box->extent[d] > box->dim[d] - box->start[d])
            return fail(err, ERR_USAGE, "%s: tensor \"%s\": %lld elements from %lld are outside dimension %d, of %lld",
                        printable_path(path).text, printable(entry->name).text, (long long)box->extent[d],
                        (long long)box->start[d], d, (long long)box->dim[d]);
        if (box->extent[d] == 0) box->done = true;
    }
    if (box->done) return OK;                             /* empty box: the other extents may have any size */
    box->run = (struct run){ .count = 1, .stride = transposed ? box->extent[0] : 1 };
    /* A run covers the last dimension; if the box has all of it, also the dimension before, and so on. */
    box->outer = box->ndim;
    bool whole = true;
    while (box->outer > 0 && whole) {
        box->outer--;
        box->run.count *= box->extent[box->outer];
        whole = !transposed && box->extent[box->outer] == box->dim[box->outer];
    }
    return OK;
}

/* The index counts on like an odometer over the outer dimensions; each count is one run. */
bool box_next(struct box *box)
{
    if (box->done) return false;
    int64_t file_at = 0, number = 0;
    for (int d = 0; d < box->ndim; d++) {
        file_at = file_at * box->dim[d] + box->start[d] + box->at[d];
        if (d < box->outer) number = number * box->extent[d] + box->at[d];
    }
    box->run.file_at = file_at;
    /* Runs of a transposed box are columns in memory, so run `number` begins at element `number`. */
    box->run.memory_at = box->run.stride == 1 ? number * box->run.count : number;
    int d = box->outer - 1;
    while (d >= 0 && ++box->at[d] == box->extent[d]) box->at[d--] = 0;
    box->done = d < 0;
    return true;
}

/* ---- conversion -------------------------------------------------------------------------------------------------- */

enum { CHUNK = 4096 };                                  /* elements converted at a time */

/* The loop of one format; v is the element as stored in the file. */
#define DECODE(type, value)                                             \
    for (int i = 0; i < n; i++) {                                       \
        type v;                                                         \
        memcpy(&v, (const char *)raw + (size_t)i * sizeof v, sizeof v); \
        out[i] = value;                                                 \
    }                                                                   \
    return

static void decode_reals(const char *dtype, const void *raw, int n, double *out)
{
    if (strcmp(dtype, "F64") == 0) { DECODE(double, v); }
    if (strcmp(dtype, "F32") == 0) { DECODE(float, v); }
    if (strcmp(dtype, "F16") == 0) { DECODE(uint16_t, fp16_to_double(v)); }
    if (strcmp(dtype, "F8_E4M3") == 0) { DECODE(uint8_t, e4m3_to_double(v)); }
    DECODE(uint16_t, bf16_to_double(v));
}

static void decode_integers(const char *dtype, const void *raw, int n, int64_t *out)
{
    if (strcmp(dtype, "I64") == 0) { DECODE(int64_t, v); }
    if (strcmp(dtype, "I32") == 0) { DECODE(int32_t, v); }
    if (strcmp(dtype, "U32") == 0) { DECODE(uint32_t, v); }
    if (strcmp(dtype, "I16") == 0) { DECODE(int16_t, v); }
    if (strcmp(dtype, "U16") == 0) { DECODE(uint16_t, v); }
    if (strcmp(dtype, "I8") == 0)  { DECODE(int8_t, v); }
    if (strcmp(dtype, "U8") == 0)  { DECODE(uint8_t, v); }
    DECODE(uint8_t, v != 0);                            /* BOOL */
}

/* Convert n elements into out[at], out[at + stride], ... */
static void convert_numbers(const struct format *from, enum dtype want, const void *raw, int n, void *out, int64_t at,
                    int64_t stride)
{
    double real[CHUNK];
    int64_t whole[CHUNK];
    if (want == F64 && stride == 1) {
        decode_reals(from->name, raw, n, (double *)out + at);
        return;
    }
    const struct tensor to = tensor_1d(out, want, at + n * stride);
    if (dtype_unit(want) > 0) decode_reals(from->name, raw, n, real);
    else decode_integers(from->name, raw, n, whole);
    for (int i = 0; i < n; i++, at += stride) {
        if (dtype_unit(want) > 0) tensor_set(to, at, real[i]);
        else if (want == I64) ((int64_t *)out)[at] = whole[i];
        else if (want == I32) ((int32_t *)out)[at] = (int32_t)whole[i];
        else ((uint8_t *)out)[at] = (uint8_t)whole[i];
    }
}

/* A format converts to any real format, or to whole numbers that hold all its values. */
static bool converts(const struct format *from, enum dtype want)
{
    if (strcmp(from->name, dtype_file_name(want)) == 0) return true;
    if (dtype_unit(want) > 0) return from->least == F32;
    if (want == I64) return from->least == I64 || from->least == I32 || from->least == U8;
    if (want == I32) return from->least == I32 || from->least == U8;
    return want == U8 && from->least == U8;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A piece of CHUNK elements is read and converted at a time. */
static enum error_code read_run(const struct safetensors *st, const struct safetensors_entry *entry, struct run run,
                                const struct format *from, enum dtype want, void *out, struct error *err)
{
    const size_t size = (size_t)from->bits / 8;
    int64_t at = entry->offset + run.file_at * (int64_t)size;
    /* Numbers that need no conversion are read straight to their place. */
    if (run.stride == 1 && strcmp(from->name, dtype_file_name(want)) == 0)
        return file_read_at(st->fd, st->path, (char *)out + (size_t)run.memory_at * size, (size_t)run.count * size, at,
                            err);
    char raw[CHUNK * 8];
    for (int64_t done = 0; done < run.count; done += CHUNK) {
        const int n = run.count - done < CHUNK ? (int)(run.count - done) : CHUNK;
        const enum error_code e = file_read_at(st->fd, st->path, raw, (size_t)n * size, at, err);
        if (e != OK) return e;
        convert_numbers(from, want, raw, n, out, run.memory_at + done * run.stride, run.stride);
        at += n * (int64_t)size;
    }
    return OK;
}

enum error_code safetensors_read_box(const struct safetensors *st, const struct safetensors_entry *entry,
                                     const int64_t *start, const int64_t *extent, bool transposed, enum dtype want,
                                     void *out, struct error *err)
{
    struct box box;
    const struct format *from = find_format(entry->dtype);
    if (!converts(from, want))
        return fail(err, ERR_FORMAT, "%s: tensor \"%s\" has dtype %s, which cannot be read as %s",
                    printable_path(st->path).text, printable(entry->name).text, entry->dtype, dtype_name(want));
    enum error_code e = box_open(&box, st->path, entry, start, extent, transposed, err);
    while (e == OK && box_next(&box)) e = read_run(st, entry, box.run, from, want, out, err);
    return e;
}

enum error_code safetensors_read(const struct safetensors *st, const struct safetensors_entry *entry, enum dtype want,
                                 void *out, struct error *err)
{
    return safetensors_read_box(st, entry, NULL, NULL, false, want, out, err);
}
