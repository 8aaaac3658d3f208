/* latent.c -- queries, keys and values of latent attention, side by side: copies of columns, which round nothing.
 *
 * Backward they are copies, too, but for the key that all heads share: its gradient is the sum over heads.  Devices
 * along tp may have stored sums of their own heads; by steps a program stores what each head adds.
 * walk.c runs the passes.  ref/model/latent.h says which columns go where.
 */
#include "ref/model/latent.h"
#include "emulated_devices/check/recompute/parts.h"
#include "ref/model/config.h"

/* to[n, y + ..] = from[n, x + ..] for each block of columns; a block may be repeated for every head. */
static void latent_copy(struct tensor to, struct tensor from, struct column_blocks blocks)
{
    for (int64_t n = 0; n < tensor_rows(to); n++)
        for (int64_t k = 0; k < blocks.times * blocks.count; k++)
            numbers(to)[n * tensor_cols(to) + blocks.y + k / blocks.count * blocks.y_step + k % blocks.count] =
                numbers(from)[n * tensor_cols(from) + blocks.x + k / blocks.count * blocks.x_step + k % blocks.count];
}

/* Move a value and both of its bounds; copies stay as exact as they were. */
static void latent_move(struct single *single, struct single_value *to, struct single_value from,
                        struct column_blocks blocks)
{
    if (!single_going(single)) return;
    latent_copy(to->y, from.y, blocks), latent_copy(to->fused, from.fused, blocks),
        latent_copy(to->steps, from.steps, blocks);
    to->stored = from.stored;
}

static struct latent_moves recompute_latent_moves(const struct single *single)
{
    return latent_moves_of(single->context->config, single->context->config->H);
}

/* The result [N, qkv width] has turned and plain queries and the shared key in each head.  Keys and values come
 * from the expanded latent. */
static struct single_value recompute_latent_forward(struct single *single, const struct single_node *node)
{
    const struct latent_moves at = recompute_latent_moves(single);
    const struct single_value q = single_value_of(single, node->in[0]), expanded = single_value_of(single, node->in[1]),
                              latent = single_value_of(single, node->in[2]);
    struct single_value v = single_value_new(single, single->cursor.N, single_slot(single, node->out)->cols);
    latent_move(single, &v, q, at.turned_query), latent_move(single, &v, q, at.query);
    latent_move(single, &v, latent, at.shared_key);
    latent_move(single, &v, expanded, at.key), latent_move(single, &v, expanded, at.value);
    return v;
}

/* Move two blocks of the gradient back to the input that they came from. */
static struct single_value latent_moved(struct single *single, const struct single_node *node, int input,
                                        struct column_blocks a, struct column_blocks b)
{
    const struct single_value from = single_gradient_of(single, node->out);
    struct single_value v = single_value_new(single, single->cursor.N, single_slot(single, node->in[input])->cols);
    latent_move(single, &v, from, moved_back(a)), latent_move(single, &v, from, moved_back(b));
    return v;
}

static struct single_value queries(struct single *single, const struct single_node *node)
{
    return latent_moved(single, node, 0, recompute_latent_moves(single).turned_query,
                        recompute_latent_moves(single).query);
}

static struct single_value expanded(struct single *single, const struct single_node *node)
{
    return latent_moved(single, node, 1, recompute_latent_moves(single).key, recompute_latent_moves(single).value);
}

/* Add one number of the shared key over all heads.  Each rank stores the sum of its own heads. */
static void add_heads(const struct single *single, struct single_value value, int64_t to,
                      struct single_value from, int64_t at)
{
    const struct rounding *r = &single->rounding;
    const int64_t A = single->context->config->A, H = single->context->config->H;
    double y = 0, absolute = 0, square = 0, fused = 0, steps = 0;
    /* y = sum over the H heads of the same number of each head. */
    for (int64_t i = at; i < at + H * A; i += A) {
        const double x = numbers(from.y)[i];
        y += x, absolute += fabs(x), square += x * x;
        fused += numbers(from.fused)[i], steps += numbers(from.steps)[i];
    }
    const double own = rounding_of_sum(r->sum, H) * absolute +
                       (r->parts - 1) * 2 * (r->store * absolute + r->tiny);
    single_put(value, to, (struct element){ y, fused + own },
               steps - fused + 2 * rounding_of_terms(r->store, absolute, sqrt(square)) + tiny_terms(r->tiny, H));
    numbers(value.absolute)[to] = absolute;
}

/* The latent's gradient [N, cols]: only the columns of the shared key come from this operation. */
static struct single_value shared_key(struct single *single, const struct single_node *node)
{
    const struct column_blocks b = recompute_latent_moves(single).shared_key;
    const struct single_value from = single_gradient_of(single, node->out);
    const int64_t cols = single_slot(single, node->in[2])->cols, width = single_slot(single, node->out)->cols;
    struct single_value v = single_value_new(single, single->cursor.N, cols);
    v.absolute = single_new(single, single->cursor.N, cols), v.terms = single->context->config->H;
    for (int64_t i = 0; single_going(single) && i < single->cursor.N * b.count; i++)
        add_heads(single, v, i / b.count * cols + b.x + i % b.count, from, i / b.count * width + b.y + i % b.count);
    return v;
}

const struct single_operation single_join = {
    .words = "queries, keys and values of latents",
    .forward = recompute_latent_forward,
    .input_words = "the heads' gradients of what comes from latents",
    .input = { queries, expanded, shared_key },
};
