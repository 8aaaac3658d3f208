/* Rotary positions in a config.json: the forms of transformers 4 and 5, both at once, and refusals. */
#include "ref/model/config.h"
#include "ref/model/kinds.h"
#include "tests/ref/scratch.h"

static const char *const LLAMA = "{\"model_type\": \"llama\", \"vocab_size\": 61, \"hidden_size\": 24, "
                                 "\"intermediate_size\": 37, \"num_hidden_layers\": 2, "
                                 "\"num_attention_heads\": 6, \"max_position_embeddings\": 11";

static enum error_code parse(struct model_config *c, const char *more, struct error *err)
{
    char text[1000];
    *err = (struct error){ OK, "" };
    snprintf(text, sizeof text, "%s%s%s}", LLAMA, more[0] ? ", " : "", more);
    return model_config_parse(c, text, "config.json", err);
}

#define LLAMA3 \
    "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 32"

static void both_forms_are_read(void **state)
{
    (void)state;
    static const struct { const char *more; double theta; enum rotary_scaling scaling; double factor;
    } good[] = {
        { "", 10000, SCALING_NONE, 0 },
        { "\"rope_scaling\": null, \"rope_parameters\": null", 10000, SCALING_NONE, 0 },
        { "\"rope_theta\": 500.0", 500, SCALING_NONE, 0 },
        { "\"rope_scaling\": {\"type\": \"default\"}", 10000, SCALING_NONE, 0 },
        { "\"rope_parameters\": {}, \"rope_theta\": 500", 500, SCALING_NONE, 0 },
        { "\"rope_parameters\": {\"rope_theta\": 500.0}", 500, SCALING_NONE, 0 },
        { "\"rope_parameters\": {\"rope_theta\": 500.0, \"rope_type\": \"default\"}", 500, SCALING_NONE, 0 },
        { "\"rope_parameters\": {\"rope_theta\": 500.0, \"rope_type\": \"default\", \"partial_rotary_factor\": 1.0}",
          500, SCALING_NONE, 0 },
        { "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 3}", 10000, SCALING_LINEAR, 3 },
        { "\"rope_parameters\": {\"factor\": 2.5, \"rope_theta\": 500.0, \"rope_type\": \"linear\", \"type\": "
          "\"linear\"}",
          500, SCALING_LINEAR, 2.5 },
        { "\"rope_theta\": 500, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}", 500, SCALING_LINEAR, 2.5 },
        { "\"rope_theta\": 500, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}, "
          "\"rope_parameters\": {\"rope_type\": \"linear\", \"rope_theta\": 500, \"factor\": 2.5}",
          500, SCALING_LINEAR, 2.5 },
        { "\"rope_theta\": 500, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.5}", 500,
          SCALING_DYNAMIC, 2.5 },
        { "\"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 2.5}", 10000, SCALING_DYNAMIC, 2.5 },
        { "\"rope_theta\": 500, \"rope_scaling\": {\"rope_type\": \"llama3\", " LLAMA3 "}", 500, SCALING_LLAMA3, 8 },
        { "\"rope_parameters\": {\"rope_theta\": 500, \"rope_type\": \"llama3\", " LLAMA3 "}", 500, SCALING_LLAMA3, 8 },
        { "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 500, \"rope_type\": \"llama3\", " LLAMA3 "}}, "
          "\"layer_types\": [\"full_attention\", \"full_attention\"]",
          500, SCALING_LLAMA3, 8 },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct model_config c;
        struct error err;
        if (parse(&c, good[i].more, &err) != OK) fail_msg("%s: %s", good[i].more, err.text);
        const struct rotary *r = &c.rotary;
        if (r->theta != good[i].theta || r->scaling != good[i].scaling || r->factor != good[i].factor)
            fail_msg("%s: theta %g, scaling %d, factor %g", good[i].more, r->theta, (int)r->scaling, r->factor);
        if (r->scaling == SCALING_LLAMA3)
            assert_true(r->low_frequency == 1 && r->high_frequency == 4 && r->original_positions == 32);
    }
}

static void what_cannot_be_read_is_refused(void **state)
{
    (void)state;
    static const struct { const char *value, *says;
    } bad[] = {
        /* of either form */
        { "3", "3; it must be an object" },
        { "{\"type\": \"longrope\", \"factor\": 2.0}",
          ": \"short_factor\" is missing; rotary positions of type \"longrope\" have one" },
        { "{\"type\": \"longer\", \"factor\": 2.0}",
          ": rotary positions are of type \"longer\"; Orrery has only \"default\", \"linear\", \"llama3\", "
          "\"dynamic\", \"yarn\" and \"longrope\"" },
        { "{\"type\": \"longrope\", \"short_factor\": [1, 2], \"long_factor\": [1]}",
          "long_factor must be a list of 2 numbers, one for each pair that is turned" },
        { "{\"type\": \"longrope\", \"short_factor\": [1, \"2\"], \"long_factor\": [1, 2]}",
          "short_factor has something that is no number, of pair 1" },
        { "{\"type\": \"longrope\", \"short_factor\": [1, 2], \"long_factor\": [1, 0]}",
          "short_factor 2, long_factor 0 of pair 1; they must be above 0" },
        { "{\"type\": \"longrope\", \"short_factor\": [1, 2], \"long_factor\": null}",
          "\"long_factor\" is missing; rotary positions of type \"longrope\" have one" },
        { "{\"type\": \"linear\", \"factor\": 2, \"partial_rotary_factor\": 0.5}",
          "partial_rotary_factor is 0.5; Orrery has only 1 or null" },
        { "{\"type\": \"dynamic\"}", "\"factor\" is missing; rotary positions of type \"dynamic\" have one" },
        { "{\"type\": \"dynamic\", \"factor\": 0.5}", "factor 0.5; it must be at least 1" },
        { "{\"type\": \"dynamic\", \"factor\": 2, \"original_max_position_embeddings\": 8}",
          "\"original_max_position_embeddings\" is there; rotary positions of type \"dynamic\" have none" },
        { "{\"rope_type\": \"yarn\", \"beta_fast\": 32}", ": \"factor\" is missing" },
        { "{\"rope_type\": 3}", "\"rope_type\" is 3; it must be a string" },
        { "{\"rope_type\": \"linear\", \"type\": \"llama3\", \"factor\": 2}",
          "rope_type is \"linear\", type is \"llama3\"; they must be the same" },
        { "{\"factor\": 2.0}", "\"rope_type\" is missing" },
        { "{\"rope_theta\": 500, \"factor\": 2.0}",
          "\"factor\" is there; rotary positions of type \"default\" have none" },
        { "{\"type\": \"linear\"}", "\"factor\" is missing; rotary positions of type \"linear\" have one" },
        { "{\"type\": \"linear\", \"factor\": 0.5}", "factor 0.5; it must be at least 1" },
        { "{\"type\": \"linear\", \"factor\": null}", "\"factor\" is null" },
        { "{\"type\": \"linear\", \"factor\": 2, \"low_freq_factor\": 1}",
          "\"low_freq_factor\" is there; rotary positions of type \"linear\"" },
        { "{\"rope_type\": \"llama3\", \"factor\": 8.0}",
          "\"low_freq_factor\" is missing; rotary positions of type \"llama3\" have one" },
        { "{\"rope_type\": \"linear\", \"factor\": 2, \"partial_rotary_factor\": 0.5}",
          "partial_rotary_factor is 0.5; Orrery has only 1 or null" },
        { "{\"rope_type\": \"linear\", \"factors\": 2}", "does not know the key \"factors\"|did you mean \"factor\"?" },
        { "{\"rope_theta\": 0, \"rope_type\": \"default\"}", "theta 0; it must be above 0" },
        { "{\"rope_theta\": 500, \"rope_type\": \"default\", \"attention_factor\": 0.5}",
          "\"attention_factor\" is there; rotary positions of type \"default\" have none" },
        { "{\"full_attention\": {\"rope_theta\": 500}, \"sliding_attention\": {\"rope_theta\": 100}}",
          "does not know the key \"sliding_attention\"" },
    };
    static const struct { const char *more, *says;
    } twice[] = {
        { "\"rope_theta\": 500, \"rope_parameters\": {\"rope_theta\": 501, \"rope_type\": \"default\"}",
          "config.json: rope_theta is 500, in rope_parameters it is 501; they must be the same" },
        { "\"rope_theta\": 10000, \"rope_scaling\": {\"rope_theta\": 501, \"rope_type\": \"default\"}",
          "in rope_scaling it is 501" },
        { "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": {\"rope_type\": \"linear\", "
          "\"factor\": 3}",
          "config.json: rope_scaling and rope_parameters say different things" },
        { "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": {\"rope_theta\": 10000, "
          "\"rope_type\": \"default\"}",
          "rope_scaling and rope_parameters say different things" },
    };
    struct model_config c;
    struct error err;
    for (size_t i = 0; i < 2 * sizeof bad / sizeof *bad; i++) {
        char more[300];
        const char *form = i % 2 ? "rope_parameters" : "rope_scaling";
        snprintf(more, sizeof more, "\"%s\": %s", form, bad[i / 2].value);
        if (parse(&c, more, &err) == OK) fail_msg("%s is accepted", more);
        assert_says(more, err.text, bad[i / 2].says);
    }
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++) {
        if (parse(&c, twice[i].more, &err) != ERR_FORMAT) fail_msg("%s is accepted", twice[i].more);
        assert_says(twice[i].more, err.text, twice[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_are_read),
        cmocka_unit_test(what_cannot_be_read_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
