/* planners.c -- `orrery verify planners`: planners by layers on drawn tables, beside brute force; rank 0 prints.  job.c
 * calls verify_planners().  A table on which a promise is not kept is counted, and is no error.  Errors: ERR_MEMORY. */
#include "emulated_devices/verify/cases/planned.h"
#include "emulated_devices/verify/jobs/job.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <stdlib.h>

static enum error_code hold_table(struct job *job, struct planned_count *count, int draw, struct error *err)
{
    struct error verdict = { OK, "" };
    const enum error_code e = planned_hold(count, draw, &verdict);
    if (e && e != ERR_CHECK) return fail(err, e, "%s", verdict.text);
    if (!job->speaks) return OK;
    json_add(verify_begin_case(job, VERIFY_PLANNERS, "layers", &verdict), "draw %d", draw);
    if (e && job->prints) say(stdout, 8, "  FAILED  %s", verdict.text);
    return OK;
}

static void print_planned(const struct planned_count *count)
{
    say(stdout, 0, "\n%d drawn tables with %lld plans by layers; of %d tables no plan fits", count->tables,
        (long long)count->plans, count->infeasible);
    printf("  planner      promises of                 tables  best of all  slower: mean   worst  found none\n");
    static const char *const of[] = { "-", "all plans", "even stages", "one stage", "one strategy" };
    for (int i = 0; i < count->rows; i++) {
        const struct planned_row *const r = &count->row[i];
        printf("  %-12s %-25s  %8d  %6d of %d  %10.1f %%  %5.0f %%  %10d\n", r->planner->name,
               r->planner->frontier ? "one stage, the frontier" : of[r->planner->exact_of], r->held, r->best,
               r->compared, r->compared ? 100 * r->gap / r->compared : 0, 100 * r->worst, r->missed);
    }
    fflush(stdout);
}

enum error_code verify_planners(struct job *job, struct error *err)
{
    struct planned_count *const count = calloc(1, sizeof *count);
    enum error_code e = count ? OK : fail(err, ERR_MEMORY, "no memory to count planners");
    /* A planner is no device's work: the smallest job has all tables. */
    for (int draw = 0; job->world->size == 1 && draw < PLANNED_TABLES && !e; draw++)
        if (verify_takes(job, "layers")) e = hold_table(job, count, draw, err);
    if (!e && job->prints && count->tables > 0) print_planned(count);
    free(count);
    return e;
}
