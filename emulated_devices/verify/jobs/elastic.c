/* elastic.c -- `orrery verify elastic`: drawn chains of meshes, between which a job's state moves; rank 0 prints.
 * job.c calls verify_elastic().  A chain that does not hold is counted, and is no error.  Errors: ERR_MEMORY,
 * ERR_COMM. */
#include "emulated_devices/verify/cases/elastic.h"
#include "emulated_devices/verify/jobs/job.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdio.h>

enum { CHAINS_DRAWN = 40 };             /* for each number of devices */

static void chains_record(struct job *job, int draw, const struct elastic_outcome *outcome)
{
    cJSON *to = verify_begin_case(job, VERIFY_ELASTIC, "chain", &outcome->verdict);
    json_add(to, "draw %d chain %s moved_bytes %g", draw, outcome->text, (double)outcome->moved);
    if (!job->prints) return;
    printf("  %3d  %9llu bytes moved  %s\n", draw, (unsigned long long)outcome->moved,
           outcome->verdict.code ? "FAILED" : "ok");
    printf("      "), print_wrapped(stdout, 6, outcome->text);
    if (outcome->verdict.code) printf("      "), print_wrapped(stdout, 6, outcome->verdict.text);
    fflush(stdout);
}

enum error_code verify_elastic(struct job *job, struct error *err)
{
    enum error_code e = OK;
    if (job->prints) printf("\n%d device%s, meshes that change\n", job->world->size, plural(job->world->size));
    for (int draw = 0; draw < CHAINS_DRAWN && !e; draw++) {
        struct elastic_outcome outcome;
        if (!verify_takes(job, "chain")) continue;
        e = case_elastic(job->world->size, draw, &outcome, err);
        if (!e && job->speaks) chains_record(job, draw, &outcome);
    }
    return e;
}
