/* advantage.c -- rewards, groups and returns; statistics that devices add.  loop.c and serial.c call.  The only error
 * is ERR_COMM. */
#include "emulated_devices/rl/advantage.h"
#include <math.h>
#include <string.h>

/* A sum of 128 bits as numbers that doubles add without rounding: LIMBS parts of 32 bits, up to 2^20 devices. */
enum { LIMBS = 4, SUMS_NUMBERS = 1 + LIMBS };
#define LIMB_SIZE 0x1p32

static void sums_to_numbers(int64_t count, fixed_sum sum, double number[SUMS_NUMBERS])
{
    number[0] = (double)count;
    for (int i = 0; i < LIMBS - 1; i++) {
        number[1 + i] = (double)(uint32_t)((fixed_bits)sum >> (32 * i));
    }
    number[LIMBS] = (double)(int32_t)(uint32_t)((fixed_bits)sum >> 96);
}

static fixed_sum sums_from_numbers(const double number[SUMS_NUMBERS])
{
    fixed_sum sum = 0;
    for (int i = LIMBS; i > 0; i--)
        sum = fixed_add((fixed_sum)((fixed_bits)sum << 32), (fixed_sum)(int64_t)number[i]);
    return sum;
}

/* The samples of a copy: the first copies have one more where they do not divide. */
static struct interval own_samples(const struct trainer *trainer, const struct samples *samples)
{
    const struct mesh *const m = &trainer->plan.mesh;
    const int64_t copies = m->size[DP], at = mesh_coordinate(m, trainer->comm->rank, DP), n = samples->count;
    const int64_t first = at * (n / copies) + (at < n % copies ? at : n % copies);
    return (struct interval){ first, n / copies + (at < n % copies) };
}

/* One of the devices with the same samples adds them. */
static bool adds(const struct trainer *trainer)
{
    const struct mesh *const m = &trainer->plan.mesh;
    bool first = true;
    for (int a = 0; a < AXIS_COUNT; a++) first = first && (a == DP || mesh_coordinate(m, trainer->comm->rank, a) == 0);
    return first;
}

void advantage_rewards(const struct trainer *trainer, const struct task *task, struct samples *samples)
{
    const struct interval own = own_samples(trainer, samples);
    for (int64_t i = 0; i < samples->count; i++) {
        const bool here = i >= own.first && i < interval_end(own);
        samples->reward[i] = here ? task_reward(task, samples_at(samples, i), samples_at(samples, i) + samples->prompt,
                                                samples->tokens[i]) : (double)NAN;
    }
}

/* ---- one sample -------------------------------------------------------------------------------------------------- */

/* With values the last token has the reward, and each pays for its distance from the reference. */
static void estimate_one(const struct policy_rule *rule, struct samples *samples, int64_t sample)
{
    const int64_t at = sample * samples->most, tokens = samples->tokens[sample];
    double reward[TASK_MOST_DIGITS + 2];
    for (int64_t t = 0; t < tokens; t++)
        reward[t] = (t == tokens - 1 ? samples->reward[sample] : 0)
            - (rule->reward_kl > 0 ? rule->reward_kl * (samples->old[at + t] - samples->ref[at + t]) : 0);
    policy_estimate(rule, reward, samples->value + at, tokens, samples->advantage + at, samples->returned + at);
}

/* All tokens of an answer have its advantage. */
static void advantage_group(const struct policy_rule *rule, struct samples *samples, int64_t first)
{
    double one[1 << 10];
    policy_group(rule, samples->reward + first, samples->group, one);
    for (int64_t i = 0; i < samples->group; i++)
        for (int64_t t = 0; t < samples->most; t++) samples->advantage[(first + i) * samples->most + t] = one[i];
}

static void make_advantages(const struct policy_rule *rule, struct samples *samples)
{
    for (int64_t i = 0; i < samples->count && rule->values; i++) estimate_one(rule, samples, i);
    for (int64_t i = 0; i < samples->count && !rule->values; i += samples->group) advantage_group(rule, samples, i);
}

static bool has_spread(const struct policy_rule *rule)
{
    return rule->values ? rule->whitening != WHITEN_NOT : rule->scale == SCALE_BATCH;
}

/* Add what the statistics of a rule are about: advantages of tokens, or rewards. */
static void add_samples(const struct policy_rule *rule, const struct samples *samples, struct interval own,
                        struct policy_sums *sums, const double *mean)
{
    for (int64_t i = own.first; i < interval_end(own); i++)
        if (rule->values) policy_sums_add(sums, samples->advantage + i * samples->most, samples->tokens[i], mean);
        else policy_sums_add(sums, samples->reward + i, 1, mean);
}

static void apply_spread(const struct policy_rule *rule, struct samples *samples, const struct reward_spread *over)
{
    for (int64_t i = 0; i < samples->count; i++) {
        double *const own = samples->advantage + i * samples->most;
        if (rule->values) policy_whiten(rule, over->mean, over->deviation, own, samples->tokens[i]);
        else policy_scale(rule, over->deviation, own, samples->most);
    }
}

/* ---- all samples ------------------------------------------------------------------------------------------------- */

/* Add one sum over all devices. */
static enum error_code add_devices(struct trainer *trainer, int64_t *count, fixed_sum *sum, struct error *err)
{
    double number[SUMS_NUMBERS];
    sums_to_numbers(*count, *sum, number);
    account_add(&trainer->begun.of[TRAFFIC_RESULT], result_reduce_cost(trainer, SUMS_NUMBERS, SUM), 1);
    const enum error_code e = result_reduce(trainer, number, SUMS_NUMBERS, SUM, err);
    *count = (int64_t)number[0], *sum = sums_from_numbers(number);
    return e;
}

enum error_code advantage_of_devices(struct trainer *trainer, const struct policy_rule *rule, struct samples *samples,
                                     struct reward_spread *over, struct error *err)
{
    const struct interval own = adds(trainer) ? own_samples(trainer, samples) : (struct interval){ 0, 0 };
    struct policy_sums sums = { 0 };
    *over = (struct reward_spread){ 0, 0 };
    make_advantages(rule, samples);
    if (!has_spread(rule)) return OK;
    add_samples(rule, samples, own, &sums, NULL);
    enum error_code e = add_devices(trainer, &sums.count, &sums.sum, err);
    over->mean = policy_sums_mean(rule, &sums);
    add_samples(rule, samples, own, &sums, &over->mean);
    if (!e) e = add_devices(trainer, &(int64_t){ 0 }, &sums.squares, err);
    over->deviation = policy_sums_deviation(rule, &sums);
    if (!e) apply_spread(rule, samples, over);
    return e;
}

void advantage_alone(const struct policy_rule *rule, const struct task *task, struct samples *samples,
                     struct reward_spread *over)
{
    const struct interval all = { 0, samples->count };
    struct policy_sums sums = { 0 };
    for (int64_t i = 0; i < samples->count; i++)
        samples->reward[i] = task_reward(task, samples_at(samples, i), samples_at(samples, i) + samples->prompt,
                                         samples->tokens[i]);
    *over = (struct reward_spread){ 0, 0 };
    make_advantages(rule, samples);
    if (!has_spread(rule)) return;
    add_samples(rule, samples, all, &sums, NULL);
    over->mean = policy_sums_mean(rule, &sums);
    add_samples(rule, samples, all, &sums, &over->mean);
    over->deviation = policy_sums_deviation(rule, &sums);
    apply_spread(rule, samples, over);
}
