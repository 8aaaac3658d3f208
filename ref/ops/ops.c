/* ops.c -- finds the table of a format; costs of operations. */
#include "ref/ops/ops.h"

extern const struct ops ops_f32, ops_f64, ops_bf16, ops_f16;

const struct ops *ops_for(enum dtype t)
{
    static const struct ops *const table[DTYPE_COUNT] = {
        [F32] = &ops_f32, [F64] = &ops_f64, [BF16] = &ops_bf16, [F16] = &ops_f16
    };
    return (unsigned)t < DTYPE_COUNT ? table[t] : NULL;
}

struct op_cost linear_cost(int64_t N, int64_t I, int64_t O, enum dtype t)
{
    return (struct op_cost){ .flops = 2.0 * (double)N * (double)I * (double)O,
                             .bytes = (double)dtype_size(t) * (double)(N * I + I * O + N * O),
                             .rows = N, .columns = O, .depth = I };
}

/* Causal: S(S+1)/2 pairs (query, key) with key <= query of a sequence; with a window w < S its last S-w queries see w
 * keys each. */
static double causal_pairs(double sequences, struct attention a)
{
    const double w = (double)(a.window > 0 && a.window < a.S ? a.window : a.S);
    return sequences * (w * (w + 1) / 2 + ((double)a.S - w) * w);
}

double attention_pairs(int64_t N, struct attention a)
{
    const int32_t *sees = a.mask.data;
    const int64_t ranges = tensor_cols(a.mask) / 2;
    double pairs = 0;
    if (!tensor_present(a.mask)) return N > 0 ? causal_pairs((double)N / (double)a.S, a) : 0;
    for (int64_t n = 0; n < N; n++) {
        const int64_t row = n % tensor_rows(a.mask), from = a.window > 0 ? row % a.S + 1 - a.window : 0;
        for (const int32_t *r = sees + 2 * row * ranges; r < sees + 2 * (row + 1) * ranges; r += 2) {
            const int64_t first = r[0] > from ? r[0] : from, end = r[1] < a.S ? r[1] : a.S;   /* it may end after S */
            if (first < end) pairs += (double)(end - first);
        }
    }
    return pairs;
}

struct op_cost attention_forward_cost(int64_t N, struct attention a, enum dtype t)
{
    return attention_part_forward_cost(tensor_present(a.mask) ? a.pairs : attention_pairs(N, a), N, N, a, t);
}

/* Five products (scores again, dP, dV, dQ, dK); forward has two. */
struct op_cost attention_backward_cost(int64_t N, struct attention a, enum dtype t)
{
    struct op_cost c = attention_forward_cost(N, a, t);
    return (struct op_cost){ .flops = 2.5 * c.flops, .bytes = 2 * c.bytes, .depth = c.depth };
}

/* 2A for the score and 2A for the value of each pair and head. */
struct op_cost attention_part_forward_cost(double pairs, int64_t queries, int64_t keys, struct attention a,
                                           enum dtype t)
{
    return (struct op_cost){ .flops = 4.0 * pairs * (double)(a.H * a.A),
                             .bytes = (double)dtype_size(t) * (double)((2 * queries * a.H + 2 * keys * a.K) * a.A),
                             .depth = a.A };
}

struct op_cost attention_part_backward_cost(double pairs, int64_t queries, int64_t keys, struct attention a,
                                            enum dtype t)
{
    struct op_cost c = attention_part_forward_cost(pairs, queries, keys, a, t);
    return (struct op_cost){ .flops = 2.5 * c.flops, .bytes = 2 * c.bytes, .depth = c.depth };
}

struct op_cost attention_scores_cost(int64_t scores, int64_t queries, int64_t keys, struct attention a, enum dtype t)
{
    return (struct op_cost){ .flops = 2.0 * (double)scores * (double)a.A,
                             .bytes = (double)dtype_size(dtype_wide(t)) * (double)scores +
                                      (double)dtype_size(t) * (double)((queries * a.H + keys * a.K) * a.A),
                             .depth = a.A };
}

struct op_cost elementwise_cost(int64_t elements, int tensors, double flops_each, enum dtype t)
{
    return (struct op_cost){ .flops = flops_each * (double)elements,
                             .bytes = (double)dtype_size(t) * (double)elements * tensors };
}
