/* Drawn chains of meshes: after every change all weights, masters and optimizer states are the bits that they were, and
 * devices have sent the fewest bytes there can be; then training goes on.
 * ranks: 2 4
 * verify ranks: 3 6 8
 */
#include "emulated_devices/verify/cases/elastic.h"
#include "tests/mpi_cmocka.h"
#include "tests/tier.h"

static struct error err;

static void test_chains(void **state)
{
    const int chains = tier_now() == TIER_VERIFY ? 60 : 8;
    uint64_t moved = 0;
    (void)state;
    for (int draw = 0; draw < chains; draw++) {
        struct elastic_outcome o;
        ASSERT_ALL(case_elastic(test_size, draw, &o, &err) == OK, "chain %d: %s: %s", draw, o.text, err.text);
        ASSERT_ALL(o.verdict.code == OK, "chain %d: %s", draw, o.verdict.text);
        moved += o.moved;
    }
    ASSERT_ALL(moved > 0, "nothing has moved in %d chains", chains);
}

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_chains) };
    return MPI_RUN("transfer", tests);
}
