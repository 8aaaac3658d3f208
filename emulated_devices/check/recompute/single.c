/* single.c -- reads the program's tensors and keeps the matrices of a result.  All files of recompute/ use it
 * through parts.h.  After the first failure every function here does nothing, and single.failed keeps that error. */
#include "emulated_devices/check/recompute/parts.h"
#include "ref/model/config.h"
#include "ref/model/params.h"
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

struct single_name single_param_name(const struct single *single, const char *kind, int param)
{
    return single_name(kind, single_spec(single, param).name);
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

/* The list of matrices doubles; the matrices themselves do not move. */
static bool has_room(struct single *single)
{
    if (single->memory.used < single->memory.room) return true;
    const int room = single->memory.room ? 2 * single->memory.room : 64;
    struct single_matrix *more = realloc(single->memory.matrix, (size_t)room * sizeof *more);
    if (more) single->memory.matrix = more, single->memory.room = room;
    return more != NULL;
}

/* Allocate a matrix that lives until the result ends.  Without `zeros` its numbers are undefined.  A failure is
 * noted once. */
static struct tensor new_matrix(struct single *single, int64_t rows, int64_t cols, bool zeros)
{
    const size_t n = (size_t)(rows * cols) + 1;
    void *data = single->failed || !has_room(single) ? NULL : zeros ? calloc(n, sizeof(double))
        : malloc(n * sizeof(double));
    if (data == NULL) {
        if (!single->failed)
            single->failed = fail(single->context->err, ERR_MEMORY, "no memory to recompute %s",
                                  single->verdict.result.name);
        return tensor_none;
    }
    single->memory.matrix[single->memory.used++] = (struct single_matrix){ data, (int64_t)(n * sizeof(double)) };
    single->memory.bytes += (int64_t)(n * sizeof(double));
    /* The check's report says how much memory was used at most. */
    int64_t *const most = single->context->source.most;
    if (most && single->memory.bytes > *most) *most = single->memory.bytes;
    return tensor_2d(data, F64, rows, cols);
}

struct tensor single_new(struct single *single, int64_t rows, int64_t cols)
{
    return new_matrix(single, rows, cols, true);
}

struct single_value single_value_new(struct single *single, int64_t rows, int64_t cols)
{
    return (struct single_value){ .y = single_new(single, rows, cols), .fused = single_new(single, rows, cols),
                                  .steps = single_new(single, rows, cols) };
}

/* Free all matrices after the first `used`, in reverse order. */
void single_release(struct single *single, int used)
{
    while (single->memory.used > used) {
        const struct single_matrix *m = &single->memory.matrix[--single->memory.used];
        single->memory.bytes -= m->bytes;
        free(m->data);
    }
}

/* The explainer's notes live as long as the check. */
void single_close(struct single *single)
{
    single_release(single, 0);
    free(single->memory.matrix);
    if (single->notes) single->context->source.explainer->forget(single->notes);        /* not those of the source */
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Rounding adds to both bounds; a sum's size is that of its absolute terms. */
struct single_value single_settled(struct single *single, struct single_value value)
{
    if (value.stored || single->failed) return value;
    #pragma omp parallel for schedule(static) if (tensor_count(value.y) > SINGLE_PARALLEL_FROM)
    for (int64_t i = 0; i < tensor_count(value.y); i++) {
        const double size = numbers(tensor_present(value.absolute) ? value.absolute : value.y)[i];
        numbers(value.fused)[i] += rounding_when_stored(&single->rounding, size, numbers(value.fused)[i]);
        numbers(value.steps)[i] += rounding_when_stored(&single->rounding, size, numbers(value.steps)[i]);
    }
    value.stored = true;
    return value;
}

/* Add values.  Sums of more than two are added one by one, in any order, and each sum is stored. */
struct single_value single_sum(struct single *single, const struct single_value of[], int count)
{
    if (count == 1 || single->failed) return of[0];
    const struct rounding *r = &single->rounding;
    struct single_value sum = single_value_new(single, tensor_rows(of[0].y), tensor_cols(of[0].y));
    int64_t terms = 0, stored = 0;
    sum.absolute = single_new(single, tensor_rows(of[0].y), tensor_cols(of[0].y));
    for (int k = 0; k < count && !single->failed; k++) {
        /* single_settled adds the rounding of the summand itself.  A summand that is a sum itself brings its
         * terms. */
        const struct single_value v = single_settled(single, of[k]);
        terms += v.terms > 1 ? v.terms : 1, stored += of[k].matrices > 1 ? of[k].matrices : 1;
        for (int64_t i = 0; i < tensor_count(sum.y); i++) {
            numbers(sum.y)[i] += numbers(v.y)[i];
            numbers(sum.absolute)[i] +=
                tensor_present(v.absolute) ? numbers(v.absolute)[i] : fabs(numbers(v.y)[i]);
            numbers(sum.fused)[i] += numbers(v.fused)[i], numbers(sum.steps)[i] += numbers(v.steps)[i];
        }
    }
    /* Each addition may be off by a unit of the sum's absolute terms.  All sums but the first and the last are stored
     * between; queries, keys and values may be added to the stream one by one. */
    for (int64_t i = 0; !single->failed && i < tensor_count(sum.y); i++) {
        const double off = ((double)terms * r->sum + (double)(stored - 2) * r->store) * numbers(sum.absolute)[i];
        numbers(sum.fused)[i] += off, numbers(sum.steps)[i] += off;
    }
    return sum;
}

/* ---- one result -------------------------------------------------------------------------------------------------- */

/* Read a tensor, or some rows of it.  whole: rows of the tensor, from `first` on; 0: all of it. */
static struct tensor single_fetch(struct single *single, const char *name, int64_t rows, int64_t cols, int64_t first,
                                  int64_t whole, enum single_found *found)
{
    const struct tensor t = new_matrix(single, rows, cols, false);
    const struct single_source *from = &single->context->source;
    if (!single->failed && whole > 0)
        single->failed = from->fetch_rows(from->context, name, first, whole, t, found, single->context->err);
    else if (!single->failed) single->failed = from->fetch(from->context, name, t, found, single->context->err);
    /* A tensor that is missing reads as zeros, so that a pass can go on to its end. */
    if (!single->failed && *found == SINGLE_HAS_NOT) memset(t.data, 0, tensor_bytes(t));
    return t;
}

/* Without `only` every result is wanted, until the source stops. */
bool single_wanted(const struct single *single, struct single_name name)
{
    const bool *const stop = single->context->source.stop;
    if (stop && *stop) return false;
    return single->context->source.only == NULL || strcmp(single->context->source.only, name.text) == 0;
}

/* Read the rows of a tile's tokens in each stream: P ranges, one below the other. */
static struct tensor fetch_streams(struct single *single, const char *name, int64_t rows, int64_t cols,
                                   enum single_found *found)
{
    const struct tensor t = new_matrix(single, rows, cols, true);
    const struct single_source *from = &single->context->source;
    const int64_t all = single->context->all.B * single->context->all.S, P = rows / single->cursor.N;
    *found = SINGLE_HAS;
    for (int64_t i = 0; i < P && !single->failed; i++) {
        enum single_found one = SINGLE_HAS_NOT;
        single->failed = from->fetch_rows(from->context, name, i * all + single->cursor.first, P * all,
                                          tensor_2d(numbers(t) + i * single->cursor.N * cols, F64,
                                                    single->cursor.N, cols), &one,
                                         single->context->err);
        if (*found == SINGLE_HAS || one == SINGLE_HAS_NOT) *found = one;
    }
    if (!single->failed && *found == SINGLE_HAS_NOT) memset(t.data, 0, tensor_bytes(t));
    return t;
}

/* A new result begins: the verdict of the one before is forgotten, its stepping stays. */
void single_begin_with(struct single *single, struct single_name name, const char *made_by, struct tensor have)
{
    single->verdict = (struct single_judgement){ .result = { .rows = tensor_rows(have), .cols = tensor_cols(have) },
                                            .have = have, .stepping = single->verdict.stepping };
    single_read_anew(single);
    memcpy(single->verdict.result.name, name.text, sizeof single->verdict.result.name);
    snprintf(single->verdict.result.made_by, sizeof single->verdict.result.made_by, "%s", made_by);
}

/* Begin a result whose numbers must be read.  first: below 0 for a tile's rows of several streams.  @return false:
 * not wanted, or the program does not have it; then all matrices end. */
static bool recompute_single_begin(struct single *single, struct single_name name, const char *made_by, int64_t rows,
                                   int64_t cols, int64_t first, int64_t whole)
{
    enum single_found found = SINGLE_HAS_NOT;
    if (single->failed || !single_wanted(single, name)) return false;
    memcpy(single->verdict.result.name, name.text, sizeof single->verdict.result.name);
    const struct tensor have = whole > 0 && first < 0 ? fetch_streams(single, name.text, rows, cols, &found)
                                                      : single_fetch(single, name.text, rows, cols, first,
                                                                     whole, &found);
    if (!single->failed) single_begin_with(single, name, made_by, have);
    if (!single->failed && found != SINGLE_HAS_NOT) return true;
    single_release(single, 0);
    return false;
}

/* Rows of a tile's tokens are read for it only; other tensors are read whole. */
bool single_begin(struct single *single, struct single_name name, const char *made_by, int64_t rows, int64_t cols)
{
    const bool of_tile = single_is_tile(single) && rows == single->cursor.N;
    if (single_in_streams(single, rows)) return recompute_single_begin(single, name, made_by, rows, cols, -1, rows);
    return recompute_single_begin(single, name, made_by, rows, cols, of_tile ? single->cursor.first : 0,
                                  of_tile ? single_whole_rows(single, rows) : 0);
}

bool single_begin_block(struct single *single, struct single_name name, const char *made_by, struct single_block block,
                        int64_t whole, int64_t cols)
{
    return recompute_single_begin(single, name, made_by, block.rows, cols, block.first, whole);
}

/* The first missing input is the one that the report names. */
static void note_lacking(struct single *single, struct single_name name, enum single_found found)
{
    if (!single->failed && found != SINGLE_HAS && single->reading.lacks[0] == 0)
        memcpy(single->reading.lacks, name.text, sizeof single->reading.lacks);
}

/* Read an input, and note its name if the program lacks it. */
static struct tensor recompute_single_input(struct single *single, struct single_name name, int64_t rows, int64_t cols,
                                            int64_t first, int64_t whole)
{
    enum single_found found = SINGLE_HAS_NOT;
    const struct tensor t = single_fetch(single, name.text, rows, cols, first, whole, &found);
    note_lacking(single, name, found);
    return t;
}

struct tensor single_input_streams(struct single *single, struct single_name name, int64_t rows, int64_t cols)
{
    enum single_found found = SINGLE_HAS_NOT;
    const struct tensor t = fetch_streams(single, name.text, rows, cols, &found);
    note_lacking(single, name, found);
    return t;
}

struct tensor single_input(struct single *single, struct single_name name, int64_t rows, int64_t cols)
{
    return recompute_single_input(single, name, rows, cols, 0, 0);
}

struct tensor single_input_rows(struct single *single, struct single_name name, int64_t rows, int64_t cols)
{
    return recompute_single_input(single, name, rows, cols, single_first_row(single, rows),
                                  single_whole_rows(single, rows));
}

struct tensor single_input_block(struct single *single, struct single_name name, struct single_block block,
                                 int64_t whole, int64_t cols)
{
    return recompute_single_input(single, name, block.rows, cols, block.first, block.rows < whole ? whole : 0);
}

/* How many ranks have parts of a tensor that are added up; 1: it is not a sum. */
static int parts_of(struct single *single, struct single_name name, int64_t first, int64_t whole,
                    struct tensor absolute)
{
    int parts = 1;
    if (!single->failed && single->context->source.parts)
        single->failed = single->context->source.parts(single->context->source.context, name.text, first, whole,
                                                       absolute, &parts, single->context->err);
    return parts;
}

int single_parts(struct single *single, struct single_name name)
{
    return parts_of(single, name, 0, 0, tensor_none);
}

bool single_has_parts(struct single *single, struct single_name name) { return single_parts(single, name) > 1; }

/* Sizes of parts where ranks have parts, else the absolute numbers themselves. */
struct single_sizes single_sizes_of(struct single *single, struct single_name name, struct tensor x, int64_t first,
                                    int64_t whole)
{
    struct single_sizes sizes = { .absolute = single_new(single, tensor_rows(x), tensor_cols(x)) };
    const int64_t P = single_in_streams(single, tensor_rows(x)) ? STREAMS(single->context->config) : 1,
        n = tensor_rows(x) / P,
                  cols = tensor_cols(x);
    for (int64_t i = 0; i < P && !single->failed; i++)
        sizes.parts = parts_of(single, name, P > 1 ? i * (whole / P) + single->cursor.first : first, whole,
                               tensor_2d(numbers(sizes.absolute) + i * n * cols, F64, n, cols));
    for (int64_t i = 0; !single->failed && sizes.parts == 1 && i < tensor_count(x); i++)
        numbers(sizes.absolute)[i] = fabs(numbers(x)[i]);
    return sizes;
}
