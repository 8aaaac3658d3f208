/* The operations of a mixture: routing with ties, gather and combine with exact integers, the routers' losses.
 * tier: check
 */
#include "tests/ref/test_ops.h"

static struct tensor logits, weights, experts, dlogits, dweights;
static const struct ops *now;
static struct router_rule rule = { .scale = 1 };
static const double *bias;

static void route_again(void) { now->route_forward(weights, experts, logits, &rule, bias); }

/* ---- routing ----------------------------------------------------------------------------------------------------- */

static void expect_choice(int64_t n, int64_t E, int64_t k)
{
    for (int64_t i = 0; i < k; i++) {
        const int here = id_at(experts, n * k + i);
        int better = 0;
        assert_in_range(here, 0, E - 1);
        for (int64_t e = 0; e < E; e++) {
            const double x = tensor_get(logits, n * E + e), own = tensor_get(logits, n * E + here);
            better += x > own || (x == own && e < here);
        }
        if (better != i)
            fail_msg("%s: row %d, choice %d is expert %d, before which there are %d", case_name, (int)n, (int)i, here,
                     better);
    }
}

static void expect_weights(int64_t n, int64_t E, int64_t k)
{
    const num top = at(logits, n * E + id_at(experts, n * k));
    struct sum total = { 0 };
    for (int64_t e = 0; e < (rule.normalized ? k : E); e++)
        sum_add(&total, expo(minus(at(logits, n * E + (rule.normalized ? id_at(experts, n * k + e) : e)), top)));
    for (int64_t i = 0; i < k; i++)
        expect_near("weights", weights, n * k + i,
                    over(expo(minus(at(logits, n * E + id_at(experts, n * k + i)), top)), sum_end(total)));
}

static void route_case(const struct ops *op, int64_t N, int64_t E, int64_t k, bool sums_to_one)
{
    const enum dtype t = op->dtype;
    CASE("route %s N=%d E=%d k=%d%s", dtype_name(t), (int)N, (int)E, (int)k, sums_to_one ? " normalized" : "");
    now = op, rule.normalized = sums_to_one;
    logits = fill(matrix(t, N, E), 3, "logits"), weights = matrix(t, N, k), experts = matrix(I32, N, k);
    for (int64_t n = 1; n < N; n += 3) tensor_set(logits, n * E + E / 2, tensor_get(logits, n * E));       /* ties */
    dlogits = matrix(t, N, E), dweights = fill(matrix(t, N, k), 1, "dw");
    route_again();
    for (int64_t n = 0; n < N; n++) expect_choice(n, E, k), expect_weights(n, E, k);
    op->route_backward_input(dlogits, dweights, weights, experts, logits, &rule);
    check_guards_and_free();
}

static void test_route(void **state)
{
    (void)state;
    FOR_FORMATS(t, op)
        for (int sums = 0; sums < 2; sums++) {
            route_case(op, 1, 1, 1, sums);
            route_case(op, 0, 4, 2, sums);
            route_case(op, 40, 8, 2, sums);
            route_case(op, 40, 5, 5, sums);
            route_case(op, 700, 61, 7, sums);
        }
}

/* Weights of experts that are given, in an order that route_forward would not choose. */
static void test_weights_of_given_experts(void **state)
{
    (void)state;
    enum { N = 6, E = 5, K = 3 };
    FOR_FORMATS(t, op)
        for (int sums = 0; sums < 2; sums++) {
            CASE("route %s of given experts%s", dtype_name(t), sums ? " normalized" : "");
            now = op, rule.normalized = sums;
            logits = fill(matrix(t, N, E), 3, "logits"), weights = matrix(t, N, K), experts = matrix(I32, N, K);
            route_again();
            for (int64_t n = 0; n < N; n++) {
                int32_t *e = (int32_t *)experts.data + n * K, first = e[0];
                e[0] = e[K - 1], e[K - 1] = first;
            }
            op->route_weights(weights, experts, logits, &rule);
            for (int64_t n = 0; n < N; n++) expect_weights(n, E, K);
            check_guards_and_free();
        }
}

/* Logits so far apart (each row some order of 0, .1, .2, ...) that a small step changes no choice. */
static void test_route_gradient(void **state)
{
    (void)state;
    enum { N = 6, E = 5, K = 3 };
    for (int sums = 0; sums < 2; sums++) {
        CASE("route gradient%s", sums ? " normalized" : "");
        now = ops_for(F64), rule.normalized = sums;
        set_format(F64);
        logits = matrix(F64, N, E), weights = matrix(F64, N, K), experts = matrix(I32, N, K);
        for (int i = 0; i < N * E; i++) tensor_set(logits, i, 0.1 * ((i % E * 2 + i / E) % E));
        dlogits = matrix(F64, N, E), dweights = fill(matrix(F64, N, K), 1, "dw");
        route_again();
        now->route_backward_input(dlogits, dweights, weights, experts, logits, &rule);
        expect_gradient("dlogits", dlogits, logits, route_again, weights, dweights, 8);
        check_guards_and_free();
    }
}

static void test_nan_is_never_preferred(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        CASE("route %s with a NaN", dtype_name(t));
        logits = fill_with(matrix(t, 1, 4), 1), weights = matrix(t, 1, 2), experts = matrix(I32, 1, 2);
        tensor_set(logits, 0, NAN), tensor_set(logits, 3, 2);
        op->route_forward(weights, experts, logits, &rule, NULL);
        assert_int_equal(id_at(experts, 0), 3);
        assert_int_equal(id_at(experts, 1), 1);
        check_guards_and_free();
    }
}

/* ---- to the experts and back ------------------------------------------------------------------------------------- */

/* Small whole numbers: every sum is exact, so every comparison is ==.  The order is also given in two pieces, as two
 * devices would have it. */
static void movement_case(const struct ops *op, int64_t N, int64_t E, int64_t k, int64_t D)
{
    const enum dtype t = op->dtype;
    const int64_t R = N * k, first = R / 3;
    CASE("movement %s N=%d E=%d k=%d D=%d", dtype_name(t), (int)N, (int)E, (int)k, (int)D);
    struct tensor choice = integers(R, 0, (int)E, "experts"), order = vector(I32, R), counts = vector(I32, E);
    experts = choice;
    op->expert_order(order, counts, experts);
    int64_t r = 0;
    for (int64_t e = 0; e < E; e++) {
        int64_t count = 0;
        for (int64_t i = 0; i < R; i++)
            if (id_at(experts, i) == e) assert_int_equal(id_at(order, r++), i), count++;
        assert_int_equal(id_at(counts, e), count);
    }
    struct tensor X = matrix(t, N, D), rows = matrix(t, R, D), Y = matrix(t, N, D), drows = matrix(t, R, D),
                  dX = matrix(t, N, D);
    weights = matrix(t, N, k), dweights = matrix(t, N, k);
    for (int64_t i = 0; i < N * D; i++) tensor_set(X, i, (double)(i * 7 % 11) - 5);
    for (int64_t i = 0; i < R; i++) tensor_set(weights, i, (double)(i * 5 % 7) - 3);
    op->gather_forward(rows, X, order, k);
    op->combine_forward(Y, rows, order, weights);
    op->gather_backward_input(dX, rows, order, k);
    op->combine_backward_input(drows, dweights, X, rows, order, weights);
    for (int64_t n = 0; n < N; n++) {
        double total = 0, square = 0;
        for (int64_t i = 0; i < k; i++) total += tensor_get(weights, n * k + i);
        for (int64_t d = 0; d < D; d++) square += tensor_get(X, n * D + d) * tensor_get(X, n * D + d);
        for (int64_t i = 0; i < k; i++) assert_true(tensor_get(dweights, n * k + i) == square);
        for (int64_t d = 0; d < D; d++) {
            assert_true(tensor_get(Y, n * D + d) == total * tensor_get(X, n * D + d));
            assert_true(tensor_get(dX, n * D + d) == (double)k * tensor_get(X, n * D + d));
        }
    }
    for (int64_t i = 0; i < R; i++)
        for (int64_t d = 0; d < D; d++) {
            const double x = tensor_get(X, id_at(order, i) / k * D + d);
            assert_true(tensor_get(rows, i * D + d) == x &&
                        tensor_get(drows, i * D + d) == tensor_get(weights, id_at(order, i)) * x);
        }
    struct tensor half[2],
        part[2] = { tensor_1d(order.data, I32, first), tensor_1d((int32_t *)order.data + first, I32, R - first) };
    for (int h = 0; h < 2; h++) {
        half[h] = matrix(t, N, D);
        op->combine_forward(half[h],
                            tensor_2d((char *)rows.data + (size_t)(h * first * D) * dtype_size(t), t,
                                      h ? R - first : first, D),
                            part[h], weights);
    }
    op->add(half[0], half[0], half[1]);
    expect_same_bits("parts", half[0], Y);
    check_guards_and_free();
}

static void test_movement(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        movement_case(op, 1, 1, 1, 1);
        movement_case(op, 0, 3, 2, 4);
        movement_case(op, 7, 3, 2, 5);
        movement_case(op, 5, 20, 3, 70);
        movement_case(op, 400, 8, 2, 131);
    }
}

/* ---- the routers' losses ----------------------------------------------------------------------------------------- */

enum { ROWS = 9, EXPERTS = 4, CHOICES = 2 };
static struct tensor loss, one;
static const double c_balance = 0.7, c_z = 0.3;

/* With the shares of the choices held still, as the gradient has them. */
static double share_of(int e)
{
    int n = 0;
    for (int i = 0; i < ROWS * CHOICES; i++) n += id_at(experts, i) == e;
    return n / (double)ROWS;
}

static void losses_again(void)
{
    double sums[2 * EXPERTS + 1] = { 0 }, total = 0;
    now->router_losses_forward(sums, logits, experts, CHOICES);
    for (int e = 0; e < EXPERTS; e++) {
        assert_true(sums[EXPERTS + e] == ROWS * share_of(e));
        total += c_balance * EXPERTS * share_of(e) * sums[e] / ROWS;
    }
    tensor_set(loss, 0, total + c_z * sums[2 * EXPERTS] / ROWS);
}

static void test_router_losses(void **state)
{
    (void)state;
    double sums[2 * EXPERTS + 1] = { 0 }, slope[EXPERTS];
    long double square = 0;
    CASE("router losses");
    now = ops_for(F64);
    set_format(F64);
    logits = fill(matrix(F64, ROWS, EXPERTS), 3, "logits"), experts = integers(ROWS * CHOICES, 0, EXPERTS, "experts");
    loss = vector(F64, 1), one = fill_with(vector(F64, 1), 1), dlogits = fill_with(matrix(F64, ROWS, EXPERTS), 0);
    now->router_losses_forward(sums, logits, experts, CHOICES);
    for (int n = 0; n < ROWS; n++) {
        long double total = 0;
        for (int e = 0; e < EXPERTS; e++) total += expl(tensor_get(logits, n * EXPERTS + e));
        square += logl(total) * logl(total);
    }
    assert_true(fabsl(sums[2 * EXPERTS] - square) <= 1e-13L * square);
    for (int e = 0; e < EXPERTS; e++) slope[e] = c_balance * EXPERTS * share_of(e) / ROWS;
    now->router_losses_backward_input(dlogits, logits, slope, 2 * c_z / ROWS);
    losses_again();
    expect_gradient("dlogits", dlogits, logits, losses_again, loss, one, 40);
    check_guards_and_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route),
        cmocka_unit_test(test_weights_of_given_experts),
        cmocka_unit_test(test_route_gradient),
        cmocka_unit_test(test_nan_is_never_preferred),
        cmocka_unit_test(test_movement),
        cmocka_unit_test(test_router_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
