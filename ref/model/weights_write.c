/* weights_write.c -- writes the parameters of a model, as weights.c reads them.  cli/dump.c,
 * model/checkpoint/checkpoint_write.c and model/group_experts.c call these functions.  Errors: ERR_FILE of a file
 * that cannot be written, ERR_MEMORY; the caller then aborts the file (weights_abort). */
#include "ref/model/params.h"
#include "ref/model/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fill_entry(struct weights_writer *writer, int at, const struct param_spec *spec,
                       const struct param_part *part, struct weights_suffix suffix)
{
    snprintf(writer->name[at], sizeof writer->name[at], "%s%s", part->name, suffix.text);
    writer->entry[at] = (struct safetensors_entry){ .name = writer->name[at], .dtype = dtype_file_name(suffix.format) };
    writer->entry[at].ndim = part_shape(spec, part, writer->entry[at].dim);
}

/* A tensor that several parts share has one entry. */
static int entry_of(struct weights_writer *writer, const struct param_spec *spec, const struct param_part *part,
                    struct weights_suffix suffix)
{
    const bool shared = part->items > 0 || part->rows_apart > 1;
    char name[sizeof *writer->name];
    snprintf(name, sizeof name, "%s%s", part->name, suffix.text);
    for (int i = writer->entries - 1; i >= 0 && shared; i--)
        if (strcmp(writer->name[i], name) == 0) return i;
    fill_entry(writer, writer->entries, spec, part, suffix);
    return writer->entries++;
}

enum error_code weights_create(struct weights_writer *writer, const struct param_spec *spec, int n, const char *path,
                               const struct weights_suffix suffix[], int suffixes,
                               const struct safetensors_pair *metadata, int pairs, struct error *err)
{
    const size_t most = (size_t)n * (size_t)suffixes * PARAM_MOST_PARTS + 1;
    *writer = (struct weights_writer){ .spec = spec, .suffixes = suffixes };
    writer->entry = calloc(most, sizeof *writer->entry);
    writer->name = calloc(most, sizeof *writer->name);
    writer->at = calloc(most, sizeof *writer->at);
    if (writer->entry == NULL || writer->name == NULL || writer->at == NULL)
        return fail(err, ERR_MEMORY, "%s: no memory to write it", path);
    for (int i = 0; i < n * suffixes; i++)
        for (int p = 0; p < spec[i].parts; p++)
            writer->at[i * PARAM_MOST_PARTS + p] = entry_of(writer, &spec[i], &spec[i].part[p], suffix[i % suffixes]);
    const enum error_code e = safetensors_create(&writer->writer, path, writer->entry, writer->entries,
                                                 metadata, pairs, err);
    writer->open = !e;
    return e;
}

/* The parts of a parameter are one tensor, or one item of it: put it together as it lies there. */
static enum error_code write_together(struct weights_writer *writer, const struct param_spec *spec, int entry,
                                      const char *data,
                                  struct error *err)
{
    const struct safetensors_entry *t = &writer->entry[entry];
    const int64_t rows = spec->dim[0], cols = spec->ndim == 2 ? spec->dim[1] : 1, start[3] = { spec->part[0].item },
                  extent[3] = { 1, t->dim[1], t->ndim == 3 ? t->dim[2] : 1 };
    const size_t size = (size_t)safetensors_dtype_bits(t->dtype) / 8;
    char *const item = malloc((size_t)(rows * cols) * size + 1);
    if (item == NULL) return fail(err, ERR_MEMORY, "no memory to write %s", t->name);
    for (int p = 0; p < spec->parts; p++)
        for (int64_t i = 0; i < spec->part[p].rows; i++)
            for (int64_t j = 0; j < cols; j++, data += size) {
                const int64_t row = part_row(&spec->part[p], i);
                memcpy(item + (size_t)(spec->file_transposed ? j * rows + row : row * cols + j) * size, data, size);
            }
    const bool whole = spec->part[0].items == 0;
    const enum error_code e = safetensors_write_box(&writer->writer, entry, whole ? NULL : start, whole ? NULL : extent,
                                                    false, item, err);
    free(item);
    return e;
}

enum error_code weights_write(struct weights_writer *writer, int param, int k, const void *data, struct error *err)
{
    const int place = param * writer->suffixes + k, *const at = writer->at + place * PARAM_MOST_PARTS;
    const struct param_spec *s = &writer->spec[place];
    const char *next = data;
    enum error_code e = OK;
    if (s->parts > 0 && (s->part[0].items > 0 || s->part[0].rows_apart > 1))
        return write_together(writer, s, at[0], data, err);
    for (int p = 0; p < s->parts && !e; p++) {
        const int bits = safetensors_dtype_bits(writer->entry[at[p]].dtype);
        e = safetensors_write_box(&writer->writer, at[p], NULL, NULL, s->file_transposed, next, err);
        next += s->part[p].rows * (s->ndim == 2 ? s->dim[1] : 1) * (bits / 8);
    }
    return e;
}

enum error_code weights_write_bias(struct weights_writer *writer, int param, const double *bias, int64_t n,
                                   enum dtype dtype, struct error *err)
{
    const struct tensor out = tensor_1d(malloc((size_t)n * dtype_size(dtype)), dtype, n);
    if (out.data == NULL) return fail(err, ERR_MEMORY, "no memory to write %s", writer->spec[param].name);
    for (int64_t i = 0; i < n; i++) tensor_set(out, i, bias[i]);
    const enum error_code e = weights_write(writer, param, 0, out.data, err);
    free(out.data);
    return e;
}

enum error_code weights_commit(struct weights_writer *writer, struct error *err)
{
    writer->open = false;
    return safetensors_commit(&writer->writer, err);
}

void weights_abort(struct weights_writer *writer)
{
    if (writer->open) safetensors_abort(&writer->writer);
    free(writer->entry), free(writer->name), free(writer->at);
    *writer = (struct weights_writer){ 0 };
}

enum error_code weights_save(const struct transformer *model, const char *dir, struct error *err)
{
    const struct weights_suffix alone = { "", model->ops->dtype };
    static const struct safetensors_pair format = { "format", "pt" };
    struct weights_writer w;
    char path[4096];
    const int L = (int)model->config.L;
    struct param_spec *spec = malloc((size_t)(model->params + L) * sizeof *spec);
    if (spec == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d weights", model->params);
    memcpy(spec, model->spec, (size_t)model->params * sizeof *spec);
    for (int l = 0; l < L; l++) spec[model->params + l] = model_router_bias(&model->config, l);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    enum error_code e = weights_create(&w, spec, model->params + L, path, &alone, 1, &format, 1, err);
    for (int i = 0; i < model->params && !e; i++) e = weights_write(&w, i, 0, model->w[i].data, err);
    for (int l = 0; l < L && !e; l++) {
        const int64_t n = spec[model->params + l].dim[0];
        const double *bias = model->router_bias + l * n;
        if (n > 0) e = weights_write_bias(&w, model->params + l, bias, n, model->ops->dtype, err);
    }
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (!e) e = model_config_write(&model->config, path, err);
    if (!e) e = weights_commit(&w, err);
    weights_abort(&w);
    free(spec);
    return e;
}
