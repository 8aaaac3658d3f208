/* What is said of a checked run: the table's columns stand one below the other, whichever tensors happen to be worst.
 * tier: check
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
#include "emulated_devices/cli/train/train.h"
#include <stdlib.h>
#include <string.h>

static struct train_options options;
static struct train_record record = { .options = &options, .truth = "the one-device run" };

static void put(struct worst *w, const char *tensor, int rank, int64_t step)
{
    *w = (struct worst){ .ratio = 0.0123, .error = 1.5e-7, .bound = 1.2e-5, .rank = rank, .step = step };
    snprintf(w->tensor, sizeof w->tensor, "%s", tensor);
}

/* The column in which a word begins in each line that has it; -1: not always in the same one. */
static int column_of(const char *text, const char *word, int *lines)
{
    int at = -2;
    *lines = 0;
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n'), *found = strstr(line, word);
        if (found && found < end) {
            at = at == -2 || at == (int)(found - line) ? (int)(found - line) : -1;
            (*lines)++;
        }
        line = end + 1;
    }
    return at;
}

static void assert_aligned(void)
{
    static const char *const words[] = { "  device ", "  step ", "  error ", "  bound ", "  ratio " };
    char *text = NULL;
    size_t size = 0;
    int lines;
    record.out = open_memstream(&text, &size);
    assert_non_null(record.out);
    report_check(&record);
    fclose(record.out);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const bool aligned = column_of(text, words[i], &lines) >= 0 && lines == 3;
        if (!aligned) print_error("\"%s\" is not in one column of three lines:\n%s", words[i], text);
        assert_true(aligned);
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
