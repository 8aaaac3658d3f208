/* The links on a message's way: all of them are links of the network, also through places of a torus that have no
 * device.
 * tier: check
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
#include "emulated_devices/device/network.h"

static struct cluster torus(int dimensions, const int *size, int devices)
{
    struct cluster c = { .levels = 1, .link = { { .rate = 1000, .latency = 5 } }, .shares = 1 };
    c.shared[0] = (struct shared_link){ .kind = SHARED_TORUS, .devices = devices, .rate = 50, .hop = 7,
                                        .dimensions = dimensions };
    memcpy(c.shared[0].size, size, (size_t)dimensions * sizeof *size);
    return c;
}

/* Every pair of every number of devices.  A message's hops are its links but the two ports. */
static void every_pair(int dimensions, const int *size, int at_each)
{
    const struct cluster c = torus(dimensions, size, at_each);
    int places = at_each;
    for (int d = 0; d < dimensions; d++) places *= size[d];
    for (int devices = 2; devices <= places; devices++) {
        struct network *n = network_open(&c, devices);
        assert_non_null(n);
        for (int from = 0; from < devices; from++)
            for (int to = 0; to < devices; to++) {
                struct message_way w;
                if (from == to) continue;
                network_way(n, from, to, &w);
                const int hops = w.count - 2;
                assert_true(w.latency == 5 + (hops > 1 ? 7 * (hops - 1) : 0));
                for (int i = 0; i < w.count; i++) assert_in_range(w.link[i], 0, network_links(n) - 1);
                for (int i = 2; i < w.count; i++) assert_true(network_rate(n, w.link[i]) == 50 * 1e-6);
            }
        network_close(n);
    }
}

static void test_through_empty_places(void **state)
{
    (void)state;
    every_pair(1, (int[]){ 5 }, 1);
    every_pair(2, (int[]){ 4, 3 }, 1);
    every_pair(3, (int[]){ 4, 2, 3 }, 1);
    every_pair(2, (int[]){ 3, 4 }, 2);
}

/* Eight devices in a torus for a thousand million do not ask for links of all places. */
static void test_large_torus(void **state)
{
    const struct cluster c = torus(3, (int[]){ 1024, 1024, 1024 }, 1);
    (void)state;
    struct network *n = network_open(&c, 8);
    assert_non_null(n);
    assert_in_range(network_links(n), 16 + 2 * 3 * 8, 16 + 2 * 3 * 1024);
    network_close(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_through_empty_places),
                                         cmocka_unit_test(test_large_torus) };
    return cmocka_run_group_tests_name("network way", tests, NULL, NULL);
}
