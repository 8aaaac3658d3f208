/* masked_claims.c -- claims about decoding several tokens of a masked-diffusion model at once.  claims.c calls.
 * Errors: ERR_MEMORY. */
#include "emulated_devices/bench/serving/claims.h"
#include "emulated_devices/bench/serving/masked.h"
#include <math.h>
#include <stdio.h>

static enum error_code masked_result_of(const char *name, int n, const struct masked_policy *policy,
                                        struct masked_result *result, struct error *err)
{
    struct masked_task task;
    enum error_code e = masked_task_make(&task, name, n, 3, err);
    if (e) return e;
    e = masked_evaluate(&task, policy, 1, result, err);
    masked_task_free(&task);
    return e;
}

static const struct masked_policy at_once = { .order = ORDER_CONFIDENCE, .steps = 1 };

static enum error_code claim_closed_forms(const struct serving_claims *claims, struct error *err)
{
    static const int n[] = { 3, 4, 5, 8 };
    struct masked_result r[4];
    bool same = true;
    enum error_code e = OK;
    for (int i = 0; i < 4 && !e; i++) {
        e = masked_result_of("shuffle", n[i], &at_once, &r[i], err);
        const struct masked_result f = masked_shuffle_formula(n[i]);
        same = same && !e && fabs(r[i].validity - f.validity) < 1e-9 && fabs(r[i].loss - f.loss) < 1e-9;
    }
    if (e) return e;
    serving_claim(claims, "ParallelBench", "shuffles of 3, 4, 5, 8 at once: right answers in %, n!/n^n",
                  "22.2, 9.4, 3.8, .24", same, "%.1f, %.1f, %.1f, %.2f", 100 * r[0].validity, 100 * r[1].validity,
                  100 * r[2].validity, 100 * r[3].validity);
    serving_claim(claims, "ParallelBench", "their losses in nats, n ln n - ln n!", "1.50, 2.37, 3.26, 6.03", same,
                  "%.2f, %.2f, %.2f, %.2f", r[0].loss, r[1].loss, r[2].loss, r[3].loss);
    return OK;
}

/* Tasks with one right answer lose nothing. */
static enum error_code claim_copies(const struct serving_claims *claims, struct error *err)
{
    static const char *const names[] = { "copy", "reverse", "sort", "replace-index" };
    double worst = 1;
    enum error_code e = OK;
    for (int i = 0; i < 4 && !e; i++) {
        struct masked_result r;
        e = masked_result_of(names[i], 8, &at_once, &r, err);
        if (!e) worst = fmin(worst, r.validity);
    }
    if (!e)
        serving_claim(claims, "ParallelBench", "copy, reverse, sort, replace an index, 8 items at once: right in %",
                      "100", worst == 1, "%.0f", 100 * worst);
    return e;
}

static enum error_code claim_passes(const struct serving_claims *claims, struct error *err)
{
    static const int steps[] = { 1, 2, 4, 8 };
    struct masked_result r[4];
    enum error_code e = OK;
    bool falls = true;
    for (int i = 0; i < 4 && !e; i++) {
        e = masked_result_of("shuffle", 8, &(struct masked_policy){ ORDER_RANDOM, steps[i], 0, 0 }, &r[i], err);
        falls = falls && (e || i == 0 || r[i].loss < r[i - 1].loss);
    }
    if (!e)
        serving_claim(claims, "ParallelBench", "losses of a shuffle of 8 in 1, 2, 4, 8 passes do not rise, down to 0",
                      "fall", falls && fabs(r[3].loss) < 1e-9, "%.2f, %.2f, %.2f, %.2f", r[0].loss, r[1].loss,
                      r[2].loss, fabs(r[3].loss));
    return e;
}

/* Policies compare on one task: those with a number of passes have as many as the threshold needs. */
static enum error_code claim_policies(const struct serving_claims *claims, const char *name, int n, struct error *err)
{
    struct masked_result random, confident, careful, blocks;
    char claim[100];
    enum error_code e = masked_result_of(name, n, &(struct masked_policy){ ORDER_THRESHOLD, 0, 0.9, 0 }, &careful, err);
    const int steps = e ? 1 : (int)ceil(careful.passes);
    if (!e) e = masked_result_of(name, n, &(struct masked_policy){ ORDER_RANDOM, steps, 0, 0 }, &random, err);
    if (!e)
        e = masked_result_of(name, n, &(struct masked_policy){ .order = ORDER_CONFIDENCE, .steps = steps }, &confident,
                             err);
    if (!e)
        e = masked_result_of(name, n, &(struct masked_policy){ .order = ORDER_CONFIDENCE, .steps = 2, .block = 4 },
                             &blocks, err);
    if (e) return e;
    snprintf(claim, sizeof claim, "%s of %d in %d passes: random, confidence, threshold .9; blocks of 4: right in %%",
             name, n, steps);
    serving_claim(claims, "ParallelBench", claim, "threshold best", careful.validity + 1e-12 >= random.validity &&
                  careful.validity + 1e-12 >= confident.validity, "%.1f, %.1f, %.1f; %.1f", 100 * random.validity,
                  100 * confident.validity, 100 * careful.validity, 100 * blocks.validity);
    return OK;
}

enum error_code masked_claims(const struct serving_claims *claims, struct error *err)
{
    enum error_code e = claim_closed_forms(claims, err);
    if (!e) e = claim_copies(claims, err);
    if (!e) e = claim_passes(claims, err);
    if (!e) e = claim_policies(claims, "latin-square", 3, err);
    return e ? e : claim_policies(claims, "replace-random", 8, err);
}
