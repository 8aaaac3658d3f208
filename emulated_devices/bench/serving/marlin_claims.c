/* marlin_claims.c -- MARLIN's claims.  claims.c calls.  Errors: ERR_MEMORY, and those of finding a cluster. */
#include "emulated_devices/bench/serving/claims.h"
#include "emulated_devices/bench/serving/marlin.h"
#include "emulated_devices/device/cluster.h"
#include "emulated_devices/device/kernel.h"
#include "ref/numeric/philox.h"
#include "ref/ops/ops.h"
#include <stdlib.h>
#include <string.h>

enum { CLAIMS_K = 1024, CLAIMS_N = 512, CLAIMS_ROWS = 3, CLAIMS_WORKERS = 7 };

/* Numbers that sums in fp32 have exactly: activations of small integers, factors of powers of 2. */
static void draw_exact(float *w, float *scale, float *x)
{
    for (int64_t i = 0; i < CLAIMS_K / MARLIN_GROUP * CLAIMS_N; i++)
        scale[i] = random_uniform(1, random_stream("scale"), (uint64_t)i) < 0.5 ? 0.25F : 0.5F;
    for (int64_t i = 0; i < CLAIMS_K * CLAIMS_N; i++)
        w[i] = (float)(8 * random_uniform(1, random_stream("weight"), (uint64_t)i) - 4);
    for (int64_t i = 0; i < CLAIMS_ROWS * CLAIMS_K; i++)
        x[i] = (float)((int)(9 * random_uniform(1, random_stream("x"), (uint64_t)i)) - 4);
}

/* Rows of out that differ from the product with the dequantised matrix. */
static int64_t wrong_numbers(const struct marlin *m, const float *x, const float *out)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < CLAIMS_ROWS; i++)
        for (int64_t n = 0; n < m->N; n++) {
            double sum = 0;
            for (int64_t k = 0; k < m->K; k++) sum += (double)x[i * m->K + k] * (double)marlin_weight(m, k, n);
            wrong += (double)out[i * m->N + n] != sum;
        }
    return wrong;
}

static enum error_code claim_product(const struct serving_claims *claims, struct error *err)
{
    float *const w = malloc(CLAIMS_K * CLAIMS_N * sizeof *w), *const x = malloc(CLAIMS_ROWS * CLAIMS_K * sizeof *x),
          *const scale = malloc(CLAIMS_K / MARLIN_GROUP * CLAIMS_N * sizeof *scale),
          *const out = malloc(CLAIMS_ROWS * CLAIMS_N * sizeof *out);
    struct marlin m = { .B = NULL };
    struct marlin_counts c;
    enum error_code e = w && x && scale && out ? OK : fail(err, ERR_MEMORY, "no memory for a product");
    if (!e) draw_exact(w, scale, x);
    if (!e) e = marlin_pack(&m, w, scale, CLAIMS_K, CLAIMS_N, MARLIN_GROUP, err);
    if (!e) e = marlin_multiply(&m, x, CLAIMS_ROWS, CLAIMS_WORKERS, out, &c, err);
    if (!e) {
        const double bits = 8. * (double)c.bytes / (CLAIMS_K * CLAIMS_N);
        const int64_t wrong = wrong_numbers(&m, x, out);
        serving_claim(claims, "MARLIN", "bits that a product reads for each weight, groups of 128", "4.125",
                      bits == 4.125 && c.bytes == marlin_bytes(&m), "%.4g, counted", bits);
        serving_claim(claims, "MARLIN", "numbers of a product that are not those of dequantise, then multiply", "0",
                      wrong == 0, "%lld of %d", (long long)wrong, CLAIMS_ROWS * CLAIMS_N);
        serving_claim(claims, "MARLIN", "striped partition: 32 tiles for 7 workers", "even",
                      c.most - c.least <= 1 && c.additions < CLAIMS_WORKERS, "%lld to %lld a worker, %lld parts added",
                      (long long)c.least, (long long)c.most, (long long)c.additions);
    }
    marlin_free(&m);
    free(w), free(x), free(scale), free(out);
    return e;
}

/* A product of M rows with 16-bit weights over one with 4-bit weights and factors: fewer bytes, the same arithmetic. */
static double gain_of(const struct cluster *cluster, int64_t M, int64_t D)
{
    struct op_cost wide = linear_cost(M, D, D, BF16), packed = wide;
    packed.bytes -= (double)(D * D) * (2 - 4.125 / 8);
    wide.rows = packed.rows = 0;                        /* both by the device's rates alone */
    return (double)kernel_time(cluster, BF16, "linear forward", wide) /
           (double)kernel_time(cluster, BF16, "linear forward", packed);
}

static enum error_code claim_speed(const struct serving_claims *claims, struct error *err)
{
    enum { WIDE = 18432 };              /* 72k x 18k and its likes are the paper's */
    struct cluster cluster;
    enum error_code e = cluster_find(&cluster, "a100-node", err);
    if (e) return e;
    cluster.kernels = (struct kernels){ .launch = 0 };
    const double one = gain_of(&cluster, 1, WIDE), some = gain_of(&cluster, 32, WIDE),
                 many = gain_of(&cluster, 1024, WIDE);
    serving_claim(claims, "MARLIN", "times as fast as 16 bits at batch 1, where bytes decide (most: 3.88)", "3.87",
                  one > 3.8 && one <= 16 / 4.125, "%.2f", one);
    serving_claim(claims, "MARLIN", "still so at batch 32, and not at 1024, where arithmetic decides", "3.5, 1",
                  some > 3 && many < 1.3, "%.2f, %.2f", some, many);
    return OK;
}

enum error_code marlin_claims(const struct serving_claims *claims, struct error *err)
{
    const enum error_code e = claim_product(claims, err);
    return e ? e : claim_speed(claims, err);
}
