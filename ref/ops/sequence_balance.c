/* sequence_balance: a balance loss of each sequence by itself.
 *
 * Source    DeepSeek-AI, DeepSeek-V2, arXiv:2405.04434, equations 23 to 25; DeepSeek-V3, arXiv:2412.19437, equations 17
 *           to 20
 * Shapes    logits, dlogits [N,E];  experts I32 [N,k];  whole I32 [B S,k]: the choices of B sequences of S rows, of
 *           each of which N/B rows are here, sequence by sequence
 * Loss      of a sequence: sum_e f_e P_e,  f_e = E / (k S) choices of e,  P_e = mean over its rows of s'_e,
 *           s' = the softmax of the row; of sigmoids s: s / sum of the row's s; with SCORES_NEAR the softmax over the
 *           row's choices alone, and f_e = E / S choices of e (Uni-MoE 2.0, as released)
 * Forward   the sum over sequences of what the rows here add to P_e, times f_e of the whole sequence
 * Backward  with g_e = slope f_e / S of the row's sequence: softmax: dlogits_j += s'_j (g_j - sum_e(g_e s'_e));
 *           sigmoid: dlogits_j += s_j (1 - s_j) / (sum of s) (g_j - sum_e(g_e s'_e)).  Choices have no gradient.
 * Rounding  scores in the format, sums over rows in double
 * Called    ref/ops/ops.def lists the operations.  ref/model/mixture.c calls them for one device; devices call each
 *           as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/exp.h"
#include "ref/ops/reduce.h"

/* A row adds this to the sum for each expert.  With exact sums it is a multiple of 2^-32: devices may hold any rows of
 * a sequence, and in fp64 their sums are exact up to 2^21 in all. */
#ifdef SUMS_EXACTLY
#include "ref/exact/grid.h"
static double FN(of_row)(double x) { return grid_round(x * 0x1p32) * 0x1p-32; }
#else
static double FN(of_row)(double x) { return x; }
#endif

/* Return what a row's scores need. */
struct FN(scores) {
    const real *x;
    bool sigmoid;
    const int32_t *chosen;              /* the row's k choices, if scores are of these alone; else NULL */
    int64_t k;
    real top, total;
};

static bool FN(counts)(const struct FN(scores) *s, int64_t e)
{
    bool counts = s->chosen == NULL;
    for (int64_t i = 0; i < s->k && s->chosen; i++) counts = counts || choice_made(s->chosen[i]) == e;
    return counts;
}

static real FN(part)(const struct FN(scores) *s, int64_t e)
{
    if (!FN(counts)(s, e)) return 0;
    return s->sigmoid ? 1 / (1 + FN(fast_exp)(-s->x[e])) : FN(fast_exp)(s->x[e] - s->top);
}

static struct FN(scores) FN(scores_of)(const real *x, int64_t E, const int32_t *chosen, int64_t k,
                                       const struct router_rule *rule)
{
    struct FN(scores) s = { .x = x, .sigmoid = rule->scores == SCORES_SIGMOID, .k = k,
                            .chosen = rule->scores == SCORES_NEAR ? chosen : NULL };
    s.top = FN(max)(x, E);
    for (int64_t e = 0; e < E; e++) s.total += FN(part)(&s, e);
    return s;
}

/* f_e of a sequence with one choice of e. */
static double FN(share_of_one)(int64_t E, int64_t S, int64_t k, const struct router_rule *rule)
{
    return (double)E / (double)(rule->scores == SCORES_NEAR ? S : S * k);
}

enum { COUNTED = 4096 };                /* experts whose choices are counted at once: 16 KiB of the stack */

/* How often the experts from `first` on were chosen in a sequence. */
struct FN(counted) { const int32_t *sequence; int64_t first; int32_t of[COUNTED]; };

/* Count the choices of COUNTED experts from `first` on, if they are not the ones counted last: all rows of a sequence
 * need the same counts. */
static const int32_t *FN(choices_from)(struct FN(counted) *counted, const int32_t *sequence, int64_t places,
                                       int64_t first)
{
    if (counted->sequence == sequence && counted->first == first) return counted->of;
    counted->sequence = sequence, counted->first = first;
    for (int64_t e = 0; e < COUNTED; e++) counted->of[e] = 0;
    for (int64_t i = 0; i < places; i++) {
        const int64_t e = sequence[i] == CHOICE_NONE ? -1 : choice_made(sequence[i]) - first;
        if (e >= 0 && e < COUNTED) counted->of[e]++;
    }
    return counted->of;
}

/* How many of E experts are in the block that begins with the `first`th. */
static int64_t FN(in_block)(int64_t E, int64_t first) { return E - first < COUNTED ? E - first : COUNTED; }

/* f_e times what rows of a sequence add to P_e, summed over the rows, for some experts. */
struct FN(added) { double of[COUNTED]; };

void FN(sequence_balance_forward)(double *sum, struct tensor logits, struct tensor experts, struct tensor whole,
                                  int64_t S, const struct router_rule *rule)
{
    const int64_t N = tensor_rows(logits), E = tensor_cols(logits), k = tensor_cols(experts);
    const int32_t *expert = experts.data, *all = whole.data;
    const double one = FN(share_of_one)(E, S, k, rule);
    const int64_t B = tensor_rows(whole) / S, here = B > 0 ? N / B : 0;
    struct FN(counted) counted;
    struct FN(added) added;
    counted.sequence = NULL;
    assert(tensor_rows(whole) % S == 0 && N == B * here);
    for (int64_t b = 0; b < B; b++)
        for (int64_t first = 0; first < E; first += COUNTED) {
            const int32_t *const chosen = FN(choices_from)(&counted, all + b * S * k, S * k, first);
            const int64_t block = FN(in_block)(E, first);
            for (int64_t e = 0; e < block; e++) added.of[e] = 0;
            for (int64_t n = b * here; n < (b + 1) * here; n++) {
                const struct FN(scores) s = FN(scores_of)(CONST_DATA(logits) + n * E, E, expert + n * k, k, rule);
                for (int64_t e = 0; e < block; e++)
                    added.of[e] += FN(of_row)(one * chosen[e] * (FN(part)(&s, first + e) / s.total / (double)S));
            }
            for (int64_t e = 0; e < block; e++) *sum += added.of[e];
        }
}

/* A row's sum_e(g_e s'_e). */
static real FN(inner_of)(struct FN(counted) *counted, const struct FN(scores) *s, const int32_t *sequence,
                         int64_t places, int64_t E, double one)
{
    real inner = 0;
    for (int64_t first = 0; first < E; first += COUNTED) {
        const int32_t *const chosen = FN(choices_from)(counted, sequence, places, first);
        for (int64_t e = 0; e < FN(in_block)(E, first); e++)
            if (chosen[e] > 0) inner += (real)(one * chosen[e]) * FN(part)(s, first + e) / s->total;
    }
    return inner;
}

void FN(sequence_balance_backward_input)(struct tensor dlogits, struct tensor logits, struct tensor experts,
                                         struct tensor whole, int64_t S, const struct router_rule *rule, double slope)
{
    const int64_t N = tensor_rows(logits), E = tensor_cols(logits), k = tensor_cols(experts);
    const int32_t *expert = experts.data, *all = whole.data;
    const double one = slope * FN(share_of_one)(E, S, k, rule) / (double)S;
    const int64_t B = tensor_rows(whole) / S, here = B > 0 ? N / B : 0;
    assert(tensor_count(dlogits) == N * E && N == B * here);

    #pragma omp parallel if (N * E > PARALLEL_FROM)
    {
        struct FN(counted) counted;
        counted.sequence = NULL;
        #pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n++) {
            const struct FN(scores) s = FN(scores_of)(CONST_DATA(logits) + n * E, E, expert + n * k, k, rule);
            const int32_t *const sequence = all + n / here * S * k;
            const real inner = FN(inner_of)(&counted, &s, sequence, S * k, E, one);
            real *restrict dx = DATA(dlogits) + n * E;
            for (int64_t first = 0; first < E; first += COUNTED) {
                const int32_t *const chosen = FN(choices_from)(&counted, sequence, S * k, first);
                for (int64_t e = 0; e < FN(in_block)(E, first); e++) {
                    const real p = FN(part)(&s, first + e);
                    dx[first + e] += p / s.total * (s.sigmoid ? 1 - p : 1) * ((real)(one * chosen[e]) - inner);
                }
            }
        }
    }
}
