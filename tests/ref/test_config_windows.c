/* Which layers' attention has a window, as a config.json says it: the rule of each family, the list of layers, what
 * contradicts itself, and what is written.
 * tier: check
 */
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "tests/ref/scratch.h"
#include <stdlib.h>

#define SIZES "\"vocab_size\": 61, \"hidden_size\": 24, \"intermediate_size\": 37, \"num_hidden_layers\": 4, " \
              "\"num_attention_heads\": 6, \"num_key_value_heads\": 2, \"max_position_embeddings\": 11"
#define QWEN2 "{\"model_type\": \"qwen2\", " SIZES
#define QWEN3 "{\"model_type\": \"qwen3\", " SIZES
#define MISTRAL "{\"model_type\": \"mistral\", " SIZES
#define MIXTRAL "{\"model_type\": \"mixtral\", " SIZES
#define LIST(a, b, c, d) ", \"layer_types\": [\"" a "_attention\", \"" b "_attention\", \"" c "_attention\", \"" d \
                         "_attention\"]"
#define USED ", \"use_sliding_window\": true"

/* The window of each of the four layers. */
static const struct { const char *text; int64_t window[4]; } good[] = {
    { MISTRAL "}", { 4096, 4096, 4096, 4096 } },
    { MISTRAL ", \"sliding_window\": null}", { 0, 0, 0, 0 } },
    { MISTRAL ", \"sliding_window\": 1}", { 1, 1, 1, 1 } },
    { MISTRAL ", \"sliding_window\": 7" LIST("sliding", "sliding", "sliding", "sliding") "}", { 7, 7, 7, 7 } },
    { MISTRAL ", \"sliding_window\": null" LIST("full", "full", "full", "full") "}", { 0, 0, 0, 0 } },
    { MIXTRAL "}", { 0, 0, 0, 0 } },
    { MIXTRAL ", \"sliding_window\": 5}", { 5, 5, 5, 5 } },
    { QWEN2 "}", { 0, 0, 0, 0 } },
    { QWEN2 ", \"sliding_window\": 5, \"max_window_layers\": 1, \"use_sliding_window\": false}", { 0, 0, 0, 0 } },
    { QWEN2 ", \"sliding_window\": 5, \"max_window_layers\": 1" USED "}", { 0, 5, 5, 5 } },
    { QWEN3 ", \"sliding_window\": 5, \"max_window_layers\": 0" USED "}", { 5, 5, 5, 5 } },
    { QWEN2 ", \"max_window_layers\": 3" USED "}", { 0, 0, 0, 4096 } },
    { QWEN2 ", \"sliding_window\": 5" USED "}", { 0, 0, 0, 0 } },
    { QWEN2 ", \"sliding_window\": null, \"max_window_layers\": 1" USED "}", { 0, 0, 0, 0 } },
    { QWEN3 ", \"sliding_window\": 5" USED LIST("sliding", "full", "full", "sliding") "}", { 5, 0, 0, 5 } },
    { QWEN3 ", \"sliding_window\": 5, \"layer_types\": null, \"max_window_layers\": 2" USED "}", { 0, 0, 5, 5 } },
    { QWEN2 LIST("full", "full", "full", "full") "}", { 0, 0, 0, 0 } },
};

static void windows_are_read_and_written(void **state)
{
    struct model_config c, again;
    struct error err;
    char *text;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (model_config_parse(&c, good[i].text, "config.json", &err) != OK) fail_msg("%s: %s", good[i].text, err.text);
        assert_int_equal(model_config_text(&c, &text, &err), OK);
        if (model_config_parse(&again, text, "written", &err) != OK) fail_msg("%s: %s", text, err.text);
        int64_t windowed = 0;
        for (int64_t l = 0; l < 4; l++) {
            if (model_window(&c, l) != good[i].window[l] || model_window(&again, l) != good[i].window[l])
                fail_msg("%s: layer %d has a window of %d, and written again %d", good[i].text, (int)l,
                         (int)model_window(&c, l), (int)model_window(&again, l));
            windowed += good[i].window[l] > 0;
        }
        assert_int_equal(model_windowed_layers(&c), windowed);
        assert_ptr_equal(c.family, again.family);
        free(text);
    }
}

static void contradictions_are_refused(void **state)
{
    static const struct { const char *text, *says; } bad[] = {
        { MISTRAL ", \"sliding_window\": 0}", "sliding_window" },
        { MISTRAL ", \"sliding_window\": 7" LIST("sliding", "sliding", "full", "sliding") "}",
          "sliding_window is a number, and layer_types has \"full_attention\"; in this model_type all layers" },
        { MISTRAL ", \"sliding_window\": null" LIST("full", "full", "full", "sliding") "}",
          "layer_types has \"sliding_attention\", and sliding_window is null" },
        { MISTRAL ", \"use_sliding_window\": true}", "does not know the key \"use_sliding_window\"" },
        { MISTRAL ", \"attention_bias\": true}", "attention_bias is true; Orrery has only false" },
        { QWEN2 LIST("full", "full", "full", "sliding") "}", "use_sliding_window is not true" },
        { QWEN2 ", \"sliding_window\": null" USED LIST("full", "full", "full", "sliding") "}",
          "or sliding_window is null" },
        { QWEN2 ", \"sliding_window\": 5" USED LIST("full", "full", "full", "chunked") "}",
          "layer_types has \"chunked_attention\"; Orrery has only \"full_attention\" and \"sliding_attention\"" },
        { QWEN2 ", \"sliding_window\": 5, \"layer_types\": [\"sliding_attention\"]" USED "}",
          "layer_types must be a list of one word for each of 4 layers" },
        { QWEN3 ", \"max_window_layers\": -1}", "max_window_layers" },
    };
    struct model_config c;
    struct error err;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (model_config_parse(&c, bad[i].text, "config.json", &err) == OK) fail_msg("%s is accepted", bad[i].text);
        assert_says(bad[i].text, err.text, bad[i].says);
    }
}

/* Shapes that no file describes. */
static void shapes_are_checked(void **state)
{
    struct model_config c;
    struct error err;
    int64_t batch;
    (void)state;
    assert_int_equal(model_config_preset(&c, &batch, "llama-tiny", &err), OK);
    c.windows.size = 4, windows_add(&c.windows, 0, 1);
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    assert_says("a Llama", err.text, "windows in a Llama, which has none");
    c.family = &family_mistral;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    windows_add(&c.windows, 0, c.L);
    assert_int_equal(model_config_check(&c, &err), OK);
    c.L = WINDOW_LAYERS + 1;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    assert_says("many layers", err.text, "at most 1024 layers");
    c.L = 8, c.windows.size = -1;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    assert_says("below 0", err.text, "a window of -1 tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_read_and_written), cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(shapes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
