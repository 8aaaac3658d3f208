/* Schemes that adapt to a load keep their promises, by plans and by placements: more copies never make a load less
 * even, an even load has none; and of numbers of parts the one that is chosen takes no longer than any other.
 * ranks: 1
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include "tests/tier.h"
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/run/plan.h"
#include "emulated_devices/schemes/experts/placement.h"
#include "ref/numeric/philox.h"
#include <cmocka.h>

/* The virtual milliseconds of a planned step of mixtral-tiny on four devices.  more: words, then NULL. */
static double planned(const char *load, const char *const more[])
{
    const char *word[32] = { "--model", "mixtral-tiny", "--dp", "4", "--ep", "4", "--batch", "16", "--seq", "64",
                             "--steps", "2", "--memory", "0", "--load", load, "--dispatch" };
    struct plan_numbers numbers;
    struct error err;
    int words = 17;
    for (int i = 0; more[i]; i++) word[words++] = more[i];
    const enum error_code e = train_plan_words(&numbers, words, word, &err);
    if (e) fail_msg("%s", err.text);
    return numbers.speed.seconds * 1e3;
}
#define PLANNED(load, ...) planned(load, (const char *const[]){ __VA_ARGS__, NULL })

/* ---- copies ------------------------------------------------------------------------------------------------------ */

enum { EXPERTS = 12, DEVICES = 6, DRAWN = 40 };

/* Loads like 1/(rank + 1)^s, in a drawn order; kind 0 is even. */
static void draw_load(int kind, int64_t load[EXPERTS])
{
    for (int e = 0; e < EXPERTS; e++) {
        const double u = random_uniform(5, (uint64_t)kind, (uint64_t)e);
        load[e] = kind == 0 ? 60 : 1 + (int64_t)(600 * u * u * u * u);
    }
}

static void test_more_copies_are_never_less_even(void **state)
{
    int more_even = 0;
    (void)state;
    for (int kind = 0; kind < DRAWN; kind++)
        for (int node = 0; node <= 3; node += 3)
            for (int to_all = 0; to_all < 2; to_all++) {
                int64_t load[EXPERTS];
                int32_t owner[EXPERTS];
                bool held[EXPERTS * DEVICES];
                double busy[DEVICES], before = 0;
                draw_load(kind, load);
                for (int e = 0; e < EXPERTS; e++) owner[e] = e * DEVICES / EXPERTS;
                for (int room = 0; room <= EXPERTS; room++) {
                    const struct expert_room r = { .E = EXPERTS, .devices = DEVICES, .node = node, .slots = room,
                                                   .degree = to_all ? room : -1 };
                    int copies = 0;
                    assert_true(expert_place(&r, load, owner, held));
                    const double busiest = expert_busiest(&r, load, held, busy);
                    for (int i = 0; i < EXPERTS * DEVICES; i++) copies += held[i];
                    if (kind == 0 && copies != EXPERTS) fail_msg("an even load has %d copies", copies - EXPERTS);
                    if (room > 0 && busiest > before * (1 + 1e-9))
                        fail_msg("load %d, nodes of %d: %d copies make the busiest device busier: %g after %g", kind,
                                 node, room, busiest, before);
                    more_even += room > 0 && busiest < before;
                    before = busiest;
                }
            }
    assert_true(more_even > DRAWN);
}

/* The rows that are counted on the busiest device are those of the rule for rows, if there are many of them. */
static void test_busiest_is_by_the_rule_for_rows(void **state)
{
    (void)state;
    for (int kind = 1; kind < 8; kind++) {
        const struct expert_room r = { .E = EXPERTS, .devices = DEVICES, .node = kind % 2 ? 3 : 0, .slots = 2,
                                       .degree = -1 };
        int64_t load[EXPERTS], rows[DEVICES] = { 0 };
        int32_t owner[EXPERTS];
        bool held[EXPERTS * DEVICES];
        double busy[DEVICES];
        draw_load(kind, load);
        for (int e = 0; e < EXPERTS; e++) load[e] *= 60, owner[e] = e * DEVICES / EXPERTS;       /* divided by 1 to 6 */
        assert_true(expert_materialise(&r, load, owner, held));
        (void)expert_busiest(&r, load, held, busy);
        for (int e = 0; e < EXPERTS; e++)
            for (int from = 0; from < DEVICES; from++)
                for (int to = 0; to < DEVICES; to++)
                    rows[to] += expert_rows_to(&r, held + e * DEVICES, e, load[e], from, to);
        for (int d = 0; d < DEVICES; d++) assert_true((double)rows[d] > busy[d] - 1 && (double)rows[d] < busy[d] + 1);
    }
}

/* With an even load nothing is copied, so a step is alltoall's; with an uneven one it is faster, also if copies are
 * sent again for the backward pass. */
static void test_copies_pay(void **state)
{
    (void)state;
    assert_true(PLANNED("even", "fssdp", "--copies", "2") == PLANNED("even", "alltoall"));
    const double direct = PLANNED("zipf:1.5", "alltoall"), one = PLANNED("zipf:1.5", "fssdp"),
                 again = PLANNED("zipf:1.5", "fssdp", "--copy-again");
    if (!(one < direct && again < direct))
        fail_msg("zipf:1.5: alltoall takes %g ms, fssdp %g ms, and with --copy-again %g ms", direct, one, again);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* The estimate adds up the longest exchange and the longest computation; a step's devices differ, by this part. */
#define ESTIMATE 0.005

static void test_chosen_parts_are_the_fastest(void **state)
{
    static const char *const loads[] = { "even", "zipf:1.2" }, *const parts[] = { "1", "2", "4", "8" };
    (void)state;
    for (int l = 0; l < 2; l++) {
        double least = 0, first = 0;
        const double chosen = PLANNED(loads[l], "tutel", "--degree", "1");
        for (int i = 0; i < 4; i++) {
            const double t = PLANNED(loads[l], "tutel", "--degree", "1", "--row-parts", parts[i]);
            least = i == 0 || t < least ? t : least, first = i == 0 ? t : first;
        }
        if (chosen > least * (1 + ESTIMATE))
            fail_msg("%s: tutel: parts that are chosen take %g ms, the best %g ms", loads[l], chosen, least);
        assert_true(least < first);     /* there is something to choose */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_copies_are_never_less_even),
        cmocka_unit_test(test_busiest_is_by_the_rule_for_rows),
        cmocka_unit_test(test_copies_pay),
        cmocka_unit_test(test_chosen_parts_are_the_fastest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
