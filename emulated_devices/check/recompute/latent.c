/* latent.c -- queries, keys and values of latent attention, side by side: copies of columns, which round nothing.
 *
 * Backward they are copies, too, but for the key that all heads share: its gradient is the sum over heads.  Devices
 * along tp may have stored sums of their own heads; by steps a program stores what each head adds.
 */
#include "ref/model/latent.h"
#include "emulated_devices/check/recompute/parts.h"

static void copy(struct tensor to, struct tensor from, struct column_blocks b)
{
    for (int64_t n = 0; n < tensor_rows(to); n++)
        for (int64_t k = 0; k < b.times * b.count; k++)
            numbers(to)[n * tensor_cols(to) + b.y + k / b.count * b.y_step + k % b.count] =
                numbers(from)[n * tensor_cols(from) + b.x + k / b.count * b.x_step + k % b.count];
}

static void move(struct single *s, struct single_value *to, struct single_value from, struct column_blocks b)
{
    if (!single_going(s)) return;
    copy(to->y, from.y, b), copy(to->fused, from.fused, b), copy(to->steps, from.steps, b);
    to->stored = from.stored;
}

static struct latent_moves moves(const struct single *s)
{
    return latent_moves_of(s->context->config, s->context->config->H);
}

static struct single_value forward(struct single *s, const struct single_node *n)
{
    const struct latent_moves at = moves(s);
    const struct single_value q = single_value_of(s, n->in[0]), expanded = single_value_of(s, n->in[1]),
                              latent = single_value_of(s, n->in[2]);
    struct single_value v = single_value_new(s, s->cursor.N, single_slot(s, n->out)->cols);
    move(s, &v, q, at.turned_query), move(s, &v, q, at.query);
    move(s, &v, latent, at.shared_key);
    move(s, &v, expanded, at.key), move(s, &v, expanded, at.value);
    return v;
}

/* What two blocks of the gradient are moved back to. */
static struct single_value moved(struct single *s, const struct single_node *n, int input, struct column_blocks a,
                                 struct column_blocks b)
{
    const struct single_value from = single_gradient_of(s, n->out);
    struct single_value v = single_value_new(s, s->cursor.N, single_slot(s, n->in[input])->cols);
    move(s, &v, from, moved_back(a)), move(s, &v, from, moved_back(b));
    return v;
}

static struct single_value queries(struct single *s, const struct single_node *n)
{
    return moved(s, n, 0, moves(s).turned_query, moves(s).query);
}

static struct single_value expanded(struct single *s, const struct single_node *n)
{
    return moved(s, n, 1, moves(s).key, moves(s).value);
}

/* One number of the shared key: the sum over heads. */
static void add_heads(const struct single *s, struct single_value v, int64_t to, struct single_value from, int64_t at)
{
    const struct rounding *r = &s->rounding;
    const int64_t A = s->context->config->A, H = s->context->config->H;
    double y = 0, absolute = 0, square = 0, fused = 0, steps = 0;
    for (int64_t i = at; i < at + H * A; i += A) {
        const double x = numbers(from.y)[i];
        y += x, absolute += fabs(x), square += x * x;
        fused += numbers(from.fused)[i], steps += numbers(from.steps)[i];
    }
    const double own = rounding_of_sum(r->sum, H) * absolute +
                       (r->parts - 1) * 2 * (r->store * absolute + r->tiny);
    single_put(v, to, (struct element){ y, fused + own },
               steps - fused + 2 * rounding_of_terms(r->store, absolute, sqrt(square)) + tiny_terms(r->tiny, H));
    numbers(v.absolute)[to] = absolute;
}

static struct single_value shared_key(struct single *s, const struct single_node *n)
{
    const struct column_blocks b = moves(s).shared_key;
    const struct single_value from = single_gradient_of(s, n->out);
    const int64_t cols = single_slot(s, n->in[2])->cols, width = single_slot(s, n->out)->cols;
    struct single_value v = single_value_new(s, s->cursor.N, cols);
    v.absolute = single_new(s, s->cursor.N, cols), v.terms = s->context->config->H;
    for (int64_t i = 0; single_going(s) && i < s->cursor.N * b.count; i++)
        add_heads(s, v, i / b.count * cols + b.x + i % b.count, from, i / b.count * width + b.y + i % b.count);
    return v;
}

const struct single_operation single_join = {
    .words = "queries, keys and values of latents",
    .forward = forward,
    .input_words = "the heads' gradients of what comes from latents",
    .input = { queries, expanded, shared_key },
};
