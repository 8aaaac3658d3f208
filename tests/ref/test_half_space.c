/* Steps that make groups of weights zero, against those of the released optimizer of OTOv2: golden/half_space.txt.
 * tier: check
 */
#include "ref/optim/half_space.h"
#include "tests/ref/test_ops.h"
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 8, SIZE = 5, ALL = GROUPS * SIZE };

/* fp64 on both sides: sums of five numbers in another order, and what 24 steps make of them. */
static const double BOUND = 1e-12;

static void read_numbers(FILE *f, const char *name, double *number, int count)
{
    char word[20];
    assert_int_equal(fscanf(f, "%19s", word), 1);
    if (strcmp(word, name) != 0) fail_msg("half_space.txt: \"%s\" where \"%s\" is expected", word, name);
    for (int i = 0; i < count; i++) assert_int_equal(fscanf(f, "%lf", &number[i]), 1);
}

static void steps_are_those_of_the_released_code(void **state)
{
    int groups, size, steps, start, chosen, target, made = 0;
    double s[5], x[ALL], g[ALL], want[ALL], score[GROUPS], flag[GROUPS];
    bool is_pulled[GROUPS] = { false };
    (void)state;
    FILE *f = fopen("golden/half_space.txt", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "groups %d size %d steps %d start %d chosen %d target %d", &groups, &size, &steps,
                            &start, &chosen, &target), 6);
    assert_true(groups == GROUPS && size == SIZE);
    read_numbers(f, "settings", s, 5);
    const struct half_space rule = { .lr = s[0], .pull = s[1], .amplify = s[2], .most = s[3], .eps = s[4] };
    read_numbers(f, "x", x, ALL);
    for (int t = 0; t < steps; t++) {
        read_numbers(f, "g", g, ALL);
        if (t == start) {
            half_space_scores(x, g, GROUPS, SIZE, score);
            half_space_choose(score, GROUPS, chosen, is_pulled);
        }
        half_space_step(&rule, x, g, is_pulled, GROUPS, SIZE, target - half_space_zeros(x, GROUPS, SIZE));
        read_numbers(f, "x", want, ALL);
        for (int i = 0; i < ALL; i++)
            if (!(fabs(x[i] - want[i]) <= BOUND))
                fail_msg("half_space.txt, step %d: number %d of group %d is %.17g, want %.17g", t, i % SIZE, i / SIZE,
                         x[i], want[i]);
        if (t != start) continue;
        read_numbers(f, "pulled", flag, GROUPS);
        for (int j = 0; j < GROUPS; j++)
            if (is_pulled[j] != (flag[j] != 0))
                fail_msg("half_space.txt: group %d is %spulled", j, is_pulled[j] ? "" : "not ");
    }
    made = (int)half_space_zeros(x, GROUPS, SIZE);
    if (made < 3) fail_msg("half_space.txt: only %d groups have become zero, so little is shown", made);
    fclose(f);
}

/* No more groups become 0 than there is room for, and one that is 0 stays so. */
static void room_is_kept(void **state)
{
    double x[ALL], g[ALL];
    bool is_pulled[GROUPS];
    const struct half_space rule = { .lr = 1, .pull = 100, .amplify = 2, .most = 10 };
    (void)state;
    for (int i = 0; i < ALL; i++) x[i] = i + 1, g[i] = 3 * x[i];
    for (int j = 0; j < GROUPS; j++) is_pulled[j] = true;
    half_space_step(&rule, x, g, is_pulled, GROUPS, SIZE, 3);
    assert_int_equal(half_space_zeros(x, GROUPS, SIZE), 3);
    half_space_step(&rule, x, g, is_pulled, GROUPS, SIZE, 0);
    assert_int_equal(half_space_zeros(x, GROUPS, SIZE), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(steps_are_those_of_the_released_code),
                                        cmocka_unit_test(room_is_kept) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
