/* copied.c -- what a program gives that does not add up, or adds up again, what ranks have of a gradient: copies of
 * key/value heads on several ranks along tp, each with the gradient that comes from its own query heads.
 * mistakes.c calls suspect_copied for each summand of a wrong result.
 */
#include "emulated_devices/check/mistakes/mistakes.h"
#include "emulated_devices/check/recompute/summed.h"
#include "emulated_devices/check/recompute/turns.h"
#include "ref/model/kinds.h"
#include <string.h>

enum { MOST_HEADS = 256 };              /* of keys: beyond, nobody looks for copies */

/* ---- a gradient that the program says it has in parts ------------------------------------------------------------ */

/* Compute the summand from what the K-th rank of each sum has; 0: from numbers that are no sum. */
static struct single_value of_part(struct suspect *suspect, const struct single_term *term, int k, int parts)
{
    const struct single_sum_reading as = { .take = SUM_PART, .number = k, .parts = parts, .gradient = true };
    return sums_take(suspect->s, term->node, term->run, as);
}

/* Offer each part alone, and the sum of all of them added up once more. */
static void try_parts_alone(struct suspect *suspect, const struct single_term *term, int parts, double *y)
{
    struct single *s = suspect->s;
    const bool heads = single_slot(s, term->node->out)->head > 0;
    const struct single_value rest = of_part(suspect, term, 0, parts);
    const int used = s->memory.used;
    if (rest.status != SINGLE_DONE || tensor_count(rest.y) != suspect->count) return;
    for (int k = 1; k <= parts && !s->failed; k++) {
        const struct single_value one = of_part(suspect, term, k, parts);
        for (int64_t i = 0; one.status == SINGLE_DONE && i < suspect->count; i++)
            y[i] = suspect->want[i] - numbers(term->y)[i] + numbers(rest.y)[i] + numbers(one.y)[i];
        if (one.status == SINGLE_DONE)
            suspect_explained(suspect, y,
                              heads ? "part %d of %d alone: the gradients of copied keys and values are not summed"
                                    : "part %d of %d of its gradient alone: parts are not summed", k - 1, parts);
        single_release(s, used);
    }
    for (int64_t i = 0; !s->failed && i < suspect->count; i++)
        y[i] = suspect->want[i] + (parts - 1) * (numbers(term->y)[i] - numbers(rest.y)[i]);
    suspect_explained(suspect, y, heads ? "the gradients of copied keys and values are summed over %d ranks again"
                                        : "parts of its gradient are summed over %d ranks again", parts);
}

/* ---- a gradient that the program says each copy has whole -------------------------------------------------------- */

/* Replace the columns of keys and values by what one rank's query heads give them, where these heads use them.
 * taken: [K] which have been replaced. */
static void take_heads(const struct single *single, struct tensor of_rank, int64_t from, int64_t to, bool *taken,
                       double *y)
{
    const struct model_config *c = single->context->config;
    const int64_t cols = tensor_cols(of_rank), group = c->H / c->K;
    for (int64_t kv = from / group; kv <= (to - 1) / group; kv++) {
        if (taken[kv]) continue;
        taken[kv] = true;
        for (int64_t i = 0; i < tensor_count(of_rank); i++) {
            const int64_t at = i % cols, key = c->H * c->A + kv * c->A, value = key + c->K * c->A;
            if ((at >= key && at < key + c->A) || (at >= value && at < value + c->A)) y[i] = numbers(of_rank)[i];
        }
    }
}

/* The gradient of attention's input if only the query heads of one rank are there. */
static struct tensor of_query_heads(struct single *single, const struct single_term *term, int64_t from, int64_t to)
{
    const int64_t A = value_width(single->context->config);
    single->hypothesis.first_column = from * A, single->hypothesis.columns = (to - from) * A;
    const struct single_value value = single_attempt(single, term->node, term->run);
    single->hypothesis.first_column = single->hypothesis.columns = 0;
    return value.status == SINGLE_DONE ? value.y : tensor_none;
}

/* Offer the gradient that each rank's query heads give: each rank's by itself, then the first's that has a copy. */
static void try_heads_of_ranks(struct suspect *suspect, const struct single_term *term, double *y)
{
    struct single *s = suspect->s;
    const struct model_config *c = s->context->config;
    const int tp = s->context->source.mesh.tp;
    const size_t bytes = (size_t)suspect->count * sizeof *y;
    const struct tensor first = single_new(s, 1, suspect->count);
    bool by_first[MOST_HEADS] = { false };
    if (tp < 2 || tp > c->H || c->K > MOST_HEADS || suspect->cols != qkv_width(c) || value_width(c) != c->A
        || s->failed)
        return;
    memcpy(first.data, suspect->want, bytes);
    const int used = s->memory.used;
    for (int r = 0; r < tp && !s->failed; r++) {
        const int64_t from = part_begin(c->H, tp, r), to = part_begin(c->H, tp, r + 1);
        const struct tensor own = of_query_heads(s, term, from, to);
        bool taken[MOST_HEADS] = { false };
        if (tensor_present(own)) {
            memcpy(y, suspect->want, bytes);
            take_heads(s, own, from, to, taken, y), take_heads(s, own, from, to, by_first, numbers(first));
            suspect_explained(suspect, y, "keys and values have the gradient of rank %d's query heads alone: copies on "
                              "%d ranks are not summed", r, tp);
        }
        single_release(s, used);
    }
    suspect_explained(suspect, numbers(first), "keys and values have the gradient of a rank's query heads alone: "
                      "copies on %d ranks are not summed", tp);
}

void suspect_copied(struct suspect *suspect, const struct single_term *term, double *y)
{
    struct single *s = suspect->s;
    if (term->pass == SINGLE_FORWARD || term->node->out < 0 || term->run == NULL) return;
    single_read_anew(s);
    const int used = s->memory.used,
              parts = single_parts(s, single_name("grad/", single_slot(s, term->node->out)->name));
    if (parts > 1) try_parts_alone(suspect, term, parts, y);
    else if (term->node->operation == &single_attention && term->pass == SINGLE_INPUT)
        try_heads_of_ranks(suspect, term, y);
    single_release(s, used);
    single_read_anew(s);
}
