/* Every optimizer, format and model of the registries takes part in --arithmetic exact, or is refused in one line that
 * names it.  Who must be refused is said here by what it is, not by the table of clashes.
 * tier: check
 */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/device/device.h"
#include "emulated_devices/schemes/attention/attention.h"
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

/* Low-rank steps multiply whole matrices. */
static void test_optimizers(void **state)
{
    (void)state;
    for (int i = 0; optimizers[i]; i++) {
        struct plan p = exact_plan();
        p.optimizer = optimizers[i];
        if (p.optimizer->low_rank) case_take_low_rank(&p, p.optimizer);
        if (p.optimizer->forward_only) case_take_mezo(&p, 1);
        expect(&p, p.optimizer->low_rank, p.optimizer->name);
    }
}

/* Every preset takes part. */
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
        expect(&p, false, preset->config.name);
        taken++;
    }
    assert_true(taken > 10);
}

/* These schemes have more to do with exact sums than by themselves: results that round on their way in 16 bits, slices
 * of experts that are gathered, stored scores, streams on several devices. */
static void test_schemes_that_round_at_times(void **state)
{
    static const struct { const char *attention; enum dtype dtype; } taken[] = {
        { "tokenring-narrow", F32 }, { "tokenring-narrow", BF16 }, { "rsa", F32 } };
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        struct plan p = exact_plan();
        case_take_context(&p, 2, taken[i].attention);
        p.dtype = taken[i].dtype;
        expect(&p, false, taken[i].attention);
    }
    for (int etp = 1; etp <= 2; etp++) {
        struct plan p = case_plan(4, 1, 1);
        case_take_mixtral(&p);
        p.dtype = F32, p.data.narrow_gradients = false, p.schedule = "gpipe";
        p.model.exact = SUMS_EXACT, p.model.mixture.balance.over = OVER_BATCH;
        p.ep = 2, p.etp = etp, p.dispatch = "tutel";
        expect(&p, false, "tutel");
    }
}

/* A scheme of a plug-in that adds in another order is refused on one device, too; one that permutes adds as one device
 * does. */
static void test_schemes_of_plug_ins(void **state)
{
    static struct attention_scheme copy[2];
    static const char *const from[] = { "ring", "ulysses" }, *const name[] = { "plugged-ring", "plugged-ulysses" };
    struct error err;
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct attention_scheme *one;
        struct plan p = exact_plan();
        assert_int_equal(attention_scheme_find(&one, from[i], &err), OK);
        copy[i] = *one, copy[i].head.name = name[i], copy[i].exact = false;
        assert_int_equal(scheme_add(&copy[i].head, &err), OK);
        p.attention = name[i];
        expect(&p, i == 0, name[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_formats), cmocka_unit_test(test_optimizers),
                                        cmocka_unit_test(test_models),
                                        cmocka_unit_test(test_schemes_that_round_at_times),
                                        cmocka_unit_test(test_schemes_of_plug_ins) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
