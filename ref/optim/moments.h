/* moments.h -- the numbers of Adam's moments that flags set: the decay rates --beta1 and --beta2, and --eps.
 *
 * cli/train/options/, cli/golden/, run/ and its report, and cli/check.c take flags, ranges and words from here.  An
 * optimizer has a number if its usual value is above 0, so one of a plug-in needs no line here.
 */
#ifndef ORRERY_MOMENTS_H
#define ORRERY_MOMENTS_H

#include "ref/optim/optimizer.h"

enum moment_flag { MOMENT_BETA1, MOMENT_BETA2, MOMENT_EPS, MOMENT_FLAGS };

struct moment_row {
    const char *flag, *argument, *help; /* as typed; the word for its value; a few words for the help */
    double least, most;                 /* range */
    bool below;                         /* a number must be below `most` */
};
extern const struct moment_row moment_rows[MOMENT_FLAGS];

/** This holds what flags say; a number below 0: the flag is not given. */
struct moment_flags { double value[MOMENT_FLAGS]; /**< by enum moment_flag */ };
#define MOMENTS_NOT_GIVEN ((struct moment_flags){ { -1, -1, -1 } })

/** Tell whether any of the flags is given.  Pure. */
static inline bool moments_given(const struct moment_flags *flags)
{
    return flags->value[MOMENT_BETA1] >= 0 || flags->value[MOMENT_BETA2] >= 0 || flags->value[MOMENT_EPS] >= 0;
}

/* A row of a table of options, for the destination `flags`. */
#define MOMENT_OPTION(row, flags)                                                                           \
    { moment_rows[row].flag, moment_rows[row].argument, OPTION_DOUBLE, &(flags).value[row],                 \
      .min = moment_rows[row].least, .max = moment_rows[row].most, .help = moment_rows[row].help }
#define MOMENT_OPTIONS(flags)                                                                               \
    MOMENT_OPTION(MOMENT_BETA1, flags), MOMENT_OPTION(MOMENT_BETA2, flags), MOMENT_OPTION(MOMENT_EPS, flags)

/** Get one of the numbers.  Pure. */
double moment_number(const struct hyperparameters *, enum moment_flag);

/** Tell whether an optimizer's steps have the number.  Pure. */
bool optimizer_has_moment(const struct optimizer *, enum moment_flag);

/** Set the numbers that flags give and the optimizer has.  @param[out] hyper  the others stay.  Pure. */
void moments_take(struct hyperparameters *hyper, const struct optimizer *, const struct moment_flags *);

/**
 * Check that flags are for one of these optimizers.
 * @param optimizer  [n] those of a run.
 * @return OK; ERR_USAGE, naming the first flag that none of them has, with the optimizers that have it, or the first
 *         that is 1 and must be below.
 */
enum error_code moments_check(const struct optimizer *const *optimizer, int n, const struct moment_flags *,
                              struct error *);

/** Write the numbers that an optimizer has, as "beta1 0.9, beta2 0.999, eps 1e-08"; an empty text if it has none. */
struct moments_text { char text[120]; /**< NUL at the end */ };
struct moments_text moments_format(const struct optimizer *, const struct hyperparameters *);

/** Get what an optimizer's steps take if no flag says more: its usual numbers, or those of the package that --as names.
 *  @return them, with these conventions.  Pure. */
struct hyperparameters optimizer_usual(const struct optimizer *, const struct conventions *);

#endif
