/* disturb.h -- what is made slow, or never returns, so that `orrery diagnose` has something to find.
 *
 *     compute:3:4        operations of device 3 take 4 times as long
 *     link:2-5:4         messages from device 2 to device 5 take 4 times as long; no others do
 *     out:6:4, in:6:4    the card of device 6 takes 4 times as long to send, or to receive
 *     hang:3             device 3 never returns from its computing
 *     hang-inside:3      device 3 begins a collective and never sends in it
 *     noise:10           each operation and message takes up to 10 percent more
 *
 * A word may end with @STEP, in that step alone, or @STEP-, from that step on; without it, in all steps.  Steps count
 * from 1.  All of it is virtual time, and noise is a pure function of a seed, so a run is the same every time.
 *
 * clock.c asks; run/session.c, tests/devices/test_slow.c and bench/ say which devices are disturbed.
 */
#ifndef ORRERY_DISTURB_H
#define ORRERY_DISTURB_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

enum disturbance_kind { DISTURB_COMPUTE, DISTURB_LINK, DISTURB_OUT, DISTURB_IN, DISTURB_HANG, DISTURB_HANG_INSIDE,
                        DISTURBANCE_KINDS };

struct disturbance {
    enum disturbance_kind kind;         /* what is disturbed */
    int device, other;                  /* whose; other: the receiver of a link's messages */
    int64_t percent;                    /* of the usual time; 100: the same */
    int64_t first, last;                /* steps in which it is so, from 1 */
};

enum { DISTURBANCES_MOST = 8 };
struct disturbances {
    int count;                          /* entries of `of` */
    struct disturbance of[DISTURBANCES_MOST];
    int64_t noise;                      /* percent that operations and messages take longer at most */
    uint64_t seed;                      /* of the noise */
};

/* One device's view of them. */
struct disturbed {
    const struct disturbances *all;     /* the caller's; NULL: nothing is disturbed */
    int rank;                           /* this device */
    int64_t step;                       /* at work now, from 1; 0: none yet */
    uint64_t drawn;                     /* numbers of the noise so far */
};

/** The words of --disturb, with commas between them.  @return OK, or ERR_USAGE naming the word. */
enum error_code disturbances_parse(struct disturbances *, const char *words, struct error *);

/** Check that the devices are some of so many.  @return OK or ERR_USAGE. */
enum error_code disturbances_check(const struct disturbances *, int devices, struct error *);

/** The time that something takes, which takes `usual` without disturbance: at least that.
 *  @param other  of DISTURB_LINK: the receiver; unused elsewhere. */
int64_t disturbed_time(struct disturbed *, enum disturbance_kind, int device, int other, int64_t usual);

/** Whether this device hangs now, in this way. */
bool disturbed_hangs(const struct disturbed *, enum disturbance_kind);

#endif
