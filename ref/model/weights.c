/* weights.c -- reads the parameters of a model from safetensors files, one or several.  Files of ref/golden/,
 * model/checkpoint/, model/ and ref/model/ call these functions.  ERR_FORMAT names the tensor that is missing or has
 * another shape; ERR_FILE, ERR_MEMORY. */
#include "ref/model/weights.h"
#include "ref/model/params.h"
#include "ref/model/weights_codes.h"
#include "ref/model/weights_others.h"
#include "ref/io/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

/* ---- files ------------------------------------------------------------------------------------------------------- */

enum error_code weights_open_file(struct weights *weights, const char *path, struct error *err)
{
    *weights = (struct weights){ .file = calloc(1, sizeof *weights->file) };
    if (weights->file == NULL) return fail(err, ERR_MEMORY, "%s: no memory to open it", printable_path(path).text);
    const enum error_code e = safetensors_open(&weights->file[0], path, err);
    weights->files = !e;
    if (e) weights_close(weights);
    return e;
}

/* The file of this name among the open ones, or NULL. */
static struct safetensors *opened(const struct weights *weights, const char *name)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/%s", weights->dir, name);
    for (int i = 0; i < weights->files; i++)
        if (strcmp(weights->file[i].path, path) == 0) return &weights->file[i];
    return NULL;
}

/* A file name in the index must be a file in the same folder. */
static enum error_code open_listed(struct weights *weights, const char *index, const cJSON *entry, struct error *err)
{
    char path[PATH_ROOM];
    const char *name = cJSON_IsString(entry) ? entry->valuestring : "";
    if (name[0] == '\0' || strchr(name, '/') || strlen(name) > 255)
        return fail(err, ERR_FORMAT, "%s: weight_map: \"%s\" must be in a file of this folder",
                    printable_path(index).text, printable(entry->string).text);
    if (opened(weights, name)) return OK;
    struct safetensors *more = realloc(weights->file, (size_t)(weights->files + 1) * sizeof *more);
    if (more == NULL) return fail(err, ERR_MEMORY, "%s: no memory to open its files", printable_path(index).text);
    weights->file = more;
    snprintf(path, sizeof path, "%s/%s", weights->dir, name);
    const enum error_code e = safetensors_open(&weights->file[weights->files], path, err);
    weights->files += !e;
    return e;
}

static enum error_code open_index(struct weights *weights, const char *dir, const char *path, struct error *err)
{
    const cJSON *map;
    *weights = (struct weights){ .dir = strdup(dir) };
    enum error_code e = weights->dir ? json_read(path, &weights->index, err)
                               : fail(err, ERR_MEMORY, "%s: no memory to open it", printable_path(path).text);
    if (!e) e = json_object(weights->index, path, "weight_map", &map, err);
    for (const cJSON *c = e ? NULL : map->child; c && !e; c = c->next) e = open_listed(weights, path, c, err);
    if (!e && weights->files == 0)
        e = fail(err, ERR_FORMAT, "%s: weight_map: names no tensor and no file", printable_path(path).text);
    if (e) weights_close(weights);
    return e;
}

enum error_code weights_open(struct weights *weights, const char *dir, struct error *err)
{
    char one[PATH_ROOM], index[PATH_ROOM];
    *weights = (struct weights){ 0 };
    if (strlen(dir) > PATH_ROOM - 300)
        return fail(err, ERR_FILE, "%s: this name is too long", printable_path(dir).text);
    snprintf(one, sizeof one, "%s/model.safetensors", dir);
    snprintf(index, sizeof index, "%s/model.safetensors.index.json", dir);
    const bool whole = access(one, F_OK) == 0, parts = access(index, F_OK) == 0;
    struct packed_form packed = { .kind = PACKED_NONE };
    enum error_code e = others_refuse_codes(dir, &packed, err);
    if (!e && !whole && !parts) e = others_refuse(dir, "model.safetensors", err);
    if (e) return e;
    e = whole || !parts ? weights_open_file(weights, one, err) : open_index(weights, dir, index, err);
    if (!e) weights->packed = packed;
    return e;
}

void weights_close(struct weights *weights)
{
    for (int i = 0; i < weights->files; i++) safetensors_close(&weights->file[i]);
    cJSON_Delete(weights->index);
    free(weights->file), free(weights->dir);
    *weights = (struct weights){ 0 };
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

int part_shape(const struct param_spec *spec, const struct param_part *part, int64_t dim[3])
{
    const int64_t rows = part->rows * part->rows_apart;
    int n = 0;
    if (part->items > 0) dim[n++] = part->items;
    if (spec->file_transposed) dim[n++] = spec->dim[1];
    dim[n++] = rows;
    if (spec->ndim == 2 && !spec->file_transposed) dim[n++] = spec->dim[1];
    return n;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static const struct safetensors_entry *find_exactly(const struct weights *weights, const char *name,
                                                    const struct safetensors **in)
{
    *in = weights->files > 0 ? &weights->file[0] : NULL;
    if (weights->index) {
        const cJSON *entry =
            cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(weights->index, "weight_map"), name);
        *in = entry ? opened(weights, entry->valuestring) : NULL;
    }
    return *in ? safetensors_find(*in, name) : NULL;
}

/* Files of a model without its head omit the prefix "model.", "transformer." or "gpt_neox." of all names. */
static const struct safetensors_entry *weights_find(const struct weights *weights, const char *name,
                                                    const struct safetensors **in)
{
    const struct safetensors_entry *e = find_exactly(weights, name, in);
    const char *dot = strchr(name, '.');
    const bool prefixed = dot && (strncmp(name, "model.", 6) == 0 || strncmp(name, "transformer.", 12) == 0
                                  || strncmp(name, "gpt_neox.", 9) == 0);
    return e || !prefixed ? e : find_exactly(weights, dot + 1, in);
}

bool weights_have(const struct weights *weights, const char *name)
{
    const struct safetensors *file;
    return weights_find(weights, name, &file) != NULL;
}

struct shape_text { char text[96]; };

static struct shape_text shape_text(int ndim, const int64_t dim[])
{
    struct shape_text t = { "a scalar" };
    for (int d = 0, used = 0; d < ndim && d < 4; d++)
        used += snprintf(t.text + used, sizeof t.text - (size_t)used, d < 3 ? "%s%lld" : "%s...", d ? " x " : "",
                         (long long)dim[d]);
    return t;
}

/* Check for the same shape, or its transpose where files store that; of several of these, one behind the other. */
static enum error_code check_shape(const struct safetensors *file, const struct safetensors_entry *entry,
                                   const struct param_spec *spec, const struct param_part *part, struct error *err)
{
    int64_t dim[3];
    const int ndim = part_shape(spec, part, dim);
    if (entry->ndim == ndim && memcmp(entry->dim, dim, (size_t)ndim * sizeof *dim) == 0) return OK;
    return fail(err, ERR_FORMAT, "%s: %s is %s; the model needs %s", printable_path(file->path).text,
                printable(entry->name).text, shape_text(entry->ndim, entry->dim).text, shape_text(ndim, dim).text);
}

/* Item i of the first dimension, as a tensor of its own. */
static struct safetensors_entry item_of(const struct safetensors_entry *all, int64_t i)
{
    struct safetensors_entry e = *all;
    e.ndim--;
    memmove(e.dim, e.dim + 1, (size_t)e.ndim * sizeof *e.dim);
    e.count /= all->dim[0], e.bytes /= all->dim[0], e.offset += i * e.bytes;
    return e;
}

/* Rows that lie apart: all turns of groups that they are in are read. */
static enum error_code read_apart(const struct safetensors *file, const struct safetensors_entry *entry,
                                  const struct param_spec *spec, const struct param_part *part, const int64_t start[2],
                                  const int64_t extent[2], enum dtype want, void *out, struct error *err)
{
    const int64_t group = part_group(part), turn = group * part->rows_apart, first = start[0] / group,
                  end = (start[0] + extent[0] + group - 1) / group, from[2] = { turn * first, start[1] },
                  all[2] = { turn * (end - first), extent[1] };
    const size_t row = (size_t)(spec->ndim == 2 ? extent[1] : 1) * dtype_size(want);
    char *const rows = malloc((size_t)all[0] * row + 1);
    if (rows == NULL) return fail(err, ERR_MEMORY, "no memory to read %s", part->name);
    const enum error_code e = safetensors_read_box(file, entry, from, all, spec->file_transposed, want, rows, err);
    for (int64_t i = 0; i < extent[0] && !e; i++)
        memcpy((char *)out + (size_t)i * row, rows + (size_t)(part_row(part, start[0] + i) - from[0]) * row, row);
    free(rows);
    return e;
}

/* Say that a tensor is there under a wrapper's name.  OK: it is not. */
static enum error_code refuse_wrapped(const struct weights *weights, const char *name, struct error *err)
{
    for (int f = 0; f < weights->files; f++)
        for (int i = 0; i < weights->file[f].count; i++) {
            const char *const entry = weights->file[f].entry[i].name;
            const struct wrapper *const w = others_wrapper(entry, name);
            if (w)
                return fail(err, ERR_FORMAT, "%s: %.100s has \"%s\" in its name, for %s; %s: %s",
                            printable_path(weights->file[f].path).text, printable(entry).text, w->part, name, w->what,
                            w->cure);
        }
    return OK;
}

/* Files of codes have two tensors in place of one. */
static enum error_code fail_missing(const struct weights *weights, const char *name, struct error *err)
{
    const struct printable where = printable_path(weights->index ? weights->dir : weights->file[0].path);
    const struct safetensors *file;
    char codes[3 * PARAM_NAME];
    snprintf(codes, sizeof codes, "%s_blocks", name);
    if (weights_find(weights, codes, &file) != NULL)
        return fail(err, ERR_FORMAT, "%s: in place of %s there are MXFP4 codes, %s; Orrery reads numbers: load the "
                    "model dequantised with transformers, and save it", where.text, name, codes);
    const enum error_code e = refuse_wrapped(weights, name, err);
    return e ? e : fail(err, ERR_FORMAT, "%s: there is no tensor %s%s", where.text, name,
                        weights->index ? " in the files of its index" : "");
}

/* fp8 codes: NAME_scale_inv has their factors. */
static enum error_code read_codes(const struct weights *weights, const struct safetensors *file,
                                  const struct safetensors_entry *entry, const struct param_spec *spec,
                                  const struct param_part *part, const int64_t start[2], const int64_t extent[2],
                                  enum dtype want, void *out, struct error *err)
{
    const struct safetensors *scale_file;
    char name[2 * PARAM_NAME + 16];
    snprintf(name, sizeof name, "%s_scale_inv", part->name);
    const struct safetensors_entry *scale = weights_find(weights, name, &scale_file);
    if (scale == NULL)
        return fail(err, ERR_FORMAT, "%s: %s has fp8 codes, but there is no tensor %s with their factors",
                    printable_path(file->path).text, printable(entry->name).text, name);
    if (part->items > 0 || part->rows_apart > 1 || spec->file_transposed)
        return fail(err, ERR_FORMAT, "%s: %s has fp8 codes, but it is several matrices or a transposed one; load the "
                    "model dequantised with transformers, and save it", printable_path(file->path).text,
                    printable(entry->name).text);
    return codes_read_box(file, entry, scale_file, scale, start, extent, want, out, err);
}

/* A tensor beside a matrix: "X.scales" of X.weight. */
static struct packed_tensor find_beside(const struct weights *weights, const struct param_part *part, const char *kind)
{
    struct packed_tensor t;
    char name[2 * PARAM_NAME + 16];
    const size_t n = strlen(part->name), end = strlen(".weight");
    const bool matrix = n > end && strcmp(part->name + n - end, ".weight") == 0;
    snprintf(name, sizeof name, "%.*s.%s", (int)(matrix ? n - end : 0), part->name, kind);
    t.entry = matrix ? weights_find(weights, name, &t.file) : NULL;
    return t;
}

/* Integers of GPTQ or AWQ in place of a matrix.  @return false: there are none. */
static bool packed_in_place(const struct weights *weights, const struct param_spec *spec, const struct param_part *part,
                            const char *suffix, struct packed_matrix *matrix)
{
    if (weights->packed.kind == PACKED_NONE || suffix[0] != '\0' || spec->ndim != 2) return false;
    *matrix = (struct packed_matrix){ .form = weights->packed, .N = part->rows * part->rows_apart, .K = spec->dim[1],
                                      .q = find_beside(weights, part, "qweight"),
                                      .zeros = find_beside(weights, part, "qzeros"),
                                      .scales = find_beside(weights, part, "scales"),
                                      .index = find_beside(weights, part, "g_idx") };
    return matrix->q.entry != NULL;
}

static enum error_code read_packed(const struct packed_matrix *matrix, const struct param_part *part,
                                   const int64_t start[2], const int64_t extent[2], enum dtype want, void *out,
                                   struct error *err)
{
    if (part->items == 0 && part->rows_apart == 1) return packed_read_box(matrix, start, extent, want, out, err);
    return fail(err, ERR_FORMAT, "%s: %s has packed integers, but several matrices are in it; load the model "
                "dequantised with transformers, and save it", printable_path(matrix->q.file->path).text,
                printable(matrix->q.entry->name).text);
}

/* Read rows start[0] .. of one part; out has room for these rows only. */
static enum error_code read_part(const struct weights *weights, const struct param_spec *spec,
                                 const struct param_part *part,
                                 const char *suffix, const int64_t start[2], const int64_t extent[2], enum dtype want,
                                 void *out, struct error *err)
{
    char name[2 * PARAM_NAME];
    const struct safetensors *file;
    snprintf(name, sizeof name, "%s%s", part->name, suffix);
    const struct safetensors_entry *entry = weights_find(weights, name, &file);
    struct packed_matrix packed;
    if (entry == NULL && packed_in_place(weights, spec, part, suffix, &packed))
        return read_packed(&packed, part, start, extent, want, out, err);
    if (entry == NULL) return fail_missing(weights, name, err);
    const enum error_code e = check_shape(file, entry, spec, part, err);
    if (e) return e;
    if (codes_are(entry)) return read_codes(weights, file, entry, spec, part, start, extent, want, out, err);
    const struct safetensors_entry own = part->items > 0 ? item_of(entry, part->item) : *entry;
    if (part->rows_apart > 1) return read_apart(file, &own, spec, part, start, extent, want, out, err);
    return safetensors_read_box(file, &own, start, extent, spec->file_transposed, want, out, err);
}

enum error_code weights_read_box(const struct weights *weights, const struct param_spec *spec, const char *suffix,
                                 const int64_t *start, const int64_t *extent, enum dtype want, void *out,
                                 struct error *err)
{
    const size_t row = (size_t)(spec->ndim == 2 ? extent[1] : 1) * dtype_size(want);
    const int64_t end = start[0] + extent[0];
    enum error_code e = OK;
    char *next = out;
    for (int64_t p = 0, first = 0; p < spec->parts && !e; first += spec->part[p++].rows) {
        /* A fused parameter lies in several tensors; the box is read from those whose rows it meets. */
        const int64_t from = start[0] > first ? start[0] : first, last = first + spec->part[p].rows,
                      to = end < last ? end : last;
        const int64_t part_start[2] = { from - first, spec->ndim == 2 ? start[1] : 0 },
                      part_extent[2] = { to - from, spec->ndim == 2 ? extent[1] : 0 };
        if (from >= to) continue;
        e = read_part(weights, spec, &spec->part[p], suffix, part_start, part_extent, want, next, err);
        next += (size_t)(to - from) * row;
    }
    return e;
}

/* Compares row by row: the matrices may be large. */
static enum error_code compare_rows(const struct weights *weights, const struct param_spec *embedding,
                                    const struct param_spec *head, double *row, struct error *err)
{
    const int64_t D = embedding->dim[1], extent[2] = { 1, D };
    enum error_code e = OK;
    for (int64_t start[2] = { 0 }; start[0] < embedding->dim[0] && !e; start[0]++) {
        e = weights_read_box(weights, embedding, "", start, extent, F64, row, err);
        if (!e) e = weights_read_box(weights, head, "", start, extent, F64, row + D, err);
        if (!e && memcmp(row, row + D, (size_t)D * sizeof *row) != 0)
            return fail(err, ERR_FORMAT,
                        "%s: tie_word_embeddings is true, but row %lld of %s is not that of "
                        "%s; if they are not to be tied, set it to false in config.json",
                        printable_path(weights->dir ? weights->dir : weights->file[0].path).text, (long long)start[0],
                        head->part[0].name, embedding->part[0].name);
    }
    return e;
}

enum error_code weights_check_tied(const struct weights *weights, const struct model_config *config, struct error *err)
{
    const struct safetensors *file;
    struct model_config untied = *config;
    untied.tied = false;
    const struct param_spec embedding = model_param(&untied, PARAM_WTE),
                            head = model_param(&untied, param_head(&untied));
    if (!config->tied || weights_find(weights, head.part[0].name, &file) == NULL) return OK;
    double *row = malloc(2 * (size_t)config->D * sizeof *row);
    if (row == NULL) return fail(err, ERR_MEMORY, "no memory to compare the output matrix with the embedding");
    const enum error_code e = compare_rows(weights, &embedding, &head, row, err);
    free(row);
    return e;
}

enum error_code weights_read_biases(const struct weights *weights, const struct model_config *config, double *bias,
                                    struct error *err)
{
    enum error_code e = OK;
    for (int64_t l = 0; l < config->L && !e; l++) {
        const struct param_spec s = model_router_bias(config, l);
        const int64_t start[2] = { 0 };
        if (s.ndim > 0) e = weights_read_box(weights, &s, "", start, s.dim, F64, bias + l * s.dim[0], err);
    }
    return e;
}

enum error_code weights_read(struct transformer *model, const struct weights *weights, struct error *err)
{
    enum error_code e = weights_check_tied(weights, &model->config, err);
    for (int i = 0; i < model->params && !e; i++) {
        const int64_t start[2] = { 0 };
        e = weights_read_box(weights, &model->spec[i], "", start, model->spec[i].dim, model->w[i].dtype,
                             model->w[i].data, err);
    }
    return e ? e : weights_read_biases(weights, &model->config, model->router_bias, err);
}

enum error_code weights_load(struct transformer *model, const char *dir, struct error *err)
{
    struct weights w;
    enum error_code e = weights_open(&w, dir, err);
    if (e) return e;
    e = weights_read(model, &w, err);
    weights_close(&w);
    return e;
}
