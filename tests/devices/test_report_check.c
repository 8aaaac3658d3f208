/* What is said of a checked run: the table's columns stand one below the other, whichever tensors happen to be worst.
 * tier: check
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
#include "emulated_devices/run/report/report.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static struct train_options options;
static struct train_record record = { .options = &options, .truth = "the one-device run" };

static void put(struct worst *w, const char *tensor, int rank, int64_t step)
{
    *w = (struct worst){ .ratio = 0.0123, .error = 1.5e-7, .bound = 1.2e-5, .rank = rank, .step = step };
    snprintf(w->tensor, sizeof w->tensor, "%s", tensor);
}

/* The column in which text begins, or ends, in its line. */
static int column_of(const char *all, const char *text, bool its_end)
{
    const char *found = strstr(all, text), *line = found;
    assert_non_null(found);
    while (line > all && line[-1] != '\n') line--;
    return (int)(found - line) + (its_end ? (int)strlen(text) : 0);
}

/* The last column begins, and the numbers before it end, under their heads. */
static void assert_aligned(void)
{
    const struct comparison *c = &record.comparison;
    const struct worst *const row[] = { &c->loss, &c->activation, &c->state };
    char *text = NULL;
    size_t size = 0;
    record.out = open_memstream(&text, &size);
    assert_non_null(record.out);
    report_check(&record);
    fclose(record.out);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char tensor[200], step[300];
        snprintf(tensor, sizeof tensor, "  %s\n", row[i]->tensor);
        snprintf(step, sizeof step, "%d%*lld  1.5e-07  1.2e-05%s", row[i]->rank,
                 column_of(text, "step  ", true) - column_of(text, "device  ", true), (long long)row[i]->step, tensor);
        if (strstr(text, step) == NULL) print_error("no line has \"%s\":\n%s", step, text);
        assert_int_equal(column_of(text, step, false) + (int)strlen(step) - (int)strlen(tensor) + 2,
                         column_of(text, "tensor\n", false));
    }
    free(text);
}

static void test_columns_stand_below_each_other(void **state)
{
    struct comparison *c = &record.comparison;
    (void)state;
    assert_int_equal(optimizer_find(&options.plan.optimizer, "adamw", NULL), OK);
    put(&c->loss, "loss", 0, 1), put(&c->activation, "h.1.attn.qkv", 3, 2),
        put(&c->state, "exp_avg_sq of h.1.attn.c_attn.weight", 0, 3);
    assert_aligned();
    put(&c->loss, "loss", 12, 100000), put(&c->state, "exp_avg of ln_f.bias", 1024, 7);
    assert_aligned();
    put(&c->activation, "model.layers.11.post_attention_layernorm.weight.of.somebody", 7, 1);
    assert_aligned();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_columns_stand_below_each_other) };
    return cmocka_run_group_tests_name("report of a check", tests, NULL, NULL);
}
