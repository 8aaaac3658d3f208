/* policy.h -- losses of reinforcement learning from samples of a policy, by the conventions of released programs.
 *
 * A sample is a prompt, an answer that the policy has drawn, and a reward.  Of a token of an answer
 *     ratio = exp(log p - old)                            old: its log-probability when it was drawn
 *     f     = -min(ratio A, clip(ratio, 1 - low, 1 + high) A) + kl D
 * A is the token's advantage, D an estimate of the distance from a reference policy.  Rules differ in how A is made of
 * rewards, what else bounds the ratio, which D, and what f is divided by.  A rule is a value, not code.
 *
 *     groups    A = (reward - the group's mean) / (deviation + eps), the same for all tokens of an answer (GRPO)
 *     values    A_t = d_t + gamma lambda A_(t+1), d_t = r_t + gamma V_(t+1) - V_t, then whitened (PPO); a critic has V
 *
 * Statistics over all samples are sums without rounding (numeric/fixed_sum.h), so that devices may add parts of them.
 *
 * Source  J. Schulman et al., "Proximal policy optimization algorithms", arXiv:1707.06347; Z. Shao et al.,
 *         "DeepSeekMath", arXiv:2402.03300 (GRPO); J. Schulman, "Approximating KL divergence", 2020.  Each rule names
 *         the program whose code it follows; tests/ref/test_policy.c holds it to that code (golden/make_policies.py).
 *
 * emulated_devices/rl/ trains with these functions, registry.c lists the rules.  No function reports an error.
 */
#ifndef ORRERY_POLICY_H
#define ORRERY_POLICY_H

#include "ref/numeric/fixed_sum.h"
#include <stdbool.h>
#include <stdint.h>

/* By what rewards less their group's mean are divided, besides eps. */
enum advantage_scale { SCALE_NONE, SCALE_GROUP, SCALE_BATCH };

/* How advantages of values are whitened: not; (A - mean) / sqrt(variance + eps); (A - mean) / (deviation + eps). */
enum advantage_whitening { WHITEN_NOT, WHITEN_VARIANCE, WHITEN_DEVIATION };

/* Estimates D of the distance from the reference policy, d = ref - log p: none; -d; d^2/2; e^d - d - 1; the last with
 * d bounded by 20 and the result by 10. */
enum policy_distance { DISTANCE_NONE, DISTANCE_K1, DISTANCE_K2, DISTANCE_K3, DISTANCE_K3_BOUNDED };

/* A token's f is divided by this: tokens of the batch; sequences times tokens of its own; sequences; or sequences
 * times the longest answer there may be. */
enum policy_mean { MEAN_OF_TOKENS, MEAN_OF_ANSWERS, MEAN_OF_ANSWER_SUMS, MEAN_OF_LONGEST };

struct policy_rule {
    const char *name, *title, *source;
    bool values;                        /* advantages of values, with a critic; else of groups */
    enum advantage_scale scale;         /* of groups */
    enum advantage_whitening whitening; /* of values */
    double eps;                         /* of either */
    double count_eps;                   /* added to the count where a mean over all tokens is taken */
    bool alone_is_zero;                 /* a group of one has mean 0 and deviation 1 */
    double low, high;                   /* the ratio is clipped to 1 - low .. 1 + high */
    double most;                        /* where A < 0, f is at most -A times this (dual clipping); 0: no bound */
    double log_bound;                   /* of |log p - old|; 0: none */
    enum policy_distance distance;      /* in the loss */
    double kl;                          /* its coefficient, unless the caller asks for another */
    double reward_kl;                   /* of old - ref, taken from each token's reward; with values */
    enum policy_mean mean;
    double gamma, lambda;               /* with values */
    double value_clip;                  /* the critic's values move at most so far from the old; 0: any */
    double value_weight;                /* of the critic's loss */
};

/* One token of an answer, as it was when it was drawn. */
struct policy_token { double old, ref, advantage; };

/** The loss f of a token and its slope by log p.  @param kl  coefficient of the distance.
 *  @param slope  NULL: unwanted.
 *  @param[out] clipped  whether the ratio has no part in the loss; NULL: unwanted. */
double policy_loss(const struct policy_rule *, const struct policy_token *, double kl, double logp, double *slope,
                   bool *clipped);

/** The distance D alone, and its slope by log p. */
double policy_distance(enum policy_distance, double ref, double logp, double *slope);

/** The critic's loss of a token, value_weight (v - returned)^2 / 2 or what clipping makes of it, and its slope. */
double policy_value_loss(const struct policy_rule *, double old_value, double returned, double value, double *slope);

/** The factor of a token's f, with which the sum over the batch is the loss times the tokens of the batch. */
double policy_weight(const struct policy_rule *, int64_t tokens, int64_t own_tokens, int64_t sequences,
                     int64_t longest);

/* ---- advantages -------------------------------------------------------------------------------------------------- */

/* Sums over samples or tokens, without rounding. */
struct policy_sums { int64_t count; fixed_sum sum, squares; };

/** Add numbers.  @param mean  NULL: add x; else add (x - mean)^2.  @param x  [count] below 2^20 in size. */
void policy_sums_add(struct policy_sums *, const double *x, int64_t count, const double *mean);

/** The mean, and the deviation with count - 1 below the line, of complete sums. */
double policy_sums_mean(const struct policy_rule *, const struct policy_sums *);
double policy_sums_deviation(const struct policy_rule *, const struct policy_sums *);

/** Rewards of one group become its advantages, but for the scale of a batch.  @param reward  [count] */
void policy_group(const struct policy_rule *, const double *reward, int64_t count, double *advantage);

/** Divide by the deviation of all rewards, where the rule does.  @param deviation  of all devices' rewards. */
void policy_scale(const struct policy_rule *, double deviation, double *advantage, int64_t count);

/**
 * Advantages and returns of one answer.
 * @param reward     [tokens] of each, which the rule's distance has been taken from.
 * @param value      [tokens] of the critic, before each token.
 * @param[out] advantage, returned  [tokens]; returned = advantage + value, before whitening.
 */
void policy_estimate(const struct policy_rule *, const double *reward, const double *value, int64_t tokens,
                     double *advantage, double *returned);

/** Whiten advantages with the mean and deviation of all devices' tokens. */
void policy_whiten(const struct policy_rule *, double mean, double deviation, double *advantage, int64_t count);

/* ---- registry.c -------------------------------------------------------------------------------------------------- */

/** A rule by its place; NULL after the last. */
const struct policy_rule *policy_rule_at(int i);
/** A rule by its name; NULL: there is none. */
const struct policy_rule *policy_rule_find(const char *name);

#endif
