/* sums.c -- `orrery bench sums`: the error of sums that do not round before they are finished, beside that of ordinary
 * sums in fp32, all against fp64.  bench.c calls bench_sums_topic().  Errors: ERR_CHECK if exact sums are off by more
 * than sums_most times what ordinary ones are; ERR_MEMORY. */
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/numeric/philox.h"
#include "ref/ops/ops.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* docs/checking/exact.md promises these ratios of the errors, one for each rule of exact sums. */
static const double sums_most[EXACT_RULES] = { [SUMS_EXACT] = 5, [SUMS_EXACT2] = 1 };

/* The shortest and the longest sum.  A result has 64 x 64 elements, of long sums fewer: operands have at most 2^23
 * numbers, which in both formats take 200 MB. */
enum { SUMS_FIRST = 128, SUMS_LAST = 1 << 20, SUMS_SIDE = 64, SUMS_OPERAND = 1 << 23 };

/* A product whose terms are of one token, Y = X W^T, or of all tokens, dW = dY^T X. */
enum sums_product { OF_A_TOKEN, OVER_TOKENS, SUMS_PRODUCTS };
static const char *const product_names[SUMS_PRODUCTS] = { "Y = X W^T", "dW = dY^T X" };

/* Both operands in fp32 and, the same numbers, in fp64; the result of each arithmetic, and that in fp64. */
struct sums_bench { struct tensor a, b, wide_a, wide_b, result[EXACT_RULES], wide; };

static struct tensor sums_matrix(enum dtype dtype, int64_t rows, int64_t cols, bool *ok)
{
    const struct tensor t = tensor_2d(calloc((size_t)(rows * cols), dtype_size(dtype)), dtype, rows, cols);
    *ok = *ok && t.data != NULL;
    return t;
}

static void sums_close(struct sums_bench *bench)
{
    free(bench->a.data), free(bench->b.data), free(bench->wide_a.data), free(bench->wide_b.data);
    for (int rule = 0; rule < EXACT_RULES; rule++) free(bench->result[rule].data);
    free(bench->wide.data);
}

/* Normal numbers.  Each token has a size of its own, 2^-4 to 1: gradients of tokens differ so. */
static void draw_tokens(struct tensor t, struct tensor wide, bool by_rows, uint64_t stream)
{
    const int64_t cols = tensor_cols(t);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        const int64_t token = by_rows ? i / cols : 0;
        const double size = exp2(-4 * random_uniform(1, stream + 100, (uint64_t)token));
        tensor_set(t, i, size * random_normal(1, stream, (uint64_t)i));
        tensor_set(wide, i, tensor_get(t, i));
    }
}

static enum error_code sums_open(struct sums_bench *bench, enum sums_product product, int64_t K, struct error *err)
{
    const bool over = product == OVER_TOKENS;
    const int64_t side = K < SUMS_OPERAND / SUMS_SIDE ? SUMS_SIDE : SUMS_OPERAND / K, rows = over ? K : side,
        cols = over ? side : K;
    bool ok = true;
    *bench = (struct sums_bench){ .a = sums_matrix(F32, rows, cols, &ok), .b = sums_matrix(F32, rows, cols, &ok),
                                  .wide_a = sums_matrix(F64, rows, cols, &ok),
                                  .wide_b = sums_matrix(F64, rows, cols, &ok),
                                  .wide = sums_matrix(F64, side, side, &ok) };
    for (int rule = 0; rule < EXACT_RULES; rule++)
        bench->result[rule] = sums_matrix(over && rule != SUMS_ROUND ? EXACT : F32, side, side, &ok);
    if (!ok) return fail(err, ERR_MEMORY, "no memory for sums of %lld terms", (long long)K);
    draw_tokens(bench->a, bench->wide_a, over, 1), draw_tokens(bench->b, bench->wide_b, over, 2);
    return OK;
}

static void multiply(const struct ops *op, enum sums_product product, struct tensor y, struct tensor a, struct tensor b)
{
    if (product == OF_A_TOKEN) op->linear_forward(y, a, b, tensor_none);
    else op->linear_backward_weight(y, tensor_none, a, b);
}

/* The norm of the difference from the result in fp64, over its norm; a finished sum is first rounded to fp32. */
static double sums_off(struct tensor y, struct tensor wide)
{
    double off = 0, size = 0;
    for (int64_t i = 0; i < tensor_count(wide); i++) {
        const double x = (double)(float)tensor_get(y, i), want = tensor_get(wide, i);
        off += (x - want) * (x - want), size += want * want;
    }
    return sqrt(off / size);
}

static enum error_code measure_sums(struct table *table, enum sums_product product, int64_t K, struct error *err)
{
    struct sums_bench b;
    enum error_code e = sums_open(&b, product, K, err);
    if (!e) {
        double off[EXACT_RULES];
        multiply(ops_for(F64), product, b.wide, b.wide_a, b.wide_b);
        for (int rule = 0; rule < EXACT_RULES; rule++) {
            multiply(ops_of(F32, (enum exact_rule)rule), product, b.result[rule], b.a, b.b);
            off[rule] = sums_off(b.result[rule], b.wide);
        }
        const double ordinary = off[SUMS_ROUND];
        table_row(table, "%s\t%lld\t%.2e\t%.2e\t%.2f\t%.2e\t%.2f", product_names[product], (long long)K,
                  off[SUMS_EXACT], ordinary, off[SUMS_EXACT] / ordinary, off[SUMS_EXACT2], off[SUMS_EXACT2] / ordinary);
        for (int rule = SUMS_EXACT; rule < EXACT_RULES && !e; rule++)
            if (!(off[rule] <= sums_most[rule] * ordinary))
                e = fail(err, ERR_CHECK, "%s of %lld terms: sums of --arithmetic %s are off by %.2e, more than %g "
                         "times the %.2e of ordinary ones", product_names[product], (long long)K,
                         exact_rule_names[rule], off[rule], sums_most[rule], ordinary);
    }
    sums_close(&b);
    return e;
}

enum error_code bench_sums_topic(int argc, char **argv, int *status, struct error *err)
{
    int most = SUMS_LAST;
    bool help;
    (void)status;
    const struct option table[] = {
        { "--most", "N", OPTION_INT, &most, .min = SUMS_FIRST, .max = SUMS_LAST, .help = "terms of the longest sum" },
        THREADS_OPTION,
        { 0 }
    };
    enum error_code e = parse_command(
        "bench sums", "[options]",
        "Measure the error of sums that do not round before they are finished (--arithmetic exact, exact2), beside\n"
        "that of ordinary sums in fp32: all against fp64, norm over norm, for sums of 128 terms and more. Exit status\n"
        "3 if sums of exact are off by more than five times as much, or those of exact2 by more.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help || launcher_rank() != 0) return e;
    say(stdout, 0, "Errors of sums of K terms against fp64, norm over norm, of normal numbers in fp32:");
    struct table t = table_start("sums", 2, "product\tK\texact\tordinary\texact / ordinary\texact2\texact2 / ordinary");
    for (int product = 0; product < SUMS_PRODUCTS; product++)
        for (int64_t K = SUMS_FIRST; K <= most && (!e || e == ERR_CHECK); K *= 2) {
            const enum error_code one = measure_sums(&t, (enum sums_product)product, K, e ? NULL : err);
            if (!e) e = one;
        }
    table_end(&t);
    return e;
}
