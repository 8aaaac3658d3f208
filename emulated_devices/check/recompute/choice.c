/* choice.c -- which expert a program took where a router's logits are equal, as those of 16 bits often are.
 *
 * Rows that experts compute show it: the row of expert e is its first matrix times the token.  A token's row is
 * searched where it may be: other open choices move the rows of an expert by one each.  If none of the experts has made
 * it, the rows are wrong whichever was chosen, and the first is taken.
 *
 * If both experts are chosen, only their order is open, which no row shows: the gradients of their weights do.
 */
#include "emulated_devices/check/recompute/routing.h"

enum { MOST_TIED = 64 };

/* A row is an expert's if it is so near, norm over norm: a number of bf16 is off by 2^-9 at most, and rows of two
 * experts hardly agree.  tests/cli/test_bugs.sh (test_equal_logits) wants the right choices of bf16 and fp16. */
static const double NEAR_ROW = 0.05;

/* The experts of a token that have the logit of its last choice, and how many of them are chosen. */
struct tied { int64_t count, chosen; int32_t expert[MOST_TIED]; };

static struct tied tied_of(const struct routing *r, int64_t token)
{
    const int64_t columns = tensor_cols(r->logits);
    const double *x = numbers(r->logits) + token * columns;
    const int32_t *chosen = (const int32_t *)r->experts.data + token * r->k;
    const double last = x[choice_made(chosen[r->k - 1])];
    struct tied t = { 0 };
    for (int64_t e = 0; e < columns && t.count < MOST_TIED; e++)
        if (x[e] == last) t.expert[t.count++] = (int32_t)e;
    for (int64_t i = 0; i < r->k; i++) t.chosen += x[choice_made(chosen[i])] == last;
    return t;
}

/* What the experts make: the program's rows, the tokens, and the node of the first product. */
struct made { const struct single_node *up; struct tensor rows, tokens; int64_t open; };

/* Whether a row near those of an expert is what it makes of a token. */
static bool has_made(struct single *s, const struct routing *r, const struct made *m, int64_t token, int32_t e)
{
    const int used = s->memory.used;
    const int64_t out = tensor_cols(m->rows), in = tensor_cols(m->tokens);
    const struct tensor W = single_param(s, m->up->weight + e * m->up->stride), y = single_new(s, 1, out);
    int64_t first = 0;
    bool found = false;
    if (single_going(s)) s->context->ops->linear_forward_add(y, tensor_2d(numbers(m->tokens) + token * in, F64, 1, in),
                                                             W);
    for (int32_t before = 0; before < e; before++) first += routing_count(r, before);
    for (int64_t i = first - m->open; single_going(s) && !found && i < first + routing_count(r, e) + m->open + 1; i++) {
        double off = 0, size = 0;
        if (i < 0 || i >= r->rows) continue;
        for (int64_t c = 0; c < out; c++) {
            const double want = numbers(y)[c], d = numbers(m->rows)[i * out + c] - want;
            off += d * d, size += want * want;
        }
        found = off <= NEAR_ROW * NEAR_ROW * size;
    }
    single_release(s, used);
    return found;
}

/* @return whether it is known now what the token has chosen. */
static bool settle(struct single *s, struct routing *r, const struct made *m, int64_t token)
{
    const struct tied t = tied_of(r, token);
    int32_t taken[MOST_TIED], *chosen = (int32_t *)r->experts.data + token * r->k;
    int64_t count = 0;
    if (t.count == MOST_TIED) return false;
    for (int64_t i = 0; i < t.count; i++) {
        if (t.expert[i] >= r->E) return false;          /* one without computation */
        if (has_made(s, r, m, token, t.expert[i])) taken[count++] = t.expert[i];
    }
    if (count == 0) return true;
    if (count != t.chosen) return false;
    for (int64_t i = 0; i < count; i++) chosen[r->k - count + i] = taken[i];
    return true;
}

static const struct single_node *node_of(const struct single *s, const struct single_operation *is, int logits)
{
    for (int v = 0; v < s->context->graph->nodes; v++) {
        const struct single_node *n = &s->context->graph->node[v];
        if (n->operation == is && n->logits == logits) return n;
    }
    return NULL;
}

/* Equal logits make equal keys, and nothing is dropped: a choice between them is open. */
static bool keys_are_logits(const struct single *s)
{
    const struct mixture_config *c = &s->context->config->mixture;
    return !c->router.biased && c->router.groups <= 1 && c->router.top_p == 0 && c->capacity_factor == 0 &&
           c->router.scores != SCORES_NEAR;
}

bool routing_settle(struct single *s, struct routing *r, int logits, const bool *open, int64_t count)
{
    const int used = s->memory.used;
    struct made m = { .up = node_of(s, &single_experts_up, logits), .open = count };
    bool all = m.up && keys_are_logits(s) && !single_slot(s, m.up->out)->unseen;
    if (!all) return false;
    const struct single_slot *up = single_slot(s, m.up->out);
    const struct single_reading outer = single_read_anew(s);
    m.rows = single_input(s, single_name("act/", up->name), r->rows, up->cols);
    m.tokens = single_act(s, m.up->in[0]);
    for (int64_t n = 0; n < tensor_rows(r->logits) && all && single_going(s); n++)
        if (open[n]) all = settle(s, r, &m, n);
    all = all && single_going(s);
    s->reading = outer;                                 /* without them it stays open */
    single_release(s, used);
    return all;
}

/* ---- the order of two that are both chosen ----------------------------------------------------------------------- */

static bool is_tie(const struct routing *r, int64_t token, int64_t i, int64_t j)
{
    const int32_t *chosen = (const int32_t *)r->experts.data + token * r->k;
    const double *x = numbers(r->logits) + token * tensor_cols(r->logits);
    return chosen[i] >= 0 && chosen[j] >= 0 && chosen[i] < r->E && chosen[j] < r->E && x[chosen[i]] == x[chosen[j]];
}

static bool has_ties(const struct routing *r)
{
    for (int64_t n = 0; n < tensor_rows(r->logits); n++)
        for (int64_t i = 1; i < r->k; i++)
            if (is_tie(r, n, i - 1, i)) return true;
    return false;
}

/* right: what the gradients of all weights are if the order is as it is now. */
static void exchange(struct routing *r, int64_t token, const double *have, double *right)
{
    int32_t *chosen = (int32_t *)r->experts.data + token * r->k;
    for (int64_t i = 0; i < r->k; i++)
        for (int64_t j = i + 1; j < r->k; j++) {
            const double as_is = fabs(have[i] - right[i]) + fabs(have[j] - right[j]),
                         other = fabs(have[i] - right[j]) + fabs(have[j] - right[i]), gradient = right[i];
            const int32_t expert = chosen[i];
            if (!is_tie(r, token, i, j) || !(other < as_is)) continue;
            chosen[i] = chosen[j], chosen[j] = expert;
            right[i] = right[j], right[j] = gradient;
        }
}

void routing_order(struct single *s, struct routing *r, int logits)
{
    const struct single_node *sum = node_of(s, &single_combine, logits);
    const int used = s->memory.used;
    if (!single_going(s) || sum == NULL || !keys_are_logits(s) || !has_ties(r)) return;
    routing_sort(s, r);
    const struct single_slot *of[3] = { single_slot(s, sum->in[0]), single_slot(s, sum->in[1]),
                                        single_slot(s, sum->out) };
    if (of[0]->unseen || of[1]->unseen || of[2]->unseen) return;
    const int64_t N = tensor_rows(r->logits), D = of[2]->cols;
    const struct single_reading outer = single_read_anew(s);
    const struct tensor rows = single_input(s, single_name("act/", of[0]->name), r->rows, D),
                        have = single_input(s, single_name("grad/", of[1]->name), N, r->k),
                        dY = single_input(s, single_name("grad/", of[2]->name), N, D), right = single_new(s, N, r->k);
    for (int64_t i = 0; single_going(s) && i < r->rows; i++)
        for (int64_t d = 0; d < D; d++)
            numbers(right)[((const int32_t *)r->order.data)[i]] +=
                numbers(rows)[i * D + d] * numbers(dY)[routing_token(r, i) * D + d];
    for (int64_t n = 0; single_going(s) && n < N; n++)
        exchange(r, n, numbers(have) + n * r->k, numbers(right) + n * r->k);
    s->reading = outer;                                 /* without them the order shows nowhere */
    single_release(s, used);
}
