/* keeping.h -- keeps what a run writes from other runs: a lock for each folder, and for each file that grows.
 *
 * Rank 0 writes, and so has the locks, from before the first look into a folder until the end of the run.  A process
 * has one run.  session.c, between.c, golden.c, and cli/sweep.c, dump.c and affinity.c for folders of their own call
 * these functions.
 */
#ifndef ORRERY_RUN_KEEPING_H
#define ORRERY_RUN_KEEPING_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdio.h>

/* An output that a run writes piece by piece.  Files that are written whole, such as that of --json, replace each other
 * whole. */
struct kept {
    const char *flag, *path;            /* "--save"; NULL: it was not given */
    bool folder;                        /* else a file */
};
enum { KEPT_MOST = 8 };                 /* outputs of a run */

/** Lock outputs.  Local, on rank 0.  @param told  where it is said whose void locks were taken over.
 *  @return as lock_take, with the flag; then nothing is locked. */
enum error_code keeping_take(const struct kept *, int count, FILE *told, struct error *);

/** Only see whether one of them would be refused.  @return as lock_look, with the flag. */
enum error_code keeping_look(const struct kept *, int count, struct error *);

/** Before a checkpoint is written: whether the locks still stand.  @return as lock_stands; OK without locks. */
enum error_code keeping_stands(struct error *);

/** Remove the locks that this process has. */
void keeping_release(void);

#endif
