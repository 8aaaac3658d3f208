/* --stage-layers: how many layers each stage of a pipeline has, by names and lists; and what is refused, and why.
 * tier: check
 *
 * Llama 3 405B has 126 layers on 16 stages, "7, 8, .., 8, 7" (arXiv:2407.21783, section 3.3.2).  There both ends count
 * as a layer.
 */
#include "emulated_devices/plan/stage_layers.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 16 };

/* The layers of each stage as text; an error's text if there is one. */
static const char *cut(const char *choice, int64_t first, int64_t layers, int stages)
{
    static char text[sizeof (struct error)];
    struct error err = { .text = "" };
    int at[MOST + 1];
    size_t used = 0;
    if (stage_layers_cut(choice, (struct interval){ first, layers }, stages, at, &err)) {
        snprintf(text, sizeof text, "%s", err.text);
        return text;
    }
    assert_int_equal(at[0], first);
    assert_int_equal(at[stages], first + layers);
    for (int t = 0; t < stages; t++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", t ? " " : "", at[t + 1] - at[t]);
    return text;
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(cut("even", 0, 126, 4), "32 32 31 31");
    assert_string_equal(cut("ends", 0, 126, 16), "7 8 8 8 8 8 8 8 8 8 8 8 8 8 8 7");
    assert_string_equal(cut("embedding", 0, 15, 4), "3 4 4 4");
    assert_string_equal(cut("loss", 0, 15, 4), "4 4 4 3");
    assert_string_equal(cut("ends", 3, 8, 2), "4 4");
    assert_string_equal(cut("ends", 0, 5, 1), "5");
}

static void test_lists(void **state)
{
    (void)state;
    assert_string_equal(cut("7,..,7", 0, 126, 16), "7 8 8 8 8 8 8 8 8 8 8 8 8 8 8 7");
    assert_string_equal(cut("1,2,3,4", 0, 10, 4), "1 2 3 4");
    assert_string_equal(cut("..,1", 5, 8, 3), "4 3 1");
    assert_string_equal(cut("5,..", 0, 8, 3), "5 2 1");
    assert_string_equal(cut("3,..,5", 0, 8, 2), "3 5");
    assert_string_equal(cut("..", 0, 7, 3), "3 2 2");
    assert_string_equal(cut("8", 0, 8, 1), "8");
}

static void test_what_is_refused(void **state)
{
    static const struct { const char *choice; int layers, stages; const char *why; } wrong[] = {
        { "end", 8, 2, "did you mean ends?" },
        { "", 8, 2, "must be even, embedding" }, { "3,,5", 8, 3, "must be even, embedding" },
        { "3,5,", 8, 2, "must be even, embedding" }, { "0,8", 8, 2, "must be even, embedding" },
        { "-1,9", 8, 2, "must be even, embedding" }, { "..,..", 8, 2, "must be even, embedding" },
        { "3 5", 8, 2, "must be even, embedding" }, { "4...", 8, 2, "must be even, embedding" },
        { "99999999999999999999,1", 8, 2, "must be even, embedding" },
        { "3,5", 8, 3, "has 2 numbers, but stages number 3" },
        { "3,..,2,3", 8, 2, "has 3 numbers, but stages number only 2" },
        { "3,6", 8, 2, "adds up to 9 layers, but the model has 8" },
        { "3,..,2", 6, 4, "leaves 1 layers to 2 stages, and each needs at least one" },
        { "9,..", 8, 2, "adds up to 9 layers, but the model has 8" },
        { "ends", 2, 4, "leave an end without a layer" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const text = cut(wrong[i].choice, 0, wrong[i].layers, wrong[i].stages);
        if (strstr(text, wrong[i].why) == NULL) fail_msg("%s: %s", wrong[i].choice, text);
        assert_true(strncmp(text, "--stage-layers", 14) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), cmocka_unit_test(test_lists), cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
