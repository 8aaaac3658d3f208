/* routed.c -- of a tile's tokens: their choices, and the rows that experts compute of them.
 *
 * Rows are sorted by expert, so a tile has some consecutive rows of each expert.  Where these begin follows from the
 * choices of all tokens, which are found once for a layer and kept: 12 bytes a choice.
 */
#include "emulated_devices/check/recompute/routing.h"
#include <stdlib.h>
#include <string.h>

/* ---- the choices of all tokens ----------------------------------------------------------------------------------- */

void routing_forget(struct single *s)
{
    free(s->routed.experts), free(s->routed.weights);
    s->routed = (struct single_routed){ 0 };
}

static void keep(struct single *s, int logits, const struct routing *r)
{
    const size_t n = (size_t)tensor_count(r->experts);
    routing_forget(s);
    s->routed = (struct single_routed){ .logits = logits, .experts = malloc(n * sizeof(int32_t) + 1),
                                        .weights = malloc(n * sizeof(double) + 1), .rows = r->rows };
    if (s->routed.experts == NULL || s->routed.weights == NULL) {
        s->failed = fail(s->context->err, ERR_MEMORY, "no memory for the choices of experts");
        return;
    }
    memcpy(s->routed.experts, r->experts.data, n * sizeof(int32_t));
    memcpy(s->routed.weights, r->weights.data, n * sizeof(double));
}

/* @return whether they are known. */
static bool know_all(struct single *s, int logits)
{
    const int64_t first = s->cursor.first, tokens = s->cursor.N;
    const int used = s->memory.used;
    if (s->routed.experts && s->routed.logits == logits) return true;
    single_take_all(s);
    const struct routing all = routing_of_all(s, logits);
    if (single_going(s)) keep(s, logits, &all);
    single_release(s, used);
    single_take(s, first, tokens);
    return single_going(s);
}

/* Where the tile's rows of each expert begin. */
static void find_starts(const struct single *s, struct routing *r)
{
    const int32_t *chosen = s->routed.experts;
    const int64_t all = s->context->all.B * s->context->all.S * r->k, before = s->cursor.first * r->k;
    int64_t total = 0;
    for (int64_t i = 0; i < all; i++)
        if (chosen[i] >= 0 && chosen[i] + 1 < r->E) r->start[chosen[i] + 1]++;
    for (int64_t e = 0; e < r->E; e++) total += r->start[e], r->start[e] = total;
    for (int64_t i = 0; i < before; i++)
        if (chosen[i] >= 0 && chosen[i] < r->E) r->start[chosen[i]]++;
}

/* ---- of a tile --------------------------------------------------------------------------------------------------- */

struct routing routing_of(struct single *s, int logits)
{
    if (!single_is_tile(s)) return routing_of_all(s, logits);
    struct routing r = { .layer = s->context->graph->node[single_slot(s, logits)->maker].layer,
                         .E = s->context->config->mixture.E,
                         .k = s->context->config->mixture.k, .logits = single_act(s, logits) };
    if (!single_going(s) || !know_all(s, logits)) return r;
    routing_room(s, &r);
    const struct tensor start = single_new(s, 1, r.E);
    if (s->failed) return r;
    int32_t *const chosen = r.experts.data;
    memcpy(chosen, s->routed.experts + s->cursor.first * r.k, (size_t)(s->cursor.N * r.k) * sizeof *chosen);
    memcpy(r.weights.data, s->routed.weights + s->cursor.first * r.k, tensor_bytes(r.weights));
    for (int64_t i = 0; i < s->cursor.N * r.k && s->cursor.one_expert; i++)
        if (chosen[i] != s->cursor.expert) chosen[i] = CHOICE_NONE;
    routing_sort(s, &r);
    r.start = start.data, r.whole = s->routed.rows;
    find_starts(s, &r);
    return r;
}

struct tensor routing_input(struct single *s, struct single_name name, const struct routing *r, int64_t cols,
                            enum single_found *found)
{
    const struct tensor t = single_new(s, r->rows, cols);
    int64_t at = 0;
    *found = SINGLE_HAS;
    for (int64_t e = 0; e < r->E && !s->failed; e++) {
        const int64_t n = routing_count(r, e);
        enum single_found one = SINGLE_HAS;
        if (n > 0)
            s->failed = s->context->source.fetch_rows(s->context->source.context, name.text, r->start[e], r->whole,
                                                      tensor_2d(numbers(t) + at * cols, F64, n, cols), &one,
                                                          s->context->err);
        if (one != SINGLE_HAS) *found = one;
        at += n;
    }
    return t;
}

struct single_sizes routing_sizes(struct single *s, struct single_name name, const struct routing *r, struct tensor x)
{
    struct single_sizes all = { .absolute = single_new(s, tensor_rows(x), tensor_cols(x)), .parts = 1 };
    const int64_t cols = tensor_cols(x);
    int64_t at = 0;
    for (int64_t e = 0; e < r->E && !s->failed; e++) {
        const int used = s->memory.used;
        const int64_t n = routing_count(r, e);
        if (n == 0) continue;
        const struct single_sizes one =
            single_sizes_of(s, name, tensor_2d(numbers(x) + at * cols, F64, n, cols), r->start[e], r->whole);
        if (!s->failed) memcpy(numbers(all.absolute) + at * cols, one.absolute.data, tensor_bytes(one.absolute));
        if (one.parts > all.parts) all.parts = one.parts;
        single_release(s, used);
        at += n;
    }
    return all;
}

void routing_note_rows(struct single *s, const struct routing *r)
{
    const struct tensor memory = single_new(s, 1, r->rows);
    int64_t *const row = memory.data;
    for (int64_t e = 0, next = 0; e < r->E && !s->failed; e++)
        for (int64_t i = 0; i < routing_count(r, e); i++) row[next++] = r->start[e] + i;
    s->verdict.row_of = s->failed ? NULL : row;
}
