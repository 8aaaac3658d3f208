#include "emulated_devices/verify/check/singles.h"
#include "emulated_devices/verify/diagnose.h"
#include "emulated_devices/verify/check/model_copies.h"
#include "emulated_devices/verify/check/holders.h"
#include "emulated_devices/verify/check/replay.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/finite.h"
#include "ref/single/steps.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct checking {
    const struct golden *golden;
    const struct actual *actual;
    enum dtype format;
    struct singles *out;
    enum error_code failed;
    struct model_copies copies;
    const struct devices *over;         /* of assembly_watch */
};

int singles_parts(const struct actual *a)
{
    if (a->parts > 0) return a->parts;
    const int tp = a->mesh.size[TP], others = a->mesh.devices / a->mesh.size[PP] / tp;
    return tp > others ? tp : others;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Rows and columns as the comparison counts them: of a vector each element is a row. */
static void dims_of(const struct golden *g, const char *name, struct tensor t, int64_t dim[2])
{
    const struct safetensors_entry *entry = safetensors_find(&g->file, name);
    const bool vector = entry ? entry->ndim < 2 : tensor_rows(t) == 1;
    dim[0] = vector ? tensor_cols(t) : tensor_rows(t), dim[1] = vector ? 1 : tensor_cols(t);
}

/* Put a tensor, or some rows of it, together.  Pieces that do not fit, or copies that differ, are reported by the
 * comparison with the golden file. */
static enum error_code gather(const struct checking *c, const char *name, const int64_t dim[2], struct interval rows,
                              struct tensor out, enum single_found *found, struct error *err)
{
    struct assembly all;
    const struct assembly_watch watch = { .rows = rows, .over = c->over };
    const enum error_code e = assembly_make(&all, c->actual, name, dim, out.data, &watch, err);
    *found = !e && all.any && all.missing == 0 ? SINGLE_HAS : SINGLE_HAS_NOT;
    if (*found == SINGLE_HAS && !all_finite(out.data, tensor_count(out))) *found = SINGLE_NOT_FINITE;
    return e == ERR_CHECK ? OK : e;
}

static enum error_code parts_of(void *context, const char *name, int64_t first, int64_t whole, struct tensor absolute,
                                int *parts, struct error *err)
{
    const struct checking *c = context;
    struct assembly all;
    int64_t dim[2];
    *parts = actual_is_sum(c->actual, name) ? 2 : 1;
    if (*parts == 1 || !tensor_present(absolute)) return OK;
    dims_of(c->golden, name, absolute, dim);
    if (whole > 0) dim[0] = whole, dim[1] = tensor_cols(absolute);
    double *sum = malloc((size_t)tensor_count(absolute) * sizeof *sum + 1);
    const struct assembly_watch watch = { .absolute = absolute.data,
                                          .rows = { first, whole > 0 ? tensor_rows(absolute) : 0 } };
    const enum error_code e = sum ? assembly_make(&all, c->actual, name, dim, sum, &watch, err)
                                  : fail(err, ERR_MEMORY, "no memory for the parts of %s", name);
    free(sum);
    if (!e) *parts = all.parts;
    return e == ERR_CHECK ? OK : e;
}

/* A weight of the golden file, or its rows from `first` on, as a program in this format starts with it. */
static enum error_code golden_weight(struct checking *c, const char *name, int64_t first, struct tensor out,
                                     enum single_found *found, struct error *err)
{
    const struct golden *g = c->golden;
    const enum error_code e =
        golden_read_some(g, name, first * tensor_cols(out), tensor_count(out), out.data, err);
    double buffer;
    for (int64_t i = 0; !e && c->format != F64 && i < tensor_count(out); i++) {
        const struct tensor narrow = tensor_1d(&buffer, c->format, 1);
        tensor_set(narrow, 0, (float)tensor_get(out, i));
        tensor_set(out, i, tensor_get(narrow, 0));
    }
    *found = SINGLE_HAS;
    c->out->golden_weights = true;
    return e;
}

/* What the golden file says is kept. */
static enum error_code golden_mask(const struct checking *c, const char *name, struct interval rows, struct tensor out,
                                   enum single_found *found, struct error *err)
{
    const struct safetensors_entry *entry = safetensors_find(&c->golden->file, name);
    *found = SINGLE_HAS_NOT;
    if (entry == NULL || entry->count != rows.count * tensor_cols(out)) return OK;
    const int64_t first = rows.first * tensor_cols(out), count = tensor_count(out);
    struct safetensors_entry flat = *entry;
    flat.ndim = 1, flat.dim[0] = entry->count;
    uint8_t *kept = malloc((size_t)count + 1);
    const enum error_code e =
        kept ? safetensors_read_box(&c->golden->file, &flat, &first, &count, false, U8, kept, err)
             : fail(err, ERR_MEMORY, "no memory for %s", name);
    for (int64_t i = 0; !e && i < count; i++) tensor_set(out, i, kept[i]);
    free(kept);
    *found = SINGLE_HAS;
    return e;
}

static enum error_code fetch(void *context, const char *name, struct tensor out, enum single_found *found,
                             struct error *err)
{
    struct checking *c = context;
    int64_t dim[2];
    if (strncmp(name, "mask/", 5) == 0)
        return golden_mask(c, name, (struct interval){ 0, tensor_rows(out) }, out, found, err);
    if (strncmp(name, "copy/", 5) == 0) return model_copies_fetch(&c->copies, name, out, found, err);
    dims_of(c->golden, name, out, dim);
    const enum error_code e = gather(c, name, dim, (struct interval){ 0, 0 }, out, found, err);
    if (e || *found != SINGLE_HAS_NOT || strncmp(name, "start/", 6) != 0) return e;
    return golden_weight(c, name, 0, out, found, err);
}

static enum error_code fetch_rows(void *context, const char *name, int64_t first, int64_t whole, struct tensor out,
                                  enum single_found *found, struct error *err)
{
    struct checking *c = context;
    if (strncmp(name, "mask/", 5) == 0) return golden_mask(c, name, (struct interval){ first, whole }, out, found, err);
    const enum error_code e = gather(c, name, (int64_t[]){ whole, tensor_cols(out) },
                                     (struct interval){ first, tensor_rows(out) }, out, found, err);
    if (e || *found != SINGLE_HAS_NOT || strncmp(name, "start/", 6) != 0) return e;
    return golden_weight(c, name, first, out, found, err);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* The size of the mesh that a factor is. */
static void name_factor(const struct checking *c, struct single_result *r)
{
    char names[96];
    const size_t n = strlen(r->mistake);
    diagnose_factor(names, sizeof names, &c->actual->mesh, 1, r->factor, r->allowed);
    if (names[0]) snprintf(r->mistake + n, sizeof r->mistake - n, " = %s%s", r->factor < 0 ? "-" : "", names);
}

static void find_holders(const struct checking *c, const struct single_result *r, char *out, size_t size)
{
    int64_t dim[2];
    dims_of(c->golden, r->name, tensor_2d(NULL, F64, r->rows, r->cols), dim);
    const struct interval rows = { r->first_row, r->last_row + 1 - r->first_row },
                          cols = { r->first_col, r->last_col + 1 - r->first_col };
    const bool vector = dim[0] == r->cols && r->rows == 1;
    holders_describe(c->actual, r->name, dim, vector ? cols : rows, vector ? (struct interval){ 0, 1 } : cols, out,
                     size);
}

static void note(void *context, const struct single_result *r)
{
    struct checking *c = context;
    actual_seen(c->actual, r->name, r->rows * r->cols);
    void *where = realloc(c->out->where, (size_t)(c->out->count + 1) * sizeof *c->out->where);
    if (where) c->out->where = where;
    void *more = realloc(c->out->all, (size_t)(c->out->count + 1) * sizeof *c->out->all);
    if (more) c->out->all = more;
    if (more == NULL || where == NULL) {
        c->failed = ERR_MEMORY;
        return;
    }
    c->out->where[c->out->count][0] = '\0';
    if (r->verdict == SINGLE_WRONG) find_holders(c, r, c->out->where[c->out->count], sizeof *c->out->where);
    c->out->all[c->out->count++] = *r;
    c->out->found[r->verdict]++;
    if (r->scaled) name_factor(c, &c->out->all[c->out->count - 1]);
}

/* All steps of all optimizers, if what each begins with is in the golden file: then it can be in ACTUAL. */
static enum error_code check_steps(struct checking *c, struct rounding rounding, struct single_source source,
                                   struct error *err)
{
    const struct golden *g = c->golden;
    const struct single_batch batch = { g->ids, g->labels, g->B, g->S };
    double lr[GOLDEN_MOST_STEPS];
    char optimizer[32], name[64];
    enum error_code e = single_check_micros(&g->config, g->micros, batch, rounding, source, err);
    if (!g->every_step && g->steps > 1) return e;
    for (const char *at = golden_next_optimizer(g, NULL, optimizer); at && !e;
         at = golden_next_optimizer(g, at, optimizer)) {
        const struct single_steps steps = { optimizer, golden_hyperparameters(g, optimizer), g->steps, lr, c->format };
        snprintf(name, sizeof name, "%s/lr", optimizer);
        e = golden_read(g, name, F64, g->steps, lr, err);
        if (!e) e = single_check_steps(&g->config, &steps, rounding, source, err);
    }
    return e;
}

/* over: of assembly_watch; only: of single_source. */
static enum error_code check(const struct golden *g, const struct actual *a, enum dtype format,
                             struct rounding rounding, const struct devices *over, const char *only,
                             struct singles *out, struct error *err)
{
    struct checking c = { .golden = g, .actual = a, .format = format, .out = out, .over = over,
                          .copies = model_copies_of(g, a->mesh.size[DP]) };
    const struct single_batch batch = { g->ids, g->labels, g->B, g->S };
    *out = (struct singles){ .parts = rounding.parts };
    const struct single_source source = { .fetch = fetch, .fetch_rows = fetch_rows, .found = note, .parts = parts_of,
                                          .context = &c, .copies = c.copies.n, .only = only };
    enum error_code e = replay_check(&g->config, batch, rounding, source, err);
    if (e == ERR_PLAN) {
        snprintf(out->why_none, sizeof out->why_none, "%.199s", err->text);
        e = OK;
    }
    if (!e) e = check_steps(&c, rounding, source, err);
    if (!e && c.failed) e = fail(err, c.failed, "no memory for the results of all operations");
    model_copies_free(&c.copies);
    if (e) singles_free(out);
    return e;
}

enum error_code singles_check(const struct golden *g, const struct actual *a, enum dtype format,
                              struct rounding rounding, struct singles *out, struct error *err)
{
    return check(g, a, format, rounding, NULL, NULL, out, err);
}

enum error_code singles_check_copy(const struct golden *g, const struct actual *a, enum dtype format,
                                   struct rounding rounding, const char *name, const struct devices *over,
                                   struct single_result *r, struct error *err)
{
    struct singles all;
    const enum error_code e = check(g, a, format, rounding, over, name, &all, err);
    *r = (struct single_result){ 0 };
    if (e) return e;
    if (all.count > 0) *r = all.all[0];
    singles_free(&all);
    return OK;
}

void singles_free(struct singles *s)
{
    free(s->all), free(s->where);
    *s = (struct singles){ 0 };
}

const struct single_result *singles_find(const struct singles *s, const char *name)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->all[i].name, name) == 0) return &s->all[i];
    return NULL;
}
