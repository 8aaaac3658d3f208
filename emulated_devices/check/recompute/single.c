#include "emulated_devices/check/recompute/parts.h"
#include <assert.h>
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
    return single_name(kind, model_param(s->config, param).name);
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

static bool has_room(struct single *s)
{
    if (s->used < s->room) return true;
    const int room = s->room ? 2 * s->room : 64;
    struct single_memory *more = realloc(s->scratch, (size_t)room * sizeof *more);
    if (more) s->scratch = more, s->room = room;
    return more != NULL;
}

/* zeros: else anything. */
static struct tensor new_matrix(struct single *s, int64_t rows, int64_t cols, bool zeros)
{
    const size_t n = (size_t)(rows * cols) + 1;
    void *data = s->failed || !has_room(s) ? NULL : zeros ? calloc(n, sizeof(double)) : malloc(n * sizeof(double));
    if (data == NULL) {
        if (!s->failed) s->failed = fail(s->err, ERR_MEMORY, "no memory to recompute %s", s->now.name);
        return tensor_none;
    }
    s->scratch[s->used++] = (struct single_memory){ data, (int64_t)(n * sizeof(double)) };
    s->bytes += (int64_t)(n * sizeof(double));
    if (s->source.most && s->bytes > *s->source.most) *s->source.most = s->bytes;
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
    while (s->used > used) {
        const struct single_memory *m = &s->scratch[--s->used];
        s->bytes -= m->bytes;
        free(m->data);
    }
}

void single_close(struct single *s)
{
    single_release(s, 0);
    free(s->scratch);
    if (s->notes) s->source.explainer->forget(s->notes);
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
    const struct single_source *from = &s->source;
    if (!s->failed && whole > 0)
        s->failed = from->fetch_rows(from->context, name, first, whole, t, found, s->err);
    else if (!s->failed) s->failed = from->fetch(from->context, name, t, found, s->err);
    if (!s->failed && *found == SINGLE_HAS_NOT) memset(t.data, 0, tensor_bytes(t));
    return t;
}

bool single_wanted(const struct single *s, struct single_name name)
{
    return s->source.only == NULL || strcmp(s->source.only, name.text) == 0;
}

/* The rows of a tile's tokens in each stream. */
static struct tensor fetch_streams(struct single *s, const char *name, int64_t rows, int64_t cols,
                                   enum single_found *found)
{
    const struct tensor t = new_matrix(s, rows, cols, true);
    const struct single_source *from = &s->source;
    const int64_t all = s->all.B * s->all.S, P = rows / s->N;
    *found = SINGLE_HAS;
    for (int64_t i = 0; i < P && !s->failed; i++) {
        enum single_found one = SINGLE_HAS_NOT;
        s->failed = from->fetch_rows(from->context, name, i * all + s->first, P * all,
                                     tensor_2d(numbers(t) + i * s->N * cols, F64, s->N, cols), &one, s->err);
        if (*found == SINGLE_HAS || one == SINGLE_HAS_NOT) *found = one;
    }
    if (!s->failed && *found == SINGLE_HAS_NOT) memset(t.data, 0, tensor_bytes(t));
    return t;
}

void single_begin_with(struct single *s, struct single_name name, const char *made_by, struct tensor have)
{
    s->now = (struct single_result){ .rows = tensor_rows(have), .cols = tensor_cols(have) };
    s->unknown = s->doubt = false, s->terms = 0, s->slot = NULL, s->row_of = NULL, s->have = have;
    memcpy(s->now.name, name.text, sizeof s->now.name);
    snprintf(s->now.made_by, sizeof s->now.made_by, "%s", made_by);
}

/* first: below 0 for a tile's rows of several streams. */
static bool begin(struct single *s, struct single_name name, const char *made_by, int64_t rows, int64_t cols,
                  int64_t first, int64_t whole)
{
    enum single_found found = SINGLE_HAS_NOT;
    if (s->failed || !single_wanted(s, name)) return false;
    memcpy(s->now.name, name.text, sizeof s->now.name);
    const struct tensor have = whole > 0 && first < 0 ? fetch_streams(s, name.text, rows, cols, &found)
                                                      : fetch(s, name.text, rows, cols, first, whole, &found);
    if (!s->failed) single_begin_with(s, name, made_by, have);
    if (!s->failed && found != SINGLE_HAS_NOT) return true;
    single_release(s, 0);
    return false;
}

bool single_begin(struct single *s, struct single_name name, const char *made_by, int64_t rows, int64_t cols)
{
    const bool of_tile = single_is_tile(s) && rows == s->N;
    if (single_in_streams(s, rows)) return begin(s, name, made_by, rows, cols, -1, rows);
    return begin(s, name, made_by, rows, cols, of_tile ? s->first : 0, of_tile ? single_whole_rows(s, rows) : 0);
}

bool single_begin_block(struct single *s, struct single_name name, const char *made_by, struct single_block block,
                        int64_t whole, int64_t cols)
{
    return begin(s, name, made_by, block.rows, cols, block.first, whole);
}

static void note_lacking(struct single *s, struct single_name name, enum single_found found)
{
    if (!s->failed && found != SINGLE_HAS && s->now.lacks[0] == 0)
        memcpy(s->now.lacks, name.text, sizeof s->now.lacks);
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
    if (!s->failed && s->source.parts)
        s->failed = s->source.parts(s->source.context, name.text, first, whole, absolute, &parts, s->err);
    return parts;
}

bool single_has_parts(struct single *s, struct single_name name) { return parts_of(s, name, 0, 0, tensor_none) > 1; }

struct single_sizes single_sizes_of(struct single *s, struct single_name name, struct tensor x, int64_t first,
                                    int64_t whole)
{
    struct single_sizes sizes = { .absolute = single_new(s, tensor_rows(x), tensor_cols(x)) };
    const int64_t P = single_in_streams(s, tensor_rows(x)) ? STREAMS(s->config) : 1, n = tensor_rows(x) / P,
                  cols = tensor_cols(x);
    for (int64_t i = 0; i < P && !s->failed; i++)
        sizes.parts = parts_of(s, name, P > 1 ? i * (whole / P) + s->first : first, whole,
                               tensor_2d(numbers(sizes.absolute) + i * n * cols, F64, n, cols));
    for (int64_t i = 0; !s->failed && sizes.parts == 1 && i < tensor_count(x); i++)
        numbers(sizes.absolute)[i] = fabs(numbers(x)[i]);
    return sizes;
}

/* Where a result is wrong: [rows], [cols]. */
struct marks { unsigned char *row, *col; };

static void note_wrong(struct single_result *r, int64_t i, const struct marks *m)
{
    const int64_t at = i / r->cols, c = i % r->cols;
    if (r->wrong++ == 0) r->first_row = r->last_row = at, r->first_col = r->last_col = c;
    if (at > r->last_row) r->last_row = at;
    if (c < r->first_col) r->first_col = c;
    if (c > r->last_col) r->last_col = c;
    m->row[at] = m->col[c] = 1;
}

/* Error over bound; a NaN is infinitely wrong. */
static double over(double error, double bound)
{
    if (error == 0) return 0;
    return isfinite(error) && isfinite(bound) ? error / bound : error == error && !isfinite(bound) ? 0 : INFINITY;
}

/* What follows from the sums. */
static void finish(struct single_result *r)
{
    const double yy = r->squares[0], hy = r->squares[1], hh = r->squares[2], bb = r->squares[3];
    r->factor = yy > 0 ? hy / yy : NAN;
    r->residual = sqrt(fmax(0, hh - 2 * r->factor * hy + r->factor * r->factor * yy) / yy);
    r->allowed = sqrt(bb / yy);
}

/* What is not judged is right. */
static void fill_in(struct single *s, const struct single_value *v)
{
    double *have = numbers(s->have);
    for (int64_t i = 0; s->source.some && i < tensor_count(v->y); i++)
        if (isnan(have[i])) have[i] = numbers(v->y)[i];
}

static void compare(struct single *s, const struct single_value *v, const struct marks *m)
{
    fill_in(s, v);
    struct single_result *r = &s->now;
    const int64_t n = tensor_count(v->y);
    const double *have = numbers(s->have), *y = numbers(v->y), *b1 = numbers(v->fused),
                 *b2 = s->rounding.fused ? b1 : numbers(v->steps);
    double yy = 0, hy = 0, hh = 0, bb = 0;
    assert(n == r->rows * r->cols && n == tensor_count(s->have));
    bool steps = false;
    for (int64_t i = 0; i < n; i++) {
        const double error = fabs(have[i] - y[i]), ratio = over(error, b2[i]);
        if (ratio > r->ratio || i == 0) r->ratio = ratio, r->worst = i, r->have = have[i], r->want = y[i];
        if (ratio > 1) note_wrong(r, i, m);
        steps = steps || over(error, b1[i]) > 1;
        yy += y[i] * y[i], hy += have[i] * y[i], hh += have[i] * have[i], bb += b2[i] * b2[i];
    }
    r->verdict = r->wrong ? SINGLE_WRONG : steps ? SINGLE_STEPWISE : SINGLE_RIGHT;
    r->squares[0] = yy, r->squares[1] = hy, r->squares[2] = hh, r->squares[3] = bb;
    finish(r);
    for (int64_t i = 0; i < r->rows; i++) r->wrong_rows += m->row[i];
    for (int64_t i = 0; i < r->cols; i++) r->wrong_cols += m->col[i];
}

bool single_is_wide(const struct single *s)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, s->rounding.results, 1);
    if (!dtype_is_narrow(s->rounding.results)) return false;
    for (int64_t i = 0; i < tensor_count(s->have); i++) {
        tensor_set(one, 0, numbers(s->have)[i]);
        if (tensor_get(one, 0) != numbers(s->have)[i]) return true;
    }
    return false;
}

/* A sum that is stored at its end only is rounded by its own size; a copy may be in a narrower format than the rest, a
 * number in a wider one. */
static struct single_value stored_at_last(struct single *s, struct single_value v)
{
    const struct rounding was = s->rounding;
    if (v.number && single_is_wide(s)) s->rounding.store = s->rounding.sum, s->rounding.tiny = s->rounding.sum_tiny;
    if (!v.stored) {
        v.absolute = tensor_none, v = single_settled(s, v);
        s->rounding = was;
        return v;
    }
    for (int64_t i = 0; i < tensor_count(v.y); i++) {
        const double once = rounding_when_stored(&s->rounding, numbers(v.y)[i], 0);
        numbers(v.fused)[i] = fmax(numbers(v.fused)[i], once), numbers(v.steps)[i] = fmax(numbers(v.steps)[i], once);
    }
    s->rounding = was;
    return v;
}

/* What is known of stored numbers that hold. */
enum stored { STORED_CLEAR, STORED_PERHAPS, STORED_OTHER };

/* Whether stored numbers explain all errors together, not only the largest: a quarter of their squares.  Those of a
 * program that does not store them would become smaller by a part as small as what is chosen for a row is.  If one
 * factor of all numbers explains twice as much, it is that: a stored number is another for each row. */
static enum stored explains(const struct single *s, double factor, const struct single_value *exact,
                            const struct single_value *stored)
{
    double before = 0, after = 0, times = 0;
    for (int64_t i = 0; i < tensor_count(stored->y); i++) {
        const double bound = numbers(stored->steps)[i], have = numbers(s->have)[i], y = numbers(exact->y)[i],
                     was = over(have - y, bound), is = over(have - numbers(stored->y)[i], bound),
                     scaled = over(have - factor * y, bound);
        before += was * was, after += is * is, times += scaled * scaled;
    }
    return times <= after / 2 ? STORED_OTHER : after <= 0.75 * before ? STORED_CLEAR : STORED_PERHAPS;
}

/* Compare once more, with what the operation has stored in 16 bits.  If that holds, so does the result: by steps.  If
 * nobody has said that it does, it is still wrong, but one knows why.
 * @return whether it may be why: what is stored explains the result, but not clearly. */
static bool compare_stored(struct single *s, const struct single_value *exact)
{
    const struct single_term *t = &s->term[0];
    struct single_result found = s->now;
    if (s->now.verdict != SINGLE_WRONG || dtype_wide(s->rounding.results) == s->rounding.results || s->terms != 1 ||
        t->pass != SINGLE_FORWARD || t->node->operation->stored == NULL)
        return false;
    struct single_value v = t->node->operation->stored(s, t->node);
    if (!single_going(s)) return false;
    v = stored_at_last(s, v);
    unsigned char *memory = calloc((size_t)(found.rows + found.cols) + 1, 1);
    const struct marks ignored = { memory, memory + found.rows };
    if (memory == NULL) return false;
    s->now.wrong = 0;
    compare(s, &v, &ignored);
    const bool holds = s->now.verdict != SINGLE_WRONG;
    const enum stored is = holds ? explains(s, found.factor, exact, &v) : STORED_OTHER;
    if (is == STORED_CLEAR && !s->rounding.stored_norms)
        snprintf(found.mistake, sizeof found.mistake, "the statistics of its rows are rounded to %s, which "
                 "--stored-norms allows", dtype_name(s->rounding.results));
    if (!holds || !s->rounding.stored_norms) s->now = found;
    else s->now.wrong_rows = s->now.wrong_cols = 0, s->now.verdict = SINGLE_STEPWISE;
    free(memory);
    return is == STORED_PERHAPS;
}

static void explain(struct single *s, const struct single_value *right, bool number)
{
    if (s->source.explainer) s->source.explainer->explain(s, right, number);
}

/* Compare, explain and report. */
static void report(struct single *s, struct single_value v)
{
    const int64_t rows = s->now.rows, cols = s->now.cols;
    unsigned char *memory = calloc((size_t)(rows + cols) + 1, 1);
    const struct marks m = { memory, memory + rows };
    if (memory == NULL) s->failed = fail(s->err, ERR_MEMORY, "no memory to compare %s", s->now.name);
    v = stored_at_last(s, v);
    if (!s->failed) compare(s, &v, &m);
    const bool perhaps = !s->failed && compare_stored(s, &v);
    if (!s->failed && s->now.verdict == SINGLE_STEPWISE && v.number && single_is_wide(s)) {
        explain(s, &v, true);
        if (s->now.mistake[0]) s->now.verdict = SINGLE_WRONG, note_wrong(&s->now, 0, &m);
    }
    if (!s->failed && s->now.verdict < SINGLE_WRONG && s->wrong_anyway) {
        s->now.verdict = SINGLE_WRONG;
        snprintf(s->now.mistake, sizeof s->now.mistake, "%s", s->wrong_anyway);
    }
    if (!s->failed && s->now.verdict == SINGLE_WRONG && s->now.mistake[0] == 0) explain(s, &v, false);
    if (perhaps && s->now.verdict == SINGLE_WRONG && s->now.mistake[0] == 0)
        snprintf(s->now.mistake, sizeof s->now.mistake, "perhaps the statistics of its rows are rounded to %s, which "
                 "--stored-norms allows", dtype_name(s->rounding.results));
    if (!s->failed && s->now.verdict == SINGLE_WRONG) single_note_expert(s, m.row);
    if (s->now.verdict == SINGLE_WRONG && s->doubt) {
        s->now.verdict = SINGLE_LACKS;          /* of two equal logits the program may have taken the other */
        snprintf(s->now.lacks, sizeof s->now.lacks, "the choice between experts with equal logits");
    }
    if (!s->failed) s->source.found(s->source.context, &s->now);
    free(memory);
}

void single_end(struct single *s, struct single_value v)
{
    if (!s->failed && single_going(s)) report(s, v);
    else if (!s->failed) {
        s->now.verdict = s->unknown ? SINGLE_UNKNOWN : SINGLE_LACKS;
        s->source.found(s->source.context, &s->now);
    }
    single_release(s, 0);
}

/* ---- a result in tiles ------------------------------------------------------------------------------------------- */

static void add_tile(struct single_result *sum, const struct single *s, int64_t first_row)
{
    const struct single_result *tile = &s->now;
    const int64_t row = tile->worst / tile->cols, col = tile->worst % tile->cols;
    const bool first = sum->cols == 0;
    for (int k = 0; k < 4; k++) sum->squares[k] += tile->squares[k];
    if (tile->verdict > sum->verdict) sum->verdict = tile->verdict;
    sum->cols = tile->cols;
    if (tile->rows == 0 || (!first && !(tile->ratio > sum->ratio))) return;
    sum->ratio = tile->ratio, sum->have = tile->have, sum->want = tile->want;
    sum->worst = (s->row_of ? s->row_of[row] : single_row_of_whole(s, tile->rows, first_row, row)) * tile->cols + col;
}

bool single_end_tile(struct single *s, struct single_value v, int64_t first_row, struct single_result *sum)
{
    unsigned char *memory = calloc((size_t)(s->now.rows + s->now.cols) + 1, 1);
    const struct marks ignored = { memory, memory + s->now.rows };
    bool right = memory && single_going(s) && tensor_count(v.y) == tensor_count(s->have);
    if (right) v = stored_at_last(s, v);
    if (right && !s->failed) compare(s, &v, &ignored);
    right = right && !s->failed && s->now.verdict < SINGLE_WRONG;
    if (right) add_tile(sum, s, first_row);
    free(memory);
    single_release(s, 0);
    return right;
}

void single_end_tiles(struct single *s, const struct single_result *sum, int64_t rows)
{
    const struct single_result tile = s->now;
    s->now = *sum;
    memcpy(s->now.name, tile.name, sizeof tile.name);
    memcpy(s->now.made_by, tile.made_by, sizeof tile.made_by);
    s->now.rows = rows, s->now.cols = tile.cols, s->now.head = tile.head;
    finish(&s->now);
    if (!s->failed) s->source.found(s->source.context, &s->now);
}
