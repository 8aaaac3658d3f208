/* rotary: encodes positions as rotations: each pair of a head's numbers turns by an angle proportional to the position.
 *
 * Source    J. Su et al., "RoFormer: enhanced transformer with rotary position embedding", arXiv:2104.09864
 * Shapes    QKV, dQKV [N, (H+2K)A], changed in place: only the first R numbers of the first H+K heads change
 *           positions I32 [N];  table [S,R]: row p is cos of the R/2 angles at position p, then their sines
 * Pairs     i and i + R/2 as in Hugging Face's Llama, or, if a.neighbours, 2i and 2i+1 as in the paper and in GPT-J
 * Forward   (x, y) = (x cos - y sin, y cos + x sin)
 * Backward  the rotation back: (dx, dy) = (dx cos + dy sin, dy cos - dx sin)
 * Rounding  elementwise, two products and a sum
 * Called    ref/ops/ops.def lists the operations.  ref/model/backward.c and ref/model/forward.c call them for one
 *           device; devices call each as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

/* The pairs (x[step i], y[step i]). */
static inline void FN(turn)(real *restrict x, real *restrict y, int64_t step, const real *restrict c,
                            const real *restrict s, int64_t pairs, real direction)
{
    for (int64_t i = 0; i < pairs; i++) {
        const real xi = x[step * i], yi = y[step * i], sine = direction * s[i];
        x[step * i] = xi * c[i] - yi * sine;
        y[step * i] = yi * c[i] + xi * sine;
    }
}

static void FN(rotate)(struct tensor QKV, struct tensor positions, struct tensor table, struct attention a,
                       real direction)
{
    const int64_t N = tensor_rows(QKV), ld = tensor_cols(QKV), R = tensor_cols(table), half = R / 2;
    const int32_t *position = positions.data;
    assert(R % 2 == 0 && R <= a.A && ld == (a.H + 2 * a.K) * a.A && tensor_count(positions) == N);

    #pragma omp parallel for schedule(static) if (N * ld > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *c = CONST_DATA(table) + position[n] * R, *s = c + half;
        assert(position[n] >= 0 && position[n] < tensor_rows(table));
        for (int64_t h = 0; h < a.H + a.K; h++) {
            real *x = DATA(QKV) + n * ld + h * a.A;
            if (a.neighbours) FN(turn)(x, x + 1, 2, c, s, half, direction);
            else FN(turn)(x, x + half, 1, c, s, half, direction);
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
