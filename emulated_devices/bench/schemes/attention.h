/* attention.h -- jobs in which devices compute the attention of one layer, and their counts.  claims/attention.c,
 * attention_job.c and cli/bench/schemes/attention.c call these functions. */
#ifndef ORRERY_BENCH_ATTENTION_H
#define ORRERY_BENCH_ATTENTION_H

#include "emulated_devices/launch/launch.h"
#include "emulated_devices/schemes/attention/attention.h"

enum { BENCH_ATTENTION_RUNS = 21, BENCH_ATTENTION_DEVICES = 32, BENCH_ATTENTION_SCHEMES = 32 };

/* Forward and backward; each is the largest over the devices. */
enum {
    COUNT_TIME,                         /* virtual, picoseconds */
    COUNT_FORWARD,                      /* of forward */
    COUNT_MESSAGES, COUNT_BYTES,        /* sent */
    COUNT_BETWEEN,                      /* of these bytes, to other nodes */
    COUNT_MEMORY,                       /* bytes at the peak */
    COUNT_OTHER,                        /* devices that did not send what the cost function says */
    ATTENTION_COUNTS
};
extern const char *const attention_count_name[ATTENTION_COUNTS];        /* in the JSON */

/* One job. */
struct attention_job {
    int64_t B, S, H, K, A;              /* of the layer that every scheme runs: docs/words.md */
    struct context_split split;         /* for schemes of two dimensions; zeros: their defaults */
    int P, node;                        /* devices; devices of a node, 0: the cluster's */
    const char *scheme;                 /* NULL: all that accept it */
    int runs;                           /* timed by the wall clock, after the first */
    enum dtype dtype;                   /* format of queries, keys, values and results */
    const char *cluster, *json;         /* for virtual time; file for the results, NULL: none */
};

/* Result of one scheme in a job. */
struct attention_row {
    const struct attention_scheme *scheme;      /* that was run */
    double count[ATTENTION_COUNTS];
    double median;                      /* seconds of a run on this machine */
};
struct attention_rows { struct attention_row row[BENCH_ATTENTION_SCHEMES]; int used; };

/** Start a job and read its rows.  *status: of its devices, which have printed their own errors.
 *  @return OK, also with such a status; or an error. */
enum error_code attention_job_run(struct attention_rows *, const struct attention_job *, char *program, int *status,
                                  struct error *);

/** One device of a job; asked: a struct attention_job.  Writes the rows to ->json, or to stdout.
 *  @return OK, or the same error on every device. */
device_fn bench_attention_device;

#endif
