/* page.h -- a page of what a cluster did: sums side by side, what every device did when, power, and times of jobs.
 * cli/cluster/cluster.c calls cluster_page and cluster_picture. */
#ifndef ORRERY_CLUSTER_PAGE_H
#define ORRERY_CLUSTER_PAGE_H

#include "emulated_devices/cluster/report.h"

/* The jobs under one scheduler. */
struct cluster_run {
    const struct scheduler *scheduler;  /**< Scheduler of the run. */
    struct simulated out;               /**< Result of the simulation. */
    struct cluster_sums sums;           /**< Sums over the jobs. */
};

/** Write the page of some runs of the same jobs.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code cluster_page(const struct cluster_run *, int runs, const struct cluster_jobs *, const struct pricing *,
                             const char *path, struct error *);

/** Draw which devices had which job in each run, below each other, as SVG.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code cluster_picture(const struct cluster_run *, int runs, const struct cluster_jobs *,
                                const struct pricing *, const char *path, struct error *);

#endif
