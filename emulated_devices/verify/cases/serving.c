/* serving.c -- answers drawn requests on a mesh, beside one device.  verify/jobs/serving.c calls.  Errors: ERR_MEMORY,
 * ERR_COMM, and those of plan_check; a wrong token is a verdict. */
#include "emulated_devices/verify/cases/serving.h"
#include "emulated_devices/serve/engine.h"
#include "emulated_devices/verify/cases/case.h"
#include <string.h>

enum { POSITIONS = 24 };                /* of the models: a few blocks of a few tokens */

/* Room for three of the longest requests: sequences are preempted. */
static const struct serving_limits limits = { .step_tokens = 20, .running = 6, .chunk = 5, .shares = true, .blocks = 24,
                                              .block_tokens = 3, .host_blocks = 6 };

/* ---- cases ------------------------------------------------------------------------------------------------------- */

/* Grouped heads; latent attention with experts; windows in every other layer. */
static const struct { const char *name; void (*take)(struct plan *); } families[] = {
    { "llama", case_take_llama }, { "deepseek-v3", case_take_deepseek_v3 }, { "gemma2", case_take_gemma2 },
};
enum { FAMILIES = sizeof families / sizeof *families };

/* Four devices have six meshes, among them two axes each; other numbers repeat what these have shown. */
enum { MANY_ON = 4, MANY = 1000, FEW = 60 };

bool serving_case_at(int devices, int number, struct serving_case *it)
{
    int mesh = 0;
    for (int dp = 1; dp <= devices; dp++)
        for (int tp = 1; tp <= devices; tp++) {
            if (devices % (dp * tp) != 0 || mesh++ != number / FAMILIES) continue;
            *it = (struct serving_case){ families[number % FAMILIES].name, families[number % FAMILIES].take, dp, tp,
                                         devices / (dp * tp), devices == MANY_ON ? MANY : FEW };
            return true;
        }
    return false;
}

static enum error_code make_plan(const struct serving_case *it, struct plan *p, struct error *err)
{
    *p = case_plan(it->dp, it->tp, it->pp);
    it->take(p);
    p->optimizer = &no_optimizer, p->hyper = no_optimizer.usual;
    p->B = it->dp, p->micros = 1, p->S = p->model.S = POSITIONS, p->dtype = F32;
    p->model.exact = SUMS_EXACT;
    p->model.dropout_embedding = p->model.dropout_residual = p->model.dropout_attention = 0;
    p->model.mixture.balance_coefficient = p->model.mixture.z_coefficient = 0;
    p->model.mixture.sequence_coefficient = 0;
    const enum error_code e = plan_check(p, err);
    return e ? e : serving_takes(p, &limits, err);
}

enum error_code serving_case_takes(const struct serving_case *it, struct error *err)
{
    struct plan p;
    return make_plan(it, &p, err);
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

static enum error_code draw_requests(const struct serving_case *it, const struct plan *p, struct requests *requests,
                                     struct error *err)
{
    const struct request_rules rules = { .V = p->model.V, .S = p->S, .seed = p->seed };
    struct trace_request drawn = { .requests = it->requests, .scale = 0.06, .rate = 50000, .shared = 4,
                                   .temperature = 0.8 };
    int64_t cut;
    const enum error_code e = trace_law_find(&drawn.law, "lmsys", err);
    return e ? e : requests_draw(requests, &drawn, &rules, &cut, err);
}

/* Every request has as many tokens as it asked for, all judged and right; every block is free. */
static void judge_case(const struct requests *requests, const struct serving_record *record,
                       struct serving_outcome *outcome)
{
    struct error *const verdict = &outcome->verdict;
    struct verdict all = { .first_wrong = -1 };
    for (int64_t i = 0; i < requests->count; i++) {
        const struct answer *const a = &record->answer[i];
        verdict_add(&all, &a->verdict, requests->at[i].name);
        outcome->requests += a->tokens == requests->at[i].most, outcome->tokens += a->tokens;
    }
    if (outcome->requests < requests->count)
        fail(verdict, ERR_CHECK, "%lld of %lld requests have as many tokens as they asked for",
             (long long)outcome->requests, (long long)requests->count);
    if (!verdict->code && (all.wrong > 0 || all.right != outcome->tokens))
        fail(verdict, ERR_CHECK, "%lld of %lld tokens are right, %lld open: %s", (long long)all.right,
             (long long)outcome->tokens, (long long)all.open, all.why);
    for (int64_t r = 0; r < record->replicas; r++) {
        const struct replica_counts *const c = &record->replica[r];
        outcome->preempted += c->counts.preemptions, outcome->shared += c->counts.shared_tokens;
        if (!verdict->code && (c->free_blocks != limits.blocks || c->free_host != limits.host_blocks))
            fail(verdict, ERR_CHECK, "replica %lld has %lld of %lld blocks free at the end", (long long)r,
                 (long long)c->free_blocks, (long long)limits.blocks);
    }
}

static enum error_code serve_case(const struct plan *p, const struct requests *requests,
                                  struct serving_outcome *outcome, struct error *err)
{
    const struct serving_job job = { .plan = p, .requests = requests, .limits = limits, .check = true };
    struct serving_record record = { 0 };
    struct device device;
    struct comm comm;
    enum error_code e = device_open(&device, NULL, p->dtype, 0, err);
    if (e) return e;
    e = comm_open(&comm, &device, err);
    if (!e) {
        e = serve_requests(&comm, &job, &record, err);
        if (!e && comm.rank == 0) judge_case(requests, &record, outcome);
        serving_record_free(&record);
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

enum error_code case_serving(const struct serving_case *it, struct serving_outcome *outcome, struct error *err)
{
    struct requests requests = { 0 };
    struct plan p;
    *outcome = (struct serving_outcome){ .verdict = { .code = OK } };
    enum error_code e = make_plan(it, &p, err);
    if (!e) e = draw_requests(it, &p, &requests, err);
    if (!e) e = serve_case(&p, &requests, outcome, err);
    requests_free(&requests);
    return e;
}
