/* apex_claims.c -- APEX's claims: plans of a model of 8B on a node of 4 described devices.  claims.c calls.  Errors are
 * those of clusters, presets and plans_search. */
#include "emulated_devices/bench/serving/claims.h"
#include "emulated_devices/device/cluster.h"
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/serve/plans/search.h"
#include "emulated_devices/verify/cases/case.h"
#include <math.h>
#include <string.h>

enum { DEVICES = 4, REQUESTS = 10, POSITIONS = 1024 };

/* The plan that a rule takes without a search: one replica, each matrix cut over the node. */
static const struct plan_outcome *usual_of(const struct plan_answer *answer)
{
    for (int64_t i = 0; i < answer->outcomes; i++)
        if (answer->outcome[i].plan.attention.devices == DEVICES &&
            answer->outcome[i].plan.feedforward.devices == DEVICES) return &answer->outcome[i];
    return answer->outcome;
}

static void claim_latency(const struct serving_claims *claims, const struct plan_answer *answer)
{
    const struct plan_outcome *const best = answer->outcome, *const usual = usual_of(answer);
    const struct plan_check *const c = &answer->check;
    const double off = fabs(answer->outcome[c->outcome].latency / c->engine_latency - 1);
    serving_claim(claims, "APEX", "times as fast as the usual plan, all matrices cut over the node (most: 3.37)", "> 1",
                  usual->latency / best->latency >= 1, "%.2f: %d replicas, %d stages", usual->latency / best->latency,
                  best->plan.replicas, best->plan.stages);
    serving_claim(claims, "APEX", "iterations with the engine's requests and tokens, with its times", "all",
                  c->differ == 0 && c->iterations > 0, "%lld of %lld", (long long)(c->iterations - c->differ),
                  (long long)c->iterations);
    serving_claim(claims, "APEX", "latency by fitted tables, % off the engine's (the paper: off vLLM's, 10.7)", "10.7",
                  off < 0.107, "%.2f; an iteration %.2f", 100 * off, 100 * c->step_mean);
}

/* @param fastest  joules of the plan with the least latency. */
static void claim_energy(const struct serving_claims *claims, const struct plan_answer *answer, double fastest)
{
    const struct plan_outcome *const best = answer->outcome;
    serving_claim(claims, "APEX", "energy of the best plan below that of the fastest, in %", "up to 45",
                  best->joules <= fastest, "%.1f: %d replicas, %d stages", 100 * (1 - best->joules / fastest),
                  best->plan.replicas, best->plan.stages);
}

static enum error_code search_for(struct plan_question *question, enum plan_goal goal, struct plan_answer *answer,
                                  struct error *err)
{
    question->goal = goal;
    return plans_search(question, answer, err);
}

enum error_code apex_claims(const struct serving_claims *claims, struct error *err)
{
    struct cluster cluster;
    struct time_profile profile = { 0 };
    struct plan_answer answer;
    struct requests requests = { 0 };
    struct plan plan = case_plan(1, 1, 1);
    struct trace_request trace = { .requests = REQUESTS, .scale = 0.2, .rate = 20 };
    struct plan_question question = { .base = &plan, .requests = &requests, .devices = DEVICES, .waits_percent = 40,
                                      .limits = { .step_tokens = 512, .running = 32, .block_tokens = 16,
                                                  .shares = true },
                                      .profile = &profile };
    int64_t batch, cut;
    enum error_code e = cluster_find(&cluster, "h100-node", err);
    if (!e) e = model_config_preset(&plan.model, &batch, "llama3-8b", err);
    plan.B = plan.micros = 1, plan.S = plan.model.S = POSITIONS, plan.dtype = BF16, plan.cluster = &cluster;
    plan.optimizer = &no_optimizer, plan.hyper = no_optimizer.usual;
    const struct request_rules rules = { .V = plan.model.V, .S = POSITIONS, .seed = 1 };
    if (!e) e = trace_law_find(&trace.law, "lmsys", err);
    if (!e) e = requests_draw(&requests, &trace, &rules, &cut, err);
    if (!e) e = search_for(&question, GOAL_LATENCY, &answer, err);
    if (!e) {
        const double fastest = answer.outcome[0].joules;
        claim_latency(claims, &answer), plan_answer_free(&answer);
        e = search_for(&question, GOAL_ENERGY, &answer, err);
        if (!e) claim_energy(claims, &answer, fastest), plan_answer_free(&answer);
    }
    requests_free(&requests), profile_free(&profile);
    return e;
}
