/* flow_claims.c -- AsyncFlow's claims, in a simulation: rollouts whose lengths have a long tail, a group of devices for
 * each task.  rl_claims.h lists the function.  Errors are those of a flow. */
#include "emulated_devices/bench/rl/rl_claims.h"
#include "emulated_devices/rl/flow.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdlib.h>

/* Iterations and samples; answers that are drawn at a time.  Drawing a mean answer takes 1 second, and training takes
 * as long for all answers as drawing them on all slots does: the balance at which groups of devices are chosen. */
enum { ITERATIONS = 12, SAMPLES = 256, SLOTS = 64, GROUP = 8, STREAMED = 16 };

/* Deviations of the logarithm of lengths: from short tails to those of answers that reason. */
static const double tails[] = { 0.5, 1.0, 1.5 };
enum { TAILS = sizeof tails / sizeof *tails, STALENESSES = 4 };

/* Lengths are exp of normal numbers with this deviation, of mean 1. */
static void draw_lengths(double deviation, double *length)
{
    for (int64_t i = 0; i < ITERATIONS * SAMPLES; i++)
        length[i] = exp(deviation * random_normal(7, random_stream("length"), (uint64_t)i) - deviation * deviation / 2);
}

static enum error_code run_flow(const double *length, int staleness, bool streams, struct flow *flow, struct error *err)
{
    const double whole = (double)SAMPLES / SLOTS;
    const struct flow_times times = {
        .iterations = ITERATIONS, .samples = SAMPLES, .group = GROUP, .draw = length, .slots = SLOTS,
        .score = 0.1 * whole / SAMPLES, .reward = 0.02 * whole / SAMPLES, .train = 0.9 * whole / SAMPLES,
        .update = 0.05 * whole, .move = 0.05 * whole, .part = streams ? STREAMED : SAMPLES, .staleness = staleness };
    return flow_run(&times, flow, err);
}

/* Times as fast as without staleness and streams; and the part of its time that training waits. */
struct flow_findings { double faster[TAILS][STALENESSES], idle[TAILS][STALENESSES]; bool falls, bounded; };

static enum error_code find(struct flow_findings *found, double *length, struct error *err)
{
    enum error_code e = OK;
    *found = (struct flow_findings){ .falls = true, .bounded = true };
    for (int t = 0; t < TAILS && !e; t++) {
        struct flow before, now;
        draw_lengths(tails[t], length);
        e = run_flow(length, 0, false, &before, err);
        for (int k = 0; k < STALENESSES && !e; k++) {
            e = run_flow(length, k, true, &now, err);
            if (e) return e;
            found->faster[t][k] = before.seconds / now.seconds, found->idle[t][k] = now.idle[FLOW_TRAIN];
            found->falls = found->falls && (k == 0 || now.idle[FLOW_TRAIN] <= found->idle[t][k - 1] + 1e-9);
            found->bounded = found->bounded && now.most_stale <= k;
        }
    }
    return e;
}

enum error_code rl_flow_claims(const struct serving_claims *claims, struct error *err)
{
    double *const length = malloc(ITERATIONS * SAMPLES * sizeof *length);
    struct flow_findings f = { .falls = false };
    enum error_code e = length ? find(&f, length, err) : fail(err, ERR_MEMORY, "no memory for %d lengths",
                                                              ITERATIONS * SAMPLES);
    free(length);
    if (e) return e;
    double mean = 0, most = 0;
    for (int t = 0; t < TAILS; t++) mean += f.faster[t][1] / TAILS, most = fmax(most, f.faster[t][1]);
    serving_claim(claims, "AsyncFlow", "throughput, staleness 1 against synchronous tasks, on average (in simulation)",
                  "1.59", mean > 1, "%.2f", mean);
    serving_claim(claims, "AsyncFlow", "the same, at most (in simulation)", "2.03", most > mean, "%.2f", most);
    serving_claim(claims, "AsyncFlow", "part of its time that training waits, staleness 0, 1, 2, 3 (longest tail)",
                  "falls", f.falls, "%.2f, %.2f, %.2f, %.2f", f.idle[TAILS - 1][0], f.idle[TAILS - 1][1],
                  f.idle[TAILS - 1][2], f.idle[TAILS - 1][3]);
    serving_claim(claims, "AsyncFlow", "versions between drawing and training are at most the bound", "yes", f.bounded,
                  f.bounded ? "yes" : "no");
    serving_claim(claims, "AsyncFlow", "streams alone, without staleness: times as fast (in simulation)",
                  "more than 1", f.faster[0][0] > 1, "%.2f to %.2f", f.faster[TAILS - 1][0], f.faster[0][0]);
    return OK;
}
