/* goodput.h -- the share of a training's time that makes progress, when devices fail and checkpoints are saved.
 *
 * Failures of the whole job come at random, M seconds apart on average (exponential times).  After every t seconds of
 * steps a checkpoint is saved: saving holds the devices for d seconds, and the checkpoint is committed f seconds later,
 * while the next steps run.  A failure ends a step anywhere.  A restart takes R seconds, can fail too, and goes on from
 * the last committed checkpoint.
 *
 *     a segment        a = t + d, at least f: the next save waits until the one before is committed
 *     expected time    E = M exp((R + f) / M) (exp(a / M) - 1)     of a segment with all its repetitions
 *     goodput          t / E
 *     restarting       1 - exp(-R / M)
 *     saving           d (and what a save waits) / E               once for each checkpoint that counts
 *     computed again   the rest
 *
 * Derivation of E: from a committed checkpoint a segment takes C = M exp(R / M) (exp(a / M) - 1), as in Daly's model.
 * If a failure comes before the checkpoint at the segment's begin is committed, the segment before is computed again,
 * too; solving for the expected time gives exp(f / M) C.  With f = 0 that is Daly's model.
 *
 * Source   J. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974,
 *          doi:10.1145/361147.361115; J. Daly, "A higher order estimate of the optimum checkpoint interval",
 *          FGCS 22(3), 2006, doi:10.1016/j.future.2004.11.016.  The term of f is derived here, and held to the
 *          simulation below.
 * Callers  report_failures.c; tests/devices/test_goodput.c.  Times are seconds.  No function here can fail.
 */
#ifndef ORRERY_GOODPUT_H
#define ORRERY_GOODPUT_H

#include <stdint.h>

/* A job that fails. */
struct failing_job {
    double between;                     /* M: seconds between failures of the whole job, on average */
    double restart;                     /* R: from a failure until steps run again */
    double step;                        /* of one step */
    double held;                        /* d: that a save holds the devices */
    double committed;                   /* f: from the end of that until a failure no longer loses the checkpoint */
};

/* Shares of all time; their sum is 1. */
struct goodput { double useful, saving, again, restarting; };

/** The expected shares with a checkpoint after every so many steps.  @param every  at least 1.
 *  @return useful is 0 where a segment is so long that it practically never ends without a failure. */
struct goodput goodput_of(const struct failing_job *, int64_t every);

/** The number of steps between checkpoints with the highest expected goodput; the smallest of several. */
int64_t goodput_best(const struct failing_job *);

/** The rules of Young, sqrt(2 d M), and Daly, whose series has two more terms: seconds of steps between checkpoints. */
double goodput_young(const struct failing_job *);
double goodput_daly(const struct failing_job *);

/**
 * Simulate a training, failure by failure.
 * @param every  steps between checkpoints.
 * @param steps  of the training; it ends with the last step's checkpoint committed.
 * @param seed   of the times of failures: one seed, one result, on every machine with the same logarithm.
 * @param[out] failures  that came; may be NULL.
 * @return the shares of the simulated time.  A training without progress is ended after 200,000 failures; the
 *         shares are then those until there.
 */
struct goodput goodput_simulate(const struct failing_job *, int64_t every, int64_t steps, uint64_t seed,
                                int64_t *failures);

#endif
