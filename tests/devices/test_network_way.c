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

/* The shared links on the way, without the two ports. */
static int passed(const struct cluster *c, int devices, int from, int to, int *link)
{
    struct message_way w;
    struct network *n = network_open(c, devices);
    assert_non_null(n);
    network_way(n, from, to, &w);
    for (int i = 0; i < w.count; i++) assert_in_range(w.link[i], 0, network_links(n) - 1);
    for (int i = 2; i < w.count; i++) link[i - 2] = w.link[i];
    network_close(n);
    return w.count - 2;
}

/* Racks of 72 devices in nodes of 4; device k of each node is on rail k, so a rail of a rack has 18 devices. */
static void test_rails_of_a_domain(void **state)
{
    struct cluster c = { .levels = 2, .shares = 1,
                         .link = { { .rate = 9, .devices = 72, .latency = 5 }, { .rate = 5, .latency = 6 } } };
    int link[MOST_WAY], other[MOST_WAY], members = 0;
    (void)state;
    c.shared[0] = (struct shared_link){ .kind = SHARED_LEAVING, .devices = 72, .stride = 4, .rate = 4, .entering = 3,
                                        .of_level = 2 };
    assert_int_equal(passed(&c, 200, 0, 71, link), 0);
    assert_int_equal(passed(&c, 200, 3, 76, link), 2);
    for (int rank = 0; rank < 72; rank++) {
        assert_int_equal(passed(&c, 200, rank, 76, other), 2);
        members += other[0] == link[0];
        assert_true((other[0] == link[0]) == (rank % 4 == 3));
        assert_int_equal(other[1], link[1]);
    }
    assert_int_equal(members, 18);
    struct network *n = network_open(&c, 200);
    assert_non_null(n);
    assert_true(network_rate(n, link[0]) == 4e-6 && network_rate(n, link[1]) == 3e-6);
    network_close(n);
}

/* Every way of every shape, whatever the number of devices: no link beyond the network's. */
static void test_every_shape(void **state)
{
    static const struct shared_link of[] = {
        { .kind = SHARED_LEAVING, .devices = 8, .stride = 4 }, { .kind = SHARED_LEAVING, .devices = 64, .stride = 64 },
        { .kind = SHARED_LEAVING, .devices = 3, .paths = 5 }, { .kind = SHARED_PAIRS, .devices = 4 },
        { .kind = SHARED_LEAVING, .devices = 12, .stride = 3, .paths = 7, .by_receiver = true },
        { .kind = SHARED_PAIRS, .devices = 256 }, { .kind = SHARED_PAIRS, .devices = 6, .stride = 3 },
        { .kind = SHARED_INSIDE, .devices = 6, .stride = 2 },
        { .kind = SHARED_TORUS, .devices = 1, .dimensions = 2, .size = { 3, 2 }, .of_level = 1 },
    };
    int link[MOST_WAY];
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct cluster c = { .levels = 2, .shares = 1, .shared = { of[i] },
                             .link = { { .rate = 9, .devices = 6 }, { .rate = 5 } } };
        for (int devices = 2; devices <= 30; devices++)
            for (int from = 0; from < devices; from++)
                for (int to = 0; to < devices; to++)
                    if (from != to) assert_in_range(passed(&c, devices, from, to, link), 0, 3);
    }
}

/* A pair's messages always take one path, and all pairs together take all paths about as often. */
static void test_paths_are_even(void **state)
{
    enum { PATHS = 16, SENDERS = 256 };
    int taken[PATHS] = { 0 };
    (void)state;
    for (int from = 0; from < SENDERS; from++)
        for (int to = 0; to < SENDERS; to++) taken[shared_path(from, to, PATHS)]++;
    for (int i = 0; i < PATHS; i++) assert_in_range(taken[i], 3840, 4352);       /* 4096, and 4 standard deviations */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_through_empty_places),
                                         cmocka_unit_test(test_large_torus),
                                         cmocka_unit_test(test_rails_of_a_domain),
                                         cmocka_unit_test(test_every_shape),
                                         cmocka_unit_test(test_paths_are_even) };
    return cmocka_run_group_tests_name("network way", tests, NULL, NULL);
}
