/* judge.c -- compares answers with the one-device model.  engine.c calls.  Errors: ERR_MEMORY, ERR_DIVERGED of the
 * reference's logits; what is wrong with an answer is no error here, but a verdict. */
#include "emulated_devices/serve/judge.h"
#include "ref/model/perturb.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

static bool judge_routes(const struct judge *judge) { return judge->model->config.mixture.E > 0; }

enum error_code judge_open(struct judge *judge, struct transformer *model, int64_t most, uint64_t seed, int parts,
                           struct error *err)
{
    const struct model_config *const c = &model->config;
    const size_t rows = (size_t)most, L = (size_t)c->L, E = (size_t)mixture_columns(&c->mixture);
    *judge = (struct judge){ .model = model, .seed = seed, .parts = parts, .rows = most };
    judge->logits = malloc(rows * (size_t)c->V * sizeof *judge->logits);
    judge->bound = calloc(rows, sizeof *judge->bound);
    judge->loose = calloc(rows, sizeof *judge->loose);
    judge->route = malloc(L * rows * (size_t)c->mixture.k * sizeof *judge->route + 1);
    judge->router = malloc(L * rows * E * sizeof *judge->router + 1);
    if (judge->logits && judge->bound && judge->loose && judge->route && judge->router) return OK;
    judge_close(judge);
    return fail(err, ERR_MEMORY, "no memory for the reference's logits of %lld tokens", (long long)most);
}

void judge_close(struct judge *judge)
{
    free(judge->logits), free(judge->bound), free(judge->loose), free(judge->route), free(judge->router);
    *judge = (struct judge){ 0 };
}

/* ---- the reference ----------------------------------------------------------------------------------------------- */

static struct tensor logits_of(const struct transformer *model)
{
    return model->config.logit_cap > 0 ? model->capped : model->logits;
}

static enum error_code pass(struct judge *judge, const int32_t *token, int64_t rows, struct error *err)
{
    double loss;
    return transformer_forward(judge->model, token, token, 1, rows, &loss, err);
}

/* A mixture may have layers without a router. */
static bool routes(const struct judge *judge, int64_t layer)
{
    return judge_routes(judge) && tensor_present(judge->model->block[layer].router);
}

static void note_routers(struct judge *judge, int64_t rows)
{
    const struct model_config *const c = &judge->model->config;
    const int64_t k = c->mixture.k, E = mixture_columns(&c->mixture);
    for (int64_t l = 0; l < c->L; l++) {
        if (!routes(judge, l)) continue;
        const struct block_activations *const a = &judge->model->block[l];
        memcpy(judge->route + l * rows * k, a->experts.data, (size_t)(rows * k) * sizeof *judge->route);
        for (int64_t i = 0; i < rows * E; i++) judge->router[l * rows * E + i] = tensor_get(a->router, i);
    }
}

static enum error_code run_truth(struct judge *judge, const int32_t *token, int64_t rows, struct error *err)
{
    const int64_t V = judge->model->config.V;
    judge->model->observer = (struct observer){ 0 }, judge->model->route = NULL;
    const enum error_code e = pass(judge, token, rows, err);
    if (e) return e;
    const struct tensor logits = logits_of(judge->model);
    for (int64_t i = 0; i < rows * V; i++) judge->logits[i] = tensor_get(logits, i);
    if (judge_routes(judge)) note_routers(judge, rows);
    return OK;
}

/* ---- how far rounding moves the reference ------------------------------------------------------------------------ */

/* Whether logits that differ by `bound` could choose other experts: the last that is chosen and the first that is not
 * are nearer than that.  Choices by groups, by a sum of probabilities or by nearness have more borders, and count as
 * open. */
static bool choice_is_near(const struct judge *judge, int64_t layer, const double *x, const int32_t *chosen,
                           double bound)
{
    const struct mixture_config *const m = &judge->model->config.mixture;
    const struct router_rule *const rule = &m->router;
    const double *const bias = transformer_router_bias(judge->model, (int)layer);
    const int64_t E = mixture_columns(m);
    double in = INFINITY, out = -INFINITY;
    if (rule->groups > 1 || rule->top_p > 0 || rule->scores == SCORES_NEAR) return true;
    for (int64_t e = 0; e < E; e++) {
        bool mine = false;
        /* A sigmoid and a softmax are nowhere steeper than their logits. */
        const double key = !rule->biased ? x[e] : rule->scores == SCORES_SIGMOID ? 1 / (1 + exp(-x[e])) + bias[e]
                                                                                 : NAN;
        if (isnan(key)) return true;
        for (int64_t i = 0; i < m->k; i++) mine |= chosen[i] == e;
        if (mine && key < in) in = key;
        if (!mine && key > out) out = key;
    }
    return in - out <= 2 * bound;
}

/* The farthest that a router's logits of this pass are from the truth's. */
static double router_distance(const struct judge *judge, int64_t layer, int64_t rows)
{
    const int64_t E = mixture_columns(&judge->model->config.mixture);
    const struct tensor x = judge->model->block[layer].router;
    double most = 0;
    for (int64_t i = 0; i < rows * E; i++)
        most = fmax(most, fabs(tensor_get(x, i) - judge->router[layer * rows * E + i]));
    return most;
}

/* From the first token with an open choice on, all have keys and values that may differ. */
static void find_loose(struct judge *judge, int64_t rows, const double *router_bound)
{
    const struct model_config *const c = &judge->model->config;
    const int64_t k = c->mixture.k, E = mixture_columns(&c->mixture);
    bool before = false;
    for (int64_t n = 0; n < rows; judge->loose[n++] = before)
        for (int64_t l = 0; l < c->L && !before; l++)
            before = routes(judge, l) && choice_is_near(judge, l, judge->router + (l * rows + n) * E,
                                                        judge->route + (l * rows + n) * k, router_bound[l]);
}

/* A row's bound is the farthest logit of any twin in any row of this request: rows are alike, and one twin's row may
 * by chance be near. */
static double twin_distance(const struct judge *judge, int64_t rows)
{
    const struct tensor logits = logits_of(judge->model);
    double most = 0;
    for (int64_t i = 0; i < rows * judge->model->config.V; i++)
        if (isfinite(judge->logits[i])) most = fmax(most, fabs(tensor_get(logits, i) - judge->logits[i]));
    return most;
}

static enum error_code run_twins(struct judge *judge, const int32_t *token, int64_t rows, struct error *err)
{
    const struct model_config *const c = &judge->model->config;
    double *const router = calloc((size_t)c->L, sizeof *router), most = 0;
    enum error_code e = router ? OK : fail(err, ERR_MEMORY, "no memory for the bounds of routers");
    for (int twin = 0; twin < JUDGE_TWINS && !e; twin++) {
        struct perturbation disturb = { .seed = judge->seed + (uint64_t)twin, .parts = judge->parts };
        judge->model->observer = perturbing_observer(&disturb);
        judge->model->route = judge_routes(judge) ? judge->route : NULL;
        e = pass(judge, token, rows, err);
        most = fmax(most, e ? 0 : twin_distance(judge, rows));
        for (int64_t l = 0; l < c->L && !e; l++)
            if (routes(judge, l)) router[l] = fmax(router[l], router_distance(judge, l, rows));
    }
    judge->model->observer = (struct observer){ 0 }, judge->model->route = NULL;
    for (int64_t n = 0; n < rows; n++) judge->bound[n] = most, judge->loose[n] = false;
    if (!e && judge_routes(judge)) find_loose(judge, rows, router);
    free(router);
    return e;
}

/* ---- the choice of a token --------------------------------------------------------------------------------------- */

/* Whether the largest logit is larger than all others by more than twice the bound. */
static bool largest_is_clear(struct tensor logits, int32_t token, double bound)
{
    for (int64_t v = 0; v < tensor_count(logits); v++)
        if (v != token && tensor_get(logits, token) - tensor_get(logits, v) <= 2 * bound) return false;
    return true;
}

static int judge_falling(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* By how much a sum of probabilities may change, if each logit moves by the bound: the odds of the sum change by a
 * factor of at most exp(2 bound / T), which is 1 + moved.  2^-40 is the rounding of the sums. */
static double reach_of(double sum, double moved) { return sum * fabs(1 - sum) * moved + 0x1p-40; }

/* Whether the tokens that stay after the cuts by top_k and top_p stay with any logits within the bound. */
static bool cuts_are_clear(const struct sampling *how, struct tensor logits, double bound, double moved, double *score)
{
    const int64_t V = tensor_count(logits);
    int64_t n = V;
    double total = 0, gone = 0;
    for (int64_t v = 0; v < V; v++) score[v] = tensor_get(logits, v) / how->temperature;
    qsort(score, (size_t)V, sizeof *score, judge_falling);
    if (how->top_k > 0 && how->top_k < V) {
        n = how->top_k;
        if (score[n - 1] - score[n] <= 2 * bound / how->temperature) return false;
    }
    if (how->top_p >= 1) return true;
    for (int64_t i = 0; i < n; i++) total += exp(score[i] - score[0]);
    for (; n > 1; n--) {
        /* The least likely are left out until more than 1 - top_p would be gone: no sum may be near that. */
        gone += exp(score[n - 1] - score[0]) / total;
        if (fabs(gone - (1 - how->top_p)) <= reach_of(gone, moved)) return false;
        if (gone > 1 - how->top_p) return score[n - 1] - (n < V ? score[n] : -INFINITY) > 2 * bound / how->temperature;
    }
    return true;
}

/* Whether the number that draws is away from both ends of the token's part of [0, 1). */
static bool draw_is_clear(const double *p, int32_t token, double u, double moved)
{
    double before = 0;
    for (int32_t v = 0; v < token; v++) before += p[v];
    const double after = before + p[token];
    return (before == 0 || u - before > reach_of(before, moved)) && after - u > reach_of(after, moved);
}

bool choice_is_clear(const struct sampling *how, struct tensor logits, double u, double bound, double *p,
                     int32_t *token, enum error_code *code, struct error *err)
{
    *code = sampling_distribution(how, logits, 0, p, err);
    if (*code) return false;
    *token = sampling_draw(p, tensor_count(logits), u);
    if (bound == 0) return true;
    if (how->temperature == 0) return largest_is_clear(logits, *token, bound);
    const double moved = expm1(2 * bound / how->temperature);
    if (!draw_is_clear(p, *token, u, moved)) return false;
    double *const score = malloc((size_t)tensor_count(logits) * sizeof *score);
    if (score == NULL) return *code = fail(err, ERR_MEMORY, "no memory to sort logits"), false;
    const bool clear = cuts_are_clear(how, logits, bound, moved, score);
    free(score);
    return clear;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

/* One token of an answer. */
struct judged_token { int64_t number, row; int32_t token; struct place_numbers numbers; struct tensor logits; };

static void call_wrong(struct verdict *verdict, const struct judged_token *at, const char *what, double a, double b)
{
    verdict->wrong++;
    if (verdict->first_wrong >= 0) return;
    verdict->first_wrong = at->number;
    snprintf(verdict->why, sizeof verdict->why, what, (int)at->token, a, b);
}

static double farthest_of(const struct judge *judge, const struct judged_token *at)
{
    const double *const truth = judge->logits + at->row * judge->model->config.V;
    double most = 0;
    for (int64_t v = 0; v < tensor_count(at->logits); v++) {
        const double x = tensor_get(at->logits, v);
        if (x != truth[v]) most = fmax(most, isfinite(x - truth[v]) ? fabs(x - truth[v]) : INFINITY);
    }
    return most;
}

/* The token that a row of logits chooses, and whether all logits within the bound choose the same.
 * @param p  [2V] scratch. */
static bool choose(const struct judge *judge, const struct request *request, const struct judged_token *at,
                   struct tensor logits, double bound, double *p, int32_t *token, enum error_code *code,
                   struct error *err)
{
    const struct judged_proposals *const all = &judge->proposals;
    const int64_t V = judge->model->config.V;
    const bool clear = choice_is_clear(&request->how, logits, at->numbers.draw, bound, p, token, code, err);
    if (*code || all->token == NULL || all->token[at->number] == NO_PROPOSAL) return clear;
    const struct proposal proposal = { all->token[at->number], all->q ? all->q + at->number * V : NULL };
    *token = proposal_settle(all->rule, p, V, proposal, &at->numbers, p + V);
    /* How near the quotient of p and q is to its number is not known within a bound. */
    return clear && (bound == 0 || request->how.temperature == 0);
}

static enum error_code judge_token(const struct judge *judge, const struct request *request,
                                   const struct judged_token *at, double *p, struct verdict *verdict,
                                   struct error *err)
{
    const double bound = judge->model->config.exact ? 0 : judge->bound[at->row], far = farthest_of(judge, at);
    const struct tensor truth = tensor_2d(judge->logits + at->row * judge->model->config.V, F64, 1,
                                          judge->model->config.V);
    int32_t own, expected;
    enum error_code e;
    choose(judge, request, at, at->logits, 0, p, &own, &e, err);
    if (e) return e;
    const bool clear = choose(judge, request, at, truth, bound, p, &expected, &e, err);
    if (e) return e;
    verdict->tokens++;
    verdict->bound = fmax(verdict->bound, bound);
    if (own != at->token)
        return call_wrong(verdict, at, "is %d; its own logits, settings and seed choose %.0f", own, 0), OK;
    if (far > bound && !judge->loose[at->row])
        return call_wrong(verdict, at, bound > 0 ? "is %d; its logits are off by %.2e, and may be by %.2e"
                          : "is %d; its logits have other bits: off by %.2e", far, bound), OK;
    if (far <= bound) verdict->farthest = fmax(verdict->farthest, far);
    if (far > bound || !clear) {
        verdict->open++, verdict->open_equal += expected == at->token;
        return OK;
    }
    if (expected != at->token) return call_wrong(verdict, at, "is %d; the reference has %.0f", expected, 0), OK;
    verdict->right++;
    return OK;
}

enum error_code judge_answer(struct judge *judge, const struct request *request, const int32_t *token, int64_t count,
                             struct tensor logits, struct verdict *verdict, struct error *err)
{
    const int64_t V = judge->model->config.V, prompt = request->prompt.count;
    double *const p = malloc(2 * (size_t)V * sizeof *p);
    *verdict = (struct verdict){ .first_wrong = -1 };
    enum error_code e = p ? OK : fail(err, ERR_MEMORY, "no memory for %lld probabilities", (long long)V);
    /* Nothing follows the last token. */
    if (!e) e = run_truth(judge, token, count - 1, err);
    if (!e && !judge->model->config.exact) e = run_twins(judge, token, count - 1, err);
    for (int64_t i = 0; i < count - prompt && !e; i++) {
        const struct judged_token at = { i, prompt - 1 + i, token[prompt + i], place_numbers_of(request->how.seed, i),
                                         tensor_rows_of(logits, i, 1) };
        e = judge_token(judge, request, &at, p, verdict, err);
    }
    free(p);
    return e;
}

void verdict_add(struct verdict *sum, const struct verdict *one, const char *name)
{
    if (sum->why[0] == '\0' && one->why[0] != '\0') {
        sum->first_wrong = one->first_wrong;
        snprintf(sum->why, sizeof sum->why, "request %.40s: token %lld %.60s", name, (long long)one->first_wrong,
                 one->why);
    }
    sum->tokens += one->tokens, sum->right += one->right, sum->open += one->open, sum->wrong += one->wrong;
    sum->open_equal += one->open_equal;
    sum->farthest = fmax(sum->farthest, one->farthest), sum->bound = fmax(sum->bound, one->bound);
}
