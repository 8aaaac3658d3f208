/* Embedding, layernorm, activations, add, dropout, sums: each compared with loops in long double, its backward also
 * with finite differences of its forward, slices with the whole, and many threads with one.
 * tier: check
 */
#include "tests/ref/test_ops.h"

static struct tensor X, Y, W, b, dX, dY, dW, db, mean, rstd;       /* of the case at hand, for the forward under test */

/* ---- layernorm --------------------------------------------------------------------------------------------------- */

static const double eps = 1e-5;
static double base;                     /* that the weights are added to: 0 or 1 */
static bool biased = true;

struct row { num mean, rstd, sum_g, sum_gx; };

static num centred(struct tensor x, int64_t i, num mu) { return minus(at(x, i), mu); }

static num factor(int64_t d) { return base == 0 ? at(W, d) : plus(exact(base), at(W, d)); }

static struct row row_statistics(int64_t n, int64_t D)
{
    struct sum s = { 0 }, v = { 0 }, g = { 0 }, gx = { 0 };
    struct row r;
    for (int64_t d = 0; d < D; d++) sum_add(&s, at(X, n * D + d));
    r.mean = over(sum_end(s), exact(D));
    for (int64_t d = 0; d < D; d++) sum_add(&v, times(centred(X, n * D + d, r.mean), centred(X, n * D + d, r.mean)));
    r.rstd = over(exact(1), root(plus(over(sum_end(v), exact(D)), rounded(eps, 0))));
    for (int64_t d = 0; d < D; d++) {
        const num gd = times(at(dY, n * D + d), factor(d));
        sum_add(&g, gd);
        sum_add(&gx, times(gd, times(centred(X, n * D + d, r.mean), r.rstd)));
    }
    r.sum_g = sum_end(g), r.sum_gx = sum_end(gx);
    return r;
}

/* Columns first .. first+cols-1 of a matrix, or elements of a vector; and back. */
static struct tensor slice_of(struct tensor whole, int64_t first, int64_t cols)
{
    const int64_t rows = tensor_rows(whole), D = tensor_cols(whole);
    struct tensor s = whole.ndim == 1 ? vector(whole.dtype, cols) : matrix(whole.dtype, rows, cols);
    for (int64_t i = 0; i < rows * cols; i++) tensor_set(s, i, tensor_get(whole, i / cols * D + first + i % cols));
    return s;
}

static void paste(struct tensor whole, int64_t first, struct tensor s)
{
    const int64_t cols = tensor_cols(s), D = tensor_cols(whole);
    for (int64_t i = 0; i < tensor_count(s); i++) tensor_set(whole, i / cols * D + first + i % cols, tensor_get(s, i));
}

/* What devices with `cut` of the columns, and with the rest of them, make together of X, W, b, dY:
 * Y, mean, rstd, dX. */
static void layernorm_in_parts(const struct ops *op, int64_t cut)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X), first[2] = { 0, cut }, cols[2] = { cut, D - cut };
    struct tensor x[2], dy[2], w[2], sums = fill_with(matrix(op->dtype, 2, N), 0), part = matrix(op->dtype, 2, N),
                                     own = tensor_1d(part.data, op->dtype, N);
    fill_with(mean, 0), fill_with(rstd, 0);
    for (int s = 0; s < 2; s++) {
        x[s] = slice_of(X, first[s], cols[s]), dy[s] = slice_of(dY, first[s], cols[s]),
        w[s] = slice_of(W, first[s], cols[s]);
        op->row_sums(own, x[s]);
        op->add(mean, mean, own);
    }
    for (int64_t n = 0; n < N; n++) tensor_set(mean, n, tensor_get(mean, n) / (double)D);
    for (int s = 0; s < 2; s++) {
        op->row_centred_squares(own, x[s], mean);
        op->add(rstd, rstd, own);
    }
    const struct tensor squares = copy_of(rstd);
    for (int s = 0; s < 2; s++) {
        const struct tensor y = matrix(op->dtype, N, cols[s]);
        memcpy(rstd.data, squares.data, tensor_bytes(rstd));
        op->layernorm_forward_part(y, rstd, x[s], w[s], base,
                                   biased ? slice_of(b, first[s], cols[s]) : tensor_none, mean, D, eps);
        paste(Y, first[s], y);
        op->layernorm_backward_sums(part, dy[s], x[s], w[s], base, mean, rstd);
        op->add(sums, sums, part);
    }
    for (int s = 0; s < 2; s++) {
        const struct tensor dx = matrix(op->dtype, N, cols[s]);
        op->layernorm_backward_part(dx, dy[s], x[s], w[s], base, mean, rstd, sums, D);
        paste(dX, first[s], dx);
    }
}

/* cut: computed from two slices of the columns; 0: at once. */
static void layernorm_case(const struct ops *op, int64_t N, int64_t D, int64_t cut, double offset)
{
    const enum dtype t = op->dtype;
    CASE("layernorm %s N=%d D=%d cut %d offset %g%s%s", dtype_name(t), (int)N, (int)D, (int)cut, offset,
         base == 0 ? "" : " from 1", biased ? "" : ", no bias");
    X = fill(matrix(t, N, D), 1, "x"), W = fill(vector(t, D), 1, "w"), b = fill(vector(t, D), 1, "b");
    for (int64_t i = 0; i < N * D; i++) tensor_set(X, i, tensor_get(X, i) + offset);
    Y = matrix(t, N, D), mean = vector(t, N), rstd = vector(t, N);
    dY = fill(matrix(t, N, D), 1, "dy"), dX = matrix(t, N, D);
    dW = fill_with(vector(t, D), 1), db = fill_with(vector(t, D), 1);
    if (cut) layernorm_in_parts(op, cut);
    else {
        op->layernorm_forward(Y, mean, rstd, X, W, base, biased ? b : tensor_none, eps);
        op->layernorm_backward_input(dX, dY, X, W, base, mean, rstd);
    }
    op->layernorm_backward_weight(dW, biased ? db : tensor_none, dY, X, mean, rstd);

    struct sum *w = calloc((size_t)D, sizeof *w), *bias = calloc((size_t)D, sizeof *bias);
    assert_true(w && bias);
    for (int64_t n = 0; n < N; n++) {
        const struct row r = row_statistics(n, D);
        const num mean_g = over(r.sum_g, exact(D)), mean_gx = over(r.sum_gx, exact(D));
        expect_near("mean", mean, n, r.mean);
        expect_near("rstd", rstd, n, r.rstd);
        for (int64_t d = 0; d < D; d++) {
            const num xhat = times(centred(X, n * D + d, r.mean), r.rstd), g = times(at(dY, n * D + d), factor(d));
            expect_near("Y", Y, n * D + d, biased ? plus(times(xhat, factor(d)), at(b, d)) : times(xhat, factor(d)));
            expect_near("dX", dX, n * D + d, times(r.rstd, minus(minus(g, mean_g), times(xhat, mean_gx))));
            sum_add(&w[d], times(at(dY, n * D + d), xhat));
            sum_add(&bias[d], at(dY, n * D + d));
        }
    }
    for (int64_t d = 0; d < D; d++) {                   /* added to the 1 that was there */
        expect_near("dw", dW, d, plus(exact(1), sum_end(w[d])));
        expect_near("db", db, d, biased ? plus(exact(1), sum_end(bias[d])) : exact(1));
    }
    free(w), free(bias);
    check_guards_and_free();
}

static void test_layernorm(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        layernorm_case(op, 1, 1, 0, 0);
        layernorm_case(op, 0, 5, 0, 0);
        layernorm_case(op, 3, 5, 0, 0);
        layernorm_case(op, 19, 131, 0, 0);
        layernorm_case(op, 7, 16, 0, 100);         /* the mean is what a one-pass variance would choke on */
        layernorm_case(op, 130, 384, 0, 0);
    }
}

static void test_layernorm_in_parts(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        layernorm_case(op, 5, 27, 14, 0);
        layernorm_case(op, 19, 131, 1, 0);
        layernorm_case(op, 7, 64, 40, 100);
        layernorm_case(op, 130, 384, 192, 0);
    }
}

/* Weights that are kept from 1, and no bias: in each of the other cases, too. */
static void test_layernorm_from_one_without_bias(void **state)
{
    (void)state;
    for (int which = 1; which < 4; which++)
        FOR_FORMATS(t, op) {
            base = which & 1, biased = !(which & 2);
            layernorm_case(op, 3, 5, 0, 0);
            layernorm_case(op, 19, 131, 0, 0);
            layernorm_case(op, 7, 64, 40, 100);
        }
    base = 0, biased = true;
}

/* ---- gelu and add ------------------------------------------------------------------------------------------------ */

static num gelu_exponent(num x)                 /* -2u */
{
    const num c = rounded(-1.5957691216057307117597842397375L, 0), cubic = rounded(0.044715L, 0);
    return times(times(c, x), plus(exact(1), times(times(cubic, x), x)));
}

static num gelu_slope(num x)
{
    const num e = expo(gelu_exponent(x)), s = over(exact(1), plus(exact(1), e));
    const num slope = times(rounded(1.5957691216057307117597842397375L, 0),
                            plus(exact(1), times(times(times(exact(3), rounded(0.044715L, 0)), x), x)));
    return plus(s, times(times(times(x, s), times(s, e)), slope));
}

static void test_gelu(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        const int64_t count = 20011;
        const double reach = t == F32 ? 9.9 : 19.9;     /* inside the clamp of the derivative */
        CASE("gelu %s", dtype_name(t));
        X = fill(vector(t, count), reach, "x"), Y = vector(t, count), dY = fill(vector(t, count), 1, "dy");
        tensor_set(X, 0, 0);
        op->gelu_forward(Y, X);
        op->gelu_backward_input(dY, dY, X);             /* in place */
        struct tensor dy = fill(vector(t, count), 1, "dy");
        for (int64_t i = 0; i < count; i++) {
            expect_near("Y", Y, i, over(at(X, i), plus(exact(1), expo(gelu_exponent(at(X, i))))));
            expect_near("dX", dY, i, times(at(dy, i), gelu_slope(at(X, i))));
        }
        check_guards_and_free();
    }
}

/* The probability that a normal number is below x, and its derivative, the density. */
static num normal_below(num x)
{
    return times(rounded(0.5L, 0), error_complement(times(rounded(-0.70710678118654752440084436210485L, 0), x)));
}

static num normal_density(num x)
{
    return times(rounded(0.39894228040143267793994605993438L, 0), expo(times(rounded(-0.5L, 0), times(x, x))));
}

static void test_exact_gelu(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        const int64_t count = 20011;
        const double reach = t == F32 ? 13.9 : 37.9;    /* inside the clamp of the derivative */
        CASE("exact gelu %s", dtype_name(t));
        X = fill(vector(t, count), reach, "x"), Y = vector(t, count), dY = fill(vector(t, count), 1, "dy");
        tensor_set(X, 0, 0);
        op->exact_gelu_forward(Y, X);
        op->exact_gelu_backward_input(dY, dY, X);       /* in place */
        struct tensor dy = fill(vector(t, count), 1, "dy");
        for (int64_t i = 0; i < count; i++) {
            const num x = at(X, i);
            expect_near("Y", Y, i, times(x, normal_below(x)));
            expect_near("dX", dY, i, times(at(dy, i), plus(normal_below(x), times(x, normal_density(x)))));
        }
        check_guards_and_free();
    }
}

/* Below 0, and at 0, there is neither a value nor a gradient; a NaN stays. */
static void test_squared_relu(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        const int64_t count = 20011;
        CASE("squared relu %s", dtype_name(t));
        X = fill(vector(t, count), 3, "x"), Y = vector(t, count), dY = fill(vector(t, count), 1, "dy");
        tensor_set(X, 0, 0), tensor_set(X, 1, -1e30), tensor_set(X, 2, NAN);
        op->squared_relu_forward(Y, X);
        op->squared_relu_backward_input(dY, dY, X);     /* in place */
        struct tensor dy = fill(vector(t, count), 1, "dy");
        for (int64_t i = 0; i < count; i++) {
            const num r = tensor_get(X, i) > 0 ? at(X, i) : exact(0);
            if (i == 2) continue;
            expect_near("Y", Y, i, times(r, r));
            expect_near("dX", dY, i, times(at(dy, i), times(exact(2), r)));
        }
        assert_true(isnan(tensor_get(Y, 2)) && isnan(tensor_get(dY, 2)));
        check_guards_and_free();
    }
}

/* In place; large numbers become the cap, and have no gradient. */
static void test_soft_cap(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        const int64_t count = 20011;
        const num cap = exact(3);
        CASE("soft cap %s", dtype_name(t));
        X = fill(vector(t, count), 6, "x"), dY = fill(vector(t, count), 1, "dy");
        tensor_set(X, 0, 0), tensor_set(X, 1, 1e30), tensor_set(X, 2, -1e30);
        const struct tensor x = copy_of(X), dy = copy_of(dY);
        op->soft_cap_forward(X, X, 3);
        op->soft_cap_backward_input(dY, dY, X, 3);
        for (int64_t i = 0; i < count; i++) {
            const num part = over(at(X, i), cap);
            expect_near("Y", X, i, times(cap, hyperbolic(over(at(x, i), cap))));
            expect_near("dX", dY, i, times(at(dy, i), times(minus(exact(1), part), plus(exact(1), part))));
        }
        assert_true(tensor_get(X, 1) == 3 && tensor_get(X, 2) == -3 && tensor_get(dY, 1) == 0);
        check_guards_and_free();
    }
}

/* Either form of gelu: large numbers stay as they are, or become 0. */
static void far_out(const char *name, void (*forward)(struct tensor, struct tensor),
                    void (*backward)(struct tensor, struct tensor, struct tensor), enum dtype t)
{
    const double x[] = { 1e30, 1e300, 50, 21, -21, -50, -1e30, -1e300 };
    CASE("%s %s far out", name, dtype_name(t));
    X = vector(t, 9), Y = vector(t, 9), dX = vector(t, 9), dY = fill_with(vector(t, 9), 1);
    for (int i = 0; i < 8; i++) tensor_set(X, i, fabs(x[i]) > 1e38 && t == F32 ? copysign(3e38, x[i]) : x[i]);
    tensor_set(X, 8, NAN);
    forward(Y, X);
    backward(dX, dY, X);
    for (int i = 0; i < 8; i++) {
        expect_near("Y", Y, i, (num){ x[i] > 0 ? tensor_get(X, i) : 0, 1e-30L });
        expect_near("dX", dX, i, (num){ x[i] > 0, 1e-30L });
    }
    assert_true(isnan(tensor_get(Y, 8)) && isnan(tensor_get(dX, 8)));
    check_guards_and_free();
}

static void test_gelus_far_out(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        far_out("gelu", op->gelu_forward, op->gelu_backward_input, t);
        far_out("exact gelu", op->exact_gelu_forward, op->exact_gelu_backward_input, t);
    }
}

static void test_add(void **state)
{
    (void)state;
    FOR_FORMATS(t, op)
        for (int64_t count = 0; count < 40000; count = count * 7 + 1) {
            CASE("add %s count %d", dtype_name(t), (int)count);
            X = fill(vector(t, count), 1, "x"), W = fill(vector(t, count), 1, "w"), Y = vector(t, count);
            op->add(Y, X, W);
            for (int64_t i = 0; i < count; i++) expect_near("Y", Y, i, plus(at(X, i), at(W, i)));
            op->add(X, X, W);
            expect_same_bits("Y in place of A", X, Y);
            fill(X, 1, "x");
            op->add(W, X, W);
            expect_same_bits("Y in place of B", W, Y);
            check_guards_and_free();
        }
}

/* ---- embedding --------------------------------------------------------------------------------------------------- */

/* The table in slices, one of them empty, against the whole; ids from -2 on name no row at all. */
static void embedding_case(const struct ops *op, int64_t N, int64_t V, int64_t D)
{
    const enum dtype t = op->dtype;
    const int64_t cut[] = { 0, V / 3, V / 3, V };
    CASE("embedding %s N=%d V=%d D=%d", dtype_name(t), (int)N, (int)V, (int)D);
    const struct tensor ids = integers(N, -2, (int)V + 4, "ids"), whole = matrix(t, N, D);
    W = fill(matrix(t, V, D), 1, "w"), dY = fill(matrix(t, N, D), 1, "dy");
    dW = fill_with(matrix(t, V, D), 1), Y = fill_with(matrix(t, N, D), 0);
    const struct tensor dW_slices = copy_of(dW);

    const struct tensor onto = copy_of(dY);             /* as positions are added to tokens */
    op->embedding_forward(whole, ids, W, 0, false);
    op->embedding_forward(onto, ids, W, 0, true);
    op->embedding_backward_weight(dW, dY, ids, 0);
    for (int s = 0; s < 3; s++) {
        const struct tensor slice =
            tensor_2d((char *)W.data + (size_t)(cut[s] * D) * dtype_size(t), t, cut[s + 1] - cut[s], D);
        struct tensor dslice = slice;
        dslice.data = (char *)dW_slices.data + (size_t)(cut[s] * D) * dtype_size(t);
        op->embedding_forward(Y, ids, slice, cut[s], true);
        op->embedding_backward_weight(dslice, dY, ids, cut[s]);
    }
    expect_same_bits("Y from slices", Y, whole);
    expect_same_bits("dW in slices", dW_slices, dW);

    for (int64_t n = 0; n < N; n++)
        for (int64_t d = 0; d < D; d++) {
            const int id = id_at(ids, n);
            const num w = id >= 0 && id < V ? at(W, id * D + d) : exact(0);
            expect_near("Y", whole, n * D + d, w);
            expect_near("Y accumulated", onto, n * D + d, plus(at(dY, n * D + d), w));
        }
    for (int64_t v = 0; v < V; v++)
        for (int64_t d = 0; d < D; d++) {
            struct sum s = { 0 };
            sum_add(&s, exact(1));
            for (int64_t n = 0; n < N; n++)
                if (id_at(ids, n) == v) sum_add(&s, at(dY, n * D + d));
            expect_near("dW", dW, v * D + d, sum_end(s));
        }
    check_guards_and_free();
}

static void test_embedding(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        embedding_case(op, 1, 1, 1);
        embedding_case(op, 0, 3, 5);
        embedding_case(op, 37, 11, 7);
        embedding_case(op, 200, 13, 129);
    }
}

/* ---- dropout and sums -------------------------------------------------------------------------------------------- */

static void test_dropout(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        const int64_t rows = 67, cols = 301, row1 = 23, col1 = 130;
        struct dropout d = { .p = 0.3, .seed = 5, .stream = 9, .cols = cols };
        CASE("dropout %s", dtype_name(t));
        X = fill_with(matrix(t, rows, cols), 3), Y = matrix(t, rows, cols);
        op->dropout(Y, X, d);
        int64_t kept = 0;
        for (int64_t i = 0; i < rows * cols; i++) {
            const bool keep = random_uniform(5, 9, (uint64_t)i) >= 0.3;
            expect_near("Y", Y, i, keep ? times(exact(3), rounded(1 / 0.7L, 0)) : exact(0));
            kept += keep;
        }
        /* 5 standard deviations of a binomial count; the numbers are fixed, so this passes always or never */
        assert_true(fabs((double)kept - 0.7 * rows * cols) < 5 * sqrt(0.21 * rows * cols));

        const struct tensor piece = fill_with(matrix(t, rows - row1, cols - col1), 3);
        d.row0 = row1, d.col0 = col1;
        op->dropout(piece, piece, d);
        for (int64_t r = row1; r < rows; r++)
            for (int64_t c = col1; c < cols; c++)
                expect_near("piece", piece, (r - row1) * (cols - col1) + c - col1, at(Y, r * cols + c));

        op->dropout(Y, X, (struct dropout){ .p = 0 });
        expect_same_bits("p = 0", Y, X);
        op->dropout(X, X, (struct dropout){ .p = 0 });
        expect_same_bits("p = 0 in place", X, Y);
        check_guards_and_free();
    }
}

static void test_sums(void **state)
{
    (void)state;
    const int64_t counts[] = { 0, 1, 17, 4095, 4096, 4097, 50021, 256 * 4096 + 3 };
    FOR_FORMATS(t, op)
        for (int i = 0; i < 8; i++) {
            CASE("sum_of_squares %s count %d", dtype_name(t), (int)counts[i]);
            X = fill(vector(t, counts[i]), 1, "x");
            long double want = 0;
            for (int64_t j = 0; j < counts[i]; j++) want += (long double)tensor_get(X, j) * tensor_get(X, j);
            double got = ops_squares(op, X);
            struct tensor result = tensor_1d(&got, F64, 1);
            expect_near("sum", result, 0, (num){ want, (long double)(counts[i] + 1) * 1.2e-16L * want });
            const struct tensor before = copy_of(X);
            Y = vector(t, counts[i]);
            op->scale(Y, X, -0.3);
            op->scale(X, X, -0.3);
            for (int64_t j = 0; j < counts[i]; j++)
                expect_near("scaled", Y, j, times(at(before, j), rounded(-0.3L, 0)));
            expect_same_bits("scaled in place", X, Y);
            check_guards_and_free();
        }
}

/* ---- gradients and threads --------------------------------------------------------------------------------------- */

static const struct ops *fp64;
static void forward_layernorm(void) { fp64->layernorm_forward(Y, mean, rstd, X, W, base, b, eps); }
static void forward_soft_cap(void) { fp64->soft_cap_forward(Y, X, 2.5); }
static void forward_gelu(void) { fp64->gelu_forward(Y, X); }
static void forward_exact_gelu(void) { fp64->exact_gelu_forward(Y, X); }
static void forward_squared_relu(void) { fp64->squared_relu_forward(Y, X); }

/* The gradient of an operation of one tensor, element by element. */
static void element_gradient(const char *name, void (*forward)(void),
                             void (*backward)(struct tensor, struct tensor, struct tensor))
{
    CASE("%s, gradient", name);
    X = fill(vector(F64, 101), 4, "x"), Y = vector(F64, 101), dY = fill(vector(F64, 101), 1, "dy"),
    dX = vector(F64, 101);
    backward(dX, dY, X);
    expect_gradient("dX", dX, X, forward, Y, dY, 20);
    check_guards_and_free();
}

static void test_gradients(void **state)
{
    (void)state;
    const int64_t N = 5, D = 7;
    fp64 = ops_for(F64), base = 1;
    CASE("layernorm, gradient");
    X = fill(matrix(F64, N, D), 1, "x"), W = fill(vector(F64, D), 1, "w"), b = fill(vector(F64, D), 1, "b");
    Y = matrix(F64, N, D), dY = fill(matrix(F64, N, D), 1, "dy"), dX = matrix(F64, N, D);
    dW = fill_with(vector(F64, D), 0), db = fill_with(vector(F64, D), 0), mean = vector(F64, N), rstd = vector(F64, N);
    forward_layernorm();
    fp64->layernorm_backward_input(dX, dY, X, W, base, mean, rstd);
    fp64->layernorm_backward_weight(dW, db, dY, X, mean, rstd);
    expect_gradient("dX", dX, X, forward_layernorm, Y, dY, 4 * D);
    expect_gradient("dw", dW, W, forward_layernorm, Y, dY, 4 * D);
    expect_gradient("db", db, b, forward_layernorm, Y, dY, 4 * D);
    check_guards_and_free();

    element_gradient("gelu", forward_gelu, fp64->gelu_backward_input);
    element_gradient("exact gelu", forward_exact_gelu, fp64->exact_gelu_backward_input);
    element_gradient("squared relu", forward_squared_relu, fp64->squared_relu_backward_input);

    CASE("soft cap, gradient");
    X = fill(vector(F64, 101), 4, "x"), Y = vector(F64, 101), dY = fill(vector(F64, 101), 1, "dy"),
    dX = vector(F64, 101);
    forward_soft_cap();
    fp64->soft_cap_backward_input(dX, dY, Y, 2.5);
    expect_gradient("dX", dX, X, forward_soft_cap, Y, dY, 20);
    check_guards_and_free();
}

enum { OUTPUTS = 16 };

/* Sizes above PARALLEL_FROM, so that the threads do start. */
static void everything(const struct ops *op, struct tensor out[OUTPUTS], double *squares)
{
    const enum dtype t = op->dtype;
    const int64_t N = 131, D = 257, V = 19;
    const struct tensor x = fill(matrix(t, N, D), 2, "x"), w = fill(vector(t, D), 1, "w"),
                        ids = integers(N, 0, (int)V, "ids");
    for (int i = 0; i < OUTPUTS; i++)
        if (i < 8 || i >= 12) out[i] = matrix(t, N, D);
    for (int i = 8; i < 12; i++) out[i] = fill_with(i == 8 ? matrix(t, V, D) : vector(t, i == 11 ? N : D), 0);
    op->embedding_forward(out[0], ids, fill(matrix(t, V, D), 1, "table"), 0, false);
    op->embedding_backward_weight(out[8], x, ids, 0);
    op->layernorm_forward(out[1], out[11], fill_with(vector(t, N), 0), x, w, 0, w, eps);
    op->layernorm_backward_input(out[2], x, x, w, 0, out[11], fill_with(vector(t, N), 1));
    op->layernorm_backward_weight(out[9], out[10], x, x, out[11], fill_with(vector(t, N), 1));
    op->gelu_forward(out[3], x);
    op->gelu_backward_input(out[4], x, x);
    op->exact_gelu_forward(out[12], x);
    op->exact_gelu_backward_input(out[13], x, x);
    op->squared_relu_forward(out[14], x);
    op->squared_relu_backward_input(out[15], x, x);
    op->soft_cap_forward(out[5], x, 1.5);
    op->soft_cap_backward_input(out[5], out[5], x, 3);
    op->add(out[5], out[5], out[4]);
    op->dropout(out[6], x, (struct dropout){ .p = 0.5, .seed = 3, .cols = D });
    op->linear_backward_weight(fill_with(matrix(t, D, 1), 0), out[10], x, fill_with(matrix(t, N, 1), 1));
    memcpy(out[7].data, x.data, tensor_bytes(x));
    op->scale(out[7], out[7], 0.7);
    *squares = ops_squares(op, x);
}

static void test_threads_do_not_matter(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    FOR_FORMATS(t, op) {
        struct tensor one[OUTPUTS], many[OUTPUTS];
        double sum_one, sum_many;
        omp_set_num_threads(1);
        everything(op, one, &sum_one);
        omp_set_num_threads(5);
        everything(op, many, &sum_many);
        omp_set_num_threads(before);
        for (int i = 0; i < OUTPUTS; i++) {
            CASE("five threads against one, %s, output %d", dtype_name(t), i);
            expect_same_bits("result", many[i], one[i]);
        }
        assert_true(sum_one == sum_many);
        check_guards_and_free();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layernorm), cmocka_unit_test(test_layernorm_in_parts),
        cmocka_unit_test(test_layernorm_from_one_without_bias),
        cmocka_unit_test(test_gelu), cmocka_unit_test(test_exact_gelu), cmocka_unit_test(test_squared_relu),
        cmocka_unit_test(test_gelus_far_out),
        cmocka_unit_test(test_soft_cap), cmocka_unit_test(test_add),
        cmocka_unit_test(test_embedding), cmocka_unit_test(test_dropout), cmocka_unit_test(test_sums),
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
