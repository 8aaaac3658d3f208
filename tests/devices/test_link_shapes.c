/* All-reduces on shipped clusters: the formula is the clock, and the replay with links that devices share is what a
 * closed form says.
 * tier: check
 */
#include "emulated_devices/collectives/attempt.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { GIB = 1 << 30 };
static struct error err;

struct times { double formula, clock, replayed; };

static struct times reduce(const struct cluster *c, const char *name, int P)
{
    struct collective call = { .dtype = F32, .nodes = nodes_on(c, NULL, P), .count = GIB / 4 / P * P };
    const struct algorithm *a = algorithm_find(ALLREDUCE, name);
    picoseconds clock, replayed;
    if (attempt_times(a, P, &call, c, &clock, &replayed, &err)) fail_msg("%s", err.text);
    return (struct times){ (double)collective_time(a, P, &call, c), (double)clock, (double)replayed };
}

static struct cluster shipped(const char *name)
{
    struct cluster c;
    if (cluster_find(&c, name, &err)) fail_msg("%s", err.text);
    return c;
}

/* The clock rounds up each of 4 P transfers and additions, the formula their sum. */
static void test_the_formula_is_the_clock(void **state)
{
    static const struct { const char *cluster; int P; const char *algorithm; } of[] = {
        { "textbook", 8, "ring" }, { "textbook", 64, "ring" }, { "textbook", 72, "ring" },
        { "h100-infiniband", 8, "ring" }, { "h100-infiniband", 64, "torus_2d" }, { "h100-infiniband", 72, "torus_2d" },
        { "gb200-nvl72", 8, "ring" }, { "gb200-nvl72", 64, "ring" }, { "gb200-nvl72", 72, "ring" },
        { "mi300x-roce", 72, "torus_2d" }, { "tpu-v5p", 72, "ring" }, { "trainium2", 64, "torus_2d" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct cluster c = shipped(of[i].cluster);
        const struct times t = reduce(&c, of[i].algorithm, of[i].P);
        if (fabs(t.formula - t.clock) > 4 * of[i].P)
            fail_msg("%s on %d of %s: %.0f ps by formula, %.0f by the clock", of[i].algorithm, of[i].P, of[i].cluster,
                     t.formula, t.clock);
    }
}

static void is(const char *what, double got, double want)
{
    if (fabs(got - want) > 200) fail_msg("%s takes %.0f ps, expected %.0f", what, got, want);
}

/* A step of a ring sends n / 8 and, for the gap of 1 ns, bytes at the port's rate.  Half of the steps add, which moves
 * 3 n / 8 of memory. */
static double ring_of_8(const struct cluster *c, double rate)
{
    const double part = GIB / 8, gap = 1000 * 1e-6 * (double)c->link[0].rate;
    return 14 * ((double)c->link[0].latency + (part + gap) / rate) + 7 * 3 * part / (1e-6 * (double)c->memory_rate);
}

static void test_what_a_shape_costs(void **state)
{
    (void)state;
    struct cluster c = shipped("mi300x-roce");
    is("a ring over pairs of 64 GB/s", reduce(&c, "ring", 8).replayed, ring_of_8(&c, 0.064));
    c = shipped("tpu-v5p");
    is("a ring round a torus", reduce(&c, "ring", 8).replayed, ring_of_8(&c, 0.1));
    c = shipped("h100-llama3");
    is("a ring inside a node of a pod", reduce(&c, "ring", 8).replayed, ring_of_8(&c, 0.45));
    /* In each half of a node 3 of 4 messages of a ring stay inside: a third of 102.4 GB/s each, more than a port. */
    c = shipped("rtx4090-node");
    is("a ring through the host", reduce(&c, "ring", 8).replayed, ring_of_8(&c, 0.032));
    c.shared[0].rate = 48000;
    is("a ring through a slow host", reduce(&c, "ring", 8).clock, ring_of_8(&c, 0.032));
    assert_true(reduce(&c, "ring", 8).replayed > 1.9 * ring_of_8(&c, 0.032));
}

/* All nodes of a rail: no up-link; without the rule all messages between nodes would take one of 16 paths. */
static void test_rails_meet_no_up_link(void **state)
{
    (void)state;
    struct cluster c = shipped("h100-rails");
    const struct times rails = reduce(&c, "torus_2d", 64);
    is("a torus on rails", rails.replayed, rails.clock);
    c.shared[0].stride = 1, c.shared[0].devices = 8;
    assert_true(reduce(&c, "torus_2d", 64).replayed > 1.5 * rails.replayed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_formula_is_the_clock), cmocka_unit_test(test_what_a_shape_costs),
        cmocka_unit_test(test_rails_meet_no_up_link),
    };
    return cmocka_run_group_tests_name("link shapes", tests, NULL, NULL);
}
