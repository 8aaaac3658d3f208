/* Schedules of the learning rate, against those of transformers and PyTorch: golden/rates.txt.
 * tier: check
 */
#include "ref/optim/optimizer.h"
#include "ref/optim/rates.h"
#include "tests/ref/test_ops.h"
#include <stdlib.h>
#include <string.h>

enum { LINE = 4096 };

/* PyTorch computes a rate from that of the step before, with up to three roundings in each of the 19 steps there are;
 * ours and those of transformers have less than ten in all. */
static double bound(const struct hyperparameters *h) { return 3 * 19 * dtype_unit(F64) * h->lr; }

/* One line: a schedule and the rates of its steps. */
static void check_line(char *line, int number)
{
    char name[20];
    struct hyperparameters h = { 0 };
    long long warmup, steps, decay;
    int used;
    assert_int_equal(sscanf(line, "%19s %la %la %lld %lld %lld%n", name, &h.lr, &h.min_lr, &warmup, &steps, &decay,
                            &used), 6);
    h.schedule = rate_schedule_named(name);
    h.warmup = warmup, h.steps = steps, h.decay = decay;
    const char *at = line + used;
    for (int64_t t = 1; t <= steps; t++) {
        char *end;
        const double want = strtod(at, &end), got = learning_rate(&h, t);
        assert_true(end != at);
        at = end;
        if (!(fabs(got - want) <= bound(&h)))
            fail_msg("rates.txt, line %d: %s of %lld steps: the rate of step %lld is %.17g, want %.17g", number, name,
                     steps, (long long)t, got, want);
        if (t > warmup && !(got >= learning_rate_least(&h)))
            fail_msg("rates.txt, line %d: %s: %.17g is below the least, %.17g", number, name, got,
                     learning_rate_least(&h));
    }
}

static void rates_are_those_of_transformers_and_torch(void **state)
{
    static char line[LINE];
    bool seen[RATE_SCHEDULES] = { false };
    int number = 0;
    (void)state;
    FILE *f = fopen("golden/rates.txt", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        number++;
        if (line[0] == '#') continue;
        check_line(line, number);
        line[strcspn(line, " ")] = '\0';
        seen[rate_schedule_named(line)] = true;
    }
    fclose(f);
    for (int s = 0; s < RATE_SCHEDULES; s++)
        if (!seen[s]) fail_msg("rates.txt has no %s", rate_schedule_names[s]);
}

/* Where those of others rise again. */
static void the_end_is_the_end(void **state)
{
    (void)state;
    for (int s = 0; s < RATE_SCHEDULES; s++) {
        const struct hyperparameters h = { .schedule = (enum rate_schedule)s, .lr = 0.3, .min_lr = 0.1, .warmup = 3,
                                           .steps = 20, .decay = 4 };
        const double end = s == RATE_CONSTANT ? 0.3 : 0.1;
        for (int64_t t = 20; t < 100; t++)
            if (!(fabs(learning_rate(&h, t) - end) <= bound(&h)))
                fail_msg("%s: step %lld after its end has the rate %g", rate_schedule_names[s], (long long)t - 20,
                         learning_rate(&h, t));
    }
}

static void no_steps_to_fall(void **state)
{
    (void)state;
    for (int s = 0; s < RATE_SCHEDULES; s++) {
        const struct hyperparameters rise = { .schedule = (enum rate_schedule)s, .lr = 0.3, .min_lr = 0.1, .warmup = 3,
                                              .steps = 3 };
        assert_true(learning_rate(&rise, 3) == 0.3 && learning_rate(&rise, 9) == 0.3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rates_are_those_of_transformers_and_torch),
                                        cmocka_unit_test(the_end_is_the_end), cmocka_unit_test(no_steps_to_fall) };
    return cmocka_run_group_tests_name("rates", tests, NULL, NULL);
}
