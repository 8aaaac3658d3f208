/* verify.h -- the pieces of `orrery verify`: what was asked for, and what one job of so many devices finds. */
#ifndef ORRERY_VERIFY_VERIFY_H
#define ORRERY_VERIFY_VERIFY_H

#include "emulated_devices/cli/cli.h"
#include "emulated_devices/device/cluster.h"
#include "emulated_devices/schemes/scheme.h"
#include "ref/io/json.h"

enum { VERIFY_MOST_DEVICES = 64 };

struct verify_options {
    const char *what;                   /* a family; NULL: all */
    int devices;                        /* at most */
    const char *json;
    bool quiet;                         /* no lines for people */
    const char *cluster_name;           /* as typed */
    struct cluster cluster;             /* whose nodes shape the collectives of several levels */
};

/** Families by name: collectives, then a kind of schemes each.  @return NULL behind the last. */
const char *verify_family(int place);

/** Cases that held, cases in all, and what was refused and so not run. */
struct verify_count { int passed, cases, refused; };

/** In words, without an end of line. */
void verify_print_count(struct verify_count);

/**
 * One device of a job that runs all cases for its number of devices.
 * asked: a struct verify_options.  Rank 0 prints a line for each, then the count, and writes options->json, if there is
 * one: { "devices", "cases": [..] } and the counts.
 * @return OK, or on every device ERR_CHECK if some case did not hold, or what kept it from going on.
 */
device_fn verify_device;

/* ---- between the files of this folder ---------------------------------------------------------------------------- */

/* A job, as one of its devices has it. */
struct job {
    struct comm *world;
    bool speaks, prints;                /* rank 0; and lines for people */
    cJSON *cases;
    struct verify_count count;
};

/** What every case has in common, counted.  @return its JSON, to be added to. */
cJSON *verify_begin_case(struct job *, const char *family, const char *scheme, const struct error *verdict);
void verify_refuse(struct job *, const char *family, const char *what, const struct error *why);

/** All of a family's cases.  Collective.  @return OK whatever the verdicts, or what kept it from going on. */
enum error_code verify_collectives(struct job *, struct error *);
struct cases;
enum error_code verify_schemes(struct job *, struct cases *, enum scheme_kind, struct error *);

#endif
