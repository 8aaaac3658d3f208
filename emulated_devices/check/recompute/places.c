/* places.c -- where a result is wrong: elements, rows, columns, heads, an expert. */
#include "emulated_devices/check/recompute/routing.h"
#include <stdio.h>

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* The only expert with wrong rows, of rows that are sorted by expert. */
static int64_t expert_of_rows(const struct routing *r, const unsigned char *row)
{
    int64_t only = -1, first = 0;
    for (int64_t e = 0; e < r->E; first += routing_count(r, e++)) {
        bool any = false;
        for (int64_t i = first; i < first + routing_count(r, e); i++) any = any || row[i];
        if (any && only >= 0) return -1;
        if (any) only = e;
    }
    return only;
}

static bool chose(const struct routing *r, int64_t token, int64_t expert)
{
    for (int64_t i = 0; i < r->k; i++)
        if (((const int32_t *)r->experts.data)[token * r->k + i] == expert) return true;
    return false;
}

/* The only expert whose tokens are the wrong rows: these, nearly all, and no others. */
static int64_t expert_of_tokens(const struct routing *r, const unsigned char *row)
{
    int64_t only = -1;
    for (int64_t e = 0; e < r->E; e++) {
        int64_t wrong = 0, tokens = 0, others = 0;
        for (int64_t n = 0; n < tensor_rows(r->logits); n++) {
            const bool mine = chose(r, n, e);
            tokens += mine, wrong += mine && row[n], others += !mine && row[n];
        }
        if (others > 0 || wrong < 2 || 10 * wrong < 9 * tokens || tokens == tensor_rows(r->logits)) continue;
        if (only >= 0) return -1;
        only = e;
    }
    return only;
}

void single_note_expert(struct single *s, const unsigned char *row)
{
    struct single_result *r = &s->verdict.result;
    r->expert = -1;
    if (s->verdict.slot == NULL) return;
    const struct single_node *maker = &s->context->graph->node[s->verdict.slot->maker];
    const bool sorted = s->verdict.slot->route >= 0;
    if (!sorted && maker->operation != &single_combine) return;
    const bool doubt = s->verdict.doubt;
    const struct routing routing = routing_of(s, sorted ? s->verdict.slot->route : maker->logits);
    s->verdict.doubt = doubt;
    if (!single_going(s) || r->rows != (sorted ? routing.rows : s->cursor.N)) return;
    r->experts = routing.E, r->tokens = !sorted;
    r->expert = sorted ? expert_of_rows(&routing, row) : expert_of_tokens(&routing, row);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Whether all that is wrong is in one head: of `size` lines each, of `all`. */
static bool is_one_head(int64_t first, int64_t last, int64_t size, int64_t all)
{
    return size > 0 && all > size && first / size == last / size;
}

static void describe_place(const struct single_result *r, char *out, size_t size)
{
    const long long n = r->rows * r->cols, wrong = r->wrong;
    if (r->rows == 1 && r->cols == 1) snprintf(out, size, "the number");
    else if (wrong == 1)
        snprintf(out, size, "only the element in row %lld, column %lld", (long long)r->first_row,
                 (long long)r->first_col);
    else if (r->rows > 1 && r->wrong_rows == 1)
        snprintf(out, size, "only row %lld of %lld", (long long)r->first_row, (long long)r->rows);
    else if (r->cols > 1 && r->wrong_cols == 1)
        snprintf(out, size, "only column %lld of %lld", (long long)r->first_col, (long long)r->cols);
    else if (r->experts > 1 && r->expert >= 0)
        snprintf(out, size, r->tokens ? "only tokens of expert %lld of %lld" : "only expert %lld of %lld",
                 (long long)r->expert, (long long)r->experts);
    else if (is_one_head(r->first_col, r->last_col, r->head, r->cols))
        snprintf(out, size, "only head %lld of %lld", (long long)(r->first_col / r->head),
                 (long long)(r->cols / r->head));
    else if (is_one_head(r->first_row, r->last_row, r->row_head, r->rows))
        snprintf(out, size, "only head %lld of %lld", (long long)(r->first_row / r->row_head),
                 (long long)(r->rows / r->row_head));
    else if (r->rows > 1 && 2 * r->wrong_rows <= r->rows && r->last_row - r->first_row + 1 == r->wrong_rows)
        snprintf(out, size, "only rows %lld to %lld of %lld", (long long)r->first_row, (long long)r->last_row,
                 (long long)r->rows);
    else if (r->cols > 1 && 2 * r->wrong_cols <= r->cols && r->last_col - r->first_col + 1 == r->wrong_cols)
        snprintf(out, size, "only columns %lld to %lld of %lld", (long long)r->first_col, (long long)r->last_col,
                 (long long)r->cols);
    else snprintf(out, size, "%lld of %lld elements", wrong, n);
}

const char *single_describe(const struct single_result *r, char *out, size_t size)
{
    char place[96];
    describe_place(r, place, sizeof place);
    if (r->wrong == 0) snprintf(out, size, "%s", r->mistake);
    else snprintf(out, size, "%s%s%s outside the bound", r->mistake, r->mistake[0] ? "; " : "", place);
    return out;
}
