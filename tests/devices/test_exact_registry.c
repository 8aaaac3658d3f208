/* Every optimizer, format and model of the registries takes part in --arithmetic exact, or is refused in one line that
 * names it.  Who must be refused is said here by what it is, not by the table of clashes.
 * tier: check
 */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/device/device.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static struct plan exact_plan(void)
{
    struct plan p = case_plan(1, 1, 1);
    p.model.exact = SUMS_EXACT, p.dtype = F32, p.data.narrow_gradients = false, p.schedule = "gpipe";
    return p;
}

/* The plan is refused by --arithmetic exact in a line that has the name, or is not refused; all as it should be. */
static void expect(struct plan *plan, bool refused, const char *name)
{
    struct error err = { .code = OK };
    const enum error_code e = plan_check(plan, &err);
    if (e == OK && !refused) return;
    if (e == OK) fail_msg("%s takes part, and has no exact sums", name);
    if (!refused) fail_msg("%s does not take part: %s", name, err.text);
    if (strstr(err.text, "--arithmetic exact") == NULL || strstr(err.text, name) == NULL || strchr(err.text, '\n'))
        fail_msg("%s is not refused by its name: %s", name, err.text);
}

static void test_formats(void **state)
{
    (void)state;
    for (int i = 0; number_formats[i]; i++) {
        struct plan p = exact_plan();
        p.dtype = dtype_by_name(number_formats[i]);
        expect(&p, p.dtype == F64, number_formats[i]);
        /* A format that takes part has operations. */
        for (enum exact_rule rule = SUMS_EXACT; rule < EXACT_RULES; rule++)
            assert_true((ops_exact(p.dtype, rule) == NULL) == (p.dtype == F64));
    }
}

/* Low-rank steps multiply whole matrices; optimizers that draw a direction have two losses. */
static void test_optimizers(void **state)
{
    (void)state;
    for (int i = 0; optimizers[i]; i++) {
        struct plan p = exact_plan();
        p.optimizer = optimizers[i];
        if (p.optimizer->low_rank) case_take_low_rank(&p, p.optimizer);
        if (p.optimizer->forward_only) case_take_mezo(&p, 1);
        expect(&p, p.optimizer->low_rank || optimizer_draws(p.optimizer), p.optimizer->name);
    }
}

/* Residual streams are mixed by matrices that no exact operation has yet. */
static bool has_no_exact_sums(const struct model_config *config)
{
    return STREAMS(config) > 1;
}

static void test_models(void **state)
{
    int taken = 0;
    (void)state;
    for (const struct model_preset *preset = model_presets; preset->config.name[0]; preset++) {
        struct plan p = exact_plan();
        int64_t batch;
        struct error err;
        if (model_config_preset(&p.model, &batch, preset->config.name, &err)) fail_msg("%s", err.text);
        p.model.exact = SUMS_EXACT, p.S = p.model.S, p.model.mixture.balance.over = OVER_BATCH;
        expect(&p, has_no_exact_sums(&p.model), preset->config.name);
        taken += !has_no_exact_sums(&p.model);
    }
    assert_true(taken > 10);
}

/* A scheme that rounds results on their way does so in 16 bits alone, or with slices of experts alone; rsa stores no
 * scores then. */
static void test_schemes_that_round_at_times(void **state)
{
    (void)state;
    struct plan p = exact_plan();
    case_take_context(&p, 2, "tokenring-narrow");
    expect(&p, false, "tokenring-narrow");
    p.dtype = BF16;
    expect(&p, true, "tokenring-narrow");
    p = exact_plan();
    p.attention = "tokenring-narrow", p.dtype = BF16;
    expect(&p, true, "tokenring-narrow");
    p = exact_plan();
    case_take_context(&p, 2, "rsa");
    expect(&p, false, "rsa");
    for (int etp = 1; etp <= 2; etp++) {
        p = case_plan(4, 1, 1);
        case_take_mixtral(&p);
        p.dtype = F32, p.data.narrow_gradients = false, p.schedule = "gpipe";
        p.model.exact = SUMS_EXACT, p.model.mixture.balance.over = OVER_BATCH;
        p.ep = 2, p.etp = etp, p.dispatch = "tutel";
        expect(&p, etp > 1, "tutel");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_formats), cmocka_unit_test(test_optimizers),
                                        cmocka_unit_test(test_models),
                                        cmocka_unit_test(test_schemes_that_round_at_times) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
