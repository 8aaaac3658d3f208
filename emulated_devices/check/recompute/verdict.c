/* verdict.c -- holds the program's result to what is right: the bounds decide, then what explains a wrong result.
 * Each pass of walk.c ends here, in single_end, single_end_tile or single_end_window.  The source gets every verdict by
 * its found(). */
#include "emulated_devices/check/recompute/parts.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a result is wrong: [rows], [cols]. */
struct marks { unsigned char *row, *col; };

/* Note an element outside its bound, and the rows and columns that contain one. */
static void note_wrong(struct single_result *result, int64_t i, const struct marks *marks)
{
    const int64_t at = i / result->cols, c = i % result->cols;
    if (result->wrong++ == 0) result->first_row = result->last_row = at, result->first_col = result->last_col = c;
    if (at > result->last_row) result->last_row = at;
    if (c < result->first_col) result->first_col = c;
    if (c > result->last_col) result->last_col = c;
    marks->row[at] = marks->col[c] = 1;
}

/* Divide the error by the bound.  A NaN is infinitely wrong; an error of 0 is right whatever the bound. */
static double over(double error, double bound)
{
    if (error == 0) return 0;
    return isfinite(error) && isfinite(bound) ? error / bound : error == error && !isfinite(bound) ? 0 : INFINITY;
}

/* Compute the factor and the residual of the whole result from the sums of all elements. */
static void verdict_finish(struct single_result *result)
{
    const double yy = result->squares[0], hy = result->squares[1], hh = result->squares[2], bb = result->squares[3];
    result->factor = yy > 0 ? hy / yy : NAN;
    result->residual = sqrt(fmax(0, hh - 2 * result->factor * hy + result->factor * result->factor * yy) / yy);
    result->allowed = sqrt(bb / yy);
}

/* Elements that are not judged take the right number, so they count as right. */
static void fill_in(struct single *single, const struct single_value *value)
{
    double *have = numbers(single->verdict.have);
    for (int64_t i = 0; single->context->source.some && i < tensor_count(value->y); i++)
        if (isnan(have[i])) have[i] = numbers(value->y)[i];
}

/* Compare element by element by the larger bound, and note the worst.  The smaller bound tells a fused result from
 * one with stored steps. */
static void verdict_compare(struct single *single, const struct single_value *value, const struct marks *marks)
{
    fill_in(single, value);
    struct single_result *r = &single->verdict.result;
    const int64_t n = tensor_count(value->y);
    const double *have = numbers(single->verdict.have), *y = numbers(value->y), *b1 = numbers(value->fused),
                 *b2 = single->rounding.fused ? b1 : numbers(value->steps);
    double yy = 0, hy = 0, hh = 0, bb = 0;
    assert(n == r->rows * r->cols && n == tensor_count(single->verdict.have));
    bool steps = false;
    for (int64_t i = 0; i < n; i++) {
        const double error = fabs(have[i] - y[i]), ratio = over(error, b2[i]);
        if (ratio > r->ratio || i == 0) r->ratio = ratio, r->worst = i, r->have = have[i], r->want = y[i];
        if (ratio > 1) note_wrong(r, i, marks);
        /* An element beyond the smaller bound alone makes the result stepwise. */
        steps = steps || over(error, b1[i]) > 1;
        yy += y[i] * y[i], hy += have[i] * y[i], hh += have[i] * have[i], bb += b2[i] * b2[i];
    }
    r->verdict = r->wrong ? SINGLE_WRONG : steps ? SINGLE_STEPWISE : SINGLE_RIGHT;
    r->squares[0] = yy, r->squares[1] = hy, r->squares[2] = hh, r->squares[3] = bb;
    verdict_finish(r);
    for (int64_t i = 0; i < r->rows; i++) r->wrong_rows += marks->row[i];
    for (int64_t i = 0; i < r->cols; i++) r->wrong_cols += marks->col[i];
}

bool single_is_wide(const struct single *single)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, single->rounding.results, 1);
    if (!dtype_is_narrow(single->rounding.results)) return false;
    for (int64_t i = 0; i < tensor_count(single->verdict.have); i++) {
        tensor_set(one, 0, numbers(single->verdict.have)[i]);
        if (tensor_get(one, 0) != numbers(single->verdict.have)[i]) return true;
    }
    return false;
}

/* Round the value for the last time.  A sum stored at its end only is rounded by its own size, and if ranks store parts
 * of it by that of the parts; products have counted these.  A copy may be in a narrower format than the rest, a number
 * in a wider one. */
static struct single_value stored_at_last(struct single *single, struct single_value value)
{
    const struct rounding was = single->rounding;
    /* A number with more bits than its format has was never stored in 16 bits. */
    if (value.number && single_is_wide(single))
        single->rounding.store = single->rounding.sum, single->rounding.tiny = single->rounding.sum_tiny;
    if (!value.stored) {
        value.absolute = value.matrices > 0 ? tensor_none : single->verdict.absolute;
        value = single_settled(single, value);
        single->rounding = was;
        return value;
    }
    /* The last rounding is in the bounds already if these are larger than one rounding of the number. */
    for (int64_t i = 0; i < tensor_count(value.y); i++) {
        const double size = numbers(tensor_present(single->verdict.absolute) ? single->verdict.absolute : value.y)[i],
                     once = rounding_when_stored(&single->rounding, size, 0);
        numbers(value.fused)[i] = fmax(numbers(value.fused)[i], once),
            numbers(value.steps)[i] = fmax(numbers(value.steps)[i], once);
    }
    single->rounding = was;
    return value;
}

/* Stored numbers are clear if they leave at most this part of all squared errors.  The bug norm-statistics is said
 * so, and right runs with `store steps` (campaign.sh clean 1000) are right with it. */
static const double LEFT_BY_STORED = 0.75;
enum stored { STORED_CLEAR, STORED_PERHAPS, STORED_OTHER };

/* Whether stored numbers explain all errors together, not only the largest: a quarter of their squares.  A program
 * that does not store them gains only as much as choosing the best row does.  One factor that explains twice as
 * much is likelier, since a stored number differs from row to row. */
static enum stored explains(const struct single *single, double factor, const struct single_value *exact,
                            const struct single_value *stored)
{
    double before = 0, after = 0, times = 0;
    for (int64_t i = 0; i < tensor_count(stored->y); i++) {
        const double bound = numbers(stored->steps)[i], have = numbers(single->verdict.have)[i],
            y = numbers(exact->y)[i],
                     was = over(have - y, bound), is = over(have - numbers(stored->y)[i], bound),
                     scaled = over(have - factor * y, bound);
        before += was * was, after += is * is, times += scaled * scaled;
    }
    return times <= after / 2 ? STORED_OTHER : after <= LEFT_BY_STORED * before ? STORED_CLEAR : STORED_PERHAPS;
}

/* Compare once more with what the operation may have stored in 16 bits.  If that holds, the result is right by
 * steps, or wrong with a known reason.  @return whether stored numbers explain the result, but not clearly. */
static bool compare_stored(struct single *single, const struct single_value *exact)
{
    const struct single_term *t = &single->verdict.term[0];
    struct single_result found = single->verdict.result;
    /* Only the forward pass of a single summand has stored numbers. */
    if (single->verdict.result.verdict != SINGLE_WRONG
        || dtype_wide(single->rounding.results) == single->rounding.results ||
        single->verdict.terms != 1 || t->pass != SINGLE_FORWARD || t->node->operation->stored == NULL)
        return false;
    struct single_value v = single_attempt(single, t->node, t->node->operation->stored);
    if (v.status != SINGLE_DONE) return false;
    v = stored_at_last(single, v);
    unsigned char *memory = calloc((size_t)(found.rows + found.cols) + 1, 1);
    const struct marks ignored = { memory, memory + found.rows };
    if (memory == NULL) return false;
    single->verdict.result.wrong = 0;
    verdict_compare(single, &v, &ignored);
    const bool holds = single->verdict.result.verdict != SINGLE_WRONG;
    const enum stored is = holds ? explains(single, found.factor, exact, &v) : STORED_OTHER;
    /* Without --stored-norms the result stays wrong, but its reason is known. */
    if (is == STORED_CLEAR && !single->rounding.stored_norms)
        snprintf(found.mistake, sizeof found.mistake, "the statistics of its rows are rounded to %s, which "
                 "--stored-norms allows", dtype_name(single->rounding.results));
    if (!holds || !single->rounding.stored_norms) single->verdict.result = found;
    else {
        single->verdict.result.wrong_rows = single->verdict.result.wrong_cols = 0;
        single->verdict.result.verdict = SINGLE_STEPWISE;
    }
    free(memory);
    return is == STORED_PERHAPS;
}

/* Nobody diagnoses if the source has no explainer; verdicts stay as they are. */
static void explain(struct single *single, const struct single_value *right, bool number)
{
    if (single->context->source.explainer) single->context->source.explainer->explain(single, right, number);
}

/* Compare with what is right, then with stored statistics; then look for what explains a wrong result. */
static void verdict_judge(struct single *single, const struct single_value *right, const struct marks *marks)
{
    struct single_result *r = &single->verdict.result;
    verdict_compare(single, right, marks);
    const bool perhaps = compare_stored(single, right);
    if (single->failed) return;
    /* A number that steps of 16 bits explain may still be a mistake. */
    if (r->verdict == SINGLE_STEPWISE && right->number && single_is_wide(single)) {
        explain(single, right, true);
        if (r->mistake[0]) r->verdict = SINGLE_WRONG, note_wrong(r, 0, marks);
    }
    /* The numbers may be right while the program keeps its states in 16 bits. */
    if (r->verdict < SINGLE_WRONG && single->verdict.wrong_anyway) {
        r->verdict = SINGLE_WRONG;
        snprintf(r->mistake, sizeof r->mistake, "%s", single->verdict.wrong_anyway);
    }
    if (r->verdict == SINGLE_WRONG && r->mistake[0] == 0) explain(single, right, false);
    if (perhaps && r->verdict == SINGLE_WRONG && r->mistake[0] == 0)
        snprintf(r->mistake, sizeof r->mistake, "perhaps the statistics of its rows are rounded to %s, which "
                 "--stored-norms allows", dtype_name(single->rounding.results));
    if (r->verdict == SINGLE_WRONG && !single->failed) single_note_expert(single, marks->row);
    if (r->verdict == SINGLE_WRONG && single->verdict.doubt[0]) {
        r->verdict = SINGLE_LACKS;
        memcpy(r->lacks, single->verdict.doubt, sizeof r->lacks);
    }
}

/* A result without inputs is reported, too: its verdict says what is missing. */
void single_end(struct single *single, struct single_value right)
{
    struct single_result *r = &single->verdict.result;
    const enum single_status status = single_status(single);
    unsigned char *memory = calloc((size_t)(r->rows + r->cols) + 1, 1);
    const struct marks m = { memory, memory + r->rows };
    if (memory == NULL && !single->failed)
        single->failed = fail(single->context->err, ERR_MEMORY, "no memory to compare %s", r->name);
    /* An operation that recompute/ does not have is named in place of the words for the result. */
    if (status == SINGLE_NOT_KNOWN) {
        r->verdict = SINGLE_UNKNOWN;
        snprintf(r->made_by, sizeof r->made_by, "%.63s", single->reading.unknown);
    } else if (status == SINGLE_LACKING) r->verdict = SINGLE_LACKS;
    memcpy(r->lacks, single->reading.lacks, sizeof r->lacks);
    /* Only a complete pass is compared; the verdict of all others is set above. */
    if (status == SINGLE_DONE && !single->failed) right = stored_at_last(single, right);
    if (status == SINGLE_DONE && !single->failed) verdict_judge(single, &right, &m);
    if (!single->failed) single->context->source.found(single->context->source.context, r);
    free(memory);
    single_release(single, 0);
}

/* ---- a result in tiles ------------------------------------------------------------------------------------------- */

/* The row of the whole that a row of the tile is. */
static int64_t row_of_whole(const struct single *single, int64_t first_row, int64_t row)
{
    return single->verdict.row_of ? single->verdict.row_of[row]
           : single_row_of_whole(single, single->verdict.result.rows, first_row, row);
}

/* Add the place of what is wrong in a tile.  Tiles have no rows in common. */
static void add_place(struct single_tally *tally, const struct single *single, int64_t first_row)
{
    const struct single_result *tile = &single->verdict.result;
    struct single_result *sum = &tally->sum;
    const int64_t first = row_of_whole(single, first_row, tile->first_row),
                  last = row_of_whole(single, first_row, tile->last_row);
    const bool is_first = sum->wrong == 0;
    if (is_first) tally->row = tile->first_row, tally->token = single->cursor.first;
    sum->first_row = is_first || first < sum->first_row ? first : sum->first_row;
    sum->last_row = is_first || last > sum->last_row ? last : sum->last_row;
    sum->first_col = is_first || tile->first_col < sum->first_col ? tile->first_col : sum->first_col;
    sum->last_col = is_first || tile->last_col > sum->last_col ? tile->last_col : sum->last_col;
    if (is_first) sum->experts = tile->experts, sum->tokens = tile->tokens, sum->expert = tile->expert;
    else if (tile->expert != sum->expert) sum->expert = -1;
    sum->wrong += tile->wrong, sum->wrong_rows += tile->wrong_rows;
}

/* Add a tile to the sum over the result; the worst element keeps its place in the whole. */
static void add_tile(struct single_tally *tally, const struct single *single, int64_t first_row)
{
    const struct single_result *tile = &single->verdict.result;
    struct single_result *sum = &tally->sum;
    const int64_t row = tile->worst / tile->cols, col = tile->worst % tile->cols;
    const bool first = sum->cols == 0;
    for (int k = 0; k < 4; k++) sum->squares[k] += tile->squares[k];
    if (tile->verdict > sum->verdict) sum->verdict = tile->verdict;
    sum->cols = tile->cols;
    if (tile->wrong > 0) add_place(tally, single, first_row);
    if (tile->rows == 0 || (!first && !(tile->ratio > sum->ratio))) return;
    sum->ratio = tile->ratio, sum->have = tile->have, sum->want = tile->want;
    sum->worst = row_of_whole(single, first_row, row) * tile->cols + col;
}

/* Wrong columns are marked over all tiles. */
static void mark_columns(struct single_tally *tally, const struct single *single, const unsigned char *col)
{
    const int64_t cols = single->verdict.result.cols;
    if (single->verdict.result.wrong == 0) return;
    if (tally->col == NULL) tally->col = calloc((size_t)cols + 1, 1);
    for (int64_t i = 0; tally->col && i < cols; i++) tally->col[i] |= col[i];
}

/* A norm may be right by what its rows store, here as in single_end. */
bool single_count_tile(struct single *single, struct single_value value, int64_t first_row, struct single_tally *tally)
{
    const int64_t rows = single->verdict.result.rows;
    unsigned char *memory = calloc((size_t)(rows + single->verdict.result.cols) + 1, 1);
    const struct marks m = { memory, memory + rows };
    bool compared = memory && single_going(single) && tensor_count(value.y) == tensor_count(single->verdict.have);
    if (compared) value = stored_at_last(single, value);
    compared = compared && !single->failed;
    if (compared) verdict_compare(single, &value, &m), compare_stored(single, &value);
    if (compared && single->verdict.result.wrong > 0) single_note_expert(single, m.row);
    if (compared) mark_columns(tally, single, m.col), add_tile(tally, single, first_row);
    free(memory);
    single_release(single, 0);
    return compared && !single->failed && (tally->sum.wrong == 0 || tally->col);
}

bool single_end_tile(struct single *single, struct single_value value, int64_t first_row, struct single_tally *tally)
{
    return single_count_tile(single, value, first_row, tally) && tally->sum.wrong == 0;
}

/* Names and shapes are those of the last tile; what was counted is that of all. */
static void take_tally(struct single *single, const struct single_tally *tally, int64_t rows)
{
    struct single_result *r = &single->verdict.result;
    const struct single_result tile = *r;
    *r = tally->sum;
    memcpy(r->name, tile.name, sizeof tile.name);
    memcpy(r->made_by, tile.made_by, sizeof tile.made_by);
    r->rows = rows, r->cols = tile.cols, r->head = tile.head, r->row_head = tile.row_head;
    verdict_finish(r);
}

/* All tiles were right, so only the worst element and the sums are reported. */
void single_end_tiles(struct single *single, const struct single_tally *tally, int64_t rows)
{
    take_tally(single, tally, rows);
    if (!single->failed) single->context->source.found(single->context->source.context, &single->verdict.result);
}

/* The window is judged as a whole result is; then the counts of all tiles take the place of the window's. */
bool single_end_window(struct single *single, struct single_value value, int64_t first_row,
                       const struct single_tally *tally, int64_t rows)
{
    struct single_result *r = &single->verdict.result;
    unsigned char *memory = calloc((size_t)(r->rows + r->cols) + 1, 1);
    const struct marks m = { memory, memory + r->rows };
    const bool judged = memory && single_going(single) && tensor_count(value.y) == tensor_count(single->verdict.have);
    if (judged) value = stored_at_last(single, value), verdict_judge(single, &value, &m);
    const struct single_result window = *r;
    const int64_t seen = row_of_whole(single, first_row, 0);
    take_tally(single, tally, rows);
    for (int64_t i = 0; tally->col && i < r->cols; i++) r->wrong_cols += tally->col[i];
    r->verdict = window.verdict == SINGLE_LACKS ? SINGLE_LACKS : SINGLE_WRONG, r->scaled = window.scaled;
    r->seen_row = seen, r->seen_rows = window.rows;
    memcpy(r->lacks, window.lacks, sizeof r->lacks);
    memcpy(r->mistake, window.mistake, sizeof r->mistake);
    if (judged && !single->failed) single->context->source.found(single->context->source.context, r);
    free(memory);
    single_release(single, 0);
    return judged;
}
