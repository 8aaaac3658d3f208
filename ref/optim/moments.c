/* moments.c -- the flags of Adam's moments, and what is usual in each package.
 *
 * run/words/take.c and cli/golden/make.c call these functions.  Errors are ERR_USAGE for a flag that no optimizer of
 * the run has.
 */
#include "ref/optim/moments.h"
#include <stdio.h>

/* An eps of 0 would divide 0 by 0 where a gradient has always been 0.  The least one is a normal number of fp32. */
const struct moment_row moment_rows[MOMENT_FLAGS] = {
    [MOMENT_BETA1] = { "--beta1", "BETA",
                       "part of the first moment that a step keeps, from 0 to below 1; default: the optimizer's, "
                       "with --as the package's",
                       .most = 1, .below = true },
    [MOMENT_BETA2] = { "--beta2", "BETA",
                       "part of the second moment that a step keeps, from 0 to below 1; default: as of --beta1",
                       .most = 1, .below = true },
    [MOMENT_EPS] = { "--eps", "EPS",
                     "number beside the root of the second moment, from 1e-30 to 1; a larger one makes no full-sized "
                     "steps of rounding noise; default: as of --beta1",
                     .least = 1e-30, .most = 1 },
};

static double *number_of(struct hyperparameters *hyper, enum moment_flag flag)
{
    return flag == MOMENT_BETA1 ? &hyper->beta1 : flag == MOMENT_BETA2 ? &hyper->beta2 : &hyper->eps;
}

double moment_number(const struct hyperparameters *hyper, enum moment_flag flag)
{
    struct hyperparameters copy = *hyper;
    return *number_of(&copy, flag);
}

bool optimizer_has_moment(const struct optimizer *optimizer, enum moment_flag flag)
{
    return moment_number(&optimizer->usual, flag) > 0;
}

void moments_take(struct hyperparameters *hyper, const struct optimizer *optimizer, const struct moment_flags *flags)
{
    for (int i = 0; i < MOMENT_FLAGS; i++)
        if (flags->value[i] >= 0 && optimizer_has_moment(optimizer, i)) *number_of(hyper, i) = flags->value[i];
}

struct moments_text moments_format(const struct optimizer *optimizer, const struct hyperparameters *hyper)
{
    struct moments_text t = { "" };
    size_t used = 0;
    for (int i = 0; i < MOMENT_FLAGS; i++)
        if (optimizer_has_moment(optimizer, i))
            used += (size_t)snprintf(t.text + used, sizeof t.text - used, "%s%s %g", used ? ", " : "",
                                     moment_rows[i].flag + 2, moment_number(hyper, i));
    return t;
}

/* The names of optimizers that have the number, with commas between. */
static void list_owners(enum moment_flag flag, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; optimizers[i] && used < size; i++)
        if (optimizer_has_moment(optimizers[i], flag))
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", optimizers[i]->name);
}

enum error_code moments_check(const struct optimizer *const *optimizer, int n, const struct moment_flags *flags,
                              struct error *err)
{
    for (int i = 0; i < MOMENT_FLAGS; i++) {
        /* With a beta of 1 a moment would never move, and its correction would be 0. */
        if (moment_rows[i].below && flags->value[i] == moment_rows[i].most)
            return fail(err, ERR_USAGE, "%s %g: must be from 0 to below 1", moment_rows[i].flag, flags->value[i]);
        bool had = flags->value[i] < 0;
        for (int k = 0; k < n; k++) had = had || optimizer_has_moment(optimizer[k], i);
        if (had) continue;
        char owners[200];
        list_owners(i, owners, sizeof owners);
        return fail(err, ERR_USAGE, "%s: is for %s; --optimizer %s has no such number", moment_rows[i].flag, owners,
                    optimizer[0]->name);
    }
    return OK;
}

struct hyperparameters optimizer_usual(const struct optimizer *optimizer, const struct conventions *as)
{
    struct hyperparameters hyper = optimizer->usual;
    hyper.as = *as;
    if (optimizer->usual_as == NULL || as->profile == AS_ORRERY) return hyper;
    const struct package_usual *usual = &optimizer->usual_as[as->profile];
    hyper.beta1 = usual->beta1, hyper.beta2 = usual->beta2, hyper.eps = usual->eps;
    hyper.weight_decay = usual->weight_decay;
    return hyper;
}
