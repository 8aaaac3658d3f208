/* serial.h -- the one-device side of a run: every answer judged, every number computed again.
 *
 * On rank 0.  The one-device run of verify/reference/ takes the same training steps.  This file keeps its weights by
 * version, and with those of the version that the run's log names it judges each answer (serve/judge.h), so an answer
 * that was drawn from other weights is wrong.  It computes log-probabilities, values, rewards and advantages again, and
 * holds the devices' to them: with exact sums to the bits, else to bounds that twins have measured.
 *
 * loop.c calls these functions.  What differs is no error, but a verdict.
 */
#ifndef ORRERY_RL_SERIAL_H
#define ORRERY_RL_SERIAL_H

#include "emulated_devices/rl/advantage.h"
#include "emulated_devices/serve/judge.h"
#include "emulated_devices/verify/reference/reference.h"

/* Numbers of one kind against the one-device run's. */
struct compared { int64_t numbers, wrong; double farthest, bound; char first[200]; };

struct serial {
    const struct plan *plan;            /* that trains */
    struct transformer model;           /* takes any version's weights */
    struct judge judge;                 /* of answers, by this model */
    int versions;                       /* that are kept: the newest, and those before it that are still drawn from */
    struct tensor *kept;                /* [versions, params] version v at v modulo versions */
    struct tensor *start;               /* [params] the reference policy: the weights before the first step */
    struct tensor *critic;              /* [params] the critic's of the newest version; not used without one */
    struct samples again;               /* the samples, as this side has them */
    struct verdict answers;             /* of all answers */
    struct compared old, ref, value, advantage;
};

/** @param kept  versions.  @return OK, ERR_PLAN or ERR_MEMORY with nothing to close. */
enum error_code serial_open(struct serial *, const struct plan *, const struct samples *, int kept, struct error *);
void serial_close(struct serial *);

/** Keep the weights of the one-device run as those of a version; version 0 is also the reference policy. */
void serial_keep(struct serial *, const struct transformer *, int64_t version);

/** Judge answers that have just been drawn.
 *  @param version  of the weights that drew them, by the run's own log.
 *  @param seed     of the draws.
 *  @param logits   [count, most, V] the devices'.
 *  @return OK, whatever was found; ERR_MEMORY; ERR_DIVERGED of logits without a value. */
enum error_code serial_answers(struct serial *, const struct samples *, int64_t version, uint64_t seed,
                               const double *logits, struct error *);

/** Judge scores and advantages before a training step.
 *  @param critic   of the one-device run; NULL: there is none.
 *  @param scored   whether there are log-probabilities of the reference policy.
 *  @return as serial_answers. */
enum error_code serial_scores(struct serial *, const struct policy_rule *, const struct task *, const struct samples *,
                              const struct transformer *critic, bool scored, struct error *);

/** Whether all that was compared is right.  @return OK, or ERR_CHECK naming the first that is wrong, or that no answer
 *  could be judged. */
enum error_code serial_verdict(const struct serial *, struct error *);

#endif
