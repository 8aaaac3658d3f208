/* singles_read.c -- reads the program's tensors for recompute/: whole ones, rows, parts of sums, masks and weights.
 * Files are read each time a tensor is asked for.  Errors are ERR_FILE, ERR_FORMAT and ERR_MEMORY.  A tensor that does
 * not fit, or whose copies differ, is no error here: the comparison with the golden file reports them. */
#include "emulated_devices/check/report/singles_read.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/finite.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pass_name singles_name(const struct checking *checking, const char *name)
{
    struct pass_name n;
    const long long step = (long long)checking->step;
    const char *const of = checking->optimizer;
    /* Corrections of routers that no step moves are those of the start. */
    const bool stays = checking->golden->config.mixture.router.bias_speed == 0 && !param_is_name(name);
    const bool starts = strncmp(name, "start/", 6) == 0;
    if (step == 0 || (starts && stays)) snprintf(n.text, sizeof n.text, "%s", name);
    else if (starts) snprintf(n.text, sizeof n.text, "%s/%lld/weight/%s", of, step, name + 6);
    else if (strncmp(name, "mask/1/", 7) == 0) snprintf(n.text, sizeof n.text, "mask/%lld/%s", step + 1, name + 7);
    else snprintf(n.text, sizeof n.text, "%s/%lld/%s", of, step + 1, name);
    return n;
}

void singles_dims(const struct golden *golden, const char *name, struct tensor t, int64_t dim[2])
{
    const char *const later = strstr(name, "/act/") ? strstr(name, "/act/") : strstr(name, "/grad/");
    const struct safetensors_entry *entry = safetensors_find(&golden->file, name);
    if (entry == NULL && later) entry = safetensors_find(&golden->file, later + 1);
    const bool vector = entry ? entry->ndim < 2 : tensor_rows(t) == 1 && !adapter_is_name(name);
    dim[0] = vector ? tensor_cols(t) : tensor_rows(t), dim[1] = vector ? 1 : tensor_cols(t);
}

/* The place of a tensor among those whose copies differ, or where it would be. */
static int place_apart(const struct checking *checking, const char *name)
{
    int low = 0, high = checking->aparts;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (strcmp(checking->apart[middle].name, name) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

struct apart *singles_apart(const struct checking *checking, const char *name)
{
    const int at = place_apart(checking, name);
    return at < checking->aparts && strcmp(checking->apart[at].name, name) == 0 ? &checking->apart[at] : NULL;
}

/* Add ranks to those whose copies of a tensor differ from the first's.  Tiles of a tensor add to the same entry. */
static enum error_code note_apart(struct checking *checking, const char *name, const struct devices *on,
                                  struct error *err)
{
    struct apart *known = singles_apart(checking, name);
    if (known == NULL) {
        const int at = place_apart(checking, name);
        void *more = realloc(checking->apart, (size_t)(checking->aparts + 1) * sizeof *checking->apart);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for the ranks whose copies of %s differ", name);
        checking->apart = more, known = &checking->apart[at];
        memmove(known + 1, known, (size_t)(checking->aparts++ - at) * sizeof *known);
        *known = (struct apart){ 0 };
        snprintf(known->name, sizeof known->name, "%s", name);
    }
    for (size_t i = 0; i < sizeof on->word / sizeof *on->word; i++) known->on.word[i] |= on->word[i];
    return OK;
}

/* The elements that some ranks have; all others are not judged. */
struct judged { struct interval rows; int64_t cols; const struct devices *by; bool *is; };

/* assembly_make calls this for each run; the rank's elements are marked. */
static void see_judged(void *context, int group, const struct actual_piece *piece, int64_t at, int64_t length,
                       const double *values)
{
    const struct judged *j = context;
    (void)group, (void)values;
    if (devices_have(j->by, piece->file->rank))
        memset(j->is + at - j->rows.first * j->cols, true, (size_t)length * sizeof *j->is);
}

/* Elements of other ranks become NaN, which single_source.some leaves out.  A rank's own NaN becomes infinite, so
 * that it is judged. */
static void leave_out(struct tensor out, struct judged *judged)
{
    for (int64_t i = 0; i < tensor_count(out); i++)
        if (!judged->is[i]) tensor_set(out, i, NAN);
        else if (isnan(tensor_get(out, i))) tensor_set(out, i, INFINITY);      /* as wrong, and judged */
    free(judged->is);
}

/* A name "part/K/NAME" is what the K-th rank of each sum of NAME has; "part/0/NAME": what is no sum.  @return part of
 * assembly_watch, and *name is NAME. */
static int part_wanted(const char **name)
{
    char *end;
    if (strncmp(*name, "part/", 5) != 0) return 0;
    const long part = strtol(*name + 5, &end, 10);
    *name = end + 1;
    return part == 0 ? ASSEMBLY_NO_SUMS : (int)part;
}

/* Put a tensor, or some rows of it, together.  Pieces that do not fit, or copies that differ, are reported by the
 * comparison with the golden file.  So ERR_CHECK is no error here. */
static enum error_code singles_gather(struct checking *checking, const char *name, int part, const int64_t dim[2],
                                      struct interval rows,
                                      struct tensor out, enum single_found *found, struct error *err)
{
    struct assembly all;
    struct devices apart = { 0 };
    struct judged judged = { .rows = rows, .by = checking->view.last, .cols = dim[1] };
    /* Only the result that is judged leaves elements out; inputs are read whole. */
    const bool some = judged.by && part == 0 && strcmp(name, checking->view.only) == 0;
    if (some) judged.is = calloc((size_t)tensor_count(out) + 1, sizeof *judged.is);
    if (some && judged.is == NULL) return fail(err, ERR_MEMORY, "no memory for the elements of %s", name);
    const struct assembly_watch watch = { .rows = rows, .over = checking->view.over, .last = checking->view.last,
                                         .apart = &apart, .part = part,
                                          .see = some ? see_judged : NULL, .context = &judged };
    checking->out->read++;
    enum error_code e = assembly_make(&all, checking->actual, name, dim, out.data, &watch, err);
    /* A tensor with a hole counts as missing. */
    *found = !e && all.any && all.missing == 0 ? SINGLE_HAS : SINGLE_HAS_NOT;
    if (*found == SINGLE_HAS && !all_finite(out.data, tensor_count(out))) *found = SINGLE_NOT_FINITE;
    if (some) leave_out(out, &judged);
    checking->reads_apart = checking->reads_apart || all.copies.elements > 0;
    if (!e && all.copies.elements > 0 && checking->view.only == NULL) e = note_apart(checking, name, &apart, err);
    return e == ERR_CHECK ? OK : e;
}

enum error_code singles_parts_of(void *context, const char *of, int64_t first, int64_t whole, struct tensor absolute,
                                int *parts, struct error *err)
{
    const struct checking *c = context;
    const struct pass_name its = singles_name(c, of);
    const char *const name = its.text;
    struct assembly all;
    int64_t dim[2];
    *parts = actual_parts(c->actual, name);
    if (*parts == 1 || !tensor_present(absolute)) return OK;
    singles_dims(c->golden, name, absolute, dim);
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

/* Round numbers to fp32 and then to the format: these are the weights that a pass computes with. */
static void singles_round(const struct checking *checking, struct tensor out)
{
    double buffer;
    for (int64_t i = 0; checking->format != F64 && i < tensor_count(out); i++) {
        const struct tensor narrow = tensor_1d(&buffer, checking->format, 1);
        tensor_set(narrow, 0, (float)tensor_get(out, i));
        tensor_set(out, i, tensor_get(narrow, 0));
    }
}

/* After a step a program may show fp32 masters; the next pass computes with them rounded. */
static bool singles_is_master(const struct checking *checking, const char *of)
{
    return checking->step > 0 && strncmp(of, "start/", 6) == 0 && dtype_is_narrow(checking->format);
}

/* Read a weight of the golden file, or its rows from `first` on.  Rounding to fp32 and then to the format makes the
 * weight that a program starts with. */
static enum error_code golden_weight(struct checking *checking, const char *name, int64_t first, struct tensor out,
                                     enum single_found *found, struct error *err)
{
    const struct golden *g = checking->golden;
    const enum error_code e =
        golden_read_some(g, name, first * tensor_cols(out), tensor_count(out), out.data, err);
    if (!e) singles_round(checking, out);
    *found = SINGLE_HAS;
    checking->out->golden_weights = true;
    return e;
}

/* Read a mask of dropout: what the golden file says is kept, as 0 and 1. */
static enum error_code golden_mask(const struct checking *checking, const char *name, struct interval rows,
                                   struct tensor out, enum single_found *found, struct error *err)
{
    const struct safetensors_entry *entry = safetensors_find(&checking->golden->file, name);
    /* A mask of another shape belongs to another batch, and counts as missing. */
    *found = SINGLE_HAS_NOT;
    if (entry == NULL || entry->count != rows.count * tensor_cols(out)) return OK;
    const int64_t first = rows.first * tensor_cols(out), count = tensor_count(out);
    struct safetensors_entry flat = *entry;
    flat.ndim = 1, flat.dim[0] = entry->count;
    uint8_t *kept = malloc((size_t)count + 1);
    const enum error_code e =
        kept ? safetensors_read_box(&checking->golden->file, &flat, &first, &count, false, U8, kept, err)
             : fail(err, ERR_MEMORY, "no memory for %s", name);
    for (int64_t i = 0; !e && i < count; i++) tensor_set(out, i, kept[i]);
    free(kept);
    *found = SINGLE_HAS;
    return e;
}

enum error_code singles_fetch(void *context, const char *of, struct tensor out, enum single_found *found,
                                     struct error *err)
{
    struct checking *c = context;
    const int part = part_wanted(&of);
    const struct pass_name its = singles_name(c, of);
    const char *const name = its.text;
    int64_t dim[2];
    if (strncmp(name, "mask/", 5) == 0)
        return golden_mask(c, name, (struct interval){ 0, tensor_rows(out) }, out, found, err);
    if (strncmp(name, "copy/", 5) == 0) return model_copies_fetch(&c->shared->copies, name, out, found, err);
    singles_dims(c->golden, name, out, dim);
    const enum error_code e = singles_gather(c, name, part, dim, (struct interval){ 0, 0 }, out, found, err);
    if (!e && singles_is_master(c, of)) singles_round(c, out);
    if (e || *found != SINGLE_HAS_NOT || strncmp(name, "start/", 6) != 0 || adapter_is_name(name)) return e;
    return golden_weight(c, name, 0, out, found, err);
}

enum error_code singles_fetch_rows(void *context, const char *of, int64_t first, int64_t whole, struct tensor out,
                                  enum single_found *found, struct error *err)
{
    struct checking *c = context;
    const int part = part_wanted(&of);
    const struct pass_name its = singles_name(c, of);
    const char *const name = its.text;
    if (strncmp(name, "mask/", 5) == 0) return golden_mask(c, name, (struct interval){ first, whole }, out, found, err);
    const enum error_code e = singles_gather(c, name, part, (int64_t[]){ whole, tensor_cols(out) },
                                             (struct interval){ first, tensor_rows(out) }, out, found, err);
    if (!e && singles_is_master(c, of)) singles_round(c, out);
    if (e || *found != SINGLE_HAS_NOT || strncmp(name, "start/", 6) != 0 || adapter_is_name(name)) return e;
    return golden_weight(c, name, first, out, found, err);
}
