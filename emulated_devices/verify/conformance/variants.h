/* variants.h -- further calls of the operations, for operations.h: other arguments and shapes, results in place of an
 * operand, columns of wider tensors, gradients in another format.
 *
 * X(operation, what differs, its operands, its call) No function returns an error code.
 */
#ifndef ORRERY_CONFORMANCE_VARIANTS_H
#define ORRERY_CONFORMANCE_VARIANTS_H

/* `grouped` has two query heads for each of H key heads, `each_its_keys` as many as key heads.  `a_piece` drops a
 * piece of a larger tensor. */
#define grouped ((struct attention){ .S = S, .H = 2 * H, .K = H, .A = A, .scale = 1.5 / (double)A, .more = true })
#define each_its_keys                                                                                                  \
    ((struct attention){ .S = S, .H = H, .K = H, .A = A, .scale = 1.5 / (double)A, .more = true })
#define a_piece ((struct dropout){ .p = 0.25, .seed = 3, .stream = 9, .row0 = 5, .col0 = 2, .cols = 2 * H + 3 })
#define GROUPED_QKV (4 * H * A)
#define OWN_QKV (3 * H * A)

/* This has a window of 3 keys, and dropout of a piece of a larger tensor. */
static struct attention windowed(void)
{
    struct attention a = grouped;
    a.window = 3, a.drop = a_piece;
    return a;
}

/* Each query sees its own key and nothing more: gradients of queries and keys are 0. */
static struct attention of_one_key(void)
{
    struct attention a = grouped;
    a.window = 1, a.more = false;
    return a;
}

/* The scores are so large that exp overflows, unless the largest is subtracted first. */
static struct attention steep(void)
{
    struct attention a = each_its_keys;
    a.scale = 100 / (double)A;
    return a;
}

/* Ranges of keys that a query sees: some before it, an empty one now and then, and those around it. */
static struct attention masked(int64_t rows)
{
    enum { RANGES = 2 };
    static int32_t range[TOKENS_MOST][2 * RANGES];
    struct attention a = grouped;
    for (int32_t r = 0; r < rows; r++) {
        const int32_t q = (int32_t)(r % S), sequence = (int32_t)(r / S);
        const int32_t first = q / 4, end = q % 3 == 0 ? first : (q + sequence) / 2 < q ? (q + sequence) / 2 : q;
        range[r][0] = first, range[r][1] = end > first ? end : first;
        range[r][2] = range[r][1] > q - 1 ? range[r][1] : q - 1, range[r][3] = q + 2 < S ? q + 2 : (int32_t)S;
    }
    a.mask = tensor_2d(range, I32, rows, 2 * RANGES);
    return a;
}

/* Several sequences in one of S, each of whose tokens dropout numbers. */
static struct attention packed(void)
{
    struct attention a = masked(N);
    a.each = S > 1 ? S / 2 : S, a.drop = a_piece;
    return a;
}

static struct attention turned(bool neighbours)
{
    struct attention a = grouped;
    a.neighbours = neighbours;
    return a;
}

/* Attention of tokens in the second half of sequences, with keys in the first. */
static struct attention halves(void)
{
    struct attention a = heads;
    a.S = 2 * S, a.window = S + 1;
    return a;
}
/* Positions of the rows of a sequence, in the host's memory, which is its own view: from 0 on, or from S on. */
static struct tensor positions_from(int64_t first)
{
    static int32_t at[2 * TOKENS_MOST];
    for (int i = 0; i < 2 * TOKENS_MOST; i++) at[i] = i;
    return tensor_1d(at + first, I32, S);
}

static const struct router_rule sigmoids = { .scores = SCORES_SIGMOID, .scale = 2.5 };
static const struct router_rule sigmoids_normed = { .scores = SCORES_SIGMOID, .normalized = true, .scale = 1 };
static const struct router_rule nearby = { .scores = SCORES_NEAR, .scale = 1, .near = 0.013 };

/* A gradient, a result or a router's weights in fp32, where numbers have 16 bits. */
#define WIDE(rows, cols) { rows, cols, true, 0 }
#define dropped_piece ((struct dropout){ .p = 0.4, .seed = 5, .stream = 2, .row0 = 11, .col0 = 3, .cols = D + 7 })
#define dropped_none ((struct dropout){ .p = 0 })

#define VARIANTS(X)                                                                                                    \
    X(embedding_forward, over_what_was_there, (X_Y, WHOLE(N, 0, 3 * V), NUMBERS(V, D)),                                \
      (d, t[0], t[2], t[3], V, false))                                                                                 \
    X(embedding_backward_weight, of_a_slice, (NUMBERS(V, D), NUMBERS(N, D), WHOLE(N, 0, 3 * V)),                       \
      (d, t[0], t[1], t[2], V))                                                                                        \
    X(embedding_backward_weight, of_equal_ids, (WIDE(V, D), NUMBERS(N, D), WHOLE(N, 0, 2)), (d, t[0], t[1], t[2], 0))  \
    X(layernorm_backward_weight, to_fp32, (WIDE(D, 0), WIDE(D, 0), X_Y, STATISTIC(N), STATISTIC(N)),                   \
      (d, t[0], t[1], t[2], t[3], t[4], t[5]))                                                                         \
    X(layernorm_forward, without_bias, (X_Y, STATISTIC(N), STATISTIC(N), NUMBERS(D, 0)),                               \
      (d, t[0], t[2], t[3], t[1], t[4], 1, tensor_none, 1e-6))                                                         \
    X(layernorm_backward_weight, without_bias, (NUMBERS(D, 0), X_Y, STATISTIC(N), STATISTIC(N)),                       \
      (d, t[0], tensor_none, t[1], t[2], t[3], t[4]))                                                                  \
    X(layernorm_forward_part, without_bias, (X_Y, STATISTIC(N), NUMBERS(D, 0), STATISTIC(N)),                          \
      (d, t[0], t[2], t[1], t[3], 0, tensor_none, t[4], 2 * D, 1e-6))                                                  \
    X(rmsnorm_forward, from_zero, (X_Y, STATISTIC(N), NUMBERS(D, 0)), (d, t[0], t[2], t[1], t[3], 0, 1e-6))            \
    X(rmsnorm_backward_weight, to_fp32, (WIDE(D, 0), X_Y, STATISTIC(N)), (d, t[0], t[1], t[2], t[3]))                  \
    X(linear_forward, without_bias, (NUMBERS(N, V), NUMBERS(N, D), NUMBERS(V, D)),                                     \
      (d, t[0], t[1], t[2], tensor_none))                                                                              \
    X(linear_backward_weight, without_bias, (NUMBERS(V, D), NUMBERS(N, V), NUMBERS(N, D)),                             \
      (d, t[0], tensor_none, t[1], t[2]))                                                                              \
    X(linear_backward_weight, to_fp32, (WIDE(V, D), WIDE(V, 0), NUMBERS(N, V), NUMBERS(N, D)),                         \
      (d, t[0], t[1], t[2], t[3]))                                                                                     \
    X(linear_backward_weight_columns, to_fp32, (WIDE(3, D), NUMBERS(N, V), NUMBERS(N, D)), (d, t[0], t[1], 2, t[2]))   \
    X(linear_backward_input_columns, over_what_was_there, (NUMBERS(N, D), NUMBERS(N, V), NUMBERS(3, D)),               \
      (d, t[0], t[1], 2, t[2], false))                                                                                 \
    X(column_sums, to_fp32, (WIDE(D, 0), NUMBERS(N, D)), (d, t[0], t[1]))                                              \
    X(linear_forward, to_fp32, (WIDE(N, V), NUMBERS(N, D), NUMBERS(V, D), NUMBERS(V, 0)), (d, t[0], t[1], t[2], t[3])) \
    X(linear_forward, of_fp32_weights, (NUMBERS(N, V), NUMBERS(N, D), WIDE(V, D), WIDE(V, 0)),                         \
      (d, t[0], t[1], t[2], t[3]))                                                                                     \
    X(linear_forward, of_fp32_weights_to_fp32, (WIDE(N, V), NUMBERS(N, D), WIDE(V, D), WIDE(V, 0)),                    \
      (d, t[0], t[1], t[2], t[3]))                                                                                     \
    X(linear_forward_add, of_fp32_weights, (NUMBERS(N, V), NUMBERS(N, D), WIDE(V, D)), (d, t[0], t[1], t[2]))          \
    X(linear_forward_add, to_fp32, (WIDE(N, V), NUMBERS(N, D), NUMBERS(V, D)), (d, t[0], t[1], t[2]))                  \
    X(linear_backward_input, of_fp32_gradients, (NUMBERS(N, D), WIDE(N, V), NUMBERS(V, D)), (d, t[0], t[1], t[2]))     \
    X(linear_backward_input, of_fp32_weights, (NUMBERS(N, D), NUMBERS(N, V), WIDE(V, D)), (d, t[0], t[1], t[2]))       \
    X(linear_backward_input, to_fp32, (WIDE(N, D), NUMBERS(N, V), NUMBERS(V, D)), (d, t[0], t[1], t[2]))               \
    X(linear_backward_weight, of_fp32_gradients, (NUMBERS(V, D), NUMBERS(V, 0), WIDE(N, V), NUMBERS(N, D)),            \
      (d, t[0], t[1], t[2], t[3]))                                                                                     \
    X(linear_backward_weight, of_fp32_gradients_to_fp32, (WIDE(V, D), WIDE(V, 0), WIDE(N, V), NUMBERS(N, D)),          \
      (d, t[0], t[1], t[2], t[3]))                                                                                     \
    X(column_sums, of_fp32, (NUMBERS(D, 0), WIDE(N, D)), (d, t[0], t[1]))                                              \
    X(attention_forward, in_groups, (NUMBERS(N, 2 * D), STATISTIC(2 * N * H), NUMBERS(N, GROUPED_QKV)),                \
      (d, t[0], t[1], t[2], windowed()))                                                                               \
    X(attention_backward_input, in_groups,                                                                             \
      (NUMBERS(N, GROUPED_QKV), NUMBERS(N, 2 * D), NUMBERS(N, 2 * D), STATISTIC(2 * N * H), NUMBERS(N, GROUPED_QKV)),  \
      (d, t[0], t[1], t[2], t[3], t[4], windowed()))                                                                   \
    X(attention_forward, each_its_keys, (NUMBERS(N, D), STATISTIC(N * H), NUMBERS(N, OWN_QKV)),                        \
      (d, t[0], t[1], t[2], each_its_keys))                                                                            \
    X(attention_backward_input, each_its_keys,                                                                         \
      (NUMBERS(N, OWN_QKV), NUMBERS(N, D), NUMBERS(N, D), STATISTIC(N * H), NUMBERS(N, OWN_QKV)),                      \
      (d, t[0], t[1], t[2], t[3], t[4], each_its_keys))                                                                \
    X(attention_forward, steep, (NUMBERS(N, D), STATISTIC(N * H), NUMBERS(N, OWN_QKV)), (d, t[0], t[1], t[2], steep()))\
    X(attention_forward, masked, (NUMBERS(N, 2 * D), STATISTIC(2 * N * H), NUMBERS(N, GROUPED_QKV)),                   \
      (d, t[0], t[1], t[2], masked(S)))                                                                                \
    X(attention_backward_input, masked,                                                                                \
      (NUMBERS(N, GROUPED_QKV), NUMBERS(N, 2 * D), NUMBERS(N, 2 * D), STATISTIC(2 * N * H), NUMBERS(N, GROUPED_QKV)),  \
      (d, t[0], t[1], t[2], t[3], t[4], masked(S)))                                                                    \
    X(attention_forward, packed, (NUMBERS(N, 2 * D), STATISTIC(2 * N * H), NUMBERS(N, GROUPED_QKV)),                   \
      (d, t[0], t[1], t[2], packed()))                                                                                 \
    X(attention_backward_input, packed,                                                                                \
      (NUMBERS(N, GROUPED_QKV), NUMBERS(N, 2 * D), NUMBERS(N, 2 * D), STATISTIC(2 * N * H), NUMBERS(N, GROUPED_QKV)),  \
      (d, t[0], t[1], t[2], t[3], t[4], packed()))                                                                     \
    X(attention_backward_input, of_one_key,                                                                            \
      (NUMBERS(N, GROUPED_QKV), NUMBERS(N, 2 * D), NUMBERS(N, 2 * D), STATISTIC(2 * N * H), NUMBERS(N, GROUPED_QKV)),  \
      (d, t[0], t[1], t[2], t[3], t[4], of_one_key()))                                                                 \
    X(attention_part_forward, of_wider_rows, (NUMBERS(N, D), STATISTIC(N * H), NUMBERS(N, WIDTH), NUMBERS(N, WIDTH)),  \
      (d, t[0], t[1], t[2], t[3], positions_from(S), positions_from(0), halves()))                                     \
    X(attention_part_backward, of_wider_rows,                                                                          \
      (NUMBERS(N, WIDTH), NUMBERS(N, WIDTH), NUMBERS(N, D), STATISTIC(N * H), STATISTIC(N * H), NUMBERS(N, WIDTH),     \
       NUMBERS(N, WIDTH)),                                                                                             \
      (d, t[0], t[1], t[2], t[3], t[4], t[5], t[6], positions_from(S), positions_from(0), halves()))                   \
    X(attention_scores, of_wider_rows, (STATISTIC(N * H * S), NUMBERS(N, WIDTH), NUMBERS(B * SOME, A)),                \
      (d, SCORES(t[0]), 0, t[1], t[2], positions_from(0), heads))                                                      \
    X(attention_scores_times, of_wider_rows, (NUMBERS(N, WIDTH), STATISTIC(N * H * S), NUMBERS(B * SOME, A)),          \
      (d, t[0], SCORES(t[1]), 0, t[2], positions_from(0), heads))                                                      \
    X(rotary_forward, neighbours, (NUMBERS(N, GROUPED_QKV), WHOLE(N, 0, S), NUMBERS(S, 2)),                            \
      (d, t[0], t[1], t[2], turned(true)))                                                                             \
    X(rotary_backward_input, neighbours, (NUMBERS(N, GROUPED_QKV), WHOLE(N, 0, S), WIDE(S, 2)),                        \
      (d, t[0], t[1], t[2], turned(true)))                                                                             \
    X(rotary_forward, of_fp32, (NUMBERS(N, GROUPED_QKV), WHOLE(N, 0, S), WIDE(S, 2)),                                  \
      (d, t[0], t[1], t[2], turned(false)))                                                                            \
    X(gelu_backward_input, in_place, (X_Y), (d, t[0], t[0], t[1]))                                                     \
    X(exact_gelu_backward_input, in_place, (X_Y), (d, t[0], t[0], t[1]))                                               \
    X(squared_relu_backward_input, in_place, (X_Y), (d, t[0], t[0], t[1]))                                             \
    X(add, in_place, (X_Y), (d, t[0], t[0], t[1]))                                                                     \
    X(scale, in_place, (NUMBERS(N, D)), (d, t[0], t[0], -0.7))                                                         \
    X(dropout, in_place, (NUMBERS(N, D)), (d, t[0], t[0], dropped_piece))                                              \
    X(dropout, of_nothing, (X_Y), (d, t[0], t[1], dropped_none))                                                       \
    X(cross_entropy_sums, of_a_slice,                                                                                  \
      (STATISTIC(N), STATISTIC(N), NUMBERS(N, V), STATISTIC(N), WHOLE(N, 0, 3 * V)),                                   \
      (d, t[0], t[1], t[2], t[3], t[4], V))                                                                            \
    X(cross_entropy_backward, in_place, (NUMBERS(N, V), STATISTIC(N), STATISTIC(N), WHOLE(N, 0, 3 * V)),               \
      (d, t[0], t[0], t[1], t[2], t[3], V, (int)V + 1, 0.125))                                                         \
    X(columns_move, added, (NUMBERS(N, 2 * D), NUMBERS(N, 2 * D)), (d, t[0], t[1], blocks_together, true))             \
    X(streams_mix_forward, without_smoothing, (NUMBERS(N, D), STREAM_WEIGHTS, WIDE(N, WAYS), NUMBERS(N, D * WAYS)),    \
      (d, t[0], t[1], t[2], t[3], 0))                                                                                  \
    X(route_forward, of_fp32, (WIDE(N, K), WHOLE(N, K, E), WIDE(N, E)), (d, t[0], t[1], t[2], &rule, NULL))            \
    X(route_backward_input, of_fp32, (WIDE(N, E), WIDE(N, K), WIDE(N, K), WHOLE(N, K, E), WIDE(N, E)),                 \
      (d, t[0], t[1], t[2], t[3], t[4], &rule))                                                                        \
    X(combine_forward, of_fp32_weights, (NUMBERS(N, D), NUMBERS(N * K, D), WHOLE(N * K, 0, N * K), WIDE(N, K)),        \
      (d, t[0], t[1], t[2], t[3]))                                                                                     \
    X(combine_backward_input, of_fp32_weights,                                                                         \
      (NUMBERS(N * K, D), WIDE(N, K), NUMBERS(N, D), NUMBERS(N * K, D), WHOLE(N * K, 0, N * K), WIDE(N, K)),           \
      (d, t[0], t[1], t[2], t[3], t[4], t[5]))                                                                         \
    X(identity_forward, of_fp32_weights, (X_Y, WHOLE(N, K, E), WIDE(N, K)), (d, t[0], t[1], t[2], t[3], E - 2))        \
    X(identity_backward_weights, to_fp32, (WIDE(N, K), X_Y, WHOLE(N, K, E)), (d, t[0], t[1], t[2], t[3], E - 2))       \
    X(route_weights, of_sigmoids, (NUMBERS(N, K), WHOLE(N, K, E), WIDE(N, E)), (d, t[0], t[1], t[2], &sigmoids))       \
    X(route_weights, of_sigmoids_normed, (NUMBERS(N, K), WHOLE(N, K, E), NUMBERS(N, E)),                               \
      (d, t[0], t[1], t[2], &sigmoids_normed))                                                                         \
    X(route_weights, of_those_nearby, (NUMBERS(N, K), WHOLE(N, K, E), NUMBERS(N, E)), (d, t[0], t[1], t[2], &nearby))

#endif
