/* Numbers for people: times, bytes, counts, operations, rates; sizes that are read; one unit for a column.
 * tier: check
 */
#include "ref/io/figures.h"
#include "tests/ref/scratch.h"
#include <inttypes.h>
#include <math.h>

struct example { double value; const char *text; };

static void assert_examples(const char *what, struct figure (*format)(double), const struct example *e)
{
    for (; e->text; e++)
        if (strcmp(format(e->value).text, e->text) != 0)
            fail_msg("%s of %.17g is \"%s\", not \"%s\"", what, e->value, format(e->value).text, e->text);
}

static void tells_times(void **state)
{
    (void)state;
    static const struct example times[] = {
        { 0, "0 s" }, { 1e-12, "1 ps" }, { 2.5e-13, "0.25 ps" }, { 1.5e-9, "1.50 ns" }, { 12.5e-6, "12.5 us" },
        { 1e-5, "10 us" }, { 27.83e-3, "27.8 ms" }, { 5.4423158, "5.44 s" }, { 9.994e-3, "9.99 ms" },
        { 9.996e-3, "10.0 ms" }, { 999.94e-3, "999.9 ms" }, { 999.96e-3, "1.00 s" }, { 999.96e-6, "1.00 ms" },
        { 999.96e-12, "1.00 ns" }, { 99.96, "100.0 s" }, { 119.94, "119.9 s" }, { 119.96, "2 min 0 s" },
        { 120, "2 min 0 s" }, { 179.6, "3 min 0 s" }, { 2039.5434869, "34 min 0 s" }, { 7199.4, "119 min 59 s" },
        { 7199.6, "2 h 0 min" }, { 12240, "3 h 24 min" }, { 172769, "47 h 59 min" }, { 172771, "2 days 0 h" },
        { 53.3e6, "616 days 22 h" }, { 1e12, "3.17e+04 years" }, { -0.0278, "-27.8 ms" }, { -2040, "-34 min 0 s" },
        { NAN, "nan" }, { INFINITY, "inf" }, { -INFINITY, "-inf" }, { 0, NULL },
    };
    assert_examples("the time", time_format, times);
    assert_string_equal(picoseconds_format(2039543486900000.0).text, "34 min 0 s");
    assert_string_equal(picoseconds_format(1).text, "1 ps");
    assert_string_equal(picoseconds_exact(0).text, "0 s");
    assert_string_equal(picoseconds_exact(40080000).text, "40.08 us");
    assert_string_equal(picoseconds_exact(1234567891).text, "1.234567891 ms");
    assert_string_equal(picoseconds_exact(-999).text, "-999 ps");
    assert_string_equal(picoseconds_exact(1000001).text, "1.000001 us");
    assert_string_equal(picoseconds_exact(INT64_MAX).text, "9223372.036854775807 s");
}

static void tells_counts_and_rates(void **state)
{
    (void)state;
    static const struct example counts[] = {
        { 0, "0" }, { 824, "824" }, { 999, "999" }, { 1000, "1K" }, { 158900, "158.9K" }, { 999940, "999.9K" },
        { 999960, "1.00M" }, { 124439808, "124.4M" }, { 70553706496.0, "70.6B" }, { 1.2e15, "1200T" },
        { 1e30, "1e+18T" }, { -1500, "-1.50K" }, { 188.24, "188.2" }, { 0.5, "0.50" }, { NAN, "nan" }, { 0, NULL },
    }, flop[] = {
        { 4.756e10, "47.6 GFLOP" }, { 12, "12 FLOP" }, { 1e21, "1 ZFLOP" }, { 9.99996e11, "1.00 TFLOP" }, { 0, NULL },
    }, flop_rates[] = {
        { 477.3e12, "477.3 TFLOP/s" }, { 989e12, "989 TFLOP/s" }, { 989.5e15, "989.5 PFLOP/s" }, { 0, NULL },
    }, byte_rates[] = {
        { 3.35e12, "3.35 TB/s" }, { 50e9, "50 GB/s" }, { 125e6, "125 MB/s" }, { 1500, "1.50 kB/s" }, { 0, NULL },
    };
    assert_examples("the count", count_format, counts);
    assert_examples("the operations", flop_format, flop);
    assert_examples("the rate", flop_rate_format, flop_rates);
    assert_examples("the rate", byte_rate_format, byte_rates);
}

/* Texts that are read as these bytes; how bytes are printed, and the shortest text that is read as them. */
static void reads_and_writes_sizes(void **state)
{
    (void)state;
    static const struct { const char *text; uint64_t bytes; const char *printed, *word; } good[] = {
        { "0", 0, "0 B", "0" }, { "1023", 1023, "1023 B", "1023" }, { "1K", 1024, "1 KiB", "1KiB" },
        { "64M", 64 << 20, "64 MiB", "64MiB" }, { "64m", 64 << 20, "64 MiB", "64MiB" },
        { "64MiB", 64 << 20, "64 MiB", "64MiB" }, { "64mib", 64 << 20, "64 MiB", "64MiB" },
        { "1.5G", UINT64_C(3) << 29, "1.50 GiB", "1536MiB" }, { "0.5K", 512, "512 B", "512" },
        { "80GB", 80000000000, "74.5 GiB", "80GB" }, { "80gb", 80000000000, "74.5 GiB", "80GB" },
        { "80GiB", UINT64_C(80) << 30, "80 GiB", "80GiB" }, { "1e9", 1000000000, "953.7 MiB", "1GB" },
        { "2.5e3", 2500, "2.44 KiB", "2500" }, { "1e3K", 1024000, "1000 KiB", "1000KiB" }, { "12B", 12, "12 B", "12" },
        { "2T", UINT64_C(2) << 40, "2 TiB", "2TiB" }, { "2TB", 2000000000000, "1.82 TiB", "2TB" },
        { "1536", 1536, "1.50 KiB", "1536" }, { "1048570", 1048570, "1.00 MiB", "1048570" },
        { "4.9GiB", 5261334937, "4.90 GiB", "5261334937" },
        { "9007199254740993", 9007199254740993u, "8192 TiB", "9007199254740993" },
        { "18446744073709551615", UINT64_MAX, "1.68e+07 TiB", "18446744073709551615" },
    };
    static const char *const bad[] = {
        "", "M", "-1", " 1", "1 ", "1 GB", "1Gb", "1kb1", "1GBB", "1iB", "1Gi", "1E3", "1e", "1e-3", "0x10", "1.K.",
        "0.3", "0.3B", "1..5G", ".5G", "18446744073709551616", "16777216T", "99999999999T", "18446744073710TB",
        "1e30", "inf", "nan", "1P",
    };
    uint64_t x;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!size_parse(good[i].text, &x) || x != good[i].bytes)
            fail_msg("%s: is read as %" PRIu64 " bytes", good[i].text, x);
        assert_string_equal(size_format(x).text, good[i].printed);
        assert_string_equal(size_word(x).text, good[i].word);
        if (!size_parse(good[i].word, &x) || x != good[i].bytes) fail_msg("%s: not read as its bytes", good[i].word);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (size_parse(bad[i], &x)) fail_msg("\"%s\" was taken for a size", bad[i]);
}

/* Units of counts are of 1000, and a count is whole. */
static void reads_counts(void **state)
{
    (void)state;
    static const struct { const char *text; uint64_t count; } good[] = {
        { "0", 0 }, { "4096", 4096 }, { "1K", 1000 }, { "1.5k", 1500 }, { "300B", 300000000000 }, { "7b", 7000000000 },
        { "15.6T", 15600000000000 }, { "2e12", 2000000000000 }, { "0.3T", 300000000000 }, { "1.1M", 1100000 },
        { "9007199254740993", 9007199254740993 }, { "18446744073709551615", UINT64_MAX },
    };
    static const char *const bad[] = { "", "B", "1.5", "0.0001K", "15 T", "15TB", "15Ti", "1G", "-1", "1e", "inf",
                                       "18446744073709551616", "18446745T", "1e30", "1.0005K5" };
    uint64_t x;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!count_parse(good[i].text, &x) || x != good[i].count)
            fail_msg("%s: is read as %" PRIu64, good[i].text, x);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (count_parse(bad[i], &x)) fail_msg("\"%s\" was taken for a count", bad[i]);
}

static void tells_energy_as_it_is_sold(void **state)
{
    (void)state;
    assert_string_equal(energy_format(3.6e6).text, "1 kWh");
    assert_string_equal(energy_format(1.4e14).text, "38.9 GWh");
    assert_string_equal(energy_format(1800).text, "0.50 Wh");
    assert_string_equal(power_format(10200).text, "10.2 kW");
    assert_string_equal(power_format(20889600).text, "20.9 MW");
}

static void tells_memory_as_data_sheets_do(void **state)
{
    (void)state;
    assert_string_equal(memory_format(80000000000).text, "74.5 GiB (80 GB)");
    assert_string_equal(memory_format(1000000000).text, "953.7 MiB (1 GB)");
    assert_string_equal(memory_format(UINT64_C(80) << 30).text, "80 GiB");
    assert_string_equal(memory_format(64 << 20).text, "64 MiB");
    assert_string_equal(memory_format(1234567).text, "1.18 MiB");
}

/* The advice is enough, at most 1 % too much, and is read as a size. */
static void advises_enough(void **state)
{
    (void)state;
    static const uint64_t needs[] = { 0, 1, 1023, 1024, 1025, 999 << 10, 1000 << 10, 526732, 5271343104, 80000000000,
                                      UINT64_C(1) << 52 };
    assert_string_equal(size_enough(5271343104).text, "5028MiB");
    assert_string_equal(size_enough(526732).text, "515KiB");
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        uint64_t x = 0;
        assert_true(size_parse(size_enough(needs[i]).text, &x));
        if (x < needs[i] || x - needs[i] > needs[i] / 100)
            fail_msg("for %" PRIu64 " bytes the advice is %s", needs[i], size_enough(needs[i]).text);
    }
}

static void has_one_unit_for_a_column(void **state)
{
    (void)state;
    struct figure_scale s = time_scale(5.44);
    assert_string_equal(s.name, "s");
    assert_string_equal(scale_format(&s, 5.4423).text, "5.442");
    assert_string_equal(scale_format(&s, 0.0123).text, "0.012");
    assert_string_equal(scale_format(&s, 1e-5).text, "<0.001");
    assert_string_equal(scale_format(&s, -1e-5).text, ">-0.001");
    assert_string_equal(scale_format(&s, 0).text, "0");
    s = time_scale(0.99996);
    assert_string_equal(s.name, "s");
    s = time_scale(0.9999);
    assert_string_equal(s.name, "ms");
    assert_string_equal(scale_format(&s, 0.9999).text, "999.9");
    s = size_scale(80000000000);
    assert_string_equal(s.name, "GiB");
    assert_string_equal(scale_format(&s, 80e9).text, "74.51");
    assert_string_equal(scale_format(&s, 512).text, "<0.01");
    s = size_scale(824);
    assert_string_equal(s.name, "B");
    assert_string_equal(scale_format(&s, 824).text, "824");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_times), cmocka_unit_test(tells_counts_and_rates),
        cmocka_unit_test(reads_and_writes_sizes), cmocka_unit_test(reads_counts),
        cmocka_unit_test(tells_energy_as_it_is_sold),
        cmocka_unit_test(tells_memory_as_data_sheets_do),
        cmocka_unit_test(advises_enough), cmocka_unit_test(has_one_unit_for_a_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
