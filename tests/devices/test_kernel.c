/* How long a kernel takes on a cluster that says how kernels fall short of its rates; and steps of Megatron-LM of which
 * the time is known.
 * tier: check
 */
#include "emulated_devices/device/clock.h"
#include "emulated_devices/device/kernel.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* 10^12 operations and 10^11 bytes a second: a picosecond for an operation, ten for a byte. */
static const struct cluster plain = { .flop_rate = { [F16] = 1000000, [F32] = 1000000 }, .memory_rate = 100000,
                                      .levels = 1 };

static struct cluster short_of(void)
{
    struct cluster c = plain;
    c.kernels = (struct kernels){ .units = 4, .tile_rows = 8, .tile_columns = 16, .half_depth = 32,
                                  .matrix_permille = 500, .memory_permille = 250, .other_permille = 200,
                                  .other_half_depth = 30, .launch = 7000, .named = 1,
                                  .share = { { "dropout", 50 } } };
    return c;
}

static picoseconds product(const struct cluster *c, int64_t rows, int64_t columns, int64_t depth, int64_t count)
{
    return kernel_product(c, F16, (struct product){ rows, columns, depth, count });
}

/* A wave of 4 tiles of 8 x 16, as deep as depth + 32, at half the rate. */
static void test_products_come_in_waves_of_tiles(void **state)
{
    struct cluster c = short_of();
    (void)state;
    c.memory_rate = 0;
    enum { DEPTH = 4096, WAVE = 4 * 8 * 16 * 2 * (DEPTH + 32) * 2 };
    assert_int_equal(product(&c, 8, 16, DEPTH, 4), 7000 + WAVE);
    assert_int_equal(product(&c, 16, 32, DEPTH, 1), 7000 + WAVE);       /* the same four tiles */
    assert_int_equal(product(&c, 9, 17, DEPTH, 1), 7000 + WAVE);        /* four tiles, three hardly used */
    assert_int_equal(product(&c, 33, 16, DEPTH, 1), 7000 + 2 * WAVE);   /* five tiles: two waves */
    assert_int_equal(product(&plain, 9, 17, DEPTH, 1), 2 * (9 * DEPTH + 17 * DEPTH + 9 * 17) * 10);  /* memory */
    assert_int_equal(product(&plain, 100, 200, 300, 1), 2 * 100 * 200 * 300);
}

/* A shallow product waits for memory, of which a quarter of the rate is reached: 40 ps a byte. */
static void test_memory_at_a_share(void **state)
{
    const struct cluster c = short_of();
    (void)state;
    const int64_t bytes = 2 * (8 * 1 + 1 * 1000 + 8 * 1000), work = 16 * 4 * 8 * 16 * 2 * (1 + 32) * 2;
    assert_int_equal(product(&c, 8, 1000, 1, 1), 7000 + (bytes * 40 > work ? bytes * 40 : work));
    assert_int_equal(kernel_bytes(&c, 1000), 7000 + 40000);
    assert_int_equal(kernel_bytes(&plain, 1000), 10000);
}

/* What a device charges: a product by its shape, the rest by operations and bytes; without "kernels" as ever. */
static void test_the_clock_charges_them(void **state)
{
    struct cluster c = short_of();
    struct clock clock;
    (void)state;
    clock_open(&clock, &c, F32);
    clock_compute(&clock, "product", linear_cost(9, 4096, 17, F32));
    assert_int_equal(clock.now, kernel_product(&c, F32, (struct product){ 9, 17, 4096, 1 }));
    const picoseconds then = clock.now;
    clock_compute(&clock, "bytes", elementwise_cost(100, 2, 1, F32));
    assert_int_equal(clock.now - then, 7000 + 800 * 40);
    clock_compute(&clock, "attention", (struct op_cost){ .flops = 3000, .bytes = 10 });        /* a fifth of the rate */
    picoseconds now = then + 7000 + 800 * 40 + 7000 + 3000 * 5;
    assert_int_equal(clock.now, now);
    clock_compute(&clock, "attention", (struct op_cost){ .flops = 3000, .bytes = 10, .depth = 10 });    /* 40 / 10 */
    assert_int_equal(clock.now, now += 7000 + 3000 * 5 * 4);
    clock_compute(&clock, "dropout", (struct op_cost){ .flops = 1e6, .bytes = 100 });   /* its share: 200 ps a byte */
    assert_int_equal(clock.now, now += 7000 + 100 * 200);
    clock_compute(&clock, "nothing", (struct op_cost){ .flops = 0 });
    assert_int_equal(clock.now, now);
    clock_open(&clock, &plain, F32);
    clock_compute(&clock, "product", linear_cost(100, 200, 300, F32));
    assert_int_equal(clock.now, 2 * 100 * 200 * 300);
}

/* A product with exact sums is one of integers in fp64: the rate of that format counts, in every kind of kernels.  With
 * two slices the terms are twice as many. */
static void test_exact_products(void **state)
{
    struct cluster c = short_of(), slow = plain;
    struct clock clock;
    struct op_cost exact = linear_cost(9, 4096, 17, BF16);
    (void)state;
    exact = cost_exactly(exact, SUMS_EXACT);
    c.flop_rate[BF16] = c.flop_rate[F32] * 8, c.flop_rate[F64] = c.flop_rate[F32] / 2;
    clock_open(&clock, &c, BF16);
    clock_compute(&clock, "linear forward", exact);
    assert_int_equal(clock.now, kernel_product(&c, F64, (struct product){ 9, 17, 4096, 1 }));
    slow.flop_rate[F64] = slow.flop_rate[F32] / 4;
    clock_open(&clock, &slow, F32);
    clock_compute(&clock, "linear forward", cost_exactly(linear_cost(100, 200, 300, F32), SUMS_EXACT));
    assert_int_equal(clock.now, 4 * 2 * 100 * 200 * 300);
    clock_compute(&clock, "linear forward", cost_exactly(linear_cost(100, 200, 300, F32), SUMS_EXACT2));
    assert_int_equal(clock.now, (4 + 8) * 2 * 100 * 200 * 300);
    clock_open(&clock, &c, BF16);
    clock_compute(&clock, "linear forward", cost_exactly(linear_cost(9, 4096, 17, BF16), SUMS_EXACT2));
    assert_int_equal(clock.now, kernel_product(&c, F64, (struct product){ 9, 17, 2 * 4096, 1 }));
}

/* With a start alone the rates are reached; what is part of a running kernel, and nothing at all, have no start. */
static void test_a_start_alone(void **state)
{
    struct cluster c = plain;
    struct clock clock;
    (void)state;
    c.kernels.launch = 7000;
    clock_open(&clock, &c, F32);
    clock_compute(&clock, "product", linear_cost(100, 200, 300, F32));
    picoseconds now = 7000 + 2 * 100 * 200 * 300;
    assert_int_equal(clock.now, now);
    clock_compute(&clock, "nothing", (struct op_cost){ .flops = 0 });
    assert_int_equal(clock.now, now);
    clock_compute(&clock, "reduce", (struct op_cost){ .bytes = 100, .running = true });
    assert_int_equal(clock.now, now += 100 * 10);
    c = short_of();
    clock_open(&clock, &c, F32);
    clock_compute(&clock, "reduce", (struct op_cost){ .bytes = 100, .running = true });
    assert_int_equal(clock.now, 100 * 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_come_in_waves_of_tiles), cmocka_unit_test(test_memory_at_a_share),
        cmocka_unit_test(test_the_clock_charges_them), cmocka_unit_test(test_exact_products),
        cmocka_unit_test(test_a_start_alone),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
