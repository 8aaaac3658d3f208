/* loss.c -- the mean cross entropy, its gradient, and the norm of all gradients.
 *
 * Of a row of V logits x, with the label's logit t: log p = t - max - log(sum of exp(x - max)).  Differences from the
 * largest logit are exact to a unit of themselves, exponentials to a unit more, the sum to rounding_of_sum(V).  By
 * steps, log p is stored, and so is the share of a label, 1/count.
 */
#include "ref/single/parts.h"
#include <stdio.h>

struct row { double top, lse; };        /* the largest logit, and log(sum of exp(x - top)) */

static struct row row_of(const double *x, int64_t V)
{
    struct row r = { x[0], 0 };
    for (int64_t v = 1; v < V; v++) r.top = fmax(r.top, x[v]);
    for (int64_t v = 0; v < V; v++) r.lse += exp(x[v] - r.top);
    r.lse = log(r.lse);
    return r;
}

static struct single_name named(const char *text)
{
    struct single_name n;
    snprintf(n.text, sizeof n.text, "%s", text);
    return n;
}

static int64_t counted(const struct single *s)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->N; i++) n += s->batch.labels[i] >= 0;
    return n > 0 ? n : 1;
}

void single_loss_forward(struct single *s)
{
    const int64_t V = s->config->V, count = counted(s);
    if (s->config->mlp == MLP_MIXTURE) return;          /* its routers' losses are part of the loss */
    if (!single_begin(s, named("loss"), "the loss", 1, 1)) return;
    const struct tensor X = single_input(s, named("act/logits"), s->N, V);
    if (!single_ready(s)) return;
    const struct tensor Y = single_new(s, 1, 1), fused = single_new(s, 1, 1), steps = single_new(s, 1, 1);
    const struct rounding *r = &s->rounding;
    const double g = rounding_of_sum(r->sum, V);
    double sum = 0, absolute = 0, off = 0;
    for (int64_t n = 0; !s->failed && n < s->N; n++) {
        if (s->batch.labels[n] < 0) continue;
        const double *x = numbers(X) + n * V;
        const struct row row = row_of(x, V);
        const double loss = row.top + row.lse - x[s->batch.labels[n]];
        sum += loss, absolute += fabs(loss);
        off += g + r->sum * (4 * fabs(row.top) + 4 * fabs(row.lse) + 4 * fabs(x[s->batch.labels[n]]) + 4);
    }
    if (!s->failed) {
        const double mean = (off + rounding_of_sum(r->sum, count + 1) * absolute) / (double)count,
                     more = mean + 2 * r->store * absolute / (double)count;
        numbers(Y)[0] = sum / (double)count;
        numbers(fused)[0] = mean + rounding_when_stored(r, numbers(Y)[0], mean);
        numbers(steps)[0] = more + rounding_when_stored(r, numbers(Y)[0], more);
    }
    single_end(s, Y, fused, steps);
}

void single_loss_input(struct single *s)
{
    const int64_t V = s->config->V;
    const double count = (double)counted(s);
    if (!single_begin(s, named("grad/logits"), "the backward pass of the loss", s->N, V)) return;
    const struct tensor X = single_input(s, named("act/logits"), s->N, V);
    if (!single_ready(s)) return;
    const struct tensor Y = single_new(s, s->N, V), fused = single_new(s, s->N, V), steps = single_new(s, s->N, V);
    const struct rounding *r = &s->rounding;
    const double g = rounding_of_sum(r->sum, V);
    for (int64_t n = 0; !s->failed && n < s->N; n++) {
        const int32_t label = s->batch.labels[n];
        if (label < 0) continue;
        const struct row row = row_of(numbers(X) + n * V, V);
        for (int64_t v = 0; v < V; v++) {
            const double x = numbers(X)[n * V + v], log_p = x - row.top - row.lse, p = exp(log_p),
                         one = v == label ? 1 : 0,
                         off = p * (g + r->sum * (4 + 2 * fabs(x) + 2 * fabs(row.top) + 2 * row.lse)) + r->sum * one,
                         more = p * (expm1(r->store * fabs(log_p)) + 3 * r->store) + 2 * r->store * one;
            const int64_t i = n * V + v;
            numbers(Y)[i] = (p - one) / count;
            numbers(fused)[i] = off / count + rounding_when_stored(r, numbers(Y)[i], off / count);
            numbers(steps)[i] = (off + more) / count + rounding_when_stored(r, numbers(Y)[i], (off + more) / count);
        }
    }
    single_end(s, Y, fused, steps);
}

/* Gradients of several parameters: their squared norm. */
static double squares(struct tensor t)
{
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(t); i++) sum += numbers(t)[i] * numbers(t)[i];
    return sum;
}

void single_gradient_norm(struct single *s)
{
    int64_t n = 0;
    double sum = 0;
    if (!single_begin(s, named("norm"), "the norm of all gradients", 1, 1)) return;
    const int used = s->used;
    for (int i = 0; i < model_param_count(s->config) && !s->failed; i++) {
        const struct param_spec p = model_param(s->config, i);
        const int64_t rows = p.ndim > 1 ? p.dim[0] : 1, cols = p.ndim > 1 ? p.dim[1] : p.dim[0];
        const struct tensor g = single_input(s, single_param(s, "grad", i), rows, cols);
        if (!s->failed) sum += squares(g);
        n += rows * cols;
        single_release(s, used);
    }
    if (!single_ready(s)) return;
    const struct tensor Y = single_new(s, 1, 1), fused = single_new(s, 1, 1), steps = single_new(s, 1, 1);
    if (!s->failed) {
        const struct rounding *r = &s->rounding;
        const double norm = sqrt(sum), off = norm * (rounding_of_sum(r->sum, n) / 2 + 2 * r->sum),
                     more = off + 2 * r->store * norm;
        numbers(Y)[0] = norm;
        numbers(fused)[0] = off + rounding_when_stored(r, norm, off);
        numbers(steps)[0] = more + rounding_when_stored(r, norm, more);
    }
    single_end(s, Y, fused, steps);
}
