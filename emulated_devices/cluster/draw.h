/* draw.h -- jobs with the sizes and lengths of published traces.
 *
 * A law says how many devices jobs ask for, and how long they take on these.  Jobs come as a Poisson process whose rate
 * gives the cluster a load: the work that comes in a second, of the work that all devices can do in a second.  Steps
 * follow from the length of a job and from its plan's step.  Whose a job is, and which of the plans here it trains, is
 * drawn, too: users have jobs as 1, 1/2, 1/3, .. (assumed), plans are equally frequent (assumed).
 *
 * cli/cluster/ and claims call cluster_jobs_draw.
 */
#ifndef ORRERY_CLUSTER_DRAW_H
#define ORRERY_CLUSTER_DRAW_H

#include "emulated_devices/cluster/price.h"

enum { LAW_PARTS = 4 };

/* A part of all jobs asks for so many devices, or takes between 10^from and 10^to minutes, evenly in the logarithm. */
struct size_part { double part; int devices; };
struct length_part { double part, from, to; };

struct job_law {
    const char *name, *source;
    struct size_part size[LAW_PARTS];   /**< Parts of jobs by number of devices. */
    struct length_part length[LAW_PARTS]; /**< Parts of jobs by length. */
};

/** The laws; end with name NULL. */
extern const struct job_law job_laws[];

/** Find a law.  @return OK or ERR_USAGE. */
enum error_code job_law_find(const struct job_law **, const char *name, struct error *);

struct drawn_jobs {
    const struct job_law *law;          /**< Law of sizes and lengths. */
    int jobs, users, devices;           /* of the cluster that they load */
    double load, scale;                 /* scale: of all lengths */
    uint64_t seed;                      /**< Seed of the random numbers. */
};

/**
 * Draw jobs.  More jobs with the same seed begin with the same ones.
 * @param source, clock  what a step takes at the highest clock rate, in percent.
 * @return OK, for cluster_jobs_free; ERR_MEMORY, or an error of a price.  After an error there are none.
 */
enum error_code cluster_jobs_draw(struct cluster_jobs *, const struct drawn_jobs *, const struct price_source *source,
                                  int clock, struct error *);

#endif
