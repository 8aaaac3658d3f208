/* Requests are placed where the experts of their tokens probably are, and no replica gets much more than another.
 * tier: check
 */
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/serve/placing.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { V = 8, MOST = 60, LONGEST = 9 };

static struct error err;
static int32_t part[V] = { 0, 0, 1, 1, 2, 2, 3, -1 }, id[MOST][LONGEST], replica[MOST];
static const struct affinity table = { .V = V, .parts = 4, .part = part };
static struct plan plan;

static void take_mesh(int dp, int tp)
{
    int size[AXIS_COUNT] = { 1, 1, 1, 1, 1 };
    size[DP] = dp, size[TP] = tp;
    plan = (struct plan){ .ep = 4, .affinity = &table };
    assert_int_equal(mesh_make(&plan.mesh, size, &err), OK);
}

static struct request request_of(int i, int64_t tokens, int32_t token)
{
    for (int64_t t = 0; t < tokens; t++) id[i][t] = token;
    return (struct request){ .prompt = { .id = id[i], .count = tokens }, .most = 1 };
}

/* With room everywhere each goes to its part: of four replicas, or of two with two parts each. */
static void test_parts(void **state)
{
    static const int32_t token[8] = { 4, 0, 6, 2, 1, 3, 6, 5 };
    struct request list[8];
    (void)state;
    for (int i = 0; i < 8; i++) list[i] = request_of(i, 5, token[i]);
    for (int dp = 4; dp >= 2; dp -= 2) {
        take_mesh(dp, 4 / dp);
        assert_int_equal(placing_of_requests(&plan, &(struct requests){ list, 8 }, replica, &err), OK);
        for (int i = 0; i < 8; i++)
            if (replica[i] != part[token[i]] / (4 / dp))
                fail_msg("request %d of part %d is on replica %d of %d", i, part[token[i]], replica[i], dp);
    }
}

/* Loads stay within the slack and one more of the longest requests, whatever they ask for; also of unknown tokens. */
static void test_loads(void **state)
{
    (void)state;
    take_mesh(4, 1);
    for (int draw = 0; draw < 40; draw++) {
        struct request list[MOST];
        int64_t load[4] = { 0 };
        for (int i = 0; i < MOST; i++) {
            const uint64_t at = (uint64_t)(2 * (MOST * draw + i));
            const int32_t drawn = (int32_t)(random_uniform(3, 5, at) * V);
            list[i] = request_of(i, 1 + (int64_t)(random_uniform(3, 5, at + 1) * (LONGEST - 1)),
                                 draw == 0 ? V - 1 : draw % 2 ? 0 : drawn);
        }
        assert_int_equal(placing_of_requests(&plan, &(struct requests){ list, MOST }, replica, &err), OK);
        for (int i = 0; i < MOST; i++) {
            load[replica[i]] += list[i].prompt.count + list[i].most;
            for (int r = 0; r < 4; r++)
                if (load[replica[i]] > load[r] + (PLACING_SLACK + 1) * (LONGEST + 1))
                    fail_msg("replica %d has %d tokens, and replica %d has %d", replica[i], (int)load[replica[i]], r,
                             (int)load[r]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_parts), cmocka_unit_test(test_loads) };
    return cmocka_run_group_tests_name("placing", tests, NULL, NULL);
}
