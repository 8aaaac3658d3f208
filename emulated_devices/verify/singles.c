#include "emulated_devices/verify/singles.h"
#include "emulated_devices/verify/replay.h"
#include "ref/numeric/convert.h"
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
};

int singles_parts(const struct actual *a)
{
    const int tp = a->mesh.size[TP], others = a->mesh.devices / a->mesh.size[PP] / tp;
    return tp > others ? tp : others;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct into { double *whole; unsigned char *seen; const double *piece; };

static void paste_run(void *context, struct run r)
{
    const struct into *p = context;
    for (int64_t i = 0; i < r.length; i++) p->whole[r.whole + i] = p->piece[r.piece + i], p->seen[r.whole + i] = 1;
}

static enum error_code paste_rank(const struct checking *c, const char *name, const char *theirs, int rank,
                                  const int64_t dim[2], struct into into, bool *fits, struct error *err)
{
    struct actual_piece p;
    const enum error_code e = actual_read(c->actual, name, theirs, rank, dim, &p, err);
    *fits = e != ERR_CHECK;                     /* another shape: the comparison with the golden file reports it */
    if (e) return *fits ? e : OK;
    into.piece = p.data;
    for (int i = 0; i < p.parts; i++) {
        part_each_run(&p.part[i], paste_run, &into);
        into.piece += part_count(&p.part[i]);
    }
    actual_piece_free(&p);
    return OK;
}

/* Rows and columns as the comparison counts them: of a vector each element is a row. */
static void dims_of(const struct golden *g, const char *name, struct tensor t, int64_t dim[2])
{
    const struct safetensors_entry *entry = safetensors_find(&g->file, name);
    const bool vector = entry ? entry->ndim < 2 : tensor_rows(t) == 1;
    dim[0] = vector ? tensor_cols(t) : tensor_rows(t), dim[1] = vector ? 1 : tensor_cols(t);
}

/* Assemble a tensor from all ranks. */
static enum error_code gather(const struct checking *c, const char *name, struct tensor out, enum single_found *found,
                              struct error *err)
{
    const int64_t n = tensor_count(out);
    char theirs[256];
    int64_t dim[2];
    bool fits = true, any = false;
    unsigned char *seen = calloc((size_t)n + 1, 1);
    enum error_code e = seen ? OK : fail(err, ERR_MEMORY, "no memory to read %s", name);
    actual_name(c->actual, name, theirs, sizeof theirs);
    dims_of(c->golden, name, out, dim);
    for (int r = 0; r < c->actual->ranks && !e && fits; r++) {
        if (safetensors_find(&c->actual->file[r], theirs) == NULL) continue;
        any = true;
        e = paste_rank(c, name, theirs, r, dim, (struct into){ out.data, seen, NULL }, &fits, err);
    }
    *found = any && fits ? SINGLE_HAS : SINGLE_HAS_NOT;
    for (int64_t i = 0; !e && i < n; i++) {
        if (!seen[i]) *found = SINGLE_HAS_NOT;
        else if (*found == SINGLE_HAS && !isfinite(tensor_get(out, i))) *found = SINGLE_NOT_FINITE;
    }
    free(seen);
    return e;
}

/* A weight of the golden file, as a program in this format starts with it. */
static enum error_code golden_weight(struct checking *c, const char *name, struct tensor out, enum single_found *found,
                                     struct error *err)
{
    const struct golden *g = c->golden;
    const enum error_code e = golden_read(g, name, F64, tensor_count(out), out.data, err);
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

static enum error_code fetch(void *context, const char *name, struct tensor out, enum single_found *found,
                             struct error *err)
{
    struct checking *c = context;
    const enum error_code e = gather(c, name, out, found, err);
    if (e || *found != SINGLE_HAS_NOT || strncmp(name, "start/", 6) != 0) return e;
    return golden_weight(c, name, out, found, err);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void note(void *context, const struct single_result *r)
{
    struct checking *c = context;
    void *more = realloc(c->out->all, (size_t)(c->out->count + 1) * sizeof *c->out->all);
    if (more == NULL) {
        c->failed = ERR_MEMORY;
        return;
    }
    c->out->all = more;
    c->out->all[c->out->count++] = *r;
    c->out->found[r->verdict]++;
}

enum error_code singles_check(const struct golden *g, const struct actual *a, enum dtype format,
                              struct rounding rounding, struct singles *out, struct error *err)
{
    struct checking c = { .golden = g, .actual = a, .format = format, .out = out };
    const struct single_batch batch = { g->ids, g->labels, g->B, g->S };
    *out = (struct singles){ .parts = rounding.parts };
    enum error_code e = replay_check(&g->config, batch, rounding, (struct single_source){ fetch, note, &c }, err);
    if (e == ERR_PLAN) {
        snprintf(out->why_none, sizeof out->why_none, "%.199s", err->text);
        e = OK;
    }
    if (!e && c.failed) e = fail(err, c.failed, "no memory for the results of all operations");
    if (e) singles_free(out);
    return e;
}

void singles_free(struct singles *s)
{
    free(s->all);
    *s = (struct singles){ 0 };
}

const struct single_result *singles_find(const struct singles *s, const char *name)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->all[i].name, name) == 0) return &s->all[i];
    return NULL;
}
