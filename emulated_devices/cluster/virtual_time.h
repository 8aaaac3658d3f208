/* virtual_time.h -- the two clocks of UWFQ: in which order users' jobs would end if the cluster were divided evenly
 * between users, and a user's part between the user's jobs.
 *
 *     sigma = devices / active users            devices that a user has in this ideal
 *     V      grows by sigma dt                  the work that a user who is always active has been given
 *     v_u    grows by sigma dt / jobs of u      the same of each job of user u
 *     d      = v_u when the job comes + r       r: the job's work, devices times milliseconds
 *
 * A user who comes begins at S = V.  The user's jobs in the order of d form a chain: D of the first is S + r, of the
 * next D + r, and the last D is E, at which the user has had all that was asked for.  The user leaves when V reaches E.
 * Jobs run in the order of D.
 *
 * Source  the schedulers of kazemaksOG/spark-benchmark-tool (UserClusterFairScheduler), which its README calls UWFQ.
 *         As there, a short job that comes late may have a D before V, and overtakes users who wait.
 *
 * uwfq.c and tests call these functions.
 */
#ifndef ORRERY_CLUSTER_VIRTUAL_TIME_H
#define ORRERY_CLUSTER_VIRTUAL_TIME_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

struct virtual_job { int number; double work, ends, deadline; };        /* r, d, D; `ends` decides the order */

struct virtual_user {
    bool active;                        /* V has not reached E */
    double own, start, end;             /* v_u, S, E */
    struct virtual_job *job;            /* [jobs] by `ends` */
    int jobs, room;
};

struct virtual_time {
    double devices, V;
    int64_t now;                        /* milliseconds up to which the clocks have gone */
    struct virtual_user *user;          /* [users] */
    int users, active;
};

/** @return OK or ERR_MEMORY; virtual_time_close works after both. */
enum error_code virtual_time_open(struct virtual_time *, int devices, int users, struct error *);
void virtual_time_close(struct virtual_time *);

/** Let the clocks go on until a time; users whose work is done leave. */
void virtual_time_advance(struct virtual_time *, int64_t now);

/** A job of a user comes now.  @param work  devices times milliseconds.  @return OK or ERR_MEMORY. */
enum error_code virtual_time_add(struct virtual_time *, int user, int number, double work, struct error *);

/** D of a job of a user; of one that has left the ideal, -1: it is late. */
double virtual_time_deadline(const struct virtual_time *, int user, int number);

#endif
