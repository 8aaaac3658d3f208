/* sampling.c -- the probabilities of the next token, and a draw from them.
 *
 * generate.c calls this file.  Errors are ERR_DIVERGED and ERR_MEMORY; p is undefined then.
 */
#include "ref/text/sampling.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct candidate { double score; int64_t token; };

/* The largest first; of equals the one with the larger number, so that the smaller is cut first. */
static int falling(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return (x->token < y->token) - (x->token > y->token);
}

/* How many of the first stay. */
static int64_t cut_to_k(const struct candidate *candidate, int64_t n, int64_t k)
{
    if (k == 0 || k >= n) return n;
    /* Equals of the k-th stay, too, as in transformers. */
    while (k < n && candidate[k].score == candidate[k - 1].score) k++;
    return k;
}

/* Tokens go, the smallest first, while the sum of those that go is not above 1 - p. */
static int64_t cut_to_p(const struct candidate *candidate, int64_t n, double top_p)
{
    double total = 0, gone = 0;
    if (top_p >= 1) return n;
    for (int64_t i = 0; i < n; i++) total += exp(candidate[i].score - candidate[0].score);
    /* Tokens go from the least likely up, until more than 1 - p would be gone; one token always stays. */
    while (n > 1) {
        gone += exp(candidate[n - 1].score - candidate[0].score) / total;
        if (gone > 1 - top_p) break;
        n--;
    }
    return n;
}

/* The first of equal logits is taken, as with temperature 0 in other programs. */
static int64_t sampling_largest(struct tensor logits, int64_t row)
{
    const int64_t V = tensor_cols(logits);
    int64_t best = 0;
    for (int64_t v = 1; v < V; v++)
        if (tensor_get(logits, row * V + v) > tensor_get(logits, row * V + best)) best = v;
    return best;
}

/* A logit of minus infinity is a token that cannot come; NaN or plus infinity is an error. */
static enum error_code check_logits(struct tensor logits, int64_t row, struct error *err)
{
    const int64_t V = tensor_cols(logits);
    bool any = false;
    for (int64_t v = 0; v < V; v++) {
        const double x = tensor_get(logits, row * V + v);
        if (isnan(x) || x == INFINITY)
            return fail(err, ERR_DIVERGED, "the logit of token %lld is %g", (long long)v, x);
        any = any || isfinite(x);
    }
    return any ? OK : fail(err, ERR_DIVERGED, "no logit is finite");
}

/* p [V] from row `row` of logits [rows, V]: divide by the temperature, cut, softmax over those that stay. */
enum error_code sampling_distribution(const struct sampling *sampling, struct tensor logits, int64_t row, double *p,
                                      struct error *err)
{
    const int64_t V = tensor_cols(logits);
    const enum error_code e = check_logits(logits, row, err);
    if (e) return e;
    for (int64_t v = 0; v < V; v++) p[v] = 0;
    if (sampling->temperature == 0) {
        p[sampling_largest(logits, row)] = 1;
        return OK;
    }
    struct candidate *c = malloc((size_t)V * sizeof *c);
    if (c == NULL) return fail(err, ERR_MEMORY, "no memory to sort %lld tokens", (long long)V);
    for (int64_t v = 0; v < V; v++)
        c[v] = (struct candidate){ tensor_get(logits, row * V + v) / sampling->temperature, v };
    qsort(c, (size_t)V, sizeof *c, falling);
    const int64_t n = cut_to_p(c, cut_to_k(c, V, sampling->top_k), sampling->top_p);
    double total = 0;
    /* The softmax is over those that stay, relative to the largest. */
    for (int64_t i = 0; i < n; i++) total += exp(c[i].score - c[0].score);
    for (int64_t i = 0; i < n; i++) p[c[i].token] = exp(c[i].score - c[0].score) / total;
    free(c);
    return OK;
}

int32_t sampling_draw(const double *p, int64_t V, double u)
{
    int64_t last = 0;
    for (int64_t v = 0; v < V; v++) {
        if (p[v] == 0) continue;
        last = v;
        /* u lies in the part of [0, 1) of the chosen token; rounding may leave the last one. */
        u -= p[v];
        if (u < 0) break;
    }
    return (int32_t)last;
}
