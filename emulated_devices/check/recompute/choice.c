/* choice.c -- which expert a program took where a router's logits are equal, as those of 16 bits often are.
 *
 * Rows that experts compute show it: the row of expert e is its first matrix times the token.  A token's row is
 * searched where it may be: other open choices move the rows of an expert by one each.  If none of the experts has made
 * it, the rows are wrong whichever was chosen, and the first is taken.
 *
 * If both experts are chosen, only their order is open, which no row shows: the gradients of their weights do.
 * route.c calls routing_settle for choices that logits leave open, and routing_order for the order of two choices.
 * Both read rows of the program; if these are missing the choice stays open, and no failure is noted.
 */
#include "emulated_devices/check/recompute/routing.h"
#include "ref/model/config.h"

enum { MOST_TIED = 64 };

/* A row is an expert's if it is so near, norm over norm: a number of bf16 is off by 2^-9 at most, and rows of two
 * experts hardly agree.  tests/cli/test_bugs.sh (test_equal_logits) wants the right choices of bf16 and fp16. */
static const double NEAR_ROW = 0.05;

/* The experts of a token that have the logit of its last choice, and how many of them are chosen. */
struct tied { int64_t count, chosen; int32_t expert[MOST_TIED]; };

/* Find the experts of a token whose logit equals that of its last choice. */
static struct tied tied_of(const struct routing *routing, int64_t token)
{
    const int64_t columns = tensor_cols(routing->logits);
    const double *x = numbers(routing->logits) + token * columns;
    const int32_t *chosen = (const int32_t *)routing->experts.data + token * routing->k;
    const double last = x[choice_made(chosen[routing->k - 1])];
    struct tied t = { 0 };
    for (int64_t e = 0; e < columns && t.count < MOST_TIED; e++)
        if (x[e] == last) t.expert[t.count++] = (int32_t)e;
    for (int64_t i = 0; i < routing->k; i++) t.chosen += x[choice_made(chosen[i])] == last;
    return t;
}

/* These say what the experts make: the program's rows, the tokens, and the node of the first product. */
struct made { const struct single_node *up; struct tensor rows, tokens; int64_t open; };

/* Whether a row near those of expert e is what the expert makes of a token: W_e x.  Other open choices may move
 * rows by up to made->open places. */
static bool has_made(struct single *single, const struct routing *routing, const struct made *made,
                     int64_t token, int32_t e)
{
    const int used = single->memory.used;
    const int64_t out = tensor_cols(made->rows), in = tensor_cols(made->tokens);
    const struct tensor W = single_param(single, made->up->weight + e * made->up->stride),
        y = single_new(single, 1, out);
    int64_t first = 0;
    bool found = false;
    if (single_going(single))
        single->context->ops->linear_forward_add(y, tensor_2d(numbers(made->tokens) + token * in, F64, 1, in),
                                                 W);
    /* Rows are sorted by expert: the expert's rows begin behind those of all experts before it. */
    for (int32_t before = 0; before < e; before++) first += routing_count(routing, before);
    for (int64_t i = first - made->open; single_going(single) && !found
         && i < first + routing_count(routing, e) + made->open + 1; i++) {
        double off = 0, size = 0;
        if (i < 0 || i >= routing->rows) continue;
        for (int64_t c = 0; c < out; c++) {
            const double want = numbers(y)[c], d = numbers(made->rows)[i * out + c] - want;
            off += d * d, size += want * want;
        }
        found = off <= NEAR_ROW * NEAR_ROW * size;
    }
    single_release(single, used);
    return found;
}

/* Try all experts with the open logit on one token.  @return whether it is known now what the token has chosen. */
static bool choice_settle(struct single *single, struct routing *routing, const struct made *made, int64_t token)
{
    const struct tied t = tied_of(routing, token);
    int32_t taken[MOST_TIED], *chosen = (int32_t *)routing->experts.data + token * routing->k;
    int64_t count = 0;
    if (t.count == MOST_TIED) return false;
    for (int64_t i = 0; i < t.count; i++) {
        if (t.expert[i] >= routing->E) return false;          /* one without computation */
        if (has_made(single, routing, made, token, t.expert[i])) taken[count++] = t.expert[i];
    }
    /* No expert made a row: the rows are wrong whichever was chosen. */
    if (count == 0) return true;
    /* More or fewer experts than places: the rows do not say which were chosen. */
    if (count != t.chosen) return false;
    for (int64_t i = 0; i < count; i++) chosen[routing->k - count + i] = taken[i];
    return true;
}

/* Find the node with this operation that uses these logits; NULL: the graph has none. */
static const struct single_node *choice_node_of(const struct single *single,
                                                const struct single_operation *is, int logits)
{
    for (int v = 0; v < single->context->graph->nodes; v++) {
        const struct single_node *n = &single->context->graph->node[v];
        if (n->operation == is && n->logits == logits) return n;
    }
    return NULL;
}

/* Whether equal logits make equal keys and nothing is dropped.  Only then a choice between equal logits is open. */
static bool keys_are_logits(const struct single *single)
{
    const struct mixture_config *c = &single->context->config->mixture;
    return !c->router.biased && c->router.groups <= 1 && c->router.top_p == 0 && c->capacity_factor == 0 &&
           c->router.scores != SCORES_NEAR;
}

/* Rows of the first product are read for the current choices; then each open token is settled. */
bool routing_settle(struct single *single, struct routing *routing, int logits, const bool *open, int64_t count)
{
    const int used = single->memory.used;
    struct made m = { .up = choice_node_of(single, &single_experts_up, logits), .open = count };
    bool all = m.up && keys_are_logits(single) && !single_slot(single, m.up->out)->unseen;
    /* Rows of a first product settle choices; without one that the program shows all stay open. */
    if (!all) return false;
    const struct single_slot *up = single_slot(single, m.up->out);
    /* The rows are read aside: a missing row is no missing input of the current result. */
    const struct single_reading outer = single_read_anew(single);
    m.rows = single_input(single, single_name("act/", up->name), routing->rows, up->cols);
    m.tokens = single_act(single, m.up->in[0]);
    for (int64_t n = 0; n < tensor_rows(routing->logits) && all && single_going(single); n++)
        if (open[n]) all = choice_settle(single, routing, &m, n);
    all = all && single_going(single);
    single->reading = outer;                                 /* without them it stays open */
    single_release(single, used);
    return all;
}

/* ---- the order of two that are both chosen ----------------------------------------------------------------------- */

/* Whether choices i and j of a token have equal logits. */
static bool is_tie(const struct routing *routing, int64_t token, int64_t i, int64_t j)
{
    const int32_t *chosen = (const int32_t *)routing->experts.data + token * routing->k;
    const double *x = numbers(routing->logits) + token * tensor_cols(routing->logits);
    return chosen[i] >= 0 && chosen[j] >= 0 && chosen[i] < routing->E && chosen[j] < routing->E
           && x[chosen[i]] == x[chosen[j]];
}

/* Choices are in order of logits, so ties are neighbours. */
static bool has_ties(const struct routing *routing)
{
    for (int64_t n = 0; n < tensor_rows(routing->logits); n++)
        for (int64_t i = 1; i < routing->k; i++)
            if (is_tie(routing, n, i - 1, i)) return true;
    return false;
}

/* Exchange two choices of a token if their gradients fit better the other way.  right: the gradients of all weights
 * if the order is as it is now. */
static void choice_exchange(struct routing *routing, int64_t token, const double *have, double *right)
{
    int32_t *chosen = (int32_t *)routing->experts.data + token * routing->k;
    for (int64_t i = 0; i < routing->k; i++)
        for (int64_t j = i + 1; j < routing->k; j++) {
            const double as_is = fabs(have[i] - right[i]) + fabs(have[j] - right[j]),
                         other = fabs(have[i] - right[j]) + fabs(have[j] - right[i]), gradient = right[i];
            const int32_t expert = chosen[i];
            if (!is_tie(routing, token, i, j) || !(other < as_is)) continue;
            chosen[i] = chosen[j], chosen[j] = expert;
            right[i] = right[j], right[j] = gradient;
        }
}

/* The gradient of a choice's weight is (row, dY of the token): it shows which expert has which place. */
void routing_order(struct single *single, struct routing *routing, int logits)
{
    const struct single_node *sum = choice_node_of(single, &single_combine, logits);
    const int used = single->memory.used;
    if (!single_going(single) || sum == NULL || !keys_are_logits(single) || !has_ties(routing)) return;
    routing_sort(single, routing);
    const struct single_slot *of[3] = { single_slot(single, sum->in[0]), single_slot(single, sum->in[1]),
                                        single_slot(single, sum->out) };
    if (of[0]->unseen || of[1]->unseen || of[2]->unseen) return;
    const int64_t N = tensor_rows(routing->logits), D = of[2]->cols;
    const struct single_reading outer = single_read_anew(single);
    const struct tensor rows = single_input(single, single_name("act/", of[0]->name), routing->rows, D),
                        have = single_input(single, single_name("grad/", of[1]->name), N, routing->k),
                        dY = single_input(single, single_name("grad/", of[2]->name), N, D),
                            right = single_new(single, N, routing->k);
    /* right [N, k] is each choice's row times the gradient of its token. */
    for (int64_t i = 0; single_going(single) && i < routing->rows; i++)
        for (int64_t d = 0; d < D; d++)
            numbers(right)[((const int32_t *)routing->order.data)[i]] +=
                numbers(rows)[i * D + d] * numbers(dY)[routing_token(routing, i) * D + d];
    for (int64_t n = 0; single_going(single) && n < N; n++)
        choice_exchange(routing, n, numbers(have) + n * routing->k, numbers(right) + n * routing->k);
    single->reading = outer;                                 /* without them the order shows nowhere */
    single_release(single, used);
}
