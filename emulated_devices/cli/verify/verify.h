/* verify.h -- the pieces of `orrery verify`: what was asked for, and what one job of so many devices finds. */
#ifndef ORRERY_VERIFY_VERIFY_H
#define ORRERY_VERIFY_VERIFY_H

#include "emulated_devices/cli/cli.h"
#include "emulated_devices/device/cluster.h"

enum { VERIFY_MOST_DEVICES = 64 };

struct verify_options {
    const char *what;                   /* a family; NULL: all */
    int devices;                        /* at most */
    const char *json;
    bool quiet;                         /* no lines for people */
    const char *cluster_name;           /* as typed */
    struct cluster cluster;             /* whose nodes shape the collectives of several levels */
};

extern const char *const verify_families[];     /* ends with NULL */

/** Cases that held, cases in all, and what was refused by its scheme and so not run. */
struct verify_count { int passed, cases, refused; };

/** In words, without an end of line. */
void verify_print_count(struct verify_count);

/**
 * One device of a job that runs all cases for its number of devices.
 * asked: a struct verify_options.  Rank 0 prints a line for each, then the count, and writes options->json, if there is one: { "devices", "cases": [..] } and the counts.
 * @return OK, or on every device ERR_CHECK if some case did not hold, or what kept it from going on.
 */
device_fn verify_device;

#endif
