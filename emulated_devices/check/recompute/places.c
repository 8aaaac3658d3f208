/* places.c -- where a result is wrong: elements, rows, columns, heads, an expert.
 * verdict.c calls single_note_expert for a wrong result; the reports print single_describe. */
#include "emulated_devices/check/recompute/routing.h"
#include <stdio.h>
#include <string.h>

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* Find the only expert with wrong rows, where rows are sorted by expert; -1: several have some. */
static int64_t expert_of_rows(const struct routing *routing, const unsigned char *row)
{
    int64_t only = -1, first = 0;
    for (int64_t e = 0; e < routing->E; first += routing_count(routing, e++)) {
        bool any = false;
        for (int64_t i = first; i < first + routing_count(routing, e); i++) any = any || row[i];
        if (any && only >= 0) return -1;
        if (any) only = e;
    }
    return only;
}

/* Whether a token has chosen this expert. */
static bool chose(const struct routing *routing, int64_t token, int64_t expert)
{
    for (int64_t i = 0; i < routing->k; i++)
        if (((const int32_t *)routing->experts.data)[token * routing->k + i] == expert) return true;
    return false;
}

/* Find the only expert whose tokens are the wrong rows: nearly all of its tokens, and no others. */
static int64_t expert_of_tokens(const struct routing *routing, const unsigned char *row)
{
    int64_t only = -1;
    for (int64_t e = 0; e < routing->E; e++) {
        int64_t wrong = 0, tokens = 0, others = 0;
        for (int64_t n = 0; n < tensor_rows(routing->logits); n++) {
            const bool mine = chose(routing, n, e);
            tokens += mine, wrong += mine && row[n], others += !mine && row[n];
        }
        /* The expert must have at least two wrong rows, and nine tenths of its tokens.  An expert that all tokens
         * choose says nothing. */
        if (others > 0 || wrong < 2 || 10 * wrong < 9 * tokens || tokens == tensor_rows(routing->logits)) continue;
        if (only >= 0) return -1;
        only = e;
    }
    return only;
}

/* The caller has marked wrong rows in `row`.  The routing is read again and must not change the verdict's doubt. */
void single_note_expert(struct single *single, const unsigned char *row)
{
    struct single_result *r = &single->verdict.result;
    r->expert = -1;
    if (single->verdict.slot == NULL) return;
    const struct single_node *maker = &single->context->graph->node[single->verdict.slot->maker];
    const bool sorted = single->verdict.slot->route >= 0;
    if (!sorted && maker->operation != &single_combine) return;
    char doubt[SINGLE_NAME];
    memcpy(doubt, single->verdict.doubt, sizeof doubt);
    const struct routing routing = routing_of(single, sorted ? single->verdict.slot->route : maker->logits);
    memcpy(single->verdict.doubt, doubt, sizeof doubt);
    /* A program with other choices may have another number of rows; then no expert is named. */
    if (!single_going(single) || r->rows != (sorted ? routing.rows : single->cursor.N)) return;
    r->experts = routing.E, r->tokens = !sorted;
    r->expert = sorted ? expert_of_rows(&routing, row) : expert_of_tokens(&routing, row);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Whether all that is wrong lies in one head.  A head has `size` lines of `all`. */
static bool is_one_head(int64_t first, int64_t last, int64_t size, int64_t all)
{
    return size > 0 && all > size && first / size == last / size;
}

/* Describe the place by the most particular words: an element, a row, an expert, a head, a range. */
static void describe_place(const struct single_result *result, char *out, size_t size)
{
    const long long n = result->rows * result->cols, wrong = result->wrong;
    /* Each case needs that the cases before do not hold, so the first that fits is the most particular. */
    if (result->rows == 1 && result->cols == 1) snprintf(out, size, "the number");
    else if (wrong == 1)
        snprintf(out, size, "only the element in row %lld, column %lld", (long long)result->first_row,
                 (long long)result->first_col);
    else if (result->rows > 1 && result->wrong_rows == 1)
        snprintf(out, size, "only row %lld of %lld", (long long)result->first_row, (long long)result->rows);
    else if (result->cols > 1 && result->wrong_cols == 1)
        snprintf(out, size, "only column %lld of %lld", (long long)result->first_col, (long long)result->cols);
    else if (result->experts > 1 && result->expert >= 0)
        snprintf(out, size, result->tokens ? "only tokens of expert %lld of %lld" : "only expert %lld of %lld",
                 (long long)result->expert, (long long)result->experts);
    else if (is_one_head(result->first_col, result->last_col, result->head, result->cols))
        snprintf(out, size, "only head %lld of %lld", (long long)(result->first_col / result->head),
                 (long long)(result->cols / result->head));
    else if (is_one_head(result->first_row, result->last_row, result->row_head, result->rows))
        snprintf(out, size, "only head %lld of %lld", (long long)(result->first_row / result->row_head),
                 (long long)(result->rows / result->row_head));
    else if (result->rows > 1 && 2 * result->wrong_rows <= result->rows
             && result->last_row - result->first_row + 1 == result->wrong_rows)
        snprintf(out, size, "only rows %lld to %lld of %lld", (long long)result->first_row, (long long)result->last_row,
                 (long long)result->rows);
    else if (result->cols > 1 && 2 * result->wrong_cols <= result->cols
             && result->last_col - result->first_col + 1 == result->wrong_cols)
        snprintf(out, size, "only columns %lld to %lld of %lld", (long long)result->first_col,
                 (long long)result->last_col, (long long)result->cols);
    else snprintf(out, size, "%lld of %lld elements", wrong, n);
}

const char *single_describe(const struct single_result *result, char *out, size_t size)
{
    char place[96], seen[64] = "";
    describe_place(result, place, sizeof place);
    /* A mistake that explains a part of a large result may not be all that is wrong. */
    if (result->seen_rows > 0 && result->mistake[0])
        snprintf(seen, sizeof seen, " (as rows %lld to %lld show)", (long long)result->seen_row,
                 (long long)(result->seen_row + result->seen_rows - 1));
    if (result->wrong == 0) snprintf(out, size, "%s%s", result->mistake, seen);
    else if (result->rows * result->cols == 1 && result->mistake[0] == 0)
        snprintf(out, size, "the number is off by %.3g times its bound", result->ratio);
    else snprintf(out, size, "%s%s%s%s outside the bound", result->mistake, seen, result->mistake[0] ? "; " : "",
                  place);
    return out;
}
