/* serving.c -- `orrery verify serving`: drawn requests on every mesh of the job's devices, by three models; rank 0
 * prints.  job.c calls verify_serving().  A case whose tokens are not right is counted, and is no error.  Errors:
 * ERR_MEMORY, ERR_COMM. */
#include "emulated_devices/verify/cases/serving.h"
#include "emulated_devices/verify/jobs/job.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdio.h>

static void cases_record(struct job *job, const struct serving_case *it, const struct serving_outcome *outcome)
{
    cJSON *to = verify_begin_case(job, VERIFY_SERVING, "serving", &outcome->verdict);
    json_add(to, "model %s dp %d tp %d pp %d requests %g tokens %g", it->model, it->dp, it->tp, it->pp,
             (double)outcome->requests, (double)outcome->tokens);
    if (!job->prints) return;
    printf("  dp %d tp %d pp %d  %-12s %4lld requests %5lld tokens %4lld preemptions %5lld shared  %s\n", it->dp,
           it->tp, it->pp, it->model, (long long)outcome->requests, (long long)outcome->tokens,
           (long long)outcome->preempted, (long long)outcome->shared, outcome->verdict.code ? "FAILED" : "ok");
    if (outcome->verdict.code) printf("      "), print_wrapped(stdout, 6, outcome->verdict.text);
    fflush(stdout);
}

enum error_code verify_serving(struct job *job, struct error *err)
{
    enum error_code e = OK;
    struct serving_case it;
    if (job->prints) printf("\n%d device%s, requests\n", job->world->size, plural(job->world->size));
    for (int number = 0; serving_case_at(job->world->size, number, &it) && !e; number++) {
        struct serving_outcome outcome;
        struct error why;
        if (!verify_takes(job, "serving")) continue;
        if (serving_case_takes(&it, &why) != OK) {
            verify_refuse(job, VERIFY_SERVING, "serving", &why);
            continue;
        }
        e = case_serving(&it, &outcome, err);
        if (!e && job->speaks) cases_record(job, &it, &outcome);
    }
    return e;
}
