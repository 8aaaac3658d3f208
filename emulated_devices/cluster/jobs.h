/* jobs.h -- the jobs that one cluster is to train: who wants which plan trained, from when on, on how many devices.
 *
 *     job,user,arrival,steps,devices,least,most,plan
 *     a1,ann,0,2000,8,2,16,--model gpt2 --batch 64 --dtype bf16
 *
 * The first line names the columns, in any order; `least` and `most` may be missing.  Arrivals are seconds.  A plan has
 * words of `orrery plan` without --dp, --cluster and --memory: a job has as many copies as its devices allow.  Cells
 * may stand in quotation marks as RFC 4180 says, and lines that begin with # are comments.
 *
 * draw.c draws such jobs, cli/cluster/cluster.c reads and writes them, and simulate.c lets a cluster train them.
 */
#ifndef ORRERY_CLUSTER_JOBS_H
#define ORRERY_CLUSTER_JOBS_H

#include "ref/error.h"
#include <stdint.h>

enum {
    JOBS_MOST = 1000000,                /* lines of a file */
    JOB_TEXT = 64,                      /* bytes of a name, and of a user's */
    JOB_PLAN = 400,                     /* bytes of a plan's words */
    JOB_DEVICES_MOST = 4096,            /* that a job may want, and that a cluster may have */
    JOB_SIZES = 13,                     /* powers of two up to that */
};

/* Latest arrival in seconds: three years. */
#define JOB_LATEST 1e8

struct cluster_job {
    char name[JOB_TEXT];                /**< Name of the job in its file. */
    int user, kind;                     /* numbers in the lists below */
    int64_t arrival;                    /* virtual milliseconds */
    int64_t steps;                      /* of training */
    int devices, least, most;           /* that it asks for, and may be given: powers of two */
};

struct cluster_jobs {
    struct cluster_job *at;             /* [count] by arrival */
    int count;                          /**< Entries of `at`. */
    char (*plan)[JOB_PLAN];             /* [kinds] each once: jobs of one plan are of one kind */
    int kinds;                          /**< Entries of `plan`. */
    char (*user)[JOB_TEXT];             /* [users] */
    int users;                          /**< Entries of `user`. */
    int job_room, kind_room, user_room; /* for how many there is memory */
};

/**
 * Read jobs from a file.
 * @return OK, for cluster_jobs_free; ERR_FILE; ERR_FORMAT naming line and column; ERR_MEMORY.  After an error there are
 *         none.
 */
enum error_code cluster_jobs_read(struct cluster_jobs *, const char *path, struct error *);

/** Write a file that cluster_jobs_read reads as the same jobs.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code cluster_jobs_write(const struct cluster_jobs *, const char *path, struct error *);

/** Add a job behind all others; a new plan or user gets the next number.  @return OK or ERR_MEMORY. */
enum error_code cluster_jobs_add(struct cluster_jobs *, struct cluster_job, const char *plan, const char *user,
                                 struct error *);

/** Order jobs by arrival; those of one time stay as they stand.  @return OK or ERR_MEMORY. */
enum error_code cluster_jobs_sort(struct cluster_jobs *, struct error *);

void cluster_jobs_free(struct cluster_jobs *);

/** Whether a number of devices is a power of two from 1 to JOB_DEVICES_MOST. */
static inline int job_size_is_whole(int64_t devices)
{
    return devices >= 1 && devices <= JOB_DEVICES_MOST && (devices & (devices - 1)) == 0;
}

/** The exponent of a power of two. */
static inline int job_size_log(int devices)
{
    int log = 0;
    while (devices >> (log + 1)) log++;
    return log;
}

#endif
