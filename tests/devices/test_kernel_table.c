/* Tables of measured kernels: exact at their points, bounded between them, and one line for each mistake in a file; and
 * the time of operations by a table and a set of kernels, by hand.
 * tier: check
 */
#include "emulated_devices/device/cluster.h"
#include "emulated_devices/device/kernel.h"
#include "emulated_devices/device/kernel_set.h"
#include "emulated_devices/device/kernel_table.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* 10^12 operations and 10^11 bytes a second; a product of any size reaches half of it, but at two points. */
#define PRODUCTS "\"products\": { \"half_outputs\": 0, \"half_depth\": 0, \"points\": " \
                 "[[64, 64, 64, 0.25], [1024, 64, 64, 0.75]], \"source\": \"s\" }"
#define ATTENTION "\"attention\": { \"series\": [" \
                  "{ \"kernels\": \"k\", \"pass\": \"forward\", \"head\": 64, \"causal\": false, " \
                  "\"points\": [[512, 0.4], [2048, 0.8]] }, " \
                  "{ \"kernels\": \"k\", \"pass\": \"forward\", \"head\": 64, \"causal\": true, " \
                  "\"points\": [[512, 0.2]] }, " \
                  "{ \"kernels\": \"k\", \"pass\": \"forward\", \"head\": 256, \"causal\": false, " \
                  "\"points\": [[512, 0.6]] }, " \
                  "{ \"kernels\": \"k\", \"pass\": \"backward\", \"head\": 64, \"causal\": false, " \
                  "\"points\": [[512, 0.3]] }], \"source\": \"s\" }"
#define MEMORY "\"memory\": { \"points\": [[1, 25], [4, 75]], \"source\": \"s\" }"
#define TABLE(rate, products, attention, memory) \
    "{ \"name\": \"t\", \"description\": \"d\", \"GFLOP_per_second\": " rate ", \"memory_MB_per_second\": 100000, " \
    products ", " attention ", " memory ", \"launch_ns\": 7, \"graph_launch_ns\": 3, \"source\": \"s\" }"
static const char small[] = TABLE("1000", PRODUCTS, ATTENTION, MEMORY);

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want))) fail_msg("%.17g, expected %.17g", got, want);
}

static void parse(struct kernel_table *table, const char *text)
{
    struct error err = { 0 };
    if (kernel_table_parse(table, text, "a test", &err)) fail_msg("%s", err.text);
}

/* ---- shipped tables ---------------------------------------------------------------------------------------------- */

/* At a measured product the measured share; elsewhere the law times a factor between the least and the most. */
static void check_products(const struct kernel_table *table)
{
    double least = 1e9, most = 0;
    for (int i = 0; i < table->products; i++) {
        const struct table_product *p = &table->product[i];
        near(table_product_share(table, (double)p->rows, (double)p->columns, (double)p->depth),
             fmin(p->share, table->sustained));
        least = fmin(least, p->factor), most = fmax(most, p->factor);
    }
    for (double m = 1; m < 1e6; m *= 3.7)
        for (double n = 8; n < 1e6; n *= 5.3)
            for (double k = 16; k < 1e6; k *= 7.1) {
                const double law = m * n / (m * n + table->half_outputs) * k / (k + table->half_depth);
                const double share = table_product_share(table, m, n, k);
                assert_true(share >= fmin(table->sustained, law * least) * (1 - 1e-12));
                assert_true(share <= fmin(table->sustained, law * most) * (1 + 1e-12));
            }
}

static void check_line(const struct table_line *line, double (*at)(const void *, double), const void *of)
{
    for (int i = 0; i < line->count; i++) {
        /* Points of files are at powers of two, or at sizes whose logarithm is invertible in the same way. */
        const double whole = floor(line->point[i].at), x = ldexp(1 + line->point[i].at - whole, (int)whole);
        near(at(of, x), line->point[i].share);
        if (i > 0) {
            const double a = line->point[i - 1].share, b = line->point[i].share, between = at(of, .99 * x);
            assert_true(between >= fmin(a, b) - 1e-12 && between <= fmax(a, b) + 1e-12);
        }
    }
}

static double memory_at(const void *table, double bytes) { return table_memory_share(table, bytes); }

struct of_series { const struct kernel_table *table; const struct table_attention *attention; };
static double attention_at(const void *context, double length)
{
    const struct of_series *of = context;
    const struct table_attention *a = of->attention;
    return table_attention_share(of->table, a->kernels, a->backward, (double)a->head, length, a->causal ? .5 : 1);
}

static void test_shipped_tables_are_exact_at_their_points(void **state)
{
    (void)state;
    static struct kernel_table table;
    int tables = 0;
    for (; kernel_table_texts[tables] != NULL; tables++) {
        parse(&table, kernel_table_texts[tables]);
        check_products(&table);
        check_line(&table.memory, memory_at, &table);
        for (int i = 0; i < table.series; i++)
            check_line(&table.attention[i].line, attention_at, &(struct of_series){ &table, &table.attention[i] });
        /* An interpolation that is a third off says nothing; of memory the first point is far from the others. */
        assert_true(table_error_of_products(&table) < .15 && table_error_of_attention(&table) < .15);
        assert_true(table_error_of_memory(&table) < .25);
    }
    assert_true(tables >= 2);
}

/* ---- between points ---------------------------------------------------------------------------------------------- */

/* Along the line between two points a product's share rises, and in its middle the mean of both is reached. */
static void test_products_between_two_points(void **state)
{
    (void)state;
    static struct kernel_table table;
    parse(&table, small);
    near(table_product_share(&table, 64, 64, 64), .25);
    near(table_product_share(&table, 1024, 64, 64), .75);
    near(table_product_share(&table, 256, 64, 64), .5);
    /* One octave from the first point and three from the second: weights of 1 and 1/81. */
    near(table_product_share(&table, 128, 64, 64), (.25 + .75 / 81) / (1 + 1. / 81));
    for (double m = 64, before = .25; m <= 1024; m += 32) {
        const double share = table_product_share(&table, m, 64, 64);
        assert_true(share >= before);
        before = share;
    }
    table.sustained = .6;
    near(table_product_share(&table, 1024, 64, 64), .6);
    near(table_product_share(&table, 256, 64, 64), .5);
    /* Without one of two points there is the other: errors of 2 and 2/3. */
    near(table_error_of_products(&table), (2 + 2. / 3) / 2);
}

/* Lengths, widths of heads and bytes are interpolated in their logarithms, and end with the nearest point. */
static void test_lines(void **state)
{
    (void)state;
    static struct kernel_table t;
    parse(&t, small);
    near(table_attention_share(&t, "k", false, 64, 1024, 1), .6);
    near(table_attention_share(&t, "k", false, 64, 1, 1), .4);
    near(table_attention_share(&t, "k", false, 64, 1 << 20, 1), .8);
    near(table_attention_share(&t, "k", false, 128, 512, 1), .5);
    near(table_attention_share(&t, "k", false, 1024, 512, 1), .6);
    near(table_attention_share(&t, "k", false, 64, 512, .5), .2);
    near(table_attention_share(&t, "k", false, 64, 512, .75), .3);
    /* No causal pass was measured backward: 0.3 * 0.2 / 0.4. */
    near(table_attention_share(&t, "k", true, 64, 512, .5), .15);
    near(table_attention_share(&t, "other", true, 64, 512, .5), 0);
    near(table_memory_share(&t, 1e6), .25);
    near(table_memory_share(&t, 1), .25);
    near(table_memory_share(&t, 1e9), .75);
}

/* ---- times by hand ----------------------------------------------------------------------------------------------- */

static const char fused[] = "{ \"name\": \"f\", \"description\": \"d\", \"attention\": [\"k\"], \"graphs\": false, "
                            "\"other\": [100, 1], \"operations\": { \"norm\": [300, 2], \"add\": [50, 0] }, "
                            "\"source\": \"s\", \"assumed\": \"a\" }";
static const char unfused[] = "{ \"name\": \"u\", \"description\": \"d\", \"attention\": [\"unfused\"], "
                              "\"scores_forward\": [400, 2], \"scores_backward\": [500, 2], \"graphs\": true, "
                              "\"other\": [100, 1], \"operations\": {}, \"source\": \"s\", \"assumed\": \"a\" }";

/* A picosecond for an operation, ten for a byte. */
static struct cluster with(const struct kernel_table *table, const struct kernel_set *set)
{
    struct cluster c = { .flop_rate = { [F16] = 1000000 }, .memory_rate = 100000, .levels = 1 };
    c.kernels = (struct kernels){ .table = table, .set = set };
    return c;
}

static void test_times_by_hand(void **state)
{
    (void)state;
    static struct kernel_table table;
    static struct kernel_set set;
    struct error err;
    parse(&table, small);
    assert_int_equal(kernel_set_parse(&set, fused, "a test", &err), OK);
    struct cluster c = with(&table, &set);
    const struct op_cost product = { .flops = 2. * 1024 * 64 * 64, .bytes = 1000, .rows = 1024, .columns = 64,
                                     .depth = 64 };
    assert_int_equal(kernel_time(&c, F16, "linear", product), 7000 + (picoseconds)ceil(product.flops / .75));
    /* Half a device takes twice as long, since points are shares of the table's rates. */
    c.flop_rate[F16] /= 2;
    assert_int_equal(kernel_time(&c, F16, "linear", product), 7000 + (picoseconds)ceil(product.flops / .75 * 2));
    c.flop_rate[F16] *= 2;
    const struct op_cost attention = { .flops = 1e6, .bytes = 100, .columns = 512, .depth = 64, .seen = 1 };
    assert_int_equal(kernel_time(&c, F16, "attention forward", attention), 7000 + 2500000);
    assert_int_equal(kernel_time(&c, F16, "attention backward input", attention), 7000 + 3333334);
    const struct op_cost bytes = { .flops = 1e12, .bytes = 1e6 };
    assert_int_equal(kernel_time(&c, F16, "copy", bytes), 7000 + 40000000);
    assert_int_equal(kernel_time(&c, F16, "norm", bytes), 2 * 7000 + 3 * 40000000);
    assert_int_equal(kernel_time(&c, F16, "add", bytes), 20000000);
    /* Operations inside a collective's kernel go by the rates. */
    assert_int_equal(kernel_time(&c, F16, "reduce", (struct op_cost){ .bytes = 1e6, .running = true }), 10000000);
}

/* A gradient of weights of 1024 rows and 64 columns of 16 bits is added to another one: at 10 ps a byte, and a quarter
 * of that rate, a copy of the result takes 40 ps for each of twice as many bytes. */
static void test_what_is_beside_a_product(void **state)
{
    (void)state;
    static const char text[] = "{ \"name\": \"b\", \"description\": \"d\", \"attention\": [\"unfused\"], "
        "\"scores_forward\": [400, 2], \"scores_backward\": [500, 2], \"graphs\": true, \"host_percent\": 150, "
        "\"other\": [100, 1], \"operations\": {}, \"products\": { \"linear backward weight\": [150, 4] }, "
        "\"source\": \"s\", \"assumed\": \"a\" }";
    static struct kernel_table table;
    static struct kernel_set set;
    struct error err;
    parse(&table, small);
    if (kernel_set_parse(&set, text, "a test", &err)) fail_msg("%s", err.text);
    struct cluster c = with(&table, &set);
    const struct op_cost product = { .flops = 2. * 1024 * 64 * 64, .bytes = 1000, .rows = 1024, .columns = 64,
                                     .depth = 64 };
    const picoseconds alone = kernel_time(&c, F16, "linear forward", product);
    assert_int_equal(kernel_time(&c, F16, "linear backward weight", product),
                     alone + (picoseconds)(1.5 * 2 * 1024 * 64 * 2 * 40));
    assert_int_equal(kernel_starts(&c, "linear forward", product), 1);
    assert_int_equal(kernel_starts(&c, "linear backward weight", product), 4);
    /* A start takes this program's host half as long again as others. */
    c.host.issue.kernel[ISSUE_EAGER] = 8000000;
    assert_int_equal(kernel_set_pace(&set, &c), 12000000);
    assert_int_equal(kernel_set_pace(NULL, &c), 0);
}

/* Stored scores: 2 heads of 64 tokens and 64 columns, of which half the pairs are seen; all are computed. */
static void test_unfused_attention_by_hand(void **state)
{
    (void)state;
    static struct kernel_table table;
    static struct kernel_set set;
    struct error err;
    parse(&table, small);
    assert_int_equal(kernel_set_parse(&set, unfused, "a test", &err), OK);
    struct cluster c = with(&table, &set);
    c.memory_rate = 0;
    const double scores = 2 * 64 * 64, each = 2 * scores * 64;
    struct op_cost cost = { .flops = 2 * each / 2, .bytes = 1, .columns = 64, .depth = 64, .seen = .5 };
    const double share = table_product_share(&table, scores / 64, 64, 64);
    assert_int_equal(kernel_time(&c, F16, "attention forward", cost), 3000 + (picoseconds)ceil(2 * each / share));
    cost.flops *= 2.5;
    assert_int_equal(kernel_time(&c, F16, "attention backward input", cost),
                     3000 + (picoseconds)ceil(4 * each / share));
    /* Scores of 16 bits are moved four times, at a quarter of 10 ps a byte; products hide what they write. */
    c.memory_rate = 100000, c.flop_rate[F16] = 0, cost.flops /= 2.5;
    assert_int_equal(kernel_time(&c, F16, "attention forward", cost), 3000 + (picoseconds)(scores * 2 * 40 * (2 + 4)));
}

/* ---- wrong files ------------------------------------------------------------------------------------------------- */

static void refused(const char *text, const char *says)
{
    static struct kernel_table table;
    struct error err = { 0 };
    assert_int_equal(kernel_table_parse(&table, text, "mine", &err), ERR_FORMAT);
    if (strstr(err.text, says) == NULL) fail_msg("%s", err.text);
    assert_null(strchr(err.text, '\n'));
}

static void test_wrong_tables(void **state)
{
    (void)state;
    refused(TABLE("0", PRODUCTS, ATTENTION, MEMORY), "\"GFLOP_per_second\"");
    refused(TABLE("0.2", PRODUCTS, ATTENTION, MEMORY), "\"GFLOP_per_second\"");
    refused(TABLE("1000, \"x\": 1", PRODUCTS, ATTENTION, MEMORY), "\"x\" is not a key");
    refused(TABLE("1000", "\"products\": { \"half_outputs\": 0, \"half_depth\": 0, \"points\": [[1, 1, 1, 1001], "
                          "[1, 1, 2, 1]], \"source\": \"s\" }", ATTENTION, MEMORY),
            "products: points[0] is 1001.00 times the device's rate");
    refused(TABLE("1000", "\"products\": { \"half_outputs\": 0, \"half_depth\": 0, \"points\": [[1, 1, 1, 1], "
                          "[1, 1, 1, 1]], \"source\": \"s\" }", ATTENTION, MEMORY),
            "points[0] and points[1] are the same product");
    refused(TABLE("1000", "\"products\": { \"half_outputs\": 0, \"half_depth\": 0, \"points\": [[1, 1, 1, 1], "
                          "[1, 1, 1]], \"source\": \"s\" }", ATTENTION, MEMORY),
            "points[1] must be a list of 4 numbers");
    refused(TABLE("1000", PRODUCTS, ATTENTION, "\"memory\": { \"points\": [[4, 25], [1, 75]], \"source\": \"s\" }"),
            "memory: points[1] is not behind the point before it");
    refused(TABLE("1000", PRODUCTS, ATTENTION, "\"memory\": { \"points\": [[0, 25]], \"source\": \"s\" }"),
            "memory: points[0] has a number that is not above 0");
    refused(TABLE("1000", PRODUCTS, ATTENTION, "\"memory\": { \"points\": [[1, 25]] }"), "\"source\"");
    refused(TABLE("1000", PRODUCTS, "\"attention\": { \"series\": [{ \"kernels\": \"k\", \"pass\": \"sideways\", "
                          "\"head\": 64, \"causal\": true, \"points\": [[1, 1]] }], \"source\": \"s\" }", MEMORY),
            "series[0]: \"pass\" is 'sideways'");
}

static void refused_set(const char *text, const char *says)
{
    static struct kernel_set set;
    struct error err = { 0 };
    assert_int_equal(kernel_set_parse(&set, text, "mine", &err), ERR_FORMAT);
    if (strstr(err.text, says) == NULL) fail_msg("%s", err.text);
}

static void test_wrong_sets(void **state)
{
    (void)state;
    refused_set("{ \"name\": \"f\", \"description\": \"d\", \"attention\": [\"unfused\"], \"graphs\": true }",
                "\"scores_forward\" is needed with attention unfused");
    refused_set("{ \"name\": \"f\", \"description\": \"d\", \"attention\": [\"k\"], \"graphs\": true, "
                "\"scores_forward\": [1, 1] }", "\"scores_forward\" cannot stand with attention k");
    refused_set("{ \"name\": \"f\", \"description\": \"d\", \"attention\": [\"k\"], \"graphs\": true, \"other\": [1] }",
                "\"other\" must be [percent, kernels]");
    refused_set("{ \"name\": \"f\", \"description\": \"d\", \"attention\": [\"k\"], \"graphs\": true, "
                "\"other\": [1, 1], \"operations\": { \"add\": [1, -1] } }",
                "operations: \"add\" must be [percent, kernels]");
}

/* Every shipped set may be chosen with every shipped table; a table without its attention is refused. */
static void test_shipped_sets(void **state)
{
    (void)state;
    static struct kernel_table table;
    const struct kernel_set *set;
    struct error err;
    int i = 0;
    for (; (set = kernel_set_at(i)) != NULL; i++) {
        for (int t = 0; kernel_table_texts[t] != NULL; t++) {
            parse(&table, kernel_table_texts[t]);
            if (kernel_set_check(set, &table, "--kernels-of", &err)) fail_msg("%s", err.text);
        }
        const struct kernel_set *again;
        assert_int_equal(kernel_set_find(&again, "--kernels-of", set->name, &err), OK);
        assert_ptr_equal(again, set);
    }
    assert_null(kernel_set_texts[i]);
    assert_true(i >= 4);
    parse(&table, small);
    assert_int_equal(kernel_set_find(&set, "--kernels-of", "te", &err), OK);
    assert_int_equal(kernel_set_check(set, &table, "--kernels-of", &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "which the table t does not have"));
    assert_int_equal(kernel_set_find(&set, "--kernels-of", "tee", &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "--kernels-of tee"));
}

/* A set cannot be chosen where nothing was measured. */
static void test_choice(void **state)
{
    (void)state;
    struct cluster c;
    struct error err;
    assert_int_equal(cluster_find(&c, "h100-infiniband", &err), OK);
    assert_string_equal(c.kernels.set->name, "te");
    assert_int_equal(kernel_set_choose(&c, "torch-eager", &err), OK);
    assert_string_equal(c.kernels.set->name, "torch-eager");
    assert_int_equal(cluster_find(&c, CLUSTER_USUAL, &err), OK);
    assert_int_equal(kernel_set_choose(&c, "te", &err), ERR_USAGE);
    assert_string_equal(err.text, "--kernels-of te: cluster toy has no table of measured kernels");
    assert_null(c.kernels.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped_tables_are_exact_at_their_points),
        cmocka_unit_test(test_products_between_two_points),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_times_by_hand),
        cmocka_unit_test(test_what_is_beside_a_product), cmocka_unit_test(test_unfused_attention_by_hand),
        cmocka_unit_test(test_wrong_tables),
        cmocka_unit_test(test_wrong_sets),
        cmocka_unit_test(test_shipped_sets),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
