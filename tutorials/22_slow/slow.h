/* slow.h -- lesson 22: what slow.c defines.  README.md explains it.
 *
 * Devices are numbered from 0.  The judge calls these functions through calls.c
 * (`orrery learn`).
 */
#ifndef SLOW_H
#define SLOW_H

#include "course.h"

/** What slow_part finds. */
enum part { NO_PART, LINK, SENDER, RECEIVER };

/** The device that is slow outside communication: it comes last to each
 *  collective, so it waits least.
 *  waits[W]: how long each device waits in the collectives of a step.
 *  @return the device that waits less than {LESS: half|a third} of what each
 *  other device waits; -1: there is none. */
int slow_outside(const double *waits, int W);

/** The usual delay, for W up to 12: of all cells with messages the median,
 *  which is the number at place (n-1)/2 of n in ascending order.
 *  delay[W*W]: cell delay[i*W + j] has the delay of messages
 *  {ROWS: from device i to device j|to device i from device j}; 0: no messages.
 *  @return 0 without messages. */
double usual_delay(const double *delay, int W);

/** What is slow in communication.  A cell is hot from 1.5 times the usual
 *  delay on.  If all cells of a sender are hot, and it has at least two, its
 *  card is slow; likewise of a receiver.  Otherwise a hot cell is a slow link.
 *  At most one thing is slow.
 *  @param which  [0]: the sender or receiver; of a link [0] is its sender and
 *                [1] its receiver.  Unchanged if nothing is slow.
 *  @return one of enum part. */
int slow_part(const double *delay, int W, int32_t *which);

/** Who holds up a device that waits.
 *  waits_for[W]: for whose message each device waits; -1: for none.
 *  @return the device at the end of the waits that begin at `device`, which
 *  waits for nobody; -1: they go round in a ring. */
int who_hangs(const int32_t *waits_for, int W, int device);

#endif
