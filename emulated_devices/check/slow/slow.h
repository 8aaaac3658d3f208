/* slow.h -- what is slow in a run, or hangs, by the records of all its devices.
 *
 * Four classes, as in C4 (J. Dong et al., HPCA 2025):
 *
 *     SLOW_COMMUNICATION   the matrix of delays, row = sender, column = receiver, has a hot cell (a link), a hot row
 *                          (the sender's card) or a hot column (the receiver's card)
 *     SLOW_OUTSIDE         operations of a device take longer than the cluster's rates say; that device waits least
 *     HANG_COMMUNICATION   a device has begun a collective and sends nothing that others wait for; or a message is lost
 *     HANG_OUTSIDE         the device that others wait for does not come to its collective
 *
 * A delay is the time of a device's messages in a step, on ports and the way and without waits for other messages,
 * beside the time by the cluster's rates.  Each step is judged alone, so that one slow step of many is found.  All is
 * decided by virtual time and by the order of records.  cli/diagnose.c, run/session.c and tests call these functions.
 */
#ifndef ORRERY_SLOW_H
#define ORRERY_SLOW_H

#include "emulated_devices/check/slow/records.h"

/* A time of so many percent of the usual one counts as slow.  tests/devices/test_slow.c has noise of up
 * to 20 percent in each operation and message, and no alarm; factors from 2 on are found in all steps. */
enum { SLOW_DELAY = 150, SLOW_PACE = 125 };

enum slow_class { SLOW_COMMUNICATION, SLOW_OUTSIDE, HANG_COMMUNICATION, HANG_OUTSIDE, SLOW_CLASSES };
enum slow_part { PART_DEVICE, PART_LINK, PART_SENDER, PART_RECEIVER, PART_UNKNOWN, SLOW_PARTS };

/** Name a class: "slow in communication", for example. */
const char *slow_class_name(enum slow_class);
/** Name a part: "device", "link" or "card that sends", for example. */
const char *slow_part_name(enum slow_part);

struct slow_finding {
    enum slow_class class;              /* as above */
    enum slow_part part;                /* PART_DEVICE outside communication; PART_UNKNOWN: link and cards of a pair
                                         * cannot be told apart, for these send and receive nothing else; of a hang, a
                                         * wait in a ring */
    int device, other;                  /* the device; of a link its sender, and `other` its receiver; -1: none */
    int64_t steps, first;               /* in so many steps; the number of the first */
    int64_t percent, others;            /* its time beside the rates', of the steps together; the median of others */
    picoseconds waits, least, most;     /* SLOW_OUTSIDE: in calls per step: this device, the others at least and most */
    int peers;                          /* SLOW_COMMUNICATION: how many others it sends to or receives from, or a link's
                                         * sender and receiver do besides; hangs: devices that wait for it in the end */
    int waiting;                        /* hangs: a device that waits for it directly; -1: none */
};

enum { SLOW_FINDINGS = 16 };
struct slow {
    int steps;                          /* that were judged */
    int64_t first, last;                /* their numbers; 0: none */
    int count;                          /* findings, of which the first is in most steps */
    struct slow_finding of[SLOW_FINDINGS]; /**< Findings, [count]. */
    int more;                           /* that had no room */
    bool hangs;                         /* the run does not go on; the finding of a hang comes first */
};

/**
 * Judge all steps that all devices have; and, if the run does not go on, who hangs.
 * @param hangs  the run is known not to go on.  It is also taken to hang if a device says so.
 * @return OK or ERR_MEMORY.
 */
enum error_code slow_judge(struct slow *, const struct records *, bool hangs, struct error *);

/** One step alone: findings with .percent and .others of that step.
 *  @param ratio  [size, size] room.  @return how many, at most `most` of them in of[]. */
int slow_step(const struct records *, uint64_t step, int64_t *ratio, struct slow_finding *of, int most);

/** Who hangs, by what devices wait for.  @return whether anybody waits. */
bool slow_hang(const struct records *, struct slow_finding *);

/** The matrix of delays over all judged steps, in percent of the rates' time.
 *  @param[out] ratio  [size, size] by sender, then receiver; -1: no messages. */
void slow_matrix(const struct records *, int64_t *ratio);

/** One sentence with the evidence. */
enum { SLOW_SENTENCE = 600 };
const char *slow_sentence(char text[SLOW_SENTENCE], const struct slow *, const struct slow_finding *,
                          const struct records *);

#endif
