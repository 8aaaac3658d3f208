/* The config.json of a Phi-3: which part of a head is turned, LongRoPE by its three names, where its original length is
 * written, and what comes of the class's own numbers.
 * tier: check
 */
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "tests/ref/config_text.h"
#include <math.h>
#include <stdlib.h>

#define PHI3 "{\"model_type\": \"phi3\", \"vocab_size\": 61, \"hidden_size\": 24, \"intermediate_size\": 37, " \
             "\"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"max_position_embeddings\": 36"
#define LISTS "\"short_factor\": [1.1, 1.2, 1.3, 1.4], \"long_factor\": [2, 3, 4, 5]"

static struct model_config phi3(const char *more)
{
    struct model_config c;
    struct error err;
    char text[1000];
    snprintf(text, sizeof text, "%s%s}", PHI3, more);
    if (model_config_parse(&c, text, "config.json", &err) != OK) fail_msg("%s: %s", more, err.text);
    return c;
}

static void defaults_are_the_class_s(void **state)
{
    (void)state;
    const struct model_config c = phi3(""), r = read_back(&c);
    assert_ptr_equal(c.family, &family_phi3);
    assert_ptr_equal(r.family, &family_phi3);
    assert_true(c.K == 3 && c.A == 8 && c.eps == 1e-5 && c.windows.size == 0 && c.padding == 32001);
    assert_true(c.rotary.scaling == SCALING_NONE && c.rotary.turned == 0 && c.rotary.theta == 10000);
    assert_true(r.padding == 32001 && phi3(", \"pad_token_id\": null").padding == 0);
    const struct param_spec qkv = model_param(&c, param_of_block(&c, 1, QKV_W)),
                            up = model_param(&c, param_of_block(&c, 1, UP_W));
    assert_true(qkv.parts <= 1 && up.parts <= 1 && qkv.dim[0] == 72 && up.dim[0] == 74);
    assert_string_equal(qkv.name, "model.layers.1.self_attn.qkv_proj.weight");
}

/* As transformers cuts the product: int(8 * 0.8). */
static void parts_of_heads_are_turned(void **state)
{
    static const struct { const char *more; int64_t turned; } good[] = {
        { ", \"partial_rotary_factor\": 1.0", 0 }, { ", \"partial_rotary_factor\": null", 0 },
        { ", \"partial_rotary_factor\": 0.75", 6 }, { ", \"partial_rotary_factor\": 0.8", 6 },
        { ", \"rope_parameters\": {\"partial_rotary_factor\": 0.5, \"rope_type\": \"default\"}", 4 },
        { ", \"head_dim\": 10, \"partial_rotary_factor\": 0.6", 6 },
        { ", \"head_dim\": 6, \"partial_rotary_factor\": 0.67", 4 },
        { ", \"head_dim\": 14, \"partial_rotary_factor\": 0.9", 12 },       /* of 15 digits of 12/14 it would be 11 */
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const struct model_config c = phi3(good[i].more), r = read_back(&c);
        if (c.rotary.turned != good[i].turned || r.rotary.turned != good[i].turned)
            fail_msg("%s: %d numbers are turned, written again %d", good[i].more, (int)c.rotary.turned,
                     (int)r.rotary.turned);
    }
}

static void long_positions_are_read(void **state)
{
    static const char *const names[] = { "longrope", "su", "yarn" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        char more[400];
        snprintf(more, sizeof more, ", \"original_max_position_embeddings\": 9, \"rope_scaling\": {\"type\": \"%s\", "
                 LISTS "}", names[i]);
        const struct model_config c = phi3(more), r = read_back(&c);
        assert_true(c.rotary.scaling == SCALING_LONG && c.rotary.original_positions == 9);
        assert_true(c.rotary.shorter[3] == 1.4 && c.rotary.longer[3] == 5 && c.rotary.longer[4] == 0);
        assert_true(c.rotary.enlarged == sqrt(1 + log(4) / log(9)));
        assert_int_equal(memcmp(&c.rotary, &r.rotary, sizeof c.rotary), 0);
        assert_true(!rotary_by_length(&c.rotary, 9) && rotary_by_length(&c.rotary, 10));
    }
    struct model_config c = phi3(", \"rope_scaling\": {\"type\": \"longrope\", " LISTS "}");
    assert_true(c.rotary.original_positions == 4096 && c.rotary.enlarged == 1);
    c = phi3(", \"rope_parameters\": {\"rope_type\": \"longrope\", \"original_max_position_embeddings\": 9, "
               LISTS "}");
    assert_true(c.rotary.original_positions == 4096 && read_back(&c).rotary.original_positions == 4096);
    c = phi3(", \"original_max_position_embeddings\": 9, \"rope_scaling\": {\"rope_type\": \"longrope\", "
               "\"attention_factor\": 1.7, " LISTS "}");
    const struct model_config r = read_back(&c);
    assert_true(c.rotary.enlarged == 1.7 && r.rotary.enlarged == 1.7);
    c = phi3(", \"original_max_position_embeddings\": 9, \"rope_scaling\": {\"rope_type\": \"longrope\", "
               "\"factor\": 16, " LISTS "}");
    assert_true(c.rotary.enlarged == sqrt(1 + log(16) / log(9)));
}

static void what_cannot_be_is_refused(void **state)
{
    static const struct { const char *more, *says; } bad[] = {
        { ", \"partial_rotary_factor\": 0.7}", "rotary positions turn 5 numbers of a head; it must be an even number" },
        { ", \"partial_rotary_factor\": 1.5}", "partial_rotary_factor is 1.5; it must be above 0 and at most 1" },
        { ", \"partial_rotary_factor\": 0.5, \"rope_parameters\": {\"partial_rotary_factor\": 0.75}}",
          "partial_rotary_factor is 0.75, and beside it 0.5" },
        { ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
          "rotary positions are of type \"linear\"; a Phi-3 has only \"default\" and \"longrope\"" },
        { ", \"original_max_position_embeddings\": 9, \"rope_parameters\": {\"rope_type\": \"longrope\", "
          "\"original_max_position_embeddings\": 10, " LISTS "}}",
          "original_max_position_embeddings is 10, and beside it 9" },
        { ", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [1]}}",
          "short_factor must be a list of 4 numbers" },
        { ", \"embd_pdrop\": 0.1}", "embd_pdrop is 0.1; Orrery has only 0" },
        { ", \"attention_bias\": true}", "attention_bias is true; Orrery has only false" },
        { ", \"lm_head_bias\": true}", "lm_head_bias is true" },
        { ", \"mup_scale\": 1}", "does not know the key \"mup_scale\"" },
    };
    struct model_config c;
    struct error err;
    char text[1000];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "%s%s", PHI3, bad[i].more);
        if (model_config_parse(&c, text, "config.json", &err) == OK) fail_msg("%s is accepted", bad[i].more);
        assert_says(bad[i].more, err.text, bad[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_class_s), cmocka_unit_test(parts_of_heads_are_turned),
        cmocka_unit_test(long_positions_are_read), cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
