/* batch.c -- reads batches of ids and labels from a safetensors file, and checks them.
 *
 * cli/golden/make.c, bench/check_speed.c and cli/dump.c call this file.  Errors are ERR_USAGE with the place of a
 * wrong token, ERR_FORMAT, ERR_FILE and ERR_MEMORY; the caller frees ids and labels with golden_close.
 */
#include "ref/golden/batch.h"
#include "ref/model/transformer.h"
#include <stdlib.h>
#include <string.h>

enum { IGNORED_IN_PYTORCH = -100 };

/* Room for ids and labels [steps, B, S]. */
enum error_code batch_allocate(struct golden *golden, struct error *err)
{
    const size_t bytes = (size_t)(golden->steps * golden->B * golden->S) * sizeof *golden->ids + 1;
    golden->ids = malloc(bytes);
    golden->labels = malloc(bytes);
    return golden->ids && golden->labels ? OK : fail(err, ERR_MEMORY, "no memory for batches of %zu bytes", bytes);
}

enum error_code batch_pack(struct golden *golden, struct error *err)
{
    const size_t n = (size_t)(golden->steps * golden->B * golden->S);
    golden->positions = calloc(n + 1, sizeof *golden->positions);
    return golden->positions ? OK : fail(err, ERR_MEMORY, "no memory for the positions of %zu tokens", n);
}

static enum error_code outside(const struct golden *golden, const char *where, const char *what, int64_t at,
                               int32_t value, struct error *err)
{
    const int64_t of_step = at % (golden->B * golden->S);
    return fail(err, ERR_USAGE, "%s: step %lld, sequence %lld, token %lld: %s %d; the vocabulary is 0 to %lld", where,
                (long long)(at / (golden->B * golden->S)) + 1, (long long)(of_step / golden->S),
                (long long)(of_step % golden->S), what,
                (int)value, (long long)golden->config.V - 1);
}

/* A step without a label has no loss: nothing could be compared. */
static enum error_code check_labels(const struct golden *golden, const char *where, struct error *err)
{
    const int64_t tokens = golden->B * golden->S;
    for (int64_t step = 0; step < golden->steps; step++) {
        int64_t counted = 0;
        for (int64_t i = 0; i < tokens; i++) counted += golden->labels[step * tokens + i] != IGNORE_LABEL;
        if (counted == 0)
            return fail(err, ERR_FORMAT, "%s: all labels of step %lld are ignored; one must count", where,
                        (long long)step + 1);
    }
    return OK;
}

/* Labels of -100 mean "ignored" in PyTorch, and become our own sign for that. */
enum error_code batch_check(struct golden *golden, const char *where, struct error *err)
{
    const int64_t n = golden->steps * golden->B * golden->S, V = golden->config.V;
    if (golden->S > golden->config.S)
        return fail(err, ERR_USAGE, "%s: sequences of %lld tokens; the model has %lld positions", where,
                    (long long)golden->S, (long long)golden->config.S);
    for (int64_t i = 0; i < n; i++) {
        if (golden->ids[i] < 0 || golden->ids[i] >= V) return outside(golden, where, "token", i, golden->ids[i], err);
        if (golden->labels[i] == IGNORED_IN_PYTORCH) golden->labels[i] = IGNORE_LABEL;
        if (golden->labels[i] != IGNORE_LABEL && (golden->labels[i] < 0 || golden->labels[i] >= V))
            return outside(golden, where, "label", i, golden->labels[i], err);
    }
    enum error_code e = model_config_check_inputs(&golden->config, golden->ids, n, where, err);
    if (!e) e = golden_check_positions(golden, where, err);
    return e ? e : check_labels(golden, where, err);
}

/* Whether two tensors have the same dimensions, one by one: [2, 3] is not [3, 2]. */
static bool have_one_shape(const struct safetensors_entry *a, const struct safetensors_entry *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; i < a->ndim && same; i++) same = a->dim[i] == b->dim[i];
    return same;
}

/* Any integers; one that no int32 holds is no token. */
static enum error_code read_integers(const struct safetensors *file, const char *name, int64_t n, int32_t *out,
                                     struct error *err)
{
    const struct safetensors_entry *entry = safetensors_find(file, name);
    if (entry == NULL || !have_one_shape(entry, safetensors_find(file, "ids")))
        return fail(err, ERR_FORMAT, "%s: a batch needs tensors ids and labels of one shape; positions, if there are "
                    "any, have it, too", printable_path(file->path).text);
    int64_t *wide = malloc((size_t)n * sizeof *wide + 1);
    enum error_code e = wide ? safetensors_read(file, entry, I64, wide, err)
                             : fail(err, ERR_MEMORY, "no memory for %lld tokens", (long long)n);
    for (int64_t i = 0; i < n && !e; i++) {
        out[i] = (int32_t)wide[i];
        if (out[i] != wide[i])
            e = fail(err, ERR_USAGE, "%s: element %lld of %s is %lld, which is no token",
                     printable_path(file->path).text, (long long)i, name, (long long)wide[i]);
    }
    free(wide);
    return e;
}

/* The file has `stored` batches; one of several steps is repeated. */
static enum error_code batch_fill(struct golden *golden, const struct safetensors *file, int64_t stored,
                                  struct error *err)
{
    const int64_t tokens = golden->B * golden->S, n = stored * tokens;
    int32_t *all = malloc((size_t)(3 * n) * sizeof *all + 1);
    if (all == NULL) return fail(err, ERR_MEMORY, "no memory for %lld tokens", (long long)n);
    enum error_code e = read_integers(file, "ids", n, all, err);
    if (!e) e = read_integers(file, "labels", n, all + n, err);
    if (!e && golden->positions) e = read_integers(file, GOLDEN_POSITIONS, n, all + 2 * n, err);
    for (int64_t step = 0; step < golden->steps && !e; step++) {
        const int64_t from = stored == 1 ? 0 : step * tokens;
        memcpy(golden->ids + step * tokens, all + from, (size_t)tokens * sizeof *all);
        memcpy(golden->labels + step * tokens, all + n + from, (size_t)tokens * sizeof *all);
        if (golden->positions)
            memcpy(golden->positions + step * tokens, all + 2 * n + from, (size_t)tokens * sizeof *all);
    }
    free(all);
    return e;
}

/* A file may have [B, S] for all steps, or [steps, B, S]. */
enum error_code batch_read(struct golden *golden, const char *path, int64_t steps, struct error *err)
{
    struct safetensors file;
    enum error_code e = safetensors_open(&file, path, err);
    if (e) return e;
    const struct safetensors_entry *ids = safetensors_find(&file, "ids");
    const struct printable shown = printable_path(path);
    const char *where = shown.text;
    int64_t stored = 1;
    if (ids == NULL || ids->ndim < 2 || ids->ndim > 3 || ids->count < 1)
        e = fail(err, ERR_FORMAT,
                 "%s: a batch needs tensors ids and labels [sequences, tokens] or [steps, sequences, tokens], not "
                 "empty", where);
    else {
        stored = ids->ndim == 3 ? ids->dim[0] : 1;
        golden->steps = steps ? steps : stored, golden->B = ids->dim[ids->ndim - 2],
            golden->S = ids->dim[ids->ndim - 1];
        if (stored > 1 && stored < golden->steps)
            e = fail(err, ERR_FORMAT, "%s: has batches for %lld steps; %lld are asked for", where, (long long)stored,
                     (long long)golden->steps);
    }
    if (!e) e = batch_allocate(golden, err);
    if (!e && safetensors_find(&file, GOLDEN_POSITIONS)) e = batch_pack(golden, err);
    if (!e) e = batch_fill(golden, &file, stored, err);
    if (!e) e = batch_check(golden, where, err);
    safetensors_close(&file);
    return e;
}
