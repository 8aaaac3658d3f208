/* job.h -- a job of `orrery verify`: all cases of families of schemes on its devices.  Rank 0 prints a line for
 * each case.  cli/verify.c, collectives.c, schemes.c and spatial.c call these functions. */
#ifndef ORRERY_VERIFY_JOB_H
#define ORRERY_VERIFY_JOB_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/cluster.h"
#include "emulated_devices/schemes/scheme.h"
#include "ref/exact/rule.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/options.h"

enum { VERIFY_MOST_DEVICES = 64, VERIFY_FAMILIES = SCHEME_KINDS + 5 };

/* --part N/M: this run takes the cases whose place modulo `of` is number - 1. */
struct verify_part { int number, of; };

struct verify_options {
    const char *what, *only;            /* a family; a scheme or algorithm; NULL: all */
    int from, devices;                  /* at least, and at most */
    const char *part_text;              /* as typed; NULL: all cases */
    struct verify_part part;            /* the cases that this run takes */
    const char *json;                   /* file for the results; NULL: none */
    const char *digests;                /* a file of digests to write; NULL: none */
    bool quiet;                         /* print no lines */
    enum exact_rule exact;              /* only plans with sums by this rule; SUMS_ROUND: all plans */
    const char *cluster_name;           /* as typed */
    struct cluster cluster;             /* its nodes define the collectives of several levels */
};

/* Families of drawn cases: plans whose layers have different strategies; chains of meshes of one job. */
#define VERIFY_PLANS "plans"
#define VERIFY_ELASTIC "elastic"
/* The family of requests that are answered on meshes. */
#define VERIFY_SERVING "serving"
/* The family of planners by layers, beside brute force. */
#define VERIFY_PLANNERS "planners"

/* A family of cases whose room stands above this one: command_verify adds it in each process. */
struct job;
struct verify_above { const char *name; enum error_code (*run)(struct job *, struct error *); };

/** Add the family, before any other call.  @param family  outlives the program. */
void verify_add_family(const struct verify_above *family);

/** Families by name: collectives, each kind of schemes, then those of drawn cases.  @return NULL after the last. */
const char *verify_family(int place);

/** Numbers of cases that passed, of all cases, and of cases that were refused and not run. */
struct verify_count { int passed, cases, refused; int64_t invariants; };

/** Print a count as text, without an end of line. */
void verify_print_count(struct verify_count);

/**
 * One device of a job that runs all cases for its number of devices.
 * asked: a struct verify_options.  Rank 0 prints a line for each, then the count, and writes options->json, if given:
 * { "devices", "cases": [..] } and the counts.
 * @return OK, or on every device ERR_CHECK if a case failed, or the error that ended the job.
 */
enum error_code verify_device(struct comm *world, const void *asked, struct error *);

/* ---- shared by the files of this folder -------------------------------------------------------------------------- */

/* One device's part of a job. */
struct job {
    struct comm *world;                 /* all devices of the job */
    bool speaks, prints;                /* whether this is rank 0; whether it prints lines */
    const char *only;                   /* this run takes cases of this scheme or algorithm; NULL: of all */
    struct verify_part part;            /* the cases that this run takes */
    enum exact_rule exact;              /* as in the options */
    int place;                          /* of the next case, over all families */
    cJSON *cases;                       /* rank 0: list of results, for --json */
    struct verify_count count;          /* cases so far by result */
};

/** Whether the next case, or the next that is refused, is of this run's part.  The same on every device.
 *  @param name  of the scheme or algorithm; "": of none. */
bool verify_takes(struct job *, const char *name);

/** Write a line of digests for each case that trains.  @return OK or ERR_FILE. */
enum error_code verify_write_digests(const char *path, const cJSON *cases, struct error *);

/** Count a case.  @return its JSON with the common fields, to which more can be added. */
cJSON *verify_begin_case(struct job *, const char *family, const char *scheme, const struct error *verdict);
void verify_refuse(struct job *, const char *family, const char *what, const struct error *why);

/** Run all of a family's cases.  Collective over all devices.  @return OK with any verdicts, or the error that ended
 *  it. */
enum error_code verify_collectives(struct job *, struct error *);
enum error_code verify_tiles(struct job *, struct error *);
enum error_code verify_plans(struct job *, struct error *);
enum error_code verify_planners(struct job *, struct error *);
enum error_code verify_elastic(struct job *, struct error *);
enum error_code verify_serving(struct job *, struct error *);
struct cases;
enum error_code verify_schemes(struct job *, struct cases *, enum scheme_kind, struct error *);

#endif
