/* routed.c -- of a tile's tokens: their choices, and the rows that experts compute of them.
 *
 * Rows are sorted by expert, so a tile has some consecutive rows of each expert.  Where these begin follows from the
 * choices of all tokens, which are found once for a layer and kept: 12 bytes a choice.
 * route.c finds the choices of all tokens; walk.c asks for a tile's.  The list of choices lives until another layer's
 * logits are asked for.
 */
#include "emulated_devices/check/recompute/routing.h"
#include "ref/model/config.h"
#include <stdlib.h>
#include <string.h>

/* ---- the choices of all tokens ----------------------------------------------------------------------------------- */

/* The check's end, and another layer, free the choices. */
void routing_forget(struct single *single)
{
    free(single->routed.experts), free(single->routed.weights);
    single->routed = (struct single_routed){ 0 };
}

/* Copy the choices of a layer out of the matrices, which end with the result. */
static void routed_keep(struct single *single, int logits, const struct routing *routing)
{
    const size_t n = (size_t)tensor_count(routing->experts);
    routing_forget(single);
    single->routed = (struct single_routed){ .logits = logits, .experts = malloc(n * sizeof(int32_t) + 1),
                                        .weights = malloc(n * sizeof(double) + 1), .rows = routing->rows };
    if (single->routed.experts == NULL || single->routed.weights == NULL) {
        single->failed = fail(single->context->err, ERR_MEMORY, "no memory for the choices of experts");
        return;
    }
    memcpy(single->routed.experts, routing->experts.data, n * sizeof(int32_t));
    memcpy(single->routed.weights, routing->weights.data, n * sizeof(double));
}

/* Make sure that the choices of all tokens are known.  @return whether they are. */
static bool know_all(struct single *single, int logits)
{
    const int64_t first = single->cursor.first, tokens = single->cursor.N;
    const int used = single->memory.used;
    if (single->routed.experts && single->routed.logits == logits) return true;
    /* Choices need all logits, so the cursor leaves the tile and comes back. */
    single_take_all(single);
    const struct routing all = routing_of_all(single, logits);
    if (single_going(single)) routed_keep(single, logits, &all);
    single_release(single, used);
    single_take(single, first, tokens);
    return single_going(single);
}

/* Find the row of the whole where the tile's rows of each expert begin: rows of experts before, plus the tokens
 * before the tile. */
static void find_starts(const struct single *single, struct routing *routing)
{
    const int32_t *chosen = single->routed.experts;
    const int64_t all = single->context->all.B * single->context->all.S * routing->k,
        before = single->cursor.first * routing->k;
    int64_t total = 0;
    for (int64_t i = 0; i < all; i++)
        if (chosen[i] >= 0 && chosen[i] + 1 < routing->E) routing->start[chosen[i] + 1]++;
    for (int64_t e = 0; e < routing->E; e++) total += routing->start[e], routing->start[e] = total;
    /* Choices of tokens before the tile have filled the rows before it. */
    for (int64_t i = 0; i < before; i++)
        if (chosen[i] >= 0 && chosen[i] < routing->E) routing->start[chosen[i]]++;
}

/* ---- of a tile --------------------------------------------------------------------------------------------------- */

/* A tile's choices are a part of the list; the rows are sorted anew for the tile. */
struct routing routing_of(struct single *single, int logits)
{
    if (!single_is_tile(single)) return routing_of_all(single, logits);
    struct routing r = { .layer = single->context->graph->node[single_slot(single, logits)->maker].layer,
                         .E = single->context->config->mixture.E,
                         .k = single->context->config->mixture.k, .logits = single_act(single, logits) };
    if (!single_going(single) || !know_all(single, logits)) return r;
    routing_room(single, &r);
    const struct tensor start = single_new(single, 1, r.E);
    if (single->failed) return r;
    int32_t *const chosen = r.experts.data;
    memcpy(chosen, single->routed.experts + single->cursor.first * r.k,
           (size_t)(single->cursor.N * r.k) * sizeof *chosen);
    memcpy(r.weights.data, single->routed.weights + single->cursor.first * r.k, tensor_bytes(r.weights));
    /* Rows of all other experts are hidden for a pass of one expert's weight. */
    for (int64_t i = 0; i < single->cursor.N * r.k && single->cursor.one_expert; i++)
        if (chosen[i] != single->cursor.expert) chosen[i] = CHOICE_NONE;
    routing_sort(single, &r);
    r.start = start.data, r.whole = single->routed.rows;
    find_starts(single, &r);
    return r;
}

/* Read the tile's rows: consecutive rows of each expert, one piece per expert. */
struct tensor routing_input(struct single *single, struct single_name name, const struct routing *routing, int64_t cols,
                            enum single_found *found)
{
    const struct tensor t = single_new(single, routing->rows, cols);
    int64_t at = 0;
    *found = SINGLE_HAS;
    for (int64_t e = 0; e < routing->E && !single->failed; e++) {
        const int64_t n = routing_count(routing, e);
        enum single_found one = SINGLE_HAS;
        if (n > 0)
            single->failed = single->context->source.fetch_rows(single->context->source.context, name.text,
                                                                routing->start[e], routing->whole,
                                                                tensor_2d(numbers(t) + at * cols, F64, n, cols), &one,
                                                          single->context->err);
        if (one != SINGLE_HAS) *found = one;
        at += n;
    }
    return t;
}

/* The sizes of a tile's rows are read expert by expert; the most parts of any expert count. */
struct single_sizes routing_sizes(struct single *single, struct single_name name, const struct routing *routing,
                                  struct tensor x)
{
    struct single_sizes all = { .absolute = single_new(single, tensor_rows(x), tensor_cols(x)), .parts = 1 };
    const int64_t cols = tensor_cols(x);
    int64_t at = 0;
    for (int64_t e = 0; e < routing->E && !single->failed; e++) {
        const int used = single->memory.used;
        const int64_t n = routing_count(routing, e);
        if (n == 0) continue;
        /* A tile's rows of expert e are consecutive in the program's tensor, from start[e] on. */
        const struct single_sizes one =
            single_sizes_of(single, name, tensor_2d(numbers(x) + at * cols, F64, n, cols), routing->start[e],
                            routing->whole);
        if (!single->failed) memcpy(numbers(all.absolute) + at * cols, one.absolute.data, tensor_bytes(one.absolute));
        if (one.parts > all.parts) all.parts = one.parts;
        single_release(single, used);
        at += n;
    }
    return all;
}

/* Where a tile's row is in the whole: the report names rows of the whole. */
void routing_note_rows(struct single *single, const struct routing *routing)
{
    const struct tensor memory = single_new(single, 1, routing->rows);
    int64_t *const row = memory.data;
    for (int64_t e = 0, next = 0; e < routing->E && !single->failed; e++)
        for (int64_t i = 0; i < routing_count(routing, e); i++) row[next++] = routing->start[e] + i;
    single->verdict.row_of = single->failed ? NULL : row;
}
