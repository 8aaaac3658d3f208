/* verdict.c -- holds the program's result to what is right: the bounds decide, then what explains a wrong result. */
#include "emulated_devices/check/recompute/parts.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    double *have = numbers(s->verdict.have);
    for (int64_t i = 0; s->context->source.some && i < tensor_count(v->y); i++)
        if (isnan(have[i])) have[i] = numbers(v->y)[i];
}

static void compare(struct single *s, const struct single_value *v, const struct marks *m)
{
    fill_in(s, v);
    struct single_result *r = &s->verdict.result;
    const int64_t n = tensor_count(v->y);
    const double *have = numbers(s->verdict.have), *y = numbers(v->y), *b1 = numbers(v->fused),
                 *b2 = s->rounding.fused ? b1 : numbers(v->steps);
    double yy = 0, hy = 0, hh = 0, bb = 0;
    assert(n == r->rows * r->cols && n == tensor_count(s->verdict.have));
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
    for (int64_t i = 0; i < tensor_count(s->verdict.have); i++) {
        tensor_set(one, 0, numbers(s->verdict.have)[i]);
        if (tensor_get(one, 0) != numbers(s->verdict.have)[i]) return true;
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

/* What is known of stored numbers that hold: clear, if they leave at most this part of all squared errors.  The bug
 * norm-statistics is said so, and right runs with `store steps` (campaign.sh clean 1000) are right with it. */
static const double LEFT_BY_STORED = 0.75;
enum stored { STORED_CLEAR, STORED_PERHAPS, STORED_OTHER };

/* Whether stored numbers explain all errors together, not only the largest: a quarter of their squares.  Those of a
 * program that does not store them would become smaller by a part as small as what is chosen for a row is.  If one
 * factor of all numbers explains twice as much, it is that: a stored number is another for each row. */
static enum stored explains(const struct single *s, double factor, const struct single_value *exact,
                            const struct single_value *stored)
{
    double before = 0, after = 0, times = 0;
    for (int64_t i = 0; i < tensor_count(stored->y); i++) {
        const double bound = numbers(stored->steps)[i], have = numbers(s->verdict.have)[i], y = numbers(exact->y)[i],
                     was = over(have - y, bound), is = over(have - numbers(stored->y)[i], bound),
                     scaled = over(have - factor * y, bound);
        before += was * was, after += is * is, times += scaled * scaled;
    }
    return times <= after / 2 ? STORED_OTHER : after <= LEFT_BY_STORED * before ? STORED_CLEAR : STORED_PERHAPS;
}

/* Compare once more, with what the operation has stored in 16 bits.  If that holds, so does the result: by steps.  If
 * nobody has said that it does, it is still wrong, but one knows why.
 * @return whether it may be why: what is stored explains the result, but not clearly. */
static bool compare_stored(struct single *s, const struct single_value *exact)
{
    const struct single_term *t = &s->verdict.term[0];
    struct single_result found = s->verdict.result;
    if (s->verdict.result.verdict != SINGLE_WRONG || dtype_wide(s->rounding.results) == s->rounding.results ||
        s->verdict.terms != 1 || t->pass != SINGLE_FORWARD || t->node->operation->stored == NULL)
        return false;
    struct single_value v = single_attempt(s, t->node, t->node->operation->stored);
    if (v.status != SINGLE_DONE) return false;
    v = stored_at_last(s, v);
    unsigned char *memory = calloc((size_t)(found.rows + found.cols) + 1, 1);
    const struct marks ignored = { memory, memory + found.rows };
    if (memory == NULL) return false;
    s->verdict.result.wrong = 0;
    compare(s, &v, &ignored);
    const bool holds = s->verdict.result.verdict != SINGLE_WRONG;
    const enum stored is = holds ? explains(s, found.factor, exact, &v) : STORED_OTHER;
    if (is == STORED_CLEAR && !s->rounding.stored_norms)
        snprintf(found.mistake, sizeof found.mistake, "the statistics of its rows are rounded to %s, which "
                 "--stored-norms allows", dtype_name(s->rounding.results));
    if (!holds || !s->rounding.stored_norms) s->verdict.result = found;
    else {
        s->verdict.result.wrong_rows = s->verdict.result.wrong_cols = 0;
        s->verdict.result.verdict = SINGLE_STEPWISE;
    }
    free(memory);
    return is == STORED_PERHAPS;
}

static void explain(struct single *s, const struct single_value *right, bool number)
{
    if (s->context->source.explainer) s->context->source.explainer->explain(s, right, number);
}

/* Compare with what is right; then with stored statistics; then look for what explains a wrong result. */
static void judge(struct single *s, const struct single_value *right, const struct marks *m)
{
    struct single_result *r = &s->verdict.result;
    compare(s, right, m);
    const bool perhaps = compare_stored(s, right);
    if (s->failed) return;
    if (r->verdict == SINGLE_STEPWISE && right->number && single_is_wide(s)) {
        explain(s, right, true);
        if (r->mistake[0]) r->verdict = SINGLE_WRONG, note_wrong(r, 0, m);
    }
    if (r->verdict < SINGLE_WRONG && s->verdict.wrong_anyway) {
        r->verdict = SINGLE_WRONG;
        snprintf(r->mistake, sizeof r->mistake, "%s", s->verdict.wrong_anyway);
    }
    if (r->verdict == SINGLE_WRONG && r->mistake[0] == 0) explain(s, right, false);
    if (perhaps && r->verdict == SINGLE_WRONG && r->mistake[0] == 0)
        snprintf(r->mistake, sizeof r->mistake, "perhaps the statistics of its rows are rounded to %s, which "
                 "--stored-norms allows", dtype_name(s->rounding.results));
    if (r->verdict == SINGLE_WRONG && !s->failed) single_note_expert(s, m->row);
    if (r->verdict == SINGLE_WRONG && s->verdict.doubt) {
        r->verdict = SINGLE_LACKS;                      /* of two equal logits the program may have taken the other */
        snprintf(r->lacks, sizeof r->lacks, "the choice between experts with equal logits");
    }
}

void single_end(struct single *s, struct single_value right)
{
    struct single_result *r = &s->verdict.result;
    const enum single_status status = single_status(s);
    unsigned char *memory = calloc((size_t)(r->rows + r->cols) + 1, 1);
    const struct marks m = { memory, memory + r->rows };
    if (memory == NULL && !s->failed) s->failed = fail(s->context->err, ERR_MEMORY, "no memory to compare %s", r->name);
    if (status == SINGLE_NOT_KNOWN) {
        r->verdict = SINGLE_UNKNOWN;
        snprintf(r->made_by, sizeof r->made_by, "%.63s", s->reading.unknown);
    } else if (status == SINGLE_LACKING) r->verdict = SINGLE_LACKS;
    memcpy(r->lacks, s->reading.lacks, sizeof r->lacks);
    if (status == SINGLE_DONE && !s->failed) right = stored_at_last(s, right);
    if (status == SINGLE_DONE && !s->failed) judge(s, &right, &m);
    if (!s->failed) s->context->source.found(s->context->source.context, r);
    free(memory);
    single_release(s, 0);
}

/* ---- a result in tiles ------------------------------------------------------------------------------------------- */

static void add_tile(struct single_result *sum, const struct single *s, int64_t first_row)
{
    const struct single_result *tile = &s->verdict.result;
    const int64_t row = tile->worst / tile->cols, col = tile->worst % tile->cols;
    const bool first = sum->cols == 0;
    for (int k = 0; k < 4; k++) sum->squares[k] += tile->squares[k];
    if (tile->verdict > sum->verdict) sum->verdict = tile->verdict;
    sum->cols = tile->cols;
    if (tile->rows == 0 || (!first && !(tile->ratio > sum->ratio))) return;
    sum->ratio = tile->ratio, sum->have = tile->have, sum->want = tile->want;
    sum->worst = (s->verdict.row_of ? s->verdict.row_of[row] : single_row_of_whole(s, tile->rows, first_row,
                                                                                   row)) * tile->cols + col;
}

bool single_end_tile(struct single *s, struct single_value v, int64_t first_row, struct single_result *sum)
{
    unsigned char *memory = calloc((size_t)(s->verdict.result.rows + s->verdict.result.cols) + 1, 1);
    const struct marks ignored = { memory, memory + s->verdict.result.rows };
    bool right = memory && single_going(s) && tensor_count(v.y) == tensor_count(s->verdict.have);
    if (right) v = stored_at_last(s, v);
    if (right && !s->failed) compare(s, &v, &ignored);
    right = right && !s->failed && s->verdict.result.verdict < SINGLE_WRONG;
    if (right) add_tile(sum, s, first_row);
    free(memory);
    single_release(s, 0);
    return right;
}

void single_end_tiles(struct single *s, const struct single_result *sum, int64_t rows)
{
    const struct single_result tile = s->verdict.result;
    s->verdict.result = *sum;
    memcpy(s->verdict.result.name, tile.name, sizeof tile.name);
    memcpy(s->verdict.result.made_by, tile.made_by, sizeof tile.made_by);
    s->verdict.result.rows = rows, s->verdict.result.cols = tile.cols, s->verdict.result.head = tile.head;
    finish(&s->verdict.result);
    if (!s->failed) s->context->source.found(s->context->source.context, &s->verdict.result);
}
