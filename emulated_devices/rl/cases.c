/* cases.c -- small runs, and the family `rl` of `orrery verify`.  cli/verify.c, bench/rl/ and tests call.  Errors:
 * those of plans and runs; a difference is a verdict. */
#include "emulated_devices/rl/cases.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/collectives/algorithm.h"
#include "ref/io/json.h"
#include <stdio.h>
#include <string.h>

enum { CASE_BATCH = 8, CASE_GROUP = 4, CASE_ITERATIONS = 2, CASE_LAYERS = 4 };

enum error_code rl_small_job(struct rl_job *job, const int size[AXIS_COUNT], const char *rule, enum dtype dtype,
                             enum exact_rule exact, struct error *err)
{
    struct plan *const p = &job->plan;
    int64_t batch;
    *job = (struct rl_job){ .rule = policy_rule_find(rule), .task = { 1, 5, 42 }, .group = CASE_GROUP, .minibatches = 1,
                            .epochs = 1, .iterations = CASE_ITERATIONS };
    enum error_code e = model_config_preset(&p->model, &batch, "tiny", err);
    if (e) return e;
    p->model.V = TASK_VOCABULARY, p->model.exact = exact;
    p->B = CASE_BATCH, p->S = rl_length(&job->task), p->micros = 1, p->chunks = 1, p->dtype = dtype, p->seed = 42;
    p->tensor = tensor_scheme_at(0)->head.name, p->attention = attention_scheme_at(0)->head.name;
    p->data = (struct data_request){ .scheme = data_scheme_at(0)->head.name, .bucket = 1000 };
    p->schedule = schedule_generator_at(0)->head.name;
    p->allreduce = algorithm_find(ALLREDUCE, NULL)->name, p->ep = p->etp = 1, p->degree = -1;
    p->dispatch = expert_scheme_at(0)->head.name, p->comm_streams = USUAL_COMM_STREAMS;
    e = optimizer_find(&p->optimizer, "adamw", err);
    if (!e) p->hyper = p->optimizer->usual, p->hyper.steps = CASE_ITERATIONS;
    job->kl = job->rule->kl, job->reward_kl = job->rule->reward_kl;
    if (!e) e = mesh_make(&p->mesh, size, err);
    return e ? e : plan_check(p, err);
}

/* ---- the family -------------------------------------------------------------------------------------------------- */

/* One case: what trains and what draws, by the sizes of axes as parts of the devices. */
struct rl_case {
    const char *name;
    int dp, tp, pp, cp;                 /* 0: all devices that are left */
    int draws, scores;                  /* devices of their own; 0: the tasks take turns */
    int staleness, minibatches, epochs;
};

static const struct rl_case cases[] = {
    { "dp", 0, 1, 1, 1, 0, 0, 0, 1, 1 },       { "tp", 1, 0, 1, 1, 0, 0, 0, 1, 1 },
    { "pp", 1, 1, 0, 1, 0, 0, 0, 1, 1 },       { "cp", 1, 1, 1, 0, 0, 0, 0, 1, 1 },
    { "dp-tp", 2, 0, 1, 1, 0, 0, 0, 2, 1 },    { "tp-pp", 1, 2, 0, 1, 0, 0, 1, 1, 1 },
    { "stale", 0, 1, 1, 1, 0, 0, 1, 2, 2 },    { "apart", 0, 1, 1, 1, 1, 1, 1, 1, 1 },
    { "apart-tp", 1, 0, 1, 1, 1, 1, 0, 1, 2 },
};
enum { CASES = sizeof cases / sizeof *cases };

/* Sizes of the mesh that trains; false: the devices do not fit. */
static bool sizes_of(const struct rl_case *one, int devices, int size[AXIS_COUNT])
{
    const struct { enum axis axis; int size; } asked[] = { { DP, one->dp }, { TP, one->tp }, { PP, one->pp },
                                                           { CP, one->cp } };
    int left = devices - one->draws - one->scores, rest = -1;
    if (left < 1) return false;
    for (int a = 0; a < AXIS_COUNT; a++) size[a] = 1;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        if (asked[i].size == 0) rest = (int)asked[i].axis;
        else if (left % asked[i].size != 0) return false;
        else size[asked[i].axis] = asked[i].size, left /= asked[i].size;
    }
    if (rest >= 0) size[rest] = left;
    /* One device on the axis is the case of another name. */
    return rest >= 0 && (left > 1 || devices == 1 + one->draws + one->scores);
}

static enum error_code run_case(struct job *verify, const struct rl_case *one, const struct policy_rule *rule,
                                const struct rl_job *job, struct error *err)
{
    struct rl_record record;
    struct error verdict = { .code = OK };
    const enum error_code e = rl_run(verify->world, job, (struct rl_listener){ NULL, NULL }, &record, err);
    if (!e && verify->speaks) {
        verdict.code = rl_verdict(&record, &job->plan, &verdict);
        cJSON *const o = verify_begin_case(verify, "rl", rule->name, &verdict);
        json_add(o, "devices_as %s tokens %g tensors %g", one->name, (double)record.serial.answers.tokens,
                 (double)record.comparison.compared);
        verify->count.invariants += record.serial.answers.tokens + record.serial.advantage.numbers;
    }
    if (!e && verify->prints) {
        printf("  %-14s %-9s %7lld %8lld  %s\n", rule->name, one->name, (long long)record.serial.answers.tokens,
               (long long)record.comparison.compared, verdict.code ? "FAILED" : "ok");
        if (verdict.code) printf("      %s\n", verdict.text);
        fflush(stdout);
    }
    rl_record_free(&record);
    return e;
}

/* A mesh on which the model does not fit, such as more parts of heads than heads, is refused, not counted. */
static enum error_code try_case(struct job *verify, const struct rl_case *one, const struct policy_rule *rule,
                                struct error *err)
{
    static struct rl_job job;           /* plans are large */
    int size[AXIS_COUNT], devices = 0;
    struct error why;
    if (!sizes_of(one, verify->world->size, size)) return OK;
    enum error_code e = rl_small_job(&job, size, rule->name, F64, SUMS_ROUND, &why);
    job.staleness = one->staleness, job.minibatches = one->minibatches, job.epochs = one->epochs, job.check = true;
    job.apart = one->draws > 0;
    /* Everything is scored, so that the devices that score have work with every rule. */
    if (job.apart && !rule->values && rule->distance != DISTANCE_NONE && job.kl == 0) job.kl = 0.01;
    for (int a = 0; a < AXIS_COUNT && job.apart; a++) job.rollout[a] = job.reference[a] = 1;
    if (!e) e = rl_devices(&job, &devices, &why);
    if (!e && devices != verify->world->size) return OK;
    if (e) return verify_refuse(verify, "rl", one->name, &why), OK;
    return run_case(verify, one, rule, &job, err);
}

enum error_code rl_verify(struct job *verify, struct error *err)
{
    const struct policy_rule *rule;
    const int P = verify->world->size;
    enum error_code e = OK;
    if (verify->prints)
        printf("\n%d device%s, rl\n  rule           devices    tokens  tensors\n", P, P == 1 ? "" : "s");
    for (int r = 0; (rule = policy_rule_at(r)) != NULL; r++)
        for (int c = 0; c < CASES && !e; c++) {
            /* Each rule on some of the meshes, each mesh with some of the rules. */
            if (c > 0 && (c + r + P) % 4 != 0) continue;
            if (verify_takes(verify, rule->name)) e = try_case(verify, &cases[c], rule, err);
        }
    return e;
}
