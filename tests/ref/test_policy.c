/* Losses of reinforcement learning and their advantages.  All are held to what TRL, verl and CaRL compute of the same
 * samples (golden/make_policies.py), and slopes to finite differences.  Statistics do not depend on how samples are
 * cut.
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/policy/policy.h"
#include "tests/ref/test_ops.h"

enum { N = 12, T = 5, GROUP = 4 };
#define CLOSE 1e-12

static struct error err;
static struct safetensors file;
static double mask[N * T], old[N * T], logp[N * T], ref[N * T], reward[N];

/* Numbers of the file, of a rule or of all. */
static void stored(const char *rule, const char *what, int64_t count, double *to)
{
    char name[80];
    snprintf(name, sizeof name, "%s%s%s", rule, rule[0] ? "/" : "", what);
    const struct safetensors_entry *const e = safetensors_find(&file, name);
    if (e == NULL || e->count != count) fail_msg("%s has no %s of %lld numbers", file.path, name, (long long)count);
    if (safetensors_read(&file, e, F64, to, &err) != OK) fail_msg("%s", err.text);
}

static int open_file(void **state)
{
    (void)state;
    if (safetensors_open(&file, "golden/policies.safetensors", &err) != OK) return printf("%s\n", err.text), -1;
    stored("", "mask", N * T, mask), stored("", "old", N * T, old), stored("", "logp", N * T, logp);
    stored("", "ref", N * T, ref), stored("", "reward", N, reward);
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    safetensors_close(&file);
    return 0;
}

static int64_t length_of(int64_t n)
{
    int64_t length = 0;
    for (int64_t t = 0; t < T; t++) length += mask[n * T + t] != 0;
    return length;
}

static void close_to(const char *rule, const char *what, int64_t i, double actual, double expected)
{
    if (!(fabs(actual - expected) <= CLOSE * (1 + fabs(expected))))
        fail_msg("%s: %s [%lld] is %.17g, not %.17g as the released code has it", rule, what, (long long)i, actual,
                 expected);
}

/* Samples are whitened and scaled over all of them, in one part or in several. */
static void over_all(const struct policy_rule *rule, double *advantage, int64_t parts)
{
    struct policy_sums sums = { 0 };
    for (int pass = 0; pass < 2; pass++) {
        const double mean = pass ? policy_sums_mean(rule, &sums) : 0;
        for (int64_t p = parts - 1; p >= 0; p--) {
            struct policy_sums part = { 0 };
            for (int64_t n = p * N / parts; n < (p + 1) * N / parts; n++)
                if (rule->values) policy_sums_add(&part, advantage + n * T, length_of(n), pass ? &mean : NULL);
                else policy_sums_add(&part, reward + n, 1, pass ? &mean : NULL);
            sums.count += part.count, sums.sum = fixed_add(sums.sum, part.sum);
            sums.squares = fixed_add(sums.squares, part.squares);
        }
    }
    const double mean = policy_sums_mean(rule, &sums), deviation = policy_sums_deviation(rule, &sums);
    for (int64_t n = 0; n < N; n++)
        if (rule->values) policy_whiten(rule, mean, deviation, advantage + n * T, length_of(n));
        else policy_scale(rule, deviation, advantage + n * T, length_of(n));
}

static void advantages(const struct policy_rule *rule, double *advantage, double *returned, int64_t parts)
{
    double value[N * T], one[GROUP], tokens[T];
    memset(advantage, 0, N * T * sizeof *advantage), memset(returned, 0, N * T * sizeof *returned);
    if (rule->values) stored(rule->name, "value", N * T, value);
    for (int64_t n = 0; n < N && rule->values; n++) {
        for (int64_t t = 0; t < length_of(n); t++)
            tokens[t] = (t == length_of(n) - 1 ? reward[n] : 0) - rule->reward_kl * (old[n * T + t] - ref[n * T + t]);
        policy_estimate(rule, tokens, value + n * T, length_of(n), advantage + n * T, returned + n * T);
    }
    for (int64_t n = 0; n < N && !rule->values; n++) {
        if (n % GROUP == 0) policy_group(rule, reward + n, GROUP, one);
        for (int64_t t = 0; t < length_of(n); t++) advantage[n * T + t] = one[n % GROUP];
    }
    over_all(rule, advantage, parts);
}

static int64_t all_tokens(void)
{
    int64_t tokens = 0;
    for (int64_t n = 0; n < N; n++) tokens += length_of(n);
    return tokens;
}

static void rules_follow_the_released_code(void **state)
{
    (void)state;
    const struct policy_rule *rule;
    int count = 0;
    for (; (rule = policy_rule_at(count)) != NULL; count++) {
        double advantage[N * T], returned[N * T], expected[N * T], slopes[N * T], loss, sum = 0;
        advantages(rule, advantage, returned, 1);
        stored(rule->name, "advantage", N * T, expected);
        stored(rule->name, "dlogp", N * T, slopes), stored(rule->name, "loss", 1, &loss);
        for (int64_t i = 0; i < N * T; i++) close_to(rule->name, "advantage", i, advantage[i], expected[i]);
        for (int64_t i = 0; i < N * T; i++) {
            const struct policy_token token = { old[i], ref[i], advantage[i] };
            const double weight = policy_weight(rule, all_tokens(), length_of(i / T), N, T) / (double)all_tokens();
            double slope;
            if (mask[i] == 0) continue;
            sum += weight * policy_loss(rule, &token, rule->kl, logp[i], &slope, NULL);
            close_to(rule->name, "slope", i, weight * slope, slopes[i]);
        }
        close_to(rule->name, "loss", 0, sum, loss);
    }
    assert_true(count >= 9);
}

static void critics_follow_the_released_code(void **state)
{
    (void)state;
    const struct policy_rule *rule;
    for (int r = 0; (rule = policy_rule_at(r)) != NULL; r++) {
        double advantage[N * T], returned[N * T], expected[N * T], value[N * T], now[N * T], slopes[N * T];
        double loss, sum = 0;
        if (!rule->values) continue;
        advantages(rule, advantage, returned, 1);
        stored(rule->name, "returned", N * T, expected), stored(rule->name, "value", N * T, value);
        stored(rule->name, "now_value", N * T, now), stored(rule->name, "dvalue", N * T, slopes);
        stored(rule->name, "value_loss", 1, &loss);
        for (int64_t i = 0; i < N * T; i++) {
            double slope;
            if (mask[i] == 0) continue;
            close_to(rule->name, "return", i, returned[i], expected[i]);
            sum += policy_value_loss(rule, value[i], returned[i], now[i], &slope) / (double)all_tokens();
            close_to(rule->name, "slope of the value", i, slope / (double)all_tokens(), slopes[i]);
        }
        close_to(rule->name, "value loss", 0, sum, loss);
    }
}

/* Devices have parts of the samples, and add their sums in any order. */
static void statistics_do_not_depend_on_the_parts(void **state)
{
    (void)state;
    const struct policy_rule *rule;
    for (int r = 0; (rule = policy_rule_at(r)) != NULL; r++)
        for (int64_t parts = 2; parts <= N; parts++) {
            double one[N * T], other[N * T], unused[N * T];
            advantages(rule, one, unused, 1), advantages(rule, other, unused, parts);
            assert_memory_equal(one, other, sizeof one);
        }
}

static void slopes_are_differences(void **state)
{
    (void)state;
    const struct policy_rule *rule;
    const double step = 1e-6;
    for (int r = 0; (rule = policy_rule_at(r)) != NULL; r++)
        for (int i = 0; i < N * T; i++) {
            const struct policy_token token = { old[i], ref[i], i % 2 ? 0.7 : -1.3 };
            double slope;
            policy_loss(rule, &token, 0.3, logp[i], &slope, NULL);
            const double higher = policy_loss(rule, &token, 0.3, logp[i] + step, NULL, NULL),
                         lower = policy_loss(rule, &token, 0.3, logp[i] - step, NULL, NULL);
            const double size = fmax(1, fabs(higher));
            if (!(fabs((higher - lower) / (2 * step) - slope) <= 1e-5 * size))
                fail_msg("%s: slope %.9g at %.9g, not %.9g", rule->name, slope, logp[i], (higher - lower) / (2 * step));
        }
}

static void distances_are_estimates(void **state)
{
    (void)state;
    double slope;
    close_to("k1", "distance", 0, policy_distance(DISTANCE_K1, -2, -1, &slope), 1);
    close_to("k1", "slope", 0, slope, 1);
    close_to("k2", "distance", 0, policy_distance(DISTANCE_K2, -2, -1, &slope), 0.5);
    close_to("k2", "slope", 0, slope, 1);
    assert_true(policy_distance(DISTANCE_K3, -1, -1, &slope) == 0 && slope == 0);
    assert_true(policy_distance(DISTANCE_K3_BOUNDED, 0, -30, &slope) == 10 && slope == 0);
    assert_true(policy_distance(DISTANCE_NONE, 0, -30, &slope) == 0 && slope == 0);
}

static void rules_have_names(void **state)
{
    (void)state;
    for (int i = 0; policy_rule_at(i); i++)
        assert_ptr_equal(policy_rule_find(policy_rule_at(i)->name), policy_rule_at(i));
    assert_null(policy_rule_find("no-such-rule"));
    assert_null(policy_rule_at(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_follow_the_released_code), cmocka_unit_test(critics_follow_the_released_code),
        cmocka_unit_test(statistics_do_not_depend_on_the_parts), cmocka_unit_test(slopes_are_differences),
        cmocka_unit_test(distances_are_estimates), cmocka_unit_test(rules_have_names),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
