#include "emulated_devices/check/recompute/parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

struct single_name single_name(const char *kind, const char *name)
{
    struct single_name n;
    snprintf(n.text, sizeof n.text, "%s%s", kind, name);
    return n;
}

struct single_name single_param_name(const struct single *s, const char *kind, int param)
{
    return single_name(kind, model_param(s->context->config, param).name);
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

static bool has_room(struct single *s)
{
    if (s->memory.used < s->memory.room) return true;
    const int room = s->memory.room ? 2 * s->memory.room : 64;
    struct single_matrix *more = realloc(s->memory.matrix, (size_t)room * sizeof *more);
    if (more) s->memory.matrix = more, s->memory.room = room;
    return more != NULL;
}

/* zeros: else anything. */
static struct tensor new_matrix(struct single *s, int64_t rows, int64_t cols, bool zeros)
{
    const size_t n = (size_t)(rows * cols) + 1;
    void *data = s->failed || !has_room(s) ? NULL : zeros ? calloc(n, sizeof(double)) : malloc(n * sizeof(double));
    if (data == NULL) {
        if (!s->failed)
            s->failed = fail(s->context->err, ERR_MEMORY, "no memory to recompute %s", s->verdict.result.name);
        return tensor_none;
    }
    s->memory.matrix[s->memory.used++] = (struct single_matrix){ data, (int64_t)(n * sizeof(double)) };
    s->memory.bytes += (int64_t)(n * sizeof(double));
    int64_t *const most = s->context->source.most;
    if (most && s->memory.bytes > *most) *most = s->memory.bytes;
    return tensor_2d(data, F64, rows, cols);
}

struct tensor single_new(struct single *s, int64_t rows, int64_t cols) { return new_matrix(s, rows, cols, true); }

struct single_value single_value_new(struct single *s, int64_t rows, int64_t cols)
{
    return (struct single_value){ .y = single_new(s, rows, cols), .fused = single_new(s, rows, cols),
                                  .steps = single_new(s, rows, cols) };
}

void single_release(struct single *s, int used)
{
    while (s->memory.used > used) {
        const struct single_matrix *m = &s->memory.matrix[--s->memory.used];
        s->memory.bytes -= m->bytes;
        free(m->data);
    }
}

void single_close(struct single *s)
{
    single_release(s, 0);
    free(s->memory.matrix);
    if (s->notes) s->context->source.explainer->forget(s->notes);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

struct single_value single_settled(struct single *s, struct single_value v)
{
    if (v.stored || s->failed) return v;
    #pragma omp parallel for schedule(static) if (tensor_count(v.y) > SINGLE_PARALLEL_FROM)
    for (int64_t i = 0; i < tensor_count(v.y); i++) {
        const double size = numbers(tensor_present(v.absolute) ? v.absolute : v.y)[i];
        numbers(v.fused)[i] += rounding_when_stored(&s->rounding, size, numbers(v.fused)[i]);
        numbers(v.steps)[i] += rounding_when_stored(&s->rounding, size, numbers(v.steps)[i]);
    }
    v.stored = true;
    return v;
}

/* Sums of more than two are added one by one, in any order, and each is stored. */
struct single_value single_sum(struct single *s, const struct single_value of[], int count)
{
    if (count == 1 || s->failed) return of[0];
    const struct rounding *r = &s->rounding;
    struct single_value sum = single_value_new(s, tensor_rows(of[0].y), tensor_cols(of[0].y));
    int64_t terms = 0;
    sum.absolute = single_new(s, tensor_rows(of[0].y), tensor_cols(of[0].y));
    for (int k = 0; k < count && !s->failed; k++) {
        const struct single_value v = single_settled(s, of[k]);
        terms += v.terms > 1 ? v.terms : 1;
        for (int64_t i = 0; i < tensor_count(sum.y); i++) {
            numbers(sum.y)[i] += numbers(v.y)[i];
            numbers(sum.absolute)[i] +=
                tensor_present(v.absolute) ? numbers(v.absolute)[i] : fabs(numbers(v.y)[i]);
            numbers(sum.fused)[i] += numbers(v.fused)[i], numbers(sum.steps)[i] += numbers(v.steps)[i];
        }
    }
    for (int64_t i = 0; !s->failed && i < tensor_count(sum.y); i++) {
        const double off = ((double)terms * r->sum + (count - 2) * r->store) * numbers(sum.absolute)[i];
        numbers(sum.fused)[i] += off, numbers(sum.steps)[i] += off;
    }
    return sum;
}

/* ---- one result -------------------------------------------------------------------------------------------------- */

/* whole: rows of the tensor, from `first` on; 0: all of it. */
static struct tensor fetch(struct single *s, const char *name, int64_t rows, int64_t cols, int64_t first, int64_t whole,
                           enum single_found *found)
{
    const struct tensor t = new_matrix(s, rows, cols, false);
    const struct single_source *from = &s->context->source;
    if (!s->failed && whole > 0)
        s->failed = from->fetch_rows(from->context, name, first, whole, t, found, s->context->err);
    else if (!s->failed) s->failed = from->fetch(from->context, name, t, found, s->context->err);
    if (!s->failed && *found == SINGLE_HAS_NOT) memset(t.data, 0, tensor_bytes(t));
    return t;
}

bool single_wanted(const struct single *s, struct single_name name)
{
    return s->context->source.only == NULL || strcmp(s->context->source.only, name.text) == 0;
}

/* The rows of a tile's tokens in each stream. */
static struct tensor fetch_streams(struct single *s, const char *name, int64_t rows, int64_t cols,
                                   enum single_found *found)
{
    const struct tensor t = new_matrix(s, rows, cols, true);
    const struct single_source *from = &s->context->source;
    const int64_t all = s->context->all.B * s->context->all.S, P = rows / s->cursor.N;
    *found = SINGLE_HAS;
    for (int64_t i = 0; i < P && !s->failed; i++) {
        enum single_found one = SINGLE_HAS_NOT;
        s->failed = from->fetch_rows(from->context, name, i * all + s->cursor.first, P * all,
                                     tensor_2d(numbers(t) + i * s->cursor.N * cols, F64, s->cursor.N, cols), &one,
                                         s->context->err);
        if (*found == SINGLE_HAS || one == SINGLE_HAS_NOT) *found = one;
    }
    if (!s->failed && *found == SINGLE_HAS_NOT) memset(t.data, 0, tensor_bytes(t));
    return t;
}

void single_begin_with(struct single *s, struct single_name name, const char *made_by, struct tensor have)
{
    s->verdict = (struct single_judgement){ .result = { .rows = tensor_rows(have), .cols = tensor_cols(have) },
                                            .have = have, .stepping = s->verdict.stepping };
    single_read_anew(s);
    memcpy(s->verdict.result.name, name.text, sizeof s->verdict.result.name);
    snprintf(s->verdict.result.made_by, sizeof s->verdict.result.made_by, "%s", made_by);
}

/* first: below 0 for a tile's rows of several streams. */
static bool begin(struct single *s, struct single_name name, const char *made_by, int64_t rows, int64_t cols,
                  int64_t first, int64_t whole)
{
    enum single_found found = SINGLE_HAS_NOT;
    if (s->failed || !single_wanted(s, name)) return false;
    memcpy(s->verdict.result.name, name.text, sizeof s->verdict.result.name);
    const struct tensor have = whole > 0 && first < 0 ? fetch_streams(s, name.text, rows, cols, &found)
                                                      : fetch(s, name.text, rows, cols, first, whole, &found);
    if (!s->failed) single_begin_with(s, name, made_by, have);
    if (!s->failed && found != SINGLE_HAS_NOT) return true;
    single_release(s, 0);
    return false;
}

bool single_begin(struct single *s, struct single_name name, const char *made_by, int64_t rows, int64_t cols)
{
    const bool of_tile = single_is_tile(s) && rows == s->cursor.N;
    if (single_in_streams(s, rows)) return begin(s, name, made_by, rows, cols, -1, rows);
    return begin(s, name, made_by, rows, cols, of_tile ? s->cursor.first : 0, of_tile ? single_whole_rows(s, rows) : 0);
}

bool single_begin_block(struct single *s, struct single_name name, const char *made_by, struct single_block block,
                        int64_t whole, int64_t cols)
{
    return begin(s, name, made_by, block.rows, cols, block.first, whole);
}

static void note_lacking(struct single *s, struct single_name name, enum single_found found)
{
    if (!s->failed && found != SINGLE_HAS && s->reading.lacks[0] == 0)
        memcpy(s->reading.lacks, name.text, sizeof s->reading.lacks);
}

static struct tensor input(struct single *s, struct single_name name, int64_t rows, int64_t cols, int64_t first,
                           int64_t whole)
{
    enum single_found found = SINGLE_HAS_NOT;
    const struct tensor t = fetch(s, name.text, rows, cols, first, whole, &found);
    note_lacking(s, name, found);
    return t;
}

struct tensor single_input_streams(struct single *s, struct single_name name, int64_t rows, int64_t cols)
{
    enum single_found found = SINGLE_HAS_NOT;
    const struct tensor t = fetch_streams(s, name.text, rows, cols, &found);
    note_lacking(s, name, found);
    return t;
}

struct tensor single_input(struct single *s, struct single_name name, int64_t rows, int64_t cols)
{
    return input(s, name, rows, cols, 0, 0);
}

struct tensor single_input_rows(struct single *s, struct single_name name, int64_t rows, int64_t cols)
{
    return input(s, name, rows, cols, single_first_row(s, rows), single_whole_rows(s, rows));
}

struct tensor single_input_block(struct single *s, struct single_name name, struct single_block block, int64_t whole,
                                 int64_t cols)
{
    return input(s, name, block.rows, cols, block.first, block.rows < whole ? whole : 0);
}

static int parts_of(struct single *s, struct single_name name, int64_t first, int64_t whole, struct tensor absolute)
{
    int parts = 1;
    if (!s->failed && s->context->source.parts)
        s->failed = s->context->source.parts(s->context->source.context, name.text, first, whole, absolute, &parts,
                                             s->context->err);
    return parts;
}

bool single_has_parts(struct single *s, struct single_name name) { return parts_of(s, name, 0, 0, tensor_none) > 1; }

struct single_sizes single_sizes_of(struct single *s, struct single_name name, struct tensor x, int64_t first,
                                    int64_t whole)
{
    struct single_sizes sizes = { .absolute = single_new(s, tensor_rows(x), tensor_cols(x)) };
    const int64_t P = single_in_streams(s, tensor_rows(x)) ? STREAMS(s->context->config) : 1, n = tensor_rows(x) / P,
                  cols = tensor_cols(x);
    for (int64_t i = 0; i < P && !s->failed; i++)
        sizes.parts = parts_of(s, name, P > 1 ? i * (whole / P) + s->cursor.first : first, whole,
                               tensor_2d(numbers(sizes.absolute) + i * n * cols, F64, n, cols));
    for (int64_t i = 0; !s->failed && sizes.parts == 1 && i < tensor_count(x); i++)
        numbers(sizes.absolute)[i] = fabs(numbers(x)[i]);
    return sizes;
}
