/* Actors with registers: pieces as one device makes them, periods and memory by formula, back pressure, and words.
 * tier: check
 */
#include "emulated_devices/schemes/sbp/actors.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

static struct actors actors;
static struct actors_run run;
static struct error err;

static void run_of(const char *words, int registers, picoseconds latency, int64_t pieces)
{
    actors = (struct actors){ .latency = latency, .pieces = pieces };
    if (actors_read(&actors, words, registers, &err) != OK || actors_run(&actors, &run, &err) != OK)
        fail_msg("%s: %s", words, err.text);
    for (int a = 0; a < actors.count; a++)
        for (int64_t n = 0; n < pieces; n++)
            if (run.made[a * pieces + n] != actors_serial(&actors, a, n))
                fail_msg("%s, %d registers: piece %lld of %s is not what one device makes", words, registers,
                         (long long)n, actors.actor[a].name);
}

/* A chain's period is the formula's, and no actor has more registers in use than are its own. */
static void test_chains(void **state)
{
    (void)state;
    static const char *const chains[] = { "a:2,b:5,c:1,d:6", "a:1,b:1,c:9", "a:9,b:1,c:1", "a:4,b:4", "a:7" };
    enum { PIECES = 120, OVER = 60 };                   /* a multiple of each number of registers */
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
        for (int registers = 1; registers <= 4; registers++)
            for (picoseconds latency = 0; latency <= 3; latency += 3) {
                run_of(chains[i], registers, latency, PIECES);
                const double ours = actors_period(&actors, &run, OVER), formula = actors_chain_period(&actors);
                if (fabs(ours - formula) > 1e-9)
                    fail_msg("%s, %d registers, latency %lld: a piece in %g, formula %g", chains[i], registers,
                             (long long)latency, ours, formula);
                for (int a = 0; a < actors.count; a++)
                    if (run.held[a] > registers)
                        fail_msg("%s: actor %d holds %d registers of %d", chains[i], a, run.held[a], registers);
                assert_int_equal(run.messages, 2 * (actors.count - 1) * PIECES);
                actors_free(&run);
            }
}

/* Two registers let neighbours work at once; one does not.  a 3, b 5: 8 a piece, then 5. */
static void test_by_hand(void **state)
{
    (void)state;
    static const picoseconds one[] = { 3, 11, 19 }, two[] = { 3, 6, 11 };       /* when a has made pieces 0, 1, 2 */
    run_of("a:3,b:5", 1, 0, 3);
    for (int n = 0; n < 3; n++) assert_int_equal(run.end[n], one[n]);
    actors_free(&run);
    run_of("a:3,b:5", 2, 0, 3);
    for (int n = 0; n < 3; n++) assert_int_equal(run.end[n], two[n]);
    assert_int_equal(run.last, 3 + 3 * 5);
    actors_free(&run);
}

/* Without back pressure a fast producer fills the memory: when a begins its last piece, at 49, b has read 9. */
static void test_back_pressure(void **state)
{
    (void)state;
    run_of("a:1,b:5", 0, 0, 50);
    assert_int_equal(run.held[0], 50 - 9);
    actors_free(&run);
    run_of("a:1,b:5", 3, 0, 50);
    assert_int_equal(run.held[0], 3);
    actors_free(&run);
}

/* A register that two read is free when the slower one has read it. */
static void test_two_consumers(void **state)
{
    (void)state;
    run_of("load:1,image:4<load,text:9<load,step:2<image+text", 2, 1, 60);
    assert_true(fabs(actors_period(&actors, &run, 30) - 9) < 1e-9);
    for (int a = 0; a < actors.count; a++) assert_true(run.held[a] <= 2);
    assert_int_equal(run.messages, 2 * 4 * 60);
    actors_free(&run);
}

static void test_words(void **state)
{
    (void)state;
    static const struct { const char *words, *says; } wrong[] = {
        { "", "NAME:TIME" }, { "a", "NAME:TIME" }, { "a:1,a:2", "each name once" }, { "a:x", "time" },
        { "a:1:x", "registers" }, { "a:1:9999", "registers" }, { "a:1<b", "stands before" }, { "a:1,b:1<a+a", "twice" },
        { "a:1,", "NAME:TIME" }, { "a:2000000000", "time" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(actors_read(&actors, wrong[i].words, 1, &err), ERR_USAGE);
        if (strstr(err.text, wrong[i].says) == NULL) fail_msg("\"%s\": %s", wrong[i].words, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_two_consumers),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests_name("actors", tests, NULL, NULL);
}
