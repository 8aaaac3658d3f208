/* registry.c -- the rules by name.  policy.h declares the functions; `orrery rl --as` and `orrery list policies` ask.
 * A new rule is a row. */
#include "ref/policy/policy.h"
#include <stddef.h>
#include <string.h>

#define TRL "Hugging Face TRL 1.16, trainer/grpo_trainer.py"
#define VERL "verl 0.9.1, trainer/ppo/core_algos.py"

static const struct policy_rule rules[] = {
    { .name = "verl-grpo", .title = "GRPO, mean over tokens, dual clipping", .source = VERL,
      .scale = SCALE_GROUP, .eps = 1e-6, .alone_is_zero = true, .low = 0.2, .high = 0.2, .most = 3, .log_bound = 20,
      .distance = DISTANCE_K3_BOUNDED, .kl = 0.001, .mean = MEAN_OF_TOKENS },
    { .name = "verl-dr-grpo", .title = "GRPO without deviations, over the longest answer (Dr. GRPO)", .source = VERL,
      .scale = SCALE_NONE, .eps = 1e-6, .alone_is_zero = true, .low = 0.2, .high = 0.2, .most = 3, .log_bound = 20,
      .distance = DISTANCE_NONE, .mean = MEAN_OF_LONGEST },
    { .name = "verl-ppo", .title = "PPO with a critic, whitened advantages", .source = VERL,
      .values = true, .whitening = WHITEN_VARIANCE, .eps = 1e-8, .count_eps = 1e-8, .low = 0.2, .high = 0.2,
      .most = 3, .log_bound = 20,
      .distance = DISTANCE_NONE, .reward_kl = 0.001, .mean = MEAN_OF_TOKENS, .gamma = 1, .lambda = 1,
      .value_clip = 0.5, .value_weight = 1 },
    { .name = "trl-grpo", .title = "GRPO, mean over answers of means over tokens", .source = TRL,
      .scale = SCALE_GROUP, .eps = 1e-4, .low = 0.2, .high = 0.2, .distance = DISTANCE_K3, .kl = 0.04,
      .mean = MEAN_OF_ANSWERS },
    { .name = "trl-dapo", .title = "GRPO, mean over tokens of all devices, a higher clip above", .source = TRL,
      .scale = SCALE_GROUP, .eps = 1e-4, .low = 0.2, .high = 0.28, .distance = DISTANCE_K3, .kl = 0,
      .mean = MEAN_OF_TOKENS },
    { .name = "trl-batch", .title = "GRPO, deviation of all rewards", .source = TRL,
      .scale = SCALE_BATCH, .eps = 1e-4, .low = 0.2, .high = 0.2, .distance = DISTANCE_K3, .kl = 0,
      .mean = MEAN_OF_TOKENS },
    { .name = "trl-dr-grpo", .title = "GRPO without deviations, over the longest answer (Dr. GRPO)", .source = TRL,
      .scale = SCALE_NONE, .eps = 1e-4, .low = 0.2, .high = 0.2, .distance = DISTANCE_K3, .kl = 0,
      .mean = MEAN_OF_LONGEST },
    { .name = "trl-sums", .title = "GRPO, mean over answers of sums (LUSPO)", .source = TRL,
      .scale = SCALE_GROUP, .eps = 1e-4, .low = 0.2, .high = 0.2, .distance = DISTANCE_K3, .kl = 0,
      .mean = MEAN_OF_ANSWER_SUMS },
    { .name = "carl", .title = "PPO, advantages by mean and deviation of all devices",
      .source = "CaRL, team_code_roach/dd_ppo.py, arXiv:2504.17838",
      .values = true, .whitening = WHITEN_DEVIATION, .eps = 1e-8, .low = 0.1, .high = 0.1, .distance = DISTANCE_NONE,
      .mean = MEAN_OF_TOKENS, .gamma = 0.99, .lambda = 0.95, .value_clip = 0.1, .value_weight = 0.5 },
};

const struct policy_rule *policy_rule_at(int i)
{
    return i >= 0 && (size_t)i < sizeof rules / sizeof *rules ? &rules[i] : NULL;
}

const struct policy_rule *policy_rule_find(const char *name)
{
    for (int i = 0; policy_rule_at(i); i++)
        if (strcmp(rules[i].name, name) == 0) return &rules[i];
    return NULL;
}
