/* check_progress.h -- a line on the terminal that says how far `orrery check` is.  check_judged.c calls these
 * functions.  No function returns an error code. */
#ifndef ORRERY_CHECK_PROGRESS_H
#define ORRERY_CHECK_PROGRESS_H

#include "ref/io/time_left.h"
#include "emulated_devices/check/report/checked_kinds.h"

struct check_progress {
    struct time_left line;              /* what is printed on a terminal */
    double all[2], done[2];             /* elements to compare, and to recompute; those that are done */
    int phase;                          /* 0: comparing; 1: recomputing */
};

/** Begin, and watch what is read of ACTUAL.  Nothing is shown unless standard error is a terminal. */
void check_progress_begin(struct check_progress *, const struct golden *, struct actual *);

/** All tensors are compared; operations come next. */
void check_progress_next(struct check_progress *);

/** Remove the line. */
void check_progress_end(struct check_progress *);

#endif
