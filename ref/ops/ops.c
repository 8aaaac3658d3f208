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
                             .bytes = (double)dtype_size(t) * (double)(N * I + I * O + N * O) };
}

/* Causal: S(S+1)/2 pairs (query, key) with key <= query per sequence and head. */
struct op_cost attention_forward_cost(int64_t N, struct attention a, enum dtype t)
{
    const double causal = (double)N * (double)(a.S + 1) / 2;
    return attention_part_forward_cost(tensor_present(a.mask) ? a.pairs : causal, N, N, a, t);
}

/* Five products (scores again, dP, dV, dQ, dK); forward has two. */
struct op_cost attention_backward_cost(int64_t N, struct attention a, enum dtype t)
{
    struct op_cost c = attention_forward_cost(N, a, t);
    return (struct op_cost){ .flops = 2.5 * c.flops, .bytes = 2 * c.bytes };
}

/* 2A for the score and 2A for the value of each pair and head. */
struct op_cost attention_part_forward_cost(double pairs, int64_t queries, int64_t keys, struct attention a,
                                           enum dtype t)
{
    return (struct op_cost){ .flops = 4.0 * pairs * (double)(a.H * a.A),
                             .bytes = (double)dtype_size(t) * (double)((2 * queries * a.H + 2 * keys * a.K) * a.A) };
}

struct op_cost attention_part_backward_cost(double pairs, int64_t queries, int64_t keys, struct attention a,
                                            enum dtype t)
{
    struct op_cost c = attention_part_forward_cost(pairs, queries, keys, a, t);
    return (struct op_cost){ .flops = 2.5 * c.flops, .bytes = 2 * c.bytes };
}

struct op_cost attention_scores_cost(int64_t scores, int64_t queries, int64_t keys, struct attention a, enum dtype t)
{
    return (struct op_cost){ .flops = 2.0 * (double)scores * (double)a.A,
                             .bytes = (double)dtype_size(dtype_wide(t)) * (double)scores +
                                      (double)dtype_size(t) * (double)((queries * a.H + keys * a.K) * a.A) };
}

struct op_cost elementwise_cost(int64_t elements, int tensors, double flops_each, enum dtype t)
{
    return (struct op_cost){ .flops = flops_each * (double)elements,
                             .bytes = (double)dtype_size(t) * (double)elements * tensors };
}
