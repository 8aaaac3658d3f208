/* A mixture's choices of experts beside the one-device run's: by hand, where rounding decides between two logits and
 * where it does not; and what the one-device model and its twin take.
 * tier: check
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/reference/reference.h"
#include "ref/model/kinds.h"
#include "ref/model/transformer.h"

static struct error err;

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

enum { E = 4, K = 2 };

/* One token in one layer: its logits, the devices' choice, and the largest margin that rounding explains. */
static struct routing_found decide(const double x[E], int32_t first, int32_t second, double bound, int32_t taken[K])
{
    double logits[2][E] = { { 9, 8, 0, 0 } };                   /* the token before: nothing differs */
    int32_t experts[2][K] = { { 0, 1 }, { first, second } };
    double keys[2 * E];
    struct routing_found found = { 0 };
    struct routing r = { .L = 1, .E = E, .k = K, .N = 2, .experts = *experts, .bound = &bound, .found = &found,
                         .keys = keys };
    memcpy(logits[1], x, sizeof logits[1]);
    routing_decide(&r, 0, tensor_2d(logits, F64, 2, E));
    assert_true(experts[0][0] == 0 && experts[0][1] == 1);
    memcpy(taken, experts[1], sizeof experts[1]);
    return found;
}

static void expect(const double x[E], int32_t first, int32_t second, double bound, bool takes, int own, int theirs,
                   double margin)
{
    int32_t taken[K];
    const struct routing_found f = decide(x, first, second, bound, taken);
    const int32_t want[K] = { takes ? first : 1, takes ? second : 2 };
    const bool right = f.differ == 1 && f.token == 1 && f.own == own && f.theirs == theirs &&
                       (f.margin == margin || (isnan(margin) && isnan(f.margin))) &&
                       memcmp(taken, want, sizeof want) == 0;
    if (!right)
        print_error("choice %d %d: %d tokens differ, token %d, expert %d instead of %d, margin %g; taken are %d %d\n",
                    first, second, (int)f.differ, (int)f.token, f.theirs, f.own, f.margin, taken[0], taken[1]);
    assert_true(right);
}

/* Experts 1 and 2 are preferred; expert 3 is behind by 1/8, expert 0 by 2. */
static const double near[E] = { 0, 2.5, 2, 1.875 };

static void test_same_choice(void **state)
{
    int32_t taken[K];
    (void)state;
    assert_int_equal(decide(near, 1, 2, 0, taken).differ, 0);
    assert_true(taken[0] == 1 && taken[1] == 2);
}

/* Within the bound, its border included, the devices' choice is taken; else the own one. */
static void test_second_expert(void **state)
{
    (void)state;
    expect(near, 1, 3, 0.25, true, 2, 3, 0.125);
    expect(near, 1, 3, 0.125, true, 2, 3, 0.125);
    expect(near, 1, 3, 0.1249, false, 2, 3, 0.125);
    expect(near, 1, 0, 0.125, false, 2, 0, 2);
}

/* Experts in another order have each other's weights.  The first of them is not the best; the second then is. */
static void test_order(void **state)
{
    (void)state;
    expect(near, 2, 1, 0.5, true, 1, 2, 0.5);
    expect(near, 2, 1, 0.4999, false, 1, 2, 0.5);
    expect(near, 3, 2, 0.625, true, 1, 3, 0.625);               /* then 1 before 2: the margin is 0.5 */
}

/* Of equal logits either is right, whatever the bound. */
static void test_tie(void **state)
{
    static const double tie[E] = { 0, 3, 2, 2 };
    (void)state;
    expect(tie, 1, 3, 0, true, 2, 3, 0);
}

static void test_choices_that_are_none(void **state)
{
    (void)state;
    expect(near, 1, 1, 100, false, 2, 1, NAN);
    expect(near, 1, 4, 100, false, 2, 4, NAN);
    expect(near, 1, -1, 100, false, 2, -1, NAN);
}

/* The largest difference of the twin's logits counts twice, of the largest logit 2u in each. */
static void test_bound(void **state)
{
    double a[] = { 1, -4, 2, 3 }, b[] = { 1.25, -4, 1.5, 3 }, bound;
    struct block_activations of[2] = { { .router = tensor_2d(a, F64, 2, 2) }, { .router = tensor_2d(b, F64, 2, 2) } };
    const struct transformer truth = { .config = { .L = 1, .mlp = MLP_MIXTURE }, .block = &of[0] },
                             twin = { .config = truth.config, .block = &of[1] };
    double keys[4];
    struct routing r = { .L = 1, .E = 2, .bound = &bound, .keys = keys };
    (void)state;
    routing_measure(&r, &truth, &twin);
    assert_true(bound == 2 * (0.5 + 2 * dtype_unit(F64) * 4));
}

/* Two groups of two experts, of which one is kept: by its best, the first is before the second by 0.5; by the sum of
 * two keys, in another example, behind it by 0.05. */
static void expect_groups(struct router_rule rule, const double *bias, const double x[E], const int32_t choice[K],
                          double bound, const int32_t want[K], double margin)
{
    double logits[E], keys[2 * E];
    int32_t experts[K] = { choice[0], choice[1] };
    struct routing_found f = { 0 };
    struct routing r = { .L = 1, .E = E, .k = K, .N = 1, .experts = experts, .bound = &bound, .found = &f,
                         .keys = keys, .rule = rule, .bias = bias };
    memcpy(logits, x, sizeof logits);
    routing_decide(&r, 0, tensor_2d(logits, F64, 1, E));
    const bool same = margin == 0, right = experts[0] == want[0] && experts[1] == want[1] && f.differ == !same &&
                                           (same || fabs(f.margin - margin) < 1e-12 ||
                                            (isnan(margin) && isnan(f.margin)));
    if (!right)
        print_error("groups: choice %d %d: %d tokens differ, margin %g instead of %g; taken are %d %d\n", choice[0],
                    choice[1], (int)f.differ, f.margin, margin, experts[0], experts[1]);
    assert_true(right);
}

static void test_groups(void **state)
{
    static const double scores[E] = { 0.1, 0.6, 0.5, 0.25 }, none[E] = { 0 };
    static const int32_t first[K] = { 1, 0 }, second[K] = { 2, 3 }, both[K] = { 1, 2 };
    const struct router_rule best = { .scale = 1, .groups = 2, .kept = 1 },
                             sums = { .scale = 1, .groups = 2, .kept = 1, .scores = SCORES_SIGMOID, .biased = true,
                                      .sums_two = true };
    double bias[E];
    (void)state;
    for (int e = 0; e < E; e++) bias[e] = scores[e] - 0.5;      /* beside sigmoids of 0 */
    expect_groups(best, NULL, near, first, 0, first, 0);
    expect_groups(best, NULL, near, second, 0.5, second, 0.5);
    expect_groups(best, NULL, near, second, 0.4999, first, 0.5);
    expect_groups(best, NULL, near, both, 100, first, NAN);
    expect_groups(sums, bias, none, second, 0, second, 0);
    expect_groups(sums, bias, none, first, 0.026, first, 0.025);        /* half of 0.75 - 0.7 */
    expect_groups(sums, bias, none, first, 0.024, second, 0.025);
}

/* Two of three groups are kept.  A device that takes both experts of the first has kept the third beside it, whose sum
 * is smaller than the second's by 0.001, and not the second, whose best expert would come before. */
static void test_a_group_without_trace(void **state)
{
    enum { EXPERTS = 6 };
    static const double scores[EXPERTS] = { 0.9, 0.8, 0.85, 0.1, 0.48, 0.469 };
    double bias[EXPERTS], logits[EXPERTS] = { 0 }, keys[2 * EXPERTS], bound = 0.001;
    int32_t experts[K] = { 0, 1 };
    struct routing_found f = { 0 };
    struct routing r = { .L = 1, .E = EXPERTS, .k = K, .N = 1, .experts = experts, .bound = &bound, .found = &f,
                         .keys = keys, .bias = bias,
                         .rule = { .scale = 1, .groups = 3, .kept = 2, .scores = SCORES_SIGMOID, .biased = true,
                                   .sums_two = true } };
    (void)state;
    for (int e = 0; e < EXPERTS; e++) bias[e] = scores[e] - 0.5;
    routing_decide(&r, 0, tensor_2d(logits, F64, 1, EXPERTS));
    assert_true(f.differ == 1 && fabs(f.margin - 0.0005) < 1e-12);
    assert_true(experts[0] == 0 && experts[1] == 1);
    bound = 0.0004;
    routing_decide(&r, 0, tensor_2d(logits, F64, 1, EXPERTS));
    assert_true(experts[0] == 0 && experts[1] == 2);
}

/* ---- in a run ---------------------------------------------------------------------------------------------------- */

/* Top-p: one choice is enough if the best expert's probability, 0.4497, is. */
static void expect_count(double top_p, const int32_t choice[K], double bound, const int32_t want[K], double margin)
{
    double logits[E], keys[2 * E];
    int32_t taken[K];
    struct routing_found found = { 0 };
    memcpy(logits, near, sizeof logits), memcpy(taken, choice, sizeof taken);
    struct routing r = { .L = 1, .E = E, .k = K, .N = 1, .experts = taken, .bound = &bound, .found = &found,
                         .keys = keys, .rule = { .top_p = top_p } };
    routing_decide(&r, 0, tensor_2d(logits, F64, 1, E));
    const bool right = memcmp(taken, want, sizeof taken) == 0 && (found.differ == 1) == (margin != 0) &&
                       (isnan(margin) ? isnan(found.margin) : fabs(found.margin - margin) < 1e-3);
    if (!right)
        print_error("top-p %g, choice %d %d: taken %d %d, margin %g instead of %g\n", top_p, choice[0], choice[1],
                    taken[0], taken[1], found.margin, margin);
    assert_true(right);
}

static void test_fewer_choices(void **state)
{
    static const int32_t one[K] = { 1, CHOICE_NONE }, two[K] = { 1, 2 }, none[K] = { CHOICE_NONE, CHOICE_NONE },
                         late[K] = { CHOICE_NONE, 1 };
    (void)state;
    expect_count(0.44, one, 0, one, 0);
    expect_count(0.46, two, 0, two, 0);
    expect_count(0.44, two, 0.02, two, 0.0097);         /* one too many, by rounding, and not */
    expect_count(0.44, two, 0.001, one, 0.0097);
    expect_count(0.46, one, 0.02, one, 0.0103);         /* one too few */
    expect_count(0.46, one, 0.001, two, 0.0103);
    expect_count(0.44, none, 1, one, NAN);
    expect_count(0.44, late, 1, one, NAN);
    expect_count(0, one, 1, two, NAN);                  /* not of this rule */
}

static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within)
{
    const struct plan *p = context;
    (void)within;
    for (int64_t i = 0; i < count * p->S; i++)
        ids[i] = (int32_t)((first + 7 * i + step) % p->model.V), labels[i] = (int32_t)((first + 5 * i) % p->model.V);
}

static void expect_same_experts(const struct reference *ref, const int32_t *want)
{
    for (int64_t l = 0; l < ref->routing.L; l++) {
        const struct tensor a = ref->truth.model.block[l].experts, b = ref->twin.model.block[l].experts;
        assert_memory_equal(a.data, b.data, tensor_bytes(a));
        assert_memory_equal(a.data, want + l * tensor_count(a), tensor_bytes(a));
    }
}

static size_t choices_bytes(const struct routing *r) { return (size_t)(r->L * r->N * r->k) * sizeof *r->experts; }

/* Compute the first step.  @return the truth's choices, for free(); its twin has the same. */
static int32_t *open_reference(struct reference *ref, struct plan *p)
{
    const struct batch_source source = { fill, p };
    assert_int_equal(plan_check(p, &err), OK);
    assert_int_equal(reference_open(ref, p, source, &err), OK);
    assert_int_equal(reference_gradients(ref, &err), OK);
    int32_t *own = malloc(choices_bytes(&ref->routing));
    assert_non_null(own);
    memcpy(own, ref->routing.experts, choices_bytes(&ref->routing));
    expect_same_experts(ref, own);
    return own;
}

/* In each layer the device sends the first token to another second expert: only if the bound allows it, truth and twin
 * do so, too. */
static void test_truth_and_twin(void **state)
{
    struct reference ref;
    struct plan p = case_plan(1, 1, 1);
    case_take_mixtral(&p);
    p.dtype = BF16;
    (void)state;
    int32_t *const own = open_reference(&ref, &p);
    struct routing *const r = &ref.routing;
    const size_t bytes = choices_bytes(r);
    const double loss = ref.truth.loss;

    memcpy(r->theirs, own, bytes);
    assert_false(routing_differs(r));
    for (int64_t l = 0; l < r->L; l++) {
        int32_t *of = r->theirs + l * r->N * r->k, other = 0;
        while (other == of[0] || other == of[1]) other++;
        of[1] = other;
    }
    assert_true(routing_differs(r));
    for (int64_t l = 0; l < r->L; l++) r->bound[l] = 0;
    assert_int_equal(reference_take_routes(&ref, &err), OK);
    expect_same_experts(&ref, own);
    assert_true(ref.truth.loss == loss && r->found[0].differ == 1 && r->found[0].token == 0 && r->found[0].margin > 0);

    for (int64_t l = 0; l < r->L; l++) r->bound[l] = INFINITY;
    assert_int_equal(reference_take_routes(&ref, &err), OK);
    expect_same_experts(&ref, r->theirs);
    assert_true(ref.truth.loss != loss);
    free(own);
    reference_close(&ref);
}

/* ---- dropped choices --------------------------------------------------------------------------------------------- */

/* One sequence of three tokens, each with one choice, expert 0, which has room for two.  The weights are sigmoids. */
enum { TOKENS = 3 };

/* The devices drop the choices of these tokens; the margin that rounding explains. */
static void expect_drops(bool by_weight, const double x[TOKENS], const bool drops[TOKENS], double bound,
                         const bool want[TOKENS], int64_t token, double margin)
{
    double logits[TOKENS][2], keys[4], weights[2 * TOKENS], choice_bound = INFINITY;
    int32_t taken[TOKENS], scratch[2 * TOKENS];
    struct routing_found found = { 0 }, dropped = { 0 };
    struct routing r = { .L = 1, .E = 2, .k = 1, .N = TOKENS, .experts = taken, .bound = &choice_bound, .found = &found,
                         .keys = keys, .rule = { .scale = 1, .scores = SCORES_SIGMOID },
                         .drops = { .S = TOKENS, .capacity = 2, .E = 2, .by_weight = by_weight, .experts = scratch,
                                    .weights = weights, .bound = &bound, .found = &dropped } };
    bool right = true;
    for (int n = 0; n < TOKENS; n++)
        taken[n] = drops[n] ? choice_dropped(0) : 0, logits[n][0] = x[n], logits[n][1] = -9;
    routing_decide(&r, 0, tensor_2d(logits, F64, TOKENS, 2));
    for (int n = 0; n < TOKENS; n++) right = right && taken[n] == (want[n] ? choice_dropped(0) : 0);
    right = right && found.differ == 0 && (dropped.differ > 0) == (token >= 0) &&
            (token < 0 || (dropped.token == token && dropped.own == choice_dropped(dropped.theirs) &&
                           (isnan(margin) ? isnan(dropped.margin) : fabs(dropped.margin - margin) < 1e-12)));
    if (!right)
        print_error("taken %d %d %d; %d choices are dropped otherwise, token %d, margin %g instead of %g\n", taken[0],
                    taken[1], taken[2], (int)dropped.differ, (int)dropped.token, dropped.margin, margin);
    assert_true(right);
}

static void test_drops(void **state)
{
    static const double x[TOKENS] = { 1, 0.75, 0.5 }, equal[TOKENS] = { 1, 0.5, 0.5 };
    static const bool first[TOKENS] = { true }, second[TOKENS] = { false, true },
                      third[TOKENS] = { false, false, true }, none[TOKENS] = { false }, two[TOKENS] = { true, true };
    const double near = 1 / (1 + exp(-0.75)) - 1 / (1 + exp(-0.5)), far = 1 / (1 + exp(-1.0)) - 1 / (1 + exp(-0.5));
    (void)state;
    expect_drops(true, x, third, 0, third, -1, 0);
    expect_drops(true, x, second, 0.06, second, 1, near);
    expect_drops(true, x, second, 0.05, third, 1, near);
    expect_drops(true, x, first, 0.06, third, 0, far);
    expect_drops(true, equal, second, 0, second, 1, 0);
    expect_drops(true, x, none, 1, third, 2, NAN);              /* more than there is room for, and fewer */
    expect_drops(true, x, two, 1, third, 0, NAN);
    /* which rows come first is never a matter of rounding */
    expect_drops(false, equal, third, 0, third, -1, 0);
    expect_drops(false, equal, second, INFINITY, third, -1, 0);
}

/* A capacity: the twin drops what the truth drops, and both what the devices drop, only if the bound allows it. */
static void test_twin_drops(void **state)
{
    struct reference ref;
    struct plan p = case_plan(1, 1, 1);
    case_take_mixtral(&p);
    p.model.mixture.capacity_factor = 0.5, p.model.mixture.drops_by_weight = true;
    (void)state;
    int32_t *const own = open_reference(&ref, &p);
    struct routing *const r = &ref.routing;
    const size_t bytes = choices_bytes(r);
    memcpy(r->theirs, own, bytes);
    int64_t kept = 0, dropped = 0;
    while (own[dropped] >= 0) dropped++;                        /* of layer 0, in the same sequence */
    const int64_t places = p.S * r->k, sequence = dropped / places * places;
    for (kept = sequence; own[kept] != choice_made(own[dropped]); kept++) assert_true(kept < sequence + places);
    r->theirs[dropped] = own[kept], r->theirs[kept] = own[dropped];

    r->drops.bound[0] = 0;
    assert_int_equal(reference_take_routes(&ref, &err), OK);
    expect_same_experts(&ref, own);
    assert_true(r->drops.found[0].differ == 2 && r->drops.found[0].margin > 0);
    r->drops.bound[0] = INFINITY;
    for (int64_t l = 1; l < r->L; l++) r->bound[l] = r->drops.bound[l] = INFINITY;
    assert_int_equal(reference_take_routes(&ref, &err), OK);
    expect_same_experts(&ref, r->theirs);
    free(own);
    reference_close(&ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_choice), cmocka_unit_test(test_second_expert), cmocka_unit_test(test_order),
        cmocka_unit_test(test_tie), cmocka_unit_test(test_choices_that_are_none), cmocka_unit_test(test_bound),
        cmocka_unit_test(test_groups), cmocka_unit_test(test_a_group_without_trace),
        cmocka_unit_test(test_fewer_choices),
        cmocka_unit_test(test_truth_and_twin), cmocka_unit_test(test_drops), cmocka_unit_test(test_twin_drops),
    };
    return cmocka_run_group_tests_name("routing", tests, NULL, NULL);
}
