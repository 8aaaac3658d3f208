/* rmsnorm, norms of heads, rotary, swiglu, geglu and the clamped swiglu: compared with loops in long double, backward
 * also with finite differences of forward.
 * tier: check
 */
#include "ref/model/kinds.h"
#include "ref/model/rotary.h"
#include "tests/ref/test_ops.h"

static struct tensor X, Y, W, dX, dY, dW, rstd;         /* of the case at hand, for the forward under test */
static const struct ops *now;

/* ---- rmsnorm ----------------------------------------------------------------------------------------------------- */

static const double eps = 1e-5;
static double base;                     /* of the norm under test */

/* What a norm multiplies by. */
static num factor(int64_t i) { return plus(exact(base), at(W, i)); }

static void rmsnorm_again(void) { now->rmsnorm_forward(Y, rstd, X, W, base, eps); }

static void rmsnorm_case(const struct ops *op, int64_t N, int64_t D, double offset)
{
    const enum dtype t = op->dtype;
    CASE("rmsnorm %s N=%d D=%d offset %g base %g", dtype_name(t), (int)N, (int)D, offset, base);
    X = fill(matrix(t, N, D), 1, "x"), W = fill(vector(t, D), 1, "w");
    for (int64_t i = 0; i < N * D; i++) tensor_set(X, i, tensor_get(X, i) + offset);
    Y = matrix(t, N, D), rstd = vector(t, N), dY = fill(matrix(t, N, D), 1, "dy"), dX = matrix(t, N, D),
    dW = fill_with(vector(t, D), 1);
    now = op;
    rmsnorm_again();
    op->rmsnorm_backward_input(dX, dY, X, W, base, rstd);
    op->rmsnorm_backward_weight(dW, dY, X, rstd);

    struct sum *w = calloc((size_t)D, sizeof *w);
    assert_non_null(w);
    for (int64_t n = 0; n < N; n++) {
        struct sum squares = { 0 }, inner = { 0 };
        for (int64_t d = 0; d < D; d++) sum_add(&squares, times(at(X, n * D + d), at(X, n * D + d)));
        const num r = over(exact(1), root(plus(over(sum_end(squares), exact(D)), rounded(eps, 0))));
        for (int64_t d = 0; d < D; d++)
            sum_add(&inner, times(times(at(dY, n * D + d), factor(d)), times(at(X, n * D + d), r)));
        const num mean = over(sum_end(inner), exact(D));
        expect_near("rstd", rstd, n, r);
        for (int64_t d = 0; d < D; d++) {
            const num xhat = times(at(X, n * D + d), r), g = times(at(dY, n * D + d), factor(d));
            expect_near("Y", Y, n * D + d, times(xhat, factor(d)));
            expect_near("dX", dX, n * D + d, times(r, minus(g, times(xhat, mean))));
            sum_add(&w[d], times(at(dY, n * D + d), xhat));
        }
    }
    for (int64_t d = 0; d < D; d++) expect_near("dw", dW, d, plus(exact(1), sum_end(w[d])));
    if (t == F64 && N * D < 100) expect_gradient("dX", dX, X, rmsnorm_again, Y, dY, 4 + (double)D);
    free(w);
    check_guards_and_free();
}

static void test_rmsnorm(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        rmsnorm_case(op, 1, 1, 0);
        rmsnorm_case(op, 0, 5, 0);
        rmsnorm_case(op, 3, 5, 0);
        rmsnorm_case(op, 4, 21, 2);
        rmsnorm_case(op, 130, 384, 0);
        base = 1;
        rmsnorm_case(op, 4, 21, 2);
        base = 0;
    }
}

/* ---- norms of heads ---------------------------------------------------------------------------------------------- */

static struct attention shape;

static void head_norm_again(void) { now->head_norm_forward(Y, rstd, X, W, base, shape, eps); }

/* One head of a row: Y, rstd and dX; adds to the A sums of its weights' gradient. */
static void expect_head(int64_t n, int64_t h, struct sum *w)
{
    const bool together = shape.normed_together, key = h >= (together ? 1 : shape.H);
    const int64_t A = (together ? key ? shape.K : shape.H : 1) * shape.A, heads = together ? 2 : shape.H + shape.K,
                  at_head = together ? h * shape.H : h, of = key ? (together ? shape.H : 1) * shape.A : 0,
                  first = n * (shape.H + 2 * shape.K) * shape.A + at_head * shape.A;
    struct sum squares = { 0 }, inner = { 0 };
    for (int64_t i = first; i < first + A; i++) sum_add(&squares, times(at(X, i), at(X, i)));
    const num r = over(exact(1), root(plus(over(sum_end(squares), exact(A)), rounded(eps, 0))));
    for (int64_t i = 0; i < A; i++)
        sum_add(&inner, times(times(at(dY, first + i), factor(of + i)), times(at(X, first + i), r)));
    const num mean = over(sum_end(inner), exact(A));
    expect_near("rstd", rstd, n * heads + h, r);
    for (int64_t i = 0; i < A; i++) {
        const num xhat = times(at(X, first + i), r), g = times(at(dY, first + i), factor(of + i));
        expect_near("Y", Y, first + i, times(xhat, factor(of + i)));
        expect_near("dX", dX, first + i, times(r, minus(g, times(xhat, mean))));
        sum_add(&w[of + i], times(at(dY, first + i), xhat));
    }
}

static void head_norm_case(const struct ops *op, int64_t N, int64_t H, int64_t K, int64_t A, bool together)
{
    const enum dtype t = op->dtype;
    const int64_t ld = (H + 2 * K) * A, weights = together ? (H + K) * A : 2 * A, heads = together ? 2 : H + K;
    CASE("head norm %s N=%d H=%d K=%d A=%d%s", dtype_name(t), (int)N, (int)H, (int)K, (int)A,
         together ? " together" : "");
    shape = (struct attention){ .S = N, .H = H, .K = K, .A = A, .normed_together = together };
    X = fill(matrix(t, N, ld), 1, "x"), W = fill(vector(t, weights), 1, "w"), Y = matrix(t, N, ld);
    rstd = vector(t, N * heads), dY = fill(matrix(t, N, ld), 1, "dy"), dX = matrix(t, N, ld);
    dW = fill_with(vector(t, weights), 1), now = op;
    head_norm_again();
    op->head_norm_backward_input(dX, dY, X, W, base, rstd, shape);
    op->head_norm_backward_weight(dW, dY, X, rstd, shape);

    struct sum *w = calloc((size_t)weights, sizeof *w);
    assert_non_null(w);
    for (int64_t n = 0; n < N; n++) {
        for (int64_t h = 0; h < heads; h++) expect_head(n, h, w);
        for (int64_t i = n * ld + (H + K) * A; i < (n + 1) * ld; i++)           /* values pass, bit for bit */
            assert_true(tensor_get(Y, i) == tensor_get(X, i) && tensor_get(dX, i) == tensor_get(dY, i));
    }
    for (int64_t i = 0; i < weights; i++) expect_near("dw", dW, i, plus(exact(1), sum_end(w[i])));
    if (t == F64 && N * ld < 100) expect_gradient("dX", dX, X, head_norm_again, Y, dY, 4 + (double)weights);
    free(w);
    check_guards_and_free();
}

static void test_head_norm(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        head_norm_case(op, 1, 1, 1, 1, false);
        head_norm_case(op, 0, 3, 1, 5, false);
        head_norm_case(op, 3, 3, 1, 5, false);
        head_norm_case(op, 2, 6, 2, 4, false);
        head_norm_case(op, 70, 9, 3, 34, false);
        head_norm_case(op, 3, 3, 1, 5, true);
        head_norm_case(op, 0, 6, 2, 4, true);
        head_norm_case(op, 70, 9, 3, 34, true);
        base = 1;
        head_norm_case(op, 3, 3, 1, 5, false);
        head_norm_case(op, 3, 3, 1, 5, true);
        base = 0;
    }
}

/* ---- rotary ------------------------------------------------------------------------------------------------------ */

/* The other number of a pair of the first R of a head. */
static int64_t partner(int64_t i, int64_t R, bool neighbours)
{
    return neighbours ? i ^ 1 : i < R / 2 ? i + R / 2 : i - R / 2;
}

/* Complex numbers turned by their angles; what lies behind the first R of a head, and values, stay, bit for bit;
 * backward undoes forward. */
static void rotary_case(const struct ops *op, int64_t N, int64_t S, int64_t H, int64_t K, int64_t A, int64_t R,
                        bool neighbours)
{
    const enum dtype t = op->dtype;
    const struct attention a = { .S = S, .H = H, .K = K, .A = A, .neighbours = neighbours };
    const struct rotary r = { .theta = 100 };
    const int64_t ld = (H + 2 * K) * A;
    CASE("rotary %s N=%d S=%d H=%d K=%d A=%d R=%d neighbours %d", dtype_name(t), (int)N, (int)S, (int)H, (int)K, (int)A,
         (int)R, neighbours);
    X = fill(matrix(t, N, ld), 1, "x"), Y = copy_of(X);
    struct tensor table = matrix(t, S, R), positions = integers(N, 0, (int)S, "positions");
    rotary_table(&r, table);
    op->rotary_forward(Y, positions, table, a);
    dX = copy_of(Y);
    op->rotary_backward_input(dX, positions, table, a);
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < ld; c++) {
            const int64_t i = c % A, here = n * ld + c;
            if (c >= (H + K) * A || i >= R) {
                assert_true(tensor_get(Y, here) == tensor_get(X, here) && tensor_get(dX, here) == tensor_get(X, here));
                continue;
            }
            const int64_t other = here - i + partner(i, R, neighbours), pair = neighbours ? i / 2 : i % (R / 2);
            const bool first = neighbours ? i % 2 == 0 : i < R / 2;
            const long double angle = id_at(positions, n) * powl(100, -2.0L * pair / R);
            const num cosine = rounded(cosl(angle), 1e-15L * (1 + angle)),
                      sine = rounded(sinl(angle), 1e-15L * (1 + angle));
            const num straight = times(at(X, here), cosine), cross = times(at(X, other), sine);
            expect_near("Y", Y, here, first ? minus(straight, cross) : plus(straight, cross));
            expect_near("turned back", dX, here, (num){ tensor_get(X, here), 8 * unit + 8e-15L });
        }
    check_guards_and_free();
}

static void test_rotary(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        for (int neighbours = 0; neighbours < 2; neighbours++) {
            rotary_case(op, 1, 1, 1, 1, 2, 2, neighbours);
            rotary_case(op, 7, 5, 3, 1, 6, 6, neighbours);
            rotary_case(op, 7, 5, 3, 3, 7, 4, neighbours);
            rotary_case(op, 0, 5, 3, 1, 6, 6, neighbours);
            rotary_case(op, 300, 64, 9, 3, 10, 10, neighbours);
            rotary_case(op, 300, 64, 9, 3, 10, 2, neighbours);
        }
    }
}

/* Llama 3.1's own numbers: of A = 128, theta 500000, factor 8, low 1, high 4, 8192 positions: the fast pairs are kept,
 * the slow ones slowed by 8, those between lie between, and nowhere does a slower pair become the faster one. */
static void test_llama3_scaling(void **state)
{
    (void)state;
    const struct rotary plain = { .theta = 500000 },
                        linear = { .theta = 500000, .scaling = SCALING_LINEAR, .factor = 2.5 },
                        dynamic = { .theta = 500000, .scaling = SCALING_DYNAMIC, .factor = 2.5 };
    const struct rotary scaled = { .theta = 500000,
                                   .scaling = SCALING_LLAMA3,
                                   .factor = 8,
                                   .low_frequency = 1,
                                   .high_frequency = 4,
                                   .original_positions = 8192 };
    int kept = 0, slowed = 0, between = 0;
    for (int64_t i = 0; i < 64; i++) {
        const double f = rotary_frequency(&plain, 128, i, 9), g = rotary_frequency(&scaled, 128, i, 9),
                     turns = 8192 * f / 6.283185307179586;
        assert_true(rotary_frequency(&linear, 128, i, 9) == f / 2.5);
        assert_true(rotary_frequency(&dynamic, 128, i, 9) == f);
        assert_true(i == 0 || g < rotary_frequency(&scaled, 128, i - 1, 9));
        if (turns > 4) assert_true(g == f), kept++;
        else if (turns < 1) assert_true(g == f / 8), slowed++;
        else assert_true(g < f && g > f / 8), between++;
    }
    assert_true(rotary_frequency(&plain, 128, 0, 9) == 1);
    assert_true(kept == 29 && between == 6 && slowed == 29);
}

/* ---- swiglu ------------------------------------------------------------------------------------------------------ */

static num logistic(num x) { return over(exact(1), plus(exact(1), expo((num){ -x.v, x.e }))); }

static void swiglu_case(const struct ops *op, int64_t N, int64_t F, double reach)
{
    const enum dtype t = op->dtype;
    CASE("swiglu %s N=%d F=%d reach %g", dtype_name(t), (int)N, (int)F, reach);
    X = fill(matrix(t, N, 2 * F), reach, "x"), Y = matrix(t, N, F), dY = fill(matrix(t, N, F), 1, "dy"),
    dX = matrix(t, N, 2 * F);
    op->swiglu_forward(Y, X);
    op->swiglu_backward_input(dX, dY, X);
    for (int64_t n = 0; n < N; n++)
        for (int64_t f = 0; f < F; f++) {
            const num g = at(X, n * 2 * F + f), u = at(X, n * 2 * F + F + f), dy = at(dY, n * F + f), s = logistic(g);
            const num rest = logistic((num){ -g.v, 0 });
            expect_near("Y", Y, n * F + f, times(times(g, s), u));
            expect_near("du", dX, n * 2 * F + F + f, times(dy, times(g, s)));
            expect_near("dg", dX, n * 2 * F + f, times(times(times(dy, u), s), plus(exact(1), times(g, rest))));
        }
    check_guards_and_free();
}

static void test_swiglu(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        swiglu_case(op, 1, 1, 1);
        swiglu_case(op, 0, 3, 1);
        swiglu_case(op, 5, 37, 8);
        swiglu_case(op, 200, 100, 30);
        X = vector(t, 4), Y = vector(t, 2), dY = fill_with(vector(t, 2), 1), dX = vector(t, 4);
        CASE("swiglu %s far out", dtype_name(t));
        tensor_set(X, 0, -1e4), tensor_set(X, 1, 1e4), tensor_set(X, 2, 3), tensor_set(X, 3, 3);
        op->swiglu_forward(Y, X);
        op->swiglu_backward_input(dX, dY, X);
        assert_true(tensor_get(Y, 0) == 0 && tensor_get(Y, 1) == 3e4);                 /* and not 0 times infinity */
        assert_true(tensor_get(dX, 0) == 0 && tensor_get(dX, 1) == 3 && tensor_get(dX, 2) == 0 &&
                    tensor_get(dX, 3) == 1e4);
        check_guards_and_free();
    }
}

/* ---- geglu, held to gelu, which test_ops.c holds to long double -------------------------------------------------- */

static void geglu_case(const struct ops *op, int64_t N, int64_t F, double reach)
{
    const enum dtype t = op->dtype;
    CASE("geglu %s N=%d F=%d reach %g", dtype_name(t), (int)N, (int)F, reach);
    X = fill(matrix(t, N, 2 * F), reach, "x"), Y = matrix(t, N, F), dY = fill(matrix(t, N, F), 1, "dy"),
    dX = matrix(t, N, 2 * F);
    const struct tensor one = fill_with(vector(t, N * 2 * F), 1), gelu = vector(t, N * 2 * F),
                        slope = vector(t, N * 2 * F);
    op->gelu_forward(gelu, X);
    op->gelu_backward_input(slope, one, X);
    op->geglu_forward(Y, X);
    op->geglu_backward_input(dX, dY, X);
    for (int64_t n = 0; n < N; n++)
        for (int64_t f = 0; f < F; f++) {
            const int64_t g = n * 2 * F + f, u = g + F;
            const num dy = at(dY, n * F + f);
            expect_near("Y", Y, n * F + f, times(at(gelu, g), at(X, u)));
            expect_near("du", dX, u, times(dy, at(gelu, g)));
            expect_near("dg", dX, g, times(times(dy, at(X, u)), at(slope, g)));
        }
    check_guards_and_free();
}

static void test_geglu(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        geglu_case(op, 1, 1, 1);
        geglu_case(op, 0, 3, 1);
        geglu_case(op, 5, 37, 8);
        geglu_case(op, 200, 100, 30);
    }
}

/* ---- clamped swiglu ---------------------------------------------------------------------------------------------- */

static const struct clamped clamps = { .alpha = 1.702, .limit = 3 };

static void clamped_again(void) { now->clamped_swiglu_forward(Y, X, clamps); }

static void expect_clamped(int64_t n, int64_t f, int64_t F)
{
    const int64_t i = n * F + f, gate = n * 2 * F + f, up = gate + F;
    const num limit = exact(clamps.limit), alpha = rounded(clamps.alpha, 0), dy = at(dY, i);
    const bool high = at(X, gate).v > limit.v, outside = fabsl(at(X, up).v) > limit.v;
    const num g = high ? limit : at(X, gate),
              u = plus(exact(1), outside ? exact(copysignl(limit.v, at(X, up).v)) : at(X, up));
    const num s = over(exact(1), plus(exact(1), expo(minus(exact(0), times(alpha, g))))),
              rest = over(exact(1), plus(exact(1), expo(times(alpha, g))));
    expect_near("Y", Y, i, times(times(g, s), u));
    expect_near("du", dX, up, outside ? exact(0) : times(dy, times(g, s)));
    expect_near("dg", dX, gate, high ? exact(0) : times(times(times(dy, u), s),
                                                        plus(exact(1), times(times(alpha, g), rest))));
}

static void clamped_case(const struct ops *op, int64_t N, int64_t F, double reach)
{
    const enum dtype t = op->dtype;
    CASE("clamped swiglu %s N=%d F=%d reach %g", dtype_name(t), (int)N, (int)F, reach);
    X = fill(matrix(t, N, 2 * F), reach, "x"), Y = matrix(t, N, F), dY = fill(matrix(t, N, F), 1, "dy"),
    dX = matrix(t, N, 2 * F), now = op;
    clamped_again();
    op->clamped_swiglu_backward_input(dX, dY, X, clamps);
    for (int64_t n = 0; n < N; n++)
        for (int64_t f = 0; f < F; f++) expect_clamped(n, f, F);
    if (t == F64 && N * F > 0 && reach < clamps.limit) expect_gradient("dX", dX, X, clamped_again, Y, dY, 8);
    check_guards_and_free();
}

/* Numbers at the limit still have a gradient, as in torch.clamp; a NaN stays one. */
static void test_clamped_swiglu(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        clamped_case(op, 1, 1, 1);
        clamped_case(op, 0, 3, 1);
        clamped_case(op, 7, 5, 2);
        clamped_case(op, 40, 37, 8);
        clamped_case(op, 200, 100, 30);
        X = fill_with(matrix(t, 1, 4), clamps.limit), Y = matrix(t, 1, 2), dY = fill_with(matrix(t, 1, 2), 1),
        dX = matrix(t, 1, 4);
        tensor_set(X, 1, NAN), tensor_set(X, 3, -clamps.limit);
        op->clamped_swiglu_forward(Y, X, clamps);
        op->clamped_swiglu_backward_input(dX, dY, X, clamps);
        assert_true(tensor_get(dX, 0) > 0 && tensor_get(dX, 2) > 0);
        assert_true(isnan(tensor_get(Y, 1)) && isnan(tensor_get(dX, 3)));
        check_guards_and_free();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_head_norm),
        cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_llama3_scaling),
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_geglu),
        cmocka_unit_test(test_clamped_swiglu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
