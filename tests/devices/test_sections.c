/* Plans whose layers have different strategies: drawn ones agree with one device in every number, and their bytes,
 * messages and memory equal their formulas.
 * ranks: 3 4 5
 * verify ranks: 6 7 8
 */
#include "tests/mpi_cmocka.h"
#include "tests/tier.h"
#include "emulated_devices/verify/cases/sectioned.h"

static struct error err;
static struct outcome o;

static void hold_drawn(enum exact_rule rule, int draws)
{
    for (int n = 0; n < draws; n++) {
        struct plan plan;
        struct sections sections;
        char text[1000];
        ASSERT_ALL(case_draw_sections(&plan, &sections, test_size, n, rule, &err) == OK, "%d: %s", n, err.text);
        sections_describe(&plan, text, sizeof text);
        ASSERT_ALL(case_run(&plan, &o, &err) == OK, "%d: %s: %s", n, text, err.text);
        ASSERT_ALL(o.verdict.code == OK, "%d: %s, %s, %d microbatches, %s: %s", n, plan.model.name, plan.schedule,
                   plan.micros, text, o.verdict.text);
        sections_free(&sections);
    }
}

static void test_drawn(void **state)
{
    (void)state;
    hold_drawn(SUMS_ROUND, tier_now() == TIER_VERIFY ? 84 : 6);
}

/* With exact sums every number of every device is compared with ==. */
static void test_drawn_exactly(void **state)
{
    (void)state;
    hold_drawn(SUMS_EXACT, tier_now() == TIER_VERIFY ? 84 : 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_drawn), MPI_TEST(test_drawn_exactly) };
    return MPI_RUN("sections", tests);
}
