/* policy.c -- losses of tokens, of the critic, and advantages: policy.h.  Everything is computed in double, with the
 * exponential of ref/exact/functions.h, so that all machines get the same bits.  rl/ calls.  Nothing fails. */
#include "ref/policy/policy.h"
#include "ref/exact/functions.h"
#include <stddef.h>

/* Beyond, a double has no number for the exponential; exact_exp is for less than 700. */
#define EXPONENT_MOST 690
/* DISTANCE_K3_BOUNDED, as verl has it. */
#define DIFFERENCE_MOST 20
#define DISTANCE_MOST 10

static double bounded(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
static double exponential(double x) { return exact_exp(bounded(x, -EXPONENT_MOST, EXPONENT_MOST)); }

double policy_distance(enum policy_distance kind, double ref, double logp, double *slope)
{
    const double d = ref - logp, in = bounded(d, -DIFFERENCE_MOST, DIFFERENCE_MOST);
    double by_logp = 0, distance = 0;
    switch (kind) {
    case DISTANCE_NONE: break;
    case DISTANCE_K1: distance = -d, by_logp = 1; break;
    case DISTANCE_K2: distance = d * d / 2, by_logp = -d; break;
    case DISTANCE_K3: distance = exponential(d) - d - 1, by_logp = 1 - exponential(d); break;
    case DISTANCE_K3_BOUNDED:
        distance = exponential(in) - in - 1, by_logp = in == d ? 1 - exponential(in) : 0;
        if (distance > DISTANCE_MOST) distance = DISTANCE_MOST, by_logp = 0;
        break;
    }
    if (slope) *slope = by_logp;
    return distance;
}

double policy_loss(const struct policy_rule *rule, const struct policy_token *token, double kl, double logp,
                   double *slope, bool *clipped)
{
    const double A = token->advantage, apart = logp - token->old;
    const double near = rule->log_bound > 0 ? bounded(apart, -rule->log_bound, rule->log_bound) : apart;
    const double ratio = exponential(near), inside = bounded(ratio, 1 - rule->low, 1 + rule->high);
    double by_distance, loss = -A * ratio, by_logp = near == apart ? loss : 0;
    bool out = false;
    /* The larger loss counts; a ratio outside has no slope. */
    if (-A * inside > loss) loss = -A * inside, by_logp = 0, out = true;
    if (rule->most > 0 && A < 0 && -A * rule->most < loss) loss = -A * rule->most, by_logp = 0, out = true;
    loss += kl * policy_distance(rule->distance, token->ref, logp, &by_distance);
    if (slope) *slope = by_logp + kl * by_distance;
    if (clipped) *clipped = out;
    return loss;
}

double policy_value_loss(const struct policy_rule *rule, double old_value, double returned, double value, double *slope)
{
    const double clip = rule->value_clip, off = value - returned;
    const double moved = clip > 0 ? bounded(value, old_value - clip, old_value + clip) - returned : off;
    const bool inside = clip <= 0 || moved * moved <= off * off;
    if (slope) *slope = inside ? rule->value_weight * off : 0;
    return rule->value_weight * (inside ? off * off : moved * moved) / 2;
}

double policy_weight(const struct policy_rule *rule, int64_t tokens, int64_t own_tokens, int64_t sequences,
                     int64_t longest)
{
    const double all = (double)tokens;
    switch (rule->mean) {
    case MEAN_OF_TOKENS: return 1;
    case MEAN_OF_ANSWERS: return all / ((double)sequences * (double)(own_tokens > 0 ? own_tokens : 1));
    case MEAN_OF_ANSWER_SUMS: return all / (double)sequences;
    case MEAN_OF_LONGEST: return all / ((double)sequences * (double)longest);
    }
    return 1;
}

/* ---- advantages -------------------------------------------------------------------------------------------------- */

void policy_sums_add(struct policy_sums *sums, const double *x, int64_t count, const double *mean)
{
    for (int64_t i = 0; i < count; i++) {
        if (mean == NULL) sums->sum = fixed_add(sums->sum, fixed_of(x[i]));
        else sums->squares = fixed_add(sums->squares, fixed_of((x[i] - *mean) * (x[i] - *mean)));
    }
    if (mean == NULL) sums->count += count;
}

double policy_sums_mean(const struct policy_rule *rule, const struct policy_sums *sums)
{
    return fixed_to_double(sums->sum) / ((double)(sums->count > 0 ? sums->count : 1) + rule->count_eps);
}

double policy_sums_deviation(const struct policy_rule *rule, const struct policy_sums *sums)
{
    const double n = (double)(sums->count > 0 ? sums->count : 1), less = sums->count > 1 ? n - 1 : 1;
    return sqrt(fixed_to_double(sums->squares) / (n + rule->count_eps) * (n / less));
}

void policy_group(const struct policy_rule *rule, const double *reward, int64_t count, double *advantage)
{
    struct policy_sums sums = { 0 };
    policy_sums_add(&sums, reward, count, NULL);
    const bool alone = rule->alone_is_zero && count == 1;
    const double mean = alone ? 0 : policy_sums_mean(rule, &sums);
    policy_sums_add(&sums, reward, count, &mean);
    const double deviation = alone ? 1 : policy_sums_deviation(rule, &sums);
    for (int64_t i = 0; i < count; i++)
        advantage[i] = (reward[i] - mean) / (rule->scale == SCALE_GROUP ? deviation + rule->eps : 1);
}

void policy_scale(const struct policy_rule *rule, double deviation, double *advantage, int64_t count)
{
    for (int64_t i = 0; i < count && rule->scale == SCALE_BATCH; i++) advantage[i] /= deviation + rule->eps;
}

void policy_estimate(const struct policy_rule *rule, const double *reward, const double *value, int64_t tokens,
                     double *advantage, double *returned)
{
    double later = 0, next = 0;
    for (int64_t t = tokens - 1; t >= 0; t--) {
        later = reward[t] + rule->gamma * next - value[t] + rule->gamma * rule->lambda * later;
        advantage[t] = later, returned[t] = later + value[t];
        next = value[t];
    }
}

void policy_whiten(const struct policy_rule *rule, double mean, double deviation, double *advantage, int64_t count)
{
    const double below = rule->whitening == WHITEN_VARIANCE ? sqrt(deviation * deviation + rule->eps)
                                                            : deviation + rule->eps;
    for (int64_t i = 0; i < count && rule->whitening != WHITEN_NOT; i++) advantage[i] = (advantage[i] - mean) / below;
}
