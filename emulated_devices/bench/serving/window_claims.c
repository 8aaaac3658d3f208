/* window_claims.c -- TPI-LLM's claims.  claims.c calls.  Errors: ERR_MEMORY, and those of finding a cluster. */
#include "emulated_devices/bench/serving/claims.h"
#include "emulated_devices/bench/serving/window.h"
#include "emulated_devices/collectives/attempt.h"
#include <math.h>
#include <stdio.h>

enum { WINDOW_LAYERS = 80, WINDOW_DEVICES = 8 };

/* LLaMA-2-70B in fp32 over 8 devices, a window of 2; the first device also has the embedding and the output matrix. */
static enum error_code claim_memory(const struct serving_claims *claims, struct error *err)
{
    const int64_t D = 8192, F = 28672, keys = 1024, V = 32000;
    const int64_t attention = 4 * (2 * D * D + 2 * D * keys) / WINDOW_DEVICES, forward = 4 * 3 * D * F / WINDOW_DEVICES;
    int64_t bytes[2 * WINDOW_LAYERS];
    double compute[2 * WINDOW_LAYERS];
    struct window_result r;
    for (int i = 0; i < 2 * WINDOW_LAYERS; i++) bytes[i] = i % 2 ? forward : attention, compute[i] = 1;
    const enum error_code e = window_pass(bytes, compute, 2 * WINDOW_LAYERS, 2, 1e9, &r, err);
    if (e) return e;
    const double first = 1e-9 * (double)(r.peak + 2 * 4 * D * V), all = 1e-9 * (double)r.loaded;
    serving_claim(claims, "TPI-LLM", "70B in fp32 over 8 devices: GB of weights on the first one at a time",
                  "3.1, with cache", r.peak == window_peak(bytes, 2 * WINDOW_LAYERS, 2) && first < 3.1,
                  "%.2f (all: %.0f)", first, all + first - 1e-9 * (double)r.peak);
    return OK;
}

/* The bytes up to which a star is faster than a ring, by the clock. */
static enum error_code crossing(const struct cluster *cluster, int P, int64_t *bytes, struct error *err)
{
    const struct algorithm *const star = algorithm_find(ALLREDUCE, "star"),
                           *const ring = algorithm_find(ALLREDUCE, "ring");
    int64_t low = 1, high = 1 << 24;
    enum error_code e = OK;
    while (high - low > low / 100 + 1 && !e) {
        const int64_t n = low + (high - low) / 2;
        const struct collective c = { .count = n, .dtype = F32, .nodes = nodes_on(cluster, NULL, P) };
        picoseconds by_star, by_ring, replayed;
        e = attempt_times(star, P, &c, cluster, &by_star, &replayed, err);
        if (!e) e = attempt_times(ring, P, &c, cluster, &by_ring, &replayed, err);
        if (!e && by_star < by_ring) low = n;
        else high = n;
    }
    *bytes = 4 * low;
    return e;
}

/* T_star = 2 a + 2 (n - 1) b c, T_ring = 2 (n - 1) (a + b c / n): they meet at b c = a n (n - 2) / (n - 1)^2. */
static enum error_code claim_star(const struct serving_claims *claims, struct error *err)
{
    static const int devices[] = { 4, 8 };
    struct cluster cluster;
    int64_t at[2];
    double formula[2];
    char published[40];
    enum error_code e = cluster_find(&cluster, "ethernet-1g", err);
    for (int i = 0; i < 2 && !e; i++) e = crossing(&cluster, devices[i], &at[i], err);
    if (e) return e;
    for (int i = 0; i < 2; i++) {
        const double n = devices[i], bytes = 1e-6 * (double)cluster.link[0].latency * (double)cluster.link[0].rate;
        formula[i] = bytes * n * (n - 2) / ((n - 1) * (n - 1));
    }
    snprintf(published, sizeof published, "%.1f, %.1f", 1e-3 * formula[0], 1e-3 * formula[1]);
    serving_claim(claims, "TPI-LLM", "on Ethernet of 1 Gb/s a star beats a ring up to so many KB: 4, 8 devices",
                  published, fabs((double)at[0] / formula[0] - 1) < 0.1 && fabs((double)at[1] / formula[1] - 1) < 0.1,
                  "%.1f, %.1f", 1e-3 * (double)at[0], 1e-3 * (double)at[1]);
    return OK;
}

static enum error_code claim_heads(const struct serving_claims *claims)
{
    static const double ratio[] = { 0.5, 0.3, 0.2 };
    int heads[3];
    window_heads(8, ratio, 3, heads);
    serving_claim(claims, "TPI-LLM", "8 key heads by ratios of .5, .3, .2", "4, 2, 2", heads[0] == 4 && heads[1] == 2 &&
                  heads[2] == 2, "%d, %d, %d", heads[0], heads[1], heads[2]);
    return OK;
}

enum error_code window_claims(const struct serving_claims *claims, struct error *err)
{
    enum error_code e = claim_memory(claims, err);
    if (!e) e = claim_star(claims, err);
    return e ? e : claim_heads(claims);
}
