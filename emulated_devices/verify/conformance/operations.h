/* operations.h -- each operation of `ops` with operands of any size, for conformance.h and the tests of backends. */
#ifndef ORRERY_CONFORMANCE_OPERATIONS_H
#define ORRERY_CONFORMANCE_OPERATIONS_H

#include "emulated_devices/device/compute.h"
#include <string.h>

/* Sizes: B sequences of S tokens, H query heads and one of keys, of A numbers, V columns of logits. */
static int64_t B = 2, S = 3, H = 2, A = 4, V = 10;
#define N (B * S)
#define D (H * A)
#define QKV ((H + 2) * A)
#define ROTARY (A / 2 * 2)

enum { E = 4, K = 2, WAYS = 3, OPERANDS = 8, TOKENS_MOST = 256 };

/* What an operand holds: random numbers; fp32 statistics where numbers are narrow; whole numbers below `most`, the
 * row's different. */
struct operand { int64_t rows, cols; bool statistic; int most; };

static int listed(struct operand *to, const struct operand of[], size_t count)
{
    memcpy(to, of, count * sizeof *of);
    return (int)count;
}

static const struct router_rule rule = { .normalized = true, .scale = 1 };
/* Statistics are drawn, not those of a softmax over one key: .more. */
#define heads ((struct attention){ .S = S, .H = H, .K = 1, .A = A, .scale = 2 / (double)A, .cap = 4, .more = true,     \
                                   .pairs = 12,                                                                        \
                                   .drop = { .p = 0.25, .seed = 3, .cols = H } })
/* The positions of the rows of a sequence, in the host's memory, which is its own view. */
static struct tensor positions(void)
{
    static int32_t at[TOKENS_MOST];
    for (int i = 0; i < TOKENS_MOST; i++) at[i] = i;
    return tensor_1d(at, I32, S);
}
#define SOME (S < 2 ? S : 2)            /* keys of a sequence */
#define SCORES(t) tensor_2d((t).data, (t).dtype, N * H, S)
#define BY_HEAD(t) tensor_2d((t).data, (t).dtype, B * H, S)
static struct attention with_sinks(struct tensor sinks)
{
    struct attention a = heads;
    a.sinks = sinks;
    return a;
}
static const struct clamped clamps = { .alpha = 1.702, .limit = 1.25 };
#define dropped ((struct dropout){ .p = 0.25, .seed = 5, .cols = D })
static const double slopes[E] = { 0.5, -1, 2, 0.25 };
static double sums[2 * E + 1], result;

#define NUMBERS(rows, cols) { rows, cols, false, 0 }
#define STATISTIC(rows) { rows, 0, true, 0 }
#define WHOLE(rows, cols, most) { rows, cols, false, (int)(most) }
#define STREAM_WEIGHTS { N, WAYS, true, 0 }
#define X_Y NUMBERS(N, D), NUMBERS(N, D)

/* Three blocks of A/2 + 1 columns, beside each other or to one place. */
#define blocks_beside ((struct column_blocks){ 3, A / 2 + 1, 1, A / 2 + 2, 0, A / 2 + 1 })
#define blocks_together ((struct column_blocks){ 3, A / 2 + 1, 1, 0, 0, A / 2 + 1 })
#define dev_columns_add dev_columns_move

/* X(operation, its operands, its call on operands t of device d) */
#define OPERATIONS(X)                                                                                                  \
    X(embedding_forward, (X_Y, WHOLE(N, 0, V), NUMBERS(V, D)), (d, t[0], t[2], t[3], 1, true))                         \
    X(embedding_backward_weight, (NUMBERS(V, D), NUMBERS(N, D), WHOLE(N, 0, V)), (d, t[0], t[1], t[2], 1))             \
    X(layernorm_forward, (X_Y, STATISTIC(N), STATISTIC(N), NUMBERS(D, 0), NUMBERS(D, 0)),                              \
      (d, t[0], t[2], t[3], t[1], t[4], t[5], 1e-5))                                                                   \
    X(layernorm_backward_input, (X_Y, NUMBERS(N, D), NUMBERS(D, 0), STATISTIC(N), STATISTIC(N)),                       \
      (d, t[0], t[1], t[2], t[3], t[4], t[5]))                                                                         \
    X(layernorm_backward_weight, (NUMBERS(D, 0), NUMBERS(D, 0), X_Y, STATISTIC(N), STATISTIC(N)),                      \
      (d, t[0], t[1], t[2], t[3], t[4], t[5]))                                                                         \
    X(row_sums, (STATISTIC(N), NUMBERS(N, D)), (d, t[0], t[1]))                                                        \
    X(row_centred_squares, (STATISTIC(N), NUMBERS(N, D), STATISTIC(N)), (d, t[0], t[1], t[2]))                         \
    X(layernorm_forward_part, (X_Y, STATISTIC(N), NUMBERS(D, 0), NUMBERS(D, 0), STATISTIC(N)),                         \
      (d, t[0], t[2], t[1], t[3], 0.5, t[4], t[5], 2 * D, 1e-5))                                                       \
    X(layernorm_backward_sums, (STATISTIC(2 * N), X_Y, NUMBERS(D, 0), STATISTIC(N), STATISTIC(N)),                     \
      (d, t[0], t[1], t[2], t[3], 0.5, t[4], t[5]))                                                                    \
    X(layernorm_backward_part, (X_Y, NUMBERS(N, D), NUMBERS(D, 0), STATISTIC(N), STATISTIC(N), STATISTIC(2 * N)),      \
      (d, t[0], t[1], t[2], t[3], 0.5, t[4], t[5], t[6], 2 * D))                                                       \
    X(rmsnorm_forward, (X_Y, STATISTIC(N), NUMBERS(D, 0)), (d, t[0], t[2], t[1], t[3], 0.5, 1e-5))                     \
    X(rmsnorm_backward_input, (X_Y, NUMBERS(N, D), NUMBERS(D, 0), STATISTIC(N)),                                       \
      (d, t[0], t[1], t[2], t[3], 0.5, t[4]))                                                                          \
    X(rmsnorm_backward_weight, (NUMBERS(D, 0), X_Y, STATISTIC(N)), (d, t[0], t[1], t[2], t[3]))                        \
    X(head_norm_forward, (NUMBERS(N, QKV), STATISTIC(N * (H + 1)), NUMBERS(N, QKV), NUMBERS(2 * A, 0)),                \
      (d, t[0], t[1], t[2], t[3], 0.5, heads, 1e-5))                                                                   \
    X(head_norm_backward_input, (NUMBERS(N, QKV), NUMBERS(N, QKV), NUMBERS(N, QKV), NUMBERS(2 * A, 0),                 \
                                 STATISTIC(N * (H + 1))),                                                              \
      (d, t[0], t[1], t[2], t[3], 0.5, t[4], heads))                                                                   \
    X(head_norm_backward_weight, (NUMBERS(2 * A, 0), NUMBERS(N, QKV), NUMBERS(N, QKV), STATISTIC(N * (H + 1))),        \
      (d, t[0], t[1], t[2], t[3], heads))                                                                              \
    X(linear_forward, (NUMBERS(N, V), NUMBERS(N, D), NUMBERS(V, D), NUMBERS(V, 0)), (d, t[0], t[1], t[2], t[3]))       \
    X(linear_forward_add, (NUMBERS(N, V), NUMBERS(N, D), NUMBERS(V, D)), (d, t[0], t[1], t[2]))                        \
    X(linear_backward_input, (NUMBERS(N, D), NUMBERS(N, V), NUMBERS(V, D)), (d, t[0], t[1], t[2]))                     \
    X(column_sums, (NUMBERS(D, 0), NUMBERS(N, D)), (d, t[0], t[1]))                                                    \
    X(linear_backward_weight, (NUMBERS(V, D), NUMBERS(V, 0), NUMBERS(N, V), NUMBERS(N, D)),                            \
      (d, t[0], t[1], t[2], t[3]))                                                                                     \
    X(linear_forward_columns, (NUMBERS(N, V), NUMBERS(N, D), NUMBERS(3, D), NUMBERS(3, 0)),                            \
      (d, t[0], 2, t[1], t[2], t[3]))                                                                                  \
    X(linear_backward_input_columns, (NUMBERS(N, D), NUMBERS(N, V), NUMBERS(3, D)), (d, t[0], t[1], 2, t[2], true))    \
    X(linear_backward_weight_columns, (NUMBERS(3, D), NUMBERS(N, V), NUMBERS(N, D)), (d, t[0], t[1], 2, t[2]))         \
    X(attention_forward, (NUMBERS(N, D), STATISTIC(N * H), NUMBERS(N, QKV), NUMBERS(H, 0)),                            \
      (d, t[0], t[1], t[2], with_sinks(t[3])))                                                                         \
    X(attention_backward_input, (NUMBERS(N, QKV), X_Y, STATISTIC(N * H), NUMBERS(N, QKV)),                             \
      (d, t[0], t[1], t[2], t[3], t[4], heads))                                                                        \
    X(attention_part_forward, (NUMBERS(N, D), STATISTIC(N * H), NUMBERS(N, D), NUMBERS(N, 2 * D), NUMBERS(H, 0)),      \
      (d, t[0], t[1], t[2], t[3], positions(), positions(), with_sinks(t[4])))                                     \
    X(attention_sinks_backward, (NUMBERS(H, 0), X_Y, STATISTIC(N * H), NUMBERS(H, 0)),                                 \
      (d, t[0], t[1], t[2], BY_HEAD(t[3]), with_sinks(t[4])))                                                          \
    X(attention_merge, (X_Y, STATISTIC(N * H), STATISTIC(N * H)),                                                      \
      (d, t[0], BY_HEAD(t[2]), t[1], BY_HEAD(t[3]), heads))                                                            \
    X(attention_delta, (STATISTIC(N * H), X_Y), (d, BY_HEAD(t[0]), t[1], t[2], heads))                                 \
    X(attention_part_backward, (NUMBERS(N, D), NUMBERS(N, D), NUMBERS(N, D), STATISTIC(N * H), STATISTIC(N * H),       \
                                NUMBERS(N, D), NUMBERS(N, D)),                                                         \
      (d, t[0], t[1], t[2], t[3], t[4], t[5], t[6], positions(), positions(), heads))                              \
    X(attention_scores, (STATISTIC(N * H * S), NUMBERS(N, D), NUMBERS(B * SOME, A)),                                   \
      (d, SCORES(t[0]), S > SOME, t[1], t[2], positions(), heads))                                                     \
    X(attention_softmax, (STATISTIC(N * H * S), STATISTIC(N * H)), (d, SCORES(t[0]), t[1], positions(), heads))        \
    X(attention_softmax_backward, (STATISTIC(N * H * S), STATISTIC(N * H * S), STATISTIC(N * H)),                      \
      (d, SCORES(t[0]), SCORES(t[1]), t[2], heads))                                                                    \
    X(soft_cap_forward, (X_Y), (d, t[0], t[1], 1.5))                                                                   \
    X(soft_cap_backward_input, (X_Y, NUMBERS(N, D)), (d, t[0], t[1], t[2], 2))                                         \
    X(attention_scores_times, (NUMBERS(N, D), STATISTIC(N * H * S), NUMBERS(B * SOME, A)),                             \
      (d, t[0], SCORES(t[1]), S > SOME, t[2], positions(), heads))                                                     \
    X(attention_scores_transposed, (NUMBERS(N, A), STATISTIC(N * H * S), NUMBERS(N, D)),                               \
      (d, t[0], SCORES(t[1]), t[2], positions(), heads))                                                               \
    X(rotary_forward, (NUMBERS(N, QKV), WHOLE(N, 0, S), NUMBERS(S, ROTARY)), (d, t[0], t[1], t[2], heads))             \
    X(rotary_backward_input, (NUMBERS(N, QKV), WHOLE(N, 0, S), NUMBERS(S, ROTARY)), (d, t[0], t[1], t[2], heads))      \
    X(swiglu_forward, (NUMBERS(N, D), NUMBERS(N, 2 * D)), (d, t[0], t[1]))                                             \
    X(swiglu_backward_input, (NUMBERS(N, 2 * D), NUMBERS(N, D), NUMBERS(N, 2 * D)), (d, t[0], t[1], t[2]))             \
    X(geglu_forward, (NUMBERS(N, D), NUMBERS(N, 2 * D)), (d, t[0], t[1]))                                              \
    X(geglu_backward_input, (NUMBERS(N, 2 * D), NUMBERS(N, D), NUMBERS(N, 2 * D)), (d, t[0], t[1], t[2]))              \
    X(clamped_swiglu_forward, (NUMBERS(N, D), NUMBERS(N, 2 * D)), (d, t[0], t[1], clamps))                             \
    X(clamped_swiglu_backward_input, (NUMBERS(N, 2 * D), NUMBERS(N, D), NUMBERS(N, 2 * D)),                            \
      (d, t[0], t[1], t[2], clamps))                                                                                   \
    X(route_forward, (NUMBERS(N, K), WHOLE(N, K, E), NUMBERS(N, E)), (d, t[0], t[1], t[2], &rule, NULL))               \
    X(route_drop, (NUMBERS(N, K), WHOLE(N, K, E)), (d, t[0], t[1], S, E - 1, 1, true))                                 \
    X(route_backward_input, (NUMBERS(N, E), NUMBERS(N, K), NUMBERS(N, K), WHOLE(N, K, E), NUMBERS(N, E)),              \
      (d, t[0], t[1], t[2], t[3], t[4], &rule))                                                                        \
    X(expert_order, (WHOLE(N * K, 0, 1), WHOLE(E, 0, 1), WHOLE(N, K, E)), (d, t[0], t[1], t[2]))                       \
    X(gather_forward, (NUMBERS(N * K, D), NUMBERS(N, D), WHOLE(N * K, 0, N * K)), (d, t[0], t[1], t[2], K))            \
    X(gather_backward_input, (NUMBERS(N, D), NUMBERS(N * K, D), WHOLE(N * K, 0, N * K)), (d, t[0], t[1], t[2], K))     \
    X(combine_forward, (NUMBERS(N, D), NUMBERS(N * K, D), WHOLE(N * K, 0, N * K), NUMBERS(N, K)),                      \
      (d, t[0], t[1], t[2], t[3]))                                                                                     \
    X(combine_backward_input, (NUMBERS(N * K, D), NUMBERS(N, K), NUMBERS(N, D), NUMBERS(N * K, D),                     \
                               WHOLE(N * K, 0, N * K), NUMBERS(N, K)),                                                 \
      (d, t[0], t[1], t[2], t[3], t[4], t[5]))                                                                         \
    X(identity_forward, (X_Y, WHOLE(N, K, E), NUMBERS(N, K)), (d, t[0], t[1], t[2], t[3], E - 2))                      \
    X(identity_backward_weights, (NUMBERS(N, K), X_Y, WHOLE(N, K, E)), (d, t[0], t[1], t[2], t[3], E - 2))             \
    X(sequence_balance_forward, (NUMBERS(N, E), WHOLE(N, K, E)), (d, sums, t[0], t[1], t[1], S, &rule))                \
    X(sequence_balance_backward_input, (NUMBERS(N, E), NUMBERS(N, E), WHOLE(N, K, E)),                                 \
      (d, t[0], t[1], t[2], t[2], S, &rule, 0.5))                                                                      \
    X(router_losses_forward, (NUMBERS(N, E), WHOLE(N, K, E)), (d, sums, t[0], t[1], K - 1))                            \
    X(router_losses_backward_input, (NUMBERS(N, E), NUMBERS(N, E)), (d, t[0], t[1], slopes, 0.5))                      \
    X(gelu_forward, (X_Y), (d, t[0], t[1]))                                                                            \
    X(gelu_backward_input, (X_Y, NUMBERS(N, D)), (d, t[0], t[1], t[2]))                                                \
    X(add, (X_Y, NUMBERS(N, D)), (d, t[0], t[1], t[2]))                                                                \
    X(dropout, (X_Y), (d, t[0], t[1], dropped))                                                                        \
    X(scale, (NUMBERS(N, D)), (d, t[0], 0.375))                                                                        \
    X(cross_entropy_max, (STATISTIC(N), NUMBERS(N, V)), (d, t[0], t[1]))                                               \
    X(cross_entropy_sums, (STATISTIC(N), STATISTIC(N), NUMBERS(N, V), STATISTIC(N), WHOLE(N, 0, V)),                   \
      (d, t[0], t[1], t[2], t[3], t[4], 0))                                                                            \
    X(cross_entropy_backward, (X_Y, STATISTIC(N), STATISTIC(N), WHOLE(N, 0, D)),                                       \
      (d, t[0], t[1], t[2], t[3], t[4], 0, -1, 0.125))                                                                 \
    X(silu_forward, (X_Y), (d, t[0], t[1]))                                                                            \
    X(silu_backward_input, (X_Y, NUMBERS(N, D)), (d, t[0], t[1], t[2]))                                                \
    X(gate_forward, (X_Y, STATISTIC(N)), (d, t[0], t[1], t[2]))                                                        \
    X(gate_backward_input, (NUMBERS(N, D), STATISTIC(N), X_Y, STATISTIC(N)), (d, t[0], t[1], t[2], t[3], t[4]))        \
    X(columns_move, (NUMBERS(N, 2 * D), NUMBERS(N, 2 * D)), (d, t[0], t[1], blocks_beside, false))                     \
    X(columns_add, (NUMBERS(N, 2 * D), NUMBERS(N, 2 * D)), (d, t[0], t[1], blocks_together, true))                     \
    X(streams_beside, (NUMBERS(N, D * WAYS), NUMBERS(N * WAYS, D)), (d, t[0], t[1]))                                   \
    X(streams_beside_backward_input, (NUMBERS(N * WAYS, D), NUMBERS(N, D * WAYS)), (d, t[0], t[1]))                    \
    X(streams_mix_forward, (NUMBERS(N, D), STREAM_WEIGHTS, NUMBERS(N, WAYS), NUMBERS(N, D * WAYS)),                    \
      (d, t[0], t[1], t[2], t[3], 0.1))                                                                                \
    X(streams_mix_backward_input, (NUMBERS(N, D * WAYS), NUMBERS(N, WAYS), NUMBERS(N, D), STREAM_WEIGHTS,              \
                                   NUMBERS(N, D * WAYS)),                                                              \
      (d, t[0], t[1], t[2], t[3], t[4], 0.1))                                                                          \
    X(route_weights, (NUMBERS(N, K), WHOLE(N, K, E), NUMBERS(N, E)), (d, t[0], t[1], t[2], &rule))

#include "emulated_devices/verify/conformance/variants.h"

#define UNPACK(...) __VA_ARGS__
#define X(name, operands, arguments) VARIANT(name, , operands, arguments)
#define VARIANT(name, how, operands, arguments)                                                                        \
    static void run_##name##how(struct device *d, struct tensor *t) { (void)t, dev_##name arguments; }                 \
    static int operands_##name##how(struct operand *o)                                                                 \
    {                                                                                                                  \
        const struct operand of[] = { UNPACK operands };                                                               \
        return listed(o, of, sizeof of / sizeof *of);                                                                  \
    }
OPERATIONS(X)
VARIANTS(VARIANT)
#undef X
#undef VARIANT
static void run_loss(struct device *d, struct tensor *t)
{
    dev_cross_entropy_loss(d, &result, t[0], t[1], t[2], t[3], -1);
}
static int operands_loss(struct operand *o)
{
    const struct operand of[] = { STATISTIC(N), STATISTIC(N), STATISTIC(N), WHOLE(N, 0, V) };
    return listed(o, of, sizeof of / sizeof *of);
}
static void run_squares(struct device *d, struct tensor *t)
{
    if (d->ops == NULL) return;
    backend_begin(d), d->ops->sum_of_squares(&result, t[0]), backend_end(d);
}
static int operands_squares(struct operand *o)
{
    const struct operand of[] = { NUMBERS(N, D) };
    return listed(o, of, sizeof of / sizeof *of);
}

#include "emulated_devices/verify/conformance/entries.h"

#define X(name, how, operands, call)                                                                                   \
    static void run_##name##_##how(struct device *d, struct tensor *t) { call; }                                       \
    static int operands_##name##_##how(struct operand *o)                                                              \
    {                                                                                                                  \
        const struct operand of[] = { UNPACK operands };                                                               \
        return listed(o, of, sizeof of / sizeof *of);                                                                  \
    }
ENTRIES(X)
#undef X

static const struct operation {
    const char *name;
    void (*run)(struct device *, struct tensor *);
    int (*operands)(struct operand *);          /* how many it has; those without rows, too */
} all[] = {
#define X(name, operands, arguments) { #name, run_##name, operands_##name },
    OPERATIONS(X)
#undef X
#define X(name, how, operands, arguments) { #name ", " #how, run_##name##how, operands_##name##how },
    VARIANTS(X)
#undef X
#define X(name, how, operands, call) { #name ", " #how, run_##name##_##how, operands_##name##_##how },
    ENTRIES(X)
#undef X
    { "cross_entropy_loss", run_loss, operands_loss }, { "sum_of_squares", run_squares, operands_squares },
};
enum { ALL = sizeof all / sizeof *all };

static double number(int operand, int64_t i) { return (double)((i * 37 + operand * 11) % 61) / 32 + 0.125; }

static void fill(struct tensor t, int operand, int most)
{
    int32_t *whole = t.data;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        if (most == 0) tensor_set(t, i, number(operand, i));
        else whole[i] = (int32_t)((i * 5 + i / most) % most);
    }
}

#endif
