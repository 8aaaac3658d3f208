/* Descriptions of clusters: the shipped ones, files, and what is refused, with the key and the value.
 * tier: check
 */
#include "emulated_devices/device/cluster.h"
#include "ref/io/output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail

static struct error err;

static void test_every_shipped_cluster_is_read(void **state)
{
    (void)state;
    int n = 0;
    for (; cluster_texts[n] != NULL; n++) {
        struct cluster c, again;
        if (cluster_parse(&c, cluster_texts[n], "shipped", &err) != OK) print_error("%s\n", err.text);
        assert_int_equal(cluster_parse(&c, cluster_texts[n], "shipped", &err), OK);
        assert_int_equal(cluster_find(&again, c.name, &err), OK);
        assert_memory_equal(&c, &again, sizeof c);
        assert_true(c.source[0] != '\0');
        /* Each says what a kernel's start takes, or has a table that does. */
        if (c.kernels.table == NULL) {
            assert_true(c.kernels.source[0] != '\0');
            assert_non_null(strstr(cluster_texts[n], "\"launch_ns\""));
        }
        if (strcmp(c.name, "textbook") != 0)
            for (int l = 0; l < c.levels; l++) assert_true(c.link[l].gap > 0);
        for (int l = 0; l < c.levels; l++)
            assert_true(c.link[l].rate > 0 && c.link[l].latency > 0 && c.link[l].source[0] != '\0');
        for (int l = 1; l < c.levels; l++) {                    /* farther is slower */
            assert_true(c.link[l].rate < c.link[l - 1].rate);
            assert_true(c.link[l].latency > c.link[l - 1].latency);
        }
        assert_int_equal(cluster_check(&c, 8, F32, &err), OK);
        assert_int_equal(cluster_check(&c, 8, F64, &err), OK);
    }
    assert_true(n >= 5);
}

/* A reader of the list must see which clusters have no efficiencies of kernels, but for those that stand for none. */
static void test_data_sheets_are_said_to_be_bounds(void **state)
{
    static const char *const without[] = { "textbook", "toy", "laptop-flat", "ethernet-1g", "two-generations",
                                           "a100-ethernet", "h100-node", "h100-infiniband", "h100-contended" };
    (void)state;
    for (int n = 0; cluster_texts[n] != NULL; n++) {
        struct cluster c;
        bool says = false;
        assert_int_equal(cluster_parse(&c, cluster_texts[n], "shipped", &err), OK);
        for (size_t i = 0; i < sizeof without / sizeof *without; i++) says = says || strcmp(c.name, without[i]) == 0;
        says = says || c.kernels.units > 0 || c.kernels.table
            || strstr(c.description, "data-sheet rates: an upper bound") != NULL;
        if (!says) print_error("%s has no efficiencies of kernels, and does not say so\n", c.name);
        assert_true(says);
    }
}

/* Ranks beyond the list begin again; links are everybody's; a clock's rates are those of its rank. */
static void test_devices_of_different_speed(void **state)
{
    static const char text[] = "{\"name\":\"n\",\"description\":\"d\",\"device\":{\"GFLOP_per_second\":{\"fp64\":10},"
                               "\"memory_MB_per_second\":30,"
                               "\"percent\":[100,50,1],\"source\":\"s\"},\"links\":[{\"level\":\"l\",\"latency_ns\":1,"
                               "\"MB_per_second\":7,\"source\":\"s\"}]}";
    static const int want[] = { 100, 50, 1, 100, 50, 1 };
    struct cluster c;
    (void)state;
    assert_int_equal(cluster_parse(&c, text, "t", &err), OK);
    for (int rank = 0; rank < 6; rank++) {
        const struct cluster own = cluster_of_rank(&c, rank);
        assert_int_equal(cluster_percent(&c, rank), want[rank]);
        assert_int_equal(own.flop_rate[F64], 100 * want[rank]);
        assert_int_equal(own.flop_rate[F32], -1);
        assert_int_equal(own.memory_rate, want[rank] == 1 ? 1 : 30 * want[rank] / 100);
        assert_int_equal(own.copy_rate, 0);
        assert_int_equal(own.link[0].rate, 7);
    }
}

static void test_values_are_what_the_file_says(void **state)
{
    struct cluster c;
    (void)state;
    assert_int_equal(cluster_find(&c, "a100-ethernet", &err), OK);
    assert_string_equal(c.name, "a100-ethernet");
    assert_int_equal(c.levels, 3);
    assert_string_equal(c.link[0].level, "pair");
    assert_int_equal(c.link[0].devices, 2);
    assert_int_equal(c.link[1].devices, 4);
    assert_int_equal(c.link[2].devices, 0);
    assert_int_equal(c.link[0].latency, 3400000);
    assert_int_equal(c.link[2].rate, 3125);
    assert_int_equal(c.link[2].gap, 27000);
    assert_int_equal(c.kernels.launch, 900000);
    assert_int_equal(c.kernels.units, 0);
    assert_true(c.link[1].eager == 4194304);
    assert_int_equal(c.flop_rate[F32], 19500000);
    assert_int_equal(c.memory_rate, 1935000);
    assert_true(c.memory == 80000000000);
    assert_int_equal(c.host.flop_rate[F64], 627000);
    assert_int_equal(c.host.memory_rate, 51200);
    assert_int_equal(c.host.drive_rate, 7877);
    assert_int_equal(cluster_find(&c, "textbook", &err), OK);
    assert_int_equal(c.flop_rate[F64], 0);
    assert_true(c.link[0].eager == ALWAYS_EAGER);
    assert_int_equal(c.host.drive_rate, 0);
    assert_int_equal(cluster_find(&c, CLUSTER_USUAL, &err), OK);
}

static void test_a_file_is_read(void **state)
{
    struct cluster from_file, shipped;
    char path[4096];
    (void)state;
    snprintf(path, sizeof path, "%s/orrery_cluster_%ld.json", temporary_folder(), (long)getpid());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(cluster_find(&shipped, "h100-node", &err), OK);
    for (int i = 0; cluster_texts[i] != NULL; i++)
        if (strstr(cluster_texts[i], "\"h100-node\"")) fputs(cluster_texts[i], f);
    fclose(f);
    assert_int_equal(cluster_find(&from_file, path, &err), OK);
    assert_memory_equal(&shipped, &from_file, sizeof shipped);
    remove(path);
    assert_int_equal(cluster_find(&from_file, path, &err), ERR_FILE);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    struct cluster c;
    (void)state;
    assert_int_equal(cluster_find(&c, "h100-nod", &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "--cluster"));
    assert_non_null(strstr(err.text, "h100-node"));
    assert_int_equal(cluster_find(&c, "h100-node", &err), OK);
    assert_int_equal(cluster_check(&c, 9, F32, &err), ERR_PLAN);
    assert_string_equal(err.text, "--cluster h100-node: it has 8 devices; the mesh has 9");
    c.flop_rate[F64] = -1;
    assert_int_equal(cluster_check(&c, 8, F64, &err), ERR_PLAN);
    assert_non_null(strstr(err.text, "fp64"));
}

#define DEVICE "\"device\": { \"source\": \"s\" }"
#define LINK "{ \"level\": \"node\", \"latency_ns\": 1, \"MB_per_second\": 1, \"source\": \"s\" }"
#define HEAD "\"name\": \"n\", \"description\": \"d\", "

/* Each text has one fault; the message must name the key, and the value where there is one. */
static void test_faults_are_named(void **state)
{
    static const struct { const char *text, *key, *value; } bad[] = {
        { "[]", "object", "" },
        { "{ \"description\": \"d\", " DEVICE ", \"links\": [" LINK "] }", "\"name\"", "missing" },
        { "{ \"name\": \"\", \"description\": \"d\", " DEVICE ", \"links\": [" LINK "] }", "\"name\"", "0 bytes" },
        { "{ \"name\": \"a\\\"b\", \"description\": \"d\", " DEVICE ", \"links\": [" LINK "] }", "\"name\"", "quotes" },
        { "{ " HEAD DEVICE ", \"links\": [] }", "\"links\"", "0 levels" },
        { "{ " HEAD DEVICE ", \"links\": [" LINK "," LINK "," LINK "," LINK "] }", "\"links\"", "4 levels" },
        { "{ " HEAD DEVICE ", \"links\": [" LINK "," LINK "] }", "links[0]", "\"devices\"" },
        { "{ " HEAD DEVICE ", \"links\": [1] }", "links[0]", "" },
        { "{ " HEAD DEVICE ", \"link\": [" LINK "] }", "\"link\"", "\"links\"" },
        { "{ " HEAD "\"device\": { \"source\": \"s\", \"memory\": 1 }, \"links\": [" LINK "] }", "\"memory\"",
          "device" },
        { "{ " HEAD "\"device\": { }, \"links\": [" LINK "] }", "\"source\"", "device" },
        { "{ " HEAD "\"device\": { \"source\": \"s\", \"GFLOP_per_second\": { \"fp32\": 1.5 } }, "
          "\"links\": [" LINK "] }", "\"fp32\"", "1.5" },
        { "{ " HEAD "\"device\": { \"source\": \"s\", \"GFLOP_per_second\": { \"fp32\": 0 } }, "
          "\"links\": [" LINK "] }", "\"fp32\"", "0" },
        { "{ " HEAD "\"device\": { \"source\": \"s\", \"GFLOP_per_second\": { \"bf61\": 1 } }, "
          "\"links\": [" LINK "] }", "\"bf61\"", "did you mean \"bf16\"" },
        { "{ " HEAD "\"device\": { \"source\": \"s\", \"memory_MB_per_second\": -1 }, \"links\": [" LINK "] }",
          "\"memory_MB_per_second\"", "-1" },
        { "{ " HEAD "\"device\": { \"source\": \"s\", \"percent\": [100, 0] }, \"links\": [" LINK "] }", "percent[1]",
          "1 to 100" },
        { "{ " HEAD "\"device\": { \"source\": \"s\", \"percent\": [\"a\"] }, \"links\": [" LINK "] }", "percent[0]",
          "1 to 100" },
        { "{ " HEAD "\"device\": { \"source\": \"s\", \"percent\": [] }, \"links\": [" LINK "] }", "\"percent\"",
          "0 speeds" },
        { "{ " HEAD DEVICE ", \"host\": { \"source\": \"s\", \"drive\": 1 }, \"links\": [" LINK "] }", "\"drive\"",
          "host" },
        { "{ " HEAD DEVICE ", \"host\": { \"drive_MB_per_second\": 1 }, \"links\": [" LINK "] }", "\"source\"",
          "host" },
        { "{ " HEAD DEVICE ", \"host\": { \"source\": \"s\", \"GFLOP_per_second\": { \"fp32\": 1 } }, "
          "\"links\": [" LINK "] }", "GFLOP_per_second", "fp64" },
        { "{ " HEAD DEVICE ", \"links\": [{ \"level\": \"node\", \"MB_per_second\": 1, \"source\": \"s\" }] }",
          "\"latency_ns\"", "missing" },
        { "{ " HEAD DEVICE ", \"links\": [{ \"level\": \"node\", \"latency_ns\": 1e30, \"MB_per_second\": 1, "
                           "\"source\": \"s\" }] }", "\"latency_ns\"", "e+30" },
        { "{ " HEAD DEVICE ", \"links\": [{ \"level\": \"node\", \"latency_ns\": 1, \"MB_per_second\": 0, \"source\": "
                           "\"s\" }] }", "\"MB_per_second\"", "0" },
        { "{ " HEAD DEVICE ", \"links\": [{ \"level\": \"node\", \"latency_ns\": \"fast\", \"MB_per_second\": 1, "
                           "\"source\": \"s\" }] }", "\"latency_ns\"", "\"fast\"" },
        { "{ " HEAD DEVICE ", \"links\": [{ \"level\": \"node\", \"latency_ns\": 1, \"MB_per_second\": 1, "
                           "\"reduces\": 1, \"source\": \"s\" }] }", "\"reduces\"", "1" },
        { "{ " HEAD DEVICE ", \"links\": [{ \"level\": \"node\", \"devices\": 4, \"ports\": 4, \"latency_ns\": 1, "
                           "\"MB_per_second\": 1, \"source\": \"s\" }] }", "\"ports\"", "at most 3" },
        { "{ " HEAD DEVICE ", \"links\": [{ \"level\": \"node\", \"devices\": 4, \"ports\": 0, \"latency_ns\": 1, "
                           "\"MB_per_second\": 1, \"source\": \"s\" }] }", "\"ports\"", "0" },
        { "{ " HEAD DEVICE ", \"links\": [{ \"level\": \"node\", \"latency_ns\": 1, \"MB_per_second\": 1 }] }",
          "links[0]", "\"source\" is missing" },
        { "{ " HEAD DEVICE ", \"links\": [" LINK "], \"shared\": [{ \"name\": \"c\", \"messages\": \"inside\", "
          "\"devices\": 2, \"MB_per_second\": 1 }] }", "shared[0]", "\"source\" is missing" },
        { "{ " HEAD DEVICE ", \"kernels\": { \"launch_ns\": 1 }, \"links\": [" LINK "] }", "kernels",
          "\"source\" is missing" },
        { "{ " HEAD DEVICE ", \"links\": [{ \"level\": \"a level with a long name\", \"latency_ns\": 1, "
                           "\"MB_per_second\": 1, \"source\": \"s\" }] }", "\"level\"", "24 bytes" },
        { "{ " HEAD DEVICE ", \"links\": [{ \"level\": \"pair\", \"devices\": 2, \"latency_ns\": 1, "
                           "\"MB_per_second\": 1, \"source\": \"s\" }, "
          "{ \"level\": \"node\", \"devices\": 3, \"latency_ns\": 1, \"MB_per_second\": 1, \"source\": \"s\" }] }",
          "links[1]", "3" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cluster c;
        const enum error_code e = cluster_parse(&c, bad[i].text, "mine.json", &err);
        if (e != ERR_FORMAT || !strstr(err.text, "mine.json") || !strstr(err.text, bad[i].key) ||
            !strstr(err.text, bad[i].value)) {
            print_error("text %zu: code %d: %s\n", i, (int)e, err.text);
            assert_true(false);
        }
        assert_null(strchr(err.text, '\n'));
    }
    struct cluster c;
    assert_int_equal(cluster_parse(&c, "{ " HEAD DEVICE ", \"links\": [" LINK "] }", "mine.json", &err), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_shipped_cluster_is_read), cmocka_unit_test(test_values_are_what_the_file_says),
        cmocka_unit_test(test_devices_of_different_speed),
        cmocka_unit_test(test_data_sheets_are_said_to_be_bounds),
        cmocka_unit_test(test_a_file_is_read), cmocka_unit_test(test_what_does_not_fit_is_refused),
            cmocka_unit_test(test_faults_are_named),
    };
    return cmocka_run_group_tests_name("cluster", tests, NULL, NULL);
}
