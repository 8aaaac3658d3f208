/* The rules of routers: what transformers' own classes make of the same logits, with autograd's gradient
 * (golden/routers.safetensors); every rule of the registry on rows full of ties, against a naive choice; gradients by
 * finite differences; NaN; rules that are none.
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/routers/router.h"
#include "tests/ref/test_ops.h"

static struct tensor logits, weights, experts, dlogits, dweights;
static const struct ops *now;
static struct router_rule rule;
static const double *bias;
static struct error err;

static void route_again(void) { now->route_forward(weights, experts, logits, &rule, bias); }

static struct router_rule rule_named(const char *name, int64_t E, int64_t k)
{
    const struct router *r;
    if (router_find(&r, name, &err) != OK) fail_msg("%s", err.text);
    const struct router_rule fit = router_fit(r, E, k);
    if (router_check(&fit, E, 0, k, &err) != OK) fail_msg("%s: %s", name, err.text);
    return fit;
}

/* ---- golden/routers.safetensors ---------------------------------------------------------------------------------- */

enum { NAME = 128 };
static struct safetensors file;

static double number(const char *name, const char *key)
{
    char full[NAME];
    snprintf(full, sizeof full, "%s.%s", name, key);
    const char *text = safetensors_metadata(&file, full);
    if (text == NULL) fail_msg("golden/routers.safetensors has no %s", full);
    return strtod(text, NULL);
}

static const struct safetensors_entry *find(const char *name, const char *what)
{
    char full[NAME];
    snprintf(full, sizeof full, "%s/%s", name, what);
    return safetensors_find(&file, full);
}

static struct tensor stored(const char *name, const char *what, enum dtype t)
{
    const struct safetensors_entry *e = find(name, what);
    if (e == NULL) fail_msg("golden/routers.safetensors has no %s/%s", name, what);
    struct tensor x = e->ndim == 2 ? matrix(t, e->dim[0], e->dim[1]) : vector(t, e->count);
    if (safetensors_read(&file, e, t, x.data, &err) != OK) fail_msg("%s", err.text);
    return x;
}

/* Row by row: one row of sigmoids that are nearly 0 has weights and gradients of another size. */
static void expect_rows(const char *what, struct tensor is, struct tensor want)
{
    const int64_t cols = tensor_cols(want);
    for (int64_t n = 0; n < tensor_rows(want); n++) {
        double off = 0, size = 0;
        for (int64_t i = n * cols; i < (n + 1) * cols; i++) {
            off = fmax(off, fabs(tensor_get(is, i) - tensor_get(want, i)));
            size = fmax(size, fabs(tensor_get(want, i)));
        }
        if (!(off <= 1e-13 * size))
            fail_msg("%s: %s of row %d differ by %.3g of %.3g", case_name, what, (int)n, off, size);
    }
}

/* The balance loss of sequences of 6 rows, and its gradient times 1, which is added to another one, 0.5. */
static void sequence_case(const char *name)
{
    enum { S = 6 };
    double sum = 0.25;
    const double want = 0.25 + tensor_get(stored(name, "sequence_loss", F64), 0);
    fill_with(dlogits, 0.5);
    now->sequence_balance_forward(&sum, logits, experts, experts, S, &rule);
    if (!(fabs(sum - want) <= 1e-13 * want)) fail_msg("%s: sequence loss %.17g, want %.17g", name, sum, want);
    now->sequence_balance_backward_input(dlogits, logits, experts, experts, S, &rule, 1);
    for (int64_t i = 0; i < tensor_count(dlogits); i++) tensor_set(dlogits, i, tensor_get(dlogits, i) - 0.5);
    const struct tensor gradient = stored(name, "dlogits_of_sequence_loss", F64);
    double off = 0, size = 0;
    for (int64_t i = 0; i < tensor_count(gradient); i++) {
        off = fmax(off, fabs(tensor_get(dlogits, i) - tensor_get(gradient, i)));
        size = fmax(size, fabs(tensor_get(gradient, i)));
    }
    if (!(off <= 1e-13 * size)) fail_msg("%s: gradient of the sequence loss off by %.3g of %.3g", name, off, size);
}

static void golden_case(const char *name)
{
    char key[NAME];
    CASE("%s", name);
    snprintf(key, sizeof key, "%s.router", name);
    const char *router = safetensors_metadata(&file, key);
    if (router == NULL) fail_msg("golden/routers.safetensors has no %s", key);
    now = ops_for(F64);
    logits = stored(name, "logits", F64), dweights = stored(name, "dweights", F64);
    const struct tensor want = stored(name, "weights", F64), chosen = stored(name, "experts", I32);
    const int64_t N = tensor_rows(logits), E = tensor_cols(logits), k = tensor_cols(want);
    rule = rule_named(router, E, k);
    rule.scale = number(name, "scale");
    rule.groups = (int64_t)number(name, "groups"), rule.kept = (int64_t)number(name, "kept");
    if (router_check(&rule, E, 0, k, &err) != OK) fail_msg("%s: %s", name, err.text);
    assert_int_equal(find(name, "bias") != NULL, rule.biased);
    bias = rule.biased ? stored(name, "bias", F64).data : NULL;
    weights = matrix(F64, N, k), experts = matrix(I32, N, k), dlogits = matrix(F64, N, E);
    route_again();
    for (int64_t i = 0; i < N * k; i++)
        if (id_at(experts, i) != id_at(chosen, i))
            fail_msg("%s: choice %d of row %d is expert %d instead of %d", name, (int)(i % k), (int)(i / k),
                     id_at(experts, i), id_at(chosen, i));
    expect_rows("weights", weights, want);
    now->route_backward_input(dlogits, dweights, weights, experts, logits, &rule);
    expect_rows("gradients of logits", dlogits, stored(name, "dlogits", F64));
    sequence_case(name);
    check_guards_and_free();
}

static void as_released(void **state)
{
    char names[1000], *rest = names;
    (void)state;
    if (safetensors_open(&file, "golden/routers.safetensors", &err) != OK) fail_msg("%s", err.text);
    assert_non_null(safetensors_metadata(&file, "cases"));
    snprintf(names, sizeof names, "%s", safetensors_metadata(&file, "cases"));
    for (char *name; (name = strtok_r(rest, " ", &rest)) != NULL; ) golden_case(name);
    safetensors_close(&file);
}

/* ---- naive choices, ties included -------------------------------------------------------------------------------- */

enum { MOST = 12 };

static void naive_keys(double key[MOST], int64_t n, int64_t E)
{
    double total = 0;
    for (int64_t e = 0; e < E; e++) total += exp(tensor_get(logits, n * E + e));
    for (int64_t e = 0; e < E; e++) {
        const double x = tensor_get(logits, n * E + e);
        key[e] = (rule.scores == SCORES_SIGMOID ? 1 / (1 + exp(-x)) : exp(x) / total) + (rule.biased ? bias[e] : 0);
    }
}

/* The largest two of a group. */
static double naive_group(const double *key, int64_t size)
{
    double best = key[0], second = -INFINITY;
    for (int64_t e = 1; e < size; e++) second = fmax(second, fmin(best, key[e])), best = fmax(best, key[e]);
    return rule.sums_two ? best + second : best;
}

/* The number of earlier or larger ones of n numbers. */
static int64_t before(const double *x, int64_t n, int64_t i)
{
    int64_t count = 0;
    for (int64_t j = 0; j < n; j++) count += x[j] > x[i] || (x[j] == x[i] && j < i);
    return count;
}

static void naive_choice(int64_t n, int64_t E, int64_t k)
{
    double key[MOST], group[MOST];
    const int64_t groups = rule.groups > 1 ? rule.groups : 1, size = E / groups;
    naive_keys(key, n, E);
    for (int64_t g = 0; g < groups; g++) group[g] = naive_group(key + g * size, size);
    for (int64_t e = 0; e < E; e++)
        if (groups > 1 && before(group, groups, e / size) >= rule.kept) key[e] = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < k; i++) {
        const int32_t e = id_at(experts, n * k + i);
        const bool enough = rule.top_p > 0 && sum >= rule.top_p;
        if (enough != (e == CHOICE_NONE))
            fail_msg("%s: choice %d of row %d is expert %d, where probabilities add up to %g", case_name, (int)i,
                     (int)n, e, sum);
        if (enough) continue;
        sum += key[e];
        if (before(key, E, e) != i)
            fail_msg("%s: choice %d of row %d is expert %d, before which there are %d", case_name, (int)i, (int)n,
                     e, (int)before(key, E, e));
    }
}

/* Logits and biases have few values, so most rows have equal keys and equal groups. */
static void naive_case(const struct ops *op, const struct router *r, int64_t E, int64_t k)
{
    enum { N = 60 };
    double of[MOST];
    CASE("%s %s E=%d k=%d", r->name, dtype_name(op->dtype), (int)E, (int)k);
    now = op, rule = rule_named(r->name, E, k), bias = of;
    for (int64_t e = 0; e < E; e++) of[e] = 0.25 * (double)(e * 5 % 3);
    logits = matrix(op->dtype, N, E), weights = matrix(op->dtype, N, k), experts = matrix(I32, N, k);
    for (int64_t i = 0; i < N * E; i++)
        tensor_set(logits, i, (double)(int)(3 * random_uniform(1, random_stream("ties"), (uint64_t)i)) - 1);
    dlogits = matrix(op->dtype, N, E), dweights = fill(matrix(op->dtype, N, k), 1, "dw");
    route_again();
    for (int64_t n = 0; n < N; n++) naive_choice(n, E, k);
    now->route_backward_input(dlogits, dweights, weights, experts, logits, &rule);
    check_guards_and_free();
}

static void lower_index_of_equals(void **state)
{
    (void)state;
    FOR_FORMATS(t, op)
        for (const struct router *const *r = routers; *r; r++)
            naive_case(op, *r, 12, 3), naive_case(op, *r, 8, 8), naive_case(op, *r, 7, 2), naive_case(op, *r, 1, 1);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* Keys so far apart that a small step changes no choice. */
static void as_differences(void **state)
{
    enum { N = 6, E = 6, K = 3 };
    static const double of[E] = { 0.03, -0.11, 0, 0.07, -0.2, 0.013 };
    (void)state;
    for (const struct router *const *r = routers; *r; r++) {
        CASE("%s gradient", (*r)->name);
        now = ops_for(F64), rule = rule_named((*r)->name, E, K), bias = of;
        set_format(F64);
        logits = matrix(F64, N, E), weights = matrix(F64, N, K), experts = matrix(I32, N, K);
        for (int i = 0; i < N * E; i++) tensor_set(logits, i, 0.1 * ((i % E * 5 + i / E) % E));
        dlogits = matrix(F64, N, E), dweights = fill(matrix(F64, N, K), 1, "dw");
        route_again();
        now->route_backward_input(dlogits, dweights, weights, experts, logits, &rule);
        expect_gradient("dlogits", dlogits, logits, route_again, weights, dweights, 8 * rule.scale);
        check_guards_and_free();
    }
}

/* ---- NaN, and rules that are none -------------------------------------------------------------------------------- */

static void numbers_before_nan(void **state)
{
    (void)state;
    for (const struct router *const *r = routers; *r; r++) {
        CASE("%s with a NaN", (*r)->name);
        now = ops_for(F64), rule = rule_named((*r)->name, 8, 2), bias = NULL;
        logits = fill_with(matrix(F64, 1, 8), 1), weights = matrix(F64, 1, 2), experts = matrix(I32, 1, 2);
        tensor_set(logits, 0, NAN), tensor_set(logits, 3, 2);
        route_again();
        const int32_t a = id_at(experts, 0), b = id_at(experts, 1);
        assert_true(a != b && a >= 0 && a < 8 && b >= 0 && b < 8);
        if (rule.groups <= 1 && !rule.biased) assert_true(a == 3 && b == 1);
        check_guards_and_free();
    }
}

static void expect_refused(struct router_rule r, int64_t E, int64_t k, const char *words)
{
    const enum error_code e = router_check(&r, E, 0, k, &err);
    if (e != ERR_PLAN || strstr(err.text, words) == NULL) fail_msg("not refused with \"%s\": %s", words, err.text);
}

static void rules_that_are_none(void **state)
{
    const struct router *r;
    (void)state;
    expect_refused((struct router_rule){ .scale = 0 }, 4, 2, "scale 0");
    expect_refused((struct router_rule){ .scale = INFINITY }, 4, 2, "scale inf");
    expect_refused((struct router_rule){ .scale = 1, .groups = 3, .kept = 1 }, 4, 2, "must divide E");
    expect_refused((struct router_rule){ .scale = 1, .groups = 128, .kept = 1 }, 128, 1, "at most 64");
    expect_refused((struct router_rule){ .scale = 1, .groups = 4, .kept = 1 }, 8, 3,
                   "1 of 4 groups of 2 experts are kept");
    expect_refused((struct router_rule){ .scale = 1, .groups = 4, .kept = 5 }, 8, 3, "5 of 4 groups");
    expect_refused((struct router_rule){ .scale = 1, .groups = 4, .kept = 4, .biased = true, .sums_two = true }, 4, 2,
                   "groups of one expert");
    expect_refused((struct router_rule){ .scale = 1, .groups = 2, .kept = 1, .biased = true }, 4, 2, "two best");
    assert_int_equal(router_find(&r, "noaux", &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "noaux-tc"));
    assert_int_equal(router_fit(routers[3], 160, 6).groups, 8);         /* as published */
    assert_int_equal(router_fit(routers[3], 160, 6).kept, 3);
}

/* ---- a capacity -------------------------------------------------------------------------------------------------- */

/* Two sequences of three rows, two choices each; an expert keeps two choices in each sequence. */
static void choices_over_the_capacity(void **state)
{
    enum { N = 6, K = 2, S = 3, E = 3 };
    static const int32_t chosen[N * K] = { 0, 1, 0, 2, 0, 1, /**/ 1, 0, 1, 2, 1, 0 };
    static const double given[N * K] = { 3, 1, 5, 2, 4, 6, /**/ 7, 1, 7, 2, 7, 3 },
                        by_position[N * K] = { 3, 1, 5, 2, 0, 6, /**/ 7, 1, 7, 2, 0, 3 },
                        by_weight[N * K] = { 0, 1, 5, 2, 4, 6, /**/ 7, 1, 7, 2, 0, 3 };
    (void)state;
    FOR_FORMATS(t, op)
        for (int order = 0; order < 2; order++) {
            const double *want = order ? by_weight : by_position;
            CASE("drop %s by %s", dtype_name(t), order ? "weight" : "position");
            weights = matrix(t, N, K), experts = matrix(I32, N, K);
            for (int i = 0; i < N * K; i++)
                tensor_set(weights, i, given[i]), ((int32_t *)experts.data)[i] = chosen[i];
            op->route_drop(weights, experts, S, E, 2, order);
            for (int i = 0; i < N * K; i++)
                if (tensor_get(weights, i) != want[i])
                    fail_msg("%s: choice %d of row %d has weight %g instead of %g", case_name, i % K, i / K,
                             tensor_get(weights, i), want[i]);
                else if (id_at(experts, i) != (want[i] == 0 ? choice_dropped(chosen[i]) : chosen[i]))
                    fail_msg("%s: choice %d of row %d, with weight %g, is %d", case_name, i % K, i / K, want[i],
                             id_at(experts, i));
            check_guards_and_free();
        }
}

static void drop_again(void)
{
    route_again();
    now->route_drop(weights, experts, 3, tensor_cols(logits), 2, false);
}

/* Gradients, with the choices over the capacity dropped, by finite differences. */
static void gradients_of_what_stays(void **state)
{
    enum { N = 6, E = 6, K = 3 };
    static const double of[E] = { 0.03, -0.11, 0, 0.07, -0.2, 0.013 };
    (void)state;
    for (const struct router *const *r = routers; *r; r++) {
        CASE("%s gradient of what stays", (*r)->name);
        now = ops_for(F64), rule = rule_named((*r)->name, E, K), bias = of;
        set_format(F64);
        logits = matrix(F64, N, E), weights = matrix(F64, N, K), experts = matrix(I32, N, K);
        for (int i = 0; i < N * E; i++) tensor_set(logits, i, 0.1 * (i % E) + 0.01 * (i / E));
        dlogits = matrix(F64, N, E), dweights = fill(matrix(F64, N, K), 1, "dw");
        drop_again();
        assert_true(tensor_get(weights, 2 * K) == 0 && tensor_get(weights, 0) > 0);
        now->route_backward_input(dlogits, dweights, weights, experts, logits, &rule);
        expect_gradient("dlogits", dlogits, logits, drop_again, weights, dweights, 8 * rule.scale);
        check_guards_and_free();
    }
}

/* ---- moving the bias --------------------------------------------------------------------------------------------- */

static void moves_of_the_bias(void **state)
{
    enum { E = 4 };
    static const double choices[E] = { 7, 1, 4, 4 };
    const struct router_rule sign = { .scale = 1, .biased = true, .bias_update = BIAS_BY_SIGN, .bias_speed = 0.5 },
                             share = { .scale = 1, .biased = true, .bias_update = BIAS_BY_SHARE, .bias_speed = 2 };
    static const double by_sign[E] = { 0.5, 1.5, 1, 1 }, by_share[E] = { 0.625, 1.375, 1, 1 };
    double a[E] = { 1, 1, 1, 1 }, b[E] = { 1, 1, 1, 1 };
    (void)state;
    router_move_bias(&sign, a, choices, E, 0, 4);
    router_move_bias(&share, b, choices, E, 0, 4);
    for (int e = 0; e < E; e++)
        if (a[e] != by_sign[e] || b[e] != by_share[e])
            fail_msg("moves of the bias: expert %d has %g by sign instead of %g, %g by share instead of %g", e, a[e],
                     by_sign[e], b[e], by_share[e]);
}

/* Logits that prefer some experts by far: the controller finds biases with which each expert gets its share of choices,
 * within 1 percent of k / E, on average over the second half of the steps. */
static void balances(const char *name, double speed)
{
    enum { N = 128, E = 8, K = 2, STEPS = 1000 };
    double of[E] = { 0 }, mean[E] = { 0 }, first = 0, worst = 0;
    CASE("%s balances", name);
    now = ops_for(F64), rule = rule_named(name, E, K), bias = of;
    rule.groups = rule.kept = 0, rule.sums_two = false, rule.bias_speed = speed;
    logits = matrix(F64, N, E), weights = matrix(F64, N, K), experts = matrix(I32, N, K);
    for (int step = 0; step < STEPS; step++) {
        double count[E] = { 0 };
        for (int64_t i = 0; i < N * E; i++)
            tensor_set(logits, i, 0.3 * (double)(i % E) +
                       2 * random_uniform((uint64_t)step, random_stream("skewed"), (uint64_t)i) - 1);
        route_again();
        for (int64_t i = 0; i < N * K; i++) count[id_at(experts, i)]++;
        router_move_bias(&rule, of, count, E, 0, K);
        for (int e = 0; e < E; e++) {
            const double off = fabs(count[e] * E / (N * K) - 1);
            if (step == 0) first = fmax(first, off);
            if (step >= STEPS / 2) mean[e] += count[e];
        }
    }
    for (int e = 0; e < E; e++) worst = fmax(worst, fabs(mean[e] * E / (N * K * (double)(STEPS - STEPS / 2)) - 1));
    if (!(first > 0.8 && worst < 0.01))
        fail_msg("%s: loads are off by %.3g at first, by %.3g then", name, first, worst);
    check_guards_and_free();
}

static void biases_balance(void **state)
{
    (void)state;
    balances("noaux-tc", 0.002);
    balances("longcat", 0.02);
}

/* With exact sums, devices may have any rows of a sequence: their losses add up to those bits that one device has. */
static void sequence_losses_of_parts(void **state)
{
    enum { S = 7, E = 5, K = 2 };
    (void)state;
    now = ops_exact(F32, SUMS_EXACT), logits = matrix(F32, S, E), experts = matrix(I32, S, K);
    for (int64_t i = 0; i < S * E; i++) tensor_set(logits, i, sin(1.7 * (double)i));
    for (int64_t i = 0; i < S * K; i++) ((int32_t *)experts.data)[i] = (int32_t)(i % K + 2 * (i % 3 == 0));
    const struct router_rule softmax = { .scale = 1 };
    double whole = 0;
    now->sequence_balance_forward(&whole, logits, experts, experts, S, &softmax);
    assert_true(whole > 0.5);
    for (int64_t first = 1; first < S; first++) {
        double upper = 0, lower = 0;
        now->sequence_balance_forward(&upper, tensor_rows_of(logits, 0, first), tensor_rows_of(experts, 0, first),
                                      experts, S, &softmax);
        now->sequence_balance_forward(&lower, tensor_rows_of(logits, first, S - first),
                                      tensor_rows_of(experts, first, S - first), experts, S, &softmax);
        if (upper + lower != whole)
            fail_msg("rows 0 to %d and the others have %.17g, all have %.17g", (int)first - 1, upper + lower, whole);
    }
}

/* Each choice counts, also with more experts than are counted at once and with several rows: by the formulas, written
 * again.  Choices beyond the first 4096 experts are in a block of their own. */
static void sequence_losses_of_many_experts(void **state)
{
    enum { B = 2, S = 3, E = 4100, K = 2 };
    static const int32_t choice[B * S * K] = { 0, 4099, 7, 4096, 4099, 0, 5, 4095, 4097, CHOICE_NONE, 5, 4097 };
    (void)state;
    now = ops_for(F64), experts = matrix(I32, B * S, K);
    logits = matrix(F64, B * S, E), dlogits = matrix(F64, B * S, E);
    for (int64_t i = 0; i < B * S * E; i++) tensor_set(logits, i, 3 * sin(1.7 * (double)i)), tensor_set(dlogits, i, 0);
    memcpy(experts.data, choice, sizeof choice);
    const struct router_rule softmax = { .scale = 1 };
    double sum = 0, want = 0, off = 0;
    now->sequence_balance_forward(&sum, logits, experts, experts, S, &softmax);
    now->sequence_balance_backward_input(dlogits, logits, experts, experts, S, &softmax, 1);
    for (int n = 0; n < B * S; n++) {
        double total = 0, inner = 0, f[E] = { 0 };
        for (int i = 0; i < S * K; i++)
            if (choice[n / S * S * K + i] != CHOICE_NONE) f[choice[n / S * S * K + i]] += (double)E / (S * K);
        for (int e = 0; e < E; e++) total += exp(tensor_get(logits, n * E + e));
        for (int e = 0; e < E; e++) inner += f[e] / S * exp(tensor_get(logits, n * E + e)) / total;
        for (int e = 0; e < E; e++) {
            const double p = exp(tensor_get(logits, n * E + e)) / total;
            off = fmax(off, fabs(tensor_get(dlogits, n * E + e) - p * (f[e] / S - inner)));
        }
        want += inner;
    }
    if (!(fabs(sum - want) <= 1e-12 * want)) fail_msg("the losses are %.17g, want %.17g", sum, want);
    if (!(off <= 1e-13)) fail_msg("a gradient is off by %.3g", off);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_released), cmocka_unit_test(lower_index_of_equals), cmocka_unit_test(as_differences),
        cmocka_unit_test(numbers_before_nan), cmocka_unit_test(rules_that_are_none),
        cmocka_unit_test(choices_over_the_capacity),
        cmocka_unit_test(gradients_of_what_stays), cmocka_unit_test(moves_of_the_bias),
        cmocka_unit_test(biases_balance), cmocka_unit_test(sequence_losses_of_parts),
        cmocka_unit_test(sequence_losses_of_many_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
