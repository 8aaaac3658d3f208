/* rates.h -- the schedules of the learning rate, by name; learning_rate (optimizer.h) follows them.
 *
 * The rate of step t, from 1, is lr t / warmup up to the end of the warm-up, then min_lr + (lr - min_lr) f(x):
 *
 *   cosine    f = (1 + cos(pi x)) / 2      x: the share of the steps after the warm-up that are done
 *   linear    f = 1 - x
 *   constant  f = 1                        min_lr and steps mean nothing
 *   wsd       f = 1 until the last `decay` steps, of which x is the share that is done; then 1 - x
 *   wsd-cosine, wsd-sqrt                   the same with (1 + cos(pi x)) / 2 and 1 - sqrt(x)
 *
 * Sources: cosine: I. Loshchilov, F. Hutter, arXiv:1608.03983, section 3; wsd: S. Hu et al., MiniCPM, arXiv:2404.06395,
 * section 4; 1 - sqrt(x): A. Haegele et al., arXiv:2405.18392, section 3.  Files of cli/golden/, cli/train/options/,
 * run/ and run/words/ call these functions.  No function returns an error code.
 */
#ifndef ORRERY_RATES_H
#define ORRERY_RATES_H

#include <stdbool.h>

/* The first is the default. */
enum rate_schedule {
    RATE_COSINE, RATE_LINEAR, RATE_CONSTANT, RATE_WSD, RATE_WSD_COSINE, RATE_WSD_SQRT, RATE_SCHEDULES
};

/** Their names; ends with NULL. */
extern const char *const rate_schedule_names[];

/** The schedule of a name, which must be one of them. */
enum rate_schedule rate_schedule_named(const char *name);

/** Whether a schedule ends with a decay of its own length. */
static inline bool rate_decays(enum rate_schedule schedule) { return schedule >= RATE_WSD; }

#endif
