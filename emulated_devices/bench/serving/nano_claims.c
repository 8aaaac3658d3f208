/* nano_claims.c -- NanoFlow's claims.  claims.c calls.  The only error is ERR_MEMORY. */
#include "emulated_devices/bench/serving/claims.h"
#include "emulated_devices/bench/serving/nano.h"
#include <math.h>

static enum error_code time_of_batches(struct nano_program *program, int batches, double *seconds, struct error *err)
{
    struct nano_plan plan = nano_whole();
    for (int i = 0; i < NANO_OPERATIONS; i++) plan.batches[i] = batches;
    return nano_time(program, &plan, seconds, err);
}

/* Eight layers that compute for 6, read for 2 and send for 2. */
static enum error_code claim_small(const struct serving_claims *claims, struct error *err)
{
    struct nano_program program = { .operations = 3, .layers = 8, .operation = {
        { "products", OVERLAP_COMPUTE, 6 }, { "attention", OVERLAP_MEMORY, 2 }, { "messages", OVERLAP_NETWORK, 2 } } };
    static const int batches[] = { 1, 2, 4 };
    double free[3], paid[3];
    enum error_code e = OK;
    for (int i = 0; i < 3 && !e; i++) {
        program.launch = 0;
        e = time_of_batches(&program, batches[i], &free[i], err);
        program.launch = 0.1;
        if (!e) e = time_of_batches(&program, batches[i], &paid[i], err);
    }
    if (e) return e;
    serving_claim(claims, "NanoFlow", "8 layers of 6 + 2 + 2 s in 1, 2, 4 nano-batches: from the sum to the most, 48",
                  "80, 50, 49", fabs(free[0] - 80) + fabs(free[1] - 50) + fabs(free[2] - 49) < 1e-9, "%g, %g, %g",
                  free[0], free[1], free[2]);
    serving_claim(claims, "NanoFlow", "the same with 0.1 s for each start: more nano-batches are not always better",
                  "82.4, 51.8, 52.4", fabs(paid[0] - 82.4) + fabs(paid[1] - 51.8) + fabs(paid[2] - 52.4) < 1e-9,
                  "%.1f, %.1f, %.1f", paid[0], paid[1], paid[2]);
    return OK;
}

/* LLaMA-2-70B on 8 A100 of 80 GB with 2048 tokens in an iteration: products at the measured 260 teraflop/s; memory that
 * is not weights is read once; messages of 4 x tokens x width at 300 GB/s a device. */
static struct nano_program seventy(int layers)
{
    const double D = 8192, F = 28672, keys = 1024, tokens = 2048, devices = 8, all = 80;
    const double rate = 260e12 * devices, kqv = D * (D + 2 * keys), out = D * D, up = 2 * D * F, down = D * F;
    const double weights = 2 * all * (kqv + out + up + down) / devices, cache = 80e9 - weights;
    const double sends = 2 * tokens * D * 2 / 300e9;
    return (struct nano_program){ .operations = 6, .layers = layers, .interference = true, .launch = 5e-6,
                                  .operation = {
        { "queries, keys, values", OVERLAP_COMPUTE, 2 * tokens * kqv / rate },
        { "attention", OVERLAP_MEMORY, cache / 2e12 / all }, { "output", OVERLAP_COMPUTE, 2 * tokens * out / rate },
        { "sum", OVERLAP_NETWORK, sends }, { "feed-forward", OVERLAP_COMPUTE, 2 * tokens * (up + down) / rate },
        { "sum", OVERLAP_NETWORK, sends } } };
}

static enum error_code claim_seventy(const struct serving_claims *claims, struct error *err)
{
    enum { LAYERS = 4 };                /* of 80: the steady state is what counts */
    struct nano_program program = seventy(LAYERS);
    const struct nano_plan whole = nano_whole();
    struct nano_plan best;
    double alone, found, products = 0;
    enum error_code e = nano_time(&program, &whole, &alone, err);
    if (!e) e = nano_search(&program, &best, &found, err);
    if (e) return e;
    for (int i = 0; i < program.operations; i++)
        if (program.operation[i].engine == OVERLAP_COMPUTE) products += LAYERS * program.operation[i].work;
    serving_claim(claims, "NanoFlow", "70B on 8 A100, % of the products' rate: not cut; searched (others: 22 to 38)",
                  "68.5", found < alone && found >= products, "%.1f, %.1f", 100 * products / alone,
                  100 * products / found);
    serving_claim(claims, "NanoFlow", "times as fast as operations one after another (the paper: as other engines)",
                  "1.91", alone / found > 1, "%.2f: %d and %d nano-batches, shares %.1f %.1f %.1f",
                  alone / found, best.batches[0], best.batches[4], best.share[0], best.share[1], best.share[2]);
    return OK;
}

enum error_code nano_claims(const struct serving_claims *claims, struct error *err)
{
    const enum error_code e = claim_small(claims, err);
    return e ? e : claim_seventy(claims, err);
}
