/* plans.c -- `orrery verify plans`: drawn plans whose layers have different strategies; rank 0 prints.  job.c calls
 * verify_plans().  A case that does not hold is counted, and is no error.  Errors: ERR_MEMORY, ERR_COMM. */
#include "emulated_devices/verify/cases/sectioned.h"
#include "emulated_devices/verify/jobs/job.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdio.h>

/* Drawn plans for each number of devices from 3 to 8: 504 in all. */
enum { PLANS_DRAWN = 84 };

/* A word says how the batches of a plan are. */
static const char *batch_of(const struct plan *plan)
{
    return plan->packed ? "packed samples" : plan->batches ? "uneven batches" : plan->encoders.kinds > 0 ? "clips"
        : "equal batches";
}

static void plans_record(struct job *job, int draw, const struct plan *plan, const struct outcome *outcome)
{
    char text[1000];
    sections_describe(plan, text, sizeof text);
    cJSON *to = verify_begin_case(job, VERIFY_PLANS, "sections", &outcome->verdict);
    json_add(to, "draw %d model %s schedule %s micro %d sections %s largest_error %g", draw, plan->model.name,
             plan->schedule, plan->micros, text, outcome->comparison.largest.error);
    json_add(to, "batch %s", batch_of(plan));
    json_add(to, "traffic_equals_formulas %hhd memory_equals_formulas %hhd", outcome->traffic.code == OK,
             outcome->memory.code == OK);
    if (!job->prints) return;
    printf("  %3d  %-20s %-6s %d  %-14s  %8.1e  %s\n", draw, plan->model.name, plan->schedule, plan->micros,
           batch_of(plan), outcome->comparison.largest.error, outcome->verdict.code ? "FAILED" : "ok");
    printf("      "), print_wrapped(stdout, 6, text);
    if (outcome->verdict.code) printf("      "), print_wrapped(stdout, 6, outcome->verdict.text);
    fflush(stdout);
}

static enum error_code plans_run(struct job *job, int draw, struct error *err)
{
    struct plan plan;
    struct sections sections;
    struct outcome outcome;
    enum error_code e = case_draw_sections(&plan, &sections, job->world->size, draw, job->exact, err);
    if (e) return e;
    e = case_run(&plan, &outcome, err);
    if (!e && job->speaks) plans_record(job, draw, &plan, &outcome);
    sections_free(&sections);
    return e;
}

enum error_code verify_plans(struct job *job, struct error *err)
{
    enum error_code e = OK;
    if (job->world->size < 3) return OK;       /* two devices have no stages of different sizes */
    if (job->prints)
        printf("\n%d devices, plans with sections\n  draw  model            schedule micro  batch           error\n",
               job->world->size);
    for (int draw = 0; draw < PLANS_DRAWN && !e; draw++)
        if (verify_takes(job, "sections")) e = plans_run(job, draw, err);
    return e;
}
