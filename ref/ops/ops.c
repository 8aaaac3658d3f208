/* ops.c -- finds the table of a format; costs of operations.  Backends, ref/model/ and check/ ask ops_for for a
 * table; predictions ask for costs.  No function returns an error code. */
#include "ref/ops/ops.h"

extern const struct ops ops_f32, ops_f64, ops_bf16, ops_f16, ops_x32, ops_bf16_x32, ops_f16_x32, ops_x32s2,
    ops_bf16_x32s2, ops_f16_x32s2;

const struct ops *ops_for(enum dtype dtype)
{
    static const struct ops *const table[DTYPE_COUNT] = {
        [F32] = &ops_f32, [F64] = &ops_f64, [BF16] = &ops_bf16, [F16] = &ops_f16
    };
    return (unsigned)dtype < DTYPE_COUNT ? table[dtype] : NULL;
}

const struct ops *ops_exact(enum dtype dtype, enum exact_rule rule)
{
    static const struct ops *const table[EXACT_RULES][DTYPE_COUNT] = {
        [SUMS_EXACT] = { [F32] = &ops_x32, [BF16] = &ops_bf16_x32, [F16] = &ops_f16_x32 },
        [SUMS_EXACT2] = { [F32] = &ops_x32s2, [BF16] = &ops_bf16_x32s2, [F16] = &ops_f16_x32s2 },
    };
    return (unsigned)dtype < DTYPE_COUNT ? table[rule][dtype] : NULL;
}

struct op_cost linear_cost(int64_t N, int64_t I, int64_t O, enum dtype dtype)
{
    return (struct op_cost){ .flops = 2.0 * (double)N * (double)I * (double)O,
                             .bytes = (double)dtype_size(dtype) * (double)(N * I + I * O + N * O),
                             .rows = N, .columns = O, .depth = I };
}

/* Causal: S(S+1)/2 pairs (query, key) with key <= query of a sequence; with a window w < S its last S-w queries see w
 * keys each. */
static double causal_pairs(double sequences, struct attention attention)
{
    const double w = (double)(attention.window > 0 && attention.window < attention.S ? attention.window : attention.S);
    return sequences * (w * (w + 1) / 2 + ((double)attention.S - w) * w);
}

/* Pairs of the first N rows of a mask.  Places in a sequence are counted along, because a window begins at its query's
 * place less its tokens. */
static int64_t masked_pairs(int64_t N, struct attention attention)
{
    const int64_t ranges = tensor_cols(attention.mask) / 2, S = attention.S;
    const int32_t *r = attention.mask.data;
    int64_t pairs = 0;
    for (int64_t n = 0, place = 0; n < N; n++, place = place + 1 < S ? place + 1 : 0) {
        const int64_t from = attention.window > 0 ? place + 1 - attention.window : 0;
        for (const int32_t *const last = r + 2 * ranges; r < last; r += 2) {
            /* it may end after S */
            const int64_t first = r[0] > from ? r[0] : from, end = r[1] < S ? r[1] : S;
            pairs += end > first ? end - first : 0;
        }
    }
    return pairs;
}

double attention_pairs(int64_t N, struct attention attention)
{
    const int64_t rows = tensor_rows(attention.mask);
    if (!tensor_present(attention.mask)) return N > 0 ? causal_pairs((double)N / (double)attention.S, attention) : 0;
    if (N <= rows) return (double)masked_pairs(N, attention);
    /* The N rows repeat the mask, and may end inside it. */
    return (double)(N / rows * masked_pairs(rows, attention) + masked_pairs(N % rows, attention));
}

struct op_cost attention_forward_cost(int64_t N, struct attention attention, enum dtype dtype)
{
    return attention_part_forward_cost(tensor_present(attention.mask) ? attention.pairs : attention_pairs(N, attention),
                                       N, N, attention, dtype);
}

/* Five products (scores again, dP, dV, dQ, dK); forward has two. */
struct op_cost attention_backward_cost(int64_t N, struct attention attention, enum dtype dtype)
{
    struct op_cost c = attention_forward_cost(N, attention, dtype);
    return c.flops *= 2.5, c.bytes *= 2, c;
}

/* Queries are whole sequences of S, or part of one; keys are as many sequences. */
static double cost_sequences(int64_t queries, struct attention attention)
{
    return queries > attention.S && attention.S > 0 ? (double)queries / (double)attention.S : 1;
}

/* 2A for the score and 2A for the value of each pair and head. */
struct op_cost attention_part_forward_cost(double pairs, int64_t queries, int64_t keys, struct attention attention,
                                           enum dtype dtype)
{
    const double sequences = cost_sequences(queries, attention), all = (double)queries * (double)keys / sequences;
    return (struct op_cost){ .flops = 4.0 * pairs * (double)(attention.H * attention.A),
                             .bytes = (double)dtype_size(dtype)
                                 * (double)((2 * queries * attention.H + 2 * keys * attention.K) * attention.A),
                             .columns = (int64_t)((double)keys / sequences), .depth = attention.A,
                             .seen = all > 0 ? pairs / all : 0 };
}

/* The scores alone: half of the operations, and no values. */
struct op_cost attention_part_top_cost(double pairs, int64_t queries, int64_t keys, struct attention attention,
                                       enum dtype dtype)
{
    struct op_cost c = attention_part_forward_cost(pairs, queries, keys, attention, dtype);
    return c.flops /= 2, c.bytes /= 2, c;
}

struct op_cost attention_part_backward_cost(double pairs, int64_t queries, int64_t keys, struct attention attention,
                                            enum dtype dtype)
{
    struct op_cost c = attention_part_forward_cost(pairs, queries, keys, attention, dtype);
    return c.flops *= 2.5, c.bytes *= 2, c;
}

struct op_cost attention_scores_cost(int64_t scores, int64_t queries, int64_t keys, struct attention attention,
                                     enum dtype dtype)
{
    return (struct op_cost){ .flops = 2.0 * (double)scores * (double)attention.A,
                             .bytes = (double)dtype_size(dtype_wide(dtype)) * (double)scores +
                                      (double)dtype_size(dtype)
                                          * (double)((queries * attention.H + keys * attention.K) * attention.A),
                             .depth = attention.A };
}

struct op_cost elementwise_cost(int64_t elements, int tensors, double flops_each, enum dtype dtype)
{
    return (struct op_cost){ .flops = flops_each * (double)elements,
                             .bytes = (double)dtype_size(dtype) * (double)elements * tensors };
}
