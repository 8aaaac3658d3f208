/* search.c -- tries plans of serving, and compares the best with the engine.  cli/train/ calls.  Errors: ERR_USAGE,
 * ERR_PLAN, ERR_FORMAT of tables, ERR_CHECK of iterations, ERR_MEMORY. */
#include "emulated_devices/serve/plans/search.h"
#include "emulated_devices/device/cluster.h"
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/serve/plans/measure.h"
#include "emulated_devices/serve/plans/trial.h"
#include "emulated_devices/serve/simulation.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const plan_goal_words[GOALS + 1] = { "latency", "time", "energy", NULL };

enum { FIT_REQUESTS = 12, FIT_ANSWER = 24 };    /* of a trial: some iterations of each size, in little time */
#define WORKSPACE 0x1p30                        /* bytes that a device keeps free, as APEX has it */
#define WORKSPACE_PART 16                       /* a small device keeps this part of its memory free */
#define FLOOR_MARGIN 1.05                       /* iterations this far above the fastest are not the host's */

/* A search that is under way. */
struct plan_search {
    const struct plan_question *question;
    struct plan_costs costs;            /* of the plan that is tried */
    struct plan_answer *answer;
    int64_t longest;                    /* tokens that the cache must have room for */
};

static bool is_mesh(const struct serving_plan *plan)
{
    return plan->attention.cells == 1 && plan->feedforward.cells == 1;
}

/* ---- all plans --------------------------------------------------------------------------------------------------- */

/* Heads and widths are cut evenly; key heads may be copied. */
static bool divides(const struct model_config *c, const struct serving_plan *plan)
{
    const int64_t a = plan->attention.devices, f = plan->feedforward.devices;
    return c->H % a == 0 && (c->K % a == 0 || a % c->K == 0) && c->F % f == 0 && c->V >= f && c->L % plan->stages == 0;
}

/* One of the cells has one group: more in both would be replicas. */
static int list_plans(const struct plan_question *question, struct serving_plan *list)
{
    const int N = question->devices;
    int n = 0;
    for (int R = 1; R <= N; R++)
        for (int P = 1; P <= N / R; P++) {
            if (N % (R * P) != 0) continue;
            const int S = N / (R * P);
            for (int k = 1; k <= 2 * S - 1 && n < PLANS_MOST; k++) {
                const int a = k <= S ? k : 1, f = k <= S ? 1 : k - S + 1;
                if (S % a != 0 || S % f != 0) continue;
                list[n] = (struct serving_plan){ R, P, { a, S / a }, { f, S / f } };
                n += divides(&question->base->model, &list[n]);
            }
        }
    return n;
}

/* ---- one plan ---------------------------------------------------------------------------------------------------- */

/* A plan that is tried, and the seconds that its devices have computed. */
struct tried { struct plan_search *search; const struct plan_outcome *to; double busy; };

static int64_t takes(void *context, int64_t replica, const struct iteration *const *part)
{
    struct tried *const tried = context;
    (void)replica;
    const struct step_cost cost = step_cost_of(&tried->search->costs, &tried->to->plan, part);
    tried->busy += cost.busy;
    return llrint(fmax(cost.seconds * 1e12, 1));
}

static struct serving_limits limits_of(const struct plan_search *search, const struct plan_outcome *outcome)
{
    struct serving_limits limits = search->question->limits;
    limits.blocks = outcome->blocks;
    return limits;
}

/* The blocks that devices have memory for, but no more than so many running requests can fill. */
static int64_t blocks_of(const struct plan_search *search, const struct plan_outcome *outcome)
{
    const struct plan_question *const q = search->question;
    const double memory = (double)q->base->cluster->memory, free = fmin(WORKSPACE, memory / WORKSPACE_PART);
    const double each = plan_block_bytes(&search->costs, &outcome->plan, q->limits.block_tokens);
    const int64_t most = q->limits.running * ((search->longest + q->limits.block_tokens - 1) / q->limits.block_tokens);
    if (q->limits.blocks > 0) return memory > 0 && outcome->weights + free + each > memory ? 0 : q->limits.blocks;
    if (memory == 0) return most;
    const double room = floor((memory - free - outcome->weights) / each);
    return room < 0 ? 0 : room > (double)most ? most : (int64_t)room;
}

static void take_outcome(const struct plan_search *search, struct plan_outcome *to,
                         const struct simulated_serving *simulated, double busy)
{
    const struct plan_question *const q = search->question;
    const double watts = (double)q->base->cluster->costs.watts, waits = q->waits_percent / 100.0;
    int64_t tokens = 0, several = 0;
    for (int64_t i = 0; i < q->requests->count; i++) {
        const struct request *const r = &q->requests->at[i];
        to->first_token += (double)(simulated->first[i] - r->arrival) * 1e-12;
        to->latency += (double)(simulated->last[i] - r->arrival) * 1e-12;
        if (r->most > 1) {
            to->per_token += (double)(simulated->last[i] - simulated->first[i]) * 1e-12 / (double)(r->most - 1);
            several++;
        }
        tokens += r->most;
    }
    const double n = (double)q->requests->count;
    to->first_token /= n, to->latency /= n, to->per_token /= several > 0 ? (double)several : 1;
    to->seconds = (double)simulated->end * 1e-12, to->tokens_per_second = (double)tokens / to->seconds;
    to->joules = watts * (busy + waits * fmax(0, q->devices * to->seconds - busy));
    to->steps = simulated->steps;
    for (int64_t i = 0; i < to->plan.replicas * to->plan.attention.cells; i++)
        to->preemptions += simulated->counts[i].preemptions;
}

static struct calibration fitted(const struct plan_answer *answer, const struct serving_plan *plan)
{
    const int devices = plan->attention.devices > plan->feedforward.devices ? plan->attention.devices
                                                                            : plan->feedforward.devices;
    for (int i = 0; i < answer->fits; i++)
        if (answer->fit[i].devices == devices) return answer->fit[i].calibration;
    return (struct calibration){ .factor = 1 };
}

static enum error_code try_plan(struct plan_search *search, struct plan_outcome *to, struct error *err)
{
    const struct plan_question *const q = search->question;
    struct tried tried = { search, to, 0 };
    struct simulated_serving simulated;
    const struct simulation simulation = { .requests = q->requests, .replicas = to->plan.replicas,
                                           .together = to->plan.attention.cells, .limits = limits_of(search, to),
                                           .takes = takes, .context = &tried };
    search->costs.calibration = fitted(search->answer, &to->plan);
    const enum error_code e = simulation_run(&simulation, &simulated, err);
    if (e) return e;
    take_outcome(search, to, &simulated, tried.busy);
    simulated_serving_free(&simulated);
    return search->costs.missing[0] ? fail(err, ERR_FORMAT, "the profile: %s", search->costs.missing) : OK;
}

static double goal_of(const struct plan_outcome *outcome, enum plan_goal goal)
{
    return goal == GOAL_LATENCY ? outcome->latency : goal == GOAL_TIME ? outcome->seconds : outcome->joules;
}

/* Equal plans keep the order of the list. */
static void sort_outcomes(struct plan_answer *answer, enum plan_goal goal)
{
    for (int64_t i = 1; i < answer->outcomes; i++) {
        const struct plan_outcome one = answer->outcome[i];
        int64_t at = i;
        for (; at > 0 && goal_of(&answer->outcome[at - 1], goal) > goal_of(&one, goal); at--)
            answer->outcome[at] = answer->outcome[at - 1];
        answer->outcome[at] = one;
    }
}

/* ---- tables beside the engine ------------------------------------------------------------------------------------ */

static double seconds_of(const struct trial_step *step) { return (double)step->takes * 1e-12; }

static double calibrated(const struct calibration *calibration, double tables)
{
    return fmax(calibration->factor * tables + calibration->rest, calibration->floor);
}

/* Errors of the tables, as parts of the engine's times. */
static void take_errors(const struct trial *trial, const struct calibration *calibration, int64_t *steps,
                        double *mean, double *most)
{
    *steps = 0, *mean = *most = 0;
    for (int r = 0; r < trial->plan.replicas; r++)
        for (int64_t i = 0; i < trial->of[r].count; i++) {
            const struct trial_step *const s = &trial->of[r].step[i];
            const double error = fabs(calibrated(calibration, s->tables) / seconds_of(s) - 1);
            *mean += error, *most = error > *most ? error : *most;
            ++*steps;
        }
    if (*steps > 0) *mean /= (double)*steps;
}

static int compare_times(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The line through times above the floor with the least squares of relative errors; the tables themselves, where such
 * times say nothing. */
static struct calibration line_above(const struct trial_steps *steps, double floor)
{
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int64_t i = 0; i < steps->count; i++) {
        const double t = seconds_of(&steps->step[i]), a = steps->step[i].tables, one = 1 / (t * t);
        if (t < FLOOR_MARGIN * floor) continue;
        w += one, x += one * a, y += one * t, xx += one * a * a, xy += one * a * t;
    }
    const double spread = w * xx - x * x;
    const double factor = spread > 1e-9 * w * xx ? (w * xy - x * y) / spread : 0;
    if (!(factor > 0)) return (struct calibration){ 1, 0, floor };
    return (struct calibration){ factor, (y - factor * x) / w, floor };
}

/* The floor is the one of some of the times with the least mean error: where the host is slowest, times are near it. */
static enum error_code fit_steps(const struct trial *trial, struct plan_fit *fit, struct error *err)
{
    enum { PARTS = 20 };
    const struct trial_steps *const steps = &trial->of[0];
    double *const time = malloc((size_t)steps->count * sizeof *time + 1);
    if (time == NULL) return fail(err, ERR_MEMORY, "no memory for the times of a trial");
    for (int64_t i = 0; i < steps->count; i++) time[i] = seconds_of(&steps->step[i]);
    qsort(time, (size_t)steps->count, sizeof *time, compare_times);
    fit->mean = INFINITY;
    for (int part = 0; part <= PARTS && steps->count > 0; part++) {
        struct plan_fit tried = { fit->devices, line_above(steps, time[part * (steps->count - 1) / PARTS]), 0, 0, 0 };
        take_errors(trial, &tried.calibration, &tried.steps, &tried.mean, &tried.most);
        if (tried.mean < fit->mean) *fit = tried;
    }
    free(time);
    return OK;
}

/* The first requests, with short answers, so that iterations of all kinds are few. */
static enum error_code fit_requests(const struct requests *all, struct requests *few, struct error *err)
{
    few->count = all->count < FIT_REQUESTS ? all->count : FIT_REQUESTS;
    few->at = malloc((size_t)few->count * sizeof *few->at + 1);
    if (few->at == NULL) return fail(err, ERR_MEMORY, "no memory for the requests of a trial");
    memcpy(few->at, all->at, (size_t)few->count * sizeof *few->at);
    for (int64_t i = 0; i < few->count; i++)
        if (few->at[i].most > FIT_ANSWER) few->at[i].most = FIT_ANSWER;
    return OK;
}

static enum error_code fit_degree(struct plan_search *search, int devices, const struct requests *few,
                                  struct error *err)
{
    struct plan_answer *const answer = search->answer;
    struct plan_outcome alone = { .plan = { 1, 1, { 1, devices }, { 1, devices } } };
    struct trial trial = { .costs = &search->costs, .plan = alone.plan };
    if (!divides(search->costs.model, &alone.plan) || answer->fits == PLAN_DEGREES) return OK;
    const int64_t tokens = search->question->limits.block_tokens;
    alone.blocks = search->question->limits.running * ((search->longest + tokens - 1) / tokens);
    const struct serving_limits limits = limits_of(search, &alone);
    enum error_code e = trial_run(&trial, search->question->base, few, &limits, err);
    if (e) return e;
    struct plan_fit *const fit = &answer->fit[answer->fits++];
    *fit = (struct plan_fit){ .devices = devices, .calibration.factor = 1 };
    e = fit_steps(&trial, fit, err);
    trial_free(&trial);
    return e;
}

static enum error_code fit_all(struct plan_search *search, const int *devices, int count, struct error *err)
{
    struct requests few = { 0 };
    enum error_code e = fit_requests(search->question->requests, &few, err);
    search->costs.calibration = (struct calibration){ .factor = 1 };
    for (int i = 0; i < count && !e; i++) e = fit_degree(search, devices[i], &few, err);
    free(few.at);
    return e;
}

/* The simulation with the engine's own times. */
struct replay { const struct trial *trial; int64_t *at; int64_t differ; };

static int64_t replay_takes(void *context, int64_t replica, const struct iteration *const *part)
{
    const struct replay *const replay = context;
    const struct trial_steps *const of = &replay->trial->of[replica];
    (void)part;
    return replay->at[replica] < of->count ? of->step[replay->at[replica]].takes : 1;
}

static void replay_compare(void *context, int64_t replica, const struct iteration *now, int64_t began, int64_t ended)
{
    struct replay *const replay = context;
    const struct trial_steps *const of = &replay->trial->of[replica];
    const int64_t i = replay->at[replica]++;
    (void)began, (void)ended;
    const uint64_t before = i > 0 && i <= of->count ? of->step[i - 1].composition : 0;
    if (i >= of->count || iteration_composition(before, now) != of->step[i].composition) replay->differ++;
}

static enum error_code replay_trial(const struct plan_search *search, const struct plan_outcome *outcome,
                                    const struct trial *trial, struct plan_check *check, struct error *err)
{
    struct replay replay = { .trial = trial, .at = calloc((size_t)outcome->plan.replicas, sizeof *replay.at) };
    struct simulated_serving simulated;
    const struct simulation simulation = { .requests = search->question->requests, .replicas = outcome->plan.replicas,
                                           .together = 1, .limits = limits_of(search, outcome),
                                           .takes = replay_takes, .context = &replay,
                                           .watch = { &replay, replay_compare } };
    enum error_code e = replay.at ? OK : fail(err, ERR_MEMORY, "no memory to compare iterations");
    if (!e) e = simulation_run(&simulation, &simulated, err);
    if (!e) simulated_serving_free(&simulated);
    check->differ = replay.differ;
    for (int r = 0; r < outcome->plan.replicas && !e; r++) {
        check->iterations += trial->of[r].count;
        if (replay.at[r] < trial->of[r].count) check->differ += trial->of[r].count - replay.at[r];
    }
    free(replay.at);
    if (!e && check->differ > 0)
        e = fail(err, ERR_CHECK, "%lld of %lld iterations of the engine have other requests or tokens in the "
                 "simulation", (long long)check->differ, (long long)check->iterations);
    return e;
}

static enum error_code check_best(struct plan_search *search, struct error *err)
{
    struct plan_answer *const answer = search->answer;
    struct plan_check *const check = &answer->check;
    *check = (struct plan_check){ .outcome = 0 };
    while (check->outcome < answer->outcomes && !is_mesh(&answer->outcome[check->outcome].plan)) check->outcome++;
    if (check->outcome == answer->outcomes) return check->outcome = -1, OK;
    const struct plan_outcome *const best = &answer->outcome[check->outcome];
    struct trial trial = { .costs = &search->costs, .plan = best->plan };
    const struct serving_limits limits = limits_of(search, best);
    int64_t steps;
    search->costs.calibration = fitted(answer, &best->plan);
    enum error_code e = trial_run(&trial, search->question->base, search->question->requests, &limits, err);
    if (e) return e;
    take_errors(&trial, &search->costs.calibration, &steps, &check->step_mean, &check->step_most);
    check->engine_latency = trial.latency, check->engine_seconds = trial.seconds;
    check->engine_iterations = steps, check->own_iterations = best->steps;
    e = replay_trial(search, best, &trial, check, err);
    trial_free(&trial);
    return e;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

static enum error_code check_question(const struct plan_question *q, struct error *err)
{
    if (q->base->model.mixture.E > 0)
        return fail(err, ERR_PLAN, "--model: a search of plans is for dense models: a router chooses by numbers");
    if (q->goal == GOAL_ENERGY && q->base->cluster->costs.watts == 0)
        return fail(err, ERR_USAGE, "--cluster %s: does not state the watts of a device, from which energy follows",
                    q->base->cluster->name);
    return OK;
}

/* Numbers of devices that groups may have, and that stages are apart. */
static int list_degrees(int devices, int *list)
{
    int n = 0;
    for (int d = 1; d <= devices && n < PLAN_DEGREES; d++)
        if (devices % d == 0) list[n++] = d;
    return n;
}

static enum error_code try_all(struct plan_search *search, const struct serving_plan *list, int plans,
                               struct error *err)
{
    struct plan_answer *const answer = search->answer;
    enum error_code e = OK;
    for (int i = 0; i < plans && !e; i++) {
        struct plan_outcome *const to = &answer->outcome[answer->outcomes];
        *to = (struct plan_outcome){ .plan = list[i] };
        to->weights = plan_weight_bytes(&search->costs, &to->plan);
        to->blocks = blocks_of(search, to);
        to->memory = to->weights + (double)to->blocks * plan_block_bytes(&search->costs, &to->plan,
                                                                        search->question->limits.block_tokens);
        if (to->blocks == 0) { answer->without_room++; continue; }
        if (to->blocks * search->question->limits.block_tokens < search->longest) { answer->too_long++; continue; }
        e = try_plan(search, to, err);
        answer->outcomes += !e;
    }
    if (!e && answer->outcomes == 0)
        e = fail(err, ERR_USAGE, "no plan of %d devices has room: %lld lack it for the weights, %lld for the longest "
                 "request", search->question->devices, (long long)answer->without_room, (long long)answer->too_long);
    return e;
}

enum error_code plans_search(const struct plan_question *question, struct plan_answer *answer, struct error *err)
{
    static struct serving_plan list[PLANS_MOST];
    int degrees[PLAN_DEGREES];
    struct plan_search search = { .question = question, .answer = answer,
                                  .costs = plan_costs_of(question->profile, &question->base->model,
                                                         question->base->cluster, question->base->dtype) };
    *answer = (struct plan_answer){ .check.outcome = -1 };
    enum error_code e = check_question(question, err);
    for (int64_t i = 0; i < question->requests->count; i++) {
        const int64_t needs = sequence_needs(question->requests->at[i].prompt.count, question->requests->at[i].most);
        if (needs > search.longest) search.longest = needs;
    }
    const int plans = e ? 0 : list_plans(question, list), count = list_degrees(question->devices, degrees);
    answer->outcome = calloc((size_t)plans + 1, sizeof *answer->outcome);
    if (!e && answer->outcome == NULL) e = fail(err, ERR_MEMORY, "no memory for %d plans", plans);
    if (!e && plans == 0)
        e = fail(err, ERR_PLAN, "--model: no plan of %d devices divides its heads, widths and layers",
                 question->devices);
    if (!e) e = profile_measure(&search.costs, degrees, count, question->limits.step_tokens, search.longest, err);
    if (!e) e = fit_all(&search, degrees, count, err);
    if (!e) e = try_all(&search, list, plans, err);
    if (!e) sort_outcomes(answer, question->goal);
    if (!e) e = check_best(&search, err);
    if (e) plan_answer_free(answer);
    return e;
}

void plan_answer_free(struct plan_answer *answer)
{
    free(answer->outcome);
    *answer = (struct plan_answer){ .check.outcome = -1 };
}
