#include "ref/golden/batch.h"
#include "ref/model/transformer.h"
#include <stdlib.h>
#include <string.h>

enum { IGNORED_IN_PYTORCH = -100 };

enum error_code batch_allocate(struct golden *g, struct error *err)
{
    const size_t bytes = (size_t)(g->steps * g->B * g->S) * sizeof *g->ids + 1;
    g->ids = malloc(bytes);
    g->labels = malloc(bytes);
    return g->ids && g->labels ? OK : fail(err, ERR_MEMORY, "no memory for batches of %zu bytes", bytes);
}

static enum error_code outside(const struct golden *g, const char *where, const char *what, int64_t at, int32_t value,
                               struct error *err)
{
    const int64_t of_step = at % (g->B * g->S);
    return fail(err, ERR_USAGE, "%s: step %lld, sequence %lld, token %lld: %s %d; the vocabulary is 0 to %lld", where,
                (long long)(at / (g->B * g->S)) + 1, (long long)(of_step / g->S), (long long)(of_step % g->S), what,
                (int)value, (long long)g->config.V - 1);
}

/* A step without a label has no loss: nothing could be compared. */
static enum error_code check_labels(const struct golden *g, const char *where, struct error *err)
{
    const int64_t tokens = g->B * g->S;
    for (int64_t step = 0; step < g->steps; step++) {
        int64_t counted = 0;
        for (int64_t i = 0; i < tokens; i++) counted += g->labels[step * tokens + i] != IGNORE_LABEL;
        if (counted == 0)
            return fail(err, ERR_FORMAT, "%s: all labels of step %lld are ignored; one must count", where,
                        (long long)step + 1);
    }
    return OK;
}

enum error_code batch_check(struct golden *g, const char *where, struct error *err)
{
    const int64_t n = g->steps * g->B * g->S, V = g->config.V;
    if (g->S > g->config.S)
        return fail(err, ERR_USAGE, "%s: sequences of %lld tokens; the model has %lld positions", where,
                    (long long)g->S, (long long)g->config.S);
    for (int64_t i = 0; i < n; i++) {
        if (g->ids[i] < 0 || g->ids[i] >= V) return outside(g, where, "token", i, g->ids[i], err);
        if (g->labels[i] == IGNORED_IN_PYTORCH) g->labels[i] = IGNORE_LABEL;
        if (g->labels[i] != IGNORE_LABEL && (g->labels[i] < 0 || g->labels[i] >= V))
            return outside(g, where, "label", i, g->labels[i], err);
    }
    const enum error_code e = model_config_check_inputs(&g->config, g->ids, n, where, err);
    return e ? e : check_labels(g, where, err);
}

/* Any integers; one that no int32 holds is no token. */
static enum error_code read_integers(const struct safetensors *file, const char *name, int64_t n, int32_t *out,
                                     struct error *err)
{
    const struct safetensors_entry *entry = safetensors_find(file, name);
    if (entry == NULL || entry->count != n)
        return fail(err, ERR_FORMAT, "%s: a batch needs tensors ids and labels of one shape",
                    printable_path(file->path).text);
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
static enum error_code fill(struct golden *g, const struct safetensors *file, int64_t stored, struct error *err)
{
    const int64_t tokens = g->B * g->S, n = stored * tokens;
    int32_t *all = malloc((size_t)(2 * n) * sizeof *all + 1);
    if (all == NULL) return fail(err, ERR_MEMORY, "no memory for %lld tokens", (long long)n);
    enum error_code e = read_integers(file, "ids", n, all, err);
    if (!e) e = read_integers(file, "labels", n, all + n, err);
    for (int64_t step = 0; step < g->steps && !e; step++) {
        const int64_t from = stored == 1 ? 0 : step * tokens;
        memcpy(g->ids + step * tokens, all + from, (size_t)tokens * sizeof *all);
        memcpy(g->labels + step * tokens, all + n + from, (size_t)tokens * sizeof *all);
    }
    free(all);
    return e;
}

enum error_code batch_read(struct golden *g, const char *path, int64_t steps, struct error *err)
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
        g->steps = steps ? steps : stored, g->B = ids->dim[ids->ndim - 2], g->S = ids->dim[ids->ndim - 1];
        if (stored > 1 && stored < g->steps)
            e = fail(err, ERR_FORMAT, "%s: has batches for %lld steps; %lld are asked for", where, (long long)stored,
                     (long long)g->steps);
    }
    if (!e) e = batch_allocate(g, err);
    if (!e) e = fill(g, &file, stored, err);
    if (!e) e = batch_check(g, where, err);
    safetensors_close(&file);
    return e;
}
