/* loss_claims.c -- claims about losses over devices, memory of models, and log-probabilities of rollouts.  rl_claims.h
 * lists the functions.  Errors are those of plans and of a small run. */
#include "emulated_devices/bench/rl/rl_claims.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/rl/cases.h"
#include "ref/numeric/philox.h"
#include <math.h>

static serving_claims_fn *const papers[] = { rl_flow_claims, rl_memory_claims, rl_loss_claims, rl_mismatch_claims };

enum error_code rl_claims_add(const struct serving_claims *claims, struct error *err)
{
    enum error_code e = OK;
    for (size_t i = 0; i < sizeof papers / sizeof *papers && !e; i++) e = papers[i](claims, err);
    return e;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Weights, gradients and both moments of what is trained, weights of what scores, in numbers of a parameter. */
enum { TRAINED = 4, SCORES = 1 };

/* With a critic: the policy and the critic train, the reference and a model of rewards score.  With groups of answers
 * the critic goes. */
enum error_code rl_memory_claims(const struct serving_claims *claims, struct error *err)
{
    const double critic = 2 * TRAINED + 2 * SCORES, groups = TRAINED + 2 * SCORES;
    (void)err;
    serving_claim(claims, "GRPO", "numbers kept of models of one size, against PPO with a critic", "fewer",
                  groups < critic, "%.1f of %.1f a parameter", groups, critic);
    return OK;
}

/* ---- sums over devices ------------------------------------------------------------------------------------------- */

enum { DEVICES = 8, OF_DEVICE = 32, ANSWERS = DEVICES * OF_DEVICE };

struct drawn_answers { int64_t tokens[ANSWERS]; double loss[ANSWERS], advantage[ANSWERS]; };

/* Answers of long-tailed lengths; longer ones have other losses. */
static void draw_answers(struct drawn_answers *all)
{
    for (int i = 0; i < ANSWERS; i++) {
        const double length = exp(1.5 * random_normal(11, random_stream("answer"), (uint64_t)i) + 4);
        all->tokens[i] = 1 + (int64_t)length;
        all->loss[i] = random_normal(11, random_stream("loss"), (uint64_t)i) - 0.2 * log(length);
        all->advantage[i] = random_normal(11, random_stream("advantage"), (uint64_t)i) + 0.3 * (i / OF_DEVICE % 3);
    }
}

/* The loss by tokens of all devices, and the mean over devices of their means. */
static void two_means(const struct drawn_answers *all, double *by_tokens, double *of_means)
{
    double sum = 0, tokens = 0, means = 0;
    for (int d = 0; d < DEVICES; d++) {
        double own = 0, own_tokens = 0;
        for (int i = d * OF_DEVICE; i < (d + 1) * OF_DEVICE; i++)
            own += all->loss[i] * (double)all->tokens[i], own_tokens += (double)all->tokens[i];
        sum += own, tokens += own_tokens, means += own / own_tokens / DEVICES;
    }
    *by_tokens = sum / tokens, *of_means = means;
}

/* Statistics of parts, added: whether they are those of the whole, bit for bit; and how far advantages are apart if
 * each device has its own. */
static bool same_bits(const struct policy_rule *rule, const struct drawn_answers *all, double *farthest)
{
    struct policy_sums whole = { 0 };
    policy_sums_add(&whole, all->advantage, ANSWERS, NULL);
    const double mean = policy_sums_mean(rule, &whole);
    policy_sums_add(&whole, all->advantage, ANSWERS, &mean);
    bool same = true;
    *farthest = 0;
    for (int parts = 1; parts <= DEVICES; parts *= 2) {
        struct policy_sums sum = { 0 };
        for (int p = parts - 1; p >= 0; p--) {
            struct policy_sums own = { 0 };
            policy_sums_add(&own, all->advantage + p * (ANSWERS / parts), ANSWERS / parts, NULL);
            policy_sums_add(&own, all->advantage + p * (ANSWERS / parts), ANSWERS / parts, &mean);
            sum.count += own.count, sum.sum = fixed_add(sum.sum, own.sum);
            sum.squares = fixed_add(sum.squares, own.squares);
            const double own_mean = policy_sums_mean(rule, &own);
            *farthest = fmax(*farthest, fabs(own_mean - mean) / policy_sums_deviation(rule, &whole));
        }
        same = same && policy_sums_mean(rule, &sum) == mean
            && policy_sums_deviation(rule, &sum) == policy_sums_deviation(rule, &whole);
    }
    return same;
}

enum error_code rl_loss_claims(const struct serving_claims *claims, struct error *err)
{
    static struct drawn_answers all;
    double by_tokens, of_means, farthest;
    (void)err;
    draw_answers(&all);
    two_means(&all, &by_tokens, &of_means);
    const bool same = same_bits(policy_rule_find("carl"), &all, &farthest);
    serving_claim(claims, "DAPO", "loss by tokens of all devices; a mean of 8 devices' means is off by", "another loss",
                  fabs(of_means / by_tokens - 1) > 0.01, "%.0f %%", 100 * fabs(of_means / by_tokens - 1));
    serving_claim(claims, "CaRL", "mean and deviation of advantages over 1, 2, 4, 8 devices: the same bits",
                  "all-reduced", same, same ? "yes" : "no");
    serving_claim(claims, "CaRL", "a device's own mean is off by so many deviations, at most", "not used",
                  farthest > 0.01, "%.2f", farthest);
    return OK;
}

/* ---- log-probabilities of rollouts ------------------------------------------------------------------------------- */

enum { RUN_DEVICES = 2 };

/* A small run and what its crew finds. */
struct small_run { struct rl_job job; double mismatch; int64_t iterations; };

static enum error_code be_device(struct crew *crew, int rank, const void *asked, struct error *err)
{
    struct small_run *const run = (struct small_run *)(uintptr_t)asked;
    struct device device;
    struct comm comm;
    struct rl_record record;
    enum error_code e = device_open(&device, NULL, run->job.plan.dtype, 0, err);
    if (e) return e;
    e = crew_join(&comm, crew, rank, &device, err);
    if (!e) {
        crew_agree_by_messages(&comm);
        e = rl_run(&comm, &run->job, (struct rl_listener){ NULL, NULL }, &record, err);
        for (int64_t i = 0; i < record.iterations && !e && rank == 0; i++)
            run->mismatch = fmax(run->mismatch, record.step[i].mismatch);
        rl_record_free(&record);
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

enum error_code rl_mismatch_claims(const struct serving_claims *claims, struct error *err)
{
    static struct small_run run[2];
    int size[AXIS_COUNT] = { 1, 1, 1, 1, 1 };
    enum error_code e = OK;
    size[TP] = RUN_DEVICES;
    for (int i = 0; i < 2 && !e; i++) {
        run[i] = (struct small_run){ .mismatch = 0 };
        e = rl_small_job(&run[i].job, size, "verl-grpo", F32, i ? SUMS_EXACT : SUMS_ROUND, err);
        if (!e) e = crew_run(RUN_DEVICES, be_device, &run[i], err);
    }
    if (e) return e;
    serving_claim(claims, "batch invariance", "log-probabilities drawn and trained are apart by: exact sums, fp32",
                  "0, more", run[1].mismatch == 0 && run[0].mismatch > 0, "%.1g, %.1g", run[1].mismatch,
                  run[0].mismatch);
    return OK;
}
