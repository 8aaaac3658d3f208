/* route: chooses k of E experts for each token, and their weights.
 *
 * Source    N. Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts layer",
 *           arXiv:1701.06538; groups: DeepSeek-V2, arXiv:2405.04434, section 2.1.2; the correction bias: L. Wang et
 *           al., "Auxiliary-loss-free load balancing", arXiv:2408.15664; groups by two scores: DeepSeek-V3,
 *           arXiv:2412.19437; top-p: Q. Huang et al., "Harder tasks need more experts", arXiv:2403.07652; near: Y. Li
 *           et al., Uni-MoE 2.0, arXiv:2511.12609, as released.  ref/routers has the rules that are made of these
 * Shapes    logits, dlogits [N,E];  experts I32 [N,k];  weights, dweights [N,k];  bias double [E]
 * Forward   scores   s = softmax(row), or of each logit the sigmoid
 *           keys     s + bias; the logits where they have the same order: no bias, and no sums of two scores
 *           groups   E / groups neighbours each; kept are those with the best key, or the best sum of their two best
 *           experts  the k largest keys in kept groups, largest first; of equal ones, as of equal groups, the lower
 *                    index; NaN comes after all numbers
 *           top_p    only the first so many of them whose probabilities add up to it; the others are CHOICE_NONE
 *           weights  scale s of the chosen; normalized: scale s / sum of the chosen s, of sigmoids / (that sum + 1e-20)
 *           near     m_i = softmax at choice i over the experts that are not chosen before it and whose logits x have
 *                    (x_i - x) / max(|x_i|, |x|) <= 2 near;  weights  scale m / (sum of the chosen m + 1e-6)
 * Drop      of the choices of an expert below E in a sequence of S rows only the first `capacity` stay, in the order of
 *           rows or from the largest weight down (of equal ones in the order of rows); the others are marked
 *           (choice_dropped), and their weights become 0
 * Backward  with t = that divisor, or 1, and dw = scale dweights, 0 where the weight is 0:
 *           ds_i = (dw_i - sum_chosen(dw s) / t) / t  if normalized, else dw_i, for the chosen; others 0
 *           softmax: dlogits_j = s_j (ds_j - sum_chosen(ds s)) for all j of the row; if normalized, s may be the
 *           softmax over the chosen alone, and others have 0
 *           sigmoid: dlogits_j = s_j (1 - s_j) ds_j; near: the sum over choices of dm_i m_i (1 of i - softmax_j).
 *           The choice itself has no gradient.
 * Rounding  sums of a row from left to right
 * Called    ref/ops/ops.def lists the operations.  ref/model/mixture.c calls them for one device; devices call each
 *           as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/exp.h"
#include "ref/ops/reduce.h"
#include <math.h>

#define SIGMOIDS_ABOVE_0 R(1e-20)       /* as released: the divisor of sigmoids that have all become 0 */
#define NEAR_ABOVE_0 R(1e-6)            /* as released */

/* One row, and what its scores need.  top, total: of the softmax. */
struct FN(row) {
    const struct router_rule *rule;
    const real *x;
    const double *bias;                 /* NULL: zeros */
    int64_t E;
    real top, total;
    bool by_logits;                     /* keys are the logits */
    bool kept[ROUTER_MOST_GROUPS];      /* with groups */
};

static real FN(sigmoid)(real x) { return 1 / (1 + FN(fast_exp)(-x)); }

static void FN(softmax_over_row)(struct FN(row) *r)
{
    r->top = FN(max)(r->x, r->E), r->total = 0;
    for (int64_t e = 0; e < r->E; e++) r->total += FN(fast_exp)(r->x[e] - r->top);
}

static real FN(score)(const struct FN(row) *r, int64_t e)
{
    return r->rule->scores == SCORES_SIGMOID ? FN(sigmoid)(r->x[e]) : FN(fast_exp)(r->x[e] - r->top) / r->total;
}

static real FN(key)(const struct FN(row) *r, int64_t e)
{
    return r->by_logits ? r->x[e] : FN(score)(r, e) + (real)(r->bias ? r->bias[e] : 0);
}

static bool FN(better)(real a, real b) { return a > b || (b != b && a == a); }

/* ---- the choice -------------------------------------------------------------------------------------------------- */

static real FN(group_key)(const struct FN(row) *r, int64_t group)
{
    const int64_t size = r->E / r->rule->groups, first = group * size;
    real best = FN(key)(r, first), second = -(real)INFINITY;
    for (int64_t e = first + 1; e < first + size; e++) {
        const real key = FN(key)(r, e);
        if (FN(better)(key, best)) second = best, best = key;
        else if (FN(better)(key, second)) second = key;
    }
    return r->rule->sums_two ? best + second : best;
}

static void FN(keep_groups)(struct FN(row) *r)
{
    real key[ROUTER_MOST_GROUPS];
    for (int64_t g = 0; g < r->rule->groups; g++) key[g] = FN(group_key)(r, g), r->kept[g] = false;
    for (int64_t i = 0; i < r->rule->kept; i++) {
        int64_t best = -1;
        for (int64_t g = 0; g < r->rule->groups; g++)
            if (!r->kept[g] && (best < 0 || FN(better)(key[g], key[best]))) best = g;
        r->kept[best] = true;
    }
}

static bool FN(has_groups)(const struct router_rule *rule) { return rule->groups > 1; }

/* The best expert in kept groups that is not among the first `done` chosen. */
static int32_t FN(next_best)(const struct FN(row) *r, const int32_t *chosen, int64_t done)
{
    const int64_t size = FN(has_groups)(r->rule) ? r->E / r->rule->groups : r->E;
    int32_t best = -1;
    real of_best = 0;
    for (int32_t e = 0; e < r->E; e++) {
        bool taken = FN(has_groups)(r->rule) && !r->kept[e / size];
        for (int64_t i = 0; i < done; i++) taken = taken || chosen[i] == e;
        if (taken) continue;
        const real key = FN(key)(r, e);
        if (best < 0 || FN(better)(key, of_best)) best = e, of_best = key;
    }
    return best;
}

/* Keep the fewest choices whose probabilities add up to top_p. */
static void FN(cut)(int32_t *chosen, int64_t k, struct FN(row) *r)
{
    real sum = 0;
    int64_t n = 0;
    FN(softmax_over_row)(r);
    while (n < k && !(sum >= (real)r->rule->top_p)) sum += FN(fast_exp)(r->x[chosen[n++]] - r->top) / r->total;
    while (n < k) chosen[n++] = CHOICE_NONE;
}

static void FN(choose)(int32_t *chosen, int64_t k, struct FN(row) *r)
{
    r->by_logits = r->bias == NULL && !(r->rule->sums_two && FN(has_groups)(r->rule));
    if (!r->by_logits && r->rule->scores == SCORES_SOFTMAX) FN(softmax_over_row)(r);
    if (FN(has_groups)(r->rule)) FN(keep_groups)(r);
    for (int64_t i = 0; i < k; i++) chosen[i] = FN(next_best)(r, chosen, i);
    if (r->rule->top_p > 0) FN(cut)(chosen, k, r);
}

/* ---- the weights ------------------------------------------------------------------------------------------------- */

/* The logit of a choice. */
static real FN(logit)(const struct FN(row) *r, int32_t choice) { return r->x[choice_made(choice)]; }

/* The score of a choice, times the divisor below. */
static real FN(numerator)(const struct FN(row) *r, int32_t choice)
{
    const real x = FN(logit)(r, choice);
    return r->rule->scores == SCORES_SIGMOID ? FN(sigmoid)(x) : FN(fast_exp)(x - r->top);
}

/* Prepare the numerators.  A normalized softmax is one over the chosen alone. */
static real FN(divisor)(struct FN(row) *r, const int32_t *chosen, int64_t k)
{
    const bool sigmoid = r->rule->scores == SCORES_SIGMOID;
    real total = 0;
    if (!r->rule->normalized) {
        if (!sigmoid) FN(softmax_over_row)(r);
        return sigmoid ? 1 : r->total;
    }
    r->top = FN(logit)(r, chosen[0]);
    for (int64_t i = 1; i < k; i++)
        if (FN(logit)(r, chosen[i]) > r->top) r->top = FN(logit)(r, chosen[i]);
    for (int64_t i = 0; i < k; i++) total += FN(numerator)(r, chosen[i]);
    return sigmoid ? total + SIGMOIDS_ABOVE_0 : total;
}

/* The number of choices: fewer than k with top_p. */
static int64_t FN(choices)(const int32_t *chosen, int64_t k)
{
    int64_t n = 0;
    while (n < k && chosen[n] != CHOICE_NONE) n++;
    return n;
}

/* Whether expert e is one of those that choice i is compared with: not chosen before it, and nearly as good. */
static bool FN(is_near)(const struct FN(row) *r, int64_t e, const int32_t *chosen, int64_t i)
{
    const real best = FN(logit)(r, chosen[i]), x = r->x[e], size = REAL_FN(fmax)(REAL_FN(fabs)(best), REAL_FN(fabs)(x));
    for (int64_t j = 0; j < i; j++)
        if (choice_made(chosen[j]) == e) return false;
    return !((best - x) / size > 2 * (real)r->rule->near);
}

/* The probability of choice i among these. */
static real FN(among_near)(const struct FN(row) *r, const int32_t *chosen, int64_t i)
{
    real total = 0;
    for (int64_t e = 0; e < r->E; e++)
        if (FN(is_near)(r, e, chosen, i)) total += FN(fast_exp)(r->x[e] - FN(logit)(r, chosen[i]));
    return 1 / total;
}

static real FN(near_divisor)(const struct FN(row) *r, const int32_t *chosen, int64_t k)
{
    real sum = 0;
    for (int64_t i = 0; i < k; i++) sum += FN(among_near)(r, chosen, i);
    return sum + NEAR_ABOVE_0;
}

static void FN(row_weights)(real *w, const int32_t *chosen, int64_t k, struct FN(row) *r)
{
    const bool near = r->rule->scores == SCORES_NEAR;
    const int64_t n = FN(choices)(chosen, k);
    const real divisor = near ? FN(near_divisor)(r, chosen, n) : FN(divisor)(r, chosen, n);
    for (int64_t i = 0; i < n; i++)
        w[i] = (near ? FN(among_near)(r, chosen, i) : FN(numerator)(r, chosen[i])) / divisor * (real)r->rule->scale;
    for (int64_t i = n; i < k; i++) w[i] = 0;
}

void FN(route_weights)(struct tensor weights, struct tensor experts, struct tensor logits,
                       const struct router_rule *rule)
{
    const int64_t N = tensor_rows(logits), E = tensor_cols(logits), k = tensor_cols(weights);
    assert(experts.dtype == I32 && tensor_count(experts) == N * k && tensor_count(weights) == N * k && k <= E);

    #pragma omp parallel for schedule(static) if (N * E * k > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        struct FN(row) r = { .rule = rule, .x = CONST_DATA(logits) + n * E, .E = E };
        FN(row_weights)(DATA(weights) + n * k, (const int32_t *)experts.data + n * k, k, &r);
    }
}

void FN(route_forward)(struct tensor weights, struct tensor experts, struct tensor logits,
                       const struct router_rule *rule, const double *bias)
{
    const int64_t N = tensor_rows(logits), E = tensor_cols(logits), k = tensor_cols(weights);
    assert(experts.dtype == I32 && tensor_count(experts) == N * k && k <= E && rule->groups <= ROUTER_MOST_GROUPS);

    #pragma omp parallel for schedule(static) if (N * E * k > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        struct FN(row) r = { .rule = rule, .x = CONST_DATA(logits) + n * E, .E = E };
        if (rule->biased) r.bias = bias;
        FN(choose)((int32_t *)experts.data + n * k, k, &r);
    }
    FN(route_weights)(weights, experts, logits, rule);
}

/* ---- a capacity -------------------------------------------------------------------------------------------------- */

/* Whether choice j of an expert comes before choice i of the same. */
static bool FN(comes_before)(const real *w, int64_t j, int64_t i, bool by_weight)
{
    return by_weight && w[j] != w[i] ? w[j] > w[i] : j < i;
}

void FN(route_drop)(struct tensor weights, struct tensor experts, int64_t S, int64_t E, int64_t capacity,
                    bool by_weight)
{
    const int64_t N = tensor_rows(weights), k = tensor_cols(weights), places = S * k;
    assert(N % S == 0 && tensor_count(experts) == N * k);

    #pragma omp parallel for schedule(static) if (N * places > PARALLEL_FROM)
    for (int64_t b = 0; b < N / S; b++) {
        real *restrict w = DATA(weights) + b * places;
        int32_t *expert = (int32_t *)experts.data + b * places;
        for (int64_t i = 0; i < places; i++) {
            int64_t before = 0;
            for (int64_t j = 0; j < places; j++)
                before += choice_made(expert[j]) == expert[i] && FN(comes_before)(w, j, i, by_weight);
            if (before >= capacity && expert[i] >= 0 && expert[i] < E) expert[i] = choice_dropped(expert[i]);
        }
        for (int64_t i = 0; i < places; i++) w[i] = expert[i] < 0 ? 0 : w[i];
    }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* The gradient of a choice's score, if the scores were not divided.  What is dropped, or has weight 0, has none. */
static real FN(of_score)(const struct FN(row) *r, real w, real dw) { return w == 0 ? 0 : (real)r->rule->scale * dw; }

/* m_i = probability of choice i among those near it, weight m_i / t: dm_i = (dw_i - sum(dw m / t)) / t. */
static void FN(near_backward)(real *dx, const real *dw, const real *w, const int32_t *chosen, int64_t k,
                              const struct FN(row) *r)
{
    const real t = FN(near_divisor)(r, chosen, k);
    real inner = 0;
    for (int64_t i = 0; i < k; i++) inner += FN(among_near)(r, chosen, i) / t * FN(of_score)(r, w[i], dw[i]);
    for (int64_t e = 0; e < r->E; e++) dx[e] = 0;
    for (int64_t i = 0; i < k; i++) {
        const real m = FN(among_near)(r, chosen, i), dm = (FN(of_score)(r, w[i], dw[i]) - inner) / t;
        for (int64_t e = 0; e < r->E; e++)
            if (FN(is_near)(r, e, chosen, i)) dx[e] -= dm * m * m * FN(fast_exp)(r->x[e] - FN(logit)(r, chosen[i]));
        dx[choice_made(chosen[i])] += dm * m;
    }
}

static void FN(row_backward)(real *dx, const real *dw, const real *w, const int32_t *chosen, int64_t k,
                             struct FN(row) *r)
{
    const bool sigmoid = r->rule->scores == SCORES_SIGMOID, normalized = r->rule->normalized;
    const real divisor = FN(divisor)(r, chosen, k);
    real inner = 0;
    for (int64_t i = 0; i < k; i++)
        inner += FN(numerator)(r, chosen[i]) / divisor * FN(of_score)(r, w[i], dw[i]);
    for (int64_t e = 0; e < r->E; e++) dx[e] = sigmoid || normalized ? 0 : -FN(score)(r, e) * inner;
    for (int64_t i = 0; i < k; i++) {
        const real x = FN(logit)(r, chosen[i]), ds = FN(of_score)(r, w[i], dw[i]);
        real *const to = &dx[choice_made(chosen[i])];
        if (!sigmoid) *to = FN(numerator)(r, chosen[i]) / divisor * (ds - inner);
        else *to = FN(sigmoid)(x) * FN(sigmoid)(-x) * (normalized ? (ds - inner) / divisor : ds);
    }
}

void FN(route_backward_input)(struct tensor dlogits, struct tensor dweights, struct tensor weights,
                              struct tensor experts, struct tensor logits, const struct router_rule *rule)
{
    const int64_t N = tensor_rows(logits), E = tensor_cols(logits), k = tensor_cols(weights);
    assert(tensor_count(dlogits) == N * E && tensor_count(dweights) == N * k && tensor_count(experts) == N * k);

    #pragma omp parallel for schedule(static) if (N * E > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        struct FN(row) r = { .rule = rule, .x = CONST_DATA(logits) + n * E, .E = E };
        const int32_t *chosen = (const int32_t *)experts.data + n * k;
        const real *dw = CONST_DATA(dweights) + n * k, *w = CONST_DATA(weights) + n * k;
        real *dx = DATA(dlogits) + n * E;
        if (rule->scores == SCORES_NEAR) FN(near_backward)(dx, dw, w, chosen, FN(choices)(chosen, k), &r);
        else FN(row_backward)(dx, dw, w, chosen, FN(choices)(chosen, k), &r);
    }
}
