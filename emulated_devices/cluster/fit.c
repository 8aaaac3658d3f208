/* fit.c -- fits a model of steps to prices by least squares without negative coefficients.  powerflow.c calls.  Errors
 * are those of prices; ERR_PLAN if a job fits nowhere. */
#include "emulated_devices/cluster/fit.h"
#include <math.h>
#include <string.h>

enum { FIT_POINTS = 64, FIT_ROUNDS = 20000 };

static void terms_of(double x[FIT_TERMS], int devices, double clock, int node)
{
    const double n = devices, sent = (n - 1) / n;
    x[0] = 1, x[1] = 1 / (n * clock), x[2] = 1 / n;
    x[3] = devices <= node ? sent : 0, x[4] = devices > node ? sent : 0;
    x[5] = job_size_log(devices);
}

double job_fit_seconds(const struct job_fit *fit, int devices, double clock)
{
    double x[FIT_TERMS], seconds = 0;
    terms_of(x, devices, clock, fit->node);
    for (int t = 0; t < FIT_TERMS; t++) seconds += fit->term[t] * x[t];
    return seconds;
}

double job_fit_watts(const struct job_fit *fit, double clock)
{
    return fit->power[0] + fit->power[1] * clock * clock * clock;
}

/* Least squares of A c = b with c >= 0, by turns: each coefficient becomes the best one for the others. */
static void solve_least(int points, int terms, double A[][FIT_TERMS], const double *b, double *c)
{
    double rest[FIT_POINTS];
    memcpy(rest, b, (size_t)points * sizeof *rest);
    memset(c, 0, (size_t)terms * sizeof *c);
    for (int round = 0; round < FIT_ROUNDS; round++) {
        double change = 0;
        for (int t = 0; t < terms; t++) {
            double along = 0, square = 0;
            for (int p = 0; p < points; p++) along += A[p][t] * rest[p], square += A[p][t] * A[p][t];
            if (!(square > 0)) continue;
            const double was = c[t];
            c[t] = fmax(0, was + along / square);
            for (int p = 0; p < points; p++) rest[p] -= (c[t] - was) * A[p][t];
            change = fmax(change, fabs(c[t] - was) * sqrt(square));
        }
        if (change < 1e-12) break;
    }
}

enum error_code job_fit_make(struct job_fit *fit, struct pricing *pricing, int kind, int least, int most,
                             struct error *err)
{
    double A[FIT_POINTS][FIT_TERMS], W[FIT_POINTS][FIT_TERMS], b[FIT_POINTS], w[FIT_POINTS];
    const struct job_price *price = NULL;
    const int largest = most < 2 * pricing->node ? most : 2 * pricing->node;
    *fit = (struct job_fit){ .node = pricing->node };
    for (int n = least; n <= largest; n *= 2)
        for (int end = 0; end < (pricing->clocks > 1 ? 2 : 1); end++) {
            const int clock = end ? 0 : pricing_top(pricing);
            const double f = 0.01 * pricing->clock[clock];
            const enum error_code e = pricing_step(pricing, kind, n, clock, &price, err);
            if (e) return e;
            if (!price->fits || price->step <= 0) continue;
            const double seconds = 1e-12 * (double)price->step;
            terms_of(A[fit->points], n, f, pricing->node);
            for (int t = 0; t < FIT_TERMS; t++) A[fit->points][t] /= seconds;
            b[fit->points] = 1;
            const double watts = pricing_joules(pricing, price, n, clock) / (n * seconds);
            W[fit->points][0] = 1 / watts, W[fit->points][1] = f * f * f / watts, w[fit->points] = 1;
            fit->points++;
        }
    if (fit->points == 0)
        return fail(err, ERR_PLAN, "%s: no number of devices up to %d fits: %s", pricing->jobs->plan[kind], largest,
                    price ? price->why : "none was tried");
    solve_least(fit->points, FIT_TERMS, A, b, fit->term);
    solve_least(fit->points, FIT_POWERS, W, w, fit->power);
    return OK;
}

enum error_code job_fit_error(const struct job_fit *fit, struct pricing *pricing, int kind, int least, int most,
                              double *mean, double *worst, struct error *err)
{
    int points = 0;
    *mean = *worst = 0;
    for (int n = least; n <= most; n *= 2)
        for (int clock = 0; clock < pricing->clocks; clock++) {
            const struct job_price *price;
            const enum error_code e = pricing_step(pricing, kind, n, clock, &price, err);
            if (e) return e;
            if (!price->fits || price->step <= 0) continue;
            const double off = fabs(job_fit_seconds(fit, n, 0.01 * pricing->clock[clock])
                                    / (1e-12 * (double)price->step) - 1);
            *mean += off, points++;
            *worst = fmax(*worst, off);
        }
    if (points > 0) *mean /= points;
    return OK;
}
