/* weights_write.c -- writing what weights.c reads. */
#include "ref/model/weights.h"
#include <stdio.h>
#include <stdlib.h>

static void fill_entry(struct weights_writer *w, int at, const struct param_spec *s, const struct param_part *part,
                       const char *suffix, enum dtype t)
{
    snprintf(w->name[at], sizeof w->name[at], "%s%s", part->name, suffix);
    w->entry[at] = (struct safetensors_entry){
        .name = w->name[at], .dtype = dtype_file_name(t), .ndim = s->ndim, .dim = { part->rows, s->dim[1] }
    };
    if (s->file_transposed) w->entry[at].dim[0] = s->dim[1], w->entry[at].dim[1] = part->rows;
}

enum error_code weights_create(struct weights_writer *w, const struct param_spec *spec, int n, enum dtype t,
                               const char *path, const char *const suffix[], int suffixes,
                               const struct safetensors_pair *metadata, int pairs, struct error *err)
{
    const size_t most = (size_t)n * (size_t)suffixes * PARAM_MOST_PARTS + 1;
    *w = (struct weights_writer){ .spec = spec, .suffixes = suffixes };
    w->entry = calloc(most, sizeof *w->entry);
    w->name = calloc(most, sizeof *w->name);
    w->first = calloc(most, sizeof *w->first);
    if (w->entry == NULL || w->name == NULL || w->first == NULL)
        return fail(err, ERR_MEMORY, "%s: no memory to write it", path);
    for (int i = 0; i < n * suffixes; i++) {
        w->first[i] = w->entries;
        for (int p = 0; p < spec[i].parts; p++)
            fill_entry(w, w->entries++, &spec[i], &spec[i].part[p], suffix[i % suffixes], t);
    }
    const enum error_code e = safetensors_create(&w->writer, path, w->entry, w->entries, metadata, pairs, err);
    w->open = !e;
    return e;
}

enum error_code weights_write(struct weights_writer *w, int param, int k, const void *data, struct error *err)
{
    const struct param_spec *s = &w->spec[param * w->suffixes + k];
    const int first = w->first[param * w->suffixes + k];
    const char *next = data;
    enum error_code e = OK;
    for (int p = 0; p < s->parts && !e; p++) {
        const int bits = safetensors_dtype_bits(w->entry[first + p].dtype);
        e = safetensors_write_box(&w->writer, first + p, NULL, NULL, s->file_transposed, next, err);
        next += s->part[p].rows * (s->ndim == 2 ? s->dim[1] : 1) * (bits / 8);
    }
    return e;
}

enum error_code weights_commit(struct weights_writer *w, struct error *err)
{
    w->open = false;
    return safetensors_commit(&w->writer, err);
}

void weights_abort(struct weights_writer *w)
{
    if (w->open) safetensors_abort(&w->writer);
    free(w->entry), free(w->name), free(w->first);
    *w = (struct weights_writer){ 0 };
}

enum error_code weights_save(const struct transformer *m, const char *dir, struct error *err)
{
    static const char *const weights_alone[] = { "" };
    static const struct safetensors_pair format = { "format", "pt" };
    struct weights_writer w;
    char path[4096];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    enum error_code e = weights_create(&w, m->spec, m->params, m->ops->dtype, path, weights_alone, 1, &format, 1, err);
    for (int i = 0; i < m->params && !e; i++) e = weights_write(&w, i, 0, m->w[i].data, err);
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (!e) e = model_config_write(&m->config, path, err);
    if (!e) e = weights_commit(&w, err);
    weights_abort(&w);
    return e;
}
