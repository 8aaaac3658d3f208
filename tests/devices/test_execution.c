/* The order in which tensors are computed, from their names: that of golden files, of several families; later passes,
 * steps, and names that nobody knows.
 * tier: check
 */
#include "emulated_devices/check/report/execution.h"
#include "ref/golden/golden.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* The list of a golden file's tensors, in its own order of execution. */
static struct golden_list list_of(const char *name)
{
    char path[128];
    struct golden golden;
    struct golden_list list;
    struct error err;
    snprintf(path, sizeof path, "golden/%s.safetensors", name);
    assert_int_equal(golden_open(&golden, path, &err), OK);
    assert_int_equal(golden_stored(&golden, F32, &list, &err), OK);
    golden_close(&golden);
    return list;
}

/* Hold neighbours of the list that are both activations, or both gradients of activations, to the order. */
static int hold(const char *name, bool with_list)
{
    struct golden_list list = list_of(name);
    int held = 0;
    for (int i = 1; i < list.count; i++) {
        const char *const a = list.all[i - 1].name, *const b = list.all[i].name;
        const struct execution x = execution_of(a, with_list ? &list : NULL),
                               y = execution_of(b, with_list ? &list : NULL);
        if (x.phase != y.phase || x.is_parameter || y.is_parameter) continue;
        /* Backward only a list says in what order branches are taken. */
        if (x.phase != PHASE_FORWARD && (x.phase != PHASE_BACKWARD || !with_list)) continue;
        if (execution_compare(&x, &y) >= 0) print_error("%s: %s does not come before %s\n", name, a, b);
        assert_true(execution_compare(&x, &y) < 0 && execution_compare(&y, &x) > 0);
        held++;
    }
    golden_list_free(&list);
    return held;
}

/* Without a list names alone decide; OLMo 2 and GPT-NeoX have their norms elsewhere, which only their lists say. */
static void test_golden_order(void **state)
{
    static const char *const usual[] = { "gpt2-tied", "llama-grouped", "qwen2moe-between", "deepseekv2-groups",
                                         "gemma2-windows", "granite-multiplied", "parscale-grouped" };
    static const char *const listed[] = { "olmo2-grouped", "gptneox-parallel", "gpt2-tied", "deepseekv2-groups" };
    (void)state;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) assert_true(hold(usual[i], false) > 15);
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++) assert_true(hold(listed[i], true) > 20);
}

/* Each name comes before the next. */
static void test_whole_run(void **state)
{
    static const char *const order[] = {
        "start/wte.weight", "act/embedding", "act/h.0.ln_1", "act/h.0.attn.qkv", "act/h.0.of_my_own", "act/h.1.ln_1",
        "act/h.10.ln_1", "act/ln_f", "act/logits", "loss", "grad/logits", "grad/ln_f", "grad/ln_f.weight",
        "grad/h.10.out", "grad/h.10.ln_1", "grad/h.10.mlp.c_fc.weight", "grad/model.layers.2.mlp.gate.weight",
        "grad/h.1.ln_1", "grad/embedding", "grad/wte.weight", "norm", "adamw/1/exp_avg/wte.weight",
        "adamw/1/weight/wte.weight", "adamw/2/act/embedding", "adamw/2/act/logits", "adamw/2/loss",
        "adamw/2/grad/logits", "adamw/2/grad/wte.weight", "adamw/2/exp_avg/wte.weight", "adamw/2/weight/wte.weight",
        "adamw/10/act/embedding", "adamw/10/weight/wte.weight", "adamw/loss", "adamw/exp_avg/wte.weight",
        "adamw/weight/wte.weight", "sgd/1/weight/wte.weight"
    };
    const int count = (int)(sizeof order / sizeof *order);
    (void)state;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            const struct execution x = execution_of(order[i], NULL), y = execution_of(order[k], NULL);
            const int c = execution_compare(&x, &y);
            if ((c < 0) != (i < k) || (c > 0) != (i > k)) print_error("%s and %s: %d\n", order[i], order[k], c);
            assert_true((c < 0) == (i < k) && (c > 0) == (i > k));
        }
}

static void test_first_names(void **state)
{
    (void)state;
    assert_string_equal(execution_first_name("adamw/2/act/ln_f"), "act/ln_f");
    assert_string_equal(execution_first_name("sgd/3/grad/wte.weight"), "grad/wte.weight");
    assert_string_equal(execution_first_name("adamw/2/loss"), "loss");
    assert_null(execution_first_name("adamw/2/weight/wte.weight"));
    assert_null(execution_first_name("adamw/loss"));
    assert_null(execution_first_name("act/ln_f"));
    assert_null(execution_first_name("micro/0/grad/wte.weight"));
    assert_null(execution_first_name(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_golden_order), cmocka_unit_test(test_whole_run),
                                        cmocka_unit_test(test_first_names) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
