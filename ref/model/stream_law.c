/* stream_law.c -- published runs with parallel streams, and the fit of their law.  cli/bench/streams.c calls these
 * functions.  No function returns an error code. */
#include "ref/model/stream_law.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- what is published ------------------------------------------------------------------------------------------- */

const int stream_counts[STREAM_COUNTS] = { 1, 2, 4, 8 };

const int64_t stream_widths[STREAM_SIZES] = { 896, 1024, 1280, 1536, 2048, 2560 };

const int64_t stream_parameters[STREAM_COUNTS][STREAM_SIZES] = {
    { 535813376, 693753856, 1088376320, 1571472384, 2774773760, 4353203200 },
    { 538195842, 696738818, 1092762882, 1577522690, 2784937986, 4368529922 },
    { 540577412, 699722756, 1097148164, 1583571460, 2795100164, 4383854084 },
    { 545340552, 705690632, 1105918728, 1595669000, 2815424520, 4414502408 },
};

const struct stream_losses stream_losses[STREAM_CORPORA] = {
    { "Stack-V2 (Python)", { { 1.1722, 1.1496, 1.1131, 1.0817, 1.0451, 1.0213 },
                             { 1.1507, 1.1262, 1.0940, 1.0623, 1.0244, 1.0025 },
                             { 1.1354, 1.1124, 1.0808, 1.0490, 1.0126, 0.9906 },
                             { 1.1231, 1.0997, 1.0688, 1.0383, 1.0016, 0.9794 } } },
    { "Pile",              { { 2.1113, 2.0671, 2.0027, 1.9539, 1.8876, 1.8451 },
                             { 2.0772, 2.0363, 1.9730, 1.9266, 1.8610, 1.8137 },
                             { 2.0544, 2.0128, 1.9509, 1.9040, 1.8394, 1.7938 },
                             { 2.0364, 1.9933, 1.9318, 1.8856, 1.8218, 1.7772 } } },
};

int64_t stream_extra_parameters(int64_t P, int64_t D, int64_t L, int64_t prefix, int64_t keys)
{
    if (P == 1) return 0;
    /* Two layers P D -> D -> P with biases, and a prefix of keys and values for each layer and stream. */
    const int64_t weigh = (P * D * D + D) + (P * D + P);
    return weigh + L * P * prefix * 2 * keys;
}

/* ---- the law ----------------------------------------------------------------------------------------------------- */

static const double DELTA = 1e-3;

/* Run i of the table. */
static double run_N(int i) { return (double)stream_parameters[i / STREAM_SIZES][i % STREAM_SIZES]; }
static double run_P(int i) { return stream_counts[i / STREAM_SIZES]; }
static double run_loss(const struct stream_losses *losses, int i)
{
    return losses->loss[i / STREAM_SIZES][i % STREAM_SIZES];
}

double stream_law_loss(const struct stream_law *law, double N, double P)
{
    return law->E + pow(law->A * 1e9 / (N * (law->k * log(P) + 1)), law->alpha);
}

/* Published minus fitted logarithm of the loss of run i. */
static double residual(const struct stream_law *law, const struct stream_losses *losses, int i)
{
    return log(run_loss(losses, i)) - log(stream_law_loss(law, run_N(i), run_P(i)));
}

double stream_law_misfit(const struct stream_law *law, const struct stream_losses *losses)
{
    double sum = 0;
    for (int i = 0; i < STREAM_RUNS; i++) {
        const double r = fabs(residual(law, losses, i));
        /* Huber's loss: squares of small residuals, large ones linearly. */
        sum += r <= DELTA ? r * r / 2 : DELTA * (r - DELTA / 2);
    }
    return sum;
}

double stream_law_explained(const struct stream_law *law, const struct stream_losses *losses)
{
    double mean = 0, all = 0, left = 0;
    for (int i = 0; i < STREAM_RUNS; i++) mean += run_loss(losses, i) / STREAM_RUNS;
    for (int i = 0; i < STREAM_RUNS; i++) {
        const double off = run_loss(losses, i) - stream_law_loss(law, run_N(i), run_P(i));
        left += off * off;
        all += (run_loss(losses, i) - mean) * (run_loss(losses, i) - mean);
    }
    return 1 - left / all;
}

/* ---- the fit: Levenberg-Marquardt, rows weighted as Huber's loss weighs them ------------------------------------- */

enum { UNKNOWNS = 4 };                  /* E, ln A, alpha, k */

static struct stream_law law_of(const double x[UNKNOWNS])
{
    return (struct stream_law){ .E = x[0], .A = exp(x[1]), .alpha = x[2], .k = x[3] };
}

/* Derivatives of the logarithm of run i's fitted loss by the unknowns. */
static void slopes(double d[UNKNOWNS], const double x[UNKNOWNS], int i)
{
    const struct stream_law l = law_of(x);
    const double loss = stream_law_loss(&l, run_N(i), run_P(i)), power = loss - l.E, streams = log(run_P(i));
    d[0] = 1 / loss;
    d[1] = power * l.alpha / loss;
    d[2] = power * log(l.A * 1e9 / (run_N(i) * (l.k * streams + 1))) / loss;
    d[3] = -power * l.alpha * streams / (l.k * streams + 1) / loss;
}

/* The normal equations at x: H step = g. */
static void normal_equations(double H[UNKNOWNS][UNKNOWNS], double g[UNKNOWNS], const double x[UNKNOWNS],
                             const struct stream_losses *losses)
{
    const struct stream_law l = law_of(x);
    memset(H, 0, UNKNOWNS * sizeof H[0]);
    memset(g, 0, UNKNOWNS * sizeof g[0]);
    for (int i = 0; i < STREAM_RUNS; i++) {
        double d[UNKNOWNS];
        /* A large residual weighs less, so that its weighted square is Huber's linear part. */
        const double r = residual(&l, losses, i), weight = fabs(r) <= DELTA ? 1 : DELTA / fabs(r);
        slopes(d, x, i);
        for (int a = 0; a < UNKNOWNS; a++) {
            g[a] += weight * d[a] * r;
            for (int b = 0; b < UNKNOWNS; b++) H[a][b] += weight * d[a] * d[b];
        }
    }
}

/* y = (H with a diagonal 1 + damping times as large)^-1 g; H is positive definite. */
static void damped_step(double y[UNKNOWNS], double H[UNKNOWNS][UNKNOWNS], const double g[UNKNOWNS], double damping)
{
    double M[UNKNOWNS][UNKNOWNS + 1];
    for (int a = 0; a < UNKNOWNS; a++) {
        memcpy(M[a], H[a], sizeof H[a]);
        M[a][a] *= 1 + damping;
        M[a][UNKNOWNS] = g[a];
    }
    for (int a = 0; a < UNKNOWNS; a++)
        /* Gaussian elimination without pivots: M is positive definite. */
        for (int b = a + 1; b < UNKNOWNS; b++) {
            const double f = M[b][a] / M[a][a];
            for (int c = a; c <= UNKNOWNS; c++) M[b][c] -= f * M[a][c];
        }
    for (int a = UNKNOWNS - 1; a >= 0; a--) {
        y[a] = M[a][UNKNOWNS];
        for (int b = a + 1; b < UNKNOWNS; b++) y[a] -= M[a][b] * y[b];
        y[a] /= M[a][a];
    }
}

/* Improve x until no step does.  @return its misfit. */
static double descend(double x[UNKNOWNS], const struct stream_losses *losses)
{
    static const double MOST_DAMPING = 1e12;
    enum { MOST_STEPS = 2000 };
    struct stream_law l = law_of(x);
    double best = stream_law_misfit(&l, losses), damping = 1e-3;
    for (int n = 0; n < MOST_STEPS && damping < MOST_DAMPING; n++) {
        double H[UNKNOWNS][UNKNOWNS], g[UNKNOWNS], y[UNKNOWNS], to[UNKNOWNS];
        normal_equations(H, g, x, losses);
        damped_step(y, H, g, damping);
        for (int a = 0; a < UNKNOWNS; a++) to[a] = x[a] + y[a];
        l = law_of(to);
        const double misfit = l.E > 0 && l.alpha > 0 && l.k > 0 ? stream_law_misfit(&l, losses) : INFINITY;
        /* A better point is taken, with less damping; else the step gets shorter. */
        if (misfit < best) memcpy(x, to, sizeof to), best = misfit, damping /= 3;
        else damping *= 4;
    }
    return best;
}

struct stream_law stream_law_fit(const struct stream_losses *losses)
{
    static const double share[] = { 0.25, 0.5, 0.75 }, alpha[] = { 0.1, 0.3, 1 }, k[] = { 0.2, 0.8 };
    double best = INFINITY;
    struct stream_law law = { 0 };
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 3; j++)
            for (size_t n = 0; n < 2; n++) {            /* each start goes through the first run */
                /* There are eighteen starts; the one with the least misfit counts. */
                const double E = share[i] * run_loss(losses, STREAM_RUNS - 1);
                double x[UNKNOWNS] = { E, log(run_loss(losses, 0) - E) / alpha[j] + log(run_N(0) / 1e9),
                                      alpha[j], k[n] };
                const double misfit = descend(x, losses);
                if (misfit < best) best = misfit, law = law_of(x);
            }
    return law;
}
