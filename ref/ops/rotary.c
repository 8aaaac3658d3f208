/* rotary: positions as rotations; each pair of a head's numbers turns by an angle that grows with the token's position.
 *
 * Source    J. Su et al., "RoFormer: enhanced transformer with rotary position embedding", arXiv:2104.09864; pairs as in
 *           Hugging Face transformers: number i of a head goes with number i + A/2
 * Shapes    QKV, dQKV [N, (H+2K)A], changed in place: the first H+K heads, values stay;  positions I32 [N];
 *           table [S,A]: row p is cos of the A/2 angles at position p, then their sines
 * Forward   (x, y) = (x cos - y sin, y cos + x sin)
 * Backward  the rotation back: (dx, dy) = (dx cos + dy sin, dy cos - dx sin)
 * Rounding  elementwise, two products and a sum
 */
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

static void FN(rotate)(struct tensor QKV, struct tensor positions, struct tensor table, struct attention a, real direction)
{
    const int64_t N = tensor_rows(QKV), ld = tensor_cols(QKV), half = a.A / 2;
    const int32_t *position = positions.data;
    assert(a.A % 2 == 0 && ld == (a.H + 2 * a.K) * a.A && tensor_cols(table) == a.A && tensor_count(positions) == N);

    #pragma omp parallel for schedule(static) if (N * ld > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict c = CONST_DATA(table) + position[n] * a.A, *restrict s = c + half;
        assert(position[n] >= 0 && position[n] < tensor_rows(table));
        for (int64_t h = 0; h < a.H + a.K; h++) {
            real *restrict x = DATA(QKV) + n * ld + h * a.A, *restrict y = x + half;
            for (int64_t i = 0; i < half; i++) {
                const real xi = x[i], yi = y[i], sine = direction * s[i];
                x[i] = xi * c[i] - yi * sine;
                y[i] = yi * c[i] + xi * sine;
            }
        }
    }
}

void FN(rotary_forward)(struct tensor QKV, struct tensor positions, struct tensor table, struct attention a)
{
    FN(rotate)(QKV, positions, table, a, 1);
}

void FN(rotary_backward_input)(struct tensor dQKV, struct tensor positions, struct tensor table, struct attention a)
{
    FN(rotate)(dQKV, positions, table, a, -1);
}
