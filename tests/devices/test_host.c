/* The host that starts kernels, and the cost of collectives of other streams: small cases by hand, to the picosecond.
 * A host makes nothing faster, and a host without time changes nothing.
 * tier: check
 */
#include "emulated_devices/device/clock.h"
#include "emulated_devices/device/contention.h"
#include "emulated_devices/device/events.h"
#include "emulated_devices/device/kernel.h"
#include "emulated_devices/device/streams.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const picoseconds US = 1000000, ISSUES = 8000000;
static struct error err;

/* Its programs start one kernel for an operation, four for a norm, and none for a sum.  A test says where they wait. */
static const char set_text[] = "{ \"name\": \"mine\", \"description\": \"x\", \"attention\": [\"flash-2\"],"
    " \"graphs\": false,"
    " \"issued\": \"%s\", \"collective_kernels\": 3, \"host_waits\": [%s], \"other\": [100, 1],"
    " \"operations\": { \"norm\": [100, 4], \"sum\": [100, 0] }, \"source\": \"x\", \"assumed\": \"x\" }";

static struct kernel_set set_of(const char *issued, const char *waits)
{
    struct kernel_set set;
    char text[sizeof set_text + 80];
    snprintf(text, sizeof text, set_text, issued, waits);
    if (kernel_set_parse(&set, text, "a test", &err)) fail_msg("%s", err.text);
    return set;
}

/* An operation takes a picosecond; the host takes 8 us for a kernel of eager programs and 1 us for a compiled one. */
static struct cluster machine(const struct kernel_set *set)
{
    struct cluster c = { .name = "mine", .flop_rate = { [F32] = 1000000 }, .levels = 1,
                         .link = { { .level = "node", .latency = 10000000, .rate = 50000, .eager = ALWAYS_EAGER } } };
    c.kernels.set = set;
    c.host.issue.kernel[ISSUE_EAGER] = ISSUES, c.host.issue.kernel[ISSUE_COMPILED] = US;
    c.host.issue.step = 100 * US;
    return c;
}

static void work(struct clock *clock, const char *what, picoseconds takes)
{
    clock_compute(clock, what, (struct op_cost){ .flops = (double)takes });
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* n kernels of 1 us: the host starts one every 8 us, and the last runs after it is started. */
static void test_tiny_kernels_wait_for_the_host(void **state)
{
    const struct kernel_set set = set_of("eager", "");
    const struct cluster c = machine(&set);
    struct clock clock;
    (void)state;
    clock_open(&clock, &c, F32);
    for (int i = 0; i < 100; i++) work(&clock, "x", US);
    assert_int_equal(clock.now, 100 * ISSUES + US);
    assert_int_equal(clock.starts.held, 100 * (ISSUES - US) + US);
    assert_int_equal(clock.computing, 100 * US);
}

/* Kernels of 100 us hide the host but for the first start. */
static void test_long_kernels_hide_the_host(void **state)
{
    const struct kernel_set set = set_of("eager", "");
    const struct cluster c = machine(&set);
    struct clock clock;
    (void)state;
    clock_open(&clock, &c, F32);
    for (int i = 0; i < 100; i++) work(&clock, "x", 100 * US);
    assert_int_equal(clock.now, ISSUES + 100 * 100 * US);
    /* The host is far ahead, so tiny kernels behind the long ones cost their own time alone. */
    for (int i = 0; i < 100; i++) work(&clock, "x", US);
    assert_int_equal(clock.now, ISSUES + 100 * 101 * US);
    assert_int_equal(clock.starts.held, ISSUES);
}

/* A norm of 4 us has four kernels: the last is started after 32 us, and takes 1 us.  If the norm takes 400 us, the
 * first start counts.  A sum is part of a neighbour and starts nothing, as does what a collective's kernel does. */
static void test_an_operation_of_several_kernels(void **state)
{
    const struct kernel_set set = set_of("eager", ""), compiled = set_of("compiled", ""), graph = set_of("graph", "");
    struct cluster c = machine(&set);
    struct clock clock;
    (void)state;
    clock_open(&clock, &c, F32);
    work(&clock, "norm", 4 * US);
    assert_int_equal(clock.now, 4 * ISSUES + US);
    work(&clock, "sum", 5 * US);
    clock_compute(&clock, "x", (struct op_cost){ .flops = 1e6, .running = true });
    assert_int_equal(clock.now, 4 * ISSUES + 7 * US);
    assert_int_equal(clock.starts.done, 4 * ISSUES);
    clock_reset(&clock);
    work(&clock, "norm", 400 * US);
    assert_int_equal(clock.now, ISSUES + 400 * US);
    c.kernels.set = &compiled;
    clock_open(&clock, &c, F32);
    work(&clock, "norm", 4 * US);
    assert_int_equal(clock.now, 5 * US);
    /* Kernels of a graph take this host no time. */
    c.kernels.set = &graph;
    clock_open(&clock, &c, F32);
    work(&clock, "norm", 4 * US);
    assert_int_equal(clock.now, 4 * US);
}

/* A stream of messages waits for the same host: a collective takes it as long as three kernels. */
static void test_a_collective_is_started_in_its_turn(void **state)
{
    const struct kernel_set set = set_of("eager", "");
    const struct cluster c = machine(&set);
    struct clock clock;
    (void)state;
    clock_open(&clock, &c, F32);
    work(&clock, "x", US);
    clock_begin(&clock, COMMUNICATION);
    clock_start_collective(&clock);
    assert_int_equal(clock.now, 4 * ISSUES);
    clock_end(&clock);
    assert_int_equal(clock.now, ISSUES + US);
    work(&clock, "x", US);
    assert_int_equal(clock.now, 5 * ISSUES + US);
}

/* ---- where the host waits ---------------------------------------------------------------------------------------- */

/* Two rounds of 10 kernels of 10 us, and a wait: the host, 20 us ahead, begins again after it. */
static picoseconds rounds(const char *waits, enum host_wait wait)
{
    const struct kernel_set set = set_of("eager", waits);
    const struct cluster c = machine(&set);
    struct clock clock;
    clock_open(&clock, &c, F32);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 10; i++) work(&clock, "x", 10 * US);
        clock_host_waits(&clock, wait);
    }
    return clock.now;
}

static void test_a_wait_starts_the_host_again(void **state)
{
    (void)state;
    assert_int_equal(rounds("", WAIT_NORM), ISSUES + 200 * US);
    assert_int_equal(rounds("\"receives\"", WAIT_NORM), ISSUES + 200 * US);
    assert_int_equal(rounds("\"norm\"", WAIT_NORM), 2 * ISSUES + 200 * US);
    assert_int_equal(rounds("\"receives\", \"norm\"", WAIT_RECEIVES), 2 * ISSUES + 200 * US);
    assert_int_equal(rounds("\"plain receives\"", WAIT_PLAIN_RECEIVES), 2 * ISSUES + 200 * US);
    assert_int_equal(rounds("\"passes\"", WAIT_PASSES), 2 * ISSUES + 200 * US);
}

/* 100 us of the host at the end of a step: after the device's work if the loss is read there, else beside this work. */
static void test_a_step_ends(void **state)
{
    const struct kernel_set ahead = set_of("eager", ""), reads = set_of("eager", "\"step\"");
    struct cluster c = machine(&ahead);
    struct clock clock;
    (void)state;
    clock_open(&clock, &c, F32);
    work(&clock, "x", 500 * US), clock_end_step(&clock);
    assert_int_equal(clock.now, ISSUES + 500 * US);
    work(&clock, "x", US), clock_end_step(&clock);
    assert_int_equal(clock.now, ISSUES + 501 * US);             /* 2 starts and 2 steps take the host 216 us */
    c.kernels.set = &reads;
    clock_open(&clock, &c, F32);
    work(&clock, "x", 500 * US), clock_end_step(&clock);
    assert_int_equal(clock.now, ISSUES + 600 * US);
}

/* ---- collectives beside work ------------------------------------------------------------------------------------- */

/* A stream sends from time 0 on for so long, and slows work to so many percent. */
static void talk(struct clock *clock, enum stream stream, picoseconds takes, int64_t percent)
{
    clock_begin(clock, stream);
    work(clock, "message", takes);
    clock_talked(clock, 0, percent);
    clock_end(clock);
}

/* A collective of 50 us, at 125 %: of work that takes 100 us, 40 us are done in its time. */
static void test_work_beside_a_collective(void **state)
{
    const struct cluster c = machine(NULL);
    struct clock clock;
    (void)state;
    clock_open(&clock, &c, F32);
    talk(&clock, COMMUNICATION, 50 * US, 125);
    work(&clock, "x", 100 * US);
    assert_int_equal(clock.now, 110 * US);
    work(&clock, "x", 100 * US);
    assert_int_equal(clock.now, 210 * US);
    /* Two at once add up; one that begins later counts from there: 50 at 150 %, 50 at 125 %, the rest alone. */
    clock_open(&clock, &c, F32);
    talk(&clock, COMMUNICATION, 50 * US, 125);
    talk(&clock, REDUCTION, 100 * US, 125);
    work(&clock, "x", 120 * US);
    const picoseconds first = 50 * US / 150 * 100 + 50 * US % 150 * 100 / 150, second = 40 * US;
    assert_int_equal(clock.now, 100 * US + (120 * US - first - second));
    /* At 100 %, and on the compute stream itself, nothing is slower. */
    clock_open(&clock, &c, F32);
    talk(&clock, COMMUNICATION, 50 * US, 100);
    work(&clock, "x", 100 * US);
    clock_talked(&clock, 0, 125);
    work(&clock, "x", 100 * US);
    assert_int_equal(clock.now, 200 * US);
}

/* ---- invariants -------------------------------------------------------------------------------------------------- */

static unsigned next_of(unsigned *seed) { return *seed = *seed * 1664525u + 1013904223u, *seed >> 8; }

/* A random program: kernels, norms, collectives on two streams, waits and ends of steps. */
static picoseconds random_program(const struct cluster *cluster, unsigned seed, struct events *events)
{
    struct clock clock;
    picoseconds done = 0;
    clock_open(&clock, cluster, F32);
    clock.events = events;
    for (int i = 0; i < 200; i++) {
        const unsigned what = next_of(&seed) % 10;
        const picoseconds takes = (picoseconds)(next_of(&seed) % 30) * US / 2 + 1;
        if (what < 6) work(&clock, what < 4 ? "x" : what < 5 ? "norm" : "sum", takes);
        else if (what == 6) clock_wait(&clock, done);
        else if (what == 7) clock_host_waits(&clock, WAIT_NORM);
        else if (what == 8 && next_of(&seed) % 4 == 0) clock_end_step(&clock);
        else {
            clock_begin(&clock, next_of(&seed) % 2 ? COMMUNICATION : REDUCTION);
            clock_start_collective(&clock);
            const picoseconds from = clock.now;
            work(&clock, "sum", 4 * takes);
            clock_talked(&clock, from, cluster_overlap(cluster, "allreduce"));
            done = clock.now;
            clock_end(&clock);
        }
    }
    clock_join(&clock, COMMUNICATION), clock_join(&clock, REDUCTION);
    return clock.now;
}

/* A host makes nothing faster, the less the slower it is, and without time of its own it changes nothing. */
static void test_a_host_makes_nothing_faster(void **state)
{
    const struct kernel_set set = set_of("eager", "\"norm\"");
    (void)state;
    for (unsigned seed = 1; seed < 200; seed++) {
        struct cluster c = machine(&set), without = machine(NULL);
        const int64_t percent = seed % 2 ? 119 : 100;
        c.overlap = without.overlap = (struct overlap){ 1, { { "allreduce", percent } }, "" };
        c.host.issue.step = 0;
        picoseconds last = random_program(&without, seed, NULL);
        for (picoseconds pace = 0; pace < 12 * US; pace += 3 * US) {
            c.host.issue.kernel[ISSUE_EAGER] = pace;
            const picoseconds now = random_program(&c, seed, NULL);
            if (pace == 0) assert_int_equal(now, last);
            if (now < last) fail_msg("program %u: %lld ps a kernel makes the step faster", seed, (long long)pace);
            last = now;
        }
    }
}

/* The events of a device, replayed by themselves, end when its clock did. */
static void test_a_replay_has_the_host_too(void **state)
{
    const struct kernel_set set = set_of("eager", "\"norm\"");
    (void)state;
    for (unsigned seed = 1; seed < 60; seed++) {
        struct cluster c = machine(&set);
        struct events events = { .left = NULL }, *all = &events;
        picoseconds end = 0;
        const picoseconds now = random_program(&c, seed, &events);
        if (contention_replay(&c, &all, 1, &end, &err)) fail_msg("%s", err.text);
        if (end != now) fail_msg("program %u: a replay ends at %lld ps, the clock at %lld", seed, (long long)end,
                                 (long long)now);
        events_free(&events);
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void refuses(const char *text, const char *says)
{
    struct cluster c;
    char file[1200];
    snprintf(file, sizeof file, "{ \"name\": \"x\", \"description\": \"x\", \"device\": { \"source\": \"x\" },"
             " \"links\": [ {"
             " \"level\": \"all\", \"latency_ns\": 1, \"MB_per_second\": 1, \"source\": \"x\" } ]%s }", text);
    const enum error_code e = cluster_parse(&c, file, "mine", &err);
    if (says == NULL && e) fail_msg("%s", err.text);
    if (says == NULL) return;
    if (e != ERR_FORMAT || strstr(err.text, says) == NULL) fail_msg("%s: '%s'", text, e ? err.text : "no error");
}

static void test_files(void **state)
{
    (void)state;
    refuses("", NULL);
    refuses(", \"host\": { \"issue\": { \"eager_ns\": 8000, \"source\": \"x\" }, \"source\": \"x\" }", NULL);
    refuses(", \"host\": { \"issue\": { \"eager_ns\": 8000 }, \"source\": \"x\" }", "issue: \"source\"");
    refuses(", \"host\": { \"issue\": { \"eager_ns\": -1, \"source\": \"x\" }, \"source\": \"x\" }", "\"eager_ns\"");
    refuses(", \"host\": { \"issue\": { \"lazy_ns\": 1, \"source\": \"x\" }, \"source\": \"x\" }", "\"lazy_ns\"");
    refuses(", \"overlap\": { \"allreduce\": 119, \"source\": \"x\" }", NULL);
    refuses(", \"overlap\": { \"allreduce\": 99, \"source\": \"x\" }", "\"allreduce\"");
    refuses(", \"overlap\": { \"allreduce\": 119 }", "overlap: \"source\"");
    refuses(", \"overlap\": { \"allreduces\": 119, \"source\": \"x\" }", "\"allreduces\"");
    refuses(", \"kernels\": { \"table\": \"h100-sxm\", \"of\": \"te\", \"products_permille\": 880,"
            " \"memory_permille\": 946 }", "kernels: \"source\"");
    refuses(", \"kernels\": { \"table\": \"h100-sxm\", \"of\": \"te\", \"products_permille\": 880,"
            " \"source\": \"x\" }", "stand together");
    refuses(", \"contention\": { \"compute_percent\": 110, \"source\": \"x\" }, \"overlap\": { \"allreduce\": 119,"
            " \"source\": \"x\" }", "both slow computing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_kernels_wait_for_the_host), cmocka_unit_test(test_long_kernels_hide_the_host),
        cmocka_unit_test(test_an_operation_of_several_kernels),
        cmocka_unit_test(test_a_collective_is_started_in_its_turn),
        cmocka_unit_test(test_a_wait_starts_the_host_again), cmocka_unit_test(test_a_step_ends),
        cmocka_unit_test(test_work_beside_a_collective), cmocka_unit_test(test_a_host_makes_nothing_faster),
        cmocka_unit_test(test_a_replay_has_the_host_too), cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
